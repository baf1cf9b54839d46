//! The two bounds of a threshold: what may be stored again, and what may be read.
//!
//! Algorithm: FAST'19, section 3.2 (S2.11 to S2.16); shared by FCRC, which computes them for each
//! segment, and by the look-back window, which computes them for each moving cycle.
//!
//! 1. Loss: to lose at most `x` of the ratio, `N_unique * x / (1 - x)` chunks may be rewritten in
//!    all. They are spread evenly over the stream; what a segment leaves is credit for later ones,
//!    and nothing is borrowed from the future. `RC_rw` is the count at which the containers, added
//!    from the least used on, reach what may be rewritten now.
//! 2. Reads: each segment may refer to `Cap` old containers, with credit and debt. `RC_reads` is
//!    the count of the last container, from the most used on, that may be referred to now; 0 if all
//!    may.
//! 3. The threshold is `RC_rw` if it is the smaller one: the loss comes first. Otherwise it stays
//!    if it lies between the two, and is their middle if it does not; also if `RC_reads` is 0. Who
//!    asks for nothing to be rewritten then gets a threshold of 0 ([`RewriteParameters`]).
//!
//! What the publication leaves open: without a limit for reads the threshold is `RC_rw`, without
//! one for the loss it is `RC_reads`. The share of the stream that has passed is measured in
//! chunks, not in segments, so that a short segment earns a short segment's credit. `N_unique` is
//! that of the previous version, or of the stream itself where it has exceeded that; without a
//! previous version it grows with the stream (the "short run" of section 3.2). The limit holds for
//! what was really stored: equal chunks count once there, though each time in a container's count.
//!
//! If the owner says what all versions before stored, the loss is that of the whole store: a
//! version may rewrite for its own unique chunks, and an eighth of what the versions before left.
//! The paper's estimate lets the second version spend what the first one's unique chunks allow,
//! when hardly anything is torn yet, and leaves next to nothing for later ones; it is had by
//! `budget=version` ([`RewriteLimits::by_version`](super::parameters::RewriteLimits)).
//!
//! Invariant: [`Budget::credit`] never lets more be rewritten than the loss allows for the larger
//! one of the expected and the actual number of unique chunks, those of versions before included.

use super::RewriteCounters;
use super::parameters::{Before, Expected, RewriteParameters};

/// What may be stored again (step 1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Chunks that may be rewritten for each unique one; `None`: any number.
    rate: Option<f64>,
    expected: Option<Expected>,
    before: Option<Before>,
}

impl Budget {
    pub(super) fn new(parameters: &RewriteParameters) -> Self {
        let rate = parameters.loss_max.map(|loss| loss / (1.0 - loss));
        Self { rate, expected: parameters.expected, before: parameters.before }
    }

    /// The same, where what the first version of all stored is for several versions to come.
    pub(super) fn spread(mut self) -> Self {
        if let Some(expected) = &mut self.expected
            && expected.unique_chunks > expected.chunks / 2
        {
            expected.unique_chunks = (expected.unique_chunks as f64 / VERSIONS_AHEAD) as u64;
        }
        self
    }

    /// Whether there is a limit.
    pub(super) fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// Chunks that may be rewritten now.
    pub(super) fn credit(&self, counters: &RewriteCounters) -> u64 {
        self.credit_ahead(counters, 0)
    }

    /// Chunks that may be rewritten until so many more have passed, as far as can be foreseen.
    pub(super) fn credit_ahead(&self, counters: &RewriteCounters, ahead: u64) -> u64 {
        let Some(rate) = self.rate else {
            return u64::MAX;
        };
        let position = counters.chunks.saturating_add(ahead) as f64;
        let passed = match self.expected {
            Some(expected) => (position / expected.chunks.max(1) as f64).min(1.0),
            None => 1.0,
        };
        let unique = match (self.before, self.expected) {
            // What the stream itself adds, and a part of what others left.
            (Some(before), _) => {
                let left = before.unique_chunks as f64 - before.rewritten_chunks as f64 / rate;
                counters.unique as f64 + passed * left.max(0.0) / VERSIONS_AHEAD
            }
            (None, Some(expected)) => {
                (expected.unique_chunks as f64 * passed).max(counters.unique as f64)
            }
            (None, None) => counters.unique as f64 * position / counters.chunks.max(1) as f64,
        };
        ((rate * unique + ROUNDING) as u64).saturating_sub(counters.rewritten)
    }

    /// Chunks that may be rewritten in the whole stream, if it is as long as expected.
    pub(super) fn total(&self, counters: &RewriteCounters) -> u64 {
        let length = self.expected.map_or(counters.chunks, |expected| expected.chunks);
        let ahead = length.saturating_sub(counters.chunks);
        self.credit_ahead(counters, ahead).saturating_add(counters.rewritten)
    }
}

/// What earlier versions left is spread over so many later ones.
const VERSIONS_AHEAD: f64 = 8.0;

/// 7 % of 93 is 7 chunks, whatever binary fractions say.
const ROUNDING: f64 = 1e-6;

/// How many old containers may be read (step 2).
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAllowance {
    /// Old containers for each byte of the stream; `None`: no limit is asked for.
    per_byte: Option<f64>,
}

impl ReadAllowance {
    pub(super) fn new(parameters: &RewriteParameters) -> Self {
        let segment_bytes = parameters.segment_bytes() as f64;
        Self { per_byte: parameters.reads_max.map(|reads| reads / segment_bytes) }
    }

    /// Old containers that may be referred to now; may be below 0.
    pub(super) fn allowed(&self, counters: &RewriteCounters) -> Option<f64> {
        Some(
            self.per_byte? * counters.chunk_bytes as f64 - counters.containers_referred as f64
                + ROUNDING,
        )
    }
}

/// Both limits, and the threshold between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) budget: Budget,
    reads: ReadAllowance,
    only_beyond_reads: bool,
}

/// The two bounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct BoundPair {
    pub(super) rewrite: f64,
    /// `None` if no limit is asked for.
    pub(super) read: Option<f64>,
}

impl Bounds {
    pub(super) fn new(parameters: &RewriteParameters) -> Self {
        Self {
            budget: Budget::new(parameters),
            reads: ReadAllowance::new(parameters),
            only_beyond_reads: parameters.only_beyond_reads,
        }
    }

    /// Both bounds for containers that are used so often, ascending.
    pub(super) fn pair(&self, ascending: &[u32], counters: &RewriteCounters) -> BoundPair {
        let rewrite = rewrite_bound(ascending, self.budget.credit(counters));
        let allowed = self.reads.allowed(counters);
        BoundPair { rewrite, read: allowed.map(|allowed| read_bound(ascending, allowed)) }
    }

    /// Step 3, before what a policy makes of it: `Err` is the threshold itself, because there is
    /// no choice; `Ok` is one between the bounds.
    pub(super) fn between(&self, pair: BoundPair, previous: f64) -> Result<f64, f64> {
        match pair.read {
            None => Err(pair.rewrite),
            Some(read) if self.only_beyond_reads && read <= 0.0 => Err(0.0),
            Some(read) if !self.budget.is_limited() => Err(read),
            Some(read) if pair.rewrite < read => Err(pair.rewrite),
            Some(read) if read < previous && previous < pair.rewrite => Ok(previous),
            Some(read) => Ok((read + pair.rewrite) / 2.0),
        }
    }
}

/// `RC_rw`: the count at which the sum reaches the limit; above all counts if it never does.
pub(super) fn rewrite_bound(ascending: &[u32], limit: u64) -> f64 {
    let mut sum = 0u64;
    for count in ascending {
        sum = sum.saturating_add(u64::from(*count));
        if sum >= limit {
            return f64::from(*count);
        }
    }
    above_all(ascending)
}

/// `RC_reads`: the count of the container at which the allowance is used up.
pub(super) fn read_bound(ascending: &[u32], allowed: f64) -> f64 {
    if allowed < 1.0 {
        return above_all(ascending);
    }
    if allowed >= ascending.len() as f64 {
        return 0.0;
    }
    ascending.iter().rev().nth(allowed as usize - 1).map_or(0.0, |count| f64::from(*count))
}

fn above_all(ascending: &[u32]) -> f64 {
    f64::from(ascending.last().copied().unwrap_or(0)) + 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_14_the_rewrite_bound_is_where_the_sum_reaches_the_limit() {
        let counts = [1, 2, 2, 5, 40];
        assert_eq!(rewrite_bound(&counts, 0), 1.0);
        assert_eq!(rewrite_bound(&counts, 4), 2.0);
        assert_eq!(rewrite_bound(&counts, 6), 5.0);
        assert_eq!(rewrite_bound(&counts, 50), 40.0);
        assert_eq!(rewrite_bound(&counts, 51), 41.0);
        assert_eq!(rewrite_bound(&[], 3), 1.0);
    }

    #[test]
    fn s2_15_the_read_bound_is_the_count_of_the_last_container_allowed() {
        let counts = [1, 2, 2, 5, 40];
        assert_eq!(read_bound(&counts, -3.0), 41.0);
        assert_eq!(read_bound(&counts, 1.0), 40.0);
        assert_eq!(read_bound(&counts, 2.5), 5.0);
        assert_eq!(read_bound(&counts, 4.0), 2.0);
        assert_eq!(read_bound(&counts, 5.0), 0.0);
    }

    #[test]
    fn s2_11_and_s2_13_credit_grows_evenly_and_is_never_borrowed() {
        let parameters = RewriteParameters {
            loss_max: Some(0.07),
            expected: Some(Expected { chunks: 1000, unique_chunks: 930 }),
            ..RewriteParameters::default()
        };
        let budget = Budget::new(&parameters);
        let at = |chunks, rewritten| RewriteCounters { chunks, rewritten, ..Default::default() };
        assert_eq!(budget.total(&at(0, 0)), 70);
        // Ten segments: H_rw is 7.
        assert_eq!(budget.credit(&at(100, 0)), 7);
        assert_eq!(budget.credit(&at(200, 3)), 11);
        assert_eq!(budget.credit(&at(300, 14)), 7);
        assert_eq!(budget.credit(&at(1000, 70)), 0);
        // A longer stream than expected gets no more, unless it really had more unique chunks.
        assert_eq!(budget.credit(&at(5000, 70)), 0);
        let more = RewriteCounters { unique: 1860, ..at(5000, 70) };
        assert_eq!(budget.credit(&more), 70);
    }

    #[test]
    fn s2_16_the_loss_comes_first_and_a_threshold_between_the_bounds_stays() {
        let parameters = RewriteParameters {
            loss_max: Some(0.07),
            reads_max: Some(20.0),
            ..RewriteParameters::default()
        };
        let bounds = Bounds::new(&parameters);
        let pair = |rewrite, read| BoundPair { rewrite, read: Some(read) };
        assert_eq!(bounds.between(pair(3.0, 5.0), 4.0), Err(3.0));
        assert_eq!(bounds.between(pair(9.0, 5.0), 6.0), Ok(6.0));
        assert_eq!(bounds.between(pair(9.0, 5.0), 2.0), Ok(7.0));
        assert_eq!(bounds.between(BoundPair { rewrite: 9.0, read: None }, 2.0), Err(9.0));
        // The middle, though all reads are allowed; unless that is reason enough to do nothing.
        assert_eq!(bounds.between(pair(9.0, 0.0), 0.0), Ok(4.5));
        let bounds =
            Bounds::new(&RewriteParameters { only_beyond_reads: true, ..parameters.clone() });
        assert_eq!(bounds.between(pair(9.0, 0.0), 0.0), Err(0.0));
        assert_eq!(bounds.between(pair(9.0, 5.0), 2.0), Ok(7.0));
    }
}
