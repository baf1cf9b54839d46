//! What is only a hint or a copy, the index and the metadata packs, costs speed when it is wrong,
//! and is put right.

use crate::basics::Saved;
use crate::schedule::Segment;
use crate::steps::*;
use crate::tasks::*;
use crate::world::*;
use onefold_crypto::Suite;
use onefold_engine::Repository;
use onefold_engine::check::repair_index;
use onefold_engine::collection::{CollectOptions, MarkAlgorithm, collect};
use onefold_engine::container::reader;
use onefold_engine::index::run_writer::write_run_of;
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex, merge, rebuild};
use onefold_engine::session::WriterSession;
use onefold_format::layout;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::{ContainerId, ErrorKind, Fingerprint, RunId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Containers that the index names and that are not there.
fn missing(memory: &MemoryStore) -> BTreeSet<ContainerId> {
    let repository = reopen(memory, 8001);
    let there = containers(&repository);
    let covered = FingerprintIndex::open(&repository).unwrap().covered();
    covered.into_iter().filter(|id| !there.contains(id)).collect()
}

fn prefixes_of(repository: &Repository, id: ContainerId) -> Vec<u64> {
    let section = reader::read_section(repository, id).unwrap();
    section.chunks.iter().map(|chunk| chunk.fingerprint.prefix()).collect()
}

/// A store without garbage whose index names a container that never was, with the chunks of one
/// that is there.
fn naming_nothing() -> (Saved, ContainerId) {
    let mut saved = Saved::new(Suite::None);
    saved.save(&[("a", 1, 60_000), ("b", 2, 60_000)]);
    let repository = reopen(&saved.memory, 20);
    let one = *containers(&repository).first().unwrap();
    let never = ContainerId([0x55; 16]);
    write_run_of(&repository, None, vec![(never, prefixes_of(&repository, one))]).unwrap();
    assert_eq!(missing(&saved.memory), BTreeSet::from([never]));
    (saved, never)
}

#[test]
fn r70_a_backup_that_was_frozen_and_collected_leaves_no_names_in_the_index() {
    let world = crate::model::world();
    world.source("new", "abc");
    let scenario = crate::model::Scenario::new(world, [backs_up("new", "abc"), collects()]);
    let mut left = 0;
    for step in 0..=scenario.steps()[0] {
        let segments = [Segment::Run(0, step), Segment::End(1), Segment::End(0)];
        let mut run = scenario.world.run(&scenario.actors, &segments, false);
        left += usize::from(!missing(&run.store).is_empty());
        scenario.world.verify(&mut run);
        assert!(run.problems.is_empty(), "{:?}", run.problems);
        assert_eq!(missing(&run.store), BTreeSet::new(), "frozen at step {step}");
    }
    assert!(left > 0, "no such backup left a name");
}

#[test]
fn r70_a_collection_that_deletes_nothing_drops_the_names_of_what_is_missing() {
    let (saved, _) = naming_nothing();
    let report = collect(&reopen(&saved.memory, 21), &collect_options(), &job()).unwrap();
    assert_eq!(report.deleted_containers, 0);
    assert_eq!(missing(&saved.memory), BTreeSet::new());
    saved.assert_whole();
}

#[test]
fn r70_names_stay_while_a_session_may_rely_on_what_is_missing() {
    let (saved, never) = naming_nothing();
    let repository = reopen(&saved.memory, 22);
    let session = WriterSession::begin(&repository).unwrap();
    collect(&reopen(&saved.memory, 23), &collect_options(), &job()).unwrap();
    assert_eq!(missing(&saved.memory), BTreeSet::from([never]));
    let tree = put_tree(&repository, &session, &[file("a", 1, 60_000)]);
    crate::steps::saved(commit(&repository, session, tree.reference));
    collect(&reopen(&saved.memory, 24), &collect_options(), &job()).unwrap();
    assert_eq!(missing(&saved.memory), BTreeSet::new());
}

#[test]
fn r70_a_container_lost_while_a_collection_runs_keeps_its_name() {
    let world = crate::model::world();
    let gone = Arc::new(std::sync::Mutex::new(None));
    let taken = Arc::clone(&gone);
    let loses: Task = Arc::new(move |_, repository| {
        // The oldest container holds files that were saved twice, or a directory of them.
        let list = onefold_engine::session::SnapshotList::load(repository)?;
        let trees = onefold_engine::tree::TreeReader::open(repository)?;
        let location = trees.chunks().locate(&list.snapshots[0].record.root.fingerprint)?;
        repository.store().delete(&key(layout::container(location.container)))?;
        *taken.lock().unwrap() = Some(location.container);
        Ok(())
    });
    let actors = [Actor::new(collects()), Actor::new(loses)];
    let sealed = [Segment::Until(0, Operation::Decide, "sweeps"), Segment::End(1), Segment::End(0)];
    let run = world.run(&actors, &sealed, false);
    let gone = gone.lock().unwrap().take().expect("a container was lost");
    assert!(missing(&run.store).contains(&gone), "{:?}", run.problems);
    // A mark finds out, and leaves everything as it is.
    let error = collect(&reopen(&run.store, 25), &collect_options(), &job()).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(missing(&run.store).contains(&gone));
}

#[test]
fn r70_every_way_of_marking_stops_if_only_missing_containers_have_what_is_needed() {
    let saved = Saved::versions(Suite::None);
    let algorithms = [
        MarkAlgorithm::Logical,
        MarkAlgorithm::Physical,
        MarkAlgorithm::PhysicalPlus,
        MarkAlgorithm::Exact,
        MarkAlgorithm::Partitioned,
    ];
    let mut stopped = 0;
    for id in containers(&saved.repository) {
        let state = saved.memory.clone_state();
        assert!(state.remove(&key(layout::container(id))));
        let is_needed = !check_all(&reopen(&state, 26)).damaged_paths.is_empty();
        for name in names(&state, layout::DAMAGE) {
            state.remove(&key(name));
        }
        for algorithm in algorithms {
            let state = state.clone_state();
            let options = CollectOptions { algorithm, ..collect_options() };
            let collected = collect(&reopen(&state, 27), &options, &job());
            match is_needed {
                true => {
                    stopped += 1;
                    assert!(collected.unwrap_err().is_lost(), "{id} by {algorithm:?}");
                    assert!(missing(&state).contains(&id), "{id} by {algorithm:?}");
                }
                false => {
                    collected.unwrap();
                    assert_eq!(missing(&state), BTreeSet::new(), "{id} by {algorithm:?}");
                }
            }
        }
    }
    assert!(stopped >= 5, "{stopped}");
}

/// All chunks of a store.
fn chunks_of(repository: &Repository) -> Vec<Fingerprint> {
    let sections = containers(repository).into_iter();
    let sections = sections.map(|id| reader::read_section(repository, id).unwrap());
    sections.flat_map(|section| section.chunks.into_iter().map(|chunk| chunk.fingerprint)).collect()
}

#[test]
fn r71_a_listing_read_around_a_merge_hides_nothing() {
    let world = crate::model::world();
    let all = chunks_of(&reopen(world.base(), 30));
    let finds_all: Task = Arc::new(move |_, repository| {
        let index = FingerprintIndex::open(repository)?;
        let hidden = all
            .iter()
            .filter(|chunk| index.locate(repository, chunk, &mut 0).unwrap().is_empty())
            .count();
        assert_eq!(hidden, 0, "of {} chunks", all.len());
        Ok(())
    });
    // Merges the runs whose names come last, which a listing in two parts shows last.
    let merges: Task = Arc::new(|_, repository| {
        let mut runs = FingerprintIndex::open(repository)?.runs();
        runs.sort_by_key(|run| run.id);
        let half = runs.len() / 2;
        merge::merge(repository, None, &runs[half..]).map(drop)
    });
    let mut hides = 0;
    for seed in 1..=24 {
        let actors =
            [Actor::new(Arc::clone(&finds_all)), Actor::new(Arc::clone(&merges)).seeded(seed)];
        for listing in 1..=3 {
            let mut segments = Vec::new();
            for _ in 0..listing {
                segments.push(Segment::Until(0, Operation::ListNames, "index"));
                segments.push(Segment::Run(0, 1));
            }
            segments.extend([Segment::End(1), Segment::End(0)]);
            let before = names(world.base(), "index").into_iter().max();
            let run = world.run(&actors, &segments, true);
            assert!(run.problems.is_empty(), "{:?}", run.problems);
            let merged = names(&run.store, "index").into_iter().min();
            hides += usize::from(merged < before);
        }
    }
    assert!(hides >= 12, "only {hides} merges could hide");
}

#[test]
fn r71_an_index_that_changes_all_the_time_is_an_error_and_not_a_part() {
    let saved = Saved::versions(Suite::None);
    let memory = saved.memory.clone();
    let number = std::sync::atomic::AtomicU64::new(1);
    let store = Faulty::scripted(saved.memory.clone(), move |call| {
        if call.operation == Operation::ListNames && call.name == layout::INDEX {
            let mut id = [0; 16];
            let next = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            id[..8].copy_from_slice(&next.to_le_bytes());
            memory.put(&key(layout::index_run(RunId(id))), b"no run").unwrap();
        }
        Fault::None
    });
    let repository = open_on(Arc::new(store), 31).unwrap();
    let error = FingerprintIndex::open(&repository).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("try again"), "{error}");
}

/// The store with metadata packs that the device does not give; new ones can be read back.
fn without_packs(memory: &MemoryStore, seed: u64, lists: bool) -> Arc<Repository> {
    let old = names(memory, layout::METADATA);
    let store = Faulty::scripted(memory.clone(), move |call| {
        let is_pack = old.iter().any(|name| name == call.name);
        let is_list = matches!(call.operation, Operation::List | Operation::ListNames)
            && call.name == layout::METADATA;
        match is_pack && call.operation == Operation::Get || lists && is_list {
            true => Fault::Before(ErrorKind::Io),
            false => Fault::None,
        }
    });
    open_on(Arc::new(store), seed).unwrap()
}

#[test]
fn r66_packs_that_cannot_be_read_cost_speed_only() {
    for lists in [false, true] {
        let saved = Saved::versions(Suite::None);
        assert!(!names(&saved.memory, layout::METADATA).is_empty());
        let report =
            collect(&without_packs(&saved.memory, 40, lists), &collect_options(), &job()).unwrap();
        assert!(report.deleted_containers > 0, "{report:?}");
        let all: Vec<_> = containers(&saved.repository).into_iter().collect();
        for name in names(&saved.memory, layout::INDEX) {
            saved.memory.delete(&key(name)).unwrap();
        }
        let repository = without_packs(&saved.memory, 41, lists);
        let empty = FingerprintIndex::open(&repository).unwrap();
        let replayed = rebuild::replay(&repository, &empty, &job()).unwrap();
        assert_eq!(replayed.containers, all.len() as u64);
        repair_index(&repository, None, &job()).unwrap();
        assert_eq!(FingerprintIndex::open(&repository).unwrap().covered(), all);
        saved.assert_whole();
    }
}

/// A store whose device does not give one container from this read on, so many times.
fn without_container(
    memory: &MemoryStore,
    seed: u64,
    id: ContainerId,
    failing: std::ops::Range<u64>,
) -> Arc<Repository> {
    let bad = layout::container(id);
    let reads = std::sync::atomic::AtomicU64::new(0);
    let store = Faulty::scripted(memory.clone(), move |call| {
        let is_read = matches!(
            call.operation,
            Operation::Get | Operation::GetTail | Operation::GetRange | Operation::Size
        );
        let fails = is_read
            && call.name == bad
            && failing.contains(&reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        if fails { Fault::Before(ErrorKind::Io) } else { Fault::None }
    });
    open_on(Arc::new(store), seed).unwrap()
}

#[test]
fn r66_a_container_that_cannot_be_read_holds_nothing_for_a_backup() {
    let mut saved = Saved::new(Suite::None);
    let id = saved.save(&[("a", 1, 60_000), ("b", 2, 60_000)]);
    let content = saved.contents[&id].clone();
    for bad in containers(&saved.repository) {
        let state = saved.memory.clone_state();
        let repository = without_container(&state, 50, bad, 0..u64::MAX);
        let again = save(&repository, &[file("a", 1, 60_000), file("b", 2, 60_000)]);
        assert!(state.remove(&key(layout::container(bad))));
        assert_eq!(content_of(&reopen(&state, 51), again).unwrap(), content, "{bad} was relied on");
    }
}

#[test]
fn r66_a_container_that_cannot_be_read_is_never_taken_for_empty_by_a_collection() {
    let saved = Saved::versions(Suite::None);
    let mut failed = 0;
    for packs in [true, false] {
        // For good, or at one read only, be it for marking, for copying or in between.
        for failing in [0..u64::MAX, 0..1, 1..2, 2..3, 3..4, 4..5] {
            for bad in containers(&saved.repository) {
                let memory = saved.memory.clone_state();
                for name in names(&memory, layout::METADATA).into_iter().filter(|_| !packs) {
                    memory.remove(&key(name));
                }
                let repository = without_container(&memory, 60, bad, failing.clone());
                // It may fail; whatever it does, nothing is lost by it.
                failed += u64::from(collect(&repository, &collect_options(), &job()).is_err());
                let whole = reopen(&memory, 61);
                for (id, content) in &saved.contents {
                    let found = content_of(&whole, *id).unwrap();
                    assert!(found == *content, "{bad}, packs: {packs}, reads {failing:?}");
                }
            }
        }
    }
    assert!(failed > 0, "no collection met an error");
}
