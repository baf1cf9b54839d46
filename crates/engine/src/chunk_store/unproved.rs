//! Deltas that were found and cannot be made, because what they are made of is gone: whoever looks
//! for such a chunk again is not sent to its container.
//!
//! The index goes on naming it. A container whose section lists no such chunk does not enter the
//! locality cache, so without this every delta of a lost base costs a reading of its container's
//! section, and the proof of all deltas in it: a backup that is to mend the loss takes a time that
//! grows with its square.
//!
//! A chunk is known by its prefix in the index. One that has its prefix from another is stored
//! again, which is always safe; so is one whose base has come back meanwhile.
//!
//! Memory: [`PREFIXES_MAX`] prefixes, half a megabyte in the fixed part of the limit; of the
//! container that was asked longest ago they are forgotten first.

use lru::LruCache;
use onefold_types::{ContainerId, Fingerprint};

/// Deltas remembered: of one container at least.
pub const PREFIXES_MAX: usize = 1 << 16;

/// Deltas that cannot be made, by container.
#[derive(Debug)]
pub struct Unproved {
    by_container: LruCache<ContainerId, Box<[u64]>>,
    prefixes: usize,
}

impl Default for Unproved {
    fn default() -> Self {
        Self { by_container: LruCache::unbounded(), prefixes: 0 }
    }
}

impl Unproved {
    /// These, and no others, of a container's deltas cannot be made.
    pub fn note(&mut self, container: ContainerId, deltas: impl Iterator<Item = Fingerprint>) {
        let mut prefixes: Vec<u64> = deltas.map(|delta| delta.prefix()).collect();
        prefixes.sort_unstable();
        if let Some(before) = self.by_container.pop(&container) {
            self.prefixes -= before.len();
        }
        if prefixes.is_empty() {
            return;
        }
        self.prefixes += prefixes.len();
        self.by_container.push(container, prefixes.into());
        while self.prefixes > PREFIXES_MAX && self.by_container.len() > 1 {
            let Some((_, oldest)) = self.by_container.pop_lru() else { break };
            self.prefixes -= oldest.len();
        }
    }

    /// Whether a chunk is one of a container's that cannot be made.
    pub fn holds(&mut self, container: ContainerId, fingerprint: &Fingerprint) -> bool {
        let known = self.by_container.get(&container);
        known.is_some_and(|prefixes| prefixes.binary_search(&fingerprint.prefix()).is_ok())
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_container.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(number: usize) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
        Fingerprint(bytes)
    }

    fn container(number: u8) -> ContainerId {
        ContainerId([number; 16])
    }

    #[test]
    fn what_was_noted_last_of_a_container_holds() {
        let mut unproved = Unproved::default();
        unproved.note(container(1), [chunk(7), chunk(3)].into_iter());
        unproved.note(container(2), [chunk(4)].into_iter());
        let held = |unproved: &mut Unproved| {
            [(1, 3), (1, 4), (1, 7), (2, 3), (2, 4)]
                .map(|(id, number)| unproved.holds(container(id), &chunk(number)))
        };
        assert_eq!(held(&mut unproved), [true, false, true, false, true]);
        unproved.note(container(1), [chunk(4)].into_iter());
        assert_eq!(held(&mut unproved), [false, true, false, false, true]);
        unproved.note(container(1), [].into_iter());
        unproved.note(container(2), [].into_iter());
        assert_eq!(held(&mut unproved), [false; 5]);
        assert!(unproved.is_empty() && unproved.prefixes == 0);
    }

    #[test]
    fn of_the_container_asked_longest_ago_they_are_forgotten_first() {
        let mut unproved = Unproved::default();
        unproved.note(container(1), [chunk(1)].into_iter());
        unproved.note(container(2), [chunk(2)].into_iter());
        assert!(unproved.holds(container(1), &chunk(1)));
        unproved.note(container(3), (0..PREFIXES_MAX - 1).map(chunk));
        assert!(unproved.holds(container(1), &chunk(1)));
        assert!(!unproved.holds(container(2), &chunk(2)), "that is one too many");
        // One container's are remembered however many they are.
        unproved.note(container(4), (0..=PREFIXES_MAX).map(chunk));
        assert!(unproved.holds(container(4), &chunk(PREFIXES_MAX)));
        assert_eq!((unproved.by_container.len(), unproved.prefixes), (1, PREFIXES_MAX + 1));
    }
}
