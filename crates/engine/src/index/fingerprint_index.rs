//! All runs of a store, as one index.
//!
//! Opening lists the runs, reads their tails, and drops those that another complete run has
//! replaced. Pieces of runs are loaded when a question first falls into them, as far as the lease
//! of memory goes. A run whose piece has no room is asked on the device: slower, never wrong. Small
//! runs come first, because a run without its pieces costs a page a look-up whatever its size: a
//! piece of a small run takes the place of one of a run at least twice as large.
//!
//! # Concurrency
//! An index is shared by all threads of a process. Whoever asks takes the runs as they are at that
//! moment ([`Opened`]) and is not disturbed by another thread that opens the index again meanwhile.
//! Pieces of runs are loaded one at a time, so that they fit.
//!
//! Runs are immutable; another process may merge runs and delete the old ones at any time. Whoever
//! misses a run opens the index again ([`FingerprintIndex::refresh`]) and finds the same entries in
//! the merged one. A listing may be read in parts, and one that is read around a merge may show
//! neither the old runs nor the new one; so the runs are listed until two listings agree. Whoever
//! misses a chunk asks whether the list of runs has changed ([`super::current`]).

use super::IndexMode;
use super::run::{Answer, PieceId, Run};
use super::run_list::{RETRIES_MAX, changing, list_runs, list_runs_since};
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_format::index_run::{IndexKind, is_hook};
use onefold_store::foresee;
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result, RunId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Pages that a bucket should have in the largest run, unless set otherwise.
const BUCKET_PAGES_DEFAULT: u32 = 16;

/// The index of a store, as one process has opened it.
pub struct FingerprintIndex {
    mode: IndexMode,
    bucket_pages: AtomicU32,
    /// Whether runs may answer from their pieces that they know nothing, without a page.
    asks_pieces: AtomicBool,
    opened: RwLock<Arc<Opened>>,
    /// Runs with a page that cannot be read: passed over, and rebuilt by the next replay. Held
    /// while the index is opened again.
    rejected: Mutex<BTreeSet<RunId>>,
    /// What was found wrong by asking since the index was opened last.
    found_wrong: Mutex<Vec<String>>,
    /// The room for pieces. Held while one is loaded.
    lease: Mutex<Option<Lease>>,
    piece_loads: AtomicU64,
    pub(super) catch_ups: Mutex<CatchUps>,
}

/// What is known of catching up.
#[derive(Default)]
pub struct CatchUps {
    /// The list of runs for which everything that no run covers was indexed, or could not be.
    pub(super) replayed: Option<Vec<RunId>>,
    /// Whether the store takes no runs from this process.
    pub(super) is_read_only: bool,
    /// Runs that were compared with the containers that they cover.
    pub(super) verified: Vec<RunId>,
}

/// The runs of an index at one moment.
#[derive(Default)]
pub struct Opened {
    /// Those in use, smallest first.
    runs: Vec<Arc<Run>>,
    /// What was wrong with others.
    problems: Vec<String>,
    /// Runs that another one has replaced and that a stopped merge left behind.
    superseded: Vec<RunId>,
    /// The names of all runs then, rising; `None` before the index was opened.
    listed: Option<Vec<RunId>>,
    /// How often the index had been opened.
    generation: u64,
}

impl Default for FingerprintIndex {
    fn default() -> Self {
        Self {
            mode: IndexMode::default(),
            bucket_pages: AtomicU32::new(BUCKET_PAGES_DEFAULT),
            asks_pieces: AtomicBool::new(true),
            opened: RwLock::default(),
            rejected: Mutex::default(),
            found_wrong: Mutex::default(),
            lease: Mutex::new(None),
            piece_loads: AtomicU64::new(0),
            catch_ups: Mutex::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FingerprintIndex {
    /// Opens all runs. Damaged ones are left out and named by [`FingerprintIndex::problems`]; what
    /// they covered counts as not covered.
    pub fn open(repository: &Repository) -> Result<Self> {
        Self::open_with(repository, IndexMode::Exact)
    }

    /// Opens all runs, for all chunks or for the hooks alone.
    pub fn open_with(repository: &Repository, mode: IndexMode) -> Result<Self> {
        let index = Self { mode, ..Self::default() };
        index.refresh(repository)?;
        Ok(index)
    }

    /// The index of the process, as the store is now: opened once and shared.
    pub fn shared(repository: &Repository) -> Result<Arc<Self>> {
        let index = repository.shared(|| Ok(Self::default()))?;
        // Whoever misses something looks twice; see [`Self::catch_up`].
        let earlier = index.opened().listed.clone();
        index.refresh_if_changed_since(repository, earlier)?;
        Ok(index)
    }

    /// The same as it was opened last, for whoever catches up when something is missing.
    pub fn at_hand(repository: &Repository) -> Result<Arc<Self>> {
        let index = repository.shared(|| Ok(Self::default()))?;
        if index.opened().listed.is_none() {
            index.refresh_if_changed(repository)?;
        }
        Ok(index)
    }

    /// Takes notice of a run that this process has written: one listing shows it, and whatever else
    /// has changed.
    pub fn refresh_with(&self, repository: &Repository, run: RunId) -> Result<()> {
        let mut expected = self.opened().listed().to_vec();
        expected.push(run);
        expected.sort_unstable();
        self.refresh_if_changed_since(repository, Some(expected)).map(drop)
    }

    /// Opens the index again: new runs appear, replaced ones go.
    pub fn refresh(&self, repository: &Repository) -> Result<()> {
        let rejected = lock(&self.rejected);
        self.open_listed(repository, &rejected, list_runs(repository)?)
    }

    fn open_listed(
        &self,
        repository: &Repository,
        rejected: &BTreeSet<RunId>,
        mut listed: Vec<RunId>,
    ) -> Result<()> {
        // What a run that has vanished since it was listed held is in one that was not listed yet:
        // without that the index would be partial (R13).
        for _ in 0..RETRIES_MAX {
            if self.open_runs(repository, listed, rejected)? {
                return Ok(());
            }
            listed = list_runs(repository)?;
        }
        Err(changing())
    }

    /// Opens the index again if there are other runs than when it was opened last; says whether.
    pub fn refresh_if_changed(&self, repository: &Repository) -> Result<bool> {
        self.refresh_if_changed_since(repository, None)
    }

    fn refresh_if_changed_since(
        &self,
        repository: &Repository,
        earlier: Option<Vec<RunId>>,
    ) -> Result<bool> {
        let rejected = lock(&self.rejected);
        let listed = list_runs_since(repository, earlier)?;
        let has_changed = self.opened().listed.as_ref() != Some(&listed);
        if has_changed {
            self.open_listed(repository, &rejected, listed)?;
        }
        Ok(has_changed)
    }

    /// The runs as they are now.
    #[must_use]
    pub fn opened(&self) -> Arc<Opened> {
        Arc::clone(&self.opened.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens these runs; `false` if one has vanished.
    fn open_runs(
        &self,
        repository: &Repository,
        listed: Vec<RunId>,
        rejected: &BTreeSet<RunId>,
    ) -> Result<bool> {
        let known = self.opened();
        let mut opened = Opened { generation: known.generation + 1, ..Opened::default() };
        let mut is_whole = true;
        let is_new = |id: &&RunId| !known.runs.iter().any(|run| run.id == **id);
        let asked = listed.iter().filter(is_new).filter(|id| !rejected.contains(id));
        let asked = asked.filter_map(|id| Run::asked(*id).ok());
        let _tails = foresee(repository.store(), asked.collect());
        for id in listed.iter().copied().filter(|id| !rejected.contains(id)) {
            if let Some(run) = known.runs.iter().find(|run| run.id == id) {
                opened.runs.push(Arc::clone(run));
                continue;
            }
            match Run::open(repository, id) {
                Ok(run) => opened.runs.push(Arc::new(run)),
                // Replaced and deleted since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => is_whole = false,
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    opened.problems.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        let replaced: BTreeSet<RunId> =
            opened.runs.iter().flat_map(|run| run.table.replaced.iter().copied()).collect();
        let ids = opened.runs.iter().map(|run| run.id);
        opened.superseded = ids.filter(|id| replaced.contains(id)).collect();
        opened.runs.retain(|run| !replaced.contains(&run.id));
        opened.runs.sort_by_key(|run| run.table.entries);
        opened.listed = Some(listed);
        lock(&self.found_wrong).clear();
        self.set_opened(opened);
        Ok(is_whole)
    }

    fn set_opened(&self, opened: Opened) {
        *self.opened.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened);
    }

    /// What was wrong with runs that could not be used, or not wholly.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.opened().problems.clone();
        problems.extend_from_slice(&lock(&self.found_wrong));
        problems
    }

    /// Runs that another one has replaced; nobody needs them any more.
    #[must_use]
    pub fn superseded(&self) -> Vec<RunId> {
        self.opened().superseded.clone()
    }

    /// The runs in use, smallest first.
    #[must_use]
    pub fn runs(&self) -> Vec<Arc<Run>> {
        self.opened().runs.clone()
    }

    /// The number of entries in all runs.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.opened().runs.iter().map(|run| run.table.entries).sum()
    }

    /// How many chunks there are entries of, about: two processes that merge the same runs at once
    /// leave every entry twice, until the next merge. Containers say how often; that they hold
    /// equally many chunks is near enough.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        let listed: usize = self.opened().runs.iter().map(|run| run.table.containers.len()).sum();
        let there = self.covered().len();
        match listed == there {
            true => self.entries(),
            false => (self.entries() as f64 * there as f64 / listed as f64) as u64,
        }
    }

    /// The kind of the largest run; the default in an empty store.
    #[must_use]
    pub fn kind(&self) -> IndexKind {
        self.opened().runs.last().map(|run| run.kind()).unwrap_or_default()
    }

    /// Bytes of memory that the index takes now.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.opened().memory_bytes()
    }

    /// Pieces read from the device so far.
    #[must_use]
    pub fn piece_loads(&self) -> u64 {
        self.piece_loads.load(Ordering::Relaxed)
    }

    /// All containers that some run covers, rising.
    #[must_use]
    pub fn covered(&self) -> Vec<ContainerId> {
        let opened = self.opened();
        let count = opened.runs.iter().map(|run| run.table.containers.len()).sum();
        let mut covered = Vec::with_capacity(count);
        for run in &opened.runs {
            covered.extend_from_slice(&run.table.containers);
        }
        // Stable: it finds the runs that are in order already.
        covered.sort();
        covered.dedup();
        covered
    }

    /// Whether some run may hold the fingerprint. In an exact index `false` is certain; in a
    /// sampled one it means that the fingerprint is no known hook.
    pub fn may_contain(&self, repository: &Repository, fingerprint: &Fingerprint) -> Result<bool> {
        let prefix = fingerprint.prefix();
        if self.mode == IndexMode::Sampled && !is_hook(prefix) {
            return Ok(false);
        }
        self.with_refresh(repository, |opened| {
            // Largest first: most of what is known is there.
            for run in opened.runs.iter().rev() {
                for piece in run.pieces_for(prefix) {
                    if self.piece_may_contain(repository, opened, run, piece, prefix)? {
                        return Ok(true);
                    }
                }
            }
            Ok(false)
        })
    }

    /// Whether the pages of a piece may hold the prefix, by the piece or the hooks, which are
    /// loaded if there is room.
    pub(super) fn piece_may_contain(
        &self,
        repository: &Repository,
        opened: &Opened,
        run: &Run,
        piece: usize,
        prefix: u64,
    ) -> Result<bool> {
        if !self.asks_pieces.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let piece_id = run.piece_for(piece, self.mode == IndexMode::Sampled);
        match run.ask(piece_id, prefix) {
            Answer::No => Ok(false),
            Answer::Maybe => Ok(true),
            Answer::Unloaded(piece_id) => {
                let loaded = self.load(repository, opened, run, piece_id)?;
                Ok(!loaded || run.ask(piece_id, prefix) != Answer::No)
            }
        }
    }

    /// Loads a piece of a run if there is room for it, or can be made.
    fn load(
        &self,
        repository: &Repository,
        opened: &Opened,
        run: &Run,
        piece_id: PieceId,
    ) -> Result<bool> {
        let mut lease = lock(&self.lease);
        let budget_bytes = lease
            .get_or_insert_with(|| {
                repository.purse().take(repository.memory().summary_vector_bytes)
            })
            .bytes();
        if run.ask(piece_id, 0) != Answer::Unloaded(piece_id) {
            return Ok(true);
        }
        if !opened.make_room(run, run.bytes_of(piece_id), budget_bytes) {
            return Ok(false);
        }
        self.piece_loads.fetch_add(1, Ordering::Relaxed);
        match run.load(repository, piece_id) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                lock(&self.found_wrong).push(error.to_string());
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Passes over a run from now on: what it knew is found again in the containers, because the
    /// index is derived.
    pub(super) fn reject(&self, id: RunId, error: &Error) {
        if !lock(&self.rejected).insert(id) {
            return;
        }
        lock(&self.found_wrong).push(error.to_string());
        let mut current = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        let runs = current.runs.iter().filter(|run| run.id != id).map(Arc::clone).collect();
        *current = Arc::new(Opened {
            runs,
            problems: current.problems.clone(),
            superseded: current.superseded.clone(),
            listed: current.listed.clone(),
            generation: current.generation,
        });
    }

    /// Passes over runs from now on, and opens the index again: what they replaced is in use.
    pub(super) fn reject_all(
        &self,
        repository: &Repository,
        wrong: Vec<(RunId, Error)>,
    ) -> Result<()> {
        lock(&self.rejected).extend(wrong.iter().map(|(id, _)| *id));
        self.refresh(repository)?;
        lock(&self.found_wrong).extend(wrong.into_iter().map(|(_, error)| error.to_string()));
        Ok(())
    }

    /// Asks again after opening the index again, if a run has vanished.
    pub(super) fn with_refresh<T>(
        &self,
        repository: &Repository,
        mut ask: impl FnMut(&Opened) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..RETRIES_MAX {
            match ask(&self.opened()) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.refresh(repository)?,
                other => return other,
            }
        }
        ask(&self.opened())
    }

    /// Whether only the hooks are asked for.
    pub(super) fn is_sampled(&self) -> bool {
        self.mode == IndexMode::Sampled
    }

    pub(super) fn bucket_pages(&self) -> u32 {
        self.bucket_pages.load(Ordering::Relaxed)
    }

    /// Sets whether the pieces of runs are asked before their pages: they are the summary vector,
    /// and an index without it reads a page for every question (S1, Table 4).
    pub fn set_asks_pieces(&self, asks: bool) {
        self.asks_pieces.store(asks, Ordering::Relaxed);
    }

    /// Sets how many pages a bucket should have in the largest run, if so many buckets fill; at
    /// least 1.
    pub fn set_bucket_pages(&self, pages: u32) {
        self.bucket_pages.store(pages.max(1), Ordering::Relaxed);
    }
}

impl Opened {
    /// The runs in use, smallest first.
    #[must_use]
    pub fn runs(&self) -> &[Arc<Run>] {
        &self.runs
    }

    /// The names of all runs, those that are not in use included, rising.
    #[must_use]
    pub fn listed(&self) -> &[RunId] {
        self.listed.as_deref().unwrap_or_default()
    }

    /// How often the index had been opened: what was asked of one generation may be answered
    /// otherwise by a later one.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn memory_bytes(&self) -> usize {
        self.runs.iter().map(|run| run.memory_bytes()).sum()
    }

    /// Sees to it that so many bytes more of a run fit into the budget.
    fn make_room(&self, run: &Run, needed_bytes: usize, budget_bytes: usize) -> bool {
        let mut used_bytes = self.memory_bytes();
        while used_bytes + needed_bytes > budget_bytes {
            let is_larger = |other: &&Arc<Run>| {
                other.table.entries / 2 > run.table.entries && other.loaded_bytes() > 0
            };
            let freed = self.runs.iter().rev().find(is_larger).map_or(0, |run| run.unload_any());
            if freed == 0 {
                return false;
            }
            used_bytes = used_bytes.saturating_sub(freed);
        }
        true
    }
}
