//! One stream of chunks on its way into a store: one chunk, one verdict.
//!
//! ```text
//! push ─▶ queue ──(verdict)──▶ status ──(stream order)──▶ rewriting ─▶ stored or referred to
//!           └─ look-up: late, out of order                  └─ old duplicates wait for a decision
//! ```
//!
//! The product runs this machine on bytes and a store, the laboratory on numbers and a model. It
//! does nothing itself: a [`SessionPort`] answers what the streams of a session share, a
//! [`ContainerPort`] takes what is to be stored.
//!
//! | module | holds |
//! | --- | --- |
//! | `ports` | what the machine asks and tells |
//! | `queue` | chunks without a verdict, and those behind them, in stream order |
//! | `rewriting` | old duplicates, until it is decided whether they are stored again |
//! | `guard` | what is not stored again although the policy would |
//!
//! 1. *Verdict.* [`ChunkStream::push`] asks the session first, then the look-up strategy, which may
//!    answer for any chunk that waits, or for none.
//! 2. *Status.* A verdict becomes a [`DuplicateStatus`] under the session's lock: of equal chunks
//!    that several streams call new only the one whose claim is first is unique.
//! 3. *Rewriting.* [`ChunkStream::release`] takes chunks in stream order, as far as all before them
//!    have their status, because containers keep the stream's locality (FAST'08, section 3.2).
//!    Unique chunks are stored at once. Of an old duplicate the policy decides, now or later.
//! 4. *Release.* A batch is given back when its last chunk has passed; old duplicates that wait for
//!    their decision are copied before, one copy of equal ones.
//!
//! Invariants, each an error of kind *bug* that ends the session before it commits:
//! - a ticket gets exactly one verdict, while it waits; an old duplicate exactly one decision;
//! - nothing waits at the end of the stream;
//! - the chunks pushed are the unique ones and the duplicates, and the duplicates are those kept,
//!   stored again and shared.
//!
//! Memory: batches wait until the owner has them judged ([`ChunkStream::ticket_to_fit`]); copies of
//! old duplicates keep within the share that the policy of rewriting was given.
//!
//! What waits is promised to nobody: a session that dies leaves no trace of it (S2.30, SX.4). After
//! an error the stream is not to be used any more.

mod guard;
mod ports;
mod queue;
mod rewriting;

pub use guard::RewriteGuard;
pub use ports::{Chunk, ContainerPort, Instances, SessionPort, Status, Units};
pub use queue::Batch;
pub use rewriting::RewriteOptions;

use crate::duplicate_status::DuplicateStatus;
use crate::lookup::{LookupStrategy, StreamLookup, Verdict};
use crate::rewrite::RewriteCounters;
use onefold_types::{Result, bug, invariant};
use queue::Queue;
use rewriting::Rewriting;
use std::ops::Range;

/// Chunks that have passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamTotals {
    /// Pushed.
    pub chunks: u64,
    /// Of these, stored because the store did not hold them.
    pub unique: u64,
    /// Their plain bytes.
    pub unique_bytes: u64,
    /// There already, or stored by the session before.
    pub duplicates: u64,
}

/// The machine of one stream.
pub struct ChunkStream<B: Batch, U: Units> {
    lookup: StreamLookup,
    queue: Queue<B, Status<U::Address>>,
    rewriting: Rewriting<B::Payload, U>,
    totals: StreamTotals,
    /// Verdicts not yet turned into statuses; empty between calls.
    resolved: Vec<(u64, Verdict)>,
}

impl<B: Batch, U: Units> ChunkStream<B, U> {
    /// A stream of which nothing has come.
    ///
    /// # Errors
    /// A parameter is out of range (`Invalid`); the message names the range.
    pub fn new(lookup: &LookupStrategy, rewrite: RewriteOptions<U>) -> Result<Self> {
        Ok(Self {
            lookup: StreamLookup::new(lookup)?,
            queue: Queue::default(),
            rewriting: Rewriting::new(rewrite)?,
            totals: StreamTotals::default(),
            resolved: Vec::new(),
        })
    }

    /// Takes the next chunks, and judges what the strategy answers at once. Returns their tickets,
    /// which number the chunks of a stream without gaps.
    ///
    /// # Errors
    /// The index failed, or an invariant does not hold.
    pub fn push(
        &mut self,
        batch: B,
        session: &mut impl SessionPort<B::Payload, U::Address>,
    ) -> Result<Range<u64>> {
        let tickets = self.queue.push(batch);
        self.totals.chunks += tickets.end - tickets.start;
        for ticket in tickets.clone() {
            let chunk = self.queue.chunk(ticket);
            let chunk = chunk.ok_or_else(|| bug!("a chunk to be judged does not wait", ticket))?;
            // What the session is storing is not in the index, which would call it new.
            if let Some(status) = session.known(&chunk) {
                self.queue.decide(ticket, status)?;
                continue;
            }
            let (filter, index) = session.index()?;
            self.lookup.push(filter, index, ticket, chunk.fingerprint, &mut self.resolved)?;
            // Before the next chunk is asked for: it may be equal to one that is new.
            self.settle(session)?;
        }
        Ok(tickets)
    }

    /// Judges what the strategy still holds back below `ticket`, and whatever comes with it.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn judge_below(
        &mut self,
        ticket: u64,
        session: &mut impl SessionPort<B::Payload, U::Address>,
    ) -> Result<()> {
        let (filter, index) = session.index()?;
        self.lookup.drain_before(ticket, filter, index, &mut self.resolved)?;
        self.settle(session)
    }

    /// The ticket below which chunks must be judged for the batches left to weigh at most so much.
    #[must_use]
    pub fn ticket_to_fit(&self, weight_max: usize) -> u64 {
        self.queue.ticket_to_fit(weight_max)
    }

    /// Sends chunks on in stream order, up to the first without a verdict; batches that are
    /// through go to `spare`.
    ///
    /// # Errors
    /// Storing failed, or an invariant does not hold.
    pub fn release(
        &mut self,
        containers: &mut impl ContainerPort<B::Payload, U::Address>,
        spare: &mut dyn FnMut(B),
    ) -> Result<()> {
        let Self { queue, rewriting, totals, .. } = self;
        let pass = |chunk: &Chunk<'_, B::Payload>, status: Status<U::Address>| {
            match status {
                DuplicateStatus::Unique => {
                    totals.unique += 1;
                    totals.unique_bytes += u64::from(chunk.size_bytes);
                }
                DuplicateStatus::Fresh(_) | DuplicateStatus::Old(_) => totals.duplicates += 1,
            }
            rewriting.push(chunk, status, containers)
        };
        queue.release(pass, spare)
    }

    /// Sends on and decides everything that waits; all must have been judged. Fails unless every
    /// chunk has had its verdict and every duplicate its decision: whoever commits what has passed
    /// here may do so only then.
    ///
    /// # Errors
    /// As [`Self::release`].
    pub fn finish(
        &mut self,
        containers: &mut impl ContainerPort<B::Payload, U::Address>,
    ) -> Result<()> {
        self.release(containers, &mut drop)?;
        self.queue.expect_empty()?;
        self.rewriting.finish(containers)?;
        self.rewriting.expect_empty()?;
        let StreamTotals { chunks, unique, duplicates, .. } = self.totals;
        invariant!(
            chunks == unique + duplicates,
            "chunks handed in and verdicts differ in number",
            self.totals
        );
        Ok(())
    }

    /// What has passed.
    #[must_use]
    pub fn totals(&self) -> StreamTotals {
        self.totals
    }

    /// Chunks that have not been sent on.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How chunks are looked up.
    #[must_use]
    pub fn lookup(&self) -> &StreamLookup {
        &self.lookup
    }

    /// What rewriting did.
    #[must_use]
    pub fn rewrite_counters(&self) -> &RewriteCounters {
        self.rewriting.counters()
    }

    /// Turns verdicts into statuses, at once: until it is claimed, an equal chunk of another stream
    /// would be called new as well.
    fn settle(&mut self, session: &mut impl SessionPort<B::Payload, U::Address>) -> Result<()> {
        for (ticket, verdict) in self.resolved.drain(..) {
            let chunk = self.queue.chunk(ticket);
            let chunk = chunk
                .ok_or_else(|| bug!("a look-up answers for a chunk that does not wait", ticket))?;
            let status = match verdict {
                // An equal chunk may have become pending while this one waited.
                Verdict::New if session.claim(&chunk) => DuplicateStatus::Unique,
                Verdict::New | Verdict::Repeated => DuplicateStatus::Fresh(None),
                Verdict::Duplicate(instance) => session.found(&chunk, &instance),
            };
            self.queue.decide(ticket, status)?;
        }
        Ok(())
    }
}
