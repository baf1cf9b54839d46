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
use onefold_lease::Lease;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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
        let stub = self.stub(directory, name, entry)?;
        let is_cold = self.is_cold(entry) && (stub.is_none() || self.is_free(directory, name));
        match stub {
            Some(stub) if stub.is_untouched() || !is_cold => {
                self.stored(directory, name, entry.clone(), &stub)
            }
            Some(_) => Ok(false),
            None => Ok(!is_cold),
        }
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
            return Err(Error::new(
                ErrorKind::Source,
                "it is a stub, and data of it is missing in the store",
            ));
        }
        entry.xattrs = self.xattrs_by_path(directory, name)?;
        self.send(Item::Stored(entry))?;
        Ok(true)
    }
}

/// Refuses an item of a directory on this device if something is mounted on it: what is below may
/// be a stub, or have some in it.
pub fn refuse_covered(directory: impl AsFd, name: &OsStr, device: u64) -> Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let known = rustix::fs::statx(directory, name, flags, StatxFlags::empty())
        .map_err(|errno| Error::io("its status", errno.into()))?;
    let is_covered = match known.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        true => known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        // An earlier kernel does not tell of what is mounted from the same device.
        false => rustix::fs::makedev(known.stx_dev_major, known.stx_dev_minor) != device,
    };
    match is_covered {
        true => Err(Error::new(
            ErrorKind::Source,
            "something is mounted on it, and this process may not look below: unmount it, or run \
             this as root with CAP_SYS_ADMIN, on Linux 5.2 or later",
        )),
        false => Ok(()),
    }
}

/// The path of a file in an open directory.
pub fn by_handle(directory: &OwnedFd, name: &OsStr) -> PathBuf {
    let mut path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
    path.push(name);
    path
}
