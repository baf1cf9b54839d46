//! The columns of a metadata section that tell of deltas: how they are made, where their bases are,
//! and the sketches by which bases are found.
//!
//! The bytes of each are in the header of [`super`]. Decoders are total.

use super::{Base, DELTA_BASES_MAX, DELTA_DEPTH_MAX, Delta, SKETCH_BYTES};
use crate::wire::{Reader, Writer};
use onefold_types::{ContainerId, Result, limits};

pub(super) fn encode_deltas(deltas: &[Delta], out: &mut Writer) {
    out.varint(deltas.len() as u64);
    let mut last = 0;
    for delta in deltas {
        out.varint(u64::from(delta.chunk - last));
        out.u8(delta.depth);
        out.u8(delta.bases.len() as u8);
        delta.bases.iter().for_each(|base| out.fingerprint(&base.fingerprint));
        out.varint(u64::from(delta.payload_length));
        last = delta.chunk;
    }
}

pub(super) fn decode_deltas(bytes: &[u8], chunks: usize) -> Result<Vec<Delta>> {
    let mut reader = Reader::new(bytes, "delta column");
    let count = reader.count(36)?;
    let mut deltas = Vec::with_capacity(count);
    let mut position = 0u64;
    for _ in 0..count {
        position += reader.varint_max(chunks as u64)?;
        let depth = reader.u8()?;
        let bases = usize::from(reader.u8()?);
        let rises = deltas.last().is_none_or(|last: &Delta| position > u64::from(last.chunk));
        if position >= chunks as u64
            || !rises
            || !(1..=DELTA_DEPTH_MAX).contains(&depth)
            || !(1..=DELTA_BASES_MAX).contains(&bases)
        {
            return Err(reader.damaged("a delta is impossible"));
        }
        let base = |_| Ok(Base { fingerprint: reader.fingerprint()?, container: None });
        let bases = (0..bases).map(base).collect::<Result<Vec<_>>>()?;
        let payload_length = reader.varint_max(limits::CHUNK_SIZE_MAX_BYTES as u64)? as u32;
        if payload_length == 0 {
            return Err(reader.damaged("a delta is made of nothing"));
        }
        deltas.push(Delta { chunk: position as u32, depth, bases, payload_length });
    }
    reader.finish()?;
    Ok(deltas)
}

pub(super) fn encode_whereabouts(containers: &[Option<ContainerId>], out: &mut Writer) {
    let mut distinct: Vec<ContainerId> = containers.iter().copied().flatten().collect();
    distinct.sort_unstable();
    distinct.dedup();
    out.varint(distinct.len() as u64);
    distinct.iter().for_each(|id| out.raw(&id.0));
    for container in containers {
        // Each is among them.
        let number = container.map(|known| distinct.partition_point(|id| *id < known) as u64 + 1);
        out.varint(number.unwrap_or(0));
    }
}

pub(super) fn decode_whereabouts(bytes: &[u8], deltas: &mut [Delta]) -> Result<()> {
    let mut reader = Reader::new(bytes, "whereabouts column");
    let count = reader.count(16)?;
    let distinct: Vec<ContainerId> =
        (0..count).map(|_| reader.id().map(ContainerId)).collect::<Result<_>>()?;
    for base in deltas.iter_mut().flat_map(|delta| &mut delta.bases) {
        let number = reader.varint_max(count as u64)? as usize;
        base.container = number.checked_sub(1).and_then(|at| distinct.get(at)).copied();
    }
    reader.finish()
}

pub(super) fn decode_sketches(
    bytes: &[u8],
    chunks: usize,
) -> Result<Vec<(u32, [u8; SKETCH_BYTES])>> {
    let mut reader = Reader::new(bytes, "sketch column");
    let count = reader.count(1 + SKETCH_BYTES)?;
    let mut sketches = Vec::with_capacity(count);
    let mut position = 0u64;
    for _ in 0..count {
        position += reader.varint_max(chunks as u64)?;
        let mut sketch = [0; SKETCH_BYTES];
        sketch.copy_from_slice(reader.raw(SKETCH_BYTES)?);
        if position >= chunks as u64 {
            return Err(reader.damaged("a sketch is of no chunk"));
        }
        sketches.push((position as u32, sketch));
    }
    reader.finish()?;
    Ok(sketches)
}
