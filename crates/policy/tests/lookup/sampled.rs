//! Sampled look-up: its only error is to call a known chunk new.

use crate::support::{OracleStore, Outcome, Owner, chunks, shuffled};
use onefold_policy::lookup::{LookupStrategy, SampledParameters};

fn sampled(segment_length: usize) -> LookupStrategy {
    LookupStrategy::Sampled(SampledParameters { segment_length })
}

fn found(owner: &Owner) -> usize {
    owner.outcomes().iter().filter(|outcome| matches!(outcome, Outcome::Stored(_))).count()
}

#[test]
fn nearly_all_duplicates_are_found_with_one_hook_in_32() {
    let stored = chunks(1, 100_000);
    for (run, least) in [(100_000, 0.998), (1000, 0.99), (256, 0.98)] {
        let mut store = OracleStore::with(64, &stored, 500);
        store.sampled = true;
        let stream = shuffled(2, &stored, run);
        let mut owner = Owner::new(sampled(2048));
        owner.push_all(&mut store, &stream);
        owner.drain(&mut store);
        let share = found(&owner) as f64 / stream.len() as f64;
        assert!(share >= least, "runs of {run}: {share}");
        let counters = owner.counters();
        // Only hooks that were not cached reached the device.
        assert_eq!(counters.index_lookups as usize, store.located.len());
        assert!(store.located.iter().all(|asked| asked[0].prefix() % 32 == 0));
        assert_eq!(counters.index_misses, 0);
    }
}

#[test]
fn new_chunks_are_new_and_repeats_of_them_are_seen() {
    let stored = chunks(3, 2000);
    let new = chunks(4, 1000);
    let mut store = OracleStore::with(64, &stored, 500);
    store.sampled = true;
    // Every chunk twice, the second time while the first waits.
    let stream: Vec<_> = new.chunks(10).flat_map(|part| [part, part].concat()).collect();
    let mut owner = Owner::new(sampled(64));
    owner.push_all(&mut store, &stream);
    owner.drain(&mut store);
    let outcomes = owner.outcomes();
    let count = |wanted| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!((count(Outcome::New), count(Outcome::Repeated)), (1000, 1000));
    assert_eq!((owner.counters().lookups, owner.counters().repeats), (2000, 1000));
    assert_eq!(owner.counters().device_reads(), 0);
}

#[test]
fn a_chunk_before_its_hook_waits_for_it_and_no_longer_than_a_segment() {
    let stored = chunks(5, 500);
    let hook = stored.iter().position(|chunk| chunk.prefix() % 32 == 0).unwrap();
    for segment in [hook, hook + 1] {
        let mut store = OracleStore::with(8, &stored, 500);
        store.sampled = true;
        let mut owner = Owner::new(sampled(segment));
        owner.push_all(&mut store, &stored);
        owner.drain(&mut store);
        // With a segment that is too short by one, the first chunk is given up.
        let lost = 500 - found(&owner);
        assert_eq!(lost, hook + 1 - segment);
        assert_eq!((store.located.len(), store.section_reads), (1, 1));
        let counters = owner.counters();
        assert_eq!(counters.post_lookup_hits as usize, segment - 1);
        assert_eq!(counters.fingerprints_buffered as usize, hook);
    }
}

#[test]
fn parts_can_be_drained_and_the_rest_goes_on_waiting() {
    let mut store = OracleStore::new(8);
    store.sampled = true;
    let stream: Vec<_> =
        chunks(6, 200).into_iter().filter(|chunk| chunk.prefix() % 32 != 0).take(100).collect();
    let mut owner = Owner::new(sampled(1000));
    owner.push_all(&mut store, &stream);
    assert_eq!(owner.lookup.waiting(), 100);
    owner.drain_before(&mut store, 40);
    assert_eq!((owner.lookup.waiting(), owner.oldest_waiting()), (60, Some(40)));
    owner.drain(&mut store);
    assert!(owner.outcomes().iter().all(|outcome| *outcome == Outcome::New));
}

#[test]
fn what_it_does_is_told_with_the_length_of_a_segment() {
    let owner = Owner::new(sampled(77));
    let told = owner.lookup.explain(&owner.counters());
    let expected = "by samples: only hooks are located, and any other chunk waits for 77 more";
    assert!(told.contains(expected), "{told}");
}
