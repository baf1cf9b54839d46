//! Which restore engine on which device: the product's defaults against all others.

use super::{Experiment, Setting};
use crate::collection::bench::Bench;
use crate::collection::load::Load;
use crate::collection::restores::{CLASSES, DeviceClass, Output, Restoring, restore};
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::source::generator::{Parameters, Preset};
use onefold_engine::memory::MemoryPlan;
use onefold_engine::restore::request_costs::Reach;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    Time is requests and bytes on every class, and direct has the fewest of both: within a \
    window it reads each container once, whatever the order of the output, and no engine that \
    must write in order reads less. So the order of the engines hardly depends on the device, \
    only the distances do. For files the next best takes at worst 1.04 times as long where few \
    files change (aged), 1.22 times where all do (scattered); caches of containers or chunks \
    take 1.25 to 3.21 times as long. For streams optimal-chunks is the best everywhere, within 1 \
    %, ALACC (adaptive) at most 3 % behind; rolling assembly takes 1.04 to 1.11 times as long, \
    caches 1.30 to 2.94. Engines have a quarter of the memory limit here, as a dump has; with 48 \
    MiB more than half of the requests are not for frames (likely for sections and the index). \
    The last table is about the length of requests: fitted to the device (decision record 0021) \
    the default takes 0.67 to 0.72 times as long on the two classes that seek with 256 MiB, 0.89 \
    to 0.97 times with 48 MiB, and on the others nothing changes. The models charge each request \
    as if it stood alone; a disk is faster where one follows the other.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "restore-devices",
        claim: "The shipped restore engines, direct for files and Belady's choice over chunks for \
                streams, are the right ones on every class of device.",
        items: "issue 4",
        tolerance: "For each output, memory limit and class of device the default takes at most \
                    1.03 times the device time of the best engine with as much memory, everything \
                    that is read included, and of frames of chunks alone. Requests fitted to the \
                    device take at most 1.03 times the time of short ones.",
        explanation: EXPLANATION,
    },
    run,
};

/// How far from the best a default may be.
const TIMES_MAX: f64 = 1.03;
/// What the program takes if nothing is said, and the least that works.
const LIMITS: [usize; 2] = [limits::MEMORY_LIMIT_DEFAULT_BYTES, limits::MEMORY_LIMIT_MIN_BYTES];
/// Changes in few files, and anywhere.
const LOADS: [Preset; 2] = [Preset::Aged, Preset::Scattered];

/// All engines with one output, one memory limit, one load.
struct Outcome {
    load: String,
    output: Output,
    limit_bytes: usize,
    engine_bytes: u64,
    shipped: RestoreEngine,
    engines: Vec<(RestoreEngine, Restoring)>,
    /// The default with requests that reach as far as pays on each class.
    reaching: Vec<Restoring>,
}

impl Outcome {
    fn name(&self) -> String {
        format!("{}, {} MiB, {}", self.output.name(), self.limit_bytes / limits::MIB, self.load)
    }

    fn file(&self, what: &str) -> String {
        let megabytes = self.limit_bytes / limits::MIB;
        format!("{what}-{}-{megabytes}-{}", self.output.name(), self.load)
    }

    /// For each class: times the best engine's seconds.
    fn times(
        &self,
        restoring: &Restoring,
        seconds: fn(&Restoring) -> [f64; CLASSES.len()],
    ) -> [f64; CLASSES.len()] {
        let mut times = seconds(restoring);
        for (place, time) in times.iter_mut().enumerate() {
            let all = self.engines.iter().filter_map(|(_, one)| seconds(one).get(place).copied());
            *time /= all.fold(f64::INFINITY, f64::min);
        }
        times
    }

    fn shipped(&self) -> Option<&Restoring> {
        let found = self.engines.iter().find(|(engine, _)| *engine == self.shipped);
        found.map(|(_, restoring)| restoring)
    }
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut outcomes = Vec::new();
    for preset in LOADS {
        outcomes.extend(load(preset, setting.tiny)?);
    }
    checks(report, &outcomes);
    for outcome in &outcomes {
        report.table(table(outcome));
    }
    report.table(reaches(&outcomes));
    for outcome in &outcomes {
        plot(report, outcome)?;
    }
    Ok(())
}

/// Ages a store, and restores the newest generation in every way.
fn load(preset: Preset, tiny: bool) -> Result<Vec<Outcome>> {
    let (chunks, generations) = if tiny { (4_000, 8) } else { (24_000, 16) };
    let parameters = Parameters {
        streams: 1,
        generations,
        generations_min: generations,
        deletion: None,
        ..Parameters::preset(preset, chunks)
    };
    let bench = Bench::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let mut load = Load::new(parameters, 16)?.with_images();
    for _ in 0..generations {
        load.generation(&bench)?;
    }
    let Some((newest, _)) = load.snapshots.last().copied() else { return Ok(Vec::new()) };
    let mut outcomes = Vec::new();
    for output in Output::ALL {
        for limit_bytes in LIMITS {
            let memory = MemoryPlan::new(limit_bytes)?;
            let engine_bytes = memory.stash_bytes as u64;
            let (objects, environment) = bench.parts();
            let run = |engine, reach| {
                let engine = Some(engine);
                restore(objects, environment, memory, newest, output, engine, reach)
            };
            let can = |engine: &RestoreEngine| output == Output::Files || engine.is_sequential();
            let all = RestoreEngine::with_memory(engine_bytes).into_iter().filter(can);
            let take = |engine| Ok((engine, run(engine, Reach::NEAR)?));
            let engines = all.map(take).collect::<Result<Vec<_>>>()?;
            let shipped = output.shipped(engine_bytes);
            let with_reach = |class: &DeviceClass| run(shipped, class.reach());
            let reaching = CLASSES.iter().map(with_reach).collect::<Result<Vec<_>>>()?;
            outcomes.push(Outcome {
                load: preset.to_string(),
                output,
                limit_bytes,
                engine_bytes,
                shipped,
                engines,
                reaching,
            });
        }
    }
    Ok(outcomes)
}

fn checks(report: &mut Report, outcomes: &[Outcome]) {
    for outcome in outcomes {
        let Some(shipped) = outcome.shipped() else { continue };
        let all = outcome.times(shipped, |one| one.device_seconds);
        let data = outcome.times(shipped, Restoring::data_seconds);
        let listed =
            |times: [f64; CLASSES.len()]| times.map(|time| format!("{time:.3}")).join(", ");
        report.check(
            format!(
                "{}: {} is within 3 % of the best on {}",
                outcome.name(),
                outcome.shipped.name(),
                CLASSES.map(|class| class.name).join(", ")
            ),
            all.into_iter().chain(data).all(|time| time <= TIMES_MAX),
            format!("times the best: {}; frames of chunks alone: {}", listed(all), listed(data)),
        );
        let gained = all_gained(outcome, shipped);
        report.check(
            format!("{}: fitted requests cost no class 3 % more", outcome.name()),
            gained.iter().all(|times| *times <= TIMES_MAX),
            format!("times the default with short ones: {}", listed(gained)),
        );
        let same = outcome.engines.iter().all(|(_, one)| one.bytes == shipped.bytes);
        if !same || shipped.bytes == 0 {
            let what = format!("{}: every engine restores the same bytes", outcome.name());
            report.check(what, false, format!("{} bytes by the default", shipped.bytes));
        }
    }
}

/// For each class: times the seconds with the shortest requests.
fn all_gained(outcome: &Outcome, shipped: &Restoring) -> [f64; CLASSES.len()] {
    let mut times = [1.0; CLASSES.len()];
    for (place, (time, with)) in times.iter_mut().zip(&outcome.reaching).enumerate() {
        if let (Some(more), Some(less)) =
            (shipped.device_seconds.get(place), with.device_seconds.get(place))
        {
            *time = less / more;
        }
    }
    times
}

fn name(engine: &RestoreEngine) -> String {
    let rolling = matches!(engine, RestoreEngine::ForwardAssembly { rolling: true, .. });
    format!("{}{}", engine.name(), if rolling { ", rolling" } else { "" })
}

fn table(outcome: &Outcome) -> Table {
    let mut columns: Vec<String> =
        ["engine", "read requests", "of which for frames", "MB read", "of which frames", "CPU, s"]
            .map(str::to_owned)
            .into();
    columns.extend(CLASSES.map(|class| format!("{}, device s", class.name)));
    columns.push("times the best, at worst".into());
    let bytes = outcome.engines.first().map_or(0, |(_, one)| one.bytes);
    let caption = format!(
        "{}: {:.1} MB restored, engines with {:.1} MiB",
        outcome.name(),
        bytes as f64 / 1e6,
        outcome.engine_bytes as f64 / limits::MIB as f64,
    );
    let mut table = Table::new(outcome.file("engines"), caption, columns);
    for (engine, one) in &outcome.engines {
        let mut row = vec![
            Cell::text(name(engine)),
            Cell::count(one.reads),
            Cell::count(one.data_reads),
            Cell::real(one.bytes_read as f64 / 1e6, 1),
            Cell::real(one.data_bytes as f64 / 1e6, 1),
            Cell::real(one.cpu_seconds, 2),
        ];
        row.extend(one.device_seconds.map(|seconds| Cell::real(seconds, 3)));
        let times = outcome.times(one, |one| one.device_seconds);
        row.push(Cell::real(times.into_iter().fold(0.0, f64::max), 2));
        table.row(row);
    }
    table
}

/// The default with the shortest requests, and with those that pay on each class.
fn reaches(outcomes: &[Outcome]) -> Table {
    let columns = [
        "restore",
        "device",
        "gap at most, KiB",
        "request at most, KiB",
        "requests",
        "fitted",
        "MB",
        "fitted",
    ];
    let mut columns: Vec<String> = columns.map(str::to_owned).into();
    columns.extend(["device s", "fitted", "times"].map(str::to_owned));
    let caption =
        "The default with requests of 1 MiB without gaps, and with requests fitted to the device";
    let mut table = Table::new("reaches", caption, columns);
    for outcome in outcomes {
        let Some(one) = outcome.shipped() else { continue };
        let both = one.device_seconds.iter().zip(&outcome.reaching).enumerate();
        for (place, (seconds, with)) in both {
            let (Some(class), Some(less)) = (CLASSES.get(place), with.device_seconds.get(place))
            else {
                continue;
            };
            table.row(vec![
                Cell::text(outcome.name()),
                Cell::text(class.name),
                Cell::count(class.reach().gap_bytes_max / limits::KIB as u64),
                Cell::count(class.reach().read_bytes_max / limits::KIB as u64),
                Cell::count(one.data_reads),
                Cell::count(with.data_reads),
                Cell::real(one.data_bytes as f64 / 1e6, 1),
                Cell::real(with.data_bytes as f64 / 1e6, 1),
                Cell::real(*seconds, 3),
                Cell::real(*less, 3),
                Cell::real(less / seconds, 2),
            ]);
        }
    }
    table
}

fn plot(report: &mut Report, outcome: &Outcome) -> Result<()> {
    let series = outcome.engines.iter().map(|(engine, one)| {
        let times = outcome.times(one, |one| one.device_seconds);
        let points = CLASSES.iter().zip(times);
        let points = points.map(|(class, time)| (class.model.read_ns as f64 / 1e3, time));
        Series::new(name(engine), points.collect())
    });
    let title = format!("Device time over the best engine's: {}", outcome.name());
    let chart = LineChart::new(&title, "a read, us", "times the best", series.collect());
    report.lines(&outcome.file("times"), &chart.scaled(Scale::Log, Scale::Log))
}
