//! A stop after every single change that storing and committing makes.

use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::session::{SnapshotList, WriterSession};
use onefold_engine::synthesis::{Element, SynthesisOptions, synthesize};
use onefold_store::MemoryStore;
use onefold_types::SessionId;
use std::sync::Arc;

/// Checks a store as a crash has left it, and that a session after the crash goes through.
fn recover(state: &MemoryStore, earlier: &[SessionId], n: usize, items: &[Item]) -> u64 {
    let repository = reopen(state, 1000 + n as u64);
    let report = check_all(&repository);
    assert!(report.is_clean(), "after {n}: {report:?}");
    let list = SnapshotList::load(&repository).unwrap();
    for id in earlier {
        assert!(list.get(*id).is_some(), "after {n}: a saved snapshot is gone");
    }
    let snapshots = list.snapshots.len() as u64;
    assert_eq!(report.snapshots, snapshots);
    save(&repository, items);
    let report = check_all(&repository);
    assert!(report.is_clean(), "after {n} and a session more: {report:?}");
    assert_eq!(report.snapshots, snapshots + 1);
    snapshots
}

#[test]
fn r21_r29_a_stop_after_any_change_loses_nothing() {
    for suite in [Suite::Aes256Gcm, Suite::None] {
        let memory = MemoryStore::recording();
        let repository = create_on(Arc::new(memory.clone()), suite);
        let first = [file("a", 1, 100_000)];
        let earlier = save(&repository, &first);
        let before = memory.operations();
        let second =
            [file("a", 1, 100_000), directory("d", [file("b", 2, 700_000), file("c", 3, 5)])];
        save(&repository, &second);
        let after = memory.operations();
        // Announced; a container of nodes and two or more of data; pack, run, ready, outcome, its
        // copy, and two deletions.
        assert!(after - before >= 10, "{}", after - before);
        let counts: Vec<u64> = (before..=after)
            .map(|n| recover(&memory.state_after(n), &[earlier], n, &second))
            .collect();
        // The snapshot appears with one change, the outcome, and stays.
        assert_eq!(counts.iter().filter(|&&count| count == 1).count(), after - before - 3);
        assert!(counts.is_sorted());
    }
}

#[test]
fn a_stop_while_a_store_is_made_leaves_none_or_a_whole_one() {
    let memory = MemoryStore::recording();
    create_on(Arc::new(memory.clone()), Suite::Aes256Gcm);
    for n in 0..=memory.operations() {
        let state = memory.state_after(n);
        match open_on(Arc::new(state), 2) {
            Ok(repository) => {
                assert!(n >= memory.operations() - 1, "open after {n} changes");
                let report = check_all(&repository);
                // The first copy of the configuration comes last.
                assert_eq!(report.is_clean(), n == memory.operations(), "{report:?}");
            }
            Err(error) => assert!(n < memory.operations(), "{error}"),
        }
    }
}

#[test]
fn r21_a_stop_during_a_synthetic_full_loses_nothing() {
    let (memory, repository) = create();
    let first = save(&repository, &[directory("d", [file("a", 1, 50_000)])]);
    let second = save(&repository, &[directory("d", [file("b", 2, 50_000)])]);
    let before = memory.operations();
    let parts =
        [first, second].map(|snapshot| Element { snapshot, path: Vec::new(), to: Vec::new() });
    let options = SynthesisOptions::default();
    synthesize(&repository, &parts, &options, &job()).unwrap();
    for n in before..=memory.operations() {
        recover(&memory.state_after(n), &[first, second], n, &[file("z", 9, 10)]);
    }
}

#[test]
fn r18_chunks_of_an_interrupted_session_are_found_again() {
    let (memory, repository) = create();
    let items = [file("a", 1, 600_000)];
    // Stored and indexed, never committed.
    let session = WriterSession::begin(&repository).unwrap();
    put_tree(&repository, &session, &items);
    let stored = containers(&repository);
    drop(session);
    let later = reopen(&memory, 5);
    save(&later, &items);
    assert_eq!(containers(&later), stored, "nothing was stored twice");
}

#[test]
fn merging_runs_is_safe_at_every_step() {
    let (memory, repository) = create();
    let mut saved = Vec::new();
    let mut before = 0;
    // Runs are merged once there are more than six.
    for seed in 0..8 {
        before = memory.operations();
        saved.push(save(&repository, &[file("f", seed, 20_000)]));
        if names(&memory, "index").len() < seed as usize {
            break;
        }
    }
    assert!(names(&memory, "index").len() < saved.len(), "runs were merged");
    saved.pop();
    for n in before..=memory.operations() {
        recover(&memory.state_after(n), &saved, n, &[file("z", 99, 10)]);
    }
}
