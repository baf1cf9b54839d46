//! The index as the rest of the engine sees it: a port, whatever stands behind it.
//!
//! The runs of the store ([`FingerprintIndex`]) are its first implementation; the chunks of one
//! partition ([`super::PartitionIndex`]) are another, and so are the runs beside what machines have
//! in common ([`super::JointIndex`]). All of it is a hint:
//! a container that is named may lack the chunk, and one that holds it may be missing until the
//! index has caught up.
//!
//! Concurrency: shared by threads, and opened once for each process.

use super::FingerprintIndex;
use super::claims::Claims;
use super::locate::Instances;
use super::scan::EntryScan;
use crate::container::log::DurableContainer;
use crate::repository::Repository;
use onefold_policy::BucketCounts;
use onefold_types::{ContainerId, Fingerprint, Result, RunId, bug};
use std::collections::BTreeSet;
use std::sync::Arc;

/// From fingerprints to the containers that may hold them.
pub trait ChunkIndex: Send + Sync {
    /// Appends for each chunk all containers that may hold it, newest first; `reads` grows by the
    /// accesses of the device.
    fn locate_many(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()>;

    /// The same for one chunk.
    fn locate(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
        reads: &mut u64,
    ) -> Result<Vec<ContainerId>> {
        let mut found = Vec::with_capacity(1);
        self.locate_many(repository, std::slice::from_ref(fingerprint), &mut found, reads)?;
        found.pop().ok_or_else(|| bug!("the index has not answered"))
    }

    /// The same for whom the newest container is enough; more may be named.
    fn locate_newest(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.locate_many(repository, fingerprints, found, reads)
    }

    /// The containers that may hold a chunk, in no order, by what of the index can be read: for
    /// whoever has another way to the rest, and changes nothing.
    fn locate_where_readable(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
    ) -> Result<Vec<ContainerId>> {
        self.locate(repository, fingerprint, &mut 0)
    }

    /// Whether the chunk may be there; `false` is certain as far as the index has caught up.
    fn may_hold(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool>;

    /// Into how many buckets, ranges of prefixes, the index may be divided, so that each is one
    /// access of the device for each of its runs; it changes when the index is opened again.
    fn bucket_counts(&self) -> BucketCounts;

    /// All containers that it knows of, rising.
    fn covered(&self) -> Vec<ContainerId>;

    /// How many entries a scan gives at most.
    fn entries(&self) -> u64;

    /// How many chunks it knows, about: what two runs know counts once.
    fn chunks(&self) -> u64;

    /// All that it knows of some containers, which rise, by rising prefix, from one on.
    fn scan(
        &self,
        repository: &Repository,
        containers: &[ContainerId],
        from: u64,
    ) -> Result<Box<dyn PrefixScan>>;

    /// How often it has changed: what was missed in one generation may be found in a later one.
    fn generation(&self) -> u64;

    /// Takes notice of what was added and merged since; says whether anything was.
    fn refresh(&self, repository: &Repository) -> Result<bool>;

    /// How sessions tell each other what they are about to store, if there is a way.
    fn claims(&self) -> Option<Arc<Claims>> {
        None
    }

    /// Hears at once what others have stored, if there is a way.
    fn hear(&self) {}

    /// Tells others of a container that the own session has just made durable, if there is a way.
    fn note_durable(&self, container: ContainerId, fingerprints: &[Fingerprint]);

    /// Appends the containers that may hold a chunk beside those that [`Self::locate_newest`] has
    /// named, where these may not be relied upon; nothing where all were named.
    fn locate_instead(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
        found: &mut Vec<ContainerId>,
        reads: &mut u64,
    ) -> Result<()>;

    /// Sees to it that the store's own index knows the containers in which a session found chunks,
    /// before it commits what rests on them.
    fn cover(&self, repository: &Repository, found: &BTreeSet<ContainerId>) -> Result<()>;

    /// Takes notice of containers that its own session has added to the store's index, in a run.
    fn note_added(
        &self,
        repository: &Repository,
        _added: &[DurableContainer],
        _run: RunId,
    ) -> Result<()> {
        self.refresh(repository).map(drop)
    }

    /// Has an index of only some chunks know one more, if the store has it; whether it does.
    fn take_in(&self, _repository: &Repository, _fingerprint: &Fingerprint) -> Result<bool> {
        Ok(false)
    }

    /// Catches up with what other processes did since the generation in which something was missed;
    /// `false`: what is missed now is nowhere.
    fn catch_up(&self, repository: &Repository, missed_in: u64) -> Result<bool>;
}

/// Goes through an index in the order of prefixes.
pub trait PrefixScan {
    /// The next prefix below `end`, and which of the scan's containers hold it, by their ordinals:
    /// rising, and each once.
    fn next_group(
        &mut self,
        repository: &Repository,
        end: Option<u64>,
        containers: &mut Vec<u32>,
    ) -> Result<Option<u64>>;
}

impl ChunkIndex for FingerprintIndex {
    fn locate_many(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.locate_instances(repository, fingerprints, Instances::All, found, reads)
    }

    fn locate_newest(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.locate_instances(repository, fingerprints, Instances::Newest, found, reads)
    }

    fn locate_where_readable(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
    ) -> Result<Vec<ContainerId>> {
        Self::locate_where_readable(self, repository, fingerprint.prefix())
    }

    fn may_hold(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        self.may_contain(repository, fingerprint)
    }

    /// What may not be relied upon in its newest place is stored again.
    fn locate_instead(
        &self,
        _: &Repository,
        _: &Fingerprint,
        _: &mut Vec<ContainerId>,
        _: &mut u64,
    ) -> Result<()> {
        Ok(())
    }

    /// Others read the runs.
    fn note_durable(&self, _: ContainerId, _: &[Fingerprint]) {}

    /// All that it names is in runs.
    fn cover(&self, _: &Repository, _: &BTreeSet<ContainerId>) -> Result<()> {
        Ok(())
    }

    fn bucket_counts(&self) -> BucketCounts {
        Self::bucket_counts(self)
    }

    fn covered(&self) -> Vec<ContainerId> {
        Self::covered(self)
    }

    fn entries(&self) -> u64 {
        Self::entries(self)
    }

    fn chunks(&self) -> u64 {
        Self::chunks(self)
    }

    fn scan(
        &self,
        repository: &Repository,
        containers: &[ContainerId],
        from: u64,
    ) -> Result<Box<dyn PrefixScan>> {
        Ok(Box::new(EntryScan::start(repository, &self.runs(), containers, from)?))
    }

    fn generation(&self) -> u64 {
        self.opened().generation()
    }

    fn note_added(
        &self,
        repository: &Repository,
        _: &[DurableContainer],
        run: RunId,
    ) -> Result<()> {
        self.refresh_with(repository, run)
    }

    fn refresh(&self, repository: &Repository) -> Result<bool> {
        self.refresh_if_changed(repository)
    }

    fn catch_up(&self, repository: &Repository, missed_in: u64) -> Result<bool> {
        Self::catch_up(self, repository, missed_in)
    }
}
