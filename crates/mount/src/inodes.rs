//! What the kernel knows by number: where in a snapshot each of its inodes stands.
//!
//! # Invariants
//! A number stands for one file as long as the kernel counts references to it, and the same file
//! gets the same number whenever it is looked up: programs recognise hard links and loops by it.
//! Names of one file share a number if they tell of the same inode with the same size, time and
//! content; a file that changed while it was saved is two.
//!
//! # Memory
//! About 60 bytes for each inode that the kernel remembers, which takes the kernel some 20 times as
//! much: it forgets when memory is short, and then so does this. Entries are read again instead.

use crate::catalogue::{Directory, number_of};
use onefold_format::node::{Entry, EntryKind};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

/// Where an entry stands.
#[derive(Clone, Debug)]
pub struct Address {
    /// The directory that it is in.
    pub directory: Arc<Directory>,
    /// Which leaf of it.
    pub leaf: u32,
    /// Which entry of the leaf.
    pub index: u32,
}

impl Address {
    fn is(&self, other: &Self) -> bool {
        (self.directory.number, self.leaf, self.index)
            == (other.directory.number, other.leaf, other.index)
    }
}

struct Inode {
    address: Address,
    /// Whether the entry has extended attributes: programs ask each of many files that have none.
    has_xattrs: bool,
    /// References that the kernel holds.
    lookups: u64,
}

/// The kernel's inodes.
#[derive(Default)]
pub struct Inodes {
    known: HashMap<u64, Inode>,
    directories: HashMap<u64, Arc<Directory>>,
}

impl Inodes {
    /// Counts a reference to an entry, and gives its number.
    pub fn remember(&mut self, address: Address, entry: &Entry) -> u64 {
        let is_linked = is_linked(entry);
        let mut number = Self::number_of(&address, entry);
        loop {
            match self.known.entry(number) {
                Slot::Vacant(slot) => {
                    if let (EntryKind::Directory, Some(reference)) = (entry.kind, entry.content) {
                        let above = &address.directory;
                        let mut path = above.path.clone();
                        path.push(b'/');
                        path.extend_from_slice(&entry.name);
                        let (parent, snapshot) = (above.number, above.snapshot);
                        let directory = Directory { number, parent, reference, snapshot, path };
                        self.directories.insert(number, Arc::new(directory));
                    }
                    let has_xattrs = !entry.xattrs.is_empty();
                    slot.insert(Inode { address, has_xattrs, lookups: 1 });
                    return number;
                }
                Slot::Occupied(mut slot) if is_linked || slot.get().address.is(&address) => {
                    slot.get_mut().lookups += 1;
                    return number;
                }
                // Another file of the same 62 bits.
                Slot::Occupied(_) => number = number_of(&[&number.to_le_bytes()]),
            }
        }
    }

    /// The number that an entry gets, unless another file has it already.
    #[must_use]
    pub fn number_of(address: &Address, entry: &Entry) -> u64 {
        match is_linked(entry) {
            true => number_of_linked(&address.directory, entry),
            false => number_of(&[&address.directory.number.to_le_bytes(), &entry.name]),
        }
    }

    /// Takes so many references away.
    pub fn forget(&mut self, number: u64, lookups: u64) {
        if let Slot::Occupied(mut slot) = self.known.entry(number) {
            let left = slot.get().lookups.saturating_sub(lookups);
            slot.get_mut().lookups = left;
            if left == 0 {
                slot.remove();
                self.directories.remove(&number);
            }
        }
    }

    /// Where an inode stands.
    #[must_use]
    pub fn address(&self, number: u64) -> Option<Address> {
        self.known.get(&number).map(|inode| inode.address.clone())
    }

    /// Whether an inode has extended attributes.
    #[must_use]
    pub fn has_xattrs(&self, number: u64) -> bool {
        self.known.get(&number).is_some_and(|inode| inode.has_xattrs)
    }

    /// The directory of a number.
    #[must_use]
    pub fn directory(&self, number: u64) -> Option<Arc<Directory>> {
        self.directories.get(&number).cloned()
    }
}

/// Whether an entry may be one of several names of a file.
fn is_linked(entry: &Entry) -> bool {
    entry.kind != EntryKind::Directory && entry.links > 1
}

fn number_of_linked(directory: &Directory, entry: &Entry) -> u64 {
    let content = entry.content.map(|content| content.fingerprint.0).unwrap_or_default();
    number_of(&[
        &directory.snapshot.0,
        &entry.device.to_le_bytes(),
        &entry.inode.to_le_bytes(),
        &entry.size.to_le_bytes(),
        &entry.modified.seconds.to_le_bytes(),
        &entry.modified.nanoseconds.to_le_bytes(),
        &content,
        &entry.target,
    ])
}
