//! Backups and copies that a collector fences again and again: how often they start over.

use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::copy::{self, CopyOptions, Fate};
use onefold_engine::ingest;
use onefold_engine::ingest::publish::SESSIONS_MAX;
use onefold_engine::look_up::LookupChoice;
use onefold_engine::session::{SnapshotList, announced};
use onefold_engine::{Environment, Repository};
use onefold_format::layout;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::{ErrorKind, Result};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A store in which so many sessions are fenced at the moment at which they commit.
struct Fencing {
    memory: MemoryStore,
    repository: Arc<Repository>,
    fenced: Arc<AtomicU32>,
}

impl Fencing {
    fn new(times: u32) -> Self {
        let memory = MemoryStore::new();
        let collector = create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
        let fenced = Arc::new(AtomicU32::new(0));
        let so_far = Arc::clone(&fenced);
        let script = move |call: &onefold_store::layers::Call<'_>| {
            let outcome = call.name.strip_prefix(&format!("{}/", layout::OUTCOMES));
            if call.operation == Operation::Decide
                && let Some(id) = outcome.and_then(|id| id.parse().ok())
                && so_far.load(Ordering::Relaxed) < times
            {
                assert!(announced::fence(&collector, id).unwrap());
                so_far.fetch_add(1, Ordering::Relaxed);
            }
            Fault::None
        };
        let store = Faulty::scripted(memory.clone(), script);
        // Every session has a name of its own, however often one begins.
        let environment = Environment { clock: environment(3).clock, ..Environment::system() };
        let repository = open_in(Arc::new(store), environment, memory_plan()).unwrap();
        Self { memory, repository, fenced }
    }

    /// Runs with one fence less than are borne, and with as many as are not.
    fn try_both(work: impl Fn(&Arc<Repository>) -> Result<()>) {
        for times in [SESSIONS_MAX - 1, SESSIONS_MAX] {
            let fencing = Self::new(times);
            let ended = work(&fencing.repository);
            assert_eq!(fencing.fenced.load(Ordering::Relaxed), times);
            let snapshots = SnapshotList::load(&reopen(&fencing.memory, 9)).unwrap().snapshots;
            match times < SESSIONS_MAX {
                true => assert_eq!((ended.unwrap(), snapshots.len()), ((), 1)),
                false => {
                    let error = ended.unwrap_err();
                    assert_eq!((error.kind(), snapshots.len()), (ErrorKind::Fenced, 0), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_backup_starts_over_so_many_times_and_no_more() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("file"), random_bytes(1, 100_000)).unwrap();
    Fencing::try_both(|repository| {
        ingest::backup(repository, paths(root.path()), &backup_options(), &job()).map(drop)
    });
}

#[test]
fn a_copy_starts_over_so_many_times_and_no_more() {
    let (suite, made) = (init_options(Suite::None), environment(5));
    let source: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let source = Repository::create(source, &suite, Some(PASSWORD), made, memory_plan());
    let source = Arc::new(source.unwrap());
    let snapshot = save(&source, &[file("file", 1, 100_000)]);
    let options = CopyOptions {
        threads: 2,
        compression: None,
        lookup: LookupChoice::default(),
        reach: None,
        program: "fenced".into(),
    };
    Fencing::try_both(|target| {
        copy::copy((&source, target), &[snapshot], &options, &job(), &mut |_, fate| {
            assert!(matches!(fate, Fate::Copied(..)), "{fate:?}");
            Ok(())
        })
    });
}
