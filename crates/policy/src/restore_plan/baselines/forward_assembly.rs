//! The forward assembly area: a stretch of the recipe is assembled in memory at a time.
//!
//! FAST'13, section 4.2: the area holds the next M bytes of the output. The earliest ordinal that
//! is still empty names the next container to read, and everything in it that belongs into the area
//! is copied there. So a container is read once for each fill at most, no chunk is looked for in a
//! cache, and no memory holds what is not needed. When the area is full it is written out, and the
//! next M bytes begin.
//!
//! Rolling (the way of destor, the testbed): what is at the front and filled is written out at
//! once, and the area takes up as much of the recipe at its end. It then has its full length where
//! a read happens, for the same memory. Ours: an ordinal that enters it is filled at once if its
//! chunk is in the area already.

use crate::restore_plan::layout::{Layout, NEVER};
use crate::restore_plan::served::{NO_READ, Served};

/// Fill after fill. The area ends before the first chunk that does not fit, and has one at least.
pub(in crate::restore_plan) fn serve_in_fills(layout: &Layout, area_bytes: u64) -> Served {
    let mut served = Served::new(layout.len());
    // For each container, the read of the fill that ends before this ordinal.
    let mut reads = vec![(0, 0); layout.container_numbers.len()];
    let mut fill_end = 0;
    for (ordinal, &container) in layout.containers.iter().enumerate() {
        if ordinal == fill_end {
            let mut held = 0;
            while fill_end < layout.len()
                && (held + layout.bytes_at(fill_end) <= area_bytes || fill_end == ordinal)
            {
                held += layout.bytes_at(fill_end);
                fill_end += 1;
            }
        }
        serve_until(&mut served, &mut reads, container, ordinal, fill_end);
    }
    served
}

/// With an area that begins at the first ordinal that is not filled.
pub(in crate::restore_plan) fn serve_rolling(layout: &Layout, area_bytes: u64) -> Served {
    let mut area = RollingArea::new(layout);
    for ordinal in 0..layout.len() {
        area.advance(ordinal, area_bytes);
        let mut read = area.read_at(ordinal);
        if read == NO_READ {
            let container = layout.containers[ordinal];
            read = area.served.read(container);
            area.reaches[container as usize] = (area.end, read);
        }
        area.served.serve(read);
        area.held_bytes -= layout.bytes_at(ordinal);
    }
    area.served
}

struct RollingArea<'a> {
    layout: &'a Layout,
    served: Served,
    /// The first ordinal behind the area, and what lies before it.
    end: usize,
    held_bytes: u64,
    /// For each ordinal the read whose chunk was in the area when the ordinal entered it.
    filled_by: Vec<u32>,
    /// For each container the first ordinal that its last read did not reach, and that read.
    reaches: Vec<(usize, u32)>,
    /// For each copy the last ordinal that entered the area.
    last_entered: Vec<u32>,
}

impl<'a> RollingArea<'a> {
    fn new(layout: &'a Layout) -> Self {
        Self {
            layout,
            served: Served::new(layout.len()),
            end: 0,
            held_bytes: 0,
            filled_by: vec![NO_READ; layout.len()],
            reaches: vec![(0, NO_READ); layout.container_numbers.len()],
            last_entered: vec![NEVER; layout.copy_bytes.len()],
        }
    }

    /// Takes up ordinals behind the area while they fit; the first ordinal always does.
    fn advance(&mut self, front: usize, area_bytes: u64) {
        while self.end < self.layout.len() {
            let bytes = self.layout.bytes_at(self.end);
            if self.held_bytes + bytes > area_bytes && self.end > front {
                break;
            }
            let last = &mut self.last_entered[self.layout.copies[self.end] as usize];
            let before = std::mem::replace(last, self.end as u32);
            if before != NEVER && before as usize >= front {
                self.filled_by[self.end] = self.read_at(before as usize);
            }
            self.held_bytes += bytes;
            self.end += 1;
        }
    }

    /// The read that has filled an ordinal of the area, or [`NO_READ`].
    fn read_at(&self, ordinal: usize) -> u32 {
        let (end, read) = self.reaches[self.layout.containers[ordinal] as usize];
        match self.filled_by[ordinal] {
            NO_READ if ordinal < end => read,
            filled => filled,
        }
    }
}

/// Serves the ordinal by the last read of its container if that reached this far, else by a new
/// read that reaches to `end`.
fn serve_until(
    served: &mut Served,
    reads: &mut [(usize, u32)],
    container: u32,
    ordinal: usize,
    end: usize,
) {
    let read = &mut reads[container as usize];
    if ordinal >= read.0 {
        *read = (end, served.read(container));
    }
    served.serve(read.1);
}
