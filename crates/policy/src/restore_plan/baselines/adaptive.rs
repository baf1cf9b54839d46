//! Adaptive look-ahead: a rolling assembly area with a chunk cache that looks ahead.
//!
//! ALACC, FAST'18. What follows the publication: the memory is divided between an assembly area and
//! a chunk cache; a window over the recipe covers the area and looks ahead of it; of a container
//! read, chunks that belong into the area are put there, those that the recipe needs within the
//! look-ahead (F-chunks) are cached, so are those that the area needs (P-chunks, probably used
//! again), and the others are dropped; P-chunks leave the cache first, the one used longest ago
//! before others; a P-chunk that the look-ahead reaches becomes an F-chunk; after each cycle of
//! about a container the division of the memory and the length of the look-ahead may change, by a
//! container each, with the memory in total fixed.
//!
//! What is ours: the area rolls with each chunk rather than with each container. Among F-chunks the
//! one needed last leaves first. A step is an eighth of the memory. A chunk that enters the area is
//! taken from another ordinal of the area too. And the rule of adaptation, at its simplest: if
//! F-chunks had to leave in a cycle, the cache takes a step from the area, and the look-ahead
//! shrinks once the area is at its least, to a step, or not at all if it is shorter already; if
//! F-chunks fill less than half of the cache, the look-ahead grows, and once it is eight times the
//! memory the area takes a step from the cache.

use super::recency::Recency;
use crate::restore_plan::layout::{Layout, NEVER};
use crate::restore_plan::served::{NO_READ, Served};
use std::collections::BTreeSet;

/// Steps that the memory is divided into.
const STEPS: u64 = 8;
/// How many times the memory the look-ahead may reach.
const LOOK_AHEAD_MAX: u64 = 8;

/// With an area and a cache of that many bytes together, half of it each at first.
pub(in crate::restore_plan) fn serve(
    layout: &Layout,
    memory_bytes: u64,
    look_ahead_bytes: u64,
    adapts: bool,
) -> Served {
    let mut assembly = Assembly::new(layout, memory_bytes, look_ahead_bytes);
    for ordinal in 0..layout.len() {
        assembly.advance(ordinal);
        assembly.fill(ordinal);
        let written_bytes = layout.bytes_at(ordinal);
        assembly.area_held_bytes -= written_bytes;
        assembly.ahead_held_bytes -= written_bytes;
        assembly.cycle_bytes += written_bytes;
        if adapts && assembly.cycle_bytes >= assembly.step_bytes {
            assembly.adapt();
        }
    }
    assembly.served
}

struct Assembly<'a> {
    layout: &'a Layout,
    served: Served,
    memory_bytes: u64,
    step_bytes: u64,
    /// The lengths of the area, and of the area with the look-ahead.
    area_bytes: u64,
    look_ahead_bytes: u64,
    /// The first ordinals behind them, and what lies before these from the first ordinal not
    /// written.
    area_end: usize,
    ahead_end: usize,
    area_held_bytes: u64,
    ahead_held_bytes: u64,
    /// The read that serves each ordinal of the area that has been filled by a copy.
    filled_by: Vec<u32>,
    /// For each container its last read and the first ordinal that was too far for it.
    reaches: Vec<(usize, u32)>,
    /// For each copy its last ordinal in the area and its first behind it.
    last_entered: Vec<u32>,
    next_behind: Vec<u32>,
    next_uses: Vec<u32>,
    cache: Cache<'a>,
    /// Bytes written since the last adaptation.
    cycle_bytes: u64,
}

impl<'a> Assembly<'a> {
    fn new(layout: &'a Layout, memory_bytes: u64, look_ahead_bytes: u64) -> Self {
        let copies = layout.copy_bytes.len();
        Self {
            layout,
            served: Served::new(layout.len()),
            memory_bytes,
            step_bytes: (memory_bytes / STEPS).max(1),
            area_bytes: memory_bytes - memory_bytes / 2,
            look_ahead_bytes,
            area_end: 0,
            ahead_end: 0,
            area_held_bytes: 0,
            ahead_held_bytes: 0,
            filled_by: vec![NO_READ; layout.len()],
            reaches: vec![(0, NO_READ); layout.container_numbers.len()],
            last_entered: vec![NEVER; copies],
            next_behind: layout.first_uses(),
            next_uses: layout.next_uses(&layout.copies, copies),
            cache: Cache::new(layout),
            cycle_bytes: 0,
        }
    }

    /// Moves the ends of the area and of the look-ahead on, as far as they reach from `front`.
    fn advance(&mut self, front: usize) {
        let layout = self.layout;
        let ahead_bytes = self.area_bytes + self.look_ahead_bytes;
        while self.ahead_end < layout.len()
            && (self.ahead_held_bytes + layout.bytes_at(self.ahead_end) <= ahead_bytes
                || self.ahead_end <= front)
        {
            self.cache.comes_in_sight(layout.copies[self.ahead_end], self.ahead_end as u32);
            self.ahead_held_bytes += layout.bytes_at(self.ahead_end);
            self.ahead_end += 1;
        }
        while self.area_end < self.ahead_end
            && (self.area_held_bytes + layout.bytes_at(self.area_end) <= self.area_bytes
                || self.area_end <= front)
        {
            self.enter(front, self.area_end);
            self.area_held_bytes += layout.bytes_at(self.area_end);
            self.area_end += 1;
        }
        self.make_room();
    }

    /// An ordinal enters the area: it is filled at once if its chunk is in memory.
    fn enter(&mut self, front: usize, ordinal: usize) {
        let copy = self.layout.copies[ordinal];
        let before = self.last_entered[copy as usize];
        if let Some(read) = self.cache.read_of(copy) {
            self.filled_by[ordinal] = read;
        } else if before != NEVER && before as usize >= front {
            self.filled_by[ordinal] = self.read_at(before as usize);
        }
        self.last_entered[copy as usize] = ordinal as u32;
        let next = self.next_uses[ordinal];
        self.next_behind[copy as usize] = next;
        self.cache.used(copy, self.in_sight(next));
    }

    fn in_sight(&self, next: u32) -> Option<u32> {
        Some(next).filter(|next| (*next as usize) < self.ahead_end)
    }

    /// The read that has filled an ordinal of the area, or [`NO_READ`].
    fn read_at(&self, ordinal: usize) -> u32 {
        let (end, read) = self.reaches[self.layout.containers[ordinal] as usize];
        match self.filled_by[ordinal] {
            NO_READ if ordinal < end => read,
            filled => filled,
        }
    }

    /// Fills the first ordinal of the area, by a read if need be.
    fn fill(&mut self, ordinal: usize) {
        let mut read = self.read_at(ordinal);
        if read == NO_READ {
            let container = self.layout.containers[ordinal];
            read = self.served.read(container);
            self.reaches[container as usize] = (self.area_end, read);
            for copy in self.layout.copies_of(container) {
                let entered = self.last_entered[copy as usize];
                let next = self.in_sight(self.next_behind[copy as usize]);
                if next.is_some() || (entered != NEVER && entered as usize >= ordinal) {
                    self.cache.bring(copy, read, next);
                }
            }
            self.make_room();
        }
        self.served.serve(read);
    }

    /// The cache has what the area leaves. An area that was shortened takes up its former length
    /// until the front has moved on.
    fn make_room(&mut self) {
        let taken_bytes = self.area_bytes.max(self.area_held_bytes);
        self.cache.shrink_to(self.memory_bytes.saturating_sub(taken_bytes));
    }

    fn adapt(&mut self) {
        let step = self.step_bytes;
        let cache_bytes = self.memory_bytes - self.area_bytes;
        if std::mem::take(&mut self.cache.needed_left) {
            if self.area_bytes >= 2 * step {
                self.area_bytes -= step;
            } else {
                let least = step.min(self.look_ahead_bytes);
                self.look_ahead_bytes = self.look_ahead_bytes.saturating_sub(step).max(least);
            }
        } else if self.cache.needed_bytes < cache_bytes / 2 {
            if self.look_ahead_bytes < self.memory_bytes.saturating_mul(LOOK_AHEAD_MAX) {
                self.look_ahead_bytes += step;
            } else if cache_bytes >= 2 * step {
                self.area_bytes += step;
            }
        }
        self.cycle_bytes = 0;
        self.make_room();
    }
}

/// The chunk cache.
struct Cache<'a> {
    layout: &'a Layout,
    /// F-chunks by the ordinal behind the area that needs them next.
    needed: BTreeSet<(u32, u32)>,
    needed_bytes: u64,
    /// For each copy that ordinal, or [`NEVER`] if it is no F-chunk in the cache.
    needed_at: Vec<u32>,
    /// P-chunks by their last use.
    probable: Recency,
    probable_bytes: u64,
    reads: Vec<u32>,
    /// Whether an F-chunk had to leave since the last adaptation.
    needed_left: bool,
}

impl<'a> Cache<'a> {
    fn new(layout: &'a Layout) -> Self {
        let copies = layout.copy_bytes.len();
        Self {
            layout,
            needed: BTreeSet::new(),
            needed_bytes: 0,
            needed_at: vec![NEVER; copies],
            probable: Recency::new(copies),
            probable_bytes: 0,
            reads: vec![NO_READ; copies],
            needed_left: false,
        }
    }

    fn bytes_of(&self, copy: u32) -> u64 {
        u64::from(self.layout.copy_bytes[copy as usize])
    }

    fn contains(&self, copy: u32) -> bool {
        self.needed_at[copy as usize] != NEVER || self.probable.contains(copy)
    }

    /// The read that brought the copy, if it is in the cache.
    fn read_of(&self, copy: u32) -> Option<u32> {
        self.contains(copy).then(|| self.reads[copy as usize])
    }

    /// The look-ahead reaches an ordinal: the first of its copy that it knows of, or a later one.
    fn comes_in_sight(&mut self, copy: u32, ordinal: u32) {
        if self.probable.contains(copy) {
            self.used(copy, Some(ordinal));
        }
    }

    /// A copy is read. One that is in the cache already stays as it is.
    fn bring(&mut self, copy: u32, read: u32, next: Option<u32>) {
        if !self.contains(copy) {
            self.reads[copy as usize] = read;
            self.insert(copy, next);
        }
    }

    /// A copy, if it is in the cache, is next needed at that ordinal, or not within sight.
    fn used(&mut self, copy: u32, next: Option<u32>) {
        if self.contains(copy) {
            self.remove(copy);
            self.insert(copy, next);
        }
    }

    fn insert(&mut self, copy: u32, next: Option<u32>) {
        match next {
            Some(ordinal) => {
                self.needed.insert((ordinal, copy));
                self.needed_at[copy as usize] = ordinal;
                self.needed_bytes += self.bytes_of(copy);
            }
            None => {
                self.probable.touch(copy);
                self.probable_bytes += self.bytes_of(copy);
            }
        }
    }

    fn remove(&mut self, copy: u32) {
        let ordinal = std::mem::replace(&mut self.needed_at[copy as usize], NEVER);
        if ordinal != NEVER {
            self.needed.remove(&(ordinal, copy));
            self.needed_bytes -= self.bytes_of(copy);
        } else if self.probable.contains(copy) {
            self.probable.remove(copy);
            self.probable_bytes -= self.bytes_of(copy);
        }
    }

    fn shrink_to(&mut self, bytes: u64) {
        while self.needed_bytes + self.probable_bytes > bytes {
            if let Some(copy) = self.probable.remove_oldest() {
                self.probable_bytes -= self.bytes_of(copy);
            } else if let Some(&(_, copy)) = self.needed.last() {
                self.remove(copy);
                self.needed_left = true;
            } else {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore_plan::ContainerSizes;

    #[test]
    fn a_look_ahead_shrinks_to_a_step_and_a_shorter_one_stays() {
        // What is needed has left and the area is a step of ten bytes.
        let shrunk = |look_ahead_bytes| {
            let layout = Layout::new(&[], ContainerSizes(&[]));
            let mut assembly = Assembly::new(&layout, 80, look_ahead_bytes);
            assembly.area_bytes = assembly.step_bytes;
            assembly.cache.needed_left = true;
            assembly.adapt();
            assembly.look_ahead_bytes
        };
        assert_eq!([100, 20, 15, 10, 9, 1].map(shrunk), [90, 10, 10, 10, 9, 1]);
    }
}
