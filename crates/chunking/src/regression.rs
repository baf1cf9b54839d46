//! Regression chunking: Rabin chunking with weaker patterns in reserve.
//!
//! El-Shimi, Kalach, Kumar, Oltean, Li, Sengupta, "Primary Data Deduplication - Large Scale Study
//! and System Design", ATC'12 (S4.7-S4.10). A chunk that reaches its maximum without a match is
//! cut by force, at a place that content does not define, and the forced cut spoils deduplication
//! after an insertion. Here the search also notes where only |P| - i bits of the pattern match,
//! i = 1..=k, and at the maximum falls back on the last such place, the smallest i first. With the
//! reserve a forced cut is so unlikely that the maximum can be low: sizes stay near the average,
//! with no spike at the maximum.
//!
//! One pass: the inner loop tests the shortest pattern only, which every longer one implies; how
//! many bits more agree is seen on a match (S4.8).
//!
//! Invariant: at the end of a stream, before the maximum, no weak match cuts.

use crate::parameters::{DEPTH_MAX, pattern_bits};
use crate::rabin::RollingHash;
use crate::{Chunker, ChunkerParameters};

/// Rabin chunks with regression.
pub struct Regression {
    hash: RollingHash,
    depth: u32,
    size_min_bytes: usize,
    size_avg_bytes: usize,
    size_max_bytes: usize,
}

impl Regression {
    pub(crate) fn new(parameters: &ChunkerParameters, secret: Option<&[u8; 32]>) -> Self {
        Self {
            hash: RollingHash::new(pattern_bits(parameters.spread_bytes()), secret),
            depth: u32::from(parameters.regression_depth.min(DEPTH_MAX)),
            size_min_bytes: parameters.size_min_bytes,
            size_avg_bytes: parameters.size_avg_bytes,
            size_max_bytes: parameters.size_max_bytes,
        }
    }

    /// The content-defined boundary in `window`, if it has one before `limit`.
    fn boundary(&self, window: &[u8], limit: usize) -> Option<usize> {
        let mut reserve = [None; DEPTH_MAX as usize];
        let weakest = self.hash.mask(self.depth);
        let mut full = None;
        let start = self.hash.start(window, self.size_min_bytes);
        self.hash.each_match(window, start, limit, weakest, |found| {
            let agreeing = (found.fingerprint ^ self.hash.pattern).trailing_zeros();
            let missing = self.hash.pattern_bits.saturating_sub(agreeing) as usize;
            match missing.checked_sub(1) {
                None => full = Some(found.length),
                Some(index) => {
                    // Later places overwrite earlier ones: the last one counts.
                    if let Some(slot) = reserve.get_mut(index) {
                        *slot = Some(found.length);
                    }
                }
            }
            full.is_some()
        });
        let reaches_max = window.len() >= self.size_max_bytes;
        full.or_else(|| reserve.into_iter().flatten().next().filter(|_| reaches_max))
    }
}

impl Chunker for Regression {
    fn cut(&self, window: &[u8]) -> usize {
        let limit = window.len().min(self.size_max_bytes);
        if limit <= self.size_min_bytes {
            return limit;
        }
        self.boundary(window, limit).unwrap_or(limit)
    }

    fn size_max_bytes(&self) -> usize {
        self.size_max_bytes
    }

    fn size_min_bytes(&self) -> usize {
        self.size_min_bytes
    }

    fn size_avg_bytes(&self) -> usize {
        self.size_avg_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChunkerKind;
    use onefold_types::environment::{Randomness, SeededRandomness};

    const MIN_BYTES: usize = 64;
    const MAX_BYTES: usize = 64 + 256;

    fn chunker(depth: u8) -> Regression {
        let parameters = ChunkerParameters {
            kind: ChunkerKind::Regression,
            size_min_bytes: MIN_BYTES,
            size_avg_bytes: MIN_BYTES + 128,
            size_max_bytes: MAX_BYTES,
            regression_depth: depth,
        };
        Regression::new(&parameters, None)
    }

    /// The probability that a chunk of random data is cut by force at `size_max_bytes`: no place
    /// between minimum and maximum shows even the weakest pattern (S4.10).
    ///
    /// Every place matches `pattern_bits - depth` bits with probability 2^-(pattern_bits - depth),
    /// and places count as independent. With |P| = 15, 32 KiB..128 KiB this gives 5 % for depth 0,
    /// 2.5e-3 for depth 1 and 1.4e-21 for depth 4; the slides of ATC'12 name 2e-3 for depth 1,
    /// which agrees, and 1e-14 for depth 4, which cannot follow from the same sizes.
    ///
    /// The formula holds for a chunk that starts in fresh data. In a stream the chunk after a
    /// reserve cut begins with the bytes behind the last weak match, some of which are thus known
    /// not to match: with few places (7 bits, 256 places, depth 1) forced cuts are a quarter more
    /// frequent.
    fn forced_cut_probability(
        pattern_bits: u32,
        depth: u8,
        size_min_bytes: usize,
        size_max_bytes: usize,
    ) -> f64 {
        let bits = pattern_bits.saturating_sub(u32::from(depth));
        let miss = 1.0 - (-f64::from(bits)).exp2();
        let places = size_max_bytes.saturating_sub(size_min_bytes) as f64;
        miss.powf(places)
    }

    #[test]
    fn forced_cuts_are_as_frequent_as_the_formula_says() {
        let mut data = vec![0; 16 << 20];
        SeededRandomness::new(5).fill(&mut data);
        for depth in 0..=2 {
            let chunker = chunker(depth);
            // Every window is fresh: see the note on streams at the formula.
            let windows = data.chunks_exact(MAX_BYTES);
            let chunks = windows.len() as f64;
            let uncut = windows.filter(|window| chunker.boundary(window, MAX_BYTES).is_none());
            let forced = uncut.count() as f64;
            let bits = chunker.hash.pattern_bits;
            assert_eq!(bits, 7);
            let expected = chunks * forced_cut_probability(bits, depth, MIN_BYTES, MAX_BYTES);
            // Five standard deviations of a Poisson count; at least 10 expected, or no test.
            assert!(expected > 10.0);
            assert!((forced - expected).abs() < 5.0 * expected.sqrt(), "{forced} {expected}");
        }
    }

    #[test]
    fn the_probability_of_the_paper_sizes() {
        let probability = |depth| forced_cut_probability(15, depth, 32 << 10, 128 << 10);
        assert!((probability(0) - 0.0498).abs() < 1e-3);
        assert!((probability(1) - 2.48e-3).abs() < 1e-4);
        assert!((1e-22..1e-20).contains(&probability(4)));
    }

    /// Checks every choice against the definition: full match first, else the last of the least
    /// relaxed matches.
    #[test]
    fn the_reserve_follows_the_definition() {
        let mut data = vec![0; 1 << 18];
        SeededRandomness::new(6).fill(&mut data);
        let chunker = chunker(4);
        let (mut rest, mut reserves) = (&data[..], 0);
        while rest.len() >= MAX_BYTES {
            let places: Vec<(usize, u64)> = (MIN_BYTES..MAX_BYTES)
                .map(|length| {
                    let before = chunker.hash.start(rest, length);
                    let mut fingerprint = None;
                    chunker.hash.each_match(rest, before, length + 1, 0, |place| {
                        fingerprint = Some(place.fingerprint);
                        true
                    });
                    (length, fingerprint.unwrap())
                })
                .collect();
            let matches = |relaxed: u32, fingerprint: u64| {
                (fingerprint ^ chunker.hash.pattern) & chunker.hash.mask(relaxed) == 0
            };
            let full = places.iter().find(|(_, fingerprint)| matches(0, *fingerprint));
            let weak = (1..=4).find_map(|relaxed| {
                places.iter().rev().find(|(_, fingerprint)| matches(relaxed, *fingerprint))
            });
            let expected = full.or(weak).map_or(MAX_BYTES, |(length, _)| *length);
            assert_eq!(chunker.cut(rest), expected);
            reserves += usize::from(full.is_none());
            // One byte less, and the stream ends before the maximum: only full matches cut.
            let short = &rest[..MAX_BYTES - 1];
            let expected = full.map_or(short.len(), |(length, _)| *length);
            assert_eq!(chunker.cut(short), expected);
            rest = &rest[chunker.cut(rest)..];
        }
        assert!(reserves > 50, "{reserves}");
    }
}
