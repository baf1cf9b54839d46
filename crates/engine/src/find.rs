//! Walks over snapshots: listing, and searching for names.
//!
//! The walk is iterative and holds one leaf of each directory on the way, so its memory depends on
//! the depth of the tree, which is bounded, and on nothing else.

use crate::job::Job;
use crate::repository::Repository;
use crate::tree::directory_cursor::{DirectoryCursor, check_depth};
use crate::tree::{TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_types::Result;
use onefold_types::error::Context;
use std::sync::Arc;

/// Calls `each` with the path and entry of everything below `root`, parents first, in the order of
/// names; `each` returns whether to descend into a directory.
pub fn walk(
    repository: &Arc<Repository>,
    root: Reference,
    job: &Job,
    each: &mut dyn FnMut(&[u8], &Entry) -> Result<bool>,
) -> Result<()> {
    let reader = TreeReader::open(repository)?;
    walk_with(&reader, root, job, each)
}

/// As [`walk`], with a reader that is open already.
pub fn walk_with(
    reader: &TreeReader,
    root: Reference,
    job: &Job,
    each: &mut dyn FnMut(&[u8], &Entry) -> Result<bool>,
) -> Result<()> {
    let mut stack = vec![(Vec::new(), DirectoryCursor::open(reader, root)?)];
    while let Some((at, cursor)) = stack.last_mut() {
        let Some(entry) = cursor.next(reader).context(|| path::display(at))? else {
            stack.pop();
            continue;
        };
        job.interrupt.check()?;
        let below = path::join(at, &entry.name);
        let descend = each(&below, &entry)?;
        if entry.kind != EntryKind::Directory || !descend {
            continue;
        }
        check_depth(stack.len(), &below)?;
        let cursor = DirectoryCursor::of(reader, &entry).context(|| path::display(&below))?;
        stack.push((below, cursor));
    }
    Ok(())
}
