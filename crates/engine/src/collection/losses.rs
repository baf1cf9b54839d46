//! Losses: which chunks can no longer be made because containers are missing or damaged, and which
//! instances of others need no bases any more.
//!
//! # Algorithm
//! A container is *gone* if the index knows it and it is missing, or its metadata section opens
//! nowhere. What only gone containers hold is lost, and so is a delta whose base is lost, unless
//! there is another instance of it that can be made: one that was stored again since, by a backup
//! or by healing. That other instance may be a delta as well, so one level says nothing:
//! 1. Chunks with an instance in a gone container or in a damaged frame are *touched*, and so are
//!    those with an instance that is made of a touched one. Scans over the sections add to them
//!    until nothing more is added: as many as deltas are deep, and one.
//! 2. Another scan collects the instances of what is touched. They are gone through by depth, the
//!    shallowest first: an instance can be made if its frame is sound and each of its bases has an
//!    instance of a lower depth that can be made.
//!
//! Frames of containers in quarantine are read for that; of others it is not known that they are
//! damaged. What the device does not give is not taken for damage.
//!
//! Where nothing is gone and nothing in quarantine, nothing is scanned. Memory grows with what is
//! lost and with what is made of it.
//!
//! # Invariants
//! - A chunk counts as lost only if no container that is there may hold it: a frame that is damaged
//!   says nothing about that, because it may be read again some day.
//! - An instance needs no bases only if its chunk has another one that can be made, whose frame was
//!   not found damaged.

use super::inventory::{Inventory, InventoryItem};
use crate::chunks::ChunkReader;
use crate::index::ChunkIndex;
use crate::job::Job;
use crate::repository::Repository;
use onefold_format::container::{ChunkDescriptor, MetadataSection};
use onefold_types::{ContainerId, Error, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// An instance of a chunk: its container, and its position there.
type Place = (ContainerId, u32);

/// What is lost in a store.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Prefixes, rising, of chunks that cannot be made of what is there.
    lost: Vec<u64>,
    /// Deltas that cannot be made, of chunks that have another instance.
    without_need: HashSet<Place>,
}

/// An instance of a touched chunk.
struct Instance {
    place: Place,
    prefix: u64,
    depth: u8,
    bases: Vec<u64>,
}

/// What may rest on something that is lost.
struct Touched {
    prefixes: HashSet<u64>,
    /// Instances whose frames cannot be read.
    damaged: HashSet<Place>,
}

impl Losses {
    /// Finds out what is lost.
    pub fn find(
        repository: &Arc<Repository>,
        index: &dyn ChunkIndex,
        inventory: &Inventory,
        job: &Job,
    ) -> Result<Self> {
        let mut touched = Touched::by_gone(repository, index, inventory, job)?;
        touched.add_damaged(repository, inventory, job)?;
        if touched.prefixes.is_empty() {
            return Ok(Self::default());
        }
        touched.close(repository, inventory, job)?;
        let mut instances = touched.instances(repository, inventory, job)?;
        instances.sort_by_key(|instance| instance.depth);
        let (as_it_is, _) = touched.makeable(&instances, &|_| true);
        let mut lost: Vec<u64> = touched.prefixes.iter().copied().collect();
        lost.retain(|prefix| !as_it_is.contains_key(prefix));
        lost.sort_unstable();
        let (readable, unmade) =
            touched.makeable(&instances, &|place| !touched.damaged.contains(place));
        let has_other = |one: &&Instance| readable.contains_key(&one.prefix);
        let without_need = unmade.into_iter().filter(has_other).map(|one| one.place).collect();
        Ok(Self { lost, without_need })
    }

    /// Whether a chunk cannot be made of what is there.
    #[must_use]
    pub fn is_lost(&self, prefix: u64) -> bool {
        !self.lost.is_empty() && self.lost.binary_search(&prefix).is_ok()
    }

    /// Whether a delta needs no bases: it cannot be made, and its chunk is elsewhere.
    #[must_use]
    pub fn needs_no_bases(&self, container: ContainerId, position: u32) -> bool {
        !self.without_need.is_empty() && self.without_need.contains(&(container, position))
    }
}

fn holds(container: &InventoryItem) -> bool {
    container.indexed && container.readable
}

fn base_prefixes(section: &MetadataSection, position: u32) -> impl Iterator<Item = u64> + '_ {
    let bases = section.delta_at(position).into_iter().flat_map(|delta| &delta.bases);
    bases.map(|base| base.fingerprint.prefix())
}

impl Touched {
    /// The chunks that the index knows in gone containers.
    fn by_gone(
        repository: &Repository,
        index: &dyn ChunkIndex,
        inventory: &Inventory,
        job: &Job,
    ) -> Result<Self> {
        let covered = index.covered();
        let gone = inventory.gone(&covered);
        let mut prefixes = HashSet::new();
        if !gone.is_empty() {
            let mut scan = index.scan(repository, &covered, 0)?;
            let mut group = Vec::new();
            while let Some(prefix) = scan.next_group(repository, None, &mut group)? {
                job.interrupt.check()?;
                let is_gone = |ordinal: &u32| {
                    covered.get(*ordinal as usize).is_none_or(|id| gone.contains(id))
                };
                if group.iter().any(is_gone) {
                    prefixes.insert(prefix);
                }
            }
        }
        Ok(Self { prefixes, damaged: HashSet::new() })
    }

    /// Adds the chunks in damaged frames of containers in quarantine.
    fn add_damaged(
        &mut self,
        repository: &Arc<Repository>,
        inventory: &Inventory,
        job: &Job,
    ) -> Result<()> {
        let is_in_quarantine = |container: &InventoryItem| holds(container) && !container.sound;
        if !inventory.containers.iter().any(is_in_quarantine) {
            return Ok(());
        }
        let reader = ChunkReader::apart(repository)?;
        inventory.scan(repository, &is_in_quarantine, job, &mut |ordinal, section| {
            let Some(container) = inventory.containers.get(ordinal) else { return Ok(()) };
            let mut frames: BTreeMap<u32, Vec<(u32, ChunkDescriptor)>> = BTreeMap::new();
            for (position, chunk) in (0..).zip(&section.chunks) {
                frames.entry(chunk.frame).or_default().push((position, *chunk));
            }
            for chunks in frames.values() {
                job.interrupt.check()?;
                if is_damaged(&reader, container.id, section, chunks)? {
                    self.damaged.extend(chunks.iter().map(|(at, _)| (container.id, *at)));
                    self.prefixes.extend(chunks.iter().map(|(_, one)| one.fingerprint.prefix()));
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Adds whatever is made of something touched.
    fn close(&mut self, repository: &Repository, inventory: &Inventory, job: &Job) -> Result<()> {
        loop {
            let before = self.prefixes.len();
            inventory.scan(repository, &holds, job, &mut |_, section| {
                for delta in &section.deltas {
                    let chunk = section.chunks.get(delta.chunk as usize);
                    let mut bases = base_prefixes(section, delta.chunk);
                    if let Some(chunk) = chunk
                        && bases.any(|base| self.prefixes.contains(&base))
                    {
                        self.prefixes.insert(chunk.fingerprint.prefix());
                    }
                }
                Ok(())
            })?;
            if self.prefixes.len() == before {
                return Ok(());
            }
        }
    }

    /// All instances of what is touched that are there.
    fn instances(
        &self,
        repository: &Repository,
        inventory: &Inventory,
        job: &Job,
    ) -> Result<Vec<Instance>> {
        let mut instances = Vec::new();
        inventory.scan(repository, &holds, job, &mut |ordinal, section| {
            let Some(container) = inventory.containers.get(ordinal) else { return Ok(()) };
            for (position, chunk) in (0..).zip(&section.chunks) {
                let prefix = chunk.fingerprint.prefix();
                if self.prefixes.contains(&prefix) {
                    let (place, depth) = ((container.id, position), section.depth_at(position));
                    let bases = base_prefixes(section, position).collect();
                    instances.push(Instance { place, prefix, depth, bases });
                }
            }
            Ok(())
        })?;
        Ok(instances)
    }

    /// The least depth at which each chunk can be made, and the instances that cannot.
    fn makeable<'i>(
        &self,
        rising: &'i [Instance],
        is_there: &dyn Fn(&Place) -> bool,
    ) -> (HashMap<u64, u8>, Vec<&'i Instance>) {
        let (mut depths, mut unmade) = (HashMap::new(), Vec::new());
        for instance in rising {
            let has = |base: &u64| {
                let depth = depths.get(base);
                !self.prefixes.contains(base) || depth.is_some_and(|depth| *depth < instance.depth)
            };
            match is_there(&instance.place) && instance.bases.iter().all(has) {
                true => _ = depths.entry(instance.prefix).or_insert(instance.depth),
                false => unmade.push(instance),
            }
        }
        (depths, unmade)
    }
}

/// Whether some chunks of one frame cannot be read, of deltas what they take of it.
fn is_damaged(
    reader: &ChunkReader,
    container: ContainerId,
    section: &MetadataSection,
    chunks: &[(u32, ChunkDescriptor)],
) -> Result<bool> {
    let (deltas, whole): (Vec<ChunkDescriptor>, Vec<ChunkDescriptor>) =
        chunks.iter().map(|(_, chunk)| *chunk).partition(ChunkDescriptor::is_delta);
    let read = match (whole.is_empty(), deltas.first()) {
        (true, Some(delta)) => reader.payload(container, section, delta).map(drop),
        _ => reader.read_together(container, section, &whole).map(drop),
    };
    match read {
        Ok(()) => Ok(false),
        Err(error) if Error::is_lost(&error) => Ok(true),
        Err(error) if error.is_unreadable() => Ok(false),
        Err(error) => Err(error),
    }
}
