//! Frames by their number: out of the caches, or read and opened.
//!
//! Whoever reads on in a file asks for many frames that lie one behind another; those are read with
//! one request, since a device gives a MiB in the time of a few small reads; two readers whose
//! requests meet in a frame may both read it. A single one, as whoever reads here and there wants
//! it, is read by one of those only who want it at that moment.
//!
//! # Invariants
//! What is kept is authentic. No more than `TOGETHER_MAX_BYTES` are read with one request.

use super::{ChunkReader, READING_LOCKS};
use crate::chunks::{Chunk, Location, ReadFrame};
use crate::container::frame::FrameOpener;
use crate::container::reader::{FrameReader, ReadAs, peeked};
use onefold_format::container::{ChunkDescriptor, FrameDescriptor, MetadataSection};
use onefold_types::{ContainerId, Error, Result, limits};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Stored bytes that are read with one request, unless a single frame has more.
const TOGETHER_MAX_BYTES: u64 = limits::MIB as u64;

impl ChunkReader {
    /// The frame that a chunk lies in, perhaps the one that a chunk which is held lies in.
    pub(super) fn plain(&self, location: &Location, held: &[Chunk]) -> Result<Arc<ReadFrame>> {
        match held.iter().find_map(|chunk| chunk.frame_of(location)) {
            Some(plain) => Ok(Arc::clone(plain)),
            None => self.frame(location.container, &location.section, location.descriptor().frame),
        }
    }

    /// Reads chunks that lie one behind another, from that of a location on, as far as that goes:
    /// those in the first frame at least.
    pub(super) fn read_frames_of(
        &self,
        location: &Location,
        run: &[ChunkDescriptor],
        held: &[Chunk],
    ) -> Result<Vec<Chunk>> {
        let by_frame = || run.chunk_by(|one, next| one.frame == next.frame);
        let numbers: Vec<u32> = by_frame().filter_map(|of| Some(of.first()?.frame)).collect();
        let frames = match numbers.len() {
            1 => vec![self.plain(location, held)?],
            _ => self.several(location, &numbers, held)?,
        };
        let mut chunks = Vec::with_capacity(run.len());
        for (of, frame) in by_frame().zip(&frames) {
            match self.all_verified(location.container, &location.section, of, frame) {
                Ok(of_frame) => chunks.extend(of_frame),
                Err(error) if chunks.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(chunks)
    }

    /// Frames of the container of a location, by their rising numbers, as far as they can be read:
    /// at least the first.
    fn several(
        &self,
        location: &Location,
        numbers: &[u32],
        held: &[Chunk],
    ) -> Result<Vec<Arc<ReadFrame>>> {
        let (container, section) = (location.container, &location.section);
        let chunk = section.chunks.get(location.position as usize);
        let read_as = self.read_as(chunk.is_some_and(|chunk| chunk.level.is_node()));
        let mut frames = Vec::with_capacity(numbers.len());
        while let Some(number) = numbers.get(frames.len()) {
            if let Some(frame) = self.kept_frame(container, *number, held) {
                frames.push(frame);
                continue;
            }
            let first = section.frames[*number as usize];
            let mut together = vec![first];
            for next in &numbers[frames.len() + 1..] {
                let after = section.frames[*next as usize];
                let is_beside = together.last().is_some_and(|last| last.end() == after.offset);
                let is_short = after.end() - first.offset <= TOGETHER_MAX_BYTES;
                if !is_beside || !is_short || self.kept_frame(container, *next, held).is_some() {
                    break;
                }
                together.push(after);
            }
            let (read, is_first) = (frames.len(), frames.is_empty());
            let numbers = &numbers[frames.len()..frames.len() + together.len()];
            match self.read_beside(container, numbers, &together, (&mut frames, read_as)) {
                Ok(()) => {}
                Err(error) if is_first && together.len() == 1 => return Err(error),
                // What could be read is enough; whoever goes on from there hears of the rest. A
                // device that does not give the last of them has given none.
                Err(_) if frames.len() > read || !is_first => return Ok(frames),
                Err(_) => return Ok(vec![self.frame(container, section, *number)?]),
            }
        }
        Ok(frames)
    }

    /// A frame that is kept, or that a chunk which is held lies in.
    fn kept_frame(
        &self,
        container: ContainerId,
        number: u32,
        held: &[Chunk],
    ) -> Option<Arc<ReadFrame>> {
        let of_held = held.iter().find_map(|chunk| chunk.frame_by_number(container, number));
        of_held.map(Arc::clone).or_else(|| self.caches.frame((container, number)))
    }

    /// Reads frames of rising numbers with one request, whatever lies between them, and keeps them;
    /// they are given back as well, with the bytes that were read.
    ///
    /// Errors: those of the device, or `Damaged` if one of them does not open.
    pub fn read_spanning(
        &self,
        container: ContainerId,
        section: &MetadataSection,
        numbers: &[u32],
    ) -> Result<(Vec<Arc<ReadFrame>>, usize)> {
        let descriptor = |number: &u32| section.frames.get(*number as usize).copied();
        let frames: Option<Vec<FrameDescriptor>> = numbers.iter().map(descriptor).collect();
        let frames = frames.ok_or_else(|| Error::damaged("a chunk is in no frame"))?;
        let mut read = Vec::with_capacity(frames.len());
        self.read_beside(container, numbers, &frames, (&mut read, self.read_as(false)))?;
        let bytes = frames.last().map_or(0, FrameDescriptor::end)
            - frames.first().map_or(0, |frame| frame.offset);
        Ok((read, usize::try_from(bytes).unwrap_or(usize::MAX)))
    }

    /// Whether a frame is kept.
    pub fn is_kept(&self, container: ContainerId, number: u32) -> bool {
        self.caches.frame((container, number)).is_some()
    }

    /// Reads frames with one request, and keeps them.
    fn read_beside(
        &self,
        container: ContainerId,
        numbers: &[u32],
        frames: &[FrameDescriptor],
        (read, read_as): (&mut Vec<Arc<ReadFrame>>, ReadAs),
    ) -> Result<()> {
        self.frames.fetch_add(frames.len() as u64, Ordering::Relaxed);
        let (first, end) = (frames.first(), frames.last().map_or(0, FrameDescriptor::end));
        let stored_bytes = first.map_or(0, |first| end.saturating_sub(first.offset));
        self.frame_bytes.fetch_add(stored_bytes, Ordering::Relaxed);
        let reader = FrameReader::new(&self.repository, container)?.reading(read_as);
        let before = read.len();
        peeked(self.repository.store(), reader.key(), || {
            read.truncate(before);
            self.caches.with_opener(|opener| {
                let each = |opener: &mut FrameOpener, number: u32, plain: Vec<u8>| {
                    let frame = Arc::new(ReadFrame::new(plain));
                    if let Some(dropped) = self.caches.keep_frame((container, number), &frame) {
                        opener.reuse(dropped);
                    }
                    read.push(frame);
                };
                reader.read_each(&self.repository, opener, (numbers, frames), each)
            })
        })
    }

    /// A frame, authentic; what is in it is not verified by name.
    pub(super) fn frame(
        &self,
        container: ContainerId,
        section: &MetadataSection,
        number: u32,
    ) -> Result<Arc<ReadFrame>> {
        let key = (container, number);
        if let Some(frame) = self.caches.frame(key) {
            return Ok(frame);
        }
        // Whoever reads on asks for the same frame with the next request already.
        let lock_number = (usize::from(container.0[0]) + number as usize) % READING_LOCKS;
        let _reading = self.reading[lock_number].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(frame) = self.caches.frame(key) {
            return Ok(frame);
        }
        let descriptor = section.frames[number as usize];
        let mut read = Vec::with_capacity(1);
        let read_as = self.read_as(is_of_nodes(section, number));
        self.read_beside(container, &[number], &[descriptor], (&mut read, read_as))?;
        read.pop().ok_or_else(|| onefold_types::bug!("a frame was read and is not there", number))
    }
}

/// Whether a frame has nodes in it: what the next command reads as well.
fn is_of_nodes(section: &MetadataSection, number: u32) -> bool {
    let chunk = section.chunks.iter().find(|chunk| chunk.frame == number);
    chunk.is_some_and(|chunk| chunk.level.is_node())
}
