//! The bytes of a generated chunk: random as far as they must be, and predictable for the rest.
//!
//! A chunk of `n` bytes with compression ratio `r` begins with `n / r` random bytes and goes on
//! with one short word over and over (FAST'17, section 5.1: "a mix of random and predictable
//! content"). Any Ziv-Lempel compressor leaves little more than the random part. The bytes follow
//! from the chunk's number alone, so a chunk that comes again has the same bytes.

use onefold_types::{Error, Result};

/// The least and the greatest compression ratio that content can be made for.
pub const RATIO_RANGE: std::ops::RangeInclusive<f64> = 1.0..=100.0;

/// SplitMix64's finaliser: scatters numbers, so that neighbours have nothing in common.
#[must_use]
pub fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Appends `length_bytes` bytes that compress to about one in `ratio`; equal numbers give equal
/// bytes.
///
/// # Errors
/// The ratio is out of [`RATIO_RANGE`].
pub fn append(number: u64, length_bytes: usize, ratio: f64, bytes: &mut Vec<u8>) -> Result<()> {
    if !RATIO_RANGE.contains(&ratio) {
        return Err(Error::invalid(format!(
            "a compression ratio of {ratio} cannot be made; it must be {} to {}",
            RATIO_RANGE.start(),
            RATIO_RANGE.end()
        )));
    }
    let end = bytes.len() + length_bytes;
    let random_end = bytes.len() + (length_bytes as f64 / ratio).round() as usize;
    bytes.reserve(length_bytes);
    let mut state = scatter(number);
    while bytes.len() < random_end {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = scatter(state).to_le_bytes();
        let wanted = (random_end - bytes.len()).min(word.len());
        bytes.extend_from_slice(word.get(..wanted).unwrap_or_default());
    }
    // The word differs from chunk to chunk, so that chunks do not resemble each other there.
    let word = scatter(number ^ 0x5bd1_e995).to_le_bytes();
    bytes.extend(word.iter().copied().cycle().take(end - random_end));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::codec::{Compression, Compressor};

    #[test]
    fn content_compresses_as_asked_for() {
        for ratio in [1.0, 1.5, 2.0, 4.0, 10.0] {
            let mut bytes = Vec::new();
            for number in 0..32 {
                append(number, 8192, ratio, &mut bytes).unwrap();
            }
            assert_eq!(bytes.len(), 32 * 8192);
            let mut coded = Vec::new();
            let mut compressor = Compressor::new(Compression::default()).unwrap();
            compressor.compress(&bytes, &mut coded).unwrap();
            let reached = bytes.len() as f64 / coded.len() as f64;
            assert!((reached / ratio - 1.0).abs() < 0.06, "{reached} for {ratio}");
        }
    }

    #[test]
    fn equal_numbers_give_equal_bytes_and_others_do_not() {
        let of = |number, length| {
            let mut bytes = Vec::new();
            append(number, length, 2.0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(of(7, 1001), of(7, 1001));
        assert_ne!(of(7, 1001)[..16], of(8, 1001)[..16]);
        assert!(of(7, 0).is_empty());
    }

    #[test]
    fn impossible_ratios_are_refused_with_the_range() {
        for ratio in [0.0, 0.99, 101.0, f64::NAN, f64::INFINITY] {
            let message = append(1, 10, ratio, &mut Vec::new()).unwrap_err().to_string();
            assert!(message.contains("1 to 100"), "{message}");
        }
    }
}
