//! The size of the look-back window at a fixed threshold: Table 2 of FAST'19.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::ingest::{Stored, ingest};
use crate::rewriting::policy::{Kind, Policy, Search, Way};
use crate::rewriting::restored::{
    adaptive, forward_assembly, last_speed_factor, mean_speed_factor, papers_adaptive, restore,
};
use crate::rewriting::versions::Versions;
use crate::rewriting::{Sizes, workloads};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_policy::rewrite::{RewriteChoice, RewriteLimits};
use onefold_types::{Error, Result};

const EXPLANATION: &str = "\
    The direction is the paper's, the shape is not. Its ratio falls slightly with each step and \
    faster below the area. Here the ratio does not move from 16 containers to 4 (it even rises \
    by up to 0.7 %), whether the threshold is fixed or both bounds keep its mean near 120; it \
    drops at 2, a quarter of the area, and that one point is all there is to the third \
    statement. Few containers are near the threshold here: most are used by a whole window or by \
    a handful of chunks. The speed factor rises all the way, not only from the area down. A \
    container is judged by how often the whole window refers to it, so a wide window lets \
    containers pass whose chunks no restore holds in memory at the same time. Where the bounds \
    make the threshold, the candidates fill their five containers, and some are kept for want of \
    memory. At an equal loss, a window as large as the restore's area (S2.25) is not the best \
    for forward assembly: a quarter to half of it is up to 9 % ahead, because a chunk at one end \
    of the window is seldom in the same area as one at the other. ALACC is indifferent from 2 to \
    8 containers, within 2 %, and a window of twice the area is behind with every engine.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "window-size",
        claim: "At one threshold, fixed or the mean that both bounds make, a smaller look-back \
                window restores faster and never rewrites less; far below the restore's area it \
                rewrites much more.",
        items: "S2.25, S2.34",
        tolerance: "The ratio never rises by more than 1 % and the speed factor never falls by \
                    more than 2 % from a window of 16 containers to one of 2; the ratio falls \
                    more from 8 to 2 than from 16 to 8.",
        explanation: EXPLANATION,
    },
    run,
};

/// Containers of the window, as in Table 2.
const WINDOWS: [usize; 8] = [16, 14, 12, 10, 8, 6, 4, 2];
/// The mean threshold of Table 2 for containers of 1000 chunks.
const THRESHOLD: u32 = 120;
/// The limit of reads with which the bounds make it the mean, and how near they have to come.
const READS: u32 = 14;
const NEAR: f64 = 0.02;
/// Trials of the search for the loss.
const TRIALS: u32 = 14;

/// Those compared at an equal loss, and the loss.
const EQUAL: [usize; 6] = [2, 3, 4, 6, 8, 16];
const LOSS: f64 = 0.07;

struct Outcome {
    window: usize,
    asked: String,
    /// The mean one.
    threshold: f64,
    ratio: f64,
    factor: f64,
    rewritten_share: f64,
    candidates_bytes: u64,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let sizes = Sizes::PAPER;
    let versions = workloads::papers_example(setting.tiny)?;
    let engine = forward_assembly(sizes);
    let threshold = Some(THRESHOLD);
    let limits = RewriteLimits { threshold, ..RewriteLimits::default() };
    let outcomes = parallel::map(&WINDOWS, parallel::threads(), |window| {
        let policy = Policy::new(RewriteChoice::Window(limits));
        let policy = Policy { window_containers: *window, ..policy };
        outcome(&policy, &ingest(&versions, sizes, &policy)?, sizes, &engine)
    })?;
    let none = ingest(&versions, sizes, &Kind::None.with_loss(0.0))?;
    let none_factor = mean_speed_factor(&restore(&none, sizes, &engine)?);
    report.text(format!(
        "The workload is {}; without rewriting its ratio is {:.2} and its mean speed factor {:.3}. \
         The paper's cells are missing in the text that we have.",
        versions.name,
        none.ratio(),
        none_factor
    ));
    checks(report, "threshold of 120", &outcomes);
    let caption = "Size of the look-back window at a threshold of 120, forward assembly, area of 8";
    report.table(table("windows", caption, &outcomes, sizes));
    plots(report, &outcomes)?;
    let outcomes = parallel::map(&WINDOWS, parallel::threads(), |window| {
        by_bounds(&versions, sizes, *window, &engine)
    })?;
    checks(report, "mean threshold of 120", &outcomes);
    let caption = "The same, where both bounds make a threshold of 120 on average (Table 2)";
    report.table(table("bounds", caption, &outcomes, sizes));
    at_equal_loss(report, &versions, sizes, &none)
}

fn outcome(
    policy: &Policy,
    stored: &Stored,
    sizes: Sizes,
    engine: &RestoreEngine,
) -> Result<Outcome> {
    let chunks: u64 = stored.versions.iter().map(|one| one.totals.chunks).sum();
    let rewritten: u64 = stored.versions.iter().map(|one| one.counters.rewritten).sum();
    let peaks = stored.versions.iter().map(|one| one.counters.candidates_bytes_peak);
    Ok(Outcome {
        window: policy.window_containers,
        asked: policy.choice.to_string(),
        threshold: mean_threshold(stored),
        ratio: stored.ratio(),
        factor: mean_speed_factor(&restore(stored, sizes, engine)?),
        rewritten_share: rewritten as f64 / chunks.max(1) as f64,
        candidates_bytes: peaks.max().unwrap_or_default(),
    })
}

/// The mean of all thresholds of all versions but the first, which has no old containers.
fn mean_threshold(stored: &Stored) -> f64 {
    let later = || stored.versions.iter().skip(1).map(|one| &one.counters);
    let sum: f64 = later().map(|counters| counters.threshold_sum).sum();
    sum / later().map(|counters| counters.cycles).sum::<u64>().max(1) as f64
}

/// A window whose threshold moves between both bounds of the paper: the loss is sought by bisection
/// until the mean is the paper's, or as near to it as may be.
fn by_bounds(
    versions: &Versions,
    sizes: Sizes,
    window: usize,
    engine: &RestoreEngine,
) -> Result<Outcome> {
    let wanted = f64::from(THRESHOLD);
    let (mut least, mut most) = (0.0, 0.99);
    let mut best: Option<(f64, Policy, Stored)> = None;
    for _ in 0..TRIALS {
        let loss = f64::midpoint(least, most);
        let policy = Way::of(Kind::Window).reads(READS).by_version().with_loss(loss);
        let policy = Policy { window_containers: window, ..policy };
        let stored = ingest(versions, sizes, &policy)?;
        let mean = mean_threshold(&stored);
        let far = (mean - wanted).abs();
        if mean < wanted {
            least = loss;
        } else {
            most = loss;
        }
        if best.as_ref().is_none_or(|(before, ..)| far < *before) {
            best = Some((far, policy, stored));
        }
        if far <= NEAR * wanted {
            break;
        }
    }
    let (_, policy, stored) = best.ok_or_else(|| Error::invalid("no loss was tried"))?;
    outcome(&policy, &stored, sizes, engine)
}

/// Which window is best, had all the same ratio: beyond the paper.
fn at_equal_loss(
    report: &mut Report,
    versions: &Versions,
    sizes: Sizes,
    none: &Stored,
) -> Result<()> {
    let memory_bytes = sizes.memory_bytes();
    let engines = [
        ("forward", forward_assembly(sizes)),
        ("rolling", RestoreEngine::ForwardAssembly { area_bytes: memory_bytes, rolling: true }),
        ("ALACC, look-ahead 8", papers_adaptive(sizes)),
        ("ALACC, look-ahead 64", adaptive(sizes)),
        ("optimal-chunks", RestoreEngine::OptimalChunks { memory_bytes }),
    ];
    let jobs: Vec<(Kind, usize)> = [Kind::Window, Kind::Auto]
        .into_iter()
        .flat_map(|kind| EQUAL.map(|at| (kind, at)))
        .collect();
    let rows = parallel::map(&jobs, parallel::threads(), |(kind, window)| {
        let of = |loss| Policy { window_containers: *window, ..kind.with_loss(loss) };
        let search = Search::by_loss(LOSS);
        let (_, stored) = search.at_loss(versions, sizes, none, LOSS, &of)?;
        let mut row = vec![Cell::text(kind.name()), Cell::count(*window as u64)];
        row.push(Cell::percent(stored.loss(none), 2));
        for (_, engine) in &engines {
            let restored = restore(&stored, sizes, engine)?;
            row.push(Cell::real(mean_speed_factor(&restored), 3));
            row.push(Cell::real(last_speed_factor(&restored), 3));
        }
        Ok(row)
    })?;
    let mut columns = vec!["policy".to_owned(), "window, containers".into(), "loss, %".into()];
    for (name, _) in &engines {
        columns.extend([format!("{name}, mean"), format!("{name}, last version")]);
    }
    let caption = "Speed factors by size of the window, at an equal loss";
    let mut table = Table::new("equal-loss", caption, columns);
    rows.into_iter().for_each(|row| table.row(row));
    report.table(table);
    Ok(())
}

fn checks(report: &mut Report, form: &str, outcomes: &[Outcome]) {
    let steps = |holds: fn(&Outcome, &Outcome) -> bool| {
        outcomes.iter().zip(outcomes.iter().skip(1)).all(|(wider, narrower)| holds(wider, narrower))
    };
    let list = |of: &dyn Fn(&Outcome) -> f64| {
        outcomes.iter().map(|one| format!("{:.3}", of(one))).collect::<Vec<_>>().join(", ")
    };
    report.check(
        format!("{form}: the ratio never rises as the window shrinks"),
        steps(|wider, narrower| narrower.ratio <= wider.ratio * 1.01),
        list(&|one| one.ratio),
    );
    report.check(
        format!("{form}: the speed factor never falls as the window shrinks"),
        steps(|wider, narrower| narrower.factor >= wider.factor * 0.98),
        list(&|one| one.factor),
    );
    let at = |window| outcomes.iter().find(|one| one.window == window).map_or(0.0, |one| one.ratio);
    let (above, below) = (at(16) - at(8), at(8) - at(2));
    report.check(
        format!("{form}: the ratio falls more from 8 containers to 2 than from 16 to 8"),
        below > above,
        format!("{below:.3} and {above:.3}"),
    );
}

fn table(file: &str, caption: &str, outcomes: &[Outcome], sizes: Sizes) -> Table {
    let columns = [
        "window, containers",
        "asked",
        "mean threshold",
        "ratio",
        "speed factor",
        "stored again, % of chunks",
        "candidates, containers",
    ];
    let mut table = Table::new(file, caption, columns);
    for one in outcomes {
        let containers = one.candidates_bytes as f64 / sizes.container_bytes as f64;
        table.row([
            Cell::count(one.window as u64),
            Cell::text(one.asked.as_str()),
            Cell::real(one.threshold, 1),
            Cell::real(one.ratio, 3),
            Cell::real(one.factor, 3),
            Cell::percent(one.rewritten_share, 2),
            Cell::real(containers, 2),
        ]);
    }
    table
}

fn plots(report: &mut Report, outcomes: &[Outcome]) -> Result<()> {
    let points = |of: fn(&Outcome) -> f64| {
        outcomes.iter().map(|one| (one.window as f64, of(one))).collect::<Vec<_>>()
    };
    let series = vec![
        Series::new("ratio", points(|one| one.ratio)),
        Series::new("speed factor", points(|one| one.factor)),
    ];
    let chart = LineChart::new(
        "Ratio and speed factor by size of the window (Table 2)",
        "window, containers",
        "ratio; MB for each container read",
        series,
    );
    report.lines("windows", &chart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_34_bounds_make_the_mean_threshold_and_a_smaller_window_rewrites_more() {
        let (sizes, versions) = (Sizes::PAPER, workloads::papers_example(true).unwrap());
        let engine = forward_assembly(sizes);
        let [wide, narrow] =
            [8, 2].map(|window| by_bounds(&versions, sizes, window, &engine).unwrap());
        for one in [&wide, &narrow] {
            let far = one.threshold / f64::from(THRESHOLD) - 1.0;
            assert!(far.abs() < 0.05, "{} with {}", one.threshold, one.asked);
        }
        assert!(narrow.ratio < 0.97 * wide.ratio, "{} and {}", narrow.ratio, wide.ratio);
        assert!(narrow.factor > 1.1 * wide.factor, "{} and {}", narrow.factor, wide.factor);
    }
}
