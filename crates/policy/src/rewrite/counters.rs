//! What a stream's rewriting did, in numbers.

use super::{Decision, DuplicateStatus, StreamChunk};

/// What a stream's rewriting did so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RewriteCounters {
    /// Chunks pushed.
    pub chunks: u64,
    /// Their bytes.
    pub chunk_bytes: u64,
    /// Chunks that were new.
    pub unique: u64,
    /// Chunks that this session had already, in containers it is writing.
    pub fresh: u64,
    /// Chunks in old containers.
    pub duplicates: u64,
    /// Duplicates that refer to an old container.
    pub kept: u64,
    /// Duplicates stored again.
    pub rewritten: u64,
    /// Their bytes.
    pub rewritten_bytes: u64,
    /// Duplicates that refer to the copy of an equal chunk that was stored again.
    pub shared: u64,
    /// Old containers referred to, counted anew in each segment, or in the window whenever none of
    /// a container's chunks there was kept before.
    pub containers_referred: u64,
    /// Segments decided, or containers that left the window.
    pub segments: u64,
    /// Times the threshold was computed anew.
    pub cycles: u64,
    /// The threshold now, in chunks of a container.
    pub threshold: f64,
    /// All thresholds there were, added up: divided by `cycles`, the mean.
    pub threshold_sum: f64,
    /// The threshold at which the loss reaches its limit (RC_rw); 0 before it was computed.
    pub rewrite_bound: f64,
    /// The threshold at which reads keep to their limit (RC_reads); 0 before it was computed.
    pub read_bound: f64,
    /// Referenced chunk closeness (L_c) of the last cycle.
    pub closeness: f64,
    /// Bytes of chunks that waited for their decision at once, one copy of each, at most.
    pub candidates_bytes_peak: u64,
    /// Chunks decided before their time, for want of memory.
    pub forced: u64,
    /// Duplicates kept although their container was below the threshold: the loss had reached its
    /// limit.
    pub kept_by_limit: u64,
}

impl RewriteCounters {
    /// Counts a chunk of the stream.
    pub(super) fn see(&mut self, chunk: &StreamChunk<'_>) {
        self.chunks += 1;
        self.chunk_bytes += u64::from(chunk.size_bytes);
        match chunk.status {
            DuplicateStatus::Unique => self.unique += 1,
            DuplicateStatus::Fresh(()) => self.fresh += 1,
            DuplicateStatus::Old(_) => self.duplicates += 1,
        }
    }

    /// Counts a decision.
    pub(super) fn note(&mut self, decision: &Decision, size_bytes: u32) {
        match decision {
            Decision::Keep(_) => self.kept += 1,
            Decision::Rewrite => {
                self.rewritten += 1;
                self.rewritten_bytes += u64::from(size_bytes);
            }
            Decision::Share => self.shared += 1,
        }
    }

    /// Counts a cycle, and the threshold that holds from now on.
    pub(super) fn set_threshold(&mut self, threshold: f64) {
        self.cycles += 1;
        self.threshold = threshold;
        self.threshold_sum += threshold;
    }

    /// Takes back that a chunk was rewritten: it is kept.
    pub(super) fn take_back(&mut self, size_bytes: u64) {
        self.rewritten = self.rewritten.saturating_sub(1);
        self.rewritten_bytes = self.rewritten_bytes.saturating_sub(size_bytes);
        self.kept += 1;
    }
}
