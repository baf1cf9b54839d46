//! Garbage collection: space that no snapshot needs is given back, beside everything else.
//!
//! | module | holds |
//! | --- | --- |
//! | [`inventory`] | all containers, and a scan over their metadata sections |
//! | [`losses`] | which chunks can no longer be made, and which instances need no bases |
//! | [`mark`] | which chunks are live, by one of five algorithms; how live containers are |
//! | [`analysis`] | perfect hashes over the index and over the nodes |
//! | [`enumeration`] | from snapshots to the chunks they need: depth first, or level by level |
//! | [`partitioned`] | the same in scratch files, in memory that does not depend on the store |
//! | [`spill`], [`level_queue`], [`spilled_live`] | its sets: records, nodes that are due, marks |
//! | [`live_set`] | the forms that marks take |
//! | [`gathered`] | what is live in condemned containers, by frame |
//! | [`needed`] | what a snapshot needs of some frames, in its order, by its placement |
//! | [`copy`] | live chunks out of condemned containers |
//! | [`repacking`] | what is packed anew, at which level and against what |
//! | [`reversal`] | which differences are turned round by that |
//! | [`read_back`] | copies, read as a reader reads them before they count |
//! | [`settle`] | sessions that know too little: waited for, or fenced |
//! | [`cleaning`] | deleting, and what has to be tidied up after |
//! | [`mod@due`] | whether there is anything to collect |
//! | [`only_hidden`] | what only hidden snapshots need |
//! | [`collector`] | the steps G1 to G8 around all that |
//!
//! # Algorithm
//! FAST'17, section 3, under the protocol (docs/PROTOCOL.md): mark, select, copy, then decide what
//! is condemned; let every running session learn of it or fence it; mark again what was committed
//! meanwhile, and rescue it; only then delete. A collection is cut into rounds, each an epoch of
//! its own, so that what is copied in one go fits into memory, and on the device.
//!
//! # Invariants
//! - Nothing is deleted but by the decided sweep of an epoch, after this collector's own second
//!   mark (G5).
//! - A record that cannot be read, a node that is missing, sums that do not agree: the collection
//!   stops before anything is condemned, and says so.
//! - No rule depends on time; times decide when to fence and what to leave alone this time.
//!
//! # Concurrency
//! Backups, restores and forgets run throughout, and so may other collectors, of which whoever
//! comes later finishes what is open.

pub mod analysis;
pub mod bases;
pub mod cleaning;
pub mod collector;
pub mod copy;
pub mod due;
pub mod enumeration;
pub mod gathered;
pub mod inventory;
pub mod level_queue;
pub mod live_set;
pub mod losses;
pub mod mark;
pub mod needed;
pub mod only_hidden;
mod parallel;
pub mod partitioned;
pub mod read_back;
pub mod repacking;
pub mod reversal;
pub mod settle;
pub mod spill;
pub mod spilled_live;

use crate::job::Job;
use crate::repository::Repository;
use mark::MarkReport;
use onefold_format::node::Reference;
use onefold_format::record::SnapshotRecord;
use onefold_policy::collection::select::Selection;
use onefold_types::{ContainerId, Error, Result};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub use due::{Due, due, is_worth_for};
pub use onefold_policy::collection::select::SpaceGoal;

/// How live chunks are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MarkAlgorithm {
    /// Whichever fits into memory.
    #[default]
    Auto,
    /// Every snapshot, depth first, into a filter (LGC).
    Logical,
    /// Level by level, into a filter (PGC).
    Physical,
    /// Level by level, into a bit for each fingerprint (PGC+).
    PhysicalPlus,
    /// Level by level, into a set of prefixes.
    Exact,
    /// Level by level, into scratch files.
    Partitioned,
}

impl MarkAlgorithm {
    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Logical => "lgc",
            Self::Physical => "pgc",
            Self::PhysicalPlus => "pgc+",
            Self::Exact => "exact",
            Self::Partitioned => "partitioned",
        }
    }
}

impl FromStr for MarkAlgorithm {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let in_memory = [Self::Logical, Self::Physical, Self::PhysicalPlus, Self::Exact];
        let mut all = [Self::Auto, Self::Partitioned].into_iter().chain(in_memory);
        all.find(|algorithm| algorithm.name() == text).ok_or_else(|| {
            Error::invalid(format!(
                "'{text}' is no way to mark: auto, exact, lgc, partitioned, pgc or pgc+"
            ))
        })
    }
}

/// Snapshots that are asked for the order of copies, unless said otherwise.
pub const ORDERING_SNAPSHOTS_MAX: usize = 8;

/// How to collect.
#[derive(Clone, Debug)]
pub struct CollectOptions {
    /// How much to free.
    pub goal: SpaceGoal,
    /// How live chunks are found.
    pub algorithm: MarkAlgorithm,
    /// How long running sessions may take to end or to renew before they are fenced.
    pub grace: Duration,
    /// Threads.
    pub threads: usize,
    /// After so long no further round is begun; what is decided is finished.
    pub duration_max: Option<Duration>,
    /// Mark and plan, and stop there (S3.32).
    pub mark_only: bool,
    /// Bytes for marks instead of the share of the memory limit: for experiments.
    pub marks_bytes: Option<usize>,
    /// How many snapshots, the newest of every source first, are asked for the order in which they
    /// need the chunks that are copied. What none of them needs follows, as it lies.
    pub ordering_snapshots_max: usize,
    /// Whether everything goes that is sealed under older keys than the newest ones, however live.
    pub reseal: bool,
    /// The level of zstd at which everything is packed anew that no collection has packed so yet.
    pub repack_level: Option<u8>,
    /// Whether a store with containers and without a record of any snapshot is emptied.
    pub allow_empty: bool,
    /// Where scratch files are, if any are needed, instead of the system's directory for them.
    pub scratch: Option<PathBuf>,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self {
            goal: SpaceGoal::default(),
            algorithm: MarkAlgorithm::Auto,
            grace: Duration::from_secs(600),
            threads: 2,
            duration_max: None,
            mark_only: false,
            marks_bytes: None,
            ordering_snapshots_max: ORDERING_SNAPSHOTS_MAX,
            reseal: false,
            repack_level: None,
            allow_empty: false,
            scratch: None,
        }
    }
}

/// What a collection would have freed if there had been room for the copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftForLackOfRoom {
    /// Containers.
    pub containers: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// How many of them are unused, about.
    pub dead_bytes: u64,
}

/// What a collection did, or would do.
#[derive(Clone, Debug, Default)]
pub struct CollectReport {
    /// The epoch of another collector that was finished first.
    pub taken_over: Option<u64>,
    /// How marking went; of the last time if it was done several times.
    pub mark: MarkReport,
    /// Live snapshots.
    pub snapshots: u64,
    /// Snapshots that were forgotten for good.
    pub forgotten: u64,
    /// Containers before.
    pub containers: u64,
    /// Their bytes.
    pub stored_bytes: u64,
    /// Containers left alone because a running backup may be at them.
    pub containers_in_use: u64,
    /// Containers under older keys that are left alone: in use, or damaged.
    pub older_left_alone: u64,
    /// Containers chosen to be packed anew, or that would be.
    pub repacked_containers: u64,
    /// Chunks that became differences by that.
    pub deltas_made: u64,
    /// What was chosen in the first round; in a plan all there is to do.
    pub selection: Option<Selection>,
    /// Epochs that were decided and finished.
    pub epochs: u64,
    /// Containers deleted, or to be deleted.
    pub deleted_containers: u64,
    /// Their bytes.
    pub deleted_bytes: u64,
    /// Chunks copied.
    pub copied_chunks: u64,
    /// Tree nodes that were read to know in which order to copy.
    pub nodes_for_order: u64,
    /// Frames copied as they were, chunks and all.
    pub frames_carried: u64,
    /// Bytes of the containers written; in a plan at most, about.
    pub copied_bytes: u64,
    /// Chunks that snapshots need and that could not be read to be copied.
    pub unread_chunks: u64,
    /// Containers that were kept although condemned, and why.
    pub kept: Vec<(ContainerId, String)>,
    /// Sessions that were fenced.
    pub fenced: u64,
    /// How long each phase took, rounds together.
    pub phases: Vec<(&'static str, Duration)>,
    /// Whether the time allowed was over before all was done.
    pub out_of_time: bool,
    /// What could not be collected because the device is full.
    pub left: Option<LeftForLackOfRoom>,
}

impl CollectReport {
    /// Adds what an earlier collection did, of which this one is the continuation.
    pub fn add_earlier(&mut self, earlier: Option<&Self>) {
        let Some(earlier) = earlier else {
            return;
        };
        self.taken_over = earlier.taken_over.or(self.taken_over);
        self.containers = earlier.containers;
        self.stored_bytes = earlier.stored_bytes;
        self.selection = earlier.selection.clone().or_else(|| self.selection.take());
        self.repacked_containers = self.repacked_containers.max(earlier.repacked_containers);
        self.deltas_made += earlier.deltas_made;
        self.epochs += earlier.epochs;
        self.deleted_containers += earlier.deleted_containers;
        self.deleted_bytes += earlier.deleted_bytes;
        self.copied_chunks += earlier.copied_chunks;
        self.nodes_for_order += earlier.nodes_for_order;
        self.frames_carried += earlier.frames_carried;
        self.copied_bytes += earlier.copied_bytes;
        self.fenced += earlier.fenced;
        self.unread_chunks += earlier.unread_chunks;
        self.kept.extend(earlier.kept.iter().cloned());
    }

    /// Bytes that the store shrank by, containers alone.
    #[must_use]
    pub fn freed_bytes(&self) -> u64 {
        self.deleted_bytes.saturating_sub(self.copied_bytes)
    }

    /// Bytes that it grew by instead: what is packed anew or resealed may be longer than it was.
    #[must_use]
    pub fn grown_bytes(&self) -> u64 {
        self.copied_bytes.saturating_sub(self.deleted_bytes)
    }
}

/// What snapshots need first: their trees, and what says where their chunks lay.
fn roots_of<'r>(records: impl IntoIterator<Item = &'r SnapshotRecord>) -> Vec<Reference> {
    records.into_iter().flat_map(|record| [Some(record.root), record.placement]).flatten().collect()
}

/// Collects garbage.
pub fn collect(
    repository: &Arc<Repository>,
    options: &CollectOptions,
    job: &Job,
) -> Result<CollectReport> {
    collector::Collector::new(repository, options, job).run()
}
