//! A trace: what a store is asked to do, without the bytes.
//!
//! A trace is a sequence of events. Streams run side by side and hand in their chunks batch by
//! batch; each stream's work is divided into generations, and whole generations are deleted. A
//! trace can be replayed any number of times and says the same each time, so that strategies are
//! compared on the same work.
//!
//! Invariants, checked by [`Order`]: chunks lie between the begin and the end of one of their
//! stream's generations; a stream has one generation open at most; only ended generations are
//! deleted, each once.

use onefold_engine::chunk_store::prefix_hasher::PrefixHasher;
use onefold_types::{Error, Fingerprint, Result};
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasherDefault;

/// A chunk, as far as the look-up stage knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Its name.
    pub fingerprint: Fingerprint,
    /// Its plain length in bytes.
    pub length_bytes: u32,
}

/// One thing that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A stream begins to write a generation.
    Begin {
        /// The stream.
        stream: u32,
        /// The generation.
        generation: u32,
    },
    /// A stream hands in chunks, in stream order.
    Chunks {
        /// The stream.
        stream: u32,
        /// The chunks.
        chunks: &'a [Chunk],
    },
    /// A stream has written its generation.
    End {
        /// The stream.
        stream: u32,
        /// The generation.
        generation: u32,
    },
    /// A generation is forgotten.
    Delete {
        /// The stream.
        stream: u32,
        /// The generation.
        generation: u32,
    },
}

/// Takes the events of a trace, one after the other.
pub type Sink<'a> = dyn FnMut(Event<'_>) -> Result<()> + 'a;

/// Something that can be replayed.
pub trait Trace: Sync {
    /// Its name in tables and files.
    fn name(&self) -> &str;

    /// Shows every event to `sink`, the same ones each time.
    ///
    /// # Errors
    /// Those of the sink, and those of reading the trace.
    fn replay(&self, sink: &mut Sink<'_>) -> Result<()>;
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(u32, u32),
    Chunks(u32, usize),
    End(u32, u32),
    Delete(u32, u32),
}

/// A trace kept in memory, 36 bytes for each chunk.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    name: String,
    steps: Vec<Step>,
    chunks: Vec<Chunk>,
}

impl Recorded {
    /// A trace without events.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Appends an event.
    pub fn push(&mut self, event: Event<'_>) {
        self.steps.push(match event {
            Event::Begin { stream, generation } => Step::Begin(stream, generation),
            Event::End { stream, generation } => Step::End(stream, generation),
            Event::Delete { stream, generation } => Step::Delete(stream, generation),
            Event::Chunks { stream, chunks } => {
                self.chunks.extend_from_slice(chunks);
                Step::Chunks(stream, chunks.len())
            }
        });
    }

    /// Appends a whole generation of a stream that runs alone, in batches.
    pub fn push_generation(&mut self, stream: u32, generation: u32, chunks: &[Chunk]) {
        self.push(Event::Begin { stream, generation });
        for chunks in chunks.chunks(BATCH_CHUNKS) {
            self.push(Event::Chunks { stream, chunks });
        }
        self.push(Event::End { stream, generation });
    }

    /// The number of chunks in it.
    #[must_use]
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }
}

impl Trace for Recorded {
    fn name(&self) -> &str {
        &self.name
    }

    fn replay(&self, sink: &mut Sink<'_>) -> Result<()> {
        let mut rest = self.chunks.as_slice();
        for step in &self.steps {
            match *step {
                Step::Begin(stream, generation) => sink(Event::Begin { stream, generation })?,
                Step::End(stream, generation) => sink(Event::End { stream, generation })?,
                Step::Delete(stream, generation) => sink(Event::Delete { stream, generation })?,
                Step::Chunks(stream, count) => {
                    let (chunks, after) = rest.split_at(count.min(rest.len()));
                    rest = after;
                    sink(Event::Chunks { stream, chunks })?;
                }
            }
        }
        Ok(())
    }
}

/// A trace of one stream without its ends: all generations are one long session. Deletions are left
/// out. The papers that time a whole data set look it up like this.
pub struct Joined<T>(pub T);

impl<T: Trace> Trace for Joined<T> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn replay(&self, sink: &mut Sink<'_>) -> Result<()> {
        let (stream, generation) = (0, 0);
        sink(Event::Begin { stream, generation })?;
        self.0.replay(&mut |event| match event {
            Event::Chunks { chunks, .. } => sink(Event::Chunks { stream, chunks }),
            _ => Ok(()),
        })?;
        sink(Event::End { stream, generation })
    }
}

/// Chunks that a stream hands in at once: about a mebibyte of chunks of 8 KiB.
pub const BATCH_CHUNKS: usize = 128;

/// Refuses events that contradict each other.
#[derive(Debug, Default)]
pub struct Order {
    open: BTreeMap<u32, u32>,
    ended: HashSet<(u32, u32)>,
}

impl Order {
    /// Checks the next event.
    ///
    /// # Errors
    /// The event contradicts an earlier one.
    pub fn check(&mut self, event: &Event<'_>) -> Result<()> {
        let wrong =
            |what: String| Err(Error::invalid(format!("the trace is inconsistent: {what}")));
        match *event {
            Event::Begin { stream, generation } => {
                if let Some(open) = self.open.insert(stream, generation) {
                    return wrong(format!(
                        "stream {stream} begins generation {generation} within generation {open}"
                    ));
                }
            }
            Event::Chunks { stream, .. } => {
                if !self.open.contains_key(&stream) {
                    return wrong(format!("stream {stream} has chunks outside any generation"));
                }
            }
            Event::End { stream, generation } => {
                if self.open.remove(&stream) != Some(generation)
                    || !self.ended.insert((stream, generation))
                {
                    return wrong(format!(
                        "stream {stream} ends generation {generation}, which is not open"
                    ));
                }
            }
            Event::Delete { stream, generation } => {
                if !self.ended.remove(&(stream, generation)) {
                    return wrong(format!(
                        "generation {generation} of stream {stream} is deleted but not there"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// What one generation of all streams holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GenerationTotals {
    /// Chunks handed in.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks never seen before.
    pub chunks_new: u64,
    /// Their bytes.
    pub bytes_new: u64,
}

/// What a trace holds, had nothing ever been deleted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// By generation.
    pub generations: BTreeMap<u32, GenerationTotals>,
}

impl Summary {
    /// Replays a trace and counts.
    ///
    /// # Errors
    /// The trace cannot be read or contradicts itself.
    pub fn of(trace: &dyn Trace) -> Result<Self> {
        let mut order = Order::default();
        let mut seen = PrefixSet::default();
        let mut summary = Self::default();
        trace.replay(&mut |event| {
            order.check(&event)?;
            if let Event::Chunks { stream, chunks } = event {
                let generation = order.open.get(&stream).copied().unwrap_or_default();
                let totals = summary.generations.entry(generation).or_default();
                for chunk in chunks {
                    totals.chunks += 1;
                    totals.bytes += u64::from(chunk.length_bytes);
                    if seen.insert(chunk.fingerprint.prefix()) {
                        totals.chunks_new += 1;
                        totals.bytes_new += u64::from(chunk.length_bytes);
                    }
                }
            }
            Ok(())
        })?;
        Ok(summary)
    }

    /// All generations together.
    #[must_use]
    pub fn total(&self) -> GenerationTotals {
        self.generations.values().fold(GenerationTotals::default(), |sum, one| GenerationTotals {
            chunks: sum.chunks + one.chunks,
            bytes: sum.bytes + one.bytes,
            chunks_new: sum.chunks_new + one.chunks_new,
            bytes_new: sum.bytes_new + one.bytes_new,
        })
    }
}

impl GenerationTotals {
    /// Bytes handed in for each byte that is new.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.bytes as f64 / self.bytes_new.max(1) as f64
    }

    /// The share of chunks that are new.
    #[must_use]
    pub fn new_share(&self) -> f64 {
        self.chunks_new as f64 / self.chunks.max(1) as f64
    }
}

/// A set of fingerprint prefixes. Two chunks in 2^64 pairs share one, which a count may ignore.
pub type PrefixSet = HashSet<u64, BuildHasherDefault<PrefixHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(number: u8) -> Chunk {
        Chunk { fingerprint: Fingerprint([number; 32]), length_bytes: 10 * u32::from(number) }
    }

    #[test]
    fn a_recorded_trace_says_the_same_each_time() {
        let mut trace = Recorded::new("t");
        trace.push_generation(1, 0, &[chunk(1), chunk(2)]);
        trace.push(Event::Delete { stream: 1, generation: 0 });
        for _ in 0..2 {
            let mut seen = Vec::new();
            trace
                .replay(&mut |event| {
                    seen.push(format!("{event:?}"));
                    Ok(())
                })
                .unwrap();
            assert_eq!(seen.len(), 4);
            assert!(seen[0].starts_with("Begin") && seen[3].starts_with("Delete"), "{seen:?}");
        }
        assert_eq!(trace.chunk_count(), 2);
    }

    #[test]
    fn the_summary_counts_what_is_new() {
        let mut trace = Recorded::new("t");
        trace.push_generation(0, 0, &[chunk(1), chunk(2), chunk(1)]);
        trace.push_generation(0, 1, &[chunk(2), chunk(3)]);
        let summary = Summary::of(&trace).unwrap();
        let first = summary.generations[&0];
        assert_eq!((first.chunks, first.bytes, first.chunks_new, first.bytes_new), (3, 40, 2, 30));
        let total = summary.total();
        assert_eq!((total.chunks, total.chunks_new, total.bytes, total.bytes_new), (5, 3, 90, 60));
        assert!((total.ratio() - 1.5).abs() < 1e-9 && (total.new_share() - 0.6).abs() < 1e-9);
    }

    #[test]
    fn joined_generations_are_one_session() {
        let mut trace = Recorded::new("t");
        trace.push_generation(0, 0, &[chunk(1)]);
        trace.push_generation(0, 1, &[chunk(1), chunk(2)]);
        trace.push(Event::Delete { stream: 0, generation: 0 });
        let joined = Joined(trace);
        let summary = Summary::of(&joined).unwrap();
        assert_eq!(summary.generations.len(), 1);
        assert_eq!((summary.total().chunks, summary.total().chunks_new), (3, 2));
        assert_eq!(joined.name(), "t");
    }

    #[test]
    fn contradictions_are_refused() {
        let (stream, generation) = (0, 0);
        let begin = Event::Begin { stream, generation };
        let end = Event::End { stream, generation };
        let delete = Event::Delete { stream, generation };
        let chunks = Event::Chunks { stream, chunks: &[] };
        let refused: [&[Event<'_>]; 6] = [
            &[chunks],
            &[end],
            &[delete],
            &[begin, begin],
            &[begin, delete],
            &[begin, end, delete, delete],
        ];
        for events in refused {
            let mut order = Order::default();
            let results: Vec<_> = events.iter().map(|event| order.check(event)).collect();
            let (last, before) = results.split_last().unwrap();
            assert!(last.is_err() && before.iter().all(Result::is_ok), "{events:?}");
        }
        let mut order = Order::default();
        for event in [begin, chunks, end, delete] {
            order.check(&event).unwrap();
        }
    }
}
