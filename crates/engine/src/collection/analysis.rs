//! Analysis: perfect hashes over the fingerprints that there are (S3.17, S3.22, S3.27).
//!
//! PGC+ makes one over all prefixes of the index, partition by partition in the order of the index,
//! several threads at once; what has to be kept besides the result is one partition of keys a
//! thread. On the way every container's duplicates are counted (S3.24). PGC and PGC+ both make a
//! small one over the nodes alone, out of the metadata sections.

use super::bases::Links;
use super::inventory::{Inventory, InventoryItem, ScanCounters};
use super::parallel::in_parallel;
use crate::index::ChunkIndex;
use crate::job::Job;
use crate::repository::Repository;
use onefold_policy::collection::duplicates::DuplicateCounters;
use onefold_policy::collection::mark_vector::MarkVector;
use onefold_policy::collection::perfect_hash::{
    HashPartition, PerfectHash, partition_bits_for, partition_of,
};
use onefold_types::{Error, ErrorKind, Fingerprint, Level, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keys of one partition, at most about: some megabytes while it is made.
const KEYS_PER_PARTITION: u64 = 1 << 19;

/// A perfect hash over all prefixes of the index, and how many chunks of each container are in
/// others as well.
pub fn hash_index(
    repository: &Repository,
    index: &dyn ChunkIndex,
    inventory: &Inventory,
    threads: usize,
    job: &Job,
) -> Result<(PerfectHash, DuplicateCounters)> {
    let containers = inventory.ids();
    let partition_bits = partition_bits_for(index.entries(), KEYS_PER_PARTITION);
    let count = 1usize << partition_bits;
    job.progress.set_totals(count as u64, 0);
    let next = AtomicUsize::new(0);
    let work = || -> Result<(Vec<(usize, HashPartition)>, DuplicateCounters)> {
        let mut made = Vec::new();
        let mut duplicates = DuplicateCounters::new(containers.len())?;
        let (mut keys, mut group) = (Vec::new(), Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok((made, duplicates));
            }
            job.interrupt.check()?;
            let start = |number: usize| match partition_bits {
                0 => 0,
                bits => (number as u64) << (64 - bits),
            };
            let end = (number + 1 < count).then(|| start(number + 1));
            let mut scan = index.scan(repository, &containers, start(number))?;
            keys.clear();
            while let Some(prefix) = scan.next_group(repository, end, &mut group)? {
                keys.push(prefix);
                duplicates.note_group(&group)?;
            }
            made.push((number, HashPartition::build(&keys)?));
            job.progress.add(1, 0);
        }
    };
    let mut partitions = Vec::with_capacity(count);
    let mut duplicates = DuplicateCounters::new(containers.len())?;
    for done in in_parallel(threads, work) {
        let (made, counters) = done?;
        partitions.extend(made);
        duplicates.merge(&counters)?;
    }
    partitions.sort_by_key(|(number, _)| *number);
    let partitions = partitions.into_iter().map(|(_, partition)| partition).collect();
    Ok((PerfectHash::assemble(partition_bits, partitions)?, duplicates))
}

/// The nodes of a store: which containers hold nodes of which level, and two bits for each.
pub struct NodeTable {
    /// The containers that hold nodes of each level (S3.18).
    pub levels: BTreeMap<Level, Vec<usize>>,
    hash: PerfectHash,
    /// Whether a parent or a snapshot refers to the node.
    walk: MarkVector,
    /// Whether the node was read.
    confirm: MarkVector,
    /// Four bytes of each fingerprint: tells a node from one that is in no container.
    tags: Vec<u32>,
}

/// Bytes of memory that a node takes while the table is made.
pub const NODE_TABLE_BYTES_PER_NODE: usize = 24;

impl NodeTable {
    /// Collects the nodes of all containers that are indexed, and the links of their deltas.
    ///
    /// Errors: `LimitExceeded` if there are more than `nodes_max`, or if two of them share eight
    /// bytes of their fingerprints: then another way of marking is to be taken.
    pub fn build(
        repository: &Repository,
        inventory: &Inventory,
        (nodes_max, links): (usize, &mut Links),
        job: &Job,
    ) -> Result<(Self, ScanCounters)> {
        let mut levels: BTreeMap<Level, Vec<usize>> = BTreeMap::new();
        let mut keys: Vec<(u64, u64)> = Vec::new();
        job.progress.set_totals(inventory.containers.len() as u64, 0);
        let indexed = |container: &InventoryItem| container.indexed;
        let counters = inventory.scan(repository, &indexed, job, &mut |ordinal, section| {
            let container = inventory.containers.get(ordinal);
            container.iter().for_each(|container| links.note(container.id, section));
            for chunk in section.chunks.iter().filter(|chunk| chunk.level.is_node()) {
                let containers = levels.entry(chunk.level).or_default();
                if containers.last() != Some(&ordinal) {
                    containers.push(ordinal);
                }
                keys.push((chunk.fingerprint.prefix(), second_word(&chunk.fingerprint)));
            }
            if keys.len() > nodes_max {
                keys.sort_unstable();
                keys.dedup();
                if keys.len() > nodes_max / 2 {
                    let message = "the nodes of the store do not fit into the memory limit";
                    return Err(Error::new(ErrorKind::LimitExceeded, message));
                }
            }
            Ok(())
        })?;
        keys.sort_unstable();
        keys.dedup();
        if keys.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            let message = "two nodes share the first eight bytes of their fingerprints";
            return Err(Error::new(ErrorKind::LimitExceeded, message));
        }
        for containers in levels.values_mut() {
            containers.sort_unstable();
            containers.dedup();
        }
        Ok((Self::over(levels, &keys)?, counters))
    }

    fn over(levels: BTreeMap<Level, Vec<usize>>, keys: &[(u64, u64)]) -> Result<Self> {
        let bits = partition_bits_for(keys.len() as u64, KEYS_PER_PARTITION);
        let mut partitions = Vec::with_capacity(1 << bits);
        let mut rest = keys;
        for number in 0..1usize << bits {
            let count = rest.partition_point(|(prefix, _)| partition_of(*prefix, bits) <= number);
            let (these, others) = rest.split_at(count);
            let prefixes: Vec<u64> = these.iter().map(|(prefix, _)| *prefix).collect();
            partitions.push(HashPartition::build(&prefixes)?);
            rest = others;
        }
        let hash = PerfectHash::assemble(bits, partitions)?;
        let mut tags = vec![0; hash.positions()];
        for (prefix, second) in keys {
            if let Some(tag) = hash.position(*prefix).and_then(|at| tags.get_mut(at)) {
                *tag = *second as u32;
            }
        }
        let walk = MarkVector::new(hash.positions())?;
        let confirm = MarkVector::new(hash.positions())?;
        Ok(Self { levels, hash, walk, confirm, tags })
    }

    fn position(&self, fingerprint: &Fingerprint) -> Option<usize> {
        let position = self.hash.position(fingerprint.prefix())?;
        (self.tags.get(position) == Some(&(second_word(fingerprint) as u32))).then_some(position)
    }

    /// Notes a reference to a node; `true` if it is the first. `None`: no container has the node.
    #[must_use]
    pub fn refer(&self, fingerprint: &Fingerprint) -> Option<bool> {
        self.position(fingerprint).map(|position| self.walk.set(position))
    }

    /// Whether a node that was met in a container is referred to and was not read before; it
    /// counts as read from now on.
    #[must_use]
    pub fn confirm(&self, fingerprint: &Fingerprint) -> bool {
        self.position(fingerprint)
            .is_some_and(|position| self.walk.get(position) && self.confirm.set(position))
    }

    /// Memory taken, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        let containers: usize = self.levels.values().map(Vec::len).sum();
        self.hash.bytes_used()
            + self.walk.bytes_used()
            + self.confirm.bytes_used()
            + self.tags.len() * size_of::<u32>()
            + containers * size_of::<usize>()
    }
}

fn second_word(fingerprint: &Fingerprint) -> u64 {
    let word = fingerprint.0.get(8..16).and_then(|bytes| bytes.try_into().ok());
    u64::from_le_bytes(word.unwrap_or_default())
}
