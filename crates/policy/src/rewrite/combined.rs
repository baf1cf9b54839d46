//! The default: rewrite where a read costs least, by all that is known.
//!
//! An algorithm of this project. It takes from capping that use is judged area by area, from the
//! look-back window the candidate cache and its limit, from HAR the history.
//!
//! 1. An area is as much of the stream as any restore holds at once, from the stream's beginning
//!    on, so that an old container that an area uses is one read. Its price is the bytes that have
//!    to be stored again to save it. It is lower if the previous version used nothing else of the
//!    container: then the container is never read again. It is not if the container is kept
//!    elsewhere.
//! 2. What may be stored again is for the whole stream, not for each area. The [`forecast`] says at
//!    which prices reads can be saved in the rest of the stream: by what the previous version used
//!    of each container, and by what this one used so far. Paid now is the price at which now and
//!    the rest together use up what is left. So stretches that are torn get what stretches that are
//!    whole do not need, and nothing is spent on the dear before the cheap has come.
//! 3. At the area's end containers are rewritten in the order of their price, up to that price, and
//!    at the very price in proportion. Counts are small numbers, so whole thresholds would leave
//!    much unspent where many containers hold a few chunks each.
//!
//! Why not the window that slides: containers that are used all the time, a little, are kept for
//! ever by their own kept chunks, though no cache holds them. Why not a bound for each segment: it
//! pays too much in whole stretches and has too little in torn ones.
//!
//! If the candidates' bytes exceed their limit, those of the containers that the area uses most are
//! kept. Containers of which an area uses half are kept. With a limit for reads, no more is
//! rewritten than it takes; with that alone, even containers of which much is used.
//!
//! Invariants: those of [`super`]; no more chunks are rewritten than the loss allows in all, and
//! without a history no more than it allows at any time.

mod forecast;

use super::bounds::{Budget, ReadAllowance};
use super::parameters::RewriteParameters;
use super::recipe_cache::{Cost, RecipeCache, SureUse};
use super::{Candidate, Decided, DuplicateStatus, RewriteCounters, StreamChunk, UnitId};
use forecast::{Forecast, Limit, Prices, Rest, bucket_of, first_price_of};

/// An area is this part of the window. Restores divide their memory in different ways, and begin
/// anywhere: on generated workloads half a window is at most 6 % behind a whole one for a forward
/// assembly of a window's size that begins where the areas begin, and up to 25 % ahead otherwise.
const AREAS_OF_WINDOW: u64 = 2;

/// A container of which an area uses more than one in so many is not worth rewriting.
const DENSE_PART: u64 = 2;

/// The combined policy for one stream.
#[derive(Debug)]
pub(super) struct Combined {
    parameters: RewriteParameters,
    area_bytes: u64,
    area_filled_bytes: u64,
    budget: Budget,
    reads: ReadAllowance,
    forecast: Forecast,
    cache: RecipeCache,
    /// What the last areas might have spent at the highest price and did not.
    carried_bytes: f64,
}

/// A container that an area uses.
#[derive(Clone, Copy, Debug)]
struct Visit {
    id: UnitId,
    price: u64,
    container: u32,
    cost: Cost,
}

/// What a read that is saved costs: `share` is how much of what the version uses of the container
/// is stored again. If that is all, the container is never read, whatever the restore caches.
fn price(bytes: u64, share: f64, whole_worth: f64) -> u64 {
    (bytes as f64 / (1.0 + whole_worth * share)) as u64
}

impl Combined {
    pub(super) fn new(parameters: RewriteParameters) -> Self {
        let forecast = match &parameters.history {
            Some(history) => {
                Forecast::new(history, |bytes, share| price(bytes, share, parameters.whole_worth))
            }
            None => Forecast::default(),
        };
        let area_containers = (parameters.window_containers as u64).div_ceil(AREAS_OF_WINDOW);
        Self {
            area_bytes: parameters.container_bytes.saturating_mul(area_containers),
            area_filled_bytes: 0,
            budget: Budget::new(&parameters).spread(),
            reads: ReadAllowance::new(&parameters),
            forecast,
            cache: RecipeCache::default(),
            carried_bytes: 0.0,
            parameters,
        }
    }

    pub(super) fn push(
        &mut self,
        chunk: &StreamChunk<'_>,
        decided: &mut Vec<Decided>,
        counters: &mut RewriteCounters,
    ) -> Option<Candidate> {
        let candidate = match chunk.status {
            DuplicateStatus::Old(instances) => {
                let dense_bytes = self.dense_bytes();
                let keeps = |used: SureUse| used.bytes > dense_bytes;
                Some(self.cache.push(chunk, instances, keeps, counters))
            }
            DuplicateStatus::Unique | DuplicateStatus::Fresh(()) => {
                self.cache.pass(chunk.size_bytes);
                None
            }
        };
        self.area_filled_bytes += u64::from(chunk.size_bytes);
        if self.area_filled_bytes >= self.area_bytes {
            self.finish(decided, counters);
        } else if self.cache.candidates_bytes() > self.parameters.candidates_bytes_max {
            let before = self.cache.candidates();
            self.cache.close_block(decided, counters);
            let bytes_max = self.parameters.candidates_bytes_max;
            self.cache.keep_most_used(bytes_max, decided, counters);
            counters.forced += before - self.cache.candidates();
        }
        candidate
    }

    /// A container of which an area uses more is kept, unless reads are to be saved at any price.
    fn dense_bytes(&self) -> u64 {
        match self.parameters.loss_max {
            Some(_) => self.parameters.container_bytes / DENSE_PART,
            None => u64::MAX,
        }
    }

    pub(super) fn waiting(&self) -> u64 {
        self.cache.candidates()
    }

    pub(super) fn finish(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        if self.area_filled_bytes == 0 {
            return;
        }
        self.decide_area(decided, counters);
        while self.cache.blocks() > 0 {
            self.cache.evict_block();
        }
        self.area_filled_bytes = 0;
        counters.segments += 1;
    }

    fn decide_area(&mut self, decided: &mut Vec<Decided>, counters: &mut RewriteCounters) {
        self.cache.close_block(decided, counters);
        let mut visits = self.visits();
        visits.sort_unstable_by_key(|visit| (visit.price, visit.container));
        let limit = self.limit(&visits, counters);
        let dense_bytes = self.dense_bytes();
        let needed = self.needed(visits.len(), counters);
        let mut credit = self.credit(counters);
        let mut marginal_bytes = limit.marginal_bytes + self.carried_bytes;
        for (rank, visit) in visits.iter().enumerate() {
            let bucket = bucket_of(visit.price);
            let is_marginal = bucket == limit.bucket;
            let is_cheap =
                bucket < limit.bucket || is_marginal && visit.cost.bytes as f64 <= marginal_bytes;
            let is_wanted = is_cheap && visit.cost.bytes <= dense_bytes && rank < needed;
            if is_wanted && visit.cost.chunks <= credit {
                if is_marginal {
                    marginal_bytes -= visit.cost.bytes as f64;
                }
                credit -= visit.cost.chunks;
                self.cache.rewrite_all(visit.container, decided, counters);
                self.forecast.decided(&visit.id, Some(visit.cost.bytes));
            } else {
                let count = self.cache.candidates_of(visit.container) as u64;
                counters.kept_by_limit += if is_wanted { count } else { 0 };
                self.cache.keep_all(visit.container, decided, counters);
            }
        }
        self.note_kept();
        self.carried_bytes = marginal_bytes.min(self.parameters.container_bytes as f64);
    }

    /// Tells the forecast which containers this version refers to for good.
    fn note_kept(&mut self) {
        for container in 0..self.cache.container_count() {
            if self.cache.count(container) > 0
                && let Some(id) = self.cache.container_id(container)
            {
                self.forecast.decided(&id, None);
            }
        }
    }

    /// The highest price that is paid now.
    fn limit(&mut self, visits: &[Visit], counters: &mut RewriteCounters) -> Limit {
        let mut now = Prices::default();
        for visit in visits {
            now.add(visit.price, visit.cost.bytes);
            self.forecast.observe(&visit.id, visit.cost.bytes, visit.price);
        }
        let mean_bytes = counters.chunk_bytes as f64 / counters.chunks.max(1) as f64;
        let (left, rest) = self.left(counters);
        let limit = self.forecast.limit(&now, left as f64 * mean_bytes, rest);
        counters.set_threshold(first_price_of(limit.bucket) as f64 / mean_bytes.max(1.0));
        limit
    }

    /// Containers that have to be rewritten for the limit of reads: the cheapest, as far as the
    /// loss allows. Without such a limit all may be.
    fn needed(&self, visits: usize, counters: &RewriteCounters) -> usize {
        match self.reads.allowed(counters) {
            Some(allowed) => visits.saturating_sub(allowed.max(0.0) as usize),
            None => visits,
        }
    }

    fn visits(&self) -> Vec<Visit> {
        (0..self.cache.container_count())
            .filter(|container| self.cache.candidates_of(*container) > 0)
            .filter_map(|container| {
                let id = self.cache.container_id(container)?;
                let cost = self.cache.cost(container);
                let share = self.forecast.share(&id, cost.bytes);
                let price = price(cost.bytes, share, self.parameters.whole_worth);
                Some(Visit { id, price, container, cost })
            })
            .collect()
    }

    /// Chunks that may be rewritten in the rest of the stream, and what the rest is. A stream of
    /// unknown length is taken to be half over.
    fn left(&self, counters: &RewriteCounters) -> (u64, Rest) {
        let passed_bytes = counters.chunk_bytes as f64;
        let Some(expected) = self.parameters.expected else {
            let left = self.budget.credit_ahead(counters, counters.chunks);
            return (left, Rest { bytes: passed_bytes, repetition: 1.0 });
        };
        let left = self.budget.total(counters).saturating_sub(counters.rewritten);
        let rest = expected.chunks.saturating_sub(counters.chunks) as f64;
        let repetition = rest / counters.chunks.max(1) as f64;
        (left, Rest { bytes: repetition * passed_bytes, repetition })
    }

    fn credit(&self, counters: &RewriteCounters) -> u64 {
        if self.parameters.history.is_some() && self.parameters.expected.is_some() {
            self.budget.total(counters).saturating_sub(counters.rewritten)
        } else {
            self.budget.credit(counters)
        }
    }
}
