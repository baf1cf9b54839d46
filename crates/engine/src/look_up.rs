//! How the user wants chunks looked up, made into a strategy for this store and this device.
//!
//! In words: `auto`, `eager`, `eager,filter-first`, `lazy`, `lazy,ring=512,bucket=8`, `sampled`,
//! `sampled,segment=4096`. Whatever is chosen, chunks that wait for a verdict stay within their
//! share of the memory limit.

use crate::device;
use crate::index::IndexMode;
use crate::repository::Repository;
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_policy::lookup::{
    AutoParameters, DeviceCosts, LazyParameters, LookupStrategy, SampledParameters,
};
use onefold_types::{ContainerId, Error, Result};
use std::fmt;
use std::str::FromStr;

/// What it costs to let a chunk wait: its buffer is not used again while it is warm, and memory
/// that is touched for the first time takes its place. Measured as the difference between lazy and
/// eager backups of data set A, by chunk.
const WAITING_COST_NS: u64 = 800;
/// Lazy look-up saves at most this many accesses of the device for a thousand chunks: what eager
/// look-up takes for the index on data set A.
const SAVED_ACCESSES_PER_MILLE: u64 = 5;
/// Fingerprints that may wait however small their share of memory is.
const WAITING_MIN: usize = 64;

/// What the user wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LookupChoice {
    /// Whatever costs least, by inequality (8) and live counters (S0.15).
    #[default]
    Auto,
    /// One by one (S0.3, S1.23).
    Eager(FilterOrder),
    /// In batches (S0.4).
    Lazy {
        /// Fingerprints in a locality ring; `None`: the default.
        ring_length: Option<usize>,
        /// Fingerprints in a bucket that are located together; `None`: the default.
        bucket_threshold: Option<usize>,
    },
    /// By hooks only: little memory, nearly all duplicates found.
    Sampled {
        /// Fingerprints looked at together; `None`: the default.
        segment_length: Option<usize>,
    },
}

impl LookupChoice {
    /// Which part of the index has to be in memory.
    #[must_use]
    pub fn index_mode(self) -> IndexMode {
        match self {
            Self::Sampled { .. } => IndexMode::Sampled,
            Self::Auto | Self::Eager(_) | Self::Lazy { .. } => IndexMode::Exact,
        }
    }

    /// The strategy for a store. `remembered` costs spare a measurement.
    pub fn strategy(
        self,
        repository: &Repository,
        containers: &[ContainerId],
        remembered: Option<DeviceCosts>,
    ) -> Result<Chosen> {
        let chunk_bytes = repository.chunker().size_avg_bytes().max(1);
        let waiting_bytes = repository.memory().waiting_chunks_bytes;
        let buffer_max = (waiting_bytes / chunk_bytes).max(WAITING_MIN);
        let strategy = match self {
            Self::Auto => {
                let costs = match remembered {
                    Some(costs) => costs,
                    None => device::measure(repository, containers)?,
                };
                return Ok(Chosen::by_costs(costs, buffer_max));
            }
            Self::Eager(order) => LookupStrategy::Eager(order),
            Self::Lazy { ring_length, bucket_threshold } => {
                let default = LazyParameters::default();
                LookupStrategy::Lazy(LazyParameters {
                    ring_length: ring_length.unwrap_or(default.ring_length),
                    bucket_threshold: bucket_threshold.unwrap_or(default.bucket_threshold),
                    buffer_max,
                })
            }
            Self::Sampled { segment_length } => {
                let default = SampledParameters::default();
                LookupStrategy::Sampled(SampledParameters {
                    segment_length: segment_length
                        .unwrap_or(default.segment_length.min(buffer_max)),
                })
            }
        };
        Ok(Chosen { strategy, costs: None, reason: None })
    }
}

/// What a choice comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// How chunks are looked up.
    pub strategy: LookupStrategy,
    /// What the device was taken to cost, if that was asked.
    pub costs: Option<DeviceCosts>,
    /// Why, if it is not for the strategy to say.
    pub reason: Option<String>,
}

impl Chosen {
    /// S0's inequality is about look-ups alone. Here chunks wait with their data, which has a price
    /// of its own, so that on a fast device lazy look-up cannot win, whatever the stream. On any
    /// other the strategy finds out.
    fn by_costs(costs: DeviceCosts, buffer_max: usize) -> Self {
        let saved_ns = costs.device_read_ns.saturating_mul(SAVED_ACCESSES_PER_MILLE) / 1000;
        if saved_ns > WAITING_COST_NS {
            let strategy = LookupStrategy::Auto(AutoParameters::new(costs, buffer_max));
            return Self { strategy, costs: Some(costs), reason: None };
        }
        let reason = format!(
            "Chunks are looked up eagerly, each as it comes: an access of this store's device \
             takes {} microseconds ({} times an access of memory), so waiting for others to ask \
             for several at once would save {saved_ns} nanoseconds a chunk at most, and cost \
             about {WAITING_COST_NS} for the memory in which chunks wait.",
            costs.device_read_ns / 1000,
            costs.device_read_ns / costs.memory_access_ns.max(1),
        );
        let strategy = LookupStrategy::Eager(FilterOrder::CacheFirst);
        Self { strategy, costs: Some(costs), reason: Some(reason) }
    }
}

impl FromStr for LookupChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "'{text}' is no way to look chunks up; write auto, eager, eager,filter-first, \
                 lazy, lazy,ring=N,bucket=N, sampled or sampled,segment=N"
            ))
        };
        let mut words = text.split(',').map(str::trim);
        let kind = words.next().unwrap_or_default();
        let mut choice = match kind {
            "auto" => Self::Auto,
            "eager" => Self::Eager(FilterOrder::CacheFirst),
            "lazy" => Self::Lazy { ring_length: None, bucket_threshold: None },
            "sampled" => Self::Sampled { segment_length: None },
            _ => return Err(wrong()),
        };
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<usize>().map(Some).map_err(|_| wrong());
            match (&mut choice, name) {
                (Self::Eager(order), "filter-first") if value.is_empty() => {
                    *order = FilterOrder::FilterFirst;
                }
                (Self::Lazy { ring_length, .. }, "ring") => *ring_length = number()?,
                (Self::Lazy { bucket_threshold, .. }, "bucket") => *bucket_threshold = number()?,
                (Self::Sampled { segment_length }, "segment") => *segment_length = number()?,
                _ => return Err(wrong()),
            }
        }
        Ok(choice)
    }
}

impl fmt::Display for LookupChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => out.write_str("auto"),
            Self::Eager(FilterOrder::CacheFirst) => out.write_str("eager"),
            Self::Eager(FilterOrder::FilterFirst) => out.write_str("eager,filter-first"),
            Self::Lazy { ring_length, bucket_threshold } => {
                out.write_str("lazy")?;
                option(out, "ring", *ring_length)?;
                option(out, "bucket", *bucket_threshold)
            }
            Self::Sampled { segment_length } => {
                out.write_str("sampled")?;
                option(out, "segment", *segment_length)
            }
        }
    }
}

fn option(out: &mut fmt::Formatter<'_>, name: &str, value: Option<usize>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(out, ",{name}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_wait_only_where_the_device_is_slow_enough_to_pay_for_it() {
        for fast in [DeviceCosts::SATA_SSD, DeviceCosts::OPTANE_SSD, DeviceCosts::MEMORY] {
            let chosen = Chosen::by_costs(fast, 1000);
            assert_eq!(chosen.strategy, LookupStrategy::Eager(FilterOrder::CacheFirst));
            assert!(chosen.reason.is_some());
        }
        let remote = DeviceCosts { device_read_ns: 1_000_000, memory_access_ns: 100 };
        for slow in [DeviceCosts::HARD_DISK, remote] {
            let chosen = Chosen::by_costs(slow, 1000);
            assert_eq!(chosen.strategy, LookupStrategy::Auto(AutoParameters::new(slow, 1000)));
            assert_eq!(chosen.reason, None);
        }
    }

    #[test]
    fn words_and_choices_round_trip() {
        let all = [
            "auto",
            "eager",
            "eager,filter-first",
            "lazy",
            "lazy,ring=512",
            "lazy,ring=512,bucket=8",
            "sampled",
            "sampled,segment=4096",
        ];
        for text in all {
            assert_eq!(text.parse::<LookupChoice>().unwrap().to_string(), text);
        }
        let wrong = ["", "Auto", "eager,ring=3", "lazy,ring", "lazy,ring=-1", "sampled,bucket=2"];
        for text in wrong {
            let error = text.parse::<LookupChoice>().unwrap_err();
            assert!(error.to_string().contains("lazy,ring=N"), "{text}: {error}");
        }
    }
}
