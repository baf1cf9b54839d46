//! What engines answer, and how it becomes a plan.
//!
//! An engine walks over the recipe and says for each ordinal which read serves it. Reads are
//! numbered in the order in which they are first needed, so a read with ordinals needs no sorting
//! later.

use super::layout::Layout;
use super::{Plan, PlannedRead};
use onefold_types::{Result, invariant};

/// No read.
pub(super) const NO_READ: u32 = u32::MAX;

/// The reads so far, and which of them serves each ordinal.
#[derive(Debug)]
pub(super) struct Served {
    reads: Vec<u32>,
    served_by: Vec<u32>,
}

impl Served {
    /// No read yet, for a recipe of that many ordinals.
    pub fn new(ordinals: usize) -> Self {
        Self { reads: Vec::new(), served_by: Vec::with_capacity(ordinals) }
    }

    /// Reads a container and returns the number of the read.
    pub fn read(&mut self, container: u32) -> u32 {
        self.reads.push(container);
        self.reads.len() as u32 - 1
    }

    /// The next ordinal of the recipe is served by that read.
    pub fn serve(&mut self, read: u32) {
        self.served_by.push(read);
    }

    /// The number of the last read; zero before the first.
    pub fn last(&self) -> u32 {
        (self.reads.len() as u32).saturating_sub(1)
    }

    /// The plan: ordinals by read, and what must be held.
    ///
    /// Errors: a bug if not every ordinal is served, or one by a read of another container.
    pub fn into_plan(self, layout: &Layout) -> Result<Plan> {
        let (served, ordinals) = (self.served_by.len(), layout.len());
        invariant!(served == ordinals, "a plan serves other places than asked", served, ordinals);
        for (&read, container) in self.served_by.iter().zip(&layout.containers) {
            let from = self.reads.get(read as usize);
            invariant!(from == Some(container), "a read serves another container", from, container);
        }
        let mut ends = vec![0; self.reads.len()];
        for &read in &self.served_by {
            ends[read as usize] += 1;
        }
        let mut start = 0;
        let mut reads = Vec::with_capacity(self.reads.len());
        for (&container, end) in self.reads.iter().zip(&mut ends) {
            let ordinals = start..start + *end;
            *end = start;
            start = ordinals.end;
            let container = layout.container_numbers[container as usize];
            reads.push(PlannedRead { container, ordinals });
        }
        let mut ordinals = vec![0; self.served_by.len()];
        for (ordinal, &read) in self.served_by.iter().enumerate() {
            let end = &mut ends[read as usize];
            ordinals[*end] = ordinal as u32;
            *end += 1;
        }
        let mut plan = Plan { reads, ordinals, memory_peak_bytes: 0 };
        plan.memory_peak_bytes = memory_peak_bytes(layout, &plan, &self.served_by);
        Ok(plan)
    }
}

/// Performs the reads in order and writes the output as soon as it can be, counting the bytes of
/// the chunks held: each from its read until the last ordinal that the read serves with it.
fn memory_peak_bytes(layout: &Layout, plan: &Plan, served_by: &[u32]) -> u64 {
    let mut released_bytes = vec![0_u32; served_by.len()];
    let mut seen_in = vec![NO_READ; layout.copy_bytes.len()];
    let mut taken_bytes = Vec::with_capacity(plan.reads.len());
    for (number, read) in (0..).zip(&plan.reads) {
        let mut taken = 0;
        for &ordinal in plan.ordinals_of(read).iter().rev() {
            let copy = layout.copies[ordinal as usize] as usize;
            if seen_in[copy] != number {
                seen_in[copy] = number;
                released_bytes[ordinal as usize] = layout.copy_bytes[copy];
                taken += u64::from(layout.copy_bytes[copy]);
            }
        }
        taken_bytes.push(taken);
    }
    let (mut held, mut peak, mut written) = (0, 0, 0);
    for (number, taken) in (0_u32..).zip(taken_bytes) {
        held += taken;
        peak = peak.max(held);
        while written < served_by.len() && served_by[written] <= number {
            held -= u64::from(released_bytes[written]);
            written += 1;
        }
    }
    peak
}
