//! The workers that read, open, verify and deliver the frames of a window.
//!
//! Algorithm: the unit of work is a container. Its needed frames that lie side by side, or so close
//! that reading on costs less than asking again ([`super::request_costs`]), are read with one
//! request; each is opened once; the fingerprints of all chunks
//! wanted from it are computed in one batch, and only then are their bytes delivered.
//! Pieces that are neighbours both in the frame and in the output are delivered as one.
//! A frame with deltas among what is wanted is spread first: chunks and deltas, made whole out of
//! their bases, one behind another; from there on they are chunks like others.
//!
//! Invariants: no byte reaches a sink before its chunk's fingerprint was computed and compared; a
//! piece is either delivered or handed back as lost, with the reason, exactly once, unless nobody
//! wants it any more; they are counted.
//!
//! Concurrency: workers take containers from a shared counter; a fault of the sink or an interrupt
//! stops all of them before their next frame. Between frames a worker holds no lock.

use super::bases::{BasesAndReader, HeldBases};
use super::request_costs::{Reach, RequestCosts};
use super::window::{Piece, SortedWindow};
use crate::chunks::ChunkReader;
use crate::container::delta::DeltaOpener;
use crate::container::frame::FrameOpener;
use crate::container::reader::FrameReader;
use crate::container::verify;
use crate::job::Job;
use onefold_types::{Error, ErrorKind, Result, bug, invariant};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where verified bytes go. An error is the end of the whole job.
pub trait Sink: Sync {
    /// Whether bytes for this output are still of use.
    fn wants(&self, output: u32) -> bool;
    /// Takes the bytes of a run of pieces, which are neighbours in the frame and in the output.
    fn deliver(&self, output: u32, offset: u64, bytes: &[u8], run: &[Piece]) -> Result<()>;
}

/// A piece that could not be read where it was said to lie.
pub struct Lost {
    /// The piece, as an index into the window.
    pub piece: usize,
    /// Why.
    pub reason: Arc<(ErrorKind, String)>,
}

/// What fetching a window gave.
#[derive(Default)]
pub struct Fetched {
    /// Pieces that were not delivered.
    pub lost: Vec<Lost>,
    /// Stored bytes read.
    pub bytes_read: u64,
}

/// What workers keep from one window to the next: working memory, and what requests cost.
#[derive(Default)]
pub struct Workspace {
    scratch: Mutex<Vec<Scratch>>,
    costs: Mutex<RequestCosts>,
    /// How far requests reach, if it is not to be learnt.
    reach: Option<Reach>,
}

impl Workspace {
    /// A workspace whose requests reach so far; as far as pays if nothing is said.
    #[must_use]
    pub fn new(reach: Option<Reach>) -> Self {
        Self { reach, ..Self::default() }
    }

    /// How far a request is to reach just now.
    pub(super) fn reach(&self) -> Reach {
        self.reach.unwrap_or_else(|| lock(&self.costs).reach())
    }

    /// A request was made.
    pub(super) fn note(&self, bytes: usize, took: Duration) {
        lock(&self.costs).note(bytes, took);
    }
}

struct Work<'a, S> {
    chunks: &'a ChunkReader,
    bases: BasesAndReader<'a>,
    window: &'a SortedWindow,
    /// The frames of each read of a container.
    containers: &'a [Range<usize>],
    sink: &'a S,
    job: &'a Job,
    workspace: &'a Workspace,
    next: AtomicUsize,
    stop: AtomicBool,
    lost: Mutex<Vec<Lost>>,
    /// Pieces that were delivered, handed back as lost, or not wanted.
    settled: AtomicUsize,
    bytes_read: AtomicU64,
}

/// Fetches all pieces of a window with up to `threads` threads. The reader gives bases of deltas.
pub fn fetch<S: Sink>(
    chunks: &ChunkReader,
    window: &SortedWindow,
    sink: &S,
    threads: usize,
    workspace: &Workspace,
    job: &Job,
) -> Result<Fetched> {
    let mut fetched = Fetched::default();
    let mut first = 0;
    while first < window.reads.len() {
        let (bases, last) = HeldBases::read((chunks, workspace), window, first, threads)?;
        let of_part =
            fetch_reads((chunks, &bases), window, first..last, sink, threads, workspace, job)?;
        fetched.lost.extend(of_part.lost);
        fetched.bytes_read += of_part.bytes_read;
        first = last;
    }
    Ok(fetched)
}

/// The same for some of the window's reads, whose bases were read.
pub fn fetch_reads<S: Sink>(
    (chunks, bases): (&ChunkReader, &HeldBases),
    window: &SortedWindow,
    reads: Range<usize>,
    sink: &S,
    threads: usize,
    workspace: &Workspace,
    job: &Job,
) -> Result<Fetched> {
    let containers = &window.reads[reads];
    let threads = threads.clamp(1, containers.len().max(1));
    let work = Work {
        chunks,
        bases: bases.and(chunks),
        window,
        containers,
        sink,
        job,
        workspace,
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        lost: Mutex::default(),
        settled: AtomicUsize::new(0),
        bytes_read: AtomicU64::new(0),
    };
    run(&work, threads)?;
    let frames = containers.iter().cloned().flatten();
    let planned: usize = frames.map(|frame| work.pieces_of(frame).len()).sum();
    let settled = work.settled.into_inner();
    invariant!(planned == settled, "not every piece was delivered or is lost", planned, settled);
    Ok(Fetched {
        lost: work.lost.into_inner().unwrap_or_else(PoisonError::into_inner),
        bytes_read: work.bytes_read.into_inner(),
    })
}

fn run<S: Sink>(work: &Work<'_, S>, threads: usize) -> Result<()> {
    if threads == 1 {
        return work.run();
    }
    std::thread::scope(|scope| {
        let mut started = Vec::with_capacity(threads - 1);
        for number in 1..threads {
            let thread = std::thread::Builder::new().name(format!("restore-{number}"));
            let handle = thread
                .spawn_scoped(scope, || work.run())
                .map_err(|cause| Error::io("starting a thread", cause))?;
            started.push(handle);
        }
        let mut result = work.run();
        for thread in started {
            let ended = thread.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Io, "a restoring thread has stopped"))
            });
            result = result.and(ended);
        }
        result
    })
}

/// What a worker keeps between frames.
struct Scratch {
    opener: FrameOpener,
    sealed: Vec<u8>,
    /// Pieces of one frame that hold, in the order of their outputs.
    good: Vec<Piece>,
    deltas: DeltaOpener,
    /// What is wanted of a frame with deltas, made whole.
    spread: Vec<u8>,
    /// Those of its pieces that could be made: their indices in the window, and where they are now.
    moved: Vec<(usize, Piece)>,
}

impl Scratch {
    fn new() -> Result<Self> {
        Ok(Self {
            opener: FrameOpener::new()?,
            sealed: Vec::new(),
            good: Vec::new(),
            deltas: DeltaOpener::default(),
            spread: Vec::new(),
            moved: Vec::new(),
        })
    }
}

impl<S: Sink> Work<'_, S> {
    fn run(&self) -> Result<()> {
        let kept = lock(&self.workspace.scratch).pop();
        let mut scratch = match kept {
            Some(scratch) => scratch,
            None => Scratch::new()?,
        };
        let result = self.work_off(&mut scratch);
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        lock(&self.workspace.scratch).push(scratch);
        result
    }

    fn work_off(&self, scratch: &mut Scratch) -> Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(frames) = self.containers.get(number) else {
                break;
            };
            self.container(frames.clone(), scratch)?;
        }
        Ok(())
    }

    fn container(&self, frames: Range<usize>, scratch: &mut Scratch) -> Result<()> {
        let container = self.window.frames[frames.start].container;
        let is_there =
            self.window.frames[frames.clone()].iter().all(|it| it.container == container);
        invariant!(is_there, "a frame was to be read from another container", container, frames);
        let reader = FrameReader::new(self.chunks.repository(), container)?;
        let reach = self.workspace.reach();
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

    /// Bytes between the frame and the one before it; `None` if it does not lie behind that.
    fn gap_before(&self, frame: usize) -> Option<u64> {
        self.window.frames[frame]
            .descriptor
            .offset
            .checked_sub(self.window.frames[frame - 1].descriptor.end())
    }

    /// Bytes from the beginning of one frame to the end of another that lies behind it.
    fn span(&self, first: usize, last: usize) -> u64 {
        let frames = &self.window.frames;
        frames[last].descriptor.end() - frames[first].descriptor.offset
    }

    /// Reads frames with one request, and delivers what is wanted from them.
    fn neighbours(
        &self,
        reader: &FrameReader,
        frames: Range<usize>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut sealed = std::mem::take(&mut scratch.sealed);
        let descriptors: Vec<_> =
            self.window.frames[frames.clone()].iter().map(|frame| frame.descriptor).collect();
        let began = Instant::now();
        if let Err(error) = reader.read(self.chunks.repository(), &descriptors, &mut sealed) {
            scratch.sealed = sealed;
            if frames.len() == 1 {
                self.lose(self.pieces_of(frames.start), error);
                return Ok(());
            }
            // Part of the range may still be readable.
            return frames
                .into_iter()
                .try_for_each(|frame| self.neighbours(reader, frame..frame + 1, scratch));
        }
        self.workspace.note(sealed.len(), began.elapsed());
        self.bytes_read.fetch_add(sealed.len() as u64, Ordering::Relaxed);
        let first = descriptors.first().map_or(0, |frame| frame.offset);
        let mut result = Ok(());
        for (frame, descriptor) in frames.zip(&descriptors) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let start = (descriptor.offset - first) as usize;
            let bytes = &mut sealed[start..start + descriptor.stored_length as usize];
            result =
                self.job.interrupt.check().and_then(|()| self.frame(reader, frame, bytes, scratch));
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
        frame: usize,
        sealed: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let needed = &self.window.frames[frame];
        let Scratch { opener, good, deltas, spread, moved, .. } = scratch;
        let plain = match reader.open(opener, needed.number, &needed.descriptor, sealed) {
            Ok(plain) => plain,
            Err(error) => {
                self.lose(self.pieces_of(frame), error);
                return Ok(());
            }
        };
        let range = self.pieces_of(frame);
        let pieces = &self.window.pieces[range.clone()];
        moved.clear();
        if pieces.iter().all(|piece| piece.payload_length == piece.length) {
            moved.extend(range.zip(pieces.iter().copied()));
            self.verify(frame, plain, moved, good);
            return self.deliver(plain, good);
        }
        self.spread(range, plain, deltas, spread, moved)?;
        self.verify(frame, spread, moved, good);
        self.deliver(spread, good)
    }

    /// Puts what is wanted of a frame one behind another, with deltas made whole.
    fn spread(
        &self,
        range: Range<usize>,
        plain: &[u8],
        deltas: &mut DeltaOpener,
        spread: &mut Vec<u8>,
        moved: &mut Vec<(usize, Piece)>,
    ) -> Result<()> {
        spread.clear();
        let mut position = range.start;
        let pieces = &self.window.pieces[range];
        for same in pieces.chunk_by(|a, b| a.chunk_offset == b.chunk_offset) {
            let (chunk, offset) = (same[0].descriptor(), spread.len() as u32);
            let positions = position..position + same.len();
            position = positions.end;
            if chunk.is_delta() {
                let delta = self.window.deltas.get(same[0].delta as usize);
                let delta = delta.ok_or_else(|| bug!("a piece is of no delta", same[0].delta))?;
                if let Err(error) = deltas.open(plain, (&chunk, delta), &self.bases, spread) {
                    // What the device does not give may be elsewhere as well.
                    if !error.is_unreadable() {
                        return Err(error);
                    }
                    self.lose(positions, error);
                    continue;
                }
            } else {
                spread.extend_from_slice(verify::cut(plain, &chunk).unwrap_or_default());
            }
            let (chunk_offset, payload_length) = (offset, chunk.length);
            let there = same.iter().map(|it| Piece { chunk_offset, payload_length, ..*it });
            moved.extend(positions.zip(there));
        }
        Ok(())
    }

    /// Leaves in `good` the pieces whose bytes have the right fingerprint, sorted by output. With
    /// each comes its index in the window.
    fn verify(&self, frame: usize, plain: &[u8], pieces: &[(usize, Piece)], good: &mut Vec<Piece>) {
        // Pieces at the same offset are the same chunk, computed once.
        let groups = pieces.chunk_by(|(_, a), (_, b)| a.chunk_offset == b.chunk_offset);
        let chunks = groups.clone().map(|same| same[0].1.descriptor());
        let holds = verify::each(plain, chunks, self.chunks.repository().fingerprinter());
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
