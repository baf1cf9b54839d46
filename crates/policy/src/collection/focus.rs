//! Focused cleaning: what a run looks at when memory does not hold all of the store's chunks.
//!
//! Algorithm: FAST'17, section 3.1.2. A first round marks a sample of the chunks only, as large as
//! memory allows, and estimates by it which containers are mostly dead. As many of those as memory
//! allows are candidates; a filter of their chunks is made, and a second round marks what this
//! filter admits. Sampling is by chunk and not by instance: a chunk is in the sample or it is not,
//! in every container and in both rounds.
//!
//! Of the second round's filters, candidates and live chunks, two are in memory at once, never
//! three, and no more chunks are live among the candidates' than there are: each gets half of the
//! memory.
//!
//! Invariants: the same chunk is always judged alike under one seed; a candidate's chunk is never
//! denied.

use super::live_filter::LiveFilter;
use super::mix::mix;
use crate::summary_vector::BITS_PER_KEY_DEFAULT;
use onefold_types::Result;

/// Filters in memory at once in the second round.
const FILTERS_AT_ONCE: u64 = 2;
/// Makes the sample independent of the filters' bits under the same seed.
const SAMPLE_SEED: u64 = 0x5a3b_1c9d_7e2f_4068;

/// Which chunks a run marks: all of them or a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Focus {
    /// The highest mixed prefix in the sample; `None` if nothing is.
    highest: Option<u64>,
    seed: u64,
}

impl Focus {
    /// The largest share of `chunks` chunks whose `bits_per_chunk` fit into `memory_bytes`.
    #[must_use]
    pub fn plan(chunks: u64, bits_per_chunk: f64, memory_bytes: usize, seed: u64) -> Self {
        let wanted_bits = chunks as f64 * bits_per_chunk;
        let rate = (memory_bytes as f64 * 8.0 / wanted_bits).min(1.0);
        // No chunks make no share of them; neither do bits that make no sense.
        let rate = if rate.is_nan() || rate < 0.0 { 1.0 } else { rate };
        let highest = match rate {
            1.0 => Some(u64::MAX),
            // The conversion saturates, and a rate below one stays below 2^64.
            _ => ((rate * 2_f64.powi(64)) as u64).checked_sub(1),
        };
        Self { highest, seed }
    }

    /// Whether all chunks are looked at, so that one round suffices.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.highest == Some(u64::MAX)
    }

    /// Whether the chunk is in the sample.
    #[inline]
    #[must_use]
    pub fn admits(&self, prefix: u64) -> bool {
        let mixed = mix(prefix, self.seed ^ SAMPLE_SEED);
        self.highest.is_some_and(|highest| mixed <= highest)
    }
}

/// How many chunks the candidate containers may have together, for both filters to fit into memory.
#[must_use]
pub fn candidate_chunks_max(memory_bytes: usize) -> u64 {
    memory_bytes as u64 * 8 / (u64::from(BITS_PER_KEY_DEFAULT) * FILTERS_AT_ONCE)
}

/// The chunks of the candidate containers.
#[derive(Clone, Debug)]
pub struct CandidateFilter(LiveFilter);

impl CandidateFilter {
    /// An empty filter for `chunks` chunks, which may take half of `memory_bytes`: the live filter
    /// of the same round gets the other half.
    ///
    /// # Errors
    /// The filter does not fit into memory (`LimitExceeded`).
    pub fn with_memory(chunks: u64, memory_bytes: usize, seed: u64) -> Result<Self> {
        // Another seed than the live filter's: what one lets pass must not pass the other as well.
        let bytes_max = memory_bytes / FILTERS_AT_ONCE as usize;
        LiveFilter::with_memory(chunks, bytes_max, !seed).map(Self)
    }

    /// Records a candidate's chunk.
    pub fn insert(&mut self, prefix: u64) {
        self.0.insert(prefix);
    }

    /// Whether the chunk may be a candidate's; `false` is certain.
    #[must_use]
    pub fn admits(&self, prefix: u64) -> bool {
        self.0.contains(prefix)
    }

    /// Memory taken by the bits, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.0.bytes_used()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sample_is_as_large_as_memory() {
        for (memory_bytes, rate) in [(0, 0.0_f64), (1_000, 0.01), (25_000, 0.25), (99_000, 0.99)] {
            let focus = Focus::plan(100_000, 8.0, memory_bytes, 7);
            assert!(!focus.is_whole());
            // Counters: the mix makes a fair sample of any prefixes.
            let admitted = (0..100_000).filter(|prefix| focus.admits(*prefix)).count() as f64;
            let deviation = 5.0 * (100_000.0 * rate * (1.0 - rate)).sqrt();
            assert!((admitted - 100_000.0 * rate).abs() <= deviation, "{admitted} at {rate}");
        }
    }

    #[test]
    fn enough_memory_needs_no_sample() {
        let plans = [(100_000, 2.8, 35_000), (0, 8.0, 0), (0, 8.0, 10), (5, 0.0, 1), (5, -1.0, 1)];
        for (chunks, bits, memory_bytes) in plans {
            let focus = Focus::plan(chunks, bits, memory_bytes, 7);
            assert!(focus.is_whole(), "{chunks}");
            assert!(focus.admits(0) && focus.admits(u64::MAX));
        }
        assert!(!Focus::plan(100_000, 2.8, 34_999, 7).is_whole());
        assert!(!Focus::plan(5, f64::INFINITY, 1, 7).admits(1));
    }

    #[test]
    fn another_seed_is_another_sample() {
        let [first, second] = [1, 2].map(|seed| Focus::plan(100_000, 8.0, 10_000, seed));
        let both = (0..100_000).filter(|n| first.admits(*n) && second.admits(*n)).count();
        assert!((800..1_200).contains(&both), "{both}");
    }

    #[test]
    fn both_filters_of_the_second_round_fit_into_memory() {
        let memory_bytes = 10_000;
        let chunks = candidate_chunks_max(memory_bytes);
        assert_eq!(chunks, 5_000);
        let candidates = CandidateFilter::with_memory(chunks, memory_bytes, 3).unwrap();
        let live = LiveFilter::with_memory(chunks, memory_bytes / 2, 3).unwrap();
        assert_eq!(candidates.bytes_used() + live.bytes_used(), memory_bytes);
    }

    proptest! {
        #[test]
        fn a_candidates_chunk_is_never_denied(
            keys in prop::collection::vec(any::<u64>(), 0..200),
            seed: u64,
        ) {
            let mut filter = CandidateFilter::with_memory(keys.len() as u64, 100, seed).unwrap();
            keys.iter().for_each(|key| filter.insert(*key));
            prop_assert!(keys.iter().all(|key| filter.admits(*key)));
        }
    }
}
