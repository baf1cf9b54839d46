//! One memory limit, divided among all that grows.
//!
//! The user names one number; every cache, queue and buffer of the engine has its share of it, and
//! nothing grows with the store except what its share allows. What does not fit is read again or
//! flushed earlier: a small limit costs time, never correctness.

use onefold_types::{Error, Result, limits};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers in flight of one stream, stacks, and the program itself.
const FIXED_BYTES: usize = 40 * limits::MIB;
/// What is left to divide at the least limit.
const DIVISIBLE_MIN_BYTES: usize = limits::MEMORY_LIMIT_MIN_BYTES - FIXED_BYTES;
/// The limit from which on more is in flight.
const READ_AHEAD_FROM_BYTES: usize = 96 * limits::MIB;
/// What each further stream has in flight: files being read, open containers, frames being sealed.
const STREAM_BYTES: usize = 20 * limits::MIB;

/// What a chunk that is stored and not yet indexed takes.
pub const PENDING_CHUNK_BYTES: usize = 200;
/// What a content takes that an earlier manifest names, about, and so does a directory of it.
pub const NAMED_CONTENT_BYTES: usize = 64;
/// As many there is room for whatever others have taken.
pub const NAMED_CONTENTS_MIN: usize = 1 << 14;
/// What a chunk takes of a window that is being restored.
pub const WINDOW_CHUNK_BYTES: usize = 96;
/// Of what is above the least limit, the part by which each container may be larger than usual:
/// five are held at once, or six where they wait, and other shares are taken from the same.
const LARGER_CONTAINER_PART: usize = 16;

/// What each further thread has in hand: a run of frames read at once, coded and decoded.
const THREAD_BYTES: usize = 6 * limits::MIB;

/// What one more stream takes that fills containers of this size: one of data and one of nodes.
fn stream_bytes(container_size_bytes: usize) -> usize {
    STREAM_BYTES + 2 * container_size_bytes.saturating_sub(limits::CONTAINER_TARGET_BYTES)
}

/// How much memory each part of the engine may take, in bytes unless the name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryPlan {
    /// The whole.
    pub limit_bytes: usize,
    /// What is not divided: buffers in flight, stacks, and the program itself.
    pub fixed_bytes: usize,
    /// Fingerprints of whole containers (S1.20).
    pub locality_cache_bytes: usize,
    /// Summary vectors of index runs (S1.12).
    pub summary_vector_bytes: usize,
    /// The index of one partition's chunks, at most, while it is made and after.
    pub part_index_bytes: usize,
    /// Contents of files that earlier manifests name, of which some data is damaged.
    pub named_contents_max: usize,
    /// Metadata sections for reading chunks.
    pub section_cache_bytes: usize,
    /// Decoded frames for reading trees.
    pub frame_cache_bytes: usize,
    /// What chunks are found by that are like new ones.
    pub similarity_bytes: usize,
    /// New chunks of a session that are not yet in an index run.
    pub pending_chunks_max: usize,
    /// Buffers of chunks whose look-up has not been decided yet (S0.9).
    pub waiting_chunks_bytes: usize,
    /// Duplicates of which it is not decided yet whether they are stored again (S2.18).
    pub rewrite_candidates_bytes: usize,
    /// Streams of a backup that run at once; what each has of its own is a part of the shares.
    pub streams: usize,
    /// Files or batches of a stream being read at once.
    pub read_jobs_max: usize,
    /// Stored bytes after which a container is finished, whatever the store says.
    pub container_bytes_max: usize,
    /// Finished containers that wait while another is being stored.
    pub containers_waiting_max: usize,
    /// File bytes whose restore is planned as one.
    pub restore_window_chunks: usize,
    /// Chunks that others are made of, while these are restored.
    pub restored_bases_bytes: usize,
    /// Chunks that a dump has read before their turn: it makes little use of the other shares.
    pub stash_bytes: usize,
    /// Entries that a check keeps for containers that no index run covers.
    pub check_buffer_bytes: usize,
    /// What a collection marks live chunks in.
    pub marks_bytes: usize,
    /// Chunks that a collection copies in one go.
    pub copied_chunks_max: usize,
}

impl MemoryPlan {
    /// The division of `limit_bytes`; refused below the least that works.
    pub fn new(limit_bytes: usize) -> Result<Self> {
        if limit_bytes < limits::MEMORY_LIMIT_MIN_BYTES {
            return Err(Error::invalid(format!(
                "a memory limit of {} MiB is too small: at least {} MiB are needed",
                limit_bytes / limits::MIB,
                limits::MEMORY_LIMIT_MIN_BYTES / limits::MIB
            )));
        }
        Ok(Self::divide(limit_bytes, FIXED_BYTES, 1))
    }

    /// The division for each of two stores that are worked with at once: both together stay within
    /// the limit.
    pub fn of_each_of_two(limit_bytes: usize) -> Result<Self> {
        Self::new(limit_bytes / 2).map_err(|_| {
            Error::invalid(format!(
                "two stores are worked with at once, which takes a memory limit of at least {} MiB",
                2 * limits::MEMORY_LIMIT_MIN_BYTES / limits::MIB
            ))
        })
    }

    /// The division for a backup of so many streams into containers of such a size: of as many as
    /// fit, at least of one.
    #[must_use]
    pub fn for_streams(&self, wanted: usize, container_size_bytes: usize) -> Self {
        // Beyond what the fixed part counts on: one container of data and one of nodes are open in
        // each stream, one is being stored and one waits for that.
        let larger_bytes = container_size_bytes.saturating_sub(limits::CONTAINER_TARGET_BYTES);
        let stream_bytes = stream_bytes(container_size_bytes);
        let divisible_bytes = self.limit_bytes.saturating_sub(FIXED_BYTES + 4 * larger_bytes);
        let more = divisible_bytes.saturating_sub(DIVISIBLE_MIN_BYTES) / stream_bytes;
        let streams = wanted.clamp(1, 1 + more);
        let fixed_bytes = FIXED_BYTES + 4 * larger_bytes + (streams - 1) * stream_bytes;
        let shared = Self::divide(self.limit_bytes, fixed_bytes, streams);
        Self {
            streams,
            read_jobs_max: shared.read_jobs_max.min(self.read_jobs_max),
            fixed_bytes,
            locality_cache_bytes: shared.locality_cache_bytes.min(self.locality_cache_bytes),
            summary_vector_bytes: shared.summary_vector_bytes.min(self.summary_vector_bytes),
            part_index_bytes: shared.part_index_bytes.min(self.part_index_bytes),
            section_cache_bytes: shared.section_cache_bytes.min(self.section_cache_bytes),
            frame_cache_bytes: shared.frame_cache_bytes.min(self.frame_cache_bytes),
            similarity_bytes: shared.similarity_bytes.min(self.similarity_bytes),
            pending_chunks_max: shared.pending_chunks_max.min(self.pending_chunks_max),
            waiting_chunks_bytes: shared.waiting_chunks_bytes.min(self.waiting_chunks_bytes),
            rewrite_candidates_bytes: shared
                .rewrite_candidates_bytes
                .min(self.rewrite_candidates_bytes),
            ..*self
        }
    }

    /// What the pending chunks of a session take.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.pending_chunks_max * PENDING_CHUNK_BYTES
    }

    /// What a window of chunks to be restored takes.
    #[must_use]
    pub fn window_bytes(&self) -> usize {
        self.restore_window_chunks * WINDOW_CHUNK_BYTES
    }

    /// Threads whose buffers fit into the limit; at least two.
    #[must_use]
    pub fn threads_max(&self) -> usize {
        2 + self.limit_bytes.saturating_sub(limits::MEMORY_LIMIT_MIN_BYTES) / THREAD_BYTES
    }

    /// The least limit with which containers of this size are filled.
    #[must_use]
    pub fn limit_for_containers(container_size_bytes: usize) -> usize {
        let larger_bytes = container_size_bytes.saturating_sub(limits::CONTAINER_TARGET_BYTES);
        limits::MEMORY_LIMIT_MIN_BYTES + larger_bytes.saturating_mul(LARGER_CONTAINER_PART)
    }

    /// A fixed part goes to buffers in flight, stacks and the program itself.
    fn divide(limit_bytes: usize, fixed_bytes: usize, streams: usize) -> Self {
        let divisible = limit_bytes.saturating_sub(fixed_bytes).max(DIVISIBLE_MIN_BYTES);
        let reads_ahead = limit_bytes >= READ_AHEAD_FROM_BYTES;
        Self {
            limit_bytes,
            fixed_bytes,
            locality_cache_bytes: divisible / 4,
            summary_vector_bytes: divisible / 4,
            part_index_bytes: divisible / 4,
            named_contents_max: (divisible / 8 / NAMED_CONTENT_BYTES)
                .clamp(NAMED_CONTENTS_MIN, 1 << 24),
            section_cache_bytes: divisible / 8,
            frame_cache_bytes: (divisible / 16).clamp(2 * limits::MIB, 64 * limits::MIB),
            similarity_bytes: (divisible / 32).clamp(limits::MIB / 4, 64 * limits::MIB),
            pending_chunks_max: (divisible / 8 / PENDING_CHUNK_BYTES).clamp(1 << 13, 1 << 20),
            waiting_chunks_bytes: (divisible / 16).clamp(2 * limits::MIB, 256 * limits::MIB)
                / streams,
            rewrite_candidates_bytes: (divisible / 16).clamp(2 * limits::MIB, 64 * limits::MIB),
            streams,
            read_jobs_max: if reads_ahead && streams == 1 { 4 } else { 2 },
            container_bytes_max: limits::CONTAINER_TARGET_BYTES
                + limit_bytes.saturating_sub(limits::MEMORY_LIMIT_MIN_BYTES)
                    / LARGER_CONTAINER_PART,
            containers_waiting_max: usize::from(reads_ahead),
            restore_window_chunks: (divisible / 4 / WINDOW_CHUNK_BYTES).clamp(1 << 14, 1 << 22),
            restored_bases_bytes: (divisible / 16).clamp(limits::MIB, 64 * limits::MIB),
            stash_bytes: (limit_bytes / 4).min(1024 * limits::MIB),
            check_buffer_bytes: (divisible / 16).clamp(limits::MIB, 64 * limits::MIB),
            // A collection uses no locality cache beyond the reader's, and waits for nothing.
            marks_bytes: divisible / 3,
            copied_chunks_max: (divisible / 12 / 96).clamp(1 << 12, 1 << 22),
        }
    }
}

/// What may still be taken of the memory limit. Caches, the index, pending chunks, windows of a
/// restore, files that are read at any offset, contents that manifests name and marks take leases
/// of it, and give them back when they go; one that comes late gets what is left, and works with
/// that and the least that it needs. What waits in a session's streams is taken as the plan says;
/// scratch tables of a check, stashes of a dump and chunks being copied go by the plan alone.
#[derive(Debug)]
pub struct Purse {
    left_bytes: Mutex<usize>,
}

/// Bytes that are taken of a [`Purse`].
#[derive(Debug)]
pub struct Lease {
    purse: Arc<Purse>,
    bytes: usize,
}

impl Purse {
    /// All that a plan divides.
    #[must_use]
    pub fn new(plan: &MemoryPlan) -> Self {
        let divisible = plan.limit_bytes.saturating_sub(plan.fixed_bytes);
        Self { left_bytes: Mutex::new(divisible.max(DIVISIBLE_MIN_BYTES)) }
    }

    /// Takes so many bytes, or as many as are left.
    #[must_use]
    pub fn take(self: &Arc<Self>, wanted_bytes: usize) -> Lease {
        let mut left_bytes = self.left();
        let bytes = wanted_bytes.min(*left_bytes);
        *left_bytes -= bytes;
        Lease { purse: Arc::clone(self), bytes }
    }

    /// Bytes that nobody has taken.
    #[must_use]
    pub fn left_bytes(&self) -> usize {
        *self.left()
    }

    fn left(&self) -> MutexGuard<'_, usize> {
        self.left_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// How much it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *self.purse.left() += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_leased_never_exceeds_the_limit() {
        let plan = MemoryPlan::new(64 * limits::MIB).unwrap();
        let purse = Arc::new(Purse::new(&plan));
        let all = purse.left_bytes();
        let take =
            || (0..100).map(|number| purse.take(number * limits::KIB * 37)).collect::<Vec<Lease>>();
        let held: Vec<Vec<Lease>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let sum: usize = held.iter().flatten().map(Lease::bytes).sum();
        assert_eq!((sum, purse.left_bytes()), (all, 0));
        assert_eq!(purse.take(1).bytes(), 0);
        drop(held);
        assert_eq!(purse.left_bytes(), all);
    }

    #[test]
    fn the_shares_stay_below_the_limit() {
        for mebibytes in [48, 64, 100, 256, 4096] {
            let plan = MemoryPlan::new(mebibytes * limits::MIB).unwrap();
            let sum = plan.locality_cache_bytes
                + plan.summary_vector_bytes
                + plan.section_cache_bytes
                + plan.frame_cache_bytes
                + plan.check_buffer_bytes
                + plan.pending_bytes()
                // A process restores or backs up, never both.
                + (plan.waiting_chunks_bytes + plan.rewrite_candidates_bytes)
                    .max(plan.window_bytes());
            assert!(sum <= plan.limit_bytes, "{mebibytes} MiB: {sum}");
            let of_a_dump = plan.locality_cache_bytes / 2
                + plan.section_cache_bytes
                + plan.frame_cache_bytes
                + plan.window_bytes() / 2
                + plan.stash_bytes;
            assert!(of_a_dump <= plan.limit_bytes / 4 * 3, "{mebibytes} MiB: {of_a_dump}");
        }
        assert!(MemoryPlan::new(limits::MEMORY_LIMIT_MIN_BYTES - 1).is_err());
    }

    #[test]
    fn containers_grow_with_the_limit() {
        let most = |bytes: usize| MemoryPlan::new(bytes).unwrap().container_bytes_max;
        assert_eq!(most(48 * limits::MIB), limits::CONTAINER_TARGET_BYTES);
        assert_eq!(most(256 * limits::MIB), 17 * limits::MIB);
        for mebibytes in [1, 4, 5, 17, 256] {
            let size = mebibytes * limits::MIB;
            let limit = MemoryPlan::limit_for_containers(size);
            assert!(most(limit) >= size, "{mebibytes} MiB");
            assert!(mebibytes <= 4 || most(limit - 16) < size, "{mebibytes} MiB");
        }
        // What is in hand of containers beyond the usual stays below half of what is divided.
        for mebibytes in [48, 256, 4096] {
            let limit = mebibytes * limits::MIB;
            let larger = most(limit) - limits::CONTAINER_TARGET_BYTES;
            assert!(6 * larger <= (limit - FIXED_BYTES) / 2, "{mebibytes} MiB");
        }
    }

    #[test]
    fn r88_streams_share_the_limit() {
        let plan = |mebibytes: usize| MemoryPlan::new(mebibytes * limits::MIB).unwrap();
        let streams = |mebibytes: usize, wanted: usize, container: usize| {
            plan(mebibytes).for_streams(wanted, container * limits::MIB).streams
        };
        assert_eq!((plan(48).threads_max(), plan(256).threads_max()), (2, 36));
        assert_eq!(plan(256).for_streams(1, limits::CONTAINER_TARGET_BYTES), plan(256));
        assert_eq!(streams(48, 8, 4), 1);
        assert_eq!(streams(68, 8, 4), 2);
        assert_eq!(streams(256, 8, 4), 8);
        assert_eq!(streams(256, 99, 4), 11);
        assert_eq!(streams(256, 8, 64), 1);
        assert_eq!(streams(256, 0, 4), 1);
        for (wanted, mebibytes) in [(2, 96), (8, 256), (256, 8192)] {
            let shared = plan(mebibytes).for_streams(wanted, limits::CONTAINER_TARGET_BYTES);
            assert_eq!(shared.streams, wanted);
            let sum = FIXED_BYTES
                + (wanted - 1) * STREAM_BYTES
                + shared.locality_cache_bytes
                + shared.section_cache_bytes
                + shared.frame_cache_bytes
                + shared.summary_vector_bytes
                + wanted * shared.waiting_chunks_bytes;
            assert!(sum <= shared.limit_bytes, "{wanted} streams: {sum}");
        }
    }
}
