//! Which item of the snapshot an item of the target stands for.
//!
//! A target that folds names (NTFS, exFAT, directories with casefold) finds `README` under the name
//! `readme`. Nothing is written under a name that the directory does not list letter for letter:
//! it is another item of the snapshot, or one that nobody asked to replace. Names are listed
//! once for each directory, when the first item that is there is met, and kept as hashes; one
//! that is not among them is looked for again, since it may have been made meanwhile.
//!
//! A file with several names that was right as it was stands for one item of the snapshot and its
//! links; another item that is at one of its other names gets a file of its own.

use super::target::Directory;
use super::walk::Restorer;
use crate::tree::path;
use onefold_format::node::Entry;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::Stat;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// The names of a directory, as they are spelled.
pub struct Spellings {
    state: RandomState,
    hashes: Vec<u64>,
}

impl Spellings {
    fn new(names: &[Vec<u8>]) -> Self {
        let state = RandomState::new();
        let mut hashes: Vec<u64> = names.iter().map(|name| state.hash_one(name)).collect();
        hashes.sort_unstable();
        Self { state, hashes }
    }

    fn holds(&self, name: &[u8]) -> bool {
        self.hashes.binary_search(&self.state.hash_one(name)).is_ok()
    }
}

/// Device and inode where it was saved; `None` if that is not known.
type Origin = Option<(u64, u64)>;

/// Files with several names that were right as they were, and what they stand for.
#[derive(Default)]
pub struct Claims(HashMap<(u64, u64), Origin>);

impl Claims {
    /// The file stands for the entry.
    pub fn take(&mut self, entry: &Entry, stat: &Stat) {
        if stat.st_nlink > 1 {
            self.0.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| origin(entry));
        }
    }

    /// Whether the file stands for something else in the snapshot.
    #[must_use]
    pub fn is_of_another(&self, entry: &Entry, stat: &Stat) -> bool {
        let claimed = self.0.get(&(stat.st_dev, stat.st_ino));
        claimed.is_some_and(|claimed| claimed.is_none() || *claimed != origin(entry))
    }
}

fn origin(entry: &Entry) -> Origin {
    (entry.inode != 0).then_some((entry.device, entry.inode))
}

impl Restorer<'_> {
    /// What is there under a name, spelled so.
    ///
    /// Errors: `AlreadyExists` if it is spelled otherwise.
    pub(super) fn existing(&self, directory: &Directory, name: &[u8]) -> Result<Option<Stat>> {
        if directory.fresh {
            return Ok(None);
        }
        let Some(stat) = directory.stat(name)? else {
            return Ok(None);
        };
        match self.is_spelled_so(directory, name, &stat) {
            // A directory that cannot be listed can be written into all the same.
            Err(error) if error.kind() == ErrorKind::NotPermitted => Ok(Some(stat)),
            result => result.map(|()| Some(stat)),
        }
    }

    fn is_spelled_so(&self, directory: &Directory, name: &[u8], stat: &Stat) -> Result<()> {
        let spellings = match directory.spellings.get() {
            Some(spellings) => spellings,
            None => {
                let names = directory.names()?;
                if !self.options.dry_run {
                    let names = names.iter().map(Vec::as_slice);
                    self.shared.names.remove_left_over(directory, names);
                }
                directory.spellings.get_or_init(|| Spellings::new(&names))
            }
        };
        if spellings.holds(name) {
            return Ok(());
        }
        let (mut is_listed, mut other) = (false, None);
        directory.list(&mut |listed, inode| {
            is_listed |= listed == name;
            if inode == stat.st_ino {
                other = Some(listed.to_vec());
            }
        })?;
        if is_listed {
            return Ok(());
        }
        let other = other.map_or("another item".to_owned(), |other| path::display(&other));
        Err(Error::new(
            ErrorKind::AlreadyExists,
            format!(
                "the target does not tell this name from that of {other}, which is left as it is; \
                 restore into a directory that tells them apart, or with --include alone into an \
                 empty one"
            ),
        ))
    }
}
