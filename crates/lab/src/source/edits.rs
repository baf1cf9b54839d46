//! Versions that differ a little: files of which each version changes some bytes here and there.
//!
//! Whole chunks that come again are what [`super::generator`] is about; here hardly one does, and
//! nearly all of each is what it was. A file is made of pages of 4 KiB that compress to about a
//! half. From version to version sixteen bytes are put into every so many, where chance wants, so
//! that all behind them moves; every other edit overwrites bytes instead. A version follows from
//! its number alone.

use super::content;
use onefold_types::Result;
use std::path::PathBuf;

const PAGE_BYTES: usize = 4096;
/// Bytes that an edit puts in or overwrites.
const EDIT_BYTES: usize = 16;
/// One edit in each version for about so many bytes.
const EDITED_EVERY_BYTES: usize = 48 << 10;

/// What becomes of files from one version to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// They are edited where they are.
    Edited,
    /// They are edited, and stand under other names.
    Renamed,
    /// They are others.
    Replaced,
}

/// Versions of files.
#[derive(Clone, Copy, Debug)]
pub struct Edits {
    /// What becomes of them.
    pub change: Change,
    /// How many there are.
    pub files: usize,
    /// The length of each, at first.
    pub file_bytes: usize,
    /// How many versions there are.
    pub versions: usize,
}

impl Edits {
    /// The files of a version, with their names.
    ///
    /// # Errors
    /// None that is to be expected.
    pub fn version(&self, version: usize) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        (0..self.files).map(|file| self.file(file, version)).collect()
    }

    fn file(&self, file: usize, version: usize) -> Result<(PathBuf, Vec<u8>)> {
        let (origin, name) = match self.change {
            Change::Edited => (file, file),
            Change::Renamed => (file, file + self.files * version),
            Change::Replaced => (file + self.files * version, file),
        };
        let name = PathBuf::from(format!("{:02x}/{name}", name % 16));
        let pages = self.file_bytes.div_ceil(PAGE_BYTES);
        let mut bytes = Vec::with_capacity(pages * PAGE_BYTES);
        for page in 0..pages {
            content::append((origin * pages + page) as u64, PAGE_BYTES, 2.0, &mut bytes)?;
        }
        let edits = match self.change {
            Change::Replaced => 0,
            Change::Edited | Change::Renamed => version,
        };
        (1..=edits).for_each(|version| edit(&mut bytes, (origin << 20 | version) as u64));
        Ok((name, bytes))
    }
}

fn edit(bytes: &mut Vec<u8>, seed: u64) {
    for number in 0..(bytes.len() / EDITED_EVERY_BYTES).max(1) as u64 {
        let chance = content::scatter(seed << 16 | number);
        let at = (chance % (bytes.len() - EDIT_BYTES) as u64) as usize;
        let new = [content::scatter(chance), content::scatter(chance ^ 1)].map(u64::to_le_bytes);
        let replaced = if number % 2 == 0 { at } else { at + EDIT_BYTES };
        bytes.splice(at..replaced, new.concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_nearly_what_it_was_under_its_name_another_one_or_not() {
        let of = |change| Edits { change, files: 3, file_bytes: 200_000, versions: 2 };
        for change in [Change::Edited, Change::Renamed, Change::Replaced] {
            let [first, second] = [0, 1].map(|version| of(change).version(version).unwrap());
            assert_eq!(of(change).version(1).unwrap(), second);
            for ((old_name, old), (new_name, new)) in first.iter().zip(&second) {
                assert_eq!(old_name == new_name, change != Change::Renamed);
                let old_pages: std::collections::BTreeSet<&[u8]> = old.windows(64).collect();
                let common = new.chunks(64).filter(|part| old_pages.contains(part)).count();
                let share = common as f64 / new.chunks(64).len() as f64;
                assert_eq!(share > 0.95, change != Change::Replaced, "{change:?}: {share}");
                assert_ne!(old, new);
            }
        }
    }
}
