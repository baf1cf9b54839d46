//! The difference between two snapshots, or two directories of snapshots.

use crate::job::Job;
use crate::repository::Repository;
use onefold_format::node::Reference;
use onefold_types::{Error, Result};
use std::sync::Arc;

/// What happened to a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// Its content differs.
    Modified,
    /// Only its metadata differs.
    Metadata,
    /// It is of another kind.
    Kind,
}

/// Sums over a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DifferenceTotals {
    /// Entries only in the second.
    pub added: u64,
    /// Entries only in the first.
    pub removed: u64,
    /// Entries whose content differs.
    pub modified: u64,
    /// Entries whose metadata alone differs.
    pub metadata: u64,
    /// File bytes only in the second.
    pub bytes_added: u64,
    /// File bytes only in the first.
    pub bytes_removed: u64,
}

/// Calls `each` with the path of every difference, in the order of paths. Equal subtrees are one
/// comparison of fingerprints.
pub fn difference(
    _repository: &Arc<Repository>,
    _first: Reference,
    _second: Reference,
    _job: &Job,
    _each: &mut dyn FnMut(&[u8], Change) -> Result<()>,
) -> Result<DifferenceTotals> {
    Err(Error::invalid("not built"))
}
