//! The threshold of the look-back window: Fig. 5 of FAST'19.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::ingest::{Stored, ingest};
use crate::rewriting::policy::{Kind, Policy};
use crate::rewriting::restored::{forward_assembly, mean_speed_factor, restore};
use crate::rewriting::{Sizes, workloads};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_policy::rewrite::{RewriteChoice, RewriteLimits};
use onefold_types::Result;

const EXPLANATION: &str = "\
    The shape is the paper's: the knee is at about 10 to 40 chunks of 1000, because this workload \
    refers to most old containers by a handful of chunks for each window, and what lies between \
    is won slowly. At the top everything is stored again, but with forward assembly the factor is \
    2 and not 4. New chunks go into the open container at once (step 1) and rewritten ones a \
    window later (step 4), so what belongs together in the stream lies in two containers, a \
    window apart, and a container is read once for each. An engine that holds the few chunks that \
    are needed a window later, and not a stretch, reads each container once: the factor is the \
    paper's. Where little is rewritten, as in all other experiments, this costs next to nothing. \
    The memory for candidates is ten containers here: with five (S2.32) the policy has to keep \
    what it cannot hold, and the ratio cannot fall to 1.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "threshold-sweep",
        claim: "A threshold of 0 is deduplication without rewriting; one that no container \
                reaches stores everything again: ratio 1, speed factor 4; most is won at small \
                thresholds.",
        items: "S2.35",
        tolerance: "At 0 every recipe is the same as without rewriting; at the top the ratio is \
                    below 1.05 and the speed factor above 3.8 (tiny: 3.6) for an engine that \
                    holds chunks; the ratio never rises, and the factor never falls by more than \
                    2 % from one threshold to the next up to 400; the first tenth of the \
                    thresholds wins more of the factor, for each unit, than the rest.",
        explanation: EXPLANATION,
    },
    run,
};

/// For containers of 1000 chunks.
const THRESHOLDS: [u32; 13] = [0, 10, 20, 40, 60, 80, 100, 150, 200, 400, 600, 800, 1000];
/// More than a window can refer to a container, if no chunk is repeated in it.
const TOP: u32 = 2000;
/// Candidates that the whole window fits into: with the five containers of S2.32 a chunk could not
/// always be stored again.
const CANDIDATES: u64 = 10;
/// Fig. 5: threshold, ratio, speed factor, as far as the text gives them.
const PAPER: [(u32, Option<f64>, Option<f64>); 2] =
    [(0, Some(15.0), Some(1.0)), (1000, Some(1.0), Some(4.0))];

/// One threshold.
#[derive(Clone, Copy, Default)]
struct Point {
    threshold: u32,
    ratio: f64,
    factor: f64,
    /// With an engine that holds chunks rather than a stretch.
    chunks_factor: f64,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let sizes = Sizes::PAPER;
    let versions = workloads::papers_example(setting.tiny)?;
    let engine = forward_assembly(sizes);
    let by_chunks = RestoreEngine::OptimalChunks { memory_bytes: sizes.memory_bytes() };
    let thresholds: Vec<u32> = THRESHOLDS.into_iter().chain([TOP]).collect();
    let none = ingest(&versions, sizes, &Kind::None.with_loss(0.0))?;
    let outcomes = parallel::map(&thresholds, parallel::threads(), |threshold| {
        let of_thousand = *threshold;
        let stored = ingest(&versions, sizes, &fixed(of_thousand))?;
        let factor = mean_speed_factor(&restore(&stored, sizes, &engine)?);
        let chunks_factor = mean_speed_factor(&restore(&stored, sizes, &by_chunks)?);
        let point = Point { threshold: of_thousand, ratio: stored.ratio(), factor, chunks_factor };
        Ok((point, is_same(&stored, &none)))
    })?;
    let (points, same): (Vec<Point>, Vec<bool>) = outcomes.into_iter().unzip();
    let first_is_none = same.first().copied().unwrap_or_default();
    report.text(format!("The workload is {}.", versions.name));
    checks(report, &points, first_is_none, setting.tiny);
    report.table(table(&points));
    plots(report, &points)
}

/// A window whose threshold never changes.
fn fixed(threshold: u32) -> Policy {
    let threshold = Some(threshold);
    let limits = RewriteLimits { threshold, ..RewriteLimits::default() };
    let policy = Policy::new(RewriteChoice::Window(limits));
    Policy { candidates_containers: CANDIDATES, ..policy }
}

fn is_same(one: &Stored, other: &Stored) -> bool {
    let pairs = one.versions.iter().zip(&other.versions);
    one.container_bytes == other.container_bytes
        && pairs.into_iter().all(|(one, other)| one.recipe == other.recipe)
}

fn checks(report: &mut Report, points: &[Point], first_is_none: bool, tiny: bool) {
    let full_speed = if tiny { 3.6 } else { 3.8 };
    report.check("a threshold of 0 rewrites nothing", first_is_none, "every recipe compared");
    let top = points.last().copied().unwrap_or_default();
    report.check(
        "at the top nothing is deduplicated and restores read at full speed",
        top.ratio < 1.05 && top.chunks_factor > full_speed,
        format!(
            "ratio {:.3}, speed factor {:.3}; {:.3} with forward assembly",
            top.ratio, top.chunks_factor, top.factor
        ),
    );
    let pairs = || points.iter().zip(points.iter().skip(1));
    report.check(
        "the ratio never rises and the speed factor never falls",
        pairs().all(|(low, high)| {
            let falls = high.factor < low.factor * 0.98 && high.threshold <= 400;
            high.ratio <= low.ratio * 1.001 && !falls
        }),
        points
            .iter()
            .map(|one| format!("{:.2}/{:.2}", one.ratio, one.factor))
            .collect::<Vec<_>>()
            .join(", "),
    );
    let at =
        |wanted| points.iter().find(|one| one.threshold == wanted).map_or(0.0, |one| one.factor);
    let (early, late) = ((at(100) - at(0)) / 100.0, (at(1000) - at(100)) / 900.0);
    report.check(
        "small thresholds win more for each unit than great ones",
        early > late,
        format!("{:.2} and {:.2} for a thousand", early * 1000.0, late * 1000.0),
    );
}

fn table(points: &[Point]) -> Table {
    let columns = [
        "threshold",
        "ratio",
        "paper's ratio",
        "speed factor",
        "paper's speed factor",
        "speed factor, optimal-chunks",
    ];
    let caption = "Threshold of a window of 8 containers, forward assembly with an area of 8";
    let mut table = Table::new("thresholds", caption, columns);
    for point in points {
        let paper = PAPER.iter().find(|(one, ..)| *one == point.threshold);
        let cell = |value: Option<f64>| value.map_or(Cell::Missing, |value| Cell::real(value, 2));
        table.row([
            Cell::count(u64::from(point.threshold)),
            Cell::real(point.ratio, 3),
            cell(paper.and_then(|one| one.1)),
            Cell::real(point.factor, 3),
            cell(paper.and_then(|one| one.2)),
            Cell::real(point.chunks_factor, 3),
        ]);
    }
    table
}

fn plots(report: &mut Report, points: &[Point]) -> Result<()> {
    let curve = |of: fn(&Point) -> f64| {
        points.iter().map(|one| (f64::from(one.threshold), of(one))).collect::<Vec<_>>()
    };
    let chart = LineChart::new(
        "Deduplication ratio by threshold (Fig. 5a)",
        "threshold, chunks",
        "ratio",
        vec![Series::new("LBW", curve(|one| one.ratio))],
    );
    report.lines("ratio", &chart)?;
    let series = vec![
        Series::new("forward assembly", curve(|one| one.factor)),
        Series::new("optimal-chunks, equal memory", curve(|one| one.chunks_factor)),
    ];
    let y_label = "MB for each container read";
    let title = "Speed factor by threshold (Fig. 5b)";
    report.lines("factor", &LineChart::new(title, "threshold, chunks", y_label, series))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_35_a_threshold_of_zero_rewrites_nothing_and_one_beyond_all_counts_everything() {
        let (sizes, versions) = (Sizes::PAPER, workloads::papers_example(true).unwrap());
        let none = ingest(&versions, sizes, &Kind::None.with_loss(0.0)).unwrap();
        let stored = |threshold| ingest(&versions, sizes, &fixed(threshold)).unwrap();
        assert!(is_same(&stored(0), &none));
        let some = stored(100);
        assert!(some.ratio() < none.ratio() && !is_same(&some, &none));
        let top = stored(TOP);
        assert!(top.ratio() < 1.05, "{}", top.ratio());
        let engine = RestoreEngine::OptimalChunks { memory_bytes: sizes.memory_bytes() };
        let factor = mean_speed_factor(&restore(&top, sizes, &engine).unwrap());
        assert!(factor > 3.6, "{factor}");
    }
}
