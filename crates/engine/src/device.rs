//! What an access of the store's device and one of memory cost on this machine.
//!
//! The choice between eager and lazy look-up turns on the ratio of the two (S0.15, V_disk/V_DRAM).
//! Both are measured with what a look-up does: a read of 4 KiB at the front of an object, opening
//! it included and caches of the system included, and a read at a random address of a table larger
//! than the processor's caches. Medians, so that one slow access decides nothing.

use crate::repository::Repository;
use onefold_format::layout;
use onefold_policy::lookup::DeviceCosts;
use onefold_store::Key;
use onefold_types::{ContainerId, Result};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What it costs to let a chunk wait: its buffer is not used again while it is warm, and memory
/// that is touched for the first time takes its place. Measured as the difference between lazy and
/// eager backups of data set A, by chunk.
pub const HELD_CHUNK_NS: u64 = 800;

/// Objects read, at most.
pub(crate) const PROBES_MAX: usize = 16;
const PROBE_BYTES: usize = 4096;
/// Probing ends when it has taken so long.
pub const PROBING_MAX: Duration = Duration::from_millis(100);
/// Words of a table larger than the caches near a processor.
const TABLE_WORDS: usize = 1 << 20;
const TABLE_READS: u64 = 1 << 13;
/// Taken where nothing can be measured.
const DEVICE_DEFAULT_NS: u64 = 141_000;

/// What look-ups are taken to cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// The costs.
    pub costs: DeviceCosts,
    /// Whether the device's are not measured, but assumed: there is nothing yet to measure it with.
    pub is_assumed: bool,
}

/// Measures both, over objects of the store; in an empty store, the device is taken for a solid
/// state disk (141 microseconds, the middle of S0.17's table) until its own accesses say more.
pub fn measure(repository: &Repository, containers: &[ContainerId]) -> Result<Measured> {
    let step = containers.len().div_ceil(PROBES_MAX).max(1);
    let mut elapsed = Vec::with_capacity(PROBES_MAX);
    let mut bytes = vec![0; PROBE_BYTES];
    for id in containers.iter().step_by(step) {
        let key = Key::new(layout::container(*id))?;
        let started = Instant::now();
        match repository.store().get_range(&key, 0, &mut bytes) {
            Ok(()) => elapsed.push(started.elapsed().as_nanos()),
            // Gone or too short: it says nothing about the device.
            Err(error) if error.is_lost() => {}
            Err(error) => return Err(error),
        }
        // Few are enough where each takes long.
        if elapsed.iter().sum::<u128>() > PROBING_MAX.as_nanos() {
            break;
        }
    }
    elapsed.sort_unstable();
    let middle = elapsed.get(elapsed.len() / 2).copied();
    let device_read_ns =
        middle.map_or(DEVICE_DEFAULT_NS, |ns| u64::try_from(ns).unwrap_or(u64::MAX));
    let costs = DeviceCosts::new(device_read_ns.max(1), measure_memory()).holding(HELD_CHUNK_NS);
    Ok(Measured { costs, is_assumed: middle.is_none() })
}

/// What an access of memory takes, in nanoseconds: the mean of reads that each depend on the one
/// before.
#[must_use]
pub fn measure_memory() -> u64 {
    let table: Vec<u64> = (0..TABLE_WORDS as u64).collect();
    let mut position = 1u64;
    let started = Instant::now();
    for _ in 0..TABLE_READS {
        let index = (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % TABLE_WORDS;
        position = position.wrapping_add(table[index]).wrapping_add(1);
    }
    black_box(position);
    let mean = started.elapsed().as_nanos() / u128::from(TABLE_READS);
    u64::try_from(mean).unwrap_or(u64::MAX).max(1)
}
