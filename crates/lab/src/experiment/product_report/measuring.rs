//! What a store of the product does with a data set, from the first backup to the last restore
//! after a collection.
//!
//! Rounds have a store each and take turns generation by generation. Whatever is counted is counted
//! in the first of them; all are timed, and all are collected.

use super::data::Data;
use crate::product::{Product, Took, bytes_put, reads, timed};
use onefold_engine::collection::{CollectOptions, CollectReport, collect};
use onefold_engine::index::FingerprintIndex;
use onefold_engine::ingest::BackupOptions;
use onefold_engine::job::Job;
use onefold_engine::restore::RestoreOptions;
use onefold_engine::retention;
use onefold_engine::statistics::statistics;
use onefold_policy::collection::select::Selection;
use onefold_types::{Result, SessionId, limits};

/// What one generation was and took.
#[derive(Default)]
pub struct Generation {
    /// Its plain bytes.
    pub bytes: u64,
    /// Of new chunks, plain, nodes of the tree included.
    pub new_bytes: u64,
    /// Of chunks that were stored again.
    pub rewritten_bytes: u64,
    /// Of everything in the store after it.
    pub store_bytes: u64,
    /// Chunks looked up.
    pub lookups: u64,
    /// Reads of the device for that.
    pub device_reads: u64,
    /// Requests of all kinds that read, of the whole backup.
    pub read_requests: u64,
    /// Memory of the index, all of it loaded, by entry.
    pub index_bytes_a_chunk: f64,
    /// The backup, by round.
    pub ingest: Vec<Took>,
    /// Its restore when all generations were there.
    pub before: Restored,
    /// Its restore after the collection; `None` if it was forgotten.
    pub after: Option<Restored>,
}

/// What restoring a generation took.
#[derive(Default)]
pub struct Restored {
    /// MiB for each container read, as planned.
    pub speed_factor: f64,
    /// By round.
    pub took: Vec<Took>,
}

/// What one collection did.
pub struct Collected {
    /// All of it.
    pub took: Took,
    /// All phases of marking.
    pub mark_seconds: f64,
    /// Copying live chunks.
    pub copy_seconds: f64,
    /// Bytes of containers before.
    pub stored_before: u64,
    /// Bytes of containers after.
    pub stored_after: u64,
    /// Stored over live, by the collector's account.
    pub space_before: f64,
    /// The same after.
    pub space_after: f64,
    /// Bytes of containers of a store that was given what is left, without rewriting.
    pub fresh_bytes: u64,
    /// Bytes of containers written.
    pub copied_bytes: u64,
    /// Bytes of everything written: containers, their metadata, the index, decisions.
    pub written_bytes: u64,
    /// Bytes that all containers shrank by.
    pub freed_bytes: u64,
}

impl Collected {
    /// What had to be written to free a byte.
    #[must_use]
    pub fn written_a_byte_freed(&self) -> f64 {
        self.written_bytes as f64 / self.freed_bytes as f64
    }
}

/// Everything about one data set.
#[derive(Default)]
pub struct Measured {
    /// By generation.
    pub generations: Vec<Generation>,
    /// How many of them were forgotten.
    pub forgotten: usize,
    /// The collections, by round.
    pub collected: Vec<Collected>,
    /// Generations of the first store restored and compared.
    pub compared: usize,
}

struct Shelf {
    product: Product,
    snapshots: Vec<SessionId>,
}

/// Does it all.
///
/// # Errors
/// Those of the engine; a byte that comes back is not the one that was saved.
pub fn measure(data: &Data, rounds: usize) -> Result<Measured> {
    let mut measured = Measured::default();
    let new = || Product::create(limits::MEMORY_LIMIT_DEFAULT_BYTES);
    let mut shelves = Vec::new();
    for _ in 0..rounds {
        shelves.push(Shelf { product: new()?, snapshots: Vec::new() });
    }
    for number in 0..data.generations() {
        let mut generation = Generation::default();
        for (round, shelf) in shelves.iter_mut().enumerate() {
            back_up(data, number, shelf, (round == 0).then_some(&mut generation), &mut measured)?;
            if round == 0 {
                measured.generations.push(std::mem::take(&mut generation));
            }
        }
    }
    let all = 0..data.generations();
    restore(data, &shelves, all.clone(), &mut measured, |one| &mut one.before)?;
    measured.forgotten = data.generations() / 2;
    let fresh_bytes = fresh_bytes(data, measured.forgotten)?;
    for shelf in &shelves {
        measured.collected.push(forget_and_collect(shelf, measured.forgotten, fresh_bytes)?);
    }
    let left = measured.forgotten..data.generations();
    restore(data, &shelves, left, &mut measured, |one| one.after.get_or_insert_default())?;
    Ok(measured)
}

fn back_up(
    data: &Data,
    number: usize,
    shelf: &mut Shelf,
    counted: Option<&mut Generation>,
    measured: &mut Measured,
) -> Result<()> {
    let product = &shelf.product;
    let opened = product.open()?;
    let source = data.source(number)?;
    opened.device.take();
    let (backup, took) = timed(|| product.back_up(&opened, source, &product.options("here")))?;
    shelf.snapshots.push(backup.snapshot);
    let Some(generation) = counted else {
        if let Some(generation) = measured.generations.get_mut(number) {
            generation.ingest.push(took);
        }
        return Ok(());
    };
    let counts = opened.device.take();
    let (summary, counters) = (&backup.report.summary, &backup.report.lookup.counters);
    let statistics = statistics(&opened.repository, &Job::unattended().0)?;
    let index = FingerprintIndex::open(&opened.repository)?;
    // What a run takes before any of its pieces is loaded, and all pieces.
    let runs = index.runs();
    let beside = runs.iter().map(|run| run.memory_bytes() - run.loaded_bytes());
    let pieces = runs.iter().map(|run| run.pieces_bytes());
    let index_bytes: usize = beside.chain(pieces).sum();
    *generation = Generation {
        bytes: summary.bytes,
        new_bytes: summary.bytes_new,
        rewritten_bytes: summary.bytes_rewritten,
        store_bytes: statistics.bytes_containers
            + statistics.bytes_metadata
            + statistics.bytes_index
            + statistics.bytes_other,
        lookups: counters.lookups,
        device_reads: counters.device_reads(),
        read_requests: reads(&counts),
        index_bytes_a_chunk: index_bytes as f64 / index.entries().max(1) as f64,
        ingest: vec![took],
        ..Generation::default()
    };
    Ok(())
}

/// Restores generations out of every store.
fn restore(
    data: &Data,
    shelves: &[Shelf],
    numbers: std::ops::Range<usize>,
    measured: &mut Measured,
    to: fn(&mut Generation) -> &mut Restored,
) -> Result<()> {
    for number in numbers {
        for (round, shelf) in shelves.iter().enumerate() {
            let Some(snapshot) = shelf.snapshots.get(number) else { continue };
            let opened = shelf.product.open()?;
            let located = data.locate(&shelf.product, &opened, *snapshot)?;
            let restored = to(&mut measured.generations[number]);
            if round == 0 {
                let (item, options): &(_, RestoreOptions) = &located;
                restored.speed_factor = opened.plan(options, item)?.speed_factor();
                measured.compared += 1;
            }
            // Whoever plans leaves much of the store in the process's caches.
            let opened = shelf.product.open()?;
            let took = data.restore(&opened, &located, number)?;
            to(&mut measured.generations[number]).took.push(took);
        }
    }
    Ok(())
}

/// Bytes of containers of a store that holds the later generations only, each chunk once.
fn fresh_bytes(data: &Data, from: usize) -> Result<u64> {
    let product = Product::create(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    for number in from..data.generations() {
        let opened = product.open()?;
        let options = BackupOptions { rewrite: "none".parse()?, ..product.options("here") };
        product.back_up(&opened, data.source(number)?, &options)?;
    }
    let opened = product.open()?;
    Ok(statistics(&opened.repository, &Job::unattended().0)?.bytes_containers)
}

fn forget_and_collect(shelf: &Shelf, forgotten: usize, fresh_bytes: u64) -> Result<Collected> {
    let opened = shelf.product.open()?;
    let repository = &opened.repository;
    let ids = shelf.snapshots.get(..forgotten).unwrap_or_default();
    retention::forget_final(repository, ids, "laboratory")?;
    let (job, _) = Job::unattended();
    let containers = || Ok(statistics(repository, &Job::unattended().0)?.bytes_containers);
    let stored_before = containers()?;
    let options = CollectOptions { threads: shelf.product.threads(), ..CollectOptions::default() };
    opened.device.take();
    let (report, took) = timed(|| collect(repository, &options, &job))?;
    let counts = opened.device.take();
    let stored_after = containers()?;
    let look = CollectOptions { mark_only: true, ..options };
    let after = collect(repository, &look, &job)?;
    let seconds = |phases: &[(&'static str, std::time::Duration)], name: Option<&str>| {
        let wanted = phases.iter().filter(|(phase, _)| name.is_none_or(|name| name == *phase));
        wanted.map(|(_, elapsed)| elapsed.as_secs_f64()).sum::<f64>()
    };
    Ok(Collected {
        took,
        mark_seconds: seconds(&report.mark.phases, None),
        copy_seconds: seconds(&report.phases, Some("copy")),
        stored_before,
        stored_after,
        space_before: stored_over_live(&report),
        space_after: stored_over_live(&after),
        fresh_bytes,
        copied_bytes: report.copied_bytes,
        written_bytes: bytes_put(&counts),
        freed_bytes: report.freed_bytes(),
    })
}

/// Bytes of all containers over those that their live chunks take in them.
fn stored_over_live(report: &CollectReport) -> f64 {
    let Some(Selection { classes, .. }) = &report.selection else { return f64::NAN };
    let stored: u64 = classes.iter().map(|class| class.stored_bytes).sum();
    let dead: u64 = classes.iter().map(|class| class.dead_bytes_stored).sum();
    stored as f64 / (stored - dead) as f64
}
