//! A directory as the walk listed it, and whether more has come into it since.
//!
//! Between a directory's listing and the reading of its files, another program may rename a file,
//! or move one in. The snapshot then has the file under neither name, although every name that was
//! listed is saved. So each directory is looked at once more when it is complete. One that has
//! changed is listed again: it holds more if it has a name that it had not, or a file that had
//! another name.
//!
//! Invariant: a file that got another name in a directory is saved, or the directory is found to
//! hold more. A file that is moved into a directory that is complete already is not found.
//!
//! Memory: 16 bytes for each name of a directory that is not complete yet.

use crate::file_systems::list;
use rustix::fs::{Mode, OFlags, Stat};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time of change that is older tells whether there was another change. Stamps are whole seconds
/// on some file systems, and servers' clocks differ from ours.
const SETTLED: Duration = Duration::from_secs(120);

/// A directory as it was listed.
pub struct Listed {
    path: PathBuf,
    identity: (u64, u64),
    /// When it was changed before it was listed; `None` if that is too near to rely upon.
    changed: Option<(i64, i64)>,
    /// Hashes of names and numbers of files, rising.
    names: Vec<(u64, u64)>,
}

impl Listed {
    /// A directory at a path, its status from before it was listed, and its names with the numbers
    /// of their files.
    #[must_use]
    pub fn new<'a>(
        path: PathBuf,
        status: &Stat,
        names: impl Iterator<Item = (&'a [u8], u64)>,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_settled = status.st_ctime < now.saturating_sub(SETTLED).as_secs() as i64;
        let mut names: Vec<_> = names.map(|(name, inode)| (hash(name), inode)).collect();
        names.sort_unstable();
        Self {
            path,
            identity: (status.st_dev, status.st_ino),
            changed: is_settled.then_some((status.st_ctime, status.st_ctime_nsec as i64)),
            names,
        }
    }

    /// How many names it had.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.names.len() as u64
    }

    /// Whether it has a name that it had not, or a file that had another name. One that is gone
    /// holds nothing more.
    #[must_use]
    pub fn holds_more(&self) -> bool {
        let Ok(status) = rustix::fs::stat(&self.path) else { return false };
        let is_it = (status.st_dev, status.st_ino) == self.identity;
        if !is_it || self.changed == Some((status.st_ctime, status.st_ctime_nsec as i64)) {
            return false;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(directory) => self.holds_more_than_listed(&directory),
            Err(_) => false,
        }
    }

    fn holds_more_than_listed(&self, directory: &OwnedFd) -> bool {
        let (mut has_new, mut replaced) = (false, Vec::new());
        let listed = list(directory, |name, _, inode| {
            let hash = hash(name);
            let at = self.names.partition_point(|one| one.0 < hash);
            match self.names.get(at) {
                Some(one) if *one == (hash, inode) => {}
                Some(one) if one.0 == hash => replaced.push(inode),
                _ => has_new = true,
            }
        });
        if listed.is_err() || replaced.is_empty() {
            return has_new;
        }
        let known: HashSet<u64> = self.names.iter().map(|one| one.1).collect();
        has_new || replaced.iter().any(|inode| known.contains(inode))
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
