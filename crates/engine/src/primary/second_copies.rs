//! Second copies of chunks that very many files of a share have: one damaged frame must not damage
//! them all (ATC'12 leaves redundancy open, S4.31).
//!
//! # Form
//! A chunk is stored once under its name. Its copy is stored inverted, bit by bit, which has
//! another name and compresses as well. The copies of a share are one file, the only one of a
//! manifest with a tag of its own; so marks, copies and checks treat them as any data, and as
//! they come out of a session of their own they lie in other containers than what they are copies
//! of.
//!
//! ```text
//! count      u32
//! chunks     fingerprint (32 bytes), u32 length: of each, in the order of their copies
//! copies     the bytes of each chunk, inverted
//! ```
//!
//! # Who takes them
//! Whoever reads a file and finds a chunk lost ([`SecondCopies`]): mounts, `rehydrate`, `repair`,
//! and jobs that read stubs. A job that finds data of a stub missing reads the stub so, and what
//! was missing is stored again under its name. Scrubs, and whoever compares a file with what was
//! stored of it, take none. Scrubs read the copies, too; of those that are damaged new ones are
//! made.
//!
//! # Concurrency
//! Made by the job, under its lock. Readers look for newer ones when they do not find a chunk.

use super::addresses;
use super::hot_chunks::Suspects;
use super::linked_files::FirstNames;
use super::share::Share;
use crate::chunks::second_copies::{CopySource, SecondCopies};
use crate::ingest::{self, BackupOptions, ParentChoice, Source};
use crate::job::Job;
use crate::repository::Repository;
use crate::session::{SECOND_COPIES_TAG, SnapshotList, tombstones};
use crate::tree::{FileReader, TreeReader};
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Fingerprint, Result, SessionId, ShareId, limits};
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The path of the copies in their manifest: no file of a share has it.
const FILE: &[u8] = b"/.onefold-share/second-copies";
/// How a problem begins that a scrub tells of them.
const PROBLEM: &str = "/.onefold-share/second-copies:";
/// Bytes of the head in front of the list.
const COUNT_BYTES: usize = 4;
/// Bytes of each chunk in the list.
const LISTED_BYTES: usize = 32 + 4;
/// A chunk and its length.
type Measured = (Fingerprint, u64);

/// Chunks of one file that are looked at: of very large files the first ones.
pub const FILE_CHUNKS_MAX: usize = 1 << 16;
/// Who finds a chunk in no copy does not look for newer ones before this has passed: of a damaged
/// file thousands may be asked for.
const LOOKED_NOW: Duration = Duration::from_secs(10);
/// How often making them is tried when collections condemn what was stored meanwhile.
const TRIES: usize = 3;

/// What keeping second copies came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    /// Chunks that have a second copy.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether they were made by this run.
    pub are_new: bool,
}

/// Keeps second copies of what is hot in the manifests that a run has made, and of nothing else.
pub fn keep(
    repository: &Arc<Repository>,
    share: &Share,
    roots: &[Reference],
    (options, by): (&BackupOptions, &str),
    job: &Job,
) -> Result<Kept> {
    let tree = Arc::new(TreeReader::open(repository)?);
    let hot = hot_of(&tree, roots, job)?;
    let earlier = of_addresses(repository, share.id, &share.marks())?;
    let newest = earlier.last().map(|(_, root)| listed(&tree, *root)).transpose();
    // Those that cannot be read are made anew, and those of which a scrub could not read something.
    let is_told = |line: &String| line.starts_with(PROBLEM);
    let is_same = newest.is_ok_and(|newest| newest.is_some_and(|newest| newest.is_of(&hot)))
        && !share.problems()?.iter().any(is_told);
    let hot = if is_same { hot } else { readable(&tree, hot, job)? };
    let bytes = hot.iter().map(|(_, length)| length).sum();
    let are_new = !is_same && !hot.is_empty();
    let kept = match (are_new, hot.is_empty()) {
        (true, _) => Some(make(repository, share, &tree, &hot, options, job)?),
        (false, true) => None,
        (false, false) => earlier.last().map(|(id, _)| *id),
    };
    for (id, _) in earlier.into_iter().filter(|(id, _)| Some(*id) != kept) {
        tombstones::forget(repository, id, by, "later second copies are there")?;
    }
    if !is_same {
        share.settle_problems(&mut |line| !line.starts_with(PROBLEM), &[])?;
    }
    Ok(Kept { chunks: hot.len() as u64, bytes, are_new })
}

/// The second copies of a share that were made at some addresses, the newest last.
pub fn of_addresses(
    repository: &Repository,
    share: ShareId,
    marks: &[String],
) -> Result<Vec<(SessionId, Reference)>> {
    let list = SnapshotList::load(repository)?;
    let copies = list.second_copies(share);
    let made = copies.filter(|one| one.record.tags.iter().any(|tag| marks.contains(tag)));
    Ok(made.map(|one| (one.id, one.record.root)).collect())
}

/// Forgets the second copies of a share that were made at some addresses: it has no files in the
/// store any more.
pub fn forget(repository: &Repository, share: ShareId, marks: &[String], by: &str) -> Result<()> {
    for (id, _) in of_addresses(repository, share, marks)? {
        tombstones::forget(repository, id, by, "nothing is left that they are copies of")?;
    }
    Ok(())
}

/// The chunks that are hot in some manifests.
fn hot_of(tree: &Arc<TreeReader>, roots: &[Reference], job: &Job) -> Result<Vec<Measured>> {
    let mut suspects = Suspects::new();
    each_file(tree, roots, job, &mut |chunks| {
        chunks.iter().for_each(|(fingerprint, _)| suspects.count(fingerprint));
    })?;
    let Some(mut again) = suspects.look_again() else { return Ok(Vec::new()) };
    each_file(tree, roots, job, &mut |chunks| {
        chunks.iter().for_each(|(fingerprint, length)| again.count(fingerprint, *length));
    })?;
    Ok(again.found())
}

/// Calls `each` with the chunks of every file of some manifests, each once, whatever names it has.
/// What cannot be read of a manifest has no hot chunks: scrubs tell of it.
fn each_file(
    tree: &Arc<TreeReader>,
    roots: &[Reference],
    job: &Job,
    each: &mut dyn FnMut(&HashSet<Measured>),
) -> Result<()> {
    let mut directories = roots.to_vec();
    directories.reverse();
    let mut names = FirstNames::default();
    while let Some(directory) = directories.pop() {
        job.interrupt.check()?;
        let entries = match tree.entries(directory) {
            Err(error) if error.is_unreadable() => continue,
            entries => entries?,
        };
        for entry in entries {
            match (entry.kind, entry.content) {
                (EntryKind::Directory, Some(content)) => directories.push(content),
                (EntryKind::File, Some(content)) if names.is_first(&entry) => {
                    let mut chunks = HashSet::new();
                    let walked = tree.extents(content, entry.size, &mut |extent| {
                        if !extent.is_hole() && chunks.len() < FILE_CHUNKS_MAX {
                            chunks.insert((extent.fingerprint, extent.length));
                        }
                        Ok(())
                    });
                    match walked {
                        Err(error) if !error.is_unreadable() => return Err(error),
                        _ => each(&chunks),
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Those that there is something to copy of: of a chunk that is lost its earlier copy, if that is
/// whole.
fn readable(tree: &Arc<TreeReader>, hot: Vec<Measured>, job: &Job) -> Result<Vec<Measured>> {
    let mut readable = Vec::with_capacity(hot.len());
    for (fingerprint, length) in hot {
        job.interrupt.check()?;
        if bytes_of(tree, &fingerprint)?.is_some_and(|bytes| bytes.len() as u64 == length) {
            readable.push((fingerprint, length));
        }
    }
    Ok(readable)
}

/// The bytes of a chunk, or of its copy.
fn bytes_of(tree: &TreeReader, fingerprint: &Fingerprint) -> Result<Option<Vec<u8>>> {
    match tree.chunks().read(fingerprint) {
        Ok(chunk) => Ok(Some(chunk.to_vec())),
        Err(error) if error.is_unreadable() => {
            let repository = tree.chunks().repository();
            SecondCopies::of(repository)?.find(repository, fingerprint)
        }
        Err(error) => Err(error),
    }
}

fn make(
    repository: &Arc<Repository>,
    share: &Share,
    tree: &Arc<TreeReader>,
    hot: &[Measured],
    options: &BackupOptions,
    job: &Job,
) -> Result<SessionId> {
    let backup = BackupOptions {
        share: Some(share.id),
        tags: vec![SECOND_COPIES_TAG.to_owned(), addresses::mark(share.here())],
        parent: ParentChoice::None,
        skip_if_unchanged: false,
        streams: 1,
        ..options.clone()
    };
    let mut tries = 0;
    loop {
        tries += 1;
        let reader = Copies::of(Arc::clone(tree), hot.to_vec())?;
        let finish = Box::new(|| Ok(()));
        let source = Source::Stream { name: FILE.to_vec(), reader: Box::new(reader), finish };
        match ingest::backup(repository, source, &backup, job) {
            Err(error) if error.kind() == ErrorKind::Fenced && tries < TRIES => {}
            made => {
                let missing = || Error::invalid("second copies were stored under no name");
                return made?.snapshot.ok_or_else(missing);
            }
        }
    }
}

/// The file, while it is made.
struct Copies {
    tree: Arc<TreeReader>,
    left: std::vec::IntoIter<Measured>,
    /// What is to be handed out next, from an offset on.
    bytes: Vec<u8>,
    at: usize,
}

impl Copies {
    fn of(tree: Arc<TreeReader>, chunks: Vec<Measured>) -> Result<Self> {
        let too_much = |_| Error::new(ErrorKind::LimitExceeded, "too many second copies");
        let mut bytes = u32::try_from(chunks.len()).map_err(too_much)?.to_le_bytes().to_vec();
        for (fingerprint, length) in &chunks {
            bytes.extend_from_slice(&fingerprint.0);
            bytes.extend_from_slice(&u32::try_from(*length).map_err(too_much)?.to_le_bytes());
        }
        Ok(Self { tree, left: chunks.into_iter(), bytes, at: 0 })
    }
}

impl Read for Copies {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.bytes.len() {
            let Some((fingerprint, length)) = self.left.next() else { return Ok(0) };
            let bytes = bytes_of(&self.tree, &fingerprint).map_err(io::Error::other)?;
            let bytes = bytes.filter(|bytes| bytes.len() as u64 == length);
            let lost = || io::Error::other(format!("chunk {fingerprint} was lost meanwhile"));
            self.bytes = bytes.ok_or_else(lost)?;
            self.bytes.iter_mut().for_each(|byte| *byte = !*byte);
            self.at = 0;
        }
        let left = &self.bytes[self.at..];
        let length = left.len().min(buffer.len());
        buffer[..length].copy_from_slice(&left[..length]);
        self.at += length;
        Ok(length)
    }
}

/// The copies that there are, by the names of their chunks.
struct Listed {
    file: FileReader,
    chunks: HashMap<Fingerprint, (u64, u32)>,
    /// Their names, in the order of their copies.
    names: Vec<Fingerprint>,
}

impl Listed {
    fn is_of(&self, hot: &[Measured]) -> bool {
        self.names.iter().eq(hot.iter().map(|(fingerprint, _)| fingerprint))
    }

    fn find(&self, fingerprint: &Fingerprint) -> Result<Option<Vec<u8>>> {
        let Some((offset, length)) = self.chunks.get(fingerprint).copied() else {
            return Ok(None);
        };
        let mut bytes = vec![0; length as usize];
        let read = self.file.read_at(offset, &mut bytes)?;
        bytes.truncate(read);
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        Ok(Some(bytes))
    }
}

/// Reads the list of copies out of their manifest.
fn listed(tree: &Arc<TreeReader>, root: Reference) -> Result<Listed> {
    let entry: Entry = tree.resolve(root, FILE)?;
    let file = FileReader::open(Arc::clone(tree), &entry)?.without_second_copies();
    let read = |offset: u64, bytes: &mut [u8]| match file.read_at(offset, bytes)? == bytes.len() {
        true => Ok(()),
        false => Err(Error::damaged("the list of second copies is cut off")),
    };
    let mut count = [0; COUNT_BYTES];
    read(0, &mut count)?;
    let count = u32::from_le_bytes(count) as usize;
    let list_bytes = count.checked_mul(LISTED_BYTES).filter(|bytes| *bytes as u64 <= file.size());
    let list_bytes =
        list_bytes.ok_or_else(|| Error::damaged("there are too many second copies"))?;
    let mut list = vec![0; list_bytes];
    read(COUNT_BYTES as u64, &mut list)?;
    let mut offset = (COUNT_BYTES + list_bytes) as u64;
    let (mut chunks, mut names) = (HashMap::with_capacity(count), Vec::with_capacity(count));
    for one in list.chunks_exact(LISTED_BYTES) {
        let (name, length) = one.split_at(32);
        let fingerprint = Fingerprint(name.try_into().unwrap_or_default());
        let length = u32::from_le_bytes(length.try_into().unwrap_or_default());
        if length as usize > limits::CHUNK_SIZE_MAX_BYTES {
            return Err(Error::damaged("a second copy is longer than any chunk"));
        }
        chunks.insert(fingerprint, (offset, length));
        names.push(fingerprint);
        offset += u64::from(length);
    }
    Ok(Listed { file, chunks, names })
}

/// Lets everybody who reads files of this store take second copies where chunks are lost.
pub fn install(repository: &Arc<Repository>) -> Result<()> {
    let all = OfAllShares { repository: Arc::downgrade(repository), known: Mutex::default() };
    SecondCopies::of(repository)?.install(all);
    Ok(())
}

/// The second copies of all shares of a store, read when the first chunk is lost.
struct OfAllShares {
    /// Which owns this.
    repository: Weak<Repository>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    looked: Option<Instant>,
    of: Vec<SessionId>,
    listed: Vec<Arc<Listed>>,
}

impl OfAllShares {
    /// Reads what has come or gone since it was looked last; whether there was anything.
    fn look(&self, repository: &Arc<Repository>) -> Result<bool> {
        if self.known().looked.is_some_and(|looked| looked.elapsed() < LOOKED_NOW) {
            return Ok(false);
        }
        let list = SnapshotList::load(repository)?;
        let copies = list.snapshots.iter().filter(|one| one.holds_second_copies());
        let of: Vec<_> = copies.map(|one| (one.id, one.record.root)).collect();
        let ids: Vec<SessionId> = of.iter().map(|(id, _)| *id).collect();
        let mut known = self.known();
        known.looked = Some(Instant::now());
        if known.of == ids {
            return Ok(false);
        }
        drop(known);
        let tree = Arc::new(TreeReader::open(repository)?);
        let mut found = Vec::new();
        for (_, root) in &of {
            match listed(&tree, *root) {
                Ok(listed) => found.push(Arc::new(listed)),
                // One that is damaged itself is none.
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(error),
            }
        }
        let mut known = self.known();
        (known.of, known.listed) = (ids, found);
        Ok(true)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_known(&self, fingerprint: &Fingerprint) -> Option<Vec<u8>> {
        let listed = self.known().listed.clone();
        listed.iter().find_map(|listed| listed.find(fingerprint).ok().flatten())
    }
}

impl CopySource for OfAllShares {
    fn find(&self, fingerprint: &Fingerprint) -> Result<Option<Vec<u8>>> {
        let Some(repository) = self.repository.upgrade() else { return Ok(None) };
        if let Some(found) = self.find_known(fingerprint) {
            return Ok(Some(found));
        }
        match self.look(&repository).context(|| "looking for second copies")? {
            true => Ok(self.find_known(fingerprint)),
            false => Ok(None),
        }
    }
}
