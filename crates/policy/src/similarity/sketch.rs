//! The sketch of a chunk: 24 bytes by which similar chunks are recognised.
//!
//! Algorithm: Broder's resemblance ("On the resemblance and containment of documents", 1997) with
//! the sampling of Odess (Zou et al., ICDE'21, "Odess: Speeding up Resemblance Detection for
//! Redundancy Elimination by Fast Content-Defined Sampling"). Content alone decides which
//! positions are sampled, one in 128; feature k of twelve is the greatest value that linear
//! transform k takes over the hashes of the sampled windows. Two chunks have one feature in common
//! with about the probability that a window of one is also in the other. Groups of features are
//! Broder's super-features; here six keys of two features each, which FAST'12 (Shilane et al., "WAN
//! optimized replication of backup datasets using stream-informed delta compression") looks up.
//!
//! What differs from Odess: no hash rolls. Whether a position is sampled follows from its eight
//! bytes by arithmetic on bytes, which compilers turn into vector code for any machine, and only a
//! sampled window, of 32 bytes, is hashed as a whole. With code for any x86-64, that makes 3.7 GB/s
//! on a busy machine where a gear hash makes 1.8, and 32 bytes survive more edits than the
//! 64 of a gear hash do: at a resemblance of a half, 76 to 81 % of the chunks share a key instead
//! of 57 to 62 %. Of unrelated chunks up to 0.5 % share one feature, and none of 42,676 pairs two
//! (`examples/sketch_quality.rs`). What is slow is a short pattern over and over of which most is
//! sampled: 0.5 GB/s at worst of those tried.
//!
//! Invariants: a sketch depends only on the bytes. Sketches are stored, so what the sketch of some
//! bytes is never changes (a test holds it). A sampled window that repeats counts once, so that a
//! stretch of equal bytes adds at most one sample. A chunk of so few different windows that fewer
//! than [`WINNERS_MIN`] of them make up its features has no sketch: zeros, a byte or a short
//! pattern over and over. With one, everything even would be similar to everything even.

use std::array::from_fn;

/// Bytes of a sketch.
pub const SKETCH_BYTES: usize = 24;
/// Features of a sketch.
pub const FEATURES: usize = 12;
/// Keys of a sketch.
pub const KEYS: usize = 6;
/// Chunks of fewer bytes have no sketch: a few samples say nothing, and little can be saved.
pub const SKETCH_BYTES_MIN: usize = 512;
/// Different windows that must have made up the features.
pub const WINNERS_MIN: usize = 4;

/// Positions that are tested together: eight rows, a bit each.
const BLOCK: usize = 8 * LANES;
/// Positions of a row.
const LANES: usize = 16;
/// Bytes that decide whether a position is sampled.
const SAMPLING_BYTES: usize = 8;
/// A position is sampled if the hash of its bytes, one byte, is at least this: one in 128. That of
/// zeros is zero.
const SAMPLED_MIN: u8 = 254;
/// Bytes of a sampled window.
const WINDOW_BYTES: usize = 32;
/// Positions that are hashed together: so many that what was written last is not read at once, at
/// places across what was written, which would wait for it.
const STRETCH: usize = 8 * BLOCK;
/// The bytes of a stretch, and those of the windows that begin in it.
type Stretch = [u8; STRETCH + WINDOW_BYTES];

const WINDOW_FACTORS: [u64; WINDOW_BYTES / 8] =
    [odd_number(301), odd_number(302), odd_number(303), odd_number(304)];
const FACTORS: [u32; FEATURES] = numbers(1, 1);
const INVERSES: [u32; FEATURES] = inverses(FACTORS);
const SUMMANDS: [u32; FEATURES] = numbers(101, 0);
/// Takes 16 bits out of 32 of which the upper ones are mostly set.
const FOLDING: u32 = 0x9e37_79b1;

/// Twelve features of 16 bits: 24 bytes, little endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Sketch([u8; SKETCH_BYTES]);

impl Sketch {
    /// The sketch of these bytes. `None` if there are fewer than [`SKETCH_BYTES_MIN`], or if they
    /// are so even that fewer than [`WINNERS_MIN`] different windows make up the features.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < SKETCH_BYTES_MIN {
            return None;
        }
        let mut samples = Samples::default();
        let mut rest = bytes;
        while let Some(stretch) = rest.first_chunk::<{ STRETCH + WINDOW_BYTES }>() {
            samples.add(stretch, STRETCH);
            rest = &rest[STRETCH..];
        }
        let mut last = [0; STRETCH + WINDOW_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        samples.add(&last, (rest.len() + 1).saturating_sub(WINDOW_BYTES));
        samples.sketch()
    }

    /// The sketch that [`Self::to_bytes`] gave.
    #[must_use]
    pub fn from_bytes(bytes: [u8; SKETCH_BYTES]) -> Self {
        Self(bytes)
    }

    /// The features, one behind the other.
    #[must_use]
    pub fn to_bytes(self) -> [u8; SKETCH_BYTES] {
        self.0
    }

    fn features(&self) -> [u16; FEATURES] {
        from_fn(|number| u16::from_le_bytes([self.0[2 * number], self.0[2 * number + 1]]))
    }

    /// How many of the twelve are equal.
    #[must_use]
    pub fn equal_features(&self, other: &Self) -> u32 {
        let pairs = self.features().into_iter().zip(other.features());
        pairs.map(|(one, other)| u32::from(one == other)).sum()
    }

    /// Six keys of two features each. No key of one number equals that of another with the same
    /// features.
    #[must_use]
    pub fn keys(&self) -> [u32; KEYS] {
        let features = self.features();
        from_fn(|number| {
            let pair = u32::from(features[2 * number]) | u32::from(features[2 * number + 1]) << 16;
            // Each step can be undone, so different numbers lead to different keys.
            let mut key = pair ^ (number as u32 + 1).wrapping_mul(FOLDING);
            key = (key ^ (key >> 16)).wrapping_mul(0x85eb_ca6b);
            key = (key ^ (key >> 13)).wrapping_mul(0xc2b2_ae35);
            key ^ (key >> 16)
        })
    }
}

/// What is known of the windows sampled so far.
struct Samples {
    /// Of each transform, the greatest value: signed, because that compares faster.
    greatest: [i32; FEATURES],
    /// The hash of the newest sample.
    newest: Option<u32>,
}

impl Default for Samples {
    fn default() -> Self {
        Self { greatest: [i32::MIN; FEATURES], newest: None }
    }
}

impl Samples {
    /// Adds the samples among the first `positions` of the stretch. Their order is not that of the
    /// bytes, which makes no difference to a maximum.
    fn add(&mut self, stretch: &Stretch, positions: usize) {
        let hashes = hashes(stretch);
        // One after the other into a list, without asking whether there is one: what cannot be
        // foretold costs more than a few positions that are written over.
        let mut found = [0u16; STRETCH];
        let mut count = 0;
        for start in (0..STRETCH).step_by(BLOCK) {
            let Some(block) = hashes.get(start..).and_then(|from| from.first_chunk()) else {
                break;
            };
            for (half, marks) in sampled(block).into_iter().enumerate() {
                let position = |marks: u64| {
                    let bit = marks.trailing_zeros() as usize % 64;
                    (start + bit % 8 * LANES + half * 8 + bit / 8) as u16
                };
                found[count] = position(marks);
                count += usize::from(marks != 0);
                let mut left = marks & marks.wrapping_sub(1);
                while left != 0 {
                    found[count] = position(left);
                    count += 1;
                    left &= left - 1;
                }
            }
        }
        for position in found[..count].iter().map(|position| usize::from(*position)) {
            if position < positions {
                self.add_hash(window_hash(stretch, position));
            }
        }
    }

    fn add_hash(&mut self, hash: u32) {
        // For speed alone: it would change no maximum.
        if self.newest == Some(hash) {
            return;
        }
        self.newest = Some(hash);
        for number in 0..FEATURES {
            let value = hash.wrapping_mul(FACTORS[number]).wrapping_add(SUMMANDS[number]) as i32;
            self.greatest[number] = self.greatest[number].max(value);
        }
    }

    fn sketch(&self) -> Option<Sketch> {
        self.newest?;
        // Transforms can be undone: the hash of the window that won.
        let mut winners: [u32; FEATURES] = from_fn(|number| {
            let value = self.greatest[number] as u32;
            value.wrapping_sub(SUMMANDS[number]).wrapping_mul(INVERSES[number])
        });
        winners.sort_unstable();
        let different = 1 + winners.windows(2).filter(|pair| pair[0] != pair[1]).count();
        if different < WINNERS_MIN {
            return None;
        }
        let fold = |number: usize| {
            let folded = (self.greatest[number] as u32).wrapping_mul(FOLDING) >> 16;
            folded.to_le_bytes()
        };
        Some(Sketch(from_fn(|place| fold(place / 2)[place % 2])))
    }
}

/// Of each position of a stretch, the hash of its four bytes: each by the power of five of how many
/// follow. Those of two make those of four, and these make those of the eight bytes by which a
/// position is sampled ([`sampled`]).
///
/// The loops are written so that each becomes vector code: no branches, bytes only, no products. A
/// vector of bytes can be shifted and added, but not multiplied.
fn hashes(stretch: &Stretch) -> [u8; STRETCH + SAMPLING_BYTES] {
    let times_5 = |byte: u8| (byte << 2).wrapping_add(byte);
    let mut of_two = [0u8; STRETCH + 2 * SAMPLING_BYTES];
    for position in 0..of_two.len() {
        of_two[position] = times_5(stretch[position]).wrapping_add(stretch[position + 1]);
    }
    let mut of_four = [0u8; STRETCH + SAMPLING_BYTES];
    for position in 0..of_four.len() {
        let earlier = times_5(times_5(of_two[position]));
        of_four[position] = earlier.wrapping_add(of_two[position + 2]);
    }
    of_four
}

/// Which positions of a block are sampled, by the hashes of four bytes. Bit `8 * l + r` of half h
/// stands for position `16 * r + 8 * h + l`.
fn sampled(of_four: &[u8; BLOCK + SAMPLING_BYTES]) -> [u64; 2] {
    let mut flags = [0u8; BLOCK];
    for position in 0..BLOCK {
        let earlier = of_four[position];
        // 5 to the power of four, of which a byte holds 113.
        let earlier = earlier.wrapping_sub(earlier << 4).wrapping_add(earlier << 7);
        let is_sampled = earlier.wrapping_add(of_four[position + 4]) >= SAMPLED_MIN;
        flags[position] = u8::from(is_sampled).wrapping_neg() & ROW_BITS[position];
    }
    let mut marks = [0; 2];
    for row in flags.as_chunks::<8>().0.chunks_exact(2) {
        marks[0] |= u64::from_le_bytes(row[0]);
        marks[1] |= u64::from_le_bytes(row[1]);
    }
    marks
}

/// Of each position of a block, the bit of its row.
const ROW_BITS: [u8; BLOCK] = {
    let mut bits = [0; BLOCK];
    let mut position = 0;
    while position < BLOCK {
        bits[position] = 1 << (position / LANES);
        position += 1;
    }
    bits
};

fn window_hash(stretch: &Stretch, position: usize) -> u32 {
    let window = stretch.get(position..).and_then(|bytes| bytes.first_chunk::<WINDOW_BYTES>());
    let mut sum = 0u64;
    for (word, factor) in window.copied().unwrap_or_default().chunks_exact(8).zip(WINDOW_FACTORS) {
        let word = word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        sum = sum.wrapping_add(word.wrapping_mul(factor));
    }
    ((sum ^ (sum >> 32)).wrapping_mul(WINDOW_FACTORS[0]) >> 32) as u32
}

/// SplitMix64: the number-th of a row of numbers without a pattern.
const fn number_at(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const fn odd_number(number: u64) -> u64 {
    number_at(number) | 1
}

/// A number for each transform, with the bits of `set` set.
const fn numbers(first: u64, set: u32) -> [u32; FEATURES] {
    let mut numbers = [0; FEATURES];
    let mut place = 0;
    while place < FEATURES {
        numbers[place] = (number_at(first + place as u64) >> 32) as u32 | set;
        place += 1;
    }
    numbers
}

/// By what a product with each of these odd factors has to be multiplied to undo it.
const fn inverses(factors: [u32; FEATURES]) -> [u32; FEATURES] {
    let mut inverses = factors;
    let mut place = 0;
    while place < FEATURES {
        // Newton: three bits are right at first, and each step doubles them.
        let mut step = 0;
        while step < 4 {
            let error = 2u32.wrapping_sub(factors[place].wrapping_mul(inverses[place]));
            inverses[place] = inverses[place].wrapping_mul(error);
            step += 1;
        }
        place += 1;
    }
    inverses
}

#[cfg(test)]
mod tests;
