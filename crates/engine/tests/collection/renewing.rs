//! Backups that renew their sessions (W8), in the model: what a collection condemns beside a backup
//! is left, or the backup is fenced; never does it rely on what goes.

use crate::model::{Scenario, in_parallel};
use crate::schedule::{Segment, random_segments_with, renewal};
use crate::tasks::*;
use crate::world::*;
use onefold_store::layers::Operation::*;

/// Schedules in which the backup, actor 0, stops at a step; the others do what `between` says; the
/// collector, the last actor, decides an epoch and is about to look for old sessions; the backup
/// renews itself, as a whole or up to some step; all end.
fn with_renewal_at_every_step(scenario: &Scenario, between: &[Segment]) -> Vec<Vec<Segment>> {
    let actors = scenario.actors.len();
    let (collector, renewer) = (actors - 1, actors);
    let mut all = Vec::new();
    for step in 0..=scenario.steps()[0] {
        let mut segments = vec![Segment::Run(0, step)];
        segments.extend_from_slice(between);
        segments.extend([
            Segment::Until(collector, Decide, "epochs"),
            Segment::Run(collector, 1),
            Segment::Until(collector, ListNames, "sessions"),
        ]);
        let ends = [Segment::End(collector), Segment::End(0)];
        all.push([&segments[..], &renewal(renewer), &ends].concat());
        // The backup goes on before the collector does; or it is in the midst of renewing.
        all.push([&segments[..], &renewal(renewer), &[Segment::Run(0, 3)], &ends].concat());
        let steps = 2 + step % 7;
        all.push([&segments[..], &[Segment::Run(renewer, steps)], &ends].concat());
    }
    all
}

fn must_hold_all(scenario: &Scenario, all: &[Vec<Segment>]) {
    in_parallel(all.len(), |number| scenario.must_hold(&all[number], false));
}

fn explore(scenario: &Scenario, schedules: usize) {
    let actors = scenario.actors.len();
    in_parallel(schedules, |seed| {
        let segments = random_segments_with(seed as u64, actors, &[0]);
        scenario.must_hold(&segments, seed % 2 == 1);
    });
}

/// `x` is garbage, `k` and `m` are live in a container that is partly garbage.
fn mixed_world() -> World {
    let world = World::new();
    let dead = world.save("x", "x", 2);
    let mixed = world.save("mixed", "kmn", 3);
    world.save("km", "km", 4);
    world.forget(dead);
    world.forget(mixed);
    world
}

fn backup_and_collection(world: World, backs_up: Task) -> Scenario {
    let actors = vec![Actor::new(backs_up).renewing(), Actor::new(collects())];
    Scenario { world, actors }
}

/// Every order of a renewal and a collection at every step of the backup, and some by chance.
fn relies_on_nothing_condemned(scenario: &Scenario, between: &[Segment]) {
    must_hold_all(scenario, &with_renewal_at_every_step(scenario, between));
    explore(scenario, 60);
}

#[test]
fn w8_garbage_that_a_backup_has_found_cannot_be_left() {
    let scenario = backup_and_collection(mixed_world(), backs_up("x", "x"));
    relies_on_nothing_condemned(&scenario, &[]);
}

#[test]
fn w8_what_a_backup_has_found_is_found_again_where_a_collection_has_copied_it() {
    let world = mixed_world();
    world.source("kx", "kx");
    let scenario = backup_and_collection(world, backs_up("kx", "kx"));
    relies_on_nothing_condemned(&scenario, &[]);
    let world = mixed_world();
    world.source("k", "k");
    let scenario = backup_and_collection(world, backs_up("k", "k"));
    relies_on_nothing_condemned(&scenario, &[]);
    assert!(scenario.world.counted("renewals") > 10, "{}", scenario.world.counted("renewals"));
}

#[test]
fn w8_a_parent_that_was_forgotten_keeps_a_backup_from_renewing() {
    let world = World::new();
    world.save("p", "pq", 2);
    world.save("k", "k", 3);
    let forgotten = vec![
        Actor::new(reuses("p", "pq")).renewing(),
        Actor::new(forgets("pq")),
        Actor::new(collects()),
    ];
    let scenario = Scenario { world, actors: forgotten };
    relies_on_nothing_condemned(&scenario, &[Segment::End(1)]);
}

#[test]
fn w8_a_backup_cannot_leave_its_own_containers() {
    // Enough for a container that is stored long before the end, and garbage to the collector.
    const LETTERS: &str = "abcdefghijlmnoqr";
    let world = World::new();
    world.save("k", "k", 3);
    world.source("new", LETTERS);
    let scenario = backup_and_collection(world, backs_up("new", LETTERS));
    relies_on_nothing_condemned(&scenario, &[]);
}
