//! Tree nodes: chunks of level 1 and up, which hold references to other chunks.
//!
//! Every node begins with a version byte (2) and a kind byte:
//!
//! | kind | node | children |
//! | --- | --- | --- |
//! | 1 | [`FileMap`]: a run of a file's bytes | data, or file maps of the level below |
//! | 2 | [`DirectoryLeaf`]: directory entries, sorted by name | file contents, directories |
//! | 3 | [`DirectoryMap`]: the leaves of a large directory | directory leaves |
//! | 4 | [`Transform`]: content that is a reversible function of other content | any |
//! | 5 | [`PlacementPage`]: where chunks of a tree lay when it was written (advisory) | none |
//! | 6 | [`PlacementMap`]: the pages of a tree's placement | pages, uses |
//! | 7 | [`ContainerUses`] as they were first: without bases. Read, not written | none |
//! | 8 | [`ContainerUses`]: how much of each container a tree uses (advisory) | none |
//!
//! Nodes name chunks by fingerprint only, so equal content has equal trees; where a chunk lies is
//! the index's business. A node's level is one more than its highest child's.

use crate::wire::{Reader, Writer};
use onefold_types::{Error, ErrorKind, Fingerprint, Level, Result};

mod directory;
mod placement;

pub use directory::{
    DirectoryLeaf, DirectoryMap, DirectoryPart, Entry, EntryKind, Listing, Owner, Time, Totals,
};

pub use placement::{
    BaseFrame, ContainerUses, PlacementMap, PlacementPage, PlacementPart, PlacementRun,
    UseOfContainer,
};

const VERSION: u8 = 2;
const KIND_FILE_MAP: u8 = 1;
const KIND_DIRECTORY_LEAF: u8 = 2;
const KIND_DIRECTORY_MAP: u8 = 3;
const KIND_TRANSFORM: u8 = 4;
const KIND_PLACEMENT_PAGE: u8 = 5;
const KIND_PLACEMENT_MAP: u8 = 6;
const KIND_CONTAINER_USES_ONLY: u8 = 7;
const KIND_CONTAINER_USES: u8 = 8;

/// A chunk and its height: enough to fetch it and to know how to read it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Reference {
    /// The chunk's name.
    pub fingerprint: Fingerprint,
    /// Its height.
    pub level: Level,
}

/// A run of a file's bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileMap {
    /// The level of all children (holes apart): one below the map's own.
    pub child_level: Level,
    /// The children in order.
    pub extents: Vec<Extent>,
}

/// A child of a file map. A fingerprint of zeros stands for a hole: that many zero bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The child, or [`Fingerprint::ZERO`].
    pub fingerprint: Fingerprint,
    /// The number of file bytes that the child stands for.
    pub length: u64,
}

/// Content that is a reversible function of other content: reserved for unpacked archives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transform {
    /// Which function.
    pub method: u32,
    /// What it needs besides its sources.
    pub parameters: Vec<u8>,
    /// The content it is computed from.
    pub sources: Vec<(Reference, u64)>,
    /// The number of bytes it yields.
    pub length: u64,
}

/// Any node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// Part of a file.
    FileMap(FileMap),
    /// Part of a directory.
    DirectoryLeaf(DirectoryLeaf),
    /// The parts of a large directory.
    DirectoryMap(DirectoryMap),
    /// Computed content.
    Transform(Transform),
    /// Advisory locations.
    PlacementPage(PlacementPage),
    /// The pages of advisory locations.
    PlacementMap(PlacementMap),
    /// How much of each container is used.
    ContainerUses(ContainerUses),
}

impl Node {
    /// The node as a chunk's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(VERSION);
        match self {
            Self::FileMap(map) => {
                writer.u8(KIND_FILE_MAP);
                encode_file_map(map, &mut writer);
            }
            Self::DirectoryLeaf(leaf) => {
                writer.u8(KIND_DIRECTORY_LEAF);
                directory::encode_leaf(leaf, &mut writer);
            }
            Self::DirectoryMap(map) => {
                writer.u8(KIND_DIRECTORY_MAP);
                directory::encode_map(map, &mut writer);
            }
            Self::Transform(transform) => {
                writer.u8(KIND_TRANSFORM);
                encode_transform(transform, &mut writer);
            }
            Self::PlacementPage(page) => {
                writer.u8(KIND_PLACEMENT_PAGE);
                placement::encode_page(page, &mut writer);
            }
            Self::PlacementMap(map) => {
                writer.u8(KIND_PLACEMENT_MAP);
                placement::encode_map(map, &mut writer);
            }
            Self::ContainerUses(uses) => {
                writer.u8(KIND_CONTAINER_USES);
                placement::encode_uses(uses, &mut writer);
            }
        }
        writer.into_bytes()
    }

    /// Reads a node from a chunk's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "tree node");
        let (version, kind) = (reader.u8()?, reader.u8()?);
        let node = match (version, kind) {
            (VERSION, KIND_FILE_MAP) => Self::FileMap(decode_file_map(&mut reader)?),
            (VERSION, KIND_DIRECTORY_LEAF) => {
                Self::DirectoryLeaf(directory::decode_leaf(&mut reader)?)
            }
            (VERSION, KIND_DIRECTORY_MAP) => {
                Self::DirectoryMap(directory::decode_map(&mut reader)?)
            }
            (VERSION, KIND_TRANSFORM) => Self::Transform(decode_transform(&mut reader)?),
            (VERSION, KIND_PLACEMENT_PAGE) => {
                Self::PlacementPage(placement::decode_page(&mut reader)?)
            }
            (VERSION, KIND_PLACEMENT_MAP) => {
                Self::PlacementMap(placement::decode_map(&mut reader)?)
            }
            (VERSION, kind @ (KIND_CONTAINER_USES_ONLY | KIND_CONTAINER_USES)) => {
                let with_bases = kind == KIND_CONTAINER_USES;
                Self::ContainerUses(placement::decode_uses(&mut reader, with_bases)?)
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::NewerFormat,
                    format!("tree node kind {version}.{kind} is not known; use a newer onefold"),
                ));
            }
        };
        reader.finish()?;
        Ok(node)
    }

    /// Calls `each` with every chunk that the node refers to, in order; holes are passed over.
    pub fn references(&self, each: &mut dyn FnMut(Reference)) {
        match self {
            Self::FileMap(map) => {
                for extent in map.extents.iter().filter(|extent| !extent.is_hole()) {
                    each(Reference { fingerprint: extent.fingerprint, level: map.child_level });
                }
            }
            Self::DirectoryLeaf(leaf) => {
                leaf.entries.iter().filter_map(|entry| entry.content).for_each(each);
            }
            Self::DirectoryMap(map) => map.parts.iter().for_each(|part| each(part.leaf)),
            Self::Transform(transform) => {
                transform.sources.iter().for_each(|&(source, _)| each(source));
            }
            Self::PlacementMap(map) => {
                map.parts.iter().for_each(|part| each(part.page));
                map.uses.iter().for_each(|uses| each(*uses));
            }
            Self::PlacementPage(_) | Self::ContainerUses(_) => {}
        }
    }
}

impl Extent {
    /// A run of zero bytes.
    #[must_use]
    pub fn hole(length: u64) -> Self {
        Self { fingerprint: Fingerprint::ZERO, length }
    }

    /// Whether this is a run of zero bytes.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        self.fingerprint.is_zero()
    }
}

fn encode_file_map(map: &FileMap, writer: &mut Writer) {
    writer.varint(u64::from(map.child_level.0));
    writer.varint(map.extents.len() as u64);
    map.extents.iter().for_each(|extent| writer.fingerprint(&extent.fingerprint));
    map.extents.iter().for_each(|extent| writer.varint(extent.length));
}

fn decode_file_map(reader: &mut Reader<'_>) -> Result<FileMap> {
    let child_level = decode_level(reader)?;
    let count = reader.count(33)?;
    let mut extents = Vec::with_capacity(count);
    for _ in 0..count {
        extents.push(Extent { fingerprint: reader.fingerprint()?, length: 0 });
    }
    let mut total = 0u64;
    for extent in &mut extents {
        extent.length = reader.varint()?;
        total = total
            .checked_add(extent.length)
            .ok_or_else(|| reader.damaged("the file is longer than any file can be"))?;
    }
    Ok(FileMap { child_level, extents })
}

fn encode_transform(transform: &Transform, writer: &mut Writer) {
    writer.varint(u64::from(transform.method));
    writer.counted(&transform.parameters);
    writer.varint(transform.length);
    writer.varint(transform.sources.len() as u64);
    for (source, length) in &transform.sources {
        encode_reference(source, writer);
        writer.varint(*length);
    }
}

fn decode_transform(reader: &mut Reader<'_>) -> Result<Transform> {
    let method = reader.varint_u32()?;
    let parameters = reader.counted(onefold_types::limits::NODE_MAX_BYTES)?.to_vec();
    let length = reader.varint()?;
    let count = reader.count(34)?;
    let mut sources = Vec::with_capacity(count);
    for _ in 0..count {
        sources.push((decode_reference(reader)?, reader.varint()?));
    }
    Ok(Transform { method, parameters, sources, length })
}

fn encode_reference(reference: &Reference, writer: &mut Writer) {
    writer.fingerprint(&reference.fingerprint);
    writer.varint(u64::from(reference.level.0));
}

fn decode_reference(reader: &mut Reader<'_>) -> Result<Reference> {
    Ok(Reference { fingerprint: reader.fingerprint()?, level: decode_level(reader)? })
}

fn decode_level(reader: &mut Reader<'_>) -> Result<Level> {
    reader.varint_max(u64::from(u16::MAX)).map(|level| Level(level as u16))
}

#[cfg(test)]
mod tests;
