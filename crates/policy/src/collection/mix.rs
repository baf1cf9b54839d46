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
