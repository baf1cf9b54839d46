//! The frames that a part of a window is read from, in two passes: for what others are made of, and
//! for the rest.
//!
//! Deltas can be made once their bases are there, and bases lie in frames that are mostly wanted
//! for pieces as well. So containers that hold bases come first, with every frame that is needed of
//! them for whatever reason; then all others. Each frame is read once: what the first pass finds of
//! deltas waits, as payloads, for its end. On devices that seek this is what restores of deltas
//! cost: read for bases and again for pieces, data set A took 450 MB instead of 257.
//!
//! A dump cannot take early what lies beside bases: it keeps it ([`super::kept`]).
//!
//! Invariants: every frame of the part's reads is in exactly one pass, once for each read that
//! needs it; within a read of a container frames rise. Containers of the first pass rise; the
//! second keeps the order of the window.

use super::window::{NeededFrame, SortedWindow};
use onefold_format::container::{ChunkDescriptor, FrameDescriptor};
use onefold_types::ContainerId;
use std::collections::HashMap;
use std::ops::Range;

/// A base where it lies: a whole chunk.
#[derive(Clone, Copy)]
pub struct Spot {
    pub container: ContainerId,
    pub frame: FrameDescriptor,
    pub chunk: ChunkDescriptor,
}

impl Spot {
    /// The frame: its container, and its number there.
    pub fn place(&self) -> (ContainerId, u32) {
        (self.container, self.chunk.frame)
    }
}

/// A frame that is read, and what for.
pub struct Visit {
    pub needed: NeededFrame,
    /// Its pieces, if it has any: the frame's index in the window.
    pub frame: Option<usize>,
    /// The bases in it, as indices into the spots.
    pub spots: Range<usize>,
}

/// The frames of one pass.
#[derive(Default)]
pub struct Visits {
    pub frames: Vec<Visit>,
    /// Those of each read of a container.
    pub reads: Vec<Range<usize>>,
}

impl Visits {
    /// Both passes for some of a window's reads, and the bases of what they need, in stored order.
    pub fn of_part(window: &SortedWindow, reads: Range<usize>, spots: &[Spot]) -> [Self; 2] {
        let [mut first, mut second] = [Self::default(), Self::default()];
        let container_of = |read: usize| window.frames[window.reads[read].start].container;
        // Of several reads of a container, which no sorted window has, the first serves the bases.
        let mut read_of = HashMap::new();
        for read in reads.clone() {
            read_of.entry(container_of(read)).or_insert(read);
        }
        let mut end = 0;
        for of_container in spots.chunk_by(|one, other| one.container == other.container) {
            let start = end;
            end += of_container.len();
            let read = of_container.first().and_then(|spot| read_of.get(&spot.container));
            let frames = read.map_or(0..0, |read| window.reads[*read].clone());
            first.add(of_pieces(window, frames), spots, start..end);
        }
        let mut spots = spots.iter().map(|spot| spot.container).collect::<Vec<_>>();
        spots.dedup();
        for read in reads {
            let container = container_of(read);
            let is_first = spots.binary_search(&container).is_ok();
            if !is_first || read_of.get(&container) != Some(&read) {
                second.add(of_pieces(window, window.reads[read].clone()), &[], 0..0);
            }
        }
        [first, second]
    }

    /// A read of a container: for pieces and for bases, both in stored order.
    pub fn add(&mut self, mut pieces: Vec<Visit>, spots: &[Spot], of: Range<usize>) {
        let start = self.frames.len();
        let mut at = of.start;
        for same in spots[of].chunk_by(|one, other| one.chunk.frame == other.chunk.frame) {
            let spots = at..at + same.len();
            at = spots.end;
            let Some(spot) = same.first() else { continue };
            let number = spot.chunk.frame;
            match pieces.binary_search_by_key(&number, |visit| visit.needed.number) {
                Ok(found) => pieces[found].spots = spots,
                Err(_) => {
                    let (container, descriptor) = (spot.container, spot.frame);
                    let needed = NeededFrame { container, number, descriptor };
                    self.frames.push(Visit { needed, frame: None, spots });
                }
            }
        }
        self.frames.append(&mut pieces);
        self.frames[start..].sort_unstable_by_key(|visit| visit.needed.number);
        self.reads.push(start..self.frames.len());
    }
}

/// Frames that are read for their pieces alone.
pub fn of_pieces(window: &SortedWindow, frames: impl IntoIterator<Item = usize>) -> Vec<Visit> {
    let visit =
        |frame: usize| Visit { needed: window.frames[frame], frame: Some(frame), spots: 0..0 };
    frames.into_iter().map(visit).collect()
}
