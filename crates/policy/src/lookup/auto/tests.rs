//! The automatic choice step by step, from states that are set by hand.
//!
//! An access of the device takes 1000 ns and one of memory 10, so that eager look-up of a chunk in
//! the cache takes 10 ns, lazy look-up 20, and accesses of the device come on top.

use super::*;
use crate::accelerated_filter::AcceleratedFilter;
use crate::ports::{BucketCounts, IndexPort};
use onefold_types::ContainerId;
use std::sync::Arc;

const COSTS: DeviceCosts = DeviceCosts::new(1000, 10);
const WINDOW: u64 = 4096;
const BUFFER_MAX: usize = 10_000;

/// An index that knows nothing, whose accesses are seen to take so long.
struct Device(Option<u64>);

impl IndexPort for Device {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        *reads += 1;
        found.extend(fingerprints.iter().map(|_| Vec::new()));
        Ok(())
    }

    fn container_fingerprints(&mut self, _: ContainerId) -> Result<Option<Arc<[Fingerprint]>>> {
        Ok(None)
    }

    fn may_contain(&mut self, _: &Fingerprint) -> Result<bool> {
        Ok(true)
    }

    fn bucket_counts(&self) -> BucketCounts {
        BucketCounts { fewest: 1, most: 1 }
    }

    fn device_read_ns(&self) -> Option<u64> {
        self.0
    }
}

fn filter() -> AcceleratedFilter {
    AcceleratedFilter::new(FilterConfiguration::default(), 1 << 16)
}

/// Does something with an index whose accesses are seen to take so long.
fn with_device<R>(seen: Option<u64>, act: impl FnOnce(&mut Judge<'_>) -> R) -> R {
    let (mut filter, mut port, mut resolved) = (filter(), Device(seen), Vec::new());
    act(&mut Judge { filter: &mut filter, port: &mut port, resolved: &mut resolved })
}

/// So many look-ups, all found in the cache, with so many accesses of the device all the same.
fn counted(lookups: u64, index_page_reads: u64) -> FilterCounters {
    let found = FilterCounters { lookups, cache_lookups: lookups, ..FilterCounters::default() };
    FilterCounters { cache_hits: lookups, index_page_reads, ..found }
}

fn stretch(lookups: u64, index_page_reads: u64) -> Stretch {
    Stretch { counters: counted(lookups, index_page_reads), ..Stretch::default() }
}

/// Containers read among so many look-ups, each asked for before, and how many different ones.
fn reading(lookups: u64, containers: u64, different: u8) -> Stretch {
    let counters =
        FilterCounters { containers_prefetched: containers, ..counted(lookups, containers) };
    let read = (0..different).map(|number| ContainerId([number; 16])).collect();
    Stretch { counters, read, ..Stretch::default() }
}

fn auto() -> Auto {
    Auto::new(&AutoParameters::new(COSTS, BUFFER_MAX))
}

/// In this way, about to compare after this stretch.
fn in_way(way: Way, stretch: Stretch) -> Auto {
    Auto { way, stretch, next_comparison: 0, next_check: 0, ..auto() }
}

/// After a check: the way, changes, and look-ups of stretches that have ended.
fn checked(auto: &mut Auto) -> (Way, u64, u64) {
    with_device(None, |judge| auto.check(judge)).unwrap();
    (auto.way, auto.switches, auto.lookups)
}

#[test]
fn it_begins_lazily_where_an_access_takes_a_tenth_of_a_millisecond() {
    let first = |ns| Auto::new(&AutoParameters::new(DeviceCosts::new(ns, 10), BUFFER_MAX)).way;
    assert_eq!([first(99_999), first(100_000)], [Way::Eager, Way::Lazy]);
}

#[test]
fn rings_are_as_long_as_by_default_and_a_full_buffer_decides() {
    let told = auto().lazy.describe();
    assert!(
        told.contains("until 1024 of its bucket") && told.contains("rings take 2048"),
        "{told}"
    );
}

#[test]
fn costs_are_looked_at_often_and_ways_compared_once_in_a_window() {
    let mut auto = auto();
    assert_eq!((auto.next_check, auto.next_comparison), (WINDOW / 64, WINDOW));
    auto.stretch = stretch(WINDOW - 1, WINDOW);
    assert_eq!(checked(&mut auto), (Way::Eager, 0, 0));
    assert_eq!((auto.next_check, auto.next_comparison), (WINDOW - 1 + WINDOW / 64, WINDOW));
    auto.stretch = stretch(WINDOW, 1);
    assert_eq!(checked(&mut auto), (Way::Eager, 0, 0));
    assert_eq!(auto.next_comparison, 2 * WINDOW);
}

#[test]
fn a_stretch_is_as_long_as_the_buffer_and_ends_only_if_it_says_something() {
    let length = BUFFER_MAX as u64;
    assert_eq!(checked(&mut in_way(Way::Eager, stretch(length - 1, 1))), (Way::Eager, 0, 0));
    let mut ended = in_way(Way::Eager, stretch(length, 1));
    assert_eq!(checked(&mut ended), (Way::Eager, 0, length));
    assert_eq!((ended.stretch.counters.lookups, ended.spent_ns), (0, 101_000.0));
    assert_eq!((ended.eager_counted, ended.lazy_counted), (Some(counted(length, 1)), None));
    let parameters = AutoParameters { buffer_max: 64, ..auto().parameters };
    assert_eq!(Auto { parameters, ..auto() }.stretch_length(), WINDOW, "no shorter than a window");
}

/// After a check of so many look-ups of lazy look-up, so many of which began to wait and wait.
fn checked_while_all_wait(lookups: u64, waiting: u16) -> (Way, u64) {
    let mut auto = Auto { way: Way::Lazy, ..auto() };
    with_device(None, |judge| {
        for number in 0..waiting {
            let mut bytes = [0; 32];
            bytes[..2].copy_from_slice(&number.to_le_bytes());
            auto.push(judge, number.into(), &Fingerprint(bytes)).unwrap();
        }
        auto.stretch.counters.lookups = lookups;
        auto.check(judge).unwrap();
    });
    (auto.way, auto.lookups)
}

#[test]
fn a_stretch_of_which_all_chunks_still_wait_is_judged_late_and_does_not_end() {
    let length = BUFFER_MAX as u64;
    // Ten would cost eager look-up little, a thousand much, if the index has to be asked for each.
    assert_eq!(checked_while_all_wait(length - 1, 10), (Way::Lazy, 0));
    assert_eq!(checked_while_all_wait(length, 10), (Way::Eager, length));
    assert_eq!(checked_while_all_wait(length, 1000), (Way::Lazy, 0));
}

#[test]
fn what_an_older_stretch_counted_weighs_half() {
    let stretches = [1, 100].map(|pages| Stretch {
        counters: FilterCounters { index_misses: pages, ..counted(BUFFER_MAX as u64, pages) },
        ..Stretch::default()
    });
    let mut auto = auto();
    let mut known = Known::default();
    for stretch in stretches {
        known = known.after(&stretch, Way::Eager, 0, 0.5);
        auto.stretch = stretch;
        assert_eq!(checked(&mut auto).0, Way::Eager);
    }
    let cost = |known: &Known| known.cost(Way::Eager, &auto.prices());
    assert_eq!(cost(&auto.known), cost(&known));
}

#[test]
fn s0_15_lazy_look_up_takes_over_where_it_would_have_cost_less() {
    // 60 of 5000 chunks ask, as in lazy look-up one for eight; it costs 30 ns more for memory.
    let counters = |misses| FilterCounters { index_misses: misses, ..counted(5000, misses) };
    let after = |misses| {
        let stretch = Stretch { counters: counters(misses), ..Stretch::default() };
        checked(&mut in_way(Way::Eager, stretch)).0
    };
    assert_eq!([after(300), after(100)], [Way::Lazy, Way::Eager]);
    let stretch = Stretch { counters: counters(300), ..Stretch::default() };
    let mut auto = in_way(Way::Eager, stretch);
    let counted = with_device(None, |judge| {
        auto.check(judge).unwrap();
        *judge.filter.counters()
    });
    assert_eq!((counted.strategy_switches, counted.probes), (1, 0));
    assert_eq!((auto.switches, auto.trials, auto.spent_ns), (1, 0, 0.0));
    assert_eq!((auto.lookups, auto.stretch.counters.lookups), (5000, 0));
}

#[test]
fn containers_that_eager_look_up_reads_again_and_again_speak_for_lazy_look_up() {
    // With all of them different lazy look-up would read as many.
    let after = |different| checked(&mut in_way(Way::Eager, reading(5000, 150, different))).0;
    assert_eq!([after(150), after(25)], [Way::Eager, Way::Lazy]);
}

#[test]
fn a_container_that_eager_look_up_reads_again_is_needed_once() {
    let (mut filter, mut port, mut resolved) = (filter(), Holder, Vec::new());
    let mut auto = auto();
    for (ticket, name) in (0..).zip([1, 2, 1, 1]) {
        let mut judge = Judge { filter: &mut filter, port: &mut port, resolved: &mut resolved };
        auto.push(&mut judge, ticket, &Fingerprint([name; 32])).unwrap();
        filter.forget_container(ContainerId([name; 16]));
    }
    let Stretch { counters, read, .. } = &auto.stretch;
    assert_eq!((counters.containers_prefetched, read.len()), (4, 2));
    // One that is in the cache is not needed from the device.
    let mut judge = Judge { filter: &mut filter, port: &mut port, resolved: &mut resolved };
    auto.push(&mut judge, 4, &Fingerprint([3; 32])).unwrap();
    auto.begin_stretch();
    auto.push(&mut judge, 5, &Fingerprint([3; 32])).unwrap();
    assert_eq!((auto.stretch.counters.cache_hits, auto.stretch.read.len()), (1, 0));
}

/// An index with a container for each chunk, which holds nothing else.
struct Holder;

impl IndexPort for Holder {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        *reads += 1;
        found.extend(fingerprints.iter().map(|one| vec![ContainerId([one.0[0]; 16])]));
        Ok(())
    }

    fn container_fingerprints(&mut self, name: ContainerId) -> Result<Option<Arc<[Fingerprint]>>> {
        Ok(Some(Arc::from([Fingerprint([name.0[0]; 32])])))
    }

    fn may_contain(&mut self, _: &Fingerprint) -> Result<bool> {
        Ok(true)
    }

    fn bucket_counts(&self) -> BucketCounts {
        BucketCounts { fewest: 1, most: 1 }
    }
}

#[test]
fn what_eager_look_up_has_shown_keeps_lazy_look_up_in_use() {
    // A hundred containers, each found and read: once they cost less than what waits, six times
    // more.
    let costs = COSTS.holding(10);
    let shown = Known::default().after(&reading(5000, 60, 10), Way::Eager, 0, 1.0);
    let after = |known| {
        let parameters = AutoParameters { costs, ..auto().parameters };
        let lazily = Stretch { read: Default::default(), ..reading(20_000, 100, 0) };
        checked(&mut Auto { known, parameters, ..in_way(Way::Lazy, lazily) }).0
    };
    assert_eq!([after(Known::default()), after(shown)], [Way::Eager, Way::Lazy]);
}

#[test]
fn one_access_of_a_slow_device_outweighs_what_a_window_saves() {
    // New chunks only: lazy look-up pays for holding them, and nothing else differs.
    let after = |device_read_ns, lookups| {
        let costs = DeviceCosts::new(device_read_ns, 10).holding(100);
        let parameters = AutoParameters { costs, ..auto().parameters };
        let counters =
            FilterCounters { lookups, summary_negatives: lookups, ..FilterCounters::default() };
        let stretch = Stretch { counters, ..Stretch::default() };
        checked(&mut Auto { parameters, ..in_way(Way::Lazy, stretch) }).0
    };
    assert_eq!(after(1_000_000, WINDOW), Way::Lazy, "0.4 ms against one");
    assert_eq!(after(1_000_000, 3 * WINDOW), Way::Eager);
    assert_eq!(after(100_000, WINDOW), Way::Eager);
}

#[test]
fn a_way_that_may_win_is_tried_when_that_costs_two_per_cent() {
    let other = |spent_ns, shown: &Stretch| {
        let auto = Auto { way: Way::Lazy, ..auto() };
        let known = Known::default().after(shown, Way::Eager, 0, 1.0);
        let known = known.after(&reading(100_000, 400, 0), Way::Lazy, 0, 0.0);
        let [lazy, eager] = [Way::Lazy, Way::Eager].map(|way| known.cost(way, &auto.prices()));
        let needed_ns = (eager - lazy) * BUFFER_MAX as f64 / 0.02;
        (auto.other_way(&known, spent_ns * needed_ns), eager > lazy)
    };
    // It was seen to read each container six times, and might read it once.
    let dear = reading(5000, 60, 10);
    assert_eq!(other(0.999, &dear), (Other::Dearer, true));
    assert_eq!(other(1.001, &dear), (Other::Tried, true));
    // What cannot win is not tried: lazy look-up holds chunks, which costs more than all else.
    let costs = COSTS.holding(1000);
    let auto = Auto { parameters: AutoParameters { costs, ..auto().parameters }, ..auto() };
    let known = Known::default().after(&dear, Way::Eager, 0, 1.0);
    assert_eq!(auto.other_way(&known, 1e18), Other::Dearer);
}

#[test]
fn a_try_is_counted_and_is_a_change() {
    let known = Known::default().after(&reading(5000, 60, 10), Way::Eager, 0, 1.0);
    let mut auto = Auto { known, spent_ns: 1e12, ..in_way(Way::Lazy, reading(100_000, 400, 0)) };
    let counted = with_device(None, |judge| {
        auto.check(judge).unwrap();
        *judge.filter.counters()
    });
    assert_eq!((counted.strategy_switches, counted.probes), (1, 1));
    assert_eq!((auto.way, auto.trials, auto.switches), (Way::Eager, 1, 1));
    assert_eq!(auto.lazy_counted.map(|counters| counters.lookups), Some(100_000));
}

#[test]
fn s0_15_another_device_is_believed_at_once() {
    let seen = |ns, known: Known, lookups| {
        let mut auto = Auto { known, spent_ns: 1.0, ..in_way(Way::Eager, stretch(lookups, 0)) };
        auto.next_comparison = WINDOW;
        with_device(ns, |judge| auto.check(judge)).unwrap();
        let believed_ns = auto.parameters.costs.device_read_ns;
        assert_eq!(auto.spent_ns == 1.0, believed_ns == 1000, "spent on another device");
        (believed_ns, auto.way)
    };
    let nothing = Known::default();
    for about in [None, Some(667), Some(1000), Some(1500)] {
        assert_eq!(seen(about, nothing, 64), (1000, Way::Eager), "{about:?}");
    }
    assert_eq!(seen(Some(666), nothing, 64), (666, Way::Eager));
    assert_eq!(seen(Some(1501), nothing, 64), (1501, Way::Eager));
    assert_eq!(seen(Some(0), nothing, 64), (1, Way::Eager), "no access takes no time");
    assert_eq!(seen(Some(100_000), nothing, 64), (100_000, Way::Lazy), "as it would have begun");
    // Where something is known of the stream, that says what to do.
    let known = nothing.after(&reading(5000, 60, 10), Way::Eager, 0, 1.0);
    assert_eq!(seen(Some(50_000), known, 64), (50_000, Way::Lazy));
    let hits = nothing.after(&stretch(5000, 0), Way::Eager, 0, 1.0);
    assert_eq!(seen(Some(100_000), hits, 64), (100_000, Way::Eager));
}

#[test]
fn what_waits_when_eager_look_up_takes_over_is_resolved() {
    let mut auto = Auto { way: Way::Lazy, ..auto() };
    with_device(None, |judge| {
        for ticket in 0..5 {
            let fingerprint = Fingerprint([ticket as u8; 32]);
            auto.push(judge, ticket, &fingerprint).unwrap();
        }
        assert_eq!((auto.waiting(), judge.resolved.len()), (5, 0));
        assert_eq!(judge.filter.counters().chunks_held, 5);
        auto.change_to(Way::Lazy, judge).unwrap();
        assert_eq!((auto.waiting(), auto.stretch.waiting_before, auto.switches), (5, 5, 0));
        auto.change_to(Way::Eager, judge).unwrap();
        assert_eq!((auto.waiting(), judge.resolved.len(), auto.switches), (0, 5, 1));
        auto.push(judge, 5, &Fingerprint([9; 32])).unwrap();
        assert_eq!((auto.waiting(), judge.resolved.len()), (0, 6));
    });
}

#[test]
fn the_owner_may_have_what_waits_resolved() {
    let mut auto = Auto { way: Way::Lazy, ..auto() };
    with_device(None, |judge| {
        (0..5).for_each(|byte| auto.push(judge, byte.into(), &Fingerprint([byte; 32])).unwrap());
        auto.drain_before(4, judge).unwrap();
    });
    assert_eq!((auto.waiting(), auto.stretch.counters.index_page_reads), (0, 1));
}

#[test]
fn the_report_tells_what_is_known_and_what_is_estimated() {
    let auto = Auto { lookups: 5, ..in_way(Way::Eager, stretch(7, 0)) };
    let report = auto.report();
    assert_eq!((report.lookups, report.candidates.len()), (12, 2));
    let tried = |auto: &Auto| -> Vec<bool> {
        auto.report().candidates.iter().map(|one| one.was_tried).collect()
    };
    assert_eq!(tried(&auto), vec![true, false]);
    let auto = Auto { lazy_counted: Some(counted(1, 1)), ..auto };
    assert_eq!(tried(&auto), vec![true, true]);
    assert_eq!(report.candidates[0].cost_ns, 10.0);
}
