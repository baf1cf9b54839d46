//! What the automatic choice knows and why it chose as it did, for people and for tests.

use super::Auto;
use crate::accelerated_filter::FilterOrder;
use crate::lookup::parameters::DeviceCosts;

/// A way of looking up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// At once, in this order.
    Eager(FilterOrder),
    /// Lazily, with a second look, and with this bucket threshold.
    Lazy {
        /// Fingerprints of a bucket that are located together.
        bucket_threshold: usize,
    },
}

/// stub
#[derive(Clone, Debug)]
pub struct AutoReport {
    /// now
    pub choice: Choice,
    /// costs
    pub costs: DeviceCosts,
    /// debugging
    pub text: String,
}

impl AutoReport {
    pub(super) fn new(auto: &Auto) -> Self {
        let choice = match super::WAYS[auto.current] {
            super::Way::Eager => Choice::Eager(auto.order),
            super::Way::Lazy(bucket_threshold) => Choice::Lazy { bucket_threshold },
        };
        let text = format!(
            "{:?} {:?} {:?} excess {:.3} know {:?}",
            choice,
            auto.rates,
            auto.mix,
            auto.excess_ns / auto.total_ns,
            auto.knowledge.map(|k| k.correction.map(|r| (r * 100.0) as i32))
        );
        Self { choice, costs: auto.parameters.costs, text }
    }
}

impl std::fmt::Display for AutoReport {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.text)
    }
}
