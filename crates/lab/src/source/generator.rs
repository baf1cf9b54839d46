//! Makes traces out of parameters: backups of data that changes, in several streams.
//!
//! Model (FAST'08, section 5.3; FAST'17, section 5.1; Tarasov et al., ATC'12): each stream backs up
//! its own lineages. A lineage is an ordered list of files, a file an ordered list of chunks. From
//! one generation to the next some files go, some come, some move, and inside others runs of chunks
//! are overwritten, put in or taken out (`lineage`). Lineages share nothing. A backup is a full
//! one, or an incremental one that holds the files changed since the backup before. Streams run at
//! the same time: their batches alternate at random. Old generations are deleted in some order.
//!
//! Everything follows from the seed. A chunk is a number; its fingerprint and length are functions
//! of it, and so are its bytes ([`super::content`]) where somebody needs them.

mod lineage;
mod parameters;

pub use lineage::Lineage;
pub use parameters::{Deletion, DeletionOrder, Parameters, Preset, Schedule};

use super::content::{self, scatter};
use crate::trace::{BATCH_CHUNKS, Chunk, Event, Sink, Trace};
use onefold_types::environment::SeededRandomness;
use onefold_types::{Fingerprint, Result};

/// A generator: a trace that is made while it is replayed.
#[derive(Clone, Debug)]
pub struct Generator {
    parameters: Parameters,
}

/// Takes a generation's number and its files, each a list of chunk numbers.
pub type EachGeneration<'a> = dyn FnMut(u32, &[&[u64]]) -> Result<()> + 'a;

impl Generator {
    /// The generator for these parameters.
    ///
    /// # Errors
    /// A parameter is impossible; the message names the valid range.
    pub fn new(parameters: Parameters) -> Result<Self> {
        parameters.validate()?;
        Ok(Self { parameters })
    }

    /// A preset at a scale: the chunks of one full generation of one lineage.
    ///
    /// # Errors
    /// The scale is impossible.
    pub fn preset(preset: Preset, chunks: usize) -> Result<Self> {
        Self::new(Parameters::preset(preset, chunks))
    }

    /// What it was made from.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The chunk that a number stands for.
    #[must_use]
    pub fn chunk(&self, number: u64) -> Chunk {
        let Parameters { seed, chunk_min_bytes, chunk_max_bytes, .. } = self.parameters;
        let mut state = scatter(seed) ^ number;
        let mut bytes = [0; 32];
        for word in bytes.as_chunks_mut::<8>().0 {
            state = scatter(state);
            *word = state.to_le_bytes();
        }
        let span = u64::from(chunk_max_bytes - chunk_min_bytes) + 1;
        let length_bytes = chunk_min_bytes + (scatter(state) % span) as u32;
        Chunk { fingerprint: Fingerprint(bytes), length_bytes }
    }

    /// Appends the bytes of the chunk that a number stands for.
    ///
    /// # Errors
    /// The compression ratio is impossible, which [`Generator::new`] has ruled out.
    pub fn append_bytes(&self, number: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let length = self.chunk(number).length_bytes as usize;
        let key = scatter(self.parameters.seed) ^ number;
        content::append(key, length, self.parameters.compression_ratio, bytes)
    }

    /// What one stream backs up, generation by generation, as files of chunk numbers: for those who
    /// need bytes.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn replay_files(&self, stream: u32, each: &mut EachGeneration<'_>) -> Result<()> {
        let mut work = StreamWork::new(&self.parameters, stream);
        for generation in 0..self.parameters.generations {
            each(generation, &work.next_generation(&self.parameters, generation))?;
        }
        Ok(())
    }
}

impl Trace for Generator {
    fn name(&self) -> &str {
        &self.parameters.name
    }

    fn replay(&self, sink: &mut Sink<'_>) -> Result<()> {
        let parameters = &self.parameters;
        let mut streams: Vec<StreamWork> =
            (0..parameters.streams).map(|stream| StreamWork::new(parameters, stream)).collect();
        let random = SeededRandomness::new(scatter(parameters.seed ^ 0x7ea5));
        let mut kept = Kept::default();
        for generation in 0..parameters.generations {
            let mut work: Vec<(u32, Vec<u64>)> = Vec::new();
            for (stream, state) in (0..).zip(&mut streams) {
                sink(Event::Begin { stream, generation })?;
                work.push((stream, state.next_generation(parameters, generation).concat()));
            }
            self.interleave(&work, &random, sink)?;
            for (stream, _) in &work {
                sink(Event::End { stream: *stream, generation })?;
                kept.add(*stream, generation);
            }
            if let Some(deletion) = parameters.deletion {
                kept.expire(deletion, &random, sink)?;
            }
        }
        Ok(())
    }
}

impl Generator {
    /// Hands in the streams' chunks; the stream whose turn it is, is drawn.
    fn interleave(
        &self,
        work: &[(u32, Vec<u64>)],
        random: &SeededRandomness,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let mut rest: Vec<(u32, &[u64])> =
            work.iter().map(|(stream, numbers)| (*stream, numbers.as_slice())).collect();
        let mut chunks = Vec::with_capacity(BATCH_CHUNKS);
        loop {
            rest.retain(|(_, numbers)| !numbers.is_empty());
            let turn = random.below(rest.len() as u64) as usize;
            let Some((stream, numbers)) = rest.get_mut(turn) else {
                return Ok(());
            };
            let (now, later) = numbers.split_at(numbers.len().min(BATCH_CHUNKS));
            *numbers = later;
            chunks.clear();
            chunks.extend(now.iter().map(|number| self.chunk(*number)));
            sink(Event::Chunks { stream: *stream, chunks: &chunks })?;
        }
    }
}

/// One stream: its lineages, which are backed up one after the other.
struct StreamWork {
    lineages: Vec<(Lineage, Vec<bool>)>,
}

impl StreamWork {
    fn new(parameters: &Parameters, stream: u32) -> Self {
        let lineages = (0..parameters.lineages)
            .map(|number| {
                let overall = u64::from(stream * parameters.lineages + number);
                (Lineage::new(parameters, overall), parameters.calendar(number))
            })
            .collect();
        Self { lineages }
    }

    /// What the stream backs up in a generation.
    fn next_generation(&mut self, parameters: &Parameters, generation: u32) -> Vec<&[u64]> {
        let mut files = Vec::new();
        for (lineage, calendar) in &mut self.lineages {
            if !calendar.get(generation as usize).copied().unwrap_or(false) {
                continue;
            }
            let full = match parameters.schedule {
                Schedule::Full => true,
                Schedule::WeeklyFull { days } => generation.is_multiple_of(days),
            };
            let first = lineage.is_empty();
            lineage.evolve(parameters);
            files.extend(lineage.back_up(full || first));
        }
        files
    }
}

/// Generations that have not been deleted, oldest first, by stream.
#[derive(Default)]
struct Kept(Vec<(u32, Vec<u32>)>);

impl Kept {
    fn add(&mut self, stream: u32, generation: u32) {
        match self.0.iter_mut().find(|(other, _)| *other == stream) {
            Some((_, kept)) => kept.push(generation),
            None => self.0.push((stream, vec![generation])),
        }
    }

    fn expire(
        &mut self,
        deletion: Deletion,
        random: &SeededRandomness,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        for (stream, kept) in &mut self.0 {
            while kept.len() > deletion.keep.max(1) as usize {
                // The newest one always stays: nobody deletes the backup he has just made.
                let old = kept.len() as u64 - 1;
                let place = match deletion.order {
                    DeletionOrder::Oldest => 0,
                    DeletionOrder::Newest => old as usize - 1,
                    DeletionOrder::Random => random.below(old) as usize,
                };
                let generation = kept.remove(place);
                sink(Event::Delete { stream: *stream, generation })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
