//! What summary vector and locality cache spare whole backups, generation by generation (S1.30).
//!
//! The four configurations of Table 4 (S1.28), each with a store of its own, in which another
//! client's first generation lies already: the first generation meets an index that is not empty.
//! Chunks are looked up one after the other, the cache first (S1.23). What is counted are the
//! device's reads for look-ups: pages of the index and sections of containers.

use super::streams::{Streams, name};
use crate::experiment::Setting;
use crate::parallel;
use crate::product::{Product, ReadingTime, Spread, stream};
use crate::report::{Cell, LineChart, Report, Scale, Series, Table};
use onefold_engine::ingest::BackupOptions;
use onefold_policy::FilterCounters;
use onefold_policy::accelerated_filter::FilterConfiguration;
use onefold_types::{Result, limits};
use std::sync::Arc;

/// In the order of [`FilterConfiguration::ALL`].
const NAMES: [&str; 4] = ["neither", "vector", "cache", "both"];
const SEEDS: [u64; 3] = [1, 2, 3];
/// Of the reads without either, those that the helper leaves which is for such chunks.
const RIGHT_MAX: f64 = 0.1;
/// Reads for 1000 chunks where the other helper is alone: the index is asked for about each. What
/// they are of the reads without either depends on how many runs the index has, all of which are
/// asked where no vector says which.
const WRONG_MIN: f64 = 900.0;

/// The counters of each generation, by configuration.
type Counted = [Vec<FilterCounters>; NAMES.len()];

/// Runs this part.
pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let (chunks, generations) = if setting.tiny { (900, 3) } else { (4_000, 10) };
    let seeds = if setting.tiny { SEEDS.get(..1).unwrap_or_default() } else { &SEEDS };
    let mut all = Vec::new();
    for seed in seeds {
        all.push(count(&Streams::new(chunks, generations, *seed)?, generations as usize)?);
    }
    checks(report, &all);
    report.table(table(&all));
    plot(report, &all)
}

fn count(streams: &Streams, generations: usize) -> Result<Counted> {
    let done = parallel::map(&FilterConfiguration::ALL, 1, |filter| {
        let product = Product::create(limits::MEMORY_LIMIT_MIN_BYTES)?;
        let back_up = |number: usize, generation: usize| {
            let opened = product.open()?;
            let bytes = Arc::new(streams.bytes(number, generation)?);
            let source = stream(&name(number), &bytes, &ReadingTime::default());
            let options = BackupOptions {
                filter: *filter,
                lookup: "eager".parse()?,
                rewrite: "none".parse()?,
                ..product.options(&name(number))
            };
            product.back_up(&opened, source, &options).map(|done| done.report.lookup.counters)
        };
        back_up(1, 0)?;
        (0..generations).map(|generation| back_up(0, generation)).collect::<Result<Vec<_>>>()
    })?;
    let mut counted = Counted::default();
    counted.iter_mut().zip(done).for_each(|(to, from)| *to = from);
    Ok(counted)
}

/// Reads for each thousand chunks, by configuration.
fn rates(counted: &Counted, generation: usize) -> [f64; NAMES.len()] {
    let mut rates = [f64::NAN; NAMES.len()];
    for (rate, counters) in rates.iter_mut().zip(counted) {
        if let Some(counters) = counters.get(generation) {
            *rate = counters.device_reads() as f64 * 1e3 / counters.lookups.max(1) as f64;
        }
    }
    rates
}

fn generations(all: &[Counted]) -> usize {
    all.first().map_or(0, |[neither, ..]| neither.len())
}

/// What a configuration leaves of the reads without either, over generations and seeds.
fn left(all: &[Counted], places: impl Iterator<Item = usize>, configuration: usize) -> Spread {
    let share = |counted: &Counted, generation| {
        let rates = rates(counted, generation);
        rates[configuration] / rates[0]
    };
    Spread::of(places.flat_map(|place| all.iter().map(move |counted| share(counted, place))))
}

fn checks(report: &mut Report, all: &[Counted]) {
    let last = generations(all);
    let shown =
        |spread: Spread| format!("{:.2} to {:.2} %", spread.least * 100.0, spread.greatest * 100.0);
    let cases = [
        ("first generation: the summary vector spares the reads, the cache does not", 0..1, 1, 2),
        ("later generations: the cache spares the reads, the vector does not", 1..last, 2, 1),
    ];
    for (what, places, right, wrong) in cases {
        let of_right = left(all, places.clone(), right);
        let of_wrong = Spread::of(
            places.flat_map(|place| all.iter().map(move |one| rates(one, place)[wrong])),
        );
        report.check(
            what,
            of_right.greatest <= RIGHT_MAX && of_wrong.least >= WRONG_MIN,
            format!(
                "the {} leaves {} of them, the {} {:.0} to {:.0} reads for 1000 chunks",
                NAMES[right],
                shown(of_right),
                NAMES[wrong],
                of_wrong.least,
                of_wrong.greatest
            ),
        );
    }
    let both = left(all, 0..last, 3);
    report.check(
        "every generation: both together spare 99 % of the reads",
        both.greatest <= 0.01,
        format!("{} are left", shown(both)),
    );
}

fn table(all: &[Counted]) -> Table {
    let mut columns = vec!["generation".to_owned()];
    columns.extend(NAMES.iter().map(|name| format!("{name}: reads for 1000 chunks")));
    columns.extend(["both: new by the vector, %".into(), "both: found in the cache, %".into()]);
    let caption = format!(
        "The device's reads for look-ups, by which helper is there: means of {} seeds",
        all.len()
    );
    let mut table = Table::new("helpers", caption, columns);
    for generation in 0..generations(all) {
        let mean = |of: &dyn Fn(&Counted) -> f64| {
            all.iter().map(of).sum::<f64>() / all.len().max(1) as f64
        };
        let mut row = vec![Cell::count(generation as u64)];
        for configuration in 0..NAMES.len() {
            row.push(Cell::real(mean(&|it| rates(it, generation)[configuration]), 2));
        }
        let share = |of: fn(&FilterCounters) -> u64| {
            mean(&|counted| {
                let counters = counted[3].get(generation).copied().unwrap_or_default();
                of(&counters) as f64 / counters.lookups.max(1) as f64
            })
        };
        row.push(Cell::percent(share(|counters| counters.summary_negatives), 2));
        row.push(Cell::percent(share(|counters| counters.cache_hits), 2));
        table.row(row);
    }
    table
}

fn plot(report: &mut Report, all: &[Counted]) -> Result<()> {
    let series = NAMES.iter().enumerate().map(|(configuration, name)| {
        let rate = |generation| {
            let rates = all.iter().map(|counted| rates(counted, generation)[configuration]);
            // A logarithm of nothing cannot be drawn.
            (rates.sum::<f64>() / all.len().max(1) as f64).max(0.01)
        };
        let points = (0..generations(all)).map(|generation| (generation as f64, rate(generation)));
        Series::new(*name, points.collect())
    });
    let title = "Reads for look-ups by generation (S1.30)";
    let label = "reads for 1000 chunks";
    let chart = LineChart::new(title, "generation", label, series.collect());
    report.lines("helpers", &chart.scaled(Scale::Linear, Scale::Log))
}
