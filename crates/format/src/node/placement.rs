//! Placements: where the chunks of a tree lay when it was written, and how much of each container
//! the tree uses. Advisory: never trusted over a fingerprint (SX.2, SX.3).
//!
//! ```text
//! page:  varint containers, their ids; varint runs; then for each: varint container (its place in
//!        the list plus one; 0: not known), varint frame, varint chunks, varint bytes
//! map:   varint parts; for each: reference of the page, varint chunks
//!        varint uses; for each: reference of the node
//! uses:  varint containers of bases, their ids; varint frames; for each: id of the container,
//!        varint frame, varint bytes referred to, varint plain bytes in it (0: not known), varint
//!        spans; varint frames that it rests on; for each: varint container (its place in the
//!        list), varint frame, varint bytes
//! ```
//!
//! Runs follow the order in which a walk of the tree meets data chunks: entries by name, the chunks
//! of a file in their order, holes passed over. A tree says how many chunks each entry has
//! ([`super::Entry::chunks`], [`super::Totals::chunks`]), so any place of it is a place in the
//! runs.

use super::{Reference, decode_reference, encode_reference};
use crate::wire::{Reader, Writer};
use onefold_types::{ContainerId, Result};
use std::collections::BTreeMap;

/// Chunks that follow each other in the tree and lie in one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementRun {
    /// The container's ordinal in the page's list; `None`: not known.
    pub container: Option<u32>,
    /// The frame's number in it.
    pub frame: u16,
    /// How many chunks.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
}

/// A stretch of a placement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlacementPage {
    /// The containers that runs refer to.
    pub containers: Vec<ContainerId>,
    /// The runs.
    pub runs: Vec<PlacementRun>,
}

/// A page and how much of the tree it covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementPart {
    /// The page.
    pub page: Reference,
    /// The chunks of its runs.
    pub chunks: u64,
}

/// The placement of a tree.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlacementMap {
    /// Its pages, in order.
    pub parts: Vec<PlacementPart>,
    /// Nodes that say how much of each container is used.
    pub uses: Vec<Reference>,
}

/// How a tree uses one frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UseOfContainer {
    /// The container.
    pub container: ContainerId,
    /// The frame's number in it.
    pub frame: u16,
    /// Plain bytes of its chunks that the tree refers to.
    pub referred_bytes: u64,
    /// Plain bytes of all its chunks; 0: not known.
    pub payload_bytes: u64,
    /// Separate places of the tree where it is used; 0 if it is not, but others rest on it.
    pub spans: u32,
    /// The frames that it rests on: chunks in it are differences against chunks in these.
    pub rests_on: Vec<BaseFrame>,
}

/// A frame that another one rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BaseFrame {
    /// The container.
    pub container: ContainerId,
    /// The frame's number in it.
    pub frame: u16,
    /// Plain bytes of the differences.
    pub bytes: u64,
}

/// How a tree uses some of its frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerUses {
    /// The frames, ascending.
    pub containers: Vec<UseOfContainer>,
}

pub(super) fn encode_page(page: &PlacementPage, writer: &mut Writer) {
    writer.varint(page.containers.len() as u64);
    page.containers.iter().for_each(|id| writer.raw(&id.0));
    writer.varint(page.runs.len() as u64);
    for run in &page.runs {
        writer.varint(run.container.map_or(0, |ordinal| u64::from(ordinal) + 1));
        writer.varint(u64::from(run.frame));
        writer.varint(run.chunks);
        writer.varint(run.bytes);
    }
}

pub(super) fn decode_page(reader: &mut Reader<'_>) -> Result<PlacementPage> {
    let count = reader.count(16)?;
    let containers =
        (0..count).map(|_| reader.id().map(ContainerId)).collect::<Result<Vec<_>>>()?;
    let runs = reader.count(4)?;
    let runs = (0..runs)
        .map(|_| {
            let container = reader.varint_u32()?.checked_sub(1);
            if container.is_some_and(|ordinal| ordinal as usize >= count) {
                return Err(reader.damaged("a run lies in no container"));
            }
            Ok(PlacementRun {
                container,
                frame: decode_frame(reader)?,
                chunks: reader.varint()?,
                bytes: reader.varint()?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(PlacementPage { containers, runs })
}

fn decode_frame(reader: &mut Reader<'_>) -> Result<u16> {
    reader.varint_max(u64::from(u16::MAX)).map(|frame| frame as u16)
}

pub(super) fn encode_map(map: &PlacementMap, writer: &mut Writer) {
    writer.varint(map.parts.len() as u64);
    for part in &map.parts {
        encode_reference(&part.page, writer);
        writer.varint(part.chunks);
    }
    writer.varint(map.uses.len() as u64);
    map.uses.iter().for_each(|uses| encode_reference(uses, writer));
}

pub(super) fn decode_map(reader: &mut Reader<'_>) -> Result<PlacementMap> {
    let parts = reader.count(34)?;
    let parts = (0..parts)
        .map(|_| Ok(PlacementPart { page: decode_reference(reader)?, chunks: reader.varint()? }))
        .collect::<Result<Vec<_>>>()?;
    let uses = reader.count(33)?;
    let uses = (0..uses).map(|_| decode_reference(reader)).collect::<Result<Vec<_>>>()?;
    Ok(PlacementMap { parts, uses })
}

pub(super) fn encode_uses(uses: &ContainerUses, writer: &mut Writer) {
    let mut ordinals = BTreeMap::new();
    let mut containers = Vec::new();
    for base in uses.containers.iter().flat_map(|one| &one.rests_on) {
        ordinals.entry(base.container).or_insert_with(|| {
            containers.push(base.container);
            containers.len() as u64 - 1
        });
    }
    writer.varint(containers.len() as u64);
    containers.iter().for_each(|id| writer.raw(&id.0));
    writer.varint(uses.containers.len() as u64);
    for one in &uses.containers {
        writer.raw(&one.container.0);
        writer.varint(u64::from(one.frame));
        writer.varint(one.referred_bytes);
        writer.varint(one.payload_bytes);
        writer.varint(u64::from(one.spans));
        writer.varint(one.rests_on.len() as u64);
        for base in &one.rests_on {
            writer.varint(ordinals.get(&base.container).copied().unwrap_or_default());
            writer.varint(u64::from(base.frame));
            writer.varint(base.bytes);
        }
    }
}

/// Reads uses; those that were written first say nothing of bases.
pub(super) fn decode_uses(reader: &mut Reader<'_>, with_bases: bool) -> Result<ContainerUses> {
    let bases = if with_bases { reader.count(16)? } else { 0 };
    let bases = (0..bases).map(|_| reader.id().map(ContainerId)).collect::<Result<Vec<_>>>()?;
    let count = reader.count(20 + usize::from(with_bases))?;
    let containers = (0..count)
        .map(|_| {
            Ok(UseOfContainer {
                container: reader.id().map(ContainerId)?,
                frame: decode_frame(reader)?,
                referred_bytes: reader.varint()?,
                payload_bytes: reader.varint()?,
                spans: reader.varint_u32()?,
                rests_on: if with_bases { decode_bases(reader, &bases)? } else { Vec::new() },
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(ContainerUses { containers })
}

fn decode_bases(reader: &mut Reader<'_>, containers: &[ContainerId]) -> Result<Vec<BaseFrame>> {
    let count = reader.count(3)?;
    let base = |_| {
        let ordinal = reader.varint_u32()?;
        let container = containers.get(ordinal as usize).copied();
        let container = container.ok_or_else(|| reader.damaged("a base lies in no container"))?;
        Ok(BaseFrame { container, frame: decode_frame(reader)?, bytes: reader.varint()? })
    };
    (0..count).map(base).collect()
}
