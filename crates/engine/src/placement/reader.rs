//! Reads placements: the runs of any stretch of a snapshot's chunks.
//!
//! One page is held at a time, so reading on costs a page's read every few thousand runs, and
//! reading elsewhere costs one. Whatever is wrong with a placement makes it silent, never wrong:
//! what cannot be read has no known container.
//!
//! Nodes are read through the chunk reader of whoever asks. A page takes the room of one frame in
//! the caches, every few thousand runs.

use super::unit::Unit;
use crate::chunks::{ChunkReader, Location};
use crate::container::FrameId;
use onefold_format::node::{
    Entry, Node, PlacementMap, PlacementPage, PlacementPart, Reference, UseOfContainer,
};
use onefold_policy::rewrite::{ContainerUse, Usage};
use onefold_types::{ContainerId, Error, Fingerprint, Result};
use std::collections::HashSet;

/// Containers whose use is remembered, at most.
pub const USES_MAX: usize = 1 << 18;

/// An item of a snapshot whose placement is known: where to look first when it is restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacedItem {
    /// The snapshot's placement.
    pub placement: Reference,
    /// The place of the item's first chunk in the snapshot.
    pub first_chunk: u64,
}

/// Says where the chunks of an item are likely to be, or nothing.
pub struct Guide(Option<PlacementReader>);

impl Guide {
    /// A guide to an item; without a readable placement it knows nothing.
    #[must_use]
    pub fn new(nodes: &ChunkReader, item: Option<PlacedItem>) -> Self {
        Self(item.and_then(|item| PlacementReader::open(nodes, item.placement).ok()))
    }

    /// Where a chunk is, and whether the placement knew: it is asked first if the chunk's place in
    /// the snapshot is known, and then the index.
    ///
    /// Errors: `Damaged` if no readable container holds it.
    pub fn locate(
        &mut self,
        nodes: &ChunkReader,
        place: Option<u64>,
        fingerprint: &Fingerprint,
    ) -> Result<(Location, bool)> {
        if let Some(container) = place.and_then(|place| self.container_at(nodes, place))
            && let Some(location) = nodes.locate_in(container, fingerprint)?
        {
            return Ok((location, true));
        }
        Ok((nodes.locate(fingerprint)?, false))
    }

    /// Reads the metadata sections that the chunks of an item are likely to be found by, several at
    /// once and as many as are kept; `locate` asks for them one by one. What cannot be read it
    /// meets again.
    pub fn read_sections(
        &self,
        nodes: &ChunkReader,
        (placed, item): (PlacedItem, &Entry),
        threads: usize,
    ) {
        let Some(mut placement) = self.0.clone() else { return };
        // A snapshot's root does not say how many chunks are below it.
        let chunks = match item.chunks.saturating_add(item.totals.chunks) {
            0 if placed.first_chunk == 0 => placement.chunks(),
            chunks => chunks,
        };
        let kept = nodes.sections_kept();
        let (mut containers, mut met) = (Vec::new(), HashSet::new());
        placement.runs(nodes, placed.first_chunk, chunks, &mut |run| {
            let container = run.container.filter(|id| containers.len() < kept && met.insert(*id));
            containers.extend(container);
        });
        nodes.read_sections(&containers, threads);
    }

    /// The container that held the chunk at this place of the snapshot.
    fn container_at(&mut self, nodes: &ChunkReader, place: u64) -> Option<ContainerId> {
        match self.0.as_mut()?.run_at(nodes, place) {
            Ok(run) => run?.container,
            Err(_) => {
                self.0 = None;
                None
            }
        }
    }
}

/// Neighbouring chunks in one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The container; `None`: not known.
    pub container: Option<ContainerId>,
    /// The frame's number in it.
    pub frame: u16,
    /// How many chunks.
    pub chunks: u64,
    /// Their plain bytes.
    pub bytes: u64,
}

/// Reads one snapshot's placement.
#[derive(Clone)]
pub struct PlacementReader {
    map: PlacementMap,
    /// The first chunk of each page, and the number of all chunks.
    starts: Vec<u64>,
    /// The page held, its number, the run last asked for, and that run's first chunk.
    page: PlacementPage,
    number: Option<usize>,
    run: usize,
    run_start: u64,
}

impl PlacementReader {
    /// Opens a placement.
    ///
    /// Errors: it cannot be read, or is none.
    pub fn open(nodes: &ChunkReader, placement: Reference) -> Result<Self> {
        let bytes = nodes.read_advice(&placement.fingerprint)?;
        let Node::PlacementMap(map) = Node::decode(&bytes)? else {
            return Err(Error::damaged("a snapshot's placement is none"));
        };
        let mut starts = Vec::with_capacity(map.parts.len() + 1);
        let mut start = 0u64;
        for part in &map.parts {
            starts.push(start);
            start = start.saturating_add(part.chunks);
        }
        starts.push(start);
        let page = PlacementPage::default();
        Ok(Self { map, starts, page, number: None, run: 0, run_start: 0 })
    }

    /// Chunks that the placement covers.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The rest of the run that the chunk at `place` of the tree is in; `None` behind the end.
    pub fn run_at(&mut self, nodes: &ChunkReader, place: u64) -> Result<Option<Run>> {
        if place >= self.chunks() {
            return Ok(None);
        }
        let number = self.starts.partition_point(|start| *start <= place) - 1;
        if self.number != Some(number) {
            self.load(nodes, number)?;
        }
        if place < self.run_start {
            (self.run, self.run_start) = (0, self.starts[number]);
        }
        while let Some(run) = self.page.runs.get(self.run) {
            let end = self.run_start.saturating_add(run.chunks);
            if place < end {
                let chunks = end - place;
                let bytes = u128::from(run.bytes) * u128::from(chunks) / u128::from(run.chunks);
                let container =
                    run.container.and_then(|at| self.page.containers.get(at as usize).copied());
                let (frame, bytes) = (run.frame, bytes as u64);
                return Ok(Some(Run { container, frame, chunks, bytes }));
            }
            self.run += 1;
            self.run_start = end;
        }
        Err(Error::damaged("a page of a placement is shorter than its map says"))
    }

    /// Calls `each` with the runs of `chunks` chunks from `place` on; what is not covered has no
    /// known container.
    pub fn runs(
        &mut self,
        nodes: &ChunkReader,
        place: u64,
        chunks: u64,
        each: &mut dyn FnMut(Run),
    ) {
        let (mut place, mut left) = (place, chunks);
        while left > 0 {
            let Ok(Some(mut run)) = self.run_at(nodes, place) else {
                return each(Run { container: None, frame: 0, chunks: left, bytes: 0 });
            };
            if run.chunks > left {
                run.bytes =
                    (u128::from(run.bytes) * u128::from(left) / u128::from(run.chunks)) as u64;
                run.chunks = left;
            }
            each(run);
            place += run.chunks;
            left -= run.chunks;
        }
    }

    /// How the snapshot used each frame or container, by [`Unit::id_of`].
    pub fn uses(&self, nodes: &ChunkReader, unit: Unit) -> Result<ContainerUse> {
        let [uses] = self.uses_by(nodes, [unit])?;
        Ok(uses)
    }

    /// The same by several units, read once.
    pub fn uses_by<const N: usize>(
        &self,
        nodes: &ChunkReader,
        units: [Unit; N],
    ) -> Result<[ContainerUse; N]> {
        let mut all = units.map(|_| ContainerUse::new());
        self.each_use(nodes, &mut |one| {
            for (uses, unit) in all.iter_mut().zip(units) {
                add_use(uses, unit, one);
            }
        })?;
        Ok(all)
    }

    /// Calls `each` with what was recorded of every frame.
    pub fn each_use(
        &self,
        nodes: &ChunkReader,
        each: &mut dyn FnMut(&UseOfContainer),
    ) -> Result<()> {
        for reference in &self.map.uses {
            let bytes = nodes.read_advice(&reference.fingerprint)?;
            let Node::ContainerUses(node) = Node::decode(&bytes)? else {
                return Err(Error::damaged("part of a snapshot's placement is of another kind"));
            };
            node.containers.iter().for_each(&mut *each);
        }
        Ok(())
    }

    fn load(&mut self, nodes: &ChunkReader, number: usize) -> Result<()> {
        let PlacementPart { page, .. } = self.map.parts[number];
        let bytes = nodes.read_advice(&page.fingerprint)?;
        let Node::PlacementPage(page) = Node::decode(&bytes)? else {
            return Err(Error::damaged("part of a snapshot's placement is of another kind"));
        };
        if page.runs.iter().any(|run| run.chunks == 0) {
            return Err(Error::damaged("a placement holds a run of nothing"));
        }
        self.page = page;
        self.number = Some(number);
        (self.run, self.run_start) = (0, self.starts[number]);
        Ok(())
    }
}

/// Adds the use of a frame, unless there are as many already as are remembered.
fn add_use(uses: &mut ContainerUse, unit: Unit, one: &UseOfContainer) {
    if uses.len() >= USES_MAX {
        return;
    }
    let name = unit.id_of(FrameId { container: one.container, frame: one.frame });
    // Of a container several frames add up.
    let known = uses.get(&name).unwrap_or_default();
    let usage = Usage {
        referred_bytes: known.referred_bytes.saturating_add(one.referred_bytes),
        payload_bytes: known.payload_bytes.saturating_add(one.payload_bytes),
        spans: known.spans.max(one.spans),
    };
    uses.insert(name, usage);
    for base in &one.rests_on {
        let base_unit = unit.id_of(FrameId { container: base.container, frame: base.frame });
        let has_room = uses.len() < USES_MAX || uses.get(&base_unit).is_some();
        if base_unit != name && has_room {
            uses.rest_on(base_unit, base.bytes);
        }
    }
}
