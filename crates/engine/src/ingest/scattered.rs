//! Chunks of files kept unread that are read again, to be stored again.
//!
//! They are those in frames or containers that are to be emptied, and those in frames that hold
//! differences against something there: which of these chunks are such differences, frames do not
//! tell. Only these chunks are read, each at its place in the file, and compared with its name: one
//! that is not there any more, though the file looks unchanged, stays what it is, as it would
//! without rewriting. An idea of this project.
//!
//! Memory: 48 bytes for each chunk of a file that waits to be read, of which no more than
//! [`CHUNKS_AGAIN_MAX`] are read in one backup.

use super::links::LINKS_MAX;
use crate::chunk_store::RewriteOptions;
use crate::container::FrameId;
use crate::placement::{EarlierPlacement, PlacementReader, Unit};
use crate::session::Snapshot;
use crate::tree::{ExtentWalk, TreeReader};
use onefold_format::node::{Entry, Extent, Reference};
use onefold_policy::rewrite::UnitId;
use onefold_types::Result;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Of a snapshot at most this part is read again in one backup, or so many bytes of a small one.
const READ_AGAIN_PART: u64 = 4;
const READ_AGAIN_MIN: u64 = 16 << 20;
/// Chunks of a file that are read again in one backup.
pub const CHUNKS_AGAIN_MAX: usize = 1 << 13;

/// Neighbouring chunks of a file that are read again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// Chunks between the stretch before, or the file's beginning, and this one: they stay.
    pub kept: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its chunks, back to back; no holes.
    pub chunks: Vec<Extent>,
}

/// Files of the parent that have something in frames or containers that are to be emptied.
pub struct ScatteredFiles(Option<Mutex<Scattered>>);

struct Scattered {
    placement: PlacementReader,
    targets: Arc<BTreeSet<UnitId>>,
    unit: Unit,
    /// Frames that rest on something in the targets.
    resting: BTreeSet<FrameId>,
    /// Bytes that may still be read again.
    bytes_left: u64,
    /// Files of several names of which something is read under one.
    linked: HashSet<(u64, u64, Option<Reference>)>,
}

impl ScatteredFiles {
    /// The files of a parent, whose placement is `earlier`.
    #[must_use]
    pub fn new(
        parent: Option<&Snapshot>,
        earlier: Option<&EarlierPlacement>,
        rewrite: &RewriteOptions,
    ) -> Self {
        let of = || {
            let targets = rewrite.guard.as_ref()?.targets.clone()?;
            let targets = Some(targets).filter(|targets| !targets.is_empty())?;
            let bytes_left = (parent?.record.summary.bytes / READ_AGAIN_PART).max(READ_AGAIN_MIN);
            let (placement, unit) = (earlier?.reader(), rewrite.unit);
            let is_target = |base| targets.contains(&unit.id_of(base));
            // What cannot be read says nothing.
            let resting = earlier?.resting_on(&is_target).unwrap_or_default();
            let linked = HashSet::new();
            Some(Mutex::new(Scattered { placement, targets, unit, resting, bytes_left, linked }))
        };
        Self(of())
    }

    /// What of an unchanged file should be read again. The placement is read through the reader of
    /// the walk, and so is the list of chunks.
    #[must_use]
    pub fn stretches(&self, reader: &TreeReader, file: &Entry, place: u64) -> Vec<Stretch> {
        let Some(scattered) = &self.0 else {
            return Vec::new();
        };
        let mut scattered = scattered.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = scattered.choose_once(reader, file, place);
        drop(scattered);
        // What cannot be read stays where it is.
        stretches(reader, file, chosen).unwrap_or_default()
    }
}

impl Scattered {
    /// The same under one of the names of a file; of those that nobody can remember nothing.
    fn choose_once(
        &mut self,
        reader: &TreeReader,
        file: &Entry,
        place: u64,
    ) -> VecDeque<Range<u64>> {
        // Two files that had one number have not the same content.
        let identity = (file.device, file.inode, file.content);
        let is_linked = file.links > 1;
        if is_linked && (self.linked.contains(&identity) || self.linked.len() >= LINKS_MAX) {
            return VecDeque::new();
        }
        let chosen = self.choose(reader, file.chunks, place);
        if is_linked && !chosen.is_empty() {
            self.linked.insert(identity);
        }
        chosen
    }

    /// Which chunks of a file are worth reading, by their numbers in it.
    fn choose(&mut self, reader: &TreeReader, chunks: u64, place: u64) -> VecDeque<Range<u64>> {
        let Self { placement, targets, unit, resting, bytes_left, .. } = self;
        let mut chosen: VecDeque<Range<u64>> = VecDeque::new();
        let (mut number, mut chunks_left) = (0, CHUNKS_AGAIN_MAX as u64);
        placement.runs(reader.chunks(), place, chunks, &mut |run| {
            let start: u64 = number;
            number = number.saturating_add(run.chunks);
            let Some(container) = run.container else { return };
            let frame = FrameId { container, frame: run.frame };
            let is_worth = targets.contains(&unit.id_of(frame)) || resting.contains(&frame);
            if !is_worth || run.bytes > *bytes_left || chunks_left == 0 {
                return;
            }
            *bytes_left -= run.bytes;
            let end = number.min(start.saturating_add(chunks_left));
            chunks_left -= end - start;
            match chosen.back_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => chosen.push_back(start..end),
            }
        });
        chosen
    }
}

/// Where chosen chunks of a file are in it, and what they are.
fn stretches(
    reader: &TreeReader,
    file: &Entry,
    mut chosen: VecDeque<Range<u64>>,
) -> Result<Vec<Stretch>> {
    let mut found: Vec<Stretch> = Vec::new();
    let mut walk = ExtentWalk::new(file.content, file.size)?;
    // Of the next chunk the number, and of the last stretch where it ends: by number, by bytes.
    let (mut number, mut end) = (0, (0, u64::MAX));
    while let Some(range) = chosen.front().cloned()
        && let Some((offset, extent)) = walk.next(reader)?
    {
        if extent.is_hole() {
            continue;
        }
        if range.contains(&number) {
            let kept = number - end.0;
            match found.last_mut() {
                Some(last) if end == (number, offset) => last.chunks.push(extent),
                _ => found.push(Stretch { kept, offset, chunks: vec![extent] }),
            }
            end = (number + 1, offset.saturating_add(extent.length));
        }
        number += 1;
        if number >= range.end {
            chosen.pop_front();
        }
    }
    Ok(found)
}
