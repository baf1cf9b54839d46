//! Nodes that are due, level by level from the top, in scratch files.
//!
//! # Algorithm
//! A radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, "Faster algorithms for the shortest path
//! problem", 1990): levels only fall, so nodes are kept in one set for the level at work and one
//! for each bit in which a level can first differ from it. When a level is done, the lowest set
//! that has nodes is distributed over those below it. There are thus 17 sets however many levels
//! there are, and a node is moved at most once for each bit of a level: five times in a tree of 31
//! levels, and nodes are few.
//!
//! # Invariants
//! Nodes of a level come in the order of their fingerprints and once each. What is put in is never
//! above the level that was taken last.

use super::spill::{Scratch, Sorted, SpillSet, Split};
use onefold_format::node::Reference;
use onefold_types::{Fingerprint, Level, Result};

/// A set for the level at work, and one for each bit of a level.
const SETS: usize = 1 + u16::BITS as usize;
/// Files of each set, at most.
const PARTITIONS: usize = 8;

/// Words of a fingerprint, and its level.
pub const DUE_WORDS: usize = 5;

/// A fingerprint as numbers that are ordered as its bytes are: the first is the prefix.
#[must_use]
pub fn words(fingerprint: &Fingerprint) -> [u64; 4] {
    let mut words = [0; 4];
    let (groups, _) = fingerprint.0.as_chunks::<8>();
    for (word, bytes) in words.iter_mut().zip(groups) {
        *word = u64::from_le_bytes(*bytes).swap_bytes();
    }
    words
}

/// The fingerprint of these words.
#[must_use]
pub fn fingerprint(words: [u64; 4]) -> Fingerprint {
    let mut fingerprint = Fingerprint::ZERO;
    for (bytes, word) in fingerprint.0.chunks_mut(8).zip(words) {
        bytes.copy_from_slice(&word.swap_bytes().to_le_bytes());
    }
    fingerprint
}

/// Nodes that are to be read.
#[derive(Debug)]
pub struct LevelQueue {
    scratch: Scratch,
    buffer_bytes: usize,
    /// The level at work: no node is above it.
    level: u16,
    /// By the bit in which a level first differs; and the highest level of each set.
    sets: Vec<(SpillSet<DUE_WORDS>, u16)>,
}

impl LevelQueue {
    /// No node is due yet, and none will be above `top`. Buffers take so many bytes together.
    #[must_use]
    pub fn new(scratch: &Scratch, top: Level, buffers_bytes: usize) -> Self {
        let buffer_bytes = buffers_bytes / SETS;
        let sets = (0..SETS).map(|_| (empty(scratch, buffer_bytes), 0)).collect();
        Self { scratch: scratch.clone(), buffer_bytes, level: top.0, sets }
    }

    /// Adds a node.
    pub fn push(&mut self, node: &Reference) -> Result<()> {
        let [first, second, third, fourth] = words(&node.fingerprint);
        self.put([first, second, third, fourth, u64::from(node.level.0)])
    }

    fn put(&mut self, due: [u64; DUE_WORDS]) -> Result<()> {
        let level = due[4] as u16;
        let differing = u16::BITS - (self.level ^ level).leading_zeros();
        match self.sets.get_mut(differing as usize) {
            Some((set, highest)) => {
                *highest = level.max(*highest);
                set.push(due)
            }
            None => Ok(()),
        }
    }

    /// The highest level that has nodes, and these; `None` when all are done.
    pub fn next(&mut self, area_bytes: usize) -> Result<Option<(Level, Sorted<DUE_WORDS>)>> {
        let Some(number) = self.sets.iter().position(|(set, _)| !set.is_empty()) else {
            return Ok(None);
        };
        if number > 0 {
            let (set, highest) = self.take(number);
            self.level = highest;
            set.visit(&mut |due| self.put(due))?;
        }
        let (set, level) = self.take(0);
        Ok(Some((Level(level), set.into_sorted(area_bytes)?)))
    }

    fn take(&mut self, number: usize) -> (SpillSet<DUE_WORDS>, u16) {
        let none = (empty(&self.scratch, self.buffer_bytes), 0);
        match self.sets.get_mut(number) {
            Some(set) => std::mem::replace(set, none),
            None => none,
        }
    }
}

fn empty(scratch: &Scratch, buffer_bytes: usize) -> SpillSet<DUE_WORDS> {
    SpillSet::new(scratch, Split::evenly(64, PARTITIONS), buffer_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn node(number: u64, level: u16) -> Reference {
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Reference { fingerprint: fingerprint([spread, number, 0, 1]), level: Level(level) }
    }

    #[test]
    fn words_are_ordered_as_fingerprints() {
        let one = Fingerprint(std::array::from_fn(|at| at as u8));
        let mut two = one;
        two.0[31] += 1;
        assert_eq!(fingerprint(words(&one)), one);
        assert_eq!(words(&one)[0], one.prefix());
        assert!(words(&one) < words(&two));
    }

    proptest! {
        /// Every node that is taken brings some of lower levels, as walking does.
        #[test]
        fn levels_come_from_the_top_and_whole(
            roots in proptest::collection::vec((0..50_u64, 1..=u16::MAX), 1..20),
            steps in proptest::collection::vec(1..5000_u16, 1..6),
        ) {
            let scratch = Scratch::new(std::env::temp_dir());
            let top = roots.iter().map(|root| root.1).max().unwrap_or(1);
            let mut queue = LevelQueue::new(&scratch, Level(top), 0);
            let mut expected: BTreeMap<u16, BTreeSet<Fingerprint>> = BTreeMap::new();
            for (number, level) in roots {
                let root = node(number, level);
                queue.push(&root).unwrap();
                expected.entry(level).or_default().insert(root.fingerprint);
            }
            let mut brought = 0;
            while let Some((level, mut nodes)) = queue.next(0).unwrap() {
                let mut met = Vec::new();
                while let Some([a, b, c, d, at]) = nodes.next_record().unwrap() {
                    prop_assert_eq!(at, u64::from(level.0));
                    met.push(fingerprint([a, b, c, d]));
                }
                let (highest, wanted) = expected.pop_last().unwrap();
                prop_assert_eq!(level.0, highest);
                prop_assert_eq!(met, wanted.into_iter().collect::<Vec<_>>());
                for step in &steps {
                    let below = level.0.saturating_sub(*step);
                    if below > 0 && brought < 2000 {
                        brought += 1;
                        let child = node(brought % 300, below);
                        queue.push(&child).unwrap();
                        expected.entry(below).or_default().insert(child.fingerprint);
                    }
                }
            }
            prop_assert!(expected.is_empty());
        }
    }
}
