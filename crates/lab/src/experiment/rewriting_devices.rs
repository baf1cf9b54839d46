//! Whether rewriting earns what it costs, on each class of device: whole backups and restores of
//! the product.
//!
//! One history at a time is backed up version by version with each way of rewriting, into a store
//! in memory. What that takes is bytes of the store and CPU time. What it earns is the restore of
//! the newest version, in the time of the processor and of each modelled device, one after the
//! other. Histories: an image that is read whole, as of a virtual machine; a directory of files of
//! which most are kept unread; versions of real files.

use super::{Experiment, Setting};
use crate::collection::bench::cpu_seconds;
use crate::collection::restores::{CLASSES, DeviceClass, Output, Restoring, restore};
use crate::report::{Cell, Claim, Report, Table};
use crate::source::generator::{Generator, Parameters, Preset, Schedule};
use crate::source::versions::Versions;
use onefold_crypto::Suite;
use onefold_engine::device::HELD_CHUNK_NS;
use onefold_engine::environment::Environment;
use onefold_engine::ingest::{self, BackupOptions, BackupReport, Source};
use onefold_engine::job::Job;
use onefold_engine::memory::MemoryPlan;
use onefold_engine::repository::{InitOptions, Repository};
use onefold_policy::lookup::DeviceCosts;
use onefold_store::{MemoryStore, Store};
use onefold_types::{Result, limits};
use std::sync::Arc;

const EXPLANATION: &str = "";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "rewriting-devices",
        claim: "Where the default rewrites, restores of the newest version are faster for it; \
                where they would not be, it does not.",
        items: "S2.4, S2.38, issue 15",
        tolerance: "",
        explanation: EXPLANATION,
    },
    run,
};

/// Threads of a backup.
const THREADS: usize = 2;

/// A way of rewriting, for a device on which a read takes so long.
struct Way {
    name: &'static str,
    rewrite: &'static str,
    costs: DeviceCosts,
}

const fn by_frames(name: &'static str, rewrite: &'static str) -> Way {
    Way { name, rewrite, costs: DeviceCosts::SATA_SSD }
}

const fn by_containers(name: &'static str, rewrite: &'static str) -> Way {
    Way { name, rewrite, costs: DeviceCosts::HARD_DISK }
}

const WAYS: [Way; 9] = [
    by_frames("none", "none"),
    by_frames("2 %, frames", "auto,loss=2"),
    by_frames("4 %, frames", "auto,loss=4"),
    by_frames("8 %, frames", "auto,loss=8"),
    by_containers("2 %, containers", "auto,loss=2"),
    by_containers("4 %, containers", "auto,loss=4"),
    by_containers("8 %, containers", "auto,loss=8"),
    by_frames("flexible", "flexible,loss=4"),
    by_frames("window", "window,loss=4"),
];

/// What a history takes and gives with one way of rewriting.
struct Outcome {
    stored_bytes: u64,
    backup_seconds: f64,
    /// On each class, with requests that reach as far as pays there.
    restores: Vec<Restoring>,
}

impl Outcome {
    /// Processor and device, one after the other, on each class.
    fn seconds(&self) -> Vec<f64> {
        let restores = self.restores.iter().enumerate();
        restores.map(|(class, one)| one.cpu_seconds + one.device_seconds[class]).collect()
    }
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for (name, versions, output) in histories(setting)? {
        let outcomes =
            WAYS.iter().map(|way| measure(way, &versions, output)).collect::<Result<Vec<_>>>()?;
        report.table(table(name, &outcomes));
    }
    Ok(())
}

fn histories(setting: &Setting) -> Result<Vec<(&'static str, Versions, Output)>> {
    let (chunks, generations) = if setting.tiny { (1_000, 5) } else { (16_000, 20) };
    let generator = |preset| {
        Generator::new(Parameters {
            streams: 1,
            lineages: 1,
            generations,
            generations_min: generations,
            deletion: None,
            schedule: Schedule::Full,
            ..Parameters::preset(preset, chunks)
        })
    };
    let mut all = vec![
        ("image, aged", Versions::Image(generator(Preset::Aged)?), Output::Stream),
        ("image, scattered", Versions::Image(generator(Preset::Scattered)?), Output::Stream),
        ("files, aged", Versions::Files(generator(Preset::Aged)?), Output::Files),
        ("files, engineering", Versions::Files(generator(Preset::Engineering)?), Output::Files),
    ];
    if let Some(data) = &setting.data {
        all.push(("real files", Versions::real(data)?, Output::Files));
    }
    Ok(all)
}

fn measure(way: &Way, versions: &Versions, output: Output) -> Result<Outcome> {
    let objects = MemoryStore::new();
    let environment = Environment::system();
    let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let options = InitOptions { suite: Suite::None, ..InitOptions::standard()? };
    let store: Arc<dyn Store> = Arc::new(objects.clone());
    let repository = Repository::create(store, &options, None, environment.clone(), memory)?;
    let repository = Arc::new(repository);
    let (mut newest, mut backup_seconds, mut stored_bytes) = (None, 0.0, 0);
    versions.each(&mut |source| {
        let before = cpu_seconds();
        let report = back_up(&repository, source, way)?;
        backup_seconds += cpu_seconds() - before;
        newest = report.snapshot.or(newest);
        stored_bytes += report.summary.bytes_stored;
        Ok(())
    })?;
    let restore = |class: &DeviceClass| match newest {
        Some(id) => restore(&objects, &environment, memory, id, output, None, class.reach()),
        None => Ok(Restoring::default()),
    };
    let restores = CLASSES.iter().map(restore).collect::<Result<_>>()?;
    Ok(Outcome { stored_bytes, backup_seconds, restores })
}

fn back_up(repository: &Arc<Repository>, source: Source, way: &Way) -> Result<BackupReport> {
    let options = BackupOptions {
        threads: THREADS,
        lookup: "eager".parse()?,
        rewrite: way.rewrite.parse()?,
        device_costs: Some(way.costs.holding(HELD_CHUNK_NS)),
        ..BackupOptions::default()
    };
    ingest::backup(repository, source, &options, &Job::unattended().0)
}

fn table(name: &str, outcomes: &[Outcome]) -> Table {
    let mut columns: Vec<String> =
        ["rewriting", "stored, MB", "more, %", "CPU of backups, s", "more, %", "MB read"]
            .map(str::to_owned)
            .into();
    columns.extend(CLASSES.map(|class| format!("{}, s", class.name)));
    columns.extend(CLASSES.map(|class| format!("{}, times none", class.name)));
    let bytes = outcomes.first().map_or(0, |one| one.restores[0].bytes);
    let caption = format!("{name}: the newest version, {:.1} MB", bytes as f64 / 1e6);
    let mut table = Table::new(name.replace(", ", "-"), caption, columns);
    for (way, one) in WAYS.iter().zip(outcomes) {
        let none = &outcomes[0];
        let more = |now: f64, before: f64| Cell::real((now / before - 1.0) * 100.0, 1);
        let mut row = vec![
            Cell::text(way.name),
            Cell::real(one.stored_bytes as f64 / 1e6, 1),
            more(one.stored_bytes as f64, none.stored_bytes as f64),
            Cell::real(one.backup_seconds, 2),
            more(one.backup_seconds, none.backup_seconds),
            Cell::real(one.restores[1].bytes_read as f64 / 1e6, 1),
        ];
        row.extend(one.seconds().into_iter().map(|seconds| Cell::real(seconds, 3)));
        let times = one.seconds().into_iter().zip(none.seconds()).map(|(one, none)| one / none);
        row.extend(times.map(|times| Cell::real(times, 2)));
        table.row(row);
    }
    table
}
