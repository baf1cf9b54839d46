//! Small stores in memory, built step by step below the level of a backup.
//!
//! Everything is reproducible: names come from a seeded source, and the clock moves one
//! millisecond each time it is read.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use onefold_crypto::{KdfCost, Suite};
use onefold_engine::check::{self, CheckOptions, CheckReport, ReadData};
use onefold_engine::chunk_store::{ChunkBatch, ChunkStore, ChunkStoreOptions, StreamWriter};
use onefold_engine::container::frame_pool::FramePool;
use onefold_engine::container::log::ContainerLog;
use onefold_engine::container::open::{ContainerContext, DeltaCounters};
use onefold_engine::index::FingerprintIndex;
use onefold_engine::ingest::{BackupOptions, Source};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::repository::Password;
use onefold_engine::session::quarantine;
use onefold_engine::session::{Commit, SnapshotList, WriterSession};
use onefold_engine::tree::directory::{Directory, DirectoryBuilder, NoNames};
use onefold_engine::tree::file_map::FileMapBuilder;
use onefold_engine::{Environment, InitOptions, Job, MemoryPlan, Repository};
use onefold_format::codec::Compression;
use onefold_format::delta::DeltaChoice;
use onefold_format::node::{Entry, EntryKind, Extent, Listing, Reference, Time};
use onefold_format::record::{RECORD_VERSION, SnapshotKind, SnapshotRecord, Summary};
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_policy::lookup::LookupStrategy;
use onefold_policy::rewrite::RewriteChoice;
use onefold_store::{Blobs, Key, MemoryStore, Store};
use onefold_types::environment::{Clock, Randomness, SeededRandomness};
use onefold_types::{ContainerId, Fingerprint, Result, SessionId, limits};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

pub const PASSWORD: &[u8] = b"password";
pub const CHUNK_BYTES: usize = 8 * limits::KIB;

/// A file or a directory with its name.
#[derive(Clone)]
pub enum Item {
    File(&'static str, Vec<u8>),
    Directory(&'static str, Vec<Item>),
}

pub fn file(name: &'static str, seed: u64, bytes: usize) -> Item {
    Item::File(name, random_bytes(seed, bytes))
}

pub fn directory(name: &'static str, items: impl Into<Vec<Item>>) -> Item {
    Item::Directory(name, items.into())
}

pub fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandomness::new(seed).fill(&mut bytes);
    bytes
}

/// A backup without surprises: every look-up at once, nothing stored again.
pub fn backup_options() -> BackupOptions {
    BackupOptions {
        host: "host".into(),
        user: "user".into(),
        lookup: LookupChoice::Eager(FilterOrder::CacheFirst),
        rewrite: RewriteChoice::None,
        program: "test".into(),
        ..BackupOptions::default()
    }
}

/// All that is below a directory.
pub fn paths(root: &Path) -> Source {
    Source::Paths { paths: vec![root.to_path_buf()], selection: Box::default() }
}

/// A clock that moves whenever somebody looks.
struct TickingClock(AtomicI64);

impl Clock for TickingClock {
    fn now_ns(&self) -> i64 {
        self.0.fetch_add(1_000_000, Ordering::Relaxed)
    }
}

pub fn environment(seed: u64) -> Environment {
    let start_ns = 1_700_000_000_000_000_000 + seed as i64 * 1_000_000_000_000;
    Environment {
        randomness: Arc::new(SeededRandomness::new(seed)),
        clock: Arc::new(TickingClock(AtomicI64::new(start_ns))),
        ..Environment::system()
    }
}

pub fn memory_plan() -> MemoryPlan {
    MemoryPlan::new(96 * limits::MIB).unwrap()
}

pub fn init_options(suite: Suite) -> InitOptions {
    InitOptions {
        suite,
        kdf_cost: KdfCost { memory_kib: 8, passes: 1, lanes: 1 },
        compression: Compression::Zstd(1),
        container_size_bytes: 512 * limits::KIB,
        ..InitOptions::standard().unwrap().with_chunks_of(CHUNK_BYTES).unwrap()
    }
}

pub fn create_on(store: Arc<dyn Store>, suite: Suite) -> Arc<Repository> {
    let options = init_options(suite);
    let password = Some(PASSWORD);
    Repository::create(store, &options, password, environment(1), memory_plan())
        .map(Arc::new)
        .unwrap()
}

/// A new encrypted store that records its changes.
pub fn create() -> (MemoryStore, Arc<Repository>) {
    let memory = MemoryStore::recording();
    let repository = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    (memory, repository)
}

pub fn open_on(store: Arc<dyn Store>, seed: u64) -> Result<Arc<Repository>> {
    open_in(store, environment(seed), memory_plan())
}

pub fn open_in(
    store: Arc<dyn Store>,
    environment: Environment,
    memory: MemoryPlan,
) -> Result<Arc<Repository>> {
    let password = || Ok(Password::new(PASSWORD.to_vec()));
    Repository::open(store, password, environment, memory).map(Arc::new)
}

/// The same store as another process sees it.
pub fn reopen(memory: &MemoryStore, seed: u64) -> Arc<Repository> {
    open_on(Arc::new(memory.clone()), seed).unwrap()
}

/// A chunk store for a session, with everything avoided that it must avoid.
pub fn chunk_store(repository: &Arc<Repository>, session: &WriterSession) -> Arc<ChunkStore> {
    let mut avoid = session.avoid().clone();
    avoid.extend(quarantine::load_ids(repository).unwrap());
    chunk_store_of(repository, avoid, Some(session.id()), DeltaChoice::Off)
}

pub fn chunk_store_avoiding(
    repository: &Arc<Repository>,
    avoid: BTreeSet<ContainerId>,
) -> Arc<ChunkStore> {
    chunk_store_of(repository, avoid, None, DeltaChoice::Off)
}

/// A chunk store that stores what is like something as a difference.
pub fn chunk_store_with_deltas(repository: &Arc<Repository>) -> Arc<ChunkStore> {
    chunk_store_of(repository, BTreeSet::new(), None, DeltaChoice::default())
}

fn chunk_store_of(
    repository: &Arc<Repository>,
    avoid: BTreeSet<ContainerId>,
    session: Option<SessionId>,
    delta: DeltaChoice,
) -> Arc<ChunkStore> {
    let options = ChunkStoreOptions { delta, session, ..chunk_store_options(repository) };
    let index = FingerprintIndex::open(repository).unwrap();
    ChunkStore::open(repository, std::sync::Arc::new(index), avoid, options).unwrap()
}

/// A chunk store without surprises: every look-up at once, nothing stored again.
pub fn chunk_store_options(repository: &Repository) -> ChunkStoreOptions {
    ChunkStoreOptions {
        compression: repository.compression().unwrap(),
        threads: 1,
        filter: Default::default(),
        lookup: LookupStrategy::Eager(FilterOrder::CacheFirst),
        index_kind: None,
        rewrite: onefold_engine::chunk_store::RewriteOptions::none(),
        delta: DeltaChoice::Off,
        dry_run: false,
        session: None,
    }
}

/// What containers are made with that hold what they are told to.
pub fn forging(repository: &Arc<Repository>) -> Arc<ContainerContext> {
    let environment = repository.environment();
    let fingerprinter = repository.fingerprinter();
    let pool = FramePool::start(1, Compression::None, fingerprinter, None).unwrap();
    Arc::new(ContainerContext {
        frames_in_flight_max: 4,
        vault: Arc::clone(repository.vault()),
        randomness: Arc::clone(&environment.randomness),
        clock: Arc::clone(&environment.clock),
        pool: Arc::new(pool),
        log: Arc::new(ContainerLog::start_with(repository.shared_store(), 1, 1, |_| {}).unwrap()),
        target_bytes: 1 << 20,
        frame_bytes: 1 << 20,
        session: None,
        repacked_level: 0,
        named: Mutex::default(),
        deltas: DeltaCounters::default(),
    })
}

/// Hands one chunk to a stream.
pub fn put_chunk(stream: &mut StreamWriter, fingerprint: Fingerprint, bytes: &[u8]) {
    let batch = ChunkBatch {
        buffer: bytes.to_vec(),
        ranges: std::iter::once(0..bytes.len()).collect(),
        fingerprints: vec![fingerprint],
        ..ChunkBatch::default()
    };
    stream.put_data(batch, &mut |_| {}).unwrap();
}

/// Stores one file in chunks of equal size.
pub fn put_file(
    repository: &Repository,
    stream: &mut StreamWriter,
    bytes: &[u8],
) -> Option<Reference> {
    let mut map = FileMapBuilder::default();
    for chunk in bytes.chunks(CHUNK_BYTES) {
        let fingerprint = repository.fingerprinter().data(chunk);
        put_chunk(stream, fingerprint, chunk);
        let extent = Extent { fingerprint, length: chunk.len() as u64 };
        map.push(extent, stream).unwrap();
    }
    map.finish(stream).unwrap()
}

pub fn entry(name: &str, kind: EntryKind) -> Entry {
    Entry {
        name: name.into(),
        kind,
        mode: 0o644,
        links: 1,
        modified: Time { seconds: 1_600_000_000, nanoseconds: 5 },
        ..Entry::default()
    }
}

/// Stores a directory with all that is below it. Items must be sorted by name.
pub fn put_directory(
    repository: &Repository,
    stream: &mut StreamWriter,
    items: &[Item],
) -> Directory {
    let mut builder = DirectoryBuilder::default();
    for item in items {
        let entry = match item {
            Item::File(name, bytes) => Entry {
                content: put_file(repository, stream, bytes),
                size: bytes.len() as u64,
                ..entry(name, EntryKind::File)
            },
            Item::Directory(name, items) => {
                let directory = put_directory(repository, stream, items);
                Entry {
                    content: Some(directory.reference),
                    totals: directory.totals,
                    ..entry(name, EntryKind::Directory)
                }
            }
        };
        builder.push(entry, &NoNames, stream).unwrap();
    }
    builder.finish(&NoNames, stream).unwrap()
}

/// Stores a tree in a session of its own; it is durable and indexed afterwards.
pub fn put_tree(
    repository: &Arc<Repository>,
    session: &WriterSession,
    items: &[Item],
) -> Directory {
    let store = chunk_store(repository, session);
    let mut stream = store.stream().unwrap();
    let root = put_directory(repository, &mut stream, items);
    stream.finish().unwrap();
    store.finish().unwrap();
    root
}

/// Stores whatever `build` puts into a stream; it is durable and indexed afterwards.
pub fn put_with<T>(repository: &Arc<Repository>, build: impl FnOnce(&mut StreamWriter) -> T) -> T {
    let store = chunk_store_avoiding(repository, BTreeSet::new());
    let mut stream = store.stream().unwrap();
    let built = build(&mut stream);
    stream.finish().unwrap();
    store.finish().unwrap();
    built
}

pub fn record_of(repository: &Repository, root: Reference) -> SnapshotRecord {
    let now_ns = repository.environment().clock.now_ns();
    SnapshotRecord {
        version: RECORD_VERSION,
        kind: SnapshotKind::Backup,
        root,
        started_ns: now_ns,
        finished_ns: now_ns,
        host: "host".into(),
        user: "user".into(),
        paths: vec!["/source".into()],
        base: None,
        listing: Listing::Partial,
        tags: vec!["tag".into()],
        description: String::new(),
        hold: false,
        parent: None,
        predecessors: SnapshotList::load(repository).unwrap().heads,
        program: "test".into(),
        summary: Summary::default(),
        placement: None,
        doubts: Vec::new(),
        strays: 0,
        share: None,
        original: None,
    }
}

/// Commits a root as a snapshot.
pub fn commit(repository: &Arc<Repository>, session: WriterSession, root: Reference) -> Commit {
    let record = record_of(repository, root);
    session.commit(record).unwrap()
}

pub fn saved(commit: Commit) -> SessionId {
    match commit {
        Commit::Saved(id) => id,
        Commit::Fenced => panic!("the session was fenced"),
    }
}

/// Stores a tree and commits it.
pub fn save(repository: &Arc<Repository>, items: &[Item]) -> SessionId {
    let session = WriterSession::begin(repository).unwrap();
    let root = put_tree(repository, &session, items);
    saved(commit(repository, session, root.reference))
}

/// Commits a root that was stored by hand.
pub fn save_root(repository: &Arc<Repository>, root: Reference) -> SessionId {
    let session = WriterSession::begin(repository).unwrap();
    saved(commit(repository, session, root))
}

pub fn root_of(repository: &Repository, id: SessionId) -> Reference {
    let list = SnapshotList::load(repository).unwrap();
    list.get(id).unwrap().record.root
}

/// Adds to live chunks what they are made of: all bases of all their instances, and the bases of
/// those.
pub fn add_bases(repository: &Arc<Repository>, live: &mut BTreeSet<Fingerprint>) {
    let sections: Vec<_> = containers(repository)
        .into_iter()
        .map(|id| onefold_engine::container::reader::read_section(repository, id).unwrap())
        .collect();
    loop {
        let before = live.len();
        for section in &sections {
            for delta in &section.deltas {
                if live.contains(&section.chunks[delta.chunk as usize].fingerprint) {
                    live.extend(delta.bases.iter().map(|base| base.fingerprint));
                }
            }
        }
        if live.len() == before {
            return;
        }
    }
}

pub fn job() -> Job {
    Job::unattended().0
}

pub fn check_with(repository: &Arc<Repository>, read_data: ReadData) -> CheckReport {
    let options = CheckOptions { read_data, threads: 2, record_quarantine: true };
    check::check(repository, options, &job()).unwrap()
}

pub fn check_all(repository: &Arc<Repository>) -> CheckReport {
    check_with(repository, ReadData::All)
}

pub fn key(name: impl Into<String>) -> Key {
    Key::new(name).unwrap()
}

/// The names of all objects below a top-level name.
pub fn names(store: &dyn Blobs, top: &str) -> Vec<String> {
    let mut names = Vec::new();
    store
        .list_names(top, &mut |name| {
            names.push(name.to_owned());
            Ok(())
        })
        .unwrap();
    names
}

pub fn containers(repository: &Repository) -> BTreeSet<ContainerId> {
    let names = onefold_engine::container::list::container_names(repository).unwrap();
    names.into_iter().collect()
}
