//! The status of an open file: whether the file is a further name of one that was read, and whether
//! its size says how much there is to read.

use super::{FileEnd, FileTask};
use crate::file_systems::has_trusted_numbers;
use crate::ingest::attributes::{self, AttributeSource};
use crate::ingest::links::{Identity, LinkEnd, LinkEndName, LinkedName};
use onefold_format::node::Entry;
use onefold_types::{Error, Result};
use std::fs::File;
use std::os::fd::AsFd;

/// File systems that the kernel makes up, which do not know how long their files are.
const MADE_UP_MAGICS: [u64; 6] = [
    0x0000_9fa0, // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x6367_7270, // cgroup2
    0x7363_6673, // securityfs
];

/// Whether the size of a file says how much there is to be read.
pub(super) fn has_true_sizes(file: &File) -> bool {
    let magic = rustix::fs::fstatfs(file).map_or(0, |found| found.f_type as u64);
    !MADE_UP_MAGICS.contains(&(magic & u64::from(u32::MAX)))
}

/// The status of a file that is open.
pub(super) fn status(task: &FileTask, file: &File) -> Result<Entry> {
    let stat = rustix::fs::fstat(file).map_err(|errno| Error::io("its status", errno.into()))?;
    Ok(attributes::entry_of(task.entry.name.clone(), &stat))
}

/// The end of a further name of a file that was read, and is still the same.
pub(super) fn end_as_first(task: &FileTask, file: &File) -> Result<Option<FileEnd>> {
    let LinkedName::Further(further) = &task.link else { return Ok(None) };
    let mut entry = status(task, file)?;
    let identity = Identity::of(file, &entry);
    if !has_trusted_numbers(file) || !further.is_of(&identity) {
        return Ok(None);
    }
    let attributes = attributes::put_xattrs(&mut entry, AttributeSource::Open(file.as_fd())).err();
    let link = Some(LinkEnd { identity, name: LinkEndName::AsFirst });
    Ok(Some(FileEnd { entry: Some(entry), link, attributes, ..FileEnd::default() }))
}
