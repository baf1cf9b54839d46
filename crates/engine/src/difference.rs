//! The difference between two snapshots, or two directories of snapshots.
//!
//! Two directories are merged in the order of names. Equal subtrees, and equal leaves of large
//! directories that stand side by side, are passed over with one comparison of fingerprints, so
//! the cost grows with the difference and not with the snapshots.
//!
//! What a file system sets by itself is no difference: the time of the last change of the inode,
//! inode and device numbers, the count of links, and whether blocks were left out.
//!
//! Bytes: of a modified file, the parts that only one side has; equal parts of its tree are passed
//! over like equal directories. Of very large differences only whole parts are told apart.

use crate::job::Job;
use crate::repository::Repository;
use crate::tree::directory_cursor::{DirectoryCursor, check_depth};
use crate::tree::{TreeReader, path};
use onefold_format::node::{Entry, EntryKind, Extent, Reference};
use onefold_types::error::Context;
use onefold_types::{Level, Result};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// Parts of one modified file that are compared at once; more are counted as they are.
const PARTS_MAX: usize = 1 << 16;

/// What happened to a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// Its content differs.
    Modified,
    /// Only its metadata differs.
    Metadata,
    /// It is of another kind.
    Kind,
}

/// Sums over a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DifferenceTotals {
    /// Entries only in the second.
    pub added: u64,
    /// Entries only in the first.
    pub removed: u64,
    /// Entries whose content differs, those of another kind included.
    pub modified: u64,
    /// Entries whose metadata alone differs.
    pub metadata: u64,
    /// File bytes only in the second.
    pub bytes_added: u64,
    /// File bytes only in the first.
    pub bytes_removed: u64,
}

/// Calls `each` with the path of every difference, in the order of paths. Equal subtrees are one
/// comparison of fingerprints.
pub fn difference(
    repository: &Arc<Repository>,
    first: Reference,
    second: Reference,
    job: &Job,
    each: &mut dyn FnMut(&[u8], Change) -> Result<()>,
) -> Result<DifferenceTotals> {
    let mut totals = DifferenceTotals::default();
    if first == second {
        return Ok(totals);
    }
    let reader = TreeReader::open(repository)?;
    let mut stack = vec![Pair {
        path: Vec::new(),
        first: Some(DirectoryCursor::open(&reader, first)?),
        second: Some(DirectoryCursor::open(&reader, second)?),
    }];
    while let Some(pair) = stack.last_mut() {
        job.interrupt.check()?;
        let (one, other) = pair.next(&reader).context(|| path::display(&pair.path))?;
        let Some(name) = one.as_ref().or(other.as_ref()).map(|entry| &entry.name) else {
            stack.pop();
            continue;
        };
        let at = path::join(&pair.path, name);
        if let Some(change) = change_of(one.as_ref(), other.as_ref()) {
            count(&reader, &mut totals, change, one.as_ref(), other.as_ref())
                .context(|| path::display(&at))?;
            each(&at, change)?;
        }
        let (one, other) = (directory_of(one.as_ref()), directory_of(other.as_ref()));
        if one.map(|entry| entry.content) == other.map(|entry| entry.content) {
            continue;
        }
        check_depth(stack.len(), &at)?;
        let open = |entry: Option<&Entry>| {
            entry
                .map(|entry| DirectoryCursor::of(&reader, entry))
                .transpose()
                .context(|| path::display(&at))
        };
        let (first, second) = (open(one)?, open(other)?);
        stack.push(Pair { path: at, first, second });
    }
    Ok(totals)
}

/// A directory of each side, or of one side alone.
struct Pair {
    path: Vec<u8>,
    first: Option<DirectoryCursor>,
    second: Option<DirectoryCursor>,
}

impl Pair {
    /// The next name, as each side has it.
    fn next(&mut self, reader: &TreeReader) -> Result<(Option<Entry>, Option<Entry>)> {
        if let (Some(first), Some(second)) = (&mut self.first, &mut self.second) {
            while let (Some(one), Some(other)) = (first.next_leaf(), second.next_leaf())
                && one == other
            {
                first.skip_leaf();
                second.skip_leaf();
            }
        }
        let one = peek(&mut self.first, reader)?;
        let other = peek(&mut self.second, reader)?;
        let order = match (one, other) {
            (Some(one), Some(other)) => one.name.cmp(&other.name),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let take = |cursor: &mut Option<DirectoryCursor>| match cursor {
            Some(cursor) => cursor.next(reader),
            None => Ok(None),
        };
        Ok(match order {
            Ordering::Less => (take(&mut self.first)?, None),
            Ordering::Equal => (take(&mut self.first)?, take(&mut self.second)?),
            Ordering::Greater => (None, take(&mut self.second)?),
        })
    }
}

fn peek<'a>(
    cursor: &'a mut Option<DirectoryCursor>,
    reader: &TreeReader,
) -> Result<Option<&'a Entry>> {
    match cursor {
        Some(cursor) => cursor.peek(reader),
        None => Ok(None),
    }
}

fn directory_of(entry: Option<&Entry>) -> Option<&Entry> {
    entry.filter(|entry| entry.kind == EntryKind::Directory)
}

fn change_of(one: Option<&Entry>, other: Option<&Entry>) -> Option<Change> {
    let (one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (Some(_), None) => return Some(Change::Removed),
        (None, Some(_)) => return Some(Change::Added),
        (None, None) => return None,
    };
    let content = |entry: &Entry| {
        let content = entry.content.filter(|_| entry.kind == EntryKind::File);
        (content, entry.size, entry.device_number)
    };
    if one.kind != other.kind {
        Some(Change::Kind)
    } else if content(one) != content(other) || one.target != other.target {
        Some(Change::Modified)
    } else if metadata_differs(one, other) {
        Some(Change::Metadata)
    } else {
        None
    }
}

fn metadata_differs(one: &Entry, other: &Entry) -> bool {
    let numbers = |entry: &Entry| (entry.mode, entry.uid, entry.gid, entry.modified);
    numbers(one) != numbers(other) || one.xattrs != other.xattrs
}

fn count(
    reader: &TreeReader,
    totals: &mut DifferenceTotals,
    change: Change,
    one: Option<&Entry>,
    other: Option<&Entry>,
) -> Result<()> {
    match change {
        Change::Added => totals.added += 1,
        Change::Removed => totals.removed += 1,
        Change::Modified | Change::Kind => totals.modified += 1,
        Change::Metadata => {
            totals.metadata += 1;
            return Ok(());
        }
    }
    let (removed, added) = match (one, other) {
        (Some(one), Some(other)) if change == Change::Modified => {
            distinct_bytes(reader, one, other)?
        }
        _ => (one.map_or(0, |entry| entry.size), other.map_or(0, |entry| entry.size)),
    };
    totals.bytes_removed += removed;
    totals.bytes_added += added;
    Ok(())
}

/// The bytes that only the first and only the second of two files has. Level by level, from the
/// higher of the two tops downwards, parts that both have are taken out, and what is left is
/// replaced by its children.
fn distinct_bytes(reader: &TreeReader, one: &Entry, other: &Entry) -> Result<(u64, u64)> {
    let mut sides = [Parts::of(one), Parts::of(other)];
    let top = |entry: &Entry| entry.content.map_or(Level::DATA, |content| content.level);
    let mut level = top(one).max(top(other));
    loop {
        let [first, second] = &mut sides;
        first.remove_common(second);
        let is_large = first.parts.len() + second.parts.len() > PARTS_MAX;
        if level == Level::DATA || is_large {
            return Ok((first.bytes(), second.bytes()));
        }
        for side in &mut sides {
            side.expand(reader, level)?;
        }
        level = Level(level.0 - 1);
    }
}

/// Parts of a file: how often each occurs, and how many bytes it is.
#[derive(Default)]
struct Parts {
    parts: HashMap<Reference, (u64, u64)>,
    holes: u64,
}

impl Parts {
    fn of(entry: &Entry) -> Self {
        let mut parts = Self::default();
        if let Some(content) = entry.content {
            parts.parts.insert(content, (1, entry.size));
        }
        parts
    }

    fn remove_common(&mut self, other: &mut Self) {
        let counts = other.parts.iter_mut();
        for (reference, (count, _)) in counts {
            if let Some((own, _)) = self.parts.get_mut(reference) {
                let common = (*own).min(*count);
                *own -= common;
                *count -= common;
            }
        }
        for side in [&mut *self, other] {
            side.parts.retain(|_, (count, _)| *count > 0);
        }
        let holes = self.holes.min(other.holes);
        self.holes -= holes;
        other.holes -= holes;
    }

    /// Replaces the parts of `level` by their children.
    fn expand(&mut self, reader: &TreeReader, level: Level) -> Result<()> {
        let (high, low): (Vec<_>, Vec<_>) = std::mem::take(&mut self.parts)
            .into_iter()
            .partition(|(reference, _)| reference.level == level);
        self.parts.extend(low);
        for (reference, (count, _)) in high {
            let map = reader.file_map(reference)?;
            for Extent { fingerprint, length } in map.extents {
                if fingerprint.is_zero() {
                    self.holes = self.holes.saturating_add(length.saturating_mul(count));
                    continue;
                }
                let child = Reference { fingerprint, level: map.child_level };
                self.parts.entry(child).or_insert((0, length)).0 += count;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let parts = self.parts.values();
        parts.fold(self.holes, |sum, (count, length)| {
            sum.saturating_add(count.saturating_mul(*length))
        })
    }
}
