//! What the walk does with stubs: files whose data is in the store already.
//!
//! A stub of which nothing came back into the file is taken over unread, once all its chunks were
//! found to be relied upon. One that was written to is read as any file, by [`StubFile`], unless
//! only cold files are asked for and it is none: then what the store has of it is kept. Then it is
//! taken over, too, if it was moved to where patterns leave everything else out: programs read it
//! there as anywhere.
//!
//! [`StubFile`]: crate::stub::StubFile

use super::walk::{Item, Walk};
use crate::stub;
use crate::tree::{FileReader, TreeReader};
use onefold_format::node::{Entry, Time};
use onefold_format::stub::Stub;
use onefold_lease::Lease;
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Walk<'_> {
    /// Whether a file need not be read: its data is in the store, or it is none that is asked for.
    /// What there is to say about it was sent.
    pub(super) fn is_not_to_be_read(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        entry: &Entry,
    ) -> Result<bool> {
        // How much of the disk a file takes does not tell whether it is a stub.
        let stub = match self.stub(directory, name, entry) {
            // Nothing but stubs of this store is looked for among what is left out.
            Err(error) if self.is_left_out() && error.kind() == ErrorKind::Source => None,
            other => other?,
        };
        let is_cold = !self.is_left_out()
            && self.is_cold(entry)
            && (stub.is_none() || self.is_free(directory, name));
        match stub {
            Some(stub) if stub.is_untouched() || !is_cold => {
                self.stored(directory, name, entry.clone(), &stub)
            }
            Some(_) => Ok(false),
            None => Ok(!is_cold),
        }
    }

    /// Whether patterns leave this out, so that it is looked through for stubs only.
    pub(super) fn is_left_out(&self) -> bool {
        self.left_out_above > 0
    }

    /// Whether nobody has a stub open that is to be emptied again.
    fn is_free(&self, directory: &OwnedFd, name: &OsStr) -> bool {
        if self.context.selection.cold.is_none() {
            return true;
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty()).map(File::from);
        file.is_ok_and(|file| matches!(Lease::take(&file), Ok(Some(_))))
    }

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
        let path = by_handle(directory, name);
        let value = match stub::is_served(directory) {
            true => stub::served_value_at(&path, self.context.repository.store_id()),
            false => stub::value_at(&path),
        };
        let value = value.map_err(|error| error.with_kind(ErrorKind::Source))?;
        let Some(value) = value else { return Ok(None) };
        let opened = stub::open(self.context.repository, entry.inode, &value);
        let (_, mut stub) = opened.map_err(|error| match error.kind() {
            // Of this file, and not of the store.
            ErrorKind::Damaged | ErrorKind::NewerFormat => error.with_kind(ErrorKind::Source),
            _ => error,
        })?;
        stub.valid = stub.valid.min(entry.size);
        Ok(Some(stub))
    }

    /// A file whose data is in the store, or what is in the store of it; `false` if it has to be
    /// read.
    pub(super) fn stored(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        mut entry: Entry,
        stub: &Stub,
    ) -> Result<bool> {
        entry.content = Some(stub.content);
        entry.size = stub.size;
        entry.chunks = stub.chunks;
        entry.sparse = false;
        if !stub.is_untouched() {
            // It is not what the file has now, and nobody may take it for that.
            entry.changed = Time::default();
        }
        if !(self.context.is_stored)(&entry)? {
            if stub::is_served(directory) {
                // Whoever serves it has the data, or says that it is lost.
                return Ok(false);
            }
            if stub.is_untouched() && self.is_readable(&entry)? {
                // Out of second copies: what was missing is stored again.
                return Ok(false);
            }
            return Err(Error::new(
                ErrorKind::Source,
                "it is a stub, and data of it is missing in the store",
            ));
        }
        entry.xattrs = self.xattrs_by_path(directory, name)?;
        self.send(Item::Stored(entry))?;
        Ok(true)
    }

    /// Whether all data of a stub can be read although some of it is missing.
    fn is_readable(&self, entry: &Entry) -> Result<bool> {
        let tree = Arc::new(TreeReader::open(self.context.repository)?);
        let reader = FileReader::open(tree, entry)?;
        let (mut offset, mut buffer) = (0, vec![0; limits::MIB]);
        loop {
            self.context.job.interrupt.check()?;
            match reader.read_at(offset, &mut buffer) {
                Ok(0) => return Ok(true),
                Ok(read) => offset += read as u64,
                Err(error) if error.is_lost() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The path of a file in an open directory.
pub fn by_handle(directory: &OwnedFd, name: &OsStr) -> PathBuf {
    let mut path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    path.push(name);
    path
}
