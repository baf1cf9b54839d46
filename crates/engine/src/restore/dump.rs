//! Dump: a file's bytes, or a range of them, to a stream (S1.4).
//!
//! Algorithm: the output has to be written in order, so what is read early must wait in memory. A
//! stretch of the file's recipe is located; a restore engine plans which containers are read when
//! ([`onefold_policy::restore_plan`]; S2.8); the reads are done in its order, a few at a time by
//! several threads; what they give waits in the stash until its turn. Nothing is written that was
//! not verified.
//!
//! A range of no more than a frame's worth needs no plan: it is read by a [`FileReader`].
//!
//! Memory: half of a restore's window for the recipe, and [`MemoryPlan::stash_bytes`] for what
//! waits, beyond which only the reads that are done together go (4 MiB).

use super::DumpOptions;
use super::bases::HeldBases;
use super::fetch::{Fetcher, Lost, Workspace};
use super::stash::Stash;
use super::window::{Piece, SortedWindow, Window, WindowShare};
use crate::chunks::Location;
use crate::job::Job;
use crate::memory::MemoryPlan;
use crate::placement::Guide;
use crate::repository::Repository;
use crate::tree::{ExtentWalk, FileReader, TreeReader};
use onefold_format::node::{Entry, EntryKind, Extent};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_types::error::Context;
use onefold_types::{Error, Result, invariant, limits};
use std::collections::VecDeque;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

/// Bytes wanted from reads that are done together: work for several threads.
const TOGETHER_BYTES: u64 = 4 * limits::MIB as u64;
/// A range that is read as it comes: a frame's worth, of which most lies in one or two.
const SHORT_BYTES: u64 = limits::FRAME_PLAIN_TARGET_BYTES as u64;
/// Threads that read and open frames.
const THREADS: usize = 2;

/// Writes the bytes of `file` to `out`; returns how many it wrote.
pub fn dump(
    repository: &Arc<Repository>,
    file: &Entry,
    options: &DumpOptions,
    out: &mut dyn Write,
    job: &Job,
) -> Result<u64> {
    if file.kind != EntryKind::File {
        return Err(Error::invalid("only files can be dumped"));
    }
    let end = options.offset.saturating_add(options.length).min(file.size);
    if options.offset >= end {
        return Ok(0);
    }
    job.progress.set_totals(1, end - options.offset);
    let memory = repository.memory();
    let memory_bytes = memory.stash_bytes as u64;
    if let Some(engine) = &options.engine {
        check_engine(engine, memory)?;
    }
    if end - options.offset <= SHORT_BYTES && options.engine.is_none() && options.reach.is_none() {
        return dump_short(repository, file, options.offset..end, out, job);
    }
    // Of a part of a file it is not known how many chunks stand before it.
    let place = options.placed.filter(|_| options.offset == 0).map(|placed| placed.first_chunk);
    let reader = TreeReader::open(repository)?;
    let guide = Guide::new(reader.chunks(), options.placed);
    let mut dumping = Dumping {
        reader,
        guide,
        place,
        job,
        engine: options.engine.unwrap_or(RestoreEngine::OptimalChunks { memory_bytes }),
        out,
        end,
        position: options.offset,
        next: None,
        holes: VecDeque::new(),
        workspace: Workspace::new(options.reach),
        stash: Stash::default(),
    };
    let mut walk = ExtentWalk::new(file.content, file.size)?.starting_at(options.offset);
    let share = WindowShare::take(repository);
    let mut window = Window::default();
    let mut covered = options.offset;
    while covered < end {
        job.interrupt.check()?;
        match walk.next(&dumping.reader)? {
            None => return Err(Error::damaged("the file's tree is shorter than its entry")),
            Some((start, extent)) => {
                // The walk has added them up.
                covered = start + extent.length;
                dumping.add(&mut window, start, extent)?;
            }
        }
        if window.cost() >= share.chunks_max / 2 {
            dumping.run(std::mem::take(&mut window))?;
        }
    }
    dumping.run(window)?;
    let position = dumping.position;
    let is_over = dumping.stash.is_empty() && dumping.holes.is_empty();
    invariant!(position == end && is_over, "a dump has not ended where it was to", position, end);
    job.progress.add(1, 0);
    Ok(end - options.offset)
}

/// Writes a range in which there is nothing to be planned.
fn dump_short(
    repository: &Arc<Repository>,
    file: &Entry,
    range: Range<u64>,
    out: &mut dyn Write,
    job: &Job,
) -> Result<u64> {
    job.interrupt.check()?;
    let reader = FileReader::open(Arc::new(TreeReader::open(repository)?), file)?;
    let mut buffer = vec![0; (range.end - range.start) as usize];
    let length = reader.read_at(range.start, &mut buffer)? as u64;
    let wanted = range.end - range.start;
    invariant!(length == wanted, "a file was read short", length, wanted);
    out.write_all(&buffer).context(|| "writing the output")?;
    job.progress.add(1, length);
    Ok(length)
}

/// Whether an engine that was asked for can write in order within the memory limit.
fn check_engine(engine: &RestoreEngine, memory: &MemoryPlan) -> Result<()> {
    if !engine.is_sequential() {
        return Err(Error::invalid(
            "the engine 'direct' is for files, which can be written anywhere; a stream needs \
             another",
        ));
    }
    let (most, limit_bytes) = (memory.stash_bytes, memory.limit_bytes);
    if engine.memory_bytes() > most as u64 {
        return Err(Error::invalid(format!(
            "the engine is to have {} bytes of memory, and may have {most} of the limit of \
             {limit_bytes}; raise --memory",
            engine.memory_bytes()
        )));
    }
    Ok(())
}

struct Dumping<'a> {
    reader: TreeReader,
    guide: Guide,
    /// The place in the snapshot of the next chunk, if it is known.
    place: Option<u64>,
    job: &'a Job,
    engine: RestoreEngine,
    out: &'a mut dyn Write,
    end: u64,
    /// The bytes before have been written.
    position: u64,
    /// Where the next extent to be written begins.
    next: Option<u64>,
    /// Runs of zeros that are still to be written: start and end.
    holes: VecDeque<(u64, u64)>,
    workspace: Workspace,
    stash: Stash,
}

impl Dumping<'_> {
    fn add(&mut self, window: &mut Window, start: u64, extent: Extent) -> Result<()> {
        self.next.get_or_insert(start);
        if extent.is_hole() {
            self.holes.push_back((start, start + extent.length));
            return Ok(());
        }
        if extent.length > limits::CHUNK_SIZE_MAX_BYTES as u64 {
            return Err(Error::damaged("a chunk is longer than any chunk can be"));
        }
        let location = self.locate(&extent)?;
        self.stash.ledger.expect_bytes(extent.length);
        self.stash.ledger.plan(start, &extent.fingerprint);
        window.push(&location, 0, start, extent.length)
    }

    fn locate(&mut self, extent: &Extent) -> Result<Location> {
        let place = self.place;
        self.place = place.map(|place| place + 1);
        let chunks = self.reader.chunks();
        self.guide.locate(chunks, place, &extent.fingerprint).map(|(location, _)| location)
    }

    /// Reads a window in the engine's order and writes it.
    fn run(&mut self, window: Window) -> Result<()> {
        let sorted = window.arrange(&self.engine)?;
        let mut first = 0;
        while first < sorted.reads.len() {
            // What is read together is little, and what it is made of is everywhere: read for each
            // of them, the same frames would be read again and again.
            let (bases, end) = self.fetcher().read_bases(&sorted, first, &self.stash)?;
            while first < end {
                let mut last = first;
                let mut wanted = 0;
                while last < end && wanted < TOGETHER_BYTES {
                    wanted += wanted_bytes(&sorted, last);
                    last += 1;
                }
                self.fetch(&sorted, first..last, &bases)?;
                self.write()?;
                first = last;
            }
        }
        self.stash.ledger.expect_settled()?;
        self.write()
    }

    fn fetcher(&self) -> Fetcher<'_> {
        let (chunks, workspace) = (self.reader.chunks(), &self.workspace);
        Fetcher { chunks, threads: THREADS, workspace, job: self.job }
    }

    fn fetch(
        &mut self,
        sorted: &SortedWindow,
        reads: Range<usize>,
        bases: &HeldBases,
    ) -> Result<()> {
        let (distinct, repeats) = without_repeats(sorted, reads);
        let mut window = distinct;
        loop {
            let lost = self.fetcher().fetch_with(bases, &window, &self.stash)?.lost;
            if lost.is_empty() {
                break;
            }
            window = self.find_again(&window, lost)?.sort();
        }
        repeats.into_iter().try_for_each(|(of, to)| self.stash.share(&of, to))
    }

    /// A window of what was lost, from other containers.
    fn find_again(&mut self, window: &SortedWindow, lost: Vec<Lost>) -> Result<Window> {
        let mut again = Window::default();
        for lost in lost {
            let piece = window.pieces[lost.piece];
            let frame = window.frames[piece.frame as usize];
            let (chunks, (kind, reason)) = (self.reader.chunks(), &*lost.reason);
            chunks.set_bad(frame.container, frame.number, piece.chunk_offset, *kind);
            let location = chunks.locate_another(&piece.fingerprint, reason)?;
            again.push(&location, 0, piece.file_offset, u64::from(piece.length))?;
        }
        Ok(again)
    }

    /// Writes as far as there are bytes.
    fn write(&mut self) -> Result<()> {
        while let Some(start) = self.next.filter(|start| *start < self.end) {
            self.job.interrupt.check()?;
            if let Some(&(_, hole_end)) = self.holes.front().filter(|hole| hole.0 == start) {
                self.holes.pop_front();
                self.zeros(hole_end.min(self.end))?;
                self.next = Some(hole_end);
                continue;
            }
            let (position, end) = (self.position, self.end);
            let out = &mut *self.out;
            let length = self.stash.take(start, &mut |bytes| {
                // The first extent may begin before the range does.
                let from = (position - start) as usize;
                let to = (end - start).min(bytes.len() as u64) as usize;
                out.write_all(&bytes[from..to]).context(|| "writing the output")
            })?;
            if length == 0 {
                return Ok(());
            }
            let written = (start + length).min(end) - position;
            self.job.progress.add(0, written);
            self.position += written;
            self.next = Some(start + length);
        }
        Ok(())
    }

    fn zeros(&mut self, end: u64) -> Result<()> {
        static ZEROS: [u8; 65536] = [0; 65536];
        while self.position < end {
            self.job.interrupt.check()?;
            let length = (end - self.position).min(ZEROS.len() as u64);
            self.out.write_all(&ZEROS[..length as usize]).context(|| "writing the output")?;
            self.position += length;
            self.job.progress.add(0, length);
        }
        Ok(())
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
