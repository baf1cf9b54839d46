//! The chunk store: new chunks in, each of them once (DDFS's Segment Store; FAST'08, section 3.2).
//!
//! What becomes of each chunk of a stream is decided by [`onefold_policy::stream`]; here is what
//! the streams share: the index with its helpers, the chunks being stored (S1.24), what the session
//! relies on. New chunks go to the stream's own open container. When those that wait for the index
//! reach their share of memory, and at the end, what is durable is indexed: metadata pack, then
//! run. An interrupted session thus leaves indexed containers, and the next one finds its chunks.
//!
//! Invariants:
//! - a hit counts only if the container may be used (not condemned, not damaged), was seen to exist
//!   in this session, and its metadata section names the chunk (protocol, W5);
//! - a chunk that another stream is still writing counts as present because the session commits
//!   only if every container it wrote is durable: one failed write fails all streams (R24);
//! - nothing is indexed before its container is durable (R21).
//!
//! Concurrency: streams share the filter and the pending set behind one lock, taken once a batch.

use crate::container::FrameId;
use crate::container::log::DurableContainer;
use crate::container::open::{ContainerContext, OpenContainer};
use crate::index::{ChunkIndex, Claims, append};
use crate::memory::{Lease, PENDING_CHUNK_BYTES};
use crate::placement::Unit;
use crate::repository::Repository;
use bases::{BaseCounts, Bases};
use counters::Counters;
use onefold_format::codec::Compression;
use onefold_format::delta::DeltaChoice;
use onefold_format::index_run::IndexKind;
use onefold_policy::SummaryVector;
use onefold_policy::accelerated_filter::{AcceleratedFilter, FilterConfiguration, FilterCounters};
use onefold_policy::lookup::LookupStrategy;
use onefold_policy::rewrite::{RewriteChoice, RewriteCounters};
use onefold_policy::stream::{self, ChunkStream, Instances};
use onefold_types::{ContainerId, Fingerprint, Result, SessionId, invariant};
use read_set::ReadSet;
use sections_ahead::SectionsAhead;
use shared::Shared;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store_port::{DeviceTiming, StorePort};
use unproved::Unproved;

pub mod bases;
mod batch;
mod counters;
mod giving_way;
mod known_containers;
pub mod prefix_hasher;
pub mod presence;
pub mod read_set;
pub mod sections_ahead;
mod shared;
pub mod store_port;
pub mod stream_writer;
mod threads;
pub mod unproved;

pub use batch::ChunkBatch;
pub use stream_writer::StreamWriter;

/// Which duplicates a session stores again.
pub type RewriteOptions = stream::RewriteOptions<Unit>;

/// Pending chunks that are indexed together at least, however little memory is left.
const PENDING_MIN: usize = 1 << 12;
/// Chunks stored again up to which hardly another is taken for one of them, in a megabyte.
const STORED_AGAIN_KEYS: u64 = 1 << 20;

/// How a session stores its chunks.
#[derive(Clone, Debug)]
pub struct ChunkStoreOptions {
    /// What frames are compressed with.
    pub compression: Compression,
    /// Threads that compress and seal.
    pub threads: usize,
    /// Which helpers the look-up uses (S1.28: all four combinations).
    pub filter: FilterConfiguration,
    /// How chunks are looked up.
    pub lookup: LookupStrategy,
    /// The kind of index runs written; `None`: as those that are there.
    pub index_kind: Option<IndexKind>,
    /// Which duplicates are stored again.
    pub rewrite: RewriteOptions,
    /// Whether new chunks are stored as differences against others.
    pub delta: DeltaChoice,
    /// Whether to judge only: nothing is written.
    pub dry_run: bool,
    /// Whose containers these are (rule D4); `None` if nothing is written.
    pub session: Option<SessionId>,
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
    /// Chunks stored again for locality.
    pub chunks_rewritten: u64,
    /// Their plain bytes.
    pub bytes_rewritten: u64,
    /// Bytes of the containers written.
    pub bytes_stored: u64,
    /// Containers written.
    pub containers: u64,
    /// Chunks stored as differences against others.
    pub chunks_delta: u64,
    /// Their plain bytes.
    pub bytes_delta: u64,
    /// What was stored of them, before compression.
    pub payload_bytes_delta: u64,
}

/// The chunks of one session on their way into the store.
pub struct ChunkStore {
    repository: Arc<Repository>,
    bases: Arc<Bases>,
    context: Arc<ContainerContext>,
    /// `None`: there is nobody to be told, or nothing is stored.
    claims: Option<Arc<Claims>>,
    shared: Mutex<Shared>,
    counters: Counters,
    lookup: LookupStrategy,
    index_kind: Option<IndexKind>,
    waiting_bytes_max: usize,
    pending_max: usize,
    /// Held as long as the session's cache and queues are.
    _leases: [Lease; 3],
    rewrite: RewriteOptions,
    dry_run: bool,
    /// Held while a renewal stores what deltas are made of, so that nobody counts meanwhile.
    storing_bases: Mutex<()>,
}

/// What rewriting did in a session.
#[derive(Clone, Debug, Default)]
pub struct RewriteReport {
    /// The policy.
    pub choice: Option<RewriteChoice>,
    /// Its counters, one set for each stream.
    pub streams: Vec<RewriteCounters>,
}

/// How the look-ups of a session went.
#[derive(Clone, Debug, Default)]
pub struct LookupReport {
    /// Every step counted.
    pub counters: FilterCounters,
    /// What accesses of the device cost.
    pub timing: DeviceTiming,
    /// The time of the look-up stage, the device's included (S0.2).
    pub elapsed: Duration,
    /// Which strategy was used and why, in one paragraph.
    pub explanation: String,
}

impl ChunkStore {
    /// Opens the index and starts the threads. Containers in `avoid` are not relied upon.
    pub fn open(
        repository: &Arc<Repository>,
        index: Arc<dyn ChunkIndex>,
        avoid: BTreeSet<ContainerId>,
        options: ChunkStoreOptions,
    ) -> Result<Arc<Self>> {
        // Whoever asks nothing of the store asks for no bases either.
        let delta = match options.lookup {
            LookupStrategy::None => DeltaChoice::Off,
            _ => options.delta,
        };
        let bases = Arc::new(Bases::new(repository, &index, &avoid, delta));
        let context = threads::context_of(repository, &options, &bases, &index)?;
        let stores_all = options.lookup == LookupStrategy::None;
        let claims = index.claims().filter(|_| !stores_all && !options.dry_run);
        let (purse, memory) = (repository.purse(), repository.memory());
        let cache = purse.take(memory.locality_cache_bytes);
        let pending = purse.take(memory.pending_bytes());
        let queues = memory.streams * memory.waiting_chunks_bytes + memory.rewrite_candidates_bytes;
        let shared = Shared {
            filter: AcceleratedFilter::new(options.filter, cache.bytes()),
            port: StorePort {
                repository: Arc::clone(repository),
                index,
                avoid,
                timing: DeviceTiming::default(),
                proof_reads: 0,
                unusable: BTreeSet::new(),
                sections_kept: 0,
                unproved: Unproved::default(),
                frames: HashMap::new(),
                bases: Arc::clone(&bases),
                made_of: HashMap::new(),
                ahead: SectionsAhead::of(&bases.seen),
            },
            pending: HashMap::default(),
            stores_all,
            read_set: ReadSet::default(),
            elapsed: Duration::ZERO,
            explanation: String::new(),
            rewriting: RewriteReport::default(),
            holders: Vec::new(),
            stored_again: match options.rewrite.choice {
                RewriteChoice::None => None,
                _ => Some(SummaryVector::with_capacity(STORED_AGAIN_KEYS, 8, 4)?),
            },
        };
        Ok(Arc::new(Self {
            repository: Arc::clone(repository),
            bases,
            context: Arc::new(context),
            claims,
            shared: Mutex::new(shared),
            counters: Counters::default(),
            lookup: options.lookup,
            index_kind: options.index_kind,
            waiting_bytes_max: repository.memory().waiting_chunks_bytes,
            pending_max: (pending.bytes() / PENDING_CHUNK_BYTES).max(PENDING_MIN),
            _leases: [cache, pending, purse.take(queues)],
            rewrite: options.rewrite,
            dry_run: options.dry_run,
            storing_bases: Mutex::default(),
        }))
    }

    /// A new stream with open containers of its own.
    pub fn stream(self: &Arc<Self>) -> Result<StreamWriter> {
        self.stream_of(1)
    }

    /// One of so many streams.
    pub fn stream_of(self: &Arc<Self>, streams: usize) -> Result<StreamWriter> {
        StreamWriter::new(Arc::clone(self), streams)
    }

    /// How the session tells others what it is about to store, if there is a way.
    fn claims(&self) -> Option<Arc<Claims>> {
        self.claims.clone()
    }

    /// Hears at once what others have stored.
    fn hear(&self) {
        let index = Arc::clone(&self.lock().port.index);
        index.hear();
    }

    /// Whether new chunks are stored as differences against others.
    #[must_use]
    pub fn makes_deltas(&self) -> bool {
        self.bases.makes_deltas()
    }

    /// Says which containers were seen to exist after the session knew its epoch (W5): of these a
    /// section that this machine has kept counts, and where the store is far away several are read
    /// at once.
    pub fn has_seen(&self, containers: &Arc<[ContainerId]>) {
        self.bases.seen.note_listed(containers);
    }

    /// Whether the store holds the chunk in a container that may be relied upon.
    pub fn is_present(&self, fingerprint: &Fingerprint) -> Result<bool> {
        self.judge(|shared| {
            if shared.pending.contains_key(fingerprint) || shared.is_duplicate(fingerprint)? {
                return Ok(true);
            }
            // What is needed already counts wherever it is.
            let index = Arc::clone(&shared.port.index);
            Ok(index.take_in(&self.repository, fingerprint)? && shared.is_duplicate(fingerprint)?)
        })
    }

    /// Leaves containers that were condemned meanwhile (W8): finds what was found in them again
    /// elsewhere, and avoids them from now on. What own deltas are made of and is whole nowhere
    /// else is stored again. `false` if that cannot be done; what is relied upon has not changed
    /// then.
    pub fn leave(&self, condemned: &BTreeSet<ContainerId>) -> Result<bool> {
        if self.context.has_named(condemned) {
            return Ok(false);
        }
        if !self.store_bases_of(condemned)? {
            return Ok(false);
        }
        let mut shared = self.lock();
        // A container that stays may hold deltas of what is condemned: they are found anew as well.
        let Some(mut left) = shared.port.made_of_any(condemned) else {
            return Ok(false);
        };
        left.extend(condemned);
        let Some(chunks) = shared.read_set.chunks_in(&left) else {
            return Ok(false);
        };
        if !self.bases.leave(condemned)? {
            return Ok(false);
        }
        let before: Vec<ContainerId> =
            condemned.iter().filter(|id| shared.port.avoid.insert(**id)).copied().collect();
        let relied = std::mem::take(&mut shared.read_set);
        shared.read_set = relied.without(&left);
        let made_of: Vec<_> =
            left.iter().filter_map(|id| shared.port.made_of.remove_entry(id)).collect();
        left.iter().for_each(|id| shared.filter.forget_container(*id));
        let are_elsewhere = shared.are_duplicates(&chunks);
        // An error, too, leaves all as it was, because whoever renews the session asks again later.
        if !matches!(are_elsewhere, Ok(true)) {
            before.iter().for_each(|id| _ = shared.port.avoid.remove(id));
            // What could not be made without these can be made again.
            shared.port.unproved = Unproved::default();
            self.bases.return_to(&before);
            // What was found elsewhere meanwhile is relied upon beside it.
            shared.read_set.extend(relied);
            for (container, made_of) in made_of {
                shared.port.rest_on(container, made_of);
            }
        }
        are_elsewhere
    }

    /// Stores what own deltas are made of again, as far as it is whole in these containers only.
    fn store_bases_of(&self, condemned: &BTreeSet<ContainerId>) -> Result<bool> {
        self.lock().port.index.refresh(&self.repository)?;
        let Some(only) = self.bases.only_in(condemned)? else { return Ok(false) };
        if only.is_empty() {
            return Ok(true);
        }
        let _counted = self.storing_bases();
        let mut open = OpenContainer::new(Arc::clone(&self.context));
        let stored = self.append_bases(&only, &mut open);
        // Whatever came of it: what was appended has to be indexed, or nothing could be committed.
        open.finish()?;
        self.context.log.wait()?;
        self.index(self.context.log.take_durable()?)?;
        stored
    }

    /// Appends bases one by one; `false` if one cannot be read.
    fn append_bases(&self, bases: &[Fingerprint], open: &mut OpenContainer) -> Result<bool> {
        for fingerprint in bases {
            let Some(chunk) = self.bases.read(*fingerprint)? else { return Ok(false) };
            open.append_again(*fingerprint, &chunk)?;
            self.count_appended(chunk.len());
        }
        Ok(true)
    }

    fn storing_bases(&self) -> MutexGuard<'_, ()> {
        self.storing_bases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The containers in which chunks were found, and what these are made of.
    pub fn found_in(&self) -> BTreeSet<ContainerId> {
        let mut found = self.bases.relied_on();
        let shared = self.lock();
        let containers = shared.read_set.containers();
        for container in containers {
            found.insert(container);
            found.extend(shared.port.made_of.get(&container).into_iter().flatten());
        }
        found
    }

    /// Has the store's own index know whatever the session rests on, before it commits.
    pub fn cover_found(&self) -> Result<()> {
        let index = Arc::clone(&self.lock().port.index);
        index.cover(&self.repository, &self.found_in())
    }

    /// Indexes what is left, once all streams have finished; then everything is durable (W6).
    pub fn finish(&self) -> Result<StoredTotals> {
        let durable = self.context.log.settle()?;
        self.index(durable)?;
        Ok(self.totals())
    }

    /// Fails unless all that was handed in is stored and indexed, or known: the last question
    /// before the commit, once every stream has finished.
    pub fn expect_whole(&self) -> Result<()> {
        let _counted = self.storing_bases();
        let totals = self.totals();
        let known = self.counters.chunks_known.load(Ordering::Relaxed);
        invariant!(
            totals.chunks == totals.chunks_new + known,
            "chunks handed in and verdicts differ in number",
            totals,
            known
        );
        if self.dry_run {
            return Ok(());
        }
        let (appended, indexed) = (self.counters.appended.get(), self.counters.indexed.get());
        invariant!(
            appended == indexed,
            "chunks that were stored and chunks that were indexed differ in number or bytes",
            appended,
            indexed
        );
        let stored = (
            totals.chunks_new + totals.chunks_rewritten,
            totals.bytes_new + totals.bytes_rewritten,
        );
        // Nodes of the placement are stored and not counted.
        invariant!(
            stored.0 <= appended.0 && stored.1 <= appended.1,
            "fewer chunks were stored than were new or stored again",
            stored,
            appended
        );
        let pending = self.lock().pending.len();
        invariant!(pending == 0, "chunks that count as stored are not in the index", pending);
        Ok(())
    }

    /// How bases of differences were found so far.
    #[must_use]
    pub fn base_counts(&self) -> BaseCounts {
        self.bases.counts()
    }

    /// What went in so far.
    #[must_use]
    pub fn totals(&self) -> StoredTotals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoredTotals {
            chunks: get(&self.counters.chunks),
            chunks_new: get(&self.counters.chunks_new),
            bytes_new: get(&self.counters.bytes_new),
            chunks_rewritten: get(&self.counters.chunks_rewritten),
            bytes_rewritten: get(&self.counters.bytes_rewritten),
            bytes_stored: get(&self.counters.bytes_stored),
            containers: get(&self.counters.containers),
            chunks_delta: get(&self.context.deltas.chunks),
            bytes_delta: get(&self.context.deltas.bytes),
            payload_bytes_delta: get(&self.context.deltas.payload_bytes),
        }
    }

    /// How look-ups went.
    #[must_use]
    pub fn lookup_report(&self) -> LookupReport {
        let shared = self.lock();
        LookupReport {
            counters: *shared.filter.counters(),
            timing: shared.port.timing,
            elapsed: shared.elapsed,
            explanation: shared.explanation.clone(),
        }
    }

    /// What rewriting did.
    #[must_use]
    pub fn rewrite_report(&self) -> RewriteReport {
        self.lock().rewriting.clone()
    }

    /// Judges chunks with what all streams share, and counts the time.
    fn judge<T>(&self, judging: impl FnOnce(&mut Shared) -> Result<T>) -> Result<T> {
        let mut shared = self.lock();
        let started = Instant::now();
        let judged = judging(&mut shared)?;
        shared.elapsed += started.elapsed();
        self.index_if_full(shared)?;
        Ok(judged)
    }

    /// Judges one chunk at once; `true` if it is new and must be stored by the caller.
    fn judge_one(&self, fingerprint: &Fingerprint) -> Result<bool> {
        self.judge(|shared| {
            let is_known = !shared.stores_all
                && (shared.pending.contains_key(fingerprint)
                    || shared.is_duplicate(fingerprint)?);
            if !is_known {
                shared.pending.insert(*fingerprint, None);
            }
            Ok(!is_known)
        })
    }

    fn index_if_full(&self, shared: MutexGuard<'_, Shared>) -> Result<()> {
        let pending_max = self.pending_max;
        // Chunks that are stored each time they come are pending once, and take room each time.
        let repeated = match shared.stores_all {
            // Another stream may index between the two looks.
            true => self.counters.appended.get().0.saturating_sub(self.counters.indexed.get().0),
            false => 0,
        };
        let full = shared.pending.len() >= pending_max || repeated >= pending_max as u64;
        drop(shared);
        if full && !self.dry_run { self.index(self.context.log.take_durable()?) } else { Ok(()) }
    }

    /// Counts what has passed through a stream.
    fn note_end(&self, stream: &ChunkStream<ChunkBatch, Unit>) {
        let totals = stream.totals();
        let add = |counter: &AtomicU64, more| _ = counter.fetch_add(more, Ordering::Relaxed);
        add(&self.counters.chunks, totals.chunks);
        add(&self.counters.chunks_known, totals.duplicates);
        add(&self.counters.chunks_new, totals.unique);
        add(&self.counters.bytes_new, totals.unique_bytes);
        let mut shared = self.lock();
        shared.explanation = stream.lookup().explain(shared.filter.counters());
        shared.rewriting.choice = Some(self.rewrite.choice);
        shared.rewriting.streams.push(*stream.rewrite_counters());
    }

    /// Makes a duplicate pending that is stored again; `false` if the session has stored it.
    fn claim(&self, fingerprint: &Fingerprint) -> bool {
        self.lock().claim_again(fingerprint)
    }

    /// Frames that hold a duplicate, newest first, in other containers than the known ones. The
    /// index is asked, and containers that the look-up has not met are read.
    fn others(
        &self,
        fingerprint: &Fingerprint,
        known: &Instances<FrameId>,
    ) -> Result<Vec<FrameId>> {
        let mut shared = self.lock();
        let started = Instant::now();
        let found = shared.instances(fingerprint, known);
        shared.elapsed += started.elapsed();
        found
    }

    /// Plain bytes of a frame's chunks; 0 if the session has not met its container.
    fn payload_bytes(&self, frame: &FrameId) -> u64 {
        self.lock().port.payload_bytes(frame)
    }

    fn count_rewritten(&self, bytes: usize) {
        self.counters.chunks_rewritten.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes_rewritten.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A chunk that went into an open container.
    fn count_appended(&self, bytes: usize) {
        self.counters.appended.add(1, bytes as u64);
    }

    /// A chunk that is there already.
    fn count_known(&self) {
        self.counters.chunks_known.fetch_add(1, Ordering::Relaxed);
    }

    fn count_chunk(&self) {
        self.counters.chunks.fetch_add(1, Ordering::Relaxed);
    }

    fn count_new(&self, bytes: usize) {
        self.counters.chunks_new.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes_new.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Writes a metadata pack and an index run for durable containers.
    fn index(&self, durable: Vec<DurableContainer>) -> Result<()> {
        if durable.is_empty() {
            return Ok(());
        }
        for container in &durable {
            self.counters.bytes_stored.fetch_add(container.bytes, Ordering::Relaxed);
            self.counters.containers.fetch_add(1, Ordering::Relaxed);
            let plain_bytes = container.frames.iter().map(|frame| u64::from(frame.plain_bytes));
            self.counters.indexed.add(container.fingerprints.len(), plain_bytes.sum());
        }
        let run = append::append(&self.repository, self.index_kind, &durable)?;
        let mut shared = self.lock();
        shared.port.index.note_added(&self.repository, &durable, run)?;
        for container in durable {
            for fingerprint in &container.fingerprints {
                shared.note_indexed(fingerprint, container.id);
            }
            shared.port.note_frames(container.id, container.frames);
            // What was stored again must not be found in its old place and stored a third time.
            if shared.stored_again.is_some() {
                shared.filter.note_container(container.id, container.fingerprints.into());
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
