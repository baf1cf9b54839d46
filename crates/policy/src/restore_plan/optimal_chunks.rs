//! Optimal chunk cache: the chunk that is needed last leaves.
//!
//! Ours: Belady's rule for chunks. Of each container read, exactly the chunks that the recipe needs
//! later stay, however much later, and while they do not fit, the one whose next place is farthest
//! away leaves. The forward assembly area is the special case that gives up everything beyond a
//! fixed distance; the look-ahead of FAST'18 is the one that does so beyond a longer distance. It
//! is not proven to be least in reads, as a read brings many chunks and one of them may be worth
//! less than its distance says.

use super::layout::{Layout, NEVER};
use super::served::Served;
use std::collections::BTreeSet;

/// With a cache of that many bytes; the chunk just read is always held.
pub(super) fn serve(layout: &Layout, memory_bytes: u64) -> Served {
    let next_uses = layout.next_uses(&layout.copies, layout.copy_bytes.len());
    let mut served = Served::new(layout.len());
    // The place that needs each copy next, and copies in memory by that place.
    let mut next_of = layout.first_uses();
    let mut cached: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut cached_bytes = 0;
    let mut reads = vec![0; layout.copy_bytes.len()];
    for (place, (&container, &copy)) in layout.containers.iter().zip(&layout.copies).enumerate() {
        if !cached.contains(&(place as u32, copy)) {
            let read = served.read(container);
            for brought in layout.copies_of(container) {
                let next = next_of[brought as usize];
                if next != NEVER && cached.insert((next, brought)) {
                    reads[brought as usize] = read;
                    cached_bytes += u64::from(layout.copy_bytes[brought as usize]);
                }
            }
        }
        served.serve(reads[copy as usize]);
        while cached_bytes > memory_bytes && cached.len() > 1 {
            let Some((_, last)) = cached.pop_last() else { break };
            cached_bytes -= u64::from(layout.copy_bytes[last as usize]);
        }
        cached.remove(&(place as u32, copy));
        let next = next_uses[place];
        next_of[copy as usize] = next;
        if next == NEVER {
            cached_bytes -= u64::from(layout.copy_bytes[copy as usize]);
        } else {
            cached.insert((next, copy));
        }
    }
    served
}
