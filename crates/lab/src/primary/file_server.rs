//! A file server to measure: directories of real data, or one that is made up.
//!
//! The made-up one has what the study of ATC'12 found on real ones: most data occurs once, copies
//! are of whole pieces and mostly few, kinds of files differ in how far they compress, and some do
//! not compress at all.

use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::job::Job;
use onefold_engine::primary::estimate::{self, Estimate, EstimateOptions, Selection};
use onefold_format::codec::Compression;
use onefold_store::layers::ThrottleLimits;
use onefold_types::environment::{Randomness, SeededRandomness};
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Enough for exact tables of what a laboratory reads.
const MEMORY_BYTES: usize = 4 << 30;
/// Kinds of files: their endings, and how many words they are made of; 0: noise. The fewer, the
/// better they compress, and the sooner.
const KINDS: [(&str, u64); 4] = [("txt", 500), ("doc", 2000), ("exe", 8000), ("jpg", 0)];
const WORD_BYTES: usize = 10;
/// A piece in so many is taken from those that were taken before.
const COPIED_ONE_IN: u64 = 4;

/// Files to measure; made-up ones vanish with it.
pub struct FileServer {
    root: PathBuf,
    _made_up: Option<tempfile::TempDir>,
}

impl FileServer {
    /// The files below `data`, or made-up ones.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn new(data: Option<&Path>, files: u64) -> Result<Self> {
        if let Some(data) = data {
            return Ok(Self { root: data.to_path_buf(), _made_up: None });
        }
        let place = tempfile::tempdir().context(|| "making a file server")?;
        let random = SeededRandomness::new(12);
        let mut pieces = [0u64; KINDS.len()];
        for file in 0..files {
            let kind = random.below(KINDS.len() as u64) as usize;
            let (Some((ending, words)), Some(known)) = (KINDS.get(kind), pieces.get_mut(kind))
            else {
                continue;
            };
            let mut bytes = Vec::new();
            for _ in 0..1 + random.below(4) {
                let is_copy = *known > 0 && random.below(COPIED_ONE_IN) == 0;
                let number = if is_copy { random.below(*known) } else { *known };
                *known += u64::from(!is_copy);
                append_piece(kind as u64, number, *words, &mut bytes);
            }
            let path = place.path().join(format!("{file}.{ending}"));
            std::fs::write(&path, bytes).context(|| path.display())?;
        }
        Ok(Self { root: place.path().to_path_buf(), _made_up: Some(place) })
    }

    /// Where the files are.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What they come to, cut by regression into chunks of these sizes.
    ///
    /// # Errors
    /// They cannot be read, all of them.
    pub fn estimate(&self, averages: &[usize], compression: Compression) -> Result<Estimate> {
        let chunker =
            |average: &usize| ChunkerParameters::with_average(ChunkerKind::Regression, *average);
        let options = EstimateOptions {
            chunkers: averages.iter().map(chunker).collect::<Result<_>>()?,
            compression,
            selection: Selection { one_file_system: true, ..Selection::default() },
            limits: ThrottleLimits::default(),
            memory_bytes: MEMORY_BYTES,
            state: None,
            save_interval: Duration::MAX,
        };
        let (job, problems) = Job::unattended();
        let found = estimate::estimate(&self.root, &options, &job)?;
        let problems = problems.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match problems.first() {
            Some((path, kind, message)) => Err(Error::new(*kind, format!("{path}: {message}"))),
            None => Ok(found),
        }
    }
}

/// The piece of a kind with this number, which says what is in it, its length among it.
fn append_piece(kind: u64, number: u64, words: u64, bytes: &mut Vec<u8>) {
    let length = 200_000 + (number * 7919 % 600_000) as usize;
    let end = bytes.len() + length;
    let random = SeededRandomness::new((kind << 32) | number);
    if words == 0 {
        let start = bytes.len();
        bytes.resize(end, 0);
        random.fill(bytes.get_mut(start..).unwrap_or_default());
    }
    while bytes.len() < end {
        let mut word = [0; WORD_BYTES];
        SeededRandomness::new((kind << 48) | random.below(words)).fill(&mut word);
        bytes.extend(word.map(|byte| b'a' + byte % 26));
    }
}
