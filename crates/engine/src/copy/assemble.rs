//! Builds the tree in the second store, step by step: chunks go to the stream, files and
//! directories become nodes.
//!
//! Chunks are named and handed over together; what stands between them waits until then.

use super::cutting::{Cut, Cutter, Part};
use super::steps::{NamedEntry, Step};
use crate::chunk_store::{ChunkBatch, StreamWriter};
use crate::job::Job;
use crate::restore::stash::Stash;
use crate::tree::directory::{CollectedNames, Directory, DirectoryBuilder};
use crate::tree::file_map::FileMapBuilder;
use crate::tree::path;
use onefold_format::node::{Entry, Extent};
use onefold_types::{Error, ErrorKind, Result, bug};
use std::collections::VecDeque;

/// Steps without data after which all that waits is dealt with.
const WAITING_MAX: usize = 1 << 12;

/// What waits for the names of the chunks before it.
enum Waiting {
    Enter(Box<NamedEntry>),
    Leave,
    Entry(Box<NamedEntry>),
    File(Box<NamedEntry>),
    Part(Part),
    Known(Extent),
    Lost,
    EndFile,
}

struct OpenFile {
    entry: Box<NamedEntry>,
    map: FileMapBuilder,
    chunks: u64,
    is_lost: bool,
}

#[derive(Default)]
struct OpenDirectory {
    /// `None`: the root.
    entry: Option<Box<NamedEntry>>,
    builder: DirectoryBuilder,
    names: CollectedNames,
}

impl OpenDirectory {
    fn push(&mut self, named: NamedEntry, stream: &mut StreamWriter) -> Result<()> {
        let NamedEntry { entry, user, group } = named;
        self.names.users.extend(user.map(|name| (entry.uid, name)));
        self.names.groups.extend(group.map(|name| (entry.gid, name)));
        self.builder.push(entry, &self.names, stream)
    }
}

/// Builds a tree.
pub struct Assembler<'a> {
    stream: &'a mut StreamWriter,
    job: &'a Job,
    cutter: Cutter,
    waiting: Vec<Waiting>,
    open: Vec<OpenDirectory>,
    file: Option<OpenFile>,
    /// The path of the file whose steps come, and whether it is given up.
    current: Option<(Vec<u8>, bool)>,
    /// Files that could not be read whole.
    pub damaged: u64,
}

impl<'a> Assembler<'a> {
    /// An empty root.
    pub fn new(stream: &'a mut StreamWriter, cutter: Cutter, job: &'a Job) -> Self {
        Self {
            stream,
            job,
            cutter,
            waiting: Vec::new(),
            open: vec![OpenDirectory::default()],
            file: None,
            current: None,
            damaged: 0,
        }
    }

    /// Takes steps as far as there are bytes for them.
    pub fn take(&mut self, steps: &mut VecDeque<Step>, stash: &Stash) -> Result<()> {
        while let Some(step) = steps.front() {
            self.job.interrupt.check()?;
            if let Step::Chunk { at, fingerprint } = step {
                let (at, fingerprint) = (*at, *fingerprint);
                let buffer = self.cutter.buffer();
                let before = buffer.len();
                let taken = stash.take(at, &mut |bytes| {
                    buffer.extend_from_slice(bytes);
                    Ok(())
                });
                match taken {
                    Ok(0) => return Ok(()),
                    Ok(length) => self.chunk(before, length, fingerprint),
                    Err(error) => self.lost(&error)?,
                }
                steps.pop_front();
            } else if let Some(step) = steps.pop_front() {
                self.step(step)?;
            }
            if self.cutter.is_full() || self.waiting.len() >= WAITING_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn chunk(&mut self, before: usize, length: u64, fingerprint: onefold_types::Fingerprint) {
        if self.current.as_ref().is_some_and(|(_, is_lost)| *is_lost) {
            self.cutter.buffer().truncate(before);
            return;
        }
        let waiting = &mut self.waiting;
        self.cutter.chunk(fingerprint, &mut |part| waiting.push(Waiting::Part(part)));
        self.job.progress.add(0, length);
    }

    fn step(&mut self, step: Step) -> Result<()> {
        let is_lost = self.current.as_ref().is_some_and(|(_, is_lost)| *is_lost);
        let waiting = &mut self.waiting;
        match step {
            Step::Enter(entry) => waiting.push(Waiting::Enter(entry)),
            Step::Leave => waiting.push(Waiting::Leave),
            Step::Entry(entry) => waiting.push(Waiting::Entry(entry)),
            Step::File(entry, path) => {
                self.current = Some((path, false));
                self.cutter.begin();
                waiting.push(Waiting::File(entry));
            }
            Step::Chunk { .. } => {}
            Step::Known(_) | Step::Hole(_) if is_lost => {}
            Step::Known(extent) => {
                self.job.progress.add(0, extent.length);
                waiting.push(Waiting::Known(extent));
            }
            Step::Hole(length) => {
                self.job.progress.add(0, length);
                self.cutter.hole(length, &mut |part| waiting.push(Waiting::Part(part)));
            }
            Step::Lost(error) => self.lost(&error)?,
            Step::EndFile => {
                self.cutter.end(&mut |part| waiting.push(Waiting::Part(part)));
                waiting.push(Waiting::EndFile);
                self.current = None;
                self.job.progress.add(1, 0);
            }
        }
        Ok(())
    }

    /// Something of the current file cannot be read. That a store cannot be reached says nothing
    /// about the file.
    fn lost(&mut self, error: &Error) -> Result<()> {
        if error.kind() == ErrorKind::Unavailable || !error.is_unreadable() {
            return Err(Error::new(error.kind(), error.to_string()));
        }
        let Some((path, is_lost)) = &mut self.current else {
            return Err(bug!("a chunk was lost of no file"));
        };
        if !*is_lost {
            *is_lost = true;
            self.damaged += 1;
            self.job.observer.problem(&path::display(path), error);
            self.cutter.give_up();
            self.waiting.push(Waiting::Lost);
        }
        Ok(())
    }

    /// Hands over what is cut, and builds what it belongs to.
    fn flush(&mut self) -> Result<()> {
        let Cut { buffer, ranges, fingerprints } = self.cutter.take();
        let mut names = fingerprints.clone().into_iter();
        if !ranges.is_empty() {
            let batch = ChunkBatch { buffer, ranges, fingerprints, corresponding: Vec::new() };
            self.stream.put_data(batch, &mut drop)?;
        }
        for waiting in std::mem::take(&mut self.waiting) {
            self.build(waiting, &mut names)?;
        }
        Ok(())
    }

    fn build(
        &mut self,
        waiting: Waiting,
        names: &mut dyn Iterator<Item = onefold_types::Fingerprint>,
    ) -> Result<()> {
        match waiting {
            Waiting::Enter(entry) => {
                self.open.push(OpenDirectory { entry: Some(entry), ..OpenDirectory::default() });
                Ok(())
            }
            Waiting::Leave => self.leave(),
            Waiting::Entry(entry) => self.push(*entry),
            Waiting::File(entry) => {
                let map = FileMapBuilder::default();
                self.file = Some(OpenFile { entry, map, chunks: 0, is_lost: false });
                Ok(())
            }
            Waiting::Part(Part::Data(length)) => {
                let name = names.next().ok_or_else(|| bug!("a chunk has no name"))?;
                self.extent(Extent { fingerprint: name, length })
            }
            Waiting::Part(Part::Hole(length)) => self.extent(Extent::hole(length)),
            Waiting::Known(extent) => self.extent(extent),
            Waiting::Lost => {
                self.file.iter_mut().for_each(|file| file.is_lost = true);
                Ok(())
            }
            Waiting::EndFile => self.end_file(),
        }
    }

    fn extent(&mut self, extent: Extent) -> Result<()> {
        let file = self.file.as_mut().ok_or_else(|| bug!("a chunk is of no file"))?;
        file.chunks += u64::from(!extent.is_hole());
        file.map.push(extent, self.stream)
    }

    fn end_file(&mut self) -> Result<()> {
        let file = self.file.take().ok_or_else(|| bug!("a file ends that has not begun"))?;
        if file.is_lost {
            return Ok(());
        }
        let NamedEntry { entry, user, group } = *file.entry;
        let (length, size) = (file.map.length(), entry.size);
        if length != size {
            return Err(bug!("a file was copied with another length", length, size));
        }
        let content = file.map.finish(self.stream)?;
        let entry = Entry { content, chunks: file.chunks, ..entry };
        self.push(NamedEntry { entry, user, group })
    }

    fn push(&mut self, entry: NamedEntry) -> Result<()> {
        let open = self.open.last_mut().ok_or_else(|| bug!("an entry is in no directory"))?;
        open.push(entry, self.stream)
    }

    fn leave(&mut self) -> Result<()> {
        let open = self.open.pop().ok_or_else(|| bug!("a directory ends that has not begun"))?;
        let directory = open.builder.finish(&open.names, self.stream)?;
        let named = *open.entry.ok_or_else(|| bug!("the root ends before its entries"))?;
        let NamedEntry { entry, user, group } = named;
        let content = Some(directory.reference);
        let entry = Entry { content, totals: directory.totals, ..entry };
        self.push(NamedEntry { entry, user, group })
    }

    /// The whole tree.
    pub fn finish(mut self) -> Result<Directory> {
        self.flush()?;
        let root = self.open.pop().filter(|_| self.open.is_empty());
        let root = root.ok_or_else(|| bug!("a directory has not ended"))?;
        root.builder.finish(&root.names, self.stream)
    }
}
