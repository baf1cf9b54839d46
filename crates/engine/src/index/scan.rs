//! Scans index runs in the order of fingerprints, as one list.
//!
//! Pages of every run are read a few at a time and merged, so memory depends on the number of runs
//! and not on their sizes. Several scans over distinct ranges may run at once (FAST'17, section
//! 3.4: the index is divided into partitions that threads process in parallel).

use super::chunk_index::PrefixScan;
use super::run::Run;
use crate::repository::Repository;
use onefold_format::index_run::{Entry, PAGE_STORED_BYTES};
use onefold_types::{ContainerId, Result, invariant};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Pages of a run that are read with one request.
const PAGES_PER_READ: usize = 16;

/// The entries of several runs in rising order, from some prefix on.
pub struct EntryScan {
    cursors: Vec<Cursor>,
    heap: BinaryHeap<Reverse<(Entry, usize)>>,
}

impl EntryScan {
    /// Starts at the first entry whose prefix is at least `from`. Entries come with the ordinals
    /// of their containers in `containers`, which rise; those of other containers are passed over.
    pub fn start(
        repository: &Repository,
        runs: &[Arc<Run>],
        containers: &[ContainerId],
        from: u64,
    ) -> Result<Self> {
        let mut cursors: Vec<Cursor> =
            runs.iter().map(|run| Cursor::new(Arc::clone(run), containers, from)).collect();
        let mut heap = BinaryHeap::with_capacity(cursors.len());
        for (number, cursor) in cursors.iter_mut().enumerate() {
            while let Some(entry) = cursor.next(repository)? {
                if entry.prefix >= from {
                    heap.push(Reverse((entry, number)));
                    break;
                }
            }
        }
        Ok(Self { cursors, heap })
    }

    /// The next entry; an entry that several runs hold comes several times.
    pub fn next(&mut self, repository: &Repository) -> Result<Option<Entry>> {
        let Some(Reverse((entry, number))) = self.heap.pop() else {
            return Ok(None);
        };
        if let Some(cursor) = self.cursors.get_mut(number)
            && let Some(following) = cursor.next(repository)?
        {
            self.heap.push(Reverse((following, number)));
        }
        Ok(Some(entry))
    }
}

impl PrefixScan for EntryScan {
    fn next_group(
        &mut self,
        repository: &Repository,
        end: Option<u64>,
        containers: &mut Vec<u32>,
    ) -> Result<Option<u64>> {
        containers.clear();
        let Some(Reverse((first, _))) = self.heap.peek() else {
            return Ok(None);
        };
        let prefix = first.prefix;
        if end.is_some_and(|end| prefix >= end) {
            return Ok(None);
        }
        while let Some(Reverse((entry, _))) = self.heap.peek()
            && entry.prefix == prefix
        {
            // Entries of one prefix rise by container.
            if containers.last() != Some(&entry.container) {
                containers.push(entry.container);
            }
            self.next(repository)?;
        }
        Ok(Some(prefix))
    }
}

/// Reads the entries of a run in order, with the container ordinals of the scan.
struct Cursor {
    run: Arc<Run>,
    /// `None` for a container that is passed over.
    ordinals: Vec<Option<u32>>,
    /// The next page.
    page: usize,
    sealed: Vec<u8>,
    entries: Vec<Entry>,
    position: usize,
    /// Entries read, those passed over included; `None` if the run is not read from its beginning.
    read: Option<u64>,
}

impl Cursor {
    fn new(run: Arc<Run>, containers: &[ContainerId], from: u64) -> Self {
        let ordinal = |id: &ContainerId| containers.binary_search(id).ok().map(|at| at as u32);
        let ordinals = run.table.containers.iter().map(ordinal).collect();
        let piece = run.pieces_for(from).start;
        let page = run.pages_for(piece, from).start;
        let read = (page == 0).then_some(0);
        Self { run, ordinals, page, sealed: Vec::new(), entries: Vec::new(), position: 0, read }
    }

    fn next(&mut self, repository: &Repository) -> Result<Option<Entry>> {
        while self.position == self.entries.len() {
            if self.page >= self.run.table.fences.len() {
                let (read, entries) = (self.read, self.run.table.entries);
                invariant!(
                    read.is_none_or(|read| read == entries),
                    "an index run was not read whole",
                    self.run.id,
                    read,
                    entries
                );
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
        self.read = self.read.map(|read| read + self.entries.len() as u64);
        let (run, ordinals) = (&self.run, &self.ordinals);
        let mut failed = Ok(());
        self.entries.retain_mut(|entry| {
            match run.container(*entry) {
                Ok(_) => {}
                Err(error) => failed = Err(error),
            }
            match ordinals.get(entry.container as usize).copied().flatten() {
                Some(ordinal) => {
                    entry.container = ordinal;
                    true
                }
                None => false,
            }
        });
        failed
    }
}
