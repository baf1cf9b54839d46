//! Rules of writers, broken.

use super::*;
#[test]
fn canary_epoch_before_announce_loses_a_chunk() {
    is_caught(&writer_and_collector(|| stale_from_start(|_, name| reads_epoch(name))));
}

#[test]
fn canary_ignore_condemned_loses_a_chunk() {
    is_caught(&writer_and_collector(|| Box::new(all_finished)));
}

#[test]
fn canary_parent_checked_before_announce_loses_a_chunk() {
    is_caught(&reusing_writer_lies(|| {
        let stale = stale_from_start(|_, name| name.starts_with("tombstones"));
        Box::new(move |operation, name, store| match name.starts_with("plans") {
            true if operation == Get => Answer::By(without_plans_tombstones(store)),
            _ => stale(operation, name, store),
        })
    }));
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
                if operation == Get && name.starts_with("plans") {
                    return Answer::By(without_plans_tombstones(store));
                }
            }
            Answer::Honest
        })
    }));
}

#[test]
fn canary_blind_parent_loses_a_chunk() {
    is_caught(&reusing_writer_lies(|| {
        Box::new(|operation, name, store| match name {
            _ if name.starts_with("tombstones") => {
                Answer::By(without(store, "tombstones", |_| true))
            }
            _ if operation == Get && name.starts_with("plans") => {
                Answer::By(without_plans_tombstones(store))
            }
            _ => Answer::Honest,
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
    let canary = Actor::new(reuses_and_renews(false)).instead_of(reuses_and_renews(true));
    let actors = vec![canary, Actor::new(forgets("p")), Actor::new(collects())];
    let scenario = scenario_of(live_parent(), actors);
    // The writer is ready for no epoch; the parent is forgotten, an epoch decided; it renews.
    is_caught_by(
        &scenario,
        &[
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
        ],
    );
    in_parallel(200, |seed| {
        holds_otherwise(&scenario, &random_segments(seed as u64, 3));
    });
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
    let canary = Actor::new(commits).instead_of(backs_up("x", "x"));
    let actors = vec![canary, Actor::new(collects()), Actor::new(collects())];
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
                repository.store().delete(&key(layout::copy_of(&layout::outcome(id))))?;
            }
        }
        Ok(())
    });
    let canary = Actor::new(deletes).instead_of(Arc::new(|_, _| Ok(())));
    let actors = vec![Actor::new(backs_up("x", "x")), Actor::new(collects()), canary];
    is_caught_by(
        &scenario_of(dead_chunk(), actors),
        &[Segment::Until(0, Decide, "outcomes"), Segment::End(1), Segment::End(2), Segment::End(0)],
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
