//! The summary vector: tells without a device read that a chunk is certainly new.
//!
//! Algorithm: the basic Bloom filter, without variant (FAST'08, section 4.1). Of `m` bits, each key
//! sets `k`; a key with one of its bits clear was never inserted. The false-positive rate after `n`
//! keys is `(1 - e^(-kn/m))^k`: 2.4 % at the paper's design point of eight bits per key and four
//! hashes, which are the defaults here.
//!
//! The key is the fingerprint's eight-byte prefix, because index runs store no more than that and
//! the vector must be rebuildable from them. Two fingerprints with one prefix share their bits,
//! which costs a false positive once in 2^64 pairs.
//!
//! Invariants: no false negatives; the answer depends only on the keys inserted and the parameters,
//! never on the machine or on the order of insertion.

use onefold_types::{Error, ErrorKind, Result};

/// Bits per key at the paper's design point.
pub const BITS_PER_KEY_DEFAULT: u32 = 8;
/// Hash functions at the paper's design point.
pub const HASHES_DEFAULT: u32 = 4;
/// More hash functions than this never pay.
pub const HASHES_MAX: u32 = 32;

/// What a reader must know to use the bit array; the caller stores it in its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SummaryParameters {
    /// 64-bit words in the bit array.
    pub words: u64,
    /// Bits each key sets.
    pub hashes: u32,
}

/// A basic Bloom filter over fingerprint prefixes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SummaryVector {
    words: Vec<u64>,
    bits: u64,
    hashes: u32,
}

impl SummaryVector {
    /// An empty vector dimensioned for `keys` keys.
    ///
    /// # Errors
    /// A parameter is zero or out of range (`Invalid`), or the array does not fit into memory
    /// (`LimitExceeded`). Zero keys are allowed and make the smallest vector.
    pub fn with_capacity(keys: u64, bits_per_key: u32, hashes: u32) -> Result<Self> {
        if bits_per_key == 0 {
            return Err(Error::invalid("a summary vector needs at least one bit per key"));
        }
        check_hashes(hashes)?;
        let bits = u128::from(keys) * u128::from(bits_per_key);
        let count = bits.div_ceil(64).max(1);
        let too_large = || {
            Error::new(
                ErrorKind::LimitExceeded,
                format!("a summary vector for {keys} keys does not fit into memory"),
            )
        };
        let count = usize::try_from(count).map_err(|_| too_large())?;
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| too_large())?;
        words.resize(count, 0);
        Ok(Self::over(words, hashes))
    }

    /// The vector of these words under `parameters`.
    ///
    /// # Errors
    /// `Damaged` if the parameters make no sense or do not fit the number of words.
    pub fn from_words(parameters: SummaryParameters, words: Vec<u64>) -> Result<Self> {
        check_hashes(parameters.hashes).map_err(|error| error.with_kind(ErrorKind::Damaged))?;
        if words.is_empty() || words.len() as u64 != parameters.words {
            return Err(Error::damaged(format!(
                "a summary vector of {} words is stored in {}",
                parameters.words,
                words.len()
            )));
        }
        Ok(Self::over(words, parameters.hashes))
    }

    /// The bit array, without parameters.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// What [`Self::from_words`] needs besides the words.
    #[must_use]
    pub fn parameters(&self) -> SummaryParameters {
        SummaryParameters { words: self.bits / 64, hashes: self.hashes }
    }

    /// Memory taken by the bit array, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    /// Records the key.
    pub fn insert(&mut self, prefix: u64) {
        for number in 0..self.hashes {
            let bit = position(prefix, number, self.bits);
            if let Some(word) = self.words.get_mut(word_of(bit)) {
                *word |= 1 << (bit % 64);
            }
        }
    }

    /// Whether the key may have been inserted; `false` is certain.
    #[must_use]
    pub fn contains(&self, prefix: u64) -> bool {
        (0..self.hashes).all(|number| {
            let bit = position(prefix, number, self.bits);
            self.words.get(word_of(bit)).is_some_and(|word| word >> (bit % 64) & 1 == 1)
        })
    }

    fn over(words: Vec<u64>, hashes: u32) -> Self {
        let bits = words.len() as u64 * 64;
        Self { words, bits, hashes }
    }
}

fn check_hashes(hashes: u32) -> Result<()> {
    if (1..=HASHES_MAX).contains(&hashes) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a summary vector uses 1 to {HASHES_MAX} hash functions, not {hashes}"
    )))
}

fn word_of(bit: u64) -> usize {
    // A bit number is below 64 times the vector's length, so the quotient is a valid index.
    usize::try_from(bit / 64).unwrap_or(usize::MAX)
}

/// The bit that hash function `number` picks: SplitMix64's finaliser makes every function's bits
/// independent of the others', and a multiplication takes the place of a division by `bits`.
fn position(prefix: u64, number: u32, bits: u64) -> u64 {
    let step = u64::from(number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut z = prefix.wrapping_add(step);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    ((u128::from(z) * u128::from(bits)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;

    /// `(1 - e^(-kn/m))^k`, for `n` keys, `m` bits and `k` hash functions.
    fn expected_false_positive_rate(keys: u64, bits: u64, hashes: u32) -> f64 {
        let hashes = f64::from(hashes);
        let set_bits_share = 1.0 - (-hashes * keys as f64 / bits as f64).exp();
        set_bits_share.powf(hashes)
    }

    #[test]
    fn false_positive_rate_follows_the_formula() {
        let designs = [(8, 4, 0.024), (10, 7, 0.0082), (16, 4, 0.0024), (4, 3, 0.147)];
        for (bits_per_key, hashes, published) in designs {
            let keys = 200_000;
            let mut vector = SummaryVector::with_capacity(keys, bits_per_key, hashes).unwrap();
            let expected = expected_false_positive_rate(keys, vector.bits, vector.hashes);
            assert!((expected - published).abs() < 0.03 * published, "formula {expected}");
            let inserted = SeededRandomness::new(1);
            (0..keys).for_each(|_| vector.insert(inserted.next_u64()));
            let (others, trials) = (SeededRandomness::new(2), 400_000);
            let hits = (0..trials).filter(|_| vector.contains(others.next_u64())).count();
            let measured = hits as f64 / f64::from(trials);
            // Five standard deviations of the binomial count, plus the spread of the fill.
            let tolerance = 5.0 * (expected / f64::from(trials)).sqrt() + 0.01 * expected;
            assert!((measured - expected).abs() < tolerance, "{measured} for {expected}");
        }
    }

    #[test]
    fn counters_as_keys_are_spread_as_well_as_random_ones() {
        let keys = 100_000;
        let mut vector = SummaryVector::with_capacity(keys, 8, 4).unwrap();
        (0..keys).for_each(|key| vector.insert(key));
        assert!((0..keys).all(|key| vector.contains(key)));
        let hits = (keys..3 * keys).filter(|key| vector.contains(*key)).count();
        assert!((4_300..5_300).contains(&hits), "{hits}");
    }

    #[test]
    fn words_round_trip_and_are_checked() {
        let mut vector = SummaryVector::with_capacity(1000, 8, 4).unwrap();
        (0..1000).for_each(|key| vector.insert(key * 7));
        let (good, words) = (vector.parameters(), vector.words().to_vec());
        assert_eq!(words.len() * 8, vector.bytes_used());
        assert_eq!(SummaryVector::from_words(good, words.clone()).unwrap(), vector);
        let with = |words, hashes| SummaryParameters { words, hashes };
        let refused = [
            (good, &words[1..]),
            (good, &[][..]),
            (with(0, 4), &[][..]),
            (with(u64::MAX, 4), &words[..]),
            (with(good.words, 0), &words[..]),
            (with(good.words, 33), &words[..]),
        ];
        for (parameters, words) in refused {
            let error = SummaryVector::from_words(parameters, words.to_vec()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{parameters:?}");
        }
    }

    #[test]
    fn stored_bits_never_change_between_versions() {
        let mut vector = SummaryVector::with_capacity(16, 8, 4).unwrap();
        [1, 0x0123_4567_89ab_cdef, u64::MAX].into_iter().for_each(|key| vector.insert(key));
        let is_set = |bit: &u64| vector.words[word_of(*bit)] >> (bit % 64) & 1 == 1;
        assert_eq!((0..128).filter(is_set).collect::<Vec<u64>>(), GOLDEN_BITS);
    }

    /// Computed by an independent implementation.
    const GOLDEN_BITS: [u64; 12] = [10, 23, 28, 54, 56, 72, 81, 95, 106, 114, 116, 124];

    #[test]
    fn absurd_sizes_are_refused() {
        let cases =
            [(u64::MAX, u32::MAX, 4), (u64::MAX, 8, 4), (10, 0, 4), (10, 8, 0), (10, 8, 33)];
        for (keys, bits_per_key, hashes) in cases {
            assert!(SummaryVector::with_capacity(keys, bits_per_key, hashes).is_err());
        }
        let empty = SummaryVector::with_capacity(0, 8, 4).unwrap();
        assert!(!empty.contains(0));
    }
}
