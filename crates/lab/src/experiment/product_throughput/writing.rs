//! Backups of one stream and of four at once: how fast, on how many processors, and what the time
//! goes to.
//!
//! Rounds take turns: each has stores of its own, and writes each generation once by one stream and
//! once by four before the next generation is made. Nothing of making the bytes is in the times.

use super::streams::{STREAMS, Streams, name};
use crate::experiment::Setting;
use crate::parallel;
use crate::product::{Backup, Product, ReadingTime, Spread, Took, stream, timed};
use crate::report::{Cell, LineChart, Report, Series, Table};
use onefold_chunking::Segmenter;
use onefold_engine::repository::Repository;
use onefold_policy::FilterCounters;
use onefold_types::{Result, limits};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

/// What the program takes if nothing is said.
pub const LIMIT_BYTES: usize = limits::MEMORY_LIMIT_DEFAULT_BYTES;
/// FAST'08, Fig. 8: MB/s of the first generation and of each later one, by one stream and by four.
const PAPER_ONE: [f64; 2] = [110.0, 113.0];
const PAPER_FOUR: [f64; 2] = [139.0, 217.0];
/// What the paper expects of many cores (S1.43).
const OUTLOOK: f64 = 400.0;
/// The ratios that the paper's streams have (S1.36): for each generation, and by compression.
const GLOBAL: std::ops::RangeInclusive<f64> = 25.0..=35.0;
const LOCAL: std::ops::RangeInclusive<f64> = 1.8..=2.2;

/// One generation in one round.
struct Written {
    bytes: u64,
    one: Took,
    backup: Backup,
    reading_seconds: f64,
    cutting_seconds: f64,
    four_bytes: u64,
    four: Took,
    /// Seconds that look-ups of the four have waited for the device, of all their seconds.
    four_waited: f64,
}

/// Seconds of the stages of one backup.
struct Stages {
    reading: f64,
    cutting: f64,
    lookup: f64,
    waited: f64,
    sealing: f64,
    putting: f64,
}

/// Stages with the threads that they have.
const STAGES: [&str; 4] = ["reading and cutting", "looking up", "sealing", "putting"];

impl Written {
    fn new_share(&self) -> f64 {
        self.backup.report.summary.bytes_new as f64 / self.bytes as f64
    }

    fn stages(&self) -> Stages {
        let lookup = &self.backup.report.lookup;
        let waited = lookup.timing.elapsed.as_secs_f64();
        let looked_up = lookup.elapsed.as_secs_f64();
        let known = self.reading_seconds + self.cutting_seconds + (looked_up - waited).max(0.0);
        Stages {
            reading: self.reading_seconds,
            cutting: self.cutting_seconds,
            lookup: looked_up,
            waited,
            sealing: (self.one.cpu_seconds - known).max(0.0),
            putting: self.backup.putting.as_secs_f64(),
        }
    }

    /// How busy the threads of each stage are, in the order of [`STAGES`].
    fn busy(&self, threads: usize) -> [f64; STAGES.len()] {
        let stages = self.stages();
        let wall = self.one.wall_seconds;
        let sealing = stages.sealing / wall / threads as f64;
        [
            (stages.reading + stages.cutting) / wall,
            stages.lookup / wall,
            sealing,
            stages.putting / wall,
        ]
    }
}

/// Runs this part.
pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let (chunks, generations, rounds) = if setting.tiny { (700, 3, 1) } else { (24_000, 10, 5) };
    let streams = Streams::new(chunks, generations, 0)?;
    let stores = (0..rounds)
        .map(|_| Ok([Product::create(LIMIT_BYTES)?, Product::create(LIMIT_BYTES)?]))
        .collect::<Result<Vec<_>>>()?;
    let mut all: Vec<Vec<Written>> = Vec::new();
    for generation in 0..generations as usize {
        let places: Vec<usize> = (0..STREAMS).collect();
        let bytes = parallel::map(&places, parallel::threads(), |stream| {
            streams.bytes(*stream, generation).map(Arc::new)
        })?;
        let is_last = generation + 1 == generations as usize;
        let written = stores.iter().map(|stores| write(stores, &bytes, is_last));
        all.push(written.collect::<Result<_>>()?);
    }
    checks(setting, report, &all);
    report.table(speeds(&all));
    report.table(stages(&all));
    report.table(verdicts(&all));
    plot(report, &all)
}

/// Writes one generation in one round, by one stream and then by four.
fn write(
    [alone, together]: &[Product; 2],
    bytes: &[Arc<Vec<u8>>],
    is_last: bool,
) -> Result<Written> {
    let Some(first) = bytes.first() else {
        return Err(onefold_types::Error::invalid("there are no streams"));
    };
    let opened = alone.open()?;
    let reading = ReadingTime::default();
    let source = stream(&name(0), first, &reading);
    let options = alone.options(&name(0));
    let (backup, one) = timed(|| alone.back_up(&opened, source, &options))?;
    let cutting_seconds = cut(&opened.repository, first);
    let places: Vec<usize> = (0..bytes.len()).collect();
    let opened = places.iter().map(|_| together.open()).collect::<Result<Vec<_>>>()?;
    let (backups, four) = timed(|| {
        parallel::map(&places, STREAMS, |place| {
            let source = stream(&name(*place), &bytes[*place], &ReadingTime::default());
            together.back_up(&opened[*place], source, &together.options(&name(*place)))
        })
    })?;
    if is_last {
        // What cannot be read back was not written.
        restored(alone, &backup, 0, first)?;
        for (place, backup) in backups.iter().enumerate() {
            restored(together, backup, place, &bytes[place])?;
        }
    }
    let waited = |backup: &Backup| backup.report.lookup.timing.elapsed.as_secs_f64();
    let elapsed = |backup: &Backup| backup.report.elapsed.as_secs_f64();
    Ok(Written {
        bytes: first.len() as u64,
        one,
        backup,
        reading_seconds: reading.seconds(),
        cutting_seconds,
        four_bytes: bytes.iter().map(|bytes| bytes.len() as u64).sum(),
        four,
        four_waited: backups.iter().map(waited).sum::<f64>()
            / backups.iter().map(elapsed).sum::<f64>(),
    })
}

fn restored(product: &Product, backup: &Backup, place: usize, saved: &[u8]) -> Result<()> {
    let opened = product.open()?;
    let item = opened.locate(backup.snapshot, format!("/{}", name(place)).as_bytes())?;
    opened.dump(&item, saved, None)
}

/// Seconds of processor that cutting a stream and fingerprinting its chunks take for themselves,
/// by the product's kernels, in messages as long as a backup's.
fn cut(repository: &Repository, bytes: &[u8]) -> f64 {
    const MESSAGE_BYTES: usize = 1 << 20;
    let chunker = &**repository.chunker();
    let window = Segmenter::window_bytes(chunker);
    let thread_seconds = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let began = thread_seconds();
    let mut segmenter = Segmenter::new(repository.configuration().chunker.tar_aware);
    let mut fingerprints = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + MESSAGE_BYTES + window).min(bytes.len());
        let (mut start, mut chunks) = (at, Vec::new());
        at += segmenter.advance(chunker, &bytes[at..end], end == bytes.len(), &mut |piece| {
            let (onefold_chunking::Piece::Data { length }
            | onefold_chunking::Piece::Hole { length }) = piece;
            chunks.push(&bytes[start..start + length]);
            start += length;
        });
        fingerprints.clear();
        repository.fingerprinter().data_batch(&chunks, &mut fingerprints);
    }
    thread_seconds() - began
}

fn spread(written: &[Written], of: impl Fn(&Written) -> f64) -> Spread {
    Spread::of(written.iter().map(of))
}

fn speed_of_one(written: &Written) -> f64 {
    written.one.speed(written.bytes)
}

fn speed_of_four(written: &Written) -> f64 {
    written.four.speed(written.four_bytes)
}

fn checks(setting: &Setting, report: &mut Report, all: &[Vec<Written>]) {
    let Some((first, later)) = all.split_first() else { return };
    let flat = || later.iter().flatten();
    let global = Spread::of(flat().map(|written| 1.0 / written.new_share()));
    let stored = |written: &Written| {
        let summary = &written.backup.report.summary;
        let plain = summary.bytes_new + summary.bytes_rewritten;
        plain as f64 / summary.bytes_stored as f64
    };
    let local = Spread::of(first.iter().map(stored));
    // A tiny stream has few changes, and by chance more or less of them.
    let global_range = if setting.tiny { 15.0..=60.0 } else { GLOBAL };
    report.check(
        "the streams are the paper's: each later generation holds about thirty times what is new \
         in it, and compresses 2 : 1",
        global_range.contains(&global.median) && LOCAL.contains(&local.median),
        format!(
            "{:.1} ({:.1} to {:.1}) and {:.2}",
            global.median, global.least, global.greatest, local.median
        ),
    );
    if setting.tiny {
        return;
    }
    speed_checks(report, first, later);
    let waits = |written: &Written| written.stages().waited / written.one.wall_seconds;
    let one = Spread::of(all.iter().map(|written| spread(written, waits).median));
    let four = Spread::of(all.iter().map(|written| spread(written, |it| it.four_waited).median));
    report.check(
        "look-ups wait for the device for at most a tenth of the time",
        one.greatest <= 0.1 && four.greatest <= 0.1,
        format!(
            "{:.1} % at most with one stream, {:.1} % with four",
            one.greatest * 100.0,
            four.greatest * 100.0
        ),
    );
}

/// What is said about MB/s.
fn speed_checks(report: &mut Report, first: &[Written], later: &[Vec<Written>]) {
    type Speed = fn(&Written) -> f64;
    let kinds: [(&str, Speed, [f64; 2]); 2] =
        [("one stream", speed_of_one, PAPER_ONE), ("four streams", speed_of_four, PAPER_FOUR)];
    let mut speeds = Vec::new();
    for (kind, speed, [paper_first, paper_later]) in kinds {
        let begin = spread(first, speed);
        let each: Vec<f64> = later.iter().map(|written| spread(written, speed).median).collect();
        let of_later = Spread::of(each.iter().copied());
        report.check(
            format!("{kind}: every later generation is written faster than the first"),
            of_later.least > begin.median,
            format!(
                "{:.0} MB/s, then {:.0} (medians of generations: {:.0} to {:.0}), {:.1} times; \
                 paper {paper_first} and {paper_later}, {:.2} times",
                begin.median,
                of_later.median,
                of_later.least,
                of_later.greatest,
                of_later.median / begin.median,
                paper_later / paper_first
            ),
        );
        speeds.push((begin.median, of_later.median));
    }
    if let [one, four] = speeds[..] {
        report.check(
            "four streams together are at least as fast as one, in the first generation and later",
            four.0 >= one.0 && four.1 >= one.1,
            format!(
                "{:.2} and {:.2} times; paper {:.2} and {:.2}",
                four.0 / one.0,
                four.1 / one.1,
                PAPER_FOUR[0] / PAPER_ONE[0],
                PAPER_FOUR[1] / PAPER_ONE[1]
            ),
        );
        report.check(
            "later generations reach the paper's outlook of 400 MB/s and more",
            one.1 >= OUTLOOK && four.1 >= OUTLOOK,
            format!("{:.0} and {:.0} MB/s on {} processors", one.1, four.1, parallel::threads()),
        );
    }
}

fn speeds(all: &[Vec<Written>]) -> Table {
    let mut columns = vec!["generation".to_owned(), "new data, %".into()];
    for kind in ["one", "four"] {
        let of = ["MB/s", "least", "greatest", "paper's MB/s", "processors"];
        columns.extend(of.map(|column| format!("{kind}: {column}")));
    }
    let first = all.first().and_then(|written| written.first());
    let megabytes = first.map_or(0, |written| written.bytes / 1_000_000);
    let caption = format!(
        "Writing {megabytes} MB a stream and generation, {} rounds: medians",
        all.first().map_or(0, Vec::len)
    );
    let mut table = Table::new("writing", caption, columns);
    for (generation, written) in all.iter().enumerate() {
        let mut row = vec![Cell::count(generation as u64)];
        row.push(Cell::percent(spread(written, Written::new_share).median, 2));
        let place = generation.min(1);
        let (one, four) = (spread(written, speed_of_one), spread(written, speed_of_four));
        let processors: [fn(&Written) -> f64; 2] =
            [|written| written.one.processors(), |written| written.four.processors()];
        for (speed, paper, processors) in
            [(one, PAPER_ONE, processors[0]), (four, PAPER_FOUR, processors[1])]
        {
            row.extend([speed.median, speed.least, speed.greatest].map(|it| Cell::real(it, 0)));
            row.push(Cell::real(paper[place], 0));
            row.push(Cell::real(spread(written, processors).median, 2));
        }
        table.row(row);
    }
    table
}

fn stages(all: &[Vec<Written>]) -> Table {
    let threads = parallel::threads();
    let columns = [
        "generation",
        "backup, ms",
        "reading, ms",
        "cutting and fingerprinting alone, CPU ms",
        "looking up, ms",
        "of that the device, ms",
        "the rest of the CPU, ms",
        "putting, ms",
        "reading and cutting, % of its thread",
        "looking up, % of its thread",
        "the rest, % of the sealing threads",
        "putting, % of its thread",
        "busiest",
    ];
    let caption = "One stream: where the time goes, medians".to_owned();
    let mut table = Table::new("stages", caption, columns);
    for (generation, written) in all.iter().enumerate() {
        let milliseconds = |of: fn(&Stages) -> f64| {
            Cell::real(spread(written, |written| of(&written.stages())).median * 1e3, 1)
        };
        let mut row = vec![Cell::count(generation as u64)];
        row.push(Cell::real(spread(written, |it| it.one.wall_seconds).median * 1e3, 1));
        row.push(milliseconds(|stages| stages.reading));
        row.push(milliseconds(|stages| stages.cutting));
        row.push(milliseconds(|stages| stages.lookup));
        row.push(milliseconds(|stages| stages.waited));
        row.push(milliseconds(|stages| stages.sealing));
        row.push(milliseconds(|stages| stages.putting));
        let mut busiest = (0.0, "");
        for (place, stage) in STAGES.iter().enumerate() {
            let busy = spread(written, |written| written.busy(threads)[place]).median;
            row.push(Cell::percent(busy, 0));
            if busy > busiest.0 {
                busiest = (busy, stage);
            }
        }
        row.push(Cell::text(busiest.1));
        table.row(row);
    }
    table
}

fn verdicts(all: &[Vec<Written>]) -> Table {
    let columns = [
        "generation",
        "chunks looked up",
        "new by the summary vector, %",
        "duplicates by the cache, %",
        "asked of the index, %",
        "containers' sections read",
        "index pages read",
        "device reads a MB",
    ];
    let caption = "One stream: who gave the verdicts, first round".to_owned();
    let mut table = Table::new("verdicts", caption, columns);
    for (generation, written) in all.iter().enumerate() {
        let Some(written) = written.first() else { continue };
        let counters: FilterCounters = written.backup.report.lookup.counters;
        let share = |count: u64| Cell::percent(count as f64 / counters.lookups.max(1) as f64, 2);
        table.row([
            Cell::count(generation as u64),
            Cell::count(counters.lookups),
            share(counters.summary_negatives),
            share(counters.cache_hits + counters.post_lookup_hits + counters.repeats),
            share(counters.index_lookups),
            Cell::count(counters.containers_prefetched),
            Cell::count(counters.index_page_reads),
            Cell::real(counters.device_reads() as f64 / (written.bytes as f64 / 1e6), 3),
        ]);
    }
    table
}

fn plot(report: &mut Report, all: &[Vec<Written>]) -> Result<()> {
    let line = |name: &str, of: &dyn Fn(usize, &[Written]) -> f64| {
        let points = all.iter().enumerate();
        Series::new(name, points.map(|(at, written)| (at as f64, of(at, written))).collect())
    };
    let series = vec![
        line("one stream", &|_, written| spread(written, speed_of_one).median),
        line("four streams", &|_, written| spread(written, speed_of_four).median),
        line("one stream, paper", &|at, _| PAPER_ONE[at.min(1)]),
        line("four streams, paper", &|at, _| PAPER_FOUR[at.min(1)]),
    ];
    let title = "Write throughput by generation (Fig. 8)";
    report.lines("writing", &LineChart::new(title, "generation", "MB/s", series))
}
