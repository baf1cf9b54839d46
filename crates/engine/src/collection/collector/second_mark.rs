//! The second mark of an epoch, and what follows from it (G5), by whoever decided the epoch or by
//! whoever takes it over.
//!
//! The collector that decided the epoch marks only what was committed since its first mark; one
//! that takes over marks everything, against the plan's own tombstones. What is live in a condemned
//! container and nowhere else is rescued, or its container is kept. The sweep is decided in every
//! epoch, so that no two collectors delete different containers.

use super::{CONTAINERS_PER_RESCUE, Collector, Kept, Marked, Round, TRIES_MAX, roots_of};
use crate::collection::bases;
use crate::collection::copy::CopyForward;
use crate::collection::enumeration;
use crate::collection::live_set::Marks;
use crate::collection::losses::Losses;
use crate::session::epoch::{self, DecidedEpoch};
use crate::session::evidence::Evidence;
use crate::tree::TreeReader;
use onefold_format::layout;
use onefold_format::record::SnapshotRecord;
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result, SessionId, invariant};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

impl Collector<'_> {
    /// Marks again, and decides what is deleted (the end of G5).
    ///
    /// What `remark` misses may have been another collector's to delete, which has decided the
    /// sweep then, after its own G5; or a run of the index that was merged meanwhile.
    pub(super) fn sweep(
        &mut self,
        number: u64,
        condemned: &[ContainerId],
        remark: &mut dyn FnMut(&mut Self) -> Result<Kept>,
    ) -> Result<Vec<ContainerId>> {
        let mut tries = 0;
        let kept = loop {
            tries += 1;
            match remark(self) {
                Ok(kept) => break kept,
                Err(error) if error.is_lost() => {
                    if let Some(deleted) = epoch::decided_sweep(self.repository, number)? {
                        return Ok(deleted);
                    }
                    if error.kind() != ErrorKind::NotFound || tries >= TRIES_MAX {
                        return Err(self.give_up(number, error));
                    }
                }
                Err(error) => return Err(error),
            }
        };
        // What holds the needed chunks instead must be durable: seen is not yet durable.
        self.repository.store().settle(layout::CONTAINERS)?;
        self.repository.store().settle(layout::INDEX)?;
        let sweep = condemned.iter().copied().filter(|id| !kept.contains_key(id)).collect();
        let deleted = epoch::decide_sweep(self.repository, number, sweep)?;
        // Another collector's sweep may have won: what that deletes was not kept.
        let stays = |(id, _): &(ContainerId, String)| !deleted.contains(id);
        self.report.kept.extend(kept.into_iter().filter(stays));
        Ok(deleted)
    }

    /// G5: marks what was committed since, and rescues what it needs. Returns the containers that
    /// must be kept.
    pub(super) fn remark(&mut self, marked: &mut Marked, round: &Round) -> Result<Kept> {
        let started = Instant::now();
        let mut known = marked.known.clone();
        let (new, _) = self.committed_but(&marked.tombstones, Evidence::default(), &mut known)?;
        let mut kept = Kept::new();
        if !new.is_empty() {
            // What was lost may have been stored again by those who refer to it.
            let (index, inventory) = self.inventory(false)?;
            let losses = Losses::find(self.repository, &index, &inventory, self.job)?;
            drop(index);
            let reader = TreeReader::open(self.repository)?;
            let marks = &mut marked.marks;
            marks.set_losses(losses);
            let each = &mut |chunk: &Fingerprint| marks.insert(chunk.prefix());
            enumeration::logical(&reader, &roots_of(new.values()), self.job, each)?;
            bases::mark(self.repository, &inventory, None, marks, self.job)?;
            let mut snapshots = marked.snapshots.clone();
            snapshots.extend(new);
            kept = self.rescue(&round.condemned, &mut marked.marks, &snapshots)?;
            marked.snapshots = snapshots;
        }
        // Only now: whoever tries again must rescue again.
        marked.known = known;
        self.phase("second mark", started);
        Ok(kept)
    }

    /// Copies what is live in condemned containers and nowhere else; what cannot be copied is kept
    /// where it is.
    fn rescue(
        &mut self,
        condemned: &[ContainerId],
        marks: &mut Marks,
        snapshots: &BTreeMap<SessionId, SnapshotRecord>,
    ) -> Result<Kept> {
        let mut kept: Kept = self.kept_unread(condemned)?.into_iter().collect();
        let mut readable = condemned.to_vec();
        readable.retain(|id| !kept.contains_key(id));
        let (mut prepared, mut left) = (0, &readable[..]);
        // So many containers that what is live in them is sure to fit.
        for batch in readable.chunks(CONTAINERS_PER_RESCUE) {
            self.job.interrupt.check()?;
            let (_, inventory) = self.inventory(false)?;
            if prepared == 0 {
                prepared = marks.prepare(self.repository, &inventory, left, self.job)?;
            }
            let taken = batch.len();
            invariant!(taken <= prepared && prepared <= left.len(), "marks lack", taken, prepared);
            (prepared, left) = (prepared - taken, &left[taken..]);
            let (gathered, live_in) = self.gather(&inventory, batch, marks)?;
            let (repository, job, threads) = (self.repository, self.job, self.options.threads);
            let (inventory, proved) = (&inventory, &self.proved);
            // What is rescued is what others are about to rely on, as they have found it.
            let repacking = None;
            let copier = CopyForward {
                repository,
                inventory,
                condemned,
                cleans_up: false,
                proved,
                repacking,
                threads,
                job,
            };
            let mut gathered = gathered;
            copier.drop_held_elsewhere(&mut gathered)?;
            let nodes_for_order = self.rank(&mut gathered, &copier, snapshots)?;
            self.report.nodes_for_order += nodes_for_order;
            match copier.run(gathered, 0, &mut Vec::new()) {
                Ok(mut rescued) => {
                    kept.extend(std::mem::take(&mut rescued.kept));
                    self.count_copied(rescued);
                }
                Err(error) if error.kind() == ErrorKind::NoSpace => {
                    kept.extend(live_in.into_iter().map(|id| (id, error.to_string())));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(kept)
    }

    /// Ends an epoch in which something was found damaged after it was decided: everything that it
    /// condemned is kept, so that it does not stay open for ever.
    fn give_up(&self, number: u64, error: Error) -> Error {
        let ended = epoch::decide_sweep(self.repository, number, Vec::new()).and_then(|deleted| {
            match deleted.is_empty() {
                true => epoch::finish(self.repository, number),
                false => Ok(()),
            }
        });
        match ended {
            Ok(()) => error.context("nothing was deleted"),
            Err(_) => error,
        }
    }

    /// G4 to G8 of an epoch that this collector did not decide, or did not finish.
    pub(super) fn take_over(&mut self, decided: &DecidedEpoch) -> Result<()> {
        let number = decided.number;
        let sizes = self.sizes_of(&decided.plan.condemned)?;
        match epoch::decided_sweep(self.repository, number) {
            Ok(None) => {}
            Ok(Some(deleted)) => return self.complete(number, &deleted, &sizes),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                return self.outdo_sweep(decided, &sizes, error);
            }
            Err(error) => return Err(error),
        }
        self.settle(number)?;
        let remark = &mut |this: &mut Self| this.mark_for(decided);
        let deleted = self.sweep(number, &decided.plan.condemned, remark)?;
        self.complete(number, &deleted, &sizes)
    }

    /// Ends an epoch whose sweep was decided and cannot be read any more. It named some of the
    /// condemned containers, and somebody may be deleting these still; so all of them go, after all
    /// that is needed of them has been rescued.
    fn outdo_sweep(
        &mut self,
        decided: &DecidedEpoch,
        sizes: &BTreeMap<ContainerId, u64>,
        error: Error,
    ) -> Result<()> {
        self.settle(decided.number)?;
        if let Some((id, problem)) = self.mark_for(decided)?.into_iter().next() {
            let kept = format!("container {id} is needed and cannot be copied ({problem})");
            return Err(error.context(kept));
        }
        self.repository.store().settle(layout::CONTAINERS)?;
        self.repository.store().settle(layout::INDEX)?;
        self.complete(decided.number, &decided.plan.condemned, sizes)
    }

    /// G5 for another collector's plan: everything is marked, against the plan's own tombstones.
    fn mark_for(&mut self, decided: &DecidedEpoch) -> Result<Kept> {
        let tombstones = decided.plan.tombstones.iter().copied().collect();
        let evidence = Evidence::load(self.repository)?;
        let (live, _) = self.committed_but(&tombstones, evidence, &mut BTreeSet::new())?;
        let (index, inventory) = self.inventory(true)?;
        let is_unknown = |id: &ContainerId| {
            let container = inventory.ordinal(*id).and_then(|at| inventory.containers.get(at));
            container.is_some_and(|container| !container.indexed && container.sound)
        };
        if let Some(id) = decided.plan.condemned.iter().find(|id| is_unknown(id)) {
            // Some marks say nothing about chunks that the index did not know.
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("container {id} is condemned and not in the index; run 'onefold check'"),
            ));
        }
        let (mut marks, _) = self.run_marker(&index, &inventory, &live)?;
        drop(index);
        self.rescue(&decided.plan.condemned, &mut marks, &live)
    }
}
