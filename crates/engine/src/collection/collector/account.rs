//! What stays unused once a plan is carried out: written into every plan, so that whoever looks
//! later knows whether work is left, although it marks nothing itself (see `due.rs`).
//!
//! A round's plan counts what the rounds after it would free as unused: if they do not come,
//! because time or room ran out or somebody stopped the collection, the newest plan says so. What
//! was left alone for a running backup counts as unused as a whole, since nobody has looked how
//! live it is. What is damaged does not count, neither as unused nor as used: no collection frees
//! it, and none looks at it when it chooses.
//!
//! A collection that has nothing more to do, while the newest plan says otherwise, decides an epoch
//! that condemns nothing, to set that right.

use super::rounds::Taken;
use super::{Collector, Marked};
use crate::collection::due;
use crate::collection::inventory::Inventory;
use crate::session::epoch;
use onefold_format::record::Plan;
use onefold_policy::collection::select::ContainerLiveness;
use onefold_types::{ContainerId, ErrorKind, Result};
use std::collections::BTreeMap;

/// Stored bytes, about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Account {
    unused_bytes: u64,
    stored_bytes: u64,
}

impl Account {
    /// Before the first round.
    pub(super) fn new(inventory: &Inventory, liveness: &[ContainerLiveness]) -> Self {
        let judged = liveness.iter().map(ContainerLiveness::dead_bytes_stored).sum::<u64>();
        let left_alone = inventory.containers.iter().filter(|one| one.sound && !one.eligible);
        let left_alone = left_alone.map(|one| one.stored_bytes).sum::<u64>();
        let stored = liveness.iter().map(|one| one.stored_bytes).sum::<u64>();
        Self { unused_bytes: judged + left_alone, stored_bytes: stored + left_alone }
    }
}

impl Marked {
    /// The plan that condemns these.
    pub(super) fn plan(&self, condemned: Vec<ContainerId>) -> Plan {
        Plan {
            condemned,
            tombstones: self.tombstones.iter().copied().collect(),
            outcomes: self.outcomes.iter().copied().collect(),
            changes: self.changes.clone(),
            unused_bytes: self.account.unused_bytes,
            stored_bytes: self.account.stored_bytes,
        }
    }

    /// A round is to delete `taken`, of which so many bytes were written anew; so many of these may
    /// be dead.
    pub(super) fn settle_account(&mut self, taken: &Taken, dead_max_bytes: u64, copied_bytes: u64) {
        let known = || taken.condemned.iter().filter_map(|id| self.liveness.get(id));
        let dead = known().map(ContainerLiveness::dead_bytes_stored).sum::<u64>();
        let stored = known().map(|one| one.stored_bytes).sum::<u64>();
        let came_along = copied_bytes.saturating_sub(taken.live_bytes).min(dead_max_bytes);
        // An estimate: what is dead is told by shares, and a container may be condemned twice.
        let account = &mut self.account;
        account.unused_bytes = account.unused_bytes.saturating_sub(dead) + came_along;
        account.stored_bytes = account.stored_bytes.saturating_sub(stored) + copied_bytes;
    }
}

impl Collector<'_> {
    /// After the last round: sees to it that the newest plan is true. `false` if everything begins
    /// anew.
    pub(super) fn finish_account(&mut self, marked: &Marked) -> Result<bool> {
        if self.report.out_of_time || self.report.left.is_some() {
            // The newest plan says that work is left, or does not know the newest tombstones.
            return Ok(true);
        }
        if self.report.containers_in_use > 0 {
            return self.fence_vanished(marked);
        }
        if self.is_recorded(marked)? {
            return Ok(true);
        }
        match self.decide_nothing(marked) {
            // The next collection records it.
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(true),
            other => other,
        }
    }

    /// Whether the newest plan knows the tombstones, and says as much about what is left.
    fn is_recorded(&self, marked: &Marked) -> Result<bool> {
        let newest = match epoch::decided_plan(self.repository, marked.epoch) {
            Ok(decided) => decided.plan,
            Err(error) if error.is_lost() => Plan::default(),
            Err(error) => return Err(error),
        };
        let account = marked.account;
        let is_known = marked.tombstones.iter().all(|id| newest.tombstones.contains(id));
        let is_due = due::exceeds_goal(account.unused_bytes, account.stored_bytes);
        let was_due = due::exceeds_goal(newest.unused_bytes, newest.stored_bytes);
        Ok(is_known && is_due == was_due)
    }

    /// If something was left alone because of sessions that are undecided: decides an epoch that
    /// condemns nothing. Running backups take notice of it at once, and those that have vanished,
    /// on whatever machine, are fenced. `false` if there were any: what they left can go now.
    fn fence_vanished(&mut self, marked: &Marked) -> Result<bool> {
        let before = self.report.fenced;
        Ok(self.decide_nothing(marked)? && self.report.fenced == before)
    }

    /// An epoch that condemns nothing. `false` if another collector decided it.
    fn decide_nothing(&mut self, marked: &Marked) -> Result<bool> {
        let number = epoch::next_number(marked.epoch)?;
        let plan = marked.plan(Vec::new());
        if epoch::publish(self.repository, number, plan, &marked.older_plans)?.is_none() {
            return Ok(false);
        }
        self.settle(number)?;
        epoch::decide_sweep(self.repository, number, Vec::new())?;
        self.complete(number, &[], &BTreeMap::new())?;
        Ok(true)
    }
}
