//! Look-up that chooses by itself between eager and lazy, and how lazy.
//!
//! Algorithm: inequality (8) of S0 says which of two ways of looking up costs less, given what each
//! of them counted. Here the counters are live. The stream is cut into *stretches*, each of which
//! is looked up in one way; its cost by the corrected model ([`crate::cost_model`]) is what that
//! way costs now. Ways that are not in use are tried now and then: a *trial* is a stretch looked up
//! in another way, and the way that costs less stays.
//!
//! - The ways: eager, in the better order; lazy with a second look, with bucket thresholds from a
//!   ladder. Rings are as long as they can be, because ranks bound the post-lookups (S0.7) and the
//!   second look makes up for what they miss.
//! - The start is S0's: its measured right side of (8), 554, against the ratio of the costs.
//! - Streams change between old data and new. Chunks the summary vector refuses cost the same
//!   whenever they come, so what is compared is the cost of chunks that pass, at the same mix.
//! - What a way costs at least follows from the counters of another (S0.16): eager takes an access
//!   for each container prefetched, one more to find it, and one for each false positive; lazy
//!   takes two accesses of memory for each chunk. Ways that cannot win are not tried.
//! - Trials may cost, in excess of what the stream would have cost without, two per cent of all
//!   that it has cost. A way that lost is tried again after twice the time. If the cost of the
//!   current way changes by much, all are due again.
//!
//! Invariants: the verdicts are exact, whatever is chosen when; the choice depends on nothing but
//! the stream, what the port answers, and the costs. Chunks that wait when a trial of eager look-up
//! begins go on waiting, and equal ones join them; they are resolved when eager look-up stays.

mod estimate;
mod report;

pub use report::{AutoReport, Choice};

use super::lazy::Lazy;
use super::parameters::{AutoParameters, DeviceCosts, LazyParameters, RING_LENGTH_RANGE};
use crate::accelerated_filter::{
    AcceleratedFilter, FilterConfiguration, FilterCounters, FilterOrder, Verdict,
};
use crate::ports::IndexPort;
use estimate::{Mix, Prices, Stretch};
use onefold_types::{Fingerprint, Result};

/// The right side of (8) that S0 measured.
const RIGHT_SIDE_OF_S0: f64 = 554.06;
/// The ways: eager is the first, the others are lazy with these bucket thresholds.
const EAGER: usize = 0;
const THRESHOLDS: [usize; 6] = [0, 2, 4, 16, 64, 1024];
/// The lazy ways to begin with on slow devices and on fast ones.
const LAZY_IF_SLOW: usize = 4;
const LAZY_IF_FAST: usize = 2;
/// What trials may cost in excess, of all costs.
const TRIAL_SHARE: f64 = 0.02;
/// Look-ups whose cost trials may take beyond their share, so that they can begin.
const TRIAL_CREDIT_LOOKUPS: f64 = 2048.0;
/// A way takes over if it costs less than this part of what the current one does.
const TAKES_OVER_BELOW: f64 = 0.97;
/// Windows after which a way that lost is tried again, at first and at last.
const PAUSE_MIN: u64 = 8;
const PAUSE_MAX: u64 = 1024;
/// Windows in a stretch at most, unless the buffer has to fill first.
const STRETCH_WINDOWS_MAX: u64 = 8;
/// How often a stretch is looked at.
const CHECKS_PER_WINDOW: u64 = 8;
/// The weight of the newest stretch in what the current way costs.
const NEWEST_WEIGHT: f64 = 0.25;
/// A change of the cost by this factor makes all ways due.
const CHANGE_FACTOR: f64 = 1.5;
/// What a way costs that failed so early that nothing could be measured.
const FAILED: f64 = 4.0;

/// What is known of a way that is not in use.
#[derive(Clone, Copy, Debug)]
struct Knowledge {
    /// The cost of a passing chunk, relative to the current way's; `None` before a trial.
    relative: Option<f64>,
    /// What the current way cost then, in nanoseconds.
    then_ns: f64,
    /// The look-ups that had been made then, and the windows to wait before another trial.
    tried: u64,
    pause: u64,
}

const UNKNOWN: Knowledge = Knowledge { relative: None, then_ns: 0.0, tried: 0, pause: PAUSE_MIN };

/// A way on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    way: usize,
    /// What it may cost in excess, in nanoseconds.
    excess_max_ns: f64,
}

/// The look-ups of one stream, however they cost least.
#[derive(Debug)]
pub(super) struct Auto {
    parameters: AutoParameters,
    configuration: FilterConfiguration,
    lazy: Lazy,
    current: usize,
    trial: Option<Trial>,
    order: FilterOrder,
    stretch: Stretch,
    next_check: u64,
    /// Whether the buffer is still filling or emptying after a change, and how it stood last.
    settling: bool,
    last_check: (u64, usize),
    /// What a passing chunk costs the current way, in nanoseconds; `None` before it is known.
    passing_ns: Option<f64>,
    mix: Mix,
    knowledge: [Knowledge; THRESHOLDS.len()],
    /// Of all stretches that have ended.
    lookups: u64,
    total_ns: f64,
    excess_ns: f64,
    /// The newest stretch of eager look-up, and of lazy.
    eager_counted: Option<FilterCounters>,
    lazy_counted: Option<FilterCounters>,
}

impl Auto {
    pub(super) fn new(parameters: &AutoParameters) -> Self {
        let slow = parameters.costs.ratio() > RIGHT_SIDE_OF_S0;
        let lazy = LazyParameters {
            ring_length: *RING_LENGTH_RANGE.end(),
            bucket_threshold: THRESHOLDS[if slow { LAZY_IF_SLOW } else { LAZY_IF_FAST }],
            buffer_max: parameters.buffer_max,
        };
        Self {
            parameters: *parameters,
            configuration: FilterConfiguration::default(),
            lazy: Lazy::new(&lazy, true),
            current: if slow { LAZY_IF_SLOW } else { EAGER },
            trial: None,
            order: FilterOrder::CacheFirst,
            stretch: Stretch::default(),
            settling: slow,
            last_check: (0, 0),
            next_check: parameters.window_length as u64 / CHECKS_PER_WINDOW,
            passing_ns: None,
            mix: Mix { passing: 1.0, hits: 1.0 },
            knowledge: [UNKNOWN; THRESHOLDS.len()],
            lookups: 0,
            total_ns: 0.0,
            excess_ns: 0.0,
            eager_counted: None,
            lazy_counted: None,
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.lazy.waiting()
    }

    pub(super) fn set_costs(&mut self, costs: DeviceCosts) {
        if costs != self.parameters.costs {
            self.parameters.costs = costs;
            self.passing_ns = None;
            self.knowledge = [UNKNOWN; THRESHOLDS.len()];
        }
    }

    pub(super) fn push(
        &mut self,
        filter: &mut AcceleratedFilter,
        port: &mut dyn IndexPort,
        ticket: u64,
        fingerprint: &Fingerprint,
        resolved: &mut Vec<(u64, Verdict)>,
    ) -> Result<()> {
        let before = *filter.counters();
        if self.way() != EAGER {
            self.lazy.push(filter, port, ticket, fingerprint, resolved)?;
        } else if self.lazy.waiting() == 0 || !self.lazy.join(filter, ticket, fingerprint) {
            let verdict = filter.judge_in_order(self.order, port, fingerprint)?;
            resolved.push((ticket, verdict));
        }
        self.stretch.counters.add_difference(filter.counters(), &before);
        if self.stretch.counters.lookups >= self.next_check {
            self.check(filter, port, resolved)?;
        }
        Ok(())
    }

    pub(super) fn drain_before(
        &mut self,
        ticket: u64,
        filter: &mut AcceleratedFilter,
        port: &mut dyn IndexPort,
        resolved: &mut Vec<(u64, Verdict)>,
    ) -> Result<()> {
        let before = *filter.counters();
        self.lazy.drain_before(ticket, filter, port, resolved)?;
        self.stretch.counters.add_difference(filter.counters(), &before);
        Ok(())
    }

    /// The way in which chunks are looked up at the moment.
    fn way(&self) -> usize {
        self.trial.map_or(self.current, |trial| trial.way)
    }

    fn prices(&self) -> Prices {
        Prices::new(&self.parameters.costs, self.configuration)
    }

    /// Several times in a window: whether the stretch has said enough.
    fn check(
        &mut self,
        filter: &mut AcceleratedFilter,
        port: &mut dyn IndexPort,
        resolved: &mut Vec<(u64, Verdict)>,
    ) -> Result<()> {
        self.configuration = filter.configuration();
        let waiting = self.lazy.distinct_waiting();
        let excess = self.excess();
        let failed = self.trial.is_some_and(|trial| excess > trial.excess_max_ns);
        self.next_check = self.stretch.counters.lookups + self.check_interval();
        let ends = if self.settling {
            self.has_settled(waiting)
        } else {
            self.stretch_is_long_enough(waiting)
        };
        if !failed && !ends {
            return Ok(());
        }
        let stretch = self.stretch;
        self.lookups += stretch.counters.lookups;
        self.total_ns += stretch.time_ns(&self.parameters.costs);
        if let Some(trial) = &mut self.trial {
            trial.excess_max_ns -= excess;
            self.excess_ns += excess;
        }
        if self.settling && !failed {
            self.begin_stretch(false);
            return Ok(());
        }
        if self.way() == EAGER {
            self.eager_counted = Some(stretch.counters);
        } else {
            self.lazy_counted = Some(stretch.counters);
        }
        let way = self.way();
        match self.trial.take() {
            Some(trial) => {
                self.judge_trial(trial.way, failed, &stretch, waiting, filter, port, resolved)?;
            }
            None => self.learn(&stretch, waiting),
        }
        self.choose_trial(&stretch, waiting, filter);
        self.begin_stretch(self.way() != way && self.way() != EAGER);
        Ok(())
    }

    /// Whether about as many chunks enter the buffer as leave it.
    fn has_settled(&mut self, waiting: usize) -> bool {
        let entered = self.stretch.counters.fingerprints_buffered;
        let (entered_before, waiting_before) = std::mem::replace(&mut self.last_check, (entered, waiting));
        let new = entered.saturating_sub(entered_before);
        let grown = waiting.abs_diff(waiting_before) as u64;
        grown <= new / 2 || self.stretch.counters.lookups > 4 * self.parameters.buffer_max as u64
    }

    fn begin_stretch(&mut self, settling: bool) {
        match THRESHOLDS.get(self.way()) {
            Some(0) | None => self.order = self.mix.order(&self.prices()),
            Some(threshold) => self.lazy.set_bucket_threshold(*threshold),
        }
        self.stretch = Stretch::starting_with(self.lazy.distinct_waiting());
        self.settling = settling;
        self.last_check = (0, self.lazy.distinct_waiting());
        self.next_check = self.check_interval();
    }

    fn check_interval(&self) -> u64 {
        self.parameters.window_length as u64 / CHECKS_PER_WINDOW
    }

    fn stretch_is_long_enough(&self, waiting: usize) -> bool {
        let lookups = self.stretch.counters.lookups;
        let window = self.parameters.window_length as u64;
        // At the very start, anything is better than nothing.
        let least = if self.passing_ns.is_none() { 0 } else { window };
        let to_fill = if self.way() == EAGER { 0 } else { 4 * self.parameters.buffer_max as u64 };
        let most = STRETCH_WINDOWS_MAX * window + to_fill;
        let suffices = self.stretch.suffices(&self.parameters.costs, waiting);
        lookups >= most || (lookups >= least && suffices)
    }

    /// What the stretch has cost beyond what it would have in the current way.
    fn excess(&self) -> f64 {
        let Some(passing_ns) = self.passing_ns else {
            return 0.0;
        };
        let lookups = self.stretch.counters.lookups as f64;
        let mix = Mix { passing: self.stretch.passing() / lookups.max(1.0), ..self.mix };
        let expected = self.sum(self.current, passing_ns, &mix) * lookups;
        self.stretch.time_ns(&self.parameters.costs) - expected
    }

    /// The cost of any chunk, from that of a passing one.
    fn sum(&self, way: usize, passing_ns: f64, mix: &Mix) -> f64 {
        let prices = self.prices();
        if way == EAGER { mix.eager(passing_ns, &prices) } else { mix.lazy(passing_ns, &prices) }
    }

    /// What a passing chunk of the stretch cost.
    fn measured(&self, way: usize, stretch: &Stretch, waiting: usize) -> Option<f64> {
        let prices = self.prices();
        if way == EAGER { stretch.eager_ns(&prices) } else { stretch.lazy_ns(&prices, waiting) }
    }

    fn note_mix(&mut self, way: usize, stretch: &Stretch, waiting: usize, weight: f64) {
        let lookups = stretch.counters.lookups.max(1) as f64;
        let hits = if way == EAGER {
            stretch.eager_hits()
        } else {
            stretch.eager_at_least(&self.prices(), waiting).map(|(_, hits)| hits)
        };
        let approach = |old: f64, new: f64| old + weight * (new - old);
        self.mix.passing = approach(self.mix.passing, stretch.passing() / lookups);
        if let Some(hits) = hits {
            self.mix.hits = approach(self.mix.hits, hits);
        }
    }

    /// A stretch of the current way has ended.
    fn learn(&mut self, stretch: &Stretch, waiting: usize) {
        let weight = if self.passing_ns.is_none() { 1.0 } else { NEWEST_WEIGHT };
        self.note_mix(self.current, stretch, waiting, weight);
        let Some(measured) = self.measured(self.current, stretch, waiting) else {
            return;
        };
        let usual = self.passing_ns.unwrap_or(measured);
        if is_changed(measured, usual) {
            self.passing_ns = Some(measured);
        } else {
            self.passing_ns = Some(usual + NEWEST_WEIGHT * (measured - usual));
        }
        let current_ns = self.passing_ns.unwrap_or(measured);
        for knowledge in &mut self.knowledge {
            if is_changed(current_ns, knowledge.then_ns) {
                *knowledge = UNKNOWN;
            }
        }
    }

    /// A trial has ended: whichever costs less stays.
    fn judge_trial(
        &mut self,
        way: usize,
        failed: bool,
        stretch: &Stretch,
        waiting: usize,
        filter: &mut AcceleratedFilter,
        port: &mut dyn IndexPort,
        resolved: &mut Vec<(u64, Verdict)>,
    ) -> Result<()> {
        let Some(current_ns) = self.passing_ns else {
            return Ok(());
        };
        let mut measured = self.measured(way, stretch, waiting).unwrap_or(current_ns);
        if failed {
            measured = measured.max(current_ns * FAILED);
        }
        let relative = measured / current_ns.max(f64::MIN_POSITIVE);
        let before = self.sum(self.current, current_ns, &self.mix);
        if self.sum(way, measured, &self.mix) < before * TAKES_OVER_BELOW {
            for knowledge in &mut self.knowledge {
                knowledge.relative = knowledge.relative.map(|other| other / relative);
                knowledge.then_ns *= relative;
                knowledge.pause = PAUSE_MIN;
            }
            self.knowledge[self.current] = Knowledge {
                relative: Some(1.0 / relative),
                then_ns: measured,
                tried: self.lookups,
                pause: PAUSE_MIN,
            };
            self.current = way;
            self.passing_ns = Some(measured);
            filter.counters_mut().strategy_switches += 1;
            if way == EAGER {
                let drained = *filter.counters();
                self.lazy.drain_before(u64::MAX, filter, port, resolved)?;
                let spent = *filter.counters() - drained;
                self.total_ns += crate::cost_model::time_ns(&spent, &self.parameters.costs);
            }
        } else {
            self.knowledge[way] = Knowledge {
                relative: Some(relative),
                then_ns: current_ns,
                tried: self.lookups,
                pause: (self.knowledge[way].pause * 2).min(PAUSE_MAX),
            };
        }
        Ok(())
    }

    /// Whether so long has passed since a way was tried that it may be tried again; soon, if it
    /// should cost less by now.
    fn is_due(&self, way: usize) -> bool {
        let Knowledge { relative, tried, pause, .. } = self.knowledge[way];
        let windows = match relative {
            None => 0,
            Some(relative) if relative < TAKES_OVER_BELOW => PAUSE_MIN / 4,
            Some(_) => pause,
        };
        let pause = windows.saturating_mul(self.parameters.window_length as u64);
        self.lookups >= tried.saturating_add(pause)
    }

    /// Begins the trial that promises most of those that are due, may win, and can be paid for.
    fn choose_trial(&mut self, stretch: &Stretch, waiting: usize, filter: &mut AcceleratedFilter) {
        let Some(current_ns) = self.passing_ns else {
            return;
        };
        let current_sum = self.sum(self.current, current_ns, &self.mix);
        let mean_ns = self.total_ns / self.lookups.max(1) as f64;
        let allowed = TRIAL_SHARE * self.total_ns + TRIAL_CREDIT_LOOKUPS * mean_ns - self.excess_ns;
        let length = (STRETCH_WINDOWS_MAX / 2) as f64 * self.parameters.window_length as f64;
        let mut best: Option<(f64, Trial)> = None;
        for way in self.ways_by_promise() {
            if way == self.current || !self.is_due(way) {
                continue;
            }
            let Some(expected) = self.expected(way, current_ns, stretch, waiting) else {
                continue;
            };
            let excess = (expected - current_sum).max(0.0) * length;
            let better = best.is_none_or(|(sum, _)| expected < sum);
            if excess <= allowed && better {
                best = Some((expected, Trial { way, excess_max_ns: allowed.max(2.0 * excess) }));
            }
        }
        if let Some((_, trial)) = best {
            filter.counters_mut().probes += 1;
            self.trial = Some(trial);
        }
    }

    /// All ways; of lazy ones not tried yet, the first comes first.
    fn ways_by_promise(&self) -> [usize; THRESHOLDS.len()] {
        let eager = self.knowledge[EAGER].relative;
        let lazy_pays = self.current != EAGER && eager.is_none_or(|eager| eager > CHANGE_FACTOR);
        if lazy_pays { [EAGER, 4, 5, 3, 2, 1] } else { [EAGER, 2, 1, 3, 4, 5] }
    }

    /// What a chunk may cost in another way; `None` if that cannot be less than now.
    fn expected(
        &self,
        way: usize,
        current_ns: f64,
        stretch: &Stretch,
        waiting: usize,
    ) -> Option<f64> {
        let prices = self.prices();
        let current_sum = self.sum(self.current, current_ns, &self.mix);
        let known = self.knowledge[way].relative.map(|relative| relative * current_ns);
        let (least, assumed) = if way == EAGER {
            let (least, _) = stretch.eager_at_least(&prices, waiting)?;
            (least, least)
        } else if self.current == EAGER {
            let least = prices.summary_ns + prices.cache_ns;
            let nearest = self.nearest_lazy(way).map(|relative| relative * current_ns);
            let worst = current_ns + self.mix.hits * prices.summary_ns + 2.0 * prices.memory_ns;
            (least, nearest.unwrap_or(worst))
        } else {
            (prices.summary_ns + prices.cache_ns, current_ns)
        };
        let may_win = self.sum(way, least, &self.mix) < current_sum * TAKES_OVER_BELOW;
        may_win.then(|| self.sum(way, known.unwrap_or(assumed), &self.mix))
    }

    /// How the lazy way with the nearest threshold that was tried did.
    fn nearest_lazy(&self, way: usize) -> Option<f64> {
        let tried = (1..THRESHOLDS.len()).filter(|other| *other != self.current);
        let nearest = tried
            .filter_map(|other| Some((other.abs_diff(way), self.knowledge[other].relative?)))
            .min_by_key(|(distance, _)| *distance);
        nearest.map(|(_, relative)| relative)
    }

    pub(super) fn report(&self) -> AutoReport {
        AutoReport::new(self)
    }
}

fn is_changed(now_ns: f64, then_ns: f64) -> bool {
    now_ns > then_ns * CHANGE_FACTOR || now_ns * CHANGE_FACTOR < then_ns
}
