//! A chunk that was read and verified, lying in the frame that it was read with.
//!
//! Nothing is copied: the frame stays as long as one of its chunks is held, whatever the caches
//! keep.

use super::Location;
use crate::container::verify;
use onefold_crypto::Fingerprinter;
use onefold_format::container::ChunkDescriptor;
use onefold_types::{ContainerId, Level, Result};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The bytes of a chunk, verified by name.
#[derive(Clone)]
pub struct Chunk {
    plain: Arc<Vec<u8>>,
    range: Range<usize>,
    container: ContainerId,
    frame: u32,
    /// Its height in the forest.
    pub level: Level,
}

impl Chunk {
    /// The chunk of a location, out of its frame.
    ///
    /// Errors: `Damaged` if it is not what it is named by.
    pub fn verified(
        location: &Location,
        plain: Arc<Vec<u8>>,
        fingerprinter: &Fingerprinter,
    ) -> Result<Self> {
        verify::chunk(&plain, location.descriptor(), fingerprinter)?;
        Ok(Self::of(location.container, location.descriptor(), plain))
    }

    /// Some chunks out of one frame, verified together, which costs a fraction of doing it one by
    /// one.
    ///
    /// Errors: `Damaged` if one of them is not what it is named by.
    pub fn all_verified(
        container: ContainerId,
        chunks: &[ChunkDescriptor],
        plain: &Arc<Vec<u8>>,
        fingerprinter: &Fingerprinter,
    ) -> Result<Vec<Self>> {
        verify::all(plain, chunks.iter().copied(), fingerprinter)?;
        Ok(chunks.iter().map(|chunk| Self::of(container, chunk, Arc::clone(plain))).collect())
    }

    fn of(container: ContainerId, chunk: &ChunkDescriptor, plain: Arc<Vec<u8>>) -> Self {
        let start = chunk.offset as usize;
        let range = start..start + chunk.length as usize;
        Self { plain, range, container, frame: chunk.frame, level: chunk.level }
    }

    /// The plain bytes of its frame, if that is the one which holds what is looked for.
    #[must_use]
    pub fn frame_of(&self, location: &Location) -> Option<&Arc<Vec<u8>>> {
        let is_same =
            self.container == location.container && self.frame == location.descriptor().frame;
        is_same.then_some(&self.plain)
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, frame, range, .. } = self;
        write!(formatter, "chunk at {range:?} of frame {frame} of container {container}")
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.plain[self.range.clone()]
    }
}
