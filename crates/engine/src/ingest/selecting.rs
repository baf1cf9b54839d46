//! Backing a part of a source up: the files of one partition (ATC'12, "deduplication within
//! partitions"), and the index of their chunks alone.
//!
//! # Algorithm
//! The walk passes over files of other partitions, and over directories below which there can be
//! none of this one. What the partition's chunks are is read from earlier snapshots: of their trees
//! the directories, and all of those files that by their paths belong to the partition now, however
//! files were divided then.
//!
//! Invariants: a file belongs to one partition by nothing but its path and volume; what of an
//! earlier snapshot cannot be read only costs space.

use super::Selection;
use crate::index::partition::Gathered;
use crate::index::{ChunkIndex, PartitionIndex};
use crate::job::Job;
use crate::repository::Repository;
use crate::session::SnapshotList;
use crate::tree::{TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Node, Reference};
use onefold_policy::primary::partition::{FileFacts, Partitioning};
use onefold_types::{Level, Result, SessionId, limits};
use std::sync::Arc;

/// One partition of a source.
#[derive(Clone, Debug)]
pub struct Part {
    /// How files are divided.
    pub partitioning: Arc<Partitioning>,
    /// Which partition it is.
    pub number: usize,
    /// Snapshots that may hold chunks of its files.
    pub earlier: Vec<SessionId>,
}

impl Part {
    fn has_file(&self, path: &[u8], volume: u64) -> bool {
        self.partitioning.partition_of(FileFacts { path, volume }) == self.number
    }

    fn is_met_below(&self, directory: &[u8]) -> bool {
        self.partitioning.may_lie_below(directory, self.number)
    }
}

impl Selection {
    /// Whether an entry, and all below it, is of other parts than the one that is asked for.
    pub(super) fn is_of_other_parts(&self, path: &[u8], entry: &Entry) -> bool {
        self.part.as_ref().is_some_and(|part| match entry.kind {
            EntryKind::Directory => !part.is_met_below(path),
            _ => !part.has_file(path, entry.device),
        })
    }
}

/// The index of a part's chunks.
pub fn open_index(
    repository: &Arc<Repository>,
    whole: Arc<dyn ChunkIndex>,
    part: &Part,
    list: &SnapshotList,
    job: &Job,
) -> Result<PartitionIndex> {
    let reader = TreeReader::open(repository)?;
    let gathered = Gathered::new(repository);
    let mut gathering = Gathering { reader: &reader, part, job, gathered };
    for earlier in part.earlier.iter().filter_map(|id| list.get(*id)) {
        gathering.directory(Vec::new(), earlier.record.root)?;
    }
    PartitionIndex::open(repository, whole, gathering.gathered)
}

/// The chunks of a part, out of trees.
struct Gathering<'a> {
    reader: &'a TreeReader,
    part: &'a Part,
    job: &'a Job,
    gathered: Gathered,
}

impl Gathering<'_> {
    /// A directory and what is below it; no more of it than there is memory for.
    fn directory(&mut self, path: Vec<u8>, root: Reference) -> Result<()> {
        let mut open = vec![(path, 0, root)];
        while let Some((above, depth, reference)) = open.pop() {
            self.job.interrupt.check()?;
            if self.gathered.is_beyond_memory() {
                return Ok(());
            }
            self.gathered.note(&reference.fingerprint);
            let Some(node) = self.node(reference)? else { continue };
            let Node::DirectoryLeaf(leaf) = node else {
                node.references(&mut |part| open.push((above.clone(), depth, part)));
                continue;
            };
            for entry in leaf.entries {
                let Some(content) = entry.content else { continue };
                let path = path::join(&above, &entry.name);
                let is_deeper = depth < limits::DEPTH_MAX && self.part.is_met_below(&path);
                match entry.kind {
                    EntryKind::Directory if is_deeper => open.push((path, depth + 1, content)),
                    EntryKind::File if self.part.has_file(&path, entry.device) => {
                        self.file(content)?;
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// All of a file.
    fn file(&mut self, content: Reference) -> Result<()> {
        let mut left = vec![content];
        while let Some(reference) = left.pop() {
            self.gathered.note(&reference.fingerprint);
            if reference.level != Level::DATA
                && let Some(node) = self.node(reference)?
            {
                node.references(&mut |child| left.push(child));
            }
        }
        Ok(())
    }

    /// A node; none if it is lost.
    fn node(&self, reference: Reference) -> Result<Option<Node>> {
        match self.reader.node(reference) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.is_unreadable() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
