//! Frames of containers: how one is named, and which chunks are in it.

use onefold_format::container::{FrameDescriptor, MetadataSection};
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
    /// Its plain bytes.
    pub plain_bytes: u32,
}

/// The frames of a container.
#[must_use]
pub fn frames_of(section: &MetadataSection) -> Box<[FrameExtent]> {
    let mut first = 0;
    let extent = |(number, frame): (usize, &FrameDescriptor)| {
        let chunks = &section.chunks[first as usize..];
        let extent = FrameExtent { first, plain_bytes: frame.plain_length };
        first += chunks.iter().take_while(|chunk| chunk.frame as usize == number).count() as u32;
        extent
    };
    section.frames.iter().enumerate().map(extent).collect()
}
