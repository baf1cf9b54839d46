//! The index of one partition: of the store's chunks only those that it is told of, in memory
//! (ATC'12, "only one partition's index"), twelve bytes for each.
//!
//! # Algorithm
//! Given the prefixes of the partition's chunks, the index of the store is read once, in order, and
//! what it says of these is kept. Chunks that the session adds join them. Of all others it says
//! that they are not there, so they are stored again, which is always allowed (protocol, W5); a
//! chunk that something needs already can be taken in ([`ChunkIndex::take_in`]), and only then the
//! index of the store is asked.
//!
//! Invariants: what it names, the index of the store has named; so all that holds of that one's
//! answers holds of its own. It never forgets a chunk while it lives.
//!
//! Concurrency: one lock, held for no longer than memory is looked at, but by whoever reads the
//! index of the store anew.

use super::{ChunkIndex, PrefixScan};
use crate::container::log::DurableContainer;
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_policy::primary::overlap::{SAMPLE_BITS, is_sampled};
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of a chunk that was known when it was opened.
const KNOWN_CHUNK_BYTES: u64 = 12;
/// Memory of a chunk that was added since, about.
const ADDED_CHUNK_BYTES: u64 = 48;

/// See the module.
pub struct PartitionIndex {
    whole: Arc<dyn ChunkIndex>,
    known: Mutex<Known>,
    /// Questions that the index of the store was asked about single chunks.
    asked_whole: AtomicU64,
    /// Held as long as it is; others have so much less.
    _lease: Lease,
}

/// What is known of a partition's chunks.
#[derive(Default)]
struct Known {
    containers: Vec<ContainerId>,
    /// Rising; a chunk that several containers hold comes several times.
    prefixes: Vec<u64>,
    /// For each of them the container's ordinal.
    ordinals: Vec<u32>,
    added: BTreeMap<u64, Vec<ContainerId>>,
}

/// What such an index took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionIndexReport {
    /// Chunks that it knows, by container.
    pub chunks: u64,
    /// Memory that they take, about.
    pub memory_bytes: u64,
    /// Questions that the index of the store was asked about single chunks.
    pub asked_whole: u64,
    /// Some of its chunks, which tell what it has in common with another one.
    pub sample: BTreeSet<u64>,
}

impl PartitionIndex {
    /// Of the chunks with these prefixes.
    pub fn open(
        repository: &Repository,
        whole: Arc<dyn ChunkIndex>,
        mut prefixes: Vec<u64>,
    ) -> Result<Self> {
        prefixes.sort_unstable();
        prefixes.dedup();
        let known = Known::read(repository, &*whole, &prefixes)?;
        let bytes = known.prefixes.len() as u64 * KNOWN_CHUNK_BYTES;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self {
            whole,
            known: Mutex::new(known),
            asked_whole: AtomicU64::default(),
            _lease: repository.purse().take(bytes),
        })
    }

    /// What it took so far.
    #[must_use]
    pub fn report(&self) -> PartitionIndexReport {
        let known = self.known();
        let (before, added) = (known.prefixes.len() as u64, known.added.len() as u64);
        let all = known.prefixes.iter().chain(known.added.keys()).copied();
        PartitionIndexReport {
            sample: all.filter(|prefix| is_sampled(*prefix, SAMPLE_BITS)).collect(),
            chunks: before + added,
            memory_bytes: before * KNOWN_CHUNK_BYTES + added * ADDED_CHUNK_BYTES,
            asked_whole: self.asked_whole.load(Ordering::Relaxed),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// What the index of a store says of these chunks, which rise.
    fn read(repository: &Repository, whole: &dyn ChunkIndex, wanted: &[u64]) -> Result<Self> {
        let mut known = Self { containers: whole.covered(), ..Self::default() };
        let Some(first) = wanted.first() else { return Ok(known) };
        let mut scan = whole.scan(repository, &known.containers, *first)?;
        let (mut wanted, mut group) = (wanted.iter().peekable(), Vec::new());
        while wanted.peek().is_some()
            && let Some(prefix) = scan.next_group(repository, None, &mut group)?
        {
            while wanted.next_if(|wanted| **wanted < prefix).is_some() {}
            if wanted.next_if_eq(&&prefix).is_some() {
                known.prefixes.resize(known.prefixes.len() + group.len(), prefix);
                known.ordinals.append(&mut group);
            }
        }
        Ok(known)
    }

    /// All chunks, rising.
    fn all(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.prefixes.iter().chain(self.added.keys()).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The containers that may hold a chunk, those that were added last first.
    fn holders(&self, prefix: u64) -> impl Iterator<Item = ContainerId> {
        let start = self.prefixes.partition_point(|known| *known < prefix);
        let end = self.prefixes.partition_point(|known| *known <= prefix);
        let ordinals = self.ordinals.get(start..end).unwrap_or_default();
        let of_before = ordinals.iter().rev().filter_map(|at| self.containers.get(*at as usize));
        self.added.get(&prefix).into_iter().flatten().rev().chain(of_before).copied()
    }

    fn add(&mut self, prefix: u64, container: ContainerId) {
        let holders = self.added.entry(prefix).or_default();
        if !holders.contains(&container) {
            holders.push(container);
        }
    }
}

impl ChunkIndex for PartitionIndex {
    fn locate_many(
        &self,
        _: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        _: &mut u64,
    ) -> Result<()> {
        let known = self.known();
        found.extend(fingerprints.iter().map(|chunk| known.holders(chunk.prefix()).collect()));
        Ok(())
    }

    fn may_hold(&self, _: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        Ok(self.known().holders(fingerprint.prefix()).next().is_some())
    }

    fn covered(&self) -> Vec<ContainerId> {
        self.whole.covered()
    }

    fn entries(&self) -> u64 {
        let known = self.known();
        (known.prefixes.len() + known.added.len()) as u64
    }

    fn scan(
        &self,
        repository: &Repository,
        containers: &[ContainerId],
        from: u64,
    ) -> Result<Box<dyn PrefixScan>> {
        self.whole.scan(repository, containers, from)
    }

    fn generation(&self) -> u64 {
        self.whole.generation()
    }

    /// Collections move chunks: what is said of its own is read anew.
    fn refresh(&self, repository: &Repository) -> Result<bool> {
        let has_changed = self.whole.refresh(repository)?;
        let mut known = self.known();
        *known = Known::read(repository, &*self.whole, &known.all())?;
        Ok(has_changed)
    }

    fn catch_up(&self, repository: &Repository, missed_in: u64) -> Result<bool> {
        self.whole.catch_up(repository, missed_in)
    }

    fn note_added(&self, repository: &Repository, containers: &[DurableContainer]) -> Result<()> {
        self.whole.note_added(repository, containers)?;
        let mut known = self.known();
        for container in containers {
            for fingerprint in &container.fingerprints {
                known.add(fingerprint.prefix(), container.id);
            }
        }
        Ok(())
    }

    fn take_in(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        self.asked_whole.fetch_add(1, Ordering::Relaxed);
        let holders = self.whole.locate(repository, fingerprint, &mut 0)?;
        let mut known = self.known();
        holders.iter().rev().for_each(|holder| known.add(fingerprint.prefix(), *holder));
        Ok(!holders.is_empty())
    }
}
