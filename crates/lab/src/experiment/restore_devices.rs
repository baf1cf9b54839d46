//! Which restore engine on which device: the product's defaults against all others.

use super::{Experiment, Setting};
use crate::collection::bench::Bench;
use crate::collection::load::Load;
use crate::collection::restores::{CLASSES, Output, Restoring, restore, seconds};
use crate::report::{Cell, Claim, LineChart, Report, Scale, Series, Table};
use crate::source::generator::{Parameters, Preset};
use onefold_engine::memory::MemoryPlan;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::{Result, limits};

const EXPLANATION: &str = "\
    Time is requests and bytes on every class, and direct has the fewest of both: within a window \
    it reads each container once, whatever the order of the output, and no engine that must write \
    in order reads less. So the order of the engines hardly depends on the device, only the \
    distances do. For files the next best takes at worst 1.12 (aged) and 1.40 times as long \
    (scattered) with 27 MiB, 1.18 and 1.22 with 2 MiB; caches of containers take 1.46 to 4.85 \
    times as long, those of chunks 1.94 to 8.22. For streams optimal-chunks is the best with 2 \
    MiB, ALACC (adaptive) 1 % behind; with 27 MiB ALACC takes up to 1.4 % less, within the \
    tolerance: Belady's rule saves chunks that would be read again, not requests (likely). The \
    others are 6 % (rolling assembly) to 9 times (cache of chunks) off. In memory the processor \
    takes five to nine times as long as the device, so that small differences do not matter. More \
    than another engine would give is elsewhere. A stream's engine with a quarter of the memory \
    limit, which must be asked for, takes 4 to 16 % less than the default with 256 MiB, 14 to 19 % \
    less with 48 MiB. With 48 MiB 55 to 84 % of the default's requests are not for frames (likely \
    for sections and index). And each container is asked for its frames in 6 to 19 requests: to \
    read it whole, once, would take 0.11 to 0.37 times as long on the two classes that seek \
    (computed, last table), and 0.56 to 1.06 times on an SSD. The models charge each request as if \
    it stood alone; a disk is faster where one follows the other.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "restore-devices",
        claim: "The shipped restore engines, direct for files and Belady's choice over chunks for \
                streams, are the right ones on every class of device.",
        items: "issue 4",
        tolerance: "For each output, memory limit and class of device the default takes at most \
                    1.03 times the device time of the best engine with as much memory, everything \
                    that is read included, and of frames of chunks alone.",
        explanation: EXPLANATION,
    },
    run,
};

/// How far from the best a default may be.
const TIMES_MAX: f64 = 1.03;
/// What the program takes if nothing is said, and the least that works.
const LIMITS: [usize; 2] = [limits::MEMORY_LIMIT_DEFAULT_BYTES, limits::MEMORY_LIMIT_MIN_BYTES];
/// A stream's engine that was asked for may have this part of the limit.
const ENGINE_MEMORY_PART: u64 = 4;
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
    /// The default with a quarter of the limit, the most that a stream's engine may be given.
    quarter: Option<(RestoreEngine, Restoring)>,
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
    report.table(gaps(&outcomes));
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
            let take = |engine| {
                let took = restore(objects, environment, memory, newest, output, Some(engine))?;
                Ok((engine, took))
            };
            let can = |engine: &RestoreEngine| output == Output::Files || engine.is_sequential();
            let all = RestoreEngine::with_memory(engine_bytes).into_iter().filter(can);
            let engines = all.map(take).collect::<Result<Vec<_>>>()?;
            let more = output.shipped(limit_bytes as u64 / ENGINE_MEMORY_PART);
            let quarter = (output == Output::Stream).then(|| take(more)).transpose()?;
            outcomes.push(Outcome {
                load: preset.to_string(),
                output,
                limit_bytes,
                engine_bytes,
                shipped: output.shipped(engine_bytes),
                engines,
                quarter,
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
        let same = outcome.engines.iter().all(|(_, one)| one.bytes == shipped.bytes);
        if !same || shipped.bytes == 0 {
            let what = format!("{}: every engine restores the same bytes", outcome.name());
            report.check(what, false, format!("{} bytes by the default", shipped.bytes));
        }
    }
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
    for (engine, one) in outcome.engines.iter().chain(&outcome.quarter) {
        let more = engine.is_sequential() && engine.memory_bytes() != outcome.engine_bytes;
        let given = match more {
            true => format!("{}, {} MiB", name(engine), engine.memory_bytes() >> 20),
            false => name(engine),
        };
        let mut row = vec![
            Cell::text(given),
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

/// What direct asks for, and what it would be to read each container whole, by the models.
fn gaps(outcomes: &[Outcome]) -> Table {
    let mut columns: Vec<String> =
        ["restore", "containers", "requests for frames", "MB in them"].map(str::to_owned).into();
    for class in &CLASSES {
        columns
            .extend([format!("{}, s", class.name), format!("{}, whole containers, s", class.name)]);
    }
    let caption = "Direct: frames as read, and as many whole containers of 4 MiB (computed)";
    let mut table = Table::new("gaps", caption, columns);
    for outcome in outcomes.iter().filter(|outcome| outcome.output == Output::Files) {
        let Some(one) = outcome.shipped() else { continue };
        let mut row = vec![
            Cell::text(outcome.name()),
            Cell::count(one.containers),
            Cell::count(one.data_reads),
            Cell::real(one.data_bytes as f64 / 1e6, 1),
        ];
        let whole = seconds(one.containers, one.containers * limits::CONTAINER_TARGET_BYTES as u64);
        for (read, whole) in one.data_seconds().into_iter().zip(whole) {
            row.extend([Cell::real(read, 3), Cell::real(whole, 3)]);
        }
        table.row(row);
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
