//! What is known of containers whose sections were read, in few bytes: which whole chunks they
//! hold, which shows that bases are there (protocol, W5), in which frames, and which frames their
//! deltas are made of, by which rewriting counts.
//!
//! The deltas of one section are made of chunks in dozens of containers, and each section that a
//! stream meets has some. Where memory is short, a handful of whole sections fits into it: they
//! were read again and again, on a hard disk for two thirds of a backup's time. A chunk takes 18
//! bytes here instead of a hundred, a delta 24.
//!
//! Two chunks are taken for one if the first 16 bytes of their names are equal, which nobody can
//! bring about with less than 2^64 trials. It would have to lie in the very container that a delta
//! says its base is in.
//!
//! Memory: bounded; what was of use longest ago goes first.

use crate::container::frame_id::{FrameId, frames_of};
use lru::LruCache;
use onefold_format::container::{ChunkDescriptor, MetadataSection};
use onefold_types::{ContainerId, Fingerprint};

/// What a container takes beside its chunks, about.
const CONTAINER_BYTES: usize = 192;

/// What is known of a container.
#[derive(Default)]
struct Known {
    /// The names of its whole chunks, rising, and the frames they are in.
    names: Box<[u128]>,
    frames: Box<[u16]>,
    /// Plain bytes of each frame.
    plain_bytes: Box<[u32]>,
    /// Positions of deltas, rising, and the frames of what they are made of.
    deltas: Box<[(u32, FrameId)]>,
}

/// What is known of some containers.
pub struct KnownContainers {
    containers: LruCache<ContainerId, Known>,
    bytes: usize,
    bytes_max: usize,
}

impl KnownContainers {
    /// None so far, and never more than so many bytes, unless one container alone takes more.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { containers: LruCache::unbounded(), bytes: 0, bytes_max }
    }

    /// Remembers a container whose section was read.
    pub fn note(&mut self, container: ContainerId, section: &MetadataSection) {
        if self.containers.contains(&container) {
            return;
        }
        let whole = section.chunks.iter().filter(|chunk| !chunk.is_delta());
        let frame = |chunk: &ChunkDescriptor| u16::try_from(chunk.frame).unwrap_or(u16::MAX);
        let mut chunks: Vec<(u128, u16)> =
            whole.map(|chunk| (chunk.fingerprint.half(), frame(chunk))).collect();
        chunks.sort_unstable();
        let (names, frames): (Vec<u128>, Vec<u16>) = chunks.into_iter().unzip();
        let plain_bytes = frames_of(section).iter().map(|frame| frame.plain_bytes).collect();
        let (names, frames) = (names.into(), frames.into());
        let known = Known { names, frames, plain_bytes, deltas: Box::default() };
        self.bytes += taken_bytes(&known);
        self.containers.put(container, known);
        self.keep_within();
    }

    /// Remembers which frames the deltas of a container are made of, by their rising positions.
    pub fn note_deltas(&mut self, container: ContainerId, deltas: Vec<(u32, FrameId)>) {
        if let Some(known) = self.containers.get_mut(&container) {
            self.bytes -= taken_bytes(known);
            known.deltas = deltas.into();
            self.bytes += taken_bytes(known);
            self.keep_within();
        }
    }

    /// In which frame a container holds a chunk, and not as a delta, if it does; `None` if it is
    /// not remembered.
    pub fn frame_of(
        &mut self,
        container: ContainerId,
        fingerprint: &Fingerprint,
    ) -> Option<Option<FrameId>> {
        let known = self.containers.get(&container)?;
        let at = known.names.binary_search(&fingerprint.half()).ok();
        let frame = at.and_then(|at| known.frames.get(at).copied());
        Some(frame.map(|frame| FrameId { container, frame }))
    }

    /// The frame of what a chunk is made of, if it is known to be a delta.
    pub fn rests_on(&mut self, container: ContainerId, position: u32) -> Option<FrameId> {
        let deltas = &self.containers.get(&container)?.deltas;
        let at = deltas.binary_search_by_key(&position, |(position, _)| *position).ok()?;
        deltas.get(at).map(|(_, frame)| *frame)
    }

    /// Plain bytes of a frame, if they are remembered.
    pub fn plain_bytes(&mut self, frame: &FrameId) -> Option<u32> {
        self.containers.get(&frame.container)?.plain_bytes.get(usize::from(frame.frame)).copied()
    }

    fn keep_within(&mut self) {
        while self.bytes > self.bytes_max && self.containers.len() > 1 {
            let Some((_, known)) = self.containers.pop_lru() else { break };
            self.bytes -= taken_bytes(&known);
        }
    }
}

fn taken_bytes(known: &Known) -> usize {
    let Known { names, frames, plain_bytes, deltas } = known;
    let chunks = size_of_val(&**names) + size_of_val(&**frames);
    chunks + size_of_val(&**plain_bytes) + size_of_val(&**deltas) + CONTAINER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::Level;

    fn section(first: u8, deltas: &[u8]) -> MetadataSection {
        let chunk = |number: u8| ChunkDescriptor {
            fingerprint: Fingerprint([number; 32]),
            length: 100,
            level: Level::DATA,
            frame: 0,
            offset: 0,
            payload_length: if deltas.contains(&number) { 10 } else { 100 },
        };
        let chunks = (first..first + 4).rev().map(chunk).collect();
        MetadataSection { chunks, ..MetadataSection::default() }
    }

    #[test]
    fn whole_chunks_are_told_from_deltas_and_from_what_is_not_there() {
        let mut known = KnownContainers::new(1 << 20);
        let [one, other] = [1, 2].map(|byte| ContainerId([byte; 16]));
        known.note(one, &section(10, &[12]));
        let holds = |known: &mut KnownContainers, id, byte| {
            known.frame_of(id, &Fingerprint([byte; 32])).map(|frame| frame.is_some())
        };
        for (byte, held) in [(9, false), (10, true), (11, true), (12, false), (13, true)] {
            assert_eq!(holds(&mut known, one, byte), Some(held), "{byte}");
            assert_eq!(holds(&mut known, other, byte), None);
        }
    }

    #[test]
    fn what_was_of_use_longest_ago_goes_where_one_more_would_be_too_much() {
        let each = 4 * 18 + CONTAINER_BYTES;
        let mut known = KnownContainers::new(3 * each);
        let id = |byte| ContainerId([byte; 16]);
        (0..3).for_each(|byte| known.note(id(byte), &section(byte * 4, &[])));
        assert!(known.frame_of(id(0), &Fingerprint([0; 32])).is_some());
        known.note(id(3), &section(12, &[]));
        let is_known = |known: &mut KnownContainers, byte: u8| {
            known.frame_of(id(byte), &Fingerprint([byte * 4; 32])).is_some()
        };
        assert_eq!([0, 1, 2, 3].map(|byte| is_known(&mut known, byte)), [true, false, true, true]);
        // One that is larger than all the room is kept alone.
        let mut small = KnownContainers::new(1);
        (0..2).for_each(|byte| small.note(id(byte), &section(byte * 4, &[])));
        assert_eq!([0, 1].map(|byte| is_known(&mut small, byte)), [false, true]);
    }
}
