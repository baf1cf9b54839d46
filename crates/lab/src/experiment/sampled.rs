//! Look-up by samples: how much of the duplicates hooks alone find, for a thirtieth of the memory.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::simulation::{IndexSetup, Outcome, Setup};
use crate::source::generator::Preset;
use crate::workload::{Workload, eager};
use onefold_chunking::ChunkerKind;
use onefold_engine::index::IndexMode;
use onefold_types::Result;

const EXPLANATION: &str = "\
    A chunk is found if a hook of its container is near it in the stream. Containers of a \
    thousand chunks have 32 hooks, so a whole container is missed once in e^32; what is missed \
    are the ends of runs: duplicates that come back in short pieces, of which each may have no \
    hook. In an aged store that is the rule: each generation of a stream leaves half a \
    container, most of it changes of 16 chunks. What is missed there is stored again, in stream \
    order, which is also why the sampled index reads a third of the containers that the exact \
    one reads. The worst generation of the source trees is the first change of a new project.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "sampled",
        claim: "An index of which only one fingerprint in 32 is in memory finds at least 98 % of \
                the duplicates that the exact one finds.",
        items: "issue 3, item 3; compare UDS sparse (97 to 99 %) and Sparse Indexing (FAST'09)",
        tolerance: "At least 98 % over all generations on every workload, nothing called a \
                    duplicate that is none, and no more device accesses than twice the exact \
                    index's.",
        explanation: EXPLANATION,
    },
    run,
};

struct Pair {
    name: String,
    /// The product as it is, by the names of its rows.
    shipped: Vec<(String, Outcome)>,
    exact: Outcome,
    sampled: Outcome,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let presets = [Preset::Exchange, Preset::Engineering, Preset::Mirror, Preset::Aged];
    // Small containers have too few hooks each for an aged store to be sampled.
    let count = if setting.tiny { 2 } else { presets.len() };
    let mut workloads: Vec<Workload> = presets
        .into_iter()
        .take(count)
        .map(|preset| Workload::generated(preset, setting.tiny))
        .collect::<Result<_>>()?;
    if let Some(data) = &setting.data {
        workloads.push(Workload::real(data, ChunkerKind::MinCdc, 8192)?);
    }
    let pairs: Vec<Pair> = workloads.iter().map(compare).collect::<Result<_>>()?;
    let columns = [
        "workload",
        "index",
        "found of exact's duplicates, %",
        "worst generation, %",
        "stored, % of exact",
        "memory, bytes/chunk",
        "exact's memory, bytes/chunk",
        "device accesses",
        "exact's device accesses",
    ];
    let mut table = Table::new("found", "Sampled against exact", columns);
    for pair in &pairs {
        for (name, shipped) in &pair.shipped {
            row(&mut table, pair, name, shipped);
        }
        row(&mut table, pair, "sampled", &pair.sampled);
        checks(report, pair);
    }
    report.table(table);
    let series = pairs.iter().map(|pair| {
        let points = shares(&pair.sampled).map(|(generation, share)| (generation, share * 100.0));
        Series::new(&pair.name, points.collect())
    });
    let title = "Duplicates found by samples";
    let chart = LineChart::new(title, "generation", "% of the duplicates found", series.collect());
    report.lines("found", &chart)
}

fn compare(workload: &Workload) -> Result<Pair> {
    let [_, (_, eager)] = eager();
    let exact = workload.setup(eager);
    let sampled = workload.setup(workload.sampled());
    let index = IndexSetup { mode: IndexMode::Sampled, ..sampled.index };
    let (names, shipped): (Vec<_>, Vec<_>) = workload.shipped_rows()?.into_iter().unzip();
    let mut setups = vec![exact, Setup { index, ..sampled }];
    setups.extend(shipped);
    let run = |setup: &Setup| setup.run(&*workload.trace);
    let mut outcomes = parallel::map(&setups, parallel::threads(), run)?.into_iter();
    let mut next = || outcomes.next().unwrap_or_default();
    let (exact, sampled) = (next(), next());
    let shipped = names.into_iter().zip(outcomes).collect();
    Ok(Pair { name: workload.name.clone(), shipped, exact, sampled })
}

/// Each generation that has duplicates with the share of them that was found.
fn shares(outcome: &Outcome) -> impl Iterator<Item = (f64, f64)> {
    let with_duplicates = outcome.generations.iter().filter(|one| one.duplicates() > 0);
    with_duplicates.map(|one| (f64::from(one.generation), one.found_share()))
}

fn row(table: &mut Table, pair: &Pair, index: &str, outcome: &Outcome) {
    let (exact, total) = (pair.exact.total(), outcome.total());
    let memory = |one: &crate::simulation::GenerationOutcome| {
        Cell::real(one.index_memory_bytes as f64 / one.index_entries.max(1) as f64, 3)
    };
    table.row([
        Cell::text(pair.name.clone()),
        Cell::text(index),
        Cell::percent(total.found_share(), 3),
        Cell::percent(shares(outcome).map(|(_, share)| share).fold(1.0, f64::min), 2),
        Cell::percent(total.chunks_new as f64 / exact.chunks_new.max(1) as f64, 2),
        memory(&total),
        memory(&exact),
        Cell::count(total.counters.device_reads()),
        Cell::count(exact.counters.device_reads()),
    ]);
}

fn checks(report: &mut Report, pair: &Pair) {
    let (exact, sampled) = (pair.exact.total(), pair.sampled.total());
    let name = &pair.name;
    report.check(
        format!("{name}: at least 98 % of duplicates are found"),
        sampled.found_share() >= 0.98,
        format!("{:.3} %", sampled.found_share() * 100.0),
    );
    report.check(
        format!("{name}: no chunk is called a duplicate that is none, none is missed by the exact"),
        sampled.false_duplicates == 0 && exact.false_duplicates == 0 && exact.missed == 0,
        format!("{} and {}", sampled.false_duplicates, exact.missed),
    );
    let (reads, bound) = (sampled.counters.device_reads(), exact.counters.device_reads());
    report.check(
        format!("{name}: device accesses at most twice the exact index's"),
        reads <= 2 * bound,
        format!("{reads} against {bound}"),
    );
}
