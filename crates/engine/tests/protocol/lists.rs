//! The list of snapshots and what protects it.

use crate::steps::*;
use onefold_engine::retention;
use onefold_engine::session::{SnapshotList, tombstones};
use onefold_format::layout;
use onefold_store::{Blobs, Decisions};
use onefold_types::{MarkId, SessionId};

#[test]
fn r54_a_tombstone_forged_without_the_key_is_ignored_and_reported() {
    let (memory, repository) = create();
    let first = save(&repository, &[file("f", 1, 10)]);
    memory.decide(&key(layout::tombstone(first)), &[0; 90]).unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    assert!(list.get(first).is_some());
    assert_eq!(list.problems.len(), 1, "{:?}", list.problems);
    assert!(!tombstones::is_forgotten(&repository, first).unwrap());
    assert!(!check_all(&repository).is_clean());

    // Neither does the tombstone of one snapshot forget another.
    let (memory, repository) = create();
    let first = save(&repository, &[file("f", 1, 10)]);
    let second = save(&repository, &[file("g", 2, 10)]);
    retention::forget_final(&repository, &[first], "me").unwrap();
    let sealed = memory.get(&key(layout::tombstone(first))).unwrap();
    memory.decide(&key(layout::tombstone(second)), &sealed).unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    assert!(list.get(first).is_none() && list.get(second).is_some());
}

#[test]
fn r54_a_mark_forged_without_the_key_hides_nothing() {
    let (memory, repository) = create();
    let first = save(&repository, &[file("f", 1, 10)]);
    let name = layout::mark(first, MarkId([4; 16]));
    memory.put(&key(name), &[0; 90]).unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    assert!(!list.get(first).unwrap().hidden);
    assert_eq!(list.problems.len(), 1);
}

#[test]
fn r54_a_snapshot_record_under_another_name_is_refused() {
    let (memory, repository) = create();
    let first = save(&repository, &[file("f", 1, 10)]);
    let moved = SessionId([7; 16]);
    let sealed = memory.get(&key(layout::outcome(first))).unwrap();
    memory.decide(&key(layout::outcome(moved)), &sealed).unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(list.snapshots.len(), 1);
    assert!(list.get(moved).is_none());
    assert_eq!(list.problems.len(), 1, "{:?}", list.problems);
    assert!(!check_all(&repository).is_clean());
}

#[test]
fn r54_a_removed_outcome_is_missed() {
    let (memory, repository) = create();
    let ids = [1, 2, 3].map(|seed| save(&repository, &[file("f", seed, 10)]));
    assert_eq!(SnapshotList::load(&repository).unwrap().heads, [ids[2]]);
    for removed in [ids[0], ids[1]] {
        let copy = memory.clone_state();
        assert!(copy.remove(&key(layout::outcome(removed))));
        assert!(SnapshotList::load(&reopen(&copy, 4)).unwrap().problems.is_empty(), "by its copy");
        assert!(copy.remove(&key(layout::copy_of(&layout::outcome(removed)))));
        let repository = reopen(&copy, 4);
        let list = SnapshotList::load(&repository).unwrap();
        assert_eq!(list.problems.len(), 1, "{:?}", list.problems);
        assert!(list.problems[0].contains(&removed.to_string()));
        assert!(!check_all(&repository).is_clean());
    }
    // Forgetting is no removal: the outcome stays, and nothing is missed.
    retention::forget_final(&repository, &[ids[0], ids[1]], "me").unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    assert!(list.problems.is_empty());
    assert_eq!(list.snapshots.len(), 1);
}
