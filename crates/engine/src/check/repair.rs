//! A new index out of the containers, when the old one is damaged.
//!
//! Plan and execute: the plan names the runs that will be replaced, and refuses if one of them is
//! of a newer version (R26). The new runs are stored before the first old one is deleted, so an
//! interruption at any point leaves an index that is complete (R12, R13, R33); repeats are dropped
//! by the next merge. Containers are only read.
//!
//! Concurrency: runs written by a backup meanwhile are not in the plan and stay.

use crate::container::list;
use crate::index::rebuild;
use crate::index::run::Run;
use crate::index::run_list::list_runs;
use crate::index::{FingerprintIndex, merge};
use crate::job::Job;
use crate::repository::Repository;
use onefold_format::index_run::IndexKind;
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ErrorKind, Result, RunId};

/// What a repair of the index will do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IndexRepairPlan {
    /// The runs that will be replaced.
    pub runs: Vec<RunId>,
    /// How many of them are damaged.
    pub runs_damaged: u64,
    /// The containers that will be read.
    pub containers: u64,
}

/// What a repair of the index did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexRepair {
    /// Runs replaced.
    pub runs_replaced: u64,
    /// Containers in the new index.
    pub containers: u64,
    /// Entries in the new index.
    pub entries: u64,
    /// Containers whose metadata section cannot be read.
    pub unreadable: u64,
}

/// Looks at what a repair would do; writes nothing.
pub fn plan_index_repair(repository: &Repository, job: &Job) -> Result<IndexRepairPlan> {
    let mut plan = IndexRepairPlan::default();
    for id in list_runs(repository)? {
        job.interrupt.check()?;
        match Run::open(repository, id) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Io) => {
                plan.runs_damaged += 1;
            }
            Err(error) => return Err(error),
        }
        plan.runs.push(id);
    }
    plan.containers = list::container_names(repository)?.len() as u64;
    Ok(plan)
}

/// Carries out a plan. Without a kind, the new index is of the kind of what was sound of the old
/// one.
pub fn execute_index_repair(
    repository: &Repository,
    plan: &IndexRepairPlan,
    kind: Option<IndexKind>,
    job: &Job,
) -> Result<IndexRepair> {
    job.progress.set_current("containers");
    let kind = match kind {
        Some(kind) => kind,
        None => FingerprintIndex::open(repository)?.kind(),
    };
    let (none, present) = (FingerprintIndex::default(), list::container_names(repository)?);
    let replayed = rebuild::replay_containers(repository, &none, &present, kind, job)?;
    for id in &plan.runs {
        let key = Key::new(layout::index_run(*id))?;
        repository.store().delete(&key)?;
    }
    merge::merge_if_due(repository, Some(kind))?;
    Ok(IndexRepair {
        runs_replaced: plan.runs.len() as u64,
        containers: replayed.containers,
        entries: replayed.entries,
        unreadable: replayed.unreadable,
    })
}

/// Replaces the index by a new one made from the containers, of this kind if one is named.
pub fn repair_index(
    repository: &Repository,
    kind: Option<IndexKind>,
    job: &Job,
) -> Result<IndexRepair> {
    let plan = plan_index_repair(repository, job)?;
    execute_index_repair(repository, &plan, kind, job)
}
