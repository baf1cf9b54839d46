//! The workers of one pass: they read, open, verify and deliver frames.
//!
//! Algorithm: the unit of work is a container, or a part of it where there are few. Its needed
//! frames that lie side by side, or so close that reading on costs less than asking again
//! ([`super::super::request_costs`]), are read with one request; each is opened once; the
//! fingerprints of all chunks wanted from it are computed in one batch, and only then are their
//! bytes delivered.
//! Pieces that are neighbours both in the frame and in the output are delivered as one.
//! A frame with deltas among what is wanted is spread first: chunks and deltas, made whole out of
//! their bases, one behind another; from there on they are chunks like others. In the first pass
//! bases are held, and payloads of deltas wait for the second, which makes them while the frame
//! with their bases is open.
//!
//! Invariants: no byte reaches a sink before its chunk's fingerprint was computed and compared.
//!
//! Memory: what waits is a part of what was planned for the bases it waits for.
//!
//! Concurrency: workers take what waits and containers from a shared counter; a fault of the sink
//! or an interrupt stops all of them before their next frame. Between frames a worker holds no
//! lock.

use super::due::{Due, Entry};
use super::{Fetched, Fetcher, Lost, Sink, lock};
use crate::container::delta::{BaseSource, DeltaOpener};
use crate::container::frame::FrameOpener;
use crate::container::reader::FrameReader;
use crate::container::verify;
use crate::restore::bases::{self, BasesAndReader, Held, HeldBases, OpenedBases};
use crate::restore::kept::Kept;
use crate::restore::visits::{Place, Spot, Visit, Visits};
use crate::restore::window::{Piece, SortedWindow};
use onefold_format::container::FrameDescriptor;
use onefold_types::{Error, ErrorKind, Result, bug, invariant};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Bytes one behind another, and where pieces are in them, with their indices in the window.
type Placed<'a> = (&'a mut Vec<u8>, &'a mut Vec<(usize, Piece)>);

/// Deltas of a frame that wait for their bases.
pub(super) struct Waiting {
    frame: usize,
    /// Their payloads, one behind another.
    payloads: Arc<Vec<u8>>,
    /// Their pieces' indices in the window, and where the payloads are.
    pub(super) pieces: Vec<(usize, Piece)>,
}

impl Waiting {
    /// All pieces of a frame, if it was kept.
    pub(super) fn of(kept: &Kept, window: &SortedWindow, frame: usize) -> Option<Self> {
        let needed = window.frames[frame];
        let kept = kept.take((needed.container, needed.number))?;
        let pieces = (window.starts[frame]..window.starts[frame + 1]).map(|at| {
            let piece = window.pieces[at];
            Some((at, Piece { chunk_offset: kept.moved(piece.chunk_offset)?, ..piece }))
        });
        let pieces = pieces.collect::<Option<Vec<_>>>()?;
        Some(Self { frame, payloads: kept.payloads, pieces })
    }
}

/// What the first pass finds for the second.
struct Found<'a> {
    spots: &'a [Spot],
    /// Keeps what lies beside bases.
    kept: Option<&'a Kept>,
    held: Mutex<Held>,
    waiting: Mutex<Vec<Waiting>>,
}

/// One pass over some frames.
pub(super) struct Work<'a, S> {
    fetcher: Fetcher<'a>,
    bases: BasesAndReader<'a>,
    window: &'a SortedWindow,
    visits: &'a Visits,
    /// In the first pass alone.
    found: Option<Found<'a>>,
    /// In the second: the bases that are read, what waits, and what is made at once or when a
    /// frame is open.
    spots: &'a [Spot],
    waiting: &'a [Waiting],
    due: Vec<Entry>,
    then: Mutex<HashMap<Place, Vec<Entry>>>,
    sink: &'a S,
    next: AtomicUsize,
    stop: AtomicBool,
    lost: Mutex<Vec<Lost>>,
    /// Pieces that were delivered, handed back as lost, or not wanted.
    settled: AtomicUsize,
    bytes_read: AtomicU64,
}

/// What a worker keeps between frames.
pub(super) struct Scratch {
    opener: FrameOpener,
    sealed: Vec<u8>,
    /// Pieces of one frame that hold, in the order of their outputs.
    good: Vec<Piece>,
    deltas: DeltaOpener,
    /// What is wanted of a frame: the pieces with their indices in the window.
    wanted: Vec<(usize, Piece)>,
    /// What is wanted of a frame with deltas, made whole.
    spread: Vec<u8>,
    /// Those of its pieces that could be made, and where they are now.
    moved: Vec<(usize, Piece)>,
}

impl Scratch {
    fn new() -> Result<Self> {
        Ok(Self {
            opener: FrameOpener::new()?,
            sealed: Vec::new(),
            good: Vec::new(),
            deltas: DeltaOpener::default(),
            wanted: Vec::new(),
            spread: Vec::new(),
            moved: Vec::new(),
        })
    }
}

impl<'a, S: Sink> Work<'a, S> {
    /// The pass that finds the bases of the second.
    pub(super) fn first_pass(
        fetcher: Fetcher<'a>,
        (window, visits): (&'a SortedWindow, &'a Visits),
        (spots, kept): (&'a [Spot], Option<&'a Kept>),
        sink: &'a S,
    ) -> Self {
        let found = Found { spots, kept, held: Mutex::default(), waiting: Mutex::default() };
        let bases = bases::and(None, fetcher.chunks);
        let found = Some(found);
        Self { found, ..Self::new(fetcher, (window, visits), bases, (&[], Due::default()), sink) }
    }

    /// The pass that makes everything whole, also what waited for it.
    pub(super) fn second_pass(
        fetcher: Fetcher<'a>,
        (window, visits): (&'a SortedWindow, &'a Visits),
        (held, spots): (&'a HeldBases, &'a [Spot]),
        due: (&'a [Waiting], Due),
        sink: &'a S,
    ) -> Self {
        let bases = bases::and(Some(held), fetcher.chunks);
        Self { spots, ..Self::new(fetcher, (window, visits), bases, due, sink) }
    }

    fn new(
        fetcher: Fetcher<'a>,
        (window, visits): (&'a SortedWindow, &'a Visits),
        bases: BasesAndReader<'a>,
        (waiting, due): (&'a [Waiting], Due),
        sink: &'a S,
    ) -> Self {
        Self {
            fetcher,
            bases,
            window,
            visits,
            found: None,
            spots: &[],
            waiting,
            due: due.now,
            then: Mutex::new(due.then),
            sink,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            lost: Mutex::default(),
            settled: AtomicUsize::new(0),
            bytes_read: AtomicU64::new(0),
        }
    }

    /// Adds what the pass gave.
    pub(super) fn end(self, fetched: &mut Fetched) {
        fetched.lost.extend(self.lost.into_inner().unwrap_or_else(PoisonError::into_inner));
        fetched.bytes_read += self.bytes_read.into_inner();
        fetched.settled += self.settled.into_inner();
    }

    /// The same, and what the second pass needs.
    pub(super) fn end_of_first_pass(mut self, fetched: &mut Fetched) -> (Held, Vec<Waiting>) {
        let found = self.found.take();
        self.end(fetched);
        let (held, waiting) = found.map(|found| (found.held, found.waiting)).unwrap_or_default();
        let waiting = waiting.into_inner().unwrap_or_else(PoisonError::into_inner);
        (held.into_inner().unwrap_or_else(PoisonError::into_inner), waiting)
    }

    /// The same; and what waited for frames that could not be opened.
    pub(super) fn end_with_rest(mut self, fetched: &mut Fetched) -> Due {
        let then = std::mem::take(&mut self.then);
        self.end(fetched);
        let then = then.into_inner().unwrap_or_else(PoisonError::into_inner);
        Due { now: then.into_values().flatten().collect(), ..Due::default() }
    }

    /// Does all of it, with several threads.
    pub(super) fn run(&self) -> Result<()> {
        let threads = self.fetcher.threads.min(self.due.len() + self.visits.reads.len());
        if threads <= 1 {
            return self.run_alone();
        }
        std::thread::scope(|scope| {
            let mut started = Vec::with_capacity(threads - 1);
            for number in 1..threads {
                let thread = std::thread::Builder::new().name(format!("restore-{number}"));
                let handle = thread
                    .spawn_scoped(scope, || self.run_alone())
                    .map_err(|cause| Error::io("starting a thread", cause))?;
                started.push(handle);
            }
            let mut result = self.run_alone();
            for thread in started {
                let ended = thread.join().unwrap_or_else(|_| {
                    Err(Error::new(ErrorKind::Io, "a restoring thread has stopped"))
                });
                result = result.and(ended);
            }
            result
        })
    }

    fn run_alone(&self) -> Result<()> {
        let kept = lock(&self.fetcher.workspace.scratch).pop();
        let mut scratch = match kept {
            Some(scratch) => scratch,
            None => Scratch::new()?,
        };
        let result = self.work_off(&mut scratch);
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        lock(&self.fetcher.workspace.scratch).push(scratch);
        result
    }

    fn work_off(&self, scratch: &mut Scratch) -> Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if let Some(entry) = self.due.get(number) {
                self.fetcher.job.interrupt.check()?;
                let Scratch { good, deltas, spread, moved, .. } = scratch;
                self.make(std::slice::from_ref(entry), &self.bases, deltas, (spread, moved), good)?;
                continue;
            }
            let Some(frames) = self.visits.reads.get(number - self.due.len()) else {
                break;
            };
            self.container(frames.clone(), scratch)?;
        }
        Ok(())
    }

    fn container(&self, frames: Range<usize>, scratch: &mut Scratch) -> Result<()> {
        let visits = &self.visits.frames;
        let container = visits[frames.start].needed.container;
        let is_there = visits[frames.clone()].iter().all(|it| it.needed.container == container);
        invariant!(is_there, "a frame was to be read from another container", container, frames);
        let reader = FrameReader::new(self.fetcher.chunks.repository(), container)?;
        let reach = self.fetcher.workspace.reach();
        let mut start = frames.start;
        while start < frames.end && !self.stop.load(Ordering::Relaxed) {
            let mut end = start + 1;
            while end < frames.end
                && self.gap_before(end).is_some_and(|gap| gap <= reach.gap_bytes_max)
                && self.span(start, end) <= reach.read_bytes_max
            {
                end += 1;
            }
            self.neighbours(&reader, start..end, scratch)?;
            start = end;
        }
        Ok(())
    }

    fn descriptor(&self, visit: usize) -> FrameDescriptor {
        self.visits.frames[visit].needed.descriptor
    }

    /// Bytes between a frame and the one before it; `None` if it does not lie behind that.
    fn gap_before(&self, visit: usize) -> Option<u64> {
        self.descriptor(visit).offset.checked_sub(self.descriptor(visit - 1).end())
    }

    /// Bytes from the beginning of one frame to the end of another that lies behind it.
    fn span(&self, first: usize, last: usize) -> u64 {
        self.descriptor(last).end() - self.descriptor(first).offset
    }

    /// Reads frames with one request, and delivers what is wanted from them.
    fn neighbours(
        &self,
        reader: &FrameReader,
        visits: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let repository = self.fetcher.chunks.repository();
        let mut sealed = std::mem::take(&mut scratch.sealed);
        let descriptors: Vec<_> = visits.clone().map(|visit| self.descriptor(visit)).collect();
        let began = Instant::now();
        if let Err(error) = reader.read(repository, &descriptors, &mut sealed) {
            scratch.sealed = sealed;
            if visits.len() == 1 {
                self.lose_frame(visits.start, error);
                return Ok(());
            }
            // Part of the range may still be readable.
            return visits
                .into_iter()
                .try_for_each(|visit| self.neighbours(reader, visit..visit + 1, scratch));
        }
        self.fetcher.workspace.note(sealed.len(), began.elapsed());
        self.bytes_read.fetch_add(sealed.len() as u64, Ordering::Relaxed);
        let first = descriptors.first().map_or(0, |frame| frame.offset);
        let mut result = Ok(());
        for (visit, descriptor) in visits.zip(&descriptors) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let start = (descriptor.offset - first) as usize;
            let bytes = &mut sealed[start..start + descriptor.stored_length as usize];
            let interrupt = &self.fetcher.job.interrupt;
            result = interrupt.check().and_then(|()| self.frame(reader, visit, bytes, scratch));
            if result.is_err() {
                break;
            }
        }
        scratch.sealed = sealed;
        result
    }

    fn pieces_of(&self, frame: usize) -> Range<usize> {
        self.window.starts[frame]..self.window.starts[frame + 1]
    }

    fn frame(
        &self,
        reader: &FrameReader,
        visit: usize,
        sealed: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Visit { needed, frame, spots } = &self.visits.frames[visit];
        let Scratch { opener, good, deltas, wanted, spread, moved, .. } = scratch;
        let plain = match reader.open(opener, needed.number, &needed.descriptor, sealed) {
            Ok(plain) => plain,
            Err(error) => {
                self.lose_frame(visit, error);
                return Ok(());
            }
        };
        if let Some(found) = &self.found {
            let opened = bases::opened(self.fetcher.chunks, &found.spots[spots.clone()], plain);
            lock(&found.held).extend(opened);
            if let Some(kept) = found.kept {
                kept.note((needed.container, needed.number), plain);
            }
        }
        let spots = self.spots.get(spots.clone()).unwrap_or_default();
        let place = (needed.container, needed.number);
        let entries = if spots.is_empty() { None } else { lock(&self.then).remove(&place) };
        if let Some(entries) = entries {
            let opened = bases::opened(self.fetcher.chunks, spots, plain);
            let bases = OpenedBases { opened, others: &self.bases };
            self.make(&entries, &bases, deltas, (spread, moved), good)?;
        }
        let Some(frame) = *frame else { return Ok(()) };
        let range = self.pieces_of(frame);
        let pieces = &self.window.pieces[range.clone()];
        wanted.clear();
        wanted.extend(range.zip(pieces.iter().copied()));
        if pieces.iter().all(|piece| piece.payload_length == piece.length) {
            self.verify(frame, plain, wanted, good);
            return self.deliver(plain, good);
        }
        let (mut payloads, mut pieces) = (Vec::new(), Vec::new());
        let later = self.found.as_ref().map(|_| (&mut payloads, &mut pieces));
        self.spread((wanted, plain), (deltas, &self.bases), (spread, moved), later)?;
        if let Some(found) = self.found.as_ref().filter(|_| !pieces.is_empty()) {
            payloads.shrink_to_fit();
            let payloads = Arc::new(payloads);
            lock(&found.waiting).push(Waiting { frame, payloads, pieces });
        }
        self.verify(frame, spread, moved, good);
        self.deliver(spread, good)
    }

    /// Makes deltas that have waited for these bases.
    fn make(
        &self,
        entries: &[Entry],
        bases: &dyn BaseSource,
        deltas: &mut DeltaOpener,
        (spread, moved): Placed<'_>,
        good: &mut Vec<Piece>,
    ) -> Result<()> {
        for Entry { waiting, pieces } in entries {
            let Waiting { frame, payloads, pieces: all } = &self.waiting[*waiting];
            let made = (&all[pieces.clone()], &payloads[..]);
            self.spread(made, (deltas, bases), (spread, moved), None)?;
            self.verify(*frame, spread, moved, good);
            self.deliver(spread, good)?;
        }
        Ok(())
    }

    /// Puts what is wanted of a frame one behind another, with deltas made whole; or puts these off
    /// until later.
    fn spread(
        &self,
        (wanted, plain): (&[(usize, Piece)], &[u8]),
        (deltas, bases): (&mut DeltaOpener, &dyn BaseSource),
        (spread, moved): Placed<'_>,
        mut later: Option<Placed<'_>>,
    ) -> Result<()> {
        spread.clear();
        moved.clear();
        for same in wanted.chunk_by(|(_, a), (_, b)| a.chunk_offset == b.chunk_offset) {
            let (first, piece) = same[0];
            let chunk = piece.descriptor();
            let payload = || verify::cut(plain, &chunk).unwrap_or_default();
            let mut offset = spread.len() as u32;
            if !chunk.is_delta() {
                spread.extend_from_slice(payload());
            } else if let Some((payloads, pieces)) = &mut later {
                offset = payloads.len() as u32;
                payloads.extend_from_slice(payload());
                let there = |&(at, it): &(usize, Piece)| (at, Piece { chunk_offset: offset, ..it });
                pieces.extend(same.iter().map(there));
                continue;
            } else {
                let delta = self.window.deltas.get(piece.delta as usize);
                let delta = delta.ok_or_else(|| bug!("a piece is of no delta", piece.delta))?;
                if let Err(error) = deltas.open(plain, (&chunk, delta), bases, spread) {
                    // What the device does not give may be elsewhere as well.
                    if !error.is_unreadable() {
                        return Err(error);
                    }
                    spread.truncate(offset as usize);
                    self.lose(first..first + same.len(), error);
                    continue;
                }
            }
            let (chunk_offset, payload_length) = (offset, chunk.length);
            let there =
                |&(at, it): &(usize, Piece)| (at, Piece { chunk_offset, payload_length, ..it });
            moved.extend(same.iter().map(there));
        }
        Ok(())
    }

    /// What is wanted of a frame is lost. Its bases are left to whoever asks for them.
    fn lose_frame(&self, visit: usize, error: Error) {
        if let Some(frame) = self.visits.frames[visit].frame {
            self.lose(self.pieces_of(frame), error);
        }
    }

    /// Leaves in `good` the pieces whose bytes have the right fingerprint, sorted by output. With
    /// each comes its index in the window.
    fn verify(&self, frame: usize, plain: &[u8], pieces: &[(usize, Piece)], good: &mut Vec<Piece>) {
        // Pieces at the same offset are the same chunk, computed once.
        let groups = pieces.chunk_by(|(_, a), (_, b)| a.chunk_offset == b.chunk_offset);
        let chunks = groups.clone().map(|same| same[0].1.descriptor());
        let holds = verify::each(plain, chunks, self.fetcher.chunks.repository().fingerprinter());
        good.clear();
        for (same, holds) in groups.zip(holds) {
            for (position, piece) in same {
                if !holds || piece.fingerprint != same[0].1.fingerprint {
                    let error = Error::damaged(format!(
                        "chunk {} in container {} does not have its fingerprint",
                        piece.fingerprint, self.window.frames[frame].container
                    ));
                    self.lose(*position..*position + 1, error);
                } else if self.sink.wants(piece.output) {
                    good.push(*piece);
                } else {
                    self.settled.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        good.sort_unstable_by_key(|piece| (piece.output, piece.file_offset));
    }

    fn deliver(&self, plain: &[u8], good: &[Piece]) -> Result<()> {
        let adjoin = |a: &Piece, b: &Piece| {
            a.output == b.output
                && a.file_offset + u64::from(a.length) == b.file_offset
                && a.chunk_offset + a.length == b.chunk_offset
        };
        for run in good.chunk_by(adjoin) {
            let (first, last) = (&run[0], &run[run.len() - 1]);
            let bytes =
                &plain[first.chunk_offset as usize..(last.chunk_offset + last.length) as usize];
            self.sink.deliver(first.output, first.file_offset, bytes, run)?;
            self.settled.fetch_add(run.len(), Ordering::Relaxed);
        }
        Ok(())
    }

    fn lose(&self, pieces: Range<usize>, error: Error) {
        let reason = Arc::new((error.kind(), error.to_string()));
        self.settled.fetch_add(pieces.len(), Ordering::Relaxed);
        let mut lost = lock(&self.lost);
        lost.extend(pieces.map(|piece| Lost { piece, reason: Arc::clone(&reason) }));
    }
}
