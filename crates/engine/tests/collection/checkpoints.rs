//! Checkpoints of what is decided (rule D10): what they spare, what becomes of a store in which
//! they are lost, damaged, planted, old or half written, and what must be read in spite of them.

use crate::basics::{Saved, everything};
use crate::steps::*;
use onefold_crypto::{OsRandomness, Purpose, Suite, Vault};
use onefold_engine::Repository;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::session::checkpoints::{
    self, Checkpoints, Ending, NEW_NAMES_MIN, SMALL_COUNT_MAX,
};
use onefold_engine::session::evidence::Evidence;
use onefold_engine::session::forgetting;
use onefold_engine::session::{Commit, SnapshotList, WriterSession, snapshots};
use onefold_engine::{check, retention};
use onefold_format::layout;
use onefold_format::node::Reference;
use onefold_format::record::{self, Checkpoint, RECORD_VERSION, SnapshotRecord};
use onefold_store::layers::{Call, Counting, Fault, Faulty, Operation};
use onefold_store::{Blobs, MemoryStore, Store};
use onefold_types::{CheckpointId, ErrorKind, SessionId, limits};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A store with a past, made without storing anything but records.
struct Past {
    memory: MemoryStore,
    repository: Arc<Repository>,
    root: Reference,
    newest: SessionId,
}

impl Past {
    fn new() -> Self {
        let (memory, repository) = create();
        let newest = save(&repository, &[file("a", 1, 5_000)]);
        let root = root_of(&repository, newest);
        Self { memory, repository, root, newest }
    }

    /// Commits another snapshot of the same tree, with what `change` makes of its record.
    fn commit_with(&mut self, change: impl FnOnce(&mut SnapshotRecord)) -> SessionId {
        let session = WriterSession::begin(&self.repository).unwrap();
        let mut record = record_with(&self.repository, self.root, vec![self.newest]);
        change(&mut record);
        let Commit::Saved(id) = session.commit(record).unwrap() else { panic!("fenced") };
        self.newest = id;
        id
    }

    fn commit(&mut self, count: usize) -> Vec<SessionId> {
        (0..count).map(|_| self.commit_with(|_| {})).collect()
    }

    fn extend(&self) -> bool {
        checkpoints::extend(&self.repository, NEW_NAMES_MIN).unwrap()
    }

    fn checkpoints(&self) -> Vec<String> {
        names(&self.memory, layout::CHECKPOINTS)
    }
}

fn record_with(
    repository: &Repository,
    root: Reference,
    predecessors: Vec<SessionId>,
) -> SnapshotRecord {
    let mut record = record_of(repository, root);
    record.predecessors = predecessors;
    record
}

/// Both ways of listing agree in everything; returns the list.
fn listed(store: &MemoryStore) -> SnapshotList {
    let repository = reopen(store, 90);
    let aided = SnapshotList::load(&repository).unwrap();
    let unaided = SnapshotList::load_unaided(&repository).unwrap();
    let facts = |list: &SnapshotList| {
        let problems: BTreeSet<String> = list.problems.iter().cloned().collect();
        let changes: Vec<_> =
            list.snapshots.iter().map(|one| list.changes.of(one.id).newest).collect();
        (list.snapshots.clone(), list.heads.clone(), list.lost.clone(), problems, changes)
    };
    assert!(facts(&aided) == facts(&unaided), "{aided:?}\nby the records:\n{unaided:?}");
    aided
}

/// Objects that are read to list the snapshots.
fn objects_read(store: &MemoryStore) -> u64 {
    let counting = Arc::new(Counting::new(store.clone()));
    let repository = open_on(Arc::clone(&counting) as Arc<dyn Store>, 91).unwrap();
    counting.take();
    SnapshotList::load(&repository).unwrap();
    let counts = counting.take();
    assert_eq!(counts.total(Operation::Put).calls + counts.total(Operation::Decide).calls, 0);
    counts.total(Operation::Get).calls + counts.total(Operation::Decided).calls
}

#[test]
fn opening_costs_what_is_new_and_not_what_there_was() {
    let mut past = Past::new();
    let mut old = vec![past.newest];
    old.extend(past.commit(299));
    let last = past.commit(1)[0];
    assert_eq!(objects_read(&past.memory), 301, "without a checkpoint everything is read");
    assert!(past.extend());
    assert!(objects_read(&past.memory) <= 3);
    retention::forget_final(&past.repository, &old, "me").unwrap();
    collect(&past.repository, &everything(), &job()).unwrap();
    let few = objects_read(&past.memory);
    assert!(few <= 8, "{few} objects are read after all was forgotten and collected");
    let list = listed(&past.memory);
    assert_eq!(list.snapshots.len(), 1);
    assert_eq!((list.snapshots[0].id, list.heads.clone()), (last, vec![last]));
    // What is new is read, until it is worth another checkpoint.
    past.commit(NEW_NAMES_MIN - 1);
    assert_eq!(objects_read(&past.memory), few + NEW_NAMES_MIN as u64 - 1);
    assert!(!past.extend(), "not enough for one");
    past.commit(1);
    assert!(past.extend());
    assert!(objects_read(&past.memory) <= few + 1);
    assert!(check_all(&past.repository).notes.is_empty());
    // A collection reads the records of what is not forgotten, and nothing else.
    let counting = Arc::new(Counting::new(past.memory.clone()));
    let repository = open_on(Arc::clone(&counting) as Arc<dyn Store>, 92).unwrap();
    counting.take();
    collect(&repository, &CollectOptions { mark_only: true, ..everything() }, &job()).unwrap();
    let counts = counting.take();
    let live = listed(&past.memory).snapshots.len() as u64;
    for (top, read) in [(layout::OUTCOMES, live), (layout::TOMBSTONES, 0)] {
        assert_eq!(counts.of(top, Operation::Decided).calls, read, "{top}");
    }
}

#[test]
fn any_number_of_checkpoints_becomes_few() {
    let mut past = Past::new();
    for round in 0..40 {
        past.commit(NEW_NAMES_MIN);
        assert!(past.extend());
        assert!(past.checkpoints().len() <= SMALL_COUNT_MAX, "{round}: {:?}", past.checkpoints());
        assert!(objects_read(&past.memory) <= SMALL_COUNT_MAX as u64 + 1, "{round}");
    }
    assert_eq!(listed(&past.memory).snapshots.len(), 40 * NEW_NAMES_MIN + 1);
}

#[test]
fn what_cannot_be_deleted_is_not_read_for_ever() {
    let mut past = Past::new();
    let refuses = |call: &Call<'_>| match call.operation {
        Operation::Delete => Fault::Before(ErrorKind::ReadOnly),
        _ => Fault::None,
    };
    let faulty = Arc::new(Faulty::scripted(past.memory.clone(), refuses));
    let append_only = open_on(faulty, 93).unwrap();
    for round in 0..40 {
        past.commit(NEW_NAMES_MIN);
        assert!(checkpoints::extend(&append_only, NEW_NAMES_MIN).unwrap());
        assert!(objects_read(&past.memory) <= SMALL_COUNT_MAX as u64 + 1, "{round}");
    }
    assert!(past.checkpoints().len() >= 40, "nothing could be deleted");
    assert_eq!(listed(&past.memory).snapshots.len(), 40 * NEW_NAMES_MIN + 1);
    // Somebody who may delete tidies up.
    for _ in 0..SMALL_COUNT_MAX {
        past.commit(NEW_NAMES_MIN);
        past.extend();
    }
    assert!(past.checkpoints().len() <= SMALL_COUNT_MAX);
    listed(&past.memory);
}

#[test]
fn a_checkpoint_that_is_lost_damaged_planted_or_old_costs_reading() {
    let mut past = Past::new();
    let held = past.commit(20)[7];
    retention::change(&past.repository, &[held], "me", &|it| it.hold = true).unwrap();
    assert!(past.extend() || !past.checkpoints().is_empty());
    let old = past.memory.clone_state();
    let forgotten = past.commit(NEW_NAMES_MIN)[3];
    retention::forget_final(&past.repository, &[forgotten], "me").unwrap();
    collect(&past.repository, &everything(), &job()).unwrap();
    let expected = listed(&past.memory);
    assert!(expected.get(held).unwrap().record.hold && expected.get(forgotten).is_none());
    let all = past.checkpoints();
    assert!(all.len() > 1, "{all:?}");
    let (lost, damaged, swapped, long, rolled_back) = {
        let state = || past.memory.clone_state();
        (state(), state(), state(), state(), state())
    };
    let first = past.memory.get(&key(all[0].as_str())).unwrap();
    for name in &all {
        lost.remove(&key(name.as_str()));
        damaged.corrupt(&key(name.as_str()), |bytes| bytes[40] ^= 1);
        swapped.corrupt(&key(name.as_str()), |bytes| bytes.reverse());
        long.corrupt(&key(name.as_str()), |bytes| bytes.resize(3 * limits::MIB, 0));
        rolled_back.remove(&key(name.as_str()));
    }
    swapped.put(&key(layout::checkpoint(CheckpointId([9; 16]))), &first).unwrap();
    for name in names(&old, layout::CHECKPOINTS) {
        rolled_back.put(&key(name.as_str()), &old.get(&key(name)).unwrap()).unwrap();
    }
    let states = [
        ("lost", lost, 0),
        ("damaged", damaged, all.len()),
        ("swapped", swapped, all.len() + 1),
        ("long", long, all.len()),
        ("rolled back", rolled_back, 0),
    ];
    for (what, state, notes) in states {
        let list = listed(&state);
        assert_eq!(list.snapshots, expected.snapshots, "{what}");
        assert_eq!((&list.heads, &list.problems), (&expected.heads, &expected.problems), "{what}");
        let looks = check::CheckOptions {
            read_data: check::ReadData::None,
            threads: 1,
            record_quarantine: false,
        };
        let looked = check::check(&reopen(&state, 94), looks, &job()).unwrap();
        let report = check_all(&reopen(&state, 95));
        for report in [&looked, &report] {
            assert!(report.is_clean(), "{what}: {report:?}");
            let told = report.notes.iter().filter(|note| note.contains("checkpoints/"));
            assert_eq!(told.count(), notes, "{what}: {report:?}");
        }
        let again = check_all(&reopen(&state, 96));
        assert!(again.notes.is_empty(), "{what}: {again:?}");
        collect(&reopen(&state, 97), &everything(), &job()).unwrap();
        assert_eq!(listed(&state).snapshots, expected.snapshots, "{what}");
        assert!(objects_read(&state) <= SMALL_COUNT_MAX as u64 + 4, "{what}: it was made anew");
    }
}

#[test]
fn a_stop_after_any_change_of_checkpoints_loses_nothing() {
    let mut past = Past::new();
    let mut forgotten = Vec::new();
    for _ in 1..SMALL_COUNT_MAX {
        forgotten.push(past.commit(NEW_NAMES_MIN)[2]);
        assert!(past.extend());
    }
    retention::forget_final(&past.repository, &forgotten, "me").unwrap();
    past.commit(NEW_NAMES_MIN);
    let before = past.memory.operations();
    assert!(past.extend());
    let after = past.memory.operations();
    assert!(
        after - before >= SMALL_COUNT_MAX,
        "one is put, and those that it replaces are removed"
    );
    let expected = listed(&past.memory);
    for n in before..=after {
        let state = past.memory.state_after(n);
        let list = listed(&state);
        assert_eq!(
            (list.snapshots, list.heads),
            (expected.snapshots.clone(), expected.heads.clone())
        );
        let again = reopen(&state, 98 + n as u64);
        checkpoints::extend(&again, 1).unwrap();
        assert_eq!(listed(&state).snapshots, expected.snapshots, "after {n}");
        assert!(check_all(&again).is_clean(), "after {n}");
        assert!(objects_read(&state) <= SMALL_COUNT_MAX as u64 + 2, "after {n}");
    }
}

#[test]
fn an_outcome_that_only_a_checkpoint_proves_is_missed_until_it_is_given_up() {
    let mut past = Past::new();
    let newest = past.commit(NEW_NAMES_MIN)[NEW_NAMES_MIN - 1];
    assert!(past.extend());
    let name = layout::outcome(newest);
    past.memory.remove(&key(layout::copy_of(&name)));
    assert!(listed(&past.memory).lost.is_empty(), "there is another copy");
    past.memory.remove(&key(name.as_str()));
    let list = listed(&past.memory);
    assert!(list.lost.contains(&newest) && list.get(newest).is_none(), "{list:?}");
    assert!(!check_all(&past.repository).is_clean());
    let error = collect(&past.repository, &everything(), &job()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    forgetting::give_up(&past.repository, newest, "me").unwrap();
    let list = listed(&past.memory);
    assert!(list.lost.is_empty() && list.problems.is_empty(), "{list:?}");
    let report = check_all(&past.repository);
    assert!(report.is_clean(), "what was given up contradicts nothing: {report:?}");
    collect(&past.repository, &everything(), &job()).unwrap();
}

#[test]
fn a_record_that_has_rotten_is_told_from_a_checkpoint_and_by_a_check() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let ids: Vec<SessionId> =
        (0..NEW_NAMES_MIN as u64).map(|seed| saved.save(&[("a", seed, 9_000)])).collect();
    saved.forget(&ids[8..]);
    assert!(!names(&saved.memory, layout::CHECKPOINTS).is_empty(), "forgetting writes one");
    for name in [layout::outcome(ids[3]), layout::copy_of(&layout::outcome(ids[3]))] {
        saved.memory.corrupt(&key(name), |bytes| bytes[30] ^= 8);
    }
    let list = SnapshotList::load(&saved.repository).unwrap();
    assert!(list.get(ids[3]).is_some() && list.problems.is_empty(), "{list:?}");
    // What it needs stays.
    collect(&saved.repository, &everything(), &job()).unwrap();
    let content = crate::world::content_of(&saved.repository, ids[3]).unwrap();
    assert_eq!(content, saved.contents[&ids[3]]);
    let report = check_all(&saved.repository);
    assert!(report.problems.iter().any(|line| line.contains(&ids[3].to_string())), "{report:?}");
}

#[test]
fn a_tombstone_that_is_gone_forgets_nothing_and_is_told() {
    let mut past = Past::new();
    let id = past.commit(NEW_NAMES_MIN)[4];
    retention::forget_final(&past.repository, &[id], "me").unwrap();
    assert!(!past.checkpoints().is_empty());
    let name = layout::tombstone(id);
    past.memory.remove(&key(layout::copy_of(&name)));
    past.memory.remove(&key(name.as_str()));
    let list = listed(&past.memory);
    assert!(list.get(id).is_some_and(|one| one.hidden), "its last change hides it");
    assert!(list.problems.iter().any(|line| line.contains(&name)), "{:?}", list.problems);
    assert!(!check_all(&past.repository).is_clean());
    retention::forget_final(&past.repository, &[id], "me").unwrap();
    assert!(listed(&past.memory).get(id).is_none());
    assert!(check_all(&past.repository).is_clean());
}

#[test]
fn whoever_does_not_take_a_session_for_forgotten_gets_its_record() {
    let mut past = Past::new();
    let ids = past.commit(NEW_NAMES_MIN);
    retention::forget_final(&past.repository, &ids[..4], "me").unwrap();
    let known = Checkpoints::load(&past.repository).unwrap();
    assert!(matches!(known.ending(ids[0]), Some(Ending::WithoutRecord { .. })));
    // A second mark goes by the tombstones of an older plan.
    let older = BTreeSet::from([ids[1]]);
    let committed = snapshots::committed_but(
        &past.repository,
        &older,
        Evidence::load(&past.repository).unwrap(),
        &mut BTreeSet::new(),
    );
    let marked: BTreeSet<SessionId> =
        committed.unwrap().snapshots.into_iter().map(|(id, _)| id).collect();
    let expected = ids.iter().filter(|id| **id != ids[1]);
    assert!(expected.clone().all(|id| marked.contains(id)), "{marked:?}");
    assert!(!marked.contains(&ids[1]));
}

#[test]
fn checkpoints_are_no_longer_than_they_may_be() {
    let mut past = Past::new();
    let empty = record::encode(&record_with(&past.repository, past.root, vec![past.newest]));
    let room = limits::CHECKPOINT_RECORD_MAX_BYTES - empty.unwrap().len();
    let long = |bytes: usize| move |it: &mut SnapshotRecord| it.description = "d".repeat(bytes);
    let fits = past.commit_with(long(room));
    let too_long = past.commit_with(long(room + 1));
    past.commit(NEW_NAMES_MIN);
    assert!(past.extend());
    let known = Checkpoints::load(&past.repository).unwrap();
    assert!(matches!(known.ending(fits), Some(Ending::Committed(_))));
    assert!(matches!(known.ending(too_long), Some(Ending::WithoutRecord { .. })));
    assert_eq!(listed(&past.memory).get(too_long).unwrap().record.description.len(), room + 1);
    assert!(!past.extend(), "it is known, and read where it is");
    // As many records as fit into one, and one more.
    let most = limits::CHECKPOINT_MAX_BYTES / limits::CHECKPOINT_RECORD_MAX_BYTES;
    for count in [most - 1, most] {
        let mut past = Past::new();
        for _ in 0..count {
            past.commit_with(long(room));
        }
        assert!(past.extend());
        assert_eq!(past.checkpoints().len(), 1 + usize::from(count == most), "{count}");
        for name in past.checkpoints() {
            let bytes = past.memory.size(&key(name)).unwrap() as usize;
            assert!(bytes <= limits::CHECKPOINT_MAX_BYTES + 64, "{bytes}");
        }
        assert_eq!(listed(&past.memory).snapshots.len(), count + 1);
        assert!(objects_read(&past.memory) <= 3);
    }
}

#[test]
fn a_checkpoint_that_says_something_else_is_a_problem_with_a_remedy() {
    // Without encryption anybody can write one that opens.
    let memory = MemoryStore::new();
    let open = create_on(Arc::new(memory.clone()), Suite::None);
    let id = save(&open, &[file("a", 1, 5_000)]);
    let lie = Checkpoint { version: RECORD_VERSION, fenced: vec![id], ..Checkpoint::default() };
    let name = CheckpointId([3; 16]);
    let bytes = record::encode(&lie).unwrap();
    let vault = Vault::new(None);
    let sealed = vault.seal_record(Purpose::Checkpoint, &name.0, &bytes, &OsRandomness).unwrap();
    memory.put(&key(layout::checkpoint(name)), &sealed).unwrap();
    let report = check_all(&open);
    let told = |line: &&String| line.contains(&layout::checkpoint(name)) && line.contains("remove");
    assert_eq!(report.problems.iter().filter(told).count(), 1, "{report:?}");
    memory.remove(&key(layout::checkpoint(name)));
    assert!(check_all(&open).is_clean());
    assert!(SnapshotList::load(&open).unwrap().get(id).is_some());
}

#[test]
fn many_readers_read_what_one_reads() {
    let mut past = Past::new();
    past.commit(100);
    let with = |readers: usize| {
        let environment = onefold_engine::Environment { readers, ..environment(5) };
        let store = Arc::new(past.memory.clone());
        let repository = open_in(store, environment, memory_plan()).unwrap();
        SnapshotList::load(&repository).unwrap()
    };
    let (one, many) = (with(1), with(8));
    assert_eq!(one.snapshots.len(), 101);
    assert_eq!((one.snapshots, one.heads), (many.snapshots, many.heads));
    // What one of them cannot read is told as by a single one.
    past.memory.corrupt(&key(layout::outcome(past.newest)), |bytes| bytes[30] ^= 8);
    past.memory.corrupt(&key(format!("copies/outcomes/{}", past.newest)), |bytes| bytes[30] ^= 8);
    assert!(with_lost(&past.memory, 8).contains(&past.newest));
}

fn with_lost(memory: &MemoryStore, readers: usize) -> BTreeSet<SessionId> {
    let environment = onefold_engine::Environment { readers, ..environment(6) };
    let repository = open_in(Arc::new(memory.clone()), environment, memory_plan()).unwrap();
    SnapshotList::load(&repository).unwrap().lost
}
