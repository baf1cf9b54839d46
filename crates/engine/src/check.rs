//! Check: is everything there, and is it what was written?
//!
//! | module | holds |
//! | --- | --- |
//! | `foundation` | configuration, key slots: what must be readable before anything else |
//! | `decisions` | outcomes, tombstones, fates, changes, epochs, sweeps, each with its second copy
//! |
//! | `checkpoints` | whether they say what the records say that they repeat |
//! | `containers` | every container: structure, and as much of its data as asked for |
//! | `index` | index runs and metadata packs against the containers |
//! | `resolver` | where a chunk lies, told without relying on anything damaged |
//! | `trees` | every reference of every snapshot, each distinct node once |
//! | `paths` | damage in terms of snapshots and paths |
//! | `roots` | trees that no record refers to, if records are lost |
//! | [`quarantine`] | what later backups must know about damage |
//! | `repair` | a new index out of the containers |
//!
//! # Algorithm
//! The list of snapshots is loaded first, then containers are listed, so every snapshot looked at
//! was committed over containers that existed. Containers are verified by worker threads, each
//! object with one request; the index is compared with them by order-independent sums over
//! (prefix, container), in memory that does not depend on the number of chunks. Then the trees are
//! walked. Only if a reference has no sound instance are they walked a second time, for paths.
//!
//! # Invariants
//! - A check that finds nothing wrong writes nothing. What it ever writes are second copies of
//!   decisions that have lost one, and, last, quarantine and doubts.
//! - It goes by the records, not by what checkpoints repeat of them.
//! - A record that is authentic but newer than this program is never damage (R26): the check ends
//!   with that error, and nothing has been written.
//! - A chunk that is missing and of which nothing tells where it was raises a doubt, so that later
//!   backups look for every chunk of their parents; a check that finds all snapshots whole removes
//!   the doubts that it found at its start ([`crate::session::doubts`]).
//! - A damaged container is an error until every chunk that snapshots need of it has a sound
//!   instance elsewhere (R20); after that it is reported as healed.
//!
//! # Concurrency
//! Backups and collections may run meanwhile. What vanished since it was listed is looked for again
//! in a fresh index before it counts as lost, and snapshots forgotten meanwhile are passed over.

mod checkpoints;
mod containers;
mod decisions;
mod foundation;
mod index;
mod paths;
mod repair;
mod resolver;
mod roots;
mod trees;

pub use repair::{
    IndexRepair, IndexRepairPlan, execute_index_repair, plan_index_repair, repair_index,
};

use crate::job::Job;
use crate::repository::Repository;
use crate::session::doubts::{self, Doubts};
use crate::session::evidence;
use crate::session::quarantine::{self, Quarantine};
use crate::session::tombstones::{self, Forgotten};
use crate::session::{Snapshot, SnapshotList};
use onefold_format::layout;
use onefold_format::node::{Reference, Totals};
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Result, SessionId};
use resolver::Resolver;
use std::collections::BTreeSet;
use std::sync::Arc;
use trees::Trees;

/// Lines kept of each list in a report.
const LINES_MAX: usize = 1000;

/// How much of the data to read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ReadData {
    /// Structure only: metadata sections and trees.
    None,
    /// Every byte.
    All,
    /// Every byte of a share of the containers, in percent, but of one at least: in the order of
    /// names from anywhere on.
    Sample(f64),
    /// The same from the one behind `after` on: samples that follow each other cover everything.
    SampleAfter {
        /// The share in percent.
        percent: f64,
        /// The last one of the sample before.
        after: ContainerId,
    },
    /// Every byte of one of `of` equal parts of the containers, `part` from 1; over `of` runs all.
    Part {
        /// Which part, from 1.
        part: u32,
        /// How many parts.
        of: u32,
    },
}

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// How much to read.
    pub read_data: ReadData,
    /// Threads that read and verify.
    pub threads: usize,
    /// Whether to record quarantine, so that later backups store damaged chunks again.
    pub record_quarantine: bool,
}

/// A file or directory that cannot be restored whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedPath {
    /// The snapshot.
    pub snapshot: SessionId,
    /// The path in it, escaped for display.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// Whether a snapshot can be restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The snapshot.
    pub snapshot: SessionId,
    /// How many of its paths cannot be restored whole: none if it is whole.
    pub damaged_paths: u64,
}

/// The top of a tree that no record refers to: what a snapshot whose record is lost may have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostRoot {
    /// The root.
    pub root: Reference,
    /// Entries and bytes below it.
    pub totals: Totals,
    /// Whether everything below it can be restored.
    pub is_whole: bool,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Snapshots looked at.
    pub snapshots: u64,
    /// Containers looked at.
    pub containers: u64,
    /// Containers read whole.
    pub containers_read: u64,
    /// Chunks whose bytes were verified.
    pub chunks_verified: u64,
    /// Plain bytes verified.
    pub bytes_verified: u64,
    /// Damaged or missing containers and what is wrong with each.
    pub damaged_containers: Vec<(ContainerId, String)>,
    /// Containers found damaged before, all of whose referenced chunks are stored elsewhere now.
    pub healed_containers: Vec<ContainerId>,
    /// The last container of a sample.
    pub sample_end: Option<ContainerId>,
    /// One for each snapshot looked at, in the order of the list.
    pub verdicts: Vec<Verdict>,
    /// What cannot be restored whole; about a thousand are listed, of every snapshot some.
    pub damaged_paths: Vec<DamagedPath>,
    /// How many more paths cannot be restored whole.
    pub damaged_paths_more: u64,
    /// Everything else that is wrong: records, index runs, packs; of the kinds of which there can
    /// be many, at most a thousand are listed.
    pub problems: Vec<String>,
    /// How many more such problems there are.
    pub problems_more: u64,
    /// How many of them are about metadata packs, which the next collection mends.
    pub pack_problems: u64,
    /// Trees that no record refers to, looked for if records are lost, the largest first.
    pub roots: Vec<LostRoot>,
    /// What is untidy but harmless, and will be mended by itself.
    pub notes: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged_containers.is_empty()
            && self.damaged_paths.is_empty()
            && self.problems.is_empty()
    }

    /// Whether all that is wrong is what the next collection mends.
    #[must_use]
    pub fn needs_collection_only(&self) -> bool {
        self.damaged_containers.is_empty()
            && self.damaged_paths.is_empty()
            && self.pack_problems > 0
            && self.problems.len() as u64 + self.problems_more == self.pack_problems
    }

    fn pack_problem(&mut self, problem: String) {
        self.pack_problems += 1;
        self.problems.push(problem);
    }

    /// Keeps so many problems as a report lists, and counts the others.
    fn limit_problems(&mut self) {
        self.problems_more += self.problems.len().saturating_sub(LINES_MAX) as u64;
        self.problems.truncate(LINES_MAX);
    }
}

/// Checks the store.
pub fn check(
    repository: &Arc<Repository>,
    options: CheckOptions,
    job: &Job,
) -> Result<CheckReport> {
    validate(options.read_data)?;
    let mut report = CheckReport::default();
    let doubts = Doubts::load(repository)?;
    let list = SnapshotList::load_unaided(repository)?;
    report.problems.extend(list.problems.iter().cloned());
    foundation::check(repository, options.record_quarantine, &mut report)?;
    decisions::check(repository, options.record_quarantine, &mut report)?;
    checkpoints::check(repository, options.record_quarantine, &mut report)?;
    let quarantine = Quarantine::load(repository)?;
    report.problems.extend(quarantine.problems.iter().cloned());

    let inventory = containers::inventory(repository, options, &quarantine.ids, job, &mut report)?;
    let has_lost_sessions = tell_of_lost_sessions(repository, &list, &inventory, &mut report)?;
    let mut coverage = index::check_runs(repository, &inventory, job, &mut report)?;
    index::check_packs(repository, &inventory, job, &mut coverage, &mut report)?;

    let resolver = Resolver::new(repository, inventory, coverage)?;
    resolver.read_sections();
    let mut trees = Trees::new(resolver, repository.memory().restore_window_chunks, job);
    check_snapshots(repository, &list.snapshots, &mut trees, &mut report)?;
    if !list.lost.is_empty() || list.has_strays || has_lost_sessions {
        report.roots = roots::find(repository, &list.snapshots, &mut trees)?;
    }
    report.problems.append(&mut trees.problems);
    let is_blind = trees.resolver.is_blind();
    let unlocated = trees.unlocated;
    settle(repository, trees, &quarantine, options.record_quarantine, &mut report)?;
    if options.record_quarantine {
        settle_doubts(repository, &list, &doubts, (unlocated, is_blind), &mut report)?;
    }
    Ok(report)
}

/// Names the sessions of which only containers tell, and counts the containers that nothing
/// explains where nothing tells that there ever was a snapshot; whether there are any.
fn tell_of_lost_sessions(
    repository: &Repository,
    list: &SnapshotList,
    inventory: &containers::Inventory,
    report: &mut CheckReport,
) -> Result<bool> {
    let known = match evidence::known_sessions(repository) {
        Ok(known) => known,
        // What stands in the way of listing them is told already.
        Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Invalid) => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let is_known = |id: &Option<SessionId>| id.is_some_and(|id| known.contains(&id));
    let unexplained = inventory.sessions.iter().filter(|(id, _)| !is_known(id));
    let before = report.problems.len();
    if list.snapshots.is_empty() && Forgotten::load(repository)?.ids.is_empty() {
        let strays: u64 = unexplained.clone().map(|(_, count)| count).sum();
        report.problems.extend((strays > 0).then(|| {
            format!(
                "there are {strays} container(s) of which nothing tells what became of who has \
                 stored them, and no record of any snapshot, not even of a forgotten one: if the \
                 directory '{}' was lost, bring it back from a copy of the store",
                layout::OUTCOMES
            )
        }));
    }
    let lost = unexplained.filter_map(|(id, _)| *id).filter(|id| !list.lost.contains(id));
    report.problems.extend(lost.map(evidence::only_containers_tell_of));
    Ok(report.problems.len() > before)
}

/// Raises a doubt if something is missing that no quarantine names; removes those that were there
/// when the check began, if every snapshot is whole.
fn settle_doubts(
    repository: &Repository,
    list: &SnapshotList,
    doubts: &Doubts,
    (unlocated, is_blind): (bool, bool),
    report: &mut CheckReport,
) -> Result<()> {
    let is_whole = report.damaged_paths.is_empty() && !is_blind;
    if is_whole && !doubts.is_empty() {
        let count = doubts.count();
        return match doubts.remove(repository) {
            Ok(()) => {
                report.notes.push(format!(
                    "every snapshot is whole: {count} doubt(s) about the index were removed"
                ));
                Ok(())
            }
            Err(error) if error.forbids_writing() => Ok(()),
            Err(error) => Err(error),
        };
    }
    let damaged: BTreeSet<SessionId> =
        report.verdicts.iter().filter(|it| it.damaged_paths > 0).map(|it| it.snapshot).collect();
    let is_trusted =
        |id: &SessionId| list.get(*id).is_some_and(|snapshot| !doubts.concern(&snapshot.record));
    if unlocated && damaged.iter().any(is_trusted) {
        match doubts::raise(repository, "chunks are missing, and nothing tells where they were") {
            Ok(()) => report.notes.push(
                "later backups look for every chunk of the snapshots that are damaged, and store \
                 again what is missing"
                    .to_owned(),
            ),
            Err(error) if error.is_about_writing() => {
                report.notes.push(format!("the damage could not be noted: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn validate(read_data: ReadData) -> Result<()> {
    match read_data {
        ReadData::Sample(percent) | ReadData::SampleAfter { percent, .. }
            if !(percent > 0.0 && percent <= 100.0) =>
        {
            Err(Error::invalid("a sample must be above 0 and at most 100 percent"))
        }
        ReadData::Part { part, of } if part == 0 || part > of => Err(Error::invalid(format!(
            "there is no part {part} of {of}: parts are counted from 1"
        ))),
        _ => Ok(()),
    }
}

/// Walks all snapshots, and those with damage once more for the paths concerned.
fn check_snapshots(
    repository: &Repository,
    snapshots: &[Snapshot],
    trees: &mut Trees<'_>,
    report: &mut CheckReport,
) -> Result<()> {
    trees.job.progress.set_current("trees");
    trees.job.progress.set_totals(snapshots.len() as u64, 0);
    let mut lines = paths::Lines::default();
    for snapshot in snapshots {
        report.snapshots += 1;
        let mut damaged_paths = 0;
        if !trees.is_whole(snapshot.record.root)? {
            if tombstones::is_forgotten(repository, snapshot.id)? {
                let short = snapshot.id.short();
                let note = format!("snapshot {short} was forgotten while it was checked");
                report.notes.push(note);
                continue;
            }
            damaged_paths = paths::report(trees, snapshot.id, snapshot.record.root, &mut lines)?;
        }
        report.verdicts.push(Verdict { snapshot: snapshot.id, damaged_paths });
        if let Some(placement) = snapshot.record.placement
            && !trees.is_placement(placement)?
        {
            report.notes.push(format!(
                "the recorded chunk locations of snapshot {} cannot be read; restoring it asks the \
                 index instead",
                snapshot.id.short()
            ));
        }
        trees.job.progress.add(1, 0);
    }
    lines.finish(report);
    Ok(())
}

fn exists_now(repository: &Repository, id: ContainerId) -> Result<bool> {
    match repository.store().size(&Key::new(layout::container(id))?) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Containers that are needed or seem damaged, and that a collection has deleted: what needed them
/// was forgotten while the check ran. None if any path is damaged.
fn swept_meanwhile(
    repository: &Repository,
    needed: &BTreeSet<ContainerId>,
    inventory: &containers::Inventory,
    report: &CheckReport,
) -> Result<BTreeSet<ContainerId>> {
    if !report.damaged_paths.is_empty() {
        return Ok(BTreeSet::new());
    }
    let missing = needed.iter().filter(|id| !inventory.exists(**id));
    let mut absent = BTreeSet::new();
    for id in missing.chain(inventory.damaged.keys()) {
        if !exists_now(repository, *id)? {
            absent.insert(*id);
        }
    }
    let lost = index::never_swept(repository, absent.clone())?;
    Ok(absent.difference(&lost).copied().collect())
}

/// Tells damaged containers from healed ones, and writes or removes quarantine.
fn settle(
    repository: &Repository,
    trees: Trees<'_>,
    quarantine: &Quarantine,
    record: bool,
    report: &mut CheckReport,
) -> Result<()> {
    let Trees { resolver, mut needed, unlocated, .. } = trees;
    let inventory = resolver.inventory;
    let absent_named: BTreeSet<ContainerId> = resolver.coverage.named_absent;
    // Nothing else tells where the missing chunks were.
    if unlocated {
        needed.extend(resolver.coverage.lost);
    }
    let swept = swept_meanwhile(repository, &needed, &inventory, report)?;
    needed.retain(|id| !swept.contains(id));
    let mut damaged: Vec<(ContainerId, String)> = Vec::new();
    for (id, damage) in inventory.damaged.iter().filter(|(id, _)| !swept.contains(id)) {
        // What an unreadable container held is not known; it may have been what is missing now.
        if unlocated && damage.is_total() {
            needed.insert(*id);
        }
        damaged.push((*id, damage.problem.clone()));
    }
    let absent = needed.iter().filter(|id| !inventory.exists(**id));
    for id in absent {
        // A collection may have made it since containers were listed.
        if !exists_now(repository, *id)? {
            damaged.push((*id, "it is missing".to_owned()));
        }
    }
    let mut untidy = 0u64;
    for id in absent_named.iter().filter(|id| !needed.contains(id)) {
        match quarantine.ids.contains(id) {
            true => report.healed_containers.push(*id),
            false => untidy += 1,
        }
    }
    if untidy > 0 {
        report.notes.push(format!(
            "the index still names {untidy} container(s) that were deleted; nothing needs them"
        ));
    }
    damaged.sort();
    for (id, problem) in damaged {
        if quarantine.ids.contains(&id) && !needed.contains(&id) {
            report.healed_containers.push(id);
            continue;
        }
        if record && !quarantine.ids.contains(&id) {
            quarantine::record(repository, id, &problem, &mut report.notes)?;
        }
        report.damaged_containers.push((id, problem));
    }
    report.healed_containers.sort_unstable();
    if record {
        let is_over = |id: &ContainerId| {
            let gone = !inventory.exists(*id) && !absent_named.contains(id) && !needed.contains(id);
            // What is missing may have been in it.
            gone && !unlocated
                || inventory.verified_whole.contains(id) && !inventory.damaged.contains_key(id)
        };
        for id in quarantine.ids.iter().filter(|id| is_over(id)) {
            quarantine::remove(repository, *id, &mut report.notes)?;
        }
    }
    Ok(())
}
