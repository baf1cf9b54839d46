//! Whole restores of the product, timed by every modelled device at once.
//!
//! The devices are layers of [`Latency`] one upon the other: each adds up what it would have taken,
//! none of them sleeps, and what is read does not depend on them. One request after the other is
//! charged, whatever the threads.

use super::bench::cpu_seconds;
use super::load::IMAGE;
use crate::latency::{DeviceModel, Latency};
use onefold_engine::environment::Environment;
use onefold_engine::job::Job;
use onefold_engine::memory::MemoryPlan;
use onefold_engine::patterns::Patterns;
use onefold_engine::repository::{Password, Repository};
use onefold_engine::restore::request_costs::{Reach, RequestCosts};
use onefold_engine::restore::{
    self, Delete, DumpOptions, Overwrite, PlanReport, RestoreOptions, Without,
};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_format::layout;
use onefold_format::node::Entry;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_store::layers::{Counting, Counts, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where files are restored to, so that no disk of this machine has a say.
const MEMORY: &str = "/dev/shm";
/// Threads of a restore to files.
const THREADS: usize = 2;

/// A class of devices.
pub struct DeviceClass {
    /// Its name in tables.
    pub name: &'static str,
    /// What it charges.
    pub model: DeviceModel,
}

impl DeviceClass {
    /// How far requests of a restore reach once it knows this device.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let DeviceModel { read_ns, read_bytes_per_second, .. } = self.model;
        let mut costs = RequestCosts::default();
        for bytes in (1..=100).map(|number| number * 5000) {
            let ns = read_ns + bytes * 1_000_000_000 / read_bytes_per_second;
            costs.note(bytes as usize, Duration::from_nanos(ns));
        }
        costs.reach()
    }
}

/// One of each class, slowest read first.
pub const CLASSES: [DeviceClass; 4] = [
    DeviceClass { name: "object store", model: DeviceModel::OBJECT_STORE },
    DeviceClass { name: "hard disk", model: DeviceModel::HARD_DISK },
    DeviceClass { name: "SSD", model: flash(75_000, 500_000_000) },
    DeviceClass { name: "memory", model: flash(2_000, 5_000_000_000) },
];

/// A device on which every operation takes as long.
const fn flash(access_ns: u64, bytes_per_second: u64) -> DeviceModel {
    DeviceModel {
        read_ns: access_ns,
        write_ns: access_ns,
        list_ns: access_ns,
        list_name_ns: 100,
        read_bytes_per_second: bytes_per_second,
        write_bytes_per_second: bytes_per_second,
    }
}

type Devices = Latency<Latency<Latency<Latency<MemoryStore>>>>;

/// What is made of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Its files, in a directory in memory.
    Files,
    /// The same bytes as one stream, to nowhere.
    Stream,
}

impl Output {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Files, Self::Stream];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Stream => "stream",
        }
    }

    /// The engine that is taken if nobody asks for one.
    #[must_use]
    pub fn shipped(self, memory_bytes: u64) -> RestoreEngine {
        match self {
            Self::Files => RestoreEngine::Direct,
            Self::Stream => RestoreEngine::OptimalChunks { memory_bytes },
        }
    }
}

/// What a restore took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restoring {
    /// Plain bytes restored.
    pub bytes: u64,
    /// CPU time of the process.
    pub cpu_seconds: f64,
    /// Containers of which something was read; zero for streams, which do not tell.
    pub containers: u64,
    /// Read requests of all kinds.
    pub reads: u64,
    /// Bytes of all kinds read.
    pub bytes_read: u64,
    /// Of the requests, those for frames of chunks.
    pub data_reads: u64,
    /// Of the bytes, those of frames of chunks.
    pub data_bytes: u64,
    /// Each class's time, in the order of [`CLASSES`].
    pub device_seconds: [f64; CLASSES.len()],
}

impl Restoring {
    /// Each class's time for frames of chunks alone.
    #[must_use]
    pub fn data_seconds(&self) -> [f64; CLASSES.len()] {
        seconds(self.data_reads, self.data_bytes)
    }
}

/// What each class charges for so many reads of so many bytes.
#[must_use]
pub fn seconds(reads: u64, bytes: u64) -> [f64; CLASSES.len()] {
    CLASSES.map(|class| {
        let DeviceModel { read_ns, read_bytes_per_second, .. } = class.model;
        (reads * read_ns) as f64 / 1e9 + bytes as f64 / read_bytes_per_second as f64
    })
}

/// Restores a snapshot's item out of objects with an engine; `None` is what the product takes for
/// streams.
///
/// # Errors
/// Those of a restore; something was not restored.
pub fn restore(
    objects: &MemoryStore,
    environment: &Environment,
    memory: MemoryPlan,
    snapshot: SessionId,
    output: Output,
    engine: Option<RestoreEngine>,
    reach: Reach,
) -> Result<Restoring> {
    let device = Arc::new(Counting::new(stacked(objects.clone_state())));
    let store: Arc<dyn Store> = Arc::clone(&device) as _;
    let (repository, entry) = open(store, environment, memory, snapshot, output)?;
    let target = tempfile::tempdir_in(if Path::new(MEMORY).is_dir() { MEMORY } else { "." })
        .context(|| "making a directory to restore into")?;
    device.take();
    let before = elapsed(device.inner());
    let cpu = cpu_seconds();
    let (job, _) = Job::unattended();
    let (bytes, containers) = match output {
        Output::Files => {
            let engine = engine.unwrap_or(RestoreEngine::Direct);
            let mut options = options(target.path().join("files"), engine)?;
            options.reach = Some(reach);
            let report = restore::restore(&repository, &entry, &options, &job)?;
            if report.errors > 0 {
                return Err(Error::damaged(format!("{} items were not restored", report.errors)));
            }
            (report.bytes_written, report.containers)
        }
        Output::Stream => {
            let options = DumpOptions { engine, reach: Some(reach), ..DumpOptions::default() };
            (restore::dump(&repository, &entry, &options, &mut Nowhere, &job)?, 0)
        }
    };
    let cpu_seconds = cpu_seconds() - cpu;
    let after = elapsed(device.inner());
    let mut device_seconds = [0.0; CLASSES.len()];
    for (seconds, (before, after)) in device_seconds.iter_mut().zip(before.into_iter().zip(after)) {
        *seconds = (after - before) as f64 / 1e9;
    }
    let counts = device.take();
    let data = counts.of(layout::CONTAINERS, Operation::GetRange);
    Ok(Restoring {
        bytes,
        cpu_seconds,
        containers,
        reads: read(&counts, |count| count.calls),
        bytes_read: read(&counts, |count| count.bytes),
        data_reads: data.calls,
        data_bytes: data.bytes,
        device_seconds,
    })
}

/// Plans the restore of all files of a snapshot as the product restores them.
///
/// # Errors
/// Those of a restore.
pub fn plan_files(
    objects: &MemoryStore,
    environment: &Environment,
    memory: MemoryPlan,
    snapshot: SessionId,
) -> Result<PlanReport> {
    let store: Arc<dyn Store> = Arc::new(objects.clone_state());
    let (repository, entry) = open(store, environment, memory, snapshot, Output::Files)?;
    let options = options(PathBuf::new(), RestoreEngine::Direct)?;
    let (job, _) = Job::unattended();
    restore::plan(&repository, &entry, &options, &job)
}

/// Opens a store and finds what is to be restored.
fn open(
    store: Arc<dyn Store>,
    environment: &Environment,
    memory: MemoryPlan,
    snapshot: SessionId,
    output: Output,
) -> Result<(Arc<Repository>, Entry)> {
    let password = || Ok(Password::default());
    let repository = Repository::open(store, password, environment.clone(), memory)?;
    let repository = Arc::new(repository);
    let list = SnapshotList::load(&repository)?;
    let missing = || Error::new(ErrorKind::NotFound, "the snapshot has gone");
    let root = list.get(snapshot).ok_or_else(missing)?.record.root;
    let image = format!("/{IMAGE}");
    let path = if output == Output::Stream { image.as_bytes() } else { b"/" };
    let entry = TreeReader::open(&repository)?.resolve(root, path)?;
    Ok((repository, entry))
}

/// Options for all files but the image.
fn options(target: PathBuf, engine: RestoreEngine) -> Result<RestoreOptions> {
    Ok(RestoreOptions {
        target,
        overwrite: Overwrite::IfChanged,
        in_place: false,
        saved_within_ns: 0..0,
        delete: Delete::Nothing,
        sparse: false,
        verify: false,
        dry_run: false,
        include: Patterns::none(),
        exclude: Patterns::build(&[format!("/{IMAGE}")], &[])?,
        threads: THREADS,
        engine,
        placed: None,
        sources: None,
        follows_out: false,
        reach: Some(Reach::NEAR),
        without: Without::default(),
        spared: None,
    })
}

/// A stream that nobody reads.
struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn stacked(objects: MemoryStore) -> Devices {
    let [first, second, third, fourth] = CLASSES.map(|class| class.model);
    let inner = Latency::new(Latency::new(objects, fourth), third);
    Latency::new(Latency::new(inner, second), first)
}

fn elapsed(devices: &Devices) -> [u64; CLASSES.len()] {
    let (first, second) = (devices, devices.inner());
    let (third, fourth) = (second.inner(), second.inner().inner());
    [first.elapsed_ns(), second.elapsed_ns(), third.elapsed_ns(), fourth.elapsed_ns()]
}

fn read(counts: &Counts, of: fn(&onefold_store::layers::Count) -> u64) -> u64 {
    let is_read =
        |operation| matches!(operation, Operation::Get | Operation::GetRange | Operation::GetTail);
    counts
        .iter()
        .filter(|(_, operation, _)| is_read(*operation))
        .map(|(.., count)| of(&count))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::bench::Bench;
    use crate::collection::load::Load;
    use crate::source::generator::{Parameters, Preset};
    use onefold_types::limits;

    #[test]
    fn every_engine_restores_the_same_and_the_clocks_agree_with_the_counts() {
        let memory = MemoryPlan::new(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
        let bench = Bench::new(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
        let parameters =
            Parameters { streams: 1, deletion: None, ..Parameters::preset(Preset::Aged, 300) };
        let mut load = Load::new(parameters, 4).unwrap().with_images();
        for _ in 0..3 {
            load.generation(&bench).unwrap();
        }
        let (newest, twice) = *load.snapshots.last().unwrap();
        let (objects, environment) = bench.parts();
        let run = |output, engine| {
            restore(objects, environment, memory, newest, output, engine, Reach::NEAR)
        };
        for output in Output::ALL {
            for engine in RestoreEngine::with_memory(memory.stash_bytes as u64) {
                if output == Output::Stream && !engine.is_sequential() {
                    assert!(run(output, Some(engine)).is_err());
                    continue;
                }
                let took = run(output, Some(engine)).unwrap();
                assert_eq!(took.bytes * 2, twice, "{engine}");
                assert!(took.data_reads > 0 && took.data_reads < took.reads);
                let clocks =
                    took.device_seconds.into_iter().zip(seconds(took.reads, took.bytes_read));
                // Listings are charged, too, and are no reads.
                for ((clock, counted), data) in clocks.zip(took.data_seconds()) {
                    assert!(data < counted && counted <= clock + 1e-6, "{clock} {counted} {data}");
                }
            }
            let shipped = run(output, None).unwrap();
            let named = run(output, Some(output.shipped(memory.stash_bytes as u64))).unwrap();
            assert_eq!((shipped.reads, shipped.bytes_read), (named.reads, named.bytes_read));
        }
    }
}
