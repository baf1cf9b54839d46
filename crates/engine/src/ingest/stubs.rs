//! What the walk does with stubs: files whose data is in the store already.
//!
//! A stub of which nothing came back into the file is taken over unread, once all its chunks were
//! found to be relied upon. One that was written to is read as any file, by [`StubFile`], unless
//! only cold files are asked for and it is none: then what the store has of it is kept.
//!
//! [`StubFile`]: crate::stub::StubFile

use super::walk::{Item, Walk};
use crate::stub;
use onefold_format::node::{Entry, Time};
use onefold_format::stub::Stub;
use onefold_types::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Walk<'_> {
    /// Whether a file is as cold as is asked for.
    pub(super) fn is_cold(&self, entry: &Entry) -> bool {
        let Time { seconds, nanoseconds } = entry.modified;
        let modified_ns = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds.into());
        let cold = self.context.selection.cold;
        cold.is_none_or(|cold| cold.is_cold(entry.size, modified_ns))
    }

    /// The stub that a file is.
    pub(super) fn stub(
        &self,
        directory: &OwnedFd,
        name: &OsStr,
        entry: &Entry,
    ) -> Result<Option<Stub>> {
        let Some(value) = stub::value_at(&by_handle(directory, name))? else { return Ok(None) };
        let (_, mut stub) = stub::open(self.context.repository, entry.inode, &value)?;
        stub.valid = stub.valid.min(entry.size);
        Ok(Some(stub))
    }

    /// A file whose data is in the store, or what is in the store of it.
    pub(super) fn stored(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        mut entry: Entry,
        stub: &Stub,
    ) -> Result<()> {
        entry.content = Some(stub.content);
        entry.size = stub.size;
        entry.chunks = stub.chunks;
        entry.sparse = false;
        if !stub.is_untouched() {
            // It is not what the file has now, and nobody may take it for that.
            entry.changed = Time::default();
        }
        if !(self.context.is_stored)(&entry)? {
            return Err(Error::new(
                ErrorKind::Source,
                "it is a stub, and data of it is missing in the store",
            ));
        }
        entry.xattrs = self.xattrs_by_path(directory, name)?;
        self.send(Item::Stored(entry))
    }
}

/// The path of a file in an open directory.
pub fn by_handle(directory: &OwnedFd, name: &OsStr) -> PathBuf {
    let mut path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    path.push(name);
    path
}
