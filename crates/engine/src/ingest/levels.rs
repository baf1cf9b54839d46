//! Directories above the one that a walk is in, without a descriptor for each of them.
//!
//! # Algorithm
//! The uppermost levels of a walk stay open. Below them only the innermost directory is open:
//! whoever goes further down puts the directory aside, and opens it again by the `..` of the inner
//! one when that is done. A directory that is another one then was moved meanwhile, and what is
//! left of it is not looked at.
//!
//! Invariant: a walk that comes back from an inner directory has its own in hands, or an error.

use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags, Stat};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Levels of a walk that stay open.
pub const LEVELS_OPEN_MAX: usize = 64;
/// The part of the files that the process may have open, one in so many, that is for levels.
const LEVELS_SHARE: usize = 8;

/// How many levels stay open where so many walks run at once in a process that may have so many
/// files open.
#[must_use]
pub fn open_levels(open_files_max: usize, walks: usize) -> usize {
    (open_files_max / LEVELS_SHARE / walks.max(1)).min(LEVELS_OPEN_MAX)
}

/// A directory that is put aside while an inner one is walked.
pub struct Aside {
    /// Device and inode.
    identity: (u64, u64),
}

impl Aside {
    /// Lets go of a directory; one that stays open anyway stands in its place.
    pub fn put(directory: &mut Arc<OwnedFd>, top: &Arc<OwnedFd>) -> Result<Self> {
        let identity = identity(&**directory)?;
        *directory = Arc::clone(top);
        Ok(Self { identity })
    }

    /// Opens the directory again, by the inner one, which is in its place when this fails.
    ///
    /// Errors: `Source` if it cannot be opened, or is not above the inner one any more.
    pub fn take_back(self, directory: &mut Arc<OwnedFd>, inner: Arc<OwnedFd>) -> Result<()> {
        *directory = inner;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::openat(&**directory, "..", flags, Mode::empty())
            .map_err(|errno| Error::io("opening the directory again", errno.into()))?;
        if identity(&above)? != self.identity {
            let message =
                "the directory was moved while it was read; what is left of it is not read";
            return Err(Error::new(ErrorKind::Source, message));
        }
        *directory = Arc::new(above);
        Ok(())
    }
}

fn identity(directory: impl AsFd) -> Result<(u64, u64)> {
    let of = |stat: Stat| (stat.st_dev, stat.st_ino);
    rustix::fs::fstat(directory)
        .map(of)
        .map_err(|errno| Error::io("the directory's status", errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn opened(path: &Path) -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open(path).unwrap().into())
    }

    #[test]
    fn r101_a_directory_comes_back_unless_it_was_moved() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("outer/inner")).unwrap();
        std::fs::create_dir(path("other")).unwrap();
        let (mut directory, inner) = (opened(&path("outer")), opened(&path("outer/inner")));
        let before = identity(&directory).unwrap();
        let (top, before_it) = (opened(root.path()), Arc::downgrade(&directory));
        let aside = Aside::put(&mut directory, &top).unwrap();
        assert!(before_it.upgrade().is_none(), "it stays open");
        aside.take_back(&mut directory, Arc::clone(&inner)).unwrap();
        assert_eq!(identity(&directory).unwrap(), before);
        let aside = Aside::put(&mut directory, &top).unwrap();
        std::fs::rename(path("outer/inner"), path("other/inner")).unwrap();
        assert_eq!(aside.take_back(&mut directory, inner).unwrap_err().kind(), ErrorKind::Source);
    }

    #[test]
    fn no_more_levels_stay_open_than_there_may_be() {
        assert_eq!(open_levels(usize::MAX, 1), LEVELS_OPEN_MAX);
        assert_eq!(open_levels(1024, 1), LEVELS_OPEN_MAX);
        assert_eq!(open_levels(1024, 4), 32);
        assert_eq!(open_levels(40, 8), 0);
    }
}
