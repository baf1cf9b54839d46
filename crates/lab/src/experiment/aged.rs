//! A store that has grown old: 120 generations of four streams at once, most of them deleted, its
//! containers fragmented and collected. The papers stop before.

use super::{Experiment, Setting};
use crate::device::Device;
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::simulation::{IndexSetup, Outcome, Setup};
use crate::source::generator::Preset;
use crate::workload::{Workload, eager};
use onefold_engine::index::IndexMode;
use onefold_types::Result;

const EXPLANATION: &str = "";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "aged",
        claim: "After 100 generations of four interleaved streams with deletions, at least 99 % of \
                look-ups still read no device.",
        items: "S1.41, S0.33, issue 3",
        tolerance: "At least 99 % over the generations from 100 on, with each exact strategy; no \
                    wrong verdict.",
        explanation: EXPLANATION,
    },
    run,
};

/// From here on the store counts as aged.
const AGED: u32 = 100;

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let workload = Workload::generated(Preset::Aged, setting.tiny)?;
    let hdd = Device::modelled().into_iter().next();
    let mut names: Vec<String> = Vec::new();
    let mut setups: Vec<Setup> = Vec::new();
    let mut add = |name: &str, setup: Setup| {
        names.push(name.to_owned());
        setups.push(setup);
    };
    for (name, strategy) in eager() {
        add(name, workload.setup(strategy));
    }
    add("lazy", workload.setup(workload.lazy(if setting.tiny { 8 } else { 16 })));
    if let Some(device) = &hdd {
        add("auto on HDD", workload.setup(workload.auto(device)));
    }
    let sampled = workload.setup(workload.sampled());
    let index = IndexSetup { mode: IndexMode::Sampled, ..sampled.index };
    add("sampled", Setup { index, ..sampled });
    let run = |setup: &Setup| setup.run(&*workload.trace);
    let outcomes = parallel::map(&setups, parallel::threads(), run)?;
    overview(report, &names, &outcomes);
    for (name, outcome) in names.iter().zip(&outcomes) {
        checks(report, name, outcome);
    }
    report.table(by_generation(&names, &outcomes));
    cache_sizes(report, &workload)?;
    let series = names.iter().zip(&outcomes).map(|(name, outcome)| {
        let points = outcome.generations.iter().map(|one| {
            let share = 100.0 * (1.0 - one.reads_removed());
            (f64::from(one.generation), share.max(1e-3))
        });
        Series::new(name, points.collect())
    });
    let title = "Look-ups that read the device, by generation";
    let chart = LineChart::new(title, "generation", "% of look-ups", series.collect());
    report.lines("generations", &chart.scaled(Scale::Linear, Scale::Log))
}

fn overview(report: &mut Report, names: &[String], outcomes: &[Outcome]) {
    let columns = [
        "strategy",
        "removed over all, %",
        "removed from generation 100 on, %",
        "worst generation from 10 on, %",
        "duplicates found, %",
        "containers removed",
        "containers copied",
        "containers at the end",
    ];
    let mut table = Table::new("removed", "Look-ups that read no device", columns);
    for (name, outcome) in names.iter().zip(outcomes) {
        let total = outcome.total();
        let settled = outcome.generations.iter().filter(|one| one.generation >= 10);
        let worst = settled.map(|one| one.reads_removed()).fold(1.0, f64::min);
        table.row([
            Cell::text(name.clone()),
            Cell::percent(total.reads_removed(), 3),
            Cell::percent(outcome.since(AGED).reads_removed(), 3),
            Cell::percent(worst, 3),
            Cell::percent(total.found_share(), 3),
            Cell::count(total.containers_removed),
            Cell::count(total.containers_copied),
            Cell::count(total.containers),
        ]);
    }
    report.table(table);
}

fn checks(report: &mut Report, name: &str, outcome: &Outcome) {
    let (total, aged) = (outcome.total(), outcome.since(AGED));
    let removed = aged.reads_removed();
    report.check(
        format!("{name}: at least 99 % removed from generation {AGED} on"),
        removed >= 0.99 && aged.chunks > 0,
        format!("{:.3} %", removed * 100.0),
    );
    let exact = name != "sampled";
    report.check(
        format!("{name}: no wrong verdict"),
        total.false_duplicates == 0 && (total.missed == 0 || !exact),
        format!("{} missed, {} false", total.missed, total.false_duplicates),
    );
}

fn by_generation(names: &[String], outcomes: &[Outcome]) -> Table {
    let mut columns = vec!["generation".to_owned(), "chunks".into(), "new, %".into()];
    columns.extend(names.iter().map(|name| format!("{name}, reads")));
    let mut table = Table::new("generations", "Device accesses by generation", columns);
    let count = outcomes.first().map_or(0, |outcome| outcome.generations.len());
    for place in (0..count).filter(|place| place % 10 == 0 || place + 1 == count) {
        let of = |outcome: &Outcome| outcome.generations.get(place).copied().unwrap_or_default();
        let first = outcomes.first().map(of).unwrap_or_default();
        let mut row = vec![
            Cell::count(u64::from(first.generation)),
            Cell::count(first.chunks),
            Cell::percent(first.chunks_new as f64 / first.chunks.max(1) as f64, 2),
        ];
        row.extend(outcomes.iter().map(|one| Cell::count(of(one).counters.device_reads())));
        table.row(row);
    }
    table
}

/// What less memory would do: fragmentation shows where the cache does not hold a generation.
fn cache_sizes(report: &mut Report, workload: &Workload) -> Result<()> {
    const SHARES: [f64; 5] = [0.0625, 0.125, 0.25, 0.5, 1.0];
    let [_, (_, eager)] = eager();
    let lazy = workload.lazy(16.min(workload.container_chunks));
    let mut setups = Vec::new();
    for size in SHARES {
        let fingerprints = (workload.generation_chunks as f64 * size) as usize;
        let cache_bytes = workload.cache_bytes(fingerprints);
        let with = |strategy| Setup { cache_bytes, ..workload.setup(strategy) };
        setups.extend([with(eager), with(lazy)]);
    }
    let run = |setup: &Setup| setup.run(&*workload.trace);
    let outcomes = parallel::map(&setups, parallel::threads(), run)?;
    let columns =
        ["cache, generations", "eager: removed from 100 on, %", "lazy: removed from 100 on, %"];
    let caption = "By size of the locality cache";
    let mut table = Table::new("cache-sizes", caption, columns);
    for (size, pair) in SHARES.iter().zip(outcomes.chunks(2)) {
        let mut row = vec![Cell::real(*size, 4)];
        let removed = |one: &Outcome| Cell::percent(one.since(AGED).reads_removed(), 3);
        row.extend(pair.iter().map(removed));
        table.row(row);
    }
    report.table(table);
    Ok(())
}
