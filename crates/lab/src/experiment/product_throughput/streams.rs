//! The paper's generated streams (S1.36), as bytes.

use crate::source::generator::{Generator, Parameters, Preset, Schedule};
use onefold_types::Result;

/// Streams that are written at the same time.
pub const STREAMS: usize = 4;

/// Streams of generations, each a list of chunk numbers.
pub struct Streams {
    generator: Generator,
    /// By stream, then by generation.
    numbers: Vec<Vec<Vec<u64>>>,
}

impl Streams {
    /// Streams of so many chunks and generations.
    ///
    /// Of a generation 1 in 30 is new to the store. Where chunks are cut anew, those around a
    /// change are new as well, so that the generator changes fewer.
    ///
    /// # Errors
    /// The numbers are impossible.
    pub fn new(chunks: usize, generations: u32, seed: u64) -> Result<Self> {
        let base = Parameters::preset(Preset::Engineering, chunks);
        let generator = Generator::new(Parameters {
            name: "throughput".into(),
            seed: base.seed ^ seed,
            streams: STREAMS as u32,
            lineages: 1,
            generations,
            generations_min: generations,
            deletion: None,
            schedule: Schedule::Full,
            deleted_share: 0.01,
            added_share: 0.01,
            moved_share: 0.005,
            changed_share: 0.016,
            compression_ratio: 2.0,
            ..base
        })?;
        let mut numbers = Vec::new();
        for stream in 0..STREAMS as u32 {
            let mut generations = Vec::new();
            generator.replay_files(stream, &mut |_, files| {
                generations.push(files.concat());
                Ok(())
            })?;
            numbers.push(generations);
        }
        Ok(Self { generator, numbers })
    }

    /// The bytes of a stream's generation.
    ///
    /// # Errors
    /// None: the generator was asked before.
    pub fn bytes(&self, stream: usize, generation: usize) -> Result<Vec<u8>> {
        let of_stream = self.numbers.get(stream).map(Vec::as_slice).unwrap_or_default();
        let mut bytes = Vec::new();
        for number in of_stream.get(generation).into_iter().flatten() {
            self.generator.append_bytes(*number, &mut bytes)?;
        }
        Ok(bytes)
    }
}

/// The name of a stream: of its file and of the machine that it comes from.
pub fn name(stream: usize) -> String {
    format!("stream-{stream}")
}
