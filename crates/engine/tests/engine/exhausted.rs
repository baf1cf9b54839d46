//! A process that may open no more files, at every call to the store: nothing is damaged by that.

use crate::ingest::*;
use onefold_engine::check::{self, CheckOptions, ReadData};
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::ingest::{BackupOptions, ParentChoice, backup};
use onefold_engine::session::SnapshotList;
use onefold_engine::{Environment, Job, Repository, repository::Password, retention};
use onefold_store::layers::{Fault, Faulty};
use onefold_store::{Blobs, MemoryStore, Store};
use onefold_types::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often calls fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lasting {
    /// One does.
    Once,
    /// All do from then on.
    ForEver,
}

/// The store, on which calls fail from number `first` on; nothing was done by those that fail.
fn failing(memory: &MemoryStore, first: u64, lasting: Lasting) -> Arc<Faulty<MemoryStore>> {
    Arc::new(Faulty::scripted(memory.clone(), move |call| {
        match call.number == first || (call.number > first && lasting == Lasting::ForEver) {
            true => Fault::Before(ErrorKind::Exhausted),
            false => Fault::None,
        }
    }))
}

fn opened(store: &Arc<Faulty<MemoryStore>>) -> Result<Arc<Repository>> {
    let password = || Ok(Password::new(b"password".to_vec()));
    let store = Arc::clone(store) as Arc<dyn Store>;
    Repository::open(store, password, Environment::system(), memory()).map(Arc::new)
}

/// Runs something with the first call failing, then the second, and so on, until none does. It is
/// given a store of its own each time, and that store must be sound afterwards.
fn at_every_call(
    recorded: &MemoryStore,
    run: impl Fn(&Arc<Repository>) -> Result<()>,
    expect: impl Fn(&Arc<Repository>, bool, &str),
) {
    for lasting in [Lasting::Once, Lasting::ForEver] {
        for first in 0.. {
            let memory = recorded.state_after(recorded.operations());
            let failing = failing(&memory, first, lasting);
            let done = opened(&failing).and_then(|repository| run(&repository));
            let told = format!("call {first}, {lasting:?}");
            if let Err(error) = &done {
                assert_eq!(error.kind(), ErrorKind::Exhausted, "{told}: {error}");
            }
            let is_past = failing.calls() <= first;
            let store: Arc<dyn Store> = Arc::new(memory.clone());
            for directory in ["damage", "doubts"] {
                let refuse = &mut |name: &str| Err(Error::damaged(format!("{told}: {name}")));
                memory.list_names(directory, refuse).unwrap();
            }
            expect(&open(&store), done.is_ok(), &told);
            if is_past {
                done.unwrap();
                break;
            }
        }
    }
}

fn checked(repository: &Arc<Repository>) -> Result<check::CheckReport> {
    let options = CheckOptions { read_data: ReadData::All, threads: 1, record_quarantine: true };
    check::check(repository, options, &Job::unattended().0)
}

/// Three snapshots, of which two need chunks of their own.
fn recorded_store(source: &Path) -> MemoryStore {
    let memory = MemoryStore::recording();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    create(&store, &options());
    for version in 0..3u64 {
        std::fs::create_dir_all(source.join("d")).unwrap();
        std::fs::write(source.join("d/f"), random_bytes(version, 60_000)).unwrap();
        std::fs::write(source.join("d/g"), random_bytes(99, 60_000)).unwrap();
        settle_times(source);
        save(&open(&store), paths(source));
    }
    memory
}

#[test]
fn r88_a_check_that_may_open_no_more_files_finds_no_damage() {
    let source = tempfile::tempdir().unwrap();
    let recorded = recorded_store(source.path());
    let run = |repository: &Arc<Repository>| {
        let report = checked(repository)?;
        assert!(report.is_clean(), "{report:?}");
        Ok(())
    };
    at_every_call(&recorded, run, |_, _, _| {});
}

#[test]
fn r88_a_backup_that_may_open_no_more_files_is_whole_or_none() {
    let source = tempfile::tempdir().unwrap();
    let recorded = recorded_store(source.path());
    std::fs::write(source.path().join("d/f"), random_bytes(7, 60_000)).unwrap();
    for parent in [ParentChoice::Newest, ParentChoice::None] {
        let run = |repository: &Arc<Repository>| {
            let (job, problems) = Job::unattended();
            let options = BackupOptions { parent, ..backup_options() };
            backup(repository, paths(source.path()), &options, &job)?;
            assert!(problems.0.lock().unwrap().is_empty(), "no file is to blame");
            Ok(())
        };
        at_every_call(&recorded, run, |repository, is_done, told| {
            let list = SnapshotList::load(repository).unwrap();
            // An answer that was lost may stand for a decision that was made.
            assert!(list.snapshots.len() == 4 || !is_done, "{told}");
            for snapshot in list.snapshots.iter().skip(3) {
                assert_tree_equal(repository, snapshot.id, source.path());
            }
        });
    }
}

#[test]
fn r88_a_collection_that_may_open_no_more_files_loses_nothing() {
    let source = tempfile::tempdir().unwrap();
    let recorded = recorded_store(source.path());
    let store: Arc<dyn Store> = Arc::new(recorded.clone());
    let repository = open(&store);
    let ids: Vec<_> = SnapshotList::load(&repository).unwrap().snapshots;
    retention::forget_final(&repository, &[ids[0].id, ids[1].id], "me").unwrap();
    let options = CollectOptions {
        goal: SpaceGoal::Everything,
        grace: Duration::ZERO,
        threads: 1,
        ..CollectOptions::default()
    };
    let run = |repository: &Arc<Repository>| {
        let report = collect(repository, &options, &Job::unattended().0)?;
        assert!(report.kept.is_empty(), "{:?}", report.kept);
        Ok(())
    };
    at_every_call(&recorded, run, |repository, _, told| {
        let report = checked(repository).unwrap();
        assert!(report.is_clean(), "{told}: {report:?}");
        assert_tree_equal(repository, ids[2].id, source.path());
    });
}
