//! Look-up that chooses by itself between eager and lazy, and how lazy.
//!
//! Algorithm: inequality (8) of S0 says which of two ways of looking up costs less, given what each
//! of them counted. Here the counters are live. The stream is cut into *stretches*, each of which
//! is looked up in one way; its cost by the corrected model ([`crate::cost_model`]) is what that
//! way costs now. Ways that are not in use are tried now and then: a *trial* is a stretch looked up
//! in another way, and the way that costs less stays.
//!
//! - The two ways: eager, in the better order; lazy with a second look, with a bucket threshold so
//!   large that a full buffer decides. Rings are as long as they can be, because ranks bound the
//!   post-lookups (S0.7) and the second look makes up for what they miss. Smaller thresholds were
//!   ways once: with the second look they hardly ever cost less, and every further way has to be
//!   learnt about.
//! - The start is eager look-up, which lets nothing wait; where an access of the device takes a
//!   tenth of a millisecond it is lazy look-up, which hardly ever takes more of them: a short
//!   stream ends before anything is learnt of it.
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

pub use report::AutoReport;

use super::Judge;
use super::lazy::Lazy;
use super::parameters::{
    AutoParameters, COST_RANGE_NS, DeviceCosts, LazyParameters, RING_LENGTH_RANGE,
};
use crate::accelerated_filter::{
    AcceleratedFilter, FilterConfiguration, FilterCounters, FilterOrder,
};
use crate::cost_model;
use estimate::{BUCKET_THRESHOLD, Mix, Prices, Rates, Stretch, Way};
use onefold_types::{Fingerprint, Result};

/// The ways there are.
const WAYS: [Way; 2] = [Way::Eager, Way::Lazy];
/// Their ordinals.
const EAGER: usize = 0;
const LAZY: usize = 1;
/// What an access of the device takes where it begins with lazy look-up, in nanoseconds. Whole
/// backups of a few windows are quicker for it by a tenth on hard disks and no slower on flash of
/// 141 microseconds (the laboratory's `lookup-clock`).
const LAZY_FROM_NS: u64 = 100_000;
/// What trials may cost in excess, of all costs.
const TRIAL_SHARE: f64 = 0.02;
/// What a stretch's cost still counts after the next one.
const REMEMBERED: f64 = 0.99;
/// Look-ups whose cost trials may take beyond their share, so that they can begin.
const TRIAL_CREDIT_LOOKUPS: f64 = 2048.0;
/// Look-ups whose cost it may take in excess to confirm that a way has rightly lost.
const CONFIRMATION_LOOKUPS: f64 = 256.0;
/// Windows a trial is expected to last.
const TRIAL_WINDOWS: f64 = 4.0;
/// A way takes over if it costs less than this part of what the current one does.
const TAKES_OVER_BELOW: f64 = 0.97;
/// Windows after which a way is tried again: if it promises to win, and if it lost, at first and
/// at last.
const PAUSE_IF_PROMISING: u64 = 2;
const PAUSE_MIN: u64 = 8;
const PAUSE_MAX: u64 = 1024;
/// Windows in a stretch at most, unless the buffer has to fill first.
const STRETCH_WINDOWS_MAX: u64 = 4;
/// How often in a window a stretch is looked at, and how often one that may be costly.
const CHECKS_PER_WINDOW: u64 = 8;
const CHECKS_IF_COSTLY: u64 = 64;
/// The weight of the newest stretch in what the current way costs.
const NEWEST_WEIGHT: f64 = 0.25;
/// A change of the cost by this factor makes all that is known void.
const CHANGE_FACTOR: f64 = 1.5;
/// A trial that showed worse may have met an unusual part of the stream.
const CORRECTION_MAX: f64 = 4.0;
/// What a trial that had to be broken off is taken to have shown: so many times the cost.
const FAILED_FACTOR: f64 = 2.0;

/// What is known of a way that is not in use.
#[derive(Clone, Copy, Debug)]
struct Knowledge {
    /// How wrong the estimate from the current way's rates was in a trial: what the variable part
    /// of the cost was, for each nanosecond expected. `None` before a trial.
    correction: Option<f64>,
    /// The look-ups that had been made then, and the windows to wait before another trial.
    tried: u64,
    pause: u64,
}

const UNKNOWN: Knowledge = Knowledge { correction: None, tried: 0, pause: PAUSE_MIN };

/// A way on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    way: usize,
    /// What it may still cost in excess, in nanoseconds.
    excess_max_ns: f64,
    /// Whether it confirms that another way was right to take over.
    confirms: bool,
}

/// The look-ups of one stream, however they cost least.
#[derive(Debug)]
pub(super) struct Auto {
    parameters: AutoParameters,
    configuration: FilterConfiguration,
    lazy: Lazy,
    /// The way in use, as an ordinal in [`WAYS`], and the one on trial.
    current: usize,
    trial: Option<Trial>,
    order: FilterOrder,
    stretch: Stretch,
    next_check: u64,
    /// Whether the buffer is still filling or emptying after a change; the chunks that had begun to
    /// wait at the last check, and that waited.
    settling: bool,
    last_check: (u64, usize),
    /// What happens in the current way; `None` before anything is known.
    rates: Option<Rates>,
    mix: Mix,
    knowledge: [Knowledge; WAYS.len()],
    /// Of all stretches that have ended.
    lookups: u64,
    /// The same, and costs, the older the less.
    total_lookups: f64,
    total_ns: f64,
    excess_ns: f64,
    /// The newest stretch of eager look-up, and of lazy.
    eager_counted: Option<FilterCounters>,
    lazy_counted: Option<FilterCounters>,
    trials: u64,
    switches: u64,
}

fn other(way: usize) -> usize {
    if way == EAGER { LAZY } else { EAGER }
}

fn first_way(costs: &DeviceCosts) -> usize {
    if costs.device_read_ns >= LAZY_FROM_NS { LAZY } else { EAGER }
}

impl Auto {
    pub(super) fn new(parameters: &AutoParameters) -> Self {
        let lazy = LazyParameters {
            ring_length: *RING_LENGTH_RANGE.end(),
            bucket_threshold: 1,
            buffer_max: parameters.buffer_max,
            ..LazyParameters::default()
        };
        let mut auto = Self {
            parameters: *parameters,
            configuration: FilterConfiguration::default(),
            lazy: Lazy::new(&lazy, true),
            current: first_way(&parameters.costs),
            trial: None,
            order: FilterOrder::CacheFirst,
            stretch: Stretch::default(),
            next_check: 0,
            settling: false,
            last_check: (0, 0),
            rates: None,
            mix: Mix { passing: 1.0, hits: 1.0 },
            knowledge: [UNKNOWN; WAYS.len()],
            lookups: 0,
            total_lookups: 0.0,
            total_ns: 0.0,
            excess_ns: 0.0,
            eager_counted: None,
            lazy_counted: None,
            trials: 0,
            switches: 0,
        };
        auto.begin_stretch(auto.way() != Way::Eager);
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
        if self.way() != Way::Eager {
            self.lazy.push(judge, ticket, fingerprint)?;
        } else if self.lazy.waiting() == 0 || !self.lazy.join(judge, ticket, fingerprint) {
            let verdict = judge.filter.judge_in_order(self.order, judge.port, fingerprint)?;
            judge.resolved.push((ticket, verdict));
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

    /// The way in which chunks are looked up at the moment.
    fn way(&self) -> Way {
        WAYS[self.trial.map_or(self.current, |trial| trial.way)]
    }

    fn prices(&self) -> Prices {
        Prices::new(&self.parameters.costs, self.configuration)
    }

    /// Several times in a window: whether the stretch has said enough.
    fn check(&mut self, judge: &mut Judge<'_>) -> Result<()> {
        self.configuration = judge.filter.configuration();
        self.next_check = self.stretch.counters.lookups + self.check_interval();
        let waiting = self.lazy.distinct_waiting();
        let excess = self.excess();
        let failed = self.trial.is_some_and(|trial| {
            excess - self.stretch.error_ns(&self.parameters.costs) > trial.excess_max_ns
        });
        let ends = if self.settling { self.has_settled(waiting) } else { self.is_enough(waiting) };
        if !failed && !ends {
            return Ok(());
        }
        self.lookups += self.stretch.counters.lookups;
        self.total_ns = self.total_ns * REMEMBERED + self.stretch.time_ns(&self.parameters.costs);
        self.total_lookups = self.total_lookups * REMEMBERED + self.stretch.counters.lookups as f64;
        self.excess_ns *= REMEMBERED;
        if let Some(trial) = &mut self.trial {
            trial.excess_max_ns -= excess.max(0.0);
            self.excess_ns += excess.max(0.0);
        }
        let is_other_device = self.take_costs(judge);
        if self.settling && !failed || is_other_device {
            self.begin_stretch(is_other_device && self.way() != Way::Eager);
            return Ok(());
        }
        self.end_stretch(failed, waiting, judge)
    }

    /// Believes what accesses take rather than what it was told; whether that is another device.
    /// Then all that is known of costs is void.
    fn take_costs(&mut self, judge: &Judge<'_>) -> bool {
        let believed = self.parameters.costs.device_read_ns;
        let seen = judge.port.device_read_ns().unwrap_or(believed);
        let ratio = seen as f64 / believed as f64;
        if (1.0 / CHANGE_FACTOR..=CHANGE_FACTOR).contains(&ratio) {
            return false;
        }
        let (least, most) = COST_RANGE_NS.into_inner();
        self.parameters.costs.device_read_ns = seen.clamp(least, most);
        self.knowledge = [UNKNOWN; WAYS.len()];
        (self.trial, self.rates) = (None, None);
        self.current = first_way(&self.parameters.costs);
        (self.total_lookups, self.total_ns, self.excess_ns) = (0.0, 0.0, 0.0);
        true
    }

    fn end_stretch(&mut self, failed: bool, waiting: usize, judge: &mut Judge<'_>) -> Result<()> {
        let way = self.way();
        let counted = Some(self.stretch.counters);
        match way {
            Way::Eager => self.eager_counted = counted,
            Way::Lazy => self.lazy_counted = counted,
        }
        match (self.trial.take(), self.stretch.rates(way, waiting)) {
            (None, Some((rates, mix))) => self.learn(&rates, &mix),
            (None, None) => self.mix.passing += NEWEST_WEIGHT * (0.0 - self.mix.passing),
            (Some(trial), rates) => {
                let before = self.current;
                let took_over = self.judge_trial(trial.way, failed, rates, judge.filter);
                if took_over && !trial.confirms {
                    self.trial = Some(self.confirmation(before));
                }
            }
        }
        if self.trial.is_none() {
            self.choose_trial(judge.filter);
        }
        if self.trial.is_none() && WAYS[self.current] == Way::Eager && self.lazy.waiting() > 0 {
            let before = *judge.filter.counters();
            self.lazy.drain_before(u64::MAX, judge)?;
            let spent = *judge.filter.counters() - before;
            self.total_ns += cost_model::time_ns(&spent, &self.parameters.costs);
        }
        self.begin_stretch(self.way() != way && self.way() != Way::Eager);
        Ok(())
    }

    fn begin_stretch(&mut self, settling: bool) {
        match self.way() {
            Way::Eager => self.order = self.mix.order(&self.prices()),
            Way::Lazy => self.lazy.set_bucket_threshold(BUCKET_THRESHOLD),
        }
        self.stretch = Stretch::starting_with(self.lazy.distinct_waiting());
        self.settling = settling;
        self.last_check = (0, self.lazy.distinct_waiting());
        self.next_check = self.check_interval();
    }

    fn check_interval(&self) -> u64 {
        let costly = self.rates.is_none() || self.trial.is_some();
        let checks = if costly { CHECKS_IF_COSTLY } else { CHECKS_PER_WINDOW };
        self.parameters.window_length as u64 / checks
    }

    /// Whether about as many chunks leave the buffer as enter it.
    fn has_settled(&mut self, waiting: usize) -> bool {
        let between = self.parameters.window_length as u64 / CHECKS_PER_WINDOW;
        if !self.stretch.counters.lookups.is_multiple_of(between) {
            return false;
        }
        let entered = self.stretch.counters.fingerprints_buffered;
        let last = std::mem::replace(&mut self.last_check, (entered, waiting));
        let grown = waiting.abs_diff(last.1) as u64;
        let most = self.parameters.buffer_max as u64;
        grown <= entered.saturating_sub(last.0) / 2 || self.stretch.counters.lookups > most
    }

    /// Whether the stretch says what its way costs, or will not say it.
    fn is_enough(&self, waiting: usize) -> bool {
        let lookups = self.stretch.counters.lookups;
        let window = self.parameters.window_length as u64;
        let to_fill = match self.way() {
            Way::Eager => 0,
            Way::Lazy => self.parameters.buffer_max as u64,
        };
        let suffices = self.stretch.suffices(&self.parameters.costs, waiting);
        if self.rates.is_none() {
            return suffices || lookups >= window;
        }
        (suffices && lookups >= window) || lookups >= STRETCH_WINDOWS_MAX * window + to_fill
    }

    /// What the stretch has cost beyond what it would have in the current way.
    fn excess(&self) -> f64 {
        let Some(rates) = &self.rates else {
            return 0.0;
        };
        let (way, prices) = (WAYS[self.current], self.prices());
        let mix = self.stretch.mix(self.mix.hits);
        let expected = mix.cost(way, rates.variable(way, &prices), &prices);
        let lookups = self.stretch.counters.lookups as f64;
        self.stretch.time_ns(&self.parameters.costs) - expected * lookups
    }

    /// A stretch of the current way has ended.
    fn learn(&mut self, newer: &Rates, mix: &Mix) {
        let Some(rates) = &mut self.rates else {
            self.rates = Some(*newer);
            self.mix = *mix;
            return;
        };
        let approach = |old: f64, new: f64| old + NEWEST_WEIGHT * (new - old);
        self.mix.passing = approach(self.mix.passing, mix.passing);
        self.mix.hits = approach(self.mix.hits, mix.hits);
        let (way, prices) =
            (WAYS[self.current], Prices::new(&self.parameters.costs, self.configuration));
        let [then, now] =
            [&*rates, newer].map(|rates| self.mix.cost(way, rates.variable(way, &prices), &prices));
        if now > then * CHANGE_FACTOR || now * CHANGE_FACTOR < then {
            *rates = *newer;
            self.knowledge = [UNKNOWN; WAYS.len()];
            (self.eager_counted, self.lazy_counted) = (None, None);
        } else {
            rates.approach(newer, NEWEST_WEIGHT);
        }
    }

    /// A trial has ended: whether its way takes over.
    fn judge_trial(
        &mut self,
        ordinal: usize,
        failed: bool,
        measured: Option<(Rates, Mix)>,
        filter: &mut AcceleratedFilter,
    ) -> bool {
        let (Some(current_rates), Some((rates, _))) = (self.rates, measured) else {
            self.knowledge[ordinal].tried = self.lookups;
            return false;
        };
        let (prices, mix) = (self.prices(), self.mix);
        let (way, current) = (WAYS[ordinal], WAYS[self.current]);
        let current_variable = current_rates.variable(current, &prices);
        let mut variable = rates.variable(way, &prices);
        if failed {
            variable = variable.max(FAILED_FACTOR * current_variable);
        }
        let before = mix.cost(current, current_variable, &prices);
        let wins = mix.cost(way, variable, &prices) < before * TAKES_OVER_BELOW;
        if !wins {
            let expected = current_rates.variable_of_other(current, &prices);
            self.knowledge[ordinal] = Knowledge {
                correction: Some(variable / expected.max(1.0)),
                tried: self.lookups,
                pause: (self.knowledge[ordinal].pause * 2).min(PAUSE_MAX),
            };
            return false;
        }
        let now = rates.variable_of_other(way, &prices);
        let correction = Some(current_variable / now.max(1.0));
        self.knowledge[self.current] =
            Knowledge { correction, tried: self.lookups, pause: PAUSE_MIN };
        self.current = ordinal;
        self.rates = Some(rates);
        filter.counters_mut().strategy_switches += 1;
        self.switches += 1;
        true
    }

    /// The way that has just lost is tried again at once: it may have lost only because the stream
    /// has become cheaper since it was measured.
    fn confirmation(&self, way: usize) -> Trial {
        let mean_ns = self.total_ns / self.total_lookups.max(1.0);
        Trial { way, excess_max_ns: CONFIRMATION_LOOKUPS * mean_ns, confirms: true }
    }

    /// What a look-up should cost in a way; `None` before anything is known.
    fn expected(&self, ordinal: usize) -> Option<f64> {
        let (rates, prices) = (self.rates.as_ref()?, self.prices());
        let current = WAYS[self.current];
        let variable = if ordinal == self.current {
            rates.variable(current, &prices)
        } else {
            rates.variable_of_other(current, &prices) * self.faded_correction(ordinal)
        };
        Some(self.mix.cost(WAYS[ordinal], variable, &prices))
    }

    /// Begins a trial of the other way if that is due, may win, and can be paid for.
    fn choose_trial(&mut self, filter: &mut AcceleratedFilter) {
        let (way, prices) = (other(self.current), self.prices());
        let (Some(rates), Some(now), Some(expected)) =
            (&self.rates, self.expected(self.current), self.expected(way))
        else {
            return;
        };
        let least = rates.least_of_other(WAYS[self.current], &prices);
        if self.mix.cost(WAYS[way], least, &prices) >= now * TAKES_OVER_BELOW {
            return;
        }
        let mean_ns = self.total_ns / self.total_lookups.max(1.0);
        let allowed = TRIAL_SHARE * self.total_ns + TRIAL_CREDIT_LOOKUPS * mean_ns - self.excess_ns;
        let length = TRIAL_WINDOWS * self.parameters.window_length as f64;
        let excess = (expected - now).max(0.0) * length;
        let promising = expected < now * TAKES_OVER_BELOW;
        if self.is_due(way, promising) && (promising || excess <= allowed) {
            let excess_max_ns = allowed.max(2.0 * excess).max(CONFIRMATION_LOOKUPS * now);
            filter.counters_mut().probes += 1;
            self.trials += 1;
            self.trial = Some(Trial { way, excess_max_ns, confirms: false });
        }
    }

    /// What a trial showed is worth less the longer ago it was: it fades to its root in a pause.
    fn faded_correction(&self, ordinal: usize) -> f64 {
        let Knowledge { correction, tried, pause } = self.knowledge[ordinal];
        let pauses =
            (self.lookups - tried) as f64 / (pause * self.parameters.window_length as u64) as f64;
        correction.unwrap_or(1.0).min(CORRECTION_MAX).powf(0.5_f64.powf(pauses))
    }

    fn is_due(&self, ordinal: usize, promising: bool) -> bool {
        let Knowledge { correction, tried, pause } = self.knowledge[ordinal];
        let windows = match (correction, promising) {
            (None, _) => 0,
            (Some(_), true) => PAUSE_IF_PROMISING,
            (Some(_), false) => pause,
        };
        let window = self.parameters.window_length as u64;
        self.lookups >= tried.saturating_add(windows.saturating_mul(window))
    }

    pub(super) fn report(&self) -> AutoReport {
        AutoReport::new(self)
    }
}

#[cfg(test)]
mod tests;
