//! What chunks come to: a table of fingerprints that never grows beyond its memory.
//!
//! A chunk is known by the first eight bytes of its fingerprint. When the table is full, the sample
//! is halved: only fingerprints of which one more bit is zero stay, and from then on only such are
//! entered. As S0's sampling does, this takes whole chunks with all their occurrences, so that what
//! is found of the sample holds for all within chance. How many bits must be zero in the end is a
//! function of the set of chunks, not of their order.
//!
//! # Invariants
//! - Sums are kept by *level*: how many of the sampled bits of a fingerprint are zero. What lies at
//!   the level of the final sample or above was in the sample all the time, so it is counted
//!   without gaps; all levels together are exact for what takes no table (chunks, bytes).
//! - What is estimated is a share of the sample, applied to the exact number of bytes.
//! - Without sampling every figure is exact, and what a file counts depends on no order but that
//!   a chunk counts as unique for the kind of file in which it comes first.

use crate::chunk_store::prefix_hasher::PrefixHasher;
use onefold_types::Result;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

/// Levels: one fingerprint in 2^24 is the sparsest sample.
const LEVELS: usize = 25;
/// The sampled bits: neither those that choose a bucket of the table nor those that mark it.
const SAMPLED_FROM_BIT: u32 = 32;
/// What a bucket of the table takes, its mark included.
const BUCKET_BYTES: usize = 25;
/// What an entry takes while the sample is being halved.
const MOVED_BYTES: usize = 24;

/// Chunks and bytes of one kind of file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Amount {
    chunks: u64,
    bytes: u64,
    unique_chunks: u64,
    unique_bytes: u64,
    /// Of the unique bytes, those that were compressed.
    measured_bytes: u64,
    compressed_bytes: u64,
}

impl Amount {
    fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.unique_chunks += other.unique_chunks;
        self.unique_bytes += other.unique_bytes;
        self.measured_bytes += other.measured_bytes;
        self.compressed_bytes += other.compressed_bytes;
    }
}

/// A chunk in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    count: u32,
    bytes: u32,
    /// What a compressor leaves of it; `u32::MAX`: not known.
    compressed_bytes: u32,
}

/// What some files come to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Savings {
    /// Chunks; exact.
    pub chunks: u64,
    /// Bytes in them; exact.
    pub bytes: u64,
    /// Chunks that had not come before.
    pub unique_chunks: u64,
    /// Their bytes.
    pub unique_bytes: u64,
    /// What a compressor leaves of those.
    pub compressed_bytes: u64,
}

impl Savings {
    /// The share of bytes that deduplication saves.
    #[must_use]
    pub fn saved(&self) -> f64 {
        1.0 - self.unique_bytes as f64 / self.bytes.max(1) as f64
    }

    /// The share of bytes that deduplication and compression save together.
    #[must_use]
    pub fn saved_compressed(&self) -> f64 {
        1.0 - self.compressed_bytes as f64 / self.bytes.max(1) as f64
    }

    /// The mean of chunks.
    #[must_use]
    pub fn mean_chunk_bytes(&self) -> f64 {
        self.bytes as f64 / self.chunks.max(1) as f64
    }

    /// Adds what others come to.
    pub fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.bytes += other.bytes;
        self.unique_chunks += other.unique_chunks;
        self.unique_bytes += other.unique_bytes;
        self.compressed_bytes += other.compressed_bytes;
    }
}

/// Chunks that occur about equally often.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Occurrences {
    /// At least so many times.
    pub least: u32,
    /// At most so many times.
    pub most: u32,
    /// Chunks, each counted once.
    pub chunks: u64,
    /// The share of all bytes that is theirs, all occurrences counted.
    pub bytes_share: f64,
    /// The share of the duplicate bytes that is theirs.
    pub duplicates_share: f64,
}

/// The table and the sums.
#[derive(Debug, Default)]
pub struct Tally {
    known: HashMap<u64, Known, BuildHasherDefault<PrefixHasher>>,
    /// Entries that the table may hold; 0: any number.
    entries_max: usize,
    level: usize,
    kinds: Vec<[Amount; LEVELS]>,
}

impl Tally {
    /// A table that takes no more than this.
    #[must_use]
    pub fn within(budget_bytes: usize) -> Self {
        let fits = |buckets: &usize| {
            buckets * BUCKET_BYTES + buckets * 7 / 16 * MOVED_BYTES <= budget_bytes
        };
        let buckets = (4..40).map(|power| 1usize << power).take_while(fits).last().unwrap_or(16);
        let entries_max = buckets / 8 * 7;
        let known = HashMap::with_capacity_and_hasher(entries_max, BuildHasherDefault::default());
        Self { known, entries_max, ..Self::default() }
    }

    /// A table that takes what it needs.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::default()
    }

    /// One chunk in so many is in the sample.
    #[must_use]
    pub fn sampled_one_in(&self) -> u64 {
        1 << self.level
    }

    /// Chunks in the table.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.known.len()
    }

    /// Counts a chunk of a file of the kind with this number. `compress` is asked what a compressor
    /// leaves of it only if that is needed. Returns what is known of that.
    pub fn meet(
        &mut self,
        kind: usize,
        prefix: u64,
        bytes: u32,
        compress: &mut dyn FnMut() -> Result<Option<u32>>,
    ) -> Result<Option<u32>> {
        let level = level_of(prefix);
        let mut amount = Amount { chunks: 1, bytes: u64::from(bytes), ..Amount::default() };
        let mut compressed = None;
        if level >= self.level {
            if let Some(known) = self.known.get_mut(&prefix) {
                known.count = known.count.saturating_add(1);
                compressed = measured(known.compressed_bytes);
            } else {
                compressed = compress()?;
                (amount.unique_chunks, amount.unique_bytes) = (1, amount.bytes);
                if let Some(left) = compressed {
                    (amount.measured_bytes, amount.compressed_bytes) =
                        (amount.bytes, u64::from(left));
                }
                let compressed_bytes = compressed.unwrap_or(u32::MAX);
                self.enter(prefix, Known { count: 1, bytes, compressed_bytes });
            }
        }
        while self.kinds.len() <= kind {
            self.kinds.push([Amount::default(); LEVELS]);
        }
        if let Some(sum) = self.kinds.get_mut(kind).and_then(|sums| sums.get_mut(level)) {
            sum.add(&amount);
        }
        Ok(compressed)
    }

    fn enter(&mut self, prefix: u64, known: Known) {
        while self.entries_max > 0 && self.known.len() >= self.entries_max {
            // At the sparsest sample chunks count as unique: there are so many of them that a
            // disk that could hold them is not to be had.
            if self.level + 1 >= LEVELS {
                return;
            }
            self.level += 1;
            // Entries are taken out and put back: removing them one by one would leave marks, for
            // which the table would grow in the end.
            let stays = |entry: &(&u64, &Known)| level_of(*entry.0) >= self.level;
            let kept: Vec<(u64, Known)> =
                self.known.iter().filter(stays).map(|(prefix, known)| (*prefix, *known)).collect();
            self.known.clear();
            self.known.extend(kept);
        }
        if level_of(prefix) >= self.level {
            self.known.insert(prefix, known);
        }
    }

    /// What the files of one kind come to.
    #[must_use]
    pub fn kind(&self, kind: usize) -> Savings {
        let Some(sums) = self.kinds.get(kind) else {
            return Savings::default();
        };
        self.savings(&exact(&sums[..]), &self.sampled(sums))
    }

    /// What all files come to.
    #[must_use]
    pub fn total(&self) -> Savings {
        let (mut all, mut sampled) = (Amount::default(), Amount::default());
        for sums in &self.kinds {
            all.add(&exact(&sums[..]));
            sampled.add(&self.sampled(sums));
        }
        self.savings(&all, &sampled)
    }

    fn sampled(&self, sums: &[Amount; LEVELS]) -> Amount {
        exact(sums.get(self.level..).unwrap_or_default())
    }

    /// Estimates from the sample; a kind of which nothing is in it is taken for unique.
    fn savings(&self, all: &Amount, sampled: &Amount) -> Savings {
        let part = |whole: u64, part: u64, of: u64| match of {
            0 => whole,
            _ if part == of => whole,
            _ => (whole as f64 * (part as f64 / of as f64)).round() as u64,
        };
        let is_exact = self.level == 0;
        let unique_bytes = match is_exact {
            true => sampled.unique_bytes,
            false => part(all.bytes, sampled.unique_bytes, sampled.bytes),
        };
        let compressed_bytes = match is_exact && sampled.measured_bytes == unique_bytes {
            true => sampled.compressed_bytes,
            false => part(unique_bytes, sampled.compressed_bytes, sampled.measured_bytes),
        };
        Savings {
            chunks: all.chunks,
            bytes: all.bytes,
            unique_chunks: match is_exact {
                true => sampled.unique_chunks,
                false => part(all.chunks, sampled.unique_chunks, sampled.chunks),
            },
            unique_bytes,
            compressed_bytes,
        }
    }

    /// How far the share that duplicates save may be off by the chance of the sample: its standard
    /// error, that of a ratio of sums over chunks. Zero if all chunks were looked at.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        let sums = |known: &Known| {
            (f64::from(known.bytes), f64::from(known.bytes) * f64::from(known.count))
        };
        let add = |(a, b): (f64, f64), (c, d): (f64, f64)| (a + c, b + d);
        let (unique, all) = self.known.values().map(sums).fold((0.0, 0.0), add);
        if all == 0.0 || self.level == 0 {
            return 0.0;
        }
        let square = |known: &Known| {
            let (own, occurrences) = sums(known);
            (own - unique / all * occurrences).powi(2)
        };
        let squares: f64 = self.known.values().map(square).sum();
        let left_out = 1.0 - 1.0 / self.sampled_one_in() as f64;
        (squares * left_out).sqrt() / all
    }

    /// Where the bytes lie by how often their chunk occurs (S4.3), in classes of 1, 2, 3 to 4 and
    /// so on.
    #[must_use]
    pub fn occurrences(&self) -> Vec<Occurrences> {
        let mut classes: BTreeMap<u32, (u64, u64, u64)> = BTreeMap::new();
        for known in self.known.values() {
            let most = known.count.checked_next_power_of_two().unwrap_or(u32::MAX);
            let class = classes.entry(most).or_default();
            class.0 += 1;
            class.1 += u64::from(known.bytes) * u64::from(known.count);
            class.2 += u64::from(known.bytes) * u64::from(known.count - 1);
        }
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let bytes: u64 = classes.values().map(|class| class.1).sum();
        let duplicates: u64 = classes.values().map(|class| class.2).sum();
        let class = |(most, (chunks, own, spared)): (u32, (u64, u64, u64))| Occurrences {
            least: if most <= 2 { most } else { most / 2 + 1 },
            most,
            chunks: chunks * self.sampled_one_in(),
            bytes_share: share(own, bytes),
            duplicates_share: share(spared, duplicates),
        };
        classes.into_iter().map(class).collect()
    }

    /// The share of compression's savings that the best-compressing half of the unique bytes gives
    /// (S4.24: 86 % of them), and the share of unique bytes that do not compress at all (31 %).
    #[must_use]
    pub fn compressibility(&self) -> (f64, f64) {
        let curve = self.compression_curve();
        let half = curve.iter().find(|(bytes, _)| *bytes >= 0.5).map_or(0.0, |(_, saved)| *saved);
        let of = |known: &&Known| known.compressed_bytes >= known.bytes;
        let sum = |chunks: &mut dyn Iterator<Item = &Known>| -> u64 {
            chunks.map(|known| u64::from(known.bytes)).sum()
        };
        let is_known = |known: &&Known| known.compressed_bytes != u32::MAX;
        let stiff = sum(&mut self.known.values().filter(is_known).filter(of));
        let all = sum(&mut self.known.values().filter(is_known));
        (half, stiff as f64 / all.max(1) as f64)
    }

    /// For the unique chunks, those that compress best first: the share of bytes up to each, and
    /// the share of compression's savings that they give.
    #[must_use]
    pub fn compression_curve(&self) -> Vec<(f64, f64)> {
        let is_known = |known: &&Known| known.compressed_bytes != u32::MAX;
        let mut chunks: Vec<&Known> = self.known.values().filter(is_known).collect();
        let left =
            |known: &Known| f64::from(known.compressed_bytes) / f64::from(known.bytes.max(1));
        chunks.sort_unstable_by(|a, b| left(a).total_cmp(&left(b)));
        let saved = |known: &Known| u64::from(known.bytes.saturating_sub(known.compressed_bytes));
        let all_saved: u64 = chunks.iter().map(|known| saved(known)).sum();
        let all: u64 = chunks.iter().map(|known| u64::from(known.bytes)).sum();
        let (mut bytes, mut spared) = (0, 0);
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let step = |known: &&Known| {
            bytes += u64::from(known.bytes);
            spared += saved(known);
            (share(bytes, all), share(spared, all_saved))
        };
        chunks.iter().map(step).collect()
    }
}

fn exact(sums: &[Amount]) -> Amount {
    let mut all = Amount::default();
    sums.iter().for_each(|amount| all.add(amount));
    all
}

fn level_of(prefix: u64) -> usize {
    ((prefix >> SAMPLED_FROM_BIT) | 1 << (LEVELS - 1)).trailing_zeros() as usize
}

fn measured(compressed_bytes: u32) -> Option<u32> {
    (compressed_bytes != u32::MAX).then_some(compressed_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;

    fn add(tally: &mut Tally, kind: usize, prefix: u64, bytes: u32, compressed: u32) {
        tally.meet(kind, prefix, bytes, &mut || Ok(Some(compressed))).unwrap();
    }

    #[test]
    fn figures_without_sampling_are_exact() {
        let mut tally = Tally::within(1 << 20);
        for (kind, prefix) in [(0, 1), (1, 1), (1, 1), (1, 2), (0, 3)] {
            add(&mut tally, kind, prefix, 100, 40);
        }
        let total = tally.total();
        let figures = (total.chunks, total.bytes, total.unique_chunks, total.unique_bytes);
        assert_eq!((figures, total.compressed_bytes), ((5, 500, 3, 300), 120));
        assert_eq!((tally.kind(0).unique_bytes, tally.kind(1).unique_bytes), (200, 100));
        assert_eq!((tally.kind(7), tally.standard_error()), (Savings::default(), 0.0));
        let classes = tally.occurrences();
        let class = |at: usize| (classes[at].least, classes[at].most, classes[at].chunks);
        assert_eq!((class(0), class(1)), ((1, 1, 2), (3, 4, 1)));
        assert!((classes[1].bytes_share - 0.6).abs() < 1e-9);
        assert!((classes[1].duplicates_share - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_compresses_is_seen_by_chunk() {
        let mut tally = Tally::unbounded();
        for (prefix, left) in [(1, 20), (2, 80), (3, 100), (4, 100)] {
            add(&mut tally, 0, prefix, 100, left);
        }
        tally.meet(0, 5, 1000, &mut || Ok(None)).unwrap();
        assert_eq!(tally.compressibility(), (1.0, 0.5));
        let curve = tally.compression_curve();
        assert_eq!((curve.len(), curve[0]), (4, (0.25, 0.8)));
        // What was not measured is taken for like the rest.
        assert_eq!(tally.total().compressed_bytes, 1400 * 3 / 4);
    }

    #[test]
    fn a_table_that_is_full_is_sampled_and_does_not_grow() {
        let random = SeededRandomness::new(5);
        let prefixes: Vec<u64> = (0..200_000).map(|_| random.next_u64()).collect();
        let of = |order: &mut dyn Iterator<Item = &u64>| {
            let mut tally = Tally::within(1 << 20);
            let capacity = tally.known.capacity();
            for prefix in order {
                // A quarter comes twice, and half compresses to a half.
                let times = if prefix % 4 == 0 { 2 } else { 1 };
                for _ in 0..times {
                    add(&mut tally, 0, *prefix, 1000, if prefix % 2 == 0 { 500 } else { 1000 });
                }
                assert!(tally.entries() <= tally.entries_max);
            }
            assert_eq!(tally.known.capacity(), capacity, "it grew");
            tally
        };
        let (forth, back) = (of(&mut prefixes.iter()), of(&mut prefixes.iter().rev()));
        assert_eq!((forth.total(), forth.level), (back.total(), back.level));
        assert!(forth.sampled_one_in() >= 8, "{}", forth.sampled_one_in());
        let total = forth.total();
        let doubled = prefixes.iter().filter(|prefix| *prefix % 4 == 0).count() as u64;
        assert_eq!(total.chunks, 200_000 + doubled);
        assert_eq!(total.bytes, total.chunks * 1000);
        let true_share = 1.0 - 200_000.0 / total.chunks as f64;
        let error = forth.standard_error();
        assert!((0.0001..0.005).contains(&error), "{error}");
        assert!((total.saved() - true_share).abs() < 4.0 * error, "{total:?}, {error}");
        let off = |estimate: u64, truth: f64| (estimate as f64 / truth - 1.0).abs();
        assert!(off(total.unique_bytes, 200e6) < 0.02, "{total:?}");
        assert!(off(total.compressed_bytes, 150e6) < 0.02, "{total:?}");
        let twice = forth.occurrences()[1];
        assert!((twice.bytes_share - 0.4).abs() < 0.02, "{twice:?}");
        assert!((twice.duplicates_share - 1.0).abs() < 1e-9);
    }
}
