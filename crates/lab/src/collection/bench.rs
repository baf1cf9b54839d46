//! A store in memory behind layers that count and that add up a modelled disk's time.
//!
//! Invariant: nothing here decides. Options go to [`collect`] as they are, and the report that
//! comes back is the engine's own.

use crate::latency::{DeviceModel, Latency};
use crate::product;
use onefold_engine::collection::{
    CollectOptions, CollectReport, MarkAlgorithm, SpaceGoal, collect,
};
use onefold_engine::environment::Environment;
use onefold_engine::job::Job;
use onefold_engine::memory::MemoryPlan;
use onefold_engine::repository::{InitOptions, Repository};
use onefold_format::layout;
use onefold_store::layers::{Count, Counting, Counts, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::environment::{Clock, SeededRandomness};
use onefold_types::{Result, limits};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The disk that all experiments are on.
pub const DEVICE: DeviceModel = DeviceModel::HARD_DISK;
/// Enough for the marks of any experiment in one round.
pub const PLENTY_BYTES: usize = 512 * limits::MIB;
/// What a store's names and labels follow from.
const SEED: u64 = 0xfa57_2017;
/// Between two questions for the time: names of containers are ordered by milliseconds.
const TICK_NS: i64 = 1_000_000;

type Device = Counting<Latency<MemoryStore>>;

/// A store, its modelled device, and the objects below.
pub struct Bench {
    /// The open store.
    pub repository: Arc<Repository>,
    device: Arc<Device>,
    objects: MemoryStore,
    environment: Environment,
    memory: MemoryPlan,
}

/// What a collection took.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// What the engine says.
    pub report: CollectReport,
    /// CPU time of the process.
    pub cpu_seconds: f64,
    /// Time of the modelled device, everything included.
    pub device_seconds: f64,
    /// The part of it that goes to records: sessions, outcomes, tombstones, epochs.
    pub record_seconds: f64,
    /// Requests for containers and metadata packs.
    pub container_reads: u64,
    /// Requests for pieces of the index.
    pub index_reads: u64,
}

impl Measured {
    /// Processor and device, one after the other, without the records of snapshots.
    #[must_use]
    pub fn mark_seconds(&self) -> f64 {
        self.cpu_seconds + self.device_seconds - self.record_seconds
    }

    /// Processor and device, one after the other.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.cpu_seconds + self.device_seconds
    }

    /// Nodes walked.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.report.mark.enumeration.nodes
    }
}

/// A clock that goes on by a tick whenever it is asked: the same run names the same containers.
#[derive(Debug)]
struct TickingClock(AtomicI64);

impl Clock for TickingClock {
    fn now_ns(&self) -> i64 {
        self.0.fetch_add(TICK_NS, Ordering::SeqCst)
    }
}

impl Bench {
    /// An empty store, not encrypted, with this memory limit.
    ///
    /// # Errors
    /// The limit is below the least that works.
    pub fn new(memory_bytes: usize) -> Result<Self> {
        let objects = MemoryStore::new();
        let device = layers(&objects);
        let environment = Environment {
            randomness: Arc::new(SeededRandomness::new(SEED)),
            clock: Arc::new(TickingClock(AtomicI64::new(1_700_000_000_000_000_000))),
            ..Environment::system()
        };
        let memory = MemoryPlan::new(memory_bytes)?;
        let options =
            InitOptions { suite: onefold_crypto::Suite::None, ..product::store_options()? };
        let store: Arc<dyn Store> = Arc::clone(&device) as _;
        let repository = Repository::create(store, &options, None, environment.clone(), memory)?;
        Ok(Self { repository: Arc::new(repository), device, objects, environment, memory })
    }

    /// An independent store in the present state (S3.35).
    ///
    /// # Errors
    /// Those of opening a store.
    pub fn copy(&self) -> Result<Self> {
        let objects = self.objects.clone_state();
        let device = layers(&objects);
        let environment = self.environment.clone();
        let store: Arc<dyn Store> = Arc::clone(&device) as _;
        let password = || Ok(zeroize_none());
        let repository = Repository::open(store, password, environment.clone(), self.memory)?;
        let memory = self.memory;
        Ok(Self { repository: Arc::new(repository), device, objects, environment, memory })
    }

    /// The objects without their layers, and the environment that they were made in.
    #[must_use]
    pub fn parts(&self) -> (&MemoryStore, &Environment) {
        (&self.objects, &self.environment)
    }

    /// Marks, and stops there, as a process that has just opened the store: what wrote it shares no
    /// memory with this.
    ///
    /// # Errors
    /// Those of a collection.
    pub fn mark(&self, algorithm: MarkAlgorithm, marks_bytes: usize) -> Result<Measured> {
        let options = CollectOptions {
            goal: SpaceGoal::Everything,
            mark_only: true,
            ..options(algorithm, marks_bytes)
        };
        self.copy()?.collect(&options)
    }

    /// Collects.
    ///
    /// # Errors
    /// Those of a collection.
    pub fn collect(&self, options: &CollectOptions) -> Result<Measured> {
        self.device.take();
        let (cpu, device) = (cpu_seconds(), self.device.inner().elapsed_ns());
        let (job, _) = Job::unattended();
        let report = collect(&self.repository, options, &job)?;
        let counts = self.device.take();
        let elapsed_ns = self.device.inner().elapsed_ns() - device;
        Ok(Measured {
            report,
            cpu_seconds: cpu_seconds() - cpu,
            device_seconds: elapsed_ns as f64 / 1e9,
            record_seconds: record_seconds(&counts),
            container_reads: reads(&counts, &[layout::CONTAINERS, layout::METADATA]),
            index_reads: reads(&counts, &[layout::INDEX]),
        })
    }
}

/// Options for one algorithm with one thread, so that wall time is CPU time.
#[must_use]
pub fn options(algorithm: MarkAlgorithm, marks_bytes: usize) -> CollectOptions {
    CollectOptions {
        algorithm,
        grace: Duration::ZERO,
        threads: 1,
        marks_bytes: Some(marks_bytes),
        ..CollectOptions::default()
    }
}

/// CPU time of this process, all threads together.
#[must_use]
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn layers(objects: &MemoryStore) -> Arc<Device> {
    Arc::new(Counting::new(Latency::new(objects.clone(), DEVICE)))
}

/// Nobody asks: the stores are not encrypted.
fn zeroize_none() -> onefold_engine::repository::Password {
    onefold_engine::repository::Password::default()
}

fn reads(counts: &Counts, tops: &[&str]) -> u64 {
    let is_read =
        |operation| matches!(operation, Operation::Get | Operation::GetRange | Operation::GetTail);
    let wanted =
        counts.iter().filter(|(top, operation, _)| tops.contains(top) && is_read(*operation));
    wanted.map(|(_, _, count)| count.calls).sum()
}

/// What the device's model charges for everything but containers, packs and index.
fn record_seconds(counts: &Counts) -> f64 {
    let bulk = [layout::CONTAINERS, layout::METADATA, layout::INDEX];
    let records = counts.iter().filter(|(top, ..)| !bulk.contains(top));
    records.map(|(_, operation, count)| charged_seconds(operation, count)).sum()
}

fn charged_seconds(operation: Operation, count: Count) -> f64 {
    let Count { calls, bytes, names, .. } = count;
    let (each_ns, per_second) = match operation {
        listing if listing.is_listing() => (DEVICE.list_ns, 0),
        write if write.is_write() || write == Operation::Settle => {
            (DEVICE.write_ns, DEVICE.write_bytes_per_second)
        }
        _ => (DEVICE.read_ns, DEVICE.read_bytes_per_second),
    };
    let moving = if per_second == 0 { 0.0 } else { bytes as f64 / per_second as f64 };
    (calls * each_ns + names * DEVICE.list_name_ns) as f64 / 1e9 + moving
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_independent_and_the_clock_agrees_with_the_counts() {
        let bench = Bench::new(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
        let copy = bench.copy().unwrap();
        let measured = copy.mark(MarkAlgorithm::Exact, PLENTY_BYTES).unwrap();
        assert_eq!((measured.report.snapshots, measured.nodes()), (0, 0));
        assert!(measured.record_seconds <= measured.device_seconds + 1e-9);
        assert_eq!(measured.container_reads, 0);
        copy.collect(&options(MarkAlgorithm::Exact, PLENTY_BYTES)).unwrap();
        assert_eq!(bench.objects.operations(), 0);
    }
}
