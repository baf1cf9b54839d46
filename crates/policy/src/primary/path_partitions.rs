//! Partitions by path: sub-trees of directories, none with more than a share of all bytes.
//!
//! ATC'12 divides the files of a server into directory sub-trees of at most 10 % of its bytes each;
//! how is left open. Algorithm: the largest sub-trees that are within the bound are taken whole.
//! Going through the tree by name, a directory above the bound is entered and its entries are
//! looked at one by one. What was found so is then packed, neighbours together, as long as the
//! bound allows. So a partition is a range of paths, all that has to be kept of it is its first
//! one, and files that come later belong somewhere too.
//!
//! Invariants: every path belongs to exactly one partition; a partition of more than one file is
//! within the bound (a single file can be larger); two neighbours together never are, so there are
//! few: at most 2 / share. Equal input, in any order, gives equal output.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

/// The share of all bytes that a partition has at most (S4.19).
pub const SHARE_MAX: f64 = 0.10;

/// A file: its path and its bytes.
pub type SizedPath<'a> = (&'a [u8], u64);

/// The partitions of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathPartitions {
    /// The first path of every partition but the first, which begins before all paths.
    starts: Vec<Vec<u8>>,
}

/// Files that stay together: where they begin in the sorted list, and their bytes.
#[derive(Clone, Copy)]
struct Unit {
    start: usize,
    bytes: u64,
}

impl PathPartitions {
    /// Divides the files so that no partition has more than `share_max` of their bytes.
    #[must_use]
    pub fn divide(files: &[SizedPath<'_>], share_max: f64) -> Self {
        let mut sorted = files.to_vec();
        sorted
            .sort_unstable_by(|one, other| by_component(one.0, other.0).then(one.1.cmp(&other.1)));
        let all: u64 = sorted.iter().map(|(_, bytes)| bytes).sum();
        let bound = (all as f64 * share_max.clamp(0.0, 1.0)) as u64;
        let mut starts = Vec::new();
        let mut current = 0;
        for unit in units(&sorted, bound) {
            if unit.start > 0 && current + unit.bytes > bound {
                starts.extend(sorted.get(unit.start).map(|(path, _)| path.to_vec()));
                current = 0;
            }
            current += unit.bytes;
        }
        Self { starts }
    }

    /// The partition that a path belongs to, less than [`Self::count`].
    #[must_use]
    pub fn partition_of(&self, path: &[u8]) -> usize {
        self.starts.partition_point(|start| by_component(start, path) != Ordering::Greater)
    }

    /// The partitions that what is below a directory may belong to.
    #[must_use]
    pub fn partitions_below(&self, directory: &[u8]) -> RangeInclusive<usize> {
        let is_below = |path: &[u8]| {
            let mut inner = components(path);
            components(directory).all(|name| inner.next() == Some(name))
        };
        let is_up_to_its_end = |start: &Vec<u8>| {
            by_component(start, directory) != Ordering::Greater || is_below(start)
        };
        self.partition_of(directory)..=self.starts.partition_point(is_up_to_its_end)
    }

    /// How many partitions there are, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len() + 1
    }
}

/// The order of a walk by name: what is in a directory stands together.
fn by_component(one: &[u8], other: &[u8]) -> Ordering {
    components(one).cmp(components(other))
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// The largest sub-trees within the bound, and files that are not, in order.
fn units(sorted: &[SizedPath<'_>], bound: u64) -> Vec<Unit> {
    let mut units = Vec::new();
    // Ranges still to look at, the next one last, and how many components their paths share.
    let mut waiting = vec![(0, sorted.len(), 0)];
    while let Some((start, end, depth)) = waiting.pop() {
        let files = sorted.get(start..end).unwrap_or_default();
        let Some(((first, _), (last, _))) = files.first().zip(files.last()) else {
            continue;
        };
        let bytes = files.iter().map(|(_, bytes)| bytes).sum();
        if bytes <= bound || by_component(first, last) == Ordering::Equal {
            units.push(Unit { start, bytes });
            continue;
        }
        let first_child = waiting.len();
        let mut child = start;
        let are_one = |one: &SizedPath<'_>, other: &SizedPath<'_>| {
            components(one.0).nth(depth) == components(other.0).nth(depth)
        };
        for entries in files.chunk_by(are_one) {
            waiting.push((child, child + entries.len(), depth + 1));
            child += entries.len();
        }
        if let Some(children) = waiting.get_mut(first_child..) {
            children.reverse();
        }
    }
    units
}
