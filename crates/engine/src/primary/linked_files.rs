//! Files with several names: until all of them are met, and counted once.
//!
//! A name outside the share, or one that its policy leaves out, shows zeros once the file is
//! emptied. So a file is emptied when its last name is met in the manifest, and left alone if that
//! never happens.
//!
//! Invariants: a number that is another file's now counts for neither: names are counted together
//! if their content is the same, too. A file that finds no room here when its first name is met is
//! not taken for one whose names are all met: one of them is missing in its count from then on.

use onefold_format::node::{Entry, Reference};
use std::collections::{HashMap, HashSet};

/// Files that are remembered at once; others are left alone, or count once a name.
pub const LINKED_FILES_MAX: usize = 1 << 20;

/// Files of which some names were met, and others not.
#[derive(Clone, Debug, Default)]
pub struct LinkedFiles {
    /// How many names of a file were met, by inode and content.
    met: HashMap<(u64, Option<Reference>), u64>,
    /// Names that found no room.
    refused: u64,
}

impl LinkedFiles {
    /// Takes notice of a name of a file; whether it is the last of them.
    pub fn is_last(&mut self, file: &Entry) -> bool {
        let (key, links) = ((file.inode, file.content), file.links);
        if links <= 1 {
            return true;
        }
        if self.met.len() >= LINKED_FILES_MAX && !self.met.contains_key(&key) {
            self.refused += 1;
            return false;
        }
        let met = self.met.entry(key).or_default();
        *met += 1;
        if *met < links {
            return false;
        }
        self.met.remove(&key);
        true
    }

    /// Files of which a name was not met, and names of such that were too many to be remembered.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.met.len() as u64 + self.refused
    }
}

/// Which files were met already under another name.
#[derive(Default)]
pub struct FirstNames {
    met: HashSet<(u64, u64)>,
}

impl FirstNames {
    /// Whether no other name of this file was met, as far as files with several are remembered.
    pub fn is_first(&mut self, file: &Entry) -> bool {
        let key = (file.device, file.inode);
        match file.links > 1 && self.met.len() < LINKED_FILES_MAX {
            true => self.met.insert(key),
            false => !self.met.contains(&key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::{Fingerprint, Level};

    fn file(inode: u64, links: u64) -> Entry {
        Entry { inode, links, ..Entry::default() }
    }

    #[test]
    fn r97_names_of_two_files_that_had_one_number_are_not_counted_together() {
        let mut linked = LinkedFiles::default();
        let content = |byte| {
            let fingerprint = Fingerprint([byte; 32]);
            Some(Reference { fingerprint, level: Level::DATA })
        };
        assert!(!linked.is_last(&Entry { content: content(1), ..file(7, 2) }));
        assert!(!linked.is_last(&Entry { content: content(2), ..file(7, 2) }));
        assert!(linked.is_last(&Entry { content: content(1), ..file(7, 2) }));
        assert_eq!(linked.left(), 1);
    }

    #[test]
    fn a_file_counts_once_and_one_beyond_the_greatest_number_once_a_name() {
        let mut names = FirstNames::default();
        assert!(names.is_first(&file(1, 1)) && names.is_first(&file(1, 1)));
        let most = LINKED_FILES_MAX as u64;
        assert!((0..most).all(|inode| names.is_first(&file(inode, 2))));
        assert!(!names.is_first(&file(most - 1, 2)) && !names.is_first(&file(0, 2)));
        assert!(names.is_first(&file(most, 2)) && names.is_first(&file(most, 2)));
    }

    #[test]
    fn a_file_is_taken_with_its_last_name_and_left_if_one_is_missing() {
        let mut linked = LinkedFiles::default();
        assert!(linked.is_last(&file(1, 1)));
        let told = [7, 8, 7, 8, 7].map(|inode| linked.is_last(&file(inode, 3)));
        assert_eq!(told, [false, false, false, false, true]);
        assert_eq!(linked.left(), 1);
    }

    #[test]
    fn files_beyond_the_greatest_number_are_left_alone_whatever_becomes_of_the_others() {
        let mut linked = LinkedFiles::default();
        let most = LINKED_FILES_MAX as u64;
        assert!(!(0..most).any(|inode| linked.is_last(&file(inode, 2))));
        // One too many: its second name comes when there is room again, and is not its last.
        assert!(!linked.is_last(&file(most, 2)));
        assert!(linked.is_last(&file(0, 2)));
        assert!(!linked.is_last(&file(most, 2)));
        assert_eq!(linked.left(), most + 1);
    }
}
