//! One collector: the steps G1 to G8 (docs/PROTOCOL.md), round after round.
//!
//! A round condemns as many of the chosen containers as have live chunks that fit into memory and,
//! when room is short, on the device (`rounds`). What was marked at first stays good for all
//! rounds: its tombstones are older than those of a later epoch need be, which only keeps more, and
//! snapshots committed since are marked in every G5.
//!
//! If another collector decides an epoch first, its plan is finished and everything begins anew. A
//! collection that is interrupted after G3 leaves an open epoch: backups go on, and the next
//! collection takes it over.

mod account;
mod copying;
mod inventories;
mod missing;
mod refusals;
mod rounds;
mod second_mark;

use super::bases::{MadeOf, is_known};
use super::cleaning;
use super::copy::Rescued;
use super::inventory::{Inventory, InventoryItem};
use super::live_set::{CONTAINERS_PER_QUESTION, Marks};
use super::mark::{MARKS_MIN_BYTES, MarkReport, Marker};
use super::repacking::Repacking;
use super::reversal::Scope;
use super::settle;
use super::{CollectOptions, CollectReport, roots_of};
use crate::container::list;
use crate::index::ChunkIndex;
use crate::job::Job;
use crate::repository::Repository;
use crate::session::announced;
use crate::session::changes::{self, Changes};
use crate::session::checkpoints;
use crate::session::epoch::{self, DecidedEpoch, Newest};
use crate::session::evidence::Evidence;
use crate::session::forgetting;
use crate::session::marks::{self, Marks as HiddenMarks};
use crate::session::snapshots;
use account::Account;
use missing::Missing;
use onefold_format::layout::ChangeName;
use onefold_format::record::SnapshotRecord;
use onefold_policy::collection::select::{ContainerLiveness, Selection, select};
use onefold_types::{ContainerId, Error, ErrorKind, PlanId, Result, SessionId};
use rounds::Rounds;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Times that a collection begins anew because others are ahead.
const TRIES_MAX: usize = 16;
/// Times that a collection begins anew because something vanished while it was read.
const VANISHED_MAX: usize = 3;
/// Containers younger than the oldest running backup by this much are not left alone: clocks of
/// different machines differ. Only preference rests on it.
const CLOCK_DIFFERENCE_MS: i64 = 60_000;

/// Collects the garbage of one store.
pub struct Collector<'a> {
    repository: &'a Arc<Repository>,
    options: &'a CollectOptions,
    job: &'a Job,
    started: Instant,
    report: CollectReport,
    /// Containers that this collection wrote and read back.
    proved: BTreeSet<ContainerId>,
    /// How it packs anew, once that has been chosen.
    repacking: Option<Repacking>,
    /// Containers whose section opens nowhere, once they have been looked for.
    unreadable: OnceLock<BTreeSet<ContainerId>>,
}

/// What is known after marking.
struct Marked {
    /// The newest epoch when marking began, which was finished.
    epoch: u64,
    /// Plans listed before that was read.
    older_plans: Vec<PlanId>,
    /// The tombstones seen ("T").
    tombstones: BTreeSet<SessionId>,
    /// The sessions whose outcomes were read so far.
    known: BTreeSet<SessionId>,
    /// The sessions that had one when marking began.
    outcomes: BTreeSet<SessionId>,
    /// The newest changes of snapshots then.
    changes: Vec<ChangeName>,
    /// The snapshots marked so far.
    snapshots: BTreeMap<SessionId, SnapshotRecord>,
    marks: Marks,
    missing: Missing,
    liveness: BTreeMap<ContainerId, ContainerLiveness>,
    /// Chosen and not yet condemned, those with the fewest live chunks first.
    chosen: VecDeque<ContainerId>,
    /// Bytes live in those, and dead bytes that may come along with them.
    live_left_bytes: u64,
    dead_left_bytes: u64,
    rounds: Rounds,
    account: Account,
}

impl Marked {
    /// A round's share of the dead bytes that may come along, by its share of the live ones.
    fn take_dead(&mut self, live_bytes: u64) -> u64 {
        let share = live_bytes as f64 / self.live_left_bytes.max(1) as f64;
        let dead = (self.dead_left_bytes as f64 * share.min(1.0)) as u64;
        // Both are estimates by shares.
        self.live_left_bytes = self.live_left_bytes.saturating_sub(live_bytes);
        self.dead_left_bytes -= dead;
        dead
    }
}

/// A round's condemned containers, and what was copied out of them.
#[derive(Default)]
struct Round {
    condemned: Vec<ContainerId>,
    stored_bytes: BTreeMap<ContainerId, u64>,
    rescued: Rescued,
}

impl<'a> Collector<'a> {
    /// A collector that has done nothing yet.
    #[must_use]
    pub fn new(repository: &'a Arc<Repository>, options: &'a CollectOptions, job: &'a Job) -> Self {
        let report = CollectReport::default();
        let (proved, repacking) = (BTreeSet::new(), None);
        let (started, unreadable) = (Instant::now(), OnceLock::new());
        Self { repository, options, job, started, report, proved, repacking, unreadable }
    }

    /// Collects until everything chosen is gone.
    pub fn run(mut self) -> Result<CollectReport> {
        if !self.options.mark_only {
            settle::fence_abandoned(self.repository)?;
            forgetting::finish_forgetting(self.repository, "gc")?;
        }
        let (mut vanished, mut may_look) = (0, true);
        for _ in 0..TRIES_MAX {
            let epoch_before = self.finish_open()?;
            match self.attempt() {
                Ok(true) => return self.tidied(),
                Ok(false) => {}
                // What was missing may have been another collector's to delete.
                Err(error) if error.is_lost() && self.is_overtaken(epoch_before)? => {}
                // A backup may have merged runs of the index while they were read.
                Err(error) if error.kind() == ErrorKind::NotFound && vanished < VANISHED_MAX => {
                    vanished += 1;
                }
                Err(error)
                    if error.kind() == ErrorKind::Damaged
                        && std::mem::take(&mut may_look)
                        && self.find_unreadable()? => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "other collections are at work all the time; try later",
        ))
    }

    fn is_overtaken(&self, epoch: u64) -> Result<bool> {
        Ok(epoch::newest(self.repository)? != Newest::Finished(epoch))
    }

    /// Takes over an epoch that is open (G1); returns the newest epoch, which is finished, unless
    /// nothing may be written.
    fn finish_open(&mut self) -> Result<u64> {
        for _ in 0..TRIES_MAX {
            match epoch::newest(self.repository)? {
                Newest::Finished(number) => return Ok(number),
                Newest::Open(DecidedEpoch { number, .. }) | Newest::Lost { number, .. }
                    if self.options.mark_only =>
                {
                    self.report.taken_over = Some(number);
                    return Ok(number);
                }
                Newest::Open(decided) => {
                    self.report.taken_over = Some(decided.number);
                    self.take_over(&decided)?;
                }
                Newest::Lost { number, .. } => {
                    self.report.taken_over = Some(number);
                    let deleted = epoch::end_lost(self.repository, number)?;
                    if !deleted.is_empty() {
                        self.complete(number, &deleted, &self.sizes_of(&deleted)?)?;
                    }
                }
            }
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "other collections are at work all the time; try later",
        ))
    }

    /// Marks, chooses and goes through all rounds; `false` if another collector was faster.
    fn attempt(&mut self) -> Result<bool> {
        let Some(mut marked) = self.mark()? else {
            return Ok(false);
        };
        if self.options.mark_only {
            return Ok(true);
        }
        while !marked.chosen.is_empty() || marked.rounds.has_leavings() {
            if self.options.duration_max.is_some_and(|most| self.started.elapsed() >= most) {
                self.report.out_of_time = true;
                break;
            }
            if !self.round(&mut marked)? {
                return Ok(false);
            }
        }
        match self.drop_missing(&marked) {
            // Names are hints; the next collection drops them.
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            other => other?,
        }
        self.finish_account(&marked)
    }

    /// G1: what is live, and how live every container is. `None` if another collector has decided
    /// an epoch since the last one was seen to be finished: epochs must not overlap.
    fn mark(&mut self) -> Result<Option<Marked>> {
        self.report.left = None;
        let older_plans = epoch::plan_names(self.repository)?;
        let (epoch, barred) = match epoch::newest(self.repository)? {
            Newest::Finished(number) => (number, BTreeSet::new()),
            Newest::Open(_) | Newest::Lost { .. } if !self.options.mark_only => return Ok(None),
            Newest::Lost { number, .. } => (number, BTreeSet::new()),
            // Only looked at: what is condemned already is not there to be chosen.
            Newest::Open(decided) => {
                (decided.number, decided.plan.condemned.into_iter().collect::<BTreeSet<_>>())
            }
        };
        let (forgotten, changes) = Changes::load_with_tombstones(self.repository)?;
        let marks = HiddenMarks::load(self.repository)?;
        let mut evidence = Evidence::of(&forgotten, &marks);
        evidence.extend(changes.proved());
        let tombstones = forgotten.ids;
        let changes = changes.newest_but(&tombstones);
        if self.options.allow_empty && !self.options.mark_only {
            forgetting::give_up_lost_sessions(self.repository)?;
        }
        let mut known = BTreeSet::new();
        let (live, outcomes) = self.committed_but(&tombstones, evidence, &mut known)?;
        let mut rounds = Rounds::default();
        let (index, mut inventory) = self.inventory_in_room(&mut rounds)?;
        if live.is_empty() && tombstones.is_empty() {
            self.refuse_to_empty(&inventory)?;
        }
        let missing = Missing::note(self.repository, &index, &inventory)?;
        self.report.snapshots = live.len() as u64;
        self.report.forgotten = tombstones.len() as u64;
        self.bar(&mut inventory, &barred)?;
        let (marks, liveness) = self.run_marker(&index, &inventory, &live)?;
        let account = Account::new(&inventory, &liveness);
        let mut selection = select(&liveness, self.options.goal, None);
        self.choose_older(&inventory, &liveness, &mut selection)?;
        self.choose_unpacked(&inventory, &liveness, (&live, &marks), &mut selection)?;
        let liveness: BTreeMap<_, _> =
            liveness.into_iter().map(|container| (container.container, container)).collect();
        let chosen = self.in_order(selection.condemned.clone(), &liveness);
        if self.options.mark_only {
            self.report.deleted_containers = chosen.len() as u64;
            self.report.deleted_bytes = stored_bytes(&liveness, &selection.condemned);
            self.report.copied_bytes =
                selection.copied_bytes_stored + selection.carried_dead_max_bytes;
        }
        let live_left_bytes = selection.copied_bytes_stored;
        let dead_left_bytes = selection.carried_dead_max_bytes;
        self.report.selection = Some(selection);
        let snapshots = live;
        Ok(Some(Marked {
            epoch,
            older_plans,
            tombstones,
            known,
            outcomes,
            changes,
            snapshots,
            marks,
            missing,
            liveness,
            chosen,
            live_left_bytes,
            dead_left_bytes,
            rounds,
            account,
        }))
    }

    /// If that is asked for, chooses everything that is sealed under older keys.
    fn choose_older(
        &mut self,
        inventory: &Inventory,
        liveness: &[ContainerLiveness],
        selection: &mut Selection,
    ) -> Result<()> {
        if self.options.reseal {
            let older = inventory.of_older_keys(self.repository, self.job)?;
            selection.also_condemn(liveness, |id| older.contains(&id));
            let is_left = |id: &&ContainerId| selection.condemned.binary_search(id).is_err();
            self.report.older_left_alone = older.iter().filter(is_left).count() as u64;
        }
        Ok(())
    }

    /// If that is asked for, chooses everything that no collection has packed anew yet.
    fn choose_unpacked(
        &mut self,
        inventory: &Inventory,
        liveness: &[ContainerLiveness],
        (live, marks): (&BTreeMap<SessionId, SnapshotRecord>, &Marks),
        selection: &mut Selection,
    ) -> Result<()> {
        let Some(level) = self.options.repack_level else {
            return Ok(());
        };
        let repacking = Repacking::new(self.repository, level)?;
        let mut unpacked = BTreeSet::new();
        let mut made_of_outside = MadeOf::new(self.repository)?;
        inventory.scan(self.repository, &is_known, self.job, &mut |ordinal, section| {
            let Some(container) = inventory.containers.get(ordinal) else { return Ok(()) };
            let is_condemned = selection.condemned.binary_search(&container.id).is_ok();
            if repacking.wants(container, section) {
                unpacked.insert(container.id);
            } else if !is_condemned {
                made_of_outside.note(section);
                if container.indexed && container.sound {
                    repacking.note_kept(container.id, section, marks);
                }
            }
            Ok(())
        })?;
        selection.also_condemn(liveness, |id| unpacked.contains(&id));
        if !self.options.mark_only && !selection.condemned.is_empty() {
            let (needed, emptied) = (self.needed_by_newest(live)?, selection.condemned.clone());
            repacking.begin(Scope { needed, emptied, made_of_outside });
        }
        self.report.repacked_containers = unpacked.len() as u64;
        self.repacking = Some(repacking);
        Ok(())
    }

    /// Bars what must not be condemned: `barred`, what is damaged or not in the index, and what a
    /// running backup may be at.
    fn bar(&mut self, inventory: &mut Inventory, barred: &BTreeSet<ContainerId>) -> Result<()> {
        let oldest = announced::oldest_running_ns(self.repository)?;
        let oldest_ms = oldest.map(|ns| ns / 1_000_000 - CLOCK_DIFFERENCE_MS);
        // Who grants no grace fences running backups at once, and waits for none of them.
        let is_patient = !self.options.grace.is_zero();
        let in_use = |container: &InventoryItem| {
            is_patient && oldest_ms.is_some_and(|oldest| container.id.created_ms() >= oldest)
        };
        inventory.bar(|container| {
            // A plan is made without indexing first; what is not indexed then is garbage.
            let unknown = !container.indexed && !self.options.mark_only;
            barred.contains(&container.id) || unknown || !container.sound || in_use(container)
        });
        self.report.containers = inventory.containers.len() as u64;
        self.report.stored_bytes = inventory.stored_bytes();
        let left_alone = inventory.containers.iter().filter(|container| in_use(container));
        self.report.containers_in_use = left_alone.count() as u64;
        Ok(())
    }

    /// The committed sessions that are not forgotten, and all that have an outcome.
    fn committed_but(
        &self,
        forgotten: &BTreeSet<SessionId>,
        evidence: Evidence,
        known: &mut BTreeSet<SessionId>,
    ) -> Result<(BTreeMap<SessionId, SnapshotRecord>, BTreeSet<SessionId>)> {
        let evidence = match self.options.allow_empty {
            true => evidence.without_strays(),
            false => evidence,
        };
        let committed = snapshots::committed_but(self.repository, forgotten, evidence, known)
            .map_err(|error| {
                error.context("nothing was collected, for fear of losing snapshots")
            })?;
        Ok((committed.snapshots.into_iter().collect(), committed.outcomes))
    }

    fn run_marker(
        &mut self,
        index: &dyn ChunkIndex,
        inventory: &Inventory,
        live: &BTreeMap<SessionId, SnapshotRecord>,
    ) -> Result<(Marks, Vec<ContainerLiveness>)> {
        let mut seed = [0; 8];
        self.repository.environment().randomness.fill(&mut seed);
        let lease = self.repository.purse().take(self.repository.memory().marks_bytes);
        let mut marker = Marker {
            repository: self.repository,
            index,
            inventory,
            threads: self.options.threads,
            seed: u64::from_le_bytes(seed),
            memory_bytes: self.options.marks_bytes.unwrap_or(lease.bytes().max(MARKS_MIN_BYTES)),
            scratch: self.options.scratch.clone().unwrap_or_else(std::env::temp_dir),
            job: self.job,
            report: MarkReport::default(),
        };
        let algorithm = self.options.algorithm;
        let mut made = marker.run(algorithm, &roots_of(live.values()));
        if made.as_ref().is_err_and(Error::is_lost)
            && let Some(roots) = self.roots_without_lost_advice(live)?
        {
            made = marker.run(algorithm, &roots);
        }
        self.report.mark = marker.report;
        let (marks, liveness) = made.map_err(|error| match error.is_lost() {
            true => self.naming_snapshots(error, live),
            false => error,
        })?;
        Ok((marks.holding(lease), liveness))
    }

    /// One epoch: G2 to G8. `false` if another collector decided it.
    fn round(&mut self, marked: &mut Marked) -> Result<bool> {
        let mut round = self.condemn(marked)?;
        let rescued = std::mem::take(&mut round.rescued);
        if round.condemned.is_empty() {
            // What another collector has deleted meanwhile cannot be copied either.
            if !rescued.kept.is_empty() && self.is_overtaken(marked.epoch)? {
                return Ok(false);
            }
            self.count_copied(rescued);
            return Ok(true);
        }
        let plan = marked.plan(round.condemned.clone());
        let number = epoch::next_number(marked.epoch)?;
        let older = std::mem::take(&mut marked.older_plans);
        let Some(decided) = epoch::publish(self.repository, number, plan, &older)? else {
            // With the plan goes all that there was to say about it.
            return Ok(false);
        };
        self.count_copied(rescued);
        marked.older_plans = vec![decided.plan_id];
        marked.epoch = number;
        self.settle(number)?;
        let remark = &mut |this: &mut Self| this.remark(marked, &round);
        let deleted = self.sweep(number, &round.condemned, remark)?;
        self.complete(number, &deleted, &round.stored_bytes)?;
        Ok(true)
    }

    /// G2: takes containers to condemn, and copies what is live in them and nowhere else. None if
    /// there is no room for that.
    fn condemn(&mut self, marked: &mut Marked) -> Result<Round> {
        let started = Instant::now();
        let taken = self.take(marked)?;
        let condemned = &taken.condemned;
        if condemned.is_empty() {
            return Ok(Round::default());
        }
        if marked.rounds.is_short() {
            self.repacking.iter().for_each(Repacking::set_short);
        }
        let (_, inventory) = self.inventory(false)?;
        marked.marks.prepare(self.repository, &inventory, condemned, self.job)?;
        let (gathered, _) = self.gather(&inventory, condemned, &marked.marks)?;
        let dead_max_bytes = marked.take_dead(taken.live_bytes);
        let mut stored = Vec::new();
        let snapshots = &marked.snapshots;
        let what = (&taken, gathered, dead_max_bytes);
        let rescued = match self.copy(&inventory, what, snapshots, &mut stored) {
            Ok(rescued) => {
                marked.settle_account(&taken, dead_max_bytes, rescued.stored_bytes);
                rescued
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                self.put_back(marked, &taken, dead_max_bytes);
                self.repacking.iter().for_each(Repacking::forget_packed);
                marked.rounds.failed(&taken, stored);
                return Ok(Round::default());
            }
            Err(error) => return Err(error),
        };
        marked.rounds.succeeded(&taken);
        self.phase("copy", started);
        // What is needed of them cannot be copied: they stay as they are.
        let stay: BTreeSet<ContainerId> = rescued.kept.iter().map(|(id, _)| *id).collect();
        let condemned: Vec<ContainerId> =
            taken.condemned.into_iter().filter(|id| !stay.contains(id)).collect();
        // What a failed round has left behind counts for nothing: its copies were not counted.
        let stored_bytes =
            condemned.iter().map(|id| (*id, stored_bytes(&marked.liveness, &[*id]))).collect();
        Ok(Round { condemned, stored_bytes, rescued })
    }

    fn settle(&mut self, number: u64) -> Result<()> {
        let started = Instant::now();
        let settled = settle::settle(self.repository, number, self.options.grace, self.job)?;
        self.report.fenced += settled.fenced;
        self.phase("settle", started);
        Ok(())
    }

    fn sizes_of(&self, ids: &[ContainerId]) -> Result<BTreeMap<ContainerId, u64>> {
        let inventory = Inventory::take(self.repository, &[])?;
        let size = |id: &ContainerId| {
            let container = inventory.ordinal(*id).and_then(|at| inventory.containers.get(at));
            (*id, container.map_or(0, |container| container.stored_bytes))
        };
        Ok(ids.iter().map(size).collect())
    }

    /// G6 to G8.
    fn complete(
        &mut self,
        number: u64,
        deleted: &[ContainerId],
        sizes: &BTreeMap<ContainerId, u64>,
    ) -> Result<()> {
        let started = Instant::now();
        let mut deleted = deleted.to_vec();
        deleted.sort_unstable();
        cleaning::delete_containers(self.repository, &deleted, self.job)?;
        cleaning::purge_index(self.repository, &deleted, self.job)?;
        cleaning::remove_findings(self.repository, &deleted)?;
        epoch::finish(self.repository, number)?;
        self.report.epochs += 1;
        self.report.deleted_containers += deleted.len() as u64;
        self.report.deleted_bytes += deleted.iter().filter_map(|id| sizes.get(id)).sum::<u64>();
        self.phase("delete", started);
        Ok(())
    }

    /// Tidies up what is left over, and reports.
    fn tidied(mut self) -> Result<CollectReport> {
        if !self.options.mark_only {
            let started = Instant::now();
            announced::remove_decided(self.repository)?;
            changes::remove_forgotten(self.repository)?;
            marks::remove_forgotten(self.repository)?;
            checkpoints::tidy(self.repository, self.options.reseal);
            let present = list::container_names(self.repository)?;
            match cleaning::rewrite_packs(self.repository, &present, self.job) {
                // What was to be freed is free; packs are copies and can wait.
                Err(error) if error.kind() != ErrorKind::NoSpace => return Err(error),
                _ => {}
            }
            self.phase("tidy", started);
        }
        Ok(self.report)
    }

    fn count_copied(&mut self, rescued: Rescued) {
        self.proved.extend(rescued.written);
        self.report.kept.extend(rescued.kept);
        self.report.unread_chunks += rescued.unread;
        self.report.copied_chunks += rescued.chunks;
        self.report.nodes_for_order += rescued.nodes_for_order;
        self.report.copied_bytes += rescued.stored_bytes;
        self.report.frames_carried += rescued.frames_carried;
        self.report.deltas_made = self.repacking.as_ref().map_or(0, Repacking::deltas);
    }

    fn phase(&mut self, name: &'static str, started: Instant) {
        let elapsed = started.elapsed();
        match self.report.phases.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += elapsed,
            None => self.report.phases.push((name, elapsed)),
        }
    }
}

/// Containers that stay although they are condemned, and why.
type Kept = BTreeMap<ContainerId, String>;

/// Condemned containers whose live chunks are rescued in one go.
const CONTAINERS_PER_RESCUE: usize = CONTAINERS_PER_QUESTION;

fn stored_bytes(liveness: &BTreeMap<ContainerId, ContainerLiveness>, ids: &[ContainerId]) -> u64 {
    ids.iter().filter_map(|id| liveness.get(id)).map(|container| container.stored_bytes).sum()
}
