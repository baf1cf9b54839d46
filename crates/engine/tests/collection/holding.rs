//! What is said about snapshots after they were made (rule D9, R89): a hold and a forgetting for
//! good never both succeed, whatever the order of their steps, and wherever either stops.

use crate::basics::{Saved, everything};
use crate::model::{Scenario, in_parallel, two_switches};
use crate::schedule::{Segment, random_segments};
use crate::steps::*;
use crate::tasks::*;
use crate::world::*;
use onefold_crypto::Suite;
use onefold_engine::collection::collect;
use onefold_engine::retention;
use onefold_engine::session::changes::{self, Known};
use onefold_engine::session::checkpoints::{self, Checkpoints};
use onefold_engine::session::tombstones::{self, Forgotten};
use onefold_engine::session::{SnapshotList, epoch};
use onefold_format::layout::{self, ChangeName};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::{ErrorKind, SessionId};
use std::sync::Arc;

/// Puts a snapshot on hold; if that is said to have been done, it has to stay.
fn holds(id: SessionId) -> Task {
    Arc::new(move |_, repository| {
        match retention::change(repository, &[id], "me", &|it| it.hold = true) {
            Ok(_) => is_saved(id),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    })
}

/// Forgets a snapshot for good, unless it is on hold.
fn forgets_unheld(id: SessionId) -> Task {
    Arc::new(move |_, repository| match retention::forget_final(repository, &[id], "me") {
        Err(error) if error.to_string().contains("hold") => Ok(()),
        other => other,
    })
}

fn forgets_hidden() -> Task {
    Arc::new(|_, repository| retention::forget_hidden_before(repository, i64::MAX, "me").map(drop))
}

fn tags(id: SessionId, tag: &'static str) -> Task {
    Arc::new(move |_, repository| {
        let add = &|it: &mut changes::Attributes| {
            if !it.tags.iter().any(|other| other == tag) {
                it.tags.push(tag.to_owned());
            }
        };
        retention::change(repository, &[id], "me", add).map(drop)
    })
}

/// A store with a snapshot beside another one, hidden or not.
fn with_snapshot(hidden: bool) -> (World, SessionId) {
    let world = World::new();
    let id = world.save("p", "pq", 2);
    world.save("k", "k", 3);
    if hidden {
        retention::forget(&reopen(world.base(), 1_000_800), &[id], "me").unwrap();
    }
    (world, id)
}

/// Either the snapshot is on hold, or it is forgotten for good: nothing between, and nothing else
/// than what was said. With `may_stay` whoever forgets has crashed or come first and may not have.
fn assert_one_won(run: &Run, id: SessionId, may_stay: bool) {
    let repository = reopen(&run.store, 2_004_000);
    let list = SnapshotList::load(&repository).unwrap();
    let is_forgotten = tombstones::is_forgotten(&repository, id).unwrap();
    let was_held = run.saved.contains(&id);
    let trace = || format!("{:?}\n{}", run.problems, run.schedule.trace());
    assert!(run.problems.is_empty(), "{}", trace());
    assert!(list.problems.is_empty(), "{:?}\n{}", list.problems, trace());
    assert_eq!(list.get(id).is_none(), is_forgotten, "{}", trace());
    assert!(!(was_held && is_forgotten), "it was held and is forgotten: {}", trace());
    let is_held = list.get(id).is_some_and(|snapshot| snapshot.record.hold);
    assert!(!was_held || is_held, "{}", trace());
    assert!(may_stay || is_held || is_forgotten, "nobody succeeded: {}", trace());
}

fn every_order(scenario: &Scenario) -> Vec<Vec<Segment>> {
    let mut all = two_switches(scenario, 0, 1, 1);
    all.extend(two_switches(scenario, 1, 0, 1));
    all.extend((0..300).map(|seed| random_segments(seed, scenario.actors.len())));
    all
}

#[test]
fn r89_a_hold_and_a_forgetting_never_both_succeed_in_any_order() {
    let (world, id) = with_snapshot(false);
    let scenario = Scenario::new(world, [holds(id), forgets_unheld(id)]);
    let all = every_order(&scenario);
    in_parallel(all.len(), |number| {
        let run = scenario.world.run(&scenario.actors, &all[number], number % 2 == 1);
        assert_one_won(&run, id, all[number].iter().any(|it| matches!(it, Segment::Crash(_))));
    });
}

#[test]
fn r89_a_hold_and_the_forgetting_of_what_is_hidden_never_both_succeed_in_any_order() {
    let (world, id) = with_snapshot(true);
    let scenario = Scenario::new(world, [holds(id), forgets_hidden()]);
    let all = every_order(&scenario);
    in_parallel(all.len(), |number| {
        let run = scenario.world.run(&scenario.actors, &all[number], number % 2 == 1);
        assert_one_won(&run, id, all[number].iter().any(|it| matches!(it, Segment::Crash(_))));
    });
}

#[test]
fn r89_a_hold_beside_forgetting_and_collections_is_told_the_truth() {
    for hidden in [false, true] {
        let (world, id) = with_snapshot(hidden);
        let forgets = if hidden { forgets_hidden() } else { forgets_unheld(id) };
        let scenario = Scenario::new(world, [holds(id), forgets, collects(), collects()]);
        in_parallel(400, |seed| {
            let segments = random_segments(seed as u64, 4);
            let may_stay = segments.iter().any(|it| matches!(it, Segment::Crash(_)));
            let run = scenario.world.run(&scenario.actors, &segments, seed % 2 == 1);
            assert_one_won(&run, id, may_stay);
            scenario.world.verify(&mut { run });
        });
    }
}

#[test]
fn r89_what_is_brought_back_is_not_forgotten_in_any_order() {
    let (world, id) = with_snapshot(true);
    let undeletes: Task = Arc::new(move |_, repository| {
        match retention::undelete(repository, &[id]) {
            Ok(_) => is_saved(id),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    });
    let scenario = Scenario::new(world, [undeletes, forgets_hidden()]);
    let all = every_order(&scenario);
    in_parallel(all.len(), |number| {
        let run = scenario.world.run(&scenario.actors, &all[number], number % 2 == 1);
        let list = SnapshotList::load(&reopen(&run.store, 2_004_000)).unwrap();
        let is_back = list.get(id).is_some_and(|snapshot| !snapshot.hidden);
        assert!(run.problems.is_empty(), "{:?}\n{}", run.problems, run.schedule.trace());
        assert!(!run.saved.contains(&id) || is_back, "{}", run.schedule.trace());
    });
}

#[test]
fn r89_a_crash_at_every_step_of_either_is_finished_by_whoever_comes_next() {
    for hidden in [false, true] {
        let (world, id) = with_snapshot(hidden);
        let forgets = || if hidden { forgets_hidden() } else { forgets_unheld(id) };
        let tasks = [holds(id), forgets(), forgets(), collects(), holds(id)];
        let scenario = Scenario::new(world, tasks);
        let steps = scenario.steps();
        let mut all = Vec::new();
        // Who crashes, who comes next, and whether that one may leave the snapshot as it is.
        for (dead, next, may_stay) in
            [(0, 1, false), (1, 2, false), (1, 3, true), (1, 4, false), (0, 4, false)]
        {
            for step in 0..=steps[dead] {
                let run = vec![Segment::Run(dead, step), Segment::Crash(dead), Segment::End(next)];
                all.push((run, next, may_stay));
            }
        }
        in_parallel(all.len(), |number| {
            let (segments, next, may_stay) = &all[number];
            // Whoever is not in the schedule would run after it.
            let others = (0..5).filter(|other| *other > 0 && other != next);
            let rest: Vec<Segment> = others.map(Segment::Crash).collect();
            let segments = [segments.as_slice(), rest.as_slice(), &[Segment::Crash(0)]].concat();
            let run = scenario.world.run(&scenario.actors, &segments, false);
            assert_one_won(&run, id, *may_stay);
            let list = SnapshotList::load(&reopen(&run.store, 2_004_500)).unwrap();
            let dangles =
                list.get(id).is_some_and(|it| it.hidden && list.changes.of(id).is_forgotten());
            assert!(!dangles, "{segments:?}\n{}", run.schedule.trace());
        });
    }
}

#[test]
fn r89_of_two_changes_at_once_none_is_lost_in_any_order() {
    let (world, id) = with_snapshot(false);
    let scenario = Scenario::new(world, [tags(id, "one"), tags(id, "two")]);
    let all = two_switches(&scenario, 0, 1, 1);
    in_parallel(all.len(), |number| {
        let run = scenario.world.run(&scenario.actors, &all[number], number % 2 == 1);
        assert!(run.problems.is_empty(), "{:?}", run.problems);
        let list = SnapshotList::load(&reopen(&run.store, 2_004_000)).unwrap();
        let mut tags = list.get(id).unwrap().record.tags.clone();
        tags.sort();
        assert_eq!(tags, ["one", "two"], "{}", run.schedule.trace());
    });
}

fn change(snapshot: SessionId, number: u64) -> [String; 2] {
    let name = layout::change(ChangeName { snapshot, number });
    [layout::copy_of(&name), name]
}

fn rot(memory: &MemoryStore, name: &str) {
    memory.corrupt(&key(name), |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
}

/// Two snapshots, the second of which is on hold by its second change.
fn held() -> (Saved, SessionId) {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    saved.save(&[("a", 1, 30_000)]);
    let id = saved.save(&[("b", 2, 30_000)]);
    let say = |apply: &dyn Fn(&mut changes::Attributes)| {
        retention::change(&saved.repository, &[id], "me", apply).unwrap()
    };
    assert!(say(&|it| it.tags = vec!["t".into()])[0].is_new);
    assert!(say(&|it| it.hold = true)[0].is_new);
    assert!(!say(&|it| it.hold = true)[0].is_new, "it is said already");
    assert_eq!(names(&saved.memory, layout::CHANGES).len(), 2);
    (saved, id)
}

fn other_than(saved: &Saved, id: SessionId) -> SessionId {
    *saved.contents.keys().find(|other| **other != id).unwrap()
}

/// The snapshot counts as held, a check says by what, and saying again what holds is the remedy.
fn assert_held_for_lack_of(memory: &MemoryStore, id: SessionId, number: u64) {
    let repository = reopen(memory, 70);
    let list = SnapshotList::load(&repository).unwrap();
    assert!(list.get(id).unwrap().record.hold);
    let name = change(id, number)[1].clone();
    let is_named = |problems: &[String]| {
        problems.iter().any(|it| it.contains(&name) && it.contains("onefold release"))
    };
    assert!(is_named(&list.problems), "{:?}", list.problems);
    assert!(is_named(&check_all(&repository).problems));
    let refused = retention::forget_final(&repository, &[id], "me").unwrap_err();
    assert!(refused.to_string().contains("on hold"), "{refused}");
    assert_eq!(retention::forget_hidden_before(&repository, i64::MAX, "me").unwrap(), 0);
    collect(&repository, &everything(), &job()).unwrap();
    assert!(SnapshotList::load(&repository).unwrap().get(id).unwrap().record.hold);
    let said = retention::change(&repository, &[id], "me", &|it| it.hold = false).unwrap();
    assert!(said[0].is_new && !said[0].attributes.hold);
    let list = SnapshotList::load(&reopen(memory, 71)).unwrap();
    assert!(list.problems.is_empty(), "{:?}", list.problems);
    assert_eq!(list.changes.of(id).last, number + 1);
    assert!(check_all(&repository).is_clean());
    retention::forget_final(&repository, &[id], "me").unwrap();
}

#[test]
fn r89_a_snapshot_whose_newest_change_is_lost_counts_as_held() {
    for release in [false, true] {
        let (saved, id) = held();
        // Also what was released last: nobody can tell any more that it was.
        let number = 2 + u64::from(release);
        if release {
            retention::change(&saved.repository, &[id], "me", &|it| it.hold = false).unwrap();
        }
        change(id, number).iter().for_each(|name| rot(&saved.memory, name));
        assert_held_for_lack_of(&saved.memory, id, number);
    }
}

#[test]
fn r89_a_lost_change_that_a_checkpoint_repeats_holds_as_it_was() {
    let (saved, id) = held();
    assert!(checkpoints::extend(&saved.repository, 1).unwrap());
    change(id, 2).iter().for_each(|name| rot(&saved.memory, name));
    let repository = reopen(&saved.memory, 70);
    let list = SnapshotList::load(&repository).unwrap();
    let record = &list.get(id).unwrap().record;
    assert!(record.hold && record.tags == ["t"] && list.problems.is_empty(), "{:?}", list.problems);
    let problems = check_all(&repository).problems;
    let name = &change(id, 2)[1];
    let said = |it: &String| it.contains(name) && it.contains("where no checkpoint repeats it");
    assert!(problems.iter().any(said), "{problems:?}");
    // A release is no hold that was lost either.
    retention::change(&repository, &[id], "me", &|it| it.hold = false).unwrap();
    checkpoints::extend(&repository, 1).unwrap();
    change(id, 3).iter().for_each(|name| rot(&saved.memory, name));
    let list = SnapshotList::load(&reopen(&saved.memory, 71)).unwrap();
    assert!(!list.get(id).unwrap().record.hold && list.problems.is_empty());
}

#[test]
fn r89_a_change_that_a_plan_knew_is_missed() {
    let (mut saved, id) = held();
    let dead = saved.save(&[("x", 77, 90_000)]);
    saved.forget(&[dead]);
    collect(&saved.repository, &everything(), &job()).unwrap();
    for number in [1, 2] {
        change(id, number)
            .iter()
            .for_each(|name| assert!(saved.memory.remove(&key(name.as_str()))));
    }
    assert_held_for_lack_of(&saved.memory, id, 2);
}

#[test]
fn r89_changes_that_a_collection_removes_are_not_lost() {
    let (mut saved, id) = held();
    let dead = saved.save(&[("x", 77, 90_000)]);
    saved.forget(&[dead]);
    collect(&saved.repository, &everything(), &job()).unwrap();
    // Somebody has read this plan, and lists the changes after the next collection.
    let plan = epoch::newest_plan(&saved.repository).unwrap().unwrap();
    assert_eq!(epoch::changes_of(&plan).get(&id), Some(&2));
    retention::change(&saved.repository, &[id], "me", &|it| it.hold = false).unwrap();
    saved.forget(&[id]);
    collect(&saved.repository, &everything(), &job()).unwrap();
    assert!(names(&saved.memory, layout::CHANGES).is_empty());
    let planned = Forgotten { changes: epoch::changes_of(&plan), ..Forgotten::default() };
    let known = Checkpoints::load(&saved.repository).unwrap();
    let slow = changes::Changes::load_with(&saved.repository, &planned, &known).unwrap();
    assert!(!slow.of(id).is_lost);
    assert!(slow.problems(&|_| true, &|_| true).is_empty());
}

#[test]
fn r89_names_that_follow_no_change_mean_nothing() {
    let (saved, id) = held();
    let rotten = saved.memory.get(&key(change(id, 2)[1].as_str())).unwrap();
    // Another number, another snapshot, and numbers that nothing can follow.
    let other = other_than(&saved, id);
    for name in [change(id, 4), change(id, u64::MAX), change(other, 2)] {
        saved.memory.put(&key(name[1].as_str()), &rotten).unwrap();
    }
    for name in [format!("changes/{id}.03"), format!("changes/{id}"), "changes/x.1".to_owned()] {
        saved.memory.put(&key(name), b"junk").unwrap();
    }
    let repository = reopen(&saved.memory, 72);
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(list.problems.len(), 3, "{:?}", list.problems);
    assert!(list.problems.iter().all(|it| it.contains("can be removed")), "{:?}", list.problems);
    assert_eq!((list.changes.of(id).last, list.changes.of(other).last), (2, 0));
    assert!(list.get(id).unwrap().record.hold && !list.get(other).unwrap().record.hold);
    // What stands at the next number but one costs a number and no more.
    for hold in [false, true] {
        retention::change(&repository, &[id], "me", &|it| it.hold = hold).unwrap();
        let list = SnapshotList::load(&repository).unwrap();
        assert_eq!(list.get(id).unwrap().record.hold, hold);
        assert!(!list.changes.of(id).is_lost);
    }
    assert_eq!(SnapshotList::load(&repository).unwrap().changes.of(id).last, 6);
    // One that is missing before others that open is missed by nobody.
    change(id, 1).iter().for_each(|name| assert!(saved.memory.remove(&key(name.as_str()))));
    assert!(SnapshotList::load(&repository).unwrap().get(id).unwrap().record.hold);
}

#[test]
fn r89_a_collection_removes_the_changes_of_what_is_forgotten_and_nobody_writes_new_ones() {
    let (saved, id) = held();
    let slow = SnapshotList::load(&reopen(&saved.memory, 73)).unwrap().changes.of(id);
    retention::change(&saved.repository, &[id], "me", &|it| it.hold = false).unwrap();
    retention::forget_final(&saved.repository, &[id], "me").unwrap();
    collect(&saved.repository, &everything(), &job()).unwrap();
    assert!(names(&saved.memory, layout::CHANGES).is_empty());
    assert!(names(&saved.memory, &layout::copy_of(layout::CHANGES)).is_empty());
    // Whoever looked before and decides a number only now does not succeed, whatever he saw.
    for known in [slow, Known::default()] {
        for hold in [true, false] {
            let said = changes::edit(&saved.repository, id, known.clone(), "me", &|it| {
                it.hold = hold;
            });
            assert_eq!(said.unwrap_err().kind(), ErrorKind::NotFound);
        }
    }
    assert!(SnapshotList::load(&saved.repository).unwrap().get(id).is_none());
    assert!(check_all(&saved.repository).is_clean());
    let dead = other_than(&saved, id);
    retention::forget_final(&saved.repository, &[dead], "me").unwrap();
    collect(&saved.repository, &everything(), &job()).unwrap();
    assert!(names(&saved.memory, layout::CHANGES).is_empty(), "the next one removes what is left");
}
