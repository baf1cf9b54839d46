//! The index under test: the engine's, on a store in memory, with the bytes it reads counted.

use super::containers::Listed;
use crate::product;
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex, IndexMode, merge, run_writer};
use onefold_engine::{Environment, InitOptions, MemoryPlan, Repository};
use onefold_format::index_run::{Entry, IndexKind};
use onefold_format::layout;
use onefold_policy::{BucketCounts, SummaryVector};
use onefold_store::layers::{Counting, Operation};
use onefold_store::{Blobs, Key, LocalStore, MemoryStore, Store};
use onefold_types::environment::{ManualClock, SeededRandomness};
use onefold_types::{ContainerId, Error, Fingerprint, Result, limits};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

/// Bits of a separate summary vector for each key.
const BITS_PER_KEY: RangeInclusive<f64> = 0.01..=64.0;

/// What a simulation needs of an index.
pub trait Index {
    /// As [`onefold_policy::IndexPort::locate`].
    ///
    /// # Errors
    /// The index cannot be read.
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()>;

    /// As [`onefold_policy::IndexPort::may_contain`].
    ///
    /// # Errors
    /// The index cannot be read.
    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool>;

    /// As [`onefold_policy::IndexPort::bucket_counts`].
    fn bucket_counts(&self) -> BucketCounts;

    /// Indexes new containers.
    ///
    /// # Errors
    /// The index cannot be written.
    fn add(&mut self, containers: &[Listed]) -> Result<()>;

    /// Forgets everything and indexes these containers.
    ///
    /// # Errors
    /// The index cannot be written.
    fn rebuild(&mut self, containers: &[Listed]) -> Result<()>;

    /// Entries.
    fn entries(&self) -> u64;

    /// Memory taken, in bytes.
    fn memory_bytes(&self) -> usize;

    /// Bytes read by look-ups since this was last asked.
    fn take_bytes_read(&mut self) -> u64;
}

/// A summary vector apart from the index's own: a basic Bloom filter of a given size (S0.29).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// Keys that it is made for.
    pub keys: u64,
    /// Bits for each.
    pub bits_per_key: f64,
    /// Hash functions.
    pub hashes: u32,
}

/// The index of a simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexSetup {
    /// What a run keeps in memory.
    pub kind: IndexKind,
    /// Whether all of it, or hooks only.
    pub mode: IndexMode,
    /// Memory for it; none makes every question of the index a page read, as in S1's Table 4.
    pub memory_bytes: usize,
    /// Pages of the largest run that a bucket should have, if not as many as the index would have.
    pub bucket_pages: Option<u32>,
    /// How many buckets there are, if not as many as fill: at least as many as are one access each.
    pub buckets: Option<u32>,
    /// Whether there is always one run only, as if the index were one table on the device.
    pub single_run: bool,
    /// A summary vector that stands in for the index's own.
    pub summary: Option<Summary>,
}

impl Default for IndexSetup {
    fn default() -> Self {
        Self {
            kind: IndexKind::Fuse,
            mode: IndexMode::Exact,
            memory_bytes: limits::MIB << 10,
            bucket_pages: None,
            buckets: None,
            single_run: false,
            summary: None,
        }
    }
}

impl IndexSetup {
    /// Refuses impossible values.
    ///
    /// # Errors
    /// `Invalid`, with the valid range.
    pub fn validate(&self) -> Result<()> {
        if let Some(Summary { bits_per_key, .. }) = self.summary
            && !BITS_PER_KEY.contains(&bits_per_key)
        {
            return Err(Error::invalid(format!(
                "{bits_per_key} bits for each key are impossible; it must be {} to {}",
                BITS_PER_KEY.start(),
                BITS_PER_KEY.end()
            )));
        }
        Ok(())
    }
}

/// The engine's index.
pub struct RealIndex {
    setup: IndexSetup,
    repository: Repository,
    store: Arc<Counting<Arc<dyn Store>>>,
    index: FingerprintIndex,
    summary: Option<SummaryVector>,
    /// Requests and bytes of look-ups not yet asked for.
    read: (u64, u64),
}

impl RealIndex {
    /// An empty index in a fresh store in memory.
    ///
    /// # Errors
    /// The setup is impossible.
    pub fn create(setup: &IndexSetup) -> Result<Self> {
        Self::create_in(setup, Arc::new(MemoryStore::new()))
    }

    /// An empty index in a fresh store in a directory, which must be empty.
    ///
    /// # Errors
    /// The setup is impossible, or the directory cannot be used.
    pub fn create_at(setup: &IndexSetup, directory: &Path) -> Result<Self> {
        Self::create_in(setup, Arc::new(LocalStore::create(directory)?))
    }

    fn create_in(setup: &IndexSetup, store: Arc<dyn Store>) -> Result<Self> {
        setup.validate()?;
        let store = Arc::new(Counting::new(store));
        let environment = Environment {
            randomness: Arc::new(SeededRandomness::new(7)),
            clock: Arc::new(ManualClock::new(0)),
            ..Environment::system()
        };
        let options =
            InitOptions { suite: onefold_crypto::Suite::None, ..product::store_options()? };
        let memory = MemoryPlan {
            summary_vector_bytes: setup.memory_bytes,
            ..MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?
        };
        let shared: Arc<dyn Store> = Arc::clone(&store) as _;
        let repository = Repository::create(shared, &options, None, environment, memory)?;
        let index = FingerprintIndex::open_with(&repository, setup.mode)?;
        let summary = setup.summary.map(summary_vector).transpose()?;
        store.take();
        Ok(Self { setup: setup.clone(), repository, store, index, summary, read: (0, 0) })
    }

    /// Writes a run of prefixes that rise, each in one of `containers` containers, as a large store
    /// would have it. The run is not opened.
    ///
    /// # Errors
    /// The entries are not in order, or the index cannot be written.
    pub fn write_sorted(
        &mut self,
        containers: u32,
        entries: &mut dyn Iterator<Item = (u64, u32)>,
    ) -> Result<()> {
        let randomness = SeededRandomness::new(u64::from(containers));
        let name = |number: u32| ContainerId::ordered(i64::from(number) * 1_000_000, &randomness);
        let names = (0..containers).map(name).collect();
        let mut next = || Ok(entries.next().map(|(prefix, container)| Entry { prefix, container }));
        let kind = Some(self.setup.kind);
        run_writer::write_run(&self.repository, kind, names, Vec::new(), &mut next)?;
        Ok(())
    }

    /// Opens the index as a new process would: nothing is loaded yet.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn reopen(&mut self) -> Result<()> {
        self.index = FingerprintIndex::open_with(&self.repository, self.setup.mode)?;
        self.refresh()
    }

    /// Requests and bytes that look-ups have sent to the index's objects, since this was last
    /// asked.
    pub fn take_requests(&mut self) -> (u64, u64) {
        self.note_requests();
        std::mem::take(&mut self.read)
    }

    /// Must come before anything else than a look-up reads.
    fn note_requests(&mut self) {
        let count = self.store.take().of(layout::INDEX, Operation::GetRange);
        self.read.0 += count.calls;
        self.read.1 += count.bytes;
    }

    fn write(&mut self, containers: &[Listed]) -> Result<()> {
        let prefixes = |list: &[Fingerprint]| list.iter().map(Fingerprint::prefix).collect();
        let lists = containers.iter().map(|(id, list)| (*id, prefixes(list))).collect();
        run_writer::write_run_of(&self.repository, Some(self.setup.kind), lists)?;
        if let Some(summary) = &mut self.summary {
            let all = containers.iter().flat_map(|(_, list)| list.iter());
            all.for_each(|one| summary.insert(one.prefix()));
        }
        Ok(())
    }

    fn refresh(&mut self) -> Result<()> {
        self.index.refresh(&self.repository)?;
        if let Some(pages) = self.setup.bucket_pages {
            self.index.set_bucket_pages(pages);
        }
        // What writing and opening read is not a look-up's.
        self.store.take();
        Ok(())
    }
}

/// A vector of a fraction of a bit for each key is one for fewer keys.
fn summary_vector(summary: Summary) -> Result<SummaryVector> {
    let bits = (summary.keys as f64 * summary.bits_per_key).ceil().max(64.0);
    SummaryVector::with_capacity(bits as u64, 1, summary.hashes)
}

impl Index for RealIndex {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.index.locate_newest(&self.repository, fingerprints, found, reads)
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        match &self.summary {
            Some(summary) => Ok(summary.contains(fingerprint.prefix())),
            None => self.index.may_contain(&self.repository, fingerprint),
        }
    }

    fn bucket_counts(&self) -> BucketCounts {
        let counts = self.index.bucket_counts();
        self.setup.buckets.map_or(counts, |buckets| {
            let count = buckets.max(counts.fewest);
            BucketCounts { fewest: count, most: count }
        })
    }

    fn add(&mut self, containers: &[Listed]) -> Result<()> {
        self.note_requests();
        self.write(containers)?;
        self.index.refresh(&self.repository)?;
        if self.setup.single_run && self.index.runs().len() > 1 {
            merge::merge(&self.repository, Some(self.setup.kind), &self.index.runs())?;
        } else {
            merge::merge_if_due(&self.repository, Some(self.setup.kind))?;
        }
        self.refresh()
    }

    fn rebuild(&mut self, containers: &[Listed]) -> Result<()> {
        self.note_requests();
        for run in self.index.runs() {
            self.store.delete(&Key::new(layout::index_run(run.id))?)?;
        }
        self.summary = self.setup.summary.map(summary_vector).transpose()?;
        self.index = FingerprintIndex::open_with(&self.repository, self.setup.mode)?;
        if !containers.is_empty() {
            self.write(containers)?;
        }
        self.refresh()
    }

    fn entries(&self) -> u64 {
        self.index.entries()
    }

    fn memory_bytes(&self) -> usize {
        self.index.memory_bytes()
    }

    fn take_bytes_read(&mut self) -> u64 {
        self.take_requests().1
    }
}
