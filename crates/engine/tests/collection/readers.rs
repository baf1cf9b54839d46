//! Readers beside collections: each goes on over any number of epochs (protocol, R1).
//!
//! In the store of these tests every epoch moves every chunk of the snapshot that is read: each
//! container holds some of a snapshot that is forgotten just before. Collections run in a process
//! of their own, between any two operations of the reader.

use crate::basics::Saved;
use crate::steps::*;
use crate::world::{Content, collect_options};
use onefold_crypto::Suite;
use onefold_engine::check::ReadData;
use onefold_engine::chunks::ChunkReader;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::patterns::Patterns;
use onefold_engine::restore::{self, Delete, DumpOptions, Overwrite, RestoreOptions, Without};
use onefold_engine::tree::TreeReader;
use onefold_engine::{InitOptions, Job, MemoryPlan, Repository, retention};
use onefold_format::layout;
use onefold_format::node::{Entry, EntryKind, Reference, Totals};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_store::layers::{Counting, Fault, Faulty, Operation};
use onefold_store::{Blobs, LocalStore, MemoryStore, Store};
use onefold_types::SessionId;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Snapshots that are forgotten one after the other.
const EPOCHS: usize = 10;
/// Directories of the snapshot that is read, and the bytes of the only file in each.
const PARTS: usize = 8;
const PART_BYTES: usize = 7 * CHUNK_BYTES;

/// Where a store is.
trait Place: Send + Sync + Sized + 'static {
    type Kind: Store + 'static;
    fn new() -> Self;
    fn create(&self) -> Self::Kind;
    /// As a process of its own sees it.
    fn open(&self) -> Self::Kind;
    /// The same store somewhere else.
    fn copy(&self) -> Self;
}

impl Place for MemoryStore {
    type Kind = MemoryStore;
    fn new() -> Self {
        MemoryStore::default()
    }
    fn create(&self) -> MemoryStore {
        self.clone()
    }
    fn open(&self) -> MemoryStore {
        self.clone()
    }
    fn copy(&self) -> Self {
        self.clone_state()
    }
}

impl Place for tempfile::TempDir {
    type Kind = LocalStore;
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        }
    }
    fn create(&self) -> LocalStore {
        LocalStore::create(self.path().join("store")).unwrap()
    }
    fn open(&self) -> LocalStore {
        LocalStore::open(self.path().join("store")).unwrap()
    }
    fn copy(&self) -> Self {
        let copy = <Self as Place>::new();
        copy_directory(&self.path().join("store"), &copy.path().join("store"));
        copy
    }
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_directory(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Names and clocks of all processes of these tests differ.
fn seed() -> u64 {
    static SEED: AtomicU64 = AtomicU64::new(1);
    SEED.fetch_add(1, Ordering::Relaxed)
}

/// Little memory, so that plans are short and a collection takes several rounds.
fn small_memory() -> MemoryPlan {
    MemoryPlan { restore_window_chunks: 24, copied_chunks_max: 40, ..memory_plan() }
}

fn open_small(store: Arc<dyn Store>) -> Arc<Repository> {
    let repository =
        Repository::open(store, || panic!("no key"), environment(seed()), small_memory());
    Arc::new(repository.unwrap())
}

/// A store, the snapshot that is read, and those that are forgotten.
struct Moving<P: Place> {
    place: P,
    root: Reference,
    content: Content,
    others: Vec<SessionId>,
}

fn leak(name: String) -> &'static str {
    name.leak()
}

impl<P: Place> Moving<P> {
    fn new() -> Self {
        let place = P::new();
        let options = InitOptions { container_size_bytes: 128 * 1024, ..init_options(Suite::None) };
        let store = Arc::new(place.create());
        let repository =
            Repository::create(store, &options, None, environment(seed()), memory_plan());
        let repository = Arc::new(repository.unwrap());
        let (mut kept, mut all, mut content) = (Vec::new(), Vec::new(), Content::new());
        let mut others: Vec<Vec<Item>> = vec![Vec::new(); EPOCHS];
        let mut whole = Vec::new();
        for part in 0..PARTS {
            let bytes = random_bytes(part as u64, PART_BYTES);
            let name = leak(format!("{part:02}"));
            content.insert(name.as_bytes().to_vec(), bytes.clone());
            whole.extend_from_slice(&bytes);
            let item = directory(leak(format!("{part:02}")), [Item::File(name, bytes)]);
            kept.push(item.clone());
            all.push(item);
            for (epoch, other) in others.iter_mut().enumerate() {
                let seed = 1000 + (part * EPOCHS + epoch) as u64;
                let item = directory(
                    leak(format!("{part:02}-{epoch:02}")),
                    [file("x", seed, CHUNK_BYTES)],
                );
                other.push(item.clone());
                all.push(item);
            }
        }
        content.insert(b"whole".to_vec(), whole.clone());
        kept.push(Item::File("whole", whole));
        // Together at first, so that containers hold something of every snapshot.
        let together = save(&repository, &all);
        let id = save(&repository, &kept);
        let root = root_of(&repository, id);
        let others = others.iter().map(|items| save(&repository, items)).collect();
        retention::forget_final(&repository, &[together], "me").unwrap();
        Self { place, root, content, others }
    }

    /// The same store once more; each reader gets its own.
    fn again(&self) -> Self {
        let (root, content) = (self.root, self.content.clone());
        Self { place: self.place.copy(), root, content, others: self.others.clone() }
    }

    /// Forgets snapshots and collects so often: each time all chunks move, in several rounds.
    fn epochs(&self, next: &Mutex<std::vec::IntoIter<SessionId>>, count: usize) {
        for _ in 0..count {
            let Some(id) = next.lock().unwrap().next() else { return };
            let repository = open_small(Arc::new(self.place.open()));
            retention::forget_final(&repository, &[id], "me").unwrap();
            let options = CollectOptions { ordering_snapshots_max: 0, ..collect_options() };
            let report = collect(&repository, &options, &job()).unwrap();
            assert!(report.epochs >= 2 && report.copied_chunks > 0, "{report:?}");
        }
    }
}

/// So many epochs at once, before every operation of the reader with a number that this divides.
#[derive(Clone, Copy, Debug)]
struct Beside {
    epochs: usize,
    operations: u64,
}

/// Reads a copy of the store beside collections; returns how many snapshots were left to forget.
fn beside<P: Place>(
    moving: &Moving<P>,
    beside: Beside,
    read: impl FnOnce(&Arc<Repository>, &Moving<P>),
) -> usize {
    let own = Arc::new(moving.again());
    let next = Arc::new(Mutex::new(own.others.clone().into_iter()));
    let collecting = (Arc::clone(&own), Arc::clone(&next));
    let store = Faulty::scripted(own.place.open(), move |call| {
        if (call.number + 1).is_multiple_of(beside.operations) {
            collecting.0.epochs(&collecting.1, beside.epochs);
        }
        Fault::None
    });
    store.arm(false);
    let store = Arc::new(store);
    let repository = open_small(Arc::clone(&store) as Arc<dyn Store>);
    store.arm(true);
    read(&repository, &own);
    drop(repository);
    let left = next.lock().unwrap();
    left.len()
}

/// Two, three and ten epochs at once, and one again and again.
const TIMES: [Beside; 5] = [
    Beside { epochs: 2, operations: 7 },
    Beside { epochs: 3, operations: 11 },
    Beside { epochs: EPOCHS, operations: 13 },
    Beside { epochs: 1, operations: 3 },
    Beside { epochs: 1, operations: 5 },
];

fn root_entry(root: Reference) -> Entry {
    let totals = Totals::default();
    Entry {
        kind: EntryKind::Directory,
        content: Some(root),
        mode: 0o755,
        totals,
        ..Entry::default()
    }
}

/// All files below a directory, read chunk by chunk.
fn read_all(reader: &TreeReader, directory: Reference, content: &mut Content) {
    for entry in reader.entries(directory).unwrap() {
        let reference = entry.content.unwrap();
        if entry.kind == EntryKind::Directory {
            read_all(reader, reference, content);
            continue;
        }
        let mut extents = Vec::new();
        reader
            .extents(reference, entry.size, &mut |extent| {
                extents.push(extent);
                Ok(())
            })
            .unwrap();
        let mut bytes = Vec::new();
        for extent in extents {
            bytes.extend_from_slice(&reader.chunks().read(&extent.fingerprint).unwrap());
        }
        content.insert(entry.name, bytes);
    }
}

fn trees_survive<P: Place>() {
    let moving = Moving::<P>::new();
    for times in TIMES {
        let left = beside(&moving, times, |repository, moving| {
            let chunks = ChunkReader::apart(repository).unwrap();
            let mut content = Content::new();
            read_all(&TreeReader::new(chunks), moving.root, &mut content);
            assert!(content == moving.content, "{times:?}");
        });
        assert!(left + 2 <= EPOCHS, "{times:?}: only {} epochs", EPOCHS - left);
    }
}

#[test]
fn r69_a_reader_of_a_local_store_survives_any_number_of_epochs() {
    trees_survive::<tempfile::TempDir>();
}

#[test]
fn r69_a_reader_of_a_store_in_memory_survives_any_number_of_epochs() {
    trees_survive::<MemoryStore>();
}

fn dumps_survive<P: Place>() {
    let moving = Moving::<P>::new();
    let engines = RestoreEngine::with_memory(4 * CHUNK_BYTES as u64);
    let sequential = engines.into_iter().filter(RestoreEngine::is_sequential);
    for (number, engine) in sequential.enumerate() {
        let times = TIMES[number % TIMES.len()];
        beside(&moving, times, |repository, moving| {
            let reader = TreeReader::open(repository).unwrap();
            let entry = reader.resolve(moving.root, b"/whole").unwrap();
            let options = DumpOptions { engine: Some(engine), ..DumpOptions::default() };
            let mut bytes = Vec::new();
            restore::dump(repository, &entry, &options, &mut bytes, &job()).unwrap();
            assert!(bytes == moving.content[&b"whole"[..]], "{engine:?} {times:?}");
        });
    }
}

#[test]
fn r69_a_dump_survives_any_number_of_epochs_with_every_engine() {
    dumps_survive::<tempfile::TempDir>();
    dumps_survive::<MemoryStore>();
}

fn restores_survive<P: Place>() {
    let moving = Moving::<P>::new();
    let engines = RestoreEngine::with_memory(4 * CHUNK_BYTES as u64).into_iter().rev();
    for (number, engine) in engines.enumerate() {
        let times = TIMES[number % TIMES.len()];
        beside(&moving, times, |repository, moving| {
            let target = tempfile::tempdir().unwrap();
            let options = RestoreOptions {
                target: target.path().to_path_buf(),
                overwrite: Overwrite::IfChanged,
                in_place: false,
                saved_within_ns: 0..0,
                delete: Delete::Nothing,
                sparse: false,
                verify: true,
                dry_run: false,
                include: Patterns::none(),
                exclude: Patterns::none(),
                threads: 1 + number % 2,
                engine,
                placed: None,
                sources: None,
                follows_out: false,
                reach: None,
                without: Without::default(),
                spared: None,
            };
            let (job, problems) = Job::unattended();
            let report =
                restore::restore(repository, &root_entry(moving.root), &options, &job).unwrap();
            let problems = problems.0.lock().unwrap();
            assert!(problems.is_empty(), "{engine:?} {times:?}: {problems:?}, {report:?}");
            for (name, bytes) in &moving.content {
                let name = std::str::from_utf8(name).unwrap();
                let path = match name {
                    "whole" => target.path().join(name),
                    _ => target.path().join(name).join(name),
                };
                assert!(std::fs::read(path).unwrap() == *bytes, "{name}: {engine:?} {times:?}");
            }
        });
    }
}

#[test]
fn r69_a_restore_survives_any_number_of_epochs_with_every_engine() {
    restores_survive::<tempfile::TempDir>();
    restores_survive::<MemoryStore>();
}

#[test]
fn r69_a_reader_of_a_store_that_may_not_be_written_survives_epochs() {
    let moving = Moving::<tempfile::TempDir>::new();
    let next = Mutex::new(moving.others.clone().into_iter());
    let store = LocalStore::open_read_only(moving.place.path().join("store")).unwrap();
    let repository = open_small(Arc::new(store));
    let reader = TreeReader::new(ChunkReader::apart(&repository).unwrap());
    for name in moving.content.keys().filter(|name| name.as_slice() != b"whole") {
        moving.epochs(&next, 1);
        let path = [b"/".as_slice(), name, b"/", name].concat();
        let entry = reader.resolve(moving.root, &path).unwrap();
        let mut content = Content::new();
        let mut extents = Vec::new();
        let each = &mut |extent| {
            extents.push(extent);
            Ok(())
        };
        reader.extents(entry.content.unwrap(), entry.size, each).unwrap();
        let chunks = reader.chunks();
        let read = |extent: &onefold_format::node::Extent| {
            chunks.read(&extent.fingerprint).unwrap().to_vec()
        };
        let bytes = extents.iter().flat_map(read).collect();
        content.insert(name.clone(), bytes);
        assert!(content[name] == moving.content[name]);
    }
}

#[test]
fn r69_chunks_that_are_really_lost_cost_no_opening_each() {
    let moving = Moving::<MemoryStore>::new();
    let store = Arc::new(Counting::new(moving.place.open()));
    let repository = open_small(Arc::clone(&store) as Arc<dyn Store>);
    let reader = TreeReader::open(&repository).unwrap();
    let whole = reader.resolve(moving.root, b"/whole").unwrap();
    let mut lost = Vec::new();
    let each = &mut |extent: onefold_format::node::Extent| {
        lost.push(extent.fingerprint);
        Ok(())
    };
    reader.extents(whole.content.unwrap(), whole.size, each).unwrap();
    assert_eq!(lost.len(), PARTS * 7);
    let chunks = ChunkReader::open(&repository).unwrap();
    let containers = names(&moving.place, layout::CONTAINERS);
    containers.iter().for_each(|name| moving.place.delete(&key(&**name)).unwrap());
    store.take();
    for fingerprint in &lost {
        assert!(chunks.read(fingerprint).unwrap_err().is_lost());
    }
    let counts = store.take();
    let lists = counts.of("index", Operation::ListNames).calls;
    assert!(lists <= 2 * lost.len() as u64 + 2, "{lists} listings of the index");
    // Each run is compared once with the containers that it covers.
    let runs = names(&moving.place, layout::INDEX).len() as u64;
    let opened = counts.of("index", Operation::GetTail).calls;
    assert!(opened <= runs, "{runs} runs were opened {opened} times");
    let listed = counts.of("containers", Operation::ListNames).calls;
    assert_eq!(listed, 1, "containers were listed again and again");
    let tails = counts.of("containers", Operation::GetTail).calls;
    assert!(tails <= 30 + containers.len() as u64, "{tails} containers were asked for");
}

#[test]
fn r1_a_check_beside_forgetting_and_collecting_sees_no_damage() {
    let mut at = 0;
    loop {
        let mut saved = Saved::new(Suite::Aes256Gcm);
        let dead = saved.save(&[("a", 1, 60_000), ("b", 2, 60_000)]);
        saved.save(&[("b", 2, 60_000), ("c", 3, 60_000)]);
        let other = reopen(&saved.memory, 5);
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let beside = Faulty::scripted(saved.memory.clone(), move |_| {
            if counter.fetch_add(1, Ordering::SeqCst) == at {
                retention::forget_final(&other, &[dead], "me").unwrap();
                collect(&other, &collect_options(), &job()).unwrap();
            }
            Fault::None
        });
        let checking = open_on(Arc::new(beside), 6).unwrap();
        let read_data = if at % 2 == 0 { ReadData::None } else { ReadData::All };
        let report = check_with(&checking, read_data);
        let damage = (&report.damaged_containers, &report.damaged_paths, &report.problems);
        assert!(report.is_clean(), "before call {at}: {damage:?}");
        assert!(names(&saved.memory, layout::DAMAGE).is_empty(), "before call {at}");
        if calls.load(Ordering::SeqCst) <= at {
            assert!(at > 40, "{at} calls");
            return;
        }
        at += 1;
    }
}
