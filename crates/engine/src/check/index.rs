//! Compares index runs and metadata packs with the containers.
//!
//! A run that covers a container must hold an entry for each of its chunks and no other. Pages are
//! read one after the other and entries are added up by container; the sum must be the container's
//! own ([`PrefixSum`]). Memory grows with the number of containers, never with that of chunks.
//! Pages must also be in order and fit their fences, and the pieces must know every entry:
//! otherwise a look-up would miss what is there.
//!
//! Concurrency: runs may be merged meanwhile. Runs that vanish are passed over, and runs that
//! appear are checked in another round.

use super::containers::{Inventory, PrefixSum, checksum_of, is_of_one_object};
use super::{CheckReport, LINES_MAX};
use crate::container::list::list_packs;
use crate::container::reader;
use crate::index::run::Run;
use crate::index::run_list::list_runs;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{decided, epoch};
use onefold_format::index_run::{self, Entry};
use onefold_format::{layout, metadata_pack};
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Result, RunId};
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
            let sound = match check_run(repository, id, inventory, job, report) {
                Ok(run) => {
                    replaced.extend(&run.table.replaced);
                    run.table.containers
                }
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
    checked.retain(|id, _| existing.contains(id));
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
    id: RunId,
    inventory: &Inventory,
    job: &Job,
    report: &mut CheckReport,
) -> Result<Run> {
    let mut run = Run::open(repository, id)?;
    let mut sums = vec![PrefixSum::default(); run.table.containers.len()];
    let mut entries = Vec::new();
    let mut last: Option<Entry> = None;
    for page in 0..run.table.fences.len() {
        if page % 256 == 0 {
            job.interrupt.check()?;
        }
        entries.clear();
        load_pieces(repository, &mut run, page)?;
        run.read_page(repository, page, &mut entries)?;
        let end = last.map(|entry| entry.prefix);
        let fence = entries.first().map(|first| index_run::fence(end, first.prefix));
        if fence != Some(run.table.fences[page]) {
            return Err(wrong(id, "a page does not begin where its fence says"));
        }
        for entry in &entries {
            if last >= Some(*entry) {
                return Err(wrong(id, "its entries are not in order"));
            }
            last = Some(*entry);
            if !run.knows(page, *entry) {
                return Err(wrong(id, "what stands in memory for it does not know an entry"));
            }
            match sums.get_mut(entry.container as usize) {
                Some(sum) => sum.add(entry.prefix),
                None => return Err(wrong(id, "an entry is stray")),
            }
        }
    }
    let mut differing = run.table.containers.iter().zip(&sums).filter(|(id, sum)| {
        let contents = inventory.contents.get(*id);
        contents.is_some_and(|contents| contents.prefixes != **sum)
    });
    if let Some((container, _)) = differing.next() {
        let more = differing.count();
        let problem = format!(
            "its entries for container {container} and {more} more are not those \
                               of the container"
        );
        if report.problems.len() < LINES_MAX {
            return Err(wrong(id, &problem));
        }
    }
    Ok(run)
}

/// Loads the pieces that stand for a page, in place of those before.
fn load_pieces(repository: &Repository, run: &mut Run, page: usize) -> Result<()> {
    let piece = page / run.table.pages_per_piece as usize;
    if page == run.table.pages_of(piece).start {
        while run.unload_any() > 0 {}
        run.load(repository, run.piece_for(piece, false))?;
        run.load(repository, run.piece_for(piece, true))?;
    }
    Ok(())
}

fn wrong(id: RunId, problem: &str) -> Error {
    Error::damaged(format!("index run {id}: {problem}"))
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
