//! Restores of many generations, by one stream and by four at once, with rewriting and without.
//!
//! Streams are backed up generation by generation, into a store without rewriting, into one with
//! the default, and into one with the default that is believed to be on a hard disk: where reads
//! are quick rewriting counts frames, where they are not it counts containers. Then generations are
//! dumped, each compared byte by byte with what was saved. MB/s are this machine's, with what the
//! page cache keeps of the store; for the hard disk its model adds up every request of a dump whose
//! requests reach as far as pays there. Containers are those of a plan by the engine that dumps.
//!
//! There are as much data and as much memory whatever the number of streams: what the program takes
//! unasked, divided among the processes. A dump keeps what it has read before its turn in a quarter
//! of that: a generation must not fit, or nothing would be read twice however it lies.

use super::streams::{STREAMS, Streams, name};
use crate::collection::restores::CLASSES;
use crate::experiment::Setting;
use crate::parallel;
use crate::product::{Item, Opened, Product, ReadingTime, Spread, Took, reads, stream, timed};
use crate::report::{Cell, LineChart, Report, Series, Table};
use onefold_engine::ingest::BackupOptions;
use onefold_engine::job::Job;
use onefold_engine::restore::RestoreOptions;
use onefold_engine::statistics::statistics;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_policy::rewrite::LOSS_DEFAULT;
use onefold_types::{Result, SessionId, limits};
use std::path::Path;
use std::sync::Arc;

/// The memory limits of all streams together.
pub const LIMIT_BYTES: usize = limits::MEMORY_LIMIT_DEFAULT_BYTES;
/// FAST'08, Fig. 9: MB/s of one stream at least, and of four generation by generation; what follows
/// is about the last.
const PAPER_ONE: f64 = 100.0;
const PAPER_FOUR: [f64; 4] = [211.0, 192.0, 165.0, 140.0];
/// The hard disk's place among the classes of devices.
const HARD_DISK: usize = 1;
const MEMORY_NS: u64 = 100;
/// What the last quarter of the generations may need more than the quarter before.
const FLAT_MAX: f64 = 1.1;
/// What may be stored again for each byte that is new, at the default loss of the ratio.
const AGAIN_MAX: f64 = LOSS_DEFAULT / (1.0 - LOSS_DEFAULT);

/// How a store came about: name, rewriting, and whether it is believed to be on a hard disk. Where
/// reads are quick the default rewrites only if a loss is named.
const KINDS: [(&str, &str, bool); 3] =
    [("none", "none", false), ("auto", "auto,loss=2", false), ("auto, hard disk", "auto", true)];
const NONE: usize = 0;
const HERE: usize = 1;
const DISK: usize = 2;

/// A store, and the snapshots of each stream.
struct Shelf {
    product: Product,
    snapshots: Vec<Vec<SessionId>>,
    rewritten_bytes: u64,
    new_bytes: u64,
}

impl Shelf {
    /// Entries of the index, and chunks in containers.
    fn listed(&self) -> Result<(u64, u64)> {
        let counted = statistics(&self.product.open()?.repository, &Job::unattended().0)?;
        Ok((counted.index_entries, counted.chunks_data + counted.chunks_nodes))
    }
}

/// One generation read from one store by all its streams at once.
#[derive(Clone, Default)]
struct Restored {
    bytes: u64,
    took: Vec<Took>,
    containers: u64,
    container_reads: u64,
    frames: u64,
    requests: u64,
    disk_seconds: f64,
}

impl Restored {
    fn speed(&self) -> Spread {
        Spread::of(self.took.iter().map(|took| took.speed(self.bytes)))
    }

    fn disk_speed(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.disk_seconds
    }

    fn per_hundred(&self, count: u64) -> f64 {
        count as f64 / (self.bytes as f64 / 1e8)
    }

    fn reads_per_hundred(&self) -> f64 {
        self.per_hundred(self.container_reads)
    }

    fn frames_per_hundred(&self) -> f64 {
        self.per_hundred(self.frames)
    }
}

/// What one number of streams gave: by kind of store, then by generation read.
struct Outcome {
    streams: usize,
    generations: Vec<usize>,
    /// Of the space of new chunks, what was stored again, by kind.
    rewritten: Vec<f64>,
    /// Entries of the index and chunks, by kind.
    listed: Vec<(u64, u64)>,
    kinds: Vec<Vec<Restored>>,
}

/// Runs this part: as much data, whatever the number of streams.
pub fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let (chunks, count, rounds) = if setting.tiny { (1_200, 5, 1) } else { (32_000, 51, 3) };
    for number in [1, STREAMS] {
        if setting.tiny && number > 1 {
            break;
        }
        let streams = Streams::new(chunks / number, count, 7)?;
        let outcome = measure(&streams, number, count as usize, rounds)?;
        checks(setting, report, &outcome);
        report.table(speeds(&outcome));
        report.table(containers(&outcome));
        plot(report, &outcome)?;
    }
    Ok(())
}

fn measure(streams: &Streams, number: usize, count: usize, rounds: usize) -> Result<Outcome> {
    let shelves = fill(streams, number, count)?;
    let is_read = |generation: &usize| *generation < 10 || generation.is_multiple_of(10);
    let generations: Vec<usize> = (0..count).filter(is_read).collect();
    let mut kinds = vec![Vec::new(); shelves.len()];
    for generation in &generations {
        let saved = (0..number).map(|stream| streams.bytes(stream, *generation));
        let saved = saved.collect::<Result<Vec<_>>>()?;
        let mut restored = Vec::new();
        for shelf in &shelves {
            restored.push(plan_and_model(shelf, *generation, &saved)?);
        }
        for _ in 0..rounds {
            // The third is believed to be on a hard disk, which this machine's need not be.
            for (shelf, restored) in shelves.iter().zip(&mut restored).take(DISK) {
                restored.took.push(read(shelf, *generation, &saved)?);
            }
        }
        kinds.iter_mut().zip(restored).for_each(|(kind, restored)| kind.push(restored));
    }
    let rewritten = |shelf: &Shelf| shelf.rewritten_bytes as f64 / shelf.new_bytes as f64;
    let rewritten = shelves.iter().map(rewritten).collect();
    let listed = shelves.iter().map(Shelf::listed).collect::<Result<_>>()?;
    Ok(Outcome { streams: number, generations, rewritten, listed, kinds })
}

/// Backs up all generations of so many streams into a store of each kind.
fn fill(streams: &Streams, number: usize, count: usize) -> Result<Vec<Shelf>> {
    let mut shelves = Vec::new();
    for (_, _, is_disk) in KINDS {
        let product = Product::create(LIMIT_BYTES / number)?;
        let read_ns = CLASSES[HARD_DISK].model.read_ns;
        let product = if is_disk { product.told(read_ns, MEMORY_NS) } else { product };
        let snapshots = vec![Vec::new(); number];
        shelves.push(Shelf { product, snapshots, rewritten_bytes: 0, new_bytes: 0 });
    }
    let places: Vec<usize> = (0..number).collect();
    for generation in 0..count {
        let bytes = parallel::map(&places, parallel::threads(), |stream| {
            streams.bytes(*stream, generation).map(Arc::new)
        })?;
        for (shelf, (_, rewrite, _)) in shelves.iter_mut().zip(KINDS) {
            let product = &shelf.product;
            let backups = parallel::map(&places, number, |place| {
                let opened = product.open()?;
                let source = stream(&name(*place), &bytes[*place], &ReadingTime::default());
                let rewrite = rewrite.parse()?;
                let options = BackupOptions { rewrite, ..product.options(&name(*place)) };
                product.back_up(&opened, source, &options)
            })?;
            for (snapshots, backup) in shelf.snapshots.iter_mut().zip(backups) {
                snapshots.push(backup.snapshot);
                shelf.rewritten_bytes += backup.report.summary.bytes_rewritten;
                shelf.new_bytes += backup.report.summary.bytes_new;
            }
        }
    }
    Ok(shelves)
}

/// Opens a store once for each stream and finds its file of a generation.
fn open(shelf: &Shelf, generation: usize) -> Result<Vec<(Opened, Item)>> {
    let each = shelf.snapshots.iter().enumerate().map(|(stream, snapshots)| {
        let opened = shelf.product.open()?;
        let missing = || onefold_types::Error::invalid("there is no such generation");
        let snapshot = *snapshots.get(generation).ok_or_else(missing)?;
        let item = opened.locate(snapshot, format!("/{}", name(stream)).as_bytes())?;
        Ok((opened, item))
    });
    each.collect()
}

/// Counts containers, and lets the model of a hard disk add up a dump; this also brings the store
/// into the page cache.
fn plan_and_model(shelf: &Shelf, generation: usize, saved: &[Vec<u8>]) -> Result<Restored> {
    let mut restored = Restored::default();
    for (opened, item) in &open(shelf, generation)? {
        let engine: RestoreEngine = opened.dump_engine();
        let options = RestoreOptions { engine, ..shelf.product.restoring(Path::new(""), item) };
        let plan = opened.plan(&options, item)?;
        restored.containers += plan.containers;
        restored.container_reads += plan.container_reads;
        restored.frames += plan.frames;
    }
    let reach = CLASSES[HARD_DISK].reach();
    for ((opened, item), saved) in open(shelf, generation)?.iter().zip(saved) {
        opened.device.take();
        let before = opened.hard_disk_seconds();
        opened.dump(item, saved, Some(reach))?;
        restored.disk_seconds += opened.hard_disk_seconds() - before;
        restored.requests += reads(&opened.device.take());
        restored.bytes += saved.len() as u64;
    }
    Ok(restored)
}

/// Dumps a generation of all streams at once.
fn read(shelf: &Shelf, generation: usize, saved: &[Vec<u8>]) -> Result<Took> {
    let opened = open(shelf, generation)?;
    let each: Vec<(&(Opened, Item), &Vec<u8>)> = opened.iter().zip(saved).collect();
    let ((), took) = timed(|| {
        let done = parallel::map(&each, each.len(), |((opened, item), saved)| {
            opened.dump(item, saved, None)
        });
        done.map(drop)
    })?;
    Ok(took)
}

fn checks(setting: &Setting, report: &mut Report, outcome: &Outcome) {
    let Outcome { streams, kinds, rewritten, listed, .. } = outcome;
    type Count = fn(&Restored) -> f64;
    let (containers, frames): (Count, Count) =
        (Restored::reads_per_hundred, Restored::frames_per_hundred);
    for (what, count, kind) in [("containers", containers, DISK), ("frames", frames, HERE)] {
        let first = kinds[NONE].first().map_or(f64::NAN, count);
        let last = |kind: usize| kinds[kind].last().map_or(f64::NAN, count);
        // A tiny stream is in so few that there is nothing to be spared.
        let is_less = last(kind) < last(NONE) || setting.tiny && last(kind) <= last(NONE);
        report.check(
            format!("{streams} streams: the last generation needs fewer {what} where they count"),
            is_less,
            format!(
                "reads of {what} for 100 MB: {first:.1} at first, at last {:.1} without rewriting, \
                 {:.1} with",
                last(NONE),
                last(kind)
            ),
        );
    }
    let space = Spread::of(rewritten.iter().copied());
    report.check(
        format!("{streams} streams: what is stored again keeps to the default loss"),
        space.greatest <= AGAIN_MAX,
        format!(
            "{:.2} % of what is new, {:.2} % by containers; {:.2} % are allowed; the indexes \
             list {} and {} entries for {} and {} chunks",
            rewritten[HERE] * 100.0,
            rewritten[DISK] * 100.0,
            AGAIN_MAX * 100.0,
            listed[HERE].0,
            listed[DISK].0,
            listed[HERE].1,
            listed[DISK].1,
        ),
    );
    if !setting.tiny {
        decay_checks(report, outcome);
    }
}

/// What is said about fifty generations, and about MB/s.
fn decay_checks(report: &mut Report, outcome: &Outcome) {
    let Outcome { streams, kinds, generations, .. } = outcome;
    let quarter = |kind: usize, from: usize| {
        let count = generations.last().map_or(0, |last| last + 1);
        let range = count * from / 4..count * (from + 1) / 4;
        let reads = kinds[kind].iter().zip(generations);
        let reads: Vec<f64> = reads
            .filter(|(_, generation)| range.contains(generation))
            .map(|(restored, _)| restored.reads_per_hundred())
            .collect();
        reads.iter().sum::<f64>() / reads.len().max(1) as f64
    };
    let growth = [NONE, DISK].map(|kind| quarter(kind, 3) / quarter(kind, 2));
    report.check(
        format!("{streams} streams: with rewriting reads stay about as they are in the end"),
        growth[1] <= FLAT_MAX,
        format!(
            "last quarter over the one before: {:.2} times with, {:.2} without",
            growth[1], growth[0]
        ),
    );
    let least = |kind: usize| Spread::of(kinds[kind].iter().map(|it| it.speed().median)).least;
    let wanted = if *streams == 1 { PAPER_ONE } else { PAPER_FOUR[3] };
    report.check(
        format!("{streams} streams: this machine reads every generation at the paper's MB/s"),
        least(HERE) >= wanted && least(NONE) >= wanted,
        format!("{:.0} MB/s at least with rewriting, {:.0} without", least(HERE), least(NONE)),
    );
    let share = |kind: usize, of: fn(&Restored) -> f64| {
        let (first, last) = (kinds[kind].first(), kinds[kind].last());
        first.zip(last).map_or(f64::NAN, |(first, last)| of(last) / of(first))
    };
    let [paper_first, .., paper_last] = PAPER_FOUR;
    let paper = paper_last / paper_first;
    report.check(
        format!(
            "{streams} streams: with rewriting a hard disk keeps the paper's share of its speed"
        ),
        share(DISK, Restored::disk_speed) >= paper,
        format!(
            "{:.2} of the first generation's with, {:.2} without; on this machine {:.2} and {:.2}; \
             paper {paper:.2} (four streams)",
            share(DISK, Restored::disk_speed),
            share(NONE, Restored::disk_speed),
            share(HERE, |restored| restored.speed().median),
            share(NONE, |restored| restored.speed().median),
        ),
    );
}

fn speeds(outcome: &Outcome) -> Table {
    let Outcome { streams, kinds, generations, .. } = outcome;
    let mut columns = vec!["generation".to_owned()];
    for (name, ..) in &KINDS[..DISK] {
        columns
            .extend(["MB/s", "least", "greatest", "processors"].map(|it| format!("{name}: {it}")));
    }
    columns.push("paper's MB/s".into());
    columns.extend(["none", "auto"].map(|name| format!("hard disk, {name}: modelled MB/s")));
    let bytes = kinds[NONE].first().map_or(0, |restored| restored.bytes / 1_000_000);
    let rounds = kinds[NONE].first().map_or(0, |restored| restored.took.len());
    let caption = format!("Reading {bytes} MB by {streams} streams, {rounds} rounds: medians");
    let mut table = Table::new(format!("reading-{streams}"), caption, columns);
    for (place, generation) in generations.iter().enumerate() {
        let mut row = vec![Cell::count(*generation as u64)];
        for kind in [NONE, HERE] {
            let restored = &kinds[kind][place];
            let speed = restored.speed();
            row.extend([speed.median, speed.least, speed.greatest].map(|it| Cell::real(it, 0)));
            let processors = Spread::of(restored.took.iter().map(Took::processors));
            row.push(Cell::real(processors.median, 2));
        }
        let four = PAPER_FOUR.get(*generation).or(PAPER_FOUR.last()).copied();
        let paper = if *streams == 1 { Some(PAPER_ONE) } else { four };
        // The paper has ten generations.
        let paper = paper.filter(|_| *generation < 10);
        row.push(paper.map_or(Cell::Missing, |speed| Cell::real(speed, 0)));
        row.extend([NONE, DISK].map(|kind| Cell::real(kinds[kind][place].disk_speed(), 1)));
        table.row(row);
    }
    table
}

fn containers(outcome: &Outcome) -> Table {
    let Outcome { streams, kinds, generations, rewritten, .. } = outcome;
    let mut columns = vec!["generation".to_owned()];
    for (name, _, _) in KINDS {
        let of = ["containers", "reads of containers", "frames", "requests on a hard disk"];
        columns.extend(of.map(|column| format!("{name}: {column}")));
    }
    let space: Vec<String> = KINDS
        .iter()
        .zip(rewritten)
        .map(|((name, ..), share)| format!("{name} {:.2} %", share * 100.0))
        .collect();
    let caption = format!(
        "What 100 MB take, {streams} streams; stored again, of what was new: {}",
        space.join(", ")
    );
    let mut table = Table::new(format!("containers-{streams}"), caption, columns);
    for (place, generation) in generations.iter().enumerate() {
        let mut row = vec![Cell::count(*generation as u64)];
        for kind in kinds {
            let restored = &kind[place];
            let Restored { containers, container_reads, frames, requests, .. } = restored;
            let counts = [containers, container_reads, frames, requests];
            row.extend(counts.map(|count| Cell::real(restored.per_hundred(*count), 1)));
        }
        table.row(row);
    }
    table
}

fn plot(report: &mut Report, outcome: &Outcome) -> Result<()> {
    let series = KINDS.iter().zip(&outcome.kinds).map(|((name, ..), restored)| {
        let points = outcome.generations.iter().zip(restored);
        let points = points.map(|(at, restored)| (*at as f64, restored.disk_speed()));
        Series::new(*name, points.collect())
    });
    let streams = outcome.streams;
    let title = format!("Read throughput by generation, {streams} streams (Fig. 9)");
    let label = "MB/s of a modelled hard disk";
    let chart = LineChart::new(&title, "generation", label, series.collect());
    report.lines(&format!("reading-{streams}"), &chart)
}
