//! Medians, ratios and the project's targets: all arithmetic between raw data and report.
//!
//! A ratio is always one of medians of the same invocation: the project's own median over the best
//! peer's. Figures of different invocations are never set against each other.

use crate::measure::Usage;
use crate::results::{Layout, Operation, Results};
use std::collections::BTreeMap;

/// Something that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// CPU seconds of an operation.
    Cpu(Operation),
    /// CPU seconds of the first backup and all increments together.
    BackupCpu,
    /// MB of all increments per CPU second spent on them.
    IncrementRate,
    /// MB of a repository after everything is stored.
    Stored(Layout),
    /// Bytes left by a collection of half the snapshots, as a share of those before.
    Left,
    /// The largest resident set in any operation, in MiB.
    Peak,
}

impl Metric {
    fn higher_is_better(self) -> bool {
        self == Metric::IncrementRate
    }
}

/// What the project has promised to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The ratio to the best peer, at most.
    RatioAtMost(f64),
    /// The ratio to the best peer, at least.
    RatioAtLeast(f64),
    /// The value itself, at most.
    AtMost(f64),
    /// Nothing: for information.
    None,
}

/// One line of the comparison.
#[derive(Debug)]
pub struct Criterion {
    /// The name in reports.
    pub name: &'static str,
    /// What is compared.
    pub metric: Metric,
    /// The unit of its values.
    pub unit: &'static str,
    /// The target.
    pub goal: Goal,
}

const fn criterion(
    name: &'static str,
    metric: Metric,
    unit: &'static str,
    goal: Goal,
) -> Criterion {
    Criterion { name, metric, unit, goal }
}

/// Everything that is compared with the best peer.
pub const CRITERIA: &[Criterion] = &[
    criterion("first backup", Metric::Cpu(Operation::First), "CPU s", Goal::RatioAtMost(0.5)),
    criterion("increments", Metric::IncrementRate, "MB per CPU s", Goal::RatioAtLeast(3.0)),
    criterion(
        "unchanged re-run",
        Metric::Cpu(Operation::Unchanged),
        "CPU s",
        Goal::RatioAtMost(0.4),
    ),
    criterion("stored, trees", Metric::Stored(Layout::Trees), "MB", Goal::RatioAtMost(0.75)),
    criterion("stored, stream", Metric::Stored(Layout::Stream), "MB", Goal::RatioAtMost(0.6)),
    criterion("restore", Metric::Cpu(Operation::Restore), "CPU s", Goal::RatioAtMost(0.5)),
    criterion("check", Metric::Cpu(Operation::Check), "CPU s", Goal::RatioAtMost(0.5)),
    criterion("collection", Metric::Cpu(Operation::Collect), "CPU s", Goal::RatioAtMost(0.5)),
    criterion("left after it", Metric::Left, "of before", Goal::RatioAtMost(1.0)),
    criterion("peak memory", Metric::Peak, "MiB", Goal::AtMost(100.0)),
    criterion("init", Metric::Cpu(Operation::Init), "CPU s", Goal::None),
    criterion("stream", Metric::Cpu(Operation::Stream), "CPU s", Goal::None),
];

/// The median, or nothing of nothing. Of two middle values, their mean.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Medians of one operation of one tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// CPU seconds.
    pub cpu: f64,
    /// Seconds from start to end.
    pub wall: f64,
    /// Largest resident set in MiB.
    pub peak: f64,
}

/// The medians over all runs in which the tool completed the operation.
pub fn cell(results: &Results, tool: &str, operation: Operation) -> Option<Cell> {
    cell_of_all(results, tool, &[operation])
}

/// The medians of several operations taken together.
fn cell_of_all(results: &Results, tool: &str, operations: &[Operation]) -> Option<Cell> {
    let runs = usage_by_run(results, tool, operations);
    let over = |figure: fn(&Usage) -> f64| median(runs.iter().map(figure).collect());
    Some(Cell {
        cpu: over(Usage::cpu_seconds)?,
        wall: over(|usage| usage.wall.as_secs_f64())?,
        peak: over(Usage::peak_mib)?,
    })
}

/// What the operations took in each run; a run in which one failed half-way is left out.
fn usage_by_run(results: &Results, tool: &str, operations: &[Operation]) -> Vec<Usage> {
    let mut runs: BTreeMap<usize, Usage> = BTreeMap::new();
    for m in &results.measurements {
        if m.tool == tool && operations.contains(&m.operation) {
            let usage = runs.entry(m.run).or_default();
            *usage = usage.and(m.usage);
        }
    }
    for f in &results.failures {
        if f.tool == tool && operations.contains(&f.operation) {
            runs.remove(&f.run);
        }
    }
    runs.into_values().collect()
}

/// The median of a tool's repository sizes, in bytes.
pub fn stored_bytes(results: &Results, tool: &str, layout: Layout) -> Option<f64> {
    let sizes = results.sizes.iter().filter(|s| s.tool == tool && s.layout == layout);
    median(sizes.map(|s| s.bytes as f64).collect())
}

/// The value of one metric for one tool; `increment_bytes` is the size of all increments.
pub fn value(results: &Results, tool: &str, metric: Metric, increment_bytes: u64) -> Option<f64> {
    match metric {
        Metric::Cpu(operation) => Some(cell(results, tool, operation)?.cpu),
        Metric::BackupCpu => {
            Some(cell_of_all(results, tool, &[Operation::First, Operation::Increment])?.cpu)
        }
        Metric::IncrementRate => {
            let cpu = cell(results, tool, Operation::Increment)?.cpu;
            (cpu > 0.0).then(|| increment_bytes as f64 / 1e6 / cpu)
        }
        Metric::Stored(layout) => Some(stored_bytes(results, tool, layout)? / 1e6),
        Metric::Left => {
            let before = stored_bytes(results, tool, Layout::Trees)?;
            Some(stored_bytes(results, tool, Layout::Collected)? / before)
        }
        Metric::Peak => {
            let mut peaks: BTreeMap<usize, f64> = BTreeMap::new();
            for m in results.measurements.iter().filter(|m| m.tool == tool) {
                let peak = peaks.entry(m.run).or_default();
                *peak = peak.max(m.usage.peak_mib());
            }
            median(peaks.into_values().collect())
        }
    }
}

/// How the project's own tool stands in one criterion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The project's own value.
    pub own: Option<f64>,
    /// The best peer and its value.
    pub best: Option<(&'static str, f64)>,
    /// Own over best.
    pub ratio: Option<f64>,
    /// Whether the target is met; nothing if there is none or it cannot be told.
    pub met: Option<bool>,
}

/// Compares the tool labelled `own` with the best of `peers`.
pub fn score(
    results: &Results,
    criterion: &Criterion,
    own: &str,
    peers: &[&'static str],
    increment_bytes: u64,
) -> Score {
    let of = |tool: &str| value(results, tool, criterion.metric, increment_bytes);
    let peers = peers.iter().filter_map(|peer| Some((*peer, of(peer)?)));
    let best = if criterion.metric.higher_is_better() {
        peers.max_by(|a, b| a.1.total_cmp(&b.1))
    } else {
        peers.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let own = of(own);
    let ratio = own.zip(best).filter(|(_, best)| best.1 > 0.0).map(|(own, best)| own / best.1);
    let met = match criterion.goal {
        Goal::RatioAtMost(limit) => ratio.map(|ratio| ratio <= limit),
        Goal::RatioAtLeast(limit) => ratio.map(|ratio| ratio >= limit),
        Goal::AtMost(limit) => own.map(|own| own <= limit),
        Goal::None => None,
    };
    Score { own, best, ratio, met }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Failure, Measurement, Size};
    use std::time::Duration;

    fn add(results: &mut Results, run: usize, tool: &'static str, operation: Operation, ms: u64) {
        let half = Duration::from_millis(ms) / 2;
        let wall = Duration::from_millis(ms * 2);
        let usage = Usage { user: half, system: half, wall, peak_bytes: ms << 20 };
        let generation = None;
        results.measurements.push(Measurement { run, tool, operation, generation, usage });
    }

    fn find(name: &str) -> &'static Criterion {
        CRITERIA.iter().find(|criterion| criterion.name == name).unwrap()
    }

    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-9)
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert!(near(median(vec![3.0]), 3.0));
        assert!(near(median(vec![9.0, 1.0, 2.0]), 2.0));
        assert!(near(median(vec![4.0, 1.0, 2.0, 100.0]), 3.0));
    }

    #[test]
    fn increments_add_up_within_a_run_and_the_median_is_over_runs() {
        let mut results = Results::default();
        for (run, times) in [(1, [1000, 2000]), (2, [5000, 5000]), (3, [2000, 2000])] {
            for ms in times {
                add(&mut results, run, "restic", Operation::Increment, ms);
            }
        }
        let cell = cell(&results, "restic", Operation::Increment).unwrap();
        assert!((cell.cpu - 4.0).abs() < 1e-9 && (cell.wall - 8.0).abs() < 1e-9);
        assert!((cell.peak - 2000.0).abs() < 1e-9);
        assert!(near(value(&results, "restic", Metric::IncrementRate, 100_000_000), 25.0));
    }

    #[test]
    fn a_run_that_failed_half_way_does_not_count() {
        let mut results = Results::default();
        let operation = Operation::Increment;
        add(&mut results, 1, "restic", operation, 1000);
        add(&mut results, 2, "restic", operation, 10);
        let message = "broken pipe".to_string();
        results.failures.push(Failure { run: 2, tool: "restic", operation, message });
        assert!(near(cell(&results, "restic", operation).map(|cell| cell.cpu), 1.0));
        assert_eq!(cell(&results, "rustic", operation), None);
    }

    #[test]
    fn the_backups_are_added_up_within_each_run() {
        let mut results = Results::default();
        for (run, first, more) in [(1, 1000, 2000), (2, 4000, 100), (3, 1000, 5000)] {
            add(&mut results, run, "restic", Operation::First, first);
            add(&mut results, run, "restic", Operation::Increment, more);
        }
        // The medians of both alone are 1 and 2 seconds.
        assert!(near(value(&results, "restic", Metric::BackupCpu, 1), 4.1));
        let (operation, message) = (Operation::Increment, "broken pipe".to_string());
        results.failures.push(Failure { run: 3, tool: "restic", operation, message });
        assert!(near(value(&results, "restic", Metric::BackupCpu, 1), 3.55));
    }

    #[test]
    fn lower_is_better_for_time_and_higher_for_rates() {
        let mut results = Results::default();
        for (tool, first, more) in [("onefold", 400, 500), ("a", 1000, 1000), ("b", 900, 4000)] {
            add(&mut results, 1, tool, Operation::First, first);
            add(&mut results, 1, tool, Operation::Increment, more);
        }
        let peers = ["a", "b"];
        let first = score(&results, find("first backup"), "onefold", &peers, 1_000_000);
        assert_eq!(first.best.map(|best| best.0), Some("b"));
        assert!(near(first.ratio, 0.4 / 0.9));
        assert_eq!(first.met, Some(true));
        let more = score(&results, find("increments"), "onefold", &peers, 1_000_000);
        assert_eq!(more.best.map(|best| best.0), Some("a"));
        assert!(near(more.ratio, 2.0));
        assert_eq!(more.met, Some(false));
        let init = score(&results, find("init"), "onefold", &peers, 1_000_000);
        assert_eq!(init, Score { own: None, best: None, ratio: None, met: None });
    }

    #[test]
    fn memory_is_held_against_a_fixed_limit() {
        let mut results = Results::default();
        add(&mut results, 1, "onefold", Operation::First, 99);
        add(&mut results, 1, "onefold", Operation::Check, 101);
        let peak = score(&results, find("peak memory"), "onefold", &[], 1);
        assert!(near(peak.own, 101.0));
        assert_eq!(peak.met, Some(false));
    }

    #[test]
    fn sizes_are_medians_too_and_kept_apart_by_layout() {
        let mut results = Results::default();
        for (run, bytes) in [(1, 60), (2, 75), (3, 90)] {
            let layout = Layout::Trees;
            results.sizes.push(Size { run, tool: "onefold", layout, bytes });
            results.sizes.push(Size { run, tool: "a", layout, bytes: 100 });
        }
        let trees = score(&results, find("stored, trees"), "onefold", &["a"], 1);
        assert!(near(trees.ratio, 0.75));
        assert_eq!(trees.met, Some(true));
        assert_eq!(stored_bytes(&results, "onefold", Layout::Stream), None);
    }
}
