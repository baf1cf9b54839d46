//! Who may put, get and list, and not delete: such a client backs up, restores and checks.

use crate::ingest::{backup_options, content_at, in_memory, open, options, random_bytes};
use crate::rewriting::save;
use crate::steps::check_all;
use onefold_engine::Job;
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::retention;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::ErrorKind;
use std::fs;
use std::sync::Arc;

/// A client's view of a store, that has no right to delete.
fn without_deleting(memory: &MemoryStore) -> Arc<dyn Store> {
    Arc::new(Faulty::scripted(memory.clone(), |call| match call.operation {
        Operation::Delete => Fault::Before(ErrorKind::NotPermitted),
        _ => Fault::None,
    }))
}

#[test]
fn a_client_that_may_not_delete_backs_up_and_another_one_collects() {
    let (memory, store): (MemoryStore, Arc<dyn Store>) = in_memory();
    crate::ingest::create(&store, &options());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let mut saved = Vec::new();
    for version in 0..40 {
        let bytes = random_bytes(version, 30_000);
        fs::write(&file, &bytes).unwrap();
        // Each time as a process of its own.
        let repository = open(&without_deleting(&memory));
        let report = save(&repository, directory.path(), &backup_options());
        saved.push((report.snapshot.unwrap(), bytes));
    }
    let repository = open(&without_deleting(&memory));
    for (snapshot, bytes) in &saved {
        assert!(content_at(&repository, *snapshot, &file) == *bytes);
    }
    assert!(check_all(&repository).is_clean());
    let hidden = saved[0].0;
    retention::forget(&repository, &[hidden], "test").unwrap();
    // Bringing it back takes the mark away, which is what this client may not.
    assert_eq!(
        retention::undelete(&repository, &[hidden]).unwrap_err().kind(),
        ErrorKind::NotPermitted
    );
    let all = CollectOptions { goal: SpaceGoal::Everything, ..CollectOptions::default() };
    let collector = open(&store);
    let gone: Vec<_> = saved.drain(..20).map(|(snapshot, _)| snapshot).collect();
    retention::forget_final(&collector, &gone, "test").unwrap();
    let report = collect(&collector, &all, &Job::unattended().0).unwrap();
    assert!(report.deleted_containers > 0, "{report:?}");
    let repository = open(&without_deleting(&memory));
    for (snapshot, bytes) in &saved {
        assert!(content_at(&repository, *snapshot, &file) == *bytes);
    }
    assert!(check_all(&repository).is_clean());
}
