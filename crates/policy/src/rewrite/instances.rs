//! The choice among several old containers that hold the same chunk.
//!
//! Algorithm: greedy (FAST'19, section 5.2, step 2; S2.21). The container that holds most chunks of
//! the segment or window is taken first, with all its chunks; then the one that holds most of what
//! is left. Every container not needed is a read saved. Among equals the newest wins: the one that
//! stands first among a chunk's instances, then the one that was met first.
//!
//! The order of taking needs a heap whose counts may be out of date: a count only ever falls, so a
//! container that comes up with an old count is put back with its new one.

use super::slots::NO_SLOT;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Instances looked at for one chunk, newest first: bounds memory against a chunk that was
/// rewritten in every version.
pub(super) const INSTANCES_MAX: usize = 16;

/// The containers that hold a chunk, newest first.
#[derive(Clone, Debug)]
pub(super) struct Instances {
    first: u32,
    /// Rarely any, so mostly no allocation.
    more: Vec<u32>,
}

impl Instances {
    pub(super) fn collect(slots: impl Iterator<Item = u32>) -> Self {
        let mut slots = slots.take(INSTANCES_MAX);
        Self { first: slots.next().unwrap_or(NO_SLOT), more: slots.collect() }
    }

    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn is_single(&self) -> bool {
        self.more.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }
}

/// Chooses a container for each chunk. `base` says how many chunks refer to a container already;
/// such containers are taken first.
pub(super) fn choose(
    chunks: &[&Instances],
    containers: usize,
    base: impl Fn(u32) -> u32,
) -> Vec<u32> {
    let mut chosen: Vec<u32> = chunks.iter().map(|instances| instances.first()).collect();
    if chunks.iter().all(|instances| instances.is_single()) {
        return chosen;
    }
    let mut holds: Vec<u32> = vec![0; containers];
    let mut members: Vec<Vec<u32>> = vec![Vec::new(); containers];
    for (number, instances) in chunks.iter().enumerate() {
        for slot in instances.iter() {
            if let Some(count) = holds.get_mut(slot as usize) {
                *count += 1;
                members[slot as usize].push(number as u32);
            }
        }
        if !instances.is_single() {
            chosen[number] = NO_SLOT;
        }
    }
    // Chunks with one instance stay where they are, so their containers are surely needed; what
    // is counted is everything a container could serve.
    let mut heap: BinaryHeap<(u32, Reverse<u32>)> = holds
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(slot, count)| (count.saturating_add(base(slot as u32)), Reverse(slot as u32)))
        .collect();
    while let Some((count, Reverse(slot))) = heap.pop() {
        let now = holds[slot as usize].saturating_add(base(slot));
        if now < count {
            if holds[slot as usize] > 0 {
                heap.push((now, Reverse(slot)));
            }
            continue;
        }
        for number in std::mem::take(&mut members[slot as usize]) {
            if chosen[number as usize] != NO_SLOT {
                continue;
            }
            chosen[number as usize] = slot;
            for other in chunks[number as usize].iter().filter(|other| *other != slot) {
                if let Some(count) = holds.get_mut(other as usize) {
                    *count = count.saturating_sub(1);
                }
            }
        }
    }
    chosen
}
