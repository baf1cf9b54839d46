//! A store that is itself at fault (docs/PROTOCOL.md): one small object rots or vanishes between
//! two steps of others. Nothing that a snapshot needs is ever deleted, a backup that says "saved"
//! is whole, and nobody is blocked for ever.

use crate::canaries::is_loss;
use crate::model::{Scenario, in_parallel};
use crate::schedule::{Segment, random_segments};
use crate::steps::*;
use crate::tasks::*;
use crate::world::*;
use onefold_engine::collection::collect;
use onefold_engine::retention;
use onefold_engine::session::SnapshotList;
use onefold_format::layout;
use onefold_store::layers::Operation::*;
use onefold_store::{Blobs, MemoryStore};
use onefold_types::ErrorKind;
use std::sync::Arc;

/// What happens to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    Vanishes,
    Rots,
}

const EVERY_HARM: [Harm; 2] = [Harm::Vanishes, Harm::Rots];

/// Spoils all objects below a top-level name, of which there should be one, and their copies.
fn spoil(store: &MemoryStore, top: &str, harm: Harm) {
    let copies = names(store, &layout::copy_of(top));
    for name in names(store, top).into_iter().chain(copies) {
        match harm {
            Harm::Vanishes => store.remove(&key(name)),
            Harm::Rots => store.corrupt(&key(name), |bytes| {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }),
        };
    }
}

/// An actor that is no process: with its one step the object is spoiled.
fn spoils(top: &'static str, harm: Harm) -> Actor {
    let looks: Task =
        Arc::new(move |_, repository| repository.store().list_names(top, &mut |_| Ok(())));
    Actor::new(looks).lying(move || {
        Box::new(move |operation, name, store| {
            if operation == ListNames && name == top {
                spoil(store, top, harm);
            }
            crate::gated::Answer::Honest
        })
    })
}

/// A backup and a collection after a run both come to an end, whatever they say.
fn nobody_is_blocked(world: &World, store: &MemoryStore) {
    for seed in [2_005_000, 2_005_001] {
        if let Err(error) = collect(&reopen(store, seed), &collect_options(), &job()) {
            panic!("a collection is blocked: {error}");
        }
    }
    (backs_up("x", "x"))(world, &reopen(store, 2_005_002)).unwrap();
}

#[test]
fn d1_a_forgotten_parent_whose_tombstone_is_spoiled_is_not_trusted() {
    for harm in EVERY_HARM {
        let world = World::new();
        let parent = world.save("p", "pq", 2);
        world.save("k", "k", 3);
        world.forget(parent);
        let actors = vec![
            Actor::new(collects()),
            spoils("tombstones", harm),
            Actor::new(reuses("p", "pq")),
            Actor::new(collects()),
        ];
        let scenario = Scenario { world, actors };
        in_parallel(60, |seed| {
            let segments = match seed {
                0 => [0, 1, 2, 3].map(Segment::End).to_vec(),
                _ => random_segments(seed as u64, 4),
            };
            let run = scenario.world.run(&scenario.actors, &segments, false);
            let repository = reopen(&run.store, 2_004_000);
            let list = SnapshotList::load(&repository).unwrap();
            for id in run.saved.iter().filter(|id| list.get(**id).is_some()) {
                let content = content_of(&repository, *id);
                let whole =
                    content.is_ok_and(|content| Some(content) == scenario.world.expected("pq"));
                assert!(whole, "{harm:?}: {id} was saved and is not whole, {segments:?}");
            }
        });
    }
}

#[test]
fn d2_an_open_epoch_whose_plan_is_spoiled_blocks_nobody() {
    for harm in EVERY_HARM {
        let world = World::new();
        let dead = world.save("x", "x", 2);
        world.save("k", "k", 3);
        world.forget(dead);
        let actors = vec![Actor::new(collects()), spoils("plans", harm)];
        let segments = [
            Segment::Until(0, Decide, "epochs"),
            Segment::Run(0, 1),
            Segment::Crash(0),
            Segment::End(1),
        ];
        let mut run = world.run(&actors, &segments, false);
        nobody_is_blocked(&world, &run.store);
        world.verify_whole(&run.store, "after all", &mut run.problems);
        assert!(!is_loss(&run.problems), "{harm:?}: {:?}", run.problems);
    }
}

#[test]
fn d4_without_outcomes_nothing_is_taken_for_garbage() {
    let world = World::new();
    world.save("k", "k", 2);
    world.save("p", "pq", 3);
    let before = names(world.base(), "containers");
    let actors = vec![spoils("outcomes", Harm::Vanishes), Actor::new(collects())];
    let segments = [Segment::End(0), Segment::End(1)];
    let run = world.run(&actors, &segments, false);
    let after = names(&run.store, "containers");
    assert!(before.iter().all(|name| after.contains(name)), "containers were deleted");
}

#[test]
fn d5_what_was_lost_with_the_index_is_stored_again() {
    let world = World::new();
    world.save("p", "pq", 2);
    // The data container goes, and the index that says that it was there; the tree stays.
    let size = |name: &String| world.base().size(&key(name.as_str())).unwrap();
    let largest = names(world.base(), "containers").into_iter().max_by_key(size).unwrap();
    assert!(world.base().remove(&key(largest)));
    let actors = vec![spoils("index", Harm::Vanishes), Actor::new(reuses("p", "pq"))];
    let run = world.run(&actors, &[0, 1].map(Segment::End), false);
    let repository = reopen(&run.store, 2_004_000);
    for id in &run.saved {
        let content = content_of(&repository, *id).map_err(|error| error.to_string());
        assert_eq!(content.ok(), world.expected("pq"), "{id} was saved and is not whole");
    }
}

#[test]
fn d8_what_was_brought_back_is_not_forgotten() {
    let world = World::new();
    let id = world.save("p", "pq", 2);
    world.save("k", "k", 3);
    retention::forget(&reopen(world.base(), 1_000_800), &[id], "me").unwrap();
    let undeletes: Task = Arc::new(move |_, repository| {
        match retention::undelete(repository, &[id]) {
            // Only what is said to be back has to be back.
            Ok(_) if SnapshotList::load(repository)?.get(id).is_some() => is_saved(id),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(())
    });
    let forgets_hidden: Task = Arc::new(|_, repository| {
        retention::forget_hidden_before(repository, i64::MAX, "me").map(drop)
    });
    let actors = vec![Actor::new(undeletes), Actor::new(forgets_hidden), Actor::new(collects())];
    let scenario = Scenario { world, actors };
    in_parallel(scenario.steps()[1], |step| {
        let segments = [Segment::Run(1, step), Segment::End(0), Segment::End(1), Segment::End(2)];
        let run = scenario.world.run(&scenario.actors, &segments, false);
        let list = SnapshotList::load(&reopen(&run.store, 2_004_000)).unwrap();
        for id in &run.saved {
            assert!(list.get(*id).is_some(), "{id} was back and is gone: {segments:?}");
        }
    });
}

#[test]
fn d3_lists_read_in_parts_beside_merges_miss_nothing() {
    let scenario = crate::wide::scenario();
    in_parallel(80, |seed| {
        let actors = scenario.actors.len();
        let segments = crate::schedule::random_segments_with(seed as u64, actors, &[0, 1]);
        scenario.must_hold(&segments, true);
    });
}

#[test]
fn d6_a_reader_survives_every_epoch_on_a_store_that_reads_on() {
    let readers = [restores(), collects(), collects(), backs_up("x", "x")];
    let scenario = Scenario::new(crate::model::world(), readers);
    let mode = Mode { reads_on: true, ..Mode::default() };
    in_parallel(100, |seed| scenario.must_hold(&random_segments(seed as u64, 4), mode));
}
