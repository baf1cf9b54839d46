//! The index as whoever reads chunks sees it: a port, whatever stands behind it.
//!
//! The runs of the store ([`FingerprintIndex`]) are its first implementation. All of it is a hint:
//! a container that is named may lack the chunk, and one that holds it may be missing until the
//! index has caught up.
//!
//! Concurrency: shared by threads, and opened once for each process.

use super::FingerprintIndex;
use crate::repository::Repository;
use onefold_types::{ContainerId, Fingerprint, Result};

/// From fingerprints to the containers that may hold them.
pub trait ChunkIndex: Send + Sync {
    /// The containers that may hold a chunk, newest first; `reads` grows by the accesses of the
    /// device.
    fn locate(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
        reads: &mut u64,
    ) -> Result<Vec<ContainerId>>;

    /// Appends for each chunk all containers that may hold it, newest first.
    fn locate_many(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()>;

    /// Whether the chunk may be there; `false` is certain as far as the index has caught up.
    fn may_hold(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool>;

    /// All containers that it knows of, rising.
    fn covered(&self) -> Vec<ContainerId>;

    /// How often it has changed: what was missed in one generation may be found in a later one.
    fn generation(&self) -> u64;

    /// Catches up with what other processes did since the generation in which something was missed;
    /// `false`: what is missed now is nowhere.
    fn catch_up(&self, repository: &Repository, missed_in: u64) -> Result<bool>;
}

impl ChunkIndex for FingerprintIndex {
    fn locate(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
        reads: &mut u64,
    ) -> Result<Vec<ContainerId>> {
        Self::locate(self, repository, fingerprint, reads)
    }

    fn locate_many(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.locate_all(repository, fingerprints, found, reads)
    }

    fn may_hold(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        self.may_contain(repository, fingerprint)
    }

    fn covered(&self) -> Vec<ContainerId> {
        Self::covered(self)
    }

    fn generation(&self) -> u64 {
        self.opened().generation()
    }

    fn catch_up(&self, repository: &Repository, missed_in: u64) -> Result<bool> {
        Self::catch_up(self, repository, missed_in)
    }
}
