//! The binary fuse filter: tells without a device read that a chunk is certainly new, in about
//! nine bits a chunk.
//!
//! Algorithm: binary fuse filters (Graf and Lemire, 2022), with three hash functions and cells of
//! eight bits, as the crate `xorf` implements them. A key is known if the exclusive or of its three
//! cells is the key's own eight-bit hash: 0.4 % of the keys that were never put in are known by
//! chance, a sixth of what the summary vector of S1.12 lets pass, for 1.2 bits more a key. Unlike
//! that vector the filter is static: it is made from all of its keys at once, which suits immutable
//! runs.
//!
//! The key is the fingerprint's eight-byte prefix, as in [`crate::summary_vector`].
//!
//! Invariants: no false negatives, which is verified when a filter is made; the answer depends only
//! on the keys and the parameters, never on the machine. Parameters from a store are checked before
//! they are used, so that no cell outside the filter is ever asked for.

use onefold_types::{Error, Result};
use xorf::{BinaryFuse8, Descriptor, Filter};

/// The longest segment that the construction makes.
const SEGMENT_CELLS_MAX: u32 = 1 << 18;
/// Segments that one key's cells lie in.
const ARITY: u32 = 3;

/// What a reader must know to use the cells; the caller stores it in its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FuseParameters {
    /// What keys are mixed with.
    pub seed: u64,
    /// Cells in a segment: a power of two.
    pub segment_cells: u32,
    /// Cells in which the first of a key's three cells may lie: whole segments.
    pub first_cells: u32,
}

/// A static filter over fingerprint prefixes.
#[derive(Clone, Debug)]
pub struct FuseFilter(BinaryFuse8);

impl FuseFilter {
    /// The filter of these keys, which must be distinct. `None` if no filter of them was found,
    /// which keys that somebody chose for it can bring about; then nothing is known of them.
    #[must_use]
    pub fn build(keys: &[u64]) -> Option<Self> {
        let filter = BinaryFuse8::try_from(keys).ok()?;
        let filter = Self(filter);
        keys.iter().all(|key| filter.contains(*key)).then_some(filter)
    }

    /// The filter of these cells under `parameters`.
    ///
    /// # Errors
    /// `Damaged` if they cannot belong together.
    pub fn from_cells(parameters: FuseParameters, cells: &[u8]) -> Result<Self> {
        let FuseParameters { seed, segment_cells, first_cells } = parameters;
        let is_sound = segment_cells.is_power_of_two()
            && segment_cells <= SEGMENT_CELLS_MAX
            && first_cells > 0
            && first_cells.is_multiple_of(segment_cells)
            && u64::from(first_cells) + u64::from((ARITY - 1) * segment_cells)
                == cells.len() as u64;
        if !is_sound {
            return Err(Error::damaged("the parameters of a filter do not fit its cells"));
        }
        Ok(Self(BinaryFuse8 {
            descriptor: Descriptor {
                seed,
                segment_length: segment_cells,
                segment_length_mask: segment_cells - 1,
                segment_count_length: first_cells,
            },
            fingerprints: cells.into(),
        }))
    }

    /// The cells, without parameters.
    #[must_use]
    pub fn cells(&self) -> &[u8] {
        &self.0.fingerprints
    }

    /// What [`Self::from_cells`] needs besides the cells.
    #[must_use]
    pub fn parameters(&self) -> FuseParameters {
        let Descriptor { seed, segment_length, segment_count_length, .. } = self.0.descriptor;
        FuseParameters { seed, segment_cells: segment_length, first_cells: segment_count_length }
    }

    /// Memory taken by the cells, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.0.fingerprints.len()
    }

    /// Whether the key may have been put in; `false` is certain.
    #[must_use]
    pub fn contains(&self, prefix: u64) -> bool {
        self.0.contains(&prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;
    use onefold_types::environment::SeededRandomness;
    use proptest::prelude::*;

    fn keys(seed: u64, count: usize) -> Vec<u64> {
        let randomness = SeededRandomness::new(seed);
        (0..count).map(|_| randomness.next_u64()).collect()
    }

    #[test]
    fn every_key_is_known_and_few_others_at_any_size() {
        for count in [0, 1, 2, 3, 10, 340, 5_000, 65_280] {
            let keys = keys(1, count);
            let filter = FuseFilter::build(&keys).unwrap();
            assert!(keys.iter().all(|key| filter.contains(*key)), "{count}");
            let others = SeededRandomness::new(2);
            let trials = 200_000;
            let known = (0..trials).filter(|_| filter.contains(others.next_u64())).count();
            let expected = trials / 256;
            assert!(known < expected * 5 / 4, "{count} keys: {known} of {trials}");
        }
        let bits =
            FuseFilter::build(&keys(1, 65_280)).unwrap().bytes_used() as f64 * 8.0 / 65_280.0;
        assert!((9.0..10.0).contains(&bits), "{bits}");
    }

    #[test]
    fn counters_as_keys_are_as_good_as_random_ones() {
        let keys: Vec<u64> = (0..20_000).collect();
        let filter = FuseFilter::build(&keys).unwrap();
        assert!(keys.iter().all(|key| filter.contains(*key)));
        let known = (20_000..120_000).filter(|key| filter.contains(*key)).count();
        assert!(known < 500, "{known}");
    }

    #[test]
    fn stored_answers_never_change_between_versions() {
        let parameters = FuseParameters { seed: 7, segment_cells: 4, first_cells: 8 };
        let cells: Vec<u8> = (0..16).map(|n: u8| n.wrapping_mul(37)).collect();
        let filter = FuseFilter::from_cells(parameters, &cells).unwrap();
        let known: Vec<u64> = (0..1500).filter(|key| filter.contains(*key)).collect();
        assert_eq!(known, by_definition(parameters, &cells, 1500));
        assert!(!known.is_empty());
    }

    /// The definition, written out (docs/FORMAT.md, section 9).
    fn by_definition(parameters: FuseParameters, cells: &[u8], keys: u64) -> Vec<u64> {
        let mix = |key: u64| {
            let mut h = key.wrapping_add(parameters.seed);
            h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
            h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            h ^ (h >> 33)
        };
        let mask = u64::from(parameters.segment_cells - 1);
        let knows = |key: &u64| {
            let h = mix(*key);
            let first = ((u128::from(h) * u128::from(parameters.first_cells)) >> 64) as u64;
            let second = (first + u64::from(parameters.segment_cells)) ^ ((h >> 18) & mask);
            let third = (first + 2 * u64::from(parameters.segment_cells)) ^ (h & mask);
            let sum = [first, second, third].iter().fold(0, |sum, at| sum ^ cells[*at as usize]);
            sum == (h ^ (h >> 32)) as u8
        };
        (0..keys).filter(knows).collect()
    }

    #[test]
    fn parameters_round_trip_and_are_checked() {
        let filter = FuseFilter::build(&keys(3, 1000)).unwrap();
        let (good, cells) = (filter.parameters(), filter.cells().to_vec());
        let again = FuseFilter::from_cells(good, &cells).unwrap();
        assert_eq!((again.parameters(), again.cells()), (good, filter.cells()));
        let refused = [
            (good, &cells[1..]),
            (FuseParameters { segment_cells: 0, ..good }, &cells[..]),
            (FuseParameters { segment_cells: 3, ..good }, &cells[..]),
            (FuseParameters { segment_cells: u32::MAX, ..good }, &cells[..]),
            (FuseParameters { segment_cells: 1 << 31, ..good }, &cells[..]),
            (FuseParameters { first_cells: 0, ..good }, &cells[..]),
            (FuseParameters { first_cells: 0, segment_cells: 4, ..good }, &cells[..8]),
            (FuseParameters { first_cells: u32::MAX, ..good }, &cells[..]),
            (FuseParameters { first_cells: good.first_cells - 1, ..good }, &cells[..]),
        ];
        for (parameters, cells) in refused {
            let error = FuseFilter::from_cells(parameters, cells).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{parameters:?}");
        }
    }

    proptest! {
        #[test]
        fn no_parameters_and_no_key_make_a_filter_panic(
            seed: u64, segment in 0u32..20, first in 0u32..200, cells in 0usize..200, key: u64,
        ) {
            let parameters = FuseParameters { seed, segment_cells: segment, first_cells: first };
            if let Ok(filter) = FuseFilter::from_cells(parameters, &vec![3; cells]) {
                let _ = filter.contains(key);
            }
        }
    }
}
