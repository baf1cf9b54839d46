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
    /// Those of each read of a container, or of a part of it.
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

    /// Divides reads of containers, the longest first, until there are so many parts that threads
    /// find something to do to the end. No part has less than `part_min_bytes`: what one request
    /// reads is not divided.
    #[must_use]
    pub fn divided(mut self, parts: usize, part_min_bytes: u64) -> Self {
        let bytes = |visit: &Visit| u64::from(visit.needed.descriptor.stored_length);
        let bytes_of = |range: &Range<usize>| self.frames[range.clone()].iter().map(bytes).sum();
        while self.reads.len() < parts {
            let lengths = self.reads.iter().map(bytes_of).enumerate();
            let Some((longest, length)) = lengths.max_by_key(|(_, length): &(usize, u64)| *length)
            else {
                break;
            };
            let range = self.reads[longest].clone();
            let mut before = 0;
            let half = range.clone().find(|frame| {
                before += bytes(&self.frames[*frame]);
                before >= length / 2
            });
            let middle = half.map_or(range.end, |frame| frame + 1);
            if before < part_min_bytes || length - before < part_min_bytes {
                break;
            }
            self.reads[longest] = range.start..middle;
            self.reads.insert(longest + 1, middle..range.end);
        }
        self
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

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::codec::Codec;

    /// Frames of so many KiB each, in reads.
    fn visits(reads: &[&[u32]]) -> Visits {
        let mut visits = Visits::default();
        for (container, lengths) in (0..).zip(reads) {
            let start = visits.frames.len();
            for (number, kib) in (0..).zip(*lengths) {
                let stored_length = kib << 10;
                let descriptor = FrameDescriptor {
                    offset: 0,
                    stored_length,
                    plain_length: stored_length,
                    codec: Codec::Zstd,
                };
                let container = ContainerId([container; 16]);
                let needed = NeededFrame { container, number, descriptor };
                visits.frames.push(Visit { needed, frame: None, spots: 0..0 });
            }
            visits.reads.push(start..visits.frames.len());
        }
        visits
    }

    fn divided(reads: &[&[u32]], parts: usize) -> Vec<Range<usize>> {
        visits(reads).divided(parts, 512 << 10).reads
    }

    #[test]
    fn the_longest_reads_are_divided_until_there_is_enough_for_all_threads() {
        let reads: [&[u32]; 2] = [&[512; 8], &[512, 512]];
        assert_eq!(divided(&reads, 2), [0..8, 8..10]);
        assert_eq!(divided(&reads, 3), [0..4, 4..8, 8..10]);
        assert_eq!(divided(&reads, 5), [0..2, 2..4, 4..6, 6..8, 8..10]);
        // No part is shorter than a request that pays.
        assert_eq!(divided(&reads, 99).len(), 10);
        assert_eq!(divided(&[&[256, 255]], 8), [0..2]);
        assert_eq!(divided(&[&[2048]], 8), [0..1]);
        assert_eq!(divided(&[&[100, 2048]], 8), [0..2]);
        assert!(divided(&[], 8).is_empty());
    }
}
