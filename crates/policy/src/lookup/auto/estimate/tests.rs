//! The estimates by hand, with numbers that tell every term from the others.

use super::*;

/// Every access at a price of its own.
const PRICES: Prices =
    Prices { device: 1000.0, memory: 10.0, summary: 20.0, cache: 40.0, held: 3.0 };
const COSTS: DeviceCosts = DeviceCosts::new(1000, 10);

fn rates() -> Rates {
    Rates {
        pages: 0.5,
        prefetched: 0.25,
        verified: 0.125,
        filled: 8.0,
        misses: 0.375,
        buffered: 1.0,
        post_lookups: 2.0,
        hits: 0.75,
    }
}

#[test]
fn a_helper_that_is_off_costs_nothing() {
    let costs = DeviceCosts::new(1000, 10).holding(3);
    let prices = FilterConfiguration::ALL.map(|configuration| {
        let Prices { device, memory, summary, cache, held } = Prices::new(&costs, configuration);
        assert_eq!((device, memory, held), (1000.0, 10.0, 3.0));
        (summary, cache)
    });
    assert_eq!(prices, [(0.0, 0.0), (10.0, 0.0), (0.0, 10.0), (10.0, 10.0)]);
}

#[test]
fn what_depends_on_the_stream_is_the_sum_of_its_accesses() {
    // 0.875 accesses of the device; 11 of memory.
    assert_eq!(rates().variable(Way::Lazy, &PRICES), 875.0 + 110.0);
    // One of four passing chunks is not in the cache: the summary vector is asked for it.
    assert_eq!(rates().variable(Way::Eager, &PRICES), 875.0 + 110.0 + 5.0);
}

#[test]
fn s0_16_eager_would_ask_the_index_for_each_container_and_each_unknown_chunk() {
    // Asked for 0.25 + 0.375; then the containers as now, and what enters the cache.
    let expected = 625.0 + 375.0 + 80.0 + 0.625 * 20.0;
    assert_eq!(rates().variable_of_other(Way::Lazy, &PRICES), expected);
    assert_eq!(rates().least_of_other(Way::Lazy, &PRICES), expected);
    // For no chunk more than once.
    let unknown = Rates { misses: 0.875, ..rates() };
    assert_eq!(unknown.variable_of_other(Way::Lazy, &PRICES), 1000.0 + 375.0 + 80.0 + 20.0);
}

#[test]
fn lazy_would_locate_what_eager_does_not_find_in_the_cache_in_batches() {
    // Eight at once, and nearly two accesses of memory for what waits.
    let expected = 1000.0 * (0.03125 + 0.375) + 10.0 * (8.0 + 2.0 - 4.0 / 1024.0);
    assert_eq!(rates().variable_of_other(Way::Eager, &PRICES), expected);
    assert_eq!(rates().least_of_other(Way::Eager, &PRICES), 0.0);
}

#[test]
fn rates_approach_newer_ones_by_a_part_of_the_way() {
    let mut old = Rates::default();
    old.approach(&rates(), 0.5);
    old.approach(&rates(), 0.5);
    let Rates { pages, prefetched, verified, filled, misses, buffered, post_lookups, hits } = old;
    assert_eq!([pages, prefetched, verified, filled], [0.375, 0.1875, 0.09375, 6.0]);
    assert_eq!([misses, buffered, post_lookups, hits], [0.28125, 0.75, 1.5, 0.5625]);
}

#[test]
fn s0_3_the_order_is_that_which_spares_more() {
    let order = |passing, hits| Mix { passing, hits }.order(&PRICES);
    // Filter first spares the cache at 40 for what is refused; cache first the filter at 20.
    assert_eq!(order(0.75, 0.5), FilterOrder::FilterFirst, "10 against 7.5");
    assert_eq!(order(0.75, 0.75), FilterOrder::CacheFirst, "10 against 11.25");
    assert_eq!(order(0.875, 0.5), FilterOrder::CacheFirst, "5 against 8.75");
    assert_eq!(order(1.0, 0.0), FilterOrder::CacheFirst, "nothing against nothing");
}

#[test]
fn any_chunk_costs_what_the_mix_of_passing_and_refused_ones_does() {
    let filter_first = Mix { passing: 0.25, hits: 0.5 };
    // A quarter costs 40 + 100; what is refused, and half of the quarter, a question at 20.
    assert_eq!(filter_first.cost(Way::Eager, 100.0, &PRICES), 35.0 + 0.875 * 20.0);
    let cache_first = Mix { passing: 0.875, hits: 0.75 };
    assert_eq!(cache_first.cost(Way::Eager, 100.0, &PRICES), 122.5 + 0.125 * 60.0);
    // Lazy look-up asks both for what passes, and holds every chunk.
    assert_eq!(filter_first.cost(Way::Lazy, 100.0, &PRICES), 40.0 + 0.75 * 20.0 + 3.0);
}

/// A stretch of 96 passing chunks of 128, of which 24 began to wait beside 8 that had before.
fn stretch() -> Stretch {
    let counters = FilterCounters {
        lookups: 128,
        summary_negatives: 32,
        cache_hits: 48,
        fingerprints_buffered: 24,
        index_page_reads: 12,
        containers_prefetched: 6,
        verification_reads: 2,
        proof_reads: 1,
        fingerprints_prefetched: 384,
        index_misses: 24,
        post_lookups: 192,
        ..FilterCounters::default()
    };
    Stretch { counters, ..Stretch::starting_with(8) }
}

fn listed(rates: Rates) -> [f64; 8] {
    let Rates { pages, prefetched, verified, filled, misses, buffered, post_lookups, hits } = rates;
    [pages, prefetched, verified, filled, misses, buffered, post_lookups, hits]
}

#[test]
fn rates_are_of_chunks_that_passed() {
    let (eager, mix) = stretch().rates(Way::Eager, 20).unwrap();
    assert_eq!(listed(eager), [0.125, 0.0625, 0.03125, 4.0, 0.25, 0.25, 2.0, 0.5]);
    assert_eq!((mix.passing, mix.hits), (0.75, 0.5));
    let none = FilterCounters { lookups: 32, summary_negatives: 32, ..FilterCounters::default() };
    let none = Stretch { counters: none, ..stretch() };
    assert!(none.rates(Way::Eager, 0).is_none());
    assert_eq!(Stretch::default().mix(0.5).passing, 0.0);
}

#[test]
fn what_is_still_to_come_is_taken_to_cost_what_has_been() {
    // Of 8 and 24 chunks, as many left as entered: nothing is to be added.
    let (even, mix) = stretch().rates(Way::Lazy, 8).unwrap();
    assert_eq!(listed(even), [0.125, 0.0625, 0.03125, 4.0, 0.25, 0.25, 2.0, 0.5]);
    assert_eq!(mix.hits, 1.0 - 0.0625 - 0.25, "what eager look-up would have found in the cache");
    // 12 left: all but what happened on arrival counts twice. 48 cannot have; 2 are too few.
    let doubled = [0.25, 0.125, 0.0625, 8.0, 0.5, 0.25, 4.0, 0.5];
    assert_eq!(listed(stretch().rates(Way::Lazy, 20).unwrap().0), doubled);
    let pages = |stretch: Stretch, waiting| stretch.rates(Way::Lazy, waiting).unwrap().0.pages;
    assert_eq!([pages(stretch(), 30), pages(stretch(), 32), pages(stretch(), 40)], [0.5; 3]);
    let emptied = |before| Stretch { waiting_before: before, ..stretch() };
    assert_eq!([pages(emptied(24), 0), pages(emptied(1000), 0)], [0.0625, 0.03125]);
    // Nothing that entered is to come.
    let none = FilterCounters { fingerprints_buffered: 0, ..stretch().counters };
    assert_eq!(pages(Stretch { counters: none, ..stretch() }, 0), 0.125);
}

#[test]
fn eager_would_find_nothing_in_the_cache_if_more_is_unknown_than_passed() {
    let counters = FilterCounters { index_misses: 96, ..stretch().counters };
    let (_, mix) = Stretch { counters, ..stretch() }.rates(Way::Lazy, 8).unwrap();
    assert_eq!(mix.hits, 0.0);
}

#[test]
fn the_error_is_the_root_of_the_accesses() {
    let counters = |index_page_reads, fingerprints_prefetched| FilterCounters {
        index_page_reads,
        fingerprints_prefetched,
        ..FilterCounters::default()
    };
    let error = |counters| Stretch { counters, ..Stretch::default() }.error_ns(&COSTS);
    assert_eq!(error(counters(16, 800)), (16_000.0 + 8000.0) / 4.0);
    assert_eq!(error(counters(0, 0)), 1000.0, "an access that may come");
}

#[test]
fn a_stretch_suffices_if_its_error_is_small_and_little_is_to_come() {
    let suffices = |counters, before, waiting| {
        Stretch { counters, ..Stretch::starting_with(before) }.suffices(&COSTS, waiting)
    };
    let read = |index_page_reads| FilterCounters { index_page_reads, ..Default::default() };
    // Nothing but accesses of the device: a hundred of them have an error of a tenth.
    assert!(suffices(read(100), 0, 0) && !suffices(read(99), 0, 0));
    // 60 left for 100 accesses; 30 that entered beyond these would take 50 more, 31 are too much.
    let entered = |entered| FilterCounters { fingerprints_buffered: entered, ..read(100) };
    let left_60 = |all: u64| suffices(entered(all), 0, (all - 60) as usize);
    assert!(left_60(89) && !left_60(92));
    // None has left: each may take an access, at a thousand to the ten for its place.
    assert!(suffices(entered(50), 0, 50) && !suffices(entered(51), 0, 51));
    // Others left in their place.
    assert!(suffices(entered(51), 51, 51));
}
