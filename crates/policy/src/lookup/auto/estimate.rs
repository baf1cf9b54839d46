//! What a way of looking up costs, and what another would, from what was counted over a stretch of
//! the stream.
//!
//! Costs are those of the corrected model ([`crate::cost_model`]), for one chunk that passes the
//! summary vector: what a refused chunk costs is known, and how many are refused is the stream's
//! doing. Each cost has a part that every chunk pays, one question to each helper, and a part that
//! depends on the stream; only the latter is estimated.
//!
//! A stretch of lazy look-up leaves chunks waiting whose accesses of the device are still to come;
//! they are taken to cost what those did that have left the buffer.

use crate::accelerated_filter::{FilterConfiguration, FilterCounters, FilterOrder};
use crate::cost_model::time_ns;
use crate::lookup::parameters::DeviceCosts;

/// The error of a stretch's cost that is small enough, relative to the cost.
const ERROR_MAX: f64 = 0.10;
/// The part of the cost that may still be to come.
const UNRESOLVED_MAX: f64 = 0.5;
/// The largest factor for what is still to come.
const SCALE_MAX: f64 = 4.0;
/// Fingerprints of a bucket that lazy look-up locates together: so many that a full buffer decides.
pub(super) const BUCKET_THRESHOLD: usize = 1024;
/// Fingerprints that lazy look-up is taken to locate at once before it has been tried.
const BATCH_ASSUMED: f64 = 8.0;
/// Accesses of memory it is taken to spend on each chunk that passes, for buffer and post-lookups.
const WAITING_ASSUMED: f64 = 2.0 - 4.0 / BUCKET_THRESHOLD as f64;

/// A way of looking up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Eager,
    Lazy,
}

/// What accesses cost, in nanoseconds; a helper that is switched off costs nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prices {
    device: f64,
    memory: f64,
    summary: f64,
    cache: f64,
    held: f64,
}

impl Prices {
    pub(super) fn new(costs: &DeviceCosts, configuration: FilterConfiguration) -> Self {
        let memory = costs.memory_access_ns as f64;
        let if_used = |used| if used { memory } else { 0.0 };
        Self {
            device: costs.device_read_ns as f64,
            memory,
            summary: if_used(configuration.summary_vector),
            cache: if_used(configuration.locality_cache),
            held: costs.held_chunk_ns as f64,
        }
    }

    /// What every passing chunk costs. Eager look-up is reckoned with the cache first.
    fn base(&self, way: Way) -> f64 {
        match way {
            Way::Eager => self.cache,
            Way::Lazy => self.cache + self.summary,
        }
    }
}

/// How much of what happened, for each chunk that passed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Accesses of the device for the index.
    pages: f64,
    /// Containers prefetched, and containers read to check a hint.
    prefetched: f64,
    verified: f64,
    /// Fingerprints put into the cache.
    filled: f64,
    /// Chunks the index did not know.
    misses: f64,
    /// Chunks that began to wait, and post-lookups.
    buffered: f64,
    post_lookups: f64,
    /// Hits in the cache of chunks that had just arrived.
    hits: f64,
}

impl Rates {
    /// The part of a passing chunk's cost that depends on the stream.
    pub(super) fn variable(&self, way: Way, prices: &Prices) -> f64 {
        let device = self.pages + self.prefetched + self.verified;
        let memory = self.filled + self.buffered + self.post_lookups;
        let asked = if way == Way::Eager { (1.0 - self.hits) * prices.summary } else { 0.0 };
        prices.device * device + prices.memory * memory + asked
    }

    /// The same for the way that was not counted: eager look-up reads every container that lazy
    /// look-up read, asks the index before each, and asks it for every chunk it does not know.
    pub(super) fn variable_of_other(&self, counted: Way, prices: &Prices) -> f64 {
        match counted {
            Way::Lazy => {
                let asked = (self.prefetched + self.misses).min(1.0);
                prices.device * (asked + self.prefetched + self.verified)
                    + prices.memory * self.filled
                    + prices.summary * asked
            }
            Way::Eager => {
                let pages = (1.0 - self.hits) / BATCH_ASSUMED;
                prices.device * (pages + self.prefetched + self.verified)
                    + prices.memory * (self.filled + WAITING_ASSUMED)
            }
        }
    }

    /// The least that can be (S0.16): what eager look-up cannot avoid, see above; lazy look-up may
    /// find in the cache all that it needs.
    pub(super) fn least_of_other(&self, counted: Way, prices: &Prices) -> f64 {
        match counted {
            Way::Lazy => self.variable_of_other(counted, prices),
            Way::Eager => 0.0,
        }
    }

    /// Hits in the cache under eager look-up.
    fn eager_hits(&self, counted: Way) -> f64 {
        match counted {
            Way::Eager => self.hits,
            Way::Lazy => (1.0 - self.prefetched - self.misses).max(0.0),
        }
    }

    /// Goes a part of the way towards newer rates.
    pub(super) fn approach(&mut self, newer: &Self, weight: f64) {
        let pairs = [
            (&mut self.pages, newer.pages),
            (&mut self.prefetched, newer.prefetched),
            (&mut self.verified, newer.verified),
            (&mut self.filled, newer.filled),
            (&mut self.misses, newer.misses),
            (&mut self.buffered, newer.buffered),
            (&mut self.post_lookups, newer.post_lookups),
            (&mut self.hits, newer.hits),
        ];
        for (old, new) in pairs {
            *old += weight * (new - *old);
        }
    }
}

/// What the stream consists of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    /// The share of chunks that pass the summary vector.
    pub(super) passing: f64,
    /// Hits in the cache for each of them, under eager look-up.
    pub(super) hits: f64,
}

impl Mix {
    /// The order that costs less: each spares one helper some questions.
    pub(super) fn order(&self, prices: &Prices) -> FilterOrder {
        let cache_spared = (1.0 - self.passing) * prices.cache;
        let summary_spared = self.passing * self.hits * prices.summary;
        if cache_spared > summary_spared {
            FilterOrder::FilterFirst
        } else {
            FilterOrder::CacheFirst
        }
    }

    /// The cost of any chunk, from the variable part of a passing one's.
    pub(super) fn cost(&self, way: Way, variable: f64, prices: &Prices) -> f64 {
        let passing = self.passing * (prices.base(way) + variable);
        let refused = 1.0 - self.passing;
        match (way, self.order(prices)) {
            (Way::Eager, FilterOrder::CacheFirst) => {
                passing + refused * (prices.cache + prices.summary)
            }
            (Way::Eager, FilterOrder::FilterFirst) => {
                passing + (self.passing * self.hits + refused) * prices.summary
            }
            // Some chunk waits nearly always, so all are held.
            (Way::Lazy, _) => passing + refused * prices.summary + prices.held,
        }
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

    /// Chunks that passed the summary vector or never came so far.
    fn passing(&self) -> f64 {
        self.counters.lookups.saturating_sub(self.counters.summary_negatives) as f64
    }

    /// Chunks that began to wait, and chunks that left the buffer.
    fn entered_and_left(&self, waiting: usize) -> (u64, u64) {
        let entered = self.counters.fingerprints_buffered;
        (
            entered,
            (self.waiting_before as u64).saturating_add(entered).saturating_sub(waiting as u64),
        )
    }

    /// Whether the stretch says what its way costs.
    pub(super) fn suffices(&self, costs: &DeviceCosts, waiting: usize) -> bool {
        let (entered, left) = self.entered_and_left(waiting);
        let later = self.later_ns(costs);
        let each = if left > 0 { later / left as f64 } else { costs.device_read_ns as f64 };
        let unresolved = entered.saturating_sub(left) as f64 * each;
        self.error_ns(costs) <= ERROR_MAX * self.time_ns(costs)
            && unresolved <= UNRESOLVED_MAX * self.time_ns(costs)
    }

    /// The standard error of the cost: accesses of the device come as they like, so the error of
    /// their number is its square root.
    pub(super) fn error_ns(&self, costs: &DeviceCosts) -> f64 {
        let accesses = self.counters.device_reads().max(1) as f64;
        self.later_ns(costs).max(costs.device_read_ns as f64) / accesses.sqrt()
    }

    /// What reading from the device has cost, with what the cache took in.
    fn later_ns(&self, costs: &DeviceCosts) -> f64 {
        self.counters.device_reads() as f64 * costs.device_read_ns as f64
            + self.counters.fingerprints_prefetched as f64 * costs.memory_access_ns as f64
    }

    /// The share of passing chunks.
    pub(super) fn mix(&self, hits: f64) -> Mix {
        Mix { passing: self.passing() / self.counters.lookups.max(1) as f64, hits }
    }

    /// What happened for each passing chunk, and the mix; no rates if none passed.
    pub(super) fn rates(&self, way: Way, waiting: usize) -> Option<(Rates, Mix)> {
        let passing = self.passing();
        if passing <= 0.0 {
            return None;
        }
        let (entered, left) = self.entered_and_left(waiting);
        let scale = match way {
            Way::Lazy if entered > 0 => {
                (entered as f64 / left.max(1) as f64).clamp(1.0 / SCALE_MAX, SCALE_MAX)
            }
            _ => 1.0,
        };
        let counters = &self.counters;
        let at_once = |count: u64| count as f64 / passing;
        let later = |count: u64| at_once(count) * scale;
        let rates = Rates {
            pages: later(counters.index_page_reads),
            prefetched: later(counters.containers_prefetched),
            verified: later(counters.verification_reads + counters.proof_reads),
            filled: later(counters.fingerprints_prefetched),
            misses: later(counters.index_misses),
            buffered: at_once(entered),
            post_lookups: later(counters.post_lookups),
            hits: at_once(counters.cache_hits),
        };
        Some((rates, self.mix(rates.eager_hits(way))))
    }
}

#[cfg(test)]
mod tests;
