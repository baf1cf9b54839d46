//! Perfect hashing: a bit for each of the store's fingerprints, for less memory than a filter.
//!
//! A perfect hash function gives each of the keys it was made of a position that no other has. One
//! bit for each position then says of each key whether it is live: without false positives, and
//! such that a bit can be cleared again (FAST'17, sections 3.2 and 3.4).
//!
//! Algorithm: PHast's map or bump (Beling and Sanders, "PHast - Perfect Hashing made fast", 2025),
//! with room to spare. The rising keys fall into buckets of neighbours. A bucket has a seed of
//! eight bits, and a key's position lies in a slice of the range that begins in proportion to the
//! key, at an offset that the seed and the key give. Buckets are visited in their order but large
//! ones ahead of their turn, within a window, and each takes the seed that packs its keys furthest
//! to the front of those that collide with nothing. A bucket without such a seed is bumped: its
//! keys go to another level, which hashes them anew. FAST'17 itself builds on Botelho et al.; this
//! function is newer and smaller. Ours differs from PHast's in one thing: a range larger than the
//! number of keys makes seeds so much easier to find that buckets can be larger, which saves more
//! than the longer vector costs.
//!
//! The key space is cut by its top bits into partitions, each built alone (S3.27): several threads
//! can build at once, and what building takes is bounded by the partition, not by the store. Since
//! positions rise with keys nearly, whoever asks in the order of keys reads memory in order.
//!
//! The keys are fingerprint prefixes, which are uniformly random bits already: the first level uses
//! them as they are. Keys that are not only make more buckets bumped.
//!
//! What a bit is not. Two chunks with one prefix have one bit, and a key that is no member may be
//! sent to a member's. To set such a bit keeps a chunk too many, which is safe; to clear it for one
//! chunk clears it for the other, so whoever clears bits (S3.25) must know by whole fingerprints
//! that nothing else stands behind them.
//!
//! Invariants: two member keys never share a position; every position is below
//! [`PerfectHash::positions`], for keys that are no members as well; one set of keys makes one
//! function.

use super::mark_vector::fits_memory;
use super::mix::{GOLDEN_RATIO, finalise};
use onefold_types::{Error, ErrorKind, Result, bug};
use std::collections::BinaryHeap;

/// Keys in a bucket on average, in hundredths: with a seed of eight bits, 1.33 bits a key.
const BUCKET_KEYS_HUNDREDTHS: u64 = 600;
/// Positions for each thousand keys: how much room there is to spare.
const POSITIONS_PER_THOUSAND: u64 = 1120;
/// Positions that the keys of one bucket may be sent to, where the range is that long.
const SLICE_POSITIONS_MAX: u64 = 1024;
/// How many buckets may wait for their turn at once.
const WINDOW_BUCKETS: usize = 256;
/// How many buckets ahead of its turn a bucket of 0, 1, 2... keys is visited (PHast's evaluation).
const ADVANCE_BUCKETS: [i64; 8] = [-400, -61, 99, 181, 210, 224, 234, 244];
/// And how many more for each key beyond these.
const ADVANCE_PER_KEY_BUCKETS: i64 = 9;
/// Buckets of more keys are bumped untried: random keys make none.
const BUCKET_KEYS_MAX: usize = 32;
/// The seed of a bucket that was bumped.
const BUMPED: u8 = 0;
/// Each level takes nine keys in ten: even 2^64 keys would not need as many.
const LEVELS_MAX: usize = 64;
/// The most bits that partitions are told apart by.
pub const PARTITION_BITS_MAX: u32 = 24;

/// The fewest bits that cut `keys` random keys into partitions of `keys_per_partition` at most, on
/// average.
#[must_use]
pub fn partition_bits_for(keys: u64, keys_per_partition: u64) -> u32 {
    let partitions = keys.div_ceil(keys_per_partition.max(1)).max(1);
    // The number of bits that hold every number below `partitions`.
    (u64::BITS - (partitions - 1).leading_zeros()).min(PARTITION_BITS_MAX)
}

/// The partition that a key falls into: its top `partition_bits` bits.
#[must_use]
pub fn partition_of(key: u64, partition_bits: u32) -> usize {
    let partition = key.checked_shr(u64::BITS.saturating_sub(partition_bits)).unwrap_or(0);
    usize::try_from(partition).unwrap_or(usize::MAX)
}

/// The perfect hash function of one partition.
#[derive(Clone, Debug)]
pub struct HashPartition {
    keys: u64,
    first: u64,
    last: u64,
    /// Makes the differences of keys to the first one fill 64 bits.
    shift: u32,
    level: Level,
    /// For what the level above bumped.
    bumped: Vec<Level>,
    positions: usize,
}

impl HashPartition {
    /// The function of these keys, which must rise strictly.
    ///
    /// Building takes about a byte for each key, besides the keys and the function.
    ///
    /// # Errors
    /// The keys do not rise (`Invalid`), or memory does not suffice (`LimitExceeded`).
    pub fn build(keys: &[u64]) -> Result<Self> {
        if keys.iter().zip(keys.iter().skip(1)).any(|(key, next)| key >= next) {
            return Err(Error::invalid("the keys of a perfect hash function must rise"));
        }
        let (first, last) = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => (0, 0),
        };
        let shift = (last - first).leading_zeros().min(u64::BITS - 1);
        let scaled = |key: &u64| (key - first) << shift;
        let span = u128::from((last - first) << shift) + 1;
        let mut left = Vec::new();
        let level = Level::build(keys, scaled, span, 0, &mut left)?;
        let mut positions = level.positions;
        let mut bumped: Vec<Level> = Vec::new();
        while !left.is_empty() {
            if bumped.len() == LEVELS_MAX {
                return Err(Error::new(
                    ErrorKind::LimitExceeded,
                    format!("no perfect hash function of {} keys was found", keys.len()),
                ));
            }
            let number = bumped.len();
            let mut members = std::mem::take(&mut left);
            members.sort_unstable_by_key(|key| rehashed(*key, number));
            let rehash = |key: &u64| rehashed(*key, number);
            let level = Level::build(&members, rehash, 1 << 64, positions, &mut left)?;
            positions = positions.saturating_add(level.positions);
            bumped.push(level);
        }
        bumped.shrink_to_fit();
        Ok(Self { keys: keys.len() as u64, first, last, shift, level, bumped, positions })
    }

    /// How many keys it was made of.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// How many positions it gives.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Memory taken, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        let seeds = self.bumped.iter().map(|level| level.seeds.len()).sum::<usize>();
        let levels = self.bumped.len() * size_of::<Level>();
        size_of::<Self>() + self.level.seeds.len() + seeds + levels
    }

    #[inline]
    fn position(&self, key: u64) -> Option<usize> {
        // Of a key below the first this is arbitrary, as the answer may be.
        let scaled = key.wrapping_sub(self.first) << self.shift;
        match self.level.seed(scaled)? {
            BUMPED => self.position_of_bumped(key),
            seed => self.level.position(scaled, seed),
        }
    }

    #[cold]
    fn position_of_bumped(&self, key: u64) -> Option<usize> {
        for (number, level) in self.bumped.iter().enumerate() {
            let hash = rehashed(key, number);
            match level.seed(hash)? {
                BUMPED => {}
                seed => return level.position(hash, seed),
            }
        }
        None
    }
}

/// What takes the place of the key in a level below the first: a bijection for each level, so that
/// distinct keys stay distinct.
fn rehashed(key: u64, number: usize) -> u64 {
    finalise(key.wrapping_add((number as u64 + 1).wrapping_mul(GOLDEN_RATIO)))
}

/// The upper half of the product: scales `number` from `0..2^64` down to `0..bound`.
#[inline]
fn scale(number: u64, bound: u64) -> u64 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u64
}

/// One level of map or bump.
#[derive(Clone, Debug)]
struct Level {
    seeds: Vec<u8>,
    /// What scales a hash to its bucket.
    bucket_scale: u64,
    /// What scales a hash to where its slice begins.
    slice_scale: u64,
    /// Keeps an offset within the slice: one less than a power of two.
    offset_mask: u64,
    /// Where the level's positions begin.
    begin: usize,
    positions: usize,
}

impl Level {
    /// Finds seeds for the members, whose hashes must rise and lie below `span`, and appends those
    /// that were bumped to `left`.
    fn build(
        members: &[u64],
        hash: impl Fn(&u64) -> u64,
        span: u128,
        begin: usize,
        left: &mut Vec<u64>,
    ) -> Result<Self> {
        let count = members.len() as u64;
        if count == 0 {
            return Ok(Self::empty());
        }
        // Ends of buckets are held in 32 bits while building.
        fits_memory(u32::try_from(count).ok(), "so large a partition of a perfect hash function")?;
        let buckets = (count * 100).div_ceil(BUCKET_KEYS_HUNDREDTHS);
        let positions = (count * POSITIONS_PER_THOUSAND).div_ceil(1000);
        let slice = 1 << positions.min(SLICE_POSITIONS_MAX).ilog2();
        let slices = positions - slice + 1;
        let scale_to = |bound: u64| ((u128::from(bound) << 64) / span) as u64;
        let full = |bound: u64| if span == 1 { 0 } else { scale_to(bound) };
        let level = Self {
            seeds: zeros(usize::try_from(buckets).ok())?,
            bucket_scale: full(buckets),
            slice_scale: full(slices),
            offset_mask: slice - 1,
            begin,
            positions: positions as usize,
        };
        level.choose_seeds(members, hash, left)
    }

    fn empty() -> Self {
        let seeds = Vec::new();
        Self { seeds, bucket_scale: 0, slice_scale: 0, offset_mask: 0, begin: 0, positions: 0 }
    }

    fn choose_seeds(
        mut self,
        members: &[u64],
        hash: impl Fn(&u64) -> u64,
        left: &mut Vec<u64>,
    ) -> Result<Self> {
        let ends = self.bucket_ends(members, &hash)?;
        let range_of = |bucket: usize| {
            let begin = bucket.checked_sub(1).and_then(|before| ends.get(before)).unwrap_or(&0);
            *begin as usize..ends.get(bucket).map_or(0, |end| *end as usize)
        };
        let mut used: Vec<u64> = zeros(Some(self.positions / 64 + 1))?;
        let mut hashes = Vec::with_capacity(BUCKET_KEYS_MAX);
        let mut waiting = BinaryHeap::with_capacity(WINDOW_BUCKETS + 1);
        let mut arriving = 0..self.seeds.len();
        loop {
            while waiting.len() < WINDOW_BUCKETS
                && let Some(bucket) = arriving.next()
            {
                waiting.push((urgency(bucket, range_of(bucket).len()), bucket));
            }
            let Some((_, bucket)) = waiting.pop() else { break };
            // A key without a position of its own would share that of another: what is live would
            // count as dead.
            let lost = || bug!("a perfect hash loses keys", bucket, members.len(), self.positions);
            let keys = members.get(range_of(bucket)).ok_or_else(lost)?;
            hashes.clear();
            hashes.extend(keys.iter().take(BUCKET_KEYS_MAX + 1).map(&hash));
            let seed = self.best_seed(&hashes, &used).unwrap_or(BUMPED);
            *self.seeds.get_mut(bucket).ok_or_else(lost)? = seed;
            if seed == BUMPED {
                left.extend_from_slice(keys);
                continue;
            }
            for hash in &hashes {
                let position = self.position_of(*hash, seed);
                let word = used.get_mut((position / 64) as usize).ok_or_else(lost)?;
                *word |= 1 << (position % 64);
            }
        }
        Ok(self)
    }

    /// For each bucket, the number of members in it and those before it.
    fn bucket_ends(&self, members: &[u64], hash: impl Fn(&u64) -> u64) -> Result<Vec<u32>> {
        let mut ends: Vec<u32> = zeros(Some(self.seeds.len()))?;
        for member in members {
            let bucket = self.bucket(hash(member));
            let buckets = ends.len();
            let size = ends
                .get_mut(bucket)
                .ok_or_else(|| bug!("a perfect hash has no bucket for a key", bucket, buckets))?;
            *size += 1;
        }
        let mut total = 0;
        for end in &mut ends {
            total += *end;
            *end = total;
        }
        Ok(ends)
    }

    /// The seed that sends the hashes to free positions, the front-most of all seeds that do.
    fn best_seed(&self, hashes: &[u64], used: &[u64]) -> Option<u8> {
        if hashes.len() > BUCKET_KEYS_MAX {
            return None;
        }
        let mut positions = [0; BUCKET_KEYS_MAX];
        let mut best = None;
        'seeds: for seed in 1..=u8::MAX {
            let mut sum = 0;
            for (hash, kept) in hashes.iter().zip(&mut positions) {
                let position = self.position_of(*hash, seed);
                let word = used.get((position / 64) as usize)?;
                if word >> (position % 64) & 1 == 1 {
                    continue 'seeds;
                }
                *kept = position;
                sum += position;
            }
            if best.is_some_and(|(least, _)| least <= sum) {
                continue;
            }
            let positions = positions.get(..hashes.len())?;
            let collides = positions
                .iter()
                .enumerate()
                .any(|(at, position)| positions.iter().skip(at + 1).any(|other| other == position));
            if !collides {
                best = Some((sum, seed));
            }
        }
        best.map(|(_, seed)| seed)
    }

    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        scale(hash, self.bucket_scale) as usize
    }

    #[inline]
    fn seed(&self, hash: u64) -> Option<u8> {
        self.seeds.get(self.bucket(hash)).copied()
    }

    /// Where in the level the seed sends the hash. Neighbours have their top bits in common, so the
    /// offset is taken from a product that every bit of the hash goes into.
    #[inline]
    fn position_of(&self, hash: u64, seed: u8) -> u64 {
        let product = hash.wrapping_mul(GOLDEN_RATIO).wrapping_mul(u64::from(seed));
        scale(hash, self.slice_scale) + ((product >> 48) & self.offset_mask)
    }

    #[inline]
    fn position(&self, hash: u64, seed: u8) -> Option<usize> {
        let position = self.position_of(hash, seed) as usize;
        // Only the hash of a stranger can be above the span that the scales were made for.
        (position < self.positions).then_some(self.begin + position)
    }
}

/// The higher, the sooner a bucket is visited.
fn urgency(bucket: usize, keys: usize) -> i64 {
    let most = ADVANCE_BUCKETS.len() - 1;
    let advance = ADVANCE_BUCKETS.get(keys.min(most)).copied().unwrap_or_default();
    advance + keys.saturating_sub(most) as i64 * ADVANCE_PER_KEY_BUCKETS - bucket as i64
}

/// `count` zeros, if they fit into memory.
fn zeros<T: Clone + Default>(count: Option<usize>) -> Result<Vec<T>> {
    let count = fits_memory(count, "a perfect hash function")?;
    let mut zeros = Vec::new();
    fits_memory(zeros.try_reserve_exact(count).ok(), "a perfect hash function")?;
    zeros.resize(count, T::default());
    Ok(zeros)
}

/// The perfect hash function of all partitions.
#[derive(Clone, Debug)]
pub struct PerfectHash {
    partition_bits: u32,
    /// Each partition with where its positions begin.
    partitions: Vec<(usize, HashPartition)>,
    positions: usize,
    keys: u64,
}

impl PerfectHash {
    /// Puts partitions together, which must come in the order of [`partition_of`] and be
    /// 2^`partition_bits`.
    ///
    /// # Errors
    /// Their number is wrong, or one holds keys of another (`Invalid`).
    pub fn assemble(partition_bits: u32, partitions: Vec<HashPartition>) -> Result<Self> {
        if partition_bits > PARTITION_BITS_MAX || partitions.len() != 1 << partition_bits {
            return Err(Error::invalid(format!(
                "{} partitions cannot be told apart by exactly {partition_bits} bits",
                partitions.len()
            )));
        }
        let (mut positions, mut keys) = (0_usize, 0);
        let mut assembled = Vec::with_capacity(partitions.len());
        for (number, partition) in partitions.into_iter().enumerate() {
            let belongs = |key| partition_of(key, partition_bits) == number;
            if partition.keys > 0 && !(belongs(partition.first) && belongs(partition.last)) {
                return Err(Error::invalid(format!("partition {number} holds keys of another")));
            }
            let begin = positions;
            positions = positions.saturating_add(partition.positions);
            keys += partition.keys;
            assembled.push((begin, partition));
        }
        Ok(Self { partition_bits, partitions: assembled, positions, keys })
    }

    /// The key's position: unique among member keys, arbitrary or `None` for any other key; `None`
    /// if its partition has no keys.
    #[inline]
    #[must_use]
    pub fn position(&self, key: u64) -> Option<usize> {
        let (begin, partition) = self.partitions.get(partition_of(key, self.partition_bits))?;
        partition.position(key).map(|position| begin + position)
    }

    /// How many positions there are: the bits of a vector over them.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// How many keys have a position.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Memory taken, in bytes, without any vector over the positions.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        let partitions = self.partitions.iter();
        partitions.map(|(_, partition)| size_of::<usize>() + partition.bytes_used()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;
    use proptest::prelude::*;

    fn random_keys(seed: u64, count: usize) -> Vec<u64> {
        let randomness = SeededRandomness::new(seed);
        let mut keys: Vec<u64> = (0..count).map(|_| randomness.next_u64()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn build(keys: &[u64], partition_bits: u32) -> PerfectHash {
        let partition = |number| {
            let begin = keys.partition_point(|key| partition_of(*key, partition_bits) < number);
            let end = keys.partition_point(|key| partition_of(*key, partition_bits) <= number);
            HashPartition::build(&keys[begin..end]).unwrap()
        };
        let partitions = (0..1 << partition_bits).map(partition).collect();
        PerfectHash::assemble(partition_bits, partitions).unwrap()
    }

    fn assert_perfect(keys: &[u64], hash: &PerfectHash) {
        let mut taken = vec![false; hash.positions()];
        for key in keys {
            let position = hash.position(*key).unwrap();
            assert!(!std::mem::replace(&mut taken[position], true), "{key:x} at {position}");
        }
        assert_eq!(hash.keys(), keys.len() as u64);
    }

    #[test]
    fn random_keys_have_positions_of_their_own_for_few_bits() {
        for (count, bits) in [(1, 0), (2, 1), (7, 3), (100, 0), (5_000, 2), (300_000, 0)] {
            let keys = random_keys(count as u64, count);
            let hash = build(&keys, bits);
            assert_perfect(&keys, &hash);
            if count >= 300_000 {
                let total_bits = hash.bytes_used() * 8 + hash.positions();
                let per_key = total_bits as f64 / count as f64;
                // S3.22 has 2.8. Ten million keys in sixteen partitions take as much.
                assert!((2.4..2.51).contains(&per_key), "{per_key} bits a key");
            }
        }
    }

    #[test]
    fn strangers_are_sent_nowhere_outside_the_range() {
        let keys: Vec<u64> = random_keys(3, 2_000).iter().map(|key| key / 3 + (1 << 60)).collect();
        let hash = build(&keys, 2);
        let others = SeededRandomness::new(4);
        let strangers = (0..100_000).map(|_| others.next_u64()).chain([0, 1, u64::MAX]);
        for key in strangers {
            assert!(hash.position(key).is_none_or(|position| position < hash.positions()));
        }
        let empty = build(&[], 1);
        assert_eq!((empty.position(7), empty.positions(), empty.keys()), (None, 0, 0));
    }

    #[test]
    fn keys_that_are_not_random_are_still_told_apart() {
        let counters: Vec<u64> = (0..20_000).collect();
        let clustered: Vec<u64> =
            (0..5_000).chain((0..5_000).map(|n| u64::MAX - 5_000 + n)).collect();
        let powers: Vec<u64> = (0..64).map(|n| 1 << n).collect();
        let ends = vec![0, u64::MAX];
        for keys in [counters, clustered, powers, ends] {
            assert_perfect(&keys, &build(&keys, 0));
        }
    }

    #[test]
    fn keys_that_do_not_rise_are_refused() {
        for keys in [&[1, 1][..], &[2, 1], &[1, 2, 2]] {
            let error = HashPartition::build(keys).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn partitions_that_do_not_fit_are_refused() {
        let low = HashPartition::build(&[1, 2, 3]).unwrap();
        let high = HashPartition::build(&[1 << 63]).unwrap();
        let assemble = |bits, partitions: &[&HashPartition]| {
            PerfectHash::assemble(
                bits,
                partitions.iter().map(|&partition| partition.clone()).collect(),
            )
        };
        assert!(assemble(1, &[&low, &high]).is_ok());
        assert!(assemble(1, &[&high, &low]).is_err());
        assert!(assemble(1, &[&low]).is_err());
        assert!(assemble(0, &[]).is_err());
        assert!(assemble(64, &[&low]).is_err());
    }

    #[test]
    fn partitions_are_as_many_as_keys_need() {
        let cases = [(0, 10, 0), (10, 10, 0), (11, 10, 1), (40, 10, 2), (41, 10, 3), (5, 0, 3)];
        for (keys, each, bits) in cases {
            assert_eq!(partition_bits_for(keys, each), bits, "{keys} by {each}");
        }
        assert_eq!(partition_bits_for(u64::MAX, 1), PARTITION_BITS_MAX);
        assert_eq!((partition_of(u64::MAX, 0), partition_of(u64::MAX, 3)), (0, 7));
        assert_eq!((partition_of(1 << 63, 1), partition_of((1 << 63) - 1, 1)), (1, 0));
    }

    proptest! {
        #[test]
        fn any_keys_have_positions_of_their_own(
            keys in prop::collection::btree_set(
                prop_oneof![any::<u64>(), 0..1000_u64, (0..1000_u64).prop_map(|n| n << 50)],
                0..600,
            ),
            bits in 0..4_u32,
        ) {
            let keys: Vec<u64> = keys.into_iter().collect();
            assert_perfect(&keys, &build(&keys, bits));
        }
    }
}
