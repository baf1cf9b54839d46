//! One stream on its way into the store: chunks wait for their verdicts, new ones go to the
//! stream's own open containers, in stream order.
//!
//! Concurrency: owned by its stream's thread; what streams share is behind the chunk store's lock,
//! taken once a batch.

use super::waiting::{ChunkBatch, WaitingChunks};
use super::{ChunkStore, Decided};
use crate::container::open::OpenContainer;
use onefold_policy::lookup::StreamLookup;
use onefold_types::{Error, Fingerprint, Level, Result, limits};
use std::sync::Arc;

/// One stream's writer.
pub struct StreamWriter {
    store: Arc<ChunkStore>,
    data: OpenContainer,
    nodes: OpenContainer,
    lookup: StreamLookup,
    waiting: WaitingChunks,
    decided: Vec<Decided>,
}

impl StreamWriter {
    pub(super) fn new(store: Arc<ChunkStore>) -> Result<Self> {
        Ok(Self {
            data: OpenContainer::new(Arc::clone(&store.context)),
            nodes: OpenContainer::new(Arc::clone(&store.context)),
            lookup: store.new_lookup()?,
            waiting: WaitingChunks::default(),
            decided: Vec::new(),
            store,
        })
    }

    /// Takes the next data chunks of the stream and stores those that are new, at once or when the
    /// look-up has decided. Buffers that are no longer needed go to `spare`.
    pub fn put_data(&mut self, batch: ChunkBatch, spare: &mut dyn FnMut(Vec<u8>)) -> Result<()> {
        let tickets = self.waiting.push(batch);
        self.store.judge(&mut self.lookup, &self.waiting, tickets, &mut self.decided)?;
        self.apply_decided();
        let ticket = self.waiting.ticket_to_fit(self.store.waiting_bytes_max);
        if ticket > 0 {
            self.drain_before(ticket)?;
        }
        self.release(spare)
    }

    /// Stores a tree node unless it is there already; returns its name.
    pub fn put_node(&mut self, level: Level, bytes: &[u8]) -> Result<Fingerprint> {
        if bytes.len() > limits::NODE_MAX_BYTES || !level.is_node() {
            return Err(Error::invalid("a tree node is too large or at level 0"));
        }
        let fingerprint = self.store.repository.fingerprinter().node(bytes);
        if self.store.judge_one(&fingerprint)? {
            self.store.count_new(bytes.len());
            if !self.store.dry_run {
                self.nodes.append(fingerprint, level, bytes)?;
            }
        }
        Ok(fingerprint)
    }

    /// Decides all chunks that still wait and closes the stream's containers.
    pub fn finish(mut self) -> Result<()> {
        self.drain_before(u64::MAX)?;
        self.release(&mut |_| {})?;
        self.store.note_end(&self.lookup);
        self.data.finish()?;
        self.nodes.finish()
    }

    /// Has everything decided that waits under a ticket below this one.
    fn drain_before(&mut self, ticket: u64) -> Result<()> {
        let Self { store, lookup, waiting, decided, .. } = self;
        store.drain_before(ticket, lookup, waiting, decided)?;
        self.apply_decided();
        Ok(())
    }

    fn apply_decided(&mut self) {
        for Decided { ticket, is_new } in self.decided.drain(..) {
            self.waiting.decide(ticket, is_new);
        }
    }

    fn release(&mut self, spare: &mut dyn FnMut(Vec<u8>)) -> Result<()> {
        let Self { store, data, waiting, .. } = self;
        let append = |fingerprint: &Fingerprint, bytes: &[u8]| {
            store.count_new(bytes.len());
            match store.dry_run {
                true => Ok(()),
                false => data.append(*fingerprint, Level::DATA, bytes),
            }
        };
        waiting.release(append, spare)
    }
}
