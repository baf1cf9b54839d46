//! How the user wants chunks looked up, made into a strategy for this store and this device.
//!
//! In words: `auto`, `eager`, `eager,filter-first`, `lazy`, `lazy,ring=512,bucket=8`,
//! `lazy,whole-ring`, `sampled`, `sampled,segment=4096`, `none`. Whatever is
//! chosen, chunks that wait for a verdict stay within their share of the memory limit.

use crate::device::{self, Measured};
use crate::index::IndexMode;
use crate::repository::Repository;
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_policy::lookup::{
    AutoParameters, DeviceCosts, LazyParameters, LookupStrategy, PostLookup, SampledParameters,
};
use onefold_types::{ContainerId, Error, Result};
use std::fmt;
use std::str::FromStr;

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
        /// What is looked for again after a hit.
        post_lookup: PostLookup,
    },
    /// Not at all: what a backup adds tells nothing of what the store holds.
    None,
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
            // What the parent's files need is asked for in any case.
            Self::Auto | Self::Eager(_) | Self::Lazy { .. } | Self::None => IndexMode::Exact,
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
                let Measured { costs, is_assumed } = match remembered {
                    Some(costs) => Measured { costs, is_assumed: false },
                    None => device::measure(repository, containers)?,
                };
                let strategy = LookupStrategy::Auto(AutoParameters::new(costs, buffer_max));
                return Ok(Chosen { strategy, costs: (!is_assumed).then_some(costs) });
            }
            Self::Eager(order) => LookupStrategy::Eager(order),
            Self::None => LookupStrategy::None,
            Self::Lazy { ring_length, bucket_threshold, post_lookup } => {
                let default = LazyParameters::default();
                LookupStrategy::Lazy(LazyParameters {
                    ring_length: ring_length.unwrap_or(default.ring_length),
                    bucket_threshold: bucket_threshold.unwrap_or(default.bucket_threshold),
                    buffer_max,
                    post_lookup,
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
        Ok(Chosen { strategy, costs: None })
    }
}

/// What a choice comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// How chunks are looked up.
    pub strategy: LookupStrategy,
    /// What the device costs, if that was asked and is known.
    pub costs: Option<DeviceCosts>,
}

impl FromStr for LookupChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "'{text}' is no way to look chunks up; write auto, eager, eager,filter-first, \
                 lazy, lazy,ring=N,bucket=N,whole-ring, sampled, sampled,segment=N or none"
            ))
        };
        let mut words = text.split(',').map(str::trim);
        let kind = words.next().unwrap_or_default();
        let mut choice = match kind {
            "auto" => Self::Auto,
            "none" => Self::None,
            "eager" => Self::Eager(FilterOrder::CacheFirst),
            "lazy" => Self::Lazy {
                ring_length: None,
                bucket_threshold: None,
                post_lookup: PostLookup::default(),
            },
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
                (Self::Lazy { post_lookup, .. }, "whole-ring") if value.is_empty() => {
                    *post_lookup = PostLookup::WholeRing;
                }
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
            Self::None => out.write_str("none"),
            Self::Eager(FilterOrder::CacheFirst) => out.write_str("eager"),
            Self::Eager(FilterOrder::FilterFirst) => out.write_str("eager,filter-first"),
            Self::Lazy { ring_length, bucket_threshold, post_lookup } => {
                out.write_str("lazy")?;
                option(out, "ring", *ring_length)?;
                option(out, "bucket", *bucket_threshold)?;
                match post_lookup {
                    PostLookup::WithinReach => Ok(()),
                    PostLookup::WholeRing => out.write_str(",whole-ring"),
                }
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
    fn words_and_choices_round_trip() {
        let all = [
            "auto",
            "eager",
            "eager,filter-first",
            "lazy",
            "lazy,ring=512",
            "lazy,ring=512,bucket=8",
            "lazy,whole-ring",
            "lazy,ring=512,whole-ring",
            "sampled",
            "sampled,segment=4096",
            "none",
        ];
        for text in all {
            assert_eq!(text.parse::<LookupChoice>().unwrap().to_string(), text);
        }
        let wrong = [
            "",
            "Auto",
            "eager,ring=3",
            "lazy,ring",
            "lazy,ring=-1",
            "lazy,whole-ring=1",
            "none,ring=1",
        ];
        for text in wrong {
            let error = text.parse::<LookupChoice>().unwrap_err();
            assert!(error.to_string().contains("lazy,ring=N"), "{text}: {error}");
        }
    }
}
