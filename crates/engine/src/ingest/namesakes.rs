//! Files of an earlier snapshot by their names: what a file was that has no earlier version at its
//! path, because it was moved, renamed with its version, or backed up from another directory.
//!
//! # Algorithm
//! Of a snapshot's files that are long enough for a difference to pay, names are noted without
//! their digits, so that `libx-1.2.so` finds `libx-1.3.so`. A file that is asked about finds those
//! of the same name first, of these the one whose length is nearest. What is found is a hint for
//! bases of differences ([`super::versions`]), never a reason to leave a file unread.
//!
//! Memory: [`FILES_MAX`] files of 72 bytes, under a lease; the rest of a larger tree is not looked
//! at. Nothing is read before there are enough bytes to be found ([`Relative::worth_bytes`]).
//!
//! Concurrency: made once, then only read.

use crate::memory::Lease;
use crate::repository::Repository;
use crate::tree::TreeReader;
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_types::{Error, Result};
use std::hash::{DefaultHasher, Hasher};

/// Shorter files are found by what is in them.
pub const NAMESAKE_MIN_BYTES: u64 = 8 << 10;
/// Files that are noted.
pub const FILES_MAX: usize = 1 << 15;
/// Files that are noted although no memory is left for any.
const FILES_MIN: usize = 1 << 10;
/// Entries that are looked at.
pub const ENTRIES_MAX: usize = 1 << 18;
/// Bytes that a file takes.
const FILE_BYTES: usize = size_of::<Namesake>();

/// The content of a file in an earlier snapshot.
#[derive(Clone, Copy, Debug)]
pub struct EarlierContent {
    /// Its tree.
    pub content: Reference,
    /// Its length.
    pub size: u64,
}

/// A snapshot in which files are sought by their names.
#[derive(Clone, Copy, Debug)]
pub struct Relative {
    /// The root of its tree.
    pub root: Reference,
    /// How many files it has.
    pub files: u64,
}

impl Relative {
    /// Bytes of files without an earlier version from which on noting its names pays: to read an
    /// entry takes about as long as to store 256 bytes.
    #[must_use]
    pub fn worth_bytes(&self) -> u64 {
        self.files.min(ENTRIES_MAX as u64) * 256
    }
}

/// A file of an earlier snapshot.
#[derive(Clone, Copy, Debug)]
struct Namesake {
    /// Its name without digits.
    kin: u64,
    /// Its name.
    name: u64,
    content: EarlierContent,
}

/// The files of a snapshot by their names.
pub struct Namesakes {
    /// Rising by `kin`.
    files: Vec<Namesake>,
    _lease: Lease,
}

impl Namesakes {
    /// Those of a tree, as far as it can be read and memory goes.
    #[must_use]
    pub fn of(repository: &Repository, tree: &TreeReader, root: Reference) -> Self {
        let lease = repository.purse().take(FILES_MAX * FILE_BYTES);
        let mut files = Vec::new();
        let mut left = (ENTRIES_MAX, (lease.bytes() / FILE_BYTES).max(FILES_MIN));
        let mut directories = vec![root];
        while let Some(directory) = directories.pop() {
            let noted = tree.leaves(directory, &mut |_, leaf| {
                for entry in &leaf.entries {
                    note(entry, &mut left, &mut files, &mut directories)?;
                }
                Ok(())
            });
            // What cannot be read, or is too much, gives no hints.
            if noted.is_err() && (left.0 == 0 || left.1 == 0) {
                break;
            }
        }
        files.sort_unstable_by_key(|file: &Namesake| file.kin);
        Self { files, _lease: lease }
    }

    /// The earlier version of a file, perhaps.
    #[must_use]
    pub fn find(&self, name: &[u8], size: u64) -> Option<EarlierContent> {
        if size < NAMESAKE_MIN_BYTES {
            return None;
        }
        let (kin, name) = keys(name);
        let first = self.files.partition_point(|file| file.kin < kin);
        let of_kin = self.files[first..].iter().take_while(|file| file.kin == kin);
        let nearest =
            of_kin.min_by_key(|file| (file.name != name, file.content.size.abs_diff(size)));
        nearest.map(|file| file.content)
    }
}

fn note(
    entry: &Entry,
    left: &mut (usize, usize),
    files: &mut Vec<Namesake>,
    directories: &mut Vec<Reference>,
) -> Result<()> {
    let enough = || Error::invalid("enough was looked at");
    left.0 = left.0.checked_sub(1).ok_or_else(enough)?;
    match (entry.kind, entry.content) {
        (EntryKind::Directory, Some(content)) => directories.push(content),
        (EntryKind::File, Some(content)) if entry.size >= NAMESAKE_MIN_BYTES => {
            left.1 = left.1.checked_sub(1).ok_or_else(enough)?;
            let (kin, name) = keys(&entry.name);
            let content = EarlierContent { content, size: entry.size };
            files.push(Namesake { kin, name, content });
        }
        _ => {}
    }
    Ok(())
}

/// What stands for a name without its digits, and for the name.
fn keys(name: &[u8]) -> (u64, u64) {
    let (mut kin, mut whole) = (DefaultHasher::new(), DefaultHasher::new());
    whole.write(name);
    name.iter().filter(|byte| !byte.is_ascii_digit()).for_each(|byte| kin.write_u8(*byte));
    (kin.finish(), whole.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::{Fingerprint, Level, limits};

    fn files(of: &[(&str, u64)]) -> Namesakes {
        let file = |(at, (name, size)): (usize, &(&str, u64))| {
            let (kin, name) = keys(name.as_bytes());
            let fingerprint = Fingerprint([at as u8; 32]);
            let content = Reference { fingerprint, level: Level::DATA };
            Namesake { kin, name, content: EarlierContent { content, size: *size } }
        };
        let mut files: Vec<Namesake> = of.iter().enumerate().map(file).collect();
        files.sort_unstable_by_key(|file| file.kin);
        let plan = crate::memory::MemoryPlan::new(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
        let purse = std::sync::Arc::new(crate::memory::Purse::new(&plan));
        Namesakes { files, _lease: purse.take(0) }
    }

    #[test]
    fn the_same_name_comes_first_then_the_nearest_length() {
        let files = files(&[
            ("lib-1.2.so", 100_000),
            ("lib-1.3.so", 50_000),
            ("lib-1.3.so", 70_000),
            ("other.so", 61_000),
            ("lib-1.4.so", 61_000),
        ]);
        let found = |name: &str, size| {
            files.find(name.as_bytes(), size).map(|found| found.content.fingerprint.0[0])
        };
        assert_eq!(found("lib-1.3.so", 59_000), Some(1));
        assert_eq!(found("lib-1.3.so", 61_000), Some(2));
        assert_eq!(found("lib-22.so", 61_000), None, "another number of dots");
        assert_eq!(found("lib-10.22.so", 61_000), Some(4));
        assert_eq!(found("lib-10.22.so", 90_000), Some(0));
        assert_eq!(found("another.so", 61_000), None);
        assert_eq!(found("other.so", NAMESAKE_MIN_BYTES), Some(3));
        assert_eq!(found("other.so", NAMESAKE_MIN_BYTES - 1), None);
    }
}
