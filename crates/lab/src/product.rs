//! The whole product on a directory of this machine, used as the program uses it.
//!
//! A store of the standard kind (encrypted, compressed, containers of 4 MiB), but for chunks as the
//! papers have them, lies in a temporary directory on disk. Whoever works on it opens it first, as
//! a process of its own would, with the caches of one process; opening is not in any time measured
//! here, and deriving the key from the password is made cheap, because nobody waits for it. What a
//! backup learns of the device the next one knows, as the program's notes keep it. Options are what
//! `onefold backup`, `dump`, `restore` and `gc` take unasked, but for what an experiment is about.
//!
//! Between the engine and the directory are layers that count requests, time puts, and add up what
//! a hard disk would have taken. None of them sleeps.

use crate::collection::bench::cpu_seconds;
use crate::latency::{DeviceModel, Latency};
use crate::parallel;
use onefold_crypto::KdfCost;
use onefold_engine::device::HELD_CHUNK_NS;
use onefold_engine::environment::{Environment, READERS};
use onefold_engine::ingest::{self, BackupOptions, BackupReport, Source};
use onefold_engine::job::Job;
use onefold_engine::memory::MemoryPlan;
use onefold_engine::patterns::Patterns;
use onefold_engine::placement::PlacedItem;
use onefold_engine::repository::{InitOptions, Password, Repository};
use onefold_engine::restore::request_costs::Reach;
use onefold_engine::restore::{
    self, Delete, DumpOptions, Overwrite, PlanReport, RestoreOptions, Without,
};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_format::node::Entry;
use onefold_policy::lookup::DeviceCosts;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_store::layers::{Counting, Counts, Operation};
use onefold_store::{LocalStore, Store};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nobody else ever sees these stores.
const PASSWORD: &[u8] = b"laboratory";

const KDF_COST: KdfCost = KdfCost { memory_kib: 64, passes: 1, lanes: 1 };

/// Chunks on average, in the papers and in the laboratory.
pub const PAPER_CHUNK_BYTES: usize = 8 << 10;

/// Stores of the laboratory are of the standard kind, but for their chunks.
///
/// # Errors
/// None that is to be expected.
pub fn store_options() -> Result<InitOptions> {
    InitOptions::standard()?.with_chunks_of(PAPER_CHUNK_BYTES)
}

/// What the engine talks to.
pub type Device = Counting<Latency<LocalStore>>;

/// What some work took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// By the clock on the wall.
    pub wall_seconds: f64,
    /// Of the processors, user and system, all threads of this process together.
    pub cpu_seconds: f64,
}

impl Took {
    /// Processors in use on average.
    #[must_use]
    pub fn processors(&self) -> f64 {
        self.cpu_seconds / self.wall_seconds
    }

    /// Megabytes a second.
    #[must_use]
    pub fn speed(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 / self.wall_seconds
    }
}

/// Does some work, and says what it took.
///
/// # Errors
/// Those of the work.
pub fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Took)> {
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let done = work()?;
    let wall_seconds = began.elapsed().as_secs_f64();
    Ok((done, Took { wall_seconds, cpu_seconds: cpu_seconds() - cpu }))
}

/// A store in a temporary directory, which goes with it.
pub struct Product {
    place: tempfile::TempDir,
    memory: MemoryPlan,
    threads: usize,
    costs: Mutex<Option<DeviceCosts>>,
    is_told: bool,
}

/// The store as one process has it open.
pub struct Opened {
    /// What every operation starts from.
    pub repository: Arc<Repository>,
    /// The layers below it.
    pub device: Arc<Device>,
}

impl Product {
    /// An empty store with a memory limit for everybody who opens it.
    ///
    /// # Errors
    /// The limit is below the least that works; there is no room.
    pub fn create(memory_bytes: usize) -> Result<Self> {
        let product = Self {
            place: tempfile::tempdir().context(|| "making a directory for a store")?,
            memory: MemoryPlan::new(memory_bytes)?,
            threads: parallel::threads(),
            costs: Mutex::default(),
            is_told: false,
        };
        let store: Arc<dyn Store> = Arc::new(LocalStore::create(product.directory())?);
        let options = InitOptions { kdf_cost: KDF_COST, ..store_options()? };
        let (environment, memory) = (product.environment(), product.memory);
        Repository::create(store, &options, Some(PASSWORD), environment, memory)?;
        Ok(product)
    }

    /// The same, believed to be on a device whose reads take so long, whatever is measured.
    #[must_use]
    pub fn told(self, read_ns: u64, memory_ns: u64) -> Self {
        let costs = DeviceCosts::new(read_ns, memory_ns).holding(HELD_CHUNK_NS);
        Self { costs: Mutex::new(Some(costs)), is_told: true, ..self }
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.place.path().join("store")
    }

    /// Threads of each operation.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    fn environment(&self) -> Environment {
        Environment { readers: READERS.min(self.threads), ..Environment::system() }
    }

    /// Opens it as a new process would.
    ///
    /// # Errors
    /// Those of opening a store.
    pub fn open(&self) -> Result<Opened> {
        let local = LocalStore::open(self.directory())?;
        let device = Arc::new(Counting::new(Latency::new(local, DeviceModel::HARD_DISK)));
        let store: Arc<dyn Store> = Arc::clone(&device) as _;
        let password = || Ok(Password::new(PASSWORD.to_vec()));
        let repository = Repository::open(store, password, self.environment(), self.memory)?;
        Ok(Opened { repository: Arc::new(repository), device })
    }

    /// Options of a backup by a machine of that name: the program's own.
    #[must_use]
    pub fn options(&self, host: &str) -> BackupOptions {
        BackupOptions {
            host: host.to_owned(),
            threads: self.threads,
            device_costs: *self.costs.lock().unwrap_or_else(PoisonError::into_inner),
            ..BackupOptions::default()
        }
    }

    /// Backs up, and remembers what was learnt of the device.
    ///
    /// # Errors
    /// Those of a backup; no snapshot was saved, or not of everything.
    pub fn back_up(
        &self,
        opened: &Opened,
        source: Source,
        options: &BackupOptions,
    ) -> Result<Backup> {
        let putting = opened.device.inner().putting();
        let report = ingest::backup(&opened.repository, source, options, &Job::unattended().0)?;
        if report.summary.errors > 0 {
            return Err(Error::damaged(format!("{} were not saved", report.summary.errors)));
        }
        let missing = || Error::invalid("a backup saved no snapshot");
        let snapshot = report.snapshot.ok_or_else(missing)?;
        if !self.is_told {
            self.remember(&report);
        }
        let putting = opened.device.inner().putting().saturating_sub(putting);
        Ok(Backup { snapshot, report, putting })
    }

    fn remember(&self, report: &BackupReport) {
        let mut known = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(memory_ns) = report.device_costs.or(*known).map(|costs| costs.memory_access_ns)
        else {
            return;
        };
        let measured = report.device_costs.or(*known).map(|costs| costs.device_read_ns);
        if let Some(read_ns) = report.lookup.timing.believed_ns().or(measured) {
            let costs = DeviceCosts::new(read_ns.max(1), memory_ns.max(1));
            *known = Some(costs.holding(HELD_CHUNK_NS));
        }
    }

    /// How the program restores into a directory.
    #[must_use]
    pub fn restoring(&self, target: &Path, item: &Item) -> RestoreOptions {
        RestoreOptions {
            target: target.to_owned(),
            overwrite: Overwrite::IfDifferent,
            in_place: false,
            saved_within_ns: 0..0,
            delete: Delete::Nothing,
            sparse: false,
            verify: false,
            dry_run: false,
            include: Patterns::none(),
            exclude: Patterns::none(),
            threads: self.threads,
            engine: RestoreEngine::Direct,
            placed: item.placed,
            sources: None,
            follows_out: false,
            reach: None,
            without: Without::default(),
            spared: None,
        }
    }
}

/// What a backup did.
pub struct Backup {
    /// Its snapshot.
    pub snapshot: SessionId,
    /// What the engine says.
    pub report: BackupReport,
    /// The time in puts, one after the other.
    pub putting: Duration,
}

/// Something in a snapshot.
pub struct Item {
    /// Its entry.
    pub entry: Entry,
    /// Where it stands in the snapshot's placement.
    pub placed: Option<PlacedItem>,
}

impl Opened {
    /// What lies at a path of a snapshot.
    ///
    /// # Errors
    /// There is nothing.
    pub fn locate(&self, snapshot: SessionId, path: &[u8]) -> Result<Item> {
        let list = SnapshotList::load(&self.repository)?;
        let missing = || Error::new(ErrorKind::NotFound, "the snapshot has gone");
        let record = &list.get(snapshot).ok_or_else(missing)?.record;
        let reader = TreeReader::open(&self.repository)?;
        let (entry, first_chunk) = reader.resolve_place(record.root, path)?;
        let placed = record.placement.map(|placement| PlacedItem { placement, first_chunk });
        Ok(Item { entry, placed })
    }

    /// Dumps a file, and compares it with what was saved.
    ///
    /// # Errors
    /// Those of a dump; a byte differs.
    pub fn dump(&self, item: &Item, saved: &[u8], reach: Option<Reach>) -> Result<()> {
        let mut compared = Compared { saved, at: 0 };
        let options = DumpOptions { placed: item.placed, reach, ..DumpOptions::default() };
        let (job, _) = Job::unattended();
        let bytes = restore::dump(&self.repository, &item.entry, &options, &mut compared, &job)?;
        match bytes == saved.len() as u64 {
            true => Ok(()),
            false => Err(Error::damaged(format!("{bytes} bytes came back of {}", saved.len()))),
        }
    }

    /// Plans to read an item, in whatever order for files and in one that fits into memory for
    /// streams.
    ///
    /// # Errors
    /// Those of a restore.
    pub fn plan(&self, options: &RestoreOptions, item: &Item) -> Result<PlanReport> {
        restore::plan(&self.repository, &item.entry, options, &Job::unattended().0)
    }

    /// The engine that a dump takes unasked.
    #[must_use]
    pub fn dump_engine(&self) -> RestoreEngine {
        let memory_bytes = self.repository.memory().stash_bytes as u64;
        RestoreEngine::OptimalChunks { memory_bytes }
    }

    /// What a hard disk would have taken so far, one request after the other.
    #[must_use]
    pub fn hard_disk_seconds(&self) -> f64 {
        self.device.inner().elapsed_ns() as f64 / 1e9
    }
}

/// Requests that read, of all kinds.
#[must_use]
pub fn reads(counts: &Counts) -> u64 {
    let is_read =
        |operation| matches!(operation, Operation::Get | Operation::GetRange | Operation::GetTail);
    counts.iter().filter(|(_, operation, _)| is_read(*operation)).map(|(.., it)| it.calls).sum()
}

/// Bytes put, of all kinds.
#[must_use]
pub fn bytes_put(counts: &Counts) -> u64 {
    counts.total(Operation::Put).bytes + counts.total(Operation::Decide).bytes
}

/// A stream that must be what was saved.
struct Compared<'a> {
    saved: &'a [u8],
    at: usize,
}

impl Write for Compared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.at + bytes.len();
        if self.saved.get(self.at..end) != Some(bytes) {
            return Err(io::Error::other("what comes back is not what was saved"));
        }
        self.at = end;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time that a source of bytes was read for.
#[derive(Clone, Default)]
pub struct ReadingTime(Arc<AtomicU64>);

impl ReadingTime {
    /// So far.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.0.load(Ordering::SeqCst) as f64 / 1e9
    }
}

/// Bytes in memory as a stream to back up under a name.
#[must_use]
pub fn stream(name: &str, bytes: &Arc<Vec<u8>>, reading: &ReadingTime) -> Source {
    let bytes = Arc::clone(bytes);
    Source::Stream {
        name: name.as_bytes().to_vec(),
        reader: Box::new(InMemory { bytes, at: 0, reading: reading.clone() }),
        finish: Box::new(|| Ok(())),
    }
}

struct InMemory {
    bytes: Arc<Vec<u8>>,
    at: usize,
    reading: ReadingTime,
}

impl Read for InMemory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        let count = self.bytes.get(self.at..).unwrap_or_default().read(buffer)?;
        self.at += count;
        self.reading.0.fetch_add(began.elapsed().as_nanos() as u64, Ordering::SeqCst);
        Ok(count)
    }
}

/// The middle one, the least and the greatest of measurements.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
}

impl Spread {
    /// Of these.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        Self { median: at(values.len() / 2), least: at(0), greatest: at(last) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::content;
    use onefold_types::limits;

    #[test]
    fn a_stream_comes_back_and_another_does_not_pass_for_it() {
        let product = Product::create(limits::MEMORY_LIMIT_MIN_BYTES).unwrap();
        let mut bytes = Vec::new();
        (0..400).for_each(|number| content::append(number, 8000, 2.0, &mut bytes).unwrap());
        let bytes = Arc::new(bytes);
        let opened = product.open().unwrap();
        let reading = ReadingTime::default();
        let source = stream("image", &bytes, &reading);
        let (done, took) =
            timed(|| product.back_up(&opened, source, &product.options("here"))).unwrap();
        assert!(took.cpu_seconds > 0.0 && took.speed(3_200_000) > 0.0 && reading.seconds() > 0.0);
        assert!(done.putting > Duration::ZERO);
        let opened = product.open().unwrap();
        let item = opened.locate(done.snapshot, b"/image").unwrap();
        assert!(item.placed.is_some());
        opened.dump(&item, &bytes, None).unwrap();
        let mut wrong = bytes.to_vec();
        wrong[1_600_000] ^= 1;
        assert!(opened.dump(&item, &wrong, None).is_err());
        assert!(opened.dump(&item, &bytes[..bytes.len() - 1], None).is_err());
        let options = RestoreOptions {
            engine: opened.dump_engine(),
            ..product.restoring(Path::new(""), &item)
        };
        let plan = opened.plan(&options, &item).unwrap();
        assert_eq!((plan.bytes, plan.containers), (bytes.len() as u64, plan.container_reads));
    }

    #[test]
    fn what_a_store_is_told_of_its_device_stays() {
        let product = Product::create(limits::MEMORY_LIMIT_MIN_BYTES).unwrap().told(5, 3);
        let opened = product.open().unwrap();
        let bytes = Arc::new(vec![7; 100_000]);
        let source = stream("image", &bytes, &ReadingTime::default());
        product.back_up(&opened, source, &product.options("here")).unwrap();
        let costs = product.options("here").device_costs.unwrap();
        assert_eq!((costs.device_read_ns, costs.memory_access_ns), (5, 3));
    }

    #[test]
    fn spreads_are_ordered() {
        let spread = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!((spread.least, spread.median, spread.greatest), (1.0, 2.0, 3.0));
        assert!(Spread::of([]).median.is_nan());
    }
}
