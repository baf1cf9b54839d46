//! What a simulation found, generation by generation.

use crate::device::{Accesses, Device, Stages};
use onefold_policy::FilterCounters;

/// Bytes of a fingerprint as read from a container's metadata section.
const FINGERPRINT_BYTES: u64 = 32;

/// One generation of all streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GenerationOutcome {
    /// Its number.
    pub generation: u32,
    /// Chunks handed in.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks stored.
    pub chunks_new: u64,
    /// Their bytes.
    pub bytes_new: u64,
    /// Duplicates of chunks that the generation itself has stored, found without a look-up.
    pub pending_hits: u64,
    /// Duplicates found by look-ups.
    pub found: u64,
    /// Chunks stored although the store had them: zero with an exact index.
    pub missed: u64,
    /// Chunks called duplicates that the store does not have: always zero.
    pub false_duplicates: u64,
    /// Fingerprints that waited for a verdict at once, at most, in one stream.
    pub waiting_max: u64,
    /// Chunks held back at once because an earlier one waited, at most, in one stream.
    pub held_max: u64,
    /// The sum, over all chunks, of the chunks that waited when one came: as many come between all
    /// chunks and their verdicts, by Little's law.
    pub waiting_sum: u64,
    /// The same of chunks held back in stream order.
    pub held_sum: u64,
    /// Bytes of index pages and filters read.
    pub index_bytes: u64,
    /// Memory of the index after it.
    pub index_memory_bytes: u64,
    /// Entries in the index after it.
    pub index_entries: u64,
    /// Containers stored after it.
    pub containers: u64,
    /// Containers written by the collection before it.
    pub containers_copied: u64,
    /// Containers removed by the collection before it.
    pub containers_removed: u64,
    /// What the policies did.
    pub counters: FilterCounters,
}

impl GenerationOutcome {
    /// The accesses of the generation.
    #[must_use]
    pub fn accesses(&self) -> Accesses {
        let sections = self.counters.fingerprints_prefetched * FINGERPRINT_BYTES;
        Accesses::of(&self.counters, self.index_bytes + sections)
    }

    /// Chunks that are duplicates of what the store or the generation had.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        self.chunks - self.chunks_new + self.missed
    }

    /// Chunks that come between a chunk and its verdict, on average, and those that come before it
    /// can go on in stream order.
    #[must_use]
    pub fn delays_chunks(&self) -> [f64; 2] {
        [self.waiting_sum, self.held_sum].map(|sum| sum as f64 / self.chunks.max(1) as f64)
    }

    /// The share of look-ups that read no device.
    #[must_use]
    pub fn reads_removed(&self) -> f64 {
        1.0 - self.counters.device_reads() as f64 / self.chunks.max(1) as f64
    }

    /// The share of duplicates that were found.
    #[must_use]
    pub fn found_share(&self) -> f64 {
        1.0 - self.missed as f64 / self.duplicates().max(1) as f64
    }
}

/// A whole trace.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Every generation, in order.
    pub generations: Vec<GenerationOutcome>,
    /// Containers read, as the containers themselves counted.
    pub containers_read: u64,
    /// What the automatic strategy knew at the end, of the first stream.
    pub auto: Option<String>,
    /// How the first stream was looked up, in words.
    pub explanation: String,
}

impl Outcome {
    /// All generations as one; what stands after a generation is that after the last.
    #[must_use]
    pub fn total(&self) -> GenerationOutcome {
        self.since(0)
    }

    /// All generations from `first` on as one.
    #[must_use]
    pub fn since(&self, first: u32) -> GenerationOutcome {
        let mut total = GenerationOutcome::default();
        for one in self.generations.iter().filter(|one| one.generation >= first) {
            total.generation = one.generation;
            total.chunks += one.chunks;
            total.bytes += one.bytes;
            total.chunks_new += one.chunks_new;
            total.bytes_new += one.bytes_new;
            total.pending_hits += one.pending_hits;
            total.found += one.found;
            total.missed += one.missed;
            total.false_duplicates += one.false_duplicates;
            total.waiting_max = total.waiting_max.max(one.waiting_max);
            total.held_max = total.held_max.max(one.held_max);
            total.waiting_sum += one.waiting_sum;
            total.held_sum += one.held_sum;
            total.index_bytes += one.index_bytes;
            total.index_memory_bytes = one.index_memory_bytes;
            total.index_entries = one.index_entries;
            total.containers = one.containers;
            total.containers_copied += one.containers_copied;
            total.containers_removed += one.containers_removed;
            total.counters += one.counters;
        }
        total
    }

    /// The time of each stage on a device.
    #[must_use]
    pub fn stages(&self, device: &Device) -> Stages {
        Stages::of(&self.total().accesses(), device)
    }
}
