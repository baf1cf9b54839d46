//! Trace files as a trace: one file of a series is one generation.
//!
//! Hashes are short in published traces: among 2^24 chunks two of 48 bits agree by chance with
//! probability one half. Chunks are therefore told apart by hash and size together, as other
//! readers do, and the fingerprint is a digest of both, which spreads evenly whatever the hash.

use super::Reader;
use crate::trace::{BATCH_CHUNKS, Chunk, Event, Sink, Trace};
use onefold_crypto::{Fingerprinter, HashKind};
use onefold_types::{Fingerprint, Result};
use std::path::PathBuf;

/// A series of trace files of one stream.
pub struct FslTrace {
    name: String,
    files: Vec<PathBuf>,
    fingerprinter: Fingerprinter,
}

impl FslTrace {
    /// The series, oldest first.
    #[must_use]
    pub fn new(name: impl Into<String>, files: Vec<PathBuf>) -> Self {
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, None);
        Self { name: name.into(), files, fingerprinter }
    }

    /// The fingerprint of a chunk of a trace.
    #[must_use]
    pub fn fingerprint(&self, hash: &[u8], size_bytes: u64) -> Fingerprint {
        let mut identity = size_bytes.to_le_bytes().to_vec();
        identity.extend_from_slice(hash);
        self.fingerprinter.data(&identity)
    }
}

impl Trace for FslTrace {
    fn name(&self) -> &str {
        &self.name
    }

    fn replay(&self, sink: &mut Sink<'_>) -> Result<()> {
        let stream = 0;
        let mut chunks = Vec::with_capacity(BATCH_CHUNKS);
        for (generation, path) in (0..).zip(&self.files) {
            let mut reader = Reader::open(path)?;
            sink(Event::Begin { stream, generation })?;
            while reader.next_file()?.is_some() {
                while let Some(chunk) = reader.next_chunk()? {
                    let fingerprint = self.fingerprint(&chunk.hash, chunk.size_bytes);
                    let length_bytes = u32::try_from(chunk.size_bytes).unwrap_or(u32::MAX);
                    chunks.push(Chunk { fingerprint, length_bytes });
                    if chunks.len() == BATCH_CHUNKS {
                        sink(Event::Chunks { stream, chunks: &chunks })?;
                        chunks.clear();
                    }
                }
            }
            if !chunks.is_empty() {
                sink(Event::Chunks { stream, chunks: &chunks })?;
                chunks.clear();
            }
            sink(Event::End { stream, generation })?;
        }
        Ok(())
    }
}
