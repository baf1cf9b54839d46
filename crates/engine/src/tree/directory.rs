//! Builds the nodes of one directory from its entries, in the order of their names.
//!
//! Small directories are one leaf. A large one is cut into leaves where a name's hash says so, so
//! that a new entry changes one leaf; a directory map lists the leaves.

use super::NodeSink;
use onefold_format::node::{
    DirectoryLeaf, DirectoryMap, DirectoryPart, Entry, Node, Owner, Reference, Totals,
};
use onefold_types::{Error, ErrorKind, Level, Result, limits};
use std::collections::BTreeMap;

/// Bytes that an entry takes besides its variable parts, as an estimate.
const ENTRY_ESTIMATE_BYTES: usize = 80;
/// The same estimate for a whole leaf, at most: one that is far off still gives a node that a
/// reader takes.
const LEAF_ESTIMATE_MAX_BYTES: usize = limits::NODE_MAX_BYTES / 8 * 3;
/// Bytes that the names of owners may take in a leaf; those beyond are restored by number.
const OWNERS_MAX_BYTES: usize = 32 * limits::KIB;
/// One in this many names may end a leaf that is large enough.
const CUT_ONE_IN: u64 = 64;

/// Names of users and groups by number.
pub trait OwnerNames {
    /// The name of a user.
    fn user(&self, uid: u32) -> Option<Vec<u8>>;
    /// The name of a group.
    fn group(&self, gid: u32) -> Option<Vec<u8>>;
}

/// No names: owners are restored by number.
pub struct NoNames;

impl OwnerNames for NoNames {
    fn user(&self, _uid: u32) -> Option<Vec<u8>> {
        None
    }

    fn group(&self, _gid: u32) -> Option<Vec<u8>> {
        None
    }
}

/// Names of the users and groups in one new directory, as those whom it is made from know them.
#[derive(Default)]
pub struct CollectedNames {
    /// Of users, by number.
    pub users: BTreeMap<u32, Vec<u8>>,
    /// Of groups, by number.
    pub groups: BTreeMap<u32, Vec<u8>>,
}

impl OwnerNames for CollectedNames {
    fn user(&self, uid: u32) -> Option<Vec<u8>> {
        self.users.get(&uid).cloned()
    }

    fn group(&self, gid: u32) -> Option<Vec<u8>> {
        self.groups.get(&gid).cloned()
    }
}

/// A finished directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directory {
    /// Its node.
    pub reference: Reference,
    /// Sums over it.
    pub totals: Totals,
}

/// One directory while its entries are known one by one.
#[derive(Default)]
pub struct DirectoryBuilder {
    entries: Vec<Entry>,
    estimate_bytes: usize,
    parts: Vec<DirectoryPart>,
    totals: Totals,
}

impl DirectoryBuilder {
    /// Appends an entry; names must rise.
    pub fn push(
        &mut self,
        mut entry: Entry,
        names: &dyn OwnerNames,
        stream: &mut dyn NodeSink,
    ) -> Result<()> {
        if entry.content.is_some_and(|content| content.level == Level::DATA) {
            entry.chunks = 1;
        }
        let xattrs: usize =
            entry.xattrs.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let size = ENTRY_ESTIMATE_BYTES + entry.name.len() + entry.target.len() + xattrs;
        if !self.entries.is_empty() && self.estimate_bytes + size > LEAF_ESTIMATE_MAX_BYTES {
            self.flush(names, stream)?;
        }
        self.estimate_bytes += size;
        let cut = name_hash(&entry.name).is_multiple_of(CUT_ONE_IN);
        self.entries.push(entry);
        let target = limits::DIRECTORY_LEAF_TARGET_BYTES;
        if self.estimate_bytes >= target * 2 || (cut && self.estimate_bytes >= target / 2) {
            self.flush(names, stream)?;
        }
        Ok(())
    }

    /// Stores what is left and returns the directory.
    pub fn finish(
        mut self,
        names: &dyn OwnerNames,
        stream: &mut dyn NodeSink,
    ) -> Result<Directory> {
        if !self.entries.is_empty() || self.parts.is_empty() {
            self.flush(names, stream)?;
        }
        if let [only] = self.parts.as_slice() {
            return Ok(Directory { reference: only.leaf, totals: only.totals });
        }
        let level = parent_level(self.parts.iter().map(|part| part.leaf.level))?;
        let node = Node::DirectoryMap(DirectoryMap { parts: self.parts });
        let fingerprint = stream.put_tree_node(level, &node)?;
        Ok(Directory { reference: Reference { fingerprint, level }, totals: self.totals })
    }

    fn flush(&mut self, names: &dyn OwnerNames, stream: &mut dyn NodeSink) -> Result<()> {
        let entries = std::mem::take(&mut self.entries);
        self.estimate_bytes = 0;
        let mut totals = Totals::default();
        entries.iter().for_each(|entry| totals.add(entry));
        let first_name = entries.first().map(|entry| entry.name.clone()).unwrap_or_default();
        let contents = entries.iter().filter_map(|entry| entry.content);
        let level = parent_level(contents.map(|content| content.level))?;
        let users = owners(entries.iter().map(|entry| entry.uid), |id| names.user(id));
        let groups = owners(entries.iter().map(|entry| entry.gid), |id| names.group(id));
        let node = Node::DirectoryLeaf(DirectoryLeaf { entries, users, groups });
        let fingerprint = stream.put_tree_node(level, &node)?;
        let leaf = Reference { fingerprint, level };
        self.totals.add_totals(&totals);
        self.parts.push(DirectoryPart { leaf, first_name, totals });
        Ok(())
    }
}

fn owners(ids: impl Iterator<Item = u32>, name: impl Fn(u32) -> Option<Vec<u8>>) -> Vec<Owner> {
    let mut known = BTreeMap::new();
    for id in ids {
        known.entry(id).or_insert_with(|| name(id));
    }
    let mut left_bytes = OWNERS_MAX_BYTES;
    let mut named = Vec::new();
    for (id, name) in known {
        // The most that a number and a length take besides the name.
        let needed = |name: &Vec<u8>| name.len() + 10;
        let fits =
            |name: &Vec<u8>| name.len() <= limits::NAME_MAX_BYTES && needed(name) <= left_bytes;
        if let Some(name) = name.filter(fits) {
            left_bytes -= needed(&name);
            named.push((id, name));
        }
    }
    named
}

fn parent_level(children: impl Iterator<Item = Level>) -> Result<Level> {
    children.max().unwrap_or(Level::DATA).parent().ok_or_else(|| {
        Error::new(ErrorKind::LimitExceeded, "directories are nested deeper than can be stored")
    })
}

/// FNV-1a: stable, and good enough to pick one name in many.
fn name_hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
