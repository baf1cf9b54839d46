//! Rules of collectors, broken.

use super::*;
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
    // The second mark leaves out what is forgotten by then. Whoever asks which sessions containers
    // may name lists the sessions just before, and is told the truth.
    let lies = || -> Lie {
        let (marked, explains) = (AtomicBool::new(false), AtomicBool::new(false));
        Box::new(move |operation, name, store| match (operation, name) {
            (ListNames, "sessions") => {
                explains.store(true, Ordering::Relaxed);
                Answer::Honest
            }
            (_, name) if !name.ends_with("outcomes") => {
                explains.store(false, Ordering::Relaxed);
                Answer::Honest
            }
            _ if explains.load(Ordering::Relaxed) => Answer::Honest,
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
            Segment::Run(3, 3),
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
            let is_own = own.size(&key(name)).is_ok();
            match operation {
                Decide | Put if is_decided => Answer::By(own.clone()),
                Delete if name.starts_with("plans") => Answer::Lost,
                Decided if is_own || name.starts_with("sweeps") => Answer::By(own.clone()),
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
                let _ = store.put(&key(layout::finished(newest)), &finished(newest));
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
            Decide | Decided | Put if name.starts_with("sweeps") => Answer::By(own.clone()),
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
        Actor::new(collects()).failing(full),
        Actor::new(backs_up("x", "x")),
    ];
    is_caught_by(
        &scenario_of(world, actors),
        &[
            // `k` is committed after the first mark, so the second one has to rescue it.
            Segment::Until(0, Decide, "outcomes"),
            Segment::Until(1, Put, "plans"),
            Segment::Run(1, 3),
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
fn canary_names_reused_loses_a_chunk() {
    // Containers are named anew as they were named before, by the same numbers drawn again.
    const SAME: u64 = 3_000_000;
    let items = || [file("x", u64::from(b'x'), 20_000)];
    let world = World::new();
    world.save("k", "k", 2);
    world.source("x", "x");
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
    let canary = Actor::new(saves).instead_of(backs_up("x", "x"));
    let actors = vec![Actor::new(collects()), Actor::new(collects()), canary];
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
