//! Merges index runs, so that a look-up asks few of them.
//!
//! Runs are merged by size: the smallest ones, as long as the next is not much larger than all
//! smaller ones together. Every entry is thus rewritten a number of times that grows with the
//! logarithm of the store. Pages of the inputs are read one at a time and those of the output
//! go to the store as they fill, so memory does not depend on the sizes but for the output's table
//! and summary vector.
//!
//! The output names the runs it replaces (R13). It is stored whole before they are deleted, so a
//! reader sees the old runs, or the new one, or both: always the same set of entries (R6, R16).
//! Two processes may merge the same runs at once; the next merge drops the repeats.

use super::fingerprint_index::FingerprintIndex;
use super::run::{self, Run};
use crate::repository::Repository;
use onefold_format::index_run::Entry;
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ContainerId, Result, RunId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Runs that a store may have before a backup merges some.
const RUNS_MAX: usize = 6;
/// Runs are merged with the next larger one while that is at most this much larger.
const SIZE_RATIO_MAX: u64 = 3;

/// Merges what is due; returns how many runs became one, or zero.
pub fn merge_if_due(repository: &Repository) -> Result<usize> {
    let index = FingerprintIndex::open(repository)?;
    for id in index.superseded() {
        repository.store().delete(&Key::new(layout::index_run(*id))?)?;
    }
    let due = due_runs(index.runs());
    if due < 2 {
        return Ok(0);
    }
    match merge(repository, &index.runs()[..due]) {
        Ok(_) => Ok(due),
        // Another process was faster and has deleted what it merged; or a page is damaged, which a
        // look-up or a check will meet and mend.
        Err(error) if error.is_damage() => Ok(0),
        Err(error) => Err(error),
    }
}

/// How many of the runs, smallest first, are to be merged.
fn due_runs(runs: &[Run]) -> usize {
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
pub fn merge(repository: &Repository, runs: &[Run]) -> Result<RunId> {
    let mut containers: Vec<ContainerId> =
        runs.iter().flat_map(|run| run.table.containers.iter().copied()).collect();
    containers.sort_unstable();
    containers.dedup();
    let replaced = runs.iter().map(|run| run.id).collect();
    let entries_max = runs.iter().map(|run| run.table.entries).sum();
    let mut cursors =
        runs.iter().map(|run| Cursor::new(run, &containers)).collect::<Result<Vec<_>>>()?;
    let mut heap = BinaryHeap::with_capacity(cursors.len());
    for (number, cursor) in cursors.iter_mut().enumerate() {
        if let Some(entry) = cursor.next(repository)? {
            heap.push(Reverse((entry, number)));
        }
    }
    let mut next = || {
        let Some(Reverse((entry, number))) = heap.pop() else {
            return Ok(None);
        };
        if let Some(following) = cursors[number].next(repository)? {
            heap.push(Reverse((following, number)));
        }
        Ok(Some(entry))
    };
    let merged = run::write_run(repository, containers, replaced, entries_max, &mut next)?;
    for run in runs {
        repository.store().delete(&Key::new(layout::index_run(run.id))?)?;
    }
    Ok(merged)
}

/// Reads the entries of a run in order, with container ordinals of the merged run.
struct Cursor<'a> {
    run: &'a Run,
    ordinals: Vec<u32>,
    page: usize,
    entries: Vec<Entry>,
    position: usize,
}

impl<'a> Cursor<'a> {
    fn new(run: &'a Run, containers: &[ContainerId]) -> Result<Self> {
        let ordinals = run
            .table
            .containers
            .iter()
            .map(|id| containers.partition_point(|other| other < id) as u32)
            .collect();
        Ok(Self { run, ordinals, page: 0, entries: Vec::new(), position: 0 })
    }

    fn next(&mut self, repository: &Repository) -> Result<Option<Entry>> {
        while self.position == self.entries.len() {
            if self.page == self.run.table.fences.len() {
                return Ok(None);
            }
            self.entries.clear();
            self.run.read_page(repository, self.page, &mut self.entries)?;
            for entry in &mut self.entries {
                self.run.container(*entry)?;
                entry.container = self.ordinals[entry.container as usize];
            }
            self.page += 1;
            self.position = 0;
        }
        self.position += 1;
        Ok(self.entries.get(self.position - 1).copied())
    }
}
