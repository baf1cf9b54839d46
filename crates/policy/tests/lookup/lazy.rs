//! Lazy look-up: exact, in batches, and with what S0 says about buckets, rings and ranks.

use crate::support::{self, OracleStore, Outcome, Owner, check_exact, chunks, exact, shuffled};
use onefold_policy::IndexPort;
use onefold_policy::lookup::{
    FilterOrder, LazyParameters, LookupStrategy, PostLookup, StreamLookup,
};
use onefold_policy::{AcceleratedFilter, BucketCounts, FilterConfiguration, FilterCounters};
use onefold_types::{ErrorKind, Fingerprint};
use proptest::prelude::*;

fn lazy(ring_length: usize, bucket_threshold: usize, buffer_max: usize) -> LookupStrategy {
    LookupStrategy::Lazy(LazyParameters {
        ring_length,
        bucket_threshold,
        buffer_max,
        ..LazyParameters::default()
    })
}

fn second_look(ring_length: usize, bucket_threshold: usize, buffer_max: usize) -> LookupStrategy {
    LookupStrategy::SecondLook(LazyParameters {
        ring_length,
        bucket_threshold,
        buffer_max,
        ..LazyParameters::default()
    })
}

/// The fingerprint that a small number stands for. Numbers with the same remainder by a power of
/// two share one of so many buckets, because the number stands backwards in the prefix.
fn numbered(number: u64) -> Fingerprint {
    support::numbered(number.reverse_bits())
}

/// A store with so many buckets, a power of two.
fn store_of(buckets: u32, numbers: &[u64]) -> OracleStore {
    let mut store = OracleStore::new(buckets);
    store.append(&numbers.iter().map(|number| numbered(*number)).collect::<Vec<_>>());
    store
}

#[test]
fn s0_5_a_full_bucket_is_one_access_with_all_its_fingerprints() {
    // Fig. 2: with four buckets, 2, 6, 10 and 14 share one.
    let mut store = store_of(4, &[]);
    let mut owner = Owner::new(lazy(2048, 4, 100));
    store.false_positives = 1 << 16;
    let stream: Vec<Fingerprint> = [1, 2, 3, 6, 5, 10, 8].map(numbered).to_vec();
    owner.push_all(&mut store, &stream);
    assert_eq!((store.located.len(), owner.lookup.waiting()), (0, 7));
    owner.push(&mut store, &numbered(14));
    assert_eq!(store.located, [[2, 6, 10, 14].map(numbered).to_vec()]);
    assert_eq!(owner.lookup.waiting(), 4);
    let counters = owner.counters();
    assert_eq!((counters.index_page_reads, counters.index_lookups), (1, 4));
    assert_eq!((counters.buckets_resolved, counters.fingerprints_batched), (1, 4));
    assert_eq!((counters.forced_resolves, counters.summary_false_positives), (0, 4));
    assert_eq!(owner.outcome(1), Some(Outcome::New));
    assert_eq!(owner.outcome(0), None);
    owner.drain(&mut store);
    // Of those left, 1 and 5 share a bucket; 3 and 8 are alone in theirs.
    assert_eq!(
        store.located[1..],
        [[1, 5].map(numbered).to_vec(), vec![numbered(3)], vec![numbered(8)]]
    );
    assert_eq!(owner.counters().forced_resolves, 3);
}

#[test]
fn s0_4_a_post_lookup_empties_the_buffer_without_the_device() {
    let numbers: Vec<u64> = (0..100).collect();
    let mut store = store_of(64, &numbers);
    let mut owner = Owner::new(lazy(2048, 2, 1000));
    // 64 falls into the bucket of 0; the others wait, one in each bucket.
    let stream: Vec<Fingerprint> = (0..65).map(numbered).collect();
    owner.push_all(&mut store, &stream);
    assert_eq!(owner.lookup.waiting(), 0);
    assert_eq!((store.located.len(), store.section_reads), (1, 1));
    let counters = owner.counters();
    assert_eq!((counters.post_lookups, counters.post_lookup_hits), (64, 64));
    assert_eq!((counters.containers_prefetched, counters.index_hits), (1, 1));
    assert_eq!(counters.device_reads(), 2);
    // The rest of the container is found by pre-lookups.
    owner.push_all(&mut store, &(65..100).map(numbered).collect::<Vec<_>>());
    assert_eq!(owner.counters().cache_hits, 35);
    assert_eq!(owner.counters().device_reads(), 2);
}

#[test]
fn s0_4_as_published_the_whole_ring_is_looked_for_after_every_hit() {
    // 0 and 9 of one container, far apart in the ring, and 64, which takes 0 to the device. Between
    // them wait twenty that the filter lets pass, in buckets of their own.
    let looked_for = |post_lookup| {
        let mut store = store_of(64, &(0..10).collect::<Vec<_>>());
        store.append(&[numbered(64)]);
        store.false_positives = 1 << 16;
        let mut owner = Owner::new(LookupStrategy::Lazy(LazyParameters {
            bucket_threshold: 2,
            post_lookup,
            ..LazyParameters::default()
        }));
        let between = (0..20).map(|new| 1024 + 16 + new);
        let stream: Vec<Fingerprint> =
            [0].into_iter().chain(between).chain([9, 64]).map(numbered).collect();
        owner.push_all(&mut store, &stream);
        let counters = owner.counters();
        assert_eq!((store.located.len(), counters.containers_prefetched), (1, 2));
        (counters.post_lookups, counters.post_lookup_hits, owner.lookup.waiting())
    };
    // Ranks 1 to 9 of the ring for the first container; nothing for the second, of one chunk.
    assert_eq!(looked_for(PostLookup::WithinReach), (9, 0, 21));
    // 22 after the first hit, of which 9 is found, and what is left after the second.
    assert_eq!(looked_for(PostLookup::WholeRing), (22 + 20, 1, 20));
}

/// Looks 0 to 9 up, then 64, which is in the bucket of 0; returns how many still wait.
fn left_waiting(ring_length: usize) -> (usize, FilterCounters) {
    let mut numbers: Vec<u64> = (0..10).collect();
    numbers.push(64);
    let mut store = store_of(64, &numbers);
    let mut owner = Owner::new(lazy(ring_length, 2, 1000));
    owner.push_all(&mut store, &numbers.iter().map(|one| numbered(*one)).collect::<Vec<_>>());
    (owner.lookup.waiting(), owner.counters())
}

#[test]
fn s0_6_a_ring_closes_at_its_length_and_post_lookups_stay_within() {
    // The hit is chunk 0, the oldest of its bucket. Its ring is what came first.
    for (ring, waiting) in [(2048, 0), (11, 0), (10, 0), (9, 1), (5, 5), (2, 8), (1, 9)] {
        let (left, counters) = left_waiting(ring);
        assert_eq!(left, waiting, "ring {ring}");
        assert_eq!(counters.post_lookups as usize, (ring - 1).min(9) + 1, "ring {ring}");
    }
}

#[test]
fn s0_6_members_of_a_ring_that_the_cache_knows_count_for_its_length() {
    let numbers: Vec<u64> = (0..200).collect();
    let mut store = store_of(64, &numbers[..100]);
    store.append(&numbers[100..].iter().map(|one| numbered(*one)).collect::<Vec<_>>());
    let mut owner = Owner::new(lazy(8, 2, 1000));
    // Brings the first container into the cache: a ring of eight is open with two in it.
    owner.push_all(&mut store, &[0, 64].map(numbered));
    assert_eq!(owner.lookup.waiting(), 0);
    // Five hits and 100 fill it; 101 to 103 begin the next, and 165 shares the bucket of 101.
    owner.push_all(&mut store, &[1, 2, 3, 4, 5, 100, 101, 102, 103, 165].map(numbered));
    assert_eq!(owner.outcome(7), None, "100 lies in the ring before");
    assert_eq!(owner.lookup.waiting(), 1);
    assert_eq!(owner.counters().containers_prefetched, 2);
}

/// A container of ten, of which 0 and 9 are looked up with `between` new chunks in between; then
/// 64, which takes 0 to the device.
fn reached(ring: usize, between: u64, known_between: bool) -> (Option<Outcome>, u64) {
    let mut numbers: Vec<u64> = (0..10).collect();
    numbers.push(64);
    let mut store = store_of(64, &numbers[..10]);
    store.append(&[numbered(64)]);
    if known_between {
        store.false_positives = 1 << 16;
    }
    let mut owner = Owner::new(lazy(ring, 2, 1000));
    owner.push(&mut store, &numbered(0));
    for new in 0..between {
        // In buckets of their own: from 16 on.
        owner.push(&mut store, &numbered(1024 + 16 + new));
    }
    owner.push(&mut store, &numbered(9));
    owner.push(&mut store, &numbered(64));
    (owner.outcome(1 + between as usize), owner.counters().post_lookups)
}

#[test]
fn s0_6_chunks_that_the_filter_refuses_do_not_fill_a_ring() {
    // 0 and 9 fill a ring of two if the eight in between are surely new, and one of ten if not.
    assert!(reached(2, 8, false).0.is_some() && reached(1, 8, false).0.is_none());
    assert!(reached(10, 8, true).0.is_some() && reached(9, 8, true).0.is_none());
}

#[test]
fn s0_7_chunks_that_the_filter_refuses_consume_ranks() {
    // Chunk 9 is nine places behind chunk 0 in the container, and so it is in the stream.
    assert!(matches!(reached(2048, 8, false).0, Some(Outcome::Stored(_))));
    // With one more in between, the container's ranks end before it. Were ranks not to advance on
    // refused chunks, it would be looked for, and found.
    assert_eq!(reached(2048, 9, false).0, None);
    assert_eq!(reached(2048, 30, false).0, None);
    // The same whether those in between wait or were refused.
    assert!(matches!(reached(2048, 8, true).0, Some(Outcome::Stored(_))));
    assert_eq!(reached(2048, 9, true).0, None);
    // Only what can be reached is looked for.
    assert_eq!((reached(2048, 8, false).1, reached(2048, 9, false).1), (1, 0));
}

#[test]
fn s0_7_ranks_reach_backwards_as_far_as_the_position_of_the_hit() {
    // The hit stands last in its container of 20: it reaches the 19 before it and nobody behind.
    let numbers: Vec<u64> = (0..20).collect();
    let mut store = store_of(64, &numbers);
    let mut owner = Owner::new(lazy(2048, 2, 1000));
    owner.push_all(&mut store, &(0..20).map(numbered).collect::<Vec<_>>());
    store.false_positives = 1 << 16;
    owner.push(&mut store, &numbered(30));
    owner.push(&mut store, &numbered(19 + 64));
    assert_eq!(owner.lookup.waiting(), 1, "30 is not of this container and waits on");
    let counters = owner.counters();
    assert_eq!((counters.post_lookups, counters.post_lookup_hits), (19, 19));
}

#[test]
fn s0_9_repeats_in_the_buffer_follow_the_first() {
    let mut store = store_of(64, &[7]);
    store.false_positives = 1 << 16;
    let mut owner = Owner::new(lazy(2048, 2, 100));
    // 7 is stored, 8 is not; both wait, and three more of each join them.
    let stream: Vec<Fingerprint> = [7, 8, 8, 7, 7, 8, 8, 7].map(numbered).to_vec();
    owner.push_all(&mut store, &stream);
    assert_eq!((owner.lookup.waiting(), store.located.len()), (8, 0), "not a full bucket");
    owner.drain(&mut store);
    check_exact(&owner, &store, &stream);
    let repeated = [2, 5, 6].map(|ticket| owner.outcome(ticket));
    assert_eq!(repeated, [Some(Outcome::Repeated); 3]);
    assert_eq!(owner.outcome(1), Some(Outcome::New));
    assert_eq!(owner.outcome(7), owner.outcome(0));
    let counters = owner.counters();
    assert_eq!((counters.repeats, counters.fingerprints_buffered), (6, 2));
    assert_eq!((counters.index_lookups, counters.duplicates()), (2, 7));
}

#[test]
fn s0_9_draining_resolves_everything_and_the_stream_goes_on() {
    let stored = chunks(1, 5000);
    let mut store = OracleStore::with(1 << 20, &stored, 500);
    let mut owner = Owner::new(lazy(2048, 64, 1 << 16));
    let stream = [stored[..600].to_vec(), chunks(2, 300), stored[600..].to_vec()].concat();
    owner.push_all(&mut store, &stream[..1000]);
    assert!(owner.lookup.waiting() > 0);
    owner.drain(&mut store);
    assert_eq!((owner.lookup.waiting(), owner.oldest_waiting()), (0, None));
    owner.drain(&mut store);
    owner.push_all(&mut store, &stream[1000..]);
    owner.drain(&mut store);
    check_exact(&owner, &store, &stream);
}

#[test]
fn draining_the_oldest_leaves_the_newest_waiting() {
    let stored: Vec<_> = chunks(3, 4000).chunks(4).map(|part| part[0]).collect();
    let mut store = OracleStore::with(1 << 20, &stored, 1);
    let mut owner = Owner::new(lazy(2048, 64, 1 << 16));
    owner.push_all(&mut store, &stored);
    assert_eq!(owner.lookup.waiting(), 1000);
    owner.drain_before(&mut store, 300);
    assert_eq!(owner.oldest_waiting(), Some(300));
    assert!(owner.lookup.waiting() >= 699, "hardly any bucket has two");
    owner.drain(&mut store);
    check_exact(&owner, &store, &stored);
}

#[test]
fn a_full_buffer_locates_the_fullest_bucket() {
    let mut store = store_of(8, &[]);
    store.false_positives = 1 << 16;
    let mut owner = Owner::new(lazy(2048, 100, 10));
    // Bucket 3 has four, bucket 1 three, bucket 2 two; the tenth to wait makes room.
    let stream = [1, 3, 2, 9, 11, 10, 19, 17, 27].map(numbered);
    owner.push_all(&mut store, &stream);
    assert_eq!((store.located.len(), owner.lookup.waiting()), (0, 9));
    owner.push(&mut store, &numbered(4));
    assert_eq!(store.located, [[3, 11, 19, 27].map(numbered).to_vec()]);
    assert_eq!((owner.lookup.waiting(), owner.counters().forced_resolves), (6, 1));
    // Among buckets with equally many, the one that got there first: 2 came before 4.
    owner.push_all(&mut store, &[33, 12, 34, 5].map(numbered));
    assert_eq!(store.located[1], [1, 9, 17, 33].map(numbered));
}

#[test]
fn a_chunk_is_held_if_any_waits_once_it_has_come() {
    let mut store = store_of(4, &[]);
    store.false_positives = 1 << 16;
    let mut owner = Owner::new(lazy(2048, 2, 100));
    let held = [1, 2, 5, 6, 3].map(|number| {
        owner.push(&mut store, &numbered(number));
        owner.counters().chunks_held
    });
    // 5 is located with 1 while 2 waits; 6 with 2, and then nobody does.
    assert_eq!(held, [1, 2, 3, 3, 4]);
}

/// What three chunks of one bucket cost after 1 was found and drained: 3, of a container too large
/// for the cache, and two that the index takes to be in the container of 1, which is cached.
fn with_wrong_hints(strategy: LookupStrategy, stream: [u64; 3]) -> FilterCounters {
    let mut store = store_of(64, &[1]);
    store.append(&[4, 5, 3].into_iter().chain(1000..1200).map(numbered).collect::<Vec<_>>());
    for wrong in [67, 131] {
        store.index.insert(numbered(wrong), store.index[&numbered(1)].clone());
    }
    let mut owner = Owner::with(strategy, FilterConfiguration::default(), 4000);
    owner.push(&mut store, &numbered(1));
    owner.drain(&mut store);
    assert_eq!(owner.counters().containers_prefetched, 1);
    let before = owner.counters();
    owner.push_all(&mut store, &[4, 5].map(numbered));
    owner.push_all(&mut store, &stream.map(numbered));
    assert_eq!((owner.lookup.waiting(), store.located.len()), (2, 2), "4 and 5 wait on");
    owner.counters() - before
}

#[test]
fn nothing_is_looked_for_again_where_the_cache_has_not_changed() {
    for (strategy, looks) in [(lazy(2048, 3, 100), 1), (second_look(2048, 3, 100), 2)] {
        for stream in [[3, 67, 131], [67, 3, 131]] {
            // Without a second look, 67 may have come into the cache while it waited; 131 has just
            // been looked for. With one, 3 and 67 are looked for once. The container of 3 brought
            // nothing into the cache, so 4 and 5 are not.
            let counters = with_wrong_hints(strategy, stream);
            assert_eq!((counters.post_lookups, counters.verification_reads), (looks, 1));
            assert_eq!((counters.containers_prefetched, counters.index_misses), (0, 2));
        }
    }
}

#[test]
fn a_failing_store_is_an_error() {
    let mut store = store_of(4, &[2, 6]);
    store.fails_after = 0;
    let mut filter = AcceleratedFilter::new(FilterConfiguration::default(), 1 << 20);
    let mut lookup = StreamLookup::new(&lazy(16, 2, 16)).unwrap();
    let mut resolved = Vec::new();
    lookup.push(&mut filter, &mut store, 0, &numbered(2), &mut resolved).unwrap();
    let error = lookup.push(&mut filter, &mut store, 1, &numbered(6), &mut resolved).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(resolved.is_empty());
    // Whoever ends the stream all the same is told again, and soon.
    let mut drain = |store: &mut OracleStore| {
        let drained = lookup.drain_before(u64::MAX, &mut filter, store, &mut resolved);
        drained.map(|()| std::mem::take(&mut resolved))
    };
    assert_eq!(drain(&mut store).unwrap_err().kind(), ErrorKind::Io);
    store.fails_after = usize::MAX;
    let mut judged = drain(&mut store).unwrap();
    judged.sort_by_key(|(ticket, _)| *ticket);
    assert_eq!(judged.len(), 2);
    assert!(
        judged.iter().all(|(_, verdict)| matches!(verdict, onefold_policy::Verdict::Duplicate(_)))
    );
}

#[test]
fn lazy_with_threshold_1_and_ring_1_does_what_eager_does() {
    let stored = chunks(4, 20_000);
    let stream = [shuffled(5, &stored, 16), chunks(6, 5000), shuffled(7, &stored, 300)].concat();
    let run = |strategy| {
        let mut store = OracleStore::with(500, &stored, 400);
        store.false_positives = 600;
        let mut owner = Owner::with(strategy, FilterConfiguration::default(), 1 << 18);
        owner.push_all(&mut store, &stream);
        owner.drain(&mut store);
        check_exact(&owner, &store, &stream);
        (owner.outcomes(), store.located, store.section_reads, owner.counters())
    };
    let eager = run(LookupStrategy::Eager(FilterOrder::FilterFirst));
    for strategy in [lazy(1, 1, 100), second_look(1, 1, 100), lazy(1, 2048, 1)] {
        let lazy = run(strategy);
        assert_eq!((&lazy.0, &lazy.1, lazy.2), (&eager.0, &eager.1, eager.2));
        let asked = lazy.3.index_lookups;
        let expected = FilterCounters {
            fingerprints_buffered: asked,
            buckets_resolved: asked,
            fingerprints_batched: asked,
            forced_resolves: lazy.3.forced_resolves,
            post_lookups: lazy.3.post_lookups,
            ..eager.3
        };
        assert_eq!(lazy.3, expected);
    }
    assert_eq!(run(lazy(1, 1, 100)).3.post_lookups, 0, "a ring of one has no post-lookups");
}

#[test]
fn s0_16_without_a_second_look_short_rings_read_more_than_eager_and_with_it_less() {
    let stored = chunks(8, 60_000);
    let stream = shuffled(9, &stored, 200);
    let reads = |strategy| {
        let mut store = OracleStore::with(2000, &stored, 1000);
        exact(strategy, &mut store, &stream).counters().device_reads()
    };
    let eager = reads(LookupStrategy::Eager(FilterOrder::FilterFirst));
    let plain = reads(lazy(16, 16, 8192));
    let looked_twice = reads(second_look(16, 16, 8192));
    assert!(plain > eager * 3 / 2, "{plain} {eager}");
    assert!(looked_twice < eager, "{looked_twice} {eager}");
}

#[test]
fn s0_28_larger_thresholds_and_longer_rings_take_fewer_accesses() {
    let stored = chunks(10, 50_000);
    let mut stream = shuffled(11, &stored, 64);
    stream.extend(chunks(12, 20_000));
    let run = |strategy| {
        let mut store = OracleStore::with(200, &stored, 500);
        store.false_positives = 1500;
        exact(strategy, &mut store, &stream).counters()
    };
    let pages = |threshold| run(lazy(65_536, threshold, 1 << 14)).index_page_reads;
    let by_threshold = [1, 2, 4, 8].map(pages);
    assert!(by_threshold.is_sorted_by(|a, b| a > b), "{by_threshold:?}");
    let by_ring = [16, 64, 256, 1024].map(|ring| run(lazy(ring, 4, 1 << 14)));
    assert!(by_ring.is_sorted_by(|a, b| a.post_lookups < b.post_lookups));
    let pages: Vec<u64> = by_ring.iter().map(|one| one.index_page_reads).collect();
    assert!(pages.is_sorted_by(|a, b| a >= b) && pages[0] > pages[3], "{pages:?}");
    assert!(by_ring.is_sorted_by(|a, b| a.summary_lookups == b.summary_lookups), "S0.26");
    // S0.16: the longer the ring, the more leave before the device is asked for them. A ring of one
    // has nobody to look for: what is found then is what a bucket's own members bring in.
    let alone = run(lazy(1, 4, 1 << 14));
    assert!(alone.post_lookups < alone.fingerprints_batched, "{alone:?}");
    let asked = [&alone].into_iter().chain(&by_ring).map(|one| one.fingerprints_batched);
    let asked: Vec<u64> = asked.collect();
    assert!(asked.is_sorted_by(|a, b| a > b), "{asked:?}");
}

#[test]
fn without_cache_or_filter_batches_still_come_together() {
    for configuration in FilterConfiguration::ALL {
        let stored = chunks(13, 2000);
        let stream = [stored.clone(), chunks(14, 500)].concat();
        let mut store = OracleStore::with(16, &stored, 250);
        let mut owner = Owner::with(lazy(64, 8, 1000), configuration, 1 << 20);
        owner.push_all(&mut store, &stream);
        owner.drain(&mut store);
        check_exact(&owner, &store, &stream);
        let counters = owner.counters();
        assert_eq!(counters.summary_lookups == 0, !configuration.summary_vector);
        if !configuration.locality_cache {
            assert_eq!((counters.cache_lookups, counters.post_lookups), (0, 0));
            assert_eq!(counters.verification_reads, 2000);
            let asked = if configuration.summary_vector { 2000 } else { 2500 };
            assert_eq!(counters.fingerprints_batched, asked);
            assert!(counters.index_page_reads <= asked / 8 + 16);
        }
    }
}

#[test]
fn an_index_that_changes_its_buckets_in_between_does_no_harm() {
    let stored = chunks(15, 4000);
    let stream = [shuffled(16, &stored, 8), stored.clone()].concat();
    for strategy in [lazy(512, 8, 600), second_look(512, 8, 600)] {
        let mut store = OracleStore::with(100, &stored, 200);
        let mut owner = Owner::with(strategy, FilterConfiguration::default(), 1 << 16);
        for (part, buckets) in stream.chunks(777).zip([100, 3, 1, 70_000, 9].iter().cycle()) {
            store.buckets = BucketCounts { fewest: *buckets, most: *buckets };
            owner.push_all(&mut store, part);
        }
        owner.drain(&mut store);
        check_exact(&owner, &store, &stream);
    }
}

#[test]
fn s0_5_buckets_are_ranges_that_one_access_reads_however_the_index_grows() {
    let stored = chunks(20, 30_000);
    let mut store = OracleStore::new(1);
    store.false_positives = 1 << 14;
    let mut owner = Owner::with(lazy(2048, 16, 1 << 14), FilterConfiguration::default(), 1 << 18);
    for (round, part) in (0_u32..).zip(stored.chunks(5000)) {
        // The index grows while chunks wait, and some of those that wait are found in it later.
        part.chunks(250).for_each(|container| {
            store.append(container);
        });
        store.buckets = BucketCounts { fewest: 2 << round, most: 16 << round };
        let again = shuffled(u64::from(round), &stored[..5000 * (round as usize + 1)], 3);
        owner.push_all(&mut store, &again[..6000.min(again.len())]);
        owner.push_all(&mut store, &chunks(30 + u64::from(round), 4000));
        assert!(owner.lookup.waiting() > 0);
    }
    let counters = owner.counters();
    assert_eq!(counters.index_page_reads, counters.buckets_resolved);
    let (buckets, batched) = (counters.buckets_resolved, counters.fingerprints_batched);
    assert!(buckets > 400 && batched > 14 * buckets, "{batched} in {buckets}");
    owner.drain(&mut store);
    assert_eq!(owner.counters().index_page_reads, owner.counters().buckets_resolved);
}

#[test]
fn s0_5_there_are_as_few_buckets_as_fill_while_the_stream_is_held_back() {
    let stored = chunks(21, 10);
    // Of what comes, 256 are held at most: a sixteenth of what 256 buckets need.
    let run = |fewest, most| {
        let mut store = OracleStore::with(1, &stored, 10);
        store.buckets = BucketCounts { fewest, most };
        store.false_positives = 1 << 16;
        let mut owner = Owner::new(lazy(2048, 16, 1 << 14));
        for (ticket, fingerprint) in (0_u64..).zip(&chunks(22, 20_000)) {
            owner.push(&mut store, fingerprint);
            owner.drain_before(&mut store, (ticket + 1).saturating_sub(256));
        }
        let counters = owner.counters();
        assert_eq!(counters.index_page_reads, counters.buckets_resolved);
        counters.fingerprints_batched as f64 / counters.buckets_resolved as f64
    };
    let [few, many, following] = [run(8, 8), run(256, 256), run(4, 256)];
    assert!(few > 12.0, "{few}");
    assert!(many < 3.0, "{many}");
    assert!(following > 10.0, "{following}");
}

#[test]
fn two_streams_share_a_cache_and_keep_their_own_buffers() {
    let stored = chunks(17, 3000);
    let mut store = OracleStore::with(50, &stored, 500);
    let mut filter = AcceleratedFilter::new(FilterConfiguration::default(), 1 << 20);
    let mut streams = [0, 1].map(|_| StreamLookup::new(&lazy(2048, 4, 500)).unwrap());
    let mut verdicts = [Vec::new(), Vec::new()];
    for (ticket, fingerprint) in stored.iter().enumerate() {
        for (stream, resolved) in streams.iter_mut().zip(&mut verdicts) {
            let port: &mut dyn IndexPort = &mut store;
            stream.push(&mut filter, port, ticket as u64, fingerprint, resolved).unwrap();
        }
    }
    for (stream, resolved) in streams.iter_mut().zip(&mut verdicts) {
        stream.drain_before(u64::MAX, &mut filter, &mut store, resolved).unwrap();
        let mut tickets: Vec<u64> = resolved.iter().map(|(ticket, _)| *ticket).collect();
        tickets.sort_unstable();
        assert!(tickets.into_iter().eq(0..3000));
    }
    assert_eq!(filter.counters().lookups, 6000);
    assert_eq!(filter.counters().containers_prefetched, 6, "what one brings in serves both");
}

#[derive(Clone, Debug)]
struct Case {
    second_look: bool,
    parameters: LazyParameters,
    buckets: u32,
    false_positives: u64,
    group: usize,
    picks: Vec<(usize, usize)>,
}

fn case() -> impl Strategy<Value = Case> {
    let all = (1..40_usize, 1..12_usize, 1..60_usize, any::<bool>());
    let parameters = all.prop_map(|(ring, bucket, buffer, is_whole)| {
        let post_lookup = if is_whole { PostLookup::WholeRing } else { PostLookup::WithinReach };
        LazyParameters {
            ring_length: ring,
            bucket_threshold: bucket,
            buffer_max: buffer,
            post_lookup,
        }
    });
    let picks = prop::collection::vec((0..600_usize, 1..20_usize), 1..60);
    (any::<bool>(), parameters, 1..50_u32, 0..20_000_u64, 1..60_usize, picks).prop_map(
        |(second_look, parameters, buckets, false_positives, group, picks)| Case {
            second_look,
            parameters,
            buckets,
            false_positives,
            group,
            picks,
        },
    )
}

proptest! {
    #[test]
    fn s0_9_lazy_is_exact_and_bounded_on_any_stream(case in case()) {
        // Of 600 chunks the first 300 are stored; a stream is any sequence of their runs.
        let all = chunks(18, 600);
        let mut store = OracleStore::with(case.buckets, &all[..300], case.group);
        store.false_positives = case.false_positives;
        let runs = case.picks.iter();
        let stream: Vec<Fingerprint> = runs
            .flat_map(|(start, length)| &all[*start..(start + length).min(600)])
            .copied()
            .collect();
        let strategy = match case.second_look {
            true => LookupStrategy::SecondLook(case.parameters),
            false => LookupStrategy::Lazy(case.parameters),
        };
        // A cache of a few containers: evictions take part.
        let mut owner = Owner::with(strategy, FilterConfiguration::default(), 8000);
        owner.push_all(&mut store, &stream);
        owner.drain(&mut store);
        check_exact(&owner, &store, &stream);
        // One question to the index for each bucket, and never more chunks in it than wait.
        let counters = owner.counters();
        prop_assert_eq!(store.located.len() as u64, counters.buckets_resolved);
        prop_assert!(counters.index_page_reads == counters.buckets_resolved);
        let batched: usize = store.located.iter().map(Vec::len).sum();
        prop_assert_eq!(batched as u64, counters.fingerprints_batched);
        let most = case.parameters.bucket_threshold.min(case.parameters.buffer_max);
        prop_assert!(store.located.iter().all(|asked| asked.len() <= most));
    }
}
