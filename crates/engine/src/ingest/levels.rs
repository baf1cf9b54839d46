//! Directories above the one that a walk is in, without a descriptor for each of them.
//!
//! # Algorithm
//! The uppermost levels of a walk stay open. Below them only the innermost directory is open:
//! whoever goes further down puts the directory aside, and opens it again when the inner one is
//! done, by that one's `..`. If this leads nowhere, or elsewhere because the inner one was moved,
//! the directory is opened by the names that led to it. If that does not find it either, what is
//! left of it is not looked at.
//!
//! Invariant: a walk that comes back from an inner directory has its own in hands, or an error.

use crate::tree::path;
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
    /// Lets go of a directory; the uppermost one stands in its place.
    pub fn put(directory: &mut Arc<OwnedFd>, top: &Arc<OwnedFd>) -> Result<Self> {
        let identity = identity(&**directory)?;
        *directory = Arc::clone(top);
        Ok(Self { identity })
    }

    /// Opens the directory again, by the inner one or by its path below the uppermost one, which
    /// stays in its place when this fails.
    ///
    /// Errors: `Source` if it cannot be opened, or is neither here nor there any more.
    pub fn take_back(
        self,
        directory: &mut Arc<OwnedFd>,
        inner: &OwnedFd,
        below_top: &[u8],
    ) -> Result<()> {
        let by_inner = open(inner, b"..").and_then(|found| self.if_same(found));
        let found = by_inner.or_else(|error| {
            let top = open(&**directory, b".");
            let found = path::components(below_top).fold(top, |above, name| open(above?, name));
            found.and_then(|found| self.if_same(found)).map_err(|_| error)
        });
        *directory = Arc::new(found?);
        Ok(())
    }

    fn if_same(&self, found: OwnedFd) -> Result<OwnedFd> {
        if identity(&found)? == self.identity {
            return Ok(found);
        }
        let message = "the directory was moved while it was read; what is left of it is not read";
        Err(Error::new(ErrorKind::Source, message))
    }
}

fn open(above: impl AsFd, name: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
        .map_err(|errno| Error::io("opening the directory again", errno.into()))
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
    fn r101_a_directory_comes_back_if_it_is_where_it_was() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::create_dir_all(path("a/outer/inner")).unwrap();
        std::fs::create_dir(path("other")).unwrap();
        let (mut directory, inner) = (opened(&path("a/outer")), opened(&path("a/outer/inner")));
        let before = identity(&directory).unwrap();
        let (top, before_it) = (opened(root.path()), Arc::downgrade(&directory));
        let mut put_and_take = |path: &[u8]| {
            let aside = Aside::put(&mut directory, &top).unwrap();
            assert!(before_it.upgrade().is_none(), "it stays open");
            let outcome = aside.take_back(&mut directory, &inner, path);
            (outcome.map_err(|error| error.kind()), identity(&directory).unwrap())
        };
        // By the inner one, wherever the outer one is now.
        assert_eq!(put_and_take(b"moved"), (Ok(()), before));
        // By its path, wherever the inner one is.
        std::fs::rename(path("a/outer/inner"), path("other/inner")).unwrap();
        assert_eq!(put_and_take(b"a/outer"), (Ok(()), before));
        std::fs::rename(path("a/outer"), path("a/moved")).unwrap();
        let top = identity(opened(root.path())).unwrap();
        assert_eq!(put_and_take(b"a/outer"), (Err(ErrorKind::Source), top));
    }

    #[test]
    fn no_more_levels_stay_open_than_there_may_be() {
        assert_eq!(open_levels(usize::MAX, 1), LEVELS_OPEN_MAX);
        assert_eq!(open_levels(1024, 1), LEVELS_OPEN_MAX);
        assert_eq!(open_levels(1024, 4), 32);
        assert_eq!(open_levels(40, 8), 0);
    }
}
