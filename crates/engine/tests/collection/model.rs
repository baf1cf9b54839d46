//! The model test: many interleavings of backups, forgets, collections, restores and crashes.

use crate::schedule::{Segment, random_segments};
use crate::steps::*;
use crate::tasks::*;
use crate::world::*;
use onefold_engine::collection::{CollectOptions, MarkAlgorithm};
use onefold_engine::ingest::{ParentChoice, backup};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A world and who acts in it.
pub struct Scenario {
    pub world: World,
    pub actors: Vec<Actor>,
}

impl Scenario {
    pub fn new(world: World, tasks: impl IntoIterator<Item = Task>) -> Self {
        Self { world, actors: tasks.into_iter().map(Actor::new).collect() }
    }

    /// Runs one schedule; returns what went wrong.
    pub fn problems(&self, segments: &[Segment], mode: impl Into<Mode>) -> Vec<String> {
        let mut run = self.world.run(&self.actors, segments, mode);
        self.world.verify(&mut run);
        run.problems
    }

    /// Runs one schedule, which must go well.
    pub fn must_hold(&self, segments: &[Segment], mode: impl Into<Mode>) {
        let mode = mode.into();
        let mut run = self.world.run(&self.actors, segments, mode);
        self.world.verify(&mut run);
        assert!(
            run.problems.is_empty(),
            "{:?}\nschedule: {segments:?}, {mode:?}\n{}",
            run.problems,
            run.schedule.trace()
        );
    }

    /// Runs a schedule with all actors keeping to the rules; returns what went wrong.
    pub fn honest_problems(&self, segments: &[Segment]) -> Vec<String> {
        let actors: Vec<Actor> = self.actors.iter().map(Actor::honest).collect();
        let mut run = self.world.run(&actors, segments, false);
        self.world.verify(&mut run);
        run.problems
    }

    /// How many steps each actor makes if all others come later.
    pub fn steps(&self) -> Vec<usize> {
        self.steps_in(Mode::default())
    }

    /// The same on a store of this kind.
    pub fn steps_in(&self, mode: Mode) -> Vec<usize> {
        let alone = |actor: usize| {
            let segments = [Segment::End(actor)];
            self.world.run(&self.actors, &segments, mode).schedule.steps()[actor]
        };
        (0..self.actors.len()).map(alone).collect()
    }
}

/// Calls `work` with every number below `count`, on as many threads as there are processors.
pub fn in_parallel(count: usize, work: impl Fn(usize) + Sync) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(4);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    work(number);
                }
            });
        }
    });
}

/// Schedules of a test; `ONEFOLD_MODEL_RUNS` raises it.
pub fn runs(few: usize) -> usize {
    let wanted = std::env::var("ONEFOLD_MODEL_RUNS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(0).max(few)
}

/// A store in which `x` is garbage, `k` is partly garbage, and `p` was saved twice.
pub fn world() -> World {
    let world = World::new();
    let dead = world.save("x", "x", 2);
    let mixed = world.save("mixed", "kmn", 3);
    world.save("k", "k", 4);
    world.save("p", "pq", 5);
    world.forget(dead);
    world.forget(mixed);
    world
}

fn explore_random(scenario: &Scenario, few: usize) {
    in_parallel(runs(few), |seed| {
        let segments = random_segments(seed as u64, scenario.actors.len());
        scenario.must_hold(&segments, seed % 2 == 1);
    });
}

/// Of schedules of a large scenario one in so many is tried; `ONEFOLD_MODEL_STRIDE` lowers it.
pub fn stride(coarse: usize) -> usize {
    let wanted = std::env::var("ONEFOLD_MODEL_STRIDE").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(coarse).clamp(1, coarse)
}

/// Schedules in which two actors take turns so: `a` up to a step, `b` up to a step, `a`, `b`. Of
/// both every step is among them; of pairs of steps one in `stride`.
pub fn two_switches(scenario: &Scenario, a: usize, b: usize, stride: usize) -> Vec<Vec<Segment>> {
    let steps = scenario.steps();
    let mut all = Vec::new();
    for first in 0..=steps[a] {
        for second in (first % stride..=steps[b]).step_by(stride) {
            all.push(vec![
                Segment::Run(a, first),
                Segment::Run(b, second),
                Segment::End(a),
                Segment::End(b),
            ]);
        }
    }
    all
}

#[test]
fn files_that_have_not_changed_are_reused() {
    // Without that the tests below would not be about reuse at all.
    let world = world();
    let repository = reopen(world.base(), 2_000_000);
    let options = described(&world.describe("pq"), ParentChoice::Newest);
    let report = backup(&repository, paths(&world.path("p")), &options, &job()).unwrap();
    assert_eq!((report.summary.files_unchanged, report.summary.bytes_read), (2, 0));
}

#[test]
fn a_backup_of_what_is_garbage_beside_a_collection_in_orders_of_two_switches() {
    let scenario = Scenario::new(world(), [backs_up("x", "x"), collects()]);
    let mut all = two_switches(&scenario, 0, 1, stride(7));
    all.extend(two_switches(&scenario, 1, 0, stride(7)));
    in_parallel(all.len(), |number| scenario.must_hold(&all[number], false));
}

#[test]
fn r8_a_crash_at_every_step_of_any_of_two_leaves_work_that_the_next_one_ends() {
    let scenario = Scenario::new(world(), [backs_up("x", "x"), collects(), collects()]);
    let steps = scenario.steps();
    let mut all = Vec::new();
    for (dead, other) in [(0, 1), (1, 0), (1, 2)] {
        for step in 0..=steps[dead] {
            let crash = [Segment::Run(dead, step), Segment::Crash(dead), Segment::End(other)];
            all.push(crash.to_vec());
            all.push([&[Segment::End(other)], &crash[..]].concat());
        }
    }
    in_parallel(all.len(), |number| scenario.must_hold(&all[number], false));
}

#[test]
fn r1_a_snapshot_made_by_reuse_beside_forgetting_its_parent_and_a_collection() {
    let tasks = [reuses("p", "pq"), forgets("pq"), collects()];
    explore_random(&Scenario::new(world(), tasks), 600);
}

#[test]
fn r4_two_collections_at_once_beside_a_backup() {
    explore_random(&Scenario::new(world(), [backs_up("x", "x"), collects(), collects()]), 600);
}

#[test]
fn a_chain_of_reuse_beside_forgetting_and_a_collection() {
    let tasks = [backs_up("x", "x"), reuses("x", "x"), forgets("x"), collects()];
    explore_random(&Scenario::new(world(), tasks), 600);
}

#[test]
fn everything_at_once() {
    let tasks = [
        backs_up("x", "x"),
        reuses("p", "pq"),
        forgets("k"),
        collects(),
        collects_with(CollectOptions {
            algorithm: MarkAlgorithm::PhysicalPlus,
            ..collect_options()
        }),
        restores(),
    ];
    explore_random(&Scenario::new(world(), tasks), 600);
}
