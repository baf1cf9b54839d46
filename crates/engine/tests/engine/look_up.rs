//! Every way of looking up, through the whole of a backup.

use crate::ingest::{
    assert_tree_equal, backup_options, create, in_memory, make_tree, memory, open, options, paths,
    random_bytes, stream,
};
use crate::rewriting::containers_of;
use crate::steps::names;
use onefold_crypto::Suite;
use onefold_engine::chunk_store::{ChunkBatch, ChunkStore, ChunkStoreOptions};
use onefold_engine::index::FingerprintIndex;
use onefold_engine::ingest::{BackupOptions, BackupReport, ParentChoice, Source, backup};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::{InitOptions, Job, Repository, device};
use onefold_format::codec::Compression;
use onefold_format::index_run::IndexKind;
use onefold_format::layout;
use onefold_policy::accelerated_filter::FilterConfiguration;
use onefold_policy::lookup::{LazyParameters, LookupStrategy};
use onefold_store::layers::{ThrottleLimits, Throttled};
use onefold_store::{Key, Store};
use onefold_types::{ContainerId, limits};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXACT: [&str; 7] = [
    "auto",
    "eager",
    "eager,filter-first",
    "lazy",
    "lazy,whole-ring",
    "lazy,ring=1,bucket=1",
    "lazy,ring=64,bucket=65536",
];

fn save_with(
    repository: &Arc<Repository>,
    source: Source,
    lookup: LookupChoice,
    index_kind: Option<IndexKind>,
) -> BackupReport {
    let options = BackupOptions {
        lookup,
        index_kind,
        // Every file is read: the point is what look-ups find.
        parent: ParentChoice::None,
        ..backup_options()
    };
    backup(repository, source, &options, &Job::unattended().0).unwrap()
}

#[test]
fn every_exact_strategy_stores_the_same_chunks_on_every_kind_of_index() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let mut expected = None;
    for kind in [IndexKind::Bloom, IndexKind::Fuse, IndexKind::Signature] {
        for choice in EXACT {
            let choice: LookupChoice = choice.parse().unwrap();
            let (_, store) = in_memory();
            // Unkeyed, so that every store cuts alike.
            create(&store, &InitOptions { suite: Suite::None, ..options() });
            let save = || {
                let repository = open(&store);
                let report = save_with(&repository, paths(source.path()), choice, Some(kind));
                assert_tree_equal(&repository, report.snapshot.unwrap(), source.path());
                report.summary
            };
            let first = save();
            let again = save();
            assert_eq!(again.chunks_new, 0, "{kind} {choice}");
            fs::write(source.path().join("d0/added"), random_bytes(5, 300_000)).unwrap();
            let third = save();
            fs::remove_file(source.path().join("d0/added")).unwrap();
            let stored = (first.chunks, first.chunks_new, third.chunks, third.chunks_new);
            assert_eq!(*expected.get_or_insert(stored), stored, "{kind} {choice}");
        }
    }
}

#[test]
fn s1_21_what_is_saved_again_takes_one_look_up_and_one_section_for_each_container() {
    let (_, store) = in_memory();
    create(&store, &InitOptions { suite: Suite::None, ..options() });
    let bytes = random_bytes(21, 6 * limits::MIB);
    let choice: LookupChoice = "eager".parse().unwrap();
    let save = || save_with(&open(&store), stream("file", &bytes), choice, None);
    save();
    let containers = names(&*store, layout::CONTAINERS).len() as u64;
    assert!(containers > 4, "{containers}");
    let counters = save().lookup.counters;
    assert_eq!((counters.index_lookups, counters.containers_prefetched), (containers, containers));
    // Nodes that differ are surely new; all else is in the cache by then.
    let elsewhere = containers + counters.summary_negatives;
    assert_eq!(counters.cache_hits, counters.lookups - elsewhere);
    assert!(counters.summary_negatives <= 2 && counters.lookups > 20 * elsewhere, "{counters:?}");
}

#[test]
fn sampled_look_ups_lose_space_at_most() {
    let (_, store) = in_memory();
    // One chunk of 32 is a hook: containers of the usual size hold sixteen and more of them. The
    // key decides where they are, and is the same in every run.
    let options = InitOptions { container_size_bytes: 4 * limits::MIB, ..options() };
    let environment = crate::steps::environment(8);
    let password = Some(crate::steps::PASSWORD);
    Repository::create(Arc::clone(&store), &options, password, environment, memory()).unwrap();
    let bytes = random_bytes(8, 12 * limits::MIB);
    let choice: LookupChoice = "sampled".parse().unwrap();
    let save = || save_with(&open(&store), stream("file", &bytes), choice, None);
    let first = save();
    let again = save();
    assert!(first.summary.bytes_new >= bytes.len() as u64);
    let lost = again.summary.bytes_new;
    assert!(lost <= bytes.len() as u64 / 50, "{lost} of {:?}", again.lookup);
    for report in [first, again] {
        let content = crate::ingest::content_at(
            &open(&store),
            report.snapshot.unwrap(),
            std::path::Path::new("/file"),
        );
        assert_eq!(content, bytes);
    }
}

#[test]
fn chunks_that_wait_stay_within_their_share_of_memory() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let strategy = LookupStrategy::Lazy(LazyParameters {
        ring_length: 65_536,
        bucket_threshold: 65_536,
        buffer_max: 65_536,
        ..LazyParameters::default()
    });
    let open_store = || {
        let options = ChunkStoreOptions {
            compression: Compression::None,
            threads: 1,
            // Without the vector every chunk has to wait, new ones too.
            filter: FilterConfiguration { summary_vector: false, ..Default::default() },
            lookup: strategy,
            index_kind: None,
            rewrite: onefold_engine::chunk_store::RewriteOptions::none(),
            delta: onefold_format::delta::DeltaChoice::Off,
            dry_run: false,
            session: None,
        };
        let index = FingerprintIndex::open(&repository).unwrap();
        ChunkStore::open(&repository, std::sync::Arc::new(index), BTreeSet::new(), options).unwrap()
    };
    let limit = repository.memory().waiting_chunks_bytes;
    let store = open_store();
    let mut stream = store.stream().unwrap();
    let (mut given_back, mut handed_in, mut waited_most) = (0, 0, 0);
    for seed in 0..(limit * 3 / limits::MIB) as u64 {
        let buffer = random_bytes(seed, limits::MIB);
        let ranges: Vec<_> = (0..128).map(|n| n * 8192..(n + 1) * 8192).collect();
        let fingerprinter = repository.fingerprinter();
        let fingerprints =
            ranges.iter().map(|range| fingerprinter.data(&buffer[range.clone()])).collect();
        handed_in += buffer.len();
        let batch = ChunkBatch { buffer, ranges, fingerprints, ..ChunkBatch::default() };
        stream.put_data(batch, &mut |buffer| given_back += buffer.len()).unwrap();
        assert!(handed_in - given_back <= limit + limits::MIB, "{handed_in} {given_back}");
        waited_most = waited_most.max(handed_in - given_back);
    }
    assert!(waited_most >= limits::MIB, "some wait");
    stream.finish().unwrap();
    let totals = store.finish().unwrap();
    assert_eq!(totals.chunks_new, totals.chunks);
    assert_eq!(totals.bytes_new, handed_in as u64);
}

#[test]
fn s0_30_the_costs_of_look_ups_are_measured_on_the_store() {
    let (bare, fast) = in_memory();
    let repository = create(&fast, &options());
    save_with(&repository, stream("a", &random_bytes(30, 600_000)), "eager".parse().unwrap(), None);
    let containers: Vec<ContainerId> = containers_of(&repository).into_iter().collect();
    assert!(containers.len() > 3);
    let empty = device::measure(&repository, &[]).unwrap();
    assert!(empty.is_assumed);
    assert_eq!((empty.costs.device_read_ns, empty.costs.held_chunk_ns), (141_000, 800));
    // Four kibibytes of this store take eight milliseconds, once the time has been used up that
    // opening it took.
    let limits = ThrottleLimits { bytes_per_second: Some(512 << 10), work_share: None };
    let slow: Arc<dyn Store> = Arc::new(Throttled::new(bare, limits));
    let behind = open(&slow);
    let key = Key::new(layout::container(containers[0])).unwrap();
    let mut took = Duration::ZERO;
    while took < Duration::from_millis(100) {
        let started = Instant::now();
        slow.get(&key).unwrap();
        took = started.elapsed();
    }
    let [fast, slow] = [&repository, &behind].map(|repository| {
        let measured = device::measure(repository, &containers).unwrap();
        assert!(!measured.is_assumed);
        measured.costs
    });
    assert!(slow.device_read_ns > 4_000_000 && slow.device_read_ns < 100_000_000, "{slow:?}");
    assert!(fast.device_read_ns < 4_000_000, "{fast:?}");
    // The ratio is the one measured, and memory is as fast beside either.
    assert!((1..10_000).contains(&slow.memory_access_ns), "{slow:?}");
    assert!(slow.ratio() > 10.0 * fast.ratio(), "{slow:?} {fast:?}");
}
