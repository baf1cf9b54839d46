//! The size of the look-back window at a fixed threshold: Table 2 of FAST'19.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::rewriting::ingest::ingest;
use crate::rewriting::policy::{Kind, Policy};
use crate::rewriting::restored::{forward_assembly, mean_speed_factor, restore};
use crate::rewriting::{Sizes, workloads};
use onefold_policy::rewrite::{RewriteChoice, RewriteLimits};
use onefold_types::Result;

const EXPLANATION: &str = "\
    As in the paper. A container is judged by how often the whole window refers to it, so a wide \
    window lets containers pass whose chunks no restore holds in memory at the same time; a \
    narrow one rewrites what would have been in memory. The ratio hardly moves until the window \
    is smaller than the area of the restore and drops below a quarter of it: few containers are \
    near the threshold here, most are used by a whole window or by a handful of chunks.";

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
        let chunks: u64 = stored.versions.iter().map(|one| one.counters.chunks).sum();
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
    plots(report, &outcomes)
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
