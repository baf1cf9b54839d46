//! Buckets of the index: what is located together, and with how many requests.

use crate::index::fingerprint;
use crate::index_cost::{Known, counting};
use crate::ingest::{create, in_memory, options};
use onefold_engine::Repository;
use onefold_engine::index::locate::REQUEST_MAX_BYTES;
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex, merge};
use onefold_format::index_run::{IndexKind, PAGE_ENTRIES, PAGE_STORED_BYTES};
use onefold_policy::lookup::{LazyParameters, LookupStrategy, StreamLookup};
use onefold_policy::{AcceleratedFilter, BucketCounts, FilterConfiguration, IndexPort};
use onefold_store::layers::Operation;
use onefold_types::environment::SeededRandomness;
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// The range of prefixes, of so many equal ones, that a prefix lies in.
fn range_of(prefix: u64, count: u32) -> u32 {
    ((u128::from(prefix) * u128::from(count)) >> 64) as u32
}

#[test]
fn a_batch_in_one_bucket_is_one_request_and_answers_as_single_questions_do() {
    for kind in IndexKind::ALL {
        let (memory, store) = in_memory();
        let plain = create(&store, &options());
        // Three pieces or more: buckets cross from one to the next.
        let known = Known::write(&plain, kind, 5, 125_000);
        let (counting, repository) = counting(&memory);
        let index = FingerprintIndex::open(&repository).unwrap();
        for one in &known.entries {
            index.may_contain(&repository, &fingerprint(one.prefix)).unwrap();
        }
        counting.take();
        for (pages, most) in [(1, 256), (7, 32), (16, 16), (1000, 4)] {
            index.set_bucket_pages(pages);
            let counts = index.bucket_counts();
            assert_eq!(counts, BucketCounts { fewest: 8, most: most.max(8) }, "{kind}");
            for count in [counts.fewest, counts.most] {
                let mut buckets = vec![Vec::new(); count as usize];
                // Not in the order of the index.
                for number in (0..known.entries.len()).rev().step_by(11) {
                    buckets[range_of(known.entries[number].prefix, count) as usize].push(number);
                }
                for bucket in buckets {
                    let batch: Vec<Fingerprint> =
                        bucket.iter().map(|number| known.fingerprint(*number)).collect();
                    let (mut found, mut reads) = (vec![Vec::new()], 0);
                    index.locate_newest(&repository, &batch, &mut found, &mut reads).unwrap();
                    assert_eq!(reads, u64::from(kind != IndexKind::Signature), "{kind}, {count}");
                    assert_eq!(counting.take().total(Operation::GetRange).calls, reads);
                    assert_eq!(found.len(), 1 + batch.len(), "what was there before stays");
                    for (number, containers) in bucket.iter().zip(&found[1..]) {
                        assert!(containers.contains(&known.container(*number)));
                    }
                }
            }
        }
    }
    assert_eq!(FingerprintIndex::default().bucket_counts(), BucketCounts::ONE);
}

#[test]
fn a_request_for_pages_is_as_long_as_it_may_be_and_no_longer() {
    let (memory, store) = in_memory();
    let plain = create(&store, &options());
    let known = Known::write(&plain, IndexKind::Fuse, 9, 260 * PAGE_ENTRIES);
    let (counting, repository) = counting(&memory);
    let index = FingerprintIndex::open(&repository).unwrap();
    // Entries amid pages, which are on that page alone.
    let asked = |pages: [usize; 2]| {
        let numbers = pages.map(|page| page * PAGE_ENTRIES + 100);
        let batch = numbers.map(|number| known.fingerprint(number));
        batch.iter().for_each(|one| assert!(index.may_contain(&repository, one).unwrap()));
        counting.take();
        let (mut found, mut reads) = (Vec::new(), 0);
        index.locate_newest(&repository, &batch, &mut found, &mut reads).unwrap();
        for (number, containers) in numbers.iter().zip(&found) {
            assert!(containers.contains(&known.container(*number)));
        }
        let count = counting.take().of("index", Operation::GetRange);
        assert_eq!(count.calls, reads);
        (reads, count.bytes as usize)
    };
    let most = REQUEST_MAX_BYTES / PAGE_STORED_BYTES;
    assert_eq!(asked([3, 3]), (1, PAGE_STORED_BYTES));
    assert_eq!(asked([3, 3 + most - 1]), (1, REQUEST_MAX_BYTES));
    assert_eq!(asked([3, 3 + most]), (2, 2 * PAGE_STORED_BYTES), "one page more");
    // From the last page of a piece to the first of the next: the filter between them comes along.
    let piece = index.runs()[0].table.piece_lengths[0] as usize;
    let pages = index.runs()[0].table.pages_per_piece as usize;
    assert_eq!(asked([pages - 1, pages]), (1, 2 * PAGE_STORED_BYTES + piece));
    let left = (REQUEST_MAX_BYTES - piece) / PAGE_STORED_BYTES;
    assert_eq!(asked([pages - left + 1, pages]).0, 1);
    assert_eq!(asked([pages - left, pages]).0, 2, "one page more");
}

/// An index that sessions add to and merge, and the containers behind it. Every question must be
/// one request for each run.
struct Growing {
    repository: Arc<Repository>,
    index: FingerprintIndex,
    containers: HashMap<ContainerId, Arc<[Fingerprint]>>,
    runs_max: usize,
}

impl Growing {
    /// Another session's run, which may lead to a merge, seen by this one.
    fn grow(&mut self, known: &Known) {
        let mut lists: HashMap<ContainerId, Vec<Fingerprint>> = HashMap::new();
        for number in 0..known.entries.len() {
            lists.entry(known.container(number)).or_default().push(known.fingerprint(number));
        }
        self.containers.extend(lists.into_iter().map(|(id, list)| (id, list.into())));
        self.index.refresh(&self.repository).unwrap();
        self.runs_max = self.runs_max.max(self.index.runs().len());
    }
}

impl IndexPort for Growing {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        let before = *reads;
        self.index.locate_newest(&self.repository, fingerprints, found, reads)?;
        let (taken, runs) = (*reads - before, self.index.runs().len() as u64);
        assert!(taken <= runs, "{taken} requests for a bucket in {runs} runs");
        Ok(())
    }

    fn container_fingerprints(&mut self, id: ContainerId) -> Result<Option<Arc<[Fingerprint]>>> {
        Ok(self.containers.get(&id).cloned())
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        self.index.may_contain(&self.repository, fingerprint)
    }

    fn bucket_counts(&self) -> BucketCounts {
        self.index.bucket_counts()
    }
}

#[test]
fn s0_5_a_bucket_is_one_request_of_each_run_while_the_index_grows_and_is_merged() {
    let (memory, store) = in_memory();
    let plain = create(&store, &options());
    let (counting, repository) = counting(&memory);
    let index = FingerprintIndex::open(&repository).unwrap();
    index.set_bucket_pages(4);
    let mut port = Growing { repository, index, containers: HashMap::new(), runs_max: 0 };
    let strategy = LookupStrategy::Lazy(LazyParameters {
        ring_length: 2048,
        bucket_threshold: 16,
        buffer_max: 1 << 14,
        ..LazyParameters::default()
    });
    // A cache of few containers.
    let mut filter = AcceleratedFilter::new(FilterConfiguration::default(), 1 << 16);
    let mut lookup = StreamLookup::new(&strategy).unwrap();
    let (mut known, mut resolved, mut ticket) = (Vec::new(), Vec::new(), 0);
    let (mut fewest, mut merges) = (Vec::new(), 0);
    let randomness = SeededRandomness::new(11);
    for round in 0..14 {
        known.push(Known::write(&plain, IndexKind::Fuse, 100 + round, 25_000));
        merges += usize::from(merge::merge_if_due(&plain, None).unwrap() > 0);
        counting.take();
        port.grow(&known[known.len() - 1]);
        fewest.push(port.index.bucket_counts().fewest);
        for _ in 0..3000 {
            let one = &known[randomness.below(known.len() as u64) as usize];
            let fingerprint = one.fingerprint(randomness.below(25_000) as usize);
            lookup.push(&mut filter, &mut port, ticket, &fingerprint, &mut resolved).unwrap();
            ticket += 1;
        }
        assert!(lookup.waiting() > 0, "the index changes while chunks wait");
    }
    lookup.drain_before(u64::MAX, &mut filter, &mut port, &mut resolved).unwrap();
    assert_eq!(resolved.len() as u64, ticket);
    let counters = filter.counters();
    let (buckets, runs) = (counters.buckets_resolved, port.runs_max as u64);
    assert!(counters.index_page_reads <= buckets * runs, "{counters:?}");
    assert!(counters.fingerprints_batched > 12 * buckets, "{counters:?}");
    assert!(runs > 2 && merges > 1, "{runs} runs, {merges} merges");
    assert!(fewest[13] >= 8 * fewest[0], "{fewest:?}");
}
