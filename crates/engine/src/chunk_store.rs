//! The chunk store: new chunks in, each of them once (DDFS's Segment Store; FAST'08, section 3.2).
//!
//! A stream hands in chunks in order. Each is judged: found in an open or not yet indexed container
//! of this session (S1.24), or by accelerated filtering (S1.23, [`onefold_policy`]), or new. New
//! chunks go to the stream's own open container. When the chunks that wait for the index reach
//! their share of memory, and at the end, what is durable is indexed: metadata pack, then run.
//! An interrupted session thus leaves indexed containers behind, and the next one finds its chunks.
//!
//! Invariants:
//! - a hit counts only if the container may be used (not condemned, not damaged) and its metadata
//!   section was read from the container itself, in this session (protocol, W5);
//! - a chunk that another stream is still writing counts as present because the session commits
//!   only if every container it wrote is durable: one failed write fails all streams (R24);
//! - nothing is indexed before its container is durable (R21).
//!
//! Concurrency: streams share the filter and the pending set behind one lock, taken once a batch.

use crate::container::frame_pool::FramePool;
use crate::container::log::{ContainerLog, DurableContainer};
use crate::container::open::{ContainerContext, OpenContainer};
use crate::container::reader;
use crate::index::{FingerprintIndex, merge, run};
use crate::repository::Repository;
use onefold_format::codec::Compression;
use onefold_format::{layout, metadata_pack};
use onefold_policy::accelerated_filter::{
    AcceleratedFilter, FilterConfiguration, FilterCounters, Verdict,
};
use onefold_policy::ports::IndexPort;
use onefold_store::Key;
use onefold_types::{ContainerId, Error, Fingerprint, Level, Result, limits};
use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a session stores its chunks.
#[derive(Clone, Copy, Debug)]
pub struct ChunkStoreOptions {
    /// What frames are compressed with.
    pub compression: Compression,
    /// Threads that compress and seal.
    pub threads: usize,
    /// Which helpers the look-up uses (S1.28: all four combinations).
    pub filter: FilterConfiguration,
    /// Whether to judge only: nothing is written.
    pub dry_run: bool,
}

/// What went into the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoredTotals {
    /// Chunks handed in.
    pub chunks: u64,
    /// Chunks that were not there.
    pub chunks_new: u64,
    /// Their plain bytes.
    pub bytes_new: u64,
    /// Bytes of the containers written.
    pub bytes_stored: u64,
    /// Containers written.
    pub containers: u64,
}

#[derive(Default)]
struct Counters {
    chunks: AtomicU64,
    chunks_new: AtomicU64,
    bytes_new: AtomicU64,
    bytes_stored: AtomicU64,
    containers: AtomicU64,
}

/// The chunks of one session on their way into the store.
pub struct ChunkStore {
    repository: Arc<Repository>,
    context: Arc<ContainerContext>,
    shared: Mutex<Shared>,
    counters: Counters,
    dry_run: bool,
}

struct Shared {
    filter: AcceleratedFilter,
    port: StorePort,
    pending: HashSet<Fingerprint, BuildHasherDefault<PrefixHasher>>,
}

impl ChunkStore {
    /// Opens the index and starts the threads. Containers in `avoid` are not relied upon.
    pub fn open(
        repository: &Arc<Repository>,
        index: FingerprintIndex,
        avoid: BTreeSet<ContainerId>,
        options: ChunkStoreOptions,
    ) -> Result<Arc<Self>> {
        let environment = repository.environment();
        let fingerprinter = repository.fingerprinter();
        let pool = FramePool::start(options.threads, options.compression, fingerprinter)?;
        let log = Arc::new(ContainerLog::start(repository.shared_store())?);
        let context = ContainerContext {
            vault: Arc::clone(repository.vault()),
            randomness: Arc::clone(&environment.randomness),
            clock: Arc::clone(&environment.clock),
            pool: Arc::new(pool),
            log,
            target_bytes: repository.configuration().container_size_bytes,
            frame_bytes: limits::FRAME_PLAIN_TARGET_BYTES,
        };
        let cache_bytes = repository.memory().locality_cache_bytes;
        let shared = Shared {
            filter: AcceleratedFilter::new(options.filter, cache_bytes),
            port: StorePort { repository: Arc::clone(repository), index, avoid },
            pending: HashSet::default(),
        };
        Ok(Arc::new(Self {
            repository: Arc::clone(repository),
            context: Arc::new(context),
            shared: Mutex::new(shared),
            counters: Counters::default(),
            dry_run: options.dry_run,
        }))
    }

    /// A new stream with open containers of its own.
    #[must_use]
    pub fn stream(self: &Arc<Self>) -> StreamWriter {
        StreamWriter {
            data: OpenContainer::new(Arc::clone(&self.context)),
            nodes: OpenContainer::new(Arc::clone(&self.context)),
            store: Arc::clone(self),
            new: Vec::new(),
        }
    }

    /// Whether the store holds the chunk in a container that may be relied upon.
    pub fn is_present(&self, fingerprint: &Fingerprint) -> Result<bool> {
        let mut shared = self.lock();
        let Shared { filter, port, pending } = &mut *shared;
        Ok(pending.contains(fingerprint)
            || matches!(filter.judge(port, fingerprint)?, Verdict::Duplicate(_)))
    }

    /// Indexes what is left, once all streams have finished; then everything is durable (W6).
    pub fn finish(&self) -> Result<StoredTotals> {
        let durable = self.context.log.settle()?;
        self.index(durable)?;
        Ok(self.totals())
    }

    /// What went in so far.
    #[must_use]
    pub fn totals(&self) -> StoredTotals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoredTotals {
            chunks: get(&self.counters.chunks),
            chunks_new: get(&self.counters.chunks_new),
            bytes_new: get(&self.counters.bytes_new),
            bytes_stored: get(&self.counters.bytes_stored),
            containers: get(&self.counters.containers),
        }
    }

    /// How look-ups went.
    #[must_use]
    pub fn filter_counters(&self) -> FilterCounters {
        *self.lock().filter.counters()
    }

    /// Judges chunks in order; sets `new[i]` for those to be stored and remembers them as pending.
    fn judge(&self, fingerprints: &[Fingerprint], new: &mut Vec<bool>) -> Result<()> {
        self.counters.chunks.fetch_add(fingerprints.len() as u64, Ordering::Relaxed);
        let mut shared = self.lock();
        let Shared { filter, port, pending } = &mut *shared;
        new.clear();
        for fingerprint in fingerprints {
            let is_new =
                !pending.contains(fingerprint) && filter.judge(port, fingerprint)? == Verdict::New;
            if is_new {
                pending.insert(*fingerprint);
            }
            new.push(is_new);
        }
        let full = pending.len() >= self.repository.memory().pending_chunks_max;
        drop(shared);
        if full && !self.dry_run { self.index(self.context.log.take_durable()?) } else { Ok(()) }
    }

    /// Writes a metadata pack and an index run for durable containers.
    fn index(&self, durable: Vec<DurableContainer>) -> Result<()> {
        if durable.is_empty() {
            return Ok(());
        }
        let mut pack = metadata_pack::begin();
        let mut containers = Vec::with_capacity(durable.len());
        for container in &durable {
            metadata_pack::append(&mut pack, container.id, &container.sealed_section);
            let prefixes = container.fingerprints.iter().map(Fingerprint::prefix).collect();
            containers.push((container.id, prefixes));
            self.counters.bytes_stored.fetch_add(container.bytes, Ordering::Relaxed);
            self.counters.containers.fetch_add(1, Ordering::Relaxed);
        }
        let environment = self.repository.environment();
        let pack_id = ContainerId::ordered(environment.clock.now_ns(), &*environment.randomness);
        let key = Key::new(layout::metadata_pack(pack_id))?;
        self.repository.store().put(&key, &pack.into_bytes())?;
        run::write_run_of(&self.repository, containers)?;
        merge::merge_if_due(&self.repository)?;
        let mut shared = self.lock();
        shared.port.index.refresh(&self.repository)?;
        for fingerprint in durable.iter().flat_map(|container| &container.fingerprints) {
            shared.pending.remove(fingerprint);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One stream on its way into the store.
pub struct StreamWriter {
    store: Arc<ChunkStore>,
    data: OpenContainer,
    nodes: OpenContainer,
    new: Vec<bool>,
}

impl StreamWriter {
    /// Stores the data chunks that are new; `bytes_of(i)` gives the bytes of `fingerprints[i]`.
    pub fn put_data<'a>(
        &mut self,
        fingerprints: &[Fingerprint],
        bytes_of: impl Fn(usize) -> &'a [u8],
    ) -> Result<()> {
        let mut new = std::mem::take(&mut self.new);
        self.store.judge(fingerprints, &mut new)?;
        for (position, fingerprint) in fingerprints.iter().enumerate() {
            if new[position] {
                let bytes = bytes_of(position);
                self.count_new(bytes.len());
                if !self.store.dry_run {
                    self.data.append(*fingerprint, Level::DATA, bytes)?;
                }
            }
        }
        self.new = new;
        Ok(())
    }

    /// Stores a tree node unless it is there already; returns its name.
    pub fn put_node(&mut self, level: Level, bytes: &[u8]) -> Result<Fingerprint> {
        if bytes.len() > limits::NODE_MAX_BYTES || !level.is_node() {
            return Err(Error::invalid("a tree node is too large or at level 0"));
        }
        let fingerprint = self.store.repository.fingerprinter().node(bytes);
        let mut new = std::mem::take(&mut self.new);
        self.store.judge(&[fingerprint], &mut new)?;
        if new[0] {
            self.count_new(bytes.len());
            if !self.store.dry_run {
                self.nodes.append(fingerprint, level, bytes)?;
            }
        }
        self.new = new;
        Ok(fingerprint)
    }

    /// Closes the stream's containers.
    pub fn finish(mut self) -> Result<()> {
        self.data.finish()?;
        self.nodes.finish()
    }

    fn count_new(&self, bytes: usize) {
        self.store.counters.chunks_new.fetch_add(1, Ordering::Relaxed);
        self.store.counters.bytes_new.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The index as the filter sees it, with the rule of W5 built in.
struct StorePort {
    repository: Arc<Repository>,
    index: FingerprintIndex,
    avoid: BTreeSet<ContainerId>,
}

impl IndexPort for StorePort {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        for fingerprint in fingerprints {
            found.push(self.index.locate(&self.repository, fingerprint, reads)?);
        }
        Ok(())
    }

    fn container_fingerprints(
        &mut self,
        container: ContainerId,
    ) -> Result<Option<Arc<[Fingerprint]>>> {
        if self.avoid.contains(&container) {
            return Ok(None);
        }
        match reader::read_section(&self.repository, container) {
            Ok(section) => Ok(Some(section.chunks.iter().map(|chunk| chunk.fingerprint).collect())),
            // Gone or damaged: its chunks are stored again (R20).
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn may_contain(&self, fingerprint: &Fingerprint) -> bool {
        self.index.may_contain(fingerprint)
    }
}

/// Fingerprints are uniform already: their first eight bytes are the hash.
#[derive(Default)]
struct PrefixHasher(u64);

impl Hasher for PrefixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(prefix) = bytes.first_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*prefix);
        }
    }

    fn write_usize(&mut self, _length: usize) {}
}
