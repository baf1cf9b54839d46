//! MinCDC: the boundary is where the hash of four bytes is smallest between minimum and maximum.
//!
//! An idea of Orson Peters (crate `mincdc`, whose vectorised search for the smallest hash is used
//! here). Every place in `minimum..=maximum` is rated with `multiplier * word + addend` modulo
//! 2^32, the word being the four bytes before it, and the lowest rating wins, the first on a tie.
//! There is no rolling state, so the search runs at the speed of memory; the bytes before the
//! minimum are not even read. No cut is ever forced, and the maximum is three times the minimum.
//!
//! Three rules are ours:
//!
//! - *Periodic data.* The multiplier is odd, hence equal ratings mean equal words, and in periodic
//!   data (runs of one byte are the period 1) every period holds the winner. The first one would
//!   make chunks of the minimum size, half the average. When the winner is found in the first
//!   sixteenth of the search and the rest of the search repeats with a short period, the last
//!   repetition wins, so the chunk is as long as a multiple of the period allows.
//! - *Fillers.* Constants with which a word of zeros, spaces or ones rates among the lowest quarter
//!   are not used; otherwise every file with some zeros in it would be cut at the first of them.
//! - *Ends.* A remainder of at most the average size is one chunk, instead of two of which one
//!   is tiny.
//!
//! Keyed: multiplier and addend come from the secret, about 60 bits. This makes boundaries
//! unpredictable, not secret: an affine map is no pseudo-random function (see the crate's
//! documentation).

use crate::key::{DRAWS_MAX, FILLERS, KeyStream};
use crate::{Chunker, ChunkerParameters};
use mincdc::{Cdc, MinCdcHash4};

/// Bytes that are rated together.
const WORD_BYTES: usize = 4;

/// Periods up to this length are recognised, if the search is 16 times as long.
const PERIOD_MAX_BYTES: usize = 1024;

/// Distances tried as periods before the data counts as not periodic; bounds the work on data
/// whose winner is a frequent word.
const PERIOD_TRIALS_MAX: usize = 64;

/// Content-defined chunks by the smallest hash.
pub struct MinCdc {
    rating: MinCdcHash4,
    size_min_bytes: usize,
    size_avg_bytes: usize,
    size_max_bytes: usize,
}

impl MinCdc {
    pub(crate) fn new(parameters: &ChunkerParameters, secret: Option<&[u8; 32]>) -> Self {
        let (multiplier, addend) = constants(secret);
        Self {
            rating: MinCdcHash4::with_params(multiplier, addend),
            size_min_bytes: parameters.size_min_bytes,
            size_avg_bytes: parameters.size_avg_bytes,
            size_max_bytes: parameters.size_max_bytes,
        }
    }

    /// If `search` repeats with one period from the place `winner` to its end, the last place that
    /// looks like `winner`.
    fn last_repetition(&self, search: &[u8], winner: usize) -> Option<usize> {
        let reach = PERIOD_MAX_BYTES.min((self.size_max_bytes - self.size_min_bytes) / 16);
        if winner > reach + WORD_BYTES {
            return None;
        }
        let tail = search.get(winner.checked_sub(WORD_BYTES)?..)?;
        let (word, near) =
            (tail.get(..WORD_BYTES)?, tail.get(1..tail.len().min(reach + WORD_BYTES))?);
        let distances = near.windows(WORD_BYTES).enumerate().filter(|(_, other)| *other == word);
        for period in distances.map(|(index, _)| index + 1).take(PERIOD_TRIALS_MAX) {
            if tail.get(period..) == tail.get(..tail.len() - period) {
                let repetitions = (search.len() - winner) / period;
                return Some(winner + repetitions * period);
            }
        }
        None
    }
}

/// An odd multiplier and an addend with which no filler rates low.
fn constants(secret: Option<&[u8; 32]>) -> (u32, u32) {
    let mut key = KeyStream::new(secret, "Onefold chunking 1: MinCDC");
    let mut drawn = (1, 0);
    for _ in 0..DRAWS_MAX {
        drawn = (key.next_u32() | 1, key.next_u32());
        let rating = |byte: u8| {
            u32::from_le_bytes([byte; WORD_BYTES]).wrapping_mul(drawn.0).wrapping_add(drawn.1)
        };
        if FILLERS.into_iter().all(|byte| rating(byte) >= 1 << 30) {
            break;
        }
    }
    drawn
}

impl Chunker for MinCdc {
    fn cut(&self, window: &[u8]) -> usize {
        let limit = window.len().min(self.size_max_bytes);
        let keeps_whole = window.len() <= self.size_avg_bytes;
        // The word before the first place begins inside the minimum, which is at least 64 bytes.
        let start = self.size_min_bytes.saturating_sub(WORD_BYTES);
        let search = match window.get(start..limit) {
            Some(search) if !keeps_whole && search.len() > WORD_BYTES => search,
            _ => return limit,
        };
        let winner = self.rating.best_splitpoint(search);
        start + self.last_repetition(search, winner).unwrap_or(winner)
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

    /// The definition of the rating, one place at a time; the first lowest wins.
    fn reference(search: &[u8], (multiplier, addend): (u32, u32)) -> usize {
        let ratings = search.windows(4).map(|word| {
            u32::from_le_bytes([word[0], word[1], word[2], word[3]])
                .wrapping_mul(multiplier)
                .wrapping_add(addend)
        });
        ratings.enumerate().min_by_key(|(_, rating)| *rating).map_or(0, |(index, _)| index) + 4
    }

    #[test]
    fn the_vectorised_search_finds_what_the_definition_says() {
        let randomness = SeededRandomness::new(3);
        let mut bytes = vec![0; 9000];
        for (round, secret) in [None, Some(&[1; 32]), Some(&[2; 32])].into_iter().enumerate() {
            let constants = constants(secret);
            let rating = MinCdcHash4::with_params(constants.0, constants.1);
            for length in (4..300).chain((300..9000).step_by(97)) {
                randomness.fill(&mut bytes);
                if round == 1 {
                    // Few different words, hence many ties.
                    bytes.iter_mut().for_each(|byte| *byte &= 1);
                }
                let search = &bytes[..length];
                assert_eq!(
                    rating.best_splitpoint(search),
                    reference(search, constants),
                    "{length}"
                );
            }
        }
    }

    #[test]
    fn periodic_data_makes_chunks_of_the_largest_multiple() {
        let parameters = ChunkerParameters::with_average(ChunkerKind::MinCdc, 8192).expect("valid");
        let randomness = SeededRandomness::new(4);
        for key in 0..8 {
            let chunker = MinCdc::new(&parameters, Some(&[key; 32]));
            for period in [1, 2, 3, 4, 5, 7, 16, 24, 100, 256, 512] {
                let mut pattern = vec![0; period];
                randomness.fill(&mut pattern);
                let data: Vec<u8> = pattern.iter().copied().cycle().take(40_000).collect();
                let first = chunker.cut(&data);
                let next = chunker.cut(&data[first..]);
                assert!(next > 12_288 - period && next <= 12_288, "period {period}: {next}");
                assert_eq!(next % period, 0, "period {period}");
                assert_eq!(chunker.cut(&data[first + next..]), next, "period {period}");
            }
        }
    }

    #[test]
    fn the_winner_may_occur_twice_in_a_period() {
        let parameters = ChunkerParameters::with_average(ChunkerKind::MinCdc, 8192).expect("valid");
        let mut found = 0;
        for key in 0..64 {
            let chunker = MinCdc::new(&parameters, Some(&[key; 32]));
            // The word "abcd" stands twice in each 20 bytes and wins with some keys.
            let data: Vec<u8> =
                b"abcdabcd123456789XYZ".iter().copied().cycle().take(40_000).collect();
            let first = chunker.cut(&data);
            let next = chunker.cut(&data[first..]);
            found += usize::from(data[..first].ends_with(b"abcd"));
            assert_eq!(next, 12_280, "key {key}");
        }
        assert!(found > 0);
    }

    #[test]
    fn nearly_periodic_data_is_cut_at_the_first_winner() {
        let parameters = ChunkerParameters::with_average(ChunkerKind::MinCdc, 8192).expect("valid");
        let chunker = MinCdc::new(&parameters, None);
        let mut data = b"0123456789abcdef".repeat(2000);
        let periodic = chunker.cut(&data);
        assert!(periodic > 12_000);
        // A higher-rated word breaks the period without becoming the winner.
        data[11_000] = 0;
        let broken = chunker.cut(&data);
        let constants = constants(None);
        assert_eq!(broken, 4092 + reference(&data[4092..12_288], constants));
    }

    #[test]
    fn a_run_that_begins_late_is_cut_where_it_begins() {
        let parameters = ChunkerParameters::with_average(ChunkerKind::MinCdc, 8192).expect("valid");
        let chunker = MinCdc::new(&parameters, None);
        let late = (1..=255).filter(|&byte| {
            let mut data = vec![0; 20_000];
            data[8000..].fill(byte);
            let first = 4092 + reference(&data[4092..12_288], constants(None));
            assert_eq!(chunker.cut(&data), first, "{byte}");
            // The run's own word wins, not one at its edge.
            first == 8004
        });
        assert!(late.count() > 5);
    }

    #[test]
    fn fillers_rate_high() {
        for key in 0..200 {
            let (multiplier, addend) = constants(Some(&[key; 32]));
            assert_eq!(multiplier % 2, 1);
            for byte in FILLERS {
                let word = u32::from_le_bytes([byte; 4]);
                assert!(word.wrapping_mul(multiplier).wrapping_add(addend) >= 1 << 30);
            }
        }
    }
}
