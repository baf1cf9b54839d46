//! Runs a full window, in rounds: fetch; what was lost is looked for elsewhere and fetched again;
//! what is nowhere fails its file. Then the window's files, links and directories are finished;
//! files that found no room beside those that they replace come after the others, in place.
//!
//! Rounds end because every lost instance of a chunk is remembered and never tried again.

use super::existing::{Comparison, Wanted};
use super::fetch::{Fetcher, Lost};
use super::output::{FileSink, OutputFile};
use super::walk::Restorer;
use super::window::{SortedWindow, Window};
use crate::tree::ExtentWalk;
use onefold_format::node::Reference;
use onefold_types::{Error, ErrorKind, Result, bug};
use rustix::fs::Advice;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Restorer<'_> {
    /// Fetches everything in the window and finishes what is complete with it.
    pub(super) fn run_window(&mut self) -> Result<()> {
        self.fetch_window()?;
        self.finish_outputs()?;
        if self.is_another_try {
            return Ok(());
        }
        self.try_again()?;
        self.make_links()?;
        self.finish_directories();
        Ok(())
    }

    fn fetch_window(&mut self) -> Result<()> {
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
        Ok(())
    }

    /// Writes files that wait for another try, now that no temporary file takes room.
    fn try_again(&mut self) -> Result<()> {
        self.shared.promised_bytes.store(0, Ordering::Relaxed);
        self.shared.has_temporaries.store(self.current.is_some(), Ordering::Relaxed);
        let mut again = std::mem::take(&mut self.again).into_iter();
        if again.len() == 0 {
            return Ok(());
        }
        let current = self.current.take();
        self.is_another_try = true;
        let written = again.by_ref().try_for_each(|file| self.write_again(&file));
        let written = written.and_then(|()| self.run_window());
        self.is_another_try = false;
        // One that was stopped in the middle is abandoned with the others, and those behind it.
        self.outputs.extend(self.current.take().map(|(file, _)| file).into_iter().chain(again));
        self.current = current;
        written
    }

    fn write_again(&mut self, file: &Arc<OutputFile>) -> Result<()> {
        if let Err(error) = file.try_again(&self.job.interrupt) {
            return self.unless_fatal(&file.display(), Err(error));
        }
        let walk = ExtentWalk::new(file.content, file.size)?;
        let wanted = match file.rewritten() {
            Some((opened, stat)) => {
                let fingerprinter = self.repository.fingerprinter();
                let size = stat.st_size as u64;
                Wanted::Differing(Comparison::new(walk, opened, size, fingerprinter))
            }
            None => Wanted::All(walk),
        };
        self.write_pieces(file, wanted, None)
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
        if self.options.verify && self.outputs.iter().any(|file| file.is_complete()) {
            self.write_out();
        }
        let current = self.current.as_mut().map(|(file, number)| {
            *number = None;
            Arc::clone(file)
        });
        for file in std::mem::take(&mut self.outputs) {
            if current.as_ref().is_some_and(|it| Arc::ptr_eq(it, &file)) {
                continue;
            }
            if file.waits_for_another_try() {
                self.again.push(file);
                continue;
            }
            if !file.is_complete() {
                self.give_up(&file);
                continue;
            }
            let what = match file.is_in_place() {
                true => "rewritten in place",
                false => "restored",
            };
            self.report.files_in_place += u64::from(file.is_in_place());
            self.job.observer.item(&file.display(), what);
            if self.options.verify {
                let read = file.open_again().and_then(|(opened, size)| {
                    self.read_back(opened, size, (file.content, file.size))
                });
                self.unless_fatal(&file.display(), read)?;
            }
        }
        Ok(())
    }

    fn give_up(&mut self, file: &OutputFile) {
        let reason =
            file.abandon().unwrap_or_else(|| bug!("a file is not complete, and has not failed"));
        self.problem(&file.display(), &reason);
    }

    /// Reads a restored file again and compares it with the snapshot: with its content and length.
    pub(super) fn read_back(
        &mut self,
        opened: Arc<File>,
        size: u64,
        (content, expected): (Option<Reference>, u64),
    ) -> Result<()> {
        if size != expected {
            return Err(Error::damaged(format!(
                "verification failed: the restored file has {size} bytes instead of {expected}"
            )));
        }
        // What the device has is to be read, and not what memory has of it. Where that cannot be
        // given up, reading tells as much as it did before.
        let _ = rustix::fs::fadvise(&*opened, 0, None, Advice::DontNeed);
        let walk = ExtentWalk::new(content, size)?;
        let fingerprinter = self.repository.fingerprinter();
        let mut comparison = Comparison::new(walk, opened, size, fingerprinter);
        match comparison.next(&self.reader)? {
            None => Ok(()),
            Some((offset, _)) => Err(Error::damaged(format!(
                "verification failed: the restored file reads back otherwise from byte {offset} on"
            ))),
        }
    }

    /// Syncs what was restored so far, and reports each file system that failed.
    pub(super) fn write_out(&mut self) {
        for (place, error) in self.target.write_out() {
            self.problem(&place, &error);
        }
    }

    /// Sets the attributes of directories in which nothing more will be done, deepest first.
    fn finish_directories(&mut self) {
        for leaving in std::mem::take(&mut self.leaving) {
            let directory = &leaving.directory;
            match directory.handle() {
                Ok(handle) => self.shared.applier.apply(
                    handle.as_fd(),
                    &leaving.attributes,
                    leaving.present(),
                    &|| directory.display(),
                ),
                Err(error) => self.problem(&directory.display(), &error),
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
