//! Checksums by level: proof that no node was missed on the way down, before anything is deleted.
//!
//! Algorithm: FAST'17, section 3.2.2. For each level of the forest two sums are kept: one of the
//! chunks that nodes of higher levels name, and one of the chunks that were then read. Each chunk
//! counts once in each, which two bits of its mark vectors see to. At the end of a level the sums
//! must be equal; if they are not, a node is lost or foreign, and collection must stop.
//!
//! The paper's sums are exclusive ors, in which two equal errors cancel (S3.47). These are sums of
//! the whole fingerprint, mixed, modulo 2^64 in two independent halves, and a count: chunks lost,
//! doubled or exchanged in any number leave both equal with a probability of 2^-128.
//!
//! Invariants: the order of chunks does not matter; equal multisets have equal sums; sums made by
//! several threads can be merged.

use super::mix::mix;
use onefold_types::{Error, Fingerprint, Level, Result};
use std::collections::BTreeMap;

/// The seeds of the two halves of a sum.
const HALF_SEEDS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];

/// The sum of a multiset of fingerprints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sum {
    halves: [u64; 2],
    count: u64,
}

impl Sum {
    fn add(&mut self, fingerprint: &Fingerprint) {
        for (half, seed) in self.halves.iter_mut().zip(HALF_SEEDS) {
            *half = half.wrapping_add(digest(fingerprint, seed));
        }
        self.count += 1;
    }

    fn merge(&mut self, other: &Self) {
        for (half, more) in self.halves.iter_mut().zip(other.halves) {
            *half = half.wrapping_add(more);
        }
        self.count += other.count;
    }
}

/// All 32 bytes mixed into 64 bits: each word is mixed under what the words before it gave.
fn digest(fingerprint: &Fingerprint, seed: u64) -> u64 {
    let (words, _) = fingerprint.0.as_chunks::<8>();
    words.iter().fold(seed, |digest, word| mix(u64::from_le_bytes(*word), digest))
}

/// What a level is known to hold, and what was met of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sums {
    expected: Sum,
    seen: Sum,
}

/// The sums of all levels.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LevelChecksums(BTreeMap<Level, Sums>);

impl LevelChecksums {
    /// No level has a chunk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A live node, or a snapshot, names this chunk of this level. Once for each chunk.
    pub fn expect(&mut self, level: Level, fingerprint: &Fingerprint) {
        self.0.entry(level).or_default().expected.add(fingerprint);
    }

    /// This live chunk of this level was read. Once for each chunk.
    pub fn saw(&mut self, level: Level, fingerprint: &Fingerprint) {
        self.0.entry(level).or_default().seen.add(fingerprint);
    }

    /// Adds the sums that another thread made.
    pub fn merge(&mut self, other: &Self) {
        for (level, more) in &other.0 {
            let sums = self.0.entry(*level).or_default();
            sums.expected.merge(&more.expected);
            sums.seen.merge(&more.seen);
        }
    }

    /// Whether the chunks that were read are those that nodes name.
    ///
    /// # Errors
    /// They are not (`Damaged`): nothing may be deleted.
    pub fn verify(&self, level: Level) -> Result<()> {
        // Of a level without sums nothing is named, and nothing was read.
        let Sums { expected, seen } = self.0.get(&level).copied().unwrap_or_default();
        if expected == seen {
            return Ok(());
        }
        let others = if expected.count == seen.count { ", but others," } else { "" };
        Err(Error::damaged(format!(
            "level {level}: {} chunks are referred to and {}{others} were found; nothing was \
             deleted, run 'onefold check'",
            expected.count, seen.count
        )))
    }

    /// Verifies every level, from the top downwards: what is missing below follows from above.
    ///
    /// # Errors
    /// As [`Self::verify`], for the highest level that does not hold.
    pub fn verify_all(&self) -> Result<()> {
        self.0.keys().rev().try_for_each(|level| self.verify(*level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;
    use onefold_types::environment::{Randomness, SeededRandomness};
    use proptest::prelude::*;

    fn fingerprints(seed: u64, count: usize) -> Vec<Fingerprint> {
        let randomness = SeededRandomness::new(seed);
        let fingerprint = |_| {
            let mut bytes = [0; 32];
            randomness.fill(&mut bytes);
            Fingerprint(bytes)
        };
        (0..count).map(fingerprint).collect()
    }

    fn checksums(expected: &[Fingerprint], seen: &[Fingerprint]) -> LevelChecksums {
        let mut sums = LevelChecksums::new();
        expected.iter().for_each(|chunk| sums.expect(Level(2), chunk));
        seen.iter().for_each(|chunk| sums.saw(Level(2), chunk));
        sums
    }

    #[test]
    fn the_same_chunks_in_any_order_hold() {
        let chunks = fingerprints(1, 100);
        let reversed: Vec<Fingerprint> = chunks.iter().rev().copied().collect();
        let sums = checksums(&chunks, &reversed);
        assert_eq!(sums.0[&Level(2)].expected.count, 100);
        assert!(sums.verify(Level(2)).is_ok() && sums.verify_all().is_ok());
        assert!(LevelChecksums::new().verify_all().is_ok());
        assert!(LevelChecksums::new().verify(Level(9)).is_ok());
    }

    #[test]
    fn a_lost_and_a_doubled_chunk_are_found() {
        let chunks = fingerprints(1, 100);
        let error = checksums(&chunks, &chunks[1..]).verify(Level(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        let text = error.to_string();
        for part in ["L2", "100 chunks", "99 were found", "onefold check"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let doubled: Vec<Fingerprint> = chunks.iter().chain(&chunks[..1]).copied().collect();
        assert!(checksums(&chunks, &doubled).verify_all().is_err());
        assert!(checksums(&[], &chunks[..1]).verify_all().is_err());
    }

    #[test]
    fn a_chunk_exchanged_in_any_byte_is_found() {
        let chunks = fingerprints(1, 10);
        for byte in 0..32 {
            let mut seen = chunks.clone();
            seen[3].0[byte] ^= 0x10;
            let error = checksums(&chunks, &seen).verify(Level(2)).unwrap_err();
            assert!(error.to_string().contains("10, but others, were found"), "{error}");
        }
    }

    #[test]
    fn paired_errors_that_cancel_in_an_exclusive_or_are_found() {
        let chunks = fingerprints(1, 10);
        // The same bits flipped in two chunks; one chunk instead of two others, twice.
        let mut flipped = chunks.clone();
        flipped[2].0[5] ^= 0x40;
        flipped[7].0[5] ^= 0x40;
        let mut replaced = chunks.clone();
        (replaced[0], replaced[1]) = (chunks[2], chunks[2]);
        let mut base = chunks.clone();
        base[1] = base[0];
        for (expected, seen) in [(&chunks, &flipped), (&base, &replaced)] {
            let xor = |chunks: &[Fingerprint]| {
                chunks.iter().fold([0; 32], |sum: [u8; 32], chunk| {
                    std::array::from_fn(|byte| sum[byte] ^ chunk.0[byte])
                })
            };
            assert_eq!(xor(expected), xor(seen));
            assert!(checksums(expected, seen).verify_all().is_err());
        }
    }

    #[test]
    fn levels_are_apart_and_the_highest_is_named_first() {
        let chunks = fingerprints(1, 3);
        let mut sums = LevelChecksums::new();
        sums.expect(Level(1), &chunks[0]);
        sums.expect(Level(u16::MAX), &chunks[1]);
        sums.saw(Level(u16::MAX), &chunks[0]);
        sums.expect(Level(3), &chunks[2]);
        sums.saw(Level(3), &chunks[2]);
        assert!(sums.verify(Level(3)).is_ok());
        assert!(sums.verify_all().unwrap_err().to_string().contains("L65535"));
    }

    proptest! {
        #[test]
        fn merged_sums_are_the_sums_of_all(cut in 0..50_usize, levels in 1..4_u16) {
            let chunks = fingerprints(2, 50);
            let mut parts = [LevelChecksums::new(), LevelChecksums::new(), LevelChecksums::new()];
            for (number, chunk) in chunks.iter().enumerate() {
                let level = Level(number as u16 % levels);
                let part = usize::from(number >= cut);
                parts[2].expect(level, chunk);
                parts[part].expect(level, chunk);
            }
            let [mut first, second, whole] = parts;
            first.merge(&second);
            prop_assert_eq!(first, whole);
        }
    }
}
