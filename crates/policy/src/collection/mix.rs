//! SplitMix64's finaliser: spreads every bit of a number over all of them (Steele, Lea and Flood,
//! "Fast splittable pseudorandom number generators", 2014).
//!
//! Invariant: for one seed, mixing is a bijection, so distinct keys stay distinct.

/// 2^64 divided by the golden ratio, made odd: multiples of it are spread evenly.
pub(crate) const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser alone.
#[inline]
pub(crate) fn finalise(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key under a seed. The seed is finalised first: seeds that differ little would otherwise make
/// keys that differ as little trade places.
#[inline]
pub(crate) fn mix(key: u64, seed: u64) -> u64 {
    finalise(key ^ finalise(seed.wrapping_add(GOLDEN_RATIO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finaliser_is_that_of_the_published_generator() {
        // The first outputs of SplitMix64 from the seed 0, whose state rises by the golden ratio.
        let published = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        for (number, output) in (1..).zip(published) {
            assert_eq!(finalise(GOLDEN_RATIO.wrapping_mul(number)), output);
        }
    }
}
