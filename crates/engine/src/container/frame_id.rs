//! Frames of containers: how one is named, and which chunks are in it.

use onefold_format::container::MetadataSection;
use onefold_types::ContainerId;

/// A frame of a container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FrameId {
    /// The container.
    pub container: ContainerId,
    /// The frame's number in it.
    pub frame: u16,
}

/// A frame of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameExtent {
    /// The position of its first chunk in the metadata section.
    pub first: u32,
    /// The bytes of its chunks.
    pub plain_bytes: u32,
}

/// The frames of a container.
#[must_use]
pub fn frames_of(section: &MetadataSection) -> Box<[FrameExtent]> {
    let mut first = 0;
    let extent = |number: usize| {
        let chunks = &section.chunks[first as usize..];
        let own = chunks.iter().take_while(|chunk| chunk.frame as usize == number);
        // What a hostile section says of deltas may be more than any number.
        let plain_bytes = own.clone().fold(0u32, |sum, chunk| sum.saturating_add(chunk.length));
        let extent = FrameExtent { first, plain_bytes };
        first += own.count() as u32;
        extent
    };
    (0..section.frames.len()).map(extent).collect()
}
