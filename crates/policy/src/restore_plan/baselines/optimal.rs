//! Optimal container cache: the container that is needed last leaves.
//!
//! Belady's rule (1966), which needs to know the future; a recipe is the future. No cache of whole
//! containers of equal size reads less. Containers differ a little in size, for which no fast rule
//! is optimal, but this one never reads more than the container cache of the same memory: where
//! that still holds a container, all that was asked for since its last use fits into the memory
//! beside it. What is needed before it again is among that, so by this rule it has not left either.

use crate::restore_plan::layout::{Layout, NEVER};
use crate::restore_plan::served::Served;
use std::collections::BTreeSet;

/// With a cache of that many bytes; one container is always held.
pub(in crate::restore_plan) fn serve(layout: &Layout, memory_bytes: u64) -> Served {
    let next_uses = layout.next_uses(&layout.containers, layout.container_numbers.len());
    let mut served = Served::new(layout.len());
    // Containers in memory by the ordinal that needs them next. All these ordinals differ.
    let mut cached: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut cached_bytes = 0;
    let mut reads = vec![0; layout.container_numbers.len()];
    for (ordinal, &container) in layout.containers.iter().enumerate() {
        if !cached.remove(&(ordinal as u32, container)) {
            reads[container as usize] = served.read(container);
            cached_bytes += layout.container_bytes[container as usize];
            while cached_bytes > memory_bytes {
                let Some((_, last)) = cached.pop_last() else { break };
                cached_bytes -= layout.container_bytes[last as usize];
            }
        }
        served.serve(reads[container as usize]);
        match next_uses[ordinal] {
            NEVER => cached_bytes -= layout.container_bytes[container as usize],
            next => _ = cached.insert((next, container)),
        }
    }
    served
}
