//! The model test where chunks are stored as differences: a base may be forgotten, condemned,
//! copied and deleted at any step of whoever makes a difference against it or finds one.
//!
//! A capital letter is a later version of a file: nearly the bytes of the small one, under its
//! name.

use crate::canaries::is_loss;
use crate::model::{Scenario, in_parallel, runs, stride, two_switches};
use crate::schedule::random_segments;
use crate::steps::*;
use crate::tasks::*;
use crate::world::*;
use onefold_engine::Repository;
use onefold_engine::container::reader::read_section;
use std::sync::Arc;

fn deltas_of(repository: &Arc<Repository>) -> usize {
    let sections = containers(repository).into_iter();
    sections.map(|id| read_section(repository, id).unwrap().deltas.len()).sum()
}

/// Random schedules, some of them with lists in two parts.
pub fn explore(scenario: &Scenario, few: usize) {
    in_parallel(runs(few), |seed| {
        let segments = random_segments(seed as u64, scenario.actors.len());
        scenario.must_hold(&segments, seed % 2 == 1);
    });
}

/// Schedules in which two actors change over twice.
pub fn in_two_switches(scenario: &Scenario) {
    let mut all = two_switches(scenario, 0, 1, stride(11));
    all.extend(two_switches(scenario, 1, 0, stride(11)));
    in_parallel(all.len(), |number| scenario.must_hold(&all[number], false));
}

/// `x` is saved, and its directory holds the next version of it.
fn before_a_version() -> World {
    let world = World::new();
    world.save("k", "kl", 2);
    world.save("v", "xy", 3);
    world.source("v", "XY");
    world
}

#[test]
fn later_versions_are_stored_as_differences_here() {
    // Without that the tests below would not be about differences at all.
    let world = before_a_version();
    world.save("v", "XY", 4);
    assert!(deltas_of(&reopen(world.base(), 2_000_000)) >= 2);
}

#[test]
fn a_base_that_is_forgotten_and_collected_beside_the_backup_that_takes_it() {
    let tasks = || [reuses("v", "XY"), collects(), forgets("xy")];
    let scenario = Scenario::new(before_a_version(), tasks());
    explore(&scenario, 400);
    let mut renewing = Scenario::new(before_a_version(), tasks());
    renewing.actors = renewing.actors.into_iter().map(Actor::renewing).collect();
    explore(&renewing, 200);
    // Forgotten before, but for the parent's being looked at.
    let world = before_a_version();
    in_two_switches(&Scenario::new(world, [reuses("v", "XY"), forgets_and_collects("xy")]));
}

/// Two versions are forgotten: the later one as differences, and what they are made of.
fn with_dead_versions() -> World {
    let world = World::new();
    let first = world.save("v", "xyz", 2);
    let second = world.save("v", "XYZ", 3);
    world.save("k", "kl", 4);
    world.forget(first);
    world.forget(second);
    world.source("w", "XYZ");
    world
}

#[test]
fn dead_differences_are_found_beside_a_collection_of_what_they_are_made_of() {
    let world = with_dead_versions();
    in_two_switches(&Scenario::new(world, [backs_up("w", "XYZ"), collects()]));
    let tasks = [backs_up("w", "XYZ"), collects(), collects(), restores()];
    explore(&Scenario::new(with_dead_versions(), tasks), 300);
}

#[test]
fn what_a_session_leaves_behind_that_was_fenced_or_crashed_is_used_only_if_it_can_be_made() {
    // The first backup may end at any step; what it has stored is found by the second, which may
    // come after what it is made of has gone.
    let tasks = [reuses("v", "XY"), forgets_and_collects("xy"), backs_up("w", "XY"), collects()];
    let world = before_a_version();
    world.source("w", "XY");
    explore(&Scenario::new(world, tasks), 500);
}

#[test]
fn several_versions_of_several_machines_beside_everything_else() {
    let world = World::new();
    world.save("v", "xyk", 2);
    world.save("w", "xyl", 3);
    world.source("v", "XYk");
    world.source("w", "XYl");
    let tasks = [
        reuses("v", "XYk"),
        reuses("w", "XYl"),
        forgets("xyk"),
        forgets("xyl"),
        collects(),
        collects(),
        restores(),
    ];
    explore(&Scenario::new(world, tasks), 300);
}

#[test]
fn a_base_that_is_deleted_by_hand_is_a_loss() {
    // The model sees what it is to see.
    let world = before_a_version();
    world.save("v", "XY", 4);
    let repository = reopen(world.base(), 2_000_000);
    let sections = containers(&repository).into_iter();
    let base = sections
        .flat_map(|id| read_section(&repository, id).unwrap().deltas)
        .find_map(|delta| delta.bases[0].container)
        .unwrap();
    let key = onefold_store::Key::new(onefold_format::layout::container(base)).unwrap();
    world.base().remove(&key);
    let scenario = Scenario::new(world, [restores()]);
    let run = scenario.world.run(&[], &[], false);
    let mut run = run;
    scenario.world.verify(&mut run);
    assert!(is_loss(&run.problems), "{:?}", run.problems);
}
