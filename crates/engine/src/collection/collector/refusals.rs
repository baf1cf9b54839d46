//! What a collector does not go on with, and how it says so: a store that seems to have lost its
//! records, and snapshots that are damaged.

use super::{Collector, roots_of};
use crate::chunks::ChunkReader;
use crate::collection::enumeration;
use crate::collection::inventory::Inventory;
use crate::collection::needed::Stretches;
use crate::session::evidence;
use crate::tree::TreeReader;
use onefold_format::node::Reference;
use onefold_format::record::SnapshotRecord;
use onefold_types::{Error, Result, SessionId};
use std::collections::BTreeMap;

impl Collector<'_> {
    /// A store with containers in which nothing was ever saved is more likely one that has lost its
    /// records (rule D4), unless backups that run or were stopped have stored them all.
    pub(super) fn refuse_to_empty(&self, inventory: &Inventory) -> Result<()> {
        if self.options.allow_empty {
            return Ok(());
        }
        let containers = inventory.containers.iter().map(|container| &container.id);
        match evidence::unexplained(self.repository, containers)?.containers {
            0 => Ok(()),
            strays => Err(Error::damaged(format!(
                "the store holds {strays} container(s) of which nothing tells who has stored them, \
                 and no record of any snapshot, not even of a forgotten one; nothing was \
                 collected. If the directory 'outcomes' was lost, bring it back from a copy of the \
                 store; if they are of no use, run 'onefold gc --allow-empty'",
            ))),
        }
    }

    /// What snapshots need without those records of where chunks lay that cannot be read: they are
    /// advice, and nothing is lost with them. `None` if all of them can.
    pub(super) fn roots_without_lost_advice(
        &self,
        live: &BTreeMap<SessionId, SnapshotRecord>,
    ) -> Result<Option<Vec<Reference>>> {
        let reader = TreeReader::new(ChunkReader::alone(self.repository)?);
        let (mut roots, mut is_any_lost) = (Vec::new(), false);
        for record in live.values() {
            roots.push(record.root);
            let Some(placement) = record.placement else { continue };
            match Stretches::all().walk(&reader, placement, self.job, &mut |_| {}) {
                Ok(_) => roots.push(placement),
                Err(error) if error.is_lost() => is_any_lost = true,
                Err(error) => return Err(error),
            }
        }
        Ok(is_any_lost.then_some(roots))
    }

    /// Says which snapshots are touched by damage.
    pub(super) fn naming_snapshots(
        &self,
        error: Error,
        live: &BTreeMap<SessionId, SnapshotRecord>,
    ) -> Error {
        let mut touched = Vec::new();
        for (id, record) in live {
            let Ok(reader) = TreeReader::open(self.repository) else {
                return error;
            };
            let roots = roots_of([record]);
            let walked = enumeration::logical(&reader, &roots, self.job, &mut |_| Ok(()));
            if walked.is_err_and(|error| error.is_lost()) {
                touched.push(id.short());
            }
        }
        match touched.is_empty() {
            true => error,
            false => error.context(format!(
                "nothing was collected: snapshot(s) {0} are damaged. Bring back what 'onefold \
                 check' names from a copy of the store, or back up its sources again while they \
                 are as they were; else give the snapshots up with 'onefold forget --final {1}'",
                touched.join(", "),
                touched.join(" ")
            )),
        }
    }
}
