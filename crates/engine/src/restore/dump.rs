//! Dump: a file's bytes, or a range of them, to a stream (S1.4).
//!
//! The file is taken in batches of [`BATCH_BYTES`]. A batch is fetched like a small window, each
//! frame read and opened once by one of two threads, put together in memory, and written in order.
//! Nothing is written of a batch before all of it was verified.

use super::extents::ExtentWalk;
use super::fetch::{self, Sink, Workspace};
use super::relocate::Relocator;
use super::window::Window;
use crate::job::Job;
use crate::repository::Repository;
use crate::tree::TreeReader;
use onefold_format::node::{Entry, EntryKind, Extent};
use onefold_types::error::Context;
use onefold_types::{Error, Result, limits};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// File bytes put together in memory: many frames, so that few are opened for two batches.
const BATCH_BYTES: u64 = 8 * limits::MIB as u64;
/// Threads that read and open frames.
const THREADS: usize = 2;

/// Writes the bytes of `file` from `offset` on, at most `length`; returns how many it wrote.
pub fn dump(
    repository: &Arc<Repository>,
    file: &Entry,
    offset: u64,
    length: u64,
    out: &mut dyn Write,
    job: &Job,
) -> Result<u64> {
    if file.kind != EntryKind::File {
        return Err(Error::invalid("only files can be dumped"));
    }
    let end = offset.saturating_add(length).min(file.size);
    if offset >= end {
        return Ok(0);
    }
    job.progress.set_totals(1, end - offset);
    let mut dumping = Dumping {
        repository,
        reader: TreeReader::open(repository)?,
        relocator: Relocator::default(),
        job,
        end,
        position: offset,
        batch: Vec::new(),
        workspace: Workspace::default(),
        buffer: Buffer(Mutex::default()),
    };
    let mut walk = ExtentWalk::new(file.content, file.size)?.starting_at(offset);
    let mut batch_bytes = 0;
    while dumping.position < end {
        job.interrupt.check()?;
        match walk.next(&mut dumping.reader)? {
            Some((start, _)) if start >= end => dumping.flush(out)?,
            Some((start, extent)) if extent.is_hole() => {
                dumping.flush(out)?;
                dumping.zeros((start + extent.length).min(end), out)?;
                batch_bytes = 0;
            }
            Some((start, extent)) => {
                dumping.batch.push((start, extent));
                batch_bytes += extent.length;
                if batch_bytes >= BATCH_BYTES {
                    dumping.flush(out)?;
                    batch_bytes = 0;
                }
            }
            None => {
                dumping.flush(out)?;
                if dumping.position < end {
                    return Err(Error::damaged("the file's tree is shorter than its entry"));
                }
            }
        }
    }
    dumping.flush(out)?;
    job.progress.add(1, 0);
    Ok(end - offset)
}

struct Dumping<'a> {
    repository: &'a Arc<Repository>,
    reader: TreeReader,
    relocator: Relocator,
    job: &'a Job,
    end: u64,
    position: u64,
    batch: Vec<(u64, Extent)>,
    workspace: Workspace,
    buffer: Buffer,
}

impl Dumping<'_> {
    fn zeros(&mut self, end: u64, out: &mut dyn Write) -> Result<()> {
        static ZEROS: [u8; 65536] = [0; 65536];
        while self.position < end {
            self.job.interrupt.check()?;
            let part = (end - self.position).min(ZEROS.len() as u64);
            out.write_all(&ZEROS[..part as usize]).context(|| "writing the output")?;
            self.position += part;
            self.job.progress.add(0, part);
        }
        Ok(())
    }

    /// Fetches and writes the batch.
    fn flush(&mut self, out: &mut dyn Write) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let Some(&(start, _)) = batch.first() else {
            return Ok(());
        };
        let bytes: u64 = batch.iter().map(|(_, extent)| extent.length).sum();
        let mut window = Window::default();
        for (offset, extent) in &batch {
            if extent.length > limits::CHUNK_SIZE_MAX_BYTES as u64 {
                return Err(Error::damaged("a chunk is longer than any chunk can be"));
            }
            let location = self.reader.chunks().locate(&extent.fingerprint)?;
            let location = match self.relocator.is_bad(&location) {
                false => location,
                true => self.relocate(extent, "it was unreadable before")?,
            };
            window.push(&location, 0, offset - start, extent.length)?;
        }
        // Every byte is replaced, so what the last batch left need not be cleared.
        self.buffer.lock().resize(bytes as usize, 0);
        while !window.is_empty() {
            window = self.fetch(window)?;
        }
        let from = (self.position - start) as usize;
        let to = (self.end.min(start + bytes) - start) as usize;
        out.write_all(&self.buffer.lock()[from..to]).context(|| "writing the output")?;
        self.job.progress.add(0, (to - from) as u64);
        self.position = start + to as u64;
        Ok(())
    }

    /// Fetches a window; what was lost is the next one.
    fn fetch(&mut self, window: Window) -> Result<Window> {
        let sorted = window.sort();
        let fetched = fetch::fetch(
            self.repository,
            &sorted,
            &self.buffer,
            THREADS,
            &self.workspace,
            self.job,
        )?;
        let mut again = Window::default();
        if !fetched.lost.is_empty() {
            self.relocator.refresh(self.repository)?;
        }
        for lost in fetched.lost {
            let piece = sorted.pieces[lost.piece];
            let frame = sorted.frames[piece.frame as usize];
            self.relocator.add_bad(frame.container, frame.part, piece.chunk_offset);
            let extent = Extent { fingerprint: piece.fingerprint, length: u64::from(piece.length) };
            let location = self.relocate(&extent, &lost.reason.1)?;
            again.push(&location, 0, piece.file_offset, extent.length)?;
        }
        Ok(again)
    }

    fn relocate(&mut self, extent: &Extent, reason: &str) -> Result<crate::tree::Location> {
        self.relocator.locate(self.repository, &extent.fingerprint)?.ok_or_else(|| {
            Error::damaged(format!("chunk {} can be read nowhere: {reason}", extent.fingerprint))
        })
    }
}

/// A batch while it is put together.
struct Buffer(Mutex<Vec<u8>>);

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Buffer {
    fn wants(&self, _output: u32) -> bool {
        true
    }

    fn deliver(&self, _output: u32, offset: u64, bytes: &[u8], _pieces: u64) -> Result<()> {
        let mut buffer = self.lock();
        let start = offset as usize;
        buffer[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}
