//! A store without bytes: the product's look-up policies and index, fed by a trace.
//!
//! What runs is the product's own: [`StreamLookup`], the filter with its cache, and the index with
//! its runs, written, merged and opened through the engine. What is left out is the content: a
//! container is the list of its fingerprints in stream order, and reading one is one access of the
//! device (`containers`). Of the engine's chunk store its rules are kept: a chunk that the
//! session has judged new is found among the pending ones (S1.24); chunks go into their stream's
//! own open container in stream order (S1.16, S1.17), however late their verdict came; a container
//! is indexed once it is closed (S1.5), at the end of a generation or when too many are pending.
//!
//! Deleting generations runs a mark and sweep now and then ([`collection`]).
//!
//! Accounting: every verdict is compared with an oracle that remembers all stored fingerprints, so
//! that a duplicate which was missed is counted as such. The cache lives as long as the simulation.
//!
//! Invariants: an exact index misses nothing; a chunk is never stored twice by one generation.

pub mod collection;
mod containers;
pub mod index;
mod outcome;
#[cfg(test)]
mod tests;

pub use collection::Collection;
pub use index::{Index, IndexSetup, RealIndex};
pub use outcome::{GenerationOutcome, Outcome};

use crate::trace::{Chunk, Event, Order, PrefixSet, Trace};
use containers::{Containers, OpenContainer};
use onefold_policy::accelerated_filter::{AcceleratedFilter, FilterConfiguration, FilterCounters};
use onefold_policy::lookup::{AutoReport, LookupStrategy, StreamLookup, Verdict};
use onefold_policy::ports::IndexPort;
use onefold_types::{ContainerId, Error, Fingerprint, Result};
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Chunks that a container may hold.
const CONTAINER_CHUNKS: RangeInclusive<usize> = 1..=65_536;

/// How a trace is looked up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// When a chunk is judged.
    pub strategy: LookupStrategy,
    /// Which helpers there are.
    pub filter: FilterConfiguration,
    /// Memory of the locality cache, in bytes.
    pub cache_bytes: usize,
    /// Chunks in a container; S1.18 has about a thousand, S0.8 2048.
    pub container_chunks: usize,
    /// New chunks that are not yet in an index run, at most.
    pub pending_max: usize,
    /// Whether chunks go into containers in stream order, and how many may then be held back in a
    /// stream because an earlier one has no verdict; without, each goes as soon as it has its own.
    pub held_max: Option<usize>,
    /// Whether deleted generations are collected.
    pub collection: Option<Collection>,
    /// The index.
    pub index: IndexSetup,
}

impl Setup {
    /// The product's defaults, with this strategy and cache.
    #[must_use]
    pub fn new(strategy: LookupStrategy, cache_bytes: usize) -> Self {
        Self {
            strategy,
            filter: FilterConfiguration::default(),
            cache_bytes,
            container_chunks: 1024,
            pending_max: 1 << 18,
            held_max: Some(1 << 16),
            collection: None,
            index: IndexSetup::default(),
        }
    }

    /// Refuses impossible values.
    ///
    /// # Errors
    /// `Invalid`, with the valid range.
    pub fn validate(&self) -> Result<()> {
        self.strategy.validate()?;
        if !CONTAINER_CHUNKS.contains(&self.container_chunks) {
            return Err(Error::invalid(format!(
                "a container of {} chunks is impossible; it must have {} to {}",
                self.container_chunks,
                CONTAINER_CHUNKS.start(),
                CONTAINER_CHUNKS.end()
            )));
        }
        if self.pending_max == 0 || self.held_max == Some(0) {
            return Err(Error::invalid(
                "0 pending or held chunks are impossible; there must be at least 1",
            ));
        }
        self.index.validate()?;
        self.collection.as_ref().map_or(Ok(()), Collection::validate)
    }

    /// Runs a trace on a fresh store with the product's index.
    ///
    /// # Errors
    /// The setup is impossible, the trace is inconsistent or cannot be read.
    pub fn run(&self, trace: &dyn Trace) -> Result<Outcome> {
        let index = RealIndex::create(&self.index)?;
        Simulation::new(self, index)?.run(trace)
    }
}

/// The world as the policies see it.
struct Port<I> {
    index: I,
    containers: Containers,
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

    fn bucket_of(&self, fingerprint: &Fingerprint) -> u32 {
        self.index.bucket_of(fingerprint)
    }

    fn bucket_count(&self) -> u32 {
        self.index.bucket_count()
    }
}

/// A stream on its way into the store.
struct Stream {
    lookup: StreamLookup,
    open: OpenContainer,
    /// Chunks handed in of which the first has no verdict, oldest first; of the others, whether
    /// they are to be stored when their turn comes.
    waiting: VecDeque<(Chunk, Option<bool>)>,
    /// The ticket of the oldest of them.
    first_ticket: u64,
    /// What the generation refers to.
    recipe: Vec<u64>,
    generation: u32,
}

/// What verdicts are entered in.
struct Ledger<'a> {
    pending: &'a mut PrefixSet,
    known: &'a PrefixSet,
    current: &'a mut GenerationOutcome,
}

impl Ledger<'_> {
    /// Takes verdicts, and stores what is new, in stream order if chunks may be held for that.
    fn settle(
        self,
        stream: &mut Stream,
        resolved: &mut Vec<(u64, Verdict)>,
        containers: &mut Containers,
        held_max: Option<usize>,
    ) -> Result<()> {
        let Self { pending, known, current } = self;
        for (ticket, verdict) in resolved.drain(..) {
            let place = ticket.checked_sub(stream.first_ticket).map(|place| place as usize);
            let slot = place.and_then(|place| stream.waiting.get_mut(place));
            let Some((chunk, stored @ None)) = slot else {
                return Err(Error::invalid(format!("a second verdict came for ticket {ticket}")));
            };
            let prefix = chunk.fingerprint.prefix();
            let is_known = known.contains(&prefix);
            let is_new = match verdict {
                // Another stream may have judged the same chunk new while this one waited.
                Verdict::New => pending.insert(prefix),
                Verdict::Repeated => false,
                Verdict::Duplicate(_) => {
                    current.false_duplicates += u64::from(!is_known);
                    current.found += 1;
                    false
                }
            };
            if is_new {
                current.chunks_new += 1;
                current.bytes_new += u64::from(chunk.length_bytes);
                current.missed += u64::from(is_known);
            }
            if is_new && held_max.is_none() {
                stream.open.append(chunk.fingerprint, containers);
            }
            *stored = Some(is_new && held_max.is_some());
        }
        while let Some((chunk, Some(is_stored))) = stream.waiting.front().copied() {
            stream.waiting.pop_front();
            stream.first_ticket += 1;
            if is_stored {
                stream.open.append(chunk.fingerprint, containers);
            }
        }
        Ok(())
    }
}

/// A run of a trace.
pub struct Simulation<I> {
    setup: Setup,
    port: Port<I>,
    filter: AcceleratedFilter,
    streams: BTreeMap<u32, Stream>,
    /// Streams in the midst of a generation.
    writing: usize,
    pending: PrefixSet,
    /// All that is stored: the oracle.
    known: PrefixSet,
    recipes: BTreeMap<(u32, u32), Vec<u64>>,
    deletions: u32,
    current: GenerationOutcome,
    before: FilterCounters,
    done: Vec<GenerationOutcome>,
    resolved: Vec<(u64, Verdict)>,
}

impl<I: Index> Simulation<I> {
    /// A simulation with an empty store.
    ///
    /// # Errors
    /// The setup is impossible.
    pub fn new(setup: &Setup, index: I) -> Result<Self> {
        setup.validate()?;
        Ok(Self {
            setup: setup.clone(),
            port: Port { index, containers: Containers::default() },
            filter: AcceleratedFilter::new(setup.filter, setup.cache_bytes),
            streams: BTreeMap::new(),
            writing: 0,
            pending: PrefixSet::default(),
            known: PrefixSet::default(),
            recipes: BTreeMap::new(),
            deletions: 0,
            current: GenerationOutcome::default(),
            before: FilterCounters::default(),
            done: Vec::new(),
            resolved: Vec::new(),
        })
    }

    /// Runs a whole trace.
    ///
    /// # Errors
    /// The trace is inconsistent or cannot be read, or the index failed.
    pub fn run(mut self, trace: &dyn Trace) -> Result<Outcome> {
        let mut order = Order::default();
        trace.replay(&mut |event| {
            order.check(&event)?;
            self.take(event)
        })?;
        self.outcome()
    }

    fn take(&mut self, event: Event<'_>) -> Result<()> {
        match event {
            Event::Begin { stream, generation } => self.begin(stream, generation),
            Event::Chunks { stream, chunks } => self.look_up(stream, chunks),
            Event::End { stream, generation } => self.end(stream, generation),
            Event::Delete { stream, generation } => {
                self.recipes.remove(&(stream, generation));
                self.deletions += 1;
                Ok(())
            }
        }
    }

    fn begin(&mut self, stream: u32, generation: u32) -> Result<()> {
        if self.writing == 0 {
            self.collect_if_due()?;
            self.current.generation = generation;
        }
        self.writing += 1;
        match self.streams.get_mut(&stream) {
            Some(stream) => stream.generation = generation,
            None => {
                let lookup = StreamLookup::new(&self.setup.strategy)?;
                self.streams.insert(
                    stream,
                    Stream {
                        lookup,
                        open: OpenContainer::new(self.setup.container_chunks),
                        waiting: VecDeque::new(),
                        first_ticket: 0,
                        recipe: Vec::new(),
                        generation,
                    },
                );
            }
        }
        Ok(())
    }

    fn look_up(&mut self, stream: u32, chunks: &[Chunk]) -> Result<()> {
        let Some(state) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        let Self { filter, port, resolved, .. } = self;
        for chunk in chunks {
            let prefix = chunk.fingerprint.prefix();
            self.current.chunks += 1;
            self.current.bytes += u64::from(chunk.length_bytes);
            state.recipe.push(prefix);
            if self.pending.contains(&prefix) {
                self.current.pending_hits += 1;
                continue;
            }
            let ticket = state.first_ticket + state.waiting.len() as u64;
            state.waiting.push_back((*chunk, None));
            state.lookup.push(filter, port, ticket, &chunk.fingerprint, resolved)?;
            if let Some(held_max) = self.setup.held_max
                && state.waiting.len() > held_max
            {
                // Room for a part, so that this is not needed for every chunk from now on.
                let ticket = state.first_ticket + (held_max as u64).div_ceil(8);
                state.lookup.drain_before(ticket, filter, port, resolved)?;
            }
            if !resolved.is_empty() {
                let ledger = Ledger {
                    pending: &mut self.pending,
                    known: &self.known,
                    current: &mut self.current,
                };
                ledger.settle(state, resolved, &mut port.containers, self.setup.held_max)?;
            }
            let held = state.waiting.len() as u64;
            self.current.held_max = self.current.held_max.max(held);
            let waiting = state.lookup.waiting() as u64;
            self.current.waiting_max = self.current.waiting_max.max(waiting);
        }
        if self.pending.len() >= self.setup.pending_max { self.index() } else { Ok(()) }
    }

    fn end(&mut self, number: u32, generation: u32) -> Result<()> {
        let Some(state) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        state.lookup.drain(&mut self.filter, &mut self.port, &mut self.resolved)?;
        let ledger =
            Ledger { pending: &mut self.pending, known: &self.known, current: &mut self.current };
        let containers = &mut self.port.containers;
        ledger.settle(state, &mut self.resolved, containers, self.setup.held_max)?;
        if !state.waiting.is_empty() {
            return Err(Error::invalid("a stream was drained and chunks still wait"));
        }
        state.open.close(&mut self.port.containers);
        self.recipes.insert((number, generation), std::mem::take(&mut state.recipe));
        self.writing -= 1;
        if self.writing > 0 {
            return Ok(());
        }
        self.index()?;
        self.finish_generation();
        Ok(())
    }

    /// Writes what is closed into an index run.
    fn index(&mut self) -> Result<()> {
        let closed = self.port.containers.take_closed();
        if closed.is_empty() {
            return Ok(());
        }
        self.port.index.add(&closed)?;
        for fingerprint in closed.iter().flat_map(|(_, fingerprints)| fingerprints.iter()) {
            self.pending.remove(&fingerprint.prefix());
            self.known.insert(fingerprint.prefix());
        }
        Ok(())
    }

    fn finish_generation(&mut self) {
        let counters = *self.filter.counters();
        self.current.counters = counters - self.before;
        self.before = counters;
        self.current.index_bytes = self.port.index.take_bytes_read();
        self.current.index_memory_bytes = self.port.index.memory_bytes() as u64;
        self.current.index_entries = self.port.index.entries();
        self.current.containers = self.port.containers.len() as u64;
        self.done.push(std::mem::take(&mut self.current));
    }

    fn collect_if_due(&mut self) -> Result<()> {
        let Some(collection) = &self.setup.collection else {
            return Ok(());
        };
        if self.deletions < collection.every_deletions {
            return Ok(());
        }
        self.deletions = 0;
        let chunks = self.setup.container_chunks;
        let swept = collection.sweep(&self.recipes, &mut self.port.containers, chunks);
        swept.removed.iter().for_each(|container| self.filter.forget_container(*container));
        // What was copied is indexed with all the rest.
        self.port.containers.take_closed();
        self.port.index.rebuild(&self.port.containers.all())?;
        self.known = swept.stored;
        self.current.containers_copied = swept.copied;
        self.current.containers_removed = swept.removed.len() as u64;
        self.port.index.take_bytes_read();
        Ok(())
    }

    fn outcome(self) -> Result<Outcome> {
        if self.writing > 0 {
            return Err(Error::invalid("the trace ends in the midst of a generation"));
        }
        let auto = self.streams.values().next().and_then(|stream| stream.lookup.auto_report());
        let explanation = self
            .streams
            .values()
            .next()
            .map(|stream| stream.lookup.explain(self.filter.counters()));
        Ok(Outcome {
            generations: self.done,
            containers_read: self.port.containers.reads(),
            auto: auto.map(|report: AutoReport| report.to_string()),
            explanation: explanation.unwrap_or_default(),
        })
    }
}
