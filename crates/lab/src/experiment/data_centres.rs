//! Two data centres that begin to back up: Tables 1 to 3 and Figs. 4 to 7 of FAST'08.
//!
//! The terms are the paper's: a day's global ratio is its logical bytes over those of its chunks
//! that were never seen before; its local ratio, these over what compression leaves of them;
//! cumulative ones are of sums from the first day on. What is new is compressed for real, in frames
//! of the product's size by the product's default; descriptors, index and tree are not counted. The
//! simulation of the product looks the same stream up and must come to the same bytes.

use super::{Experiment, Setting};
use crate::parallel;
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::simulation::Setup;
use crate::source::data_centre::{DataCentre, Extent, Kind, SCALE, SEEDING_DAYS, Site};
use crate::source::generator::{Generator, Preset};
use onefold_format::codec::{Compression, Compressor};
use onefold_policy::FilterOrder;
use onefold_policy::lookup::LookupStrategy;
use onefold_types::limits::FRAME_PLAIN_TARGET_BYTES;
use onefold_types::{Error, Result};
use std::collections::HashSet;

const EXPLANATION: &str = "\
    The data are synthetic and no customer's: shares of change, their scatter from day to day and \
    how well content compresses are put in, chosen for the averages of Tables 1 and 2, so that \
    averages near the paper's say nothing. What follows from them is the shape: seeding, what a \
    missed day costs, fulls against increments, the growth of the cumulative ratios. Those of A \
    stay below the paper's because nothing in the generated seed repeats. The paper's seed did: \
    16.9 TB at 22.53 : 1 are 750 GB, and 24 days of 600 GB at 40.63 : 1 on average need 354 GB of \
    them at least, which leaves at most 396 GB for six days that lead to fulls of over 600 GB. \
    All content of a client compresses alike, so that local ratios scatter less than the paper's, \
    at A hardly at all. B's daily ratios reach no more than 26 here, the paper's 45; likely \
    its days differ more than this calendar has them.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "data-centres",
        claim: "After some days of seeding, most of a backup is there already: daily ratios jump, \
                vary with what is backed up while compression stays as it is, and the cumulative \
                ratios grow with what is kept.",
        items: "S1.31, S1.32, S1.33, S1.34, S1.35",
        tolerance: "For every seed: the first day's global ratio is below 1.05; the average of \
                    the days after seeding is at least 3 times that of seeding, and at A each of \
                    these days is above each of seeding; cumulative ratios grow from day to day \
                    at A and from week to week at B; the day after a missed one has less than \
                    the average ratio at A; file systems' increments have less than their fulls \
                    at B; daily local ratios scatter less than global ones in relation to their \
                    averages; the product's look-up stores exactly what is new.",
        explanation: EXPLANATION,
    },
    run,
};

/// Seeds, and those of the tiny form.
const SEEDS: [u64; 3] = [1, 2, 3];
const SEEDS_TINY: usize = 2;
/// Memory of the locality cache: fingerprints of a few days.
const CACHE_BYTES: usize = 64 << 20;

/// Logical bytes, those of new chunks, and those after compression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Bytes {
    logical: u64,
    unique: u64,
    stored: u64,
}

impl Bytes {
    fn global(self) -> f64 {
        self.logical as f64 / self.unique.max(1) as f64
    }

    fn local(self) -> f64 {
        self.unique as f64 / self.stored.max(1) as f64
    }

    fn total(self) -> f64 {
        self.logical as f64 / self.stored.max(1) as f64
    }

    fn add(&mut self, other: Self) {
        self.logical += other.logical;
        self.unique += other.unique;
        self.stored += other.stored;
    }
}

struct Day {
    day: u32,
    own: Bytes,
    /// From the first day on.
    cumulative: Bytes,
    /// Logical and unique bytes of file systems: fulls, increments.
    files: [Bytes; 2],
}

/// A data centre of one seed.
struct Measured {
    site: Site,
    seed: u64,
    days: Vec<Day>,
    /// Whether the simulation stored the same bytes each day, and missed nothing.
    agrees: bool,
}

/// What a statistic is taken of.
type Ratio = fn(Bytes) -> f64;

/// Minimum, maximum, average, standard deviation.
type Statistics = [f64; 4];

/// Tables 1 and 2: global, local; then the cumulative global and total ratio.
fn papers(site: Site) -> (Statistics, Statistics, [f64; 2]) {
    match site {
        Site::A => ([10.05, 74.31, 40.63, 13.73], [1.58, 1.97, 1.78, 0.09], [22.53, 38.54]),
        Site::B => ([5.09, 45.16, 13.92, 9.08], [1.40, 4.13, 2.33, 0.57], [6.85, 13.71]),
    }
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let seeds = SEEDS.into_iter().take(if setting.tiny { SEEDS_TINY } else { SEEDS.len() });
    let jobs: Vec<(Site, u64)> =
        seeds.flat_map(|seed| Site::ALL.map(|site| (site, seed))).collect();
    let measured = parallel::map(&jobs, parallel::threads(), |(site, seed)| {
        measure(*site, *seed, setting.tiny)
    })?;
    let scale = if setting.tiny { 10 * SCALE } else { SCALE };
    report.text(format!(
        "One byte stands for {scale} of the paper's. Statistics are of the days after seeding \
         (the first {SEEDING_DAYS}) that have a backup, as in the paper; the standard deviation is \
         that of all these days."
    ));
    for site in Site::ALL {
        let of_site: Vec<&Measured> = measured.iter().filter(|one| one.site == site).collect();
        of_site.iter().for_each(|one| checks(report, one));
        statistics_table(report, site, &of_site);
        if let Some(first) = of_site.first() {
            plots(report, first)?;
        }
    }
    data_sets(setting.tiny, report)?;
    for site in Site::ALL {
        measured.iter().find(|one| one.site == site).into_iter().for_each(|one| {
            report.table(days_table(one));
        });
    }
    Ok(())
}

/// What is new in a stream of numbered chunks, and what compression makes of it.
struct Store {
    seen: HashSet<u64>,
    compressor: Compressor,
    frame: Vec<u8>,
    coded: Vec<u8>,
    /// Bytes of the frames that were coded since the last backup was closed.
    coded_bytes: u64,
}

impl Store {
    fn new() -> Result<Self> {
        let compressor = Compressor::new(Compression::default())?;
        let (frame, coded) = (Vec::new(), Vec::new());
        Ok(Self { seen: HashSet::new(), compressor, frame, coded, coded_bytes: 0 })
    }

    /// Takes a chunk; `append` appends its bytes. Without `stored`, which [`Store::close`] gives.
    fn take(
        &mut self,
        number: u64,
        length_bytes: u32,
        append: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<Bytes> {
        let logical = u64::from(length_bytes);
        if !self.seen.insert(number) {
            return Ok(Bytes { logical, ..Bytes::default() });
        }
        append(&mut self.frame)?;
        if self.frame.len() >= FRAME_PLAIN_TARGET_BYTES {
            self.compress()?;
        }
        Ok(Bytes { logical, unique: logical, stored: 0 })
    }

    fn compress(&mut self) -> Result<()> {
        self.compressor.compress(&self.frame, &mut self.coded)?;
        self.coded_bytes += self.coded.len() as u64;
        self.frame.clear();
        Ok(())
    }

    /// Ends a backup; the bytes that it stored.
    fn close(&mut self) -> Result<u64> {
        if !self.frame.is_empty() {
            self.compress()?;
        }
        Ok(std::mem::take(&mut self.coded_bytes))
    }
}

fn measure(site: Site, seed: u64, tiny: bool) -> Result<Measured> {
    let centre = DataCentre::new(site, seed, tiny)?;
    let mut store = Store::new()?;
    let mut days: Vec<Day> = Vec::new();
    let mut cumulative = Bytes::default();
    centre.each_day(&mut |day, backups| {
        let (mut own, mut files) = (Bytes::default(), [Bytes::default(); 2]);
        for backup in backups {
            let mut held = Bytes::default();
            for number in &backup.numbers {
                let chunk = centre.chunk(backup.client, *number);
                let chunk = chunk.ok_or_else(|| Error::invalid("a backup without a client"))?;
                let append =
                    |bytes: &mut Vec<u8>| centre.append_bytes(backup.client, *number, bytes);
                held.add(store.take(*number, chunk.length_bytes, append)?);
            }
            if backup.kind == Kind::FileSystem {
                let [fulls, increments] = &mut files;
                match backup.extent {
                    Extent::Full => fulls.add(held),
                    Extent::Incremental => increments.add(held),
                }
            }
            own.add(held);
        }
        own.stored = store.close()?;
        cumulative.add(own);
        days.push(Day { day, own, cumulative, files });
        Ok(())
    })?;
    let eager = LookupStrategy::Eager(FilterOrder::CacheFirst);
    let outcome = Setup::new(eager, CACHE_BYTES).run(&centre)?;
    let pairs = days.iter().zip(&outcome.generations);
    let agrees = outcome.generations.len() == days.len()
        && pairs.clone().all(|(day, looked_up)| {
            looked_up.generation == day.day
                && (looked_up.bytes, looked_up.bytes_new) == (day.own.logical, day.own.unique)
                && looked_up.missed + looked_up.false_duplicates == 0
        });
    Ok(Measured { site, seed, days, agrees })
}

impl Measured {
    /// Daily ratios of seeding, and of the days after it.
    fn ratios(&self, ratio: Ratio) -> (Vec<f64>, Vec<f64>) {
        let of = |seeding: bool| {
            let days = self.days.iter().filter(|one| (one.day <= SEEDING_DAYS) == seeding);
            days.map(|one| ratio(one.own)).collect()
        };
        (of(true), of(false))
    }

    fn end(&self) -> Bytes {
        self.days.last().map_or(Bytes::default(), |day| day.cumulative)
    }

    /// Whether both cumulative ratios grow after seeding; at B from week to week, since an
    /// increment may have less than they are.
    fn cumulative_grows(&self) -> bool {
        let step = if self.site == Site::A { 1 } else { 7 };
        let ends = (SEEDING_DAYS..=self.site.days())
            .filter(|day| (day - SEEDING_DAYS).is_multiple_of(step));
        let at = |end: u32| self.days.iter().rev().find(|one| one.day <= end);
        let mut last = (0.0, 0.0);
        let missed = self.site.missed();
        ends.filter(|end| step > 1 || !missed.contains(end)).filter_map(at).all(|day| {
            let (global, total) = (day.cumulative.global(), day.cumulative.total());
            let grows = global > last.0 && total > last.1;
            last = (global, total);
            grows
        })
    }
}

fn statistics(values: &[f64]) -> Statistics {
    let count = values.len().max(1) as f64;
    let average = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|one| (one - average).powi(2)).sum::<f64>() / count;
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [least, most, average, variance.sqrt()]
}

fn checks(report: &mut Report, one: &Measured) {
    let (name, seed) = (one.site.letter(), one.seed);
    let mut check = |what: &str, holds: bool, figures: String| {
        report.check(format!("{name}, seed {seed}: {what}"), holds, figures);
    };
    let (seeding, after) = one.ratios(Bytes::global);
    let first = seeding.first().copied().unwrap_or(f64::NAN);
    check("the first day is new", first < 1.05, format!("{first:.2}"));
    let [_, most, early, _] = statistics(&seeding);
    let [least, _, average, deviation] = statistics(&after);
    let apart = one.site != Site::A || least > most;
    let figures =
        format!("on average {early:.2} and {average:.2}, at most {most:.2} and least {least:.2}");
    check("daily ratios jump after seeding", average >= 3.0 * early && apart, figures);
    let end = one.end();
    let figures = format!("at the end global {:.2}, total {:.2}", end.global(), end.total());
    check("cumulative ratios grow", one.cumulative_grows(), figures);
    let gaps = one.site.missed();
    let days = one.days.len() + gaps.len();
    let none = one.days.iter().all(|day| !gaps.contains(&day.day));
    let figures = format!("{} days with a backup", one.days.len());
    check("missed days are gaps", none && days == one.site.days() as usize, figures);
    match one.site {
        Site::A => {
            let later = one.days.iter().find(|day| day.day == 19);
            let later = later.map_or(f64::NAN, |day| day.own.global());
            let figures = format!("{later:.2}, on average {average:.2}");
            check("the day after a missed one has more new data", later < average, figures);
        }
        Site::B => {
            let mut files = [Bytes::default(); 2];
            for day in one.days.iter().filter(|day| day.day > SEEDING_DAYS) {
                files.iter_mut().zip(day.files).for_each(|(sum, one)| sum.add(one));
            }
            let [fulls, increments] = files.map(Bytes::global);
            let figures = format!("{increments:.2} and {fulls:.2}");
            check("increments have less than fulls of file systems", increments < fulls, figures);
        }
    }
    let [.., local, scatter] = statistics(&one.ratios(Bytes::local).1);
    let (local, global) = (scatter / local, deviation / average);
    let figures = format!("{:.0} % of the average, global {:.0} %", local * 100.0, global * 100.0);
    check("local ratios scatter less than global ones", local < global, figures);
    check("the product's look-up stores the same", one.agrees, "day by day".to_owned());
}

fn statistics_table(report: &mut Report, site: Site, measured: &[&Measured]) {
    let mut columns = vec!["data".to_owned()];
    for ratio in ["global", "local"] {
        columns.extend(["min", "max", "average", "deviation"].map(|one| format!("{ratio} {one}")));
    }
    columns.extend(["logical, GB", "stored, GB", "cumulative global", "total"].map(str::to_owned));
    let (file, number) = match site {
        Site::A => ("statistics-a", 1),
        Site::B => ("statistics-b", 2),
    };
    let caption = format!("Daily ratios at {} (Table {number})", site.letter());
    let mut table = Table::new(file, caption, columns);
    let numbers = |values: &[f64]| -> Vec<Cell> {
        values.iter().map(|value| Cell::real(*value, 2)).collect()
    };
    let (global, local, cumulative) = papers(site);
    let mut row = vec![Cell::text("paper, sizes in TB")];
    row.extend(numbers(&[global, local].concat()));
    row.extend(numbers(match site {
        Site::A => &[16.9, 0.44],
        Site::B => &[41.4, 3.0],
    }));
    row.extend(numbers(&cumulative));
    table.row(row);
    let mut all: Vec<Vec<f64>> = Vec::new();
    for one in measured {
        let [global, local] =
            [Bytes::global as Ratio, Bytes::local].map(|ratio| statistics(&one.ratios(ratio).1));
        let end = one.end();
        let mut values = [global, local].concat();
        values.extend([end.logical as f64 / 1e9, end.stored as f64 / 1e9]);
        values.extend([end.global(), end.total()]);
        let mut row = vec![Cell::text(format!("seed {}", one.seed))];
        row.extend(numbers(&values));
        table.row(row);
        all.push(values);
    }
    let mut row = vec![Cell::text("largest over least of the seeds")];
    let count = all.first().map_or(0, Vec::len);
    row.extend((0..count).map(|place| {
        let values: Vec<f64> = all.iter().filter_map(|row| row.get(place).copied()).collect();
        let [least, most, ..] = statistics(&values);
        Cell::real(most / least, 2)
    }));
    table.row(row);
    report.table(table);
}

fn plots(report: &mut Report, one: &Measured) -> Result<()> {
    let (letter, file) = match one.site {
        Site::A => ("A", "a"),
        Site::B => ("B", "b"),
    };
    let series = |name: &str, of: &dyn Fn(&Day) -> f64| {
        let points = one.days.iter().map(|day| (f64::from(day.day), of(day)));
        Series::new(name, points.collect())
    };
    let (sizes, ratios) = if one.site == Site::A { (4, 5) } else { (6, 7) };
    let title = format!("Capacities at {letter}, seed {} (Fig. {sizes})", one.seed);
    let lines = vec![
        series("logical", &|day| day.cumulative.logical as f64 / 1e9),
        series("physical", &|day| day.cumulative.stored as f64 / 1e9),
    ];
    report.lines(&format!("capacities-{file}"), &LineChart::new(&title, "day", "GB", lines))?;
    let title = format!("Ratios at {letter}, seed {} (Fig. {ratios})", one.seed);
    let lines = vec![
        series("daily global", &|day| day.own.global()),
        series("daily local", &|day| day.own.local()),
        series("cumulative global", &|day| day.cumulative.global()),
        series("cumulative total", &|day| day.cumulative.total()),
    ];
    let chart = LineChart::new(&title, "day", "ratio", lines);
    report.lines(&format!("ratios-{file}"), &chart.scaled(Scale::Linear, Scale::Log))
}

fn days_table(one: &Measured) -> Table {
    let columns = [
        "day",
        "logical, MB",
        "unique, MB",
        "stored, MB",
        "daily global",
        "daily local",
        "cumulative global",
        "cumulative total",
    ];
    let (letter, file) = match one.site {
        Site::A => ("A", "days-a"),
        Site::B => ("B", "days-b"),
    };
    let mut table = Table::new(file, format!("Day by day at {letter}, seed {}", one.seed), columns);
    for number in 1..=one.site.days() {
        let mut row = vec![Cell::count(u64::from(number))];
        if let Some(day) = one.days.iter().find(|day| day.day == number) {
            let sizes = [day.own.logical, day.own.unique, day.own.stored];
            row.extend(sizes.map(|bytes| Cell::real(bytes as f64 / 1e6, 1)));
            row.extend([day.own.global(), day.own.local()].map(|ratio| Cell::real(ratio, 2)));
            let all = day.cumulative;
            row.extend([all.global(), all.total()].map(|ratio| Cell::real(ratio, 2)));
        }
        table.row(row);
    }
    table
}

/// S1.31, Table 3: the two data sets that stand for the paper's own, with compression.
fn data_sets(tiny: bool, report: &mut Report) -> Result<()> {
    let columns = ["data set", "logical, GB", "global", "local", "total", "paper's"];
    let caption = "Exchange-like and Engineering-like data; global and local ratios are put in \
                   (Table 3)";
    let mut table = Table::new("data-sets", caption, columns);
    let sets = [
        (Preset::Exchange, 10_000, [5.69, 2.17, 12.36]),
        (Preset::Engineering, 30_000, [5.04, 1.93, 9.75]),
    ];
    let found = parallel::map(&sets, parallel::threads(), |(preset, chunks, _)| {
        let generator = Generator::preset(*preset, if tiny { chunks / 10 } else { *chunks })?;
        let mut store = Store::new()?;
        let mut sum = Bytes::default();
        generator.replay_files(0, &mut |_, files| {
            for number in files.iter().copied().flatten() {
                let length_bytes = generator.chunk(*number).length_bytes;
                let append = |bytes: &mut Vec<u8>| generator.append_bytes(*number, bytes);
                sum.add(store.take(*number, length_bytes, append)?);
            }
            sum.stored += store.close()?;
            Ok(())
        })?;
        Ok(sum)
    })?;
    for ((preset, _, paper), sum) in sets.iter().zip(found) {
        let [global, local, total] = paper;
        table.row([
            Cell::text(preset.to_string()),
            Cell::real(sum.logical as f64 / 1e9, 2),
            Cell::real(sum.global(), 2),
            Cell::real(sum.local(), 2),
            Cell::real(sum.total(), 2),
            Cell::text(format!("{global:.2}, {local:.2}, {total:.2}")),
        ]);
        report.check(
            format!("{preset}: the total ratio is within 20 % of Table 3"),
            (sum.total() / total - 1.0).abs() <= 0.2,
            format!("{:.2}, paper {total:.2}", sum.total()),
        );
    }
    report.table(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_centres_have_the_shape_of_tables_1_and_2() {
        let setting = Setting { tiny: true, ..Setting::default() };
        let report = EXPERIMENT.run(&setting).unwrap();
        let failing: Vec<_> = report.checks().iter().filter(|check| !check.holds).collect();
        assert!(failing.is_empty(), "{failing:#?}");
        assert_eq!(report.checks().len(), 2 * SEEDS_TINY * 7 + 2);
    }

    #[test]
    fn a_chunk_is_stored_once_and_compressed() {
        let mut store = Store::new().unwrap();
        let mut sum = Bytes::default();
        for number in [1, 2, 1, 1] {
            let append = |bytes: &mut Vec<u8>| {
                bytes.extend([7; 5000]);
                Ok(())
            };
            sum.add(store.take(number, 5000, append).unwrap());
        }
        sum.stored = store.close().unwrap();
        assert_eq!((sum.logical, sum.unique), (20_000, 10_000));
        assert!(sum.stored > 0 && sum.stored < 1000 && store.close().unwrap() == 0, "{sum:?}");
        assert!((sum.global() - 2.0).abs() < 1e-9 && sum.total() > 20.0);
    }

    #[test]
    fn statistics_are_those_of_the_tables() {
        assert_eq!(statistics(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), [2.0, 9.0, 5.0, 2.0]);
    }
}
