//! A store without bytes: the product's look-up policies and index, fed by a trace.
//!
//! What runs is the product's own: the machine of [`onefold_policy::stream`] with its look-up, the
//! filter with its cache, and the index with its runs, written, merged and opened through the
//! engine. What is left out is the content: a container is the list of its fingerprints in stream
//! order, and reading one is one access of the device (`containers`). The session (`session`) keeps
//! the rules of the engine's chunk store: a chunk that it has judged new is found among the pending
//! ones (S1.24); chunks go into their stream's own open container in stream order (S1.16, S1.17),
//! however late their verdict came; a container is indexed once it is closed (S1.5), at the end of
//! a generation or when too many are pending.
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
mod session;
#[cfg(test)]
mod tests;

pub use collection::Collection;
pub use index::{Index, IndexSetup, RealIndex};
pub use outcome::{GenerationOutcome, Outcome};

use crate::trace::{Chunk, Event, Order, PrefixSet, Trace};
use containers::{Containers, OpenContainer};
use onefold_policy::accelerated_filter::{AcceleratedFilter, FilterConfiguration, FilterCounters};
use onefold_policy::lookup::{AutoReport, LookupStrategy};
use onefold_policy::stream::{ChunkStream, RewriteOptions};
use onefold_types::{Error, Result};
use session::{Port, Session, Stream};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

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

/// A run of a trace.
pub struct Simulation<I> {
    setup: Setup,
    session: Session<I>,
    streams: BTreeMap<u32, Stream>,
    /// Streams in the midst of a generation.
    writing: usize,
    recipes: BTreeMap<(u32, u32), Vec<u64>>,
    deletions: u32,
    done: Vec<GenerationOutcome>,
}

impl<I: Index> Simulation<I> {
    /// A simulation with an empty store.
    ///
    /// # Errors
    /// The setup is impossible.
    pub fn new(setup: &Setup, index: I) -> Result<Self> {
        setup.validate()?;
        let session = Session {
            filter: AcceleratedFilter::new(setup.filter, setup.cache_bytes),
            port: Port { index, containers: Containers::default() },
            pending: PrefixSet::default(),
            known: PrefixSet::default(),
            current: GenerationOutcome::default(),
            before: FilterCounters::default(),
        };
        Ok(Self {
            setup: setup.clone(),
            session,
            streams: BTreeMap::new(),
            writing: 0,
            recipes: BTreeMap::new(),
            deletions: 0,
            done: Vec::new(),
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
            self.session.current.generation = generation;
        }
        self.writing += 1;
        match self.streams.get_mut(&stream) {
            Some(stream) => stream.generation = generation,
            None => {
                let chunks = ChunkStream::new(&self.setup.strategy, RewriteOptions::none())?;
                let open = OpenContainer::new(self.setup.container_chunks);
                let recipe = Vec::new();
                self.streams.insert(stream, Stream { chunks, open, recipe, generation });
            }
        }
        Ok(())
    }

    fn look_up(&mut self, stream: u32, chunks: &[Chunk]) -> Result<()> {
        let Some(state) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        for chunk in chunks {
            state.take(chunk, &mut self.session, self.setup.held_max)?;
        }
        if self.session.pending.len() >= self.setup.pending_max { self.index() } else { Ok(()) }
    }

    fn end(&mut self, number: u32, generation: u32) -> Result<()> {
        let Some(state) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        let recipe = state.end(&mut self.session, self.setup.held_max)?;
        self.recipes.insert((number, generation), recipe);
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
        let Session { port, pending, known, .. } = &mut self.session;
        let closed = port.containers.take_closed();
        if closed.is_empty() {
            return Ok(());
        }
        port.index.add(&closed)?;
        for fingerprint in closed.iter().flat_map(|(_, fingerprints)| fingerprints.iter()) {
            pending.remove(&fingerprint.prefix());
            known.insert(fingerprint.prefix());
        }
        Ok(())
    }

    fn finish_generation(&mut self) {
        let Session { filter, port, current, before, .. } = &mut self.session;
        current.counters = *filter.counters() - *before;
        *before = *filter.counters();
        current.index_bytes = port.index.take_bytes_read();
        current.index_memory_bytes = port.index.memory_bytes() as u64;
        current.index_entries = port.index.entries();
        current.containers = port.containers.len() as u64;
        self.done.push(std::mem::take(current));
    }

    fn collect_if_due(&mut self) -> Result<()> {
        let Some(collection) = &self.setup.collection else {
            return Ok(());
        };
        if self.deletions < collection.every_deletions {
            return Ok(());
        }
        self.deletions = 0;
        let Session { filter, port, known, current, .. } = &mut self.session;
        let chunks = self.setup.container_chunks;
        let swept = collection.sweep(&self.recipes, &mut port.containers, chunks);
        swept.removed.iter().for_each(|container| filter.forget_container(*container));
        // What was copied is indexed with all the rest.
        port.containers.take_closed();
        port.index.rebuild(&port.containers.all())?;
        *known = swept.stored;
        current.containers_copied = swept.copied;
        current.containers_removed = swept.removed.len() as u64;
        port.index.take_bytes_read();
        Ok(())
    }

    fn outcome(self) -> Result<Outcome> {
        if self.writing > 0 {
            return Err(Error::invalid("the trace ends in the midst of a generation"));
        }
        let lookup = self.streams.values().next().map(|stream| stream.chunks.lookup());
        let auto = lookup.and_then(|lookup| lookup.auto_report());
        let explanation = lookup.map(|lookup| lookup.explain(self.session.filter.counters()));
        Ok(Outcome {
            generations: self.done,
            containers_read: self.session.port.containers.reads(),
            auto: auto.map(|report: AutoReport| report.to_string()),
            explanation: explanation.unwrap_or_default(),
        })
    }
}
