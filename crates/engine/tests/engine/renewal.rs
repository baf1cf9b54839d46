//! Backups during which a collector condemns what they rely on (protocol, W8, and fencing).

use crate::ingest::*;
use onefold_crypto::Purpose;
use onefold_engine::collection::{
    CollectOptions, CollectReport, MarkAlgorithm, SpaceGoal, collect,
};
use onefold_engine::environment::SystemClock;
use onefold_engine::ingest::{Source, backup};
use onefold_engine::job::Observer;
use onefold_engine::repository::Password;
use onefold_engine::session::SnapshotList;
use onefold_engine::{Environment, Interrupt, Job, Repository, retention};
use onefold_format::{layout, record};
use onefold_store::{Key, Store};
use onefold_types::environment::{Clock, ManualClock};
use onefold_types::{Error, ErrorKind, SessionId};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Opens the store as it would have been opened an hour ago, so that what is stored now is older
/// than any backup that runs.
fn open_an_hour_ago(store: &Arc<dyn Store>) -> Arc<Repository> {
    let clock = Arc::new(ManualClock::new(SystemClock.now_ns() - 3_600_000_000_000));
    let environment = Environment { clock, ..Environment::system() };
    let password = || Ok(Password::new(b"password".to_vec()));
    Repository::open(Arc::clone(store), password, environment, memory()).map(Arc::new).unwrap()
}

fn collect_all(repository: &Arc<Repository>, grace: Duration) -> CollectReport {
    let options =
        CollectOptions { goal: SpaceGoal::Everything, grace, ..CollectOptions::default() };
    let (job, _) = Job::unattended();
    collect(repository, &options, &job).unwrap()
}

/// Two parts of a stream, and something that happens between them.
struct Interlude {
    parts: [Vec<u8>; 2],
    part: usize,
    position: usize,
    between: Option<Box<dyn FnOnce() + Send>>,
}

impl Read for Interlude {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position == self.parts[self.part].len() && self.part == 0 {
            (self.part, self.position) = (1, 0);
            // What was read so far is judged before the rest is waited for.
            std::thread::sleep(Duration::from_millis(300));
            (self.between.take().unwrap())();
        }
        let rest = &self.parts[self.part][self.position..];
        let count = rest.len().min(buffer.len()).min(64 << 10);
        buffer[..count].copy_from_slice(&rest[..count]);
        self.position += count;
        Ok(count)
    }
}

struct Stage {
    store: Arc<dyn Store>,
    both: SessionId,
    kept: Vec<u8>,
    dropped: Vec<u8>,
}

/// A store in which containers hold chunks of a snapshot that stays, and chunks that nothing needs.
fn stage() -> Stage {
    let (_, store) = in_memory();
    create(&store, &options());
    let repository = open_an_hour_ago(&store);
    let (kept, dropped) = (random_bytes(1, 2_100_000), random_bytes(2, 3_500_000));
    let mut mixed = Vec::new();
    for (a, b) in kept.chunks(300_000).zip(dropped.chunks(500_000)) {
        mixed.extend_from_slice(a);
        mixed.extend_from_slice(b);
    }
    let both = save(&repository, stream("mixed", &mixed)).snapshot.unwrap();
    save(&repository, stream("kept", &kept));
    Stage { store, both, kept, dropped }
}

#[test]
fn w8_a_backup_that_can_leave_condemned_containers_is_not_fenced() {
    let Stage { store, both, kept, .. } = stage();
    retention::forget_final(&open(&store), &[both], "test").unwrap();
    let report = Arc::new(Mutex::new(None));
    let (collector, seen) = (open(&store), Arc::clone(&report));
    let between = move || {
        *seen.lock().unwrap() = Some(collect_all(&collector, Duration::from_secs(60)));
    };
    let rest = random_bytes(3, 400_000);
    let reader = Interlude {
        parts: [kept.clone(), rest.clone()],
        part: 0,
        position: 0,
        between: Some(Box::new(between)),
    };
    let source = Source::Stream {
        name: b"again".to_vec(),
        reader: Box::new(reader),
        finish: Box::new(|| Ok(())),
    };
    let repository = open(&store);
    let saved = save(&repository, source);
    let collected = report.lock().unwrap().take().unwrap();
    assert!(collected.deleted_containers > 0 && collected.copied_chunks > 0, "{collected:?}");
    assert_eq!((collected.fenced, saved.fenced), (0, 0));
    let mut expected = kept;
    expected.extend(rest);
    let content = content_at(&open(&store), saved.snapshot.unwrap(), Path::new("again"));
    assert!(content == expected, "the stream reads back otherwise than it was saved");
}

/// Collects once, when the first item has been saved.
struct CollectsOnce {
    store: Arc<dyn Store>,
    report: Mutex<Option<CollectReport>>,
}

impl Observer for CollectsOnce {
    fn problem(&self, item: &str, error: &Error) {
        panic!("{item}: {error}");
    }

    fn item(&self, _item: &str, _what: &'static str) {
        let mut report = self.report.lock().unwrap();
        if report.is_none() {
            *report = Some(collect_all(&open(&self.store), Duration::ZERO));
        }
    }
}

#[test]
fn a_backup_that_found_garbage_is_fenced_and_starts_over_with_it_stored_again() {
    let Stage { store, both, dropped, .. } = stage();
    retention::forget_final(&open(&store), &[both], "test").unwrap();
    let source = tempfile::tempdir().unwrap();
    fs::create_dir(source.path().join("d")).unwrap();
    for (number, part) in dropped.chunks(1_200_000).enumerate() {
        fs::write(source.path().join(format!("d/f{number}")), part).unwrap();
    }
    settle_times(source.path());
    let observer = Arc::new(CollectsOnce { store: Arc::clone(&store), report: Mutex::new(None) });
    let job = Job {
        interrupt: Interrupt::default(),
        progress: Arc::default(),
        observer: Arc::clone(&observer) as Arc<dyn Observer>,
    };
    let saved = backup(&open(&store), paths(source.path()), &backup_options(), &job).unwrap();
    let collected = observer.report.lock().unwrap().take().unwrap();
    assert_eq!((collected.fenced, saved.fenced), (1, 1));
    assert!(collected.deleted_containers > 0);
    assert_tree_equal(&open(&store), saved.snapshot.unwrap(), source.path());
}

#[test]
fn a_stream_whose_chunks_were_collected_is_not_saved_and_says_so() {
    let Stage { store, both, dropped, .. } = stage();
    retention::forget_final(&open(&store), &[both], "test").unwrap();
    let collector = open(&store);
    let between = move || {
        assert_eq!(collect_all(&collector, Duration::ZERO).fenced, 1);
    };
    let reader = Interlude {
        parts: [dropped, random_bytes(3, 10_000)],
        part: 0,
        position: 0,
        between: Some(Box::new(between)),
    };
    let source = Source::Stream {
        name: b"again".to_vec(),
        reader: Box::new(reader),
        finish: Box::new(|| Ok(())),
    };
    let (job, _) = Job::unattended();
    let error = backup(&open(&store), source, &backup_options(), &job).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    assert!(collect_all(&open(&store), Duration::ZERO).kept.is_empty());
}

#[test]
fn a_backup_that_vanished_on_another_machine_is_fenced_and_what_it_left_is_collected() {
    let Stage { store, both, kept, .. } = stage();
    let repository = open(&store);
    // Everything in the store is younger than this session, and no process of that name is known.
    let vanished = SessionId([7; 16]);
    let note =
        record::Note { time_ns: 1, by: "elsewhere/boot 1".to_owned(), reason: String::new() };
    let sealed = repository
        .vault()
        .seal_record(
            Purpose::Session,
            &vanished.0,
            &record::encode(&note).unwrap(),
            &*repository.environment().randomness,
        )
        .unwrap();
    let key = Key::new(layout::session_announced(vanished)).unwrap();
    repository.store().put(&key, &sealed).unwrap();
    retention::forget_final(&repository, &[both], "test").unwrap();
    let report = collect_all(&repository, Duration::from_millis(300));
    assert_eq!(report.fenced, 1);
    assert!(report.deleted_containers > 0, "{report:?}");
    assert!(repository.store().size(&key).is_err(), "its announcement goes, too");
    let left = SnapshotList::load(&repository).unwrap().snapshots;
    let name = Path::new("kept");
    assert!(left.iter().any(|one| content_at(&repository, one.id, name) == kept));
}

#[test]
fn s3_23_pgc_plus_without_the_memory_for_its_bits_marks_in_two_rounds() {
    let Stage { store, both, kept, .. } = stage();
    let repository = open(&store);
    retention::forget_final(&repository, &[both], "test").unwrap();
    let options = CollectOptions {
        goal: SpaceGoal::Everything,
        algorithm: MarkAlgorithm::PhysicalPlus,
        grace: Duration::ZERO,
        marks_bytes: Some(64),
        ..CollectOptions::default()
    };
    let (job, _) = Job::unattended();
    let report = collect(&repository, &options, &job).unwrap();
    assert_eq!((report.mark.algorithm, report.mark.rounds), (MarkAlgorithm::Physical, 2));
    let left = SnapshotList::load(&repository).unwrap().snapshots;
    assert_eq!(left.len(), 1);
    assert!(content_at(&repository, left[0].id, Path::new("kept")) == kept);
}
