//! Reads trees: nodes, directories, and the contents of files.
//!
//! Invariant: a child's level is below its parent's, checked at every step down, so that no tree,
//! however hostile, can lead a walk in circles or deeper than its root's level.

use super::{ExtentWalk, path};
use crate::chunks::ChunkReader;
use crate::repository::Repository;
use onefold_format::node::{
    DirectoryLeaf, Entry, EntryKind, Extent, FileMap, Node, Reference, Totals,
};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Level, Result};
use std::sync::Arc;

/// One part of a directory at a time.
pub struct DirectoryCursor {
    /// The first name, the leaf and the first chunk of every part; empty for a directory of one
    /// leaf.
    parts: Vec<(Vec<u8>, Reference, u64)>,
    loaded: Option<usize>,
    entries: Vec<Entry>,
    /// The first chunk of each entry.
    places: Vec<u64>,
}

impl DirectoryCursor {
    /// Holds a leaf whose first chunk has this place in the tree.
    fn hold(&mut self, entries: Vec<Entry>, first_chunk: u64) {
        let mut place = first_chunk;
        self.places.clear();
        for entry in &entries {
            self.places.push(place);
            place = place.saturating_add(entry.chunks).saturating_add(entry.totals.chunks);
        }
        self.entries = entries;
    }
}

/// Reads the trees of one store; shared by threads.
pub struct TreeReader {
    chunks: ChunkReader,
}

impl TreeReader {
    /// Opens the index.
    pub fn open(repository: &Arc<Repository>) -> Result<Self> {
        Ok(Self { chunks: ChunkReader::open(repository)? })
    }

    /// A tree reader over a chunk reader.
    #[must_use]
    pub fn new(chunks: ChunkReader) -> Self {
        Self { chunks }
    }

    /// The chunks below.
    pub fn chunks(&self) -> &ChunkReader {
        &self.chunks
    }

    /// Reads a node.
    pub fn node(&self, reference: Reference) -> Result<Node> {
        if !reference.level.is_node() {
            return Err(Error::damaged(format!("chunk {} is no node", reference.fingerprint)));
        }
        let chunk = self.chunks.read(&reference.fingerprint)?;
        if !chunk.level.is_node() {
            return Err(Error::damaged(format!("chunk {} is no node", reference.fingerprint)));
        }
        let node = Node::decode(&chunk)
            .context(|| format!("chunk {} as a node", reference.fingerprint))?;
        let mut too_high = false;
        node.references(&mut |child| too_high |= child.level >= reference.level);
        if too_high {
            return Err(Error::damaged(format!(
                "node {} refers to a chunk that is not below it",
                reference.fingerprint
            )));
        }
        Ok(node)
    }

    /// Calls `each` with the leaves of a directory, in order.
    pub fn leaves(
        &self,
        directory: Reference,
        each: &mut dyn FnMut(&Self, DirectoryLeaf) -> Result<()>,
    ) -> Result<()> {
        match self.node(directory)? {
            Node::DirectoryLeaf(leaf) => each(self, leaf),
            Node::DirectoryMap(map) => {
                for part in map.parts {
                    match self.node(part.leaf)? {
                        Node::DirectoryLeaf(leaf) => each(self, leaf)?,
                        _ => return Err(not_a_directory(part.leaf)),
                    }
                }
                Ok(())
            }
            _ => Err(not_a_directory(directory)),
        }
    }

    /// All entries of a directory. For directories that may be huge use [`TreeReader::leaves`].
    pub fn entries(&self, directory: Reference) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.leaves(directory, &mut |_, leaf| {
            entries.extend(leaf.entries);
            Ok(())
        })?;
        Ok(entries)
    }

    /// A cursor over a directory, for looking up names in rising order. `first_chunk` is the place
    /// in the tree's order of its first chunk.
    pub fn cursor(&self, directory: Reference, first_chunk: u64) -> Result<DirectoryCursor> {
        let mut cursor = DirectoryCursor {
            parts: Vec::new(),
            loaded: None,
            entries: Vec::new(),
            places: Vec::new(),
        };
        match self.node(directory)? {
            Node::DirectoryLeaf(leaf) => cursor.hold(leaf.entries, first_chunk),
            Node::DirectoryMap(map) => {
                let mut place = first_chunk;
                for part in map.parts {
                    cursor.parts.push((part.first_name, part.leaf, place));
                    place = place.saturating_add(part.totals.chunks);
                }
            }
            _ => return Err(not_a_directory(directory)),
        }
        Ok(cursor)
    }

    /// The entry of a name and the place of its first chunk in the tree's order. Names that rise
    /// from call to call read every part of a large directory once, and only one part is held.
    pub fn find(&self, cursor: &mut DirectoryCursor, name: &[u8]) -> Result<Option<(Entry, u64)>> {
        let above = cursor.parts.partition_point(|(first, ..)| first.as_slice() <= name);
        if let Some(wanted) = above.checked_sub(1)
            && cursor.loaded != Some(wanted)
        {
            let (_, leaf, first_chunk) = cursor.parts[wanted];
            let Node::DirectoryLeaf(node) = self.node(leaf)? else {
                return Err(not_a_directory(leaf));
            };
            cursor.hold(node.entries, first_chunk);
            cursor.loaded = Some(wanted);
        }
        let found = cursor.entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
        Ok(found.ok().map(|at| (cursor.entries[at].clone(), cursor.places[at])))
    }

    /// The entry at a path below `root`; for the root itself an entry with an empty name.
    pub fn resolve(&self, root: Reference, wanted: &[u8]) -> Result<Entry> {
        self.resolve_place(root, wanted).map(|(entry, _)| entry)
    }

    /// The same, and the place of its first chunk in the tree's order.
    pub fn resolve_place(&self, root: Reference, wanted: &[u8]) -> Result<(Entry, u64)> {
        let (mut entry, mut place) = (root_entry(root), 0);
        let mut walked = Vec::new();
        for name in path::components(wanted) {
            let missing = |walked: &[u8]| {
                let at = path::display(&path::join(walked, name));
                Error::new(ErrorKind::NotFound, format!("{at} is not in the snapshot"))
            };
            let directory = match (entry.kind, entry.content) {
                (EntryKind::Directory, Some(directory)) => directory,
                _ => return Err(missing(&walked)),
            };
            let mut cursor = self.cursor(directory, place)?;
            (entry, place) = self.find(&mut cursor, name)?.ok_or_else(|| missing(&walked))?;
            walked = path::join(&walked, name);
        }
        Ok((entry, place))
    }

    /// Reads a file map.
    ///
    /// Errors: `Damaged` if it is none, or higher than any file needs.
    pub fn file_map(&self, map: Reference) -> Result<FileMap> {
        if map.level > LEVEL_OF_FILES_MAX {
            return Err(Error::damaged("a file's tree is higher than any file needs"));
        }
        match self.node(map)? {
            Node::FileMap(map) => Ok(map),
            _ => Err(Error::damaged(format!("node {} is no file map", map.fingerprint))),
        }
    }

    /// Calls `each` with the chunks and holes of a file, in order.
    pub fn extents(
        &self,
        content: Reference,
        size: u64,
        each: &mut dyn FnMut(Extent) -> Result<()>,
    ) -> Result<()> {
        let mut walk = ExtentWalk::new(Some(content), size)?;
        while let Some((_, extent)) = walk.next(self)? {
            each(extent)?;
        }
        Ok(())
    }
}

/// Each level of file maps multiplies the length by at least 64, so 64-bit lengths need fewer.
const LEVEL_OF_FILES_MAX: Level = Level(16);

fn root_entry(root: Reference) -> Entry {
    Entry {
        kind: EntryKind::Directory,
        content: Some(root),
        mode: 0o755,
        totals: Totals::default(),
        ..Entry::default()
    }
}

fn not_a_directory(reference: Reference) -> Error {
    Error::damaged(format!("node {} is no directory", reference.fingerprint))
}
