//! All runs of a store, as one index.
//!
//! Opening lists the runs and drops those that another complete run has replaced. Summary vectors
//! are loaded as far as their share of the memory limit goes, largest benefit first; a run without
//! one is asked at every look-up: slower, never wrong.
//!
//! Concurrency: runs are immutable; another process may merge runs and delete the old ones at any
//! time. Whoever misses a run opens the index again ([`FingerprintIndex::refresh`]) and
//! finds the same entries in the merged one.

use super::run::Run;
use crate::repository::Repository;
use onefold_format::layout;
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Result, RunId};
use std::collections::BTreeSet;

/// The index of a store, as one process has opened it.
#[derive(Default)]
pub struct FingerprintIndex {
    runs: Vec<Run>,
    problems: Vec<String>,
    /// Runs with a page that cannot be read: passed over, and rebuilt by the next replay.
    rejected: BTreeSet<RunId>,
    /// Runs that another one has replaced and that a stopped merge left behind.
    superseded: Vec<RunId>,
}

impl FingerprintIndex {
    /// Opens all runs. Damaged ones are left out and named by [`FingerprintIndex::problems`]; what
    /// they covered counts as not covered.
    pub fn open(repository: &Repository) -> Result<Self> {
        let mut index = Self::default();
        index.refresh(repository)?;
        Ok(index)
    }

    /// Opens the index again: new runs appear, replaced ones go.
    pub fn refresh(&mut self, repository: &Repository) -> Result<()> {
        let mut known: Vec<Run> = std::mem::take(&mut self.runs);
        self.problems.clear();
        let mut runs = Vec::new();
        for id in list_runs(repository)? {
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
                Err(error) if error.kind() == ErrorKind::NotFound => {}
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
        self.load_filters(repository)
    }

    fn load_filters(&mut self, repository: &Repository) -> Result<()> {
        let mut budget = repository.memory().summary_vector_bytes;
        // Small runs first: each run without a filter costs one page a look-up, whatever its size.
        for run in &mut self.runs {
            if run.filter_bytes() > budget {
                continue;
            }
            match run.load_filter(repository) {
                Ok(()) => budget -= run.filter_bytes(),
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    self.problems.push(error.to_string());
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What was wrong with runs that could not be used.
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

    /// The number of entries in all runs.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.runs.iter().map(|run| run.table.entries).sum()
    }

    /// All containers that some run covers.
    #[must_use]
    pub fn covered(&self) -> BTreeSet<ContainerId> {
        self.runs.iter().flat_map(|run| run.table.containers.iter().copied()).collect()
    }

    /// Whether some run's summary vector may hold the fingerprint; `false` is certain.
    #[must_use]
    pub fn may_contain(&self, fingerprint: &Fingerprint) -> bool {
        let prefix = fingerprint.prefix();
        self.runs.iter().any(|run| run.may_contain(prefix))
    }

    /// The containers that may hold the fingerprint, newest first; counts pages read in `reads`.
    pub fn locate(
        &mut self,
        repository: &Repository,
        fingerprint: &Fingerprint,
        reads: &mut u64,
    ) -> Result<Vec<ContainerId>> {
        match self.locate_once(repository, fingerprint, reads) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.refresh(repository)?;
                self.locate_once(repository, fingerprint, reads)
            }
            other => other,
        }
    }

    fn locate_once(
        &mut self,
        repository: &Repository,
        fingerprint: &Fingerprint,
        reads: &mut u64,
    ) -> Result<Vec<ContainerId>> {
        let prefix = fingerprint.prefix();
        let mut found = Vec::new();
        let mut position = 0;
        while let Some(run) = self.runs.get(position) {
            let located = match run.may_contain(prefix) {
                true => run.locate(repository, prefix, &mut found, reads),
                false => Ok(()),
            };
            match located {
                Ok(()) => position += 1,
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    // The index is derived: what this run knew is found again in the containers.
                    self.problems.push(error.to_string());
                    self.rejected.insert(self.runs.remove(position).id);
                }
                Err(error) => return Err(error),
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        Ok(found)
    }
}

/// The names of all runs in the store.
pub fn list_runs(repository: &Repository) -> Result<Vec<RunId>> {
    let mut ids = Vec::new();
    repository.store().list_names(layout::INDEX, &mut |name| {
        ids.extend(layout::last_component(name).parse::<RunId>());
        Ok(())
    })?;
    ids.sort_unstable();
    Ok(ids)
}
