//! Which chunks very many files of a share have.
//!
//! # Algorithm
//! The chunks of each file are counted once, in two looks at the manifest. The first one counts in
//! a table of small counters that chunks share by the first bytes of their names, so that a count
//! is the true one or more. The second one counts those exactly of which the first says that they
//! may be hot; if there are none, there is no second look. What is found is what was met first, up
//! to a greatest number.

use onefold_types::Fingerprint;
use std::collections::HashMap;

/// A chunk is hot that so many files have.
pub const HOT_FILES_MIN: u8 = 100;
/// Chunks that are counted exactly, and found at the most.
pub const HOT_CHUNKS_MAX: usize = 1 << 16;
/// Counters of the first look, a byte each.
const COUNTERS: usize = 1 << 22;

/// The first look.
pub struct Suspects {
    counters: Vec<u8>,
    may_be_hot: bool,
}

impl Suspects {
    /// Nothing was counted.
    #[must_use]
    pub fn new() -> Self {
        Self { counters: vec![0; COUNTERS], may_be_hot: false }
    }

    fn at(fingerprint: &Fingerprint) -> usize {
        let first = fingerprint.0.first_chunk().copied().unwrap_or_default();
        (u64::from_le_bytes(first) % COUNTERS as u64) as usize
    }

    /// A file has this chunk.
    pub fn count(&mut self, fingerprint: &Fingerprint) {
        let counter = &mut self.counters[Self::at(fingerprint)];
        *counter = counter.saturating_add(1);
        self.may_be_hot |= *counter >= HOT_FILES_MIN;
    }

    /// Goes on to the second look; `None` if nothing can be hot.
    #[must_use]
    pub fn look_again(self) -> Option<HotChunks> {
        let again = |suspects| HotChunks { suspects, files: HashMap::new(), met: Vec::new() };
        self.may_be_hot.then(|| again(self))
    }
}

impl Default for Suspects {
    fn default() -> Self {
        Self::new()
    }
}

/// The second look.
pub struct HotChunks {
    suspects: Suspects,
    files: HashMap<Fingerprint, u8>,
    met: Vec<(Fingerprint, u64)>,
}

impl HotChunks {
    /// A file has this chunk of so many bytes.
    pub fn count(&mut self, fingerprint: &Fingerprint, length: u64) {
        if self.suspects.counters[Suspects::at(fingerprint)] < HOT_FILES_MIN {
            return;
        }
        if !self.files.contains_key(fingerprint) {
            if self.files.len() >= HOT_CHUNKS_MAX {
                return;
            }
            self.met.push((*fingerprint, length));
        }
        let files = self.files.entry(*fingerprint).or_default();
        *files = files.saturating_add(1);
    }

    /// The hot ones with their lengths, in the order in which they were met.
    #[must_use]
    pub fn found(self) -> Vec<(Fingerprint, u64)> {
        let Self { files, met, .. } = self;
        let is_hot = |(fingerprint, _): &(Fingerprint, u64)| {
            files.get(fingerprint).is_some_and(|files| *files >= HOT_FILES_MIN)
        };
        met.into_iter().filter(is_hot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(first: u64, last: u8) -> Fingerprint {
        let mut bytes = [last; 32];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        Fingerprint(bytes)
    }

    fn hot(files: &[Fingerprint]) -> Vec<(Fingerprint, u64)> {
        let mut suspects = Suspects::new();
        files.iter().for_each(|chunk| suspects.count(chunk));
        let Some(mut again) = suspects.look_again() else { return Vec::new() };
        files.iter().for_each(|chunk| again.count(chunk, 7));
        again.found()
    }

    #[test]
    fn a_chunk_is_hot_when_as_many_files_have_it_and_not_because_of_its_neighbours() {
        let (hot_one, cool) = (named(1, 1), named(1, 2));
        let least = usize::from(HOT_FILES_MIN);
        let mut files = vec![cool; least - 1];
        files.extend(vec![hot_one; least]);
        assert_eq!(hot(&files), [(hot_one, 7)]);
        assert_eq!(hot(&files[..2 * least - 2]), []);
        assert_eq!(hot(&vec![hot_one; 1000]), [(hot_one, 7)]);
    }

    #[test]
    fn one_chunk_too_many_is_not_counted() {
        let chunks = (0..HOT_FILES_MIN)
            .flat_map(|_| (0..=HOT_CHUNKS_MAX as u64).map(|first| named(first, 0)));
        let mut suspects = Suspects::new();
        chunks.clone().for_each(|chunk| suspects.count(&chunk));
        let mut again = suspects.look_again().unwrap();
        chunks.for_each(|chunk| again.count(&chunk, 7));
        let found = again.found();
        assert_eq!(found.len(), HOT_CHUNKS_MAX);
        assert_eq!(found.last(), Some(&(named(HOT_CHUNKS_MAX as u64 - 1, 0), 7)));
    }
}
