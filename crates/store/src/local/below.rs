//! Opening names below the root of a store without ever following a symbolic link.
//!
//! Whoever can write to a store could otherwise lead a command out of it, with the rights of its
//! user: a `tmp` that leads elsewhere would have files deleted there, a `reserve` would have one
//! grown. So a link below the root is an error (`ELOOP`), wherever it leads; how the root itself
//! was named does not matter.
//!
//! The kernel does it in one call (`openat2`, Linux 5.6); where it is missing or forbidden the path
//! is walked, each directory opened with `O_NOFOLLOW`. Calls that take a name rather than an open
//! file are made with the last component alone, in the directory that was opened so.
//!
//! Concurrency: nothing is kept but the root and which of the two ways works.

use crate::key;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The root of a store.
pub(super) struct Below {
    root: OwnedFd,
    /// Set once the kernel has said that it cannot resolve paths this way.
    walks: AtomicBool,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// A handle by which a file or link can be looked at and not read.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Below {
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root, walks: AtomicBool::new(false) }
    }

    /// The same, walking from the beginning.
    #[cfg(test)]
    pub(super) fn walking(root: OwnedFd) -> Self {
        Self { root, walks: AtomicBool::new(true) }
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a path below the root; the empty one is the root.
    pub(super) fn open(&self, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        self.open_at(self.root(), path, flags, mode)
    }

    /// Opens a path below a directory of the store.
    pub(super) fn open_at(
        &self,
        at: BorrowedFd<'_>,
        path: &str,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { "." } else { path };
        let flags = flags | OFlags::CLOEXEC;
        if !self.walks.load(Ordering::Relaxed) {
            let only = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            match retry_on_intr(|| rustix::fs::openat2(at, path, flags, mode, only)) {
                // An old kernel, or a sandbox that does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => self.walks.store(true, Ordering::Relaxed),
                // Something was renamed meanwhile.
                Err(Errno::AGAIN) => {}
                result => return result,
            }
        }
        walk(at, path, flags | OFlags::NOFOLLOW, mode)
    }

    /// Opens a directory below the root.
    pub(super) fn directory(&self, path: &str) -> Result<OwnedFd, Errno> {
        self.open(path, DIRECTORY, Mode::empty())
    }

    /// Opens a directory that is an entry of another one.
    pub(super) fn directory_at(&self, at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
        self.open_at(at, name, DIRECTORY, Mode::empty())
    }

    /// The directory that a name is in, and the name there.
    pub(super) fn parent<'a>(&self, path: &'a str) -> Result<(OwnedFd, &'a str), Errno> {
        let (parent, name) = key::split(path);
        Ok((self.directory(parent)?, name))
    }

    /// What is known of a path; `ELOOP` if it is a symbolic link, or leads through one.
    pub(super) fn stat(&self, path: &str) -> Result<Stat, Errno> {
        let handle = self.open(path, HANDLE, Mode::empty())?;
        let stat = retry_on_intr(|| rustix::fs::fstat(&handle))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => Err(Errno::LOOP),
            _ => Ok(stat),
        }
    }

    /// What kind of file an entry of an open directory is.
    pub(super) fn kind_at(at: BorrowedFd<'_>, name: &CStr) -> Result<FileType, Errno> {
        let stat = || rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
        Ok(FileType::from_raw_mode(retry_on_intr(stat)?.st_mode))
    }
}

/// The same as `openat2` with these flags, component by component.
fn walk(at: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let (parent, name) = key::split(path);
    let mut directory = None;
    for component in parent.split('/').filter(|component| !component.is_empty()) {
        let from = directory.as_ref().map_or(at, |directory: &OwnedFd| directory.as_fd());
        directory = Some(open_one(from, component, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?);
    }
    let from = directory.as_ref().map_or(at, |directory| directory.as_fd());
    open_one(from, name, flags, mode)
}

fn open_one(at: BorrowedFd<'_>, name: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    match retry_on_intr(|| rustix::fs::openat(at, name, flags, mode)) {
        // So a link is told where a directory was wanted.
        Err(Errno::NOTDIR) => {
            let stat = || rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW);
            match retry_on_intr(stat) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                    Err(Errno::LOOP)
                }
                _ => Err(Errno::NOTDIR),
            }
        }
        result => result,
    }
}
