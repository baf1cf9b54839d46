//! An item whose attributes are read and set: by handle, or by name if it cannot be opened.

use onefold_format::node::Time;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The item.
pub enum Subject<'a> {
    /// A file or directory that is open.
    Open(BorrowedFd<'a>),
    /// Anything in an open directory; it is not followed if it is a link.
    Named {
        /// The directory.
        directory: BorrowedFd<'a>,
        /// Its name there.
        name: &'a [u8],
        /// A path to it. The kernel has no way to name attributes relative to a directory; this is
        /// one.
        path: Vec<u8>,
        /// Whether it is a link, which has no mode.
        is_symlink: bool,
    },
}

impl<'a> Subject<'a> {
    /// An item in an open directory.
    #[must_use]
    pub fn named(directory: BorrowedFd<'a>, name: &'a [u8], is_symlink: bool) -> Self {
        let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
        path.extend_from_slice(name);
        Self::Named { directory, name, path, is_symlink }
    }

    /// What it has.
    pub fn stat(&self) -> Result<Stat> {
        match self {
            Self::Open(handle) => rustix::fs::fstat(handle),
            Self::Named { directory, name, .. } => {
                rustix::fs::statat(directory, *name, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Gives it away.
    pub fn set_owner(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
        match self {
            Self::Open(handle) => rustix::fs::fchown(handle, uid, gid),
            Self::Named { directory, name, .. } => {
                rustix::fs::chownat(directory, *name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// The names of its attributes.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        let length = match self {
            Self::Open(handle) => rustix::fs::flistxattr_query(handle)?,
            Self::Named { path, .. } => rustix::fs::llistxattr_query(path.as_slice())?,
        };
        if length == 0 {
            return Ok(Vec::new());
        }
        let mut list = vec![0; length];
        let length = match self {
            Self::Open(handle) => rustix::fs::flistxattr(handle, list.as_mut_slice())?,
            Self::Named { path, .. } => {
                rustix::fs::llistxattr(path.as_slice(), list.as_mut_slice())?
            }
        };
        list.truncate(length);
        let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// An attribute.
    pub fn get(&self, name: &[u8]) -> Result<Vec<u8>> {
        let length = match self {
            Self::Open(handle) => rustix::fs::fgetxattr_query(handle, name)?,
            Self::Named { path, .. } => rustix::fs::lgetxattr_query(path.as_slice(), name)?,
        };
        // One more, because nothing is read into no room.
        let mut value = vec![0; length + 1];
        let length = match self {
            Self::Open(handle) => rustix::fs::fgetxattr(handle, name, value.as_mut_slice())?,
            Self::Named { path, .. } => {
                rustix::fs::lgetxattr(path.as_slice(), name, value.as_mut_slice())?
            }
        };
        value.truncate(length);
        Ok(value)
    }

    /// Sets an attribute.
    pub fn set(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let flags = XattrFlags::empty();
        match self {
            Self::Open(handle) => rustix::fs::fsetxattr(handle, name, value, flags),
            Self::Named { path, .. } => rustix::fs::lsetxattr(path.as_slice(), name, value, flags),
        }
    }

    /// Removes an attribute.
    pub fn remove(&self, name: &[u8]) -> Result<()> {
        match self {
            Self::Open(handle) => rustix::fs::fremovexattr(handle, name),
            Self::Named { path, .. } => rustix::fs::lremovexattr(path.as_slice(), name),
        }
    }

    /// Sets the permissions. Of a link in the place of something else it is an error.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::Open(handle) => rustix::fs::fchmod(handle, mode),
            Self::Named { is_symlink: true, .. } => Ok(()),
            Self::Named { directory, name, .. } => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let item = rustix::fs::openat(directory, *name, flags, Mode::empty())?;
                let stat = rustix::fs::fstat(&item)?;
                if FileType::from_raw_mode(stat.st_mode).is_symlink() {
                    return Err(Errno::LOOP);
                }
                let path = format!("/proc/self/fd/{}", item.as_fd().as_raw_fd());
                rustix::fs::chmod(path, mode)
            }
        }
    }

    /// Sets the time of the last change.
    pub fn set_modified(&self, modified: Time) -> Result<()> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: modified.seconds,
                tv_nsec: modified.nanoseconds.into(),
            },
        };
        match self {
            Self::Open(handle) => rustix::fs::futimens(handle, &times),
            Self::Named { directory, name, .. } => {
                rustix::fs::utimensat(directory, *name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}
