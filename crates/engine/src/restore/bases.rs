//! The bases that a part of a window needs: which, where they are, and their bytes once they were
//! read.
//!
//! Pieces come in the order in which they are stored, and what neighbours are made of are mostly
//! neighbours too. So the bases of as many reads as a share of memory is enough for are looked up
//! where the deltas say, and in the index where they say nothing or a collection has moved the base
//! since; sorted by container and frame, and read in that order ([`super::visits`]). A base that is
//! not found so is read when it is asked for, wherever it is.
//!
//! Invariants: what is held was verified by name, and is whole: any delta may be made of it.
//!
//! Concurrency: filled by several threads, then read by all.

use super::visits::{Room, Spot, waiting_bytes_of};
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
use std::sync::Arc;

/// Bases that have moved, looked for in the index at once.
const LOOKED_UP_AT_ONCE: usize = 1 << 12;

/// The bytes of bases.
pub type Held = HashMap<Fingerprint, Arc<[u8]>, BuildHasherDefault<PrefixHasher>>;

/// How long bases are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// As long as their frame is open: payloads of deltas wait for them.
    Open,
    /// To the end of the part.
    End,
}

/// Some reads of a window whose bases are read together.
pub struct Part {
    /// The reads.
    pub reads: Range<usize>,
    /// The bases, in stored order, each once.
    pub spots: Vec<Spot>,
    /// Bytes for what waits and what is held.
    bytes_max: u64,
    waiting_bytes: u64,
    lease: Lease,
}

impl Part {
    /// As many reads of a window as there is room for the bases of, from one on, one at least.
    pub fn next(
        chunks: &ChunkReader,
        (window, until): (&SortedWindow, Until),
        first: usize,
    ) -> Result<Self> {
        // What waits for its bases is held as well.
        let waiting = |frames: &Range<usize>| -> usize {
            frames.clone().map(|frame| waiting_bytes_of(window, frame) as usize).sum()
        };
        let all = |frames: &Range<usize>| -> usize {
            let pieces = &window.pieces[window.starts[frames.start]..window.starts[frames.end]];
            let deltas = pieces.iter().filter(|piece| piece.descriptor().is_delta());
            waiting(frames) + deltas.map(|piece| piece.length as usize).sum::<usize>()
        };
        let taken = |frames: &Range<usize>| match until {
            // Half is for bases that lie beside deltas.
            Until::Open => 2 * waiting(frames),
            Until::End => all(frames),
        };
        // The more is held, the fewer frames are read again.
        let (planned, purse) =
            (chunks.repository().memory().restored_bases_bytes, chunks.repository().purse());
        let wanted = window.reads[first..].iter().map(all).sum::<usize>();
        let more = wanted.saturating_sub(planned).min(purse.left_bytes() / 2);
        let lease = purse.take(more);
        let bytes_max = planned + lease.bytes();
        let (mut last, mut bytes) = (first, 0);
        while last < window.reads.len() && (last == first || bytes < bytes_max) {
            bytes += taken(&window.reads[last]);
            last += 1;
        }
        let mut spots = spots(chunks, window, first..last)?;
        if until == Until::End {
            // One container alone may need more than there is room for: the rest is read in its
            // turn.
            let mut bytes = 0;
            let fitting = spots.iter().take_while(|spot| {
                bytes += spot.chunk.length as usize;
                bytes <= bytes_max
            });
            let fitting = fitting.count();
            spots.truncate(fitting);
        }
        let reads = first..last;
        let waiting_bytes = window.reads[reads.clone()].iter().map(|it| waiting(it) as u64).sum();
        Ok(Self { reads, spots, bytes_max: bytes_max as u64, waiting_bytes, lease })
    }

    /// Room for what waits, and for bases that are held beside that.
    #[must_use]
    pub fn room(&self) -> Room {
        let held_bytes = self.bytes_max.saturating_sub(self.waiting_bytes);
        Room { waiting_bytes: self.bytes_max, held_bytes }
    }

    /// Its bases, and what was read of them.
    pub fn holding(self, held: Held) -> (Vec<Spot>, HeldBases) {
        (self.spots, HeldBases { held, _lease: self.lease })
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

/// The bases of a frame that is open, and where others are.
pub struct OpenedBases<'a> {
    /// Those.
    pub opened: Held,
    /// The others.
    pub others: &'a BasesAndReader<'a>,
}

impl BaseSource for OpenedBases<'_> {
    fn base(&self, base: &Base, below_depth: u8) -> Result<BaseBytes> {
        match self.opened.get(&base.fingerprint) {
            Some(bytes) => Ok(Box::new(Arc::clone(bytes))),
            None => self.others.base(base, below_depth),
        }
    }
}

/// The bases in a frame. What is not what it is named by is left to whoever asks for it.
pub fn opened(chunks: &ChunkReader, spots: &[Spot], plain: &[u8]) -> Held {
    let wanted = spots.iter().map(|spot| spot.chunk);
    let holds = verify::each(plain, wanted.clone(), chunks.repository().fingerprinter());
    wanted
        .zip(holds)
        .filter(|(_, holds)| *holds)
        .filter_map(|(chunk, _)| Some((chunk.fingerprint, verify::cut(plain, &chunk)?.into())))
        .collect()
}

/// Whole chunks that some reads need as bases, in stored order, each once.
fn spots(chunks: &ChunkReader, window: &SortedWindow, reads: Range<usize>) -> Result<Vec<Spot>> {
    let (mut spots, mut moved) = (Vec::new(), Vec::new());
    for frames in window.reads.get(reads).unwrap_or_default() {
        let pieces = &window.pieces[window.starts[frames.start]..window.starts[frames.end]];
        let deltas = pieces.iter().filter(|piece| piece.descriptor().is_delta());
        let deltas = deltas.filter_map(|piece| window.deltas.get(piece.delta as usize));
        let bases = deltas.flat_map(|delta| {
            let is_one_of_several = delta.bases.len() > 1;
            delta.bases.iter().map(move |base| (base, is_one_of_several))
        });
        for (base, is_one_of_several) in bases {
            let spot = base.container.map(|it| whole_in(chunks, it, &base.fingerprint)).transpose();
            match spot?.flatten() {
                Some(spot) => spots.push(Spot { is_one_of_several, ..spot }),
                None => moved.push((base.fingerprint, is_one_of_several)),
            }
        }
    }
    moved.sort_unstable_by_key(|(base, _)| base.prefix());
    moved.dedup();
    for batch in moved.chunks(LOOKED_UP_AT_ONCE) {
        let mut found = Vec::with_capacity(batch.len());
        let names: Vec<Fingerprint> = batch.iter().map(|(base, _)| *base).collect();
        match chunks.locate_all(&names, &mut found) {
            // Whoever asks for one of them says what is wrong.
            Err(error) if error.is_unreadable() => continue,
            located => located?,
        }
        for ((base, is_one_of_several), containers) in batch.iter().zip(found) {
            for container in containers {
                if let Some(spot) = whole_in(chunks, container, base)? {
                    spots.push(Spot { is_one_of_several: *is_one_of_several, ..spot });
                    break;
                }
            }
        }
    }
    let place = |spot: &Spot| (spot.container, spot.chunk.frame, spot.chunk.offset);
    spots.sort_unstable_by_key(place);
    spots.dedup_by(|next, spot| {
        let is_same = place(next) == place(spot);
        spot.is_one_of_several |= is_same && next.is_one_of_several;
        is_same
    });
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
        (!chunk.is_delta()).then_some(Spot { container, frame, chunk, is_one_of_several: false })
    }))
}
