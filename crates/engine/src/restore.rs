//! Restore: from a snapshot to files or to a stream.

use crate::job::Job;
use crate::patterns::Patterns;
use crate::repository::Repository;
use onefold_format::node::Entry;
use onefold_types::{Error, Result};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// When an existing file is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overwrite {
    /// Compare the content and rewrite the parts that differ.
    IfDifferent,
    /// As above, but take a file of the same size and modification time as equal.
    IfChanged,
    /// Only if the snapshot's file was modified later.
    IfNewer,
    /// Leave existing files alone.
    Never,
}

/// How to restore.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The directory to restore into; made if it does not exist.
    pub target: PathBuf,
    /// When an existing file is replaced.
    pub overwrite: Overwrite,
    /// Whether to delete files in restored directories that are not in the snapshot.
    pub delete: bool,
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
}

/// What a restore did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    /// Files left alone by the overwrite rule.
    pub files_skipped: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Files deleted from the target.
    pub deleted: u64,
    /// Items that could not be restored.
    pub errors: u64,
    /// Containers of which something was read.
    pub containers: u64,
    /// Stored bytes read.
    pub bytes_read: u64,
}

/// Restores what lies below `root` (a directory: its content; a file: the file under its name).
pub fn restore(
    _repository: &Arc<Repository>,
    _root: &Entry,
    _options: &RestoreOptions,
    _job: &Job,
) -> Result<RestoreReport> {
    Err(Error::invalid("not built"))
}

/// Writes a file's bytes from `offset` on, at most `length`, to `out`.
pub fn dump(
    _repository: &Arc<Repository>,
    _file: &Entry,
    _offset: u64,
    _length: u64,
    _out: &mut dyn Write,
    _job: &Job,
) -> Result<u64> {
    Err(Error::invalid("not built"))
}
