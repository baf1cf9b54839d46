//! What deduplicating a directory would cost and give, found by reading it; no store is needed.
//!
//! The study of ATC'12 (sections 2 and 3) as a command: savings by kind of file, by chunk size,
//! with and without compression (S4.2), how often chunks occur (S4.3), and how much is unique
//! (S4.4). Nothing is changed, not even a time of access where the system permits that.
//!
//! | module | holds |
//! | --- | --- |
//! | `walk` | which files there are, and which are left alone |
//! | `lane` | one chunk size: cut, fingerprint, compress, count |
//! | [`tally`] | the table of fingerprints, and what follows from it |
//! | `kind` | kinds and classes of files |
//! | `state`, `section` | the file that a second run goes on from |
//!
//! # Memory
//! Half of what is above the fixed part goes to the tables, in equal parts; when one is full,
//! fingerprints are sampled ([`tally`]). A quarter goes to the walk; the rest is left to threads,
//! compressors and the allocator. Blocks, of which a few are on their way, and windows are of the
//! fixed part.
//!
//! # Concurrency
//! The calling thread walks and reads; each chunk size has a thread of its own behind a bounded
//! queue. The order in which files are counted is the order of the walk, whatever the threads do.

pub mod kind;
mod lane;
mod reading;
mod section;
mod state;
pub mod tally;
mod walk;

pub use tally::{Occurrences, Savings, Tally};
pub use walk::{Count, LeftAlone, Met, Selection};

use crate::job::Job;
use crossbeam_channel::bounded;
use lane::{Counted, Lane};
use onefold_chunking::ChunkerParameters;
use onefold_format::codec::Compression;
use onefold_store::layers::ThrottleLimits;
use onefold_types::error::Context;
use onefold_types::{Error, Result, limits};
use reading::{Kinds, Reading};
use section::SectionWriter;
use state::State;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Chunk sizes that are tried at once.
pub const SIZES_MAX: usize = 8;
/// What is not divided: the program, stacks, blocks on their way and compressors.
const FIXED_BYTES: usize = 36 * limits::MIB;
/// What a lane takes beside its table: a window, blocks, a compressor.
const LANE_BYTES: usize = limits::MIB;
/// Messages that wait for a lane. Blocks are shared, so that all lanes together hold no more.
const WAITING_MAX: usize = 8;
/// What the index keeps in memory of a chunk (docs/decisions, 0013: fuse filters).
const INDEX_MEMORY_BYTES: f64 = 1.242;
/// What a stored chunk takes beside its data: its descriptor in the container, its index entry.
const CHUNK_METADATA_BYTES: u64 = 41 + 14;
/// What a chunk of a file takes in the file's map: the fingerprint and its length.
const MAP_ENTRY_BYTES: u64 = 32 + 3;

/// What is to be found out.
#[derive(Clone, Debug)]
pub struct EstimateOptions {
    /// How files are cut, one after the other.
    pub chunkers: Vec<ChunkerParameters>,
    /// How chunks would be compressed.
    pub compression: Compression,
    /// Which files would be taken.
    pub selection: Selection,
    /// What may be used of the device and the processor.
    pub limits: ThrottleLimits,
    /// The memory limit.
    pub memory_bytes: usize,
    /// The file to go on from.
    pub state: Option<PathBuf>,
    /// How often that is saved on the way, at most.
    pub save_interval: Duration,
}

/// What the files of one kind come to.
#[derive(Clone, PartialEq, Debug)]
pub struct KindEstimate {
    /// The ending, or what stands for none.
    pub name: String,
    /// Files.
    pub files: u64,
    /// Their chunks.
    pub savings: Savings,
}

/// What one chunk size gives.
#[derive(Debug)]
pub struct SizeEstimate {
    /// How files were cut.
    pub chunker: ChunkerParameters,
    /// One chunk in so many was looked at; 1: all of them, and all figures are exact.
    pub sampled_one_in: u64,
    /// Everything.
    pub total: Savings,
    /// By kind of file, those with most bytes first.
    pub kinds: Vec<KindEstimate>,
    /// By how often chunks occur.
    pub occurrences: Vec<Occurrences>,
    /// The share of compression's savings that the half of the unique bytes gives which
    /// compresses best, and the share of unique bytes that does not compress.
    pub compressibility: (f64, f64),
    /// Zeros that need no chunk.
    pub zero_bytes: u64,
    /// The table, for more figures.
    pub tally: Tally,
}

impl SizeEstimate {
    /// The share of bytes in chunks that occur once (S4.4).
    #[must_use]
    pub fn unique_share(&self) -> f64 {
        let once = self.occurrences.iter().filter(|class| class.most == 1);
        once.fold(0.0, |sum, class| sum + class.bytes_share)
    }

    /// What the store would take, names and attributes of files apart.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        let Savings { chunks, unique_chunks, compressed_bytes, .. } = self.total;
        compressed_bytes + unique_chunks * CHUNK_METADATA_BYTES + chunks * MAP_ENTRY_BYTES
    }

    /// What the index would keep in memory.
    #[must_use]
    pub fn index_memory_bytes(&self) -> u64 {
        (self.total.unique_chunks as f64 * INDEX_MEMORY_BYTES).ceil() as u64
    }
}

/// What was found out.
#[derive(Debug)]
pub struct Estimate {
    /// Files that were counted.
    pub counted: Count,
    /// What they take of the disk.
    pub allocated_bytes: u64,
    /// Of the files, those that an earlier run had read.
    pub taken_over: Count,
    /// What was read, and how long all took.
    pub read_bytes: u64,
    /// How long the run took.
    pub elapsed: Duration,
    /// Files that were changed while they were read.
    pub changed: u64,
    /// What could not be read.
    pub unreadable: u64,
    /// What else was met.
    pub met: Met,
    /// For each chunk size.
    pub sizes: Vec<SizeEstimate>,
}

impl Estimate {
    /// What optimising the files would read: each once to store it, and once more to compare it.
    #[must_use]
    pub fn to_read_bytes(&self) -> u64 {
        self.counted.bytes.saturating_mul(2)
    }

    /// How long that would take at the rate of this run; `None` if it read too little to tell.
    #[must_use]
    pub fn expected(&self) -> Option<Duration> {
        let seconds = self.elapsed.as_secs_f64();
        let rate = self.read_bytes as f64 / seconds;
        let is_known = self.read_bytes > 0 && seconds > 0.0;
        is_known.then(|| Duration::from_secs_f64(self.to_read_bytes() as f64 / rate))
    }
}

/// Reads the files below `root` and says what they come to. With a state, what it took until an
/// interruption is kept.
///
/// # Errors
/// The options are impossible, `root` is no directory, the state cannot be used or saved, or the
/// job was interrupted. A file that cannot be read is counted and told to the observer.
pub fn estimate(root: &Path, options: &EstimateOptions, job: &Job) -> Result<Estimate> {
    let lanes = options.chunkers.len();
    if !(1..=SIZES_MAX).contains(&lanes) {
        return Err(Error::invalid(format!(
            "{lanes} chunk sizes cannot be tried at once; give 1 to {SIZES_MAX}"
        )));
    }
    let what = || format!("the directory {}", root.display());
    let root = &root.canonicalize().context(what)?;
    if !root.metadata().context(what)?.is_dir() {
        return Err(Error::invalid(format!("{} is no directory", root.display())));
    }
    let (mut state, mut earlier) = (None, Vec::new());
    if let Some(path) = &options.state {
        refuse_inside(path, root)?;
        let compression = options.compression.to_string();
        let settings = state::settings(root, &options.chunkers, &compression);
        let (opened, lists) = State::open(path, settings, lanes)?;
        (state, earlier) = (Some(opened), lists.unwrap_or_default());
    }
    let divisible_bytes = options.memory_bytes.saturating_sub(FIXED_BYTES + lanes * LANE_BYTES);
    let divisible_bytes = divisible_bytes.max(4 * limits::MIB);
    let mut earlier = earlier.into_iter();
    let mut ready = Vec::new();
    for parameters in &options.chunkers {
        let log = options.state.as_deref().map(state::scratch).transpose()?;
        let log = log.map(|file| SectionWriter::new(file, 0));
        let tally = Tally::within(divisible_bytes / 2 / lanes);
        ready.push(Lane::new(parameters, options.compression, tally, log, earlier.next())?);
    }
    std::thread::scope(|scope| {
        let (mut feeds, mut threads) = (Vec::new(), Vec::new());
        for lane in ready {
            let (feed, fed) = bounded(WAITING_MAX);
            let thread = std::thread::Builder::new().name("chunks".to_owned());
            let running = thread.spawn_scoped(scope, move || lane.run(&fed));
            threads.push(running.context(|| "starting a thread")?);
            feeds.push(feed);
        }
        let mut reading = Reading::new(options, job, state, feeds);
        let walked = reading.walk(root, divisible_bytes / 4);
        let saved = reading.save_at_end(walked.is_ok());
        let (mut found, kinds) = reading.finish();
        // A lane that failed is why nobody took what it was fed.
        let mut counted = Vec::new();
        for thread in threads {
            counted.push(thread.join().map_err(|_| {
                Error::new(
                    onefold_types::ErrorKind::Bug,
                    "counting chunks ended in an unforeseen way",
                )
            })??);
        }
        (found.met, found.unreadable) = match walked {
            Ok((met, problems)) => (met, found.unreadable + problems),
            // That it was interrupted matters more than that this could not be written down too.
            Err(error) => return Err(with_advice(error, options, saved.is_ok())),
        };
        saved?;
        let sizes = options.chunkers.iter().zip(counted);
        found.sizes = sizes.map(|(chunker, lane)| size(chunker, lane, &kinds)).collect();
        Ok(found)
    })
}

/// What stopped a run, and where it goes on.
fn with_advice(error: Error, options: &EstimateOptions, is_saved: bool) -> Error {
    match &options.state {
        Some(state) if is_saved => {
            let message =
                format!("{error}; the same command goes on from the state {}", state.display());
            Error::new(error.kind(), message)
        }
        _ => error,
    }
}

/// A state that is written where it is read would never be at rest.
fn refuse_inside(state: &Path, root: &Path) -> Result<()> {
    let directory = state.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let directory =
        directory.canonicalize().context(|| format!("the state {}", state.display()))?;
    let device_of = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    let own = device_of(root);
    match directory.ancestors().any(|above| device_of(above) == own) {
        true => Err(Error::invalid(format!(
            "the state {} would lie in the directory that is read; name a file elsewhere",
            state.display()
        ))),
        false => Ok(()),
    }
}

fn size(chunker: &ChunkerParameters, counted: Counted, kinds: &Kinds) -> SizeEstimate {
    let Counted { tally, zero_bytes } = counted;
    let of_kind = |(number, (name, files)): (usize, &(String, u64))| KindEstimate {
        name: name.clone(),
        files: *files,
        savings: tally.kind(number),
    };
    let mut kinds: Vec<KindEstimate> = kinds.all().iter().enumerate().map(of_kind).collect();
    kinds.sort_by(|a, b| b.savings.bytes.cmp(&a.savings.bytes).then(a.name.cmp(&b.name)));
    SizeEstimate {
        chunker: chunker.clone(),
        sampled_one_in: tally.sampled_one_in(),
        total: tally.total(),
        kinds,
        occurrences: tally.occurrences(),
        compressibility: tally.compressibility(),
        zero_bytes,
        tally,
    }
}
