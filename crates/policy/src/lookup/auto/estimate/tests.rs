//! The estimates by hand, with numbers that tell every term from the others.

use super::*;

/// Every access at a price of its own.
const PRICES: Prices =
    Prices { device: 1000.0, memory: 10.0, summary: 20.0, cache: 40.0, held: 3.0 };

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

/// 96 passing chunks of 128; 8 containers read, and 10 chunks that the index did not know.
fn counters() -> FilterCounters {
    FilterCounters {
        lookups: 128,
        summary_negatives: 32,
        index_page_reads: 18,
        index_misses: 10,
        containers_prefetched: 8,
        verification_reads: 2,
        proof_reads: 1,
        fingerprints_prefetched: 400,
        ..FilterCounters::default()
    }
}

/// The same looked up eagerly: four containers, twice each.
fn eager() -> Stretch {
    let read = (0..4).map(|number| ContainerId([number; 16])).collect();
    Stretch { counters: counters(), read, ..Stretch::default() }
}

/// The same looked up lazily: of 24 chunks that began to wait beside 8 others, so many wait.
fn lazy() -> Stretch {
    let counters = FilterCounters { fingerprints_buffered: 24, post_lookups: 192, ..counters() };
    Stretch { counters, ..Stretch::starting_with(8) }
}

fn known(stretch: &Stretch, way: Way, waiting: usize) -> Known {
    Known::default().after(stretch, way, waiting, 1.0)
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
fn eager_look_up_costs_what_it_counted() {
    let known = known(&eager(), Way::Eager, 0);
    // Containers are read 9 / 5 times, as if one had been read once beside those four.
    assert_eq!((known.readings(), known.pages_per_question(Way::Eager)), (1.8, 1.0));
    let (read, asked) = (7.2 / 96.0, 17.2 / 96.0);
    let variable = 1000.0 * (asked + read + 3.0 / 96.0) + 10.0 * 360.0 / 96.0 + 20.0 * asked;
    let mix = Mix { passing: 0.75, hits: 1.0 - asked };
    assert!(is_near(known.cost(Way::Eager, &PRICES), mix.cost(Way::Eager, variable, &PRICES)));
    let Mix { passing, hits } = known.mix();
    assert!(passing == 0.75 && is_near(hits, 1.0 - asked));
}

#[test]
fn s0_16_lazy_look_up_would_read_each_container_once_and_ask_for_many_chunks_at_once() {
    let known = known(&eager(), Way::Eager, 0);
    // 14 questions, eight at a time; four containers with half of the fingerprints.
    assert_eq!(known.pages_per_question(Way::Lazy), 0.125);
    let device = (14.0 * 0.125 + 4.0 + 3.0) / 96.0;
    let variable = 1000.0 * device + 10.0 * (200.0 / 96.0 + 2.0);
    let expected = known.mix().cost(Way::Lazy, variable, &PRICES);
    assert!(is_near(known.cost(Way::Lazy, &PRICES), expected));
    // At best one access locates all, and nothing has to wait.
    let least = known.mix().cost(Way::Lazy, 1000.0 * 7.0 / 96.0 + 2000.0 / 96.0, &PRICES);
    assert!(is_near(known.least(Way::Lazy, &PRICES), least));
}

#[test]
fn lazy_look_up_costs_what_it_counted() {
    let known = known(&lazy(), Way::Lazy, 8);
    // Eight containers and ten unknown chunks with 18 accesses; one access for eight was assumed.
    assert_eq!(known.pages_per_question(Way::Lazy), 19.0 / 26.0);
    assert_eq!(known.waited_per_passing(), (24.0 + 192.0 + 2.0) / 97.0);
    let device = (18.0 * 19.0 / 26.0 + 8.0 + 3.0) / 96.0;
    let variable = 1000.0 * device + 10.0 * (400.0 / 96.0 + 218.0 / 97.0);
    let expected = known.mix().cost(Way::Lazy, variable, &PRICES);
    assert!(is_near(known.cost(Way::Lazy, &PRICES), expected));
}

#[test]
fn s0_16_eager_look_up_cannot_avoid_to_ask_for_what_lazy_look_up_read() {
    let lazily = known(&lazy(), Way::Lazy, 8);
    let asked = 18.0 / 96.0;
    let variable = 1000.0 * (asked + 11.0 / 96.0) + 10.0 * 400.0 / 96.0 + 20.0 * asked;
    let expected = lazily.mix().cost(Way::Eager, variable, &PRICES);
    assert!(is_near(lazily.cost(Way::Eager, &PRICES), expected));
    // It read containers more than once, and would again; not so at its best.
    let both = known(&eager(), Way::Eager, 0).after(&lazy(), Way::Lazy, 8, 0.0);
    assert_eq!(both.readings(), 1.8);
    assert!(both.cost(Way::Eager, &PRICES) > 1.4 * expected);
    assert!(is_near(both.least(Way::Eager, &PRICES), expected));
}

#[test]
fn no_chunk_is_asked_for_more_than_once() {
    let counters = FilterCounters { index_misses: 90, ..counters() };
    let known = known(&Stretch { counters, ..lazy() }, Way::Lazy, 8);
    let variable = 1000.0 * (1.0 + 11.0 / 96.0) + 10.0 * 400.0 / 96.0 + 20.0;
    let mix = Mix { passing: 0.75, hits: 0.0 };
    assert!(is_near(known.cost(Way::Eager, &PRICES), mix.cost(Way::Eager, variable, &PRICES)));
}

#[test]
fn what_is_still_to_come_is_taken_to_cost_what_has_been() {
    let demand = |waiting| known(&lazy(), Way::Lazy, waiting).demand;
    // As many left as entered: nothing is to be added. Half as many: all that is read counts twice.
    let Demand { lookups, passing, needed, filled, verified, misses } = demand(20);
    assert_eq!([lookups, passing, needed, filled, verified], [128.0, 96.0, 16.0, 800.0, 6.0]);
    assert_eq!((misses, demand(8).needed, demand(0).needed), (20.0, 8.0, 6.0));
    let lazily = known(&lazy(), Way::Lazy, 20).lazy;
    assert_eq!([lazily.questions, lazily.pages, lazily.passing], [36.0, 36.0, 96.0]);
    assert_eq!(lazily.waited, 24.0 + 384.0);
    // Fewer say nothing: what waits may all have to be asked for.
    let Demand { needed, misses, .. } = demand(21);
    assert_eq!((needed, misses), (8.0, 31.0));
    assert!(lazy().is_representative(20) && !lazy().is_representative(21));
}

#[test]
fn where_nothing_waits_nothing_is_to_come() {
    let none = Stretch { counters: counters(), ..Stretch::default() };
    assert!(none.is_representative(0));
    assert_eq!(known(&none, Way::Lazy, 0).demand.needed, 8.0);
}

#[test]
fn older_counts_weigh_less_and_those_of_a_way_only_age_while_it_is_in_use() {
    let first = known(&eager(), Way::Eager, 0);
    let Known { demand, eager: eagerly, lazy: lazily } = first.after(&lazy(), Way::Lazy, 8, 0.5);
    let Demand { lookups, passing, needed, filled, verified, misses } = demand;
    assert_eq!([lookups, passing, needed, filled], [192.0, 144.0, 10.0, 500.0]);
    assert_eq!((verified, misses), (4.5, 15.0));
    let Eager { needed, prefetched, questions, pages } = eagerly;
    assert_eq!([needed, prefetched, questions, pages], [4.0, 8.0, 18.0, 18.0]);
    assert_eq!(lazily.questions, 18.0);
    let Known { eager: eagerly, lazy: lazily, .. } =
        known(&lazy(), Way::Lazy, 8).after(&eager(), Way::Eager, 0, 0.5);
    assert_eq!((eagerly.prefetched, lazily.questions, lazily.waited), (8.0, 18.0, 216.0));
    let twice = first.after(&eager(), Way::Eager, 0, 0.5).eager;
    let Eager { needed, prefetched, questions, pages } = twice;
    assert_eq!([needed, prefetched, questions, pages], [6.0, 12.0, 27.0, 27.0]);
}

#[test]
fn the_error_is_that_of_a_number_of_accesses() {
    // Four containers, ten chunks, and one access that may come.
    let known = known(&eager(), Way::Eager, 0);
    assert!(is_near(known.error(&PRICES), 1000.0 * 15.0_f64.sqrt() / 128.0));
    assert_eq!(Known::default().error(&PRICES), 1000.0);
}

#[test]
fn nothing_is_known_before_a_chunk_has_passed() {
    let counters =
        FilterCounters { lookups: 64, summary_negatives: 64, ..FilterCounters::default() };
    let refused = known(&Stretch { counters, ..Stretch::default() }, Way::Eager, 0);
    assert!(Known::default().is_nothing() && refused.is_nothing());
    assert!(!known(&eager(), Way::Eager, 0).is_nothing());
    assert_eq!((Known::default().mix().passing, refused.mix().passing), (1.0, 0.0));
    // A refused chunk costs a question, and holding if others wait.
    assert_eq!(refused.cost(Way::Eager, &PRICES), 20.0);
    assert_eq!(refused.cost(Way::Lazy, &PRICES), 23.0);
}

#[test]
fn each_way_is_the_other_of_the_other() {
    assert_eq!([Way::Eager.other(), Way::Lazy.other()], [Way::Lazy, Way::Eager]);
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
