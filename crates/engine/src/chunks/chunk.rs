//! A chunk that was read and verified, lying in the frame that it was read with.
//!
//! Nothing is copied: the frame stays as long as one of its chunks is held, whatever the caches
//! keep. A chunk that is stored as a delta lies alone in bytes that were made of it.

use super::{Location, ReadFrame};
use onefold_crypto::Fingerprinter;
use onefold_format::container::ChunkDescriptor;
use onefold_types::{ContainerId, Level, Result};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The bytes of a chunk, verified by name.
#[derive(Clone)]
pub struct Chunk {
    plain: Arc<ReadFrame>,
    range: Range<usize>,
    container: ContainerId,
    /// `None` if it was made of a delta.
    frame: Option<u32>,
    /// Its height in the forest.
    pub level: Level,
}

impl Chunk {
    /// The chunk of a location, out of its frame.
    ///
    /// Errors: `Damaged` if it is not what it is named by.
    pub fn verified(
        location: &Location,
        plain: Arc<ReadFrame>,
        fingerprinter: &Fingerprinter,
    ) -> Result<Self> {
        plain.verify(std::slice::from_ref(location.descriptor()), fingerprinter)?;
        Ok(Self::of(location.container, location.descriptor(), plain))
    }

    /// Some chunks out of one frame, verified together, which costs a fraction of doing it one by
    /// one.
    ///
    /// Errors: `Damaged` if one of them is not what it is named by.
    pub fn all_verified(
        container: ContainerId,
        chunks: &[ChunkDescriptor],
        plain: &Arc<ReadFrame>,
        fingerprinter: &Fingerprinter,
    ) -> Result<Vec<Self>> {
        plain.verify(chunks, fingerprinter)?;
        Ok(chunks.iter().map(|chunk| Self::of(container, chunk, Arc::clone(plain))).collect())
    }

    /// A chunk that was made of a delta, and verified.
    #[must_use]
    pub fn made(container: ContainerId, whole: Arc<ReadFrame>) -> Self {
        let range = 0..whole.bytes().len();
        Self { plain: whole, range, container, frame: None, level: Level::DATA }
    }

    fn of(container: ContainerId, chunk: &ChunkDescriptor, plain: Arc<ReadFrame>) -> Self {
        let start = chunk.offset as usize;
        let range = start..start + chunk.length as usize;
        Self { plain, range, container, frame: Some(chunk.frame), level: chunk.level }
    }

    /// The container that it was read from.
    #[must_use]
    pub fn container(&self) -> ContainerId {
        self.container
    }

    /// The plain bytes of its frame, if that is the one which holds what is looked for.
    #[must_use]
    pub fn frame_of(&self, location: &Location) -> Option<&Arc<ReadFrame>> {
        self.frame_by_number(location.container, location.descriptor().frame)
    }

    /// The frame that it lies in, if that is the one of a container and a number.
    #[must_use]
    pub fn frame_by_number(&self, container: ContainerId, frame: u32) -> Option<&Arc<ReadFrame>> {
        (self.container == container && self.frame == Some(frame)).then_some(&self.plain)
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, frame, range, .. } = self;
        match frame {
            Some(frame) => write!(formatter, "chunk at {range:?} of frame {frame} of ")?,
            None => write!(formatter, "delta of {} bytes in ", range.len())?,
        }
        write!(formatter, "container {container}")
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.plain.bytes()[self.range.clone()]
    }
}
