//! Backup: from a source into a snapshot.
//!
//! ```text
//! walk ──items──────────────────────────────▶ assemble ──▶ chunk store ──▶ containers
//!   └─jobs─▶ read, chunk, fingerprint ─parts─▶    │            (seal pool, container log)
//!            (threads)                            └─▶ file maps, directories
//! ```
//!
//! | module | stage |
//! | --- | --- |
//! | [`rewriting`] | what rewriting may do, and what it knows |
//! | [`source_tree`] | where each source path stands in the snapshot |
//! | [`interruptible`] | reads what may be silent for long |
//! | [`walk`] | directories in the order of names; unchanged files are recognised here |
//! | [`levels`] | directories above the one that a walk is in |
//! | [`mount_points`] | where file systems are mounted, and which mounts are ours |
//! | [`selecting`] | one partition of a source, and the index of its chunks alone |
//! | [`stubs`] | files whose data is in the store already |
//! | [`left_out`] | what the selection left out, counted |
//! | [`links`] | which names are of one file |
//! | [`namesakes`] | files of an earlier snapshot by their names |
//! | [`versions`] | what stands in the places of new chunks in earlier versions of their files |
//! | [`read`] | files to chunks with fingerprints, on several threads |
//! | [`assemble`] | chunks to the store, files and directories to nodes, in stream order |
//! | [`stream`] | one pipeline of the stages above |
//! | [`top`] | the directories that lead to the sources |
//! | [`attributes`] | what the file system says about an entry |
//! | [`renewal`] | a newer epoch is taken notice of (W8) |
//! | [`storing`] | the session around it: what it may rely on, streams, commit |
//! | [`parents`] | which earlier snapshot a backup is compared with |
//! | [`publish`] | the snapshot: parent, record, starting over when fenced |
//!
//! Data flows one way. A stage that cannot go on closes its channels, and the others stop.

use self::left_out::{LeftOut, Room};
use self::selecting::Part;
use self::stubs::DamagedStubs;
use crate::chunk_store::{LookupReport, RewriteReport};
use crate::index::partition::PartitionIndexReport;
use crate::job::Job;
use crate::look_up::LookupChoice;
use crate::patterns::Patterns;
use crate::repository::Repository;
use onefold_format::codec::Compression;
use onefold_format::delta::DeltaChoice;
use onefold_format::index_run::IndexKind;
use onefold_format::record::{SnapshotRecord, Summary};
use onefold_policy::accelerated_filter::FilterConfiguration;
use onefold_policy::lookup::DeviceCosts;
use onefold_policy::primary::cold_files::ColdFiles;
use onefold_policy::rewrite::RewriteChoice;
use onefold_types::{Result, SessionId, ShareId};
use std::collections::HashSet;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub mod assemble;
pub mod attributes;
pub mod interruptible;
pub mod left_out;
pub mod levels;
pub mod links;
pub mod listed;
pub mod mount_points;
pub mod namesakes;
pub mod parents;
pub mod publish;
pub mod read;
pub mod renewal;
pub mod rewriting;
pub mod scattered;
pub mod selecting;
pub mod source_tree;
pub mod storing;
pub mod stream;
pub mod stubs;
pub mod top;
pub mod versions;
pub mod walk;

/// What to back up.
pub enum Source {
    /// Files and directories.
    Paths {
        /// Where they are; the snapshot has their absolute paths.
        paths: Vec<PathBuf>,
        /// What to leave out.
        selection: Box<Selection>,
    },
    /// A directory that becomes the snapshot's root.
    Root {
        /// Where it is.
        directory: PathBuf,
        /// What the record calls it.
        name: String,
        /// What to leave out.
        selection: Box<Selection>,
    },
    /// One stream, stored as one file.
    Stream {
        /// The file's path in the snapshot.
        name: Vec<u8>,
        /// The bytes.
        reader: Box<dyn Read + Send>,
        /// Called at the end of the stream; an error there keeps the snapshot from being saved.
        finish: Box<dyn FnOnce() -> Result<()> + Send>,
    },
}

/// What to leave out of a backup of files; nothing by default.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Paths that match are left out.
    pub excludes: Patterns,
    /// Whether other file systems are left out.
    pub one_file_system: bool,
    /// Files above this size are left out.
    pub exclude_larger_than_bytes: Option<u64>,
    /// Whether directories with a valid CACHEDIR.TAG are left out, but for the tag.
    pub exclude_caches: bool,
    /// Directories that hold one of these names are left out.
    pub exclude_if_present: Vec<String>,
    /// Whether devices and pipes that are sources are read, and saved as files.
    pub read_special: bool,
    /// Device and inode of a directory that is left out under whatever path it is met: the store,
    /// which may be mounted in several places.
    pub store: Option<(u64, u64)>,
    /// Only files that are as cold, and stubs; nothing else but directories.
    pub cold: Option<ColdFiles>,
    /// Device and inode of a directory of which nothing is taken but one name.
    pub only: Option<((u64, u64), &'static str)>,
    /// Earlier manifests whose word counts for stubs of which data is damaged: those that the
    /// directory has made itself.
    pub manifests: Vec<SessionId>,
    /// Only this part of the files; chunks are looked for among its own.
    pub part: Option<Part>,
    /// Only so much of files that are no stubs and not in the parent snapshot.
    pub room: Option<Arc<Room>>,
    /// Inodes of files that only look like what they are: stubs that lost their attribute.
    pub lost: Arc<HashSet<u64>>,
}

/// Which snapshot to compare with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ParentChoice {
    /// The one of the same host and paths that was saved last.
    #[default]
    Newest,
    /// None: read every file.
    None,
    /// This one.
    Snapshot(SessionId),
}

/// How to back up.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// The machine's name for the record.
    pub host: String,
    /// The user's name for the record.
    pub user: String,
    /// Tags for the record.
    pub tags: Vec<String>,
    /// A note for the record.
    pub description: String,
    /// Whether forget must leave the snapshot alone.
    pub hold: bool,
    /// The time for the record, in nanoseconds since 1970, instead of now.
    pub time_ns: Option<i64>,
    /// Which snapshot to compare with.
    pub parent: ParentChoice,
    /// What to compress with instead of the store's default.
    pub compression: Option<Compression>,
    /// Threads for reading and for sealing, each.
    pub threads: usize,
    /// Source paths backed up at the same time, each as a stream of its own; fewer if the memory
    /// limit says so.
    pub streams: usize,
    /// Look at everything, write nothing.
    pub dry_run: bool,
    /// Save no snapshot if nothing changed since the parent, and that says all that this one would.
    pub skip_if_unchanged: bool,
    /// Which helpers look-ups use (S1.28).
    pub filter: FilterConfiguration,
    /// How chunks are looked up.
    pub lookup: LookupChoice,
    /// Which duplicates are stored again, so that restores stay fast.
    pub rewrite: RewriteChoice,
    /// Whether new chunks are stored as differences against others; `None`: as the store says.
    pub delta: Option<DeltaChoice>,
    /// What this store's device is known to cost; `None`: it is measured if need be.
    pub device_costs: Option<DeviceCosts>,
    /// The kind of index runs written; `None`: as those that are there.
    pub index_kind: Option<IndexKind>,
    /// The program's name and version for the record.
    pub program: String,
    /// The share whose manifest it is; `None`: it is a backup.
    pub share: Option<ShareId>,
}

/// Threads of a backup that was not told how many.
const THREADS_DEFAULT: usize = 2;

/// What the program chooses unasked, in one stream on two threads, without names in the record.
impl Default for BackupOptions {
    fn default() -> Self {
        Self {
            host: String::new(),
            user: String::new(),
            tags: Vec::new(),
            description: String::new(),
            hold: false,
            time_ns: None,
            parent: ParentChoice::default(),
            compression: None,
            threads: THREADS_DEFAULT,
            streams: 1,
            dry_run: false,
            skip_if_unchanged: false,
            filter: FilterConfiguration::default(),
            lookup: LookupChoice::default(),
            rewrite: RewriteChoice::default(),
            delta: None,
            device_costs: None,
            index_kind: None,
            program: String::new(),
            share: None,
        }
    }
}

impl BackupOptions {
    /// Whether a snapshot says all of itself that is asked for: that it is held, its tags, a note.
    #[must_use]
    pub fn is_said_by(&self, record: &SnapshotRecord) -> bool {
        let has_note = self.description.is_empty() || self.description == record.description;
        let has_tags = self.tags.iter().all(|tag| record.tags.contains(tag));
        has_note && has_tags && (record.hold || !self.hold)
    }
}

/// Chunks that were stored as differences against others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeltaReport {
    /// How many.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// What was stored of them, before compression.
    pub payload_bytes: u64,
    /// Bases that were read, and tried.
    pub bases_tried: u64,
    /// Deltas whose base stands in the chunk's place in an earlier version.
    pub chunks_by_place: u64,
    /// Deltas whose base was found by what it has in common with the chunk.
    pub chunks_by_features: u64,
}

/// What a backup did.
#[derive(Clone, Debug, Default)]
pub struct BackupReport {
    /// The snapshot; `None` after a dry run or if nothing changed.
    pub snapshot: Option<SessionId>,
    /// The snapshot it was compared with.
    pub parent: Option<SessionId>,
    /// Containers that were there although no session had any record: records were lost before.
    pub strays: u64,
    /// Its date, in nanoseconds since 1970.
    pub started_ns: i64,
    /// A snapshot that was there before, and is dated later all the same, with its date.
    pub dated_later: Option<(SessionId, i64)>,
    /// What it found and did.
    pub summary: Summary,
    /// What the selection left out.
    pub left_out: LeftOut,
    /// Stubs that a manifest keeps although their data is damaged; no errors of the summary.
    pub damaged_stubs: DamagedStubs,
    /// How look-ups went.
    pub lookup: LookupReport,
    /// What was stored again.
    pub rewrite: RewriteReport,
    /// What was stored as differences.
    pub deltas: DeltaReport,
    /// What the index of a part took, if one was backed up.
    pub part_index: Option<PartitionIndexReport>,
    /// What the device was taken to cost, where the strategy asked.
    pub device_costs: Option<DeviceCosts>,
    /// Streams that ran at once: as many as were asked for, as the memory limit allows, and as
    /// there are sources.
    pub streams: usize,
    /// How often a collector made it start over.
    pub fenced: u32,
    /// How long it took.
    pub elapsed: Duration,
}

/// Backs up a source. Problems with single files go to the job's observer and are counted in the
/// summary; the snapshot is saved without those files.
pub fn backup(
    repository: &Arc<Repository>,
    source: Source,
    options: &BackupOptions,
    job: &Job,
) -> Result<BackupReport> {
    publish::backup(repository, source, options, job)
}
