//! Look-up that chooses by itself between eager and lazy.
//!
//! Algorithm: inequality (8) of S0 says which of two ways of looking up costs less, given what each
//! of them counted over the *same* stream. Nobody has looked a stretch up in both ways, and costs
//! differ more between stretches than between ways; so what is compared is what one stretch costs
//! in the way in which it was looked up and what it would have cost in the other (`estimate`).
//! That takes what the stream demands, which either way counts, and a few ratios that a way has
//! shown while it was in use. Ways are compared once in a window; the cheaper one is used.
//!
//! - The two ways: eager, in the better order; lazy with a second look, rings as long as they are
//!   by default, and a bucket threshold so large that a full buffer decides. Other rings and
//!   thresholds were ways once: they bring less than it takes to learn about them.
//! - The start is eager look-up, which lets nothing wait; where an access of the device takes a
//!   tenth of a millisecond it is lazy look-up, which hardly ever takes more of them: a short
//!   stream ends before anything is learnt of it.
//! - The other way has to be cheaper by three per cent, and by more than the chance of a few
//!   accesses of the device: on a hard disk one costs what holding ten thousand chunks does.
//! - What is known of the way not in use is a guess, or old. If it is dearer by the estimate, but
//!   could be cheaper at its best (S0.16), it is tried as soon as what that should cost is two per
//!   cent of what has been spent since the last change. A try is a change like any other.
//!
//! Invariants: the verdicts are exact, whatever is chosen when; the choice depends on nothing but
//! the stream, what the port answers, and the costs. Under eager look-up nothing waits, and the
//! names of the containers read take no more memory than what could wait otherwise.

mod estimate;
mod report;

pub use report::AutoReport;

use super::Judge;
use super::lazy::Lazy;
use super::parameters::{AutoParameters, COST_RANGE_NS, DeviceCosts, LazyParameters};
use crate::accelerated_filter::{FilterConfiguration, FilterCounters, FilterOrder, Verdict};
use estimate::{Known, Prices, Stretch, Way};
use onefold_types::{Fingerprint, Result};

/// Fingerprints of a bucket that lazy look-up locates together: so many that a full buffer decides.
const BUCKET_THRESHOLD: usize = 1024;
/// What an access of the device takes where it begins with lazy look-up, in nanoseconds. Whole
/// backups of a few windows are quicker for it by a tenth on hard disks and no slower on flash of
/// 141 microseconds (the laboratory's `lookup-clock`).
const LAZY_FROM_NS: u64 = 100_000;
/// A way takes over if it costs less than this part of what the current one does.
const TAKES_OVER_BELOW: f64 = 0.97;
/// What a try of the other way may cost in excess, of all costs since the last change.
const TRY_SHARE: f64 = 0.02;
/// What counts of a stretch still weigh after the next one.
const OLDER_WEIGHT: f64 = 0.5;
/// How often in a window it is asked what accesses take.
const CHECKS_PER_WINDOW: u64 = 64;
/// A change of the cost of an access by this factor counts.
const CHANGE_FACTOR: f64 = 1.5;

/// What is to become of the way that is not in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Other {
    Cheaper,
    /// It may be, and to find out can be paid for.
    Tried,
    Dearer,
}

/// The look-ups of one stream, however they cost least.
#[derive(Debug)]
pub(super) struct Auto {
    parameters: AutoParameters,
    configuration: FilterConfiguration,
    lazy: Lazy,
    way: Way,
    order: FilterOrder,
    stretch: Stretch,
    next_check: u64,
    next_comparison: u64,
    known: Known,
    /// Look-ups before the stretch.
    lookups: u64,
    /// What look-ups have cost since the way was changed, before the stretch.
    spent_ns: f64,
    /// The newest stretch of eager look-up, and of lazy.
    eager_counted: Option<FilterCounters>,
    lazy_counted: Option<FilterCounters>,
    trials: u64,
    switches: u64,
}

fn first_way(costs: &DeviceCosts) -> Way {
    if costs.device_read_ns >= LAZY_FROM_NS { Way::Lazy } else { Way::Eager }
}

impl Auto {
    pub(super) fn new(parameters: &AutoParameters) -> Self {
        let lazy = LazyParameters {
            bucket_threshold: BUCKET_THRESHOLD,
            buffer_max: parameters.buffer_max,
            ..LazyParameters::default()
        };
        let mut auto = Self {
            parameters: *parameters,
            configuration: FilterConfiguration::default(),
            lazy: Lazy::new(&lazy, true),
            way: first_way(&parameters.costs),
            order: FilterOrder::CacheFirst,
            stretch: Stretch::default(),
            next_check: 0,
            next_comparison: 0,
            known: Known::default(),
            lookups: 0,
            spent_ns: 0.0,
            eager_counted: None,
            lazy_counted: None,
            trials: 0,
            switches: 0,
        };
        auto.begin_stretch();
        auto
    }

    pub(super) fn waiting(&self) -> usize {
        self.lazy.waiting()
    }

    pub(super) fn push(
        &mut self,
        judge: &mut Judge<'_>,
        ticket: u64,
        fingerprint: &Fingerprint,
    ) -> Result<()> {
        let before = *judge.filter.counters();
        match self.way {
            Way::Lazy => self.lazy.push(judge, ticket, fingerprint)?,
            Way::Eager => {
                let verdict = judge.filter.judge_in_order(self.order, judge.port, fingerprint)?;
                judge.resolved.push((ticket, verdict));
                let read = judge.filter.counters().containers_prefetched;
                if let Verdict::Duplicate(instance) = verdict
                    && read > before.containers_prefetched
                {
                    self.stretch.read.insert(instance.container);
                }
            }
        }
        judge.filter.counters_mut().chunks_held += u64::from(self.lazy.waiting() > 0);
        self.stretch.counters.add_difference(judge.filter.counters(), &before);
        if self.stretch.counters.lookups >= self.next_check {
            self.check(judge)?;
        }
        Ok(())
    }

    pub(super) fn drain_before(&mut self, ticket: u64, judge: &mut Judge<'_>) -> Result<()> {
        let before = *judge.filter.counters();
        self.lazy.drain_before(ticket, judge)?;
        self.stretch.counters.add_difference(judge.filter.counters(), &before);
        Ok(())
    }

    fn prices(&self) -> Prices {
        Prices::new(&self.parameters.costs, self.configuration)
    }

    fn window(&self) -> u64 {
        self.parameters.window_length as u64
    }

    /// Look-ups in a stretch: as many as may wait.
    fn stretch_length(&self) -> u64 {
        self.window().max(self.parameters.buffer_max as u64)
    }

    /// Many times in a window: whether accesses take what they should; once: whether the way is
    /// still the right one.
    fn check(&mut self, judge: &mut Judge<'_>) -> Result<()> {
        self.configuration = judge.filter.configuration();
        let lookups = self.stretch.counters.lookups;
        self.next_check = lookups + self.window() / CHECKS_PER_WINDOW;
        let is_other_device = self.believes_other_costs(judge);
        if is_other_device && self.known.is_nothing() {
            return self.change_to(first_way(&self.parameters.costs), judge);
        }
        if lookups < self.next_comparison && !is_other_device {
            return Ok(());
        }
        self.next_comparison = lookups + self.window();
        self.compare(judge)
    }

    fn compare(&mut self, judge: &mut Judge<'_>) -> Result<()> {
        let waiting = self.lazy.distinct_waiting();
        let is_long = self.stretch.counters.lookups >= self.stretch_length();
        let is_representative = self.stretch.is_representative(waiting);
        if !is_representative && !is_long {
            return Ok(());
        }
        let ends = is_representative && is_long;
        let weight = if ends { OLDER_WEIGHT } else { 1.0 };
        let known = self.known.after(&self.stretch, self.way, waiting, weight);
        let spent_ns = self.spent_ns + self.stretch.time_ns(&self.parameters.costs);
        let verdict = self.other_way(&known, spent_ns);
        if verdict == Other::Dearer && !ends {
            self.order = known.mix().order(&self.prices());
            return Ok(());
        }
        match self.way {
            Way::Eager => self.eager_counted = Some(self.stretch.counters),
            Way::Lazy => self.lazy_counted = Some(self.stretch.counters),
        }
        (self.known, self.spent_ns) = (known, spent_ns);
        if verdict == Other::Dearer {
            self.begin_stretch();
            return Ok(());
        }
        let tries = u64::from(verdict == Other::Tried);
        self.trials += tries;
        judge.filter.counters_mut().probes += tries;
        self.change_to(self.way.other(), judge)
    }

    /// Believes what accesses take rather than what it was told; whether that is another device.
    fn believes_other_costs(&mut self, judge: &Judge<'_>) -> bool {
        let believed = self.parameters.costs.device_read_ns;
        let seen = judge.port.device_read_ns().unwrap_or(believed);
        let ratio = seen as f64 / believed as f64;
        if (1.0 / CHANGE_FACTOR..=CHANGE_FACTOR).contains(&ratio) {
            return false;
        }
        let (least, most) = COST_RANGE_NS.into_inner();
        self.parameters.costs.device_read_ns = seen.clamp(least, most);
        self.spent_ns = 0.0;
        true
    }

    fn other_way(&self, known: &Known, spent_ns: f64) -> Other {
        let (prices, other) = (self.prices(), self.way.other());
        let now_ns = known.cost(self.way, &prices);
        let below_ns = now_ns * TAKES_OVER_BELOW - known.error(&prices);
        let other_ns = known.cost(other, &prices);
        if other_ns < below_ns {
            return Other::Cheaper;
        }
        let excess_ns = (other_ns - now_ns) * self.stretch_length() as f64;
        let may_win = known.least(other, &prices) < below_ns;
        if may_win && excess_ns <= TRY_SHARE * spent_ns {
            return Other::Tried;
        }
        Other::Dearer
    }

    /// From now on in this way; eager look-up begins with nothing waiting.
    fn change_to(&mut self, way: Way, judge: &mut Judge<'_>) -> Result<()> {
        if way == Way::Eager {
            self.lazy.drain_before(u64::MAX, judge)?;
        }
        if way != self.way {
            self.switches += 1;
            judge.filter.counters_mut().strategy_switches += 1;
        }
        self.way = way;
        self.spent_ns = 0.0;
        self.begin_stretch();
        Ok(())
    }

    fn begin_stretch(&mut self) {
        self.order = self.known.mix().order(&self.prices());
        self.lookups += self.stretch.counters.lookups;
        self.stretch = Stretch::starting_with(self.lazy.distinct_waiting());
        self.next_check = self.window() / CHECKS_PER_WINDOW;
        self.next_comparison = self.window();
    }

    pub(super) fn report(&self) -> AutoReport {
        AutoReport::new(self)
    }
}

#[cfg(test)]
mod tests;
