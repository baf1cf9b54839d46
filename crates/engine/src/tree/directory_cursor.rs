//! The entries of one directory, leaf by leaf.

use super::{TreeReader, path};
use onefold_format::node::{DirectoryLeaf, Entry, Node, Reference};
use onefold_types::{Error, ErrorKind, Result, limits};

/// Refuses what lies deeper than any directory is handled.
pub(crate) fn check_depth(depth: usize, at: &[u8]) -> Result<()> {
    if depth < limits::DEPTH_MAX {
        return Ok(());
    }
    // The whole path would fill screens.
    let start = path::display(&at[..at.len().min(200)]);
    Err(Error::new(
        ErrorKind::LimitExceeded,
        format!("{start}...: directories are nested deeper than can be handled"),
    ))
}

/// The entries of one directory, in the order of names, leaf by leaf.
pub(crate) struct DirectoryCursor {
    leaves: std::vec::IntoIter<Reference>,
    entries: std::vec::IntoIter<Entry>,
    peeked: Option<Entry>,
    /// The last name of the leaves so far: names rise over the whole directory, so that none of
    /// them stands for two entries.
    last_name: Vec<u8>,
    /// The user and group names of all leaves read so far.
    pub owners: Owners,
}

/// Names of users and groups, as leaves carry them.
#[derive(Default)]
pub(crate) struct Owners {
    users: Vec<(u32, Vec<u8>)>,
    groups: Vec<(u32, Vec<u8>)>,
}

impl Owners {
    fn add(&mut self, leaf: &mut DirectoryLeaf) {
        let lists = [(&mut self.users, &mut leaf.users), (&mut self.groups, &mut leaf.groups)];
        for (known, new) in lists {
            for (id, name) in new.drain(..) {
                match known.binary_search_by_key(&id, |one| one.0) {
                    Ok(index) => known[index].1 = name,
                    Err(index) => known.insert(index, (id, name)),
                }
            }
        }
    }

    /// The name of a user.
    pub fn user(&self, id: u32) -> Option<&[u8]> {
        name_of(&self.users, id)
    }

    /// The name of a group.
    pub fn group(&self, id: u32) -> Option<&[u8]> {
        name_of(&self.groups, id)
    }
}

fn name_of(list: &[(u32, Vec<u8>)], id: u32) -> Option<&[u8]> {
    let index = list.binary_search_by_key(&id, |one| one.0).ok()?;
    list.get(index).map(|one| one.1.as_slice())
}

impl DirectoryCursor {
    /// The directory behind a reference; reads one node.
    pub fn open(reader: &TreeReader, directory: Reference) -> Result<Self> {
        let mut cursor = Self {
            leaves: Vec::new().into_iter(),
            entries: Vec::new().into_iter(),
            peeked: None,
            last_name: Vec::new(),
            owners: Owners::default(),
        };
        match reader.node(directory)? {
            Node::DirectoryLeaf(leaf) => cursor.take(leaf)?,
            Node::DirectoryMap(map) => {
                let leaves: Vec<_> = map.parts.into_iter().map(|part| part.leaf).collect();
                cursor.leaves = leaves.into_iter();
            }
            _ => return Err(not_a_directory(directory)),
        }
        Ok(cursor)
    }

    /// The directory that an entry stands for.
    pub fn of(reader: &TreeReader, entry: &Entry) -> Result<Self> {
        match entry.content {
            Some(content) => Self::open(reader, content),
            None => Err(Error::damaged("the directory has no content")),
        }
    }

    fn take(&mut self, mut leaf: DirectoryLeaf) -> Result<()> {
        names_rise(&leaf, &mut self.last_name)?;
        self.owners.add(&mut leaf);
        self.entries = leaf.entries.into_iter();
        Ok(())
    }

    /// The next entry.
    pub fn next(&mut self, reader: &TreeReader) -> Result<Option<Entry>> {
        if let Some(entry) = self.peeked.take() {
            return Ok(Some(entry));
        }
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            let Some(leaf) = self.leaves.next() else {
                return Ok(None);
            };
            match reader.node(leaf)? {
                Node::DirectoryLeaf(leaf) => self.take(leaf)?,
                _ => return Err(not_a_directory(leaf)),
            }
        }
    }

    /// The entry that [`DirectoryCursor::next`] will return.
    pub fn peek(&mut self, reader: &TreeReader) -> Result<Option<&Entry>> {
        if self.peeked.is_none() {
            self.peeked = self.next(reader)?;
        }
        Ok(self.peeked.as_ref())
    }

    /// The leaf that comes next, if the cursor stands in front of one.
    pub fn next_leaf(&self) -> Option<Reference> {
        match self.peeked.is_none() && self.entries.as_slice().is_empty() {
            true => self.leaves.as_slice().first().copied(),
            false => None,
        }
    }

    /// Passes over the leaf that comes next.
    pub fn skip_leaf(&mut self) {
        self.leaves.next();
    }
}

/// Refuses a leaf whose names do not follow those of the leaves before it: a name that a directory
/// has twice would be restored twice.
pub(crate) fn names_rise(leaf: &DirectoryLeaf, last_name: &mut Vec<u8>) -> Result<()> {
    if let (Some(first), Some(last)) = (leaf.entries.first(), leaf.entries.last()) {
        if first.name <= *last_name {
            return Err(Error::damaged("the leaves of a directory are not in order"));
        }
        last_name.clone_from(&last.name);
    }
    Ok(())
}

fn not_a_directory(reference: Reference) -> Error {
    Error::damaged(format!("node {} is no directory", reference.fingerprint))
}
