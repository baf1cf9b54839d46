//! Container cache: the containers used last stay in memory, whole.
//!
//! The yardstick of FAST'13 and FAST'18: before a container is read, those whose use is longest
//! ago leave until it fits. Whole containers are counted, although the plan lets go of chunks that
//! the recipe does not need again, so that the figures are those of the published cache.

use super::recency::Recency;
use crate::restore_plan::layout::Layout;
use crate::restore_plan::served::Served;

/// With a cache of that many bytes; one container is always held.
pub(in crate::restore_plan) fn serve(layout: &Layout, memory_bytes: u64) -> Served {
    let mut served = Served::new(layout.len());
    let mut cached = Recency::new(layout.container_numbers.len());
    let mut reads = vec![0; layout.container_numbers.len()];
    let mut cached_bytes: u64 = 0;
    for &container in &layout.containers {
        if !cached.contains(container) {
            cached_bytes += layout.container_bytes[container as usize];
            while cached_bytes > memory_bytes {
                let Some(oldest) = cached.remove_oldest() else { break };
                cached_bytes -= layout.container_bytes[oldest as usize];
            }
            reads[container as usize] = served.read(container);
        }
        cached.touch(container);
        served.serve(reads[container as usize]);
    }
    served
}
