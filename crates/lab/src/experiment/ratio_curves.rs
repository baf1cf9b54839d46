//! What each way of rewriting makes of the ratio that it may give up: Fig. 6 of FAST'19.
//!
//! As in the paper only the last version is rewritten; nine are there before it.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::ingest::Ingest;
use crate::rewriting::policy::{Kind, Policy};
use crate::rewriting::restored::{forward_assembly, restore_version};
use crate::rewriting::versions::Versions;
use crate::rewriting::{Sizes, workloads};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_policy::rewrite::{RewriteChoice, RewriteLimits};
use onefold_types::Result;

const EXPLANATION: &str = "\
    The paper's lead of the look-back window over capping (20 to 40 % where most of the ratio is \
    kept) is not there. Both find the containers that are used least; where a container holds a \
    few chunks for a stretch, it does so in a segment and in a window alike, and the segment's \
    sharp end costs little. What the window does worse: a container that is used all the time, a \
    little, is kept for ever by its own kept chunks, though no restore holds it that long, so the \
    curve ends at a lower factor. Algorithm 1 is no better than the best fixed threshold. The \
    default judges area by area and pays for the whole version at one price.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "ratio-curves",
        claim: "Where most of the ratio is kept, the look-back window restores as fast as capping \
                at the same ratio, and the default faster than both.",
        items: "S2.36",
        tolerance: "At 90 and 93 % of the ratio without rewriting, the look-back window's speed \
                    factor is at least capping's less 5 %; from 50 % on the default's is not \
                    below either by more than 1 %.",
        explanation: EXPLANATION,
    },
    run,
};

/// Capping levels; the paper goes from 0 to 70.
const LEVELS: [u32; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 30, 40, 50, 60, 70];
/// Thresholds, for containers of 1000 chunks.
const THRESHOLDS: [u32; 16] =
    [0, 5, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 300, 500, 700, 1000];
/// Losses for those that are asked for a loss only.
const LOSSES: [f64; 12] = [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Shares of the ratio without rewriting at which curves are compared.
const KEPT: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.9, 0.93];

/// From here on most of the ratio is kept.
const KEPT_MOST: f64 = 0.9;

/// Points of ratio and speed factor.
type Curve = Vec<(f64, f64)>;

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let sizes = Sizes::PAPER;
    let versions = workloads::papers_example(setting.tiny)?;
    let engine = forward_assembly(sizes);
    let Some((last, before)) = versions.versions.split_last() else { return Ok(()) };
    let mut store = Ingest::new(&versions, sizes);
    for version in before {
        store.write(version, &Kind::None.with_loss(0.0))?;
    }
    let (names, jobs) = jobs();
    let points = parallel::map(&jobs, parallel::threads(), |policy| {
        let mut store = store.clone();
        store.write(last, policy)?;
        point(&store, sizes, &engine)
    })?;
    let mut rest = points.as_slice();
    let mut curves: Vec<(&str, Curve)> = Vec::new();
    for (name, count) in names {
        let (own, after) = rest.split_at(count.min(rest.len()));
        rest = after;
        let mut curve = own.to_vec();
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        curves.push((name, curve));
    }
    compare(report, &versions, &curves);
    points_table(report, &curves, &jobs, &points);
    let series = curves.into_iter().map(|(name, curve)| {
        Series::new(name, curve.into_iter().map(|(ratio, factor)| (factor, ratio)).collect())
    });
    let title = "Ratio against speed factor, last version (Fig. 6)";
    let chart = LineChart::new(title, "speed factor", "ratio of the version", series.collect());
    report.lines("curves", &chart)
}

/// The curves with their numbers of points, and the policies of all of them.
fn jobs() -> ([(&'static str, usize); 5], Vec<Policy>) {
    let mut jobs = Vec::new();
    jobs.extend(LEVELS.map(|level| Policy::new(RewriteChoice::Capping { level: Some(level) })));
    let limits = |threshold| {
        let threshold = Some(threshold);
        RewriteLimits { threshold, ..RewriteLimits::default() }
    };
    jobs.extend(THRESHOLDS.map(|one| Policy::new(RewriteChoice::Flexible(limits(one)))));
    jobs.extend(THRESHOLDS.map(|one| Policy::new(RewriteChoice::Window(limits(one)))));
    jobs.extend(LOSSES.map(|loss| Kind::Window.with_loss(loss)));
    jobs.extend(LOSSES.map(|loss| Kind::Auto.with_loss(loss)));
    let names = [
        ("capping", LEVELS.len()),
        ("FCRC, fixed threshold", THRESHOLDS.len()),
        ("LBW, fixed threshold", THRESHOLDS.len()),
        ("LBW, Algorithm 1", LOSSES.len()),
        ("auto", LOSSES.len()),
    ];
    (names, jobs)
}

/// Ratio and speed factor of the last version.
fn point(store: &Ingest<'_>, sizes: Sizes, engine: &RestoreEngine) -> Result<(f64, f64)> {
    let stored = store.stored();
    let Some(last) = stored.versions.last() else { return Ok((0.0, 0.0)) };
    let restored = restore_version(stored, last, sizes, engine)?;
    Ok((last.bytes as f64 / last.stored_bytes.max(1) as f64, restored.speed_factor()))
}

/// The speed factor at a ratio, between the points of a curve; `None` beyond its ends.
fn factor_at(curve: &Curve, ratio: f64) -> Option<f64> {
    curve.iter().zip(curve.iter().skip(1)).find_map(|(low, high)| {
        if !(low.0 <= ratio && ratio <= high.0) {
            return None;
        }
        let share = if high.0 > low.0 { (ratio - low.0) / (high.0 - low.0) } else { 0.0 };
        Some(low.1 + share * (high.1 - low.1))
    })
}

fn compare(report: &mut Report, versions: &Versions, curves: &[(&str, Curve)]) {
    let whole = curves.iter().filter_map(|(_, curve)| curve.last()).map(|point| point.0);
    let whole = whole.fold(0.0, f64::max);
    report.text(format!(
        "The workload is {}; the last version's ratio without rewriting is {whole:.2}. In the \
         paper it is 15: at 14 capping has a factor of 1.27 and LBW 1.75, and at a factor of 3.7 \
         capping is left with a ratio of 1.2 and LBW with 4.",
        versions.name
    ));
    let mut columns = vec!["share of the ratio kept, %".to_owned(), "ratio".into()];
    columns.extend(curves.iter().map(|(name, _)| (*name).to_owned()));
    let mut table = Table::new("equal-ratio", "Speed factors at equal ratios", columns);
    let (mut window, mut auto) = (Vec::new(), Vec::new());
    for kept in KEPT {
        let factors: Vec<Option<f64>> =
            curves.iter().map(|(_, curve)| factor_at(curve, whole * kept)).collect();
        let mut row = vec![Cell::percent(kept, 0), Cell::real(whole * kept, 2)];
        let cell = |factor: &Option<f64>| factor.map_or(Cell::Missing, |one| Cell::real(one, 3));
        row.extend(factors.iter().map(cell));
        table.row(row);
        if let [Some(capping), _, Some(fixed), _, own] = factors[..] {
            window.extend((kept >= KEPT_MOST).then_some(fixed / capping));
            auto.extend(own.map(|own| own / capping.max(fixed)));
        }
    }
    let list = |ratios: &[f64]| {
        ratios.iter().map(|one| format!("{one:.2}")).collect::<Vec<_>>().join(", ")
    };
    report.check(
        "LBW is not behind capping",
        !window.is_empty() && window.iter().all(|one| *one >= 0.95),
        format!("{} times", list(&window)),
    );
    report.check(
        "auto is not behind either",
        !auto.is_empty() && auto.iter().all(|one| *one >= 0.99),
        format!("{} times", list(&auto)),
    );
    report.table(table);
}

fn points_table(
    report: &mut Report,
    curves: &[(&str, Curve)],
    jobs: &[Policy],
    points: &[(f64, f64)],
) {
    let names = curves.iter().flat_map(|(name, curve)| curve.iter().map(move |_| *name));
    let columns = ["policy", "asked", "ratio", "speed factor"];
    let mut table = Table::new("points", "All points", columns);
    for ((name, policy), (ratio, factor)) in names.zip(jobs).zip(points) {
        table.row([
            Cell::text(name),
            Cell::text(policy.choice.to_string()),
            Cell::real(*ratio, 3),
            Cell::real(*factor, 3),
        ]);
    }
    report.table(table);
}
