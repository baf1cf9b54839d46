//! Which item of the snapshot an item of the target stands for.
//!
//! A target that folds names is known by how a directory spells them (see `spelling`).
//!
//! A file with several names that was right as it was stands for one item of the snapshot and its
//! links; another item that is at one of its other names gets a file of its own.

use onefold_format::node::Entry;
use rustix::fs::Stat;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// The names of a directory, as they are spelled.
pub struct Spellings {
    state: RandomState,
    hashes: Vec<u64>,
}

impl Spellings {
    /// Of these names.
    #[must_use]
    pub fn new(names: &[Vec<u8>]) -> Self {
        let state = RandomState::new();
        let mut hashes: Vec<u64> = names.iter().map(|name| state.hash_one(name)).collect();
        hashes.sort_unstable();
        Self { state, hashes }
    }

    /// Whether a name is among them.
    #[must_use]
    pub fn holds(&self, name: &[u8]) -> bool {
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
