//! Directories of snapshots, leaf by leaf, with the last ones decoded.
//!
//! # Memory
//! A lease of `KEPT_BYTES`; of less there are fewer leaves.
//!
//! # Concurrency
//! Shared by threads; the lock is held neither while something is read nor while it is decoded.

use crate::catalogue::Directory;
use crate::inodes::Address;
use lru::LruCache;
use onefold_engine::memory::Lease;
use onefold_engine::tree::TreeReader;
use onefold_format::node::{Entry, Node, Reference};
use onefold_types::{Error, Fingerprint, Result, limits};
use std::sync::{Arc, Mutex, PoisonError};

/// What decoded directories may take.
const KEPT_BYTES: usize = 16 * limits::MIB;

/// Reads directories.
pub struct Listings {
    tree: Arc<TreeReader>,
    kept: Mutex<Kept>,
    /// Held as long as what is kept.
    lease: Lease,
}

struct Kept {
    nodes: LruCache<Fingerprint, (Arc<Node>, usize)>,
    bytes: usize,
}

impl Listings {
    /// Reads by a reader of trees.
    #[must_use]
    pub fn new(tree: Arc<TreeReader>) -> Self {
        let lease = tree.chunks().repository().purse().take(KEPT_BYTES);
        let kept = Mutex::new(Kept { nodes: LruCache::unbounded(), bytes: 0 });
        Self { tree, kept, lease }
    }

    /// The reader of trees.
    #[must_use]
    pub fn tree(&self) -> &Arc<TreeReader> {
        &self.tree
    }

    /// A leaf of a directory by its ordinal; `None` behind the last.
    pub fn leaf(&self, directory: &Directory, ordinal: u32) -> Result<Option<Arc<Node>>> {
        let top = self.node(directory.reference)?;
        match &*top {
            Node::DirectoryLeaf(_) => Ok((ordinal == 0).then_some(top)),
            Node::DirectoryMap(map) => match map.parts.get(ordinal as usize) {
                Some(part) => self.node(part.leaf).map(Some),
                None => Ok(None),
            },
            _ => Err(no_directory(directory.reference)),
        }
    }

    /// The entry of a name, and where it stands.
    pub fn find(
        &self,
        directory: &Arc<Directory>,
        name: &[u8],
    ) -> Result<Option<(Address, Entry)>> {
        let ordinal = match &*self.node(directory.reference)? {
            Node::DirectoryMap(map) => {
                map.parts.partition_point(|part| part.first_name.as_slice() <= name).max(1) - 1
            }
            _ => 0,
        };
        let Some(leaf) = self.leaf(directory, ordinal as u32)? else { return Ok(None) };
        let entries = entries_of(&leaf)?;
        let found = entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
        Ok(found.ok().map(|index| {
            let directory = Arc::clone(directory);
            (
                Address { directory, leaf: ordinal as u32, index: index as u32 },
                entries[index].clone(),
            )
        }))
    }

    /// The entry that stands somewhere.
    pub fn entry(&self, address: &Address) -> Result<Entry> {
        let leaf = self.leaf(&address.directory, address.leaf)?;
        let entries = leaf.as_deref().map(entries_of).transpose()?.unwrap_or_default();
        let entry = entries.get(address.index as usize).cloned();
        entry.ok_or_else(|| Error::damaged("an entry of a directory is no longer where it was"))
    }

    fn node(&self, reference: Reference) -> Result<Arc<Node>> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((node, _)) = kept.nodes.get(&reference.fingerprint) {
                return Ok(Arc::clone(node));
            }
        }
        let node = Arc::new(self.tree.node(reference)?);
        let bytes = bytes_of(&node);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += bytes;
        if let Some((_, replaced)) =
            kept.nodes.put(reference.fingerprint, (Arc::clone(&node), bytes))
        {
            kept.bytes -= replaced;
        }
        while kept.bytes > self.lease.bytes() {
            let Some((_, (_, bytes))) = kept.nodes.pop_lru() else { break };
            kept.bytes -= bytes;
        }
        Ok(node)
    }
}

/// The entries of a leaf.
pub fn entries_of(leaf: &Node) -> Result<&[Entry]> {
    match leaf {
        Node::DirectoryLeaf(leaf) => Ok(&leaf.entries),
        _ => Err(Error::damaged("a node that should hold entries holds none")),
    }
}

fn no_directory(reference: Reference) -> Error {
    Error::damaged(format!("node {} is no directory", reference.fingerprint))
}

/// What a decoded node takes in memory, roughly.
fn bytes_of(node: &Node) -> usize {
    let of_entry = |entry: &Entry| {
        let xattrs = entry.xattrs.iter().map(|(name, value)| name.len() + value.len() + 64);
        size_of::<Entry>() + entry.name.len() + entry.target.len() + 32 + xattrs.sum::<usize>()
    };
    match node {
        Node::DirectoryLeaf(leaf) => leaf.entries.iter().map(of_entry).sum(),
        Node::DirectoryMap(map) => map.parts.iter().map(|part| part.first_name.len() + 128).sum(),
        _ => 0,
    }
}
