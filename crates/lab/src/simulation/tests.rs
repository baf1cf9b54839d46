use super::containers::Listed;
use super::index::Summary;
use super::*;
use crate::source::generator::{Deletion, DeletionOrder, Generator, Parameters, Preset};
use crate::trace::{Joined, Recorded};
use onefold_engine::index::IndexMode;
use onefold_format::index_run::IndexKind;
use onefold_policy::lookup::{AutoParameters, DeviceCosts, LazyParameters, SampledParameters};
use onefold_policy::{BucketCounts, FilterOrder};
use onefold_types::{ContainerId, Fingerprint};
use std::collections::BTreeSet;

/// A map: what any index must be equal to. One access for each question that finds something.
#[derive(Default)]
struct NaiveIndex {
    containers: BTreeMap<u64, BTreeSet<ContainerId>>,
}

impl Index for NaiveIndex {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        *reads += 1;
        found.extend(fingerprints.iter().map(|one| {
            let all = self.containers.get(&one.prefix()).into_iter().flatten();
            all.rev().copied().collect::<Vec<_>>()
        }));
        Ok(())
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        Ok(self.containers.contains_key(&fingerprint.prefix()))
    }

    fn bucket_counts(&self) -> BucketCounts {
        BucketCounts { fewest: 8, most: 8 }
    }

    fn add(&mut self, containers: &[Listed]) -> Result<()> {
        for (id, list) in containers {
            for one in list.iter() {
                self.containers.entry(one.prefix()).or_default().insert(*id);
            }
        }
        Ok(())
    }

    fn rebuild(&mut self, containers: &[Listed]) -> Result<()> {
        self.containers.clear();
        self.add(containers)
    }

    fn entries(&self) -> u64 {
        self.containers.len() as u64
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn take_bytes_read(&mut self) -> u64 {
        0
    }
}

fn lazy(ring_length: usize, bucket_threshold: usize, buffer_max: usize) -> LookupStrategy {
    LookupStrategy::Lazy(LazyParameters {
        ring_length,
        bucket_threshold,
        buffer_max,
        ..LazyParameters::default()
    })
}

fn strategies() -> Vec<LookupStrategy> {
    vec![
        LookupStrategy::Eager(FilterOrder::CacheFirst),
        LookupStrategy::Eager(FilterOrder::FilterFirst),
        lazy(1, 1, 1),
        lazy(64, 4, 1000),
        lazy(2048, 16, 1 << 16),
        LookupStrategy::Auto(AutoParameters::new(DeviceCosts::SATA_SSD, 4096)),
    ]
}

fn aged(chunks: usize, generations: u32) -> Generator {
    let mut parameters = Parameters::preset(Preset::Aged, chunks);
    (parameters.generations, parameters.generations_min) = (generations, generations);
    parameters.deletion = Some(Deletion { keep: 3, order: DeletionOrder::Random });
    Generator::new(parameters).unwrap()
}

fn setup(strategy: LookupStrategy) -> Setup {
    Setup {
        container_chunks: 64,
        pending_max: 500,
        collection: Some(Collection { every_deletions: 6, live_share_min: 0.5 }),
        ..Setup::new(strategy, 64 * 64 * 8)
    }
}

/// What must be stored, generation by generation: the trace against a plain set, without deletion.
fn expected_new(trace: &dyn Trace) -> Vec<u64> {
    let summary = crate::trace::Summary::of(trace).unwrap();
    summary.generations.values().map(|totals| totals.chunks_new).collect()
}

#[test]
fn every_exact_strategy_stores_exactly_what_is_new() {
    let mut parameters = Parameters::preset(Preset::Aged, 1500);
    (parameters.generations, parameters.generations_min) = (6, 6);
    parameters.deletion = None;
    let trace = Generator::new(parameters).unwrap();
    let expected = expected_new(&trace);
    for strategy in strategies() {
        for real in [false, true] {
            let setup = setup(strategy);
            let outcome = match real {
                true => setup.run(&trace).unwrap(),
                false => {
                    Simulation::new(&setup, NaiveIndex::default()).unwrap().run(&trace).unwrap()
                }
            };
            let new: Vec<u64> = outcome.generations.iter().map(|one| one.chunks_new).collect();
            assert_eq!(new, expected, "{strategy:?}, real index: {real}");
            let total = outcome.total();
            assert_eq!((total.missed, total.false_duplicates), (0, 0));
            assert_eq!(total.chunks, total.chunks_new + total.pending_hits + rest(&total));
            let reads = total.counters.containers_prefetched + total.counters.verification_reads;
            assert_eq!(outcome.containers_read, reads, "{strategy:?}");
        }
    }
}

/// Duplicates that were looked up: found, or equal to one that waited.
fn rest(total: &GenerationOutcome) -> u64 {
    total.chunks - total.chunks_new - total.pending_hits
}

#[test]
fn chunks_are_held_for_order_within_a_bound() {
    let trace = Joined(aged(1500, 4));
    let expected = expected_new(&trace);
    for strategy in [lazy(64, 16, 4096), lazy(64, 512, 4096)] {
        for held_max in [None, Some(100), Some(5000)] {
            let setup = Setup { held_max, collection: None, ..setup(strategy) };
            let outcome = setup.run(&trace).unwrap();
            let total = outcome.total();
            assert_eq!(vec![total.chunks_new], expected);
            assert_eq!((total.missed, total.false_duplicates), (0, 0));
            if let Some(held_max) = held_max {
                assert!(total.held_max <= held_max as u64 + 1, "{}", total.held_max);
            }
            // S0.33: who waits holds back all behind it, so more are held than wait.
            let [verdict, in_order] = total.delays_chunks();
            assert!(0.0 < verdict && verdict < in_order, "{verdict} {in_order}");
            assert!(in_order <= total.held_max as f64, "{in_order} {}", total.held_max);
        }
    }
    let eager = setup(LookupStrategy::Eager(FilterOrder::CacheFirst));
    assert_eq!(eager.run(&trace).unwrap().total().delays_chunks(), [0.0, 0.0]);
}

#[test]
fn deletions_leave_no_wrong_verdict() {
    let trace = aged(1500, 14);
    let mut stored = BTreeSet::new();
    for strategy in strategies() {
        let outcome = setup(strategy).run(&trace).unwrap();
        let total = outcome.total();
        assert_eq!((total.missed, total.false_duplicates), (0, 0), "{strategy:?}");
        assert!(total.containers_removed > 0 && total.containers_copied > 0);
        stored.insert(outcome.generations.iter().map(|one| one.chunks_new).collect::<Vec<_>>());
        let last = outcome.generations.last().unwrap();
        assert!(last.index_entries > 0 && last.containers > 0);
    }
    assert_eq!(stored.len(), 1, "exact strategies agree");
}

#[test]
fn the_index_reads_what_it_says() {
    let trace = aged(1500, 5);
    // Without memory every question is a read, and nothing else is read.
    let index = IndexSetup { memory_bytes: 0, single_run: true, ..IndexSetup::default() };
    let setup = Setup {
        filter: FilterConfiguration::ALL[0],
        collection: None,
        index: index.clone(),
        ..setup(LookupStrategy::Eager(FilterOrder::CacheFirst))
    };
    let outcome = setup.run(&trace).unwrap();
    let total = outcome.total();
    let looked_up = total.chunks - total.pending_hits;
    assert_eq!(total.counters.index_lookups, looked_up);
    let pages = total.index_bytes / 4096;
    let reads = total.counters.index_page_reads;
    assert!(reads <= pages && pages < reads + reads / 20, "{reads} accesses, {pages} pages");
}

#[test]
fn a_separate_summary_vector_of_any_size_is_never_wrong() {
    let trace = aged(1500, 5);
    let mut positives = Vec::new();
    for bits_per_key in [0.25, 1.0, 8.0] {
        let summary = Some(Summary { keys: 8000, bits_per_key, hashes: 4 });
        let index =
            IndexSetup { memory_bytes: 0, single_run: true, summary, ..IndexSetup::default() };
        let setup = Setup { index, ..setup(LookupStrategy::Eager(FilterOrder::FilterFirst)) };
        let total = setup.run(&trace).unwrap().total();
        assert_eq!((total.missed, total.false_duplicates), (0, 0));
        positives.push(total.counters.summary_false_positives);
    }
    assert!(positives[0] > positives[1] && positives[1] > positives[2], "{positives:?}");
}

#[test]
fn a_sampled_index_misses_little_and_lies_never() {
    let trace = aged(4000, 6);
    let strategy = LookupStrategy::Sampled(SampledParameters { segment_length: 512 });
    let index = IndexSetup { mode: IndexMode::Sampled, ..IndexSetup::default() };
    let setup = Setup { index, container_chunks: 256, cache_bytes: 1 << 20, ..setup(strategy) };
    let total = setup.run(&trace).unwrap().total();
    assert_eq!(total.false_duplicates, 0);
    assert!(total.found_share() > 0.9, "{}", total.found_share());
}

#[test]
fn every_kind_of_index_gives_the_same_verdicts() {
    let trace = aged(1500, 8);
    let (mut stored, mut memory, mut found) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for kind in [IndexKind::Bloom, IndexKind::Fuse, IndexKind::Signature] {
        let index = IndexSetup { kind, ..IndexSetup::default() };
        let setup = Setup { index, ..setup(LookupStrategy::Eager(FilterOrder::CacheFirst)) };
        let outcome = setup.run(&trace).unwrap();
        let total = outcome.total();
        let counters = total.counters;
        assert_eq!(total.missed, 0, "{kind:?}");
        stored.insert(outcome.generations.iter().map(|one| one.chunks_new).collect::<Vec<_>>());
        memory.insert(outcome.generations.last().unwrap().index_memory_bytes);
        found.insert((counters.cache_hits, counters.index_hits, counters.containers_prefetched));
        // Signatures of two bytes are false now and then, prefixes of eight never here.
        let is_false = counters.false_prefix_matches > 0;
        assert_eq!(is_false, kind == IndexKind::Signature, "{kind:?}: {counters:?}");
    }
    assert_eq!((stored.len(), found.len()), (1, 1), "{found:?}");
    assert_eq!(memory.len(), 3, "three kinds: {memory:?}");
}

#[test]
fn collection_keeps_the_live_and_copies_the_sparse() {
    let fingerprint = |number: u8| Fingerprint([number; 32]);
    let prefix = |number: u8| fingerprint(number).prefix();
    let mut containers = Containers::default();
    let list = |numbers: &[u8]| numbers.iter().copied().map(fingerprint).collect::<Vec<_>>();
    let dead = containers.store(list(&[1, 2]));
    let sparse = containers.store(list(&[3, 4, 5, 6]));
    let dense = containers.store(list(&[7, 8, 9]));
    let newest = containers.store(list(&[10, 7]));
    let recipes = BTreeMap::from([((0, 0), [4, 8, 9, 7, 10].map(prefix).to_vec())]);
    let swept = Collection::default().sweep(&recipes, &mut containers, 2);
    assert_eq!((swept.removed, swept.copied), (vec![dead, sparse], 1));
    let left = containers.all();
    assert_eq!(left.iter().map(|(id, _)| *id).take(2).collect::<Vec<_>>(), [dense, newest]);
    assert_eq!(left[2].1[..], list(&[4])[..]);
    // The older instance of 7 is dead, but its container is dense enough to stay.
    let expected: BTreeSet<u64> = [4, 7, 8, 9, 10].map(prefix).into();
    assert_eq!(swept.stored.into_iter().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn impossible_setups_are_refused_with_the_range() {
    let base = || setup(LookupStrategy::Eager(FilterOrder::CacheFirst));
    let summary = |bits_per_key| Some(Summary { keys: 1, bits_per_key, hashes: 4 });
    let cases = [
        (Setup { container_chunks: 0, ..base() }, "1 to 65536"),
        (Setup { container_chunks: 70_000, ..base() }, "1 to 65536"),
        (Setup { pending_max: 0, ..base() }, "at least 1"),
        (Setup { held_max: Some(0), ..base() }, "at least 1"),
        (Setup { strategy: lazy(0, 1, 1), ..base() }, "1 to 65536"),
        (
            Setup {
                collection: Some(Collection { every_deletions: 0, live_share_min: 0.5 }),
                ..base()
            },
            "at least 1",
        ),
        (
            Setup {
                collection: Some(Collection { every_deletions: 1, live_share_min: 1.5 }),
                ..base()
            },
            "0 to 1",
        ),
        (
            Setup {
                index: IndexSetup { summary: summary(0.0), ..IndexSetup::default() },
                ..base()
            },
            "0.01 to 64",
        ),
    ];
    for (setup, range) in cases {
        let message = setup.run(&Recorded::new("t")).unwrap_err().to_string();
        assert!(message.contains(range), "{message}");
    }
}

#[test]
fn inconsistent_traces_are_refused() {
    let setup = setup(LookupStrategy::Eager(FilterOrder::CacheFirst));
    let mut unfinished = Recorded::new("t");
    unfinished.push(Event::Begin { stream: 0, generation: 0 });
    assert!(setup.run(&unfinished).unwrap_err().to_string().contains("ends in the midst"));
    let mut stray = Recorded::new("t");
    stray.push(Event::Delete { stream: 0, generation: 0 });
    assert!(setup.run(&stray).unwrap_err().to_string().contains("not there"));
}
