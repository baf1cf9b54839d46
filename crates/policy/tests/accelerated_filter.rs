//! What the accelerated filter answers, and what it costs, counted by a fake index.

use onefold_policy::{AcceleratedFilter, FilterConfiguration, FilterCounters, FilterOrder};
use onefold_policy::{BucketCounts, IndexPort, Instance, SummaryVector, Verdict};
use onefold_types::environment::{Randomness, SeededRandomness};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

const CHUNKS_PER_CONTAINER: usize = 1000;
const CACHE_BYTES: usize = 1 << 20;
const NONE: FilterConfiguration = FilterConfiguration::ALL[0];
const CACHE_ONLY: FilterConfiguration = FilterConfiguration::ALL[2];
const BOTH: FilterConfiguration = FilterConfiguration::ALL[3];

/// A store in memory that counts what it is asked. Every index lookup reads one page.
struct FakeStore {
    containers: BTreeMap<ContainerId, Arc<[Fingerprint]>>,
    index: BTreeMap<u64, Vec<ContainerId>>,
    summary: SummaryVector,
    locate_calls: u64,
    section_reads: u64,
    broken: bool,
    next_name: u8,
}

impl FakeStore {
    fn new(keys: usize) -> Self {
        Self {
            containers: BTreeMap::new(),
            index: BTreeMap::new(),
            summary: SummaryVector::with_capacity(keys as u64, 8, 4).unwrap(),
            locate_calls: 0,
            section_reads: 0,
            broken: false,
            next_name: 0,
        }
    }

    fn append(&mut self, chunks: &[Fingerprint]) -> ContainerId {
        self.next_name += 1;
        let name = ContainerId([self.next_name; 16]);
        for chunk in chunks {
            self.hint(chunk, name);
        }
        self.containers.insert(name, chunks.into());
        name
    }

    /// Makes the index name the container for the chunk, before all others.
    fn hint(&mut self, chunk: &Fingerprint, container: ContainerId) {
        self.index.entry(chunk.prefix()).or_default().insert(0, container);
        self.summary.insert(chunk.prefix());
    }

    fn append_all(&mut self, chunks: &[Fingerprint]) {
        for part in chunks.chunks(CHUNKS_PER_CONTAINER) {
            self.append(part);
        }
    }
}

impl IndexPort for FakeStore {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.locate_calls += 1;
        for fingerprint in fingerprints {
            *reads += 1;
            found.push(self.index.get(&fingerprint.prefix()).cloned().unwrap_or_default());
        }
        Ok(())
    }

    fn container_fingerprints(&mut self, name: ContainerId) -> Result<Option<Arc<[Fingerprint]>>> {
        self.section_reads += 1;
        if self.broken {
            return Err(Error::new(ErrorKind::Io, "the store is gone"));
        }
        Ok(self.containers.get(&name).cloned())
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        Ok(self.summary.contains(fingerprint.prefix()))
    }

    fn bucket_counts(&self) -> BucketCounts {
        BucketCounts::ONE
    }
}

fn chunks(randomness: &SeededRandomness, count: usize) -> Vec<Fingerprint> {
    let draw = |_| {
        let mut bytes = [0; 32];
        randomness.fill(&mut bytes);
        Fingerprint(bytes)
    };
    (0..count).map(draw).collect()
}

fn judge_all(
    filter: &mut AcceleratedFilter,
    store: &mut FakeStore,
    stream: &[Fingerprint],
) -> Vec<Verdict> {
    let verdicts: Vec<Verdict> =
        stream.iter().map(|chunk| filter.judge(store, chunk).unwrap()).collect();
    for (fingerprint, verdict) in stream.iter().zip(&verdicts) {
        if let Verdict::Duplicate(Instance { container, position }) = verdict {
            assert_eq!(store.containers[container][*position as usize], *fingerprint);
        }
    }
    verdicts
}

#[test]
fn a_second_pass_costs_one_lookup_and_one_prefetch_per_container() {
    let mut store = FakeStore::new(10_000);
    let stream = chunks(&SeededRandomness::new(1), 10_000);
    store.append_all(&stream);
    let mut filter = AcceleratedFilter::new(BOTH, CACHE_BYTES);
    let verdicts = judge_all(&mut filter, &mut store, &stream);
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Duplicate(_))));
    let expected = FilterCounters {
        lookups: 10_000,
        summary_lookups: 10,
        cache_lookups: 10_000,
        cache_hits: 9_990,
        index_lookups: 10,
        index_hits: 10,
        index_page_reads: 10,
        containers_prefetched: 10,
        fingerprints_prefetched: 10_000,
        ..FilterCounters::default()
    };
    assert_eq!(*filter.counters(), expected);
    assert_eq!((store.locate_calls, store.section_reads), (10, 10));
    assert_eq!((expected.disk_reads(), expected.device_reads()), (20, 20));
    assert_eq!((expected.memory_accesses(), expected.duplicates()), (20_010, 10_000));
}

#[test]
fn new_data_costs_no_reads_but_for_false_positives() {
    let randomness = SeededRandomness::new(2);
    let mut store = FakeStore::new(10_000);
    store.append_all(&chunks(&randomness, 10_000));
    let mut filter = AcceleratedFilter::new(BOTH, CACHE_BYTES);
    let verdicts = judge_all(&mut filter, &mut store, &chunks(&randomness, 10_000));
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::New));
    let counters = *filter.counters();
    assert_eq!(counters.summary_negatives + counters.summary_false_positives, 10_000);
    assert_eq!(counters.device_reads(), counters.summary_false_positives);
    // 2.4 % expected; five standard deviations are 0.77 %.
    assert!((160..320).contains(&counters.summary_false_positives), "{counters:?}");

    let mut empty = FakeStore::new(10_000);
    let mut filter = AcceleratedFilter::new(BOTH, CACHE_BYTES);
    judge_all(&mut filter, &mut empty, &chunks(&randomness, 10_000));
    assert_eq!(filter.counters().device_reads(), 0);
}

/// Backs up generations of one stream, each with a twentieth of new data, and returns the reads of
/// each generation.
fn reads_by_generation(configuration: FilterConfiguration, generations: usize) -> Vec<u64> {
    const LENGTH: usize = 10_000;
    const RUN: usize = 100;
    let randomness = SeededRandomness::new(3);
    let mut store = FakeStore::new(2 * LENGTH);
    let mut filter = AcceleratedFilter::new(configuration, CACHE_BYTES);
    let mut stream = chunks(&randomness, LENGTH);
    let mut reads = Vec::new();
    for _ in 0..generations {
        let before = filter.counters().disk_reads();
        let mut open = Vec::new();
        for part in stream.chunks(256) {
            let verdicts = judge_all(&mut filter, &mut store, part);
            let judged = part.iter().zip(verdicts);
            open.extend(judged.filter(|(_, v)| *v == Verdict::New).map(|(chunk, _)| *chunk));
            if open.len() >= CHUNKS_PER_CONTAINER {
                store.append(&open);
                open.clear();
            }
        }
        store.append(&open);
        reads.push(filter.counters().disk_reads() - before);
        for _ in 0..LENGTH / RUN / 20 {
            let start = randomness.below((LENGTH / RUN) as u64) as usize * RUN;
            stream[start..start + RUN].copy_from_slice(&chunks(&randomness, RUN));
        }
    }
    reads
}

#[test]
fn four_configurations_cost_as_in_table_4() {
    let all = FilterConfiguration::ALL.map(|one| reads_by_generation(one, 2));
    let [none, vector, cache, both] = &all;
    assert_eq!(none, &[10_000, 10_000], "an index read for every chunk");
    assert!(vector[0] < 300, "the vector spares new data its reads: {vector:?}");
    assert!(vector[1] > 9_400, "and known data none: {vector:?}");
    assert_eq!(cache[0], 10_000, "the cache spares new data nothing");
    assert!(cache[1] < 700, "and known data nearly all: {cache:?}");
    assert!(both[0] < 300 && both[1] < 100, "together both: {both:?}");

    // Over several generations known data prevails, and the order is that of the table.
    let totals = FilterConfiguration::ALL.map(|one| reads_by_generation(one, 8).iter().sum());
    let [none, vector, cache, both]: [u64; 4] = totals;
    assert!(none > vector && vector > cache && cache > both, "{totals:?}");
    assert!(both * 50 < none, "{totals:?}");
}

#[test]
fn hints_that_do_not_hold_are_never_believed() {
    for configuration in FilterConfiguration::ALL {
        let mut store = FakeStore::new(100);
        let stored = chunks(&SeededRandomness::new(4), 20);
        let holder = store.append(&stored);
        let other = store.append(&chunks(&SeededRandomness::new(5), 20));
        let gone = ContainerId([99; 16]);
        // The newest hints of chunk 3 name a container that is gone and one that lacks the chunk.
        store.hint(&stored[3], other);
        store.hint(&stored[3], gone);
        // Chunk 4 has only a hint that is stale; its twin shares the prefix of chunk 5.
        store.index.insert(stored[4].prefix(), vec![gone]);
        let mut twin = stored[5];
        twin.0[31] ^= 1;

        let mut filter = AcceleratedFilter::new(configuration, CACHE_BYTES);
        let duplicate = Verdict::Duplicate(Instance { container: holder, position: 3 });
        assert_eq!(filter.judge(&mut store, &twin).unwrap(), Verdict::New);
        assert_eq!(filter.counters().false_prefix_matches, 1);
        assert_eq!(filter.judge(&mut store, &stored[4]).unwrap(), Verdict::New);
        assert_eq!(filter.counters().stale_index_hits, 1);
        assert_eq!(filter.judge(&mut store, &stored[3]).unwrap(), duplicate);
        let counters = *filter.counters();
        assert_eq!((counters.stale_index_hits, counters.false_prefix_matches), (2, 2));
        assert_eq!((counters.index_hits, counters.index_misses), (1, 2));
        let sections = counters.containers_prefetched + counters.verification_reads;
        assert_eq!(sections, store.section_reads);
        assert_eq!(counters.containers_prefetched, u64::from(configuration.locality_cache));
        // With the holder cached, the twin's hint is refuted without another read.
        assert_eq!(filter.judge(&mut store, &twin).unwrap(), Verdict::New);
        let read = store.section_reads - sections;
        assert_eq!(read, u64::from(!configuration.locality_cache));
    }
}

#[test]
fn a_forgotten_container_is_asked_for_again() {
    let mut store = FakeStore::new(100);
    let stored = chunks(&SeededRandomness::new(6), 20);
    let holder = store.append(&stored);
    let mut filter = AcceleratedFilter::new(BOTH, CACHE_BYTES);
    judge_all(&mut filter, &mut store, &stored);
    store.containers.remove(&holder);
    filter.forget_container(holder);
    assert_eq!(filter.judge(&mut store, &stored[0]).unwrap(), Verdict::New);
    assert_eq!(filter.counters().stale_index_hits, 1);
}

#[test]
fn without_helpers_every_chunk_is_asked_for_and_none_is_cached() {
    let mut store = FakeStore::new(1000);
    let stored = chunks(&SeededRandomness::new(7), 500);
    store.append(&stored);
    let mut filter = AcceleratedFilter::new(NONE, CACHE_BYTES);
    let mut stream = stored.clone();
    stream.extend(chunks(&SeededRandomness::new(8), 100));
    judge_all(&mut filter, &mut store, &stream);
    let counters = filter.counters();
    assert_eq!(
        (counters.index_lookups, counters.index_hits, counters.index_misses),
        (600, 500, 100)
    );
    assert_eq!((counters.summary_lookups, counters.cache_lookups), (0, 0));
    assert_eq!((counters.verification_reads, counters.containers_prefetched), (500, 0));
    assert_eq!((counters.disk_reads(), counters.device_reads()), (600, 1100));
}

#[test]
fn each_order_spares_the_other_helper() {
    let mut store = FakeStore::new(1000);
    let stored = chunks(&SeededRandomness::new(12), 1000);
    store.append(&stored);
    let new = chunks(&SeededRandomness::new(13), 1000);
    for order in [FilterOrder::CacheFirst, FilterOrder::FilterFirst] {
        let configuration = FilterConfiguration { order, ..BOTH };
        let mut filter = AcceleratedFilter::new(configuration, CACHE_BYTES);
        assert_eq!(filter.configuration(), configuration);
        let first = judge_all(&mut filter, &mut store, &stored);
        assert!(first.iter().all(|verdict| matches!(verdict, Verdict::Duplicate(_))));
        let known = *filter.counters();
        judge_all(&mut filter, &mut store, &new);
        let fresh = *filter.counters() - known;
        let passed = 1000 - fresh.summary_negatives;
        assert!(passed < 60, "{passed}");
        let expected = match order {
            FilterOrder::CacheFirst => [(1, 1000), (1000, 1000)],
            FilterOrder::FilterFirst => [(1000, 1000), (1000, passed)],
        };
        let asked = [known, fresh].map(|one| (one.summary_lookups, one.cache_lookups));
        assert_eq!(asked, expected, "{order:?}");
        assert_eq!((known.index_lookups, fresh.index_lookups), (1, passed));
    }
}

#[test]
fn a_cache_too_small_for_a_container_still_gives_right_answers() {
    let mut store = FakeStore::new(2000);
    let stored = chunks(&SeededRandomness::new(9), 1000);
    store.append(&stored);
    let mut filter = AcceleratedFilter::new(CACHE_ONLY, 1000);
    let verdicts = judge_all(&mut filter, &mut store, &stored);
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Duplicate(_))));
    assert_eq!(filter.counters().verification_reads, 1000);
}

#[test]
fn evictions_are_counted_and_the_budget_holds() {
    let mut store = FakeStore::new(10_000);
    let stored = chunks(&SeededRandomness::new(10), 10_000);
    store.append_all(&stored);
    let mut filter = AcceleratedFilter::new(BOTH, 200_000);
    judge_all(&mut filter, &mut store, &stored);
    let cached = 10 - filter.counters().evictions;
    assert!((3..=4).contains(&cached), "{cached}");
}

#[test]
fn a_failing_store_is_an_error_and_no_verdict() {
    for configuration in FilterConfiguration::ALL {
        let mut store = FakeStore::new(100);
        let stored = chunks(&SeededRandomness::new(11), 20);
        store.append(&stored);
        store.broken = true;
        let mut filter = AcceleratedFilter::new(configuration, CACHE_BYTES);
        let error = filter.judge(&mut store, &stored[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        store.broken = false;
        assert!(matches!(filter.judge(&mut store, &stored[0]).unwrap(), Verdict::Duplicate(_)));
    }
}

#[test]
fn counters_add_up() {
    let one = FilterCounters { lookups: 3, evictions: 1, ..FilterCounters::default() };
    let other = FilterCounters { lookups: 4, cache_hits: 2, ..FilterCounters::default() };
    let sum = one + other;
    assert_eq!((sum.lookups, sum.cache_hits, sum.evictions), (7, 2, 1));
    assert_eq!(sum - one, other);
    assert_eq!(sum.named()[0], ("lookups", 7));
    let total: u64 = sum.named().iter().map(|(_, count)| count).sum();
    assert_eq!(total, 10);
}

#[test]
fn the_cache_names_holders_and_takes_containers_that_were_just_written() {
    let stream = chunks(&SeededRandomness::new(31), 4);
    let (older, newer) = (ContainerId([1; 16]), ContainerId([2; 16]));
    for (configuration, expected) in [(NONE, 0), (CACHE_ONLY, 2)] {
        let mut filter = AcceleratedFilter::new(configuration, CACHE_BYTES);
        filter.note_container(older, stream[..3].into());
        filter.note_container(newer, stream[2..].into());
        let mut found = Vec::new();
        filter.holders(&stream[2], &mut found);
        let of_both = [(newer, 0), (older, 2)];
        let of_both = of_both.map(|(container, position)| Instance { container, position });
        assert_eq!(found, of_both[..expected], "{configuration:?}");
        filter.holders(&Fingerprint([9; 32]), &mut found);
        assert_eq!(found.len(), expected);
    }
}

#[test]
fn s1_a_container_that_is_cached_is_not_read_again_for_a_chunk_that_it_lacks() {
    let stream = chunks(&SeededRandomness::new(32), 3);
    let mut store = FakeStore::new(100);
    let name = store.append(&stream[..2]);
    store.hint(&stream[2], name);
    let mut filter = AcceleratedFilter::new(CACHE_ONLY, CACHE_BYTES);
    let verdicts = judge_all(&mut filter, &mut store, &stream);
    assert_eq!(verdicts[2], Verdict::New);
    let counters = *filter.counters();
    assert_eq!((store.section_reads, counters.false_prefix_matches), (1, 1));
    assert_eq!((counters.containers_prefetched, counters.fingerprints_prefetched), (1, 2));
}
