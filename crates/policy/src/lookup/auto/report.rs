//! What the automatic choice knows and why it chose as it did, as a value and as a paragraph.

use super::{Auto, WAYS, Way};
use crate::accelerated_filter::FilterOrder;
use crate::cost_model::{CorrectedTerms, ModelTerms};
use crate::lookup::parameters::DeviceCosts;
use std::fmt;

/// A way of looking up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// At once, in this order.
    Eager(FilterOrder),
    /// Lazily, with a second look, as long a ring as can be, and this bucket threshold.
    Lazy {
        /// Fingerprints of a bucket that are located together.
        bucket_threshold: usize,
    },
}

/// What a way is taken to cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// The way.
    pub choice: Choice,
    /// Nanoseconds for each look-up.
    pub cost_ns: f64,
    /// Whether it was tried since the stream last changed; otherwise the model says so.
    pub was_tried: bool,
}

/// What the automatic choice knows.
#[derive(Clone, PartialEq, Debug)]
pub struct AutoReport {
    /// The way in use.
    pub choice: Choice,
    /// What accesses cost.
    pub costs: DeviceCosts,
    /// All ways and what they cost; empty before anything is known.
    pub candidates: Vec<Candidate>,
    /// The terms of (8), over the last stretches of eager and of lazy look-up, if there were both
    /// since the stream last changed.
    pub terms: Option<ModelTerms>,
    /// The ratio of costs from which on lazy look-up pays by the corrected model; as above, and
    /// `None` if it takes no fewer accesses of the device.
    pub break_even_ratio: Option<f64>,
    /// Look-ups, stretches spent on trials, and changes of the way.
    pub lookups: u64,
    /// Stretches in which another way was tried.
    pub trials: u64,
    /// How often another way took over.
    pub switches: u64,
}

impl AutoReport {
    pub(super) fn new(auto: &Auto) -> Self {
        let choice = |way| match way {
            Way::Eager => Choice::Eager(auto.mix.order(&auto.prices())),
            Way::Lazy(bucket_threshold) => Choice::Lazy { bucket_threshold },
        };
        let candidates = WAYS.into_iter().enumerate().filter_map(|(ordinal, way)| {
            let was_tried = ordinal == auto.current || auto.knowledge[ordinal].correction.is_some();
            Some(Candidate { choice: choice(way), cost_ns: auto.expected(ordinal)?, was_tried })
        });
        let counted = auto.eager_counted.as_ref().zip(auto.lazy_counted.as_ref());
        let scaled = |counters| {
            let terms = CorrectedTerms::new(counters);
            let lookups = counters.lookups.max(1) as f64;
            CorrectedTerms {
                device_accesses: terms.device_accesses / lookups,
                memory_accesses: terms.memory_accesses / lookups,
                chunks_held: terms.chunks_held / lookups,
            }
        };
        Self {
            choice: choice(WAYS[auto.current]),
            costs: auto.parameters.costs,
            candidates: candidates.collect(),
            terms: counted.map(|(eager, lazy)| ModelTerms::new(eager, lazy)),
            break_even_ratio: counted.and_then(|(eager, lazy)| {
                scaled(lazy).break_even_ratio(&scaled(eager), &auto.parameters.costs)
            }),
            lookups: auto.lookups + auto.stretch.counters.lookups,
            trials: auto.trials,
            switches: auto.switches,
        }
    }

    /// The choice and the reasons for it, in one paragraph of plain English.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut text = format!(
            "Chunks are looked up {}. An access of the device takes {} and one of memory {}: a \
             ratio of {:.0}.",
            self.choice,
            Time(self.costs.device_read_ns as f64),
            Time(self.costs.memory_access_ns as f64),
            self.costs.ratio()
        );
        text += &self.explain_inequality();
        let mut others: Vec<&Candidate> = self.candidates.iter().collect();
        others.sort_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns));
        let cost_of = |candidate: &Candidate| {
            let how = if candidate.was_tried { "" } else { " by estimate" };
            format!("{} {}{how}", candidate.choice.short(), Time(candidate.cost_ns))
        };
        match self.candidates.iter().find(|candidate| candidate.choice == self.choice) {
            None => text += " Nothing has been measured yet.",
            Some(current) => {
                others.retain(|candidate| candidate.choice != self.choice);
                let others: Vec<String> = others.into_iter().take(3).map(cost_of).collect();
                text += &format!(
                    " A look-up costs {} so; the next best ways are {}.",
                    Time(current.cost_ns),
                    others.join(", ")
                );
            }
        }
        text += &format!(
            " In {} look-ups, other ways were tried {} times and one took over {} times.",
            self.lookups, self.trials, self.switches
        );
        text
    }

    fn explain_inequality(&self) -> String {
        let Some(terms) = &self.terms else {
            return " Inequality (8) has no counts yet of both eager and lazy look-up.".to_owned();
        };
        let printed = match terms.right_side() {
            Some(right_side) if terms.device_saved() > 0.0 => format!(
                "by inequality (8) lazy look-up pays from a ratio of {:.0} on",
                right_side.max(0.0)
            ),
            _ => "by inequality (8), rightly read, lazy look-up never pays".to_owned(),
        };
        let corrected = match self.break_even_ratio {
            Some(ratio) => format!("with all accesses counted, from {:.0} on", ratio.max(0.0)),
            None => "with all accesses counted, it saves none of the device's".to_owned(),
        };
        format!(" As last counted, {printed}; {corrected}.")
    }
}

impl fmt::Display for AutoReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.explain())
    }
}

impl Choice {
    fn short(&self) -> String {
        match self {
            Self::Eager(_) => "eager".to_owned(),
            Self::Lazy { bucket_threshold } => format!("lazy with buckets of {bucket_threshold}"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eager(FilterOrder::CacheFirst) => {
                out.write_str("eagerly, first in the cache, then in the summary vector")
            }
            Self::Eager(FilterOrder::FilterFirst) => {
                out.write_str("eagerly, first in the summary vector, then in the cache")
            }
            Self::Lazy { bucket_threshold } => {
                write!(out, "lazily, up to {bucket_threshold} of a bucket with one access")
            }
        }
    }
}

/// Nanoseconds for people.
struct Time(f64);

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1000.0 => write!(out, "{ns:.0} ns"),
            ns if ns < 1_000_000.0 => write!(out, "{:.1} us", ns / 1000.0),
            ns => write!(out, "{:.1} ms", ns / 1_000_000.0),
        }
    }
}
