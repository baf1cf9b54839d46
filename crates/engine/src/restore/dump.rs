//! Dump: a file's bytes, or a range of them, to a stream (S1.4).
//!
//! Algorithm: the output has to be written in order, so the chunks are read as a sequence
//! ([`super::sequence`]; S2.8), and what lies between them, the holes, is written where its turn
//! comes.
//!
//! A range of no more than a frame's worth needs no plan: it is read by a [`FileReader`].
//!
//! Memory: half of a restore's window for the recipe, and [`MemoryPlan::stash_bytes`] for what
//! waits, beyond which only the reads that are done together go (4 MiB).

use super::DumpOptions;
use super::sequence::{Sequence, SequenceOptions};
use super::stash::Stash;
use crate::job::Job;
use crate::memory::MemoryPlan;
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
    let engine = options.engine.unwrap_or(RestoreEngine::OptimalChunks { memory_bytes });
    let how = SequenceOptions { engine, reach: options.reach, placed: options.placed, place };
    let mut sequence = Sequence::new(&reader, how, THREADS, job);
    let mut dumping =
        Dumping { job, out, end, position: options.offset, next: None, holes: VecDeque::new() };
    let mut walk = ExtentWalk::new(file.content, file.size)?.starting_at(options.offset);
    let mut covered = options.offset;
    while covered < end {
        job.interrupt.check()?;
        match walk.next(&reader)? {
            None => return Err(Error::damaged("the file's tree is shorter than its entry")),
            Some((start, extent)) => {
                // The walk has added them up.
                covered = start + extent.length;
                dumping.add(&mut sequence, start, extent)?;
            }
        }
        if sequence.is_full() {
            sequence.run(&mut |stash| dumping.write(stash))?;
        }
    }
    sequence.run(&mut |stash| dumping.write(stash))?;
    let position = dumping.position;
    let is_over = sequence.is_empty() && dumping.holes.is_empty();
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
    job: &'a Job,
    out: &'a mut dyn Write,
    end: u64,
    /// The bytes before have been written.
    position: u64,
    /// Where the next extent to be written begins.
    next: Option<u64>,
    /// Runs of zeros that are still to be written: start and end.
    holes: VecDeque<(u64, u64)>,
}

impl Dumping<'_> {
    fn add(&mut self, sequence: &mut Sequence<'_>, start: u64, extent: Extent) -> Result<()> {
        self.next.get_or_insert(start);
        if extent.is_hole() {
            self.holes.push_back((start, start + extent.length));
            return Ok(());
        }
        sequence.add(start, &extent)
    }

    /// Writes as far as there are bytes.
    fn write(&mut self, stash: &Stash) -> Result<()> {
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
            let length = stash.take(start, &mut |bytes| {
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
