//! The model with checkpoints: whoever writes them, at any moment, beside everybody who reads them.
//!
//! Writers here store one for every new name, so that each schedule has many, merged and replaced;
//! readers are the backups, collections, forgets and restores that there are.

use crate::canaries::dead_chunk;
use crate::device::Loss;
use crate::model::{Scenario, in_parallel, runs, two_switches, world};
use crate::schedule::{Segment, random_segments};
use crate::steps::reopen;
use crate::tasks::*;
use crate::world::*;
use onefold_engine::session::checkpoints;
use onefold_store::layers::Operation;
use std::sync::Arc;

/// Stores what is decided in a checkpoint, several times.
fn checkpoints_times(times: usize) -> Task {
    Arc::new(move |world, repository| {
        for _ in 0..times {
            world.count("checkpoints", u64::from(checkpoints::extend(repository, 1)?));
        }
        Ok(())
    })
}

/// A store whose past is in a checkpoint.
fn world_with_past() -> World {
    let world = world();
    checkpoints::extend(&reopen(world.base(), 1_000_950), 1).unwrap();
    world
}

fn explore(scenario: &Scenario, few: usize) {
    in_parallel(runs(few), |seed| {
        let segments = random_segments(seed as u64, scenario.actors.len());
        let loss = (seed % 3 == 2).then_some(Loss::Some(seed as u64));
        let mode = Mode { splits_lists: seed % 2 == 1, loss, ..Mode::default() };
        scenario.must_hold(&segments, mode);
    });
    assert!(scenario.world.counted("checkpoints") > 0, "none was ever written");
}

#[test]
fn checkpoints_beside_a_backup_a_forget_and_a_collection() {
    let tasks =
        [backs_up("x", "x"), reuses("p", "pq"), forgets("pq"), collects(), checkpoints_times(3)];
    explore(&Scenario::new(world_with_past(), tasks), 600);
}

#[test]
fn two_writers_of_checkpoints_beside_collections() {
    let tasks = [forgets("k"), collects(), collects(), checkpoints_times(4), checkpoints_times(4)];
    explore(&Scenario::new(world_with_past(), tasks), 600);
}

#[test]
fn a_collection_with_an_older_plan_than_the_checkpoint() {
    // The chain of the canary tombstones-reread: what was committed late is reused, and forgotten
    // before the second mark; by then a checkpoint has left its record out.
    let tasks =
        [backs_up("x", "x"), reuses("x", "x"), forgets("x"), collects(), checkpoints_times(2)];
    explore(&Scenario::new(world_with_past(), tasks), 600);
}

#[test]
fn a_second_mark_reads_what_a_checkpoint_has_left_out() {
    let tasks =
        [backs_up("x", "x"), reuses("x", "x"), forgets("x"), collects(), checkpoints_times(1)];
    let scenario = Scenario::new(dead_chunk(), tasks);
    // The schedule of the canary tombstones-reread; a checkpoint is written as soon as the first
    // snapshot is forgotten, so it is without its record when the collection marks again.
    let segments = [
        Segment::Until(0, Operation::Decide, "outcomes"),
        Segment::Until(3, Operation::ListNames, "plans"),
        Segment::Until(3, Operation::Put, "plans"),
        Segment::Run(3, 3),
        Segment::End(0),
        Segment::Until(1, Operation::Decide, "outcomes"),
        Segment::End(2),
        Segment::End(4),
        Segment::End(3),
        Segment::End(1),
    ];
    scenario.must_hold(&segments, false);
    assert_eq!(scenario.world.counted("checkpoints"), 1);
}

#[test]
fn a_writer_of_checkpoints_that_stops_at_any_step() {
    let scenario =
        Scenario::new(world_with_past(), [checkpoints_times(2), forgets("k"), collects()]);
    let steps = scenario.steps();
    let mut all = Vec::new();
    for step in 0..=steps[0] {
        let stop = [Segment::Run(0, step), Segment::Crash(0)];
        all.push([&stop[..], &[Segment::End(1), Segment::End(2)]].concat());
        all.push([&[Segment::End(1)], &stop[..], &[Segment::End(2)]].concat());
    }
    all.extend(two_switches(&scenario, 0, 1, 3));
    in_parallel(all.len(), |number| scenario.must_hold(&all[number], false));
}
