//! Live filters: which chunks, or which instances of them, are certainly dead.
//!
//! Algorithm: the Live Bloom filter and the Live Instance Bloom filter of FAST'17, section 3.1, at
//! eight bits and four hash functions a key: the basic filter of [`crate::summary_vector`] over
//! keys mixed with a seed. A dead chunk that the filter takes for live is kept this time; with
//! another seed in the next run, it is most probably found dead (S3.13). A live one is never
//! denied.
//!
//! The instance filter holds the exclusive or of prefix and container, both mixed: among several
//! instances of a live chunk only the one to keep is put in (S3.10).
//!
//! Invariants: no false negatives; what the filter answers depends on keys, memory and seed only;
//! it takes no more memory than it was given, but for a filter of one word.

use super::mix::mix;
use crate::summary_vector::{BITS_PER_KEY_DEFAULT, HASHES_DEFAULT, SummaryVector};
use onefold_types::{ContainerId, Result};

/// A filter over fingerprint prefixes, under a seed.
#[derive(Clone, Debug)]
pub struct LiveFilter {
    vector: SummaryVector,
    seed: u64,
}

impl LiveFilter {
    /// An empty filter for `keys` keys at eight bits each, or at fewer if `bytes_max` says so. The
    /// seed should differ from that of the run before.
    ///
    /// # Errors
    /// The filter does not fit into memory (`LimitExceeded`).
    pub fn with_memory(keys: u64, bytes_max: usize, seed: u64) -> Result<Self> {
        let wanted = keys.saturating_mul(u64::from(BITS_PER_KEY_DEFAULT)).div_ceil(64);
        let words = wanted.min(bytes_max as u64 / 8).max(1);
        // Dimensioned by bits alone: as many keys of one bit each as there are bits.
        let vector = SummaryVector::with_capacity(words * 64, 1, hashes(words * 64, keys))?;
        Ok(Self { vector, seed })
    }

    /// Records the chunk.
    pub fn insert(&mut self, prefix: u64) {
        self.vector.insert(mix(prefix, self.seed));
    }

    /// Whether the chunk may have been recorded; `false` is certain.
    #[must_use]
    pub fn contains(&self, prefix: u64) -> bool {
        self.vector.contains(mix(prefix, self.seed))
    }

    /// Memory taken by the bits, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.vector.bytes_used()
    }
}

/// Four hash functions, or as many as suit a filter that has less memory than eight bits a key:
/// `bits / keys * ln 2` let the fewest pass.
fn hashes(bits: u64, keys: u64) -> u32 {
    let best = bits as f64 / keys.max(1) as f64 * std::f64::consts::LN_2;
    best.round().clamp(1.0, f64::from(HASHES_DEFAULT)) as u32
}

/// A filter over instances: chunks of certain containers.
#[derive(Clone, Debug)]
pub struct LiveInstances(LiveFilter);

impl LiveInstances {
    /// An empty filter for `instances` instances, as [`LiveFilter::with_memory`].
    ///
    /// # Errors
    /// The filter does not fit into memory (`LimitExceeded`).
    pub fn with_memory(instances: u64, bytes_max: usize, seed: u64) -> Result<Self> {
        LiveFilter::with_memory(instances, bytes_max, seed).map(Self)
    }

    /// Records the instance of the chunk in this container.
    pub fn insert(&mut self, prefix: u64, container: ContainerId) {
        self.0.insert(instance_key(prefix, container));
    }

    /// Whether the instance may have been recorded; `false` is certain.
    #[must_use]
    pub fn contains(&self, prefix: u64, container: ContainerId) -> bool {
        self.0.contains(instance_key(prefix, container))
    }

    /// Memory taken by the bits, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.0.bytes_used()
    }
}

/// Prefix exclusive-or container. Both halves of the name are mixed, because its first bytes are a
/// time and hardly differ between containers written together.
fn instance_key(prefix: u64, container: ContainerId) -> u64 {
    let number = u128::from_le_bytes(container.0);
    prefix ^ mix(number as u64, (number >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;
    use proptest::prelude::*;

    #[test]
    fn few_dead_chunks_pass_and_others_under_another_seed() {
        let keys = 100_000_u64;
        let filter = |seed| {
            let mut filter = LiveFilter::with_memory(keys, usize::MAX, seed).unwrap();
            let live = SeededRandomness::new(1);
            (0..keys).for_each(|_| filter.insert(live.next_u64()));
            filter
        };
        let (first, second) = (filter(1), filter(2));
        assert_eq!(first.bytes_used() as u64, keys);
        let dead = SeededRandomness::new(2);
        let dead: Vec<u64> = (0..200_000).map(|_| dead.next_u64()).collect();
        let passed: Vec<&u64> = dead.iter().filter(|key| first.contains(**key)).collect();
        assert!((4_000..6_000).contains(&passed.len()), "{}", passed.len());
        let again = passed.iter().filter(|key| second.contains(***key)).count();
        assert!(again < passed.len() / 20, "{again} of {}", passed.len());
    }

    #[test]
    fn less_memory_makes_a_smaller_filter_with_fewer_hashes() {
        let small = LiveFilter::with_memory(1_000, 256, 0).unwrap();
        assert_eq!(small.bytes_used(), 256);
        assert_eq!(small.vector.parameters().hashes, 1);
        assert_eq!(LiveFilter::with_memory(0, 0, 0).unwrap().bytes_used(), 8);
        assert_eq!([hashes(8, 1), hashes(4, 1), hashes(1, 10), hashes(64, 0)], [4, 3, 1, 4]);
    }

    #[test]
    fn an_instance_is_the_chunk_and_the_container() {
        let randomness = SeededRandomness::new(3);
        let container = |n: i64| ContainerId::ordered(n * 1_000_000, &randomness);
        let containers: Vec<ContainerId> = (0..100).map(container).collect();
        let mut instances = LiveInstances::with_memory(1_000, usize::MAX, 9).unwrap();
        let prefixes: Vec<u64> = (0..1_000).map(|_| randomness.next_u64()).collect();
        for (prefix, container) in prefixes.iter().zip(containers.iter().cycle()) {
            instances.insert(*prefix, *container);
        }
        let count = |offset: usize| {
            let others = containers.iter().cycle().skip(offset);
            prefixes.iter().zip(others).filter(|(prefix, id)| instances.contains(**prefix, **id))
        };
        assert_eq!(count(0).count(), 1_000);
        assert!(count(1).count() < 60, "{}", count(1).count());
        assert_eq!(instances.bytes_used(), 1_000);
    }

    proptest! {
        #[test]
        fn no_live_chunk_is_denied(
            keys in prop::collection::vec(any::<u64>(), 0..300),
            bytes_max in 0..1_000_usize,
            seed: u64,
        ) {
            let mut filter = LiveFilter::with_memory(keys.len() as u64, bytes_max, seed).unwrap();
            prop_assert!(filter.bytes_used() <= bytes_max.max(8));
            keys.iter().for_each(|key| filter.insert(*key));
            prop_assert!(keys.iter().all(|key| filter.contains(*key)));
        }
    }
}
