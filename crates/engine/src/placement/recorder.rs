//! Records a placement while a backup runs.
//!
//! Chunks are put in stream order, but rewriting decides late and out of order, and the tree takes
//! them only when their file turned out readable. So each chunk of the stream has a place in a
//! queue, by its ticket; it leaves the front once its container is known *and* its file is part of
//! the tree. Stretches of the parent's placement (files kept unread) stand in between.
//!
//! What chunks are differences against is read with them, so it is recorded which frames rest on
//! which others ([`super::resting`]): the session knows it of what it has stored and found. Of
//! files kept unread the parent's placement says it, for as long as one is left in a frame.
//!
//! Memory: the queue holds what is undecided or of unfinished files, up to a million chunks; a
//! file that is longer is taken to be readable. If it then is not, the placement ends there. Pages
//! are written as they fill; of each frame and container a record is kept, some 150 bytes together,
//! for at most [`USES_MAX`] of either.

use super::earlier::EarlierPlacement;
use super::reader::{Run, USES_MAX};
use super::resting::{BASES_MAX, Resting};
use super::unit::Unit;
use crate::container::FrameId;
use onefold_format::node::{
    BaseFrame, ContainerUses, Node, PlacementMap, PlacementPage, PlacementPart, PlacementRun,
    Reference, UseOfContainer,
};
use onefold_policy::rewrite::{ContainerUse, UnitId, Usage};
use onefold_types::{ContainerId, Level, Result, limits};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

/// Chunks that may wait.
const QUEUE_MAX: usize = 1 << 20;
/// Runs in a page: at least, at most, and one run in so many behind the least ends it. Pages are
/// cut where their content says so, or one run more would make all pages behind it new.
const PAGE_RUNS_MIN: usize = 512;
const PAGE_RUNS_MAX: usize = 4096;
const PAGE_CUT_ONE_IN: u32 = 512;
/// The same for frames in a node of uses.
const USES_MIN: usize = 256;
const USES_IN_NODE_MAX: usize = 2048;
const USES_CUT_ONE_IN: u32 = 256;
/// Frames that the frames of a node rest on: with so many it ends.
pub const BASES_IN_NODE_MAX: usize = 1 << 13;

/// Pages of a placement: a larger tree has none from there on, and its index is asked.
const PARTS_MAX: usize = 20_000;

// No node can exceed what a reader takes: so many items, of at most so many bytes each.
const _: () = assert!(PAGE_RUNS_MAX * (16 + 28) + 20 <= limits::NODE_MAX_BYTES);
const _: () = assert!(
    USES_IN_NODE_MAX * 47 + (BASES_IN_NODE_MAX + BASES_MAX) * 34 + 20 <= limits::NODE_MAX_BYTES
);
const _: () =
    assert!(PARTS_MAX * 45 + (USES_MAX / USES_MIN + 1) * 35 + 20 <= limits::NODE_MAX_BYTES);

/// Stores a node of the placement.
pub type PutNode<'a> = dyn FnMut(Level, &Node) -> Result<onefold_types::Fingerprint> + 'a;

/// A finished placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordedPlacement {
    /// The map; `None` if nothing was recorded.
    pub placement: Option<Reference>,
    /// Containers that hold the chunks.
    pub containers: u64,
    /// Reads of containers, with 32 MiB of memory, about.
    pub container_reads: u64,
}

/// A chunk of the stream on its way.
#[derive(Clone, Copy, Debug)]
struct Slot {
    size_bytes: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Undecided,
    In(FrameId),
    Unknown,
    /// Not part of the tree.
    Dropped,
}

/// A stretch of the parent's placement that stands before a chunk of the stream.
#[derive(Clone, Copy, Debug)]
struct Kept {
    before: u64,
    place: Option<u64>,
    chunks: u64,
}

/// The placement of one stream's tree.
pub struct PlacementRecorder {
    parent: Option<EarlierPlacement>,
    queue: VecDeque<Slot>,
    /// The ticket of the front of the queue.
    front: u64,
    /// Chunks below this ticket are part of the tree or dropped.
    confirmed: u64,
    kept: VecDeque<Kept>,
    page: PlacementPage,
    page_chunks: u64,
    ordinals: HashMap<ContainerId, u32>,
    map: PlacementMap,
    /// How containers are used, and how frames are: the latter by their names, with what these
    /// stand for.
    uses: ContainerUse,
    frame_uses: ContainerUse,
    frames: HashMap<UnitId, FrameId>,
    /// Frames that files kept unread refer to.
    kept_frames: BTreeSet<UnitId>,
    /// Whether something is missing from here on.
    ended: bool,
}

impl PlacementRecorder {
    /// Nothing recorded. Kept files are looked up in the parent's placement.
    #[must_use]
    pub fn new(parent: Option<EarlierPlacement>) -> Self {
        Self {
            parent,
            queue: VecDeque::new(),
            front: 0,
            confirmed: 0,
            kept: VecDeque::new(),
            page: PlacementPage::default(),
            page_chunks: 0,
            ordinals: HashMap::new(),
            map: PlacementMap::default(),
            uses: ContainerUse::new(),
            frame_uses: ContainerUse::new(),
            frames: HashMap::new(),
            kept_frames: BTreeSet::new(),
            ended: false,
        }
    }

    /// The next chunk of the stream, under the next ticket.
    pub fn expect(&mut self, size_bytes: u32) {
        self.queue.push_back(Slot { size_bytes, state: State::Undecided });
    }

    /// Where a chunk lies.
    pub fn place(&mut self, ticket: u64, frame: Option<FrameId>) {
        let state = frame.map_or(State::Unknown, State::In);
        if let Some(slot) = self.slot(ticket)
            && slot.state == State::Undecided
        {
            slot.state = state;
        }
    }

    /// All chunks below the ticket that were not dropped are part of the tree.
    pub fn confirm(&mut self, ticket: u64) {
        self.confirmed = self.confirmed.max(ticket);
    }

    /// These chunks are not part of the tree: their file could not be read to its end.
    pub fn discard(&mut self, tickets: Range<u64>) {
        if tickets.start < self.front && tickets.start < tickets.end {
            self.ended = true;
        }
        for ticket in tickets.start.max(self.front)..tickets.end {
            if let Some(slot) = self.slot(ticket) {
                slot.state = State::Dropped;
            }
        }
        self.confirm(tickets.end);
    }

    /// A file of so many chunks was kept unread: it stands in the parent's tree from `place` on.
    pub fn keep(&mut self, before: u64, place: Option<u64>, chunks: u64) {
        if chunks == 0 {
            return;
        }
        if let Some(last) = self.kept.back_mut()
            && last.before == before
            && last.place.map(|start| start + last.chunks) == place
        {
            last.chunks += chunks;
            return;
        }
        self.kept.push_back(Kept { before, place, chunks });
    }

    /// Takes what is decided and confirmed from the front; full pages are stored.
    pub fn advance(&mut self, put: &mut PutNode<'_>) -> Result<()> {
        loop {
            if let Some(kept) = self.kept.front()
                && kept.before <= self.front
            {
                let kept = *kept;
                self.kept.pop_front();
                self.take_over(kept, put)?;
                continue;
            }
            let takes = self.front < self.confirmed || self.queue.len() > QUEUE_MAX;
            let Some(slot) = self.queue.front().filter(|_| takes).copied() else {
                return Ok(());
            };
            let (chunks, bytes) = (1, u64::from(slot.size_bytes));
            match slot.state {
                State::Undecided => return Ok(()),
                State::Dropped => {}
                State::Unknown => {
                    self.append(Run { container: None, frame: 0, chunks, bytes }, put)?;
                }
                State::In(FrameId { container, frame }) => {
                    self.append(Run { container: Some(container), frame, chunks, bytes }, put)?;
                }
            }
            self.queue.pop_front();
            self.front += 1;
        }
    }

    /// Stores the rest. What is still undecided has no known container. `resting` is what the
    /// frames rest on in which the session has stored or found differences, also those of files
    /// that turned out to be unreadable; `payload_bytes` says what a frame holds, where that is
    /// known.
    pub fn finish(
        mut self,
        mut resting: Resting,
        payload_bytes: &dyn Fn(&FrameId) -> u64,
        put: &mut PutNode<'_>,
    ) -> Result<RecordedPlacement> {
        for slot in &mut self.queue {
            if slot.state == State::Undecided {
                slot.state = State::Unknown;
            }
        }
        self.confirmed = u64::MAX;
        self.advance(put)?;
        for kept in std::mem::take(&mut self.kept) {
            self.take_over(kept, put)?;
        }
        self.close_page(put)?;
        if self.map.parts.is_empty() {
            return Ok(RecordedPlacement::default());
        }
        let mut recorded = RecordedPlacement::default();
        self.note_bases(&mut resting);
        // Of frames that only kept files refer to, the parent's placement knows.
        let before = self.parent.as_mut().and_then(|parent| parent.uses(Unit::Frame).ok());
        let payload_of = |name: &UnitId, frame: &FrameId| match payload_bytes(frame) {
            0 => before.as_ref().and_then(|uses| uses.get(name)).map_or(0, |it| it.payload_bytes),
            known => known,
        };
        let all: Vec<UseOfContainer> = self
            .frame_uses
            .iter()
            .filter_map(|(name, usage)| {
                let frame = self.frames.get(&name)?;
                Some(UseOfContainer {
                    container: frame.container,
                    frame: frame.frame,
                    referred_bytes: usage.referred_bytes,
                    payload_bytes: payload_of(&name, frame),
                    spans: usage.spans,
                    rests_on: bases_of(resting.of(frame)),
                })
            })
            .collect();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let (containers, after) = rest.split_at(uses_in_node(rest));
            rest = after;
            let node = Node::ContainerUses(ContainerUses { containers: containers.to_vec() });
            let fingerprint = put(Level(1), &node)?;
            self.map.uses.push(Reference { fingerprint, level: Level(1) });
        }
        recorded.containers = self.uses.len() as u64;
        recorded.container_reads = self.uses.iter().map(|(_, one)| u64::from(one.spans)).sum();
        let map = Node::PlacementMap(std::mem::take(&mut self.map));
        let fingerprint = put(Level(2), &map)?;
        recorded.placement = Some(Reference { fingerprint, level: Level(2) });
        Ok(recorded)
    }

    fn slot(&mut self, ticket: u64) -> Option<&mut Slot> {
        let at = usize::try_from(ticket.checked_sub(self.front)?).ok()?;
        self.queue.get_mut(at)
    }

    fn take_over(&mut self, kept: Kept, put: &mut PutNode<'_>) -> Result<()> {
        let Kept { place, chunks, .. } = kept;
        let Some(place) = place else {
            return self.append(Run { container: None, frame: 0, chunks, bytes: 0 }, put);
        };
        let Some(mut parent) = self.parent.take() else {
            return self.append(Run { container: None, frame: 0, chunks, bytes: 0 }, put);
        };
        let mut result = Ok(());
        parent.runs(place, chunks, &mut |run| {
            if let Some(container) = run.container.filter(|_| self.kept_frames.len() < USES_MAX) {
                self.kept_frames.insert(Unit::Frame.id_of(FrameId { container, frame: run.frame }));
            }
            if result.is_ok() {
                result = self.append(run, put);
            }
        });
        self.parent = Some(parent);
        result
    }

    fn append(&mut self, run: Run, put: &mut PutNode<'_>) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        if let Some(container) = run.container {
            self.note_use(FrameId { container, frame: run.frame }, run.bytes);
        }
        if self.ends_page(&run) {
            self.close_page(put)?;
            if self.ended {
                return Ok(());
            }
        }
        let container = run.container.map(|container| {
            let next = self.page.containers.len() as u32;
            let ordinal = *self.ordinals.entry(container).or_insert(next);
            if ordinal == next {
                self.page.containers.push(container);
            }
            ordinal
        });
        self.page_chunks += run.chunks;
        match self.page.runs.last_mut() {
            Some(last) if last.container == container && last.frame == run.frame => {
                last.chunks += run.chunks;
                last.bytes = last.bytes.saturating_add(run.bytes);
            }
            _ => self.page.runs.push(PlacementRun {
                container,
                frame: run.frame,
                chunks: run.chunks,
                bytes: run.bytes,
            }),
        }
        Ok(())
    }

    /// Whether the page ends before this run: the last one is complete, and is a cut.
    fn ends_page(&self, next: &Run) -> bool {
        let Some(last) = self.page.runs.last() else {
            return false;
        };
        let container =
            last.container.and_then(|ordinal| self.page.containers.get(ordinal as usize).copied());
        let goes_on = container == next.container && last.frame == next.frame;
        let runs = self.page.runs.len();
        let cuts = || {
            container.is_some_and(|container| {
                is_cut(FrameId { container, frame: last.frame }, PAGE_CUT_ONE_IN)
            })
        };
        !goes_on && (runs >= PAGE_RUNS_MAX || (runs >= PAGE_RUNS_MIN && cuts()))
    }

    fn note_use(&mut self, frame: FrameId, bytes: u64) {
        let container = Unit::Container.id_of(frame);
        let known = self.uses.get(&container).is_some();
        if known || self.uses.len() < USES_MAX {
            self.uses.refer_run(container, bytes);
        }
        if let Some(name) = self.used_frame(frame) {
            self.frame_uses.refer_run(name, bytes);
        }
    }

    /// The name of a frame whose use is recorded, unless there are too many.
    fn used_frame(&mut self, frame: FrameId) -> Option<UnitId> {
        let name = Unit::Frame.id_of(frame);
        let is_recorded = self.frames.contains_key(&name) || self.frames.len() < USES_MAX;
        is_recorded.then(|| self.frames.entry(name).or_insert(frame));
        is_recorded.then_some(name)
    }

    /// Frames that files kept unread refer to rest on what they did in the parent, though it may be
    /// other files whose chunks do. Bases get a record of their own, though nothing may refer to
    /// them.
    fn note_bases(&mut self, resting: &mut Resting) {
        let Self { parent, kept_frames, .. } = self;
        if let Some(parent) = parent.as_ref().filter(|_| !kept_frames.is_empty()) {
            let inherit = &mut |of: FrameId, base: FrameId, bytes: u64| {
                if kept_frames.contains(&Unit::Frame.id_of(of)) {
                    resting.add_known(of, base, bytes);
                }
            };
            // What cannot be read is advice that is not given.
            let _ = parent.resting(inherit);
        }
        let is_used = |of: &FrameId| self.frames.contains_key(&Unit::Frame.id_of(*of));
        let used = resting.iter().filter(|(of, _)| is_used(of));
        let bases: Vec<FrameId> =
            used.flat_map(|(_, bases)| bases.iter().map(|(base, _)| *base)).collect();
        for base in bases {
            if let Some(name) = self.used_frame(base)
                && self.frame_uses.get(&name).is_none()
            {
                self.frame_uses.insert(name, Usage::default());
            }
        }
    }

    fn close_page(&mut self, put: &mut PutNode<'_>) -> Result<()> {
        let page = std::mem::take(&mut self.page);
        self.ordinals.clear();
        let chunks = std::mem::take(&mut self.page_chunks);
        if chunks == 0 {
            return Ok(());
        }
        let fingerprint = put(Level(1), &Node::PlacementPage(page))?;
        let page = Reference { fingerprint, level: Level(1) };
        self.map.parts.push(PlacementPart { page, chunks });
        self.ended |= self.map.parts.len() >= PARTS_MAX;
        Ok(())
    }
}

/// The frames that one rests on, as they are stored: in an order.
fn bases_of(resting: &[(FrameId, u64)]) -> Vec<BaseFrame> {
    let base = |&(FrameId { container, frame }, bytes): &(FrameId, u64)| BaseFrame {
        container,
        frame,
        bytes,
    };
    let mut bases: Vec<BaseFrame> = resting.iter().map(base).collect();
    bases.sort_unstable_by_key(|base| (base.container, base.frame));
    bases
}

/// How many of these a node of uses holds, one at least.
fn uses_in_node(rest: &[UseOfContainer]) -> usize {
    let mut bases = 0;
    for (number, one) in rest.iter().enumerate() {
        bases += one.rests_on.len();
        let frame = FrameId { container: one.container, frame: one.frame };
        let is_cut = number >= USES_MIN && is_cut(frame, USES_CUT_ONE_IN);
        if is_cut || bases >= BASES_IN_NODE_MAX || number + 1 >= USES_IN_NODE_MAX {
            return number + 1;
        }
    }
    rest.len()
}

/// Whether a frame ends a node, one in so many: its container's name is random at its end.
fn is_cut(frame: FrameId, one_in: u32) -> bool {
    let [.., a, b, c, d] = frame.container.0;
    let mixed = u32::from_le_bytes([a, b, c, d]) ^ u32::from(frame.frame).wrapping_mul(0x9e37_79b9);
    mixed.is_multiple_of(one_in)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::Fingerprint;

    /// Puts nothing anywhere; a reader must take every node.
    fn taken(nodes: &mut Vec<Node>) -> impl FnMut(Level, &Node) -> Result<Fingerprint> + '_ {
        |_, node| {
            let bytes = node.encode();
            assert!(bytes.len() <= limits::NODE_MAX_BYTES);
            assert_eq!(&Node::decode(&bytes).unwrap(), node);
            nodes.push(node.clone());
            Ok(Fingerprint([255; 32]))
        }
    }

    #[test]
    fn r57_a_placement_ends_before_its_map_is_larger_than_its_reader_takes() {
        let mut recorder = PlacementRecorder::new(None);
        let page = Reference { fingerprint: Fingerprint([255; 32]), level: Level(u16::MAX) };
        let part = PlacementPart { page, chunks: u64::MAX >> 20 };
        recorder.map.parts = vec![part; PARTS_MAX - 1];
        let mut nodes = Vec::new();
        let runs = PAGE_RUNS_MAX as u64 * 3;
        for ticket in 0..runs {
            recorder.expect(1000);
            let container = ContainerId([ticket as u8; 16]);
            recorder.place(ticket, Some(FrameId { container, frame: ticket as u16 }));
        }
        recorder.confirm(runs);
        recorder.advance(&mut taken(&mut nodes)).unwrap();
        recorder.finish(Resting::default(), &|_| u64::MAX, &mut taken(&mut nodes)).unwrap();
        let Some(Node::PlacementMap(map)) = nodes.last() else { panic!("{nodes:?}") };
        assert_eq!(map.parts.len(), PARTS_MAX);
    }
}
