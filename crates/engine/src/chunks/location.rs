//! Where a chunk lies: its container, and its position in that container's section.

use onefold_format::container::{ChunkDescriptor, MetadataSection};
use onefold_types::ContainerId;
use std::sync::Arc;

/// Where a chunk was found.
#[derive(Clone, Debug)]
pub struct Location {
    /// The container.
    pub container: ContainerId,
    /// Its section.
    pub section: Arc<MetadataSection>,
    /// The chunk's position in the section.
    pub position: u32,
}

impl Location {
    /// The chunk's descriptor.
    #[must_use]
    pub fn descriptor(&self) -> &ChunkDescriptor {
        &self.section.chunks[self.position as usize]
    }
}
