//! Requests for extended attributes, of which ours are nobody else's business.

use super::Answer;
use super::below::{self, failed};
use super::nodes::TOP;
use super::served::Served;
use fuser::Errno;
use onefold_engine::primary::share::BELOW_ATTRIBUTE;
use onefold_engine::stub;
use rustix::fs::XattrFlags;
use std::ffi::OsStr;
use std::os::fd::AsFd;

/// What all attributes begin with that are ours.
const OWN_PREFIX: &[u8] = b"user.onefold.";
/// More than any list of names or value of an attribute takes.
const XATTR_MAX_BYTES: usize = 64 << 10;

impl Served {
    pub(super) fn attribute(&self, number: u64, name: &OsStr) -> Answer<Vec<u8>> {
        if number == TOP && name == BELOW_ATTRIBUTE {
            return Ok(self.handover.name().as_bytes().to_vec());
        }
        let repository = self.tree.chunks().repository();
        // For backups into the same store, which take a stub over that holds no data itself.
        let is_for_backups = name == stub::served_attribute(repository.store_id()).as_str();
        if is_own(name) && !is_for_backups {
            return Err(Errno::ENODATA);
        }
        let stored = if is_for_backups { OsStr::new(stub::ATTRIBUTE) } else { name };
        let item = self.item(number)?;
        let path = below::path_of(item.as_fd());
        let mut value = vec![0; XATTR_MAX_BYTES];
        let length = rustix::fs::getxattr(&path, stored, &mut value[..]).map_err(failed)?;
        value.truncate(length);
        if is_for_backups {
            let status = below::status_of(item.as_fd())?;
            let known = stub::open(repository, status.inode, &value);
            let is_untouched =
                known.is_ok_and(|(_, stub)| stub::is_all(&stub, status.attributes.size));
            return if is_untouched { Ok(value) } else { Err(Errno::ENODATA) };
        }
        Ok(value)
    }

    pub(super) fn attribute_names(&self, number: u64) -> Answer<Vec<u8>> {
        let item = self.item(number)?;
        let mut names = vec![0; XATTR_MAX_BYTES];
        let path = below::path_of(item.as_fd());
        let length = rustix::fs::listxattr(path, &mut names[..]).map_err(failed)?;
        names.truncate(length);
        let shown = names.split_inclusive(|byte| *byte == 0);
        let is_shown = |name: &&[u8]| !is_own(OsStr::new(&*String::from_utf8_lossy(name)));
        Ok(shown.filter(is_shown).collect::<Vec<_>>().concat())
    }

    pub(super) fn set_attribute(
        &self,
        number: u64,
        (name, value): (&OsStr, &[u8]),
        flags: i32,
    ) -> Answer<()> {
        if is_own(name) {
            return Err(Errno::EPERM);
        }
        let item = self.item(number)?;
        let flags = XattrFlags::from_bits(flags as u32).ok_or(Errno::EINVAL)?;
        self.settle_time(number, item.as_fd());
        let path = below::path_of(item.as_fd());
        rustix::fs::setxattr(path, name, value, flags).map_err(failed)
    }

    pub(super) fn remove_attribute(&self, number: u64, name: &OsStr) -> Answer<()> {
        if is_own(name) {
            return Err(Errno::EPERM);
        }
        let item = self.item(number)?;
        self.settle_time(number, item.as_fd());
        rustix::fs::removexattr(below::path_of(item.as_fd()), name).map_err(failed)
    }
}

/// Whether an attribute is ours, and nobody else's business.
fn is_own(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(OWN_PREFIX)
}
