//! A store that has grown old: 120 generations of four streams at once, most of them deleted, its
//! containers fragmented and collected. The papers stop before.

use super::{Experiment, Setting};
use crate::device::Device;
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::simulation::{IndexSetup, Outcome, Setup};
use crate::source::generator::Preset;
use crate::workload::{Workload, eager};
use onefold_engine::device::HELD_CHUNK_NS;
use onefold_engine::index::IndexMode;
use onefold_types::Result;

const EXPLANATION: &str = "\
    After 100 generations the data that a stream backs up lies in hundreds of containers, in \
    pieces of some 16 chunks (`aged`) or 6 (`scattered`). Judged at once, each piece costs an \
    index read and a container that soon has to leave the cache again: eager look-up is down \
    to 91 and 69 %. Chunks that wait and are located together read each container once for all \
    of them, and the second look keeps those that waited from being asked for without result; \
    98.7 % is kept on `aged` and 98.1 % on `scattered`, with a cache of half a generation. \
    That is less than an earlier report had (99.1 and 98.8 %), since buckets are single \
    accesses and hold more. Why is not measured; perhaps because the oldest chunk takes its \
    whole bucket along. The price is memory for the chunks that wait: the table says how many \
    are needed. DDFS names the problem and leaves it (S1.41); rewriting, which attacks the \
    fragmentation itself, is another issue's.";

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
    let presets = [Preset::Aged, Preset::Scattered];
    for preset in if setting.tiny { &presets[..1] } else { &presets[..] } {
        let workload = Workload::generated(*preset, setting.tiny)?;
        let (names, setups) = candidates(&workload)?;
        let run = |setup: &Setup| setup.run(&*workload.trace);
        let outcomes = parallel::map(&setups, parallel::threads(), run)?;
        overview(report, &workload, &names, &outcomes);
        for (name, outcome) in names.iter().zip(&outcomes) {
            checks(report, &workload, name, outcome);
        }
        report.table(by_generation(&workload, &names, &outcomes));
        plot(report, &workload, &names, &outcomes)?;
        if !setting.tiny {
            cache_sizes(report, &workload)?;
        }
    }
    Ok(())
}

fn candidates(workload: &Workload) -> Result<(Vec<String>, Vec<Setup>)> {
    let mut named = workload.shipped_rows()?;
    for (name, strategy) in eager() {
        named.push((name.to_owned(), workload.setup(strategy)));
    }
    named.push(("lazy".to_owned(), workload.setup(workload.lazy())));
    named.push(("second look".to_owned(), workload.setup(workload.second_look(1024))));
    for device in Device::modelled().into_iter().filter(|device| device.name != "DRAM") {
        let device = device.holding(HELD_CHUNK_NS);
        let setup = workload.setup(workload.auto(&device));
        named.push((format!("auto on {}", device.name), setup));
    }
    let sampled = workload.setup(workload.sampled());
    let index = IndexSetup { mode: IndexMode::Sampled, ..sampled.index };
    named.push(("sampled".to_owned(), Setup { index, ..sampled }));
    Ok(named.into_iter().unzip())
}

fn plot(
    report: &mut Report,
    workload: &Workload,
    names: &[String],
    outcomes: &[Outcome],
) -> Result<()> {
    let series = names.iter().zip(outcomes).map(|(name, outcome)| {
        let points = outcome.generations.iter().map(|one| {
            let share = 100.0 * (1.0 - one.reads_removed());
            (f64::from(one.generation), share.max(1e-3))
        });
        Series::new(name, points.collect())
    });
    let title = format!("Look-ups that read the device, {}", workload.name);
    let chart = LineChart::new(&title, "generation", "% of look-ups", series.collect());
    let file = format!("generations-{}", workload.name);
    report.lines(&file, &chart.scaled(Scale::Linear, Scale::Log))
}

fn overview(report: &mut Report, workload: &Workload, names: &[String], outcomes: &[Outcome]) {
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
    let file = format!("removed-{}", workload.name);
    let caption = format!("{}: look-ups that read no device", workload.name);
    let mut table = Table::new(file, caption, columns);
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

fn checks(report: &mut Report, workload: &Workload, name: &str, outcome: &Outcome) {
    let (total, aged) = (outcome.total(), outcome.since(AGED));
    let removed = aged.reads_removed();
    let exact = name != "sampled";
    if exact {
        report.check(
            format!("{}, {name}: at least 99 % removed from generation {AGED} on", workload.name),
            removed >= 0.99 && aged.chunks > 0,
            format!("{:.3} %", removed * 100.0),
        );
    }
    report.check(
        format!("{}, {name}: no wrong verdict", workload.name),
        total.false_duplicates == 0 && (total.missed == 0 || !exact),
        format!("{} missed, {} false", total.missed, total.false_duplicates),
    );
}

fn by_generation(workload: &Workload, names: &[String], outcomes: &[Outcome]) -> Table {
    let mut columns = vec!["generation".to_owned(), "chunks".into(), "new, %".into()];
    columns.extend(names.iter().map(|name| format!("{name}, reads")));
    let file = format!("generations-{}", workload.name);
    let caption = format!("{}: device accesses by generation", workload.name);
    let mut table = Table::new(file, caption, columns);
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
    const SHARES: [f64; 3] = [0.125, 0.5, 2.0];
    let [_, (_, eager)] = eager();
    let mut setups = Vec::new();
    for size in SHARES {
        let fingerprints = (workload.generation_chunks as f64 * size) as usize;
        let cache_bytes = workload.cache_bytes(fingerprints);
        let with = |strategy| Setup { cache_bytes, ..workload.setup(strategy) };
        setups.extend([with(eager), with(workload.second_look(1024))]);
    }
    let run = |setup: &Setup| setup.run(&*workload.trace);
    let outcomes = parallel::map(&setups, parallel::threads(), run)?;
    let columns = [
        "cache, generations",
        "eager: removed from 100 on, %",
        "second look: removed from 100 on, %",
    ];
    let caption = format!("{}: by size of the locality cache", workload.name);
    let mut table = Table::new(format!("cache-sizes-{}", workload.name), caption, columns);
    for (size, pair) in SHARES.iter().zip(outcomes.chunks(2)) {
        let mut row = vec![Cell::real(*size, 4)];
        let removed = |one: &Outcome| Cell::percent(one.since(AGED).reads_removed(), 3);
        row.extend(pair.iter().map(removed));
        table.row(row);
    }
    report.table(table);
    Ok(())
}
