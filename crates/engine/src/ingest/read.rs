//! Reads files, cuts them into chunks and fingerprints these: the stage that runs on all cores.
//!
//! A job is a batch of small files or one large file. Its results come in messages of about half a
//! mebibyte over the job's own channel, so that they can be taken in the order of the jobs whoever
//! works on them. All chunks of a message are fingerprinted together, which is what keeps the
//! hash's lanes full (see [`onefold_crypto::blake3_batch`]).
//!
//! A file is compared with its status from before once it has been read; one that changed meanwhile
//! is read again if all of it is at hand still, else it is saved as it was read, which is told, and
//! never taken for unchanged later. Holes are found by their zeros: the file
//! system's word about holes is not trusted (R42).

use super::attributes::{self, AttributeSource};
use super::links::{Identity, LinkEnd, LinkEndName, LinkedName};
use super::namesakes::EarlierContent;
use super::scattered::Stretch;
use super::versions::{VersionedFile, Versions};
use crate::job::Job;
use crate::repository::Repository;
use crate::stub::{self, StubFile};
use crate::tree::TreeReader;
use crate::user_file;
use crossbeam_channel::{Receiver, Sender};
use further::{end_as_first, has_true_sizes, status};
use onefold_chunking::{Piece, Segmenter};
use onefold_format::node::{Entry, Extent};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Fingerprint, Result, limits};
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

mod further;

/// Bytes of a message after which it is sent: as many chunks as fill the hash's lanes, and as few
/// as are still near the processor when they are cut, fingerprinted and put into frames.
pub const MESSAGE_BYTES: usize = limits::MIB / 2;
/// Bytes of a fresh buffer: what a message takes unless a file or the chunker asks for more.
const BUFFER_BYTES: usize = MESSAGE_BYTES + BATCHED_FILE_BYTES as usize;
/// Files up to this size are read in batches.
pub const BATCHED_FILE_BYTES: u64 = 256 * limits::KIB as u64;

/// An element of a message.
pub enum Element {
    /// A chunk: bytes of the message's buffer.
    Data {
        /// Where it begins in the buffer.
        start: usize,
        /// Its length.
        length: usize,
    },
    /// The same, of a file that is kept, if it is the chunk of this name; no message has any.
    Again {
        /// Where it begins in the buffer.
        start: usize,
        /// Its length.
        length: usize,
        /// What it should be.
        fingerprint: Fingerprint,
    },
    /// Chunks of a file that is kept, which stay where they are.
    Kept {
        /// How many.
        chunks: u64,
    },
    /// Zeros.
    Hole {
        /// How many.
        length: u64,
    },
    /// The end of a file.
    End(Box<Result<FileEnd>>),
}

/// What became known of a file by reading it.
#[derive(Default)]
pub struct FileEnd {
    /// The entry as it was when the file had been read; `None` for a stream.
    pub entry: Option<Entry>,
    /// Whether the file changed while it was read.
    pub changed_while_read: bool,
    /// Whether it changed while it was read, and was read again, whole and unchanged.
    pub was_read_again: bool,
    /// Whether it was not there any more; nothing else is of it.
    pub is_gone: bool,
    /// Why it lacks attributes, if it does.
    pub attributes: Option<Error>,
    /// Of a file with several names.
    pub link: Option<LinkEnd>,
}

/// Chunks of one or more files, in order.
pub struct Message {
    /// The bytes of all chunks, and whatever else was in the buffer.
    pub buffer: Vec<u8>,
    /// Chunks, holes and ends of files.
    pub elements: Vec<Element>,
    /// The fingerprints of the chunks, in order.
    pub fingerprints: Vec<Fingerprint>,
    /// Of some new chunks, by their rising numbers, what stands in their places in an earlier
    /// version.
    pub corresponding: Vec<(u32, Fingerprint)>,
}

/// A file to be read.
pub struct FileTask {
    /// The directory it is in.
    pub directory: Arc<OwnedFd>,
    /// Its name there.
    pub name: CString,
    /// Its entry, from its status before.
    pub entry: Entry,
    /// Which of its file's names it is.
    pub link: LinkedName,
    /// What the parent snapshot has under its path.
    pub earlier: Option<EarlierContent>,
    /// What is read of a file that is kept; nothing if all of it is read.
    pub again: Vec<Stretch>,
}

impl FileTask {
    fn open(&self, job: &Job) -> std::result::Result<File, Errno> {
        user_file::open(&*self.directory, &*self.name, OFlags::RDONLY, &job.interrupt)
    }
}

/// What a job reads.
pub enum Work {
    /// Files, in order.
    Files(Vec<FileTask>),
    /// A stream of bytes.
    Stream(Box<dyn Read + Send>),
}

/// Something to read, and where the results go.
pub struct ReadJob {
    /// What to read.
    pub work: Work,
    /// Where the messages go, in order.
    pub results: Sender<Message>,
}

/// Reads jobs until there are none; runs on several threads.
pub fn run(
    (repository, versions): (&Arc<Repository>, Option<&Versions>),
    jobs: &Receiver<ReadJob>,
    spare: &Receiver<Vec<u8>>,
    job: &Job,
) {
    let mut last = None;
    for ReadJob { work, results } in jobs {
        // The buffer that a job ends with goes to the next: only those that are sent come back.
        let message = last.take().unwrap_or_else(|| Message::empty(spare));
        let mut reader = FileReader {
            repository,
            versions,
            versioned: Vec::new(),
            job,
            spare,
            results: &results,
            message,
            sent: 0,
            filled: 0,
            unchunked: 0,
        };
        let outcome = match work {
            Work::Files(tasks) => tasks.into_iter().try_for_each(|task| reader.file(task)),
            Work::Stream(mut stream) => reader.stream(&mut *stream),
        };
        // An error here means that nobody takes messages any more: the backup has failed.
        let _ = outcome.and_then(|()| reader.send());
        last = Some(Message::new(reader.message.buffer));
    }
}

impl Message {
    /// Where its chunks lie in the buffer, in order.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<usize>> {
        let of_data = |element: &Element| match element {
            Element::Data { start, length } | Element::Again { start, length, .. } => {
                Some(*start..*start + *length)
            }
            Element::Kept { .. } | Element::Hole { .. } | Element::End(_) => None,
        };
        self.elements.iter().filter_map(of_data).collect()
    }

    /// Chunks of files that are kept are taken if they are what they should be.
    fn take_again(&mut self) {
        let Self { elements, fingerprints, .. } = self;
        let mut found = std::mem::take(fingerprints).into_iter();
        for element in elements {
            match element {
                Element::Data { .. } => fingerprints.extend(found.next()),
                Element::Again { start, length, fingerprint } => {
                    let is_same = found.next().as_ref() == Some(fingerprint);
                    fingerprints.extend(is_same.then_some(*fingerprint));
                    *element = match is_same {
                        true => Element::Data { start: *start, length: *length },
                        false => Element::Kept { chunks: 1 },
                    };
                }
                Element::Kept { .. } | Element::Hole { .. } | Element::End(_) => {}
            }
        }
    }

    fn empty(spare: &Receiver<Vec<u8>>) -> Self {
        // A buffer that was in use keeps its length: its bytes need no clearing before they are
        // overwritten.
        let buffer = spare.try_recv().unwrap_or_else(|_| vec![0; BUFFER_BYTES]);
        Self::new(buffer)
    }

    fn new(buffer: Vec<u8>) -> Self {
        let (elements, fingerprints, corresponding) = (Vec::new(), Vec::new(), Vec::new());
        Self { buffer, elements, fingerprints, corresponding }
    }
}

/// Holes that are shorter are read.
const PASSED_MIN_BYTES: u64 = 1 << 20;

/// A stub from its beginning on.
struct StubReader {
    stub: StubFile,
    at: u64,
}

/// What is read from its beginning to its end, and may say where zeros lie that need not be read.
trait Content: Read {
    /// The first offset from one on at which there may be anything but zeros, or the end. `None`
    /// if that is not known.
    fn next_data(&self, offset: u64) -> Result<Option<u64>>;

    /// Goes on at an offset.
    fn go_to(&mut self, offset: u64) -> Result<()>;
}

impl Content for File {
    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        let failed = |errno: Errno| Error::io("looking for a hole", errno.into());
        // To ask is to go there.
        let at = rustix::fs::tell(self).map_err(failed)?;
        let found = rustix::fs::seek(self, SeekFrom::Data(offset));
        rustix::fs::seek(self, SeekFrom::Start(at)).map_err(failed)?;
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(Some(self.metadata().context(|| "its status")?.len())),
            // The file system does not tell.
            Err(_) => Ok(None),
        }
    }

    fn go_to(&mut self, offset: u64) -> Result<()> {
        let found = rustix::fs::seek(&*self, SeekFrom::Start(offset));
        found.map(drop).map_err(|errno| Error::io("passing over a hole", errno.into()))
    }
}

impl Content for StubReader {
    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        match self.stub.next_data(offset)? {
            Some(found) => Ok(Some(found)),
            None => Ok(Some(self.stub.file().metadata().context(|| "its status")?.len())),
        }
    }

    fn go_to(&mut self, offset: u64) -> Result<()> {
        self.at = offset;
        Ok(())
    }
}

/// A stream, of which nothing is known before it is read.
struct Unknown<'a>(&'a mut (dyn Read + Send));

impl Read for Unknown<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Content for Unknown<'_> {
    fn next_data(&self, _: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    fn go_to(&mut self, _: u64) -> Result<()> {
        Ok(())
    }
}

impl Read for StubReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.stub.read_at(self.at, buffer).map_err(std::io::Error::other)?;
        self.at += read as u64;
        Ok(read)
    }
}

struct FileReader<'a> {
    repository: &'a Arc<Repository>,
    /// `None` if nobody wants to know.
    versions: Option<&'a Versions>,
    /// Files of the message that have an earlier version.
    versioned: Vec<VersionedFile>,
    job: &'a Job,
    spare: &'a Receiver<Vec<u8>>,
    results: &'a Sender<Message>,
    message: Message,
    /// How many messages were sent.
    sent: u64,
    /// How much of the buffer has been read into.
    filled: usize,
    /// Where in the buffer the bytes begin that are not cut yet.
    unchunked: usize,
}

impl FileReader<'_> {
    fn file(&mut self, task: FileTask) -> Result<()> {
        if !task.again.is_empty() {
            return self.again(&task);
        }
        let earlier = self.versions.and_then(|versions| {
            let by_name = || versions.namesake(task.name.as_bytes(), task.entry.size);
            task.earlier.or_else(by_name)
        });
        if let Some(earlier) = earlier {
            self.versioned.push(VersionedFile::new(earlier, self.message.elements.len()));
        }
        let begin = (self.message.elements.len(), self.filled, self.sent);
        let mut read = self.read_file(&task, false);
        if read.as_ref().is_ok_and(|end| end.changed_while_read) && self.sent == begin.2 {
            self.message.elements.truncate(begin.0);
            (self.filled, self.unchunked) = (begin.1, begin.1);
            read = self.read_file(&task, true);
        }
        // Of another file none is open.
        let end = self.message.elements.len();
        self.versioned.iter_mut().for_each(|file| file.end(end));
        let end = match read {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            end => end,
        };
        self.unchunked = self.filled;
        self.message.elements.push(Element::End(Box::new(end)));
        if self.filled >= MESSAGE_BYTES {
            self.send()?;
        }
        Ok(())
    }

    /// Reads what is to be read again of a file that is kept. What cannot be read stays.
    fn again(&mut self, task: &FileTask) -> Result<()> {
        let file = task.open(self.job).ok();
        for stretch in &task.again {
            self.message.elements.push(Element::Kept { chunks: stretch.kept });
            let mut offset = stretch.offset;
            for extent in &stretch.chunks {
                self.job.interrupt.check()?;
                self.chunk_again(file.as_ref(), offset, extent);
                offset = offset.saturating_add(extent.length);
                if self.filled >= MESSAGE_BYTES {
                    self.send()?;
                }
            }
        }
        self.message.elements.push(Element::End(Box::new(Ok(FileEnd::default()))));
        Ok(())
    }

    fn chunk_again(&mut self, file: Option<&File>, offset: u64, extent: &Extent) {
        let length = usize::try_from(extent.length).unwrap_or(usize::MAX);
        if length > limits::CHUNK_SIZE_MAX_BYTES {
            return self.message.elements.push(Element::Kept { chunks: 1 });
        }
        let start = self.filled;
        let end = start + length;
        if self.message.buffer.len() < end {
            self.message.buffer.resize(end, 0);
        }
        let buffer = &mut self.message.buffer[start..end];
        let is_read = file.is_some_and(|file| file.read_exact_at(buffer, offset).is_ok());
        self.message.elements.push(match is_read {
            true => Element::Again { start, length, fingerprint: extent.fingerprint },
            false => Element::Kept { chunks: 1 },
        });
        if is_read {
            self.filled = end;
            self.unchunked = end;
        }
    }

    /// Reads a file whole. One that is read `again` is compared with what it was when it was
    /// opened, and not with what it was found to be.
    fn read_file(&mut self, task: &FileTask, again: bool) -> Result<FileEnd> {
        let mut file = match task.open(self.job) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => {
                return Ok(FileEnd { is_gone: true, ..FileEnd::default() });
            }
            Err(errno) => return Err(Error::io("it could not be read", errno.into())),
        };
        if let Some(end) = end_as_first(task, &file)? {
            return Ok(end);
        }
        let opened = again.then(|| status(task, &file)).transpose()?;
        let before = opened.as_ref().unwrap_or(&task.entry);
        let expected = usize::try_from(before.size).unwrap_or(usize::MAX);
        let length = match self.as_stub(&file)? {
            Some(mut stub) => self.contents(&mut stub, expected)?,
            None => self.contents(&mut file, expected)?,
        };
        let mut entry = status(task, &file)?;
        if entry.kind != task.entry.kind {
            return Err(Error::new(ErrorKind::Source, "it was replaced while it was read"));
        }
        let changed_while_read = !attributes::is_same_state(&entry, before)
            || (entry.size != length && has_true_sizes(&file));
        let identity = (entry.links > 1).then(|| Identity::of(&file, &entry));
        entry.size = length;
        let attributes = attributes::put_xattrs(&mut entry, AttributeSource::Open(file.as_fd()));
        if changed_while_read {
            entry.changed = onefold_format::node::Time::default();
        }
        let now_ns = self.repository.environment().clock.now_ns();
        attributes::distrust_if_recent(&mut entry, now_ns);
        let was_read_again = again && !changed_while_read;
        let is_certain = entry.changed != onefold_format::node::Time::default();
        let link = identity.map(|identity| LinkEnd {
            identity,
            name: match &task.link {
                LinkedName::First(first) if is_certain => {
                    first.was_read(identity);
                    LinkEndName::First
                }
                LinkedName::First(_) => LinkEndName::First,
                LinkedName::Only | LinkedName::Further(_) => LinkEndName::Itself,
            },
        });
        let (entry, attributes) = (Some(entry), attributes.err());
        Ok(FileEnd { entry, changed_while_read, was_read_again, is_gone: false, attributes, link })
    }

    /// The reader of a stub that holds some of its data itself.
    fn as_stub(&self, file: &File) -> Result<Option<StubReader>> {
        if stub::value(file)?.is_none() {
            return Ok(None);
        }
        let tree = Arc::new(TreeReader::open(self.repository)?);
        let file = file.try_clone().context(|| "opening it again")?;
        Ok(StubFile::open(&tree, file)?.map(|stub| StubReader { stub, at: 0 }))
    }

    fn stream(&mut self, stream: &mut (dyn Read + Send)) -> Result<()> {
        let end = match self.contents(&mut Unknown(stream), usize::MAX) {
            Err(error) => {
                // A reader that was asked to stop returns an error like any other.
                self.job.interrupt.check()?;
                Err(error)
            }
            Ok(_) => Ok(FileEnd::default()),
        };
        self.message.elements.push(Element::End(Box::new(end)));
        Ok(())
    }

    /// Reads to the end and cuts what was read; returns the number of bytes. `expected` is a guess.
    fn contents(&mut self, source: &mut dyn Content, expected: usize) -> Result<u64> {
        let tar_aware = self.repository.configuration().chunker.tar_aware;
        let mut segmenter = Segmenter::new(tar_aware);
        let window = Segmenter::window_bytes(&**self.repository.chunker());
        let mut total = 0u64;
        loop {
            self.job.interrupt.check()?;
            // Just so much that what is cut of it makes a message: twice as much in a buffer would
            // be too much to wait for its verdicts in little memory.
            let piece_bytes = (MESSAGE_BYTES + window).saturating_sub(self.filled).max(window);
            let end = self.fill(source, piece_bytes.min(expected.saturating_add(1)))?;
            total += self.cut(&mut segmenter, end) as u64;
            if end {
                return Ok(total);
            }
            total += self.pass_hole(source, &mut segmenter, total)?;
            if self.unchunked >= MESSAGE_BYTES {
                self.send()?;
            }
        }
    }

    /// Passes over a hole that goes on at an offset, up to which all is cut; returns how much.
    fn pass_hole(
        &mut self,
        source: &mut dyn Content,
        segmenter: &mut Segmenter,
        offset: u64,
    ) -> Result<u64> {
        if !matches!(self.message.elements.last(), Some(Element::Hole { .. })) {
            return Ok(0);
        }
        let Some(data) = source.next_data(offset)? else { return Ok(0) };
        // What was read of the hole is zeros as well, and read once more if it is passed over.
        let read = (self.filled - self.unchunked) as u64;
        if data < offset.saturating_add(read + PASSED_MIN_BYTES) {
            return Ok(0);
        }
        let length = segmenter.skip(data - offset);
        if length > 0 {
            self.filled = self.unchunked;
            source.go_to(offset + length)?;
            self.message.elements.push(Element::Hole { length });
        }
        Ok(length)
    }

    /// Reads up to `wanted` bytes behind what is there; tells whether the source has ended.
    fn fill(&mut self, source: &mut dyn Content, wanted: usize) -> Result<bool> {
        let end = self.filled + wanted;
        if self.message.buffer.len() < end {
            self.message.buffer.resize(end, 0);
        }
        while self.filled < end {
            match source.read(&mut self.message.buffer[self.filled..end]) {
                Ok(0) => return Ok(true),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context(|| "it could not be read"),
            }
        }
        Ok(false)
    }

    /// Cuts all chunks that can be decided; returns the number of bytes cut.
    fn cut(&mut self, segmenter: &mut Segmenter, end: bool) -> usize {
        let Message { buffer, elements, .. } = &mut self.message;
        let mut start = self.unchunked;
        let chunker = self.repository.chunker();
        let unchunked = &buffer[self.unchunked..self.filled];
        let consumed = segmenter.advance(&**chunker, unchunked, end, &mut |piece| {
            let length = match piece {
                Piece::Data { length } => {
                    elements.push(Element::Data { start, length });
                    length
                }
                Piece::Hole { length } => {
                    elements.push(Element::Hole { length: length as u64 });
                    length
                }
            };
            start += length;
        });
        self.unchunked += consumed;
        consumed
    }

    /// Fingerprints the chunks and sends the message; what is not cut yet begins the next one.
    fn send(&mut self) -> Result<()> {
        self.sent += 1;
        let mut next = Message::empty(self.spare);
        let rest = &self.message.buffer[self.unchunked..self.filled];
        if next.buffer.len() < rest.len() {
            next.buffer.resize(rest.len(), 0);
        }
        next.buffer[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
        self.unchunked = 0;
        let mut message = std::mem::replace(&mut self.message, next);
        let mut fingerprints = Vec::with_capacity(message.elements.len());
        let ranges = message.ranges();
        let chunks: Vec<&[u8]> = ranges.into_iter().map(|range| &message.buffer[range]).collect();
        self.repository.fingerprinter().data_batch(&chunks, &mut fingerprints);
        message.fingerprints = fingerprints;
        message.take_again();
        if let Some(versions) = self.versions {
            let Message { elements, fingerprints, corresponding, .. } = &mut message;
            for file in &mut self.versioned {
                versions.find(file, elements, fingerprints, corresponding);
            }
            let files = std::mem::take(&mut self.versioned).into_iter();
            self.versioned = files.filter_map(VersionedFile::continued).collect();
        }
        let stopped = |_| Error::new(ErrorKind::Interrupted, "the backup has stopped");
        self.results.send(message).map_err(stopped)
    }
}
