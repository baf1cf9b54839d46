//! Marking in scratch files: memory does not depend on the size of the store.
//!
//! # Algorithm
//! PGC's walk (FAST'17, section 3.2; S3.18, S3.19), with every set of it on disk and every look-up
//! a merge of two sorted lists, as external-memory graph walks do (Munagala and Ranade, "I/O-
//! complexity of graph algorithms", SODA 1999):
//! 1. *Scan*: the metadata sections name all nodes: level, fingerprint, address. They are sorted
//!    into one file, and where each level begins in it is noted.
//! 2. *Walk*, level by level from the top: the nodes of a level that are referred to, sorted, are
//!    merged with those that there are. The addresses found are sorted by container, so that every
//!    container and every frame is read once a level. Children that are nodes become due at their
//!    level ([`super::level_queue`]); all that is referred to is live ([`super::spilled_live`]).
//! 3. *Select*: the live prefixes, sorted, are merged with the index. Of several instances of a
//!    chunk that in the newest container that may be condemned counts, as with `exact`.
//!
//! # Invariants
//! - Exact, by eight bytes of a fingerprint; nodes by all of it.
//! - A node that is referred to and in no container of its level, cannot be read, or refers
//!   upwards: `Damaged`, and nothing may be condemned.
//! - Buffers and areas take [`PARTITIONED_BYTES`] together, or less if less is given. Beyond that
//!   24 bytes are needed for each container, as the inventory needs some for each.
//!
//! # Concurrency
//! One thread: the work is that of the disk.

use super::bases::Links;
use super::enumeration::EnumerationCounters;
use super::inventory::{Inventory, InventoryItem, ScanCounters};
use super::level_queue::{DUE_WORDS, LevelQueue, fingerprint, words};
use super::live_set::{LiveSet, Marks};
use super::losses::Losses;
use super::spill::{Held, RecordFile, RecordReader, Scratch, Sorted, SpillSet, Split};
use super::spilled_live::SpilledLive;
use crate::chunks::{Chunk, ChunkReader, Location};
use crate::index::ChunkIndex;
use crate::job::Job;
use crate::repository::Repository;
use onefold_format::container::MetadataSection;
use onefold_format::node::{Node, Reference};
use onefold_policy::collection::level_checksums::LevelChecksums;
use onefold_policy::collection::select::ContainerLiveness;
use onefold_types::error::Context;
use onefold_types::{Error, Fingerprint, Level, Result, bug, limits};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What all buffers and areas take together, however large the store is.
pub const PARTITIONED_BYTES: usize = 48 * limits::MIB;
/// Files that nodes, and addresses of nodes, are distributed over.
const PARTITIONS: usize = 64;

/// Level, fingerprint and address of a node.
const HELD_WORDS: usize = 6;
/// Address and fingerprint of a node.
const SPOT_WORDS: usize = 5;

/// The shares of the memory; what is sorted is let go of before the next is.
#[derive(Clone, Copy)]
struct Shares {
    live: usize,
    due: usize,
    nodes: usize,
    area: usize,
}

impl Shares {
    fn of(memory_bytes: usize) -> Self {
        // The rest is for pieces of files.
        let eighth = memory_bytes.min(PARTITIONED_BYTES) / 8;
        Self { live: eighth, due: eighth, nodes: eighth, area: 3 * eighth }
    }
}

/// What is known of a container.
#[derive(Clone, Copy)]
struct Tally {
    plain_bytes: u64,
    chunks: u32,
    live_chunks: u32,
    /// Whether its section was met.
    known: bool,
}

/// Marks in scratch files.
pub struct Partitioned<'a> {
    repository: &'a Arc<Repository>,
    index: &'a dyn ChunkIndex,
    inventory: &'a Inventory,
    job: &'a Job,
    scratch: &'a Scratch,
    shares: Shares,
    tallies: Vec<Tally>,
    _held: Held,
}

impl<'a> Partitioned<'a> {
    /// Marks in at most so many bytes of memory.
    #[must_use]
    pub fn new(
        repository: &'a Arc<Repository>,
        index: &'a dyn ChunkIndex,
        inventory: &'a Inventory,
        job: &'a Job,
        scratch: &'a Scratch,
        memory_bytes: usize,
    ) -> Self {
        let none = Tally { plain_bytes: 0, chunks: 0, live_chunks: 0, known: false };
        let tallies = vec![none; inventory.containers.len()];
        let shares = Shares::of(memory_bytes);
        let held = scratch.hold(tallies.capacity() * size_of::<Tally>());
        Self { repository, index, inventory, job, scratch, shares, tallies, _held: held }
    }

    /// No chunk is marked yet.
    #[must_use]
    pub fn marks(&self, losses: &Arc<Losses>) -> Marks {
        let live = SpilledLive::new(self.scratch, self.shares.live);
        Marks::new(LiveSet::Partitioned(Box::new(live)), losses)
    }

    /// The first step: all nodes that indexed containers hold, sorted; and the links of deltas.
    pub fn scan(&mut self, links: &mut Links) -> Result<(HeldNodes, ScanCounters)> {
        let by_level = Split::evenly(PARTITIONS.ilog2(), PARTITIONS);
        let mut nodes = SpillSet::new(self.scratch, by_level, self.shares.nodes);
        let wanted = |container: &InventoryItem| container.indexed || container.eligible;
        let (inventory, tallies) = (self.inventory, &mut self.tallies);
        let each = &mut |ordinal: usize, section: &MetadataSection| {
            let unknown = || bug!("a container is not in the inventory", ordinal);
            let tally = tallies.get_mut(ordinal).ok_or_else(unknown)?;
            let container = inventory.containers.get(ordinal).ok_or_else(unknown)?;
            let indexed = container.indexed;
            tally.known = true;
            links.note(container.id, section);
            for (position, chunk) in (0_u64..).zip(&section.chunks) {
                tally.chunks += 1;
                tally.plain_bytes += u64::from(chunk.length);
                if indexed && chunk.level.is_node() {
                    let [first, second, third, fourth] = words(&chunk.fingerprint);
                    let level = u64::from(chunk.level.0);
                    let address = (ordinal as u64) << 32 | position;
                    nodes.push([level, first, second, third, fourth, address])?;
                }
            }
            Ok(())
        };
        let counters = inventory.scan(self.repository, &wanted, self.job, each)?;
        Ok((HeldNodes::sort(nodes, self.shares.area)?, counters))
    }

    /// The second step: from the roots to all that they need.
    pub fn walk(
        &self,
        held: &HeldNodes,
        roots: &[Reference],
        marks: &mut Marks,
    ) -> Result<EnumerationCounters> {
        let top = roots.iter().map(|root| root.level).max().unwrap_or(Level::DATA);
        let mut walk = Walk {
            chunks: ChunkReader::alone(self.repository)?,
            inventory: self.inventory,
            scratch: self.scratch,
            shares: self.shares,
            job: self.job,
            due: LevelQueue::new(self.scratch, top, self.shares.due),
            marks,
            checksums: LevelChecksums::new(),
            counters: EnumerationCounters::default(),
        };
        walk.refer(roots)?;
        while let Some((level, due)) = walk.due.next(self.shares.area)? {
            let spots = walk.join(held, level, due)?;
            walk.read(level, spots)?;
            walk.checksums.verify(level)?;
        }
        walk.checksums.verify_all()?;
        let read = walk.chunks.counters();
        Ok(EnumerationCounters { sections: read.sections, frames: read.frames, ..walk.counters })
    }

    /// The third step: how live every container is that may be condemned.
    pub fn judge(mut self, marks: &mut Marks) -> Result<Vec<ContainerLiveness>> {
        let LiveSet::Partitioned(live) = &mut marks.set else {
            return Err(bug!("marks in memory are judged as if they were in scratch files"));
        };
        let (repository, inventory, job) = (self.repository, self.inventory, self.job);
        let mut scan = self.index.scan(repository, &inventory.ids(), 0)?;
        let (mut group, mut indexed, mut count) = (Vec::new(), None, 0_u64);
        let tallies = &mut self.tallies;
        let is_eligible = |ordinal: &&u32| {
            inventory.containers.get(**ordinal as usize).is_some_and(|container| container.eligible)
        };
        job.progress.set_totals(self.index.entries(), 0);
        live.sort(self.shares.area, &mut |prefix| {
            while indexed.is_none_or(|indexed| indexed < prefix) {
                count += 1;
                if count.is_multiple_of(1 << 16) {
                    job.interrupt.check()?;
                    job.progress.add(1 << 16, 0);
                }
                indexed = scan.next_group(repository, None, &mut group)?;
                if indexed.is_none() {
                    // What is left is in no container that the index knows.
                    indexed = Some(u64::MAX);
                    group.clear();
                }
            }
            if indexed == Some(prefix)
                && let Some(newest) = group.iter().rev().find(is_eligible)
                && let Some(tally) = tallies.get_mut(*newest as usize)
            {
                tally.live_chunks += 1;
            }
            Ok(())
        })?;
        let containers = inventory.containers.iter().zip(&self.tallies);
        let wanted = containers.filter(|(container, tally)| container.eligible && tally.known);
        Ok(wanted.map(|(container, tally)| liveness(container, tally)).collect())
    }
}

/// How many bytes are live is told by the share of the chunks.
fn liveness(container: &InventoryItem, tally: &Tally) -> ContainerLiveness {
    let live = u128::from(tally.plain_bytes) * u128::from(tally.live_chunks)
        / u128::from(tally.chunks.max(1));
    ContainerLiveness {
        container: container.id,
        stored_bytes: container.stored_bytes,
        plain_bytes: tally.plain_bytes,
        live_bytes: u64::try_from(live).unwrap_or(u64::MAX),
        chunks: tally.chunks,
        live_chunks: tally.live_chunks,
    }
}

/// All nodes that containers hold, by level, fingerprint and address.
#[derive(Debug)]
pub struct HeldNodes {
    file: RecordFile<HELD_WORDS>,
    /// The first and the last but one of each level.
    levels: BTreeMap<Level, (u64, u64)>,
}

impl HeldNodes {
    fn sort(nodes: SpillSet<HELD_WORDS>, area_bytes: usize) -> Result<Self> {
        let mut levels: BTreeMap<Level, (u64, u64)> = BTreeMap::new();
        let mut count = 0;
        let file = nodes.into_sorted(area_bytes)?.write(&mut |[level, ..]| {
            let (_, end) = levels.entry(Level(level as u16)).or_insert((count, count));
            count += 1;
            *end = count;
            Ok(())
        })?;
        Ok(Self { file, levels })
    }

    /// None, if no container holds any: what is due of it all the same is missing.
    fn of_level(&self, level: Level) -> RecordReader<'_, HELD_WORDS> {
        let (start, end) = self.levels.get(&level).copied().unwrap_or_default();
        self.file.read(start, end)
    }
}

/// Where the walk is.
struct Walk<'a> {
    chunks: ChunkReader,
    inventory: &'a Inventory,
    scratch: &'a Scratch,
    shares: Shares,
    job: &'a Job,
    due: LevelQueue,
    marks: &'a mut Marks,
    checksums: LevelChecksums,
    counters: EnumerationCounters,
}

impl Walk<'_> {
    /// Marks what is referred to; nodes become due at their level.
    fn refer(&mut self, children: &[Reference]) -> Result<()> {
        for child in children {
            self.counters.references += 1;
            self.marks.insert(child.fingerprint.prefix())?;
            if child.level.is_node() {
                self.due.push(child)?;
            }
        }
        Ok(())
    }

    /// The addresses of the nodes of a level that are due, each in its newest container.
    fn join(
        &mut self,
        held: &HeldNodes,
        level: Level,
        mut due: Sorted<DUE_WORDS>,
    ) -> Result<SpillSet<SPOT_WORDS>> {
        let address_bits =
            u64::BITS - (self.inventory.containers.len() as u64).leading_zeros() + 32;
        let by_container = Split::evenly(address_bits, PARTITIONS);
        let mut spots = SpillSet::new(self.scratch, by_container, self.shares.nodes);
        let mut nodes = held.of_level(level);
        let mut node = nodes.next_record()?;
        let mut count = 0;
        while let Some([first, second, third, fourth, _]) = due.next_record()? {
            let wanted = [first, second, third, fourth];
            let mut address = None;
            while let Some([_, first, second, third, fourth, at]) = node {
                let there = [first, second, third, fourth];
                if there > wanted {
                    break;
                }
                if there == wanted {
                    address = Some(at);
                }
                node = nodes.next_record()?;
            }
            let wanted = fingerprint(wanted);
            let address = address.ok_or_else(|| {
                Error::damaged(format!(
                    "node {wanted} is in no container; nothing was collected, run 'onefold check'"
                ))
            })?;
            self.checksums.expect(level, &wanted);
            spots.push([address, first, second, third, fourth])?;
            count += 1;
        }
        self.job.progress.set_totals(count, 0);
        Ok(spots)
    }

    /// Reads the nodes of a level, container by container.
    fn read(&mut self, level: Level, spots: SpillSet<SPOT_WORDS>) -> Result<()> {
        let mut spots = spots.into_sorted(self.shares.area)?;
        let mut children = Vec::new();
        while let Some([address, first, second, third, fourth]) = spots.next_record()? {
            self.job.interrupt.check()?;
            let name = fingerprint([first, second, third, fourth]);
            let bytes = self.node(address, level, &name)?;
            let node = Node::decode(&bytes).context(|| format!("node {name} as it is"))?;
            children.clear();
            node.references(&mut |child| children.push(child));
            if children.iter().any(|child| child.level >= level) {
                return Err(Error::damaged(format!(
                    "node {name} refers to a chunk that is not below it"
                )));
            }
            self.refer(&children)?;
            self.checksums.saw(level, &name);
            self.counters.nodes += 1;
            self.job.progress.add(1, 0);
        }
        Ok(())
    }

    /// Reads a node where it was seen, or wherever else it is.
    fn node(&self, address: u64, level: Level, name: &Fingerprint) -> Result<Chunk> {
        match self.seen_at(address, level, name)? {
            Some(location) => self.chunks.read_from(location, &[]),
            None => self.chunks.read(name),
        }
    }

    fn seen_at(&self, address: u64, level: Level, name: &Fingerprint) -> Result<Option<Location>> {
        let (ordinal, position) = ((address >> 32) as usize, address as u32);
        let unknown = || bug!("a node is in no container of the inventory", ordinal);
        let container = self.inventory.containers.get(ordinal).ok_or_else(unknown)?.id;
        let Some(section) = self.chunks.section(container)? else {
            return Ok(None);
        };
        let there = section.chunks.get(position as usize);
        let is_it = there.is_some_and(|chunk| chunk.fingerprint == *name && chunk.level == level);
        Ok(is_it.then_some(Location { container, section, position }))
    }
}
