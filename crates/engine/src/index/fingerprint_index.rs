//! All runs of a store, as one index.
//!
//! Opening lists the runs, reads their tails, and drops those that another complete run has
//! replaced. Pieces of runs are loaded when a question first falls into them, as far as their share
//! of the memory limit goes. A run whose piece has no room is asked on the device: slower, never
//! wrong. Small runs come first, because a run without its pieces costs a page a look-up whatever
//! its size: a piece of a small run takes the place of one of a run at least twice as large.
//!
//! Concurrency: runs are immutable; another process may merge runs and delete the old ones at any
//! time. Whoever misses a run opens the index again ([`FingerprintIndex::refresh`]) and
//! finds the same entries in the merged one. A listing may be read in parts, and one that is read
//! around a merge may show neither the old runs nor the new one; so the runs are listed until two
//! listings agree. Whoever misses a chunk asks whether the list of runs has changed
//! ([`super::current`]).

use super::IndexMode;
use super::run::{Answer, Part, Run};
use super::run_list::{RETRIES_MAX, changing, list_runs};
use crate::repository::Repository;
use onefold_format::index_run::{IndexKind, is_hook};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result, RunId};
use std::collections::BTreeSet;

/// Pages that are read with one request at most, unless set otherwise.
const BUCKET_PAGES_DEFAULT: u32 = 16;
/// The index of a store, as one process has opened it.
pub struct FingerprintIndex {
    pub(super) runs: Vec<Run>,
    pub(super) mode: IndexMode,
    pub(super) bucket_pages: u32,
    problems: Vec<String>,
    /// Runs with a page that cannot be read: passed over, and rebuilt by the next replay.
    rejected: BTreeSet<RunId>,
    /// Runs that another one has replaced and that a stopped merge left behind.
    superseded: Vec<RunId>,
    /// The names of all runs when the index was opened last; `None` before.
    listed: Option<Vec<RunId>>,
    budget_bytes: usize,
    /// Of everything that runs keep in memory.
    memory_bytes: usize,
    piece_loads: u64,
}

impl Default for FingerprintIndex {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            mode: IndexMode::default(),
            bucket_pages: BUCKET_PAGES_DEFAULT,
            problems: Vec::new(),
            rejected: BTreeSet::new(),
            superseded: Vec::new(),
            listed: None,
            budget_bytes: 0,
            memory_bytes: 0,
            piece_loads: 0,
        }
    }
}

impl FingerprintIndex {
    /// Opens all runs. Damaged ones are left out and named by [`FingerprintIndex::problems`]; what
    /// they covered counts as not covered.
    pub fn open(repository: &Repository) -> Result<Self> {
        Self::open_with(repository, IndexMode::Exact)
    }

    /// Opens all runs, for all chunks or for the hooks alone.
    pub fn open_with(repository: &Repository, mode: IndexMode) -> Result<Self> {
        let mut index = Self { mode, ..Self::default() };
        index.refresh(repository)?;
        Ok(index)
    }

    /// Opens the index again: new runs appear, replaced ones go.
    pub fn refresh(&mut self, repository: &Repository) -> Result<()> {
        // What a run that has vanished since it was listed held is in one that was not listed yet:
        // without that the index would be partial (R13).
        for _ in 0..RETRIES_MAX {
            let listed = list_runs(repository)?;
            let is_whole = self.open_runs(repository, &listed)?;
            self.listed = Some(listed);
            if is_whole {
                return Ok(());
            }
        }
        Err(changing())
    }

    /// Opens the index again if there are other runs than when it was opened last; says whether.
    pub fn refresh_if_changed(&mut self, repository: &Repository) -> Result<bool> {
        let has_changed = self.listed.as_ref() != Some(&list_runs(repository)?);
        if has_changed {
            self.refresh(repository)?;
        }
        Ok(has_changed)
    }

    /// The names of all runs when the index was opened last, rising.
    #[must_use]
    pub fn listed(&self) -> &[RunId] {
        self.listed.as_deref().unwrap_or_default()
    }

    /// Opens these runs; `false` if one has vanished.
    fn open_runs(&mut self, repository: &Repository, listed: &[RunId]) -> Result<bool> {
        let mut known: Vec<Run> = std::mem::take(&mut self.runs);
        self.memory_bytes = 0;
        self.problems.clear();
        let mut runs = Vec::new();
        let mut is_whole = true;
        for id in listed.iter().copied() {
            if self.rejected.contains(&id) {
                continue;
            }
            if let Some(position) = known.iter().position(|run| run.id == id) {
                runs.push(known.swap_remove(position));
                continue;
            }
            match Run::open(repository, id) {
                Ok(run) => runs.push(run),
                // Replaced and deleted since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => is_whole = false,
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    self.problems.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        let replaced: BTreeSet<RunId> =
            runs.iter().flat_map(|run| run.table.replaced.iter().copied()).collect();
        self.superseded.clear();
        self.superseded.extend(runs.iter().map(|run| run.id).filter(|id| replaced.contains(id)));
        runs.retain(|run| !replaced.contains(&run.id));
        runs.sort_by_key(|run| run.table.entries);
        self.runs = runs;
        self.budget_bytes = repository.memory().summary_vector_bytes;
        self.memory_bytes = self.runs.iter().map(Run::memory_bytes).sum();
        Ok(is_whole)
    }

    /// What was wrong with runs that could not be used, or not wholly.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Runs that another one has replaced; nobody needs them any more.
    #[must_use]
    pub fn superseded(&self) -> &[RunId] {
        &self.superseded
    }

    /// The runs in use, smallest first.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The runs in use, smallest first, for whoever wants them alone.
    #[must_use]
    pub fn into_runs(self) -> Vec<Run> {
        self.runs
    }

    /// The number of entries in all runs.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.runs.iter().map(|run| run.table.entries).sum()
    }

    /// The kind of the largest run; the default in an empty store.
    #[must_use]
    pub fn kind(&self) -> IndexKind {
        self.runs.last().map(Run::kind).unwrap_or_default()
    }

    /// Bytes of memory that the index takes now.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Pieces read from the device so far.
    #[must_use]
    pub fn piece_loads(&self) -> u64 {
        self.piece_loads
    }

    /// All containers that some run covers, rising.
    #[must_use]
    pub fn covered(&self) -> Vec<ContainerId> {
        let count = self.runs.iter().map(|run| run.table.containers.len()).sum();
        let mut covered = Vec::with_capacity(count);
        for run in &self.runs {
            covered.extend_from_slice(&run.table.containers);
        }
        // Stable: it finds the runs that are in order already.
        covered.sort();
        covered.dedup();
        covered
    }

    /// Whether some run covers the container.
    #[must_use]
    pub fn covers(&self, container: ContainerId) -> bool {
        self.runs.iter().any(|run| run.table.containers.binary_search(&container).is_ok())
    }

    /// Whether some run may hold the fingerprint. In an exact index `false` is certain; in a
    /// sampled one it means that the fingerprint is no known hook.
    pub fn may_contain(
        &mut self,
        repository: &Repository,
        fingerprint: &Fingerprint,
    ) -> Result<bool> {
        let prefix = fingerprint.prefix();
        if self.mode == IndexMode::Sampled && !is_hook(prefix) {
            return Ok(false);
        }
        self.with_refresh(repository, |index| {
            // Largest first: most of what is known is there.
            for position in (0..index.runs.len()).rev() {
                if index.run_may_contain(repository, position, prefix)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    fn run_may_contain(
        &mut self,
        repository: &Repository,
        position: usize,
        prefix: u64,
    ) -> Result<bool> {
        for piece in self.runs[position].pieces_for(prefix) {
            if self.piece_may_contain(repository, position, piece, prefix)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the pages of a piece may hold the prefix, by the piece or the hooks, which are
    /// loaded if there is room.
    pub(super) fn piece_may_contain(
        &mut self,
        repository: &Repository,
        position: usize,
        piece: usize,
        prefix: u64,
    ) -> Result<bool> {
        let run = &self.runs[position];
        let part = run.part_for(piece, self.mode == IndexMode::Sampled);
        match run.ask(part, prefix) {
            Answer::No => Ok(false),
            Answer::Maybe => Ok(true),
            Answer::Unloaded(part) => {
                let loaded = self.load(repository, position, part)?;
                Ok(!loaded || self.runs[position].ask(part, prefix) != Answer::No)
            }
        }
    }

    /// Loads a part of a run if there is room for it, or can be made.
    fn load(&mut self, repository: &Repository, position: usize, part: Part) -> Result<bool> {
        let needed = self.runs[position].part_bytes(part);
        if !self.make_room(position, needed) {
            return Ok(false);
        }
        let run = &mut self.runs[position];
        let before = run.loaded_bytes();
        self.piece_loads += 1;
        match run.load(repository, part) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Damaged => {
                self.problems.push(error.to_string());
            }
            Err(error) => return Err(error),
        }
        self.memory_bytes += run.loaded_bytes() - before;
        Ok(true)
    }

    /// Sees to it that a part of a run fits into the budget.
    fn make_room(&mut self, position: usize, needed: usize) -> bool {
        let entries = self.runs[position].table.entries;
        while self.memory_bytes + needed > self.budget_bytes {
            let larger = self
                .runs
                .iter_mut()
                .rev()
                .find(|run| run.table.entries / 2 > entries && run.loaded_bytes() > 0);
            let freed = larger.map_or(0, Run::unload_any);
            if freed == 0 {
                return false;
            }
            self.memory_bytes -= freed;
        }
        true
    }

    /// Passes over a run from now on: what it knew is found again in the containers, because the
    /// index is derived.
    pub(super) fn reject(&mut self, position: usize, error: &Error) {
        let run = self.runs.remove(position);
        self.problems.push(error.to_string());
        self.memory_bytes -= run.memory_bytes();
        self.rejected.insert(run.id);
    }

    /// Asks again after opening the index again, if a run has vanished.
    pub(super) fn with_refresh<T>(
        &mut self,
        repository: &Repository,
        mut ask: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..RETRIES_MAX {
            match ask(self) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.refresh(repository)?,
                other => return other,
            }
        }
        ask(self)
    }

    /// The bucket that the fingerprint falls into: neighbouring pages of the largest run, which one
    /// request reads.
    #[must_use]
    pub fn bucket_of(&self, fingerprint: &Fingerprint) -> u32 {
        let (Some(run), prefix) = (self.runs.last(), fingerprint.prefix()) else {
            return 0;
        };
        let piece = run.pieces_for(prefix).end.saturating_sub(1);
        let page = run.pages_for(piece, prefix).end.saturating_sub(1);
        let within = page.saturating_sub(run.table.pages_of(piece).start) as u32;
        piece as u32 * self.buckets_per_piece(run) + within / self.bucket_pages
    }

    /// How many buckets there are, at least 1; it changes when the index is opened again.
    #[must_use]
    pub fn bucket_count(&self) -> u32 {
        let count = self
            .runs
            .last()
            .map_or(1, |run| run.table.piece_lengths.len() as u32 * self.buckets_per_piece(run));
        count.max(1)
    }

    fn buckets_per_piece(&self, run: &Run) -> u32 {
        run.table.pages_per_piece.div_ceil(self.bucket_pages)
    }

    /// Sets how many pages make a bucket; at least 1.
    pub fn set_bucket_pages(&mut self, pages: u32) {
        self.bucket_pages = pages.max(1);
    }
}
