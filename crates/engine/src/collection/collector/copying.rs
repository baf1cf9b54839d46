//! What is live in condemned containers, and its copies (G2): which chunks there are, in which
//! order they are copied, and that none of them is passed over.

use super::Collector;
use super::rounds::Taken;
use crate::chunks::ChunkReader;
use crate::collection::bases::{MadeOf, SomeChunks};
use crate::collection::copy::{CopyForward, Rescued};
use crate::collection::enumeration;
use crate::collection::gathered::Gathered;
use crate::collection::inventory::{Inventory, InventoryItem};
use crate::collection::live_set::Marks;
use crate::collection::needed::Stretches;
use crate::tree::TreeReader;
use onefold_format::node::Reference;
use onefold_format::record::SnapshotRecord;
use onefold_types::{ContainerId, Fingerprint, Result, SessionId, invariant};
use std::collections::{BTreeMap, BTreeSet};

impl Collector<'_> {
    /// The live chunks of containers, and which of the containers have some.
    pub(super) fn gather(
        &self,
        inventory: &Inventory,
        condemned: &[ContainerId],
        marks: &Marks,
    ) -> Result<(Gathered, BTreeSet<ContainerId>)> {
        let (mut gathered, mut live_in) = (Gathered::default(), BTreeSet::new());
        let mut scanned = 0;
        let wanted = |container: &InventoryItem| condemned.binary_search(&container.id).is_ok();
        let repository = self.repository;
        let counters = inventory.scan_opened(
            repository,
            (&wanted, true),
            self.job,
            &mut |ordinal, opened| {
                let section = &opened.section;
                if let Some(container) = inventory.containers.get(ordinal) {
                    let is_live = |chunk: &Fingerprint| marks.contains(chunk.prefix());
                    if gathered.add(container.id, section, is_live) {
                        live_in.insert(container.id);
                    }
                    if self.repacking.is_some() {
                        gathered.note_links(section, is_live);
                    }
                    scanned += 1;
                }
                Ok(())
            },
        )?;
        // What is not looked at is deleted with whatever is live in it.
        let listed = condemned.iter().filter(|id| inventory.ordinal(**id).is_some()).count() as u64;
        let vanished = counters.vanished;
        invariant!(
            scanned + vanished == listed,
            "a condemned container was not looked at",
            scanned,
            vanished,
            listed
        );
        Ok((gathered, live_in))
    }

    pub(super) fn copy(
        &self,
        inventory: &Inventory,
        (taken, mut gathered, dead_max_bytes): (&Taken, Gathered, u64),
        snapshots: &BTreeMap<SessionId, SnapshotRecord>,
        stored: &mut Vec<ContainerId>,
    ) -> Result<Rescued> {
        let (repository, job, threads) = (self.repository, self.job, self.options.threads);
        let proved = &self.proved;
        let repacking = self.repacking.as_ref();
        let (condemned, cleans_up) = (&taken.condemned[..], taken.cleans_up);
        let copier = CopyForward {
            repository,
            inventory,
            condemned,
            cleans_up,
            proved,
            repacking,
            threads,
            job,
        };
        copier.drop_held_elsewhere(&mut gathered)?;
        let nodes_for_order = self.rank(&mut gathered, &copier, snapshots)?;
        if let Some(repacking) = repacking {
            repacking.begin_round(&gathered, || {
                MadeOf::of_all_but(condemned, repository, inventory, job)
            })?;
        }
        Ok(Rescued { nodes_for_order, ..copier.run(gathered, dead_max_bytes, stored)? })
    }

    /// The newest snapshot of every source, as many as are asked for an order.
    fn newest<'s>(
        &self,
        snapshots: &'s BTreeMap<SessionId, SnapshotRecord>,
    ) -> Vec<&'s SnapshotRecord> {
        let mut newest: Vec<&SnapshotRecord> = snapshots.values().collect();
        newest.sort_by_key(|record| std::cmp::Reverse(record.started_ns));
        let mut sources = BTreeSet::new();
        newest.retain(|record| sources.insert((record.host.clone(), record.paths.clone())));
        newest.truncate(self.options.ordering_snapshots_max);
        newest
    }

    /// What those need.
    pub(super) fn needed_by_newest(
        &self,
        snapshots: &BTreeMap<SessionId, SnapshotRecord>,
    ) -> Result<SomeChunks> {
        let newest = self.newest(snapshots);
        let mut needed = SomeChunks::new(self.repository)?;
        let reader = TreeReader::new(ChunkReader::alone(self.repository)?);
        // Advice that is lost is no reason to stop, so it is not looked at.
        let roots: Vec<Reference> = newest.iter().map(|record| record.root).collect();
        enumeration::logical(&reader, &roots, self.job, &mut |chunk| {
            needed.insert(chunk);
            Ok(())
        })?;
        Ok(needed)
    }

    /// Puts chunks in the order in which the newest snapshot of every source needs them; says how
    /// many nodes were read for that.
    pub(super) fn rank(
        &self,
        gathered: &mut Gathered,
        copier: &CopyForward<'_>,
        snapshots: &BTreeMap<SessionId, SnapshotRecord>,
    ) -> Result<u64> {
        if gathered.is_empty() {
            return Ok(0);
        }
        let newest = self.newest(snapshots);
        // Its memory is the copies' afterwards.
        let reader = TreeReader::new(ChunkReader::alone(self.repository)?);
        let (mut next, mut nodes) = (0, 0);
        for record in newest {
            let stretches = Stretches::of(reader.chunks(), record.placement, &|run| {
                match run.container {
                    None => true,
                    Some(id) if copier.condemned.binary_search(&id).is_ok() => {
                        gathered.has_frame(id, u32::from(run.frame))
                    }
                    // What has moved since is anywhere.
                    Some(id) => !copier.is_holder(id),
                }
            });
            let mut each = |fingerprint: &Fingerprint| {
                if let Some(spot) = gathered.chunks.get_mut(fingerprint)
                    && spot.rank == u32::MAX
                    && next < u32::MAX
                {
                    spot.rank = next;
                    next += 1;
                }
            };
            nodes += stretches.walk(&reader, record.root, self.job, &mut each)?;
            if let Some(placement) = record.placement {
                match Stretches::all().walk(&reader, placement, self.job, &mut each) {
                    Ok(more) => nodes += more,
                    // It is advice, and the mark has done without it as well.
                    Err(error) if error.is_lost() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(nodes)
    }
}
