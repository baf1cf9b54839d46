//! What a session counts while it stores: reported at the end, and compared before the commit.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a session has stored so far.
#[derive(Default)]
pub(super) struct Counters {
    pub chunks: AtomicU64,
    /// Those that were there already, or that the session had stored.
    pub chunks_known: AtomicU64,
    pub chunks_new: AtomicU64,
    pub bytes_new: AtomicU64,
    pub chunks_rewritten: AtomicU64,
    pub bytes_rewritten: AtomicU64,
    pub bytes_stored: AtomicU64,
    pub containers: AtomicU64,
    /// What went into open containers, nodes of placements and what was stored again included.
    pub appended: Tally,
    /// What the containers that were indexed hold.
    pub indexed: Tally,
}

/// Chunks and their plain bytes.
#[derive(Default)]
pub(super) struct Tally {
    chunks: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    pub fn add(&self, chunks: usize, bytes: u64) {
        self.chunks.fetch_add(chunks as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn get(&self) -> (u64, u64) {
        (self.chunks.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}
