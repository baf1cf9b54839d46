//! Compares index runs and metadata packs with the containers.
//!
//! What a run must say is [`crate::index::verify`]'s. Memory grows with the number of containers,
//! never with that of chunks.
//!
//! Concurrency: runs may be merged meanwhile. Runs that vanish are passed over, and runs that
//! appear are checked in another round.

use super::containers::{Inventory, checksum_of, is_of_one_object};
use super::{CheckReport, LINES_MAX};
use crate::container::list::list_packs;
use crate::container::reader;
use crate::index::run::Run;
use crate::index::run_list::list_runs;
use crate::index::verify::{differs, sum_up};
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{decided, epoch};
use onefold_format::{layout, metadata_pack};
use onefold_store::Key;
use onefold_types::{ContainerId, ErrorKind, Result, RunId};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds after which runs that keep appearing are left to the next check.
const ROUNDS_MAX: usize = 10;

/// What the index can be relied upon for.
#[derive(Default)]
pub struct Coverage {
    /// Containers that sound runs cover.
    pub covered: BTreeSet<ContainerId>,
    /// Containers that runs name and the store does not hold.
    pub named_absent: BTreeSet<ContainerId>,
    /// Containers that metadata packs describe, that the store does not hold, and that no
    /// collection has deleted: they were lost.
    pub lost: BTreeSet<ContainerId>,
}

/// Checks every run.
pub fn check_runs(
    repository: &Repository,
    inventory: &Inventory,
    job: &Job,
    report: &mut CheckReport,
) -> Result<Coverage> {
    job.progress.set_current("index");
    let mut checked: BTreeMap<RunId, Vec<ContainerId>> = BTreeMap::new();
    let mut replaced: BTreeSet<RunId> = BTreeSet::new();
    let mut existing = list_runs(repository)?;
    for _ in 0..ROUNDS_MAX {
        let new: Vec<RunId> =
            existing.iter().copied().filter(|id| !checked.contains_key(id)).collect();
        if new.is_empty() {
            break;
        }
        for id in new {
            job.interrupt.check()?;
            let opened = Run::open(repository, id).and_then(|run| {
                // Also by a run that is wrong: a look-up passes over them as long as it is there.
                replaced.extend(&run.table.replaced);
                check_run(repository, &run, inventory, job, report).map(|()| run)
            });
            let sound = match opened {
                Ok(run) => run.table.containers,
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                Err(error) if is_of_one_object(&error) => {
                    report
                        .problems
                        .push(format!("{error}; 'onefold check --repair-index' makes a new index"));
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            checked.insert(id, sound);
        }
        existing = list_runs(repository)?;
    }
    let left: Vec<&RunId> = existing.iter().filter(|id| replaced.contains(id)).collect();
    if !left.is_empty() {
        report.notes.push(format!(
            "{} index run(s) have been replaced by a merged one and are not used any more",
            left.len()
        ));
    }
    checked.retain(|id, _| existing.contains(id) && !replaced.contains(id));
    Ok(coverage_of(checked, inventory, report))
}

fn coverage_of(
    checked: BTreeMap<RunId, Vec<ContainerId>>,
    inventory: &Inventory,
    report: &mut CheckReport,
) -> Coverage {
    let mut coverage = Coverage::default();
    for id in checked.into_values().flatten() {
        coverage.covered.insert(id);
        if !inventory.exists(id) {
            coverage.named_absent.insert(id);
        }
    }
    let not_covered = inventory.contents.keys().filter(|id| !coverage.covered.contains(id)).count();
    if not_covered > 0 {
        report.notes.push(format!(
            "{not_covered} container(s) are not in the index, as an interrupted backup leaves \
             them; the next backup adds them"
        ));
    }
    coverage
}

/// Checks one run; `Damaged` if it cannot be relied upon.
fn check_run(
    repository: &Repository,
    run: &Run,
    inventory: &Inventory,
    job: &Job,
    report: &CheckReport,
) -> Result<()> {
    let sums = sum_up(repository, run, job)?;
    let mut differing = run.table.containers.iter().zip(&sums).filter(|(id, sum)| {
        let contents = inventory.contents.get(*id);
        contents.is_some_and(|contents| contents.prefixes != **sum)
    });
    if let Some((container, _)) = differing.next() {
        let more = differing.count();
        if report.problems.len() < LINES_MAX {
            return Err(differs(run.id, *container, more));
        }
    }
    Ok(())
}

fn listed_packs(repository: &Repository, report: &mut CheckReport) -> Result<Vec<String>> {
    match list_packs(repository) {
        Err(error) if is_of_one_object(&error) => {
            report.problems.push(format!("the metadata packs cannot be listed: {error}"));
            Ok(Vec::new())
        }
        listed => listed,
    }
}

/// Checks that every record of every pack is the section of its container. A pack is a copy, so a
/// fault in one costs speed, not data. Containers that packs describe and that are gone without any
/// collection having deleted them go to the coverage as lost.
pub fn check_packs(
    repository: &Repository,
    inventory: &Inventory,
    job: &Job,
    coverage: &mut Coverage,
    report: &mut CheckReport,
) -> Result<()> {
    job.progress.set_current("metadata packs");
    let mut stale = BTreeSet::new();
    let packs = listed_packs(repository, report)?;
    for name in packs {
        job.interrupt.check()?;
        let bytes = match repository.store().get(&Key::new(name.as_str())?) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if is_of_one_object(&error) => {
                report.problems.push(format!("{name}: {error}"));
                continue;
            }
            Err(error) => return Err(error),
        };
        let records = match metadata_pack::read(&bytes) {
            Ok(records) => records,
            Err(error) if error.kind() == ErrorKind::Damaged => {
                report.pack_problem(format!(
                    "{name}: {error}; it is a copy of what the containers hold: 'onefold gc' \
                     removes it"
                ));
                continue;
            }
            // A pack's version is not sealed, so a newer one is reported and not acted upon.
            Err(error) => {
                report.problems.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (container, sealed) in records {
            let differs = match inventory.contents.get(&container) {
                Some(contents) => contents.section_checksum != checksum_of(sealed),
                None if inventory.exists(container) => false,
                // Of a container that was deleted, as long as it is authentic.
                None => match reader::open_section(repository, container, &mut sealed.to_vec()) {
                    Ok(_) => {
                        stale.insert(container);
                        false
                    }
                    Err(error) if error.kind() == ErrorKind::KeysChanged => return Err(error),
                    Err(_) => true,
                },
            };
            if differs {
                report.pack_problem(format!(
                    "{name}: its copy of the metadata of container {container} is not the \
                     container's; 'onefold gc' removes it"
                ));
            }
        }
    }
    report.limit_problems();
    let count = stale.len();
    coverage.lost = never_swept(repository, stale)?;
    let deleted = count - coverage.lost.len();
    if deleted > 0 {
        report.notes.push(format!(
            "metadata packs still describe {deleted} container(s) that were deleted"
        ));
    }
    Ok(())
}

/// Those of the containers that no sweep names. Sweeps are never removed; if one cannot be read,
/// nothing can be told.
pub fn never_swept(
    repository: &Repository,
    mut absent: BTreeSet<ContainerId>,
) -> Result<BTreeSet<ContainerId>> {
    if absent.is_empty() {
        return Ok(absent);
    }
    for name in decided::names(repository, layout::SWEEPS)? {
        let Ok(number) = name.parse() else { continue };
        match epoch::decided_sweep(repository, number) {
            Ok(Some(deleted)) => absent.retain(|id| !deleted.contains(id)),
            // It was in the list, and sweeps stay: what has become of it cannot be told either.
            Ok(None) => return Ok(BTreeSet::new()),
            Err(error) if error.kind() == ErrorKind::Damaged => return Ok(BTreeSet::new()),
            Err(error) => return Err(error),
        }
    }
    Ok(absent)
}
