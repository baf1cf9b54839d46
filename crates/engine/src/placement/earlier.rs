//! The placement of the snapshot before, as a backup uses it.
//!
//! A backup asks it twice: rewriting wants to know how frames were used, before the first chunk;
//! recording takes over the runs of files kept unread, until the last. The uses are read once.

use super::reader::{PlacementReader, Run};
use super::unit::Unit;
use crate::chunks::ChunkReader;
use crate::container::FrameId;
use crate::repository::Repository;
use onefold_format::node::Reference;
use onefold_policy::rewrite::ContainerUse;
use onefold_types::Result;
use std::collections::BTreeSet;
use std::sync::Arc;

/// An earlier snapshot's placement, with what reads it.
pub struct EarlierPlacement {
    nodes: ChunkReader,
    placement: PlacementReader,
    /// How it used each frame, once that was read.
    frame_uses: Option<Arc<ContainerUse>>,
}

impl EarlierPlacement {
    /// Opens a placement.
    ///
    /// Errors: it cannot be read, or is none.
    pub fn open(repository: &Arc<Repository>, placement: Reference) -> Result<Self> {
        let nodes = ChunkReader::open(repository)?;
        let placement = PlacementReader::open(&nodes, placement)?;
        Ok(Self { nodes, placement, frame_uses: None })
    }

    /// How the snapshot used each frame or container. The uses of frames are remembered with it.
    pub fn uses(&mut self, unit: Unit) -> Result<Arc<ContainerUse>> {
        if unit == Unit::Frame
            && let Some(known) = &self.frame_uses
        {
            return Ok(Arc::clone(known));
        }
        let Self { nodes, placement, .. } = self;
        let (frames, wanted) = match unit {
            Unit::Frame => {
                let frames = Arc::new(placement.uses(nodes, unit)?);
                (Arc::clone(&frames), frames)
            }
            Unit::Container => {
                let [frames, containers] = placement.uses_by(nodes, [Unit::Frame, unit])?;
                (Arc::new(frames), Arc::new(containers))
            }
        };
        self.frame_uses = Some(frames);
        Ok(wanted)
    }

    /// Calls `each` with every two frames of which the first rests on the second, and the bytes of
    /// the differences.
    pub fn resting(&self, each: &mut dyn FnMut(FrameId, FrameId, u64)) -> Result<()> {
        self.placement.each_use(&self.nodes, &mut |one| {
            let of = FrameId { container: one.container, frame: one.frame };
            for base in &one.rests_on {
                each(of, FrameId { container: base.container, frame: base.frame }, base.bytes);
            }
        })
    }

    /// The frames that rest on such ones as `is_base` names.
    pub fn resting_on(&self, is_base: &dyn Fn(FrameId) -> bool) -> Result<BTreeSet<FrameId>> {
        let mut resting = BTreeSet::new();
        self.resting(&mut |of, base, _| {
            if is_base(base) {
                resting.insert(of);
            }
        })?;
        Ok(resting)
    }

    /// The placement for somebody who has a reader of nodes already.
    #[must_use]
    pub fn reader(&self) -> PlacementReader {
        self.placement.clone()
    }

    /// Calls `each` with the runs of `chunks` chunks from `place` on.
    pub fn runs(&mut self, place: u64, chunks: u64, each: &mut dyn FnMut(Run)) {
        self.placement.runs(&self.nodes, place, chunks, each);
    }
}
