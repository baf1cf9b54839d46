//! Runs a full window, in rounds: fetch; what was lost is looked for elsewhere and fetched again;
//! what is nowhere fails its file. Then the window's files, links and directories are finished.
//!
//! Rounds end because every lost instance of a chunk is remembered and never tried again.

use super::existing::Comparison;
use super::fetch::{Fetcher, Lost};
use super::output::{FileSink, OutputFile};
use super::walk::Restorer;
use super::window::{SortedWindow, Window};
use crate::tree::ExtentWalk;
use onefold_types::{Error, ErrorKind, Result, bug};
use std::os::fd::AsFd;
use std::sync::Arc;

impl Restorer<'_> {
    /// Fetches everything in the window and finishes what is complete with it.
    pub(super) fn run_window(&mut self) -> Result<()> {
        let mut window = std::mem::take(&mut self.window);
        while !window.is_empty() {
            let sorted = window.arrange(&self.options.engine)?;
            let sink = FileSink { shared: &self.shared, files: &self.outputs };
            let threads = self.options.threads;
            let chunks = self.reader.chunks();
            let before = chunks.counters().frame_bytes;
            let fetcher = Fetcher { chunks, threads, workspace: &self.workspace, job: self.job };
            let fetched = fetcher.fetch(&sorted, &sink)?;
            let of_bases = chunks.counters().frame_bytes - before;
            self.report.bytes_read += fetched.bytes_read + of_bases;
            self.report.container_reads += sorted.reads.len() as u64;
            let opened = sorted.frames.iter().map(|frame| u64::from(frame.descriptor.plain_length));
            self.report.bytes_opened += opened.sum::<u64>();
            self.containers.extend(sorted.frames.iter().map(|frame| frame.container));
            window = self.relocate(&sorted, fetched.lost)?;
        }
        self.finish_outputs()?;
        self.make_links()?;
        self.finish_directories();
        Ok(())
    }

    /// Plans lost pieces anew, from other containers.
    fn relocate(&mut self, window: &SortedWindow, lost: Vec<Lost>) -> Result<Window> {
        let mut again = Window::default();
        if lost.is_empty() {
            return Ok(again);
        }
        for lost in &lost {
            let piece = window.pieces[lost.piece];
            let frame = window.frames[piece.frame as usize];
            let chunks = self.reader.chunks();
            chunks.set_bad(frame.container, frame.number, piece.chunk_offset, lost.reason.0);
        }
        for lost in &lost {
            let piece = window.pieces[lost.piece];
            let file = &self.outputs[piece.output as usize];
            if file.has_failed() {
                continue;
            }
            let pushed = match self.reader.chunks().locate(&piece.fingerprint) {
                Ok(location) => {
                    again.push(&location, piece.output, piece.file_offset, u64::from(piece.length))
                }
                Err(error) if error.is_unreadable() => Err(Error::damaged(format!(
                    "its bytes from {} on cannot be read: {}",
                    piece.file_offset, lost.reason.1
                ))),
                Err(error) => return Err(error),
            };
            if let Err(error) = pushed {
                file.fail(error);
            }
        }
        Ok(again)
    }

    /// Tells of files that failed, and verifies the others if asked to.
    fn finish_outputs(&mut self) -> Result<()> {
        let current = self.current.as_mut().map(|(file, number)| {
            *number = None;
            Arc::clone(file)
        });
        for file in std::mem::take(&mut self.outputs) {
            if current.as_ref().is_some_and(|it| Arc::ptr_eq(it, &file)) {
                continue;
            }
            if !file.is_complete() {
                self.give_up(&file);
                continue;
            }
            let touched = file.is_new() || file.was_touched();
            self.report.files_unchanged += u64::from(!touched);
            let what = match touched {
                true => "restored",
                false => "unchanged",
            };
            self.job.observer.item(&file.display(), what);
            if self.options.verify
                && let Err(error) = self.read_back(&file)
            {
                if error.kind() == ErrorKind::Interrupted {
                    return Err(error);
                }
                self.problem(&file.display(), &error);
            }
        }
        Ok(())
    }

    fn give_up(&mut self, file: &OutputFile) {
        let reason =
            file.abandon().unwrap_or_else(|| bug!("a file is not complete, and has not failed"));
        self.problem(&file.display(), &reason);
    }

    /// Reads a restored file again and compares it with the snapshot.
    fn read_back(&mut self, file: &OutputFile) -> Result<()> {
        let (opened, size) = file.open_again()?;
        if size != file.size {
            return Err(Error::damaged(format!(
                "verification failed: the restored file has {size} bytes instead of {}",
                file.size
            )));
        }
        let walk = ExtentWalk::new(file.content, file.size)?;
        let fingerprinter = self.repository.fingerprinter();
        let mut comparison = Comparison::new(walk, opened, size, fingerprinter);
        match comparison.next(&self.reader)? {
            None => Ok(()),
            Some((offset, _)) => Err(Error::damaged(format!(
                "verification failed: the restored file reads back otherwise from byte {offset} on"
            ))),
        }
    }

    /// Sets the attributes of directories in which nothing more will be done, deepest first.
    fn finish_directories(&mut self) {
        for leaving in std::mem::take(&mut self.leaving) {
            let directory = &leaving.directory;
            let applied = directory.handle().and_then(|handle| {
                self.shared.applier.apply(
                    handle.as_fd(),
                    &leaving.attributes,
                    leaving.present(),
                    &|| directory.display(),
                )
            });
            if let Err(error) = applied {
                self.problem(&directory.display(), &error);
            }
        }
    }

    /// Removes what is not complete when the restore ends early. Files that were there before and
    /// are changed in part are named.
    pub(super) fn abandon_all(&mut self) {
        let current = self.current.take().map(|(file, _)| file);
        let files = std::mem::take(&mut self.outputs).into_iter().chain(current);
        for file in files {
            if file.is_complete() {
                continue;
            }
            if !file.is_new() && file.was_touched() {
                file.fail(Error::new(ErrorKind::Interrupted, "the restore was stopped"));
            }
            if let Some(error) = file.abandon() {
                self.problem(&file.display(), &error);
            }
        }
    }
}
