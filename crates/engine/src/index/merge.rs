//! Merges index runs, so that a look-up asks few of them.
//!
//! Runs are merged by size: the smallest ones, as long as the next is not much larger than all
//! smaller ones together. Every entry is thus rewritten a number of times that grows with the
//! logarithm of the store. Pages of the inputs are read a few at a time and those of the output go
//! to the store as they fill, each piece behind its pages, so memory does not depend on the sizes
//! but for the tables.
//!
//! The output names the runs it replaces (R13). It is stored whole and read back before they are
//! deleted ([`super::read_back`]), so a
//! reader sees the old runs, or the new one, or both: always the same set of entries (R6, R16).
//! Two processes may merge the same runs at once; the next merge drops the repeats.

use super::fingerprint_index::FingerprintIndex;
use super::run::Run;
use super::scan::EntryScan;
use super::{run_list, run_writer};
use crate::repository::Repository;
use onefold_format::index_run::IndexKind;
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ContainerId, ErrorKind, Result, RunId};
use std::sync::Arc;

/// Runs that a store may have before a backup merges some.
const RUNS_MAX: usize = 6;
/// Runs are merged with the next larger one while that is at most this much larger.
const SIZE_RATIO_MAX: u64 = 3;

/// Merges what is due; returns how many runs became one, or zero. Without a kind, the merged run is
/// of that of the largest one there is. Few runs are left alone without looking into them.
pub fn merge_if_due(repository: &Repository, kind: Option<IndexKind>) -> Result<usize> {
    // One listing will do: what is due stays due.
    if run_list::list_once(repository)?.len() <= RUNS_MAX {
        return Ok(0);
    }
    let index = match FingerprintIndex::open(repository) {
        Ok(index) => index,
        // Whoever has the newer keys merges as well.
        Err(error) if error.kind() == ErrorKind::KeysChanged => return Ok(0),
        Err(error) => return Err(error),
    };
    remove_superseded(repository, &index)?;
    let runs = index.runs();
    let due = due_runs(&runs);
    if due < 2 {
        return Ok(0);
    }
    match merge(repository, Some(kind.unwrap_or(index.kind())), &runs[..due]) {
        Ok(_) => Ok(due),
        // Another process was faster and has deleted what it merged; or a page is damaged, which a
        // look-up or a check will meet and mend.
        Err(error) if error.is_lost() => Ok(0),
        // As one they would be larger than a reader takes: they stay as they are.
        Err(error) if error.kind() == ErrorKind::LimitExceeded => Ok(0),
        Err(error) => Err(error),
    }
}

/// Deletes the runs that a stopped merge left behind.
pub fn remove_superseded(repository: &Repository, index: &FingerprintIndex) -> Result<()> {
    index.superseded().into_iter().try_for_each(|id| delete(repository, id))
}

/// Deletes a run that another one replaces. Whoever may not delete leaves it: readers pass over it,
/// and a collector has the right.
fn delete(repository: &Repository, id: RunId) -> Result<()> {
    match repository.store().delete(&Key::new(layout::index_run(id))?) {
        Err(error) if error.forbids_writing() => Ok(()),
        other => other,
    }
}

/// How many of the runs, smallest first, are to be merged.
fn due_runs(runs: &[Arc<Run>]) -> usize {
    if runs.len() <= RUNS_MAX {
        return 0;
    }
    let mut sum = 0;
    let mut count = 0;
    for run in runs {
        // Merging fewer than half would soon be due again.
        if count > RUNS_MAX / 2 && run.table.entries > SIZE_RATIO_MAX * sum {
            break;
        }
        sum += run.table.entries;
        count += 1;
    }
    count
}

/// Merges `runs` into one and deletes them.
pub fn merge(repository: &Repository, kind: Option<IndexKind>, runs: &[Arc<Run>]) -> Result<RunId> {
    merge_without(repository, kind, runs, &[])
}

/// Merges `runs` into one that does not know the containers of `dropped`, which rise, and deletes
/// them.
pub fn merge_without(
    repository: &Repository,
    kind: Option<IndexKind>,
    runs: &[Arc<Run>],
    dropped: &[ContainerId],
) -> Result<RunId> {
    let mut containers: Vec<ContainerId> =
        runs.iter().flat_map(|run| run.table.containers.iter().copied()).collect();
    containers.sort_unstable();
    containers.dedup();
    containers.retain(|id| dropped.binary_search(id).is_err());
    let replaced = runs.iter().map(|run| run.id).collect();
    let mut scan = EntryScan::start(repository, runs, &containers, 0)?;
    let mut next = || scan.next(repository);
    let merged = run_writer::write_run(repository, kind, containers.clone(), replaced, &mut next)?;
    drop(scan);
    runs.iter().try_for_each(|run| delete(repository, run.id))?;
    Ok(merged)
}
