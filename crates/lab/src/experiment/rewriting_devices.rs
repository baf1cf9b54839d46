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
use crate::product;
use crate::report::{Cell, Claim, Report, Table};
use crate::source::generator::{Generator, Parameters, Preset, Schedule};
use crate::source::versions::Versions;
use onefold_crypto::Suite;
use onefold_engine::device::HELD_CHUNK_NS;
use onefold_engine::environment::Environment;
use onefold_engine::ingest::{self, BackupOptions, BackupReport, Source};
use onefold_engine::job::Job;
use onefold_engine::memory::MemoryPlan;
use onefold_engine::placement::Unit;
use onefold_engine::repository::{InitOptions, Repository};
use onefold_policy::lookup::DeviceCosts;
use onefold_policy::rewrite::RewriteChoice;
use onefold_store::{MemoryStore, Store};
use onefold_types::{Result, SessionId, limits};
use std::sync::Arc;

const EXPLANATION: &str = "\
    Since chunks are stored as differences by default, a restore reads what these are made of as \
    well, and rewriting counts that (decision 0059). Where a device seeks real files are restored \
    in 0.85 and 0.88 times the time without it, generated files and images within 2 %: an image \
    that is torn evenly gains nothing by containers, none of which can be emptied for 2 %. Of \
    files that are kept unread those chunks are read again that lie in what is to be emptied, or \
    in a frame with differences against something there (decision 0062): backups of real files \
    read 4 % more for it, where they read 12 % more while whole files were read. Where reads are \
    quick the default does not rewrite (decision 0061): by frames some histories would gain, one \
    would take 1.10 times as long. CPU times are the least of three in turns, and differ by some \
    10 % from run to run on this machine all the same. What decides takes next to none of it: of \
    samples of the processor in backups of real files 0.5 % with the default and with flexible, \
    0.6 % with window lie in anything that rewrites or records placements (perf, 3 kHz, twelve \
    backups each). The rest is what rewriting does: bytes stored and read again, 1.7 and 4 % of \
    real files with the default. Images are read as a stream, and what lies beside bases is kept \
    until its turn. Devices are modelled, and charged one request after the other; the processor \
    is this machine's, the quicker of two restores.";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    claim: Claim {
        name: "rewriting-devices",
        claim: "Where the default rewrites, restores of the newest version are faster for it; \
                where they would not be, it does not.",
        items: "S2.4, S2.38, issue 15",
        tolerance: "On each class of device where the default rewrites, over all histories: \
                    restores with it take at most 0.97 times as long as without on average \
                    (geometric), and none more than 1.03 times; with twice the loss they take at \
                    least 0.96 times as long as with the default. It stores at most 2.2 % more and \
                    takes at most 3 % more CPU time, the papers' policies at most 8 %. Where it \
                    does not, restores would take more than 0.95 times as long, or one more than \
                    1.03 times. In the tiny form: device time, 1.1 times at most, and 5 % more \
                    bytes.",
        explanation: EXPLANATION,
    },
    run,
};

/// Threads of a backup.
const THREADS: usize = 2;
/// Restores of a version, the quickest of which counts.
const ROUNDS: usize = 2;
/// Stores made of a history with each way, which take turns; the quickest of them counts.
const STORES: usize = 3;

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

/// The ways that are named below.
const NONE: usize = 0;
const FRAMES: [usize; 2] = [1, 2];
const CONTAINERS: [usize; 2] = [4, 5];
const PAPERS: [(usize, &str); 2] = [(7, "flexible"), (8, "window")];

/// The default of the product on a class, and twice its loss; `None` where it does not rewrite.
fn shipped(class: &DeviceClass) -> Option<[usize; 2]> {
    match Unit::for_rewriting(&RewriteChoice::default(), class.model.read_ns)? {
        Unit::Frame => Some(FRAMES),
        Unit::Container => Some(CONTAINERS),
    }
}

/// What a history takes and gives with one way of rewriting.
struct Outcome {
    stored_bytes: u64,
    /// Of the source, by all backups.
    source_bytes: u64,
    backup_seconds: f64,
    /// On each class, with requests that reach as far as pays there.
    restores: Vec<Restoring>,
}

impl Outcome {
    /// Processor and device, one after the other, on each class.
    fn seconds(&self) -> Vec<f64> {
        let both = self.restores.iter().zip(self.device_seconds());
        both.map(|(one, device_seconds)| one.cpu_seconds + device_seconds).collect()
    }

    fn device_seconds(&self) -> Vec<f64> {
        let restores = self.restores.iter().enumerate();
        restores.map(|(class, one)| one.device_seconds[class]).collect()
    }
}

fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let mut all = Vec::new();
    for (name, versions, output) in histories(setting)? {
        let mut outcomes =
            WAYS.iter().map(|way| measure(way, &versions, output)).collect::<Result<Vec<_>>>()?;
        for _ in 1..if setting.tiny { 1 } else { STORES } {
            for (way, outcome) in WAYS.iter().zip(&mut outcomes) {
                let seconds = Backups::of(way, &versions)?.seconds;
                outcome.backup_seconds = outcome.backup_seconds.min(seconds);
            }
        }
        all.push((name, outcomes));
    }
    match setting.tiny {
        true => tiny_checks(report, &all),
        false => checks(report, &all),
    }
    for (name, outcomes) in &all {
        report.table(table(name, outcomes));
    }
    Ok(())
}

fn histories(setting: &Setting) -> Result<Vec<(&'static str, Versions, Output)>> {
    let (chunks, generations) = if setting.tiny { (800, 4) } else { (16_000, 20) };
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

/// A store of all versions.
struct Backups {
    objects: MemoryStore,
    newest: Option<SessionId>,
    stored_bytes: u64,
    source_bytes: u64,
    seconds: f64,
}

impl Backups {
    fn of(way: &Way, versions: &Versions) -> Result<Self> {
        let objects = MemoryStore::new();
        let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
        let options = InitOptions { suite: Suite::None, ..product::store_options()? };
        let store: Arc<dyn Store> = Arc::new(objects.clone());
        let repository = Repository::create(store, &options, None, Environment::system(), memory)?;
        let repository = Arc::new(repository);
        let mut made =
            Self { objects, newest: None, stored_bytes: 0, source_bytes: 0, seconds: 0.0 };
        versions.each(&mut |source| {
            let before = cpu_seconds();
            let report = back_up(&repository, source, way)?;
            made.seconds += cpu_seconds() - before;
            made.newest = report.snapshot.or(made.newest);
            made.stored_bytes += report.summary.bytes_stored;
            made.source_bytes += report.summary.bytes_read;
            Ok(())
        })?;
        Ok(made)
    }
}

fn measure(way: &Way, versions: &Versions, output: Output) -> Result<Outcome> {
    let made = Backups::of(way, versions)?;
    let environment = Environment::system();
    let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let mut restores = Vec::new();
    for class in &CLASSES {
        let Some(id) = made.newest else { break };
        let once =
            |_| restore(&made.objects, &environment, memory, id, output, None, class.reach());
        let rounds = (0..ROUNDS).map(once).collect::<Result<Vec<Restoring>>>()?;
        restores.extend(rounds.into_iter().min_by(|a, b| a.cpu_seconds.total_cmp(&b.cpu_seconds)));
    }
    let Backups { stored_bytes, source_bytes, seconds: backup_seconds, .. } = made;
    Ok(Outcome { stored_bytes, source_bytes, backup_seconds, restores })
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

/// All histories, each with the outcomes of all ways.
type All = [(&'static str, Vec<Outcome>)];

/// Of each history, what one way takes over what another one does.
fn times(all: &All, class: usize, of: usize, over: usize) -> Vec<f64> {
    let one =
        |outcomes: &[Outcome]| outcomes[of].seconds()[class] / outcomes[over].seconds()[class];
    all.iter().map(|(_, outcomes)| one(outcomes)).collect()
}

fn mean(times: &[f64]) -> f64 {
    (times.iter().map(|one| one.ln()).sum::<f64>() / times.len().max(1) as f64).exp()
}

/// What a way adds to something, over all histories.
fn more(all: &All, way: usize, what: fn(&Outcome) -> f64) -> f64 {
    let sum = |way: usize| all.iter().map(|(_, outcomes)| what(&outcomes[way])).sum::<f64>();
    sum(way) / sum(NONE) - 1.0
}

fn checks(report: &mut Report, all: &All) {
    for (place, class) in CLASSES.iter().enumerate() {
        let Some([default, twice]) = shipped(class) else {
            for (unit, [way, _]) in [("frames", FRAMES), ("containers", CONTAINERS)] {
                let gained = times(all, place, way, NONE);
                let worst = gained.iter().copied().fold(0.0, f64::max);
                report.check(
                    format!("{}: not rewriting is right, by {unit}", class.name),
                    mean(&gained) > 0.95 || worst > 1.03,
                    format!("{:.3} times none on average, {worst:.3} at worst", mean(&gained)),
                );
            }
            continue;
        };
        let gained = times(all, place, default, NONE);
        let worst = gained.iter().copied().fold(0.0, f64::max);
        report.check(
            format!("{}: restores are faster with the default", class.name),
            mean(&gained) <= 0.97 && worst <= 1.03,
            format!("{:.3} times none on average, {worst:.3} at worst", mean(&gained)),
        );
        let further = mean(&times(all, place, twice, default));
        report.check(
            format!("{}: twice the loss gains little more", class.name),
            further >= 0.96,
            format!("{further:.3} times the default"),
        );
    }
    let default = [("the default", CONTAINERS[0], 0.03)];
    let papers = PAPERS.map(|(way, name)| (name, way, 0.08));
    for (what, way, cpu_max) in default.into_iter().chain(papers) {
        let cpu = more(all, way, |one| one.backup_seconds);
        report.check(
            format!("{what}: CPU time of all backups"),
            cpu <= cpu_max,
            format!("{:.1} % more", cpu * 100.0),
        );
    }
    for (what, way, _) in default {
        let stored = more(all, way, |one| one.stored_bytes as f64);
        report.check(
            format!("{what}: bytes of all stores"),
            stored <= 0.022,
            format!("{:.1} % more", stored * 100.0),
        );
    }
}

fn tiny_checks(report: &mut Report, all: &All) {
    for (name, outcomes) in all {
        let none = &outcomes[NONE];
        let (mut worst, mut most): (f64, f64) = (0.0, 0.0);
        for (place, class) in CLASSES.iter().enumerate() {
            let one = &outcomes[shipped(class).map_or(NONE, |ways| ways[0])];
            worst = worst.max(one.device_seconds()[place] / none.device_seconds()[place]);
            most = most.max(one.stored_bytes as f64 / none.stored_bytes as f64 - 1.0);
        }
        report.check(
            format!("{name}: the default costs no restore anything, and little room"),
            worst <= 1.1 && most <= 0.05,
            format!("{worst:.3} times none at worst, {:.1} % more bytes", most * 100.0),
        );
    }
}

fn table(name: &str, outcomes: &[Outcome]) -> Table {
    let mut columns: Vec<String> = [
        "rewriting",
        "stored, MB",
        "more, %",
        "MB read by backups",
        "CPU of backups, s",
        "more, %",
        "MB read by the restore",
    ]
    .map(str::to_owned)
    .into();
    columns.extend(CLASSES.map(|class| format!("{}, s", class.name)));
    columns.extend(CLASSES.map(|class| format!("{}, times none", class.name)));
    let bytes = outcomes.first().map_or(0, |one| one.restores[0].bytes);
    let caption = format!("{name}: the newest version, {:.1} MB", bytes as f64 / 1e6);
    let mut table = Table::new(name.replace(", ", "-").replace(' ', "-"), caption, columns);
    for (way, one) in WAYS.iter().zip(outcomes) {
        let none = &outcomes[0];
        let more = |now: f64, before: f64| Cell::real((now / before - 1.0) * 100.0, 1);
        let mut row = vec![
            Cell::text(way.name),
            Cell::real(one.stored_bytes as f64 / 1e6, 1),
            more(one.stored_bytes as f64, none.stored_bytes as f64),
            Cell::real(one.source_bytes as f64 / 1e6, 1),
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
