//! The index of one partition: of the store's chunks only those that it is told of, in memory
//! (ATC'12, "only one partition's index"), twelve bytes for each.
//!
//! # Algorithm
//! The prefixes of the partition's chunks are gathered ([`Gathered`]). Then the index of the store
//! is read once, in order, and what it says of these is kept. Chunks that the session adds join
//! them. Of all others it says that they are not there, so they are stored again, which is always
//! allowed (protocol, W5); a chunk that something needs already can be taken in
//! ([`ChunkIndex::take_in`]), and only then the index of the store is asked.
//!
//! # Memory
//! A part of the limit is leased before the first chunk is gathered, or what others have left of
//! it, and nothing is taken beyond. Where that does not suffice the index is *beyond memory*: it
//! gives all up, and from then on the index of the store is asked, which is on the device and knows
//! at least as much.
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
use onefold_policy::BucketCounts;
use onefold_policy::primary::overlap::{SAMPLE_BITS, is_sampled};
use onefold_types::{ContainerId, Fingerprint, Result, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of a chunk that is gathered.
const GATHERED_CHUNK_BYTES: usize = 8;
/// Memory of a chunk that was known when it was opened.
const KNOWN_CHUNK_BYTES: usize = 12;
/// Memory of a chunk that was added since, about.
const ADDED_CHUNK_BYTES: usize = 48;
/// Chunks that there is room for at first.
const FIRST_CHUNKS: usize = 1 << 16;

/// Chunks that fit into so much memory while the index is opened.
#[must_use]
pub fn chunks_within(bytes: usize) -> usize {
    bytes / (GATHERED_CHUNK_BYTES + KNOWN_CHUNK_BYTES)
}

/// The chunks of a partition, as long as there is memory for them.
pub struct Gathered {
    prefixes: Vec<u64>,
    /// As many may be there before it is looked for those that are there twice.
    room: usize,
    /// `None`: they are beyond it.
    memory: Option<Lease>,
    /// Whether others have left less of it than the plan says.
    is_memory_taken: bool,
}

/// See the module.
pub struct PartitionIndex {
    whole: Arc<dyn ChunkIndex>,
    known: Mutex<Known>,
    is_memory_taken: bool,
    /// Questions that the index of the store was asked about single chunks.
    asked_whole: AtomicU64,
}

/// What is known of a partition's chunks.
struct Known {
    chunks: Chunks,
    /// Held as long as they are; `None`: they are beyond it.
    memory: Option<Lease>,
}

/// By prefix, which containers hold them.
#[derive(Default)]
struct Chunks {
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
    /// Whether there was too little for them: then the index of the store was asked.
    pub is_beyond_memory: bool,
    /// Whether others had taken of the memory that is meant for one such index.
    pub is_memory_taken: bool,
    /// Questions that the index of the store was asked about single chunks.
    pub asked_whole: u64,
    /// Some of its chunks, which tell what it has in common with another one, and each container
    /// that holds them; rising.
    pub sample: Vec<(u64, ContainerId)>,
}

impl Gathered {
    /// None yet.
    #[must_use]
    pub fn new(repository: &Repository) -> Self {
        let wanted_bytes = repository.memory().part_index_bytes;
        let memory = repository.purse().take(wanted_bytes);
        let is_memory_taken = memory.bytes() < wanted_bytes;
        Self { prefixes: Vec::new(), room: 0, memory: Some(memory), is_memory_taken }
    }

    /// Whether there are more than there is memory for.
    #[must_use]
    pub fn is_beyond_memory(&self) -> bool {
        self.memory.is_none()
    }

    /// Takes notice of a chunk.
    pub fn note(&mut self, fingerprint: &Fingerprint) {
        if self.prefixes.len() >= self.room {
            self.make_room();
        }
        if !self.is_beyond_memory() {
            self.prefixes.push(fingerprint.prefix());
        }
    }

    fn make_room(&mut self) {
        let most = 2 * self.settle() + 1;
        if self.is_beyond_memory() {
            return;
        }
        self.room = (2 * self.prefixes.len()).max(FIRST_CHUNKS).min(most);
        self.prefixes.reserve_exact(self.room - self.prefixes.len());
    }

    /// Puts them into order, each once, and gives them up if they are too many; how many there may
    /// be.
    fn settle(&mut self) -> usize {
        self.prefixes.sort_unstable();
        self.prefixes.dedup();
        let most = self.memory.as_ref().map_or(0, |memory| chunks_within(memory.bytes()));
        if self.prefixes.len() > most {
            (self.prefixes, self.memory) = (Vec::new(), None);
        }
        most
    }
}

impl PartitionIndex {
    /// Of these chunks.
    pub fn open(
        repository: &Repository,
        whole: Arc<dyn ChunkIndex>,
        mut gathered: Gathered,
    ) -> Result<Self> {
        gathered.settle();
        let Gathered { prefixes, memory, is_memory_taken, .. } = gathered;
        let mut known = Known { chunks: Chunks::default(), memory };
        known.read(repository, &*whole, prefixes)?;
        let (known, asked_whole) = (Mutex::new(known), AtomicU64::default());
        Ok(Self { whole, known, is_memory_taken, asked_whole })
    }

    /// What it took so far.
    #[must_use]
    pub fn report(&self) -> PartitionIndexReport {
        let known = self.known();
        let chunks = &known.chunks;
        let all = chunks.prefixes.iter().chain(chunks.added.keys()).copied();
        let sampled = all.filter(|prefix| is_sampled(*prefix, SAMPLE_BITS));
        let each = |prefix| chunks.holders(prefix).map(move |holder| (prefix, holder));
        let mut sample: Vec<_> = sampled.flat_map(each).collect();
        sample.sort_unstable();
        sample.dedup();
        PartitionIndexReport {
            sample,
            chunks: (chunks.prefixes.len() + chunks.added.len()) as u64,
            memory_bytes: chunks.bytes(0) as u64,
            is_beyond_memory: known.memory.is_none(),
            is_memory_taken: self.is_memory_taken,
            asked_whole: self.asked_whole.load(Ordering::Relaxed),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the index of the store is asked instead.
    fn is_beyond_memory(&self) -> bool {
        self.known().memory.is_none()
    }
}

impl Known {
    /// Takes what the index of a store says of these chunks, which rise, for all that is known.
    fn read(
        &mut self,
        repository: &Repository,
        whole: &dyn ChunkIndex,
        mut wanted: Vec<u64>,
    ) -> Result<()> {
        self.chunks = Chunks { containers: whole.covered(), ..Chunks::default() };
        wanted.shrink_to_fit();
        let wanted_bytes = wanted.len() * GATHERED_CHUNK_BYTES;
        let Some(first) = wanted.first() else { return Ok(()) };
        if !self.make_room(wanted_bytes, wanted.len()) {
            return Ok(());
        }
        let mut scan = whole.scan(repository, &self.chunks.containers, *first)?;
        let (mut left, mut group) = (wanted.iter().peekable(), Vec::new());
        while left.peek().is_some()
            && let Some(prefix) = scan.next_group(repository, None, &mut group)?
        {
            while left.next_if(|wanted| **wanted < prefix).is_some() {}
            if left.next_if_eq(&&prefix).is_some() {
                let count = self.chunks.prefixes.len() + group.len();
                let room = self.chunks.prefixes.capacity();
                if count > room && !self.make_room(wanted_bytes, count.max(room / 4 * 5)) {
                    return Ok(());
                }
                self.chunks.prefixes.resize(count, prefix);
                self.chunks.ordinals.append(&mut group);
            }
        }
        self.chunks.prefixes.shrink_to_fit();
        self.chunks.ordinals.shrink_to_fit();
        Ok(())
    }

    /// Makes room for so many chunks, beside what is wanted of the store's index; whether there is.
    fn make_room(&mut self, wanted_bytes: usize, chunks: usize) -> bool {
        let has_room = self.has_room(wanted_bytes + chunks * KNOWN_CHUNK_BYTES);
        if has_room {
            let more = chunks - self.chunks.prefixes.len();
            self.chunks.prefixes.reserve_exact(more);
            self.chunks.ordinals.reserve_exact(more);
        }
        has_room
    }

    /// Whether there is so much memory; gives all up if not.
    fn has_room(&mut self, bytes: usize) -> bool {
        let has_room = self.memory.as_ref().is_some_and(|memory| bytes <= memory.bytes());
        if !has_room {
            (self.chunks, self.memory) = (Chunks::default(), None);
        }
        has_room
    }

    /// The same for so many chunks that are to be added.
    fn has_room_for(&mut self, more: usize) -> bool {
        self.has_room(self.chunks.bytes(more))
    }
}

impl Chunks {
    /// Memory that these take and so many more that are added.
    fn bytes(&self, more: usize) -> usize {
        self.prefixes.len() * KNOWN_CHUNK_BYTES + (self.added.len() + more) * ADDED_CHUNK_BYTES
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
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        if self.is_beyond_memory() {
            return self.whole.locate_many(repository, fingerprints, found, reads);
        }
        let chunks = &self.known().chunks;
        found.extend(fingerprints.iter().map(|chunk| chunks.holders(chunk.prefix()).collect()));
        Ok(())
    }

    fn locate_newest(
        &self,
        repository: &Repository,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        match self.is_beyond_memory() {
            true => self.whole.locate_newest(repository, fingerprints, found, reads),
            false => self.locate_many(repository, fingerprints, found, reads),
        }
    }

    fn may_hold(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        match self.is_beyond_memory() {
            true => self.whole.may_hold(repository, fingerprint),
            false => Ok(self.known().chunks.holders(fingerprint.prefix()).next().is_some()),
        }
    }

    fn bucket_counts(&self) -> BucketCounts {
        match self.is_beyond_memory() {
            true => self.whole.bucket_counts(),
            false => BucketCounts::ONE,
        }
    }

    fn covered(&self) -> Vec<ContainerId> {
        self.whole.covered()
    }

    fn entries(&self) -> u64 {
        if self.is_beyond_memory() {
            return self.whole.entries();
        }
        let chunks = &self.known().chunks;
        (chunks.prefixes.len() + chunks.added.len()) as u64
    }

    fn chunks(&self) -> u64 {
        if self.is_beyond_memory() { self.whole.chunks() } else { self.entries() }
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

    fn note_durable(&self, container: ContainerId, fingerprints: &[Fingerprint]) {
        self.whole.note_durable(container, fingerprints);
    }

    fn locate_instead(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
        found: &mut Vec<ContainerId>,
        reads: &mut u64,
    ) -> Result<()> {
        self.whole.locate_instead(repository, fingerprint, found, reads)
    }

    fn cover(&self, repository: &Repository, found: &BTreeSet<ContainerId>) -> Result<()> {
        self.whole.cover(repository, found)
    }

    /// Collections move chunks: what is said of its own is read anew.
    fn refresh(&self, repository: &Repository) -> Result<bool> {
        let has_changed = self.whole.refresh(repository)?;
        let mut known = self.known();
        if known.memory.is_some() {
            let all = std::mem::take(&mut known.chunks).all();
            known.read(repository, &*self.whole, all)?;
        }
        Ok(has_changed)
    }

    fn catch_up(&self, repository: &Repository, missed_in: u64) -> Result<bool> {
        self.whole.catch_up(repository, missed_in)
    }

    fn note_added(
        &self,
        repository: &Repository,
        containers: &[DurableContainer],
        run: RunId,
    ) -> Result<()> {
        self.whole.note_added(repository, containers, run)?;
        let mut known = self.known();
        for container in containers {
            if known.has_room_for(container.fingerprints.len()) {
                for fingerprint in &container.fingerprints {
                    known.chunks.add(fingerprint.prefix(), container.id);
                }
            }
        }
        Ok(())
    }

    fn take_in(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        self.asked_whole.fetch_add(1, Ordering::Relaxed);
        let holders = self.whole.locate(repository, fingerprint, &mut 0)?;
        let mut known = self.known();
        if known.has_room_for(1) {
            let chunks = &mut known.chunks;
            holders.iter().rev().for_each(|holder| chunks.add(fingerprint.prefix(), *holder));
        }
        Ok(!holders.is_empty())
    }
}
