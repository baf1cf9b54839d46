//! One memory limit, divided among all that grows.
//!
//! The user names one number; every cache, queue and buffer of the engine has its share of it, and
//! nothing grows with the store except what its share allows. What does not fit is read again or
//! flushed earlier: a small limit costs time, never correctness.

use onefold_types::{Error, Result, limits};

/// How much memory each part of the engine may take, in bytes unless the name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryPlan {
    /// The whole.
    pub limit_bytes: usize,
    /// Fingerprints of whole containers (S1.20).
    pub locality_cache_bytes: usize,
    /// Summary vectors of index runs (S1.12).
    pub summary_vector_bytes: usize,
    /// Metadata sections for reading chunks.
    pub section_cache_bytes: usize,
    /// Decoded frames for reading trees.
    pub frame_cache_bytes: usize,
    /// New chunks of a session that are not yet in an index run.
    pub pending_chunks_max: usize,
    /// Buffers of chunks whose look-up has not been decided yet (S0.9).
    pub waiting_chunks_bytes: usize,
    /// Duplicates of which it is not decided yet whether they are stored again (S2.18).
    pub rewrite_candidates_bytes: usize,
    /// Files or batches being read at once.
    pub read_jobs_max: usize,
    /// File bytes whose restore is planned as one.
    pub restore_window_chunks: usize,
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
        // A fixed part goes to buffers in flight, stacks and the program itself.
        let divisible = limit_bytes - 40 * limits::MIB;
        Ok(Self {
            limit_bytes,
            locality_cache_bytes: divisible / 4,
            summary_vector_bytes: divisible / 4,
            section_cache_bytes: divisible / 8,
            frame_cache_bytes: (divisible / 16).clamp(2 * limits::MIB, 64 * limits::MIB),
            pending_chunks_max: (divisible / 8 / 160).clamp(1 << 13, 1 << 20),
            waiting_chunks_bytes: (divisible / 16).clamp(2 * limits::MIB, 256 * limits::MIB),
            rewrite_candidates_bytes: (divisible / 16).clamp(2 * limits::MIB, 64 * limits::MIB),
            read_jobs_max: 4,
            restore_window_chunks: (divisible / 4 / 96).clamp(1 << 14, 1 << 22),
            stash_bytes: (limit_bytes / 4).min(1024 * limits::MIB),
            check_buffer_bytes: (divisible / 16).clamp(limits::MIB, 64 * limits::MIB),
            // A collection uses no locality cache beyond the reader's, and waits for nothing.
            marks_bytes: divisible / 3,
            copied_chunks_max: (divisible / 12 / 96).clamp(1 << 12, 1 << 22),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_stay_below_the_limit() {
        for mebibytes in [48, 64, 100, 256, 4096] {
            let plan = MemoryPlan::new(mebibytes * limits::MIB).unwrap();
            let sum = plan.locality_cache_bytes
                + plan.summary_vector_bytes
                + plan.section_cache_bytes
                + plan.frame_cache_bytes
                + plan.check_buffer_bytes
                + plan.pending_chunks_max * 160
                // A process restores or backs up, never both.
                + (plan.waiting_chunks_bytes + plan.rewrite_candidates_bytes)
                    .max(plan.restore_window_chunks * 96);
            assert!(sum <= plan.limit_bytes, "{mebibytes} MiB: {sum}");
            let of_a_dump = plan.locality_cache_bytes / 2
                + plan.section_cache_bytes
                + plan.frame_cache_bytes
                + plan.restore_window_chunks / 2 * 96
                + plan.stash_bytes;
            assert!(of_a_dump <= plan.limit_bytes / 4 * 3, "{mebibytes} MiB: {of_a_dump}");
        }
        assert!(MemoryPlan::new(limits::MEMORY_LIMIT_MIN_BYTES - 1).is_err());
    }
}
