//! What a user can choose about look-ups, and the ranges within which the choices make sense.

use crate::accelerated_filter::FilterOrder;
use onefold_types::{Error, Result};
use std::ops::RangeInclusive;

/// Fingerprints a locality ring may hold.
pub const RING_LENGTH_RANGE: RangeInclusive<usize> = 1..=65_536;
/// Fingerprints of a bucket that may be located together.
pub const BUCKET_THRESHOLD_RANGE: RangeInclusive<usize> = 1..=65_536;
/// Fingerprints that may be allowed to wait.
pub const BUFFER_MAX_RANGE: RangeInclusive<usize> = 1..=1 << 24;
/// Fingerprints that may be looked at together in sampled look-ups.
pub const SEGMENT_LENGTH_RANGE: RangeInclusive<usize> = 1..=1 << 20;
/// Look-ups after which a choice may be judged.
pub const WINDOW_LENGTH_RANGE: RangeInclusive<usize> = 64..=1 << 24;
/// What an access may cost, in nanoseconds: up to an hour.
pub const COST_RANGE_NS: RangeInclusive<u64> = 1..=3_600_000_000_000;

/// How the fingerprints of a stream are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupStrategy {
    /// Each at once (S0.3, S1.23).
    Eager(FilterOrder),
    /// In buckets, late (S0.4).
    Lazy(LazyParameters),
    /// As lazy, but a bucket's chunks are looked for in the cache once more before the device is
    /// asked, and only those that are not there are asked for.
    SecondLook(LazyParameters),
    /// By hooks only.
    Sampled(SampledParameters),
    /// Eager or lazy, whichever costs less.
    Auto(AutoParameters),
    /// Not at all: every chunk is new, whatever the index knows and the stream has held before.
    None,
}

impl Default for LookupStrategy {
    fn default() -> Self {
        Self::Eager(FilterOrder::default())
    }
}

/// Lazy look-up (S0.4 to S0.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LazyParameters {
    /// Stream neighbours in one locality ring, 1 to 65536: those that passed the summary vector.
    /// S0 advises as many as a container has chunks; with one there are no post-lookups.
    pub ring_length: usize,
    /// Waiting fingerprints of one bucket that are located together, 1 to 65536.
    pub bucket_threshold: usize,
    /// Fingerprints that wait at most, 1 to 2^24; then the fullest bucket is located as it is.
    pub buffer_max: usize,
    /// What is looked for in the cache once more.
    pub post_lookup: PostLookup,
}

impl Default for LazyParameters {
    fn default() -> Self {
        Self {
            ring_length: 2048,
            bucket_threshold: 16,
            buffer_max: 1 << 16,
            post_lookup: PostLookup::default(),
        }
    }
}

/// Which waiting chunks are looked for in the cache after a hit on the device (S0.4, step 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PostLookup {
    /// Of the hit's ring those that the container can reach by rank (S0.7), if it has just been
    /// read: all others have been looked for since it came into the cache, or are elsewhere.
    #[default]
    WithinReach,
    /// All of the hit's ring, after every hit, as published.
    WholeRing,
}

/// Sampled look-up: exact only near hooks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampledParameters {
    /// Fingerprints within which one that is no hook waits for a hook to bring in its container,
    /// 1 to 2^20.
    pub segment_length: usize,
}

impl Default for SampledParameters {
    fn default() -> Self {
        Self { segment_length: 2048 }
    }
}

/// What look-ups cost, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceCosts {
    /// One access of the index's device (V_disk of S0).
    pub device_read_ns: u64,
    /// One access of memory beyond the processor's caches (V_DRAM of S0).
    pub memory_access_ns: u64,
    /// That a chunk is held with its data until others before it have been judged; zero where
    /// fingerprints come alone, as in S0.
    pub held_chunk_ns: u64,
}

impl DeviceCosts {
    /// The hard disk of S0's Table 1.
    pub const HARD_DISK: Self = Self::of_table_1(11_494_000);
    /// The SATA SSD of S0's Table 1.
    pub const SATA_SSD: Self = Self::of_table_1(141_000);
    /// The Optane SSD of S0's Table 1.
    pub const OPTANE_SSD: Self = Self::of_table_1(25_000);
    /// The emulated persistent memory of S0's Table 1.
    pub const PERSISTENT_MEMORY: Self = Self::of_table_1(800);
    /// An index in memory.
    pub const MEMORY: Self = Self::of_table_1(130);

    /// Where fingerprints wait alone.
    #[must_use]
    pub const fn new(device_read_ns: u64, memory_access_ns: u64) -> Self {
        Self { device_read_ns, memory_access_ns, held_chunk_ns: 0 }
    }

    /// The same where chunks wait with their data.
    #[must_use]
    pub const fn holding(self, held_chunk_ns: u64) -> Self {
        Self { held_chunk_ns, ..self }
    }

    const fn of_table_1(device_read_ns: u64) -> Self {
        Self::new(device_read_ns, 130)
    }

    /// V_disk/V_DRAM, the left side of inequality (8).
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.device_read_ns as f64 / self.memory_access_ns.max(1) as f64
    }
}

/// Look-up that chooses by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoParameters {
    /// What look-ups cost.
    pub costs: DeviceCosts,
    /// Fingerprints that wait at most, 1 to 2^24, whatever is chosen.
    pub buffer_max: usize,
    /// Look-ups after which a choice is judged, 64 to 2^24.
    pub window_length: usize,
}

impl AutoParameters {
    /// The usual way to judge, for a device of these costs.
    #[must_use]
    pub fn new(costs: DeviceCosts, buffer_max: usize) -> Self {
        Self { costs, buffer_max, window_length: 4096 }
    }
}

impl LookupStrategy {
    /// Whether all parameters are within their ranges.
    ///
    /// # Errors
    /// One is not (`Invalid`); the message names the range.
    pub fn validate(&self) -> Result<()> {
        match self {
            Self::Eager(_) | Self::None => Ok(()),
            Self::Lazy(lazy) | Self::SecondLook(lazy) => {
                check("the length of a locality ring", lazy.ring_length, RING_LENGTH_RANGE)?;
                let threshold = lazy.bucket_threshold;
                check("the bucket threshold", threshold, BUCKET_THRESHOLD_RANGE)?;
                check("the number of waiting fingerprints", lazy.buffer_max, BUFFER_MAX_RANGE)
            }
            Self::Sampled(sampled) => {
                check("the length of a segment", sampled.segment_length, SEGMENT_LENGTH_RANGE)
            }
            Self::Auto(auto) => {
                let DeviceCosts { device_read_ns, memory_access_ns, .. } = auto.costs;
                check("the cost of a device access in ns", device_read_ns, COST_RANGE_NS)?;
                check("the cost of a memory access in ns", memory_access_ns, COST_RANGE_NS)?;
                check("the number of waiting fingerprints", auto.buffer_max, BUFFER_MAX_RANGE)?;
                check("the length of a window", auto.window_length, WINDOW_LENGTH_RANGE)
            }
        }
    }
}

fn check<T: PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(Error::invalid(format!("{what} is {value}; it must be from {least} to {most}")))
}
