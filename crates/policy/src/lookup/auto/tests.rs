//! The automatic choice step by step, from states that are set by hand.
//!
//! An access of the device takes 1000 ns and one of memory 10, so that eager look-up of a chunk in
//! the cache takes 10 ns, lazy look-up 20, and accesses of the device come on top.

use super::*;
use crate::accelerated_filter::Verdict;
use crate::ports::{BucketCounts, IndexPort};
use onefold_types::ContainerId;
use std::sync::Arc;

const COSTS: DeviceCosts = DeviceCosts::new(1000, 10);
const WINDOW: u64 = 4096;
const BUFFER_MAX: usize = 10_000;
/// What lazy look-up is taken to need for a chunk that waits, before it has been tried.
const WAITING_NS: f64 = 10.0 * (2.0 - 4.0 / 1024.0);

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
    Stretch { counters: counted(lookups, index_page_reads), ..Stretch::starting_with(0) }
}

/// Rates at which the device costs a chunk so many nanoseconds.
fn rates(device_ns: u64) -> Rates {
    stretch(1000, device_ns).rates(Way::Eager, 0).unwrap().0
}

/// Rates of eager look-up that finds nothing in the cache and asks the device for each chunk.
fn rates_of_misses() -> Rates {
    let counters = FilterCounters { cache_hits: 0, ..counted(1000, 1000) };
    Stretch { counters, ..Stretch::starting_with(0) }.rates(Way::Eager, 0).unwrap().0
}

fn auto() -> Auto {
    Auto::new(&AutoParameters::new(COSTS, BUFFER_MAX))
}

/// Eager look-up is in use and its device costs a chunk so many nanoseconds.
fn eager_at(device_ns: u64) -> Auto {
    Auto { rates: Some(rates(device_ns)), ..auto() }
}

fn lazy_at(device_ns: u64) -> Auto {
    Auto { current: LAZY, ..eager_at(device_ns) }
}

fn on_trial(way: usize, excess_max_ns: f64) -> Option<Trial> {
    Some(Trial { way, excess_max_ns, confirms: false })
}

fn variable_ns(auto: &Auto) -> f64 {
    auto.rates.unwrap().variable(WAYS[auto.current], &auto.prices())
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

#[test]
fn a_stretch_is_looked_at_more_often_where_it_may_be_costly() {
    assert_eq!(auto().check_interval(), WINDOW / 64);
    assert_eq!(eager_at(100).check_interval(), WINDOW / 8);
    assert_eq!(Auto { trial: on_trial(LAZY, 0.0), ..eager_at(100) }.check_interval(), WINDOW / 64);
}

#[test]
fn the_way_is_that_on_trial_while_there_is_one() {
    assert_eq!(eager_at(100).way(), Way::Eager);
    assert_eq!(Auto { trial: on_trial(LAZY, 0.0), ..eager_at(100) }.way(), WAYS[LAZY]);
}

#[test]
fn the_buffer_has_settled_when_it_changes_by_half_of_what_enters_at_most() {
    let settles = |auto: &mut Auto, lookups, entered, waiting| {
        auto.stretch.counters.lookups = lookups;
        auto.stretch.counters.fingerprints_buffered = entered;
        auto.has_settled(waiting)
    };
    assert!(settles(&mut auto(), WINDOW / 8, 100, 50));
    assert!(!settles(&mut auto(), WINDOW / 8, 100, 51));
    assert!(!settles(&mut auto(), WINDOW / 8 - 1, 100, 50), "eight times in a window");
    for (waiting, settled) in [(91, true), (92, false), (11, true), (10, false)] {
        let mut auto = auto();
        settles(&mut auto, WINDOW / 8, 100, 51);
        assert_eq!(settles(&mut auto, WINDOW / 4, 180, waiting), settled, "51 and {waiting}");
    }
    // It would be full by then.
    let even = AutoParameters { buffer_max: 1024, ..auto().parameters };
    assert!(!settles(&mut Auto { parameters: even, ..auto() }, 1024, 100, 51));
    assert!(settles(&mut Auto { parameters: even, ..auto() }, 1536, 100, 51));
}

#[test]
fn a_stretch_lasts_a_window_or_as_long_as_it_takes_up_to_four_of_them() {
    // A hundred accesses and nothing else have an error of a tenth; one has one of all.
    let is_enough = |auto: &Auto, lookups, accesses| {
        let counters = FilterCounters { cache_lookups: 0, ..counted(lookups, accesses) };
        let stretch = Stretch { counters, ..Stretch::starting_with(0) };
        let (trial, rates) = (auto.trial, auto.rates);
        Auto { stretch, trial, rates, current: auto.current, ..self::auto() }.is_enough(0)
    };
    assert!(is_enough(&auto(), 64, 100), "the first one is over as soon as it says enough");
    assert!(!is_enough(&auto(), WINDOW - 1, 1) && is_enough(&auto(), WINDOW, 1));
    let later = eager_at(100);
    assert!(!is_enough(&later, WINDOW - 1, 100) && is_enough(&later, WINDOW, 100));
    assert!(!is_enough(&later, 4 * WINDOW - 1, 1) && is_enough(&later, 4 * WINDOW, 1));
    let full = 4 * WINDOW + BUFFER_MAX as u64;
    assert!(!is_enough(&lazy_at(100), full - 1, 1) && is_enough(&lazy_at(100), full, 1));
    assert!(!is_enough(&lazy_at(100), WINDOW - 1, 100) && is_enough(&lazy_at(100), WINDOW, 100));
}

#[test]
fn the_excess_is_what_a_stretch_took_beyond_what_the_current_way_would_have() {
    let excess = |auto: Auto| Auto { stretch: stretch(1000, 150), ..auto }.excess();
    // 160 ns for each of 1000 against 110, or 120 if lazy look-up is in use.
    assert_eq!(excess(eager_at(100)), 50_000.0);
    assert_eq!(excess(lazy_at(100)), 40_000.0);
    assert_eq!(excess(auto()), 0.0);
}

#[test]
fn what_the_current_way_costs_is_learnt_by_a_quarter() {
    let mut auto = eager_at(100);
    auto.learn(&rates(140), &Mix { passing: 0.5, hits: 0.0 });
    assert_eq!((auto.mix.passing, auto.mix.hits), (0.875, 0.75));
    assert!(is_near(variable_ns(&auto), 110.0));
    let mut first = self::auto();
    first.learn(&rates(140), &Mix { passing: 0.5, hits: 0.0 });
    assert_eq!((first.mix.passing, first.mix.hits), (0.5, 0.0), "at first all of it");
    assert!(is_near(variable_ns(&first), 140.0));
}

#[test]
fn a_cost_that_changed_by_half_makes_void_what_is_known() {
    // 150 ns a chunk; half as much again is 225, and 100 is less by as much.
    for (now, is_void) in [(215, false), (216, true), (90, false), (89, true)] {
        let known = Knowledge { correction: Some(2.0), ..UNKNOWN };
        let mut auto = Auto { knowledge: [known; WAYS.len()], ..eager_at(140) };
        auto.eager_counted = Some(counted(1, 1));
        auto.lazy_counted = Some(counted(1, 1));
        auto.learn(&rates(now), &Mix { passing: 1.0, hits: 1.0 });
        assert_eq!(auto.knowledge[LAZY].correction.is_none(), is_void, "{now}");
        assert_eq!(auto.eager_counted.is_none() && auto.lazy_counted.is_none(), is_void, "{now}");
        let now = now as f64;
        let expected = if is_void { now } else { 140.0 + (now - 140.0) / 4.0 };
        assert!(is_near(variable_ns(&auto), expected), "{now}");
    }
}

/// After a trial of lazy look-up, with eager look-up at 200 ns for the device.
fn tried(failed: bool, measured: Option<u64>) -> (bool, Auto, FilterCounters) {
    let known = Knowledge { correction: Some(3.0), tried: 1, pause: 16 };
    let mut auto = Auto { lookups: 77, knowledge: [UNKNOWN, known], ..eager_at(200) };
    let (mut filter, mix) = (filter(), auto.mix);
    let measured = measured.map(|device_ns| (rates(device_ns), mix));
    let took_over = auto.judge_trial(LAZY, failed, measured, &mut filter);
    (took_over, auto, *filter.counters())
}

#[test]
fn a_way_takes_over_if_it_costs_three_per_cent_less() {
    // 210 ns so far, of which 97 % are 203.7.
    assert!(tried(false, Some(183)).0 && !tried(false, Some(184)).0);
    let (_, auto, counters) = tried(false, Some(183));
    assert_eq!((auto.current, auto.switches, counters.strategy_switches), (LAZY, 1, 1));
    assert!(is_near(variable_ns(&auto), 183.0));
    // The way that has lost costs so many times what would be expected of it: nothing, so one.
    let Knowledge { correction, tried, pause } = auto.knowledge[EAGER];
    assert_eq!((correction, tried, pause), (Some(200.0), 77, PAUSE_MIN));
}

#[test]
fn a_way_that_lost_waits_twice_as_long() {
    let (_, auto, counters) = tried(false, Some(184));
    assert_eq!((auto.current, auto.switches, counters.strategy_switches), (EAGER, 0, 0));
    let Knowledge { correction, tried: at, pause } = auto.knowledge[LAZY];
    assert!(is_near(correction.unwrap(), 184.0 / WAITING_NS));
    assert_eq!((at, pause), (77, 32));
    // A trial that was broken off has shown twice the cost at least.
    let correction = |measured| tried(true, Some(measured)).1.knowledge[LAZY].correction.unwrap();
    assert!(!tried(true, Some(1)).0);
    assert!(is_near(correction(1), 400.0 / WAITING_NS));
    assert!(is_near(correction(401), 401.0 / WAITING_NS));
    // One that has shown nothing is only noted.
    let (took_over, auto, _) = tried(false, None);
    let Knowledge { correction, tried, pause } = auto.knowledge[LAZY];
    assert_eq!((took_over, correction, tried, pause), (false, Some(3.0), 77, 16));
}

#[test]
fn no_pause_is_longer_than_the_longest() {
    let known = Knowledge { pause: PAUSE_MAX - 1, ..UNKNOWN };
    let mut auto = Auto { knowledge: [known; WAYS.len()], ..eager_at(200) };
    let mix = auto.mix;
    auto.judge_trial(LAZY, false, Some((rates(500), mix)), &mut filter());
    assert_eq!(auto.knowledge[LAZY].pause, PAUSE_MAX);
}

#[test]
fn confirming_may_cost_what_256_look_ups_have() {
    let auto = Auto { total_ns: 3000.0, total_lookups: 10.0, ..eager_at(100) };
    let Trial { way, excess_max_ns, confirms } = auto.confirmation(EAGER);
    assert_eq!((way, excess_max_ns, confirms), (EAGER, 256.0 * 300.0, true));
    assert_eq!(eager_at(100).confirmation(EAGER).excess_max_ns, 0.0);
}

#[test]
fn what_a_trial_showed_fades_to_its_root_in_a_pause() {
    let faded = |correction, lookups| {
        let known = Knowledge { correction, tried: 100, pause: 8 };
        let auto = Auto { lookups, knowledge: [UNKNOWN, known], ..eager_at(100) };
        auto.faded_correction(LAZY)
    };
    let pause = 8 * WINDOW;
    let showed = [100, 100 + pause, 100 + 2 * pause].map(|at| faded(Some(4.0), at));
    assert_eq!(showed, [4.0, 2.0, 2.0_f64.sqrt()]);
    assert_eq!(faded(Some(16.0), 100), CORRECTION_MAX);
    assert_eq!(faded(None, 100), 1.0);
}

#[test]
fn a_way_is_expected_to_cost_what_is_estimated_times_what_a_trial_showed() {
    let known = Knowledge { correction: Some(2.0), ..UNKNOWN };
    let auto = Auto { knowledge: [known; WAYS.len()], ..eager_at(100) };
    assert!(is_near(auto.expected(EAGER).unwrap(), 110.0), "the current one as it is");
    assert!(is_near(auto.expected(LAZY).unwrap(), 20.0 + 2.0 * WAITING_NS));
    assert_eq!(self::auto().expected(EAGER), None);
}

#[test]
fn a_way_is_due_after_its_pause_and_sooner_if_it_promises_to_win() {
    let first_due = |correction, promising| {
        let known = Knowledge { correction, tried: 100, pause: 8 };
        let due = |lookups| {
            let auto = Auto { lookups, knowledge: [UNKNOWN, known], ..eager_at(100) };
            auto.is_due(LAZY, promising)
        };
        (100..100 + 9 * WINDOW).find(|lookups| due(*lookups)).unwrap() - 100
    };
    assert_eq!([first_due(None, true), first_due(None, false)], [0, 0]);
    let tried = [true, false].map(|promising| first_due(Some(1.0), promising));
    assert_eq!(tried, [PAUSE_IF_PROMISING * WINDOW, 8 * WINDOW]);
}

/// The trial that is begun, if any.
fn chosen(mut auto: Auto) -> Option<Trial> {
    let mut filter = filter();
    auto.choose_trial(&mut filter);
    let begun = u64::from(auto.trial.is_some());
    assert_eq!((auto.trials, filter.counters().probes), (begun, begun));
    auto.trial
}

#[test]
fn a_way_that_promises_to_win_is_tried_whatever_trials_have_cost() {
    // 1020 ns a chunk, of which lazy look-up would save 7 of 8 accesses.
    let misses = |excess_ns| Auto {
        rates: Some(rates_of_misses()),
        total_ns: 1e6,
        total_lookups: 1000.0,
        excess_ns,
        ..auto()
    };
    let Trial { way, excess_max_ns, confirms } = chosen(misses(68_000.0)).unwrap();
    assert_eq!((way, confirms), (LAZY, false));
    // Two per cent of all, and 2048 look-ups, less what trials have cost.
    assert!(is_near(excess_max_ns, 20_000.0 + 2_048_000.0 - 68_000.0), "{excess_max_ns}");
    let least = chosen(misses(1e9)).unwrap().excess_max_ns;
    assert!(is_near(least, 256.0 * 1020.0), "as many as confirm: {least}");
    assert!(chosen(auto()).is_none(), "nothing is known");
}

#[test]
fn a_way_that_promises_nothing_is_tried_if_that_can_be_paid_for() {
    // 30 ns a chunk so far and nearly 40 for lazy look-up, over four windows.
    let excess = 4.0 * WINDOW as f64 * (20.0 + WAITING_NS - 30.0);
    let known =
        |excess_ns| Auto { total_ns: 6e6, total_lookups: 200_000.0, excess_ns, ..eager_at(20) };
    let allowed = 0.02 * 6e6 + 2048.0 * 30.0;
    let trial = chosen(known(allowed - excess - 1.0)).unwrap();
    assert!(is_near(trial.excess_max_ns, 2.0 * excess), "{trial:?}, {excess}");
    assert!(chosen(known(allowed - excess + 1.0)).is_none());
    // It was tried not long ago.
    let knowledge = [UNKNOWN, Knowledge { correction: Some(1.0), ..UNKNOWN }];
    assert!(chosen(Auto { knowledge, ..known(0.0) }).is_none());
}

#[test]
fn a_way_that_cannot_win_is_not_tried() {
    // Lazy look-up takes 20 ns at least, which 97 % of 21 are more than, and of 20 are not.
    let rich = |device_ns| Auto { total_ns: 1e9, total_lookups: 1e6, ..eager_at(device_ns) };
    assert!(chosen(rich(11)).is_some());
    assert!(chosen(rich(10)).is_none());
    assert!(chosen(Auto { rates: Some(rates(0)), total_ns: 1e9, ..lazy_at(0) }).is_some());
}

#[test]
fn s0_15_another_device_makes_void_what_is_known_of_costs() {
    let seen = |ns| {
        let known = Knowledge { correction: Some(2.0), ..UNKNOWN };
        let mut auto = Auto {
            trial: on_trial(LAZY, 1.0),
            knowledge: [known; WAYS.len()],
            total_ns: 1.0,
            total_lookups: 1.0,
            excess_ns: 1.0,
            ..eager_at(100)
        };
        let is_other = with_device(ns, |judge| auto.take_costs(judge));
        let knows = auto.trial.is_some() && auto.rates.is_some();
        assert_eq!(knows, !is_other);
        assert_eq!(auto.knowledge[LAZY].correction.is_some(), !is_other);
        let totals = [auto.total_ns, auto.total_lookups, auto.excess_ns];
        assert_eq!(totals, [f64::from(u8::from(!is_other)); 3]);
        (auto.parameters.costs.device_read_ns, auto.current)
    };
    for about in [None, Some(667), Some(1000), Some(1500)] {
        assert_eq!(seen(about), (1000, EAGER), "{about:?}");
    }
    assert_eq!([seen(Some(666)), seen(Some(1501))], [(666, EAGER), (1501, EAGER)]);
    assert_eq!(seen(Some(100_000)), (100_000, LAZY));
    assert_eq!(seen(Some(0)), (1, EAGER), "no access takes no time");
}

#[test]
fn a_stretch_that_goes_on_is_looked_at_again() {
    let mut auto = Auto { stretch: stretch(1000, 1), ..eager_at(1) };
    with_device(None, |judge| auto.check(judge)).unwrap();
    assert_eq!((auto.next_check, auto.lookups), (1000 + WINDOW / 8, 0));
}

#[test]
fn what_has_been_spent_counts_the_less_the_older_it_is() {
    let spent = |trial, device_reads| {
        let (total_ns, total_lookups, excess_ns) = (100.0, 200.0, 300.0);
        let auto = Auto { total_ns, total_lookups, excess_ns, trial, ..eager_at(100) };
        let mut auto = Auto { stretch: stretch(4 * WINDOW, device_reads), lookups: 5, ..auto };
        with_device(None, |judge| auto.check(judge)).unwrap();
        assert_eq!(auto.lookups, 5 + 4 * WINDOW);
        assert_eq!(auto.stretch.counters.lookups, 0, "another stretch has begun");
        assert!(is_near(auto.total_lookups, 198.0 + 4.0 * WINDOW as f64));
        let time_ns = (40 * WINDOW + 1000 * device_reads) as f64;
        assert!(is_near(auto.total_ns, 99.0 + time_ns), "{}", auto.total_ns);
        auto.excess_ns
    };
    assert!(is_near(spent(None, 3000), 297.0), "only trials are in excess");
    // 4 windows at 110 ns were expected; of eager look-up on trial, for simplicity.
    let excess = 3_000_000.0 - 400.0 * WINDOW as f64;
    assert!(is_near(spent(on_trial(EAGER, 1e9), 3000), 297.0 + excess));
    assert!(is_near(spent(on_trial(EAGER, 1e9), 0), 297.0), "one that spared is not");
}

#[test]
fn a_trial_that_costs_more_than_it_may_is_broken_off() {
    // 1000 look-ups with 400 accesses: 300 000 ns in excess, with an error of 20 000.
    let lasts = |excess_max_ns| {
        let trial = on_trial(EAGER, excess_max_ns);
        let mut auto = Auto { trial, stretch: stretch(1000, 400), ..eager_at(100) };
        with_device(None, |judge| auto.check(judge)).unwrap();
        auto.lookups == 0
    };
    assert!(lasts(280_000.0) && !lasts(279_000.0));
}

#[test]
fn the_stretch_in_which_the_buffer_settles_says_nothing() {
    let mut auto = Auto { settling: true, stretch: stretch(WINDOW / 8, 51), ..lazy_at(100) };
    with_device(None, |judge| auto.check(judge)).unwrap();
    assert!(!auto.settling && auto.lazy_counted.is_none());
    assert_eq!(auto.lookups, WINDOW / 8);
    // A trial goes on with what it may still cost.
    let trial = on_trial(LAZY, 1e6);
    let mut auto = Auto { settling: true, trial, stretch: stretch(WINDOW / 8, 512), ..auto };
    let excess = auto.excess();
    assert!(is_near(excess, 512.0 * (1010.0 - 120.0)));
    with_device(None, |judge| auto.check(judge)).unwrap();
    assert!(is_near(auto.trial.unwrap().excess_max_ns, 1e6 - excess));
    // Unless it is broken off.
    let trial = on_trial(LAZY, 0.0);
    let mut auto = Auto { settling: true, trial, stretch: stretch(1000, 400), ..eager_at(100) };
    with_device(None, |judge| auto.check(judge)).unwrap();
    assert!(auto.trial.is_none() && auto.lazy_counted.is_some());
    assert_eq!(auto.knowledge[LAZY].pause, 2 * PAUSE_MIN);
}

fn end(auto: &mut Auto, failed: bool) {
    with_device(None, |judge| auto.end_stretch(failed, 0, judge)).unwrap();
}

#[test]
fn the_last_stretch_of_each_way_is_kept() {
    let mut eager = Auto { stretch: stretch(1000, 7), ..eager_at(7) };
    end(&mut eager, false);
    assert_eq!((eager.eager_counted, eager.lazy_counted), (Some(counted(1000, 7)), None));
    let mut lazy = Auto { stretch: stretch(1000, 7), ..lazy_at(7) };
    end(&mut lazy, false);
    assert_eq!((lazy.eager_counted, lazy.lazy_counted), (None, Some(counted(1000, 7))));
}

#[test]
fn where_nothing_passes_less_is_expected_to_pass() {
    let counters = FilterCounters { lookups: 100, summary_negatives: 100, ..Default::default() };
    let mut auto = Auto { stretch: Stretch { counters, ..stretch(0, 0) }, ..eager_at(100) };
    auto.mix.passing = 0.5;
    end(&mut auto, false);
    assert_eq!(auto.mix.passing, 0.375);
}

#[test]
fn what_took_over_is_confirmed_once_against_what_was_before() {
    let after = |before: Auto, way, confirms| {
        let trial = Some(Trial { way, excess_max_ns: 0.0, confirms });
        let mut auto = Auto { trial, stretch: stretch(1000, 10), total_ns: 1e3, ..before };
        auto.total_lookups = 10.0;
        end(&mut auto, false);
        assert_eq!((auto.current, auto.switches), (way, 1));
        auto.trial.map(|Trial { way, excess_max_ns, confirms }| (way, excess_max_ns, confirms))
    };
    assert_eq!(after(eager_at(200), LAZY, false), Some((EAGER, 25_600.0, true)));
    assert_eq!(after(lazy_at(200), EAGER, false), Some((LAZY, 25_600.0, true)));
    assert_eq!(after(eager_at(200), LAZY, true), None);
}

#[test]
fn while_eager_look_up_is_on_trial_a_chunk_joins_one_like_it_that_waits() {
    let mut auto = lazy_at(100);
    let chunk = |byte| Fingerprint([byte; 32]);
    with_device(None, |judge| {
        auto.begin_stretch(false);
        (0..5).for_each(|byte| auto.push(judge, byte.into(), &chunk(byte)).unwrap());
        auto.trial = on_trial(EAGER, 1e9);
        auto.begin_stretch(false);
        assert_eq!(auto.stretch.waiting_before, 5);
        auto.push(judge, 5, &chunk(3)).unwrap();
        assert_eq!((auto.waiting(), judge.resolved.len()), (6, 0));
        let counters = *judge.filter.counters();
        assert_eq!((counters.lookups, counters.repeats, counters.index_lookups), (6, 1, 0));
        assert_eq!(auto.stretch.counters.chunks_held, 1);
        // Any other is judged at once.
        auto.push(judge, 6, &chunk(7)).unwrap();
        assert_eq!((auto.waiting(), &judge.resolved[..]), (6, &[(6, Verdict::New)][..]));
        assert_eq!(auto.next_check, WINDOW / 64, "it is not yet time to look");
        auto.begin_stretch(false);
        assert_eq!(auto.stretch.waiting_before, 5, "different ones");
        auto.drain_before(4, judge).unwrap();
    });
    assert_eq!((auto.waiting(), auto.stretch.counters.index_page_reads), (0, 1));
}

#[test]
fn the_report_tells_what_is_known_and_what_is_estimated() {
    let auto = Auto { lookups: 5, stretch: stretch(7, 0), ..eager_at(100) };
    let report = auto.report();
    assert_eq!(report.lookups, 12);
    let told: Vec<(f64, bool)> =
        report.candidates.iter().map(|one| (one.cost_ns, one.was_tried)).collect();
    assert_eq!(told, [(110.0, true), (auto.expected(LAZY).unwrap(), false)]);
    let known = Knowledge { correction: Some(2.0), ..UNKNOWN };
    let report = Auto { knowledge: [UNKNOWN, known], ..auto }.report();
    assert!(report.candidates.iter().all(|one| one.was_tried));
}

/// Lazy look-up with a container read for each tenth chunk, which costs eager look-up twice as
/// much: to find it, and to read it.
fn lazy_that_stays() -> Auto {
    let counters = FilterCounters { containers_prefetched: 100, ..counted(1000, 0) };
    let stretch = Stretch { counters, ..stretch(0, 0) };
    let rates = stretch.rates(WAYS[LAZY], 0).map(|(rates, _)| rates);
    Auto { current: LAZY, rates, stretch, ..auto() }
}

#[test]
fn only_a_buffer_that_begins_to_fill_has_to_settle() {
    let settles = |mut auto: Auto| {
        end(&mut auto, false);
        (auto.way(), auto.settling)
    };
    let measured = |before| Auto { stretch: stretch(1000, 100), ..before };
    assert_eq!(settles(lazy_that_stays()), (WAYS[LAZY], false));
    assert_eq!(settles(Auto { stretch: stretch(1000, 1), ..eager_at(1) }), (Way::Eager, false));
    assert_eq!(settles(measured(eager_at(100))), (WAYS[LAZY], true), "on trial from now on");
    assert_eq!(settles(measured(lazy_at(100))), (Way::Eager, false), "on trial from now on");
    let on_trial = |way, before| measured(Auto { trial: on_trial(way, 0.0), ..before });
    assert_eq!(settles(on_trial(EAGER, lazy_at(200))), (WAYS[LAZY], true), "to confirm");
    assert_eq!(settles(on_trial(LAZY, eager_at(200))), (Way::Eager, false), "to confirm");
}

#[test]
fn on_another_device_lazy_look_up_has_to_settle() {
    for (seen, way) in [(100_000, WAYS[LAZY]), (100, Way::Eager)] {
        let mut auto = Auto { stretch: stretch(4 * WINDOW, 1), ..eager_at(100) };
        with_device(Some(seen), |judge| auto.check(judge)).unwrap();
        assert_eq!((auto.way(), auto.settling), (way, way != Way::Eager));
    }
}

#[test]
fn what_eager_look_up_was_taken_to_cost_is_set_right_when_it_loses() {
    let measured = lazy_that_stays().stretch.rates(WAYS[LAZY], 0);
    let mut auto = eager_at(402);
    assert!(auto.judge_trial(LAZY, false, measured, &mut filter()));
    // A tenth of the chunks would ask, at 1000 and 10 ns, and read a container.
    assert!(is_near(auto.knowledge[EAGER].correction.unwrap(), 402.0 / 201.0));
}

#[test]
fn a_way_promises_to_win_if_it_is_three_per_cent_cheaper() {
    // Nothing may be spent. Nearly 40 ns are 97 % of a little more than 41.
    let poor = |device_ns| Auto { excess_ns: 1e12, ..eager_at(device_ns) };
    assert!(chosen(poor(31)).is_none() && chosen(poor(32)).is_some());
}

#[test]
fn what_waits_when_eager_look_up_stays_is_resolved_and_paid_for() {
    let mut auto = Auto { trial: on_trial(LAZY, 1.0), ..eager_at(1) };
    with_device(None, |judge| {
        // A bucket is full at a thousand.
        auto.begin_stretch(true);
        for ticket in 0..5 {
            let fingerprint = Fingerprint([ticket as u8; 32]);
            auto.push(judge, ticket, &fingerprint).unwrap();
        }
        assert_eq!((auto.waiting(), judge.resolved.len()), (5, 0));
        let Auto { current, rates, stretch, .. } = lazy_that_stays();
        (auto.current, auto.rates, auto.stretch, auto.trial) = (current, rates, stretch, None);
        auto.end_stretch(false, 0, judge).unwrap();
        assert_eq!((auto.waiting(), auto.way()), (5, WAYS[LAZY]), "lazy look-up stays");
        (auto.current, auto.rates) = (EAGER, Some(self::rates(1)));
        auto.stretch = self::stretch(1000, 0);
        auto.end_stretch(false, 0, judge).unwrap();
        assert_eq!((auto.waiting(), judge.resolved.len()), (0, 5));
    });
    // One access of the device, and one of memory for each in a second look into the cache.
    assert_eq!(auto.total_ns, 1000.0 + 50.0);
}
