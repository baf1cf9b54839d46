//! What a stretch of the stream costs in the way in which it was looked up, and in the other.
//!
//! Costs are those of the corrected model ([`crate::cost_model`]). Both follow from what the stream
//! *demands*, which both ways count alike: chunks that pass the summary vector, containers whose
//! fingerprints are needed, chunks the index does not know. What a way makes of a demand is a ratio
//! that is measured while it is in use:
//!
//! - Eager look-up reads some containers again and again, because its cache has dropped them when
//!   the stream comes back to them. Lazy look-up reads such a container once, for all chunks that
//!   wait for it. So under eager look-up the containers *needed* are the different ones in a
//!   stretch as long as the buffer, and the ratio is how often each was read.
//! - Eager look-up asks the index for each of them and for each unknown chunk; lazy look-up asks
//!   for a bucket at once, and the ratio is accesses for each of the same questions. It also spends
//!   accesses of memory on chunks that wait.
//!
//! A stretch of lazy look-up leaves chunks waiting whose accesses of the device are still to come;
//! they are taken to cost what those did that have left the buffer, if these are as many. If not,
//! the index might be asked for each that waits, which is the most that eager look-up could cost.

use crate::accelerated_filter::{FilterConfiguration, FilterCounters, FilterOrder};
use crate::cost_model::time_ns;
use crate::lookup::parameters::DeviceCosts;
use onefold_types::ContainerId;
use std::collections::BTreeSet;

/// Questions that share an access of the device under lazy look-up before it has been tried, and
/// how many questions that guess weighs.
const BATCH_ASSUMED: f64 = 8.0;
/// Accesses of memory that lazy look-up is taken to spend on each chunk that passes before it has
/// been tried, for buffer and post-lookups.
const WAITING_ASSUMED: f64 = 2.0;

/// A way of looking up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Eager,
    Lazy,
}

impl Way {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Eager => Self::Lazy,
            Self::Lazy => Self::Eager,
        }
    }
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
#[derive(Clone, Debug, Default)]
pub(super) struct Stretch {
    pub(super) counters: FilterCounters,
    /// Different fingerprints that waited then.
    pub(super) waiting_before: usize,
    /// The containers that eager look-up has read.
    pub(super) read: BTreeSet<ContainerId>,
}

impl Stretch {
    pub(super) fn starting_with(waiting_before: usize) -> Self {
        Self { waiting_before, ..Self::default() }
    }

    pub(super) fn time_ns(&self, costs: &DeviceCosts) -> f64 {
        time_ns(&self.counters, costs)
    }

    /// Chunks that began to wait, and chunks that left the buffer.
    fn entered_and_left(&self, waiting: usize) -> (u64, u64) {
        let entered = self.counters.fingerprints_buffered;
        let before = self.waiting_before as u64;
        (entered, before.saturating_add(entered).saturating_sub(waiting as u64))
    }

    /// Whether of the chunks that began to wait at least every second one has left, or as many.
    pub(super) fn is_representative(&self, waiting: usize) -> bool {
        let (entered, left) = self.entered_and_left(waiting);
        left.saturating_mul(2) >= entered
    }
}

/// What the stream demands, whichever way it is looked up.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    lookups: f64,
    passing: f64,
    /// Containers that had to be read, and the fingerprints in them.
    needed: f64,
    filled: f64,
    /// Containers read to check a hint, and chunks the index did not know.
    verified: f64,
    misses: f64,
}

/// What eager look-up made of it.
#[derive(Clone, Copy, Debug, Default)]
struct Eager {
    needed: f64,
    prefetched: f64,
    questions: f64,
    pages: f64,
}

/// What lazy look-up made of it.
#[derive(Clone, Copy, Debug, Default)]
struct Lazy {
    questions: f64,
    pages: f64,
    passing: f64,
    waited: f64,
}

/// What is known of a stream: counts, the older the less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    demand: Demand,
    eager: Eager,
    lazy: Lazy,
}

impl Known {
    pub(super) fn is_nothing(&self) -> bool {
        self.demand.passing <= 0.0
    }

    /// After a stretch; what was known before counts `weight` as much as what was counted now.
    pub(super) fn after(&self, stretch: &Stretch, way: Way, waiting: usize, weight: f64) -> Self {
        let counters = &stretch.counters;
        let (entered, left) = stretch.entered_and_left(waiting);
        let (scale, unknown) = match way {
            Way::Lazy if !stretch.is_representative(waiting) => (1.0, waiting as f64),
            Way::Lazy if left > 0 => (entered as f64 / left as f64, 0.0),
            _ => (1.0, 0.0),
        };
        let later = |count: u64| count as f64 * scale;
        let prefetched = later(counters.containers_prefetched);
        let needed = if way == Way::Eager { stretch.read.len() as f64 } else { prefetched };
        let part = if prefetched > 0.0 { needed / prefetched } else { 1.0 };
        let passing = counters.lookups.saturating_sub(counters.summary_negatives) as f64;
        let misses = later(counters.index_misses) + unknown;
        let pages = later(counters.index_page_reads);
        let sum = |old: f64, new: f64| old * weight + new;
        let old = self.demand;
        let beside = counters.verification_reads + counters.proof_reads;
        let demand = Demand {
            lookups: sum(old.lookups, counters.lookups as f64),
            passing: sum(old.passing, passing),
            needed: sum(old.needed, needed),
            filled: sum(old.filled, later(counters.fingerprints_prefetched) * part),
            verified: sum(old.verified, later(beside.saturating_sub(counters.sections_kept))),
            misses: sum(old.misses, misses),
        };
        let (mut eager, mut lazy) = (self.eager, self.lazy);
        match way {
            Way::Eager => {
                eager = Eager {
                    needed: sum(eager.needed, needed),
                    prefetched: sum(eager.prefetched, prefetched),
                    questions: sum(eager.questions, prefetched + misses),
                    pages: sum(eager.pages, pages),
                }
            }
            Way::Lazy => {
                lazy = Lazy {
                    questions: sum(lazy.questions, needed + misses),
                    pages: sum(lazy.pages, pages),
                    passing: sum(lazy.passing, passing),
                    waited: sum(lazy.waited, entered as f64 + later(counters.post_lookups)),
                }
            }
        }
        Self { demand, eager, lazy }
    }

    /// How often eager look-up reads a container that lazy look-up reads once.
    fn readings(&self) -> f64 {
        (self.eager.prefetched + 1.0) / (self.eager.needed + 1.0)
    }

    fn pages_per_question(&self, way: Way) -> f64 {
        match way {
            Way::Eager => (self.eager.pages + 1.0) / (self.eager.questions + 1.0),
            Way::Lazy => (self.lazy.pages + 1.0) / (self.lazy.questions + BATCH_ASSUMED),
        }
    }

    fn waited_per_passing(&self) -> f64 {
        (self.lazy.waited + WAITING_ASSUMED) / (self.lazy.passing + 1.0)
    }

    /// What a look-up costs in a way, in nanoseconds.
    pub(super) fn cost(&self, way: Way, prices: &Prices) -> f64 {
        match way {
            Way::Eager => self.eager_cost(self.readings(), prices),
            Way::Lazy => {
                self.lazy_cost(self.pages_per_question(way), self.waited_per_passing(), prices)
            }
        }
    }

    /// The least that can be (S0.16): eager look-up cannot avoid to read what is needed, nor to ask
    /// for it; lazy look-up may ask with one access for all.
    pub(super) fn least(&self, way: Way, prices: &Prices) -> f64 {
        match way {
            Way::Eager => self.eager_cost(1.0, prices),
            Way::Lazy => self.lazy_cost(0.0, 0.0, prices),
        }
    }

    /// The standard error of what a look-up costs: accesses of the device come as they like, so
    /// the error of their number is its root.
    pub(super) fn error(&self, prices: &Prices) -> f64 {
        let Demand { lookups, needed, misses, .. } = self.demand;
        prices.device * (needed + misses + 1.0).sqrt() / lookups.max(1.0)
    }

    fn eager_cost(&self, readings: f64, prices: &Prices) -> f64 {
        let Demand { passing, needed, filled, verified, misses, .. } = self.demand;
        let passing = passing.max(1.0);
        let read = readings * needed / passing;
        let asked = (read + misses / passing).min(1.0);
        let device = asked * self.pages_per_question(Way::Eager) + read + verified / passing;
        let memory = readings * filled / passing;
        let variable = prices.device * device + prices.memory * memory + prices.summary * asked;
        self.mix().cost(Way::Eager, variable, prices)
    }

    fn lazy_cost(&self, pages_per_question: f64, waited: f64, prices: &Prices) -> f64 {
        let Demand { passing, needed, filled, verified, misses, .. } = self.demand;
        let passing = passing.max(1.0);
        let pages = pages_per_question * (needed + misses) / passing;
        let device = pages + (needed + verified) / passing;
        let variable = prices.device * device + prices.memory * (filled / passing + waited);
        self.mix().cost(Way::Lazy, variable, prices)
    }

    /// The share of chunks that pass, and of those the share that eager look-up finds in the cache.
    pub(super) fn mix(&self) -> Mix {
        let Demand { lookups, passing, needed, misses, .. } = self.demand;
        if passing <= 0.0 {
            return Mix { passing: if lookups > 0.0 { 0.0 } else { 1.0 }, hits: 1.0 };
        }
        let hits = 1.0 - (self.readings() * needed + misses) / passing;
        Mix { passing: passing / lookups, hits: hits.max(0.0) }
    }
}

#[cfg(test)]
mod tests;
