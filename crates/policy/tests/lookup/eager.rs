//! Eager look-up: one verdict for each chunk, at once.

use crate::support::{OracleStore, Outcome, Owner, check_exact, chunks, exact};
use onefold_policy::lookup::{FilterOrder, LookupStrategy, StreamLookup, Verdict};
use onefold_policy::{AcceleratedFilter, FilterConfiguration, FilterCounters};

#[test]
fn s0_3_both_orders_give_the_same_verdicts_and_ask_differently() {
    let stored = chunks(1, 4000);
    let mut stream = stored.clone();
    stream.extend(chunks(2, 4000));
    stream.extend_from_slice(&stored[..1000]);
    let run = |order| {
        let mut store = OracleStore::with(64, &stored, 500);
        let owner = exact(LookupStrategy::Eager(order), &mut store, &stream);
        assert_eq!(store.located.len(), 8);
        (owner.outcomes(), owner.counters())
    };
    let (cache_first, filter_first) = (run(FilterOrder::CacheFirst), run(FilterOrder::FilterFirst));
    assert_eq!(cache_first.0, filter_first.0);
    let common = FilterCounters {
        lookups: 9000,
        cache_hits: 4992,
        index_lookups: 8,
        index_hits: 8,
        index_page_reads: 8,
        containers_prefetched: 8,
        fingerprints_prefetched: 4000,
        summary_negatives: 4000,
        ..FilterCounters::default()
    };
    let expected = FilterCounters { cache_lookups: 9000, summary_lookups: 4008, ..common };
    assert_eq!(cache_first.1, expected);
    let expected = FilterCounters { cache_lookups: 5000, summary_lookups: 9000, ..common };
    assert_eq!(filter_first.1, expected);
}

#[test]
fn nothing_ever_waits() {
    let stored = chunks(3, 100);
    let mut store = OracleStore::with(8, &stored, 10);
    let mut filter = AcceleratedFilter::new(FilterConfiguration::default(), 1 << 20);
    let mut lookup = StreamLookup::new(&LookupStrategy::default()).unwrap();
    let mut resolved = Vec::new();
    for (ticket, fingerprint) in stored.iter().enumerate() {
        let ticket = 7 * ticket as u64;
        lookup.push(&mut filter, &mut store, ticket, fingerprint, &mut resolved).unwrap();
        assert_eq!(resolved.last().unwrap().0, ticket);
        assert_eq!(lookup.waiting(), 0);
    }
    lookup.drain_before(u64::MAX, &mut filter, &mut store, &mut resolved).unwrap();
    assert_eq!(resolved.len(), 100);
    assert!(resolved.iter().all(|(_, verdict)| matches!(verdict, Verdict::Duplicate(_))));
    assert!(lookup.auto_report().is_none());
    let told = lookup.explain(filter.counters());
    assert!(told.contains("eagerly") && told.contains("100 look-ups took 20 accesses"), "{told}");
}

#[test]
fn chunks_of_open_containers_are_the_owners_business() {
    let stream = [chunks(4, 50), chunks(4, 50)].concat();
    let mut store = OracleStore::new(8);
    let mut owner = Owner::new(LookupStrategy::default());
    owner.push_all(&mut store, &stream);
    check_exact(&owner, &store, &stream);
    assert!(owner.outcomes()[50..].iter().all(|outcome| *outcome == Outcome::Repeated));
    assert_eq!(owner.counters().lookups, 50);
}
