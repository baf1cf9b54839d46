//! The size of the look-back window at a fixed threshold: Table 2 of FAST'19.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::ingest::{Stored, ingest};
use crate::rewriting::policy::{Kind, Policy, Search};
use crate::rewriting::restored::{
    adaptive, forward_assembly, last_speed_factor, mean_speed_factor, restore,
};
use crate::rewriting::versions::Versions;
use crate::rewriting::{Sizes, workloads};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_policy::rewrite::{RewriteChoice, RewriteLimits};
use onefold_types::Result;

const EXPLANATION: &str = "\
    As in the paper. A container is judged by how often the whole window refers to it, so a wide \
    window lets containers pass whose chunks no restore holds in memory at the same time; a \
    narrow one rewrites what would have been in memory. The ratio hardly moves down to a window \
    of half the restore's area and drops at a quarter of it: few containers are near the \
    threshold here, most are used by a whole window or by a handful of chunks. At an equal loss, \
    a window as large as the restore's area (S2.25) is not the best for forward assembly: a \
    quarter to half of it is up to 9 % ahead, because a chunk at one end of the window is seldom \
    in the same area as one at the other. ALACC is indifferent from 2 to 8 containers, and a \
    window of twice the area is behind with every engine.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "window-size",
        claim: "At a fixed threshold a smaller look-back window rewrites more; below the size of \
                the restore's area the ratio falls faster and the speed factor rises.",
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

/// Those compared at an equal loss, and the loss.
const EQUAL: [usize; 6] = [2, 3, 4, 6, 8, 16];
const LOSS: f64 = 0.07;

struct Outcome {
    window: usize,
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
        let stored = ingest(&versions, sizes, &policy)?;
        let chunks: u64 = stored.versions.iter().map(|one| one.totals.chunks).sum();
        let rewritten: u64 = stored.versions.iter().map(|one| one.counters.rewritten).sum();
        let peaks = stored.versions.iter().map(|one| one.counters.candidates_bytes_peak);
        Ok(Outcome {
            window: *window,
            ratio: stored.ratio(),
            factor: mean_speed_factor(&restore(&stored, sizes, &engine)?),
            rewritten_share: rewritten as f64 / chunks.max(1) as f64,
            candidates_bytes: peaks.max().unwrap_or_default(),
        })
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
    checks(report, &outcomes);
    report.table(table(&outcomes, sizes));
    plots(report, &outcomes)?;
    at_equal_loss(report, &versions, sizes, &none)
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
        ("ALACC", adaptive(sizes)),
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

fn checks(report: &mut Report, outcomes: &[Outcome]) {
    let steps = |holds: fn(&Outcome, &Outcome) -> bool| {
        outcomes.iter().zip(outcomes.iter().skip(1)).all(|(wider, narrower)| holds(wider, narrower))
    };
    let list = |of: &dyn Fn(&Outcome) -> f64| {
        outcomes.iter().map(|one| format!("{:.3}", of(one))).collect::<Vec<_>>().join(", ")
    };
    report.check(
        "the ratio never rises as the window shrinks",
        steps(|wider, narrower| narrower.ratio <= wider.ratio * 1.01),
        list(&|one| one.ratio),
    );
    report.check(
        "the speed factor never falls as the window shrinks",
        steps(|wider, narrower| narrower.factor >= wider.factor * 0.98),
        list(&|one| one.factor),
    );
    let at = |window| outcomes.iter().find(|one| one.window == window).map_or(0.0, |one| one.ratio);
    let (above, below) = (at(16) - at(8), at(8) - at(2));
    report.check(
        "the ratio falls more from 8 containers to 2 than from 16 to 8",
        below > above,
        format!("{below:.3} and {above:.3}"),
    );
}

fn table(outcomes: &[Outcome], sizes: Sizes) -> Table {
    let columns = [
        "window, containers",
        "ratio",
        "speed factor",
        "stored again, % of chunks",
        "candidates, containers",
    ];
    let caption = "Size of the look-back window, forward assembly with an area of 8 containers";
    let mut table = Table::new("windows", caption, columns);
    for one in outcomes {
        let containers = one.candidates_bytes as f64 / sizes.container_bytes as f64;
        table.row([
            Cell::count(one.window as u64),
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
