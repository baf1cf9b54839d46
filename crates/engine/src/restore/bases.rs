//! The bases that a part of a window needs: which, where they are, and their bytes once they were
//! read.
//!
//! Pieces come in the order in which they are stored, and what neighbours are made of are mostly
//! neighbours too. So the bases of as many reads as fit into a share of memory are looked up where
//! the deltas say, and in the index where they say nothing or a collection has moved the base since;
//! sorted by container and frame, and read in that order ([`super::visits`]). A base that is not
//! found so is read when it is asked for, wherever it is.
//!
//! Invariants: what is held was verified by name, and is whole: any delta may be made of it.
//!
//! Concurrency: filled by several threads, then read by all.

use super::visits::Spot;
use super::window::SortedWindow;
use crate::chunk_store::prefix_hasher::PrefixHasher;
use crate::chunks::ChunkReader;
use crate::container::delta::{BaseBytes, BaseSource};
use crate::container::verify;
use crate::memory::Lease;
use onefold_format::container::Base;
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Bases that have moved, looked for in the index at once.
const LOOKED_UP_AT_ONCE: usize = 1 << 12;

/// The bytes of bases.
pub type Held = HashMap<Fingerprint, Arc<[u8]>, BuildHasherDefault<PrefixHasher>>;

/// Some reads of a window whose bases are held together.
pub struct Part {
    /// The reads.
    pub reads: Range<usize>,
    /// The bases, in stored order, each once.
    pub spots: Vec<Spot>,
    lease: Lease,
}

impl Part {
    /// As many reads of a window as there is room for the bases of, from one on, one at least.
    pub fn next(chunks: &ChunkReader, window: &SortedWindow, first: usize) -> Result<Self> {
        // What waits for its bases is held as well.
        let taken = |frames: &Range<usize>| -> usize {
            let pieces = &window.pieces[window.starts[frames.start]..window.starts[frames.end]];
            let deltas = pieces.iter().filter(|piece| piece.descriptor().is_delta());
            deltas.map(|piece| (piece.length + piece.payload_length) as usize).sum()
        };
        // The more bases are held, the fewer frames are read again for others of them.
        let (planned, purse) =
            (chunks.repository().memory().restored_bases_bytes, chunks.repository().purse());
        let wanted = window.reads[first..].iter().map(taken).sum::<usize>();
        let more = wanted.saturating_sub(planned).min(purse.left_bytes() / 2);
        let lease = purse.take(more);
        let bytes_max = planned + lease.bytes();
        let (mut last, mut bytes) = (first, 0);
        while last < window.reads.len() && (last == first || bytes < bytes_max) {
            bytes += taken(&window.reads[last]);
            last += 1;
        }
        let spots = spots(chunks, window, first..last, bytes_max as u64)?;
        Ok(Self { reads: first..last, spots, lease })
    }

    /// What was read of its bases.
    pub fn holding(self, held: Mutex<Held>) -> HeldBases {
        let held = held.into_inner().unwrap_or_else(PoisonError::into_inner);
        HeldBases { held, _lease: self.lease }
    }
}

/// Bases that were read.
pub struct HeldBases {
    held: Held,
    _lease: Lease,
}

/// Bases that were read, and a reader for the others.
pub struct BasesAndReader<'a> {
    held: Option<&'a HeldBases>,
    chunks: &'a ChunkReader,
}

impl BaseSource for BasesAndReader<'_> {
    fn base(&self, base: &Base, below_depth: u8) -> Result<BaseBytes> {
        match self.held.and_then(|bases| bases.held.get(&base.fingerprint)) {
            Some(bytes) => Ok(Box::new(Arc::clone(bytes))),
            None => self.chunks.base(base, below_depth),
        }
    }
}

/// Bases that are held, if any are, and a reader for the others.
pub fn and<'a>(held: Option<&'a HeldBases>, chunks: &'a ChunkReader) -> BasesAndReader<'a> {
    BasesAndReader { held, chunks }
}

/// Holds the bases in a frame. What is not what it is named by is left to whoever asks for it.
pub fn hold(chunks: &ChunkReader, spots: &[Spot], plain: &[u8], held: &Mutex<Held>) {
    let wanted = spots.iter().map(|spot| spot.chunk);
    let holds = verify::each(plain, wanted.clone(), chunks.repository().fingerprinter());
    let copies: Vec<(Fingerprint, Arc<[u8]>)> = wanted
        .zip(holds)
        .filter(|(_, holds)| *holds)
        .filter_map(|(chunk, _)| Some((chunk.fingerprint, verify::cut(plain, &chunk)?.into())))
        .collect();
    held.lock().unwrap_or_else(PoisonError::into_inner).extend(copies);
}

/// Whole chunks that some reads need as bases, in stored order, each once.
fn spots(
    chunks: &ChunkReader,
    window: &SortedWindow,
    reads: Range<usize>,
    bytes_max: u64,
) -> Result<Vec<Spot>> {
    let (mut spots, mut moved) = (Vec::new(), Vec::new());
    for frames in window.reads.get(reads).unwrap_or_default() {
        let pieces = &window.pieces[window.starts[frames.start]..window.starts[frames.end]];
        let deltas = pieces.iter().filter(|piece| piece.descriptor().is_delta());
        let deltas = deltas.filter_map(|piece| window.deltas.get(piece.delta as usize));
        for base in deltas.flat_map(|delta| &delta.bases) {
            let spot = base.container.map(|it| whole_in(chunks, it, &base.fingerprint)).transpose();
            match spot?.flatten() {
                Some(spot) => spots.push(spot),
                None => moved.push(base.fingerprint),
            }
        }
    }
    moved.sort_unstable_by_key(Fingerprint::prefix);
    moved.dedup();
    for batch in moved.chunks(LOOKED_UP_AT_ONCE) {
        let mut found = Vec::with_capacity(batch.len());
        match chunks.locate_all(batch, &mut found) {
            // Whoever asks for one of them says what is wrong.
            Err(error) if error.is_unreadable() => continue,
            located => located?,
        }
        for (base, containers) in batch.iter().zip(found) {
            for container in containers {
                if let Some(spot) = whole_in(chunks, container, base)? {
                    spots.push(spot);
                    break;
                }
            }
        }
    }
    let place = |spot: &Spot| (spot.container, spot.chunk.frame, spot.chunk.offset);
    spots.sort_unstable_by_key(place);
    spots.dedup_by_key(|spot| place(spot));
    // One container alone may need more than there is room for: the rest is read in its turn.
    let mut bytes = 0;
    let fitting = spots.iter().take_while(|spot| {
        bytes += u64::from(spot.chunk.length);
        bytes <= bytes_max
    });
    let fitting = fitting.count();
    spots.truncate(fitting);
    Ok(spots)
}

/// A chunk that lies whole in a container, if that can be read.
fn whole_in(
    chunks: &ChunkReader,
    container: ContainerId,
    fingerprint: &Fingerprint,
) -> Result<Option<Spot>> {
    let located = match chunks.locate_in(container, fingerprint) {
        Err(error) if error.is_unreadable() => None,
        located => located?,
    };
    Ok(located.and_then(|location| {
        let chunk = *location.descriptor();
        let frame = *location.section.frames.get(chunk.frame as usize)?;
        (!chunk.is_delta()).then_some(Spot { container, frame, chunk })
    }))
}
