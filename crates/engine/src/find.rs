//! Walks over snapshots: listing, and searching for names.

use crate::job::Job;
use crate::repository::Repository;
use onefold_format::node::{Entry, Reference};
use onefold_types::{Error, Result};
use std::sync::Arc;

/// Calls `each` with the path and entry of everything below `root`, parents first, in the order of
/// names; `each` returns whether to descend into a directory.
pub fn walk(
    _repository: &Arc<Repository>,
    _root: Reference,
    _job: &Job,
    _each: &mut dyn FnMut(&[u8], &Entry) -> Result<bool>,
) -> Result<()> {
    Err(Error::invalid("not built"))
}
