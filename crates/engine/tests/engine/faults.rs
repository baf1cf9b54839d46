//! Backups that are stopped, fenced or cheated, and what is left behind.

use crate::ingest::*;
use onefold_crypto::Purpose;
use onefold_engine::ingest::{Source, backup};
use onefold_engine::job::Observer;
use onefold_engine::patterns::Patterns;
use onefold_engine::session::SnapshotList;
use onefold_engine::{Interrupt, Job, Repository};
use onefold_format::layout;
use onefold_format::record::{self, Outcome};
use onefold_store::layers::{Fault, Faulty};
use onefold_store::{Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::environment::SeededRandomness;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::fs;
use std::sync::{Arc, Mutex};

/// Asks for the end once some files have been stored.
struct StopAfter {
    interrupt: Interrupt,
    left: Mutex<u32>,
}

impl Observer for StopAfter {
    fn problem(&self, _item: &str, _error: &Error) {}

    fn item(&self, _item: &str, _what: &'static str) {
        let mut left = self.left.lock().unwrap();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.interrupt.request();
        }
    }
}

#[test]
fn an_interrupted_backup_saves_nothing_and_the_next_one_reuses_what_it_stored() {
    let source = tempfile::tempdir().unwrap();
    fs::create_dir(source.path().join("d")).unwrap();
    for number in 0..40u64 {
        let path = source.path().join(format!("d/f{number:02}"));
        fs::write(path, random_bytes(number, 300_000)).unwrap();
    }
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let interrupt = Interrupt::default();
    let observer = StopAfter { interrupt: interrupt.clone(), left: Mutex::new(20) };
    let job = Job { interrupt, progress: Arc::default(), observer: Arc::new(observer) };
    let error = backup(&repository, paths(source.path()), &backup_options(), &job).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(SnapshotList::load(&repository).unwrap().snapshots.is_empty());
    let report = save(&open(&store), paths(source.path()));
    assert!(report.summary.bytes_new <= 21 * 300_000, "{:?}", report.summary);
    assert_tree_equal(&repository, report.snapshot.unwrap(), source.path());
}

#[test]
fn r27_a_full_store_fails_the_backup_and_nothing_is_committed() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    for full_after_bytes in [2_000, 100_000, 700_000, 1_300_000] {
        let (memory, store) = in_memory();
        create(&store, &options());
        let faulty: Arc<dyn Store> = Arc::new(Faulty::full_after(memory, full_after_bytes));
        let repository = open(&faulty);
        let (job, problems) = Job::unattended();
        let error = backup(&repository, paths(source.path()), &backup_options(), &job).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(problems.0.lock().unwrap().is_empty(), "no file is to blame");
        let healthy = open(&store);
        assert!(SnapshotList::load(&healthy).unwrap().snapshots.is_empty());
        let report = save(&healthy, paths(source.path()));
        assert_tree_equal(&healthy, report.snapshot.unwrap(), source.path());
    }
}

#[test]
fn r35_a_store_that_keeps_less_than_it_acknowledged_fails_the_backup() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let (memory, store) = in_memory();
    create(&store, &options());
    let faulty = Faulty::scripted(memory, |call| match call.name.starts_with("containers") {
        true => Fault::Truncate(1000),
        false => Fault::None,
    });
    let faulty: Arc<dyn Store> = Arc::new(faulty);
    let (job, _) = Job::unattended();
    assert!(backup(&open(&faulty), paths(source.path()), &backup_options(), &job).is_err());
    assert!(SnapshotList::load(&open(&store)).unwrap().snapshots.is_empty());
}

#[test]
fn r20_a_lost_container_is_noticed_and_its_chunks_are_stored_again() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    let first = save(&repository, paths(source.path()));
    let mut containers = Vec::new();
    memory
        .list_names(layout::CONTAINERS, &mut |name| {
            containers.push(name.to_owned());
            Ok(())
        })
        .unwrap();
    assert!(containers.len() > 3);
    for name in &containers[..2] {
        let id = layout::last_component(name).parse().unwrap();
        assert!(memory.remove(&Key::new(layout::container(id)).unwrap()));
    }
    // The files are unchanged, but their chunks are not there any more.
    let second = save(&open(&store), paths(source.path()));
    assert!(second.summary.files_unchanged < first.summary.files);
    assert!(second.summary.chunks_new > 0);
    assert_tree_equal(&open(&store), second.snapshot.unwrap(), source.path());
    assert_tree_equal(&open(&store), first.snapshot.unwrap(), source.path());
}

/// Decides `fenced` just before the first writer decides its outcome, as a collector might.
struct Fencing {
    inner: MemoryStore,
    fenced: Mutex<Option<Arc<Repository>>>,
}

impl Blobs for Fencing {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.inner.put(key, bytes)
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.inner.get(key)
    }
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.get_range(key, offset, buffer)
    }
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.inner.get_tail(key, length_bytes)
    }
    fn size(&self, key: &Key) -> Result<u64> {
        self.inner.size(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.inner.list(prefix, each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.inner.list_names(prefix, each)
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.inner.delete(key)
    }
}

impl Decisions for Fencing {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        if let Some(repository) = self.fenced.lock().unwrap().take() {
            let id: SessionId = layout::last_component(key.as_str()).parse()?;
            let plain = record::encode(&Outcome::Fenced)?;
            let randomness = SeededRandomness::new(1);
            let vault = repository.vault();
            let sealed = vault.seal_record(Purpose::Outcome, &id.0, &plain, &randomness)?;
            self.inner.decide(key, &sealed)?;
        }
        self.inner.decide(key, value)
    }
    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.inner.decided(key)
    }
    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.inner.list_decided(prefix, each)
    }
}

impl Store for Fencing {
    fn describe(&self) -> String {
        "fencing".into()
    }
}

#[test]
fn r7_a_fenced_backup_starts_over_and_is_saved_under_a_fresh_name() {
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let bytes = random_bytes(9, 900_000);
    let excludes = Patterns::build(&["f03".to_owned()], &[]).unwrap();
    let Source::Paths { paths, mut selection } = paths(tree.path()) else { unreachable!() };
    selection.excludes = excludes.clone();
    for source in [Source::Paths { paths, selection }, stream("data", &bytes)] {
        let (memory, store) = in_memory();
        let plain = create(&store, &options());
        let fencing = Fencing { inner: memory, fenced: Mutex::new(Some(Arc::clone(&plain))) };
        let fencing: Arc<dyn Store> = Arc::new(fencing);
        let (job, _) = Job::unattended();
        let report = backup(&open(&fencing), source, &backup_options(), &job).unwrap();
        assert_eq!(report.fenced, 1);
        // What the first attempt met is not counted twice.
        assert_eq!(excludes.counts().collect::<Vec<_>>(), [("f03", 1)]);
        assert!(report.left_out.matched_items <= 1, "{:?}", report.left_out);
        let list = SnapshotList::load(&plain).unwrap();
        let ids: Vec<_> = list.snapshots.iter().map(|snapshot| snapshot.id).collect();
        assert_eq!(ids, [report.snapshot.unwrap()]);
        // What the fenced session had stored was found again.
        assert_eq!(report.summary.chunks_new, 0, "{:?}", report.summary);
    }
}

#[test]
fn r29_a_crash_after_any_write_leaves_a_store_that_opens_and_goes_on() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let memory = MemoryStore::recording();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let repository = create(&store, &options());
    let first = save(&repository, paths(source.path())).snapshot.unwrap();
    let start = memory.operations();
    fs::write(source.path().join("d0/new"), random_bytes(77, 500_000)).unwrap();
    save(&repository, paths(source.path()));
    let end = memory.operations();
    assert!(end - start >= 8, "session, containers, pack, run, outcome: {}", end - start);
    for count in start..=end {
        let crashed: Arc<dyn Store> = Arc::new(memory.state_after(count));
        let repository = open(&crashed);
        let list = SnapshotList::load(&repository).unwrap();
        assert!(list.problems.is_empty());
        let ids: Vec<_> = list.snapshots.iter().map(|snapshot| snapshot.id).collect();
        assert!(ids.contains(&first), "after {count}");
        let next = save(&repository, paths(source.path()));
        for id in ids.into_iter().chain(next.snapshot) {
            let path = source.path().join("d0/f03");
            assert_eq!(content_at(&repository, id, &path), fs::read(&path).unwrap());
        }
        assert_tree_equal(&repository, next.snapshot.unwrap(), source.path());
    }
}

#[test]
fn two_backups_at_once_are_both_saved_whole() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let (_, store) = in_memory();
    create(&store, &options());
    let saved: Vec<SessionId> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| save(&open(&store), paths(source.path())).snapshot.unwrap()))
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let repository = open(&store);
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(list.snapshots.len(), 4);
    for id in saved {
        assert_tree_equal(&repository, id, source.path());
    }
}
