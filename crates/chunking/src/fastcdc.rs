//! FastCDC: a gear hash with normalised chunking.
//!
//! Xia et al., "FastCDC: a Fast and Efficient Content-Defined Chunking Approach for Data
//! Deduplication", ATC'16, and TPDS'20. The gear hash doubles and adds one table entry per byte, so
//! that the last 64 bytes count. Up to a *centre* the condition for a boundary is four times
//! stricter than for plain chunking, after it four times laxer, which draws sizes together
//! (level 2 of the papers). Bytes below the minimum are skipped.
//!
//! Our own policy in three points, and therefore our own code instead of the `fastcdc` crate:
//!
//! - A boundary is where the hash is *below a threshold*, not where a mask is clear. Its top bits
//!   depend on the longest windows, which is what the papers' padded masks are for, and a threshold
//!   hits any average size, not just powers of two.
//! - The centre lies three quarters of the way from minimum to average, where the mean on random
//!   data is the average (1 % less) for any minimum; with the centre at the average it is 14 %
//!   more.
//! - The hash is warm when the minimum is reached, so a boundary depends on 64 bytes of content
//!   wherever its chunk began.
//!
//! Four bytes are taken per step: the chain from hash to hash is one shift and one addition per
//! four bytes, the rest is computed beside it. Keyed: the gear table comes from the secret.
//!
//! Invariant: no boundary falls inside a run of a filler byte (`key::FILLERS`).

use crate::key::{DRAWS_MAX, FILLERS, KeyStream};
use crate::{Chunker, ChunkerParameters};

/// Bytes on which the hash depends.
const WINDOW_BYTES: usize = 64;

/// Content-defined chunks by gear hash.
pub struct FastCdc {
    gear: [u64; 256],
    threshold_strict: u64,
    threshold_lax: u64,
    centre_bytes: usize,
    size_min_bytes: usize,
    size_avg_bytes: usize,
    size_max_bytes: usize,
}

impl FastCdc {
    pub(crate) fn new(parameters: &ChunkerParameters, secret: Option<&[u8; 32]>) -> Self {
        let spread = parameters.spread_bytes();
        // Plain chunking with a mean of 4/3 spread; strict is a quarter as likely, lax four times.
        let per_spread = u64::MAX / (spread as u64).max(1);
        let (threshold_strict, threshold_lax) = (per_spread / 16 * 3, per_spread.saturating_mul(3));
        Self {
            gear: gear_table(threshold_lax, secret),
            threshold_strict,
            threshold_lax,
            centre_bytes: parameters.size_min_bytes + spread / 4 * 3,
            size_min_bytes: parameters.size_min_bytes,
            size_avg_bytes: parameters.size_avg_bytes,
            size_max_bytes: parameters.size_max_bytes,
        }
    }

    /// Adds `bytes` to `hash` and returns how many of them precede the first hash below
    /// `threshold`.
    #[inline(always)]
    fn scan(&self, hash: &mut u64, bytes: &[u8], threshold: u64) -> Option<usize> {
        let gear = |byte: u8| self.gear[usize::from(byte)];
        let (quads, rest) = bytes.as_chunks::<4>();
        let mut state = *hash;
        for (index, &[a, b, c, d]) in quads.iter().enumerate() {
            let one = gear(a);
            let two = (one << 1).wrapping_add(gear(b));
            let three = (two << 1).wrapping_add(gear(c));
            let four = (three << 1).wrapping_add(gear(d));
            if (state << 1).wrapping_add(one) < threshold {
                return Some(4 * index + 1);
            }
            if (state << 2).wrapping_add(two) < threshold {
                return Some(4 * index + 2);
            }
            if (state << 3).wrapping_add(three) < threshold {
                return Some(4 * index + 3);
            }
            state = (state << 4).wrapping_add(four);
            if state < threshold {
                return Some(4 * index + 4);
            }
        }
        for (index, &byte) in rest.iter().enumerate() {
            state = (state << 1).wrapping_add(gear(byte));
            if state < threshold {
                return Some(4 * quads.len() + index + 1);
            }
        }
        *hash = state;
        None
    }

    /// The content-defined boundary in `window`, if it has one before `limit`.
    fn boundary(&self, window: &[u8], limit: usize) -> Option<usize> {
        // The byte before the first place enters with the scan, so that this place is tested.
        let start = self.size_min_bytes.saturating_sub(1);
        let last = limit.saturating_sub(1);
        let centre = self.centre_bytes.clamp(start, last.max(start));
        let warm = window.get(self.size_min_bytes.saturating_sub(WINDOW_BYTES)..start)?;
        let mut hash = warm
            .iter()
            .fold(0_u64, |hash, &byte| (hash << 1).wrapping_add(self.gear[usize::from(byte)]));
        let strict = self.scan(&mut hash, window.get(start..centre)?, self.threshold_strict);
        if let Some(length) = strict {
            return Some(start + length);
        }
        let lax = self.scan(&mut hash, window.get(centre..last)?, self.threshold_lax)?;
        Some(centre + lax)
    }
}

/// A table with which no run of a filler byte is below `threshold`.
fn gear_table(threshold: u64, secret: Option<&[u8; 32]>) -> [u64; 256] {
    let mut key = KeyStream::new(secret, "Onefold chunking 1: gear table");
    let mut table: [u64; 256] = std::array::from_fn(|_| key.next_u64());
    for byte in FILLERS {
        for _ in 0..DRAWS_MAX {
            let entry = &mut table[usize::from(byte)];
            // In a run the hash is the sum of entry * 2^i over 64 places, which is -entry.
            if entry.wrapping_neg() >= threshold {
                break;
            }
            *entry = key.next_u64();
        }
    }
    table
}

impl Chunker for FastCdc {
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

    /// The definition, one byte at a time, each hash from its own 64 bytes.
    fn reference(chunker: &FastCdc, window: &[u8]) -> usize {
        let limit = window.len().min(chunker.size_max_bytes);
        for length in chunker.size_min_bytes..limit {
            let hash = window[length - WINDOW_BYTES..length]
                .iter()
                .fold(0_u64, |hash, &byte| (hash << 1).wrapping_add(chunker.gear[byte as usize]));
            let strict = length <= chunker.centre_bytes;
            if hash < if strict { chunker.threshold_strict } else { chunker.threshold_lax } {
                return length;
            }
        }
        limit
    }

    #[test]
    fn cuts_follow_the_definition() {
        let mut data = vec![0; 1 << 17];
        SeededRandomness::new(2).fill(&mut data);
        let mut parameters =
            ChunkerParameters::with_average(ChunkerKind::FastCdc, 300).expect("valid");
        for min in [64, 65, 66, 67] {
            parameters.size_min_bytes = min;
            let chunker = FastCdc::new(&parameters, Some(&[min as u8; 32]));
            let mut rest = &data[..];
            while !rest.is_empty() {
                let length = chunker.cut(rest);
                assert_eq!(length, reference(&chunker, rest));
                rest = &rest[length..];
            }
        }
    }

    #[test]
    fn fillers_never_match() {
        let parameters = ChunkerParameters::with_average(ChunkerKind::FastCdc, 256).expect("valid");
        for key in 0..100 {
            let chunker = FastCdc::new(&parameters, Some(&[key; 32]));
            for byte in FILLERS {
                let run = vec![byte; parameters.size_max_bytes];
                assert_eq!(chunker.cut(&run), run.len(), "key {key} byte {byte}");
            }
        }
    }
}
