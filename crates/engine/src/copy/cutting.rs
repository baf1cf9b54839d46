//! The bytes of files on their way into the second store: with the boundaries that they have, or
//! cut anew as a backup into that store would cut them.
//!
//! Invariant: what comes out depends on the bytes of a file and on the store, not on how the file
//! was cut before, unless both stores cut alike: then nothing is cut anew, and the same comes out.
//!
//! Memory: one message of a backup's length, what the chunker has to see, and one chunk.

use crate::ingest::read::MESSAGE_BYTES;
use crate::repository::Repository;
use onefold_chunking::{HOLE_BLOCK_BYTES, Piece, Segmenter};
use onefold_types::Fingerprint;
use std::ops::Range;
use std::sync::Arc;

/// A part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A chunk, with its length.
    Data(u64),
    /// Zeros.
    Hole(u64),
}

/// Chunks that are stored together.
#[derive(Default)]
pub struct Cut {
    /// The bytes.
    pub buffer: Vec<u8>,
    /// Where in them the chunks lie.
    pub ranges: Vec<Range<usize>>,
    /// The chunks' names, if they are known.
    pub fingerprints: Vec<Fingerprint>,
}

/// Cuts files.
pub struct Cutter {
    repository: Arc<Repository>,
    /// `None`: boundaries are kept.
    segmenter: Option<Segmenter>,
    keeps_cuts: bool,
    keeps_names: bool,
    window_bytes: usize,
    cut: Cut,
    /// Where in the buffer the bytes begin that are not cut yet.
    uncut: usize,
}

impl Cutter {
    /// Cuts for a store; kept names need kept boundaries.
    pub fn new(repository: &Arc<Repository>, keeps_cuts: bool, keeps_names: bool) -> Self {
        Self {
            repository: Arc::clone(repository),
            segmenter: None,
            keeps_cuts,
            keeps_names: keeps_cuts && keeps_names,
            window_bytes: Segmenter::window_bytes(&**repository.chunker()),
            cut: Cut::default(),
            uncut: 0,
        }
    }

    /// A file begins.
    pub fn begin(&mut self) {
        let tar_aware = self.repository.configuration().chunker.tar_aware;
        self.segmenter = (!self.keeps_cuts).then(|| Segmenter::new(tar_aware));
    }

    /// Where the bytes of the next chunk are to be put.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.cut.buffer
    }

    /// Whether there is enough to be stored.
    pub fn is_full(&self) -> bool {
        self.uncut >= MESSAGE_BYTES
    }

    /// A chunk was put into the buffer.
    pub fn chunk(&mut self, fingerprint: Fingerprint, each: &mut dyn FnMut(Part)) {
        if self.segmenter.is_some() {
            if self.cut.buffer.len() - self.uncut >= self.window_bytes {
                self.advance(false, each);
            }
            return;
        }
        let range = self.uncut..self.cut.buffer.len();
        each(Part::Data(range.len() as u64));
        self.uncut = range.end;
        self.cut.ranges.push(range);
        self.cut.fingerprints.extend(self.keeps_names.then_some(fingerprint));
    }

    /// Zeros that are no chunk. They are shown to the chunker until it knows them for a hole.
    pub fn hole(&mut self, length: u64, each: &mut dyn FnMut(Part)) {
        let Some(_) = &self.segmenter else {
            each(Part::Hole(length));
            return;
        };
        let (mut left, mut is_behind_hole) = (length, false);
        while left > 0 {
            let shown = left.min(HOLE_BLOCK_BYTES as u64);
            self.cut.buffer.resize(self.cut.buffer.len() + shown as usize, 0);
            left -= shown;
            self.advance(false, &mut |part| {
                is_behind_hole = matches!(part, Part::Hole(_));
                each(part);
            });
            // What is not cut yet may be zeros of this hole only, and then all of them count.
            let uncut = (self.cut.buffer.len() - self.uncut) as u64;
            if is_behind_hole
                && uncut <= length - left
                && let Some(segmenter) = &mut self.segmenter
            {
                let skipped = segmenter.skip(uncut + left);
                if skipped > 0 {
                    self.cut.buffer.truncate(self.uncut);
                    each(Part::Hole(skipped));
                    left = uncut + left - skipped;
                }
            }
        }
    }

    /// The file ends.
    pub fn end(&mut self, each: &mut dyn FnMut(Part)) {
        self.advance(true, each);
        self.segmenter = None;
    }

    /// The file is given up: what is not cut yet is forgotten.
    pub fn give_up(&mut self) {
        self.cut.buffer.truncate(self.uncut);
        self.segmenter = None;
    }

    fn advance(&mut self, end: bool, each: &mut dyn FnMut(Part)) {
        let Self { repository, segmenter: Some(segmenter), cut, uncut, .. } = self else { return };
        let mut start = *uncut;
        let chunker = repository.chunker();
        let ranges = &mut cut.ranges;
        let consumed = segmenter.advance(&**chunker, &cut.buffer[*uncut..], end, &mut |piece| {
            let length = match piece {
                Piece::Data { length } => {
                    ranges.push(start..start + length);
                    each(Part::Data(length as u64));
                    length
                }
                Piece::Hole { length } => {
                    each(Part::Hole(length as u64));
                    length
                }
            };
            start += length;
        });
        *uncut += consumed;
    }

    /// Takes what is cut, with names; what is not cut yet stays.
    pub fn take(&mut self) -> Cut {
        let rest = self.cut.buffer.split_off(self.uncut);
        let mut cut = std::mem::replace(&mut self.cut, Cut { buffer: rest, ..Cut::default() });
        self.uncut = 0;
        if !self.keeps_names {
            let chunks: Vec<&[u8]> =
                cut.ranges.iter().map(|range| &cut.buffer[range.clone()]).collect();
            self.repository.fingerprinter().data_batch(&chunks, &mut cut.fingerprints);
        }
        cut
    }
}
