//! Chunks read in the order of a plan, and given in the order in which they were asked for: what a
//! dump and a copy of snapshots have in common (S1.4, S2.8).
//!
//! Algorithm: whoever reads asks for chunks at rising offsets of an output that is written from its
//! beginning to its end. When a window of them is full it is run: a restore engine plans which
//! containers are read when ([`onefold_policy::restore_plan`]); the reads are done in its order, a
//! few at a time by several threads, with what deltas are made of, and what lies beside that
//! ([`super::kept`]), read before; what they give waits in the stash until its turn. A chunk that
//! cannot be read is looked for in other containers; one that can be read nowhere waits there as
//! well, with the reason.
//!
//! Invariants: nothing is given that was not verified; after a run nothing that was asked for is
//! left to come.
//!
//! Memory: half of a restore's window for what was asked for, and the engine's for what waits,
//! beyond which only the reads that are done together go (4 MiB).

use super::fetch::{Fetcher, Lost, Prepared, Workspace};
use super::request_costs::Reach;
use super::stash::Stash;
use super::window::{Piece, SortedWindow, Window, WindowShare};
use crate::chunks::Location;
use crate::job::Job;
use crate::placement::{Guide, PlacedItem};
use crate::tree::TreeReader;
use onefold_format::node::Extent;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::{Error, Result, limits};
use std::ops::Range;
use std::sync::Arc;

/// Bytes wanted from reads that are done together: work for several threads.
const TOGETHER_BYTES: u64 = 4 * limits::MIB as u64;

/// How a sequence is read.
#[derive(Clone, Copy, Debug)]
pub struct SequenceOptions {
    /// What is read when.
    pub engine: RestoreEngine,
    /// How far requests reach; `None`: as far as pays, learnt while reading.
    pub reach: Option<Reach>,
    /// Where the item stands in its snapshot's placement, if that has one.
    pub placed: Option<PlacedItem>,
    /// The place in the snapshot of the first chunk, if that is known.
    pub place: Option<u64>,
}

/// Chunks that are read as one sequence.
pub struct Sequence<'a> {
    reader: &'a TreeReader,
    guide: Guide,
    /// The place in the snapshot of the next chunk, if it is known.
    place: Option<u64>,
    job: &'a Job,
    engine: RestoreEngine,
    threads: usize,
    workspace: Workspace,
    window: Window,
    share: WindowShare,
    stash: Stash,
    /// Stored bytes that were read.
    pub bytes_read: u64,
}

impl<'a> Sequence<'a> {
    /// Nothing asked for yet.
    #[must_use]
    pub fn new(
        reader: &'a TreeReader,
        options: SequenceOptions,
        threads: usize,
        job: &'a Job,
    ) -> Self {
        let repository = reader.chunks().repository();
        Self {
            reader,
            guide: Guide::new(reader.chunks(), options.placed),
            place: options.place,
            job,
            engine: options.engine,
            threads,
            workspace: Workspace::new(options.reach),
            window: Window::default(),
            share: WindowShare::take(repository),
            stash: Stash::default(),
            bytes_read: 0,
        }
    }

    /// Asks for a chunk at an offset behind all that were asked for.
    ///
    /// Errors: `Damaged` if no container is known to hold it, or it is not what the extent says.
    pub fn add(&mut self, start: u64, extent: &Extent) -> Result<()> {
        if extent.length > limits::CHUNK_SIZE_MAX_BYTES as u64 {
            return Err(Error::damaged("a chunk is longer than any chunk can be"));
        }
        let location = self.locate(extent)?;
        self.window.push(&location, 0, start, extent.length)?;
        self.stash.ledger.expect_bytes(extent.length);
        self.stash.ledger.plan(start, &extent.fingerprint);
        Ok(())
    }

    /// So many chunks of the snapshot are passed over.
    pub fn pass(&mut self, chunks: u64) {
        self.place = self.place.map(|place| place.saturating_add(chunks));
    }

    fn locate(&mut self, extent: &Extent) -> Result<Location> {
        let place = self.place;
        self.place = place.map(|place| place + 1);
        let chunks = self.reader.chunks();
        self.guide.locate(chunks, place, &extent.fingerprint).map(|(location, _)| location)
    }

    /// Chunks and frames that wait for a run.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.window.cost()
    }

    /// How much may wait for a run.
    #[must_use]
    pub fn cost_max(&self) -> usize {
        self.share.chunks_max / 2
    }

    /// Whether it is time for a run.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.cost() >= self.cost_max()
    }

    /// Whether all that was asked for was taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.window.is_empty() && self.stash.is_empty()
    }

    /// Reads what was asked for. Whenever something has come `ready` takes what is next, and in the
    /// end once more.
    pub fn run(&mut self, ready: &mut dyn FnMut(&Stash) -> Result<()>) -> Result<()> {
        let sorted = std::mem::take(&mut self.window).arrange(&self.engine)?;
        let mut first = 0;
        while first < sorted.reads.len() {
            // What is read together is little, and what it is made of is everywhere: read for each
            // of them, the same frames would be read again and again.
            let prepared = self.fetcher().prepare(&sorted, first, &self.stash)?;
            self.bytes_read += prepared.bytes_read;
            let end = prepared.reads.end;
            while first < end {
                let mut last = first;
                let mut wanted = 0;
                while last < end && wanted < TOGETHER_BYTES {
                    wanted += wanted_bytes(&sorted, last);
                    last += 1;
                }
                self.fetch(&sorted, first..last, &prepared)?;
                ready(&self.stash)?;
                first = last;
            }
        }
        self.stash.ledger.expect_settled()?;
        ready(&self.stash)
    }

    fn fetcher(&self) -> Fetcher<'_> {
        let (chunks, workspace) = (self.reader.chunks(), &self.workspace);
        Fetcher { chunks, threads: self.threads, workspace, job: self.job }
    }

    fn fetch(
        &mut self,
        sorted: &SortedWindow,
        reads: Range<usize>,
        prepared: &Prepared,
    ) -> Result<()> {
        let (distinct, repeats) = without_repeats(sorted, reads);
        let mut window = distinct;
        loop {
            let fetched = self.fetcher().fetch_prepared(prepared, &window, &self.stash)?;
            self.bytes_read += fetched.bytes_read;
            if fetched.lost.is_empty() {
                break;
            }
            window = self.find_again(&window, fetched.lost)?.sort();
        }
        repeats.into_iter().try_for_each(|(of, to)| self.stash.share(&of, to))
    }

    /// A window of what was lost, from other containers. What is nowhere is given up.
    fn find_again(&mut self, window: &SortedWindow, lost: Vec<Lost>) -> Result<Window> {
        let mut again = Window::default();
        for lost in lost {
            let piece = window.pieces[lost.piece];
            let frame = window.frames[piece.frame as usize];
            let (chunks, (kind, reason)) = (self.reader.chunks(), &*lost.reason);
            chunks.set_bad(frame.container, frame.number, piece.chunk_offset, *kind);
            let length = u64::from(piece.length);
            let found = chunks
                .locate_another(&piece.fingerprint, reason)
                .and_then(|location| again.push(&location, 0, piece.file_offset, length));
            match found {
                Ok(()) => {}
                Err(error) if error.is_unreadable() => self.stash.give_up(&piece, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(again)
    }
}

fn wanted_bytes(sorted: &SortedWindow, read: usize) -> u64 {
    let frames = &sorted.reads[read];
    let pieces = &sorted.pieces[sorted.starts[frames.start]..sorted.starts[frames.end]];
    pieces.iter().map(|piece| u64::from(piece.length)).sum()
}

/// A piece, and another offset at which its bytes are to stand.
type Repeat = (Piece, u64);

/// Some reads of a window with each chunk once, and the pieces of the chunks that come again.
fn without_repeats(sorted: &SortedWindow, reads: Range<usize>) -> (SortedWindow, Vec<Repeat>) {
    let deltas = Arc::clone(&sorted.deltas);
    let mut window = SortedWindow { deltas, ..SortedWindow::default() };
    let mut repeats = Vec::new();
    for frames in &sorted.reads[reads] {
        let first = window.frames.len();
        for frame in frames.clone() {
            let number = window.frames.len() as u32;
            window.frames.push(sorted.frames[frame]);
            window.starts.push(window.pieces.len());
            let pieces = &sorted.pieces[sorted.starts[frame]..sorted.starts[frame + 1]];
            for same in pieces.chunk_by(|a, b| a.chunk_offset == b.chunk_offset) {
                window.pieces.push(Piece { frame: number, ..same[0] });
                repeats.extend(same[1..].iter().map(|piece| (same[0], piece.file_offset)));
            }
        }
        window.reads.push(first..window.frames.len());
    }
    window.starts.push(window.pieces.len());
    (window, repeats)
}
