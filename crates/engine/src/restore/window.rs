//! A window: the chunks that are restored as one, and the frames that hold them.
//!
//! Chunks are collected in the order of the files, then sorted by container, frame and place, so
//! that each frame is read and opened exactly once per window, however many files need it and
//! however often (FAST'19's forward assembly with the window as the assembly area; S2.8).
//!
//! Memory: a piece takes 56 bytes; a frame about as much with its table entry, so [`Window::cost`]
//! counts both as one. Metadata sections are not kept: of them a window copies only the
//! descriptors of the frames it needs, so a scattered file costs no more than a compact one.

use crate::tree::Location;
use onefold_format::container::FrameDescriptor;
use onefold_types::{ContainerId, Error, Fingerprint, Result};
use std::collections::HashMap;

/// One chunk wanted at one place.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The chunk's name.
    pub fingerprint: Fingerprint,
    /// Where its bytes go.
    pub file_offset: u64,
    /// Into which output.
    pub output: u32,
    /// The frame that holds it, as a place in the window's list of frames.
    pub frame: u32,
    /// Where it begins in the plain frame.
    pub chunk_offset: u32,
    /// Its length.
    pub length: u32,
}

/// A frame that holds at least one piece.
#[derive(Clone, Copy, Debug)]
pub struct NeededFrame {
    /// Its container.
    pub container: ContainerId,
    /// Its number there.
    pub part: u32,
    /// Where and how it is stored.
    pub descriptor: FrameDescriptor,
}

/// Pieces while they are collected.
#[derive(Default)]
pub struct Window {
    pieces: Vec<Piece>,
    frames: Vec<NeededFrame>,
    places: HashMap<(ContainerId, u32), u32>,
    last: Option<(ContainerId, u32, u32)>,
}

/// Pieces in the order in which they are stored.
#[derive(Default)]
pub struct SortedWindow {
    /// Sorted by frame, then by place in the frame.
    pub pieces: Vec<Piece>,
    /// Sorted by container, then by place in the container.
    pub frames: Vec<NeededFrame>,
    /// For each frame its first piece, and the number of pieces at the end.
    pub starts: Vec<usize>,
}

impl Window {
    /// How much of a window's budget is used, in chunk references.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.pieces.len() + self.frames.len()
    }

    /// Whether there is nothing to fetch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds the chunk at `location`, wanted at `file_offset` of `output` with `length` bytes.
    pub fn push(
        &mut self,
        location: &Location,
        output: u32,
        file_offset: u64,
        length: u64,
    ) -> Result<()> {
        let chunk = *location.descriptor();
        if u64::from(chunk.length) != length || chunk.level.is_node() {
            return Err(Error::damaged(format!(
                "chunk {} in container {} is not what the file's tree says",
                chunk.fingerprint, location.container
            )));
        }
        let frame = self.frame(location, chunk.frame)?;
        self.pieces.push(Piece {
            fingerprint: chunk.fingerprint,
            file_offset,
            output,
            frame,
            chunk_offset: chunk.offset,
            length: chunk.length,
        });
        Ok(())
    }

    fn frame(&mut self, location: &Location, part: u32) -> Result<u32> {
        let container = location.container;
        if let Some((last, last_part, place)) = self.last
            && last == container
            && last_part == part
        {
            return Ok(place);
        }
        let place = match self.places.get(&(container, part)) {
            Some(place) => *place,
            None => {
                let descriptor = *location.section.frames.get(part as usize).ok_or_else(|| {
                    Error::damaged(format!("container {container} has no frame {part}"))
                })?;
                let place = self.frames.len() as u32;
                self.frames.push(NeededFrame { container, part, descriptor });
                self.places.insert((container, part), place);
                place
            }
        };
        self.last = Some((container, part, place));
        Ok(place)
    }

    /// Puts everything in stored order.
    #[must_use]
    pub fn sort(mut self) -> SortedWindow {
        let mut order: Vec<u32> = (0..self.frames.len() as u32).collect();
        order.sort_unstable_by_key(|&place| {
            let frame = &self.frames[place as usize];
            (frame.container, frame.part)
        });
        let mut ranks = vec![0u32; order.len()];
        for (rank, &place) in order.iter().enumerate() {
            ranks[place as usize] = rank as u32;
        }
        let frames: Vec<NeededFrame> =
            order.iter().map(|&place| self.frames[place as usize]).collect();
        for piece in &mut self.pieces {
            piece.frame = ranks[piece.frame as usize];
        }
        self.pieces.sort_unstable_by_key(|piece| (piece.frame, piece.chunk_offset));
        let mut starts = Vec::with_capacity(frames.len() + 1);
        for (position, piece) in self.pieces.iter().enumerate() {
            while starts.len() <= piece.frame as usize {
                starts.push(position);
            }
        }
        starts.push(self.pieces.len());
        SortedWindow { pieces: self.pieces, frames, starts }
    }
}
