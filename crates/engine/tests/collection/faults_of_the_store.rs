//! What holds when the store itself is at fault (docs/PROTOCOL.md, section 10): decisions that rot
//! or vanish, one copy or both, alone or with the directory they were in.

use crate::basics::{Saved, assert_refused, everything};
use crate::steps::*;
use crate::world::create_in;
use onefold_crypto::Suite;
use onefold_engine::check;
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::retention;
use onefold_engine::session::announced;
use onefold_engine::session::changes::Known;
use onefold_engine::session::decided::{CopyState, DecidedName};
use onefold_engine::session::doubts::{self, Doubts};
use onefold_engine::session::epoch::{self, Newest};
use onefold_engine::session::evidence;
use onefold_engine::session::forgetting;
use onefold_engine::session::tombstones::{self, SnapshotState};
use onefold_engine::session::{SnapshotList, WriterSession, marks};
use onefold_format::layout;
use onefold_store::layers::{Call, Fault, Faulty};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::{ErrorKind, SessionId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Both names of a decision.
fn both(name: &str) -> [String; 2] {
    [name.to_owned(), layout::copy_of(name)]
}

fn rot(memory: &MemoryStore, name: &str) {
    assert!(memory.corrupt(&key(name), |bytes| bytes[17] ^= 4), "{name} is not there");
}

fn remove_all(memory: &MemoryStore, top: &str) {
    for name in names(memory, top) {
        memory.remove(&key(name));
    }
}

/// Removes the records of all outcomes, both copies.
fn lose_outcomes(memory: &MemoryStore) {
    remove_all(memory, layout::OUTCOMES);
    remove_all(memory, &layout::copy_of(layout::OUTCOMES));
}

/// A collection stops, and neither the list nor a check says that all is well.
fn assert_loss_is_seen(memory: &MemoryStore) {
    let repository = reopen(memory, 60);
    let before = containers(&repository);
    let error = collect(&repository, &everything(), &job()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(containers(&repository), before, "nothing was deleted");
    assert!(!check_all(&repository).is_clean());
}

#[test]
fn r59_every_decision_survives_the_loss_of_either_copy() {
    let mut saved = Saved::versions(Suite::Aes256Gcm);
    let last = *saved.contents.keys().next_back().unwrap();
    retention::forget(&saved.repository, &[last], "me").unwrap();
    retention::undelete(&saved.repository, &[last]).unwrap();
    collect(&saved.repository, &everything(), &job()).unwrap();
    let forgotten = saved.save(&[("x", 77, 90_000)]);
    saved.forget(&[forgotten]);
    retention::change(&saved.repository, &[last], "me", &|it| it.hold = true).unwrap();
    let tops = [
        layout::OUTCOMES,
        layout::TOMBSTONES,
        layout::EPOCHS,
        layout::SWEEPS,
        layout::FATES,
        layout::CHANGES,
    ];
    for top in tops {
        let decided = names(&saved.memory, top);
        assert!(!decided.is_empty(), "there is something below {top}");
        let copies = names(&saved.memory, &layout::copy_of(top));
        assert_eq!(copies.len(), decided.len(), "each has its copy below {top}");
        // A collection removes the changes of what is forgotten.
        let is_removed =
            |name: &String| top == layout::CHANGES && name.contains(&forgotten.to_string());
        for name in decided.into_iter().filter(|name| !is_removed(name)) {
            for one in both(&name) {
                let (rotten, gone) = (saved.memory.clone_state(), saved.memory.clone_state());
                rot(&rotten, &one);
                gone.remove(&key(one.as_str()));
                for state in [&rotten, &gone] {
                    let list = SnapshotList::load(&reopen(state, 50)).unwrap();
                    assert!(list.problems.is_empty() && list.lost.is_empty(), "{one}: {list:?}");
                    assert_eq!(list.snapshots.len(), saved.contents.len(), "{one}");
                    assert!(list.get(last).is_some_and(|it| it.record.hold), "{one}");
                    let repository = reopen(state, 51);
                    collect(&repository, &everything(), &job()).unwrap();
                    // What can be mended is.
                    let report = check_all(&repository);
                    assert!(report.is_clean(), "{one}: {report:?}");
                    let states = both(&name).map(|name| state.get(&key(name)).unwrap());
                    assert_eq!(states[0], states[1], "{one}");
                    let again = check_all(&repository);
                    assert!(again.is_clean(), "{one}: {again:?}");
                    assert!(again.notes.is_empty(), "{one}: {again:?}");
                }
            }
        }
    }
}

#[test]
fn r59_a_decision_whose_first_copy_is_gone_is_not_decided_anew_otherwise() {
    let (memory, repository) = create();
    let session = WriterSession::begin(&repository).unwrap();
    let id = session.id();
    let root = put_tree(&repository, &session, &[file("f", 1, 10)]).reference;
    // A collector fences the session; the first copy of that is lost before the writer decides.
    let fenced = onefold_format::record::encode(&onefold_format::record::Outcome::Fenced).unwrap();
    assert!(DecidedName::outcome(id).decide(&repository, &fenced).unwrap().is_own);
    assert!(memory.remove(&key(layout::outcome(id))));
    let record = record_of(&repository, root);
    let commit = session.commit(record).unwrap();
    assert_eq!(commit, onefold_engine::session::Commit::Fenced);
    let states = DecidedName::outcome(id).states(&repository).unwrap();
    assert_eq!(states, [CopyState::Sound, CopyState::Sound]);
}

#[test]
fn r59_lost_outcomes_stop_a_collection_if_anything_tells_of_them() {
    type Tell<'a> = &'a dyn Fn(&mut Saved);
    let tells: [(&str, Tell<'_>); 4] = [
        ("a tombstone", &|saved| {
            let id = saved.save(&[("x", 9, 50_000)]);
            saved.forget(&[id]);
        }),
        ("a mark", &|saved| {
            let id = *saved.contents.keys().next().unwrap();
            retention::forget(&saved.repository, &[id], "me").unwrap();
        }),
        ("a plan", &|saved| {
            let id = saved.save(&[("x", 9, 50_000)]);
            saved.forget(&[id]);
            collect(&saved.repository, &everything(), &job()).unwrap();
            remove_all(&saved.memory, layout::TOMBSTONES);
            remove_all(&saved.memory, &layout::copy_of(layout::TOMBSTONES));
        }),
        ("containers alone", &|_| {}),
    ];
    for (what, tell) in tells {
        let mut saved = Saved::new(Suite::Aes256Gcm);
        saved.save(&[("a", 1, 50_000)]);
        saved.save(&[("b", 2, 50_000)]);
        tell(&mut saved);
        assert!(check_all(&saved.repository).is_clean(), "{what}");
        lose_outcomes(&saved.memory);
        assert_loss_is_seen(&saved.memory);
    }
}

#[test]
fn r59_a_plan_that_knew_more_outcomes_stops_a_collection() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let forgotten = saved.save(&[("a", 1, 50_000)]);
    let kept = saved.save(&[("b", 2, 50_000)]);
    let newest = saved.save(&[("c", 3, 50_000)]);
    saved.forget(&[forgotten]);
    collect(&saved.repository, &everything(), &job()).unwrap();
    // Nothing names the newest one yet.
    both(&layout::outcome(newest)).iter().for_each(|name| {
        saved.memory.remove(&key(name.as_str()));
    });
    assert!(SnapshotList::load(&saved.repository).unwrap().get(kept).is_some());
    assert_loss_is_seen(&saved.memory);
}

#[test]
fn r59_a_store_without_any_record_is_emptied_only_if_that_is_said() {
    let memory = MemoryStore::recording();
    let repository = create_in(&memory, Suite::None);
    let session = WriterSession::begin(&repository).unwrap();
    put_tree(&repository, &session, &[file("f", 1, 10_000)]);
    session.abandon();
    assert_eq!(names(&memory, layout::OUTCOMES).len(), 1, "fenced");
    both(&names(&memory, layout::OUTCOMES)[0]).iter().for_each(|name| {
        memory.remove(&key(name.as_str()));
    });
    assert_loss_is_seen(&memory);
    let options = CollectOptions { allow_empty: true, ..everything() };
    let looks = CollectOptions { mark_only: true, ..options.clone() };
    let (written, there) = (memory.operations(), containers(&repository).len());
    let planned = collect(&repository, &looks, &job()).unwrap();
    assert_eq!(memory.operations(), written, "nothing was written");
    assert_eq!(planned.deleted_containers, there as u64);
    assert_loss_is_seen(&memory);
    collect(&repository, &options, &job()).unwrap();
    assert!(containers(&repository).is_empty());
    assert!(check_all(&repository).is_clean());
    collect(&repository, &everything(), &job()).unwrap();
}

#[test]
fn r59_a_session_explains_its_own_containers_and_no_others() {
    for is_fenced in [false, true] {
        let mut saved = Saved::new(Suite::Aes256Gcm);
        saved.save(&[("a", 1, 50_000)]);
        let session = WriterSession::begin(&saved.repository).unwrap();
        put_tree(&saved.repository, &session, &[file("f", 2, 50_000)]);
        lose_outcomes(&saved.memory);
        if is_fenced {
            assert!(announced::fence(&saved.repository, session.id()).unwrap());
        }
        assert_loss_is_seen(&saved.memory);
        // One container of the snapshot, one of its nodes; so for the session.
        assert_eq!(containers(&saved.repository).len(), 4);
        assert_eq!(evidence::strays(&saved.repository).unwrap(), 2, "fenced: {is_fenced}");
    }
}

#[test]
fn r59_what_a_first_backup_that_was_stopped_has_left_is_collected_without_asking() {
    let (memory, repository) = create();
    let session = WriterSession::begin(&repository).unwrap();
    put_tree(&repository, &session, &[file("f", 1, 10_000)]);
    session.abandon();
    let report = check_all(&reopen(&memory, 60));
    assert!(report.is_clean() && report.notes.is_empty(), "{:?}", report.notes);
    collect(&repository, &everything(), &job()).unwrap();
    assert!(containers(&repository).is_empty());
}

#[test]
fn r59_a_first_backup_that_is_running_is_no_loss() {
    let (_, repository) = create();
    let session = WriterSession::begin(&repository).unwrap();
    put_tree(&repository, &session, &[file("f", 1, 10_000)]);
    let looks = CollectOptions { mark_only: true, ..everything() };
    collect(&repository, &looks, &job()).unwrap();
    // Whoever grants none fences it, and takes what it has stored.
    collect(&repository, &everything(), &job()).unwrap();
    assert!(containers(&repository).is_empty());
}

#[test]
fn r66_a_lost_outcome_stops_collections_until_it_is_given_up() {
    for is_gone in [false, true] {
        let mut saved = Saved::new(Suite::Aes256Gcm);
        let lost = saved.save(&[("a", 1, 50_000), ("b", 2, 50_000)]);
        saved.save(&[("b", 2, 50_000)]);
        let dead = saved.save(&[("c", 3, 50_000)]);
        saved.forget(&[dead]);
        for name in both(&layout::outcome(lost)) {
            match is_gone {
                true => assert!(saved.memory.remove(&key(name))),
                false => rot(&saved.memory, &name),
            }
        }
        assert_refused(&saved, &lost.short());
        let list = SnapshotList::load(&saved.repository).unwrap();
        assert_eq!(list.lost.iter().collect::<Vec<_>>(), [&lost]);
        assert!(list.problems[0].contains("--give-up"), "{:?}", list.problems);
        // The tree is found although nothing names it any more.
        let report = check_all(&saved.repository);
        let found: Vec<_> = report.roots.iter().filter(|found| found.is_whole).collect();
        assert_eq!(found.len(), 1, "{report:?}");
        assert_eq!((found[0].totals.entries, found[0].totals.bytes), (2, 100_000));

        let known = *saved.contents.keys().find(|id| **id != lost).unwrap();
        for wrong in [known, SessionId([9; 16])] {
            let error = forgetting::give_up(&saved.repository, wrong, "me").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        forgetting::give_up(&saved.repository, lost, "me").unwrap();
        saved.contents.remove(&lost);
        collect(&saved.repository, &everything(), &job()).unwrap();
        saved.assert_whole();
        collect(&saved.repository, &everything(), &job()).unwrap();
    }
}

#[test]
fn r66_trees_without_a_record_beyond_those_listed_are_counted() {
    // One more than a check lists (ROOTS_MAX in check/roots.rs), beside the one of the lost record.
    let (memory, repository) = create();
    let lost = save(&repository, &[file("f", 1_000, 9_000)]);
    for seed in 0..100 {
        let session = WriterSession::begin(&repository).unwrap();
        put_tree(&repository, &session, &[file("f", seed, 100)]);
        session.abandon();
    }
    both(&layout::outcome(lost)).iter().for_each(|name| rot(&memory, name));
    let report = check_all(&repository);
    assert_eq!(report.roots.len(), 100);
    assert_eq!(report.roots[0].totals.bytes, 9_000, "the largest comes first");
    assert!(report.problems.iter().any(|line| line.starts_with("1 more tree")), "{report:?}");
}

#[test]
fn r60_more_doubts_than_a_snapshot_may_name_concern_all() {
    // One more than NAMED_MAX in session/doubts.rs.
    let (_, repository) = create();
    for _ in 0..1024 {
        doubts::raise(&repository, "a test").unwrap();
    }
    let known = Doubts::load(&repository).unwrap();
    let root = save(&repository, &[file("f", 1, 100)]);
    let list = SnapshotList::load(&repository).unwrap();
    let mut record = list.get(root).unwrap().record.clone();
    record.doubts = known.named();
    assert!(!known.concern(&record), "it names them all");
    doubts::raise(&repository, "a test").unwrap();
    let known = Doubts::load(&repository).unwrap();
    record.doubts = known.named();
    assert!(record.doubts.len() == 1024 && known.concern(&record));
}

#[test]
fn r61_a_rotten_tombstone_makes_no_trusted_parent_and_forgetting_again_works() {
    let (memory, repository) = create();
    let parent = save(&repository, &[file("f", 1, 50_000)]);
    retention::forget_final(&repository, &[parent], "me").unwrap();
    both(&layout::tombstone(parent)).iter().for_each(|name| rot(&memory, name));
    let repository = reopen(&memory, 3);
    assert_eq!(tombstones::state_of(&repository, parent).unwrap(), SnapshotState::Unknown);
    let session = WriterSession::begin(&repository).unwrap();
    assert!(!session.check_parent(parent).unwrap(), "it may have been collected");
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(list.problems.len(), 1, "{:?}", list.problems);
    assert!(list.get(parent).is_some(), "to forget takes the key");

    retention::forget_final(&repository, &[parent], "me").unwrap();
    assert_eq!(tombstones::state_of(&repository, parent).unwrap(), SnapshotState::Forgotten);
    assert!(SnapshotList::load(&reopen(&memory, 4)).unwrap().snapshots.is_empty());
}

#[test]
fn r61_what_a_collection_knew_to_be_forgotten_stays_forgotten() {
    for is_gone in [false, true] {
        let mut saved = Saved::new(Suite::Aes256Gcm);
        let collected = saved.save(&[("a", 1, 90_000)]);
        saved.save(&[("b", 2, 90_000)]);
        saved.forget(&[collected]);
        collect(&saved.repository, &everything(), &job()).unwrap();
        for name in both(&layout::tombstone(collected)) {
            match is_gone {
                true => assert!(saved.memory.remove(&key(name))),
                false => rot(&saved.memory, &name),
            }
        }
        let repository = reopen(&saved.memory, 5);
        let session = WriterSession::begin(&repository).unwrap();
        assert!(!session.check_parent(collected).unwrap());
        session.abandon();
        // Nor does it stop a later collection, whose plan knows it, too.
        let dead = saved.save(&[("c", 3, 90_000)]);
        saved.forget(&[dead]);
        collect(&saved.repository, &everything(), &job()).unwrap();
        let plan = epoch::newest_plan(&saved.repository).unwrap().unwrap();
        assert!(plan.tombstones.contains(&collected) && plan.tombstones.contains(&dead));
        assert_eq!(SnapshotList::load(&saved.repository).unwrap().snapshots.len(), 1);
    }
}

/// A store with an open epoch that condemns a container that is needed, as a collector leaves it
/// that stops after G3; returns its number.
fn with_open_epoch(saved: &Saved) -> u64 {
    let plan = onefold_format::record::Plan {
        condemned: containers(&saved.repository).into_iter().collect(),
        ..Default::default()
    };
    let number = epoch::next_number(epoch::newest_number(&saved.repository).unwrap()).unwrap();
    assert!(epoch::publish(&saved.repository, number, plan, &[]).unwrap().is_some());
    number
}

#[test]
fn r65_an_open_epoch_whose_plan_is_lost_stops_nobody_and_deletes_nothing() {
    for lost in ["gone", "rotten", "epoch"] {
        for first in ["writer", "collector"] {
            let mut saved = Saved::new(Suite::Aes256Gcm);
            saved.save(&[("a", 1, 90_000)]);
            let number = with_open_epoch(&saved);
            let plans = names(&saved.memory, layout::PLANS);
            match lost {
                "gone" => assert!(saved.memory.remove(&key(plans[0].as_str()))),
                "rotten" => rot(&saved.memory, &plans[0]),
                _ => both(&layout::epoch(number)).iter().for_each(|name| rot(&saved.memory, name)),
            }
            assert!(matches!(epoch::newest(&saved.repository).unwrap(), Newest::Lost { .. }));
            assert!(epoch::condemned(&saved.repository).unwrap().is_empty());
            match first {
                "writer" => drop(saved.save(&[("b", 2, 50_000)])),
                _ => drop(collect(&saved.repository, &everything(), &job()).unwrap()),
            }
            assert_eq!(epoch::decided_sweep(&saved.repository, number).unwrap(), Some(Vec::new()));
            let dead = saved.save(&[("c", 3, 50_000)]);
            saved.forget(&[dead]);
            collect(&saved.repository, &everything(), &job()).unwrap();
            for (id, content) in &saved.contents {
                let restored = crate::world::content_of(&reopen(&saved.memory, 6), *id).unwrap();
                assert_eq!(restored, *content, "{lost} {first}");
            }
        }
    }
}

#[test]
fn r65_a_lost_plan_whose_sweep_was_decided_is_carried_out() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let dead = saved.save(&[("a", 1, 90_000)]);
    let condemned = containers(&saved.repository);
    saved.save(&[("b", 2, 90_000)]);
    saved.forget(&[dead]);
    let plan = onefold_format::record::Plan {
        condemned: condemned.iter().copied().collect(),
        tombstones: vec![dead],
        ..Default::default()
    };
    epoch::publish(&saved.repository, 1, plan, &[]).unwrap().unwrap();
    let swept = condemned.iter().copied().collect();
    epoch::decide_sweep(&saved.repository, 1, swept).unwrap();
    remove_all(&saved.memory, layout::PLANS);
    // A writer avoids what will be deleted, and leaves the epoch to a collector.
    let session = WriterSession::begin(&saved.repository).unwrap();
    assert_eq!(*session.avoid(), condemned);
    session.abandon();
    collect(&saved.repository, &everything(), &job()).unwrap();
    assert!(containers(&saved.repository).is_disjoint(&condemned));
    saved.assert_whole();
}

#[test]
fn r65_a_sweep_that_is_lost_after_it_was_decided_is_outdone() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    saved.save(&[("a", 1, 90_000)]);
    let number = with_open_epoch(&saved);
    let condemned = containers(&saved.repository);
    epoch::decide_sweep(&saved.repository, number, Vec::new()).unwrap();
    both(&layout::sweep(number)).iter().for_each(|name| rot(&saved.memory, name));
    collect(&saved.repository, &everything(), &job()).unwrap();
    assert!(containers(&saved.repository).is_disjoint(&condemned), "all that may be deleted is");
    let report = check_all(&saved.repository);
    assert!(report.damaged_paths.is_empty(), "{report:?}");
    let dead = saved.save(&[("c", 3, 50_000)]);
    saved.forget(&[dead]);
    collect(&saved.repository, &everything(), &job()).unwrap();
}

#[test]
fn r63_what_was_brought_back_is_not_forgotten_by_a_slow_collector() {
    let (memory, repository) = create();
    let ids = [1, 2, 3].map(|seed| save(&repository, &[file("f", seed, 20_000)]));
    retention::forget(&repository, &ids, "me").unwrap();
    let later = i64::MAX;
    // The collector has listed all three; then one of them comes back.
    let slow = reopen(&memory, 9);
    let known = |id| SnapshotList::load(&repository).unwrap().changes.of(id);
    let final_at = |id, known| marks::make_final(&slow, id, known, later, "slow").unwrap();
    let (first, second) = (known(ids[0]), known(ids[1]));
    assert!(final_at(ids[0], first));
    assert_eq!(retention::undelete(&repository, &[ids[1]]).unwrap(), 1);
    assert!(!final_at(ids[1], second), "its mark is looked at again");
    // The one that was made final is not brought back any more, and whoever tries forgets it.
    let error = retention::undelete(&repository, &[ids[0]]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(retention::forget_hidden_before(&slow, later, "me").unwrap(), 1);
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(list.snapshots.len(), 1);
    assert!(list.snapshots[0].id == ids[1] && !list.snapshots[0].hidden);
}

#[test]
fn r27_forgetting_that_was_stopped_half_way_can_be_repeated() {
    let (memory, repository) = create();
    let ids = [1, 2, 3].map(|seed| save(&repository, &[file("f", seed, 2_000)]));
    let puts = std::sync::atomic::AtomicU64::new(0);
    let full = move |call: &Call<'_>| match call.name.starts_with(layout::TOMBSTONES)
        && call.operation == onefold_store::layers::Operation::Decide
        && puts.fetch_add(1, Ordering::Relaxed) > 0
    {
        true => Fault::Before(ErrorKind::NoSpace),
        false => Fault::None,
    };
    let stopped = open_on(Arc::new(Faulty::scripted(memory.clone(), full)), 5).unwrap();
    let error = retention::forget_final(&stopped, &ids, "me").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    retention::forget_final(&repository, &ids, "me").unwrap();
    assert!(SnapshotList::load(&repository).unwrap().snapshots.is_empty());
    let error = retention::forget_final(&repository, &[SessionId([7; 16])], "me").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn r63_hiding_and_forgetting_decide_each_mark_once_in_every_order() {
    // One of them is stopped after each of its steps while the other does all of its own.
    for steps in 0..40 {
        let memory = MemoryStore::recording();
        let repository = create_on(Arc::new(memory.clone()), Suite::None);
        let id = save(&repository, &[file("f", 1, 2_000)]);
        retention::forget(&repository, &[id], "me").unwrap();
        let calls = std::sync::atomic::AtomicU64::new(0);
        let stop = move |_: &Call<'_>| match calls.fetch_add(1, Ordering::Relaxed) {
            call if call < steps => Fault::None,
            _ => Fault::Before(ErrorKind::Io),
        };
        let stopped = open_on(Arc::new(Faulty::scripted(memory.clone(), stop)), 7);
        let brought_back = stopped.map(|stopped| retention::undelete(&stopped, &[id]));
        let was_told = matches!(brought_back, Ok(Ok(1)));
        let forgotten = retention::forget_hidden_before(&repository, i64::MAX, "me").unwrap();
        assert!(!(was_told && forgotten > 0), "after {steps} steps");
        let list = SnapshotList::load(&reopen(&memory, 8)).unwrap();
        assert_eq!(list.snapshots.len() as u64, 1 - forgotten, "after {steps} steps");
    }
}

#[test]
fn r63_a_mark_that_is_put_back_hides_nothing() {
    let (memory, repository) = create();
    let [first, second] = [1, 2].map(|seed| save(&repository, &[file("f", seed, 2_000)]));
    retention::forget(&repository, &[first], "me").unwrap();
    let name = names(&memory, layout::MARKS).remove(0);
    let mark = memory.get(&key(name.as_str())).unwrap();
    assert_eq!(retention::undelete(&repository, &[first]).unwrap(), 1);
    memory.put(&key(name.as_str()), &mark).unwrap();
    // Nor does it hide anything under another name, or another snapshot.
    let other = name.replace(&first.to_string(), &second.to_string());
    memory.put(&key(other), &mark).unwrap();
    let fresh = format!("{}/{first}.{}", layout::MARKS, "5".repeat(32));
    memory.put(&key(fresh), &mark).unwrap();
    let repository = reopen(&memory, 3);
    let list = SnapshotList::load(&repository).unwrap();
    assert!(list.visible().count() == 2, "{list:?}");
    assert_eq!(list.problems.len(), 2, "{:?}", list.problems);
    assert_eq!(retention::forget_hidden_before(&repository, i64::MAX, "me").unwrap(), 0);
    // What is hidden again is hidden.
    retention::forget(&repository, &[first], "me").unwrap();
    assert_eq!(SnapshotList::load(&repository).unwrap().visible().count(), 1);
    assert_eq!(retention::undelete(&repository, &[first]).unwrap(), 1);
}

#[test]
fn r60_a_check_keeps_the_quarantine_of_a_container_that_the_index_does_not_name_any_more() {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let id = saved.save(&[("a", 1, 90_000), ("b", 2, 90_000)]);
    saved.save(&[("c", 3, 90_000)]);
    let lost = *containers(&saved.repository).first().unwrap();
    saved.memory.remove(&key(layout::container(lost)));
    assert!(!check_all(&saved.repository).is_clean());
    check::repair_index(&saved.repository, None, &job()).unwrap();
    for _ in 0..2 {
        let report = check_all(&reopen(&saved.memory, 7));
        assert!(report.damaged_containers.iter().any(|(named, _)| *named == lost), "{report:?}");
        assert!(report.damaged_paths.iter().all(|path| path.snapshot == id), "{report:?}");
        assert_eq!(names(&saved.memory, layout::DAMAGE).len(), 1, "it stays in quarantine");
    }
    // A container of which nothing but a metadata pack tells is named, too.
    let report = {
        let state = saved.memory.clone_state();
        remove_all(&state, layout::DAMAGE);
        check_all(&reopen(&state, 8))
    };
    assert!(report.damaged_containers.iter().any(|(named, _)| *named == lost), "{report:?}");
}

#[test]
fn r63_what_was_made_final_is_forgotten_by_whoever_comes_next() {
    for by_collector in [true, false] {
        let (_, repository) = create();
        let [hidden, kept] = [1, 2].map(|seed| save(&repository, &[file("f", seed, 2_000)]));
        retention::forget(&repository, &[hidden], "me").unwrap();
        // Whoever made it final was stopped before the tombstone.
        let known = Known::default();
        assert!(marks::make_final(&repository, hidden, known, i64::MAX, "me").unwrap());
        match by_collector {
            true => drop(collect(&repository, &everything(), &job()).unwrap()),
            false => {
                let error = retention::undelete(&repository, &[hidden]).unwrap_err();
                assert!(error.to_string().contains("forgotten for good"), "{error}");
            }
        }
        let list = SnapshotList::load(&repository).unwrap();
        assert_eq!(list.snapshots.iter().map(|one| one.id).collect::<Vec<_>>(), [kept]);
        assert!(tombstones::is_forgotten(&repository, hidden).unwrap());
    }
}
