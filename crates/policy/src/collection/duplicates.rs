//! Dynamic duplicate estimation: how much of a container is live nowhere newer.
//!
//! Algorithm: FAST'17, section 3.4.2. The live vector of a perfect hash function says whether a
//! chunk is live, not which of its instances is to be kept, and the instance filter that did is the
//! half of the memory that PGC+ saves. What a container is worth is therefore estimated from two
//! counters. The analysis, which reads the whole index anyway, counts for each container the chunks
//! that have other instances, live or dead (`ANALYSIS_DUP_CNTR`). The selection walks containers
//! from the newest to the oldest and puts the dead chunks it meets into a filter; those already in
//! it are counted as dead duplicates (`SELECT_DEAD_DUP_CNTR`). The dead are few, so the filter is
//! small.
//!
//! Derivation. Of a container with `n` chunks let `d` be dead. The newest instance of a live chunk
//! is the one to keep, so what is live only here or here first is
//!
//! ```text
//! unique = (n - d) - (live chunks of which a newer container has an instance)
//! ```
//!
//! All instances of a chunk are live or all are dead, for liveness is that of the fingerprint. So
//! of the chunks that a newer container has as well, `a` in all, the dead ones are exactly those
//! which the walk finds in the filter already, `s` in number, and
//!
//! ```text
//! unique = (n - d) - (a - s)
//! ```
//!
//! For this, `a` must count what the walk counts: instances superseded by a newer one. Counted
//! literally, as chunks "with duplicates in other containers", the newest instance would count as
//! well and be deducted everywhere, and no container would seem worth keeping for it. The index
//! names all containers of a chunk at once, so [`DuplicateCounters`] leaves the newest out, and
//! what is left of estimation is chance: the filter takes up to 2.4 % of the dead for duplicates,
//! which makes a container seem more live than it is, and two chunks may share a prefix.
//!
//! Invariants: counters never wrap; `unique` is between zero and the live chunks.

use super::live_filter::LiveFilter;
use super::mark_vector::fits_memory;
use onefold_types::{Error, Result};

/// For each container, how many of its chunks a newer container has as well.
///
/// Containers are known by their ordinals: the newer the higher, from zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DuplicateCounters(Vec<u32>);

impl DuplicateCounters {
    /// Zeros for this many containers.
    ///
    /// # Errors
    /// They do not fit into memory (`LimitExceeded`).
    pub fn new(containers: usize) -> Result<Self> {
        let mut counters = Vec::new();
        fits_memory(counters.try_reserve_exact(containers).ok(), "the counters of duplicates")?;
        counters.resize(containers, 0);
        Ok(Self(counters))
    }

    /// Counts the entries that the index has for one prefix: the containers with an instance of the
    /// chunk, in any order. A container named twice is counted once.
    ///
    /// # Errors
    /// There is no container of such an ordinal (`Invalid`).
    pub fn note_group(&mut self, ordinals: &[u32]) -> Result<()> {
        let Some(newest) = ordinals.iter().max() else { return Ok(()) };
        for (at, ordinal) in ordinals.iter().enumerate() {
            let counter = self.0.get_mut(*ordinal as usize).ok_or_else(|| {
                Error::invalid(format!("the index names container {ordinal}, which is unknown"))
            })?;
            // Groups are a few entries, so that looking back costs less than sorting.
            let is_first = !ordinals.iter().take(at).any(|before| before == ordinal);
            if ordinal != newest && is_first {
                *counter = counter.saturating_add(1);
            }
        }
        Ok(())
    }

    /// How many chunks of the container a newer one has as well.
    #[must_use]
    pub fn superseded(&self, ordinal: u32) -> u32 {
        self.0.get(ordinal as usize).copied().unwrap_or_default()
    }

    /// Adds what another thread counted of other prefixes.
    ///
    /// # Errors
    /// The number of containers differs (`Invalid`).
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.0.len() != other.0.len() {
            return Err(Error::invalid("counters of different containers cannot be merged"));
        }
        for (counter, more) in self.0.iter_mut().zip(&other.0) {
            *counter = counter.saturating_add(*more);
        }
        Ok(())
    }

    /// Memory taken by the counters, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.0.len() * size_of::<u32>()
    }
}

/// The dead chunks met so far, on the walk from the newest container to the oldest.
#[derive(Clone, Debug)]
pub struct DeadFilter(LiveFilter);

impl DeadFilter {
    /// An empty filter for this many dead chunks. More make it take more of them for duplicates.
    ///
    /// # Errors
    /// It does not fit into memory (`LimitExceeded`).
    pub fn new(dead_expected: u64) -> Result<Self> {
        // No seed: what is mistaken here changes an estimate, and never what is kept.
        LiveFilter::with_memory(dead_expected, usize::MAX, 0).map(Self)
    }

    /// Records a dead chunk; `true` if a newer container had it, by all likelihood.
    pub fn note_dead(&mut self, prefix: u64) -> bool {
        let is_known = self.0.contains(prefix);
        if !is_known {
            self.0.insert(prefix);
        }
        is_known
    }

    /// Memory taken by the bits, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.0.bytes_used()
    }
}

/// What the walk counts in one container.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ContainerCounts {
    /// All chunks.
    pub chunks: u32,
    /// Those that are dead by the live vector.
    pub dead: u32,
    /// Those of the dead that [`DeadFilter::note_dead`] knew.
    pub dead_duplicates: u32,
}

/// How many chunks of a container are live and in no newer one; `superseded` is what
/// [`DuplicateCounters::superseded`] says of it.
#[must_use]
pub fn unique_live_chunks(counts: ContainerCounts, superseded: u32) -> u32 {
    let live = counts.chunks.saturating_sub(counts.dead);
    live.saturating_sub(superseded.saturating_sub(counts.dead_duplicates))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The estimate for each container, oldest first, of containers given as sets of prefixes.
    fn estimates(containers: &[BTreeSet<u64>], is_live: impl Fn(u64) -> bool) -> Vec<u32> {
        let mut groups: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (ordinal, container) in containers.iter().enumerate() {
            for prefix in container {
                groups.entry(*prefix).or_default().push(ordinal as u32);
            }
        }
        let mut counters = DuplicateCounters::new(containers.len()).unwrap();
        groups.values().for_each(|group| counters.note_group(group).unwrap());
        // Far larger than needed, so that chance does not disturb the comparison.
        let mut dead_filter = DeadFilter::new(100_000).unwrap();
        let mut unique = vec![0; containers.len()];
        for (ordinal, container) in containers.iter().enumerate().rev() {
            let mut counts =
                ContainerCounts { chunks: container.len() as u32, ..ContainerCounts::default() };
            for prefix in container.iter().filter(|prefix| !is_live(**prefix)) {
                counts.dead += 1;
                counts.dead_duplicates += u32::from(dead_filter.note_dead(*prefix));
            }
            unique[ordinal] = unique_live_chunks(counts, counters.superseded(ordinal as u32));
        }
        unique
    }

    #[test]
    fn only_the_newest_instance_counts_as_live() {
        let containers = [vec![1, 2, 3, 4], vec![1, 2, 5], vec![1, 3, 6]];
        let containers: Vec<BTreeSet<u64>> =
            containers.into_iter().map(|chunks| chunks.into_iter().collect()).collect();
        assert_eq!(estimates(&containers, |_| true), [1, 2, 3]);
        // 1 and 5 are dead: of the three containers with 1, two have a dead duplicate.
        assert_eq!(estimates(&containers, |prefix| prefix != 1 && prefix != 5), [1, 1, 2]);
        assert_eq!(estimates(&containers, |_| false), [0, 0, 0]);
    }

    #[test]
    fn a_container_named_twice_counts_once_and_an_unknown_one_is_refused() {
        let mut counters = DuplicateCounters::new(3).unwrap();
        for group in [&[][..], &[2], &[2, 2], &[0, 0, 1], &[2, 1, 0]] {
            counters.note_group(group).unwrap();
        }
        assert_eq!([0, 1, 2, 3].map(|ordinal| counters.superseded(ordinal)), [2, 1, 0, 0]);
        assert_eq!(counters.note_group(&[1, 3]).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(counters.bytes_used(), 12);
    }

    #[test]
    fn counts_of_several_threads_add_up() {
        let mut first = DuplicateCounters::new(2).unwrap();
        let mut second = first.clone();
        first.note_group(&[0, 1]).unwrap();
        second.note_group(&[1, 0]).unwrap();
        first.merge(&second).unwrap();
        assert_eq!(first.superseded(0), 2);
        assert!(first.merge(&DuplicateCounters::new(3).unwrap()).is_err());
    }

    #[test]
    fn estimates_stay_within_the_live_chunks() {
        let counts = ContainerCounts { chunks: 10, dead: 4, dead_duplicates: 3 };
        assert_eq!([0, 3, 5, 9, 99].map(|many| unique_live_chunks(counts, many)), [6, 6, 4, 0, 0]);
        let absurd = ContainerCounts { chunks: 1, dead: 5, dead_duplicates: 0 };
        assert_eq!(unique_live_chunks(absurd, 0), 0);
    }

    proptest! {
        #[test]
        fn the_estimate_is_the_truth_but_for_chance(
            containers in prop::collection::vec(
                prop::collection::btree_set(0..60_u64, 0..30), 0..12),
            dead in prop::collection::btree_set(0..60_u64, 0..30),
        ) {
            let mut seen = BTreeSet::new();
            let mut truth: Vec<u32> = containers
                .iter()
                .rev()
                .map(|container| {
                    let is_unique = |key: &&u64| !dead.contains(*key) && seen.insert(**key);
                    container.iter().filter(is_unique).count() as u32
                })
                .collect();
            truth.reverse();
            prop_assert_eq!(estimates(&containers, |prefix| !dead.contains(&prefix)), truth);
        }
    }
}
