//! The bases that a part of a window needs, read before it: each frame once, in stored order.
//!
//! Pieces come in the order in which they are stored, and what neighbours are made of are mostly
//! neighbours too. So the bases of as many reads as fit into a share of memory are looked up where
//! the deltas say, sorted by container and frame, and read in that order, neighbours with one
//! request as far as that pays ([`Reach`]); a base that is not found so is read when it is asked
//! for, wherever it is.
//!
//! Invariants: what is held was verified by name, and is whole: any delta may be made of it.
//!
//! Concurrency: filled by several threads, then read by all.

use super::fetch::Workspace;
use super::request_costs::Reach;
use super::window::SortedWindow;
use crate::chunk_store::prefix_hasher::PrefixHasher;
use crate::chunks::{Chunk, ChunkReader};
use crate::container::delta::{BaseBytes, BaseSource};
use crate::memory::Lease;
use onefold_format::container::{Base, ChunkDescriptor, MetadataSection};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

type Held = HashMap<Fingerprint, Arc<[u8]>, BuildHasherDefault<PrefixHasher>>;

/// Bases that were read.
pub struct HeldBases {
    held: Held,
    _lease: Lease,
}

/// Bases that were read, and a reader for the others.
pub struct BasesAndReader<'a> {
    held: &'a HeldBases,
    chunks: &'a ChunkReader,
}

/// A base where it lies.
struct Spot {
    container: ContainerId,
    chunk: ChunkDescriptor,
}

impl BaseSource for BasesAndReader<'_> {
    fn base(&self, base: &Base, below_depth: u8) -> Result<BaseBytes> {
        match self.held.held.get(&base.fingerprint) {
            Some(bytes) => Ok(Box::new(Arc::clone(bytes))),
            None => self.chunks.base(base, below_depth),
        }
    }
}

impl HeldBases {
    /// These, and a reader for the others.
    #[must_use]
    pub fn and<'a>(&'a self, chunks: &'a ChunkReader) -> BasesAndReader<'a> {
        BasesAndReader { held: self, chunks }
    }

    /// Reads the bases of as many reads of a window as there is room for, from one on, one at
    /// least; and the first read that is not among them.
    pub fn read(
        (chunks, workspace): (&ChunkReader, &Workspace),
        window: &SortedWindow,
        first: usize,
        threads: usize,
    ) -> Result<(Self, usize)> {
        let made = |frames: &Range<usize>| -> usize {
            let pieces = &window.pieces[window.starts[frames.start]..window.starts[frames.end]];
            let deltas = pieces.iter().filter(|piece| piece.descriptor().is_delta());
            deltas.map(|piece| piece.length as usize).sum()
        };
        // The more bases are held, the fewer frames are read again for others of them.
        let (planned, purse) =
            (chunks.repository().memory().restored_bases_bytes, chunks.repository().purse());
        let wanted = window.reads[first..].iter().map(made).sum::<usize>();
        let more = wanted.saturating_sub(planned).min(purse.left_bytes() / 2);
        let lease = purse.take(more);
        let bytes_max = planned + lease.bytes();
        let (mut last, mut bytes) = (first, 0);
        while last < window.reads.len() && (last == first || bytes < bytes_max) {
            bytes += made(&window.reads[last]);
            last += 1;
        }
        let held = Self::held((chunks, workspace), window, first..last, (threads, bytes_max))?;
        Ok((Self { held, _lease: lease }, last))
    }

    fn held(
        (chunks, workspace): (&ChunkReader, &Workspace),
        window: &SortedWindow,
        reads: Range<usize>,
        (threads, bytes_max): (usize, usize),
    ) -> Result<Held> {
        let spots = spots(chunks, window, reads, bytes_max as u64)?;
        // A container to a thread: what reads ahead of one must not read ahead of all.
        let containers: Vec<&[Spot]> =
            spots.chunk_by(|one, other| one.container == other.container).collect();
        let held = Mutex::new(Held::default());
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            while let Some(container) = containers.get(next.fetch_add(1, Ordering::Relaxed)) {
                read_container((chunks, workspace), container, &held)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..threads.min(containers.len())).map(|_| scope.spawn(work)).collect();
            let mut result = work();
            for other in others {
                let ended = other.join().unwrap_or_else(|_| {
                    Err(Error::new(ErrorKind::Io, "a restoring thread has stopped"))
                });
                result = result.and(ended);
            }
            result
        })?;
        Ok(held.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whole chunks that some reads need as bases, in stored order, each once.
fn spots(
    chunks: &ChunkReader,
    window: &SortedWindow,
    reads: Range<usize>,
    bytes_max: u64,
) -> Result<Vec<Spot>> {
    let mut spots = Vec::new();
    for frames in window.reads.get(reads).unwrap_or_default() {
        let pieces = &window.pieces[window.starts[frames.start]..window.starts[frames.end]];
        let deltas = pieces.iter().filter(|piece| piece.descriptor().is_delta());
        let deltas = deltas.filter_map(|piece| window.deltas.get(piece.delta as usize));
        for base in deltas.flat_map(|delta| &delta.bases) {
            let Some(container) = base.container else { continue };
            let located = match chunks.locate_in(container, &base.fingerprint) {
                Err(error) if error.is_unreadable() => None,
                located => located?,
            };
            if let Some(location) = located
                && !location.descriptor().is_delta()
            {
                spots.push(Spot { container, chunk: *location.descriptor() });
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

/// Reads bases of one container: its frames in their order, those that lie near one another with
/// one request. What cannot be read is left to whoever asks for it.
fn read_container(
    (chunks, workspace): (&ChunkReader, &Workspace),
    spots: &[Spot],
    held: &Mutex<Held>,
) -> Result<()> {
    let Some(container) = spots.first().map(|spot| spot.container) else { return Ok(()) };
    let section = match chunks.section(container) {
        Err(error) if error.is_unreadable() => return Ok(()),
        section => section?,
    };
    let Some(section) = section else { return Ok(()) };
    let reach = workspace.reach();
    let mut left =
        &spots.chunk_by(|one, other| one.chunk.frame == other.chunk.frame).collect::<Vec<_>>()[..];
    while let Some((first, others)) = left.split_first() {
        let together = together(chunks, &section, left, reach);
        if together.len() > 1 {
            let began = Instant::now();
            let read = chunks.read_spanning(container, &section, &together);
            if let Ok((frames, bytes)) = read {
                workspace.note(bytes, began.elapsed());
                for (of_frame, plain) in left.iter().zip(&frames) {
                    let wanted = chunks_of(of_frame);
                    hold(&wanted, chunks.all_verified(container, &section, &wanted, plain), held)?;
                }
                left = &left[together.len()..];
                continue;
            }
        }
        let wanted = chunks_of(first);
        hold(&wanted, chunks.read_together(container, &section, &wanted), held)?;
        left = others;
    }
    Ok(())
}

/// The numbers of the frames at the front that are read with one request: those of which none is
/// kept, and which lie no farther apart than a request reaches.
fn together(
    chunks: &ChunkReader,
    section: &MetadataSection,
    frames: &[&[Spot]],
    reach: Reach,
) -> Vec<u32> {
    let mut together = Vec::new();
    let mut span: Option<(u64, u64)> = None;
    for spot in frames.iter().filter_map(|of_frame| of_frame.first()) {
        let number = spot.chunk.frame;
        let Some(frame) = section.frames.get(number as usize) else { break };
        let (offset, end) = span.unwrap_or((frame.offset, frame.offset));
        let gap_bytes = frame.offset.checked_sub(end);
        let is_near = gap_bytes.is_some_and(|gap| gap <= reach.gap_bytes_max);
        let is_short = span.is_none() || frame.end() - offset <= reach.read_bytes_max;
        if !is_near || !is_short || chunks.is_kept(spot.container, number) {
            break;
        }
        together.push(number);
        span = Some((offset, frame.end()));
    }
    together
}

fn chunks_of(spots: &[Spot]) -> Vec<ChunkDescriptor> {
    spots.iter().map(|spot| spot.chunk).collect()
}

/// Holds what was read.
fn hold(wanted: &[ChunkDescriptor], read: Result<Vec<Chunk>>, held: &Mutex<Held>) -> Result<()> {
    let read = match read {
        Err(error) if error.is_unreadable() => return Ok(()),
        read => read?,
    };
    let copies: Vec<(Fingerprint, Arc<[u8]>)> = wanted
        .iter()
        .zip(&read)
        .map(|(chunk, bytes)| (chunk.fingerprint, Arc::from(&bytes[..])))
        .collect();
    held.lock().unwrap_or_else(PoisonError::into_inner).extend(copies);
    Ok(())
}
