//! The automatic choice: right on every device and workload, in a deterministic simulation.

#![allow(clippy::disallowed_types, reason = "a simulation's index is not a policy")]

use crate::support::{OracleStore, Owner, chunks, shuffled};
use onefold_policy::cost_model::time_ns;
use onefold_policy::lookup::{
    AutoParameters, DeviceCosts, FilterOrder, LazyParameters, LookupStrategy, StreamLookup,
};
use onefold_policy::{AcceleratedFilter, BucketCounts, FilterConfiguration};
use onefold_policy::{FilterCounters, IndexPort};
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// As measured in backups.
const HELD_CHUNK_NS: u64 = 800;
const CHUNKS_STORED: usize = 60_000;
const CHUNKS_PER_CONTAINER: usize = 256;
const BUFFER_MAX: usize = 4096;
const CACHE_SMALL_BYTES: usize = 1 << 20;
const CACHE_LARGE_BYTES: usize = 8 << 20;
const DEVICES: [DeviceCosts; 5] = [
    DeviceCosts::HARD_DISK,
    DeviceCosts::SATA_SSD,
    DeviceCosts::OPTANE_SSD,
    DeviceCosts::PERSISTENT_MEMORY,
    DeviceCosts::MEMORY,
];

/// A store that answers fast: every access of the device is an entry in the counters, no more.
struct Model {
    containers: Vec<Arc<[Fingerprint]>>,
    index: HashMap<u64, usize>,
    buckets: u32,
    /// What accesses are seen to take, and after how many.
    seen: Option<(u64, u64)>,
    accesses: u64,
}

impl Model {
    fn new(stored: &[Fingerprint], buckets: u32) -> Self {
        let containers: Vec<Arc<[Fingerprint]>> =
            stored.chunks(CHUNKS_PER_CONTAINER).map(Arc::from).collect();
        let numbered = containers.iter().enumerate();
        let entries = numbered.flat_map(|(number, container)| {
            container.iter().map(move |fingerprint| (fingerprint.prefix(), number))
        });
        Self { index: entries.collect(), containers, buckets, seen: None, accesses: 0 }
    }
}

impl IndexPort for Model {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        *reads += 1;
        self.accesses += 1;
        found.extend(fingerprints.iter().map(|fingerprint| {
            let number = self.index.get(&fingerprint.prefix());
            number.map(|number| ContainerId((*number as u128).to_le_bytes())).into_iter().collect()
        }));
        Ok(())
    }

    fn container_fingerprints(&mut self, name: ContainerId) -> Result<Option<Arc<[Fingerprint]>>> {
        Ok(self.containers.get(u128::from_le_bytes(name.0) as usize).cloned())
    }

    /// Four of a thousand new chunks pass, as with a binary fuse filter.
    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        let passes = fingerprint.prefix().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 == 0;
        Ok(passes || self.index.contains_key(&fingerprint.prefix()))
    }

    fn bucket_counts(&self) -> BucketCounts {
        BucketCounts { fewest: self.buckets, most: self.buckets }
    }

    fn device_read_ns(&self) -> Option<u64> {
        self.seen.filter(|(_, after)| self.accesses >= *after).map(|(ns, _)| ns)
    }
}

fn run(
    strategy: &LookupStrategy,
    model: &mut Model,
    cache_bytes: usize,
    stream: &[Fingerprint],
) -> (FilterCounters, StreamLookup) {
    let mut filter = AcceleratedFilter::new(FilterConfiguration::default(), cache_bytes);
    let mut lookup = StreamLookup::new(strategy).unwrap();
    let mut resolved = Vec::new();
    let mut verdicts = 0;
    for (ticket, fingerprint) in (0..).zip(stream) {
        lookup.push(&mut filter, model, ticket, fingerprint, &mut resolved).unwrap();
        verdicts += resolved.len();
        resolved.clear();
    }
    lookup.drain_before(u64::MAX, &mut filter, model, &mut resolved).unwrap();
    assert_eq!(verdicts + resolved.len(), stream.len());
    (*filter.counters(), lookup)
}

fn auto(costs: DeviceCosts) -> LookupStrategy {
    LookupStrategy::Auto(AutoParameters::new(costs, BUFFER_MAX))
}

/// What a user could choose instead.
fn fixed_choices() -> Vec<LookupStrategy> {
    let parameters = |ring_length, bucket_threshold| LazyParameters {
        ring_length,
        bucket_threshold,
        buffer_max: BUFFER_MAX,
        ..LazyParameters::default()
    };
    let mut choices = vec![
        LookupStrategy::Eager(FilterOrder::CacheFirst),
        LookupStrategy::Eager(FilterOrder::FilterFirst),
    ];
    let lazy = [(32, 4), (256, 4), (256, 32), (2048, 2), (2048, 16), (8192, 128)];
    choices.extend(lazy.map(|(ring, bucket)| LookupStrategy::Lazy(parameters(ring, bucket))));
    let second = [2, 4, 16, 64, 1024];
    choices.extend(second.map(|bucket| LookupStrategy::SecondLook(parameters(65_536, bucket))));
    choices
}

/// What `auto` may cost beyond the best of these: on such short streams, many of which change all
/// the time, it pays for learning, and it has not all of their ways. The laboratory's experiment
/// `auto` says what it costs on streams like those of backups.
const EXCESS_MAX: f64 = 0.55;

/// Checks that `auto` is not far from the best of these on any device.
fn compare(what: &str, buckets: u32, cache_bytes: usize, stream: &[Fingerprint]) {
    let mut model = Model::new(&chunks(1, CHUNKS_STORED), buckets);
    let fixed: Vec<(LookupStrategy, FilterCounters)> = fixed_choices()
        .into_iter()
        .map(|strategy| (strategy, run(&strategy, &mut model, cache_bytes, stream).0))
        .collect();
    for costs in DEVICES.map(|costs| costs.holding(HELD_CHUNK_NS)) {
        let cost = |counters| time_ns(counters, &costs) / stream.len() as f64;
        let (best, counters) =
            fixed.iter().min_by(|a, b| cost(&a.1).total_cmp(&cost(&b.1))).unwrap();
        let (own, lookup) = run(&auto(costs), &mut model, cache_bytes, stream);
        let relative = cost(&own) / cost(counters);
        let told = lookup.explain(&own);
        assert!(
            relative <= 1.0 + EXCESS_MAX,
            "{what}, {costs:?}: {relative:.3} of {best:?}; {told}"
        );
    }
}

fn stored() -> Vec<Fingerprint> {
    chunks(1, CHUNKS_STORED)
}

/// Each pass over what is stored in its own order of runs.
fn passes(count: u64, run_length: usize) -> Vec<Fingerprint> {
    let all = stored();
    (0..count).flat_map(|seed| shuffled(10 + seed, &all, run_length)).collect()
}

/// Runs of stored chunks with new ones in between.
fn interleaved(known: &[Fingerprint], run_length: usize, new: usize) -> Vec<Fingerprint> {
    let fresh = chunks(2, known.len() / run_length * new + new);
    let runs = known.chunks(run_length).zip(fresh.chunks(new));
    runs.flat_map(|(run, new)| [run, new].concat()).collect()
}

#[test]
fn auto_is_right_on_new_data() {
    compare("new", 500, CACHE_SMALL_BYTES, &chunks(3, 500_000));
    compare("new, many buckets", 100_000, CACHE_SMALL_BYTES, &chunks(3, 300_000));
}

#[test]
fn auto_is_right_on_the_same_data_again() {
    let stream: Vec<Fingerprint> = (0..6).flat_map(|_| stored()).collect();
    compare("order, small cache", 500, CACHE_SMALL_BYTES, &stream);
    compare("order, large cache", 500, CACHE_LARGE_BYTES, &stream);
    compare("order, many buckets", 100_000, CACHE_SMALL_BYTES, &stream);
}

#[test]
fn auto_is_right_on_long_runs() {
    compare("runs of 200, small cache", 500, CACHE_SMALL_BYTES, &passes(6, 200));
    compare("runs of 200, large cache", 500, CACHE_LARGE_BYTES, &passes(6, 200));
    compare("runs of 50, small cache", 500, CACHE_SMALL_BYTES, &passes(6, 50));
}

#[test]
fn auto_is_right_on_short_runs() {
    compare("runs of 10, small cache", 500, CACHE_SMALL_BYTES, &passes(6, 10));
    compare("runs of 10, large cache", 500, CACHE_LARGE_BYTES, &passes(6, 10));
    compare("runs of 10, many buckets", 100_000, CACHE_SMALL_BYTES, &passes(6, 10));
}

#[test]
fn auto_is_right_on_single_chunks() {
    compare("singles, small cache", 500, CACHE_SMALL_BYTES, &passes(4, 1));
    compare("singles, large cache", 500, CACHE_LARGE_BYTES, &passes(6, 1));
}

#[test]
fn auto_is_right_on_mixtures() {
    let known = passes(5, 64);
    compare("64 known, 64 new", 500, CACHE_SMALL_BYTES, &interleaved(&known, 64, 64));
    compare("8 known, 56 new", 500, CACHE_SMALL_BYTES, &interleaved(&known[..80_000], 8, 56));
    let known: Vec<Fingerprint> = (0..5).flat_map(|_| stored()).collect();
    compare("1000 known, 1000 new", 500, CACHE_SMALL_BYTES, &interleaved(&known, 1000, 1000));
}

#[test]
fn auto_adapts_when_the_stream_changes() {
    let known = passes(2, 10);
    let ordered: Vec<Fingerprint> = (0..2).flat_map(|_| stored()).collect();
    let stream = [chunks(4, 120_000), ordered, known, chunks(5, 120_000)].concat();
    compare("phases", 500, CACHE_SMALL_BYTES, &stream);
}

#[test]
fn s0_15_auto_believes_what_accesses_take_rather_than_what_it_was_told() {
    let stream = passes(4, 10);
    let reads = |told: DeviceCosts, seen: Option<(u64, u64)>| {
        let model = Model::new(&stored(), 500);
        let mut model = Model { seen, ..model };
        let strategy = auto(told.holding(HELD_CHUNK_NS));
        run(&strategy, &mut model, CACHE_SMALL_BYTES, &stream).0.device_reads()
    };
    let [disk, memory] = [DeviceCosts::HARD_DISK, DeviceCosts::MEMORY];
    let (on_disk, in_memory) = (reads(disk, None), reads(memory, None));
    assert!(on_disk * 4 < in_memory, "it looks up alike: {on_disk}, {in_memory}");
    // Told the wrong device, it is as the right one soon after it has seen some accesses.
    let corrected = reads(memory, Some((disk.device_read_ns, 16)));
    assert!(corrected < on_disk + in_memory / 10, "{corrected} of {on_disk}, {in_memory}");
    let corrected = reads(disk, Some((memory.device_read_ns, 16)));
    assert!(corrected > in_memory / 10 * 9, "{corrected} of {on_disk}, {in_memory}");
    // What is about as it was told changes nothing.
    let about = (disk.device_read_ns / 5 * 4, 16);
    assert_eq!(reads(disk, Some(about)), on_disk);
}

#[test]
fn auto_begins_as_is_best_while_nothing_is_known() {
    let begins_lazily = |device_read_ns: u64, memory_access_ns: u64, held_chunk_ns: u64| {
        let costs = DeviceCosts::new(device_read_ns, memory_access_ns).holding(held_chunk_ns);
        let mut model = Model::new(&stored(), 500);
        let short: Vec<Fingerprint> = stored().into_iter().take(50).collect();
        let (counters, ..) = run(&auto(costs), &mut model, CACHE_SMALL_BYTES, &short);
        counters.fingerprints_buffered > 0
    };
    for memory_ns in [11, 80, 130] {
        for held_ns in [0, HELD_CHUNK_NS] {
            assert!(begins_lazily(100_000, memory_ns, held_ns), "{memory_ns} ns");
            assert!(!begins_lazily(99_999, memory_ns, held_ns), "{memory_ns} ns");
        }
    }
}

#[test]
fn its_report_counts_the_look_ups() {
    let mut model = Model::new(&stored(), 500);
    let (counters, lookup) =
        run(&auto(DeviceCosts::MEMORY), &mut model, CACHE_SMALL_BYTES, &stored()[..50]);
    let report = lookup.auto_report().unwrap();
    assert_eq!((report.lookups, report.costs.device_read_ns), (50, 130));
    assert_eq!(lookup.explain(&counters), report.to_string());
}

#[test]
fn it_believes_what_it_was_told_where_the_index_does_not_time_its_accesses() {
    let parameters = AutoParameters {
        window_length: 64,
        ..AutoParameters::new(DeviceCosts::SATA_SSD, BUFFER_MAX)
    };
    let mut owner = Owner::new(LookupStrategy::Auto(parameters));
    owner.push_all(&mut OracleStore::with(8, &chunks(1, 2000), 500), &chunks(2, 5000));
    let costs = owner.lookup.auto_report().unwrap().costs;
    assert_eq!(costs, DeviceCosts::SATA_SSD);
}
