//! Rabin chunking: a boundary wherever the fingerprint of the last 48 bytes shows a pattern.
//!
//! M. O. Rabin, 1981, as used by LBFS (Muthitacharoen, Chen, Mazieres, SOSP'01) and by the content
//! store of FAST'08 (S1.3, "anchoring"). The fingerprint is the window, read as a polynomial over
//! GF(2), modulo an irreducible polynomial of degree 53; one byte enters and one leaves with one
//! table look-up each. A boundary is where the low |P| bits equal the pattern P.
//!
//! The bytes below the minimum are skipped except for the 48 that fill the first window, so every
//! fingerprint depends on content alone. Keyed: the polynomial (about 2^47 exist) and the pattern
//! come from the secret.
//!
//! Invariant: P is odd, so a window of zeros, whose fingerprint is 0, never matches, not even with
//! one bit of P; full patterns do not match runs of the other fillers either.

use crate::key::{DRAWS_MAX, FILLERS, KeyStream};
use crate::parameters::pattern_bits;
use crate::polynomial::{DEGREE, is_irreducible, shift};
use crate::{Chunker, ChunkerParameters};

/// Bytes in the rolling window.
pub const WINDOW_BYTES: usize = 48;

/// A place between two bytes: so many bytes of the chunk precede it, with this fingerprint.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) length: usize,
    pub(crate) fingerprint: u64,
}

/// Rolling fingerprints under one polynomial, and the pattern that goes with them.
pub(crate) struct RollingHash {
    /// For each value of the eight bits above the fingerprint: what they reduce to, and themselves.
    reduce: [u64; 256],
    /// For each leaving byte: its part of the fingerprint after the shift.
    leave: [u64; 256],
    pub(crate) pattern: u64,
    pub(crate) pattern_bits: u32,
}

impl RollingHash {
    pub(crate) fn new(pattern_bits: u32, secret: Option<&[u8; 32]>) -> Self {
        let mut key = KeyStream::new(secret, "Onefold chunking 1: Rabin");
        let polynomial = loop {
            let candidate = 1 << DEGREE | key.next_u64() >> (64 - DEGREE);
            // About one in 53 passes, so the search ends soon.
            if is_irreducible(candidate) {
                break candidate;
            }
        };
        let table = |power: usize| -> [u64; 256] {
            std::array::from_fn(|byte| shift(byte as u64, power, polynomial))
        };
        let mut reduce = table(DEGREE as usize);
        for (byte, entry) in reduce.iter_mut().enumerate() {
            *entry |= (byte as u64) << DEGREE;
        }
        let mut hash = Self { reduce, leave: table(8 * WINDOW_BYTES), pattern: 1, pattern_bits };
        let runs = FILLERS.map(|byte| hash.fingerprint(&[byte; WINDOW_BYTES]));
        for _ in 0..DRAWS_MAX {
            hash.pattern = (key.next_u64() & hash.mask(0)) | 1;
            if runs.iter().all(|run| run & hash.mask(0) != hash.pattern) {
                break;
            }
        }
        hash
    }

    /// Selects the bits compared when the last `relaxed_bits` of the pattern are let go.
    pub(crate) fn mask(&self, relaxed_bits: u32) -> u64 {
        (1 << self.pattern_bits.saturating_sub(relaxed_bits)) - 1
    }

    #[inline(always)]
    fn roll(&self, fingerprint: u64, leaving: u8, entering: u8) -> u64 {
        // The leaving byte is combined with the entering one off the critical path, which then
        // holds one look-up per byte.
        let change = u64::from(entering) ^ self.leave[usize::from(leaving)];
        let high = (fingerprint >> (DEGREE - 8)) as u8;
        (fingerprint << 8) ^ self.reduce[usize::from(high)] ^ change
    }

    fn fingerprint(&self, window: &[u8]) -> u64 {
        window.iter().fold(0, |fingerprint, &byte| self.roll(fingerprint, 0, byte))
    }

    /// The place one byte before the first that may be a boundary; `size_min_bytes` is larger than
    /// the window.
    pub(crate) fn start(&self, window: &[u8], size_min_bytes: usize) -> Candidate {
        let length = size_min_bytes.saturating_sub(1);
        let warm = window.get(length.saturating_sub(WINDOW_BYTES)..length).unwrap_or_default();
        Candidate { length, fingerprint: self.fingerprint(warm) }
    }

    /// The first place after `from` and before `limit` where all bits of `mask` match.
    pub(crate) fn next_match(
        &self,
        window: &[u8],
        from: Candidate,
        limit: usize,
        mask: u64,
    ) -> Option<Candidate> {
        let last = limit.saturating_sub(1);
        let entering = window.get(from.length..last)?;
        let leaving = window.get(from.length.checked_sub(WINDOW_BYTES)?..)?;
        let wanted = self.pattern & mask;
        let mut fingerprint = from.fingerprint;
        for (index, (&new, &old)) in entering.iter().zip(leaving).enumerate() {
            fingerprint = self.roll(fingerprint, old, new);
            if fingerprint & mask == wanted {
                return Some(Candidate { length: from.length + index + 1, fingerprint });
            }
        }
        None
    }
}

/// Content-defined chunks by Rabin fingerprints.
pub struct Rabin {
    hash: RollingHash,
    size_min_bytes: usize,
    size_avg_bytes: usize,
    size_max_bytes: usize,
}

impl Rabin {
    pub(crate) fn new(parameters: &ChunkerParameters, secret: Option<&[u8; 32]>) -> Self {
        Self {
            hash: RollingHash::new(pattern_bits(parameters.spread_bytes()), secret),
            size_min_bytes: parameters.size_min_bytes,
            size_avg_bytes: parameters.size_avg_bytes,
            size_max_bytes: parameters.size_max_bytes,
        }
    }
}

impl Chunker for Rabin {
    fn cut(&self, window: &[u8]) -> usize {
        let limit = window.len().min(self.size_max_bytes);
        if limit <= self.size_min_bytes {
            return limit;
        }
        let start = self.hash.start(window, self.size_min_bytes);
        match self.hash.next_match(window, start, limit, self.hash.mask(0)) {
            Some(found) => found.length,
            None => limit,
        }
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
    use onefold_types::environment::{Randomness, SeededRandomness};

    #[test]
    fn a_rolled_fingerprint_is_that_of_the_window_alone() {
        for secret in [None, Some(&[9; 32])] {
            let hash = RollingHash::new(12, secret);
            let mut bytes = [0; 300];
            SeededRandomness::new(1).fill(&mut bytes);
            let mut rolled = hash.fingerprint(&bytes[..WINDOW_BYTES]);
            for end in WINDOW_BYTES..bytes.len() {
                rolled = hash.roll(rolled, bytes[end - WINDOW_BYTES], bytes[end]);
                assert_eq!(rolled, hash.fingerprint(&bytes[end + 1 - WINDOW_BYTES..=end]));
                assert_eq!(rolled >> DEGREE, 0);
            }
        }
    }

    #[test]
    fn fillers_never_match() {
        for key in 0..50 {
            for bits in [6, 12] {
                let hash = RollingHash::new(bits, Some(&[key; 32]));
                for byte in FILLERS {
                    let run = hash.fingerprint(&[byte; WINDOW_BYTES]);
                    assert_ne!(run & hash.mask(0), hash.pattern, "key {key} byte {byte}");
                }
            }
        }
    }
}
