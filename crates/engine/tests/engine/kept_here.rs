//! Stores of which a machine keeps what was read and written: what a session makes of that, and
//! what of it says nothing of what is there now (protocol, W5).

use crate::steps::{
    backup_options, check_all, create_on, job, key, names, open_on, random_bytes, reopen,
};
use onefold_crypto::Suite;
use onefold_engine::Repository;
use onefold_engine::chunk_store::sections_ahead::SectionsAhead;
use onefold_engine::chunks::ChunkReader;
use onefold_engine::container::reader;
use onefold_engine::container::seen::SeenContainers;
use onefold_engine::index::{ChunkIndex, FingerprintIndex};
use onefold_engine::ingest::{BackupOptions, BackupReport, ParentChoice, Source, backup};
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_store::layers::{Counting, Operation};
use onefold_store::{Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::{ContainerId, Result};
use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::{Arc, Mutex};

/// A store, and what one machine keeps of it: all that is put from there, if it does.
struct Machine {
    store: Arc<Counting<MemoryStore>>,
    kept: MemoryStore,
    keeps_written: bool,
    read_back: Mutex<BTreeSet<String>>,
}

impl Machine {
    /// One that has kept all that there is.
    fn of(memory: &MemoryStore) -> Self {
        let store = Arc::new(Counting::new(memory.clone()));
        let kept = memory.clone_state();
        Self { store, kept, keeps_written: true, read_back: Mutex::default() }
    }

    fn has(&self, key: &Key) -> bool {
        self.kept.size(key).is_ok()
    }
}

impl Blobs for Machine {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.store.put(key, bytes)?;
        if self.keeps_written { self.kept.put(key, bytes) } else { Ok(()) }
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.store.get(key)
    }
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.store.get_range(key, offset, buffer)
    }
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.store.get_tail(key, length_bytes)
    }
    fn peek_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.glance_range(key, offset, buffer)
    }
    fn glance_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match self.has(key) {
            true => self.kept.get_range(key, offset, buffer),
            false => self.store.get_range(key, offset, buffer),
        }
    }
    fn peek_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        match self.has(key) {
            true => self.kept.get_tail(key, length_bytes),
            false => self.store.get_tail(key, length_bytes),
        }
    }
    fn size(&self, key: &Key) -> Result<u64> {
        self.store.size(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.store.list(prefix, each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_names(prefix, each)
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.store.delete(key)
    }
    fn was_read_back(&self, key: &Key) {
        self.read_back.lock().unwrap().insert(key.as_str().to_owned());
    }
    fn puts_at_once(&self) -> usize {
        4
    }
}

impl Decisions for Machine {
    onefold_store::pass_decisions_on!(this => this.store);
}

impl Store for Machine {
    fn describe(&self) -> String {
        "elsewhere".to_owned()
    }
}

fn save(repository: &Arc<Repository>, bytes: &[u8]) -> BackupReport {
    let source = Source::Stream {
        name: b"stream".to_vec(),
        reader: Box::new(Cursor::new(bytes.to_vec())),
        finish: Box::new(|| Ok(())),
    };
    let delta = Some(DeltaChoice::default());
    let options = BackupOptions { parent: ParentChoice::None, delta, ..backup_options() };
    backup(repository, source, &options, &job()).unwrap()
}

/// A store with some two dozen containers of one stream, and the stream with every sixth of its
/// pieces as it was and the others a little different.
fn filled() -> (MemoryStore, Vec<u8>) {
    let bytes = random_bytes(1, 8_000_000);
    let memory = MemoryStore::new();
    save(&create_on(Arc::new(memory.clone()), Suite::Aes256Gcm), &bytes);
    let mut edited = bytes;
    for (number, piece) in edited.chunks_mut(8192).enumerate() {
        piece[0] ^= u8::from(number % 6 != 0);
    }
    (memory, edited)
}

/// Requests for parts of containers that were made since the last time.
fn asked_of_containers(machine: &Machine) -> u64 {
    let parts = [Operation::Get, Operation::GetRange, Operation::GetTail];
    let all = machine.store.take();
    let of_containers =
        all.iter().filter(|(top, operation, _)| parts.contains(operation) && *top == "containers");
    of_containers.map(|(_, _, count)| count.calls).sum()
}

#[test]
fn a_backup_asks_for_no_section_and_no_base_that_is_kept() {
    let (memory, edited) = filled();
    let asked = |machine: Machine| {
        let machine = Arc::new(machine);
        let report = save(&open_on(Arc::clone(&machine) as Arc<dyn Store>, 7).unwrap(), &edited);
        assert!(report.deltas.chunks > 300, "{:?}", report.deltas);
        assert!(report.summary.chunks_new < report.summary.chunks, "{:?}", report.summary);
        asked_of_containers(&machine)
    };
    let all = Machine::of(&memory.clone_state());
    let machine = Machine::of(&memory.clone_state());
    let nothing = Machine { kept: MemoryStore::new(), keeps_written: false, ..machine };
    let (with, without) = (asked(all), asked(nothing));
    // How long the device takes is measured where it is, by some requests.
    assert!(with <= 20, "{with} requests, {without} without");
    assert!(without > with + 50, "{with} requests, {without} without");
}

#[test]
fn what_is_kept_of_a_container_that_is_gone_is_stored_again() {
    let (memory, edited) = filled();
    let machine = Arc::new(Machine::of(&memory));
    let gone: Vec<String> = names(&memory, layout::CONTAINERS).into_iter().step_by(2).collect();
    gone.iter().for_each(|name| memory.delete(&key(name.as_str())).unwrap());
    let report = save(&open_on(Arc::clone(&machine) as Arc<dyn Store>, 7).unwrap(), &edited);
    assert!(report.summary.chunks_new > 0);
    let id = report.snapshot.unwrap();
    let verdicts = check_all(&reopen(&memory, 9)).verdicts;
    assert!(verdicts.iter().any(|one| one.snapshot != id && one.damaged_paths > 0));
    assert!(verdicts.iter().any(|one| one.snapshot == id && one.damaged_paths == 0));
}

#[test]
fn a_section_counts_if_its_container_was_seen_or_is_asked_for_now() {
    let (memory, _) = filled();
    let container: ContainerId = names(&memory, layout::CONTAINERS)
        .iter()
        .map(|name| layout::last_component(name).parse().unwrap())
        .max()
        .unwrap();
    let machine = Arc::new(Machine::of(&memory));
    let repository = open_on(Arc::clone(&machine) as Arc<dyn Store>, 7).unwrap();
    let index: Arc<dyn ChunkIndex> = Arc::new(FingerprintIndex::open(&repository).unwrap());
    let section = reader::read_section(&repository, container).unwrap();
    let chunk = section.chunks[0].fingerprint;
    let counts = |seen: &[ContainerId]| {
        let listed = SeenContainers::of(&*machine);
        listed.note_listed(&seen.into());
        let seen = Arc::new(listed);
        let of_session = ChunkReader::of_session(&repository, &index, Arc::clone(&seen));
        let is_base = of_session.locate_in(container, &chunk).unwrap().is_some();
        let mut ahead = SectionsAhead::of(&seen);
        [is_base, ahead.read(&repository, container, &|_| true).is_ok()]
    };
    let another = ContainerId([0; 16]);
    machine.store.take();
    assert_eq!((counts(&[container]), asked_of_containers(&machine)), ([true; 2], 0));
    assert_eq!((counts(&[another]), asked_of_containers(&machine)), ([true; 2], 2));
    memory.delete(&key(layout::container(container))).unwrap();
    assert_eq!(counts(&[another]), [false; 2], "it is kept here, and gone");
    assert_eq!(counts(&[]), [false; 2]);
}

/// Whatever counts once it was read back is read back out of the store, all of it.
#[test]
fn what_was_written_is_read_back_out_of_the_store() {
    let (memory, edited) = filled();
    let machine = Arc::new(Machine::of(&memory));
    let before: BTreeSet<String> =
        ["index", "containers"].iter().flat_map(|top| names(&memory, top)).collect();
    machine.store.take();
    save(&open_on(Arc::clone(&machine) as Arc<dyn Store>, 7).unwrap(), &edited);
    let counted = machine.store.take();
    let read = |top: &str, operations: &[Operation]| {
        let of_top = counted
            .iter()
            .filter(|(name, operation, _)| *name == top && operations.contains(operation));
        of_top.fold((0, 0), |(calls, bytes), (_, _, count)| {
            (calls + count.calls, bytes + count.bytes)
        })
    };
    let written = |top: &str| {
        let new = names(&memory, top).into_iter().filter(|name| !before.contains(name));
        new.map(|name| memory.size(&key(name)).unwrap()).collect::<Vec<_>>()
    };
    let (runs, containers) = (written("index"), written("containers"));
    assert!(runs.len() == 1 && containers.len() > 2, "{runs:?} {containers:?}");
    // Its head is a few bytes.
    let (_, of_run) = read("index", &[Operation::GetRange, Operation::GetTail]);
    assert!(of_run + 64 >= runs[0], "{of_run} of {runs:?}");
    // Of a container its section.
    let (tails, _) = read("containers", &[Operation::GetTail]);
    assert_eq!(tails, containers.len() as u64);
    let new: BTreeSet<String> = ["index", "containers"]
        .iter()
        .flat_map(|top| names(&memory, top))
        .filter(|name| !before.contains(name))
        .collect();
    assert_eq!(*machine.read_back.lock().unwrap(), new);
}
