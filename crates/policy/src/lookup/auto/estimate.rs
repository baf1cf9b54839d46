//! What a way of looking up costs, from what was counted over a stretch of the stream.
//!
//! Costs are those of the corrected model ([`crate::cost_model`]), for one chunk that passes the
//! summary vector: what a refused chunk costs is known, and how many are refused is the stream's
//! doing. A stretch of lazy look-up leaves chunks waiting whose accesses of the device are still to
//! come; they are taken to cost what those did that have left the buffer.
//!
//! [`Passing::eager_at_least`] is a bound: eager look-up reads every container that lazy look-up
//! read, asks the index before each, and asks it for every chunk that turned out to be unknown.

use crate::accelerated_filter::{FilterConfiguration, FilterCounters, FilterOrder};
use crate::cost_model::time_ns;
use crate::lookup::parameters::DeviceCosts;

/// The error of a stretch's cost that is small enough, relative to the cost.
const ERROR_MAX: f64 = 0.10;
/// The largest factor for what is still to come.
const SCALE_MAX: f64 = 4.0;

/// What accesses cost and which helpers there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices {
    /// V_disk, V_DRAM, in nanoseconds.
    pub(super) device_ns: f64,
    pub(super) memory_ns: f64,
    /// A question to the summary vector, a look-up in the cache: nothing if it is switched off.
    pub(super) summary_ns: f64,
    pub(super) cache_ns: f64,
}

impl Prices {
    pub(super) fn new(costs: &DeviceCosts, configuration: FilterConfiguration) -> Self {
        let memory_ns = costs.memory_access_ns as f64;
        let if_used = |used| if used { memory_ns } else { 0.0 };
        Self {
            device_ns: costs.device_read_ns as f64,
            memory_ns,
            summary_ns: if_used(configuration.summary_vector),
            cache_ns: if_used(configuration.locality_cache),
        }
    }
}

/// The share of refused chunks, on which the better order and all sums depend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    pub(super) passing: f64,
    /// Hits in the cache for each passing chunk, under eager look-up.
    pub(super) hits: f64,
}

impl Mix {
    /// The order that costs less: each spares one helper a question.
    pub(super) fn order(&self, prices: &Prices) -> FilterOrder {
        let cache_spared = (1.0 - self.passing) * prices.cache_ns;
        let summary_spared = self.passing * self.hits * prices.summary_ns;
        if cache_spared > summary_spared {
            FilterOrder::FilterFirst
        } else {
            FilterOrder::CacheFirst
        }
    }

    /// The cost of any chunk, from what a passing one costs eager look-up, the cache first.
    pub(super) fn eager(&self, passing_ns: f64, prices: &Prices) -> f64 {
        let refused = 1.0 - self.passing;
        match self.order(prices) {
            FilterOrder::CacheFirst => {
                self.passing * passing_ns + refused * (prices.cache_ns + prices.summary_ns)
            }
            FilterOrder::FilterFirst => {
                self.passing * (passing_ns + self.hits * prices.summary_ns)
                    + refused * prices.summary_ns
            }
        }
    }

    /// The cost of any chunk, from what a passing one costs lazy look-up.
    pub(super) fn lazy(&self, passing_ns: f64, prices: &Prices) -> f64 {
        self.passing * passing_ns + (1.0 - self.passing) * prices.summary_ns
    }
}

/// What was counted since a stretch began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretch {
    pub(super) counters: FilterCounters,
    /// Different fingerprints that waited then.
    pub(super) waiting_before: usize,
}

impl Stretch {
    pub(super) fn starting_with(waiting_before: usize) -> Self {
        Self { counters: FilterCounters::default(), waiting_before }
    }

    pub(super) fn time_ns(&self, costs: &DeviceCosts) -> f64 {
        time_ns(&self.counters, costs)
    }

    pub(super) fn passing(&self) -> f64 {
        self.counters.lookups.saturating_sub(self.counters.summary_negatives) as f64
    }

    /// Chunks that left the buffer.
    fn left(&self, waiting: usize) -> usize {
        let entered = usize::try_from(self.counters.fingerprints_buffered).unwrap_or(usize::MAX);
        self.waiting_before.saturating_add(entered).saturating_sub(waiting)
    }

    /// Whether the stretch says what its way costs: accesses of the device come as they like, so
    /// their number has an error of its square root; and what came into the buffer has left it.
    pub(super) fn suffices(&self, costs: &DeviceCosts, waiting: usize) -> bool {
        let accesses = self.counters.device_reads().max(1) as f64;
        let error_ns = accesses.sqrt() * costs.device_read_ns as f64;
        let entered = usize::try_from(self.counters.fingerprints_buffered).unwrap_or(usize::MAX);
        error_ns <= ERROR_MAX * self.time_ns(costs) && self.left(waiting) >= entered / 2
    }

    /// What a passing chunk cost under eager look-up, as if the cache had come first; `None` if
    /// none passed.
    pub(super) fn eager_ns(&self, prices: &Prices) -> Option<f64> {
        let counters = &self.counters;
        let passing = self.passing();
        let misses = passing - counters.cache_hits as f64;
        let sum = prices.device_ns * counters.device_reads() as f64
            + prices.memory_ns * counters.fingerprints_prefetched as f64
            + prices.cache_ns * passing
            + prices.summary_ns * misses;
        (passing > 0.0).then(|| sum / passing)
    }

    /// Hits in the cache for each passing chunk under eager look-up.
    pub(super) fn eager_hits(&self) -> Option<f64> {
        let passing = self.passing();
        (passing > 0.0).then(|| self.counters.cache_hits as f64 / passing)
    }

    /// What a passing chunk cost under lazy look-up.
    pub(super) fn lazy_ns(&self, prices: &Prices, waiting: usize) -> Option<f64> {
        let counters = &self.counters;
        let passing = self.passing();
        let at_once = (prices.summary_ns + prices.cache_ns) * passing
            + prices.memory_ns * counters.fingerprints_buffered as f64;
        let later = prices.device_ns * counters.device_reads() as f64
            + prices.memory_ns * (counters.post_lookups + counters.fingerprints_prefetched) as f64;
        (passing > 0.0).then(|| (at_once + later * self.scale(waiting)) / passing)
    }

    /// The least a passing chunk of this stretch, which was looked up lazily, costs under eager
    /// look-up, and the hits in the cache it would then have at most.
    pub(super) fn eager_at_least(&self, prices: &Prices, waiting: usize) -> Option<(f64, f64)> {
        let counters = &self.counters;
        let passing = self.passing();
        let scale = self.scale(waiting);
        let prefetched = counters.containers_prefetched as f64 * scale;
        let asked = (prefetched + counters.index_misses as f64 * scale).min(passing);
        let reads = prefetched + asked + counters.verification_reads as f64 * scale;
        let sum = prices.device_ns * reads
            + prices.memory_ns * counters.fingerprints_prefetched as f64 * scale
            + prices.cache_ns * passing
            + prices.summary_ns * asked;
        (passing > 0.0).then(|| (sum / passing, 1.0 - asked / passing))
    }

    fn scale(&self, waiting: usize) -> f64 {
        let entered = self.counters.fingerprints_buffered as f64;
        let left = self.left(waiting) as f64;
        if entered == 0.0 {
            1.0
        } else {
            (entered / left.max(1.0)).clamp(1.0 / SCALE_MAX, SCALE_MAX)
        }
    }
}
