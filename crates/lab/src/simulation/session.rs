//! What the product's machine asks and tells here: sets and lists instead of a store.

use super::GenerationOutcome;
use super::containers::{Containers, OpenContainer};
use super::index::Index;
use crate::single::Single;
use crate::trace::{self, PrefixSet};
use onefold_policy::accelerated_filter::{AcceleratedFilter, FilterCounters};
use onefold_policy::duplicate_status::DuplicateStatus;
use onefold_policy::ports::{BucketCounts, IndexPort, Instance};
use onefold_policy::rewrite::UnitId;
use onefold_policy::stream::{
    Chunk, ChunkStream, ContainerPort, Instances, SessionPort, Status, Units,
};
use onefold_types::{ContainerId, Fingerprint, Result};
use std::sync::Arc;

/// Nothing is rewritten, so nobody asks where a chunk lies.
#[derive(Clone, Default)]
pub struct Addressless;

impl Units for Addressless {
    type Address = ();

    fn unit_of(&self, _address: ()) -> UnitId {
        UnitId([0; 16])
    }
}

/// The world as the policies see it.
pub struct Port<I> {
    pub index: I,
    pub containers: Containers,
}

impl<I: Index> IndexPort for Port<I> {
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()> {
        self.index.locate(fingerprints, found, reads)
    }

    fn container_fingerprints(
        &mut self,
        container: ContainerId,
    ) -> Result<Option<Arc<[Fingerprint]>>> {
        Ok(self.containers.read(container))
    }

    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool> {
        self.index.may_contain(fingerprint)
    }

    fn bucket_counts(&self) -> BucketCounts {
        self.index.bucket_counts()
    }
}

/// What the streams share.
pub struct Session<I> {
    pub filter: AcceleratedFilter,
    pub port: Port<I>,
    pub pending: PrefixSet,
    /// All that is indexed: the oracle.
    pub known: PrefixSet,
    pub current: GenerationOutcome,
    /// The filter's counters before the generation.
    pub before: FilterCounters,
}

/// A stream on its way into the store.
pub struct Stream {
    pub(super) chunks: ChunkStream<Single<()>, Addressless>,
    pub open: OpenContainer,
    /// What the generation refers to.
    pub recipe: Vec<u64>,
    pub generation: u32,
}

impl Stream {
    /// Takes the next chunk. With `held_max`, chunks go into containers in stream order, and at
    /// most so many are held back for that.
    pub fn take<I: Index>(
        &mut self,
        chunk: &trace::Chunk,
        session: &mut Session<I>,
        held_max: Option<usize>,
    ) -> Result<()> {
        session.current.chunks += 1;
        session.current.bytes += u64::from(chunk.length_bytes);
        self.recipe.push(chunk.fingerprint.prefix());
        let Self { chunks, open, .. } = self;
        let mut judging = Judging { session, open: held_max.is_none().then_some(&mut *open) };
        let &trace::Chunk { fingerprint, length_bytes: size_bytes } = chunk;
        chunks.push(Single { fingerprint, size_bytes, payload: () }, &mut judging)?;
        if let Some(held_max) = held_max
            && chunks.waiting() > held_max
        {
            // Room for a part, so that this is not needed for every chunk from now on.
            let ticket = chunks.ticket_to_fit(held_max + 1 - held_max.div_ceil(8));
            chunks.judge_below(ticket, &mut judging)?;
        }
        let containers = &mut session.port.containers;
        let mut filling = Filling { open: held_max.is_some().then_some(open), containers };
        chunks.release(&mut filling, &mut drop)?;
        let current = &mut session.current;
        current.waiting_sum += chunks.lookup().waiting() as u64;
        current.held_sum += chunks.waiting() as u64;
        current.held_max = current.held_max.max(chunks.waiting() as u64);
        current.waiting_max = current.waiting_max.max(chunks.lookup().waiting() as u64);
        Ok(())
    }

    /// Ends a generation; returns what it refers to.
    pub fn end<I: Index>(
        &mut self,
        session: &mut Session<I>,
        held_max: Option<usize>,
    ) -> Result<Vec<u64>> {
        let Self { chunks, open, .. } = self;
        let mut judging = Judging { session, open: held_max.is_none().then_some(&mut *open) };
        chunks.judge_below(u64::MAX, &mut judging)?;
        let containers = &mut session.port.containers;
        let ordered = held_max.is_some().then_some(&mut *open);
        chunks.finish(&mut Filling { open: ordered, containers })?;
        open.close(containers);
        Ok(std::mem::take(&mut self.recipe))
    }
}

/// Chunks of a stream being judged. `open` takes what is new at once, whatever the order (S0 has
/// none).
struct Judging<'a, I> {
    session: &'a mut Session<I>,
    open: Option<&'a mut OpenContainer>,
}

impl<I: Index> SessionPort<(), ()> for Judging<'_, I> {
    fn index(&mut self) -> Result<(&mut AcceleratedFilter, &mut dyn IndexPort)> {
        Ok((&mut self.session.filter, &mut self.session.port))
    }

    fn known(&mut self, chunk: &Chunk<'_, ()>) -> Option<Status<()>> {
        let is_pending = self.session.pending.contains(&chunk.fingerprint.prefix());
        self.session.current.pending_hits += u64::from(is_pending);
        is_pending.then_some(DuplicateStatus::Fresh(None))
    }

    fn claim(&mut self, chunk: &Chunk<'_, ()>) -> bool {
        let Session { port, pending, known, current, .. } = &mut *self.session;
        let prefix = chunk.fingerprint.prefix();
        let is_new = pending.insert(prefix);
        if is_new {
            current.chunks_new += 1;
            current.bytes_new += u64::from(chunk.size_bytes);
            current.missed += u64::from(known.contains(&prefix));
            if let Some(open) = &mut self.open {
                open.append(*chunk.fingerprint, &mut port.containers);
            }
        }
        is_new
    }

    fn found(&mut self, chunk: &Chunk<'_, ()>, _instance: &Instance) -> Status<()> {
        let Session { known, current, .. } = &mut *self.session;
        current.false_duplicates += u64::from(!known.contains(&chunk.fingerprint.prefix()));
        current.found += 1;
        DuplicateStatus::Old(Instances::new((), Vec::new()))
    }
}

/// Where new chunks go in stream order; nowhere if they have gone already.
struct Filling<'a> {
    open: Option<&'a mut OpenContainer>,
    containers: &'a mut Containers,
}

impl ContainerPort<(), ()> for Filling<'_> {
    fn store(&mut self, chunk: &Chunk<'_, ()>) -> Result<Option<()>> {
        if let Some(open) = &mut self.open {
            open.append(*chunk.fingerprint, self.containers);
        }
        Ok(None)
    }

    fn place(&mut self, _ticket: u64, _address: Option<()>) {}
}
