//! Whether the order in which a collection copies is of use to restores of the newest snapshots.

use super::{Experiment, Setting};
use crate::collection::bench::{Bench, PLENTY_BYTES, options};
use crate::collection::load::Load;
use crate::collection::restores::{CLASSES, Output, plan_files, restore};
use crate::report::{Cell, Claim, LineChart, Report, Series, Table};
use crate::source::generator::{Parameters, Preset};
use onefold_engine::collection::{CollectOptions, MarkAlgorithm};
use onefold_engine::memory::MemoryPlan;
use onefold_engine::restore::request_costs::Reach;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    The newest snapshots of the three lineages stay in 50 to 59 containers, collection after \
    collection. Copied as they lie they spread over more and more, 92 to 100 at the end, nearly \
    as many as in the store that is never collected (105), likely because chunks of all \
    lineages and ages stay mixed. So the order saves 23 to 25 % of a hard disk's time, 24 to 25 \
    % of an object store's, 9 to 12 % of an SSD's, and 60 to 62 % of the container reads of a \
    stream. Of the bytes opened 13 % more than needed are left, instead of 21 to 24 %, and 54 \
    to 80 % without collections: most of that is due to collecting as such. The first \
    collection, which copies the same bytes either way, takes 6 to 7 % more of a hard disk's \
    time for it, likely because frames are read in another order than they lie in and the \
    newest trees are walked; later ones copy less, up to 31 % in one, so that all together take \
    1 to 8 % less. How much is due to the order and how much to keeping apart what only older \
    snapshots need was not measured. The backups do not rewrite here; with rewriting the \
    difference is likely smaller. At the default goal of 5 % each collection copies 61 to 78 MB \
    of 176, so that the order has much to work on.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "gc-locality",
        claim: "Copying in the order in which the newest snapshots need the chunks makes restores \
                of these better than copying in the order of containers.",
        items: "issue 5",
        tolerance: "For each load, after the last collection, the restores of all lineages' \
                    newest snapshots touch at most 0.95 times as many containers as with copies \
                    in the order of containers, open as little of the bytes, take as little time \
                    of a hard disk and, as streams with 32 MiB, as few container reads (tiny: no \
                    more).",
        explanation: EXPLANATION,
    },
    run,
};

/// Changes in few files, and anywhere.
const LOADS: [Preset; 2] = [Preset::Aged, Preset::Scattered];
/// Clients that share nothing.
const LINEAGES: u32 = 3;
/// Generations between two collections, and generations that are kept.
const EVERY: u32 = 4;
/// How many snapshots are asked for the order of copies; `None` is a store that is never collected.
const WAYS: [Option<usize>; 3] = [Some(8), Some(0), None];
/// What the order must save at least.
const TIMES_MAX: f64 = 0.95;
/// The device whose time is shown.
const DISK: usize = 1;

/// The newest snapshots of all lineages after one generation, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    generation: u32,
    stored_bytes: u64,
    copied_bytes: u64,
    frames_carried: u64,
    collect_cpu_seconds: f64,
    collect_disk_seconds: f64,
    bytes: u64,
    containers: u64,
    frames: u64,
    bytes_opened: u64,
    requests: u64,
    device_seconds: [f64; CLASSES.len()],
    stream_reads: u64,
}

impl Newest {
    /// Bytes opened for each byte that is needed.
    fn opened(&self) -> f64 {
        self.bytes_opened as f64 / self.bytes.max(1) as f64
    }

    fn disk_seconds(&self) -> f64 {
        self.device_seconds.get(DISK).copied().unwrap_or_default()
    }
}

/// One load, aged in every way.
struct Outcome {
    load: Preset,
    ways: Vec<Vec<Newest>>,
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut outcomes = Vec::new();
    for load in LOADS {
        let ways = WAYS.iter().map(|way| age(load, *way, setting.tiny));
        outcomes.push(Outcome { load, ways: ways.collect::<Result<_>>()? });
    }
    for outcome in &outcomes {
        checks(report, outcome, if setting.tiny { 1.0 } else { TIMES_MAX });
    }
    for outcome in &outcomes {
        report.table(table(outcome));
    }
    for outcome in &outcomes {
        plot(report, outcome)?;
    }
    Ok(())
}

/// Writes, forgets and collects; the newest snapshots after each collection.
fn age(preset: Preset, ordering: Option<usize>, tiny: bool) -> Result<Vec<Newest>> {
    let (chunks, generations) = if tiny { (2_000, 12) } else { (12_000, 24) };
    let parameters = Parameters {
        streams: LINEAGES,
        generations,
        generations_min: generations,
        deletion: None,
        ..Parameters::preset(preset, chunks)
    };
    let bench = Bench::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let mut load = Load::new(parameters, 16)?;
    let mut all = Vec::new();
    for generation in 1..=generations {
        load.generation(&bench)?;
        if !generation.is_multiple_of(EVERY) {
            continue;
        }
        let kept = (EVERY * LINEAGES) as usize;
        let old = load.snapshots.len().saturating_sub(kept);
        load.forget(&bench, old, |_| true)?;
        let mut newest = Newest { generation, ..Newest::default() };
        if let Some(ordering_snapshots_max) = ordering {
            let base = options(MarkAlgorithm::Auto, PLENTY_BYTES);
            let collected = bench.collect(&CollectOptions { ordering_snapshots_max, ..base })?;
            newest.copied_bytes = collected.report.copied_bytes;
            newest.frames_carried = collected.report.frames_carried;
            newest.collect_cpu_seconds = collected.cpu_seconds;
            newest.collect_disk_seconds = collected.device_seconds;
        }
        newest.measure(&bench, &load)?;
        all.push(newest);
    }
    Ok(all)
}

impl Newest {
    /// Restores the newest snapshot of every lineage.
    fn measure(&mut self, bench: &Bench, load: &Load) -> Result<()> {
        let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
        let (objects, environment) = bench.parts();
        self.stored_bytes = bench.mark(MarkAlgorithm::Exact, PLENTY_BYTES)?.report.stored_bytes;
        for (snapshot, _) in load.snapshots.iter().rev().take(LINEAGES as usize) {
            let plan = plan_files(objects, environment, memory, *snapshot)?;
            self.bytes += plan.bytes;
            self.containers += plan.containers;
            self.frames += plan.frames;
            self.bytes_opened += plan.bytes_opened;
            let is_stream =
                |engine: &RestoreEngine| matches!(engine, RestoreEngine::OptimalChunks { .. });
            let reads = plan.engines.iter().filter(|(engine, _)| is_stream(engine));
            self.stream_reads += reads.map(|(_, reads)| reads).sum::<u64>();
            let took =
                restore(objects, environment, memory, *snapshot, Output::Files, None, Reach::NEAR)?;
            self.requests += took.data_reads;
            for (sum, more) in self.device_seconds.iter_mut().zip(took.device_seconds) {
                *sum += more;
            }
        }
        Ok(())
    }
}

fn name(way: Option<usize>) -> &'static str {
    match way {
        Some(1..) => "as the newest need it",
        Some(0) => "as they lie",
        None => "never collected",
    }
}

fn checks(report: &mut Report, outcome: &Outcome, times_max: f64) {
    let mut last = outcome.ways.iter().map(|way| way.last().copied().unwrap_or_default());
    let (Some(newest), Some(lying)) = (last.next(), last.next()) else { return };
    let mut check = |what: &str, value: fn(&Newest) -> f64| {
        let times = value(&newest) / value(&lying);
        report.check(
            format!("{}: {what} after copies as the newest need them", outcome.load),
            times <= times_max,
            format!("{:.2} and {:.2}: {times:.3} times", value(&newest), value(&lying)),
        );
    };
    check("fewer containers", |one| one.containers as f64);
    check("fewer bytes opened for each needed", Newest::opened);
    check("fewer seconds of a hard disk", Newest::disk_seconds);
    check("fewer container reads of a stream", |one| one.stream_reads as f64);
}

fn table(outcome: &Outcome) -> Table {
    let mut columns: Vec<String> = [
        "generation",
        "copies",
        "stored, MB",
        "copied, MB",
        "frames carried",
        "collection, CPU s",
        "collection, hard disk s",
        "containers",
        "frames",
        "requests",
        "opened / needed",
        "stream: reads",
        "stream: speed factor",
    ]
    .map(str::to_owned)
    .into();
    columns.extend(CLASSES.map(|class| format!("{}, s", class.name)));
    let caption = format!("{}: restores of the newest snapshots, added up", outcome.load);
    let mut table = Table::new(format!("newest-{}", outcome.load), caption, columns);
    let steps = outcome.ways.first().map_or(0, Vec::len);
    for step in 0..steps {
        for (way, all) in WAYS.into_iter().zip(&outcome.ways) {
            let Some(one) = all.get(step) else { continue };
            let mega = |bytes: u64| Cell::real(bytes as f64 / 1e6, 1);
            let factor = one.bytes as f64 / f64::from(1 << 20) / one.stream_reads.max(1) as f64;
            let mut row = vec![
                Cell::count(u64::from(one.generation)),
                Cell::text(name(way)),
                mega(one.stored_bytes),
                mega(one.copied_bytes),
                Cell::count(one.frames_carried),
                Cell::real(one.collect_cpu_seconds, 2),
                Cell::real(one.collect_disk_seconds, 1),
                Cell::count(one.containers),
                Cell::count(one.frames),
                Cell::count(one.requests),
                Cell::real(one.opened(), 3),
                Cell::count(one.stream_reads),
                Cell::real(factor, 2),
            ];
            row.extend(one.device_seconds.map(|seconds| Cell::real(seconds, 3)));
            table.row(row);
        }
    }
    table
}

fn plot(report: &mut Report, outcome: &Outcome) -> Result<()> {
    let lines = |value: fn(&Newest) -> f64| {
        let line = |(way, all): (Option<usize>, &Vec<Newest>)| {
            let points = all.iter().map(|one| (f64::from(one.generation), value(one)));
            Series::new(name(way), points.collect())
        };
        WAYS.into_iter().zip(&outcome.ways).map(line).collect::<Vec<_>>()
    };
    let load = outcome.load;
    let title = format!("Restores of the newest: time of a hard disk, {load}");
    let chart = LineChart::new(&title, "generation", "seconds", lines(Newest::disk_seconds));
    report.lines(&format!("disk-{load}"), &chart)?;
    let title = format!("Restores of the newest: bytes opened for each needed, {load}");
    let chart = LineChart::new(&title, "generation", "times", lines(Newest::opened));
    report.lines(&format!("opened-{load}"), &chart)
}
