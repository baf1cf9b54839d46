//! Takes items in stream order: chunks go to the chunk store, files and directories become nodes.
//!
//! One thread for each stream; it owns the stream's open containers, so that chunks stand in them
//! in stream order (SISL, FAST'08 section 4.2).

use super::links::{Identity, LinkEndName};
use super::read::{Element, FileEnd, Message};
use super::walk::Item;
use crate::chunk_store::{ChunkBatch, StreamWriter};
use crate::job::Job;
use crate::tree::directory::{DirectoryBuilder, OwnerNames};
use crate::tree::file_map::FileMapBuilder;
use crate::tree::path;
use crossbeam_channel::{Receiver, Sender};
use onefold_format::node::{Entry, Extent, Listing, Reference, Time};
use onefold_format::record::Summary;
use onefold_types::{Error, ErrorKind, Result, bug, invariant};
use std::collections::HashMap;
use uzers::{Groups, Users, UsersCache};

/// A source that has become part of a tree.
pub struct Assembled {
    /// The source's number.
    pub source: usize,
    /// Its entry; `None` if it could not be read.
    pub entry: Option<Entry>,
}

/// What assembling needs besides items.
pub struct Assembler<'a> {
    /// Where chunks and nodes go.
    pub stream: &'a mut StreamWriter,
    /// How far it is, and who listens.
    pub job: &'a Job,
    /// Buffers to be used again.
    pub spare: Sender<Vec<u8>>,
    /// Given back when a job is done.
    pub permits: Sender<()>,
    /// What was found and done.
    pub summary: Summary,
    /// Files that were gone when they were to be read.
    pub gone: u64,
    /// Directories into which more has come since they were listed.
    pub grown: u64,
    /// Whether only cold files are asked for; one that changes is none, and is met again.
    pub is_manifest: bool,
    /// Names of owners.
    pub names: &'a SystemNames,
    /// Where messages come from at the moment.
    pub cursor: Cursor,
    /// Files that have several names, by device and inode.
    pub linked: HashMap<(u64, u64), LinkedContent>,
    /// The ticket behind the last chunk that a file has taken.
    pub taken: u64,
}

/// What a file that has several names was when it was read under the first of them. The others that
/// were found to be the same file get all of it.
#[derive(Clone, Copy, Debug)]
pub struct LinkedContent {
    identity: Identity,
    content: Option<Reference>,
    chunks: u64,
    size: u64,
    sparse: bool,
    /// With these the next backup reads it again.
    modified: Time,
    changed: Time,
}

impl LinkedContent {
    fn of(entry: &Entry, identity: Identity) -> Self {
        let Entry { content, chunks, size, sparse, modified, changed, .. } = *entry;
        Self { identity, content, chunks, size, sparse, modified, changed }
    }

    fn put_into(self, entry: &mut Entry) {
        (entry.content, entry.chunks) = (self.content, self.chunks);
        (entry.size, entry.sparse) = (self.size, self.sparse);
        (entry.modified, entry.changed) = (self.modified, self.changed);
    }
}

/// The messages of one job after the other.
#[derive(Default)]
pub struct Cursor {
    results: Option<Receiver<Message>>,
    message: Option<OpenMessage>,
}

/// An element of a job's results.
enum Next {
    /// A chunk of the stream.
    Chunk(Extent),
    /// So many chunks of a file that is kept.
    Kept(u64),
    /// So many zeros.
    Hole(u64),
    /// The end of a file.
    End(Box<Result<FileEnd>>),
}

struct OpenMessage {
    message: Message,
    element: usize,
    chunk: usize,
    first_ticket: u64,
}

impl Assembler<'_> {
    /// Takes items until the walk ends.
    pub fn run(&mut self, items: &Receiver<Vec<Item>>, done: &mut Vec<Assembled>) -> Result<()> {
        // With how many entries each directory has so far.
        let mut open: Vec<(Entry, DirectoryBuilder, u64)> = Vec::new();
        let mut finished = None;
        for item in items.iter().flatten() {
            let entry = match item {
                Item::Enter(entry) => {
                    self.summary.directories += 1;
                    open.push((entry, DirectoryBuilder::default(), 0));
                    continue;
                }
                Item::Leave { listed } => {
                    let Some((mut entry, builder, entries)) = open.pop() else {
                        return Err(bug!("a directory is left that was never entered"));
                    };
                    // Every name that it had is in the snapshot.
                    let listed = listed.filter(|listed| listed.count() == entries);
                    let listed = listed.filter(|_| !self.is_manifest);
                    let has_grown = listed.as_ref().is_some_and(|listed| listed.holds_more());
                    self.grown += u64::from(has_grown);
                    let is_whole = listed.is_some() && !has_grown;
                    entry.listing = if is_whole { Listing::Whole } else { Listing::Partial };
                    Some(self.close_directory(entry, builder)?)
                }
                Item::SourceDone(source) => {
                    done.push(Assembled { source, entry: finished.take() });
                    continue;
                }
                Item::Failed(error) => return Err(error),
                other => self.leaf(other)?,
            };
            let Some(entry) = entry else { continue };
            match open.last_mut() {
                Some((_, builder, entries)) => {
                    *entries += 1;
                    builder.push(entry, self.names, self.stream)?;
                }
                None => finished = Some(entry),
            }
        }
        let is_over = open.is_empty() && finished.is_none();
        invariant!(is_over, "a source is not assembled to its end", open.len());
        self.end_job();
        Ok(())
    }

    fn close_directory(&mut self, mut entry: Entry, builder: DirectoryBuilder) -> Result<Entry> {
        let directory = builder.finish(self.names, self.stream)?;
        entry.content = Some(directory.reference);
        entry.totals = directory.totals;
        Ok(entry)
    }

    /// The finished entry of an item that is no directory; `None` if it is left out.
    fn leaf(&mut self, item: Item) -> Result<Option<Entry>> {
        match item {
            Item::Job(results) => {
                self.end_job();
                self.cursor.results = Some(results);
                Ok(None)
            }
            Item::Keep(entry, place) => {
                self.stream.keep(self.taken, Some(place), entry.chunks);
                self.summary.files_unchanged += 1;
                self.count_file(&entry, 0);
                Ok(Some(entry))
            }
            Item::Again(entry, place) => self.again(entry, place).map(Some),
            Item::Stored(entry) => {
                // No file of the parent's placement stands for it.
                self.stream.keep(self.taken, None, entry.chunks);
                self.summary.files_unchanged += 1;
                self.count_file(&entry, 0);
                Ok(Some(entry))
            }
            Item::Other(entry) => {
                self.summary.others += 1;
                Ok(Some(entry))
            }
            Item::Read { path, entry, known } => self.read(&path, entry, known),
            Item::Enter(_) | Item::Leave { .. } | Item::SourceDone(_) | Item::Failed(_) => Ok(None),
        }
    }

    /// A file that is kept, but for chunks that are read again. They come in its order.
    fn again(&mut self, entry: Entry, place: u64) -> Result<Entry> {
        let mut chunks = 0;
        loop {
            match self.next_element()? {
                Next::Chunk(extent) => {
                    chunks += 1;
                    self.summary.bytes_read += extent.length;
                }
                Next::Kept(more) => {
                    self.stream.keep(self.taken, Some(place.saturating_add(chunks)), more);
                    chunks = chunks.saturating_add(more);
                }
                Next::Hole(length) => return Err(bug!("a hole is read again", length)),
                Next::End(end) => break (*end).map(drop)?,
            }
        }
        self.stream.confirm(self.taken)?;
        invariant!(chunks <= entry.chunks, "more of a file is kept than it has", chunks);
        let rest = entry.chunks - chunks;
        self.stream.keep(self.taken, Some(place.saturating_add(chunks)), rest);
        self.summary.files_unchanged += 1;
        self.count_file(&entry, 0);
        Ok(entry)
    }

    fn read(&mut self, path: &[u8], entry: Entry, known: bool) -> Result<Option<Entry>> {
        let mut file = FileMapBuilder::default();
        let first = self.taken;
        let end = self.contents(&mut file)?;
        let end = match end {
            Ok(FileEnd { is_gone: true, .. }) => {
                self.gone += 1;
                return Ok(None);
            }
            Ok(end) => end,
            // The file could be read if this program held less open: nothing is wrong with it.
            Err(error) if error.kind() == ErrorKind::Exhausted => {
                return Err(error.context(path::display(path)));
            }
            Err(error) => {
                self.stream.discard(first..self.taken);
                return Ok(self.problem(path, &error));
            }
        };
        self.stream.confirm(self.taken)?;
        let length = file.length();
        let content = file.finish(self.stream)?;
        let mut entry = end.entry.unwrap_or(Entry { size: length, ..entry });
        entry.content = content;
        entry.chunks = self.taken - first;
        if let Some(link) = end.link {
            match link.name {
                LinkEndName::AsFirst => return self.linked(path, entry, &link.identity),
                LinkEndName::First => {
                    let content = LinkedContent::of(&entry, link.identity);
                    self.linked.insert((entry.device, entry.inode), content);
                }
                LinkEndName::Itself => self.trust_like_first(&mut entry, &link.identity),
            }
        }
        if end.changed_while_read && !self.is_manifest {
            let what = "it changed while it was read; what was read is saved";
            self.job.observer.warning(&path::display(path), what);
        }
        if let Some(error) = end.attributes {
            self.problem(path, &error);
        }
        self.summary.bytes_read += length;
        let what = match (known, end.was_read_again) {
            (_, true) => "read again",
            (true, false) => "changed",
            (false, false) => "new",
        };
        match known {
            true => self.summary.files_changed += 1,
            false => self.summary.files_new += 1,
        }
        self.job.observer.item(&path::display(path), what);
        self.count_file(&entry, length);
        Ok(Some(entry))
    }

    /// A further name of a file that was read under its first one.
    fn linked(
        &mut self,
        path: &[u8],
        mut entry: Entry,
        identity: &Identity,
    ) -> Result<Option<Entry>> {
        let known = self.linked.get(&(entry.device, entry.inode));
        let Some(read) = known.filter(|read| read.identity == *identity) else {
            let error = Error::new(ErrorKind::Source, "its first name could not be read");
            return Ok(self.problem(path, &error));
        };
        read.put_into(&mut entry);
        // A restore makes a link of it and reads nothing.
        self.stream.keep(self.taken, None, entry.chunks);
        self.count_file(&entry, 0);
        Ok(Some(entry))
    }

    /// A further name that was read by itself, and has what the first has, is trusted by the next
    /// backup as the first is: a restore makes a link of names that agree in all.
    fn trust_like_first(&self, entry: &mut Entry, identity: &Identity) {
        if let Some(first) = self.linked.get(&(entry.device, entry.inode))
            && first.identity == *identity
            && first.content == entry.content
        {
            entry.changed = first.changed;
        }
    }

    /// Takes elements up to the end of a file. The outer error ends the backup, the inner one
    /// leaves the file out.
    fn contents(&mut self, file: &mut FileMapBuilder) -> Result<Result<FileEnd>> {
        loop {
            let extent = match self.next_element()? {
                Next::Chunk(extent) => extent,
                Next::Hole(length) => Extent::hole(length),
                Next::Kept(chunks) => return Err(bug!("a file that is read keeps chunks", chunks)),
                Next::End(end) => return Ok(*end),
            };
            file.push(extent, self.stream)?;
            // A large file takes minutes, and shows that it goes on.
            self.job.progress.add(0, extent.length);
        }
    }

    /// The next element of the current job. A chunk is taken.
    fn next_element(&mut self) -> Result<Next> {
        loop {
            let open = match &mut self.cursor.message {
                Some(open) => open,
                None => self.next_message()?,
            };
            let Some(element) = open.message.elements.get_mut(open.element) else {
                self.cursor.message = None;
                continue;
            };
            open.element += 1;
            return Ok(match element {
                Element::Data { length, .. } => {
                    let length = *length as u64;
                    let fingerprint = open.message.fingerprints[open.chunk];
                    open.chunk += 1;
                    self.taken = open.first_ticket + open.chunk as u64;
                    Next::Chunk(Extent { fingerprint, length })
                }
                Element::Again { .. } => return Err(bug!("a chunk that nobody has compared")),
                Element::Kept { chunks } => Next::Kept(*chunks),
                Element::Hole { length } => Next::Hole(*length),
                Element::End(end) => {
                    let taken = Err(Error::new(ErrorKind::Source, "its end was met twice"));
                    Next::End(Box::new(std::mem::replace(&mut **end, taken)))
                }
            });
        }
    }

    /// Waits for the next message and hands its chunks to the store.
    fn next_message(&mut self) -> Result<&mut OpenMessage> {
        let stopped = || Error::new(ErrorKind::Interrupted, "reading has stopped");
        let results = self.cursor.results.as_ref().ok_or_else(stopped)?;
        let mut message = match results.recv() {
            Ok(message) => message,
            Err(_) => {
                self.job.interrupt.check()?;
                return Err(Error::new(ErrorKind::Io, "a reading thread has stopped"));
            }
        };
        let batch = ChunkBatch {
            ranges: message.ranges(),
            buffer: std::mem::take(&mut message.buffer),
            fingerprints: message.fingerprints.clone(),
            corresponding: std::mem::take(&mut message.corresponding),
        };
        let spare = &self.spare;
        let tickets = self.stream.put_data(batch, &mut |buffer| recycle(spare, buffer))?;
        // Chunks that no file has taken.
        self.stream.discard(self.taken..tickets.start);
        self.taken = tickets.start;
        let first_ticket = tickets.start;
        Ok(self.cursor.message.insert(OpenMessage { message, element: 0, chunk: 0, first_ticket }))
    }

    fn end_job(&mut self) {
        self.cursor.message = None;
        if self.cursor.results.take().is_some() {
            // Nobody waits for permits once the walk has ended.
            let _ = self.permits.try_send(());
        }
    }

    /// Counts a file of which `shown_bytes` have been shown as done.
    fn count_file(&mut self, entry: &Entry, shown_bytes: u64) {
        self.summary.files += 1;
        self.summary.bytes += entry.size;
        self.job.progress.add(1, entry.size.saturating_sub(shown_bytes));
    }

    fn problem(&mut self, path: &[u8], error: &Error) -> Option<Entry> {
        self.summary.errors += 1;
        self.job.observer.problem(&path::display(path), error);
        None
    }
}

/// Gives a buffer back to the readers.
fn recycle(spare: &Sender<Vec<u8>>, mut buffer: Vec<u8>) {
    // A stage that still read this buffer would store poison and be found out (R39).
    if cfg!(debug_assertions) {
        buffer.fill(0xa5);
    }
    // A full pool keeps what it has; the buffer is freed.
    let _ = spare.try_send(buffer);
}

/// The names of users and groups on this machine.
pub struct SystemNames(UsersCache);

impl Default for SystemNames {
    fn default() -> Self {
        Self(UsersCache::new())
    }
}

impl OwnerNames for SystemNames {
    fn user(&self, uid: u32) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        self.0.get_user_by_uid(uid).map(|user| user.name().as_bytes().to_vec())
    }

    fn group(&self, gid: u32) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        self.0.get_group_by_gid(gid).map(|group| group.name().as_bytes().to_vec())
    }
}
