//! The index against a naive one: look-ups, merging, rebuilding.

use crate::ingest::{create, in_memory, open, options, paths, random_bytes, save, settle_times};
use crate::steps::names;
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex, merge, rebuild, run_writer};
use onefold_engine::{Job, Repository};
use onefold_format::index_run::{Entry, IndexKind, PAGE_ENTRIES};
use onefold_format::layout;
use onefold_store::{Blobs, Key, MemoryStore, Store};
use onefold_types::environment::SeededRandomness;
use onefold_types::{ContainerId, Fingerprint, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Oracle = BTreeMap<u64, BTreeSet<ContainerId>>;

pub fn fingerprint(prefix: u64) -> Fingerprint {
    let mut fingerprint = Fingerprint([7; 32]);
    let bytes: Vec<u8> = (0..8).map(|byte| (prefix >> (56 - 8 * byte)) as u8).collect();
    fingerprint.0[..8].copy_from_slice(&bytes);
    fingerprint
}

/// Writes a run of `count` random entries over some containers and adds them to the oracle.
/// Prefixes come from a small range, so that many are equal, within and across runs and pages.
fn write_run(
    repository: &Repository,
    kind: IndexKind,
    randomness: &SeededRandomness,
    count: usize,
    range: u64,
    oracle: &mut Oracle,
) -> RunId {
    let mut containers: Vec<ContainerId> =
        (0..1 + randomness.below(5)).map(|_| ContainerId::random(randomness)).collect();
    containers.sort_unstable();
    let mut entries: Vec<Entry> = (0..count)
        .map(|_| Entry {
            prefix: randomness.below(range) * (u64::MAX / range),
            container: randomness.below(containers.len() as u64) as u32,
        })
        .collect();
    entries.sort_unstable();
    for entry in &entries {
        oracle.entry(entry.prefix).or_default().insert(containers[entry.container as usize]);
    }
    let mut entries = entries.into_iter();
    let next = &mut || Ok(entries.next());
    run_writer::write_run(repository, Some(kind), containers, Vec::new(), next).unwrap()
}

/// Signatures may name a container too many, once in 8,000 questions; nothing else may.
fn assert_equal(repository: &Repository, oracle: &Oracle, range: u64) {
    let index = FingerprintIndex::open(repository).unwrap();
    let mut too_many = 0;
    for step in 0..range {
        let fingerprint = fingerprint(step * (u64::MAX / range));
        let mut found = index.locate(repository, &fingerprint, &mut 0).unwrap();
        assert!(found.windows(2).all(|pair| pair[0] > pair[1]), "newest first, each once");
        let expected = oracle.get(&fingerprint.prefix()).cloned().unwrap_or_default();
        assert!(expected.iter().all(|id| found.contains(id)), "{expected:?} in {found:?}");
        if !expected.is_empty() {
            assert!(index.may_contain(repository, &fingerprint).unwrap());
        }
        found.retain(|id| !expected.contains(id));
        too_many += found.len();
    }
    let has_signatures = index.runs().iter().any(|run| run.kind() == IndexKind::Signature);
    assert!(too_many == 0 || has_signatures && too_many < 2 + range as usize / 500, "{too_many}");
    assert!(index.problems().is_empty());
}

#[test]
fn r22_the_index_answers_like_a_naive_one_whatever_the_collisions() {
    let cases = [(1, 0, 10), (2, 1, 10), (3, 5000, 7), (4, 3000, 3000), (5, 341, 2)];
    for kind in IndexKind::ALL {
        for (seed, count, range) in cases {
            let (_, store) = in_memory();
            let repository = create(&store, &options());
            let randomness = SeededRandomness::new(seed);
            let mut oracle = Oracle::new();
            for _ in 0..3 {
                write_run(&repository, kind, &randomness, count, range, &mut oracle);
            }
            assert_equal(&repository, &oracle, range);
        }
    }
}

#[test]
fn r22_a_chunk_in_more_containers_than_fit_on_pages_and_pieces_is_found_in_all() {
    for kind in IndexKind::ALL {
        let (_, store) = in_memory();
        let repository = create(&store, &options());
        let randomness = SeededRandomness::new(11);
        let mut containers: Vec<ContainerId> =
            (0..60 * PAGE_ENTRIES).map(|_| ContainerId::random(&randomness)).collect();
        containers.sort_unstable();
        // Two chunks that are everywhere, over more than a piece of signatures.
        let both = [7u64 << 40, 9 << 40];
        let entries = both.iter().flat_map(|&prefix| {
            (0..containers.len() as u32).map(move |container| Entry { prefix, container })
        });
        let mut entries = entries.collect::<Vec<_>>().into_iter();
        let next = &mut || Ok(entries.next());
        run_writer::write_run(&repository, Some(kind), containers.clone(), Vec::new(), next)
            .unwrap();
        let index = FingerprintIndex::open(&repository).unwrap();
        for prefix in both {
            let found = index.locate(&repository, &fingerprint(prefix), &mut 0).unwrap();
            assert!(found.iter().eq(containers.iter().rev()), "{kind}");
            let mut newest = Vec::new();
            let questions = [fingerprint(prefix)];
            index.locate_newest(&repository, &questions, &mut newest, &mut 0).unwrap();
            assert_eq!(newest[0].first(), containers.last(), "{kind}");
        }
        for prefix in [0, 8 << 40, 10 << 40] {
            assert_eq!(index.locate(&repository, &fingerprint(prefix), &mut 0).unwrap(), []);
        }
    }
}

#[test]
fn r6_merging_any_of_the_runs_changes_no_answer() {
    for seed in 0..6 {
        let (_, store) = in_memory();
        let repository = create(&store, &options());
        let randomness = SeededRandomness::new(seed);
        let mut oracle = Oracle::new();
        for number in 0..6 {
            let count = randomness.below(2000) as usize;
            let kind = IndexKind::ALL[number % 3];
            write_run(&repository, kind, &randomness, count, 500, &mut oracle);
        }
        // Merge random subsets until one run is left.
        loop {
            let index = FingerprintIndex::open(&repository).unwrap();
            let runs = index.runs();
            if runs.len() == 1 {
                break;
            }
            let count = 2 + randomness.below(runs.len() as u64 - 1) as usize;
            let kind = IndexKind::ALL[randomness.below(3) as usize];
            merge::merge(&repository, Some(kind), &runs[..count]).unwrap();
            assert_equal(&repository, &oracle, 500);
        }
    }
}

#[test]
fn r122_merges_that_know_an_older_list_lose_no_run() {
    for seed in 0..12 {
        let (memory, store) = in_memory();
        let repository = create(&store, &options());
        let randomness = SeededRandomness::new(seed);
        let mut oracle = Oracle::new();
        // What processes saw when they listed the runs; each merges some of those, when it likes.
        let mut lists = vec![FingerprintIndex::open(&repository).unwrap()];
        for step in 0..60 {
            let kind = IndexKind::ALL[randomness.below(3) as usize];
            match randomness.below(3) {
                0 => {
                    let count = randomness.below(300) as usize;
                    write_run(&repository, kind, &randomness, count, 50, &mut oracle);
                }
                1 => lists.push(FingerprintIndex::open(&repository).unwrap()),
                _ => {
                    let mut runs = lists[randomness.below(lists.len() as u64) as usize].runs();
                    // One run, a range of them, or any.
                    runs.retain(|_| randomness.below(2) == 0);
                    if runs.is_empty() {
                        continue;
                    }
                    let key = Key::new(layout::index_run(runs[0].id)).unwrap();
                    let bytes = memory.get(&key);
                    match merge::merge(&repository, Some(kind), &runs) {
                        // Whoever merged was stopped before it deleted all that it replaced.
                        Ok(_) if step % 2 == 0 => memory.put(&key, &bytes.unwrap()).unwrap(),
                        Ok(_) => {}
                        Err(error) => assert!(error.is_lost(), "{error}"),
                    }
                }
            }
            assert_equal(&repository, &oracle, 50);
        }
    }
}

#[test]
fn new_runs_are_of_the_kind_of_the_largest_unless_told_otherwise() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let kinds = || {
        let index = FingerprintIndex::open(&repository).unwrap();
        index.runs().iter().map(|run| run.kind()).collect::<Vec<_>>()
    };
    let write = |kind, count: u64| {
        let entries = (0..count).map(|n| n << 30).collect();
        let container = ContainerId::random(&SeededRandomness::new(count));
        run_writer::write_run_of(&repository, kind, vec![(container, entries)]).unwrap();
    };
    assert_eq!(FingerprintIndex::open(&repository).unwrap().kind(), IndexKind::Fuse);
    write(None, 10);
    write(Some(IndexKind::Signature), 1000);
    write(None, 2000);
    write(Some(IndexKind::Bloom), 1500);
    let (fuse, signature) = (IndexKind::Fuse, IndexKind::Signature);
    assert_eq!(kinds(), [fuse, signature, IndexKind::Bloom, signature]);
    let index = FingerprintIndex::open(&repository).unwrap();
    assert_eq!(index.kind(), signature);
    merge::merge(&repository, None, &index.runs()).unwrap();
    assert_eq!(kinds(), [signature]);
}

#[test]
fn r16_a_merge_that_crashes_before_the_old_runs_are_deleted_changes_nothing() {
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    let randomness = SeededRandomness::new(9);
    let mut oracle = Oracle::new();
    let kind = IndexKind::default();
    let first = write_run(&repository, kind, &randomness, 1000, 300, &mut oracle);
    write_run(&repository, kind, &randomness, 1000, 300, &mut oracle);
    let key = Key::new(layout::index_run(first)).unwrap();
    let bytes = memory.get(&key).unwrap();
    let index = FingerprintIndex::open(&repository).unwrap();
    let entries = index.entries();
    merge::merge(&repository, None, &index.runs()).unwrap();
    memory.put(&key, &bytes).unwrap();
    let merged = FingerprintIndex::open(&repository).unwrap();
    assert_eq!(merged.runs().len(), 1, "the old run is superseded");
    assert_eq!(merged.superseded(), [first]);
    merge::remove_superseded(&repository, &merged).unwrap();
    assert!(memory.get(&key).is_err(), "and removed by the next backup");
    assert!(merged.entries() <= entries);
    assert_equal(&repository, &oracle, 300);
}

#[test]
fn what_two_processes_merge_at_once_counts_once() {
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    for number in 1..=4u64 {
        let container = ContainerId::random(&SeededRandomness::new(number));
        let entries = (0..100).map(|n| (n << 30) + number).collect();
        run_writer::write_run_of(&repository, None, vec![(container, entries)]).unwrap();
    }
    let other_memory = memory.clone_state();
    let other: Arc<dyn Store> = Arc::new(other_memory.clone());
    let other = open(&other);
    for repository in [&repository, &other] {
        let runs = FingerprintIndex::open(repository).unwrap().runs();
        merge::merge(repository, None, &runs[..3]).unwrap();
    }
    let index = FingerprintIndex::open(&repository).unwrap();
    assert_eq!((index.entries(), index.chunks()), (400, 400));
    let index = FingerprintIndex::open(&other).unwrap();
    for run in index.runs().iter().filter(|run| run.table.entries == 300) {
        let key = Key::new(layout::index_run(run.id)).unwrap();
        memory.put(&key, &other_memory.get(&key).unwrap()).unwrap();
    }
    let index = FingerprintIndex::open(&repository).unwrap();
    assert_eq!((index.entries(), index.chunks()), (700, 400));
}

#[test]
fn a_store_with_many_backups_has_few_runs() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let randomness = SeededRandomness::new(5);
    let mut oracle = Oracle::new();
    for number in 0..100 {
        let kind = IndexKind::ALL[number % 3];
        write_run(&repository, kind, &randomness, 50, 4000, &mut oracle);
        merge::merge_if_due(&repository, None).unwrap();
    }
    let runs = FingerprintIndex::open(&repository).unwrap().runs().len();
    assert!(runs <= 12, "{runs}");
    assert_equal(&repository, &oracle, 4000);
}

#[test]
fn r12_a_deleted_index_is_rebuilt_from_the_containers() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..30u64 {
        std::fs::write(source.path().join(format!("{number}")), random_bytes(number, 40_000))
            .unwrap();
    }
    // A file that has changed just now is not trusted, and its entry differs in the next backup.
    settle_times(source.path());
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    save(&repository, paths(source.path()));
    let before = FingerprintIndex::open(&repository).unwrap();
    for id in before.runs().iter().map(|run| run.id) {
        memory.remove(&Key::new(layout::index_run(id)).unwrap());
    }
    let index = FingerprintIndex::open(&repository).unwrap();
    assert_eq!(index.entries(), 0);
    let (job, _) = Job::unattended();
    let replayed = rebuild::replay(&repository, &index, &job).unwrap();
    assert_eq!(replayed.containers as usize, before.covered().len());
    let after = FingerprintIndex::open(&repository).unwrap();
    assert_eq!((after.entries(), after.covered()), (before.entries(), before.covered()));
    // The next backup finds everything again.
    let again = save(&open(&store), paths(source.path()));
    assert_eq!(again.summary.chunks_new, 0);
}

#[test]
fn s1_14_a_session_replays_the_containers_that_no_run_covers() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..30u64 {
        std::fs::write(source.path().join(format!("{number}")), random_bytes(number, 40_000))
            .unwrap();
    }
    settle_times(source.path());
    let memory = MemoryStore::recording();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let saved = save(&create(&store, &options()), paths(source.path()));
    let holds = |count: usize, top| !names(&memory.state_after(count), top).is_empty();
    let packed = (0..).find(|count| holds(*count, layout::METADATA)).unwrap();
    assert!(packed < memory.operations() && !holds(packed, layout::INDEX));
    // A crash before the only run was written: with a pack of the containers, and without.
    for count in [packed - 1, packed] {
        let crashed: Arc<dyn Store> = Arc::new(memory.state_after(count));
        let stored = names(&*crashed, layout::CONTAINERS);
        let again = save(&open(&crashed), paths(source.path()));
        assert_eq!((again.summary.chunks, again.summary.chunks_new), (saved.summary.chunks, 0));
        assert_eq!(names(&*crashed, layout::CONTAINERS), stored, "after {count}");
    }
}

#[test]
fn a_damaged_page_is_passed_over_and_rebuilt_from_the_containers() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..30u64 {
        std::fs::write(source.path().join(format!("{number}")), random_bytes(number, 40_000))
            .unwrap();
    }
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    let saved = save(&repository, paths(source.path())).snapshot.unwrap();
    let index = FingerprintIndex::open(&repository).unwrap();
    for id in index.runs().iter().map(|run| run.id) {
        assert!(memory.corrupt(&Key::new(layout::index_run(id)).unwrap(), |bytes| bytes[77] ^= 1));
    }
    let path = source.path().join("7");
    let content = crate::ingest::content_at(&open(&store), saved, &path);
    assert!(content == std::fs::read(&path).unwrap());
    // The reader has replayed the containers: a later process finds a sound run as well.
    let index = FingerprintIndex::open(&open(&store)).unwrap();
    assert!(index.runs().len() > 1);
}
