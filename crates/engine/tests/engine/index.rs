//! The index against a naive one: look-ups, merging, rebuilding, and what they cost.

use crate::ingest::{create, in_memory, memory, open, options, paths, random_bytes, save};
use onefold_engine::index::{FingerprintIndex, merge, rebuild, run};
use onefold_engine::{Job, Repository};
use onefold_format::index_run::{Entry, PAGE_ENTRIES};
use onefold_format::layout;
use onefold_store::layers::{Counting, Operation};
use onefold_store::{Blobs, Key, Store};
use onefold_types::environment::SeededRandomness;
use onefold_types::{ContainerId, Fingerprint, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Oracle = BTreeMap<u64, BTreeSet<ContainerId>>;

fn fingerprint(prefix: u64) -> Fingerprint {
    let mut fingerprint = Fingerprint([7; 32]);
    let bytes: Vec<u8> = (0..8).map(|byte| (prefix >> (56 - 8 * byte)) as u8).collect();
    fingerprint.0[..8].copy_from_slice(&bytes);
    fingerprint
}

/// Writes a run of `count` random entries over `containers` and adds them to the oracle. Prefixes
/// come from a small range, so that many are equal, within and across runs and pages.
fn write_run(
    repository: &Repository,
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
    run::write_run(repository, containers, Vec::new(), count as u64, next).unwrap()
}

fn assert_equal(repository: &Repository, oracle: &Oracle, range: u64) {
    let mut index = FingerprintIndex::open(repository).unwrap();
    assert!(index.problems().is_empty());
    for step in 0..range {
        let prefix = step * (u64::MAX / range);
        let found = index.locate(repository, &fingerprint(prefix), &mut 0).unwrap();
        let mut expected: Vec<_> = oracle.get(&prefix).into_iter().flatten().copied().collect();
        expected.reverse();
        assert_eq!(found, expected, "newest first, each once");
        if !found.is_empty() {
            assert!(index.may_contain(&fingerprint(prefix)));
        }
    }
}

#[test]
fn r22_the_index_answers_like_a_naive_one_whatever_the_collisions() {
    let cases = [(1, 0, 10), (2, 1, 10), (3, 5000, 7), (4, 3000, 3000), (5, 341, 2)];
    for (seed, count, range) in cases {
        let (_, store) = in_memory();
        let repository = create(&store, &options());
        let randomness = SeededRandomness::new(seed);
        let mut oracle = Oracle::new();
        for _ in 0..3 {
            write_run(&repository, &randomness, count, range, &mut oracle);
        }
        assert_equal(&repository, &oracle, range);
    }
}

#[test]
fn r6_merging_any_of_the_runs_changes_no_answer() {
    for seed in 0..6 {
        let (_, store) = in_memory();
        let repository = create(&store, &options());
        let randomness = SeededRandomness::new(seed);
        let mut oracle = Oracle::new();
        for _ in 0..6 {
            let count = randomness.below(2000) as usize;
            write_run(&repository, &randomness, count, 500, &mut oracle);
        }
        // Merge random subsets until one run is left.
        loop {
            let index = FingerprintIndex::open(&repository).unwrap();
            let runs = index.runs();
            if runs.len() == 1 {
                break;
            }
            let count = 2 + randomness.below(runs.len() as u64 - 1) as usize;
            merge::merge(&repository, &runs[..count]).unwrap();
            assert_equal(&repository, &oracle, 500);
        }
    }
}

#[test]
fn r16_a_merge_that_crashes_before_the_old_runs_are_deleted_changes_nothing() {
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    let randomness = SeededRandomness::new(9);
    let mut oracle = Oracle::new();
    let first = write_run(&repository, &randomness, 1000, 300, &mut oracle);
    write_run(&repository, &randomness, 1000, 300, &mut oracle);
    let key = Key::new(layout::index_run(first)).unwrap();
    let bytes = memory.get(&key).unwrap();
    let index = FingerprintIndex::open(&repository).unwrap();
    let entries = index.entries();
    merge::merge(&repository, index.runs()).unwrap();
    memory.put(&key, &bytes).unwrap();
    let merged = FingerprintIndex::open(&repository).unwrap();
    assert_eq!(merged.runs().len(), 1, "the old run is superseded");
    assert_eq!(merged.superseded(), [first]);
    merge::merge_if_due(&repository).unwrap();
    assert!(memory.get(&key).is_err(), "and removed by the next merge");
    assert!(merged.entries() <= entries);
    assert_equal(&repository, &oracle, 300);
}

#[test]
fn a_store_with_many_backups_has_few_runs() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let randomness = SeededRandomness::new(5);
    let mut oracle = Oracle::new();
    for _ in 0..100 {
        write_run(&repository, &randomness, 50, 4000, &mut oracle);
        merge::merge_if_due(&repository).unwrap();
    }
    let runs = FingerprintIndex::open(&repository).unwrap().runs().len();
    assert!(runs <= 12, "{runs}");
    assert_equal(&repository, &oracle, 4000);
}

#[test]
fn a_look_up_reads_one_page() {
    let (memory, store) = in_memory();
    let plain = create(&store, &options());
    let randomness = SeededRandomness::new(6);
    let count = 20 * PAGE_ENTRIES;
    write_run(&plain, &randomness, count, u64::MAX, &mut Oracle::new());
    let counting = Arc::new(Counting::new(memory));
    let shared: Arc<dyn Store> = Arc::clone(&counting) as Arc<dyn Store>;
    let repository = open(&shared);
    let mut index = FingerprintIndex::open(&repository).unwrap();
    counting.take();
    let mut reads = 0;
    for _ in 0..200 {
        index.locate(&repository, &fingerprint(randomness.next_u64()), &mut reads).unwrap();
    }
    // New chunks: almost none reaches the device, 2.4 % by the formula of S1.13.
    assert!(reads < 20, "{reads}");
    let operations = counting.take().total(Operation::GetRange);
    assert_eq!(operations.calls, reads, "each counted read is one request");
}

#[test]
fn r12_a_deleted_index_is_rebuilt_from_the_containers() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..30u64 {
        std::fs::write(source.path().join(format!("{number}")), random_bytes(number, 40_000))
            .unwrap();
    }
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
fn summary_vectors_stay_within_their_share_of_memory() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let randomness = SeededRandomness::new(8);
    for _ in 0..4 {
        write_run(&repository, &randomness, 100_000, u64::MAX, &mut Oracle::new());
    }
    let index = FingerprintIndex::open(&repository).unwrap();
    let bytes: usize = index.runs().iter().map(run::Run::filter_bytes).sum();
    assert!(bytes >= 4 * 100_000 && bytes <= memory().summary_vector_bytes, "{bytes}");
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
