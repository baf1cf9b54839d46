//! A reproducible sequence of choices (splitmix64).
//!
//! Every command has a sequence of its own, made from the seed and the command's number, so that
//! what one command chooses does not depend on how many choices others made.

use std::time::Duration;

/// A sequence of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed` for the purpose `number`.
    pub fn new(seed: u64, number: u64) -> Random {
        let mut random = Random(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % (bound.max(1) as u64)).unwrap_or(0)
    }

    /// A number from `least` to `most`, small ones more often.
    pub fn skewed(&mut self, least: usize, most: usize) -> usize {
        let span = most.saturating_sub(least) + 1;
        least + self.below(span).min(self.below(span)).min(self.below(span))
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of several; nothing if there is none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let index = self.below(all.len());
        all.get(index)
    }

    /// One of several words.
    pub fn word(&mut self, words: &[&'static str]) -> &'static str {
        self.pick(words).copied().unwrap_or_default()
    }

    /// One of several, each as likely as its weight; nothing if all weights are 0.
    pub fn weighted<T: Copy>(&mut self, all: &[(T, usize)]) -> Option<T> {
        let mut left = self.below(all.iter().map(|(_, weight)| weight).sum());
        all.iter().find_map(|(item, weight)| match left < *weight {
            true => Some(*item),
            false => {
                left -= weight;
                None
            }
        })
    }

    /// A time below `bound`.
    pub fn moment(&mut self, bound: Duration) -> Duration {
        bound.mul_f64(self.below(10_000) as f64 / 10_000.0)
    }

    /// Bytes that cannot be compressed.
    pub fn noise(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// Bytes that compress well.
    pub fn text(&mut self, length: usize) -> Vec<u8> {
        const WORDS: [&str; 8] =
            ["store ", "chunk ", "of ", "the\n", "container ", "index ", "and ", "epoch "];
        let mut bytes = Vec::with_capacity(length + 16);
        while bytes.len() < length {
            bytes.extend_from_slice(self.word(&WORDS).as_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_sequence() {
        let of = |seed, number| Random::new(seed, number).noise(64);
        assert_eq!(of(1, 2), of(1, 2));
        assert_ne!(of(1, 2), of(2, 2));
        assert_ne!(of(1, 2), of(1, 3));
    }

    #[test]
    fn bounds_and_weights_are_kept() {
        let mut random = Random::new(7, 7);
        for _ in 0..1000 {
            assert!(random.below(3) < 3);
            assert!((2..=5).contains(&random.skewed(2, 5)));
            assert_eq!(random.weighted(&[('a', 0), ('b', 3), ('c', 0)]), Some('b'));
            assert!(random.moment(Duration::from_secs(1)) < Duration::from_secs(1));
        }
        assert_eq!(random.weighted(&[('a', 0)]), None);
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
