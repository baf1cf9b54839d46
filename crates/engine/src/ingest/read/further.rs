//! Further names of files that were read: each is opened and compared with what was read.

use super::{FileEnd, FileTask};
use crate::ingest::attributes::{self, AttributeSource};
use crate::ingest::links::{self, Identity, LinkEnd, LinkEndName, LinkedName};
use onefold_format::node::Entry;
use onefold_types::{Error, Result};
use std::fs::File;
use std::os::fd::AsFd;

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
    if !links::has_trusted_numbers(file) || !further.is_of(&identity) {
        return Ok(None);
    }
    let attributes = attributes::put_xattrs(&mut entry, AttributeSource::Open(file.as_fd())).err();
    let link = Some(LinkEnd { identity, name: LinkEndName::AsFirst });
    Ok(Some(FileEnd { entry: Some(entry), link, attributes, ..FileEnd::default() }))
}
