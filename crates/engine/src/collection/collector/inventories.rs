//! The containers that a collector goes by: listed anew at each step, and what cannot be read of
//! them found out once, so that all steps of a collection agree.
//!
//! Containers in quarantine are looked at before marking. If a collection fails because of damage,
//! all others are looked at: those whose section opens nowhere are put in quarantine then, and the
//! collection begins anew without them.

use super::Collector;
use super::rounds::Rounds;
use crate::collection::inventory::Inventory;
use crate::container::list;
use crate::container::unreadable;
use crate::index::{FingerprintIndex, merge, rebuild};
use crate::job::Job;
use crate::session::quarantine;
use onefold_types::{ContainerId, ErrorKind, Result};
use std::collections::BTreeSet;

impl Collector<'_> {
    /// Opens the index, then lists the containers. What crashed sessions left unindexed is indexed
    /// if that is asked for, so that it can be told from what is needed.
    pub(super) fn inventory(&self, mend: bool) -> Result<(FingerprintIndex, Inventory)> {
        let index = FingerprintIndex::open(self.repository)?;
        if mend {
            merge::remove_superseded(self.repository, &index)?;
            let present = list::container_names(self.repository)?;
            let kind = index.kind();
            let (quiet, _) = Job::unattended();
            let quiet = Job { interrupt: self.job.interrupt.clone(), ..quiet };
            let added =
                rebuild::replay_containers(self.repository, &index, &present, kind, &quiet)?;
            if added.containers > 0 {
                index.refresh(self.repository)?;
            }
        }
        let mut inventory = Inventory::take(self.repository, &index.covered())?;
        let quarantine = quarantine::load_ids(self.repository)?;
        inventory.distrust(&quarantine);
        inventory.pass_over(self.unreadable(&quarantine)?);
        // Whoever is told to give them up, and only looks, has not given them up.
        if !self.options.allow_empty || !self.options.mark_only {
            inventory.refuse_lost_sessions(self.repository)?;
        }
        Ok((index, inventory))
    }

    /// An inventory for marking. If there is no room for indexing, what is not indexed is left
    /// alone, and what is dead can go first.
    pub(super) fn inventory_in_room(
        &self,
        rounds: &mut Rounds,
    ) -> Result<(FingerprintIndex, Inventory)> {
        match self.inventory(!self.options.mark_only) {
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                rounds.set_short();
                self.inventory(false)
            }
            listed => listed,
        }
    }

    /// The containers whose section opens nowhere, of those in quarantine when it is asked first.
    fn unreadable(&self, quarantine: &BTreeSet<ContainerId>) -> Result<&BTreeSet<ContainerId>> {
        if let Some(known) = self.unreadable.get() {
            return Ok(known);
        }
        let found = unreadable::find(self.repository, quarantine.iter().copied(), self.job)?;
        Ok(self.unreadable.get_or_init(|| found.into_keys().collect()))
    }

    /// Looks for containers whose section opens nowhere and of which nobody knows so far. Says
    /// whether there are any: they are passed over from now on.
    pub(super) fn find_unreadable(&mut self) -> Result<bool> {
        let mut known = self.unreadable.take().unwrap_or_default();
        let others = list::container_names(self.repository)?;
        let others = others.into_iter().filter(|id| !known.contains(id));
        let found = unreadable::find(self.repository, others, self.job)?;
        for (id, error) in &found {
            let mut problem = error.to_string();
            if !self.options.mark_only {
                quarantine::record(self.repository, *id, &problem, &mut Vec::new())?;
                problem.push_str("; it is in quarantine now");
            }
            self.report.kept.push((*id, problem));
        }
        let is_any = !found.is_empty();
        known.extend(found.into_keys());
        self.unreadable = known.into();
        Ok(is_any)
    }

    /// Those of some containers whose section opens nowhere, and why they are kept.
    pub(super) fn kept_unread(&self, some: &[ContainerId]) -> Result<Vec<(ContainerId, String)>> {
        if self.unreadable.get().is_none() {
            self.inventory(false)?;
        }
        let is_unread =
            |id: &&ContainerId| self.unreadable.get().is_some_and(|unread| unread.contains(*id));
        let why = || "its metadata section opens nowhere".to_owned();
        Ok(some.iter().filter(is_unread).map(|id| (*id, why())).collect())
    }
}
