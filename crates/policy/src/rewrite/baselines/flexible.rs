//! FCRC: a segment refers to old containers that it uses often enough.
//!
//! Algorithm: FAST'19, section 3.2 (S2.10 to S2.16). As capping, but what decides is not a
//! container's rank but its count: duplicates in containers that hold fewer chunks of the segment
//! than a threshold are rewritten. The threshold is set anew for each segment, between the two
//! [`bounds`](super::bounds).
//!
//! What the publication leaves open: a threshold that is fixed (for experiments) is bounded by the
//! loss only if a loss is asked for; then the least used containers are rewritten first.
//!
//! Invariant: no more chunks are rewritten than the credit of the segment.

use super::segment::Use;
use crate::rewrite::RewriteCounters;
use crate::rewrite::bounds::Bounds;
use crate::rewrite::parameters::RewriteParameters;

/// What FCRC remembers from segment to segment.
#[derive(Debug)]
pub(in crate::rewrite) struct Flexible {
    bounds: Bounds,
    threshold_fixed: Option<u32>,
}

impl Flexible {
    pub(in crate::rewrite) fn new(parameters: &RewriteParameters) -> Self {
        Self { bounds: Bounds::new(parameters), threshold_fixed: parameters.threshold_fixed }
    }

    /// The containers of a segment whose chunks are rewritten; `uses` are sorted, most used first.
    pub(in crate::rewrite) fn below(
        &mut self,
        uses: &[Use],
        counters: &mut RewriteCounters,
    ) -> Vec<u32> {
        let threshold = match self.threshold_fixed {
            Some(threshold) => f64::from(threshold),
            None => {
                let ascending: Vec<u32> = uses.iter().rev().map(|used| used.count).collect();
                let pair = self.bounds.pair(&ascending, counters);
                counters.rewrite_bound = pair.rewrite;
                counters.read_bound = pair.read.unwrap_or(0.0);
                match self.bounds.between(pair, counters.threshold) {
                    Ok(threshold) | Err(threshold) => threshold,
                }
            }
        };
        counters.set_threshold(threshold);
        let mut credit = self.bounds.budget.credit(counters);
        let mut rewritten = Vec::new();
        for used in uses.iter().rev() {
            if f64::from(used.count) >= counters.threshold {
                break;
            }
            let cost = u64::from(used.distinct);
            if cost > credit {
                counters.kept_by_limit += u64::from(used.count);
                continue;
            }
            credit -= cost;
            rewritten.push(used.container);
        }
        rewritten
    }
}
