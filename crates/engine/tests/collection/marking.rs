//! All ways of marking, against each other and against a plain walk.

use crate::basics::Saved;
use crate::steps::*;
use crate::world::*;
use onefold_crypto::Suite;
use onefold_engine::collection::enumeration::logical;
use onefold_engine::collection::{CollectOptions, MarkAlgorithm, SpaceGoal, collect};
use onefold_engine::container::reader;
use onefold_engine::session::{SnapshotList, WriterSession};
use onefold_engine::synthesis::{SynthesisOptions, fastcopy};
use onefold_engine::tree::TreeReader;
use onefold_engine::{Repository, retention};
use onefold_types::Fingerprint;
use onefold_types::environment::SeededRandomness;
use std::collections::BTreeSet;
use std::sync::Arc;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Some snapshots of random files, of which some are alike, some are copies, some were forgotten,
/// and some never committed.
fn random_store(seed: u64) -> Saved {
    let randomness = SeededRandomness::new(seed);
    let below = |bound: u64| randomness.below(bound);
    let mut saved = Saved::new(Suite::None);
    let mut ids = Vec::new();
    for _ in 0..6 + below(6) {
        match below(6) {
            0 if !ids.is_empty() => {
                let source: onefold_types::SessionId = ids[below(ids.len() as u64) as usize];
                if let Some(content) = saved.contents.get(&source).cloned() {
                    let options = SynthesisOptions::default();
                    let id = fastcopy(&saved.repository, source, &options, &job()).unwrap();
                    saved.contents.insert(id, content);
                    ids.push(id);
                }
            }
            1 => {
                // Stored and never committed; another process would have to fence it.
                let session = WriterSession::begin(&saved.repository).unwrap();
                put_tree(&saved.repository, &session, &[file("lost", 500 + below(9), 40_000)]);
            }
            _ => {
                let count = 1 + below(6) as usize;
                let of = |name| (name, below(12), 1 + below(90_000) as usize);
                let files: Vec<_> = NAMES[..count].iter().copied().map(of).collect();
                ids.push(saved.save(&files));
            }
        }
    }
    let forgotten: Vec<_> = ids.into_iter().filter(|_| below(2) == 0).collect();
    saved.forget(&forgotten);
    saved
}

fn live_chunks(repository: &Arc<Repository>) -> BTreeSet<Fingerprint> {
    let list = SnapshotList::load(repository).unwrap();
    let roots: Vec<_> = list.snapshots.iter().map(|snapshot| snapshot.record.root).collect();
    let mut live = BTreeSet::new();
    let trees = TreeReader::open(repository).unwrap();
    logical(&trees, &roots, &job(), &mut |chunk| {
        live.insert(*chunk);
        Ok(())
    })
    .unwrap();
    add_bases(repository, &mut live);
    live
}

fn stored_chunks(repository: &Arc<Repository>) -> BTreeSet<Fingerprint> {
    let section = |id| reader::read_section(repository, id).unwrap();
    let all = containers(repository).into_iter().map(section);
    all.flat_map(|section| section.chunks.iter().map(|chunk| chunk.fingerprint).collect::<Vec<_>>())
        .collect()
}

#[test]
fn all_algorithms_keep_the_same() {
    let algorithms = [
        (MarkAlgorithm::Exact, None),
        (MarkAlgorithm::Logical, None),
        (MarkAlgorithm::Physical, None),
        (MarkAlgorithm::PhysicalPlus, None),
        // Too little for all chunks: a sample first, then the candidates.
        (MarkAlgorithm::Logical, Some(64)),
        (MarkAlgorithm::Physical, Some(64)),
    ];
    let mut two_rounds = 0;
    for seed in 0..12 {
        let store = random_store(seed);
        let live = live_chunks(&store.repository);
        for (algorithm, marks_bytes) in algorithms {
            let memory = store.memory.clone_state();
            let repository = reopen(&memory, 3000 + seed);
            let copy = Saved { memory, repository, contents: store.contents.clone() };
            let options = CollectOptions { algorithm, marks_bytes, ..collect_options() };
            let report = collect(&copy.repository, &options, &job())
                .unwrap_or_else(|error| panic!("{algorithm:?} {marks_bytes:?} {seed}: {error}"));
            assert_eq!(report.mark.algorithm, algorithm);
            two_rounds += u64::from(report.mark.rounds == 2);
            copy.assert_whole();
            assert_eq!(live_chunks(&copy.repository), live, "{algorithm:?} {seed}");
            let stored = stored_chunks(&copy.repository);
            assert!(live.is_subset(&stored));
            if algorithm == MarkAlgorithm::Exact {
                assert_eq!(stored, live, "no dead chunk is left, seed {seed}");
                assert!(wholly_dead(&copy.repository).is_empty());
            }
        }
    }
    assert!(two_rounds > 12, "{two_rounds} collections were short of memory");
}

/// Stores a tree as a session does that knows of no container, and commits it.
fn save_anew(repository: &Arc<Repository>, items: &[Item]) {
    let store = chunk_store_avoiding(repository, containers(repository));
    let mut stream = store.stream().unwrap();
    let root = put_directory(repository, &mut stream, items);
    stream.finish().unwrap();
    store.finish().unwrap();
    save_root(repository, root.reference);
}

#[test]
fn s3_18_containers_are_read_for_levels_that_they_hold_and_nodes_once() {
    let (memory, repository) = create();
    let items = [file("a", 1, 60_000)];
    // Two snapshots of equal nodes that lie in a container each, and one, forgotten, of which only
    // the root is in a container of its own, at a level that nothing live has.
    save(&repository, &items);
    save_anew(&repository, &items);
    let deeper = save(&repository, &[directory("d", items)]);
    retention::forget_final(&repository, &[deeper], "me").unwrap();
    let roots = SnapshotList::load(&repository).unwrap();
    let top = roots.snapshots.iter().map(|snapshot| snapshot.record.root.level).max().unwrap();
    let live = live_chunks(&repository);
    let (mut of_nodes, mut of_live_levels, mut nodes) = (0, 0, BTreeSet::new());
    for id in containers(&repository) {
        let section = reader::read_section(&repository, id).unwrap();
        let held: Vec<_> = section.chunks.iter().filter(|chunk| chunk.level.is_node()).collect();
        of_nodes += u64::from(!held.is_empty());
        of_live_levels += u64::from(held.iter().any(|chunk| chunk.level <= top));
        let names = held.iter().map(|chunk| chunk.fingerprint);
        nodes.extend(names.filter(|name| live.contains(name)));
    }
    assert_eq!((of_nodes, of_live_levels), (3, 2));
    for algorithm in [MarkAlgorithm::Physical, MarkAlgorithm::PhysicalPlus] {
        let repository = reopen(&memory.clone_state(), 4000);
        let options = CollectOptions { algorithm, ..collect_options() };
        let walked = collect(&repository, &options, &job()).unwrap().mark.enumeration;
        assert_eq!((walked.sections, walked.nodes), (of_live_levels, nodes.len() as u64));
    }
}

#[test]
fn s3_10_of_equal_containers_the_newest_stays_however_it_is_marked() {
    let (memory, repository) = create();
    let items = [file("a", 1, 60_000)];
    save(&repository, &items);
    let old = containers(&repository);
    save_anew(&repository, &items);
    let all = containers(&repository);
    let new: BTreeSet<_> = all.difference(&old).copied().collect();
    assert_eq!((old.len(), new.len()), (2, 2));
    for algorithm in [
        MarkAlgorithm::Exact,
        MarkAlgorithm::Logical,
        MarkAlgorithm::Physical,
        MarkAlgorithm::PhysicalPlus,
    ] {
        let repository = reopen(&memory.clone_state(), 4100);
        let goal = SpaceGoal::DeadOnly;
        let options = CollectOptions { algorithm, goal, ..collect_options() };
        let report = collect(&repository, &options, &job()).unwrap();
        assert_eq!((report.deleted_containers, report.copied_chunks), (2, 0), "{algorithm:?}");
        assert_eq!(containers(&repository), new, "{algorithm:?}");
    }
}

#[test]
fn s3_13_what_one_run_takes_for_live_another_does_not() {
    let mut saved = Saved::new(Suite::None);
    let dead = saved.save(&[("dead", 1, 6_000_000)]);
    saved.save(&[("live", 2, 18_000_000)]);
    saved.forget(&[dead]);
    let live = live_chunks(&saved.repository);
    let options = CollectOptions { algorithm: MarkAlgorithm::Logical, ..collect_options() };
    let left_by = |seed| -> BTreeSet<Fingerprint> {
        let repository = reopen(&saved.memory.clone_state(), seed);
        let report = collect(&repository, &options, &job()).unwrap();
        assert_eq!(report.mark.rounds, 1);
        stored_chunks(&repository).difference(&live).copied().collect()
    };
    let (one, other) = (left_by(4200), left_by(4201));
    assert!(one.len() > 4 && other.len() > 4, "{} and {}", one.len(), other.len());
    assert!(one.intersection(&other).count() < 3, "the same are taken for live in both");
}
