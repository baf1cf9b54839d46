//! What look-ups cost, and which strategy costs less: inequality (8) of S0, and what it leaves out.
//!
//! S0, section 4.1. With V_disk and V_DRAM the cost of one access of the device and of memory:
//!
//! - (2), (3) T_eager = T_bloom + V_DRAM F_Dup R_cache^eager + V_disk F_disk^eager
//! - (4), (5) T_lazy = T_bloom + V_DRAM F_Dup (R_first + R_second) + V_DRAM F_cache^post
//!   \+ V_disk F_disk^lazy, where (7) R_cache^lazy = R_first + R_second
//! - (1), (6), (8): lazy costs less if and only if V_disk / V_DRAM >
//!   (F_Dup (R_cache^lazy - R_cache^eager) + F_cache^post) / (F_disk^eager - F_disk^lazy)
//!
//! What is wrong with (8) as printed:
//!
//! - The division turns the inequality round where lazy takes *more* accesses of the device than
//!   eager. The right side is then negative, (8) holds for every device, and lazy is named the
//!   winner where it loses twice. [`ModelTerms::lazy_wins`] compares without dividing.
//! - Only look-ups that hit the cache cost anything. Those that miss cost the same, and lazy pays
//!   them twice.
//! - T_bloom is taken to be equal. It is not if eager look-up asks the cache first.
//! - Putting chunks into the buffer, and fingerprints into the cache, is free.
//! - Prefetches and reads that check a hint are accesses of the device like any other.
//! - In a backup a chunk waits with its data, and so does every chunk behind it: memory that is
//!   touched for the first time takes the place of a buffer that is still warm.
//!
//! [`CorrectedTerms`] counts all of these. Its time is a sum of counts and costs, so it can be
//! computed for any stretch of a stream, whichever strategy it was looked up with.

use crate::filter_counters::FilterCounters;
use crate::lookup::DeviceCosts;

/// The terms of (3), (5) and (8), counted over one stream that was looked up both ways.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ModelTerms {
    /// F_Dup: chunks that are duplicates.
    pub duplicates: f64,
    /// F_Dup R_cache^eager: those that eager look-up found in the cache.
    pub cache_hits_eager: f64,
    /// F_Dup R_first: those that lazy look-up found in the cache when they arrived.
    pub first_hits_lazy: f64,
    /// F_Dup R_second: those that it found in the cache later.
    pub second_hits_lazy: f64,
    /// F_cache^post: look-ups in the cache after prefetches.
    pub post_lookups: f64,
    /// F_disk^eager: accesses of the device for the index.
    pub device_accesses_eager: f64,
    /// F_disk^lazy: the same, a bucket located at once being one.
    pub device_accesses_lazy: f64,
}

impl ModelTerms {
    /// The terms from what eager and lazy look-up of a stream counted. If the streams had different
    /// lengths, lazy's is scaled to eager's.
    #[must_use]
    pub fn new(eager: &FilterCounters, lazy: &FilterCounters) -> Self {
        let scale = eager.lookups as f64 / lazy.lookups.max(1) as f64;
        Self {
            duplicates: eager.duplicates() as f64,
            cache_hits_eager: eager.cache_hits as f64,
            first_hits_lazy: lazy.cache_hits as f64 * scale,
            second_hits_lazy: lazy.post_lookup_hits as f64 * scale,
            post_lookups: lazy.post_lookups as f64 * scale,
            device_accesses_eager: eager.index_page_reads as f64,
            device_accesses_lazy: lazy.index_page_reads as f64 * scale,
        }
    }

    /// R_cache^eager.
    #[must_use]
    pub fn cache_rate_eager(&self) -> f64 {
        self.share_of_duplicates(self.cache_hits_eager)
    }

    /// R_first.
    #[must_use]
    pub fn first_cache_rate_lazy(&self) -> f64 {
        self.share_of_duplicates(self.first_hits_lazy)
    }

    /// R_second.
    #[must_use]
    pub fn second_cache_rate_lazy(&self) -> f64 {
        self.share_of_duplicates(self.second_hits_lazy)
    }

    /// (7): R_cache^lazy.
    #[must_use]
    pub fn cache_rate_lazy(&self) -> f64 {
        self.first_cache_rate_lazy() + self.second_cache_rate_lazy()
    }

    /// What lazy look-up adds in accesses of memory: the numerator of (8).
    #[must_use]
    pub fn memory_added(&self) -> f64 {
        self.first_hits_lazy + self.second_hits_lazy - self.cache_hits_eager + self.post_lookups
    }

    /// What it saves in accesses of the device: the denominator of (8).
    #[must_use]
    pub fn device_saved(&self) -> f64 {
        self.device_accesses_eager - self.device_accesses_lazy
    }

    /// The right side of (8): the ratio V_disk/V_DRAM at which both cost the same. `None` if they
    /// take equally many accesses of the device.
    #[must_use]
    pub fn right_side(&self) -> Option<f64> {
        let saved = self.device_saved();
        (saved != 0.0).then(|| self.memory_added() / saved)
    }

    /// (8) as printed, sign of the denominator and all.
    #[must_use]
    pub fn lazy_wins_as_printed(&self, costs: &DeviceCosts) -> bool {
        self.right_side().is_some_and(|right_side| costs.ratio() > right_side)
    }

    /// (6): whether lazy costs less, without dividing by what may be negative.
    #[must_use]
    pub fn lazy_wins(&self, costs: &DeviceCosts) -> bool {
        costs.ratio() * self.device_saved() > self.memory_added()
    }

    /// (3), in nanoseconds; T_bloom is passed in.
    #[must_use]
    pub fn eager_time_ns(&self, costs: &DeviceCosts, bloom_ns: f64) -> f64 {
        let memory = costs.memory_access_ns as f64 * self.cache_hits_eager;
        bloom_ns + memory + costs.device_read_ns as f64 * self.device_accesses_eager
    }

    /// (5), in nanoseconds; T_bloom is passed in.
    #[must_use]
    pub fn lazy_time_ns(&self, costs: &DeviceCosts, bloom_ns: f64) -> f64 {
        let accesses = self.first_hits_lazy + self.second_hits_lazy + self.post_lookups;
        let memory = costs.memory_access_ns as f64 * accesses;
        bloom_ns + memory + costs.device_read_ns as f64 * self.device_accesses_lazy
    }

    fn share_of_duplicates(&self, hits: f64) -> f64 {
        if self.duplicates > 0.0 { hits / self.duplicates } else { 0.0 }
    }
}

/// The corrected model: all accesses that look-ups took, of whichever strategy.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CorrectedTerms {
    /// Accesses of the device: for the index, prefetches, checks of hints, and bases.
    pub device_accesses: f64,
    /// Accesses of memory: [`FilterCounters::memory_accesses`].
    pub memory_accesses: f64,
    /// Chunks held with their data: [`FilterCounters::chunks_held`].
    pub chunks_held: f64,
}

impl CorrectedTerms {
    /// The accesses that were counted.
    #[must_use]
    pub fn new(counters: &FilterCounters) -> Self {
        Self {
            device_accesses: counters.device_reads() as f64,
            memory_accesses: counters.memory_accesses() as f64,
            chunks_held: counters.chunks_held as f64,
        }
    }

    /// What they take, in nanoseconds.
    #[must_use]
    pub fn time_ns(&self, costs: &DeviceCosts) -> f64 {
        self.device_accesses * costs.device_read_ns as f64
            + self.memory_accesses * costs.memory_access_ns as f64
            + self.chunks_held * costs.held_chunk_ns as f64
    }

    /// The ratio V_disk/V_DRAM above which `self` costs less than `other`, if it takes fewer
    /// accesses of the device; what (8) is for lazy against eager. Holding a chunk is worth
    /// `costs.held_chunk_ns / costs.memory_access_ns` accesses of memory.
    #[must_use]
    pub fn break_even_ratio(&self, other: &Self, costs: &DeviceCosts) -> Option<f64> {
        let saved = other.device_accesses - self.device_accesses;
        let held = costs.held_chunk_ns as f64 / costs.memory_access_ns.max(1) as f64;
        let added = self.memory_accesses - other.memory_accesses
            + held * (self.chunks_held - other.chunks_held);
        (saved > 0.0).then(|| added / saved)
    }
}

/// What the counted look-ups took by the corrected model, in nanoseconds.
#[must_use]
pub fn time_ns(counters: &FilterCounters, costs: &DeviceCosts) -> f64 {
    CorrectedTerms::new(counters).time_ns(costs)
}
