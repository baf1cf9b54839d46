//! What an entry says beside a file's content: the target of a link, extended attributes.

use super::Walk;
use crate::ingest::attributes::{self, AttributeSource};
use crate::ingest::stubs::by_handle;
use onefold_format::node::{Entry, EntryKind};
use onefold_types::{Error, ErrorKind, Result, limits};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl Walk<'_> {
    /// Describes a link, device, pipe or socket.
    pub(super) fn other(
        &self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        tree_path: &[u8],
        entry: &mut Entry,
    ) -> Result<()> {
        if entry.kind == EntryKind::Symlink {
            let target = rustix::fs::readlinkat(&**directory, name, Vec::new())
                .map_err(|errno| Error::io("reading the link", errno.into()))?;
            entry.target = target.into_bytes();
            if entry.target.len() > limits::SYMLINK_TARGET_MAX_BYTES {
                return Err(Error::new(ErrorKind::LimitExceeded, "the link's target is too long"));
            }
        }
        self.put_xattrs_by_path(directory, name, tree_path, entry)
    }

    /// Puts extended attributes into an entry, and tells of those that cannot be saved.
    pub(super) fn put_xattrs(
        &self,
        source: AttributeSource<'_>,
        tree_path: &[u8],
        entry: &mut Entry,
    ) -> Result<()> {
        match attributes::put_xattrs(entry, source) {
            Err(error) => self.problem(tree_path, error),
            Ok(()) => Ok(()),
        }
    }

    pub(in crate::ingest) fn put_xattrs_by_path(
        &self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        tree_path: &[u8],
        entry: &mut Entry,
    ) -> Result<()> {
        let path = by_handle(directory, name);
        self.put_xattrs(AttributeSource::Path(&path), tree_path, entry)
    }
}
