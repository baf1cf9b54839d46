//! Check: is everything there, and is it what was written?

use crate::job::Job;
use crate::repository::Repository;
use onefold_types::{ContainerId, Error, Result, SessionId};
use std::sync::Arc;

/// How much of the data to read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ReadData {
    /// Structure only: metadata sections and trees.
    None,
    /// Every byte.
    All,
    /// Every byte of a random share of the containers, in percent.
    Sample(f64),
    /// Every byte of one of `of` equal parts of the containers, `part` from 1; over `of` runs all.
    Part {
        /// Which part, from 1.
        part: u32,
        /// How many parts.
        of: u32,
    },
}

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// How much to read.
    pub read_data: ReadData,
    /// Threads that read and verify.
    pub threads: usize,
    /// Whether to record findings, so that later backups store damaged chunks again.
    pub record_findings: bool,
}

/// A file or directory that cannot be restored whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedPath {
    /// The snapshot.
    pub snapshot: SessionId,
    /// The path in it, escaped for display.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Snapshots looked at.
    pub snapshots: u64,
    /// Containers looked at.
    pub containers: u64,
    /// Containers read whole.
    pub containers_read: u64,
    /// Chunks whose bytes were verified.
    pub chunks_verified: u64,
    /// Plain bytes verified.
    pub bytes_verified: u64,
    /// Damaged or missing containers and what is wrong with each.
    pub damaged_containers: Vec<(ContainerId, String)>,
    /// Containers found damaged before, all of whose referenced chunks are stored elsewhere now.
    pub healed_containers: Vec<ContainerId>,
    /// What cannot be restored whole.
    pub damaged_paths: Vec<DamagedPath>,
    /// Everything else that is wrong: records, index runs, packs.
    pub problems: Vec<String>,
    /// What is untidy but harmless, and will be mended by itself.
    pub notes: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged_containers.is_empty()
            && self.damaged_paths.is_empty()
            && self.problems.is_empty()
    }
}

/// Checks the store.
pub fn check(
    _repository: &Arc<Repository>,
    _options: CheckOptions,
    _job: &Job,
) -> Result<CheckReport> {
    Err(Error::invalid("not built"))
}
