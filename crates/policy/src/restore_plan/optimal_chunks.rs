//! Optimal chunk cache: the chunk that is needed last leaves.
//!
//! Ours: Belady's rule for chunks. Of each container read, exactly the chunks that the recipe needs
//! later stay, however much later, and while they do not fit, the one whose next ordinal is
//! farthest away leaves. The forward assembly area is the special case that gives up everything
//! beyond a fixed distance; the look-ahead of FAST'18 is the one that does so beyond a longer
//! distance. It is not proven to be least in reads, as a read brings many chunks and one of them
//! may be worth less than its distance says.

use super::layout::{Layout, NEVER};
use super::served::Served;
use std::collections::BinaryHeap;

/// With a cache of that many bytes; the chunk just read is always held.
pub(super) fn serve(layout: &Layout, memory_bytes: u64) -> Served {
    let next_uses = layout.next_uses(&layout.copies, layout.copy_bytes.len());
    let mut next_of = layout.first_uses();
    let mut held = Held::new(layout);
    let mut served = Served::new(layout.len());
    let mut reads = vec![0; layout.copy_bytes.len()];
    for (ordinal, (&container, &copy)) in layout.containers.iter().zip(&layout.copies).enumerate() {
        if !held.for_ordinals[ordinal] {
            let read = served.read(container);
            for brought in layout.copies_of(container) {
                if held.insert(next_of[brought as usize]) {
                    reads[brought as usize] = read;
                }
            }
        }
        served.serve(reads[copy as usize]);
        held.shrink_to(memory_bytes, ordinal);
        held.remove(ordinal);
        next_of[copy as usize] = next_uses[ordinal];
        held.insert(next_uses[ordinal]);
    }
    served
}

/// The chunks in memory. A chunk is known by the next ordinal that needs it, which needs no other.
struct Held<'a> {
    layout: &'a Layout,
    /// Whether the chunk for an ordinal is in memory, as the next ordinal that needs it.
    for_ordinals: Vec<bool>,
    /// These ordinals, and some for which it is no longer.
    farthest: BinaryHeap<u32>,
    bytes: u64,
}

impl<'a> Held<'a> {
    fn new(layout: &'a Layout) -> Self {
        let for_ordinals = vec![false; layout.len()];
        Self { layout, for_ordinals, farthest: BinaryHeap::new(), bytes: 0 }
    }

    /// False if the chunk is in memory already or no ordinal needs it.
    fn insert(&mut self, ordinal: u32) -> bool {
        if ordinal == NEVER || self.for_ordinals[ordinal as usize] {
            return false;
        }
        self.for_ordinals[ordinal as usize] = true;
        self.farthest.push(ordinal);
        self.bytes += self.layout.bytes_at(ordinal as usize);
        true
    }

    fn remove(&mut self, ordinal: usize) {
        if std::mem::take(&mut self.for_ordinals[ordinal]) {
            self.bytes -= self.layout.bytes_at(ordinal);
        }
    }

    /// Lets go of chunks, but not of the one for the ordinal that is served.
    fn shrink_to(&mut self, bytes: u64, served: usize) {
        while self.bytes > bytes {
            let Some(&last) = self.farthest.peek() else { break };
            if last as usize == served {
                break;
            }
            self.farthest.pop();
            self.remove(last as usize);
        }
    }
}
