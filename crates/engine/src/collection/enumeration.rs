//! Enumeration: from the live snapshots to the chunks they need.
//!
//! *Logical* (LGC; S3.9): depth first, snapshot by snapshot. What several snapshots share is walked
//! for each of them, so the work grows with the logical size: that is the algorithm that S3
//! measures against. It needs no memory but a path, so it also marks the few snapshots that were
//! committed while a collector was at work (protocol, G5).
//!
//! *Physical* (PGC and PGC+; S3.18, S3.19): level by level from the top. Containers that hold nodes
//! of a level are read one after the other, each node that is referred to is read once, and its
//! children are referred to. Since a child's level is below its parent's, all references to a level
//! are known before it is read. Sums over what was referred to and what was read must agree at
//! every level, or the collection stops before anything is condemned.

use super::analysis::NodeTable;
use super::inventory::Inventory;
use super::live_set::Marks;
use super::parallel::{for_each_in_parallel, in_parallel};
use crate::chunks::{ChunkReader, Location};
use crate::job::Job;
use crate::repository::Repository;
use crate::tree::TreeReader;
use onefold_format::node::{Node, Reference};
use onefold_policy::collection::level_checksums::LevelChecksums;
use onefold_types::error::Context;
use onefold_types::{Error, Fingerprint, Level, Result, bug};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Containers of a level from which another thread is worth opening the index for.
const CONTAINERS_PER_THREAD: usize = 8;

/// Prefixes that a thread collects before it marks them.
const PREFIXES_AT_ONCE: usize = 4096;

/// What enumerating took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EnumerationCounters {
    /// Nodes walked.
    pub nodes: u64,
    /// References met.
    pub references: u64,
    /// Metadata sections read from containers.
    pub sections: u64,
    /// Frames read and opened.
    pub frames: u64,
}

impl EnumerationCounters {
    /// Adds what another thread or round took.
    pub fn add(&mut self, other: &Self) {
        self.nodes += other.nodes;
        self.references += other.references;
        self.sections += other.sections;
        self.frames += other.frames;
    }
}

/// Depth first from every root. `each` sees all that a root needs, the root itself included.
pub fn logical(
    reader: &TreeReader,
    roots: &[Reference],
    job: &Job,
    each: &mut dyn FnMut(&Fingerprint) -> Result<()>,
) -> Result<EnumerationCounters> {
    let mut counters = EnumerationCounters::default();
    let before = reader.chunks().counters();
    let mut left = Vec::new();
    for root in roots {
        left.push(*root);
        while let Some(reference) = left.pop() {
            counters.references += 1;
            each(&reference.fingerprint)?;
            if reference.level.is_node() {
                job.interrupt.check()?;
                counters.nodes += 1;
                let node = reader.node(reference)?;
                let first = left.len();
                node.references(&mut |child| left.push(child));
                // In stream order, so that neighbours are read together.
                if let Some(children) = left.get_mut(first..) {
                    children.reverse();
                }
            }
        }
        job.progress.add(1, 0);
    }
    let after = reader.chunks().counters();
    counters.sections = after.sections - before.sections;
    counters.frames = after.frames - before.frames;
    Ok(counters)
}

/// Depth first from every root, several snapshots at once (S3.14), into the marks.
pub fn logical_into(
    repository: &Arc<Repository>,
    roots: &[Reference],
    marks: &mut Marks,
    threads: usize,
    job: &Job,
) -> Result<EnumerationCounters> {
    let marks = Mutex::new(marks);
    let next = AtomicUsize::new(0);
    let reader = TreeReader::new(ChunkReader::alone(repository)?);
    let work = || -> Result<EnumerationCounters> {
        let mut counters = EnumerationCounters::default();
        let mut prefixes = Vec::with_capacity(PREFIXES_AT_ONCE);
        let flush = |prefixes: &mut Vec<u64>| -> Result<()> {
            let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
            prefixes.drain(..).try_for_each(|prefix| marks.insert(prefix))
        };
        while let Some(root) = roots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let walked = logical(&reader, std::slice::from_ref(root), job, &mut |chunk| {
                prefixes.push(chunk.prefix());
                match prefixes.len() >= PREFIXES_AT_ONCE {
                    true => flush(&mut prefixes),
                    false => Ok(()),
                }
            })?;
            counters.add(&walked);
        }
        flush(&mut prefixes)?;
        Ok(counters)
    };
    let mut counters = EnumerationCounters::default();
    for walked in in_parallel(threads.min(roots.len()), work) {
        counters.add(&walked?);
    }
    Ok(counters)
}

/// Level by level over the containers of `table`.
///
/// Errors: `Damaged` if a node that is referred to is in no container of the level stated, cannot
/// be read, or refers upwards; nothing may be condemned then.
pub fn physical(
    repository: &Arc<Repository>,
    inventory: &Inventory,
    table: &NodeTable,
    roots: &[Reference],
    live: &mut Marks,
    threads: usize,
    job: &Job,
) -> Result<EnumerationCounters> {
    let shared = Mutex::new((live, LevelChecksums::new(), EnumerationCounters::default()));
    refer(table, &shared, roots)?;
    let mut walkers = vec![LevelWalker::new(ChunkReader::alone(repository)?, inventory, table)];
    let top = roots.iter().map(|root| root.level).max().unwrap_or(Level::DATA);
    for level in (1..=top.0).rev().map(Level) {
        // No container may hold nodes of a level: what refers to one all the same is missed below.
        let containers = table.levels.get(&level).map(Vec::as_slice).unwrap_or_default();
        job.progress.set_totals(containers.len() as u64, 0);
        let wanted = threads.min(containers.len() / CONTAINERS_PER_THREAD).max(1);
        while walkers.len() < wanted {
            walkers.push(LevelWalker::new(ChunkReader::alone(repository)?, inventory, table));
        }
        let next = AtomicUsize::new(0);
        let work = |walker: &mut LevelWalker<'_>| -> Result<()> {
            while let Some(ordinal) = containers.get(next.fetch_add(1, Ordering::Relaxed)) {
                job.interrupt.check()?;
                walker.container(*ordinal, level, &shared)?;
                job.progress.add(1, 0);
            }
            Ok(())
        };
        let lacking = || bug!("there are too few threads for a level", wanted);
        let walkers = walkers.get_mut(..wanted).ok_or_else(lacking)?;
        for_each_in_parallel(walkers, work)?;
        lock(&shared).1.verify(level)?;
    }
    for walker in &walkers {
        lock(&shared).2.add(&walker.reads());
    }
    let (_, checksums, counters) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    checksums.verify_all()?;
    Ok(counters)
}

type Shared<'a> = Mutex<(&'a mut Marks, LevelChecksums, EnumerationCounters)>;

fn lock<'a, 'b>(
    shared: &'a Shared<'b>,
) -> std::sync::MutexGuard<'a, (&'b mut Marks, LevelChecksums, EnumerationCounters)> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks what is referred to; nodes become due at their level.
fn refer(table: &NodeTable, shared: &Shared<'_>, children: &[Reference]) -> Result<()> {
    let mut guard = lock(shared);
    let (live, checksums, counters) = &mut *guard;
    for child in children {
        counters.references += 1;
        live.insert(child.fingerprint.prefix())?;
        if child.level.is_node() {
            let is_first = table.refer(&child.fingerprint).ok_or_else(|| {
                Error::damaged(format!(
                    "node {} is in no container; nothing was collected, run 'onefold check'",
                    child.fingerprint
                ))
            })?;
            if is_first {
                checksums.expect(child.level, &child.fingerprint);
            }
        }
    }
    Ok(())
}

/// Reads nodes, level after level.
struct LevelWalker<'a> {
    chunks: ChunkReader,
    inventory: &'a Inventory,
    table: &'a NodeTable,
}

impl<'a> LevelWalker<'a> {
    fn new(chunks: ChunkReader, inventory: &'a Inventory, table: &'a NodeTable) -> Self {
        Self { chunks, inventory, table }
    }

    fn container(&mut self, ordinal: usize, level: Level, shared: &Shared<'_>) -> Result<()> {
        let unknown = || bug!("nodes are in no container of the inventory", ordinal);
        let container = self.inventory.containers.get(ordinal).ok_or_else(unknown)?.id;
        let Some(section) = self.chunks.section(container)? else {
            // Its nodes are missed by the sums, unless they are elsewhere as well.
            return Ok(());
        };
        let mut children = Vec::new();
        for (position, chunk) in (0..).zip(&section.chunks) {
            if chunk.level != level || !self.table.confirm(&chunk.fingerprint) {
                continue;
            }
            let location = Location { container, section: Arc::clone(&section), position };
            let bytes = self.chunks.read_from(location, &[])?;
            let node =
                Node::decode(&bytes).context(|| format!("node {} as it is", chunk.fingerprint))?;
            children.clear();
            node.references(&mut |child| children.push(child));
            if children.iter().any(|child| child.level >= level) {
                return Err(Error::damaged(format!(
                    "node {} refers to a chunk that is not below it",
                    chunk.fingerprint
                )));
            }
            refer(self.table, shared, &children)?;
            let mut guard = lock(shared);
            guard.1.saw(level, &chunk.fingerprint);
            guard.2.nodes += 1;
        }
        Ok(())
    }

    fn reads(&self) -> EnumerationCounters {
        let counters = self.chunks.counters();
        EnumerationCounters {
            sections: counters.sections,
            frames: counters.frames,
            ..EnumerationCounters::default()
        }
    }
}
