//! One stream on its way into the store. What becomes of each chunk is decided by
//! [`onefold_policy::stream`]; here are the stream's own open containers, and its placement.
//!
//! ```text
//! put_data ─▶ chunk stream ─▶ open container ─▶ placement
//! ```
//!
//! Concurrency: owned by its stream's thread; what streams share is behind the chunk store's lock,
//! taken once a batch.

use super::{ChunkBatch, ChunkStore};
use crate::container::FrameId;
use crate::container::open::OpenContainer;
use crate::placement::{PlacementRecorder, RecordedPlacement, Unit};
use crate::tree::NodeSink;
use onefold_format::node::Node;
use onefold_policy::rewrite::RewriteChoice;
use onefold_policy::stream::{Chunk, ChunkStream, ContainerPort, Instances};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Fingerprint, Level, Result, limits};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// One stream's writer.
pub struct StreamWriter {
    pub(super) store: Arc<ChunkStore>,
    data: OpenContainer,
    nodes: OpenContainer,
    chunks: ChunkStream<ChunkBatch, Unit>,
    /// What was appended since containers were closed last: that of the open one comes last.
    appended: Vec<(Fingerprint, FrameId)>,
    placement: Option<PlacementRecorder>,
    /// Of chunks that were handed in and not yet stored, by their rising tickets, what stands in
    /// their places in an earlier version.
    corresponding: VecDeque<(u64, Fingerprint)>,
}

impl StreamWriter {
    pub(super) fn new(store: Arc<ChunkStore>, streams: usize) -> Result<Self> {
        let candidates_bytes = store.repository.memory().rewrite_candidates_bytes;
        let chunk_bytes = store.repository.configuration().chunker.size_max_bytes;
        let rewrite = store.rewrite.share(streams, candidates_bytes, chunk_bytes);
        Ok(Self {
            data: OpenContainer::new(Arc::clone(&store.context)),
            nodes: OpenContainer::new(Arc::clone(&store.context)),
            chunks: ChunkStream::new(&store.lookup, rewrite)?,
            appended: Vec::new(),
            placement: None,
            corresponding: VecDeque::new(),
            store,
        })
    }

    /// Records where the stream's chunks lie from now on; before the first chunk.
    pub fn record_placement(&mut self, recorder: PlacementRecorder) {
        self.placement = Some(recorder);
    }

    /// Takes the next data chunks of the stream and stores those that are new, at once or when the
    /// look-up has decided. Buffers that are no longer needed go to `spare`. Returns the tickets of
    /// the chunks.
    pub fn put_data(
        &mut self,
        batch: ChunkBatch,
        spare: &mut dyn FnMut(Vec<u8>),
    ) -> Result<Range<u64>> {
        batch.expect_whole()?;
        self.give_way(&batch.fingerprints, spare)?;
        if let Some(placement) = &mut self.placement {
            batch.ranges.iter().for_each(|range| placement.expect(range.len() as u32));
        }
        let Self { store, chunks, appended, corresponding, .. } = self;
        let mut batch = batch;
        let known = std::mem::take(&mut batch.corresponding);
        let tickets = store.judge(|shared| {
            shared.note_closed(of_closed(appended));
            chunks.push(batch, shared)
        })?;
        let by_ticket = |(number, chunk)| (tickets.start + u64::from(number), chunk);
        corresponding.extend(known.into_iter().map(by_ticket));
        let ticket = chunks.ticket_to_fit(store.waiting_bytes_max);
        if ticket > 0 {
            store.judge(|shared| chunks.judge_below(ticket, shared))?;
        }
        self.release(spare)?;
        Ok(tickets)
    }

    /// Sends on what has a verdict.
    fn release(&mut self, spare: &mut dyn FnMut(Vec<u8>)) -> Result<()> {
        let Self { store, data, chunks, appended, placement, corresponding, .. } = self;
        let mut placing = Placing { store, data, appended, placement, corresponding };
        chunks.release(&mut placing, &mut |batch| spare(batch.buffer))
    }

    /// Decides all chunks that still wait and closes the container at hand: others want them.
    pub(super) fn let_go(&mut self, spare: &mut dyn FnMut(Vec<u8>)) -> Result<()> {
        let Self { store, chunks, .. } = self;
        store.judge(|shared| chunks.judge_below(u64::MAX, shared))?;
        self.release(spare)?;
        self.data.finish()
    }

    /// All chunks below the ticket that were not discarded are part of the tree.
    pub fn confirm(&mut self, ticket: u64) -> Result<()> {
        let Some(mut placement) = self.placement.take() else {
            return Ok(());
        };
        placement.confirm(ticket);
        let advanced = placement.advance(&mut |level, node| self.put_advice(level, node));
        self.placement = Some(placement);
        advanced
    }

    /// These chunks are not part of the tree.
    pub fn discard(&mut self, tickets: Range<u64>) {
        if let Some(placement) = &mut self.placement {
            placement.discard(tickets);
        }
    }

    /// A file of so many chunks that stands before a chunk of the stream was kept unread; `place`
    /// is where it stands in the parent's tree.
    pub fn keep(&mut self, before: u64, place: Option<u64>, chunks: u64) {
        if let Some(placement) = &mut self.placement {
            placement.keep(before, place, chunks);
        }
    }

    /// Stores the bytes of a tree node as they are, unless they are there already.
    pub fn put_node(&mut self, level: Level, bytes: &[u8]) -> Result<Fingerprint> {
        self.store_node(level, bytes, true, || Ok(()))
    }

    /// Stores a node of the placement, which is no part of what was backed up and not counted.
    fn put_advice(&mut self, level: Level, node: &Node) -> Result<Fingerprint> {
        let bytes = node.encode();
        self.store_node(level, &bytes, false, || read_back(level, node, &bytes))
    }

    fn store_node(
        &mut self,
        level: Level,
        bytes: &[u8],
        is_counted: bool,
        verify: impl FnOnce() -> Result<()>,
    ) -> Result<Fingerprint> {
        if bytes.len() > limits::NODE_MAX_BYTES || !level.is_node() {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("a tree node of {} bytes at level {} is impossible", bytes.len(), level.0),
            ));
        }
        let fingerprint = self.store.repository.fingerprinter().node(bytes);
        if is_counted {
            self.store.count_chunk();
        }
        if self.store.judge_one(&fingerprint)? {
            verify()?;
            if is_counted {
                self.store.count_new(bytes.len());
            }
            if !self.store.dry_run {
                self.nodes.append(fingerprint, level, bytes)?;
                self.store.count_appended(bytes.len());
            }
        } else if is_counted {
            self.store.count_known();
        }
        Ok(fingerprint)
    }

    /// Decides all chunks that still wait and closes the stream's containers.
    pub fn finish(mut self) -> Result<RecordedPlacement> {
        let Self { store, data, chunks, appended, placement, corresponding, .. } = &mut self;
        store.judge(|shared| chunks.judge_below(u64::MAX, shared))?;
        chunks.finish(&mut Placing { store, data, appended, placement, corresponding })?;
        store.note_end(chunks);
        self.data.finish()?;
        let recorded = match self.placement.take() {
            Some(placement) => {
                let resting = self.store.bases.take_resting();
                let payloads = self.data.take_payloads();
                let store = Arc::clone(&self.store);
                let payload = |frame: &FrameId| {
                    payloads.get(frame).copied().unwrap_or_else(|| store.payload_bytes(frame))
                };
                placement
                    .finish(resting, &payload, &mut |level, node| self.put_advice(level, node))?
            }
            None => RecordedPlacement::default(),
        };
        self.nodes.finish()?;
        Ok(recorded)
    }
}

impl NodeSink for StreamWriter {
    /// Unless it is there already. A new one is decoded from its bytes as a reader does, and
    /// compared, before it counts.
    fn put_tree_node(&mut self, level: Level, node: &Node) -> Result<Fingerprint> {
        let bytes = node.encode();
        self.store_node(level, &bytes, true, || read_back(level, node, &bytes))
    }
}

/// Fails unless the bytes of a node say what it says, to a reader as well.
fn read_back(level: Level, node: &Node, bytes: &[u8]) -> Result<()> {
    let what = || "a tree node that was to be stored";
    let again = Node::decode(bytes).context(what)?;
    let mut is_above_all = true;
    again.references(&mut |child| is_above_all &= child.level < level);
    match again == *node && is_above_all {
        true => Ok(()),
        false => Err(Error::damaged("it reads back otherwise than it was written").context(what())),
    }
}

/// Takes out what went into containers that are closed.
fn of_closed(
    appended: &mut Vec<(Fingerprint, FrameId)>,
) -> impl Iterator<Item = (Fingerprint, FrameId)> + '_ {
    let open = appended.last().map(|(_, frame)| frame.container);
    let closed = appended.partition_point(|(_, frame)| Some(frame.container) != open);
    appended.drain(..closed)
}

/// Where chunks go, new ones and those that are stored again.
struct Placing<'a> {
    store: &'a ChunkStore,
    data: &'a mut OpenContainer,
    appended: &'a mut Vec<(Fingerprint, FrameId)>,
    placement: &'a mut Option<PlacementRecorder>,
    corresponding: &'a mut VecDeque<(u64, Fingerprint)>,
}

impl Placing<'_> {
    /// What stands in the place of a chunk in an earlier version; chunks come in the order of their
    /// tickets.
    fn corresponding(&mut self, ticket: u64) -> Option<Fingerprint> {
        self.forget_before(ticket);
        let (of, chunk) = *self.corresponding.front()?;
        (of == ticket).then_some(chunk)
    }

    /// What stands in the places of chunks that were dealt with is needed no more.
    fn forget_before(&mut self, ticket: u64) {
        while self.corresponding.front().is_some_and(|(of, _)| *of < ticket) {
            self.corresponding.pop_front();
        }
    }

    fn append(
        &mut self,
        fingerprint: &Fingerprint,
        bytes: &[u8],
        append: impl FnOnce(&mut OpenContainer) -> Result<FrameId>,
    ) -> Result<Option<FrameId>> {
        if self.store.dry_run {
            return Ok(None);
        }
        let frame = append(self.data)?;
        self.store.count_appended(bytes.len());
        if self.store.rewrite.choice != RewriteChoice::None {
            self.appended.push((*fingerprint, frame));
        }
        Ok(Some(frame))
    }
}

impl ContainerPort<[u8], FrameId> for Placing<'_> {
    fn store(&mut self, chunk: &Chunk<'_, [u8]>) -> Result<Option<FrameId>> {
        let corresponding = self.corresponding(chunk.ticket);
        let (name, bytes) = (chunk.fingerprint, chunk.payload);
        self.append(name, bytes, |data| match corresponding {
            Some(other) => data.append_version(*name, bytes, other),
            None => data.append(*name, Level::DATA, bytes),
        })
    }

    fn store_again(&mut self, fingerprint: &Fingerprint, bytes: &[u8]) -> Result<Option<FrameId>> {
        if !self.store.claim(fingerprint) {
            return Ok(None);
        }
        self.store.count_rewritten(bytes.len());
        self.append(fingerprint, bytes, |data| data.append_again(*fingerprint, bytes))
    }

    fn others(
        &mut self,
        fingerprint: &Fingerprint,
        known: &Instances<FrameId>,
    ) -> Result<Vec<FrameId>> {
        self.store.others(fingerprint, known)
    }

    fn place(&mut self, ticket: u64, frame: Option<FrameId>) {
        self.forget_before(ticket);
        if let Some(placement) = self.placement {
            placement.place(ticket, frame);
        }
    }

    fn rest_on(&mut self, of: FrameId, base: FrameId, size_bytes: u32) {
        self.store.bases.rest_on(of, base, u64::from(size_bytes));
    }
}
