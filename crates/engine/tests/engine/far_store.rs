//! Stores in which each request takes long: what a backup asks for at once.

use crate::steps::{backup_options, create_on, job, open_on, random_bytes};
use onefold_crypto::Suite;
use onefold_engine::ingest::{BackupOptions, BackupReport, ParentChoice, Source, backup};
use onefold_store::layers::{Call, Fault, Faulty, Operation};
use onefold_store::{Asked, Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::{ErrorKind, Result};
use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// As many sections are asked for at once (`AHEAD_MAX` in the code).
const SECTIONS_AT_ONCE: usize = 8;
/// How long nothing here takes.
const LONG: Duration = Duration::from_secs(20);

/// A store in memory that says it is far away.
struct Far(Faulty<MemoryStore>);

impl Blobs for Far {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.0.put(key, bytes)
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.0.get(key)
    }
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.get_range(key, offset, buffer)
    }
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.0.get_tail(key, length_bytes)
    }
    fn size(&self, key: &Key) -> Result<u64> {
        self.0.size(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.0.list(prefix, each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.0.list_names(prefix, each)
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.0.delete(key)
    }
    fn puts_at_once(&self) -> usize {
        4
    }
    fn foresee(&self, _: Vec<Asked>) -> u64 {
        0
    }
}

impl Decisions for Far {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.0.decide(key, value)
    }
    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.0.decided(key)
    }
    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.0.list_decided(prefix, each)
    }
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

fn save(repository: &Arc<onefold_engine::Repository>, bytes: &[u8]) -> BackupReport {
    let source = Source::Stream {
        name: b"stream".to_vec(),
        reader: Box::new(Cursor::new(bytes.to_vec())),
        finish: Box::new(|| Ok(())),
    };
    let options = BackupOptions { parent: ParentChoice::None, ..backup_options() };
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
    let far = Far(Faulty::scripted(memory.clone(), script));
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
    // Each fails when it is asked for first.
    let met = Mutex::new(std::collections::BTreeSet::new());
    let first_wanted = AtomicUsize::new(0);
    let report = saved_again(&memory, &bytes, move |name| {
        let is_first = first_wanted.fetch_add(1, Ordering::SeqCst) == 0;
        match met.lock().unwrap().insert(name.to_owned()) && !is_first && name.ends_with('3') {
            true => Fault::Before(ErrorKind::NotFound),
            false => Fault::None,
        }
    });
    // Those that were only read beside others are read again; what is wanted and gone is stored.
    assert!(report.summary.chunks_new < report.summary.chunks / 4, "{:?}", report.summary);
}
