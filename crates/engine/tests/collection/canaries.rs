//! Canaries: rules of the protocol broken on purpose, each by one actor whose store lies to it or
//! who does the steps in the wrong order. The model must report a lost chunk for some schedule, or
//! it would not notice if the real code broke the rule (docs/PROTOCOL.md, section 6). The schedule
//! that catches a canary is played again with actors that keep to the rules: then nothing may go
//! wrong, or it is the code that breaks the rule.
//!
//! [`writers`] break the rules W1 to W8, [`collectors`] G1 to G8, [`shares`] those of shares.

mod collectors;
mod shares;
mod writers;

use crate::gated::{Answer, Lie};
use crate::model::{Scenario, in_parallel};
use crate::schedule::{Segment, random_segments};
use crate::steps::*;
use crate::tasks::*;
use crate::world::*;
use onefold_crypto::{Purpose, Vault};
use onefold_engine::collection::{CollectOptions, SpaceGoal};
use onefold_engine::session::epoch::finished_name;
use onefold_engine::session::outcome::read_outcome;
use onefold_engine::session::{Commit, SnapshotList, WriterSession};
use onefold_engine::tree::directory::Directory;
use onefold_format::layout;
use onefold_format::record::{self, Outcome, Plan};
use onefold_store::layers::Operation::{self, *};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::environment::SeededRandomness;
use onefold_types::{ErrorKind, PlanId, SessionId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Random schedules tried for a canary that is not caught earlier.
const TRIES: usize = 20_000;

/// A snapshot or a chunk of one is lost; other complaints do not count.
pub fn is_loss(problems: &[String]) -> bool {
    problems
        .iter()
        .any(|problem| problem.contains("is lost") || problem.contains("damaged_paths: [Damaged"))
}

/// Some schedule makes the canary lose something, and nobody else.
fn is_caught(scenario: &Scenario) {
    let (caught, tried) = (Mutex::new(None), AtomicUsize::new(0));
    in_parallel(TRIES, |seed| {
        if caught.lock().unwrap().is_none() {
            let segments = random_segments(seed as u64, scenario.actors.len());
            tried.fetch_add(1, Ordering::Relaxed);
            if is_loss(&scenario.problems(&segments, false)) {
                *caught.lock().unwrap() = Some(segments);
            }
        }
    });
    eprintln!("tried {} schedules", tried.load(Ordering::Relaxed));
    let caught = caught.into_inner().unwrap().expect("no schedule lost anything");
    holds_otherwise(scenario, &caught);
}

/// This schedule makes the canary lose something, and nobody else.
pub fn is_caught_by(scenario: &Scenario, segments: &[Segment]) {
    let mut run = scenario.world.run(&scenario.actors, segments, false);
    scenario.world.verify(&mut run);
    let (problems, trace) = (&run.problems, run.schedule.trace());
    assert!(is_loss(problems), "nothing was lost: {problems:?}\n{trace}");
    holds_otherwise(scenario, segments);
}

/// The schedule is harmless if all actors keep to the rules.
fn holds_otherwise(scenario: &Scenario, segments: &[Segment]) {
    let problems = scenario.honest_problems(segments);
    assert!(problems.is_empty(), "without the canary: {problems:?}\nschedule: {segments:?}");
}

/// The store without some objects, and without their copies.
pub fn without(store: &MemoryStore, top: &str, hides: impl Fn(&str) -> bool) -> MemoryStore {
    let state = store.clone_state();
    for name in names(store, top) {
        if hides(&name) {
            state.remove(&key(layout::copy_of(&name)));
            state.remove(&key(name));
        }
    }
    state
}

/// The store with plans that know of no tombstone, which otherwise tell what is forgotten.
fn without_plans_tombstones(store: &MemoryStore) -> MemoryStore {
    let state = store.clone_state();
    let vault = Vault::new(None);
    for name in names(store, "plans") {
        let id: PlanId = layout::last_component(&name).parse().unwrap();
        let sealed = store.get(&key(name.as_str())).unwrap();
        let bytes = vault.open_record(Purpose::Plan, &id.0, &sealed).unwrap();
        let plan = Plan { tombstones: Vec::new(), ..record::decode(&bytes, "plan").unwrap() };
        let bytes = record::encode(&plan).unwrap();
        let randomness = SeededRandomness::new(1);
        let sealed = vault.seal_record(Purpose::Plan, &id.0, &bytes, &randomness).unwrap();
        state.corrupt(&key(name), |bytes| bytes.clone_from(&sealed));
    }
    state
}

/// Whether the operation reads the newest epoch.
fn reads_epoch(name: &str) -> bool {
    ["epochs", "finished", "plans"].iter().any(|top| name.starts_with(top))
}

/// The state when something was first true of an operation, for all that are asked later.
#[derive(Default)]
struct Remembered(Mutex<Option<MemoryStore>>);

impl Remembered {
    fn since(&self, store: &MemoryStore) -> MemoryStore {
        self.0.lock().unwrap().get_or_insert_with(|| store.clone_state()).clone()
    }

    fn is_set(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }
}

/// Lies by the state as it was when the actor opened the store.
fn stale_from_start(applies: fn(Operation, &str) -> bool) -> Lie {
    let start = Remembered::default();
    Box::new(move |operation, name, store| {
        let old = start.since(store);
        if applies(operation, name) { Answer::By(old) } else { Answer::Honest }
    })
}

pub fn scenario_of(world: World, actors: Vec<Actor>) -> Scenario {
    Scenario { world, actors }
}

/// `x` was forgotten; the first actor saves it again.
pub fn dead_chunk() -> World {
    let world = World::new();
    let dead = world.save("x", "x", 2);
    world.save("k", "k", 3);
    world.forget(dead);
    world
}

/// `p` is live, and shares nothing with the other.
fn live_parent() -> World {
    let world = World::new();
    world.save("p", "p", 2);
    world.save("k", "k", 3);
    world
}

fn writer_and_collector(lies: fn() -> Lie) -> Scenario {
    let writer = Actor::new(backs_up("x", "x")).lying(lies);
    scenario_of(dead_chunk(), vec![writer, Actor::new(collects())])
}

fn collector_lies(lies: fn() -> Lie) -> Scenario {
    let collector = Actor::new(collects()).lying(lies);
    scenario_of(dead_chunk(), vec![Actor::new(backs_up("x", "x")), collector])
}

fn reusing_writer_lies(lies: fn() -> Lie) -> Scenario {
    let writer = Actor::new(reuses("p", "p")).lying(lies);
    let actors = vec![writer, Actor::new(forgets("p")), Actor::new(collects())];
    scenario_of(live_parent(), actors)
}

/// What says that an epoch is finished, as a holder of the key puts it.
fn finished(number: u64) -> Vec<u8> {
    let name = finished_name(number);
    let randomness = SeededRandomness::new(number);
    Vault::new(None).seal_record(Purpose::Plan, &name, b"", &randomness).unwrap()
}

/// Every epoch looks finished, so that nothing is avoided.
fn all_finished(operation: Operation, name: &str, store: &MemoryStore) -> Answer {
    if operation == Get && name.starts_with("finished/") && store.size(&key(name)).is_err() {
        let state = store.clone_state();
        let number = name.trim_start_matches("finished/").parse().unwrap();
        state.put(&key(name), &finished(number)).unwrap();
        return Answer::By(state);
    }
    Answer::Honest
}
