//! Rabin chunking: a boundary wherever the fingerprint of the last 48 bytes shows a pattern.
//!
//! M. O. Rabin, 1981, as used by LBFS (Muthitacharoen, Chen, Mazieres, SOSP'01) and by the content
//! store of FAST'08 (S1.3, "anchoring"). The fingerprint is the window, read as a polynomial over
//! GF(2), modulo an irreducible polynomial of degree 53; one byte enters and one leaves with one
//! table look-up each. A boundary is where the low |P| bits equal the pattern P.
//!
//! Several stretches of a chunk are looked at together, which gives the same boundaries as one
//! place after another, in less than half of the time.
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

/// Stretches that are looked at together.
const LANES: usize = 4;
/// Bytes of each: long against the window, which is read once more for each of them, and short
/// against what is read in vain behind a boundary.
const LANE_BYTES: usize = 1024;

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

    /// Calls `each` with the places after `from` and before `limit` where all bits of `mask` match,
    /// in their order, until it says that it has enough.
    pub(crate) fn each_match(
        &self,
        window: &[u8],
        from: Candidate,
        limit: usize,
        mask: u64,
        mut each: impl FnMut(Candidate) -> bool,
    ) {
        let last = limit.saturating_sub(1).min(window.len());
        let mut place = from;
        let mut found: [Vec<Candidate>; LANES] = Default::default();
        // Where boundaries are close to one another, most of what lanes look at would lie behind.
        let is_sparse = 1 << self.pattern_bits >= LANES * LANE_BYTES;
        while is_sparse && last.saturating_sub(place.length) >= LANES * LANE_BYTES {
            let Some(next) = self.scan_lanes(window, place, mask, &mut found) else { break };
            for candidate in found.iter_mut().flat_map(|found| found.drain(..)) {
                if each(candidate) {
                    return;
                }
            }
            place = next;
        }
        self.scan(window, place, last, mask, each);
    }

    /// The same one place after another, up to `last`.
    fn scan(
        &self,
        window: &[u8],
        from: Candidate,
        last: usize,
        mask: u64,
        mut each: impl FnMut(Candidate) -> bool,
    ) {
        let entering = window.get(from.length..last).unwrap_or_default();
        let begin = from.length.saturating_sub(WINDOW_BYTES);
        let leaving = window.get(begin..).unwrap_or_default();
        let wanted = self.pattern & mask;
        let mut fingerprint = from.fingerprint;
        for (index, (&new, &old)) in entering.iter().zip(leaving).enumerate() {
            fingerprint = self.roll(fingerprint, old, new);
            if fingerprint & mask == wanted
                && each(Candidate { length: from.length + index + 1, fingerprint })
            {
                return;
            }
        }
    }

    /// Looks at `LANES` stretches that lie one behind another, all at once, and appends to `found`
    /// what matches in each; the place at the end of the last one, or `None` if the window does not
    /// reach that far.
    ///
    /// A fingerprint waits for the one before it, for a look-up in a table; those of different
    /// stretches do not wait for one another. Each stretch but the first needs the bytes before it
    /// to begin with.
    #[inline(never)]
    fn scan_lanes(
        &self,
        window: &[u8],
        from: Candidate,
        mask: u64,
        found: &mut [Vec<Candidate>; LANES],
    ) -> Option<Candidate> {
        let begin = from.length.checked_sub(WINDOW_BYTES)?;
        let (leaving, entering) = (window.get(begin..)?, window.get(from.length..)?);
        let (leaving, _) = leaving.as_chunks::<LANE_BYTES>();
        let (entering, _) = entering.as_chunks::<LANE_BYTES>();
        let leaving: &[[u8; LANE_BYTES]; LANES] = leaving.first_chunk()?;
        let entering: &[[u8; LANE_BYTES]; LANES] = entering.first_chunk()?;
        let wanted = self.pattern & mask;
        // Four names instead of an array, which the compiler would not keep in registers.
        let ([a_old, b_old, c_old, d_old], [a_new, b_new, c_new, d_new]) = (leaving, entering);
        let (mut a, mut b, mut c, mut d) = (from.fingerprint, 0, 0, 0);
        for index in 0..WINDOW_BYTES {
            b = self.roll(b, 0, b_old[index]);
            c = self.roll(c, 0, c_old[index]);
            d = self.roll(d, 0, d_old[index]);
        }
        for index in 0..LANE_BYTES {
            a = self.roll(a, a_old[index], a_new[index]);
            b = self.roll(b, b_old[index], b_new[index]);
            c = self.roll(c, c_old[index], c_new[index]);
            d = self.roll(d, d_old[index], d_new[index]);
            let is_match = |fingerprint: u64| fingerprint & mask == wanted;
            if is_match(a) | is_match(b) | is_match(c) | is_match(d) {
                let mut length = from.length + index + 1;
                for (found, fingerprint) in found.iter_mut().zip([a, b, c, d]) {
                    if is_match(fingerprint) {
                        found.push(Candidate { length, fingerprint });
                    }
                    length += LANE_BYTES;
                }
            }
        }
        Some(Candidate { length: from.length + LANES * LANE_BYTES, fingerprint: d })
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
        let mut boundary = limit;
        self.hash.each_match(window, start, limit, self.hash.mask(0), |found| {
            boundary = found.length;
            true
        });
        boundary
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

    /// Lengths around whole rounds of lanes, patterns from one that always matches to one that
    /// rarely does.
    #[test]
    fn lanes_find_what_one_place_after_another_finds() {
        let hash = RollingHash::new(12, None);
        let round = LANES * LANE_BYTES;
        let mut bytes = vec![0; 3 * round + 300];
        SeededRandomness::new(5).fill(&mut bytes);
        let all = |window: &[u8], from, limit, mask, in_lanes| {
            let mut found = Vec::new();
            let each = |candidate: Candidate| {
                found.push((candidate.length, candidate.fingerprint));
                false
            };
            match in_lanes {
                true => hash.each_match(window, from, limit, mask, each),
                false => hash.scan(window, from, limit - 1, mask, each),
            }
            found
        };
        for size_min in [WINDOW_BYTES + 1, 100, 513] {
            let from = hash.start(&bytes, size_min);
            for rounds in 0..3 {
                for beside in [0, 1, 2, 63, LANE_BYTES] {
                    let limit = from.length + rounds * round + beside + 1;
                    for mask in [0, 1, 63, hash.mask(0)] {
                        let window = &bytes[..limit];
                        let expected = all(window, from, limit, mask, false);
                        assert_eq!(all(window, from, limit, mask, true), expected);
                        assert_eq!(all(&bytes, from, limit, mask, true), expected);
                    }
                }
            }
            let mut first = None;
            hash.each_match(&bytes, from, bytes.len(), 63, |candidate| {
                assert!(first.replace(candidate.length).is_none(), "it had enough");
                true
            });
            assert_eq!(first, all(&bytes, from, bytes.len(), 63, false).first().map(|one| one.0));
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
