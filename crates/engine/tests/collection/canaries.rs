//! Canaries: rules of the protocol broken on purpose, each by one actor whose store lies to it or
//! who does the steps in the wrong order. The model must report a lost chunk for some schedule, or
//! it would not notice if the real code broke the rule (docs/PROTOCOL.md, section 6).

use crate::model::{Scenario, in_parallel};
use crate::schedule::{Answer, Lie, Segment, random_segments};
use crate::steps::*;
use crate::world::*;
use onefold_engine::collection::{CollectOptions, SpaceGoal};
use onefold_engine::session::snapshots::read_outcome;
use onefold_engine::session::{Commit, SnapshotList, WriterSession};
use onefold_engine::tree::directory::Directory;
use onefold_format::layout;
use onefold_format::record::Outcome;
use onefold_store::layers::Operation::{self, *};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::{ErrorKind, SessionId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Random schedules tried for a canary that is not caught earlier.
const TRIES: usize = 20_000;

/// A snapshot or a chunk of one is lost; other complaints do not count.
fn is_loss(problems: &[String]) -> bool {
    problems
        .iter()
        .any(|problem| problem.contains("is lost") || problem.contains("damaged_paths: [Damaged"))
}

/// Some schedule makes the canary lose something.
fn is_caught(scenario: &Scenario) {
    let (caught, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
    in_parallel(TRIES, |seed| {
        if !caught.load(Ordering::Relaxed) {
            let segments = random_segments(seed as u64, scenario.actors.len());
            tried.fetch_add(1, Ordering::Relaxed);
            if is_loss(&scenario.problems(&segments, false)) {
                caught.store(true, Ordering::Relaxed);
            }
        }
    });
    eprintln!("tried {} schedules", tried.load(Ordering::Relaxed));
    assert!(caught.into_inner(), "no schedule lost anything");
}

/// This schedule makes the canary lose something.
fn is_caught_by(scenario: &Scenario, segments: &[Segment]) {
    let mut run = scenario.world.run(&scenario.actors, segments, false);
    scenario.world.verify(&mut run);
    let (problems, trace) = (&run.problems, run.schedule.trace());
    assert!(is_loss(problems), "nothing was lost: {problems:?}\n{trace}");
}

/// The store without some objects.
fn without(store: &MemoryStore, top: &str, hides: impl Fn(&str) -> bool) -> MemoryStore {
    let state = store.clone_state();
    for name in names(store, top) {
        if hides(&name) {
            state.remove(&key(name));
        }
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

fn scenario_of(world: World, actors: Vec<Actor>) -> Scenario {
    Scenario { world, actors }
}

/// `x` was forgotten; the first actor saves it again.
fn dead_chunk() -> World {
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

#[test]
fn canary_epoch_before_announce_loses_a_chunk() {
    is_caught(&writer_and_collector(|| stale_from_start(|_, name| reads_epoch(name))));
}

#[test]
fn canary_unready_not_old_loses_a_chunk() {
    // Sessions that are not ready for anything are not shown.
    is_caught(&collector_lies(|| {
        Box::new(|operation, name, store| match (operation, name) {
            (ListNames, "sessions") => {
                let all = names(store, "sessions");
                let is_ready = |name: &str| {
                    let session = name.rsplit_once('/').unwrap().0;
                    all.iter().any(|other| other.starts_with(&format!("{session}/ready")))
                };
                Answer::By(without(store, "sessions", |name| !is_ready(name)))
            }
            _ => Answer::Honest,
        })
    }));
}

/// Every epoch looks finished, so that nothing is avoided.
fn all_finished(operation: Operation, name: &str, store: &MemoryStore) -> Answer {
    if operation == Size && name.starts_with("finished/") && store.size(&key(name)).is_err() {
        let state = store.clone_state();
        state.put(&key(name), &[]).unwrap();
        return Answer::By(state);
    }
    Answer::Honest
}

#[test]
fn canary_ignore_condemned_loses_a_chunk() {
    is_caught(&writer_and_collector(|| Box::new(all_finished)));
}

#[test]
fn canary_parent_checked_before_announce_loses_a_chunk() {
    is_caught(&reusing_writer_lies(|| stale_from_start(|_, name| name.starts_with("tombstones"))));
}

#[test]
fn canary_parent_before_epoch_loses_a_chunk() {
    // The state as it was when the session was announced.
    is_caught(&reusing_writer_lies(|| {
        let announced = Remembered::default();
        Box::new(move |operation, name, store| {
            if announced.is_set() || (operation == Put && name.starts_with("sessions")) {
                let old = announced.since(store);
                if name.starts_with("tombstones") {
                    return Answer::By(old);
                }
            }
            Answer::Honest
        })
    }));
}

#[test]
fn canary_blind_parent_loses_a_chunk() {
    is_caught(&reusing_writer_lies(|| {
        Box::new(|_, name, store| match name.starts_with("tombstones") {
            true => Answer::By(without(store, "tombstones", |_| true)),
            false => Answer::Honest,
        })
    }));
}

/// Reuses all of `p`, and renews itself before it commits (W8).
fn reuses_and_renews(checks_parent: bool) -> Task {
    Arc::new(move |world, repository| {
        let list = SnapshotList::load(repository)?;
        let parents = list.snapshots.iter().filter(|one| one.record.description == "p");
        let Some((parent, mut record)) = parents.map(|one| (one.id, one.record.clone())).next()
        else {
            return Ok(());
        };
        let mut session = WriterSession::begin(repository)?;
        if !session.check_parent(parent)? {
            session.abandon();
            return Ok(());
        }
        session.declare_ready()?;
        session.renew(checks_parent.then_some(parent), |_| Ok(true))?;
        record.description = world.describe("p");
        session.commit(record).map(drop)
    })
}

#[test]
fn canary_upgrade_parent_unchecked_loses_a_chunk() {
    let scenario = |checks_parent| {
        let tasks = [reuses_and_renews(checks_parent), forgets("p"), collects()];
        Scenario::new(live_parent(), tasks)
    };
    // The writer is ready for no epoch; the parent is forgotten, an epoch decided; it renews.
    let segments = [
        Segment::Until(0, Put, "sessions"),
        Segment::Run(0, 1),
        Segment::Until(0, Put, "sessions"),
        Segment::Run(0, 1),
        Segment::End(1),
        Segment::Until(2, Decide, "epochs"),
        Segment::Run(2, 1),
        Segment::Until(2, ListNames, "sessions"),
        Segment::Until(0, Decide, "outcomes"),
        Segment::End(2),
        Segment::End(0),
    ];
    is_caught_by(&scenario(false), &segments);
    let honest = scenario(true);
    honest.must_hold(&segments, false);
    in_parallel(400, |seed| honest.must_hold(&random_segments(seed as u64, 3), false));
}

#[test]
fn canary_index_trusted_loses_a_chunk() {
    // With an index as it was, and no look at the containers themselves.
    is_caught(&writer_and_collector(|| {
        stale_from_start(|operation, name| {
            let of_old = name.starts_with("index") || name.starts_with("containers");
            of_old && !matches!(operation, Put | Delete)
        })
    }));
}

#[test]
fn a_stale_index_alone_loses_nothing() {
    let scenario = writer_and_collector(|| {
        stale_from_start(|operation, name| name.starts_with("index") && operation != Put)
    });
    in_parallel(400, |seed| {
        let segments = random_segments(seed as u64, 2);
        let problems = scenario.problems(&segments, false);
        assert!(!is_loss(&problems), "{problems:?} {segments:?}");
    });
}

#[test]
fn canary_fenced_commits_unchecked_loses_a_chunk() {
    // The same tree under a fresh session, without a look at the chunks.
    let commits: Task = Arc::new(|world, repository| {
        let mut session = WriterSession::begin(repository)?;
        session.declare_ready()?;
        let root: Directory = put_tree(repository, &session, &[file("x", u64::from(b'x'), 20_000)]);
        loop {
            let mut record = record_of(repository, root.reference);
            record.description = world.describe("x");
            if let Commit::Saved(_) = session.commit(record)? {
                return Ok(());
            }
            session = WriterSession::begin(repository)?;
        }
    });
    let actors = vec![Actor::new(commits), Actor::new(collects()), Actor::new(collects())];
    is_caught_by(
        &scenario_of(dead_chunk(), actors),
        &[Segment::Until(0, Decide, "outcomes"), Segment::End(1), Segment::End(2), Segment::End(0)],
    );
}

#[test]
fn canary_decisions_deleted_loses_a_chunk() {
    let deletes: Task = Arc::new(|_, repository| {
        let mut ids: Vec<SessionId> = Vec::new();
        repository.store().list_decided(layout::OUTCOMES, &mut |name| {
            ids.extend(layout::last_component(name).parse::<SessionId>());
            Ok(())
        })?;
        for id in ids {
            if read_outcome(repository, id)? == Some(Outcome::Fenced) {
                repository.store().delete(&key(layout::outcome(id)))?;
            }
        }
        Ok(())
    });
    let tasks = [backs_up("x", "x"), collects(), deletes];
    is_caught_by(
        &Scenario::new(dead_chunk(), tasks),
        &[Segment::Until(0, Decide, "outcomes"), Segment::End(1), Segment::End(2), Segment::End(0)],
    );
}

#[test]
fn canary_no_wait_loses_a_chunk() {
    is_caught(&collector_lies(|| {
        Box::new(|_, name, store| match name {
            "sessions" => Answer::By(without(store, "sessions", |_| true)),
            _ => Answer::Honest,
        })
    }));
}

#[test]
fn canary_no_remark_loses_a_chunk() {
    is_caught(&collector_lies(|| {
        let first = Remembered::default();
        Box::new(move |operation, name, store| match (operation, name) {
            (ListDecided, "outcomes") => Answer::By(first.since(store)),
            _ => Answer::Honest,
        })
    }));
}

#[test]
fn canary_remark_old_only_loses_a_chunk() {
    // The second mark sees the sessions that had no outcome when the epoch was settled, no others.
    is_caught(&collector_lies(|| {
        let first = Remembered::default();
        let old: Mutex<BTreeSet<String>> = Mutex::default();
        Box::new(move |operation, name, store| {
            let outcome_of = |name: &str| name.split('/').nth(1).unwrap_or_default().to_owned();
            match (operation, name) {
                (ListNames, "sessions") => {
                    let undecided =
                        names(store, "sessions").into_iter().map(|name| outcome_of(&name));
                    let is_old = |id: &String| store.size(&key(format!("outcomes/{id}"))).is_err();
                    *old.lock().unwrap() = undecided.filter(is_old).collect();
                    Answer::Honest
                }
                (ListDecided, "outcomes") => {
                    let marked = first.since(store);
                    let old = old.lock().unwrap();
                    Answer::By(without(store, "outcomes", |name| {
                        marked.size(&key(name)).is_err() && !old.contains(&outcome_of(name))
                    }))
                }
                _ => Answer::Honest,
            }
        })
    }));
}

#[test]
fn canary_tombstones_reread_loses_a_chunk() {
    // The second mark leaves out what is forgotten by then.
    let lies = || -> Lie {
        let marked = AtomicBool::new(false);
        Box::new(move |operation, name, store| match (operation, name) {
            (ListDecided, "outcomes") if marked.swap(true, Ordering::Relaxed) => {
                let dead = names(store, "tombstones");
                Answer::By(without(store, "outcomes", |name| {
                    dead.contains(&name.replace("outcomes", "tombstones"))
                }))
            }
            _ => Answer::Honest,
        })
    };
    let actors = vec![
        Actor::new(backs_up("x", "x")),
        Actor::new(reuses("x", "x")),
        Actor::new(forgets("x")),
        Actor::new(collects()).lying(lies),
    ];
    // The first hits what is condemned and commits before it is fenced; the second, which knows
    // the epoch, reuses the first one's tree; the first is forgotten.
    is_caught_by(
        &scenario_of(dead_chunk(), actors),
        &[
            Segment::Until(0, Decide, "outcomes"),
            Segment::Until(3, ListNames, "plans"),
            Segment::Until(3, Put, "plans"),
            Segment::Run(3, 2),
            Segment::End(0),
            Segment::Until(1, Decide, "outcomes"),
            Segment::End(2),
            Segment::End(3),
            Segment::End(1),
        ],
    );
}

#[test]
fn canary_loser_keeps_plan_loses_a_chunk() {
    // Whoever loses the epoch goes on as if its own plan had won, sweep included.
    let lies = || -> Lie {
        let own = MemoryStore::new();
        Box::new(move |operation, name, _| {
            let is_decided = name.starts_with("epochs") || name.starts_with("sweeps");
            match operation {
                Decide if is_decided => Answer::By(own.clone()),
                Delete if name.starts_with("plans") => Answer::Lost,
                Decided if name.starts_with("sweeps") => Answer::By(own.clone()),
                _ => Answer::Honest,
            }
        })
    };
    let world = World::new();
    let dead = world.save("x", "x", 2);
    world.save("p", "p", 3);
    world.save("k", "k", 4);
    world.forget(dead);
    let actors = vec![
        Actor::new(collects()),
        Actor::new(collects()).lying(lies),
        Actor::new(forgets("p")),
        Actor::new(backs_up("p", "p")),
    ];
    // The first condemns `x`; the second would condemn `p`, too, which a young session finds.
    is_caught_by(
        &scenario_of(world, actors),
        &[
            Segment::Until(0, Decide, "epochs"),
            Segment::End(2),
            Segment::Until(1, Decide, "epochs"),
            Segment::Until(0, ListNames, "sessions"),
            Segment::Run(0, 1),
            Segment::Until(3, Decide, "outcomes"),
            Segment::End(1),
            Segment::End(3),
            Segment::End(0),
        ],
    );
}

#[test]
fn canary_finish_before_delete_loses_a_chunk() {
    is_caught(&collector_lies(|| {
        Box::new(|operation, name, store| {
            if operation == Delete && name.starts_with("containers") {
                let newest = names(store, "epochs").len() as u64;
                let _ = store.put(&key(layout::finished(newest)), &[]);
            }
            Answer::Honest
        })
    }));
}

#[test]
fn canary_keep_undecided_loses_a_chunk() {
    // One collector keeps a container for want of space; the other one's own opinion is to delete
    // it, and it is frozen before it does.
    let opinion = || -> Lie {
        let own = MemoryStore::new();
        Box::new(move |operation, name, _| match operation {
            Decide if name.starts_with("sweeps") => Answer::By(own.clone()),
            _ => Answer::Honest,
        })
    };
    let full = || -> Lie {
        Box::new(|operation, name, _| match operation {
            Put if name.starts_with("containers") => Answer::Fails(ErrorKind::NoSpace),
            _ => Answer::Honest,
        })
    };
    let world = World::new();
    let mixed = world.save("mixed", "xk", 2);
    world.save("l", "l", 3);
    world.source("x", "x");
    world.source("k", "k");
    world.forget(mixed);
    let actors = vec![
        Actor::new(backs_up("k", "k")),
        Actor::new(collects()).lying(opinion),
        Actor::new(collects()).lying(full),
        Actor::new(backs_up("x", "x")),
    ];
    is_caught_by(
        &scenario_of(world, actors),
        &[
            // `k` is committed after the first mark, so the second one has to rescue it.
            Segment::Until(0, Decide, "outcomes"),
            Segment::Until(1, Put, "plans"),
            Segment::Run(1, 2),
            Segment::End(0),
            // The full one has looked for holders before the other one's copy is there.
            Segment::Until(1, Put, "containers"),
            Segment::Until(2, Put, "containers"),
            Segment::Until(1, Delete, "containers"),
            Segment::Until(2, Put, "finished"),
            Segment::Run(2, 1),
            Segment::End(3),
            Segment::End(1),
        ],
    );
}

#[test]
fn canary_overlap_loses_a_chunk() {
    // The second collector takes an open epoch for finished. Its view of what is the newest
    // instance comes from names, which a wrong clock has given to the first one's copy.
    let world = World::new();
    let mixed = world.save("mixed", "xk", 20);
    world.save("k", "k", 30);
    world.forget(mixed);
    let dead_only = CollectOptions { goal: SpaceGoal::DeadOnly, ..collect_options() };
    let actors = vec![
        Actor::new(collects()).seeded(2),
        Actor::new(collects_with(dead_only)).lying(|| Box::new(all_finished)),
    ];
    is_caught_by(
        &scenario_of(world, actors),
        &[Segment::Until(0, Delete, "containers"), Segment::End(1), Segment::End(0)],
    );
}

#[test]
fn canary_index_before_container_loses_a_chunk() {
    // The first writer's containers never come, but for whoever trusts the index.
    let never: MemoryStore = MemoryStore::new();
    let (writes, trusts) = (never.clone(), never);
    let lost = move || -> Lie {
        let never = writes.clone();
        Box::new(move |operation, name, _| match operation {
            Put if name.starts_with("containers") => Answer::By(never.clone()),
            GetTail | GetRange | Size if never.size(&key(name)).is_ok() => {
                Answer::By(never.clone())
            }
            _ => Answer::Honest,
        })
    };
    let trusting = move || -> Lie {
        let never = trusts.clone();
        Box::new(move |operation, name, store| {
            if operation.is_write() || !name.starts_with("containers") {
                return Answer::Honest;
            }
            let both = store.clone_state();
            for name in names(&never, "containers") {
                let bytes = never.get(&key(name.as_str())).unwrap();
                let _ = both.put(&key(name.as_str()), &bytes);
            }
            Answer::By(both)
        })
    };
    let world = World::new();
    world.save("k", "k", 2);
    world.source("x", "x");
    let actors = vec![
        Actor::new(backs_up("x", "x")).lying(lost),
        Actor::new(backs_up("x", "x")).lying(trusting),
    ];
    is_caught_by(
        &scenario_of(world, actors),
        &[Segment::Until(0, Decide, "outcomes"), Segment::Crash(0), Segment::End(1)],
    );
}

#[test]
fn canary_names_reused_loses_a_chunk() {
    // Containers are named anew as they were named before, by the same numbers drawn again.
    const SAME: u64 = 3_000_000;
    let items = || [file("x", u64::from(b'x'), 20_000)];
    let world = World::new();
    world.save("k", "k", 2);
    let (twin, other) = (reopen(world.base(), SAME), reopen(world.base(), 3_000_001));
    let session = WriterSession::begin(&other).unwrap();
    let root = put_tree(&twin, &session, &items());
    let dead = saved(commit(&other, session, root.reference));
    world.forget(dead);
    let saves: Task = Arc::new(move |world, repository| {
        let session = WriterSession::begin(repository)?;
        let twin = open_on(repository.shared_store(), SAME)?;
        let root = put_tree(&twin, &session, &items());
        let mut record = record_of(repository, root.reference);
        record.description = world.describe("x");
        session.commit(record).map(drop)
    });
    let actors = vec![Actor::new(collects()), Actor::new(collects()), Actor::new(saves)];
    is_caught_by(
        &scenario_of(world, actors),
        &[
            Segment::Until(0, Delete, "containers"),
            Segment::End(1),
            Segment::Until(2, Decide, "outcomes"),
            Segment::End(0),
            Segment::End(2),
        ],
    );
}

/// Everything that this actor puts into the index is lost.
fn indexes_nothing() -> Lie {
    Box::new(|operation, name, _| {
        let is_index = name.starts_with("index") || name.starts_with("metadata");
        if operation == Put && is_index { Answer::Lost } else { Answer::Honest }
    })
}

/// The rows `commit-before-index`, `copies-not-indexed` and `counts-unindexed` of section 6 lose
/// nothing here, because whoever misses a chunk indexes first what is there and not indexed.
#[test]
fn what_was_never_indexed_is_found_all_the_same() {
    let world = || {
        let world = World::new();
        let mixed = world.save("mixed", "xk", 2);
        world.save("k", "k", 3);
        world.source("x", "x");
        world.forget(mixed);
        world
    };
    let lying_writer = scenario_of(
        world(),
        vec![Actor::new(backs_up("x", "x")).lying(indexes_nothing), Actor::new(collects())],
    );
    let lying_collector = scenario_of(
        world(),
        vec![Actor::new(backs_up("x", "x")), Actor::new(collects()).lying(indexes_nothing)],
    );
    for scenario in [lying_writer, lying_collector] {
        in_parallel(300, |seed| {
            let segments = random_segments(seed as u64, 2);
            let problems = scenario.problems(&segments, false);
            assert!(!is_loss(&problems), "{problems:?} {segments:?}");
        });
    }
}
