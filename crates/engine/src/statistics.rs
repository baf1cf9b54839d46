//! Figures about a store: how large, how much saved, what the index costs.

use crate::job::Job;
use crate::repository::Repository;
use onefold_types::{Error, Result};
use std::sync::Arc;

/// Figures about a store.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Statistics {
    /// Snapshots, hidden ones included.
    pub snapshots: u64,
    /// Bytes of all files of all snapshots.
    pub bytes_logical: u64,
    /// Containers.
    pub containers: u64,
    /// Bytes of all containers.
    pub bytes_containers: u64,
    /// Bytes of metadata packs.
    pub bytes_metadata: u64,
    /// Bytes of index runs.
    pub bytes_index: u64,
    /// Bytes of everything else.
    pub bytes_other: u64,
    /// Data chunks.
    pub chunks_data: u64,
    /// Tree nodes.
    pub chunks_nodes: u64,
    /// Plain bytes of data chunks.
    pub bytes_data: u64,
    /// Plain bytes of tree nodes.
    pub bytes_nodes: u64,
    /// Index runs.
    pub index_runs: u64,
    /// Entries in all runs.
    pub index_entries: u64,
    /// Bytes of memory that summary vectors take.
    pub bytes_summary_vectors: u64,
}

/// Counts everything in a store.
pub fn statistics(_repository: &Arc<Repository>, _job: &Job) -> Result<Statistics> {
    Err(Error::invalid("not built"))
}
