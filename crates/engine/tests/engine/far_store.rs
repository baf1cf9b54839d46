//! Stores in which each request takes long: what a backup asks for at once, and what is asked for
//! before it is wanted.

use crate::steps::{
    backup_options, create_on, environment, init_options, job, key, memory_plan, names, open_in,
    open_on, random_bytes, reopen,
};
use onefold_crypto::{KdfCost, Suite};
use onefold_engine::check::{CheckOptions, ReadData, check};
use onefold_engine::container::open::{
    FRAMES_WAITING_MAX, WAITING_TARGET_MAX_BYTES, frames_in_flight_max,
};
use onefold_engine::container::reader;
use onefold_engine::device::{self, PROBING_MAX};
use onefold_engine::environment::READERS;
use onefold_engine::ingest::{BackupOptions, BackupReport, ParentChoice, Source, backup};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::repository::{ASKING_MAX, Password};
use onefold_engine::session::SnapshotList;
use onefold_engine::session::checkpoints::SMALL_READS_ALONE;
use onefold_engine::{InitOptions, MemoryPlan, Repository};
use onefold_format::delta::DeltaChoice;
use onefold_format::index_run::PAGE_STORED_BYTES;
use onefold_format::layout;
use onefold_store::layers::{Call, Fault, Faulty, Operation};
use onefold_store::{Asked, Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::{ContainerId, ErrorKind, Result, limits};
use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// As many sections are asked for at once (`AHEAD_MAX` in the code).
const SECTIONS_AT_ONCE: usize = 8;
/// How long nothing here takes.
const LONG: Duration = Duration::from_secs(20);

/// A store in memory that says it is far away, and gives out names as they were when they were
/// foreseen.
struct Far {
    store: Faulty<MemoryStore>,
    foreseen: Mutex<Option<Vec<String>>>,
    /// If whoever peeks is given what was damaged when it was kept, the first time: what was given
    /// so, by object, place and length.
    damaged: Option<Mutex<BTreeSet<(Key, u64, usize)>>>,
    distrusted: Mutex<BTreeSet<Key>>,
    /// Whether names of checkpoints were foreseen, and still are, and each time that they were
    /// listed whether they were.
    checkpoints: Mutex<(bool, Vec<bool>)>,
}

impl Far {
    fn new(store: Faulty<MemoryStore>) -> Self {
        Self {
            store,
            foreseen: Mutex::default(),
            damaged: None,
            distrusted: Mutex::default(),
            checkpoints: Mutex::default(),
        }
    }

    fn damage(&self, key: &Key, offset: u64, bytes: &mut [u8]) {
        let Some(damaged) = &self.damaged else { return };
        if damaged.lock().unwrap().insert((key.clone(), offset, bytes.len())) {
            bytes.iter_mut().step_by(100).for_each(|byte| *byte ^= 1);
        }
    }
}

impl Blobs for Far {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.store.put(key, bytes)
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
    fn size(&self, key: &Key) -> Result<u64> {
        self.store.size(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        if prefix == layout::CHECKPOINTS {
            let mut checkpoints = self.checkpoints.lock().unwrap();
            let is_foreseen = checkpoints.0;
            checkpoints.1.push(is_foreseen);
        }
        self.store.list(prefix, each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let foreseen = self.foreseen.lock().unwrap().take_if(|_| prefix == layout::KEYS);
        match foreseen {
            Some(names) => names.iter().try_for_each(|name| each(name)),
            None => self.store.list_names(prefix, each),
        }
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.store.delete(key)
    }
    fn peek_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.store.get_range(key, offset, buffer)?;
        self.damage(key, offset, buffer);
        Ok(())
    }
    fn peek_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let (size, mut tail) = self.store.get_tail(key, length_bytes)?;
        self.damage(key, u64::MAX, &mut tail);
        Ok((size, tail))
    }
    fn distrust(&self, key: &Key) -> bool {
        self.distrusted.lock().unwrap().insert(key.clone());
        self.damaged.is_some()
    }
    fn puts_at_once(&self) -> usize {
        4
    }
    fn foresee(&self, next: Vec<Asked>) -> u64 {
        if next == [Asked::Names(layout::CHECKPOINTS.to_owned())] {
            self.checkpoints.lock().unwrap().0 = true;
            return 2;
        }
        if next != [Asked::Names(layout::KEYS.to_owned())] {
            return 0;
        }
        *self.foreseen.lock().unwrap() = Some(names(self.store.inner(), layout::KEYS));
        1
    }
    fn forget_foreseen(&self, number: u64) {
        match number {
            2 => self.checkpoints.lock().unwrap().0 = false,
            _ => *self.foreseen.lock().unwrap() = None,
        }
    }
}

impl Decisions for Far {
    onefold_store::pass_decisions_on!(this => this.store);
}

impl Store for Far {
    fn describe(&self) -> String {
        "far away".to_owned()
    }
}

fn is_section(call: &Call<'_>) -> bool {
    call.operation == Operation::GetTail && call.name.starts_with("containers/")
}

/// A store with some two dozen containers of one stream.
fn filled(bytes: &[u8]) -> MemoryStore {
    let memory = MemoryStore::new();
    let repository = create_on(Arc::new(memory.clone()), Suite::None);
    assert!(save(&repository, bytes).summary.chunks_new > 0);
    memory
}

fn save(repository: &Arc<Repository>, bytes: &[u8]) -> BackupReport {
    save_by(repository, bytes, backup_options().lookup)
}

fn save_by(repository: &Arc<Repository>, bytes: &[u8], lookup: LookupChoice) -> BackupReport {
    let source = Source::Stream {
        name: b"stream".to_vec(),
        reader: Box::new(Cursor::new(bytes.to_vec())),
        finish: Box::new(|| Ok(())),
    };
    let options = BackupOptions { parent: ParentChoice::None, lookup, ..backup_options() };
    backup(repository, source, &options, &job()).unwrap()
}

/// Saves the stream again on a far store that does this to each request for a section.
fn saved_again(
    memory: &MemoryStore,
    bytes: &[u8],
    script: impl Fn(&str) -> Fault + Send + Sync + 'static,
) -> BackupReport {
    let script = move |call: &Call<'_>| match is_section(call) {
        true => script(call.name),
        false => Fault::None,
    };
    let far = Far::new(Faulty::scripted(memory.clone(), script));
    save(&open_on(Arc::new(far), 7).unwrap(), bytes)
}

#[test]
fn sections_of_the_next_containers_are_asked_for_at_once_and_each_once() {
    let bytes = random_bytes(1, 12_000_000);
    let memory = filled(&bytes);
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (counted, names) = (Arc::clone(&most), Arc::clone(&asked));
    let report = saved_again(&memory, &bytes, move |name| {
        names.lock().unwrap().push(name.to_owned());
        counted.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let began = Instant::now();
        while counted.load(Ordering::SeqCst) < SECTIONS_AT_ONCE && began.elapsed() < LONG {
            thread::sleep(Duration::from_millis(1));
        }
        now.fetch_sub(1, Ordering::SeqCst);
        Fault::None
    });
    // The directory that the stream is in has another time.
    assert!(report.summary.chunks_new <= 1, "{:?}", report.summary);
    assert_eq!(most.load(Ordering::SeqCst), SECTIONS_AT_ONCE);
    let mut names = asked.lock().unwrap().clone();
    let all = names.len();
    names.sort();
    names.dedup();
    assert!(names.len() > 2 * SECTIONS_AT_ONCE, "{} containers", names.len());
    assert_eq!(names.len(), all, "a section was asked for twice");
}

#[test]
fn a_section_that_fails_beside_another_one_is_asked_for_when_it_is_wanted() {
    let bytes = random_bytes(1, 12_000_000);
    let memory = filled(&bytes);
    let repository = open_on(Arc::new(memory.clone()), 6).unwrap();
    let holds_data = |name: &String| {
        let id = layout::last_component(name).parse().unwrap();
        let section = reader::read_section(&repository, id).unwrap();
        section.chunks.iter().all(|chunk| !chunk.level.is_node())
    };
    let some: BTreeSet<String> =
        names(&memory, "containers").into_iter().filter(holds_data).step_by(9).collect();
    // Each of some fails when it is asked for first.
    let met = Mutex::new(BTreeSet::new());
    let first_wanted = AtomicUsize::new(0);
    let report = saved_again(&memory, &bytes, move |name| {
        let is_first = first_wanted.fetch_add(1, Ordering::SeqCst) == 0;
        match met.lock().unwrap().insert(name.to_owned()) && !is_first && some.contains(name) {
            true => Fault::Before(ErrorKind::NotFound),
            false => Fault::None,
        }
    });
    // Those that were only read beside others are read again; what is wanted and gone is stored.
    assert!(report.summary.chunks_new < report.summary.chunks / 4, "{:?}", report.summary);
}

/// PROBING_MAX: how long the device takes is asked as often as there is time for it.
#[test]
fn a_device_that_takes_long_is_asked_less_often() {
    let memory = filled(&random_bytes(1, 12_000_000));
    let containers: Vec<ContainerId> = names(&memory, "containers")
        .iter()
        .map(|name| layout::last_component(name).parse().unwrap())
        .collect();
    let probes = |takes: Duration| {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let slow = Faulty::scripted(memory.clone(), move |call| {
            if call.operation == Operation::GetRange {
                counted.fetch_add(1, Ordering::SeqCst);
                thread::sleep(takes);
            }
            Fault::None
        });
        let repository = open_on(Arc::new(Far::new(slow)), 7).unwrap();
        device::measure(&repository, &containers).unwrap();
        count.load(Ordering::SeqCst)
    };
    let moment = Duration::from_millis(5);
    assert_eq!(probes(PROBING_MAX + moment), 1);
    assert_eq!(probes(PROBING_MAX / 2 + moment), 2);
    assert!(probes(Duration::ZERO) > 10);
}

/// ASKING_MAX: whoever was asked for a password for so long may have been given another one.
#[test]
fn keys_that_were_foreseen_before_a_long_question_are_looked_for_again() {
    let memory = MemoryStore::new();
    create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    let cost = KdfCost { memory_kib: 8, passes: 1, lanes: 1 };
    let opened = |seed: u64, takes: Duration, password: &'static [u8]| {
        let asked = || {
            reopen(&memory, seed).add_key(password, cost, "another one").unwrap();
            thread::sleep(takes);
            Ok(Password::new(password.to_vec()))
        };
        let far = Far::new(Faulty::scripted(memory.clone(), |_| Fault::None));
        Repository::open(Arc::new(far), asked, environment(seed + 100), memory_plan()).map(drop)
    };
    // What was foreseen is used, or this test would test nothing.
    assert!(opened(5, Duration::ZERO, b"at once").is_err());
    opened(6, ASKING_MAX, b"later").unwrap();
}

/// Names of checkpoints are asked for while a store is opened, and believed for ASKING_MAX.
#[test]
fn names_of_checkpoints_are_foreseen_when_a_store_is_opened_and_not_for_long() {
    let memory = MemoryStore::new();
    create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    let listed_after = |waits: Duration| {
        let far = Arc::new(Far::new(Faulty::scripted(memory.clone(), |_| Fault::None)));
        let repository = open_on(Arc::clone(&far) as Arc<dyn Store>, 7).unwrap();
        thread::sleep(waits);
        for _ in 0..2 {
            SnapshotList::load(&repository).unwrap();
        }
        let (is_foreseen, listed) = far.checkpoints.lock().unwrap().clone();
        assert!(!is_foreseen, "it was never forgotten");
        listed
    };
    assert_eq!(listed_after(Duration::ZERO), [true, false]);
    assert_eq!(listed_after(ASKING_MAX), [false, false]);
}

/// How many of these requests were under way at the same time when a far store was checked by one
/// thread; each waits a while for others.
fn at_once_in_a_check(
    memory: &MemoryStore,
    concerns: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
) -> usize {
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&most);
    let script = move |call: &Call<'_>| {
        if concerns(call) {
            counted.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(10));
            now.fetch_sub(1, Ordering::SeqCst);
        }
        Fault::None
    };
    let far = Far::new(Faulty::scripted(memory.clone(), script));
    let options = CheckOptions { read_data: ReadData::All, threads: 1, record_quarantine: false };
    let report = check(&open_on(Arc::new(far), 7).unwrap(), options, &job()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    most.load(Ordering::SeqCst)
}

#[test]
fn a_check_reads_sections_of_a_far_store_several_at_once() {
    let memory = filled(&random_bytes(1, 12_000_000));
    assert_eq!(at_once_in_a_check(&memory, is_section), READERS);
}

#[test]
fn a_check_reads_records_several_at_once() {
    let memory = MemoryStore::new();
    let repository = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    for number in 0..3 * SMALL_READS_ALONE as u64 {
        save(&repository, &random_bytes(number, 1000));
    }
    // Only a check reads the second copies, and asks for what the next commands decide.
    let second = |call: &Call<'_>| call.name.starts_with("copies/outcomes/") && !is_list(call);
    assert_eq!(at_once_in_a_check(&memory, second), 3);
    let free = |call: &Call<'_>| call.name.starts_with("copies/tombstones/") && !is_list(call);
    assert!(at_once_in_a_check(&memory, free) > 3);
}

fn is_list(call: &Call<'_>) -> bool {
    matches!(call.operation, Operation::List | Operation::ListNames | Operation::ListDecided)
}

/// FRAMES_WAITING_MAX: so many frames of a container wait for their bases at once, and the one that
/// is just handed over.
#[test]
fn no_more_frames_wait_for_a_far_store_than_may() {
    let target = WAITING_TARGET_MAX_BYTES;
    assert_eq!(frames_in_flight_max(Some(FRAMES_WAITING_MAX), target), FRAMES_WAITING_MAX);
    assert_eq!(frames_in_flight_max(Some(FRAMES_WAITING_MAX + 1), target), FRAMES_WAITING_MAX);
    assert_eq!(frames_in_flight_max(Some(FRAMES_WAITING_MAX), target + 1), 4);
    assert_eq!(frames_in_flight_max(None, target), 4);

    // Containers that are long enough for so many frames.
    let memory = MemoryStore::new();
    let options =
        InitOptions { container_size_bytes: 8 * limits::MIB, ..init_options(Suite::None) };
    let shared = Arc::new(memory.clone());
    let first = Repository::create(shared, &options, None, environment(1), memory_plan()).unwrap();
    let bytes = random_bytes(1, 24_000_000);
    save(&Arc::new(first), &bytes);
    // Most chunks are like one that there is; the others lead to these.
    let mut edited = bytes;
    for (number, piece) in edited.chunks_mut(8 * limits::KIB).enumerate() {
        piece[0] ^= u8::from(number % 6 != 0);
    }
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&most);
    let script = move |call: &Call<'_>| {
        if call.operation == Operation::GetRange && call.name.starts_with("containers/") {
            counted.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(20));
            now.fetch_sub(1, Ordering::SeqCst);
        }
        Fault::None
    };
    let far = Arc::new(Far::new(Faulty::scripted(memory, script)));
    // More threads than frames may wait.
    let plan = MemoryPlan::new(512 * limits::MIB).unwrap();
    assert!(plan.threads_max() > FRAMES_WAITING_MAX + 1);
    let repository = open_in(far, environment(9), plan).unwrap();
    let source = Source::Stream {
        name: b"stream".to_vec(),
        reader: Box::new(Cursor::new(edited)),
        finish: Box::new(|| Ok(())),
    };
    let options = BackupOptions {
        parent: ParentChoice::None,
        delta: Some(DeltaChoice::default()),
        threads: 8,
        ..backup_options()
    };
    let report = backup(&repository, source, &options, &job()).unwrap();
    assert!(report.deltas.chunks > 500, "{:?}", report.deltas);
    let most = most.load(Ordering::SeqCst);
    assert!(most <= FRAMES_WAITING_MAX + 1, "{most} at once");
    assert!(most > FRAMES_WAITING_MAX / 2, "only {most} at once");
}

/// Whatever was kept of an index is read again, every page of it, once it does not open.
#[test]
fn what_others_have_read_damaged_hides_nothing() {
    let bytes = random_bytes(1, 12_000_000);
    let memory = filled(&bytes);
    let honest = Far::new(Faulty::scripted(memory.clone(), |_| Fault::None));
    let far = Arc::new(Far { damaged: Some(Mutex::default()), ..honest });
    let shared = Arc::clone(&far) as Arc<dyn Store>;
    // Many at once, so that several pages are read together.
    let lookup = "lazy".parse().unwrap();
    let report = save_by(&open_on(shared, 7).unwrap(), &bytes, lookup);
    assert!(report.summary.chunks_new <= 1, "{:?}", report.summary);
    let runs: BTreeSet<Key> = names(&memory, "index").into_iter().map(key).collect();
    assert!(far.distrusted.lock().unwrap().iter().any(|key| runs.contains(key)));
    // Tables and summaries, and several pages together.
    let damaged = far.damaged.as_ref().unwrap().lock().unwrap();
    assert!(damaged.iter().any(|(key, offset, length)| {
        runs.contains(key) && *offset != u64::MAX && *length >= 2 * PAGE_STORED_BYTES
    }));
}
