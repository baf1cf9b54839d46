//! A window: the chunks that are restored as one, and the frames that hold them.
//!
//! Chunks are collected in the order of the files. Files can be written anywhere, so their window
//! is sorted by container, frame and offset, and each frame is read and opened exactly once per
//! window, however many files need it and however often (forward assembly with the window as the
//! assembly area; S2.8). For an output that has to be written in order, or where it is asked for,
//! an engine of [`onefold_policy::restore_plan`] says what is read when.
//!
//! Memory: a piece takes 64 bytes; a frame about as much with its table entry, and so does what is
//! known of a delta, so [`Window::cost`] counts each as one. Metadata sections are not kept: of
//! them a window copies only the descriptors of the frames it needs, so a scattered file costs no
//! more than a compact one.

use crate::chunks::Location;
use crate::memory::{Lease, WINDOW_CHUNK_BYTES};
use crate::repository::Repository;
use onefold_format::container::{ChunkDescriptor, Delta, FrameDescriptor};
use onefold_policy::restore_plan::{ContainerSizes, PlanChunk, RestoreEngine};
use onefold_types::{ContainerId, Error, Fingerprint, Level, Result, invariant};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Chunks that are planned as one at least, however little memory is left.
const CHUNKS_MIN: usize = 1 << 12;

/// One chunk wanted at one offset of one output.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The chunk's name.
    pub fingerprint: Fingerprint,
    /// Where its bytes go.
    pub file_offset: u64,
    /// Into which output.
    pub output: u32,
    /// The frame that holds it, as an index into the window's list of frames.
    pub frame: u32,
    /// Where it begins in the plain frame.
    pub chunk_offset: u32,
    /// Its length.
    pub length: u32,
    /// How much of the frame it takes: its length, or less if it is a delta.
    pub payload_length: u32,
    /// How it is made then, as an index into the window's list of deltas.
    pub delta: u32,
}

impl Piece {
    /// The chunk, as it lies in its frame.
    #[must_use]
    pub fn descriptor(&self) -> ChunkDescriptor {
        let Self { fingerprint, length, payload_length, frame, chunk_offset: offset, .. } = *self;
        let level = Level::DATA;
        ChunkDescriptor { fingerprint, length, level, frame, offset, payload_length }
    }
}

/// A frame that holds at least one piece.
#[derive(Clone, Copy, Debug)]
pub struct NeededFrame {
    /// Its container.
    pub container: ContainerId,
    /// Its number there.
    pub number: u32,
    /// Where and how it is stored.
    pub descriptor: FrameDescriptor,
}

/// How much may be planned as one.
pub struct WindowShare {
    /// In chunk references.
    pub chunks_max: usize,
    /// Held as long as windows are.
    _lease: Lease,
}

impl WindowShare {
    /// Takes the share of one restore.
    #[must_use]
    pub fn take(repository: &Repository) -> Self {
        let lease = repository.purse().take(repository.memory().window_bytes());
        Self { chunks_max: (lease.bytes() / WINDOW_CHUNK_BYTES).max(CHUNKS_MIN), _lease: lease }
    }
}

/// Pieces while they are collected.
#[derive(Default)]
pub struct Window {
    pieces: Vec<Piece>,
    frames: Vec<NeededFrame>,
    deltas: Vec<Delta>,
    indices: HashMap<(ContainerId, u32), u32>,
    last: Option<(ContainerId, u32, u32)>,
}

/// Pieces in the order in which they are to be read.
#[derive(Default)]
pub struct SortedWindow {
    /// Sorted by frame, then by offset in the frame.
    pub pieces: Vec<Piece>,
    /// Read after read; within one, by frame number.
    pub frames: Vec<NeededFrame>,
    /// For each frame its first piece, and the number of pieces at the end.
    pub starts: Vec<usize>,
    /// The frames of each read of a container.
    pub reads: Vec<Range<usize>>,
    /// How the pieces that are deltas are made.
    pub deltas: Arc<[Delta]>,
}

impl Window {
    /// How much of a window's budget is used, in chunk references.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.pieces.len() + self.frames.len() + self.deltas.len()
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
        let delta = self.deltas.len() as u32;
        self.deltas.extend(location.section.delta_at(location.position).cloned());
        self.pieces.push(Piece {
            fingerprint: chunk.fingerprint,
            file_offset,
            output,
            frame,
            chunk_offset: chunk.offset,
            length: chunk.length,
            payload_length: chunk.payload_length,
            delta,
        });
        Ok(())
    }

    fn frame(&mut self, location: &Location, number: u32) -> Result<u32> {
        let container = location.container;
        if let Some((last, last_number, index)) = self.last
            && last == container
            && last_number == number
        {
            return Ok(index);
        }
        let index = match self.indices.get(&(container, number)) {
            Some(index) => *index,
            None => {
                let descriptor =
                    *location.section.frames.get(number as usize).ok_or_else(|| {
                        Error::damaged(format!("container {container} has no frame {number}"))
                    })?;
                let index = self.frames.len() as u32;
                self.frames.push(NeededFrame { container, number, descriptor });
                self.indices.insert((container, number), index);
                index
            }
        };
        self.last = Some((container, number, index));
        Ok(index)
    }

    /// Puts everything in the order in which an engine reads it.
    pub fn arrange(self, engine: &RestoreEngine) -> Result<SortedWindow> {
        if *engine == RestoreEngine::Direct {
            return Ok(self.sort());
        }
        let plan = engine.plan(&self.recipe(), ContainerSizes(&[]))?;
        let collected = self.pieces.len();
        let deltas = self.deltas.into();
        let mut sorted = SortedWindow { deltas, ..SortedWindow::default() };
        for read in &plan.reads {
            let mut wanted: Vec<Piece> = plan
                .ordinals_of(read)
                .iter()
                .map(|&ordinal| self.pieces[ordinal as usize])
                .collect();
            let number = |piece: &Piece| self.frames[piece.frame as usize].number;
            wanted.sort_unstable_by_key(|piece| (number(piece), piece.chunk_offset));
            let first = sorted.frames.len();
            for same in wanted.chunk_by(|a, b| a.frame == b.frame) {
                let frame = sorted.frames.len() as u32;
                sorted.frames.push(self.frames[same[0].frame as usize]);
                sorted.starts.push(sorted.pieces.len());
                sorted.pieces.extend(same.iter().map(|piece| Piece { frame, ..*piece }));
            }
            sorted.reads.push(first..sorted.frames.len());
        }
        let arranged = sorted.pieces.len();
        invariant!(arranged == collected, "pieces of a window got lost", arranged, collected);
        sorted.starts.push(arranged);
        Ok(sorted)
    }

    /// Adds to each engine's number the reads of containers that it would do.
    pub fn count_reads(&self, engines: &mut [(RestoreEngine, u64)]) -> Result<()> {
        let recipe = self.recipe();
        for (engine, reads) in engines {
            *reads += engine.plan(&recipe, ContainerSizes(&[]))?.reads.len() as u64;
        }
        Ok(())
    }

    /// The window as a plan's recipe: containers and chunks by numbers, in the order of the output.
    fn recipe(&self) -> Vec<PlanChunk> {
        let (mut containers, mut chunks) = (HashMap::new(), HashMap::new());
        let number_of = |frame: u32, containers: &mut HashMap<ContainerId, u32>| {
            let next = containers.len() as u32;
            *containers.entry(self.frames[frame as usize].container).or_insert(next)
        };
        let entry_of = |piece: &Piece| {
            let next = chunks.len() as u32;
            let chunk = *chunks.entry((piece.frame, piece.chunk_offset)).or_insert(next);
            let container = number_of(piece.frame, &mut containers);
            PlanChunk { container, chunk, size_bytes: piece.length }
        };
        self.pieces.iter().map(entry_of).collect()
    }

    /// Puts everything in stored order: each container is read once.
    #[must_use]
    pub fn sort(mut self) -> SortedWindow {
        let mut order: Vec<u32> = (0..self.frames.len() as u32).collect();
        order.sort_unstable_by_key(|&index| {
            let frame = &self.frames[index as usize];
            (frame.container, frame.number)
        });
        let mut ranks = vec![0u32; order.len()];
        for (rank, &index) in order.iter().enumerate() {
            ranks[index as usize] = rank as u32;
        }
        let frames: Vec<NeededFrame> =
            order.iter().map(|&index| self.frames[index as usize]).collect();
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
        let mut reads: Vec<Range<usize>> = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            match reads.last_mut() {
                Some(last) if frames[last.start].container == frame.container => {
                    last.end = index + 1;
                }
                _ => reads.push(index..index + 1),
            }
        }
        SortedWindow { pieces: self.pieces, frames, starts, reads, deltas: self.deltas.into() }
    }
}
