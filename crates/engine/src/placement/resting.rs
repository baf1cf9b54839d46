//! Which frames hold differences against chunks of which others: who reads the ones reads the
//! others as well.
//!
//! Recorded with a snapshot's placement ([`super::recorder`]), so that the next backup's rewriting
//! counts what is read for bases. What a frame is made of never changes, so the record of one
//! version holds for the next.
//!
//! Memory: [`PAIRS_MIN`] pairs of frames, some 4 MB, or as many as a part of the limit holds; of
//! one frame at most [`BASES_MAX`]. Pairs beyond that are not recorded: rewriting then knows less.

use crate::container::FrameId;
use crate::memory::Lease;
use crate::repository::Repository;
use std::collections::HashMap;

/// What a pair takes, about.
const PAIR_BYTES: usize = 64;
/// Pairs for which there always is room: in the fixed part of the memory limit. More are rarely
/// had, because whoever comes first takes what is left, and this comes last.
pub const PAIRS_MIN: usize = 1 << 16;
/// Frames that one frame rests on, at most.
pub const BASES_MAX: usize = 256;

/// Pairs of frames, with the bytes of the chunks in the first that are differences against chunks
/// in the second.
#[derive(Default)]
pub struct Resting {
    by_frame: HashMap<FrameId, Vec<(FrameId, u64)>>,
    pairs: usize,
    pairs_max: usize,
    _lease: Option<Lease>,
}

impl Resting {
    /// Nothing yet, and never more than there is memory left for now.
    #[must_use]
    pub fn within(repository: &Repository) -> Self {
        let lease = repository.purse().take(repository.memory().section_cache_bytes / 4);
        let pairs_max = (lease.bytes() / PAIR_BYTES).max(PAIRS_MIN);
        Self { pairs_max, _lease: Some(lease), ..Self::default() }
    }

    /// Chunks of so many bytes in frame `of` are differences against chunks in `base`. Within one
    /// frame nothing is read that is not read anyway.
    pub fn add(&mut self, of: FrameId, base: FrameId, bytes: u64) {
        if let Some(known) = self.pair(of, base) {
            *known = known.saturating_add(bytes);
        }
    }

    /// The same from another record, which may be of the same chunks: the larger one counts.
    pub fn add_known(&mut self, of: FrameId, base: FrameId, bytes: u64) {
        if let Some(known) = self.pair(of, base) {
            *known = bytes.max(*known);
        }
    }

    fn pair(&mut self, of: FrameId, base: FrameId) -> Option<&mut u64> {
        if of == base {
            return None;
        }
        let bases = self.by_frame.entry(of).or_default();
        let at = match bases.iter().position(|(frame, _)| *frame == base) {
            Some(at) => at,
            None if bases.len() >= BASES_MAX || self.pairs >= self.pairs_max => return None,
            None => {
                self.pairs += 1;
                bases.push((base, 0));
                bases.len() - 1
            }
        };
        bases.get_mut(at).map(|(_, bytes)| bytes)
    }

    /// The frames that one rests on.
    #[must_use]
    pub fn of(&self, frame: &FrameId) -> &[(FrameId, u64)] {
        self.by_frame.get(frame).map_or(&[], Vec::as_slice)
    }

    /// All of it, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&FrameId, &[(FrameId, u64)])> {
        self.by_frame.iter().map(|(of, bases)| (of, bases.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ContainerId;

    fn frame(number: usize) -> FrameId {
        let container = ContainerId(((number >> 8) as u128).to_le_bytes());
        FrameId { container, frame: number as u16 & 255 }
    }

    #[test]
    fn pairs_add_up_and_what_is_known_already_counts_once() {
        let mut resting = Resting { pairs_max: 2, ..Resting::default() };
        resting.add(frame(1), frame(2), 10);
        resting.add(frame(1), frame(2), 5);
        resting.add(frame(1), frame(3), 1);
        resting.add(frame(1), frame(1), 100);
        resting.add_known(frame(1), frame(2), 12);
        resting.add_known(frame(1), frame(3), 2);
        assert_eq!(resting.of(&frame(1)), [(frame(2), 15), (frame(3), 2)]);
        assert_eq!(resting.of(&frame(2)), []);
    }

    #[test]
    fn no_more_is_recorded_than_there_is_room_for() {
        let mut resting = Resting { pairs_max: usize::MAX, ..Resting::default() };
        for base in 0..=BASES_MAX {
            resting.add(frame(1 << 20), frame(base), 1);
        }
        assert_eq!(resting.of(&frame(1 << 20)).len(), BASES_MAX);
        let mut resting = Resting { pairs_max: 1000, ..Resting::default() };
        for of in 0..=1000 {
            resting.add(frame(of), frame(1 << 20), 1);
        }
        assert_eq!(resting.iter().map(|(_, bases)| bases.len()).sum::<usize>(), 1000);
        // What is recorded still counts.
        resting.add(frame(0), frame(1 << 20), 6);
        assert_eq!(resting.of(&frame(0)), [(frame(1 << 20), 7)]);
    }
}
