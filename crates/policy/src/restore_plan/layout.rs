//! A recipe with numbers that are dense: containers, and copies of chunks.
//!
//! A copy is a chunk in a container. Equal chunks that a recipe names in two containers are two
//! copies, because a read of the one container does not serve the ordinal that names the other: who
//! restores knows only from the ordinal itself where in its container the chunk lies.
//!
//! Sorted once, in O(n log n); everything after is arrays.

use super::{ContainerSizes, PlanChunk};
use std::ops::Range;

/// No further ordinal.
pub(super) const NEVER: u32 = u32::MAX;

/// A recipe, renumbered.
#[derive(Debug)]
pub(super) struct Layout {
    /// The number in the recipe of each container, ascending.
    pub container_numbers: Vec<u32>,
    /// What each container holds, at least what the recipe needs of it.
    pub container_bytes: Vec<u64>,
    /// By how much that exceeds what the recipe needs of it.
    pub remainder_bytes: Vec<u64>,
    /// The container of each ordinal.
    pub containers: Vec<u32>,
    /// The copy at each ordinal. Copies of a container are numbered consecutively.
    pub copies: Vec<u32>,
    /// Bytes of each copy.
    pub copy_bytes: Vec<u32>,
    /// Where the copies of each container begin, and one more for where the last ones end.
    pub copy_starts: Vec<u32>,
}

impl Layout {
    pub fn new(recipe: &[PlanChunk], sizes: ContainerSizes<'_>) -> Self {
        let mut order: Vec<(u64, u32)> = (0..)
            .zip(recipe)
            .map(|(ordinal, at): (u32, _)| {
                (u64::from(at.container) << 32 | u64::from(at.chunk), ordinal)
            })
            .collect();
        order.sort_unstable();
        let mut layout = Self {
            container_numbers: Vec::new(),
            container_bytes: Vec::new(),
            remainder_bytes: Vec::new(),
            containers: vec![0; recipe.len()],
            copies: vec![0; recipe.len()],
            copy_bytes: Vec::new(),
            copy_starts: Vec::new(),
        };
        let mut last_key = None;
        for (key, ordinal) in order {
            let chunk = recipe[ordinal as usize];
            if layout.container_numbers.last() != Some(&chunk.container) {
                layout.container_numbers.push(chunk.container);
                layout.container_bytes.push(0);
                layout.copy_starts.push(layout.copy_bytes.len() as u32);
            }
            let container = layout.container_numbers.len() - 1;
            if last_key != Some(key) {
                last_key = Some(key);
                layout.copy_bytes.push(chunk.size_bytes);
                layout.container_bytes[container] += u64::from(chunk.size_bytes);
            }
            layout.containers[ordinal as usize] = container as u32;
            layout.copies[ordinal as usize] = layout.copy_bytes.len() as u32 - 1;
        }
        layout.copy_starts.push(layout.copy_bytes.len() as u32);
        for (number, bytes) in layout.container_numbers.iter().zip(&mut layout.container_bytes) {
            let whole = sizes.get(*number).max(*bytes);
            layout.remainder_bytes.push(whole - *bytes);
            *bytes = whole;
        }
        layout
    }

    /// Ordinals of the recipe.
    pub fn len(&self) -> usize {
        self.containers.len()
    }

    /// Bytes at an ordinal.
    pub fn bytes_at(&self, ordinal: usize) -> u64 {
        u64::from(self.copy_bytes[self.copies[ordinal] as usize])
    }

    /// The copies of a container, in the order of their chunks' numbers.
    pub fn copies_of(&self, container: u32) -> Range<u32> {
        self.copy_starts[container as usize]..self.copy_starts[container as usize + 1]
    }

    /// For each ordinal the next one with the same entry of `entries`, which are below `bound`.
    pub fn next_uses(&self, entries: &[u32], bound: usize) -> Vec<u32> {
        let mut next_of = vec![NEVER; bound];
        let mut next_uses = vec![NEVER; entries.len()];
        for (ordinal, &entry) in entries.iter().enumerate().rev() {
            next_uses[ordinal] = std::mem::replace(&mut next_of[entry as usize], ordinal as u32);
        }
        next_uses
    }

    /// The first ordinal of each copy.
    pub fn first_uses(&self) -> Vec<u32> {
        let mut first = vec![NEVER; self.copy_bytes.len()];
        for (ordinal, &copy) in self.copies.iter().enumerate().rev() {
            first[copy as usize] = ordinal as u32;
        }
        first
    }
}
