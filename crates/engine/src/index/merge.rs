//! Merges index runs, so that a look-up asks few of them.
//!
//! Runs are merged by size: the smallest ones, as long as the next is not much larger than all
//! smaller ones together. Every entry is thus rewritten a number of times that grows with the
//! logarithm of the store. Pages of the inputs are read a few at a time and those of the output go
//! to the store as they fill, each piece behind its pages, so memory does not depend on the sizes
//! but for the tables.
//!
//! The output names the runs it replaces (R13). It is stored whole before they are deleted, so a
//! reader sees the old runs, or the new one, or both: always the same set of entries (R6, R16).
//! Two processes may merge the same runs at once; the next merge drops the repeats.

use super::fingerprint_index::FingerprintIndex;
use super::run::{self, Run};
use super::run_writer;
use crate::repository::Repository;
use onefold_format::index_run::{Entry, IndexKind, PAGE_STORED_BYTES};
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ContainerId, Result, RunId};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Runs that a store may have before a backup merges some.
const RUNS_MAX: usize = 6;
/// Runs are merged with the next larger one while that is at most this much larger.
const SIZE_RATIO_MAX: u64 = 3;

/// Pages of an input that are read with one request.
const PAGES_PER_READ: usize = 16;

/// Merges what is due; returns how many runs became one, or zero. Without a kind, the merged run is
/// of that of the largest one there is. Few runs are left alone without looking into them.
pub fn merge_if_due(repository: &Repository, kind: Option<IndexKind>) -> Result<usize> {
    if run_writer::footers(repository)?.len() <= RUNS_MAX {
        return Ok(0);
    }
    let index = FingerprintIndex::open(repository)?;
    remove_superseded(repository, &index)?;
    let due = due_runs(index.runs());
    if due < 2 {
        return Ok(0);
    }
    match merge(repository, Some(kind.unwrap_or(index.kind())), &index.runs()[..due]) {
        Ok(_) => Ok(due),
        // Another process was faster and has deleted what it merged; or a page is damaged, which a
        // look-up or a check will meet and mend.
        Err(error) if error.is_damage() => Ok(0),
        Err(error) => Err(error),
    }
}

/// Deletes the runs that a stopped merge left behind.
pub fn remove_superseded(repository: &Repository, index: &FingerprintIndex) -> Result<()> {
    for id in index.superseded() {
        repository.store().delete(&Key::new(layout::index_run(*id))?)?;
    }
    Ok(())
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
pub fn merge(repository: &Repository, kind: Option<IndexKind>, runs: &[Run]) -> Result<RunId> {
    let mut containers: Vec<ContainerId> =
        runs.iter().flat_map(|run| run.table.containers.iter().copied()).collect();
    containers.sort_unstable();
    containers.dedup();
    let replaced = runs.iter().map(|run| run.id).collect();
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
    let merged = run::write_run(repository, kind, containers, replaced, &mut next)?;
    for run in runs {
        repository.store().delete(&Key::new(layout::index_run(run.id))?)?;
    }
    Ok(merged)
}

/// Reads the entries of a run in order, with container ordinals of the merged run.
struct Cursor<'a> {
    run: &'a Run,
    ordinals: Vec<u32>,
    /// The next page.
    page: usize,
    sealed: Vec<u8>,
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
        let (sealed, entries) = (Vec::new(), Vec::new());
        Ok(Self { run, ordinals, page: 0, sealed, entries, position: 0 })
    }

    fn next(&mut self, repository: &Repository) -> Result<Option<Entry>> {
        while self.position == self.entries.len() {
            if self.page == self.run.table.fences.len() {
                return Ok(None);
            }
            self.read(repository)?;
        }
        self.position += 1;
        Ok(self.entries.get(self.position - 1).copied())
    }

    /// Reads the next pages of a piece.
    fn read(&mut self, repository: &Repository) -> Result<()> {
        let piece = self.page / self.run.table.pages_per_piece as usize;
        let end = self.run.table.pages_of(piece).end.min(self.page + PAGES_PER_READ);
        self.run.read_pages(repository, self.page..end, &mut self.sealed)?;
        self.entries.clear();
        self.position = 0;
        for sealed in self.sealed.chunks_mut(PAGE_STORED_BYTES) {
            self.run.open_page(self.page, sealed, &mut self.entries)?;
            self.page += 1;
        }
        for entry in &mut self.entries {
            self.run.container(*entry)?;
            entry.container = self.ordinals[entry.container as usize];
        }
        Ok(())
    }
}
