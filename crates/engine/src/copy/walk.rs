//! The walk over a tree of the first store. What an earlier copy shows to be in the second one is
//! passed over, with all that is below it.
//!
//! Algorithm: the tree is walked beside the same path of an earlier snapshot of the first store,
//! and beside that snapshot's copy in the second. Where the first store's two trees name the same
//! content, the copy's content is taken over, whatever its name is. Where both stores give equal
//! bytes the same names, chunks that the second one has are not read either.
//!
//! Memory: one leaf of each open directory of each of the three trees, and one window of steps.

use super::assemble::Assembler;
use super::steps::{NamedEntry, Step};
use crate::chunk_store::ChunkStore;
use crate::chunk_store::presence::tree_present;
use crate::job::Job;
use crate::restore::sequence::Sequence;
use crate::tree::directory_cursor::{DirectoryCursor, check_depth};
use crate::tree::tree_reader::DirectoryCursor as Finder;
use crate::tree::{ExtentWalk, TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Extent, Reference};
use onefold_types::{Error, ErrorKind, Result};
use std::collections::VecDeque;

/// What a step takes of a window, in chunk references, about.
const STEP_COST: usize = 4;
/// Bytes that count as one chunk reference.
const REFERENCE_BYTES: usize = 96;

/// A snapshot of the first store whose copy is in the second one.
#[derive(Clone, Copy)]
pub struct Pair {
    /// Its root in the first.
    pub source: Reference,
    /// Its root in the second.
    pub target: Reference,
}

struct Open {
    path: Vec<u8>,
    cursor: DirectoryCursor,
    pair: Option<(Finder, Finder)>,
}

/// A walk.
pub struct Walk<'a> {
    /// The first store.
    pub source: &'a TreeReader,
    /// The second.
    pub target: &'a TreeReader,
    /// Where chunks of the second are looked up.
    pub store: &'a ChunkStore,
    /// Whether both name equal bytes alike.
    pub same_names: bool,
    /// Whether what an earlier copy refers to must be looked up.
    pub distrusts_pair: bool,
    /// Reads chunks.
    pub sequence: Sequence<'a>,
    /// Builds the copy.
    pub assembler: Assembler<'a>,
    /// What is to be done.
    pub steps: VecDeque<Step>,
    /// What the steps take beside chunks.
    pub cost: usize,
    /// The next chunk's offset in the sequence.
    pub at: u64,
    /// Directories that could not be read.
    pub damaged: u64,
    /// How to stop, and who listens.
    pub job: &'a Job,
}

impl Walk<'_> {
    /// Walks all below a root, which stands at this path.
    pub fn run(&mut self, top: &[u8], root: Reference, pair: Option<Pair>) -> Result<()> {
        let cursor = DirectoryCursor::open(self.source, root)?;
        let pair = pair.and_then(|pair| self.finders(pair));
        let mut stack = vec![Open { path: top.to_vec(), cursor, pair }];
        while let Some(open) = stack.last_mut() {
            self.job.interrupt.check()?;
            let next = match open.cursor.next(self.source) {
                Ok(next) => next,
                Err(error) => {
                    // Its other leaves may be sound, but nothing of it will be saved.
                    self.problem(&open.path, error)?;
                    None
                }
            };
            let Some(entry) = next else {
                stack.pop();
                if !stack.is_empty() {
                    self.push(Step::Leave, 0)?;
                }
                continue;
            };
            let at = path::join(&open.path, &entry.name);
            if let Some(opened) = self.entry(open, entry, at)? {
                check_depth(stack.len(), &opened.path)?;
                stack.push(opened);
            }
        }
        self.drain()
    }

    fn finders(&self, pair: Pair) -> Option<(Finder, Finder)> {
        // What cannot be read only costs time.
        let source = self.source.cursor(pair.source, 0).ok()?;
        Some((source, self.target.cursor(pair.target, 0).ok()?))
    }

    fn entry(&mut self, open: &mut Open, entry: Entry, at: Vec<u8>) -> Result<Option<Open>> {
        let named = |entry| NamedEntry::new(entry, &open.cursor.owners);
        let earlier = match (&mut open.pair, entry.content) {
            (Some((source, target)), Some(_)) => {
                let source = self.source.find(source, &entry.name).ok().flatten();
                let target = self.target.find(target, &entry.name).ok().flatten();
                source.zip(target).map(|((source, _), (target, _))| (source, target))
            }
            _ => None,
        };
        if let Some((source, target)) = &earlier
            && self.is_copied(&entry, source, target)
        {
            self.sequence.pass(entry.chunks.saturating_add(entry.totals.chunks));
            self.job.progress.add(u64::from(entry.kind == EntryKind::File), entry.size);
            let (content, chunks, totals) = (target.content, target.chunks, target.totals);
            let entry = Entry { content, chunks, totals, ..entry };
            let weight = weight(&entry);
            self.push(Step::Entry(Box::new(named(entry))), weight)?;
            return Ok(None);
        }
        let weight = weight(&entry);
        match (entry.kind, entry.content) {
            (EntryKind::Directory, _) => {
                let cursor = match DirectoryCursor::of(self.source, &entry) {
                    Ok(cursor) => cursor,
                    Err(error) => return self.problem(&at, error).map(|()| None),
                };
                let roots = earlier.and_then(|(source, target)| {
                    Some(Pair { source: source.content?, target: target.content? })
                });
                let pair = roots.and_then(|pair| self.finders(pair));
                self.push(Step::Enter(Box::new(named(entry))), weight)?;
                Ok(Some(Open { path: at, cursor, pair }))
            }
            (EntryKind::File, Some(_)) => {
                let (content, size) = (entry.content, entry.size);
                self.push(Step::File(Box::new(named(entry)), at), weight)?;
                self.file(content, size)?;
                Ok(None)
            }
            _ => {
                self.job.progress.add(u64::from(entry.kind == EntryKind::File), 0);
                self.push(Step::Entry(Box::new(named(entry))), weight)?;
                Ok(None)
            }
        }
    }

    /// Whether the second store has the content of an entry, as its copy of the same path shows.
    fn is_copied(&self, entry: &Entry, source: &Entry, target: &Entry) -> bool {
        let is_same = (source.kind, source.size) == (entry.kind, entry.size)
            && (target.kind, target.size) == (entry.kind, entry.size)
            && source.content == entry.content;
        let is_there = |content| tree_present(self.store, self.target, content).unwrap_or(false);
        is_same && target.content.is_some_and(|it| !self.distrusts_pair || is_there(it))
    }

    fn file(&mut self, content: Option<Reference>, size: u64) -> Result<()> {
        let mut walk = ExtentWalk::new(content, size);
        loop {
            self.job.interrupt.check()?;
            let next = match &mut walk {
                Ok(walk) => walk.next(self.source),
                Err(_) => Err(Error::damaged("the entry has a size, but no content")),
            };
            match next {
                Ok(Some((_, extent))) if extent.is_hole() => {
                    self.push(Step::Hole(extent.length), 0)?;
                }
                Ok(Some((_, extent))) => self.extent(extent)?,
                Ok(None) => break,
                Err(error) if error.is_unreadable() && error.kind() != ErrorKind::Unavailable => {
                    self.push(Step::Lost(error), 0)?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        self.push(Step::EndFile, 0)
    }

    fn extent(&mut self, extent: Extent) -> Result<()> {
        if self.same_names && self.store.is_present(&extent.fingerprint)? {
            self.sequence.pass(1);
            return self.push(Step::Known(extent), 0);
        }
        let at = self.at;
        match self.sequence.add(at, &extent) {
            Ok(()) => {}
            Err(error) if error.is_unreadable() && error.kind() != ErrorKind::Unavailable => {
                return self.push(Step::Lost(error), 0);
            }
            Err(error) => return Err(error),
        }
        // A byte between them: each chunk comes on its own.
        self.at = at + extent.length + 1;
        self.push(Step::Chunk { at, fingerprint: extent.fingerprint }, 0)
    }

    fn push(&mut self, step: Step, weight: usize) -> Result<()> {
        self.steps.push_back(step);
        self.cost += STEP_COST + weight;
        match self.sequence.cost() + self.cost >= self.sequence.cost_max() {
            true => self.drain(),
            false => Ok(()),
        }
    }

    fn drain(&mut self) -> Result<()> {
        let Self { sequence, assembler, steps, .. } = self;
        sequence.run(&mut |stash| assembler.take(steps, stash))?;
        self.cost = 0;
        Ok(())
    }

    /// Tells of a directory that cannot be read. That a store cannot be reached says nothing.
    fn problem(&mut self, at: &[u8], error: Error) -> Result<()> {
        if error.kind() == ErrorKind::Unavailable || !error.is_unreadable() {
            return Err(error);
        }
        self.damaged += 1;
        self.job.observer.problem(&path::display(at), &error);
        Ok(())
    }
}

fn weight(entry: &Entry) -> usize {
    let xattrs: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    (size_of::<Entry>() + entry.name.len() + entry.target.len() + xattrs) / REFERENCE_BYTES
}
