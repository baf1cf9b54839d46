//! Restore: from a snapshot to files or to a stream.
//!
//! | module | holds |
//! | --- | --- |
//! | `walk` | the walk over the snapshot: selection, directories, deletion |
//! | `directories` | how they are made and opened, and what is left alone in their place |
//! | `files`, `links` | what is to be written of each file; other names of one |
//! | `identity`, `spelling` | what of the target stands for what; how names are spelled there |
//! | `rounds` | a full window: fetch, find other instances of what was lost, finish |
//! | `window`, `fetch` | chunks in stored order; workers that open each frame once |
//! | `bases`, `visits` | what differences are made of, and that its frames are read once |
//! | [`request_costs`] | what requests cost here, and how far one reaches |
//! | `relocate` | other instances of unreadable chunks |
//! | `ledger` | what was planned of an output against what was delivered to it |
//! | `target`, `output`, `item` | directories, files, other items |
//! | `way`, `temporary`, `copying` | how a file takes the place of another |
//! | `unfinished` | the mark of what is not finished |
//! | `shared` | what all files share |
//! | `durable` | that what was written has arrived |
//! | `metadata`, `subject`, `leaving` | attributes: which, how, and when those of directories |
//! | `unkept` | attributes that the target did not keep |
//! | `surplus`, `follow` | what is not in the snapshot; links above sources |
//! | `dump` | a file to a stream |
//! | `sequence`, `stash` | chunks in order, read in the order of a plan |
//! | `plan` | what a restore would read |
//!
//! Algorithm: forward assembly over a window of chunk references (FAST'19, section 2; S2.8) whose
//! size is a share of the memory limit. The planner walks the tree in order and makes directories;
//! when the window is full, workers fetch it container by container and write straight into the
//! files; then hard links and the attributes of directories follow.
//!
//! Guarantees:
//! - no byte is written that was not verified against its chunk's fingerprint;
//! - a file that cannot be restored whole is named and counted, and never left looking whole; nor
//!   is one of which not every byte was restored at its offset, whatever the reason (see `ledger`);
//! - what was there stays as it was until what takes its place is complete (see `output` for where
//!   that cannot be);
//! - nothing outside the target is written, whatever is planted in it (see `target`), but for what
//!   the user's own links above sources lead to where a restore is in place (see `follow`);
//! - what was written has arrived on its devices and servers when a restore ends (see `durable`);
//! - an interrupted restore removes the files it had not finished; running it again completes it.
//!
//! An item that fails does not stop the others. What does: no space, a request to stop, a target
//! that cannot be written at all.

mod bases;
mod copying;
mod directories;
mod dump;
mod durable;
mod existing;
mod fetch;
mod files;
mod follow;
mod identity;
mod item;
mod kept;
mod leaving;
mod led;
mod ledger;
mod links;
mod metadata;
mod output;
mod plan;
pub mod request_costs;
mod rounds;
pub(crate) mod sequence;
mod shared;
mod spelling;
pub(crate) mod stash;
mod subject;
mod surplus;
mod target;
mod temporary;
mod unfinished;
mod unkept;
mod visits;
mod walk;
mod way;
mod window;

pub use metadata::OwnersElsewhere;
pub use plan::PlanReport;
pub use shared::FILES_OPEN_MAX;
pub use surplus::{Shown, SurplusReport};
pub use unkept::{Unkept, UnkeptAttributes};

use crate::job::Job;
use crate::patterns::Patterns;
use crate::placement::PlacedItem;
use crate::repository::Repository;
use onefold_format::node::Entry;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::Result;
use request_costs::Reach;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// When an existing file is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// Compare the content, and put another file in the place of one that differs.
    IfDifferent,
    /// As above, but take a file of the same size and modification time as equal, unless restored
    /// files are to be verified.
    IfChanged,
    /// Only if the snapshot's file was modified later.
    IfNewer,
    /// Leave existing files alone.
    Never,
}

/// What is deleted that is in a restored directory and not in the snapshot. Nothing ever is beside
/// sources, on another mount, or of what is left out of this restore.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delete {
    /// Nothing.
    Nothing,
    /// What the snapshot knows was not there.
    Known,
    /// Also what it cannot know of, since the directory was not saved whole.
    Unknown,
}

/// How to restore.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The directory to restore into; made if it does not exist.
    pub target: PathBuf,
    /// When an existing file is replaced.
    pub overwrite: Overwrite,
    /// Whether to rewrite files that are there, instead of putting others in their place.
    pub in_place: bool,
    /// What to delete of what is not in the snapshot.
    pub delete: Delete,
    /// When the snapshot was saved, in nanoseconds since 1970: it cannot know of what was moved
    /// meanwhile. Empty where that does not matter.
    pub saved_within_ns: Range<i64>,
    /// Whether to write long runs of zeros as holes even where the original had none.
    pub sparse: bool,
    /// Whether to read every restored file again and compare.
    pub verify: bool,
    /// Say what would be done, write nothing.
    pub dry_run: bool,
    /// If there are any, only paths that match (and what is below them).
    pub include: Patterns,
    /// Paths that match are left out.
    pub exclude: Patterns,
    /// Threads that read and write.
    pub threads: usize,
    /// What is read when.
    pub engine: RestoreEngine,
    /// Where the item stands in its snapshot's placement, if that has one.
    pub placed: Option<PlacedItem>,
    /// How far requests reach; `None`: as far as pays on this device, learnt while reading. Where
    /// it is said, sections are read several at once beforehand.
    pub reach: Option<Reach>,
    /// Where sources lie, from what is restored on; `None` if the snapshot says itself which
    /// directories only lead to them.
    pub sources: Option<Vec<Vec<u8>>>,
    /// Whether links in the place of directories that lead to sources are followed out of the
    /// target: where what is restored has its own path.
    pub follows_out: bool,
    /// What is not restored of what there is.
    pub without: Without,
    /// Device and inode of a directory in which nothing is written or deleted: the store's own,
    /// which may lie in the target.
    pub spared: Option<(u64, u64)>,
}

/// What gives power over a machine, and can be left out: whoever wrote the snapshot chose it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without {
    /// Owners and groups: everything belongs to whoever restores.
    pub owners: bool,
    /// Names of owners and groups: their numbers are taken as they are.
    pub owner_names: bool,
    /// Set-user-id and set-group-id bits, and file capabilities.
    pub set_ids: bool,
    /// Devices, pipes and sockets.
    pub special: bool,
}

/// How to dump a file.
#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    /// The first byte.
    pub offset: u64,
    /// Bytes at most.
    pub length: u64,
    /// What is read when; `None`: what does best within the memory limit.
    pub engine: Option<RestoreEngine>,
    /// Where the file stands in its snapshot's placement, if that has one.
    pub placed: Option<PlacedItem>,
    /// As [`RestoreOptions::reach`].
    pub reach: Option<Reach>,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self { offset: 0, length: u64::MAX, engine: None, placed: None, reach: None }
    }
}

/// What a restore did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestoreReport {
    /// Files in the selection.
    pub files: u64,
    /// Directories in the selection.
    pub directories: u64,
    /// Links, devices, pipes and sockets in the selection.
    pub others: u64,
    /// Bytes of all selected files.
    pub bytes: u64,
    /// Files that were right already.
    pub files_unchanged: u64,
    /// Items left alone by the overwrite rule, and what is not restored for that.
    pub files_skipped: u64,
    /// Files rewritten in place.
    pub files_in_place: u64,
    /// Other names of files that could not be linked here, and were copied.
    pub links_copied: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// What was not in the snapshot: deleted and kept.
    pub surplus: SurplusReport,
    /// Owners and groups that have another number here.
    pub owners_elsewhere: OwnersElsewhere,
    /// Modes, owners and times that the target did not keep, and did not say so.
    pub unkept: UnkeptAttributes,
    /// Items that could not be restored.
    pub errors: u64,
    /// Containers of which something was read.
    pub containers: u64,
    /// Reads of containers: one that is read in two windows, or twice by the plan, counts twice.
    pub container_reads: u64,
    /// Plain bytes of the frames opened.
    pub bytes_opened: u64,
    /// Chunks found where the placement said.
    pub chunks_guided: u64,
    /// Chunks for which the index was asked.
    pub chunks_looked_up: u64,
    /// Stored bytes read.
    pub bytes_read: u64,
}

/// Restores what lies below `root` (a directory: its content; a file: the file under its name).
///
/// The attributes of a directory `root` itself are set only on a target that did not exist. Paths
/// in patterns and messages begin at `root`.
///
/// Errors: `NoSpace` naming the file if the target is full, `Interrupted`, `Invalid` or `ReadOnly`
/// for a target that cannot be used. Everything else is told to the job's observer and counted in
/// [`RestoreReport::errors`].
pub fn restore(
    repository: &Arc<Repository>,
    root: &Entry,
    options: &RestoreOptions,
    job: &Job,
) -> Result<RestoreReport> {
    walk::run(repository, root, options, job)
}

/// Writes a file's bytes from an offset on to `out`; returns how many it wrote.
pub fn dump(
    repository: &Arc<Repository>,
    file: &Entry,
    options: &DumpOptions,
    out: &mut dyn Write,
    job: &Job,
) -> Result<u64> {
    dump::dump(repository, file, options, out, job)
}

/// What a restore would read, without reading it.
pub fn plan(
    repository: &Arc<Repository>,
    root: &Entry,
    options: &RestoreOptions,
    job: &Job,
) -> Result<PlanReport> {
    plan::plan(repository, root, options, job)
}
