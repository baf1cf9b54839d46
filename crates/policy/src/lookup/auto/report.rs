//! What the automatic choice knows and why it chose as it did, as a value and as a paragraph.

use super::{Auto, BUCKET_THRESHOLD, Way};
use crate::accelerated_filter::FilterOrder;
use crate::cost_model::{CorrectedTerms, ModelTerms};
use crate::lookup::parameters::DeviceCosts;
use std::fmt;

/// A way of looking up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
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
pub(super) struct Candidate {
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
    pub(super) choice: Choice,
    /// What accesses cost.
    pub costs: DeviceCosts,
    /// All ways and what they cost; empty before anything is known.
    pub(super) candidates: Vec<Candidate>,
    /// The terms of (8), over the last stretches of eager and of lazy look-up, if there were both
    /// since the stream last changed.
    pub terms: Option<ModelTerms>,
    /// The ratio of costs from which on lazy look-up pays by the corrected model; as above, and
    /// `None` if it takes no fewer accesses of the device.
    pub break_even_ratio: Option<f64>,
    /// Look-ups.
    pub lookups: u64,
    /// Changes of the way that were made to find out what the other one costs.
    pub trials: u64,
    /// All changes of the way.
    pub switches: u64,
}

impl AutoReport {
    pub(super) fn new(auto: &Auto) -> Self {
        let (prices, waiting) = (auto.prices(), auto.lazy.distinct_waiting());
        let known = auto.known.after(&auto.stretch, auto.way, waiting, 1.0);
        let choice = |way| match way {
            Way::Eager => Choice::Eager(known.mix().order(&prices)),
            Way::Lazy => Choice::Lazy { bucket_threshold: BUCKET_THRESHOLD },
        };
        let candidates = [Way::Eager, Way::Lazy].into_iter().filter(|_| !known.is_nothing());
        let candidates = candidates.map(|way| {
            let counted = match way {
                Way::Eager => &auto.eager_counted,
                Way::Lazy => &auto.lazy_counted,
            };
            let was_tried = way == auto.way || counted.is_some();
            Candidate { choice: choice(way), cost_ns: known.cost(way, &prices), was_tried }
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
            choice: choice(auto.way),
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
            " In {} look-ups the way was changed {} times, {} of them to try the other.",
            self.lookups, self.switches, self.trials
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter_counters::FilterCounters;
    use crate::lookup::parameters::AutoParameters;

    const EAGER: Choice = Choice::Eager(FilterOrder::CacheFirst);
    const LAZY: Choice = Choice::Lazy { bucket_threshold: 1024 };

    fn auto() -> Auto {
        Auto::new(&AutoParameters::new(DeviceCosts::OPTANE_SSD, 4096))
    }

    fn report() -> AutoReport {
        AutoReport { lookups: 100, trials: 2, switches: 5, ..AutoReport::new(&auto()) }
    }

    fn terms(eager_reads: f64, lazy_reads: f64, memory_added: f64) -> Option<ModelTerms> {
        Some(ModelTerms {
            device_accesses_eager: eager_reads,
            device_accesses_lazy: lazy_reads,
            post_lookups: memory_added,
            ..ModelTerms::default()
        })
    }

    #[test]
    fn before_anything_is_known_it_says_so() {
        assert_eq!(
            report().to_string(),
            "Chunks are looked up eagerly, first in the cache, then in the summary vector. An \
             access of the device takes 25.0 us and one of memory 130 ns: a ratio of 192. \
             Inequality (8) has no counts yet of both eager and lazy look-up. Nothing has been \
             measured yet. In 100 look-ups the way was changed 5 times, 2 of them to try the \
             other."
        );
    }

    #[test]
    fn what_is_known_is_told_with_the_ways_that_cost_more() {
        let candidate = |choice, cost_ns, was_tried| Candidate { choice, cost_ns, was_tried };
        let smaller = Choice::Lazy { bucket_threshold: 4 };
        let candidates = vec![
            candidate(smaller, 2_500_000.0, true),
            candidate(EAGER, 1500.0, true),
            candidate(LAZY, 999.0, false),
        ];
        let text = AutoReport { candidates, ..report() }.explain();
        let expected = "A look-up costs 1.5 us so; the next best ways are lazy with buckets of \
                        1024 999 ns by estimate, lazy with buckets of 4 2.5 ms.";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        let told = [0.0, 999.0, 1000.0, 999_900.0, 1e6, 2.5e9].map(|ns| Time(ns).to_string());
        assert_eq!(told, ["0 ns", "999 ns", "1.0 us", "999.9 us", "1.0 ms", "2500.0 ms"]);
    }

    #[test]
    fn each_way_has_a_name() {
        let filter_first = Choice::Eager(FilterOrder::FilterFirst);
        let told = [EAGER, filter_first, LAZY].map(|choice| (choice.to_string(), choice.short()));
        let [cache, filter, lazy] = [
            ("eagerly, first in the cache, then in the summary vector", "eager"),
            ("eagerly, first in the summary vector, then in the cache", "eager"),
            ("lazily, up to 1024 of a bucket with one access", "lazy with buckets of 1024"),
        ]
        .map(|(long, short)| (long.to_owned(), short.to_owned()));
        assert_eq!(told, [cache, filter, lazy]);
    }

    #[test]
    fn s0_15_inequality_8_is_told_as_it_is_to_be_read() {
        let told = |terms, break_even_ratio| {
            AutoReport { terms, break_even_ratio, ..report() }.explain_inequality()
        };
        let pays = told(terms(30.0, 10.0, 100.0), Some(7.0));
        let expected = " As last counted, by inequality (8) lazy look-up pays from a ratio of 5 \
                        on; with all accesses counted, from 7 on.";
        assert_eq!(pays, expected);
        let never = " As last counted, by inequality (8), rightly read, lazy look-up never pays; \
                     with all accesses counted, it saves none of the device's.";
        assert_eq!(told(terms(10.0, 30.0, 100.0), None), never);
        assert_eq!(told(terms(10.0, 10.0, 100.0), None), never);
        let always = told(terms(30.0, 10.0, -100.0), Some(-7.0));
        assert!(always.contains("a ratio of 0 on; with all accesses counted, from 0 on."));
    }

    #[test]
    fn the_terms_are_of_both_ways_and_for_each_look_up() {
        let counted = |lookups, index_page_reads, cache_lookups| FilterCounters {
            lookups,
            index_page_reads,
            cache_lookups,
            ..FilterCounters::default()
        };
        let report = |eager, lazy| {
            let auto = Auto { eager_counted: eager, lazy_counted: lazy, lookups: 7, ..auto() };
            AutoReport::new(&auto)
        };
        let (eager, lazy) = (counted(100, 50, 100), counted(1000, 100, 5000));
        let both = report(Some(eager), Some(lazy));
        assert_eq!(both.terms, Some(ModelTerms::new(&eager, &lazy)));
        // 0.5 accesses of the device against 0.1, and 1 of memory against 5.
        assert!((both.break_even_ratio.unwrap() - 4.0 / 0.4).abs() < 1e-9, "{both:?}");
        assert_eq!(report(Some(eager), None).terms, None);
        assert_eq!((both.lookups, both.trials, both.switches), (7, 0, 0));
        assert_eq!(both.candidates, []);
    }
}
