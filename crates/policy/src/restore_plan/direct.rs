//! Direct: each container is read once.
//!
//! Ours. Where the outputs are files, nothing says that they are written from their beginning to
//! their end: a container is read, and each of its chunks goes to all its places at once. There is
//! nothing to hold and no container is read twice, at the price of writes in many places. For an
//! output that is a stream, [`super::Plan::memory_peak_bytes`] says what would have to be held.

use super::layout::Layout;
use super::served::Served;

/// Reads containers in the order in which the recipe first names them.
pub(super) fn serve(layout: &Layout) -> Served {
    let mut served = Served::new(layout.len());
    let mut reads: Vec<Option<u32>> = vec![None; layout.container_numbers.len()];
    for &container in &layout.containers {
        let read = *reads[container as usize].get_or_insert_with(|| served.read(container));
        served.serve(read);
    }
    served
}
