//! One chunk size: cuts, fingerprints and counts what all lanes are shown.
//!
//! The walk reads every file once and hands its blocks to one lane for each chunk size. A lane has
//! a chunker, a table and a log of its own, so lanes share nothing but the blocks, and what a lane
//! counts does not depend on how fast the others are.
//!
//! Memory: the table's budget, one window of the chunker and a block, a chunk as compressed, and
//! the groups of the log being written and read.
//!
//! Concurrency: one thread for each lane, fed through a bounded queue.

use super::section::SectionWriter;
use super::state::{EarlierLists, Lists, Piece};
use super::tally::Tally;
use crossbeam_channel::{Receiver, Sender};
use onefold_chunking::{Chunker, ChunkerParameters, Piece as Cut, Segmenter};
use onefold_crypto::{Fingerprinter, HashKind};
use onefold_format::codec::{Compression, Compressor};
use onefold_types::Result;
use std::sync::Arc;

/// What a lane is told.
#[derive(Clone)]
pub enum Feed {
    /// A file of the kind with this number begins.
    Begin(usize),
    /// Its next bytes.
    Block(Arc<Vec<u8>>),
    /// Its next bytes are so many zeros that lie on no disk: whole blocks of holes.
    Zeros(u64),
    /// It ends.
    End,
    /// It will not be read to its end: nothing of it is to be written down.
    TakeBack,
    /// A file of this kind is what the earlier run read as this number.
    Earlier(usize, u64),
    /// What is there to be saved? Comes between files.
    Save(Sender<Result<Lists>>),
}

/// What a lane has counted.
pub struct Counted {
    /// The chunks.
    pub tally: Tally,
    /// Zeros that are no chunks.
    pub zero_bytes: u64,
}

/// A lane at work.
pub struct Lane {
    chunker: Box<dyn Chunker>,
    fingerprinter: Fingerprinter,
    compressor: Compressor,
    coded: Vec<u8>,
    counted: Counted,
    segmenter: Segmenter,
    /// Bytes that are not cut yet.
    uncut: Vec<u8>,
    cuts: Vec<Cut>,
    kind: usize,
    log: Option<SectionWriter>,
    earlier: Option<EarlierLists>,
}

impl Lane {
    /// A lane; `log` if what it does is to be written down.
    pub fn new(
        parameters: &ChunkerParameters,
        compression: Compression,
        tally: Tally,
        log: Option<SectionWriter>,
        earlier: Option<EarlierLists>,
    ) -> Result<Self> {
        Ok(Self {
            chunker: parameters.build(None)?,
            fingerprinter: Fingerprinter::new(HashKind::Blake3, None),
            compressor: Compressor::new(compression)?,
            coded: Vec::new(),
            counted: Counted { tally, zero_bytes: 0 },
            segmenter: Segmenter::new(false),
            uncut: Vec::new(),
            cuts: Vec::new(),
            kind: 0,
            log,
            earlier,
        })
    }

    /// Works until there is nothing more to do.
    pub fn run(mut self, feed: &Receiver<Feed>) -> Result<Counted> {
        for message in feed {
            match message {
                Feed::Begin(kind) => self.kind = kind,
                Feed::Block(bytes) => {
                    self.uncut.extend_from_slice(&bytes);
                    self.cut(false)?;
                }
                Feed::Zeros(bytes) => {
                    self.cut(true)?;
                    self.zeros(bytes)?;
                }
                Feed::End => {
                    self.cut(true)?;
                    self.write(Piece::End)?;
                    if let Some(log) = &mut self.log {
                        log.set_complete();
                    }
                }
                Feed::TakeBack => {
                    self.uncut.clear();
                    if let Some(log) = &mut self.log {
                        log.take_back();
                    }
                }
                Feed::Earlier(kind, ordinal) => self.take_over(kind, ordinal)?,
                // Whoever asked may have given up waiting.
                Feed::Save(reply) => drop(reply.send(self.lists())),
            }
        }
        Ok(self.counted)
    }

    /// Cuts what can be cut, and begins anew behind it if that is all before zeros or an end.
    fn cut(&mut self, is_end: bool) -> Result<()> {
        let uncut = std::mem::take(&mut self.uncut);
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.clear();
        let chunker = &*self.chunker;
        let used = self.segmenter.advance(chunker, &uncut, is_end, &mut |cut| cuts.push(cut));
        let mut rest = uncut.as_slice();
        for cut in &cuts {
            let (Cut::Data { length } | Cut::Hole { length }) = *cut;
            let (bytes, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            match cut {
                Cut::Data { .. } => self.chunk(bytes)?,
                Cut::Hole { .. } => self.zeros(bytes.len() as u64)?,
            }
        }
        (self.uncut, self.cuts) = (uncut, cuts);
        self.uncut.drain(..used);
        if is_end {
            self.segmenter = Segmenter::new(false);
        }
        Ok(())
    }

    fn chunk(&mut self, bytes: &[u8]) -> Result<()> {
        let prefix = self.fingerprinter.data(bytes).prefix();
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let (compressor, coded) = (&mut self.compressor, &mut self.coded);
        let compressed = self.counted.tally.meet(self.kind, prefix, length, &mut || {
            compressor.compress(bytes, coded)?;
            Ok(Some(u32::try_from(coded.len()).unwrap_or(u32::MAX - 1)))
        })?;
        self.write(Piece::Chunk { prefix, bytes: length, compressed })
    }

    fn zeros(&mut self, bytes: u64) -> Result<()> {
        self.counted.zero_bytes += bytes;
        self.write(Piece::Zeros(bytes))
    }

    fn write(&mut self, piece: Piece) -> Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        piece.encode(log.item());
        log.close_if_full()
    }

    /// Counts a file as the earlier run cut it.
    fn take_over(&mut self, kind: usize, ordinal: u64) -> Result<()> {
        let Some(mut earlier) = self.earlier.take() else {
            return Ok(());
        };
        let taken = earlier.list(ordinal, &mut |piece| match piece {
            Piece::Chunk { prefix, bytes, compressed } => {
                let known = self.counted.tally.meet(kind, prefix, bytes, &mut || Ok(compressed))?;
                let compressed = compressed.or(known);
                self.write(Piece::Chunk { prefix, bytes, compressed })
            }
            Piece::Zeros(bytes) => self.zeros(bytes),
            Piece::End => self.write(piece),
        });
        self.earlier = Some(earlier);
        if let Some(log) = &mut self.log {
            log.set_complete();
        }
        taken
    }

    fn lists(&mut self) -> Result<Lists> {
        let Some(log) = &mut self.log else {
            return Err(onefold_types::Error::invalid("nothing is written down"));
        };
        log.flush()?;
        Ok(Lists { written: log.reader(0)?, rest: self.earlier.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_chunking::{ChunkerKind, HOLE_BLOCK_BYTES};
    use onefold_types::environment::{Randomness, SeededRandomness};

    /// What a lane counts of one file that it is shown so.
    fn count(feeds: Vec<Feed>) -> (crate::primary::estimate::Savings, u64) {
        let parameters = ChunkerParameters::with_average(ChunkerKind::Regression, 4096).unwrap();
        let lane = Lane::new(&parameters, Compression::None, Tally::unbounded(), None, None);
        let (sender, receiver) = crossbeam_channel::unbounded();
        sender.send(Feed::Begin(0)).unwrap();
        feeds.into_iter().chain([Feed::End]).for_each(|feed| sender.send(feed).unwrap());
        drop(sender);
        let counted = lane.unwrap().run(&receiver).unwrap();
        (counted.tally.total(), counted.zero_bytes)
    }

    #[test]
    fn holes_that_are_not_read_and_zeros_that_are_count_the_same() {
        let noise = |length: usize| {
            let mut bytes = vec![0; length];
            SeededRandomness::new(length as u64).fill(&mut bytes);
            bytes
        };
        let block = HOLE_BLOCK_BYTES;
        let (first, second) = (noise(2 * block - 5000), noise(70_001));
        let hole = 3 * block;
        let mut front = first.clone();
        front.resize(2 * block, 0);
        let whole = [front.clone(), vec![0; hole], second.clone()].concat();
        let read: Vec<Feed> =
            whole.chunks(10_000).map(|bytes| Feed::Block(Arc::new(bytes.to_vec()))).collect();
        let skipped = vec![
            Feed::Block(Arc::new(front)),
            Feed::Zeros(hole as u64),
            Feed::Block(Arc::new(second)),
        ];
        // One after the other, as two files: the second has no chunk of its own.
        let both = [&read[..], &[Feed::End], &skipped].concat();
        let ((both, _), read, skipped) = (count(both), count(read), count(skipped));
        assert_eq!((both.unique_chunks, both.chunks), (read.0.chunks, 2 * read.0.chunks));
        assert_eq!(read, skipped);
        assert_eq!(read.1, hole as u64);
        assert_eq!(read.0.bytes, (whole.len() - hole) as u64);
    }
}
