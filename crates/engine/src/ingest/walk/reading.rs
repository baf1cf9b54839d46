//! Hands files out to be read, small ones in batches.

use super::parent::Known;
use super::{Item, Walk, stopped};
use crate::ingest::links::LinkedName;
use crate::ingest::namesakes::EarlierContent;
use crate::ingest::read::{BATCHED_FILE_BYTES, FileTask, MESSAGE_BYTES, Message, ReadJob, Work};
use crate::ingest::scattered::Stretch;
use crossbeam_channel::{Sender, bounded};
use onefold_format::node::{Entry, EntryKind};
use onefold_types::{Error, ErrorKind, Result};
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Files in a batch: each holds its directory open.
pub const BATCH_FILES_MAX: usize = 128;

/// Small files that are read together.
pub(super) struct Batch {
    tasks: Vec<FileTask>,
    directories: usize,
    bytes: u64,
    pub(super) items: usize,
    results: Sender<Message>,
}

impl Walk<'_> {
    pub(super) fn read(
        &mut self,
        directory: &Arc<OwnedFd>,
        name: &OsStr,
        tree_path: &[u8],
        entry: Entry,
        known: Option<&Known>,
    ) -> Result<()> {
        let name = CString::new(name.as_bytes())
            .map_err(|_| Error::new(ErrorKind::Source, "its name holds a zero byte"))?;
        let size = entry.size;
        let earlier = known.and_then(|(known, _)| {
            let is_file = known.kind == EntryKind::File;
            let content = known.content.filter(|_| is_file)?;
            Some(EarlierContent { content, size: known.size })
        });
        let own = entry.clone();
        let directory = Arc::clone(directory);
        let link = self.links.meet(&entry);
        let task = FileTask { directory, name, entry: own, link, earlier, again: Vec::new() };
        let item = Item::Read { path: tree_path.to_vec(), entry, known: known.is_some() };
        self.hand_out(task, size, item)
    }

    /// A file that is the parent's; so much of it is read again.
    pub(super) fn keep(
        &mut self,
        (directory, name): (&Arc<OwnedFd>, &OsStr),
        entry: Entry,
        place: u64,
        again: Vec<Stretch>,
    ) -> Result<()> {
        let (false, Ok(name)) = (again.is_empty(), CString::new(name.as_bytes())) else {
            return self.send(Item::Keep(entry, place));
        };
        let chunks = again.iter().flat_map(|stretch| &stretch.chunks);
        let size = chunks.fold(0u64, |sum, chunk| sum.saturating_add(chunk.length));
        let directory = Arc::clone(directory);
        let (own, link) = (entry.clone(), LinkedName::Only);
        let task = FileTask { directory, name, entry: own, link, earlier: None, again };
        self.hand_out(task, size, Item::Again(entry, place))
    }

    /// Has so many bytes read by a job of their own, or by a batch.
    fn hand_out(&mut self, task: FileTask, size: u64, item: Item) -> Result<()> {
        if size > BATCHED_FILE_BYTES {
            self.close_batch()?;
            let results = self.open_job()?;
            self.send(item)?;
            return self.submit(ReadJob { work: Work::Files(vec![task]), results });
        }
        if self.batch.is_none() {
            let results = self.open_job()?;
            self.batch =
                Some(Batch { tasks: Vec::new(), directories: 0, bytes: 0, items: 0, results });
        }
        // Before its item, which may be the one that closes the batch.
        if let Some(batch) = &mut self.batch {
            let last = batch.tasks.last();
            let is_same = last.is_some_and(|last| Arc::ptr_eq(&last.directory, &task.directory));
            batch.directories += usize::from(!is_same);
            batch.tasks.push(task);
            batch.bytes += size;
        }
        self.send(item)?;
        if let Some(batch) = &self.batch
            && (batch.tasks.len() >= BATCH_FILES_MAX
                || batch.directories >= self.batch_directories_max
                || batch.bytes >= MESSAGE_BYTES as u64)
        {
            self.close_batch()?;
        }
        Ok(())
    }

    /// Waits for a permit and announces a new job's results.
    pub(super) fn open_job(&mut self) -> Result<Sender<Message>> {
        self.flush()?;
        self.context.permits.recv().map_err(|_| stopped())?;
        let (results, receiver) = bounded(1);
        self.send(Item::Job(receiver))?;
        Ok(results)
    }

    pub(super) fn close_batch(&mut self) -> Result<()> {
        match self.batch.take() {
            Some(batch) => {
                let work = Work::Files(batch.tasks);
                self.submit(ReadJob { work, results: batch.results })
            }
            None => Ok(()),
        }
    }

    pub(super) fn submit(&mut self, job: ReadJob) -> Result<()> {
        self.flush()?;
        self.context.jobs.send(job).map_err(|_| stopped())
    }
}
