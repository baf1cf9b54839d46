//! What a snapshot needs of some frames, in the order in which it needs it.
//!
//! # Algorithm
//! The placement that a backup has recorded says for every stretch of the tree's chunks in which
//! frame of which container they lay (the design, section 6). A walk depth first, as
//! [`super::enumeration::logical`] does, has to read only nodes above stretches that lie in the
//! frames in question, or nobody knows where: directories say how many chunks are below each of
//! their entries, so all others are passed over unread. Without a placement, or behind its end, a
//! tree is walked whole.
//!
//! # Invariants
//! A placement is advice: a wrong one spoils the order, nothing else. With a right one all data
//! chunks in those frames are met, in the same order as by a walk of the whole tree. Nodes below
//! what is passed over are not met.
//!
//! Memory: at most `STRETCHES_MAX` stretches; what comes behind them is taken for one.

use crate::chunks::ChunkReader;
use crate::job::Job;
use crate::placement::{PlacementReader, Run};
use crate::tree::TreeReader;
use onefold_format::node::{Node, Reference};
use onefold_types::{Fingerprint, Level, Result};
use std::ops::Range;

/// Stretches told apart: a MiB of them.
const STRETCHES_MAX: usize = 1 << 16;

/// Chunks of a tree by their places in its order, in stretches.
pub struct Stretches(Vec<Range<u64>>);

impl Stretches {
    /// All chunks of a tree.
    #[must_use]
    pub fn all() -> Self {
        let mut all = Self(Vec::new());
        all.add(0..u64::MAX);
        all
    }

    /// Those in runs that `is_wanted` names, and all that the placement does not cover.
    #[must_use]
    pub fn of(
        nodes: &ChunkReader,
        placement: Option<Reference>,
        is_wanted: &dyn Fn(&Run) -> bool,
    ) -> Self {
        let mut stretches = Self(Vec::new());
        let mut place = 0u64;
        // One that cannot be read covers nothing.
        if let Some(mut reader) = placement.and_then(|it| PlacementReader::open(nodes, it).ok()) {
            let chunks = reader.chunks();
            reader.runs(nodes, 0, chunks, &mut |run| {
                let end = place.saturating_add(run.chunks);
                if is_wanted(&run) {
                    stretches.add(place..end);
                }
                place = end;
            });
        }
        stretches.add(place..u64::MAX);
        stretches
    }

    /// Adds a stretch behind all others.
    fn add(&mut self, stretch: Range<u64>) {
        let is_full = self.0.len() >= STRETCHES_MAX;
        match self.0.last_mut() {
            Some(last) if is_full || last.end >= stretch.start => last.end = stretch.end,
            _ => self.0.push(stretch),
        }
    }

    /// Whether one of them is among the chunks from `place` on. What has no chunks counts for one:
    /// trees that say nothing of theirs are walked whole where everything is wanted.
    fn meet(&self, place: u64, chunks: u64) -> bool {
        let after = self.0.partition_point(|stretch| stretch.end <= place);
        self.0.get(after).is_some_and(|next| next.start < place.saturating_add(chunks.max(1)))
    }

    /// Calls `each` with the chunks of a tree that are in stretches, and with all that come along:
    /// nodes above them, and what these refer to. Returns how many nodes were read.
    pub fn walk(
        &self,
        reader: &TreeReader,
        root: Reference,
        job: &Job,
        each: &mut dyn FnMut(&Fingerprint),
    ) -> Result<u64> {
        let mut nodes = 0;
        let mut left = vec![Below { reference: root, place: 0, chunks: u64::MAX }];
        while let Some(below) = left.pop() {
            each(&below.reference.fingerprint);
            if !below.reference.level.is_node() || !self.meet(below.place, below.chunks) {
                continue;
            }
            job.interrupt.check()?;
            nodes += 1;
            let node = reader.node(below.reference)?;
            let first = left.len();
            below.children(&node, &mut |child| left.push(child));
            if let Some(children) = left.get_mut(first..) {
                children.reverse();
            }
        }
        Ok(nodes)
    }
}

/// Part of a tree: the place of its first chunk, and how many it has.
struct Below {
    reference: Reference,
    place: u64,
    chunks: u64,
}

impl Below {
    /// The parts below a node, in order.
    fn children(&self, node: &Node, each: &mut dyn FnMut(Self)) {
        let mut place = self.place;
        let mut part = |reference: Option<Reference>, chunks: u64| {
            if let Some(reference) = reference {
                each(Self { reference, place, chunks });
            }
            place = place.saturating_add(chunks);
        };
        match node {
            Node::DirectoryLeaf(leaf) => {
                for entry in &leaf.entries {
                    part(entry.content, entry.chunks.saturating_add(entry.totals.chunks));
                }
            }
            Node::DirectoryMap(map) => {
                map.parts.iter().for_each(|one| part(Some(one.leaf), one.totals.chunks));
            }
            // A map of data has a chunk for each reference; maps above do not say.
            Node::FileMap(map) if map.child_level == Level::DATA => {
                node.references(&mut |reference| part(Some(reference), 1));
            }
            // There is nothing below pages and uses.
            Node::PlacementMap(_) => node.references(&mut |reference| {
                each(Self { reference, place: u64::MAX, chunks: 0 });
            }),
            _ => node.references(&mut |reference| each(Self { reference, ..*self })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_meet_what_they_share_a_chunk_with() {
        let mut stretches = Stretches(Vec::new());
        for stretch in [2..4, 4..5, 9..10] {
            stretches.add(stretch);
        }
        assert_eq!(stretches.0, [2..5, 9..10]);
        let meets = |place, chunks| stretches.meet(place, chunks);
        assert!(!meets(0, 2) && meets(0, 3) && meets(4, 1) && !meets(5, 4) && meets(5, 5));
        assert!(meets(9, 0) && !meets(8, 0) && !meets(10, u64::MAX));
        assert!(Stretches::all().meet(0, 0) && Stretches::all().meet(7, u64::MAX));
    }

    #[test]
    fn more_stretches_than_are_held_are_one_with_all_between() {
        let mut stretches = Stretches(Vec::new());
        let count = STRETCHES_MAX as u64;
        (0..count).for_each(|number| stretches.add(number * 2..number * 2 + 1));
        assert!(!stretches.meet(count * 2 - 1, 1) && stretches.0.len() == STRETCHES_MAX);
        stretches.add(count * 2..count * 2 + 1);
        assert!(stretches.meet(count * 2 - 1, 1) && stretches.0.len() == STRETCHES_MAX);
        assert!(!stretches.meet(count * 2 - 3, 1) && !stretches.meet(count * 2 + 1, 9));
    }
}
