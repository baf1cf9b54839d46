//! A file of a snapshot at any offset, for whoever reads here and there: a mount, a server.
//!
//! # Algorithm
//! From the root of the file's tree down, the child that the offset falls into is looked for in
//! each map, and only that is read; the chunk at the bottom is read and verified whole, and what is
//! wanted of it is copied. Chunks behind it that are wanted as well and lie behind it in its
//! container are read together with it. Holes are zeros and cost nothing.
//!
//! Reads are small and mostly go on where the last one ended. So the last maps and chunks are kept,
//! chunks together with their frames ([`Chunk`]): reading on within a chunk costs a copy, within a
//! frame one more fingerprint, and a frame is read once however small the reads are and whatever
//! other readers do to the caches.
//!
//! # Invariants
//! No byte is given that was not verified. What is damaged is named when it is asked for, and is of
//! no concern to other ranges. A map whose children do not add up to what its parent says is
//! damaged.
//!
//! # Concurrency
//! Shared by threads (`&self`). One lock around what is kept, held neither while something is read
//! nor while it is verified; of threads that miss the same frame at the same moment one reads it,
//! if the chunk reader keeps frames.
//!
//! # Memory
//! A lease of `KEPT_BYTES`, and for the maps of a large file of a part of what is left. A reader
//! that does not get the first keeps the least that reading on needs.

use super::TreeReader;
use crate::chunks::{Chunk, SecondCopies};
use crate::memory::Lease;
use lru::LruCache;
use onefold_format::node::{Entry, EntryKind, Extent, FileMap, Reference};
use onefold_types::error::Context;
use onefold_types::{Error, Fingerprint, Level, Result, limits};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Chunks that are kept with their frames, at most and at least.
const CHUNKS_KEPT: (usize, usize) = (4, 1);
/// Children of maps that are kept of any file: those of the maps from the root to a chunk, however
/// many each has, and more.
pub const CHILDREN_KEPT: usize = 32 << 10;
/// Maps that are kept whatever they take.
const MAPS_KEPT_MIN: usize = 4;
/// What a child of a map takes.
const CHILD_BYTES: usize = 48;
/// The maps of a larger file are kept as well, so that whoever reads here and there does not read
/// two chunks for one, as long as they take no more than this part of the memory that is left.
const LARGER_FILE_PART: usize = 8;
/// What a reader keeps, of files as this program writes them.
const KEPT_BYTES: usize =
    CHUNKS_KEPT.0 * 2 * limits::FRAME_PLAIN_TARGET_BYTES + CHILDREN_KEPT * CHILD_BYTES;

/// Reads one file of a snapshot.
pub struct FileReader {
    tree: Arc<TreeReader>,
    content: Option<Reference>,
    size: u64,
    kept: Mutex<Kept>,
    chunks_kept: usize,
    /// As many as these children of maps are kept, or the least.
    children_kept: usize,
    takes_second_copies: bool,
    /// Held as long as what is kept.
    _lease: Lease,
}

/// What was read last.
struct Kept {
    /// The newest first, with the offset in the file of each.
    chunks: VecDeque<(u64, Chunk)>,
    maps: LruCache<MapKey, Arc<OpenMap>>,
    /// All children of the maps.
    children: usize,
}

/// What a map is called by, and where it begins in the file.
type MapKey = (Reference, u64);

/// A map, with where its children lie in the file.
struct OpenMap {
    child_level: Level,
    /// The end in the file of each child, and its name.
    children: Vec<(u64, Fingerprint)>,
}

/// The offset at which a chunk or a hole begins, that, and chunks behind it.
type Found = (u64, Extent, Vec<Extent>);

impl FileReader {
    /// A reader of the file that an entry stands for; reads nothing yet.
    ///
    /// Errors: `Invalid` if it is no file, `Damaged` if it has a size and no content.
    pub fn open(tree: Arc<TreeReader>, entry: &Entry) -> Result<Self> {
        if entry.kind != EntryKind::File {
            return Err(Error::invalid("only files have bytes that can be read"));
        }
        if entry.content.is_none() && entry.size > 0 {
            return Err(Error::damaged("the file has a size, but no content"));
        }
        let purse = tree.chunks().repository().purse();
        // With those of the maps of maps, which are far fewer.
        let children = entry.chunks.saturating_add(entry.chunks / 24);
        let children = usize::try_from(children).unwrap_or(usize::MAX);
        let room = purse.left_bytes() / LARGER_FILE_PART / CHILD_BYTES;
        let more = children.saturating_sub(CHILDREN_KEPT).min(room);
        let lease = purse.take(KEPT_BYTES + more * CHILD_BYTES);
        let (chunks_kept, children_kept) = match lease.bytes().checked_sub(KEPT_BYTES) {
            Some(more_bytes) => (CHUNKS_KEPT.0, CHILDREN_KEPT + more_bytes / CHILD_BYTES),
            None => (CHUNKS_KEPT.1, 0),
        };
        let (chunks, maps) = (VecDeque::new(), LruCache::unbounded());
        Ok(Self {
            tree,
            content: entry.content,
            size: entry.size,
            kept: Mutex::new(Kept { chunks, maps, children: 0 }),
            chunks_kept,
            children_kept,
            takes_second_copies: true,
            _lease: lease,
        })
    }

    /// A reader that takes nothing from second copies: for whoever wants to know whether the chunks
    /// themselves are whole.
    #[must_use]
    pub fn without_second_copies(self) -> Self {
        Self { takes_second_copies: false, ..self }
    }

    /// The length of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads from an offset on until the buffer is full or the file ends; says how much it read:
    /// nothing at and beyond the end.
    ///
    /// Errors: `Damaged`, naming the chunk, if what is asked for cannot be read; the buffer may
    /// hold some of it then.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = self.size.saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let rest = &mut buffer[done..length];
            done += match self.kept_chunk(at) {
                Some((start, chunk)) => copy(&chunk[(at - start) as usize..], rest),
                None => self.read_extent(at, rest)?,
            };
        }
        Ok(length)
    }

    /// The first offset from one on that holds data; `None` if there is none before the end.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.next_extent(offset..self.size, false)?.filter(|found| *found < self.size))
    }

    /// The first offset of a range that holds data. No more of the file's tree is looked at.
    pub fn data_within(&self, range: Range<u64>) -> Result<Option<u64>> {
        let end = range.end.min(self.size);
        Ok(self.next_extent(range.start..end, false)?.filter(|found| *found < end))
    }

    /// The first offset of a range that lies in a hole or behind the file, or the range's end. No
    /// more of the file's tree is looked at.
    pub fn hole_within(&self, range: Range<u64>) -> Result<u64> {
        let end = range.end.min(self.size);
        Ok(self.next_extent(range.start..end, true)?.unwrap_or(range.start).min(end))
    }

    /// The first offset from one on that lies in a hole, as what is behind the end does; `None`
    /// from the end on.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.next_extent(offset..self.size, true)
    }

    /// The first offset of a range that lies in a hole, or in data, or one from its end on.
    fn next_extent(&self, range: Range<u64>, is_hole: bool) -> Result<Option<u64>> {
        if range.start >= range.end {
            return Ok(None);
        }
        let mut offset = range.start;
        while offset < range.end {
            let (start, extent, _) = self.find(offset, 0)?;
            if extent.is_hole() == is_hole {
                break;
            }
            offset = start + extent.length;
        }
        Ok(Some(offset))
    }

    /// Reads as much as the extent at an offset has.
    fn read_extent(&self, at: u64, rest: &mut [u8]) -> Result<usize> {
        let (start, extent, following) = self.find(at, rest.len() as u64)?;
        let mut skipped = at - start;
        if extent.is_hole() {
            let zeros = usize::try_from(extent.length - skipped).unwrap_or(usize::MAX);
            let zeros = zeros.min(rest.len());
            rest[..zeros].fill(0);
            return Ok(zeros);
        }
        let held: Vec<Chunk> = self.kept().chunks.iter().map(|(_, chunk)| chunk.clone()).collect();
        let names: Vec<Fingerprint> = following.iter().map(|next| next.fingerprint).collect();
        let read = self.tree.chunks().read_run(&extent.fingerprint, &names, &held);
        let chunks = match read.context(|| format!("the file's bytes from {start} on")) {
            Ok(chunks) => chunks,
            Err(error) if error.is_unreadable() && self.takes_second_copies => {
                return self.read_second_copy(&extent, skipped, rest, error);
            }
            Err(error) => return Err(error),
        };
        let (mut start, mut copied, mut last) = (start, 0, None);
        for (extent, chunk) in std::iter::once(extent).chain(following).zip(chunks) {
            if chunk.len() as u64 != extent.length || chunk.level.is_node() {
                return Err(Error::damaged(format!(
                    "chunk {} is not what the file's tree says",
                    extent.fingerprint
                )));
            }
            copied += copy(&chunk[skipped as usize..], &mut rest[copied..]);
            last = Some((start, chunk));
            (start, skipped) = (start + extent.length, 0);
        }
        let mut kept = self.kept();
        kept.chunks.extend(last);
        kept.chunks.rotate_right(1);
        kept.chunks.truncate(self.chunks_kept);
        Ok(copied)
    }

    /// Reads from the second copy of a chunk that could not be read itself, for such a reason.
    fn read_second_copy(
        &self,
        extent: &Extent,
        skipped: u64,
        rest: &mut [u8],
        reason: Error,
    ) -> Result<usize> {
        let repository = self.tree.chunks().repository();
        match SecondCopies::of(repository)?.find(repository, &extent.fingerprint) {
            Ok(Some(bytes)) if bytes.len() as u64 == extent.length => {
                Ok(copy(&bytes[skipped as usize..], rest))
            }
            // That the copy cannot be had either is no news.
            Ok(_) => Err(reason),
            Err(error) if error.is_unreadable() => Err(reason),
            Err(error) => Err(error),
        }
    }

    /// The chunk or hole that an offset below the file's end falls into, and the chunks behind a
    /// chunk that hold some of `length` bytes from there on, as far as the last map tells.
    fn find(&self, at: u64, length: u64) -> Result<Found> {
        let Some(Reference { mut fingerprint, mut level }) = self.content else {
            return Err(Error::damaged("the file has a size, but no content"));
        };
        let (mut start, mut end) = (0, self.size);
        let mut following = Vec::new();
        while level != Level::DATA {
            let map = self.map(Reference { fingerprint, level }, start, end)?;
            let child = map.children.partition_point(|(end, _)| *end <= at);
            // The last child ends where the map does, which is behind the offset.
            let Some(found) = map.children.get(child) else {
                return Err(other_length(&fingerprint));
            };
            start = child.checked_sub(1).map_or(start, |before| map.children[before].0);
            (end, fingerprint) = *found;
            level = map.child_level;
            if level == Level::DATA {
                let mut begin = end;
                let behind = map.children[child + 1..].iter().map_while(|(end, fingerprint)| {
                    let extent = Extent { fingerprint: *fingerprint, length: end - begin };
                    let is_wanted = begin < at.saturating_add(length) && !extent.is_hole();
                    begin = *end;
                    is_wanted.then_some(extent)
                });
                following = behind.collect();
            }
            if fingerprint == Fingerprint::ZERO {
                break;
            }
        }
        Ok((start, Extent { fingerprint, length: end - start }, following))
    }

    /// The map behind a reference, which covers these bytes of the file.
    fn map(&self, reference: Reference, start: u64, end: u64) -> Result<Arc<OpenMap>> {
        if let Some(map) = self.kept().maps.get(&(reference, start)) {
            return Ok(Arc::clone(map));
        }
        let FileMap { child_level, extents } = self.tree.file_map(reference)?;
        let mut children = Vec::with_capacity(extents.len());
        let mut position = start;
        for extent in extents {
            let after = position.checked_add(extent.length);
            position = after.ok_or_else(|| other_length(&reference.fingerprint))?;
            children.push((position, extent.fingerprint));
        }
        if position != end {
            return Err(other_length(&reference.fingerprint));
        }
        let map = Arc::new(OpenMap { child_level, children });
        self.keep((reference, start), &map);
        Ok(map)
    }

    /// Keeps a map, and gives up those that were not asked for longest.
    fn keep(&self, key: MapKey, map: &Arc<OpenMap>) {
        let mut kept = self.kept();
        kept.children += map.children.len();
        if let Some(same) = kept.maps.put(key, Arc::clone(map)) {
            kept.children -= same.children.len();
        }
        while kept.children > self.children_kept && kept.maps.len() > MAPS_KEPT_MIN {
            let Some((_, oldest)) = kept.maps.pop_lru() else { break };
            kept.children -= oldest.children.len();
        }
    }

    /// A chunk that is kept and holds the byte at an offset, and where it begins.
    fn kept_chunk(&self, at: u64) -> Option<(u64, Chunk)> {
        let kept = self.kept();
        let holds = |(start, chunk): &&(u64, Chunk)| {
            at.checked_sub(*start).is_some_and(|within| within < chunk.len() as u64)
        };
        kept.chunks.iter().find(holds).cloned()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let length = from.len().min(to.len());
    to[..length].copy_from_slice(&from[..length]);
    length
}

fn other_length(fingerprint: &Fingerprint) -> Error {
    Error::damaged(format!("node {fingerprint} has another length than its parent says"))
}
