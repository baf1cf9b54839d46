//! Whether a collection is due: whatever has kept the last one from its end, the next one is told.

use crate::basics::Saved;
use crate::steps::*;
use crate::world::*;
use onefold_crypto::{Purpose, Suite};
use onefold_engine::Job;
use onefold_engine::Repository;
use onefold_engine::collection::{CollectOptions, Due, SpaceGoal, collect, due};
use onefold_engine::memory::MemoryPlan;
use onefold_engine::session::{WriterSession, epoch};
use onefold_format::layout;
use onefold_format::record::Plan;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn default_goal() -> CollectOptions {
    CollectOptions { goal: SpaceGoal::default(), ..collect_options() }
}

/// A store of which half is dead, in containers of which each is half live.
fn half_dead() -> Saved {
    let mut saved = Saved::new(Suite::None);
    let name = |at: u64| -> &'static str { Box::leak(format!("f{at:02}").into_boxed_str()) };
    let all: Vec<_> = (0..60).map(|at| (name(at), at, 20_000)).collect();
    let first = saved.save(&all);
    let kept: Vec<_> = all.iter().copied().filter(|(_, at, _)| at % 2 == 0).collect();
    saved.save(&kept);
    saved.forget(&[first]);
    saved
}

fn is_unused(repository: &Repository) -> bool {
    matches!(due(repository).unwrap(), Some(Due::Unused { .. }))
}

/// A complete collection is the end of it.
fn assert_ends(saved: &Saved, seed: u64) {
    collect(&reopen(&saved.memory, seed), &default_goal(), &job()).unwrap();
    assert_eq!(due(&reopen(&saved.memory, 71)).unwrap(), None);
    saved.assert_whole();
}

#[test]
fn r68_work_that_lack_of_room_has_left_is_due() {
    let mut saved = half_dead();
    assert!(matches!(due(&saved.repository).unwrap(), Some(Due::Forgotten { snapshots: 1 })));
    // Something is wholly dead, so that an epoch is decided although nothing can be copied.
    let own = saved.save(&[("own", 9_000, 20_000)]);
    saved.forget(&[own]);
    let full = Faulty::full_after(saved.memory.clone(), 20_000);
    let repository = open_on(Arc::new(full), 60).unwrap();
    let report = collect(&repository, &default_goal(), &job()).unwrap();
    assert!(report.left.is_some() && report.deleted_containers > 0, "{report:?}");
    assert!(is_unused(&repository));
    assert_ends(&saved, 701);
}

#[test]
fn r68_work_that_a_limit_of_time_or_a_small_goal_has_left_is_due() {
    let mut saved = half_dead();
    assert_ends(&saved, 702);
    // Only what needs no copying, which is nothing; the tombstones are noted all the same.
    let more: Vec<_> = [("x", 1_000, 70_000), ("y", 1_001, 70_000), ("z", 1_002, 70_000)].into();
    let first = saved.save(&more);
    saved.save(&more[1..]);
    saved.forget(&[first]);
    let dead_only = CollectOptions { goal: SpaceGoal::DeadOnly, ..collect_options() };
    collect(&saved.repository, &dead_only, &job()).unwrap();
    assert!(is_unused(&saved.repository), "{:?}", due(&saved.repository));
    let no_time = CollectOptions { duration_max: Some(Duration::ZERO), ..default_goal() };
    assert!(collect(&saved.repository, &no_time, &job()).unwrap().out_of_time);
    assert!(is_unused(&saved.repository));
    assert_ends(&saved, 703);
}

#[test]
fn r68_rounds_that_did_not_come_are_due() {
    let saved = half_dead();
    // So little memory that there are several rounds; interrupted after each number of them.
    let mut rounds = 0;
    loop {
        let memory = saved.memory.clone_state();
        let mut plan = MemoryPlan::new(64 * limits::MIB).unwrap();
        plan.copied_chunks_max = 10;
        let (stopping, _) = Job::unattended();
        let store = Arc::new(stopping_after(&memory, rounds, &stopping));
        let password = || Ok(onefold_engine::repository::Password::new(PASSWORD.to_vec()));
        let repository = Repository::open(store, password, environment(80), plan).unwrap();
        let result = collect(&Arc::new(repository), &default_goal(), &stopping);
        let due = due(&reopen(&memory, 81)).unwrap();
        if result.is_ok() {
            assert_eq!(due, None);
            break;
        }
        rounds += 1;
        let look = CollectOptions { mark_only: true, ..default_goal() };
        let left = collect(&reopen(&memory, 82), &look, &job()).unwrap().deleted_containers;
        assert_eq!(due.is_some(), left > 0, "interrupted after {rounds} rounds");
    }
    assert!(rounds > 1, "{rounds} rounds");
}

/// The store, which asks a job to stop when so many epochs and one more are finished.
fn stopping_after(memory: &MemoryStore, rounds: usize, job: &Job) -> Faulty<MemoryStore> {
    let (interrupt, finished) = (job.interrupt.clone(), AtomicUsize::new(0));
    Faulty::scripted(memory.clone(), move |call| {
        let finishes = call.operation == Operation::Put && call.name.starts_with("finished/");
        if finishes && finished.fetch_add(1, Ordering::SeqCst) == rounds {
            interrupt.request();
        }
        Fault::None
    })
}

#[test]
fn r68_what_was_left_alone_beside_a_backup_is_due() {
    let saved = half_dead();
    let other = reopen(&saved.memory, 1);
    let session = WriterSession::begin(&other).unwrap();
    // It takes notice of whatever is decided, and goes on.
    for epoch in 1..4 {
        let (ready, name) = (
            key(layout::session_ready(session.id(), epoch)),
            layout::ready_sealed_as(session.id(), epoch),
        );
        let randomness = &*other.environment().randomness;
        let sealed = other.vault().seal_record(Purpose::Session, &name, &[], randomness).unwrap();
        saved.memory.put(&ready, &sealed).unwrap();
    }
    let patient = CollectOptions { grace: Duration::from_millis(300), ..default_goal() };
    let report = collect(&saved.repository, &patient, &job()).unwrap();
    drop(session);
    assert!(report.containers_in_use > 0 && report.fenced == 0, "{report:?}");
    assert!(is_unused(&saved.repository), "{report:?}");
    assert_ends(&saved, 704);
}

/// What ended without a snapshot, and said so, has stored containers all the same.
#[test]
fn r68_what_a_failed_backup_has_left_is_due() {
    let mut saved = Saved::new(Suite::None);
    saved.save(&[("a", 1, 60_000)]);
    assert_eq!(due(&saved.repository).unwrap(), None);
    let other = reopen(&saved.memory, 11);
    let session = WriterSession::begin(&other).unwrap();
    let before = containers(&other);
    let store = chunk_store(&other, &session);
    let mut stream = store.stream().unwrap();
    put_directory(&other, &mut stream, &[file("b", 2, 400_000)]);
    stream.finish().unwrap();
    drop(store);
    let left = (containers(&other).len() - before.len()) as u64;
    assert!(left > 0);
    // As long as it is under way it may still need them.
    assert_eq!(due(&reopen(&saved.memory, 12)).unwrap(), None);
    session.abandon();
    let seen = due(&reopen(&saved.memory, 13)).unwrap();
    assert_eq!(seen, Some(Due::Left { containers: left }));
    assert_ends(&saved, 707);
    assert_eq!(containers(&saved.repository), before);
}

#[test]
fn r68_nothing_is_due_after_a_complete_collection() {
    // The snapshot that is forgotten shares everything with another one.
    let mut saved = Saved::new(Suite::None);
    let files = [("a", 1, 60_000), ("b", 2, 60_000)];
    let first = saved.save(&files);
    saved.save(&files);
    saved.forget(&[first]);
    assert!(matches!(due(&saved.repository).unwrap(), Some(Due::Forgotten { snapshots: 1 })));
    assert_ends(&saved, 705);
    let operations = saved.memory.operations();
    collect(&saved.repository, &default_goal(), &job()).unwrap();
    assert_eq!(saved.memory.operations(), operations, "once is enough");
    let saved = half_dead();
    assert_ends(&saved, 706);
    // What is unused and too little to be worth it is not due either.
    let operations = saved.memory.operations();
    collect(&saved.repository, &default_goal(), &job()).unwrap();
    assert_eq!(saved.memory.operations(), operations);
}

/// Files of which some are replaced in each of so many versions; only the last version is left.
fn replaced(versions: u64) -> Saved {
    let mut saved = Saved::new(Suite::None);
    let name = |at: u64| -> &'static str { Box::leak(format!("f{at:03}").into_boxed_str()) };
    let mut files: Vec<_> = (0..100).map(|at| (name(at), at, 20_000)).collect();
    let mut older = vec![saved.save(&files)];
    for version in 1..=versions {
        for at in 0..2 {
            files[((version * 37 + at * 53) % 100) as usize].1 = version * 1_000 + at;
        }
        older.push(saved.save(&files));
    }
    older.pop();
    saved.forget(&older);
    saved
}

#[test]
fn r94_a_second_collection_finds_nothing_to_do() {
    let mut copied = 0;
    for versions in 1..7 {
        let saved = replaced(versions);
        let first = collect(&saved.repository, &default_goal(), &job()).unwrap();
        // What is copied is less than what goes, or it was copied for nothing.
        let freed = first.deleted_bytes.checked_sub(first.copied_bytes).unwrap();
        assert!(first.copied_bytes == 0 || freed > 10_000, "{versions}: {first:?}");
        copied += u64::from(first.copied_bytes > 0);
        assert_eq!(due(&saved.repository).unwrap(), None, "{versions}: {first:?}");
        let (operations, before) = (saved.memory.operations(), containers(&saved.repository));
        let second = collect(&saved.repository, &default_goal(), &job()).unwrap();
        let did = (second.deleted_containers, second.copied_chunks, second.copied_bytes);
        assert_eq!(did, (0, 0, 0), "{versions}: {second:?}");
        assert_eq!(containers(&saved.repository), before);
        assert_eq!(saved.memory.operations(), operations, "{versions}: once is enough");
        saved.assert_whole();
    }
    assert!((1..6).contains(&copied), "{copied} collections had something to copy");
}

#[test]
fn r68_what_was_condemned_and_kept_is_due() {
    let mut saved = half_dead();
    collect(&saved.repository, &default_goal(), &job()).unwrap();
    assert_eq!(due(&saved.repository).unwrap(), None);
    // A collection that met damage after it had decided its epoch keeps everything.
    let dead = saved.save(&[("own", 9_000, 20_000)]);
    saved.forget(&[dead]);
    let newest = epoch::newest_plan(&saved.repository).unwrap().unwrap();
    let condemned: Vec<_> = containers(&saved.repository).into_iter().collect();
    let count = condemned.len() as u64;
    let tombstones = [newest.tombstones.clone(), vec![dead]].concat();
    let plan = Plan { condemned, tombstones, unused_bytes: 0, ..newest };
    let number = epoch::newest_number(&saved.repository).unwrap() + 1;
    epoch::publish(&saved.repository, number, plan, &[]).unwrap().unwrap();
    epoch::decide_sweep(&saved.repository, number, Vec::new()).unwrap();
    epoch::finish(&saved.repository, number).unwrap();
    assert_eq!(due(&saved.repository).unwrap(), Some(Due::Kept { containers: count }));
    assert_ends(&saved, 711);
}
