//! What a user can choose about rewriting, and the ranges within which the choices make sense.
//!
//! A choice is written as a name and its limits: `none`, `capping,level=20`,
//! `flexible,loss=7,reads=20`, `window,loss=7`, `history,loss=2`, `auto,loss=5`. A loss is in per
//! cent of the deduplication ratio (x of S2.11), reads are old containers for each 20 MiB. The
//! paper's own policies take `budget=version` as well: the loss is then that of each version, as
//! the paper has it, and not that of the store.

use super::container_use::ContainerUse;
use onefold_types::{Error, Result};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes that may count as a container of the window or the segment.
pub const CONTAINER_BYTES_RANGE: RangeInclusive<u64> = 1..=1 << 40;
/// Containers of a segment or of the window.
pub const CONTAINERS_RANGE: RangeInclusive<usize> = 1..=1 << 16;
/// The share of the deduplication ratio that may be lost.
pub const LOSS_RANGE: RangeInclusive<f64> = 0.0..=0.99;
/// Old containers that a segment may refer to.
pub const READS_RANGE: RangeInclusive<f64> = 0.0..=1e9;
/// What saving all reads of a container may be worth.
pub const WHOLE_WORTH_RANGE: RangeInclusive<f64> = 0.0..=1e6;
/// The loss if neither a loss nor a number of reads is asked for: 2 % more stored bytes. Twice as
/// much makes restores hardly faster (the laboratory's `rewriting-devices`).
pub const LOSS_DEFAULT: f64 = 0.02;
/// The capping level if none is asked for (FAST'13 measures 20 for segments of 20 MB).
pub const LEVEL_DEFAULT: u32 = 20;

/// Limits that a user gave with the name of a policy; what is not given comes from
/// [`RewriteParameters`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RewriteLimits {
    /// The share of the deduplication ratio that may be lost, 0 to 0.99.
    pub loss_max: Option<f64>,
    /// Old containers that a segment may refer to, on average.
    pub reads_max: Option<f64>,
    /// A threshold that never changes, for experiments.
    pub threshold: Option<u32>,
    /// Whether the loss is that of each version, by what the one before it stored, as published
    /// (S2.11), for experiments; otherwise it is that of the whole store.
    pub by_version: bool,
}

impl RewriteLimits {
    /// At most this share of the ratio may be lost.
    #[must_use]
    pub fn loss(loss_max: f64) -> Self {
        Self { loss_max: Some(loss_max), ..Self::default() }
    }

    /// Whether nothing is limited.
    fn is_unlimited(&self) -> bool {
        self.loss_max.is_none() && self.reads_max.is_none() && self.threshold.is_none()
    }
}

/// Which duplicates of a stream are stored again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RewriteChoice {
    /// None.
    None,
    /// Those outside of the containers that a segment uses most, of which there are so many (S2.7).
    Capping {
        /// The number; `None`: [`RewriteParameters::reads_max`].
        level: Option<u32>,
    },
    /// Those in containers that a segment uses less often than a threshold that adapts itself
    /// (FCRC, S2.10 to S2.16).
    Flexible(RewriteLimits),
    /// Those in containers that a sliding window uses seldom (LBW, S2.17 to S2.30).
    Window(RewriteLimits),
    /// Those in containers that the previous version used sparsely (HAR).
    History(RewriteLimits),
    /// Whichever save most reads for their bytes, by all that is known.
    Auto(RewriteLimits),
}

impl Default for RewriteChoice {
    fn default() -> Self {
        Self::Auto(RewriteLimits::default())
    }
}

impl RewriteChoice {
    fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Capping { .. } => "capping",
            Self::Flexible(_) => "flexible",
            Self::Window(_) => "window",
            Self::History(_) => "history",
            Self::Auto(_) => "auto",
        }
    }

    /// The limits given with the name.
    #[must_use]
    pub fn limits(&self) -> RewriteLimits {
        match self {
            Self::None | Self::Capping { .. } => RewriteLimits::default(),
            Self::Flexible(limits)
            | Self::Window(limits)
            | Self::History(limits)
            | Self::Auto(limits) => *limits,
        }
    }

    /// Whether what was asked for, or stands in for what was not, is a number of containers or a
    /// count of chunks in one: a level, reads or a threshold.
    #[must_use]
    pub fn counts_containers(&self) -> bool {
        let limits = self.limits();
        match self {
            Self::None => false,
            Self::Capping { .. } => true,
            Self::Flexible(_) | Self::Window(_) if limits.is_unlimited() => true,
            Self::Flexible(_) | Self::Window(_) | Self::History(_) | Self::Auto(_) => {
                limits.reads_max.is_some() || limits.threshold.is_some()
            }
        }
    }

    fn limits_mut(&mut self) -> Option<&mut RewriteLimits> {
        match self {
            Self::None | Self::Capping { .. } => None,
            Self::Flexible(limits)
            | Self::Window(limits)
            | Self::History(limits)
            | Self::Auto(limits) => Some(limits),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let name = self.name();
        match (&mut *self, key) {
            (Self::Capping { level }, "level") => {
                *level = Some(number("the capping level", value)?);
                return Ok(());
            }
            (Self::Flexible(limits) | Self::Window(limits), "threshold") => {
                limits.threshold = Some(number("the threshold", value)?);
                return Ok(());
            }
            (Self::Flexible(limits) | Self::Window(limits), "budget") => {
                limits.by_version = match value {
                    "version" => true,
                    "store" => false,
                    _ => {
                        return Err(Error::invalid(format!(
                            "the budget is '{value}'; it must be store or version"
                        )));
                    }
                };
                return Ok(());
            }
            _ => {}
        }
        match (self.limits_mut(), key) {
            (Some(limits), "loss") => {
                let percent: f64 = number("the loss in per cent", value.trim_end_matches('%'))?;
                limits.loss_max = Some(percent / 100.0);
                check("the loss", percent / 100.0, &LOSS_RANGE)
            }
            (Some(limits), "reads") if name != "history" => {
                let reads = number("the number of reads", value)?;
                limits.reads_max = Some(reads);
                check("the number of reads", reads, &READS_RANGE)
            }
            _ => Err(Error::invalid(format!("rewriting by '{name}' has no limit '{key}'"))),
        }
    }
}

impl FromStr for RewriteChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split(',');
        let mut choice = match words.next().unwrap_or_default() {
            "none" => Self::None,
            "capping" => Self::Capping { level: None },
            "flexible" => Self::Flexible(RewriteLimits::default()),
            "window" => Self::Window(RewriteLimits::default()),
            "history" => Self::History(RewriteLimits::default()),
            "auto" => Self::Auto(RewriteLimits::default()),
            other => {
                return Err(Error::invalid(format!(
                    "'{other}' is no way of rewriting; there are none, capping[,level=N], \
                     flexible, window, history and auto, the last four with [,loss=PERCENT], \
                     all of these but history with [,reads=N]"
                )));
            }
        };
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| {
                Error::invalid(format!("'{word}' is no limit; limits are written as loss=5"))
            })?;
            choice.set(key, value)?;
        }
        Ok(choice)
    }
}

impl fmt::Display for RewriteChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Self::Capping { level: Some(level) } = self {
            write!(f, ",level={level}")?;
        }
        let limits = self.limits();
        if let Some(loss) = limits.loss_max {
            // 0.07 times 100 is not 7 in binary fractions.
            write!(f, ",loss={}", (loss * 1e8).round() / 1e6)?;
        }
        if let Some(reads) = limits.reads_max {
            write!(f, ",reads={reads}")?;
        }
        if let Some(threshold) = limits.threshold {
            write!(f, ",threshold={threshold}")?;
        }
        if limits.by_version {
            f.write_str(",budget=version")?;
        }
        Ok(())
    }
}

/// What the version before this one was like (S2.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Chunks of the stream, repeated ones counted.
    pub chunks: u64,
    /// Chunks among them that were new. Rewritten ones do not count.
    pub unique_chunks: u64,
}

/// What all versions before this one stored together. With it the loss is that of the whole store,
/// and what earlier versions did not lose may be lost later, little by little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Before {
    /// Chunks stored because they were new.
    pub unique_chunks: u64,
    /// Chunks stored again.
    pub rewritten_chunks: u64,
}

/// What rewriting knows and what it may use.
#[derive(Clone, Debug)]
pub struct RewriteParameters {
    /// A container of the window or the segment is so many bytes of the stream, 1 to 2^40.
    pub container_bytes: u64,
    /// Containers of a segment, 1 to 65536 (capping, flexible, history).
    pub segment_containers: usize,
    /// Containers of the window, 1 to 65536 (window, auto).
    pub window_containers: usize,
    /// Bytes of chunks that may wait for their decision, one copy of each (S2.18).
    pub candidates_bytes_max: u64,
    /// The share of the deduplication ratio that may be lost, 0 to 0.99.
    pub loss_max: Option<f64>,
    /// Old containers that a segment may refer to, on average; capping: at most.
    pub reads_max: Option<f64>,
    /// Whether nothing is stored again while reads are within their limit (flexible, window); the
    /// publication takes a threshold above 0 then as well (S2.16).
    pub only_beyond_reads: bool,
    /// A threshold that never changes, for experiments (S2.35). The loss is then limited only if
    /// that is asked for as well.
    pub threshold_fixed: Option<u32>,
    /// The previous version; `None`: the stream as far as it went is taken for a sample.
    pub expected: Option<Expected>,
    /// All versions before; `None`: the loss is that of this version.
    pub before: Option<Before>,
    /// How the previous version used old containers.
    pub history: Option<Arc<ContainerUse>>,
    /// What it is worth that a container need not be read at all any more, in reads of a container
    /// that is read again elsewhere, 0 to 10^6 (auto). 2 serves restores with small caches: more
    /// saves fewer of their reads. Restores that read each container once are served by 100.
    pub whole_worth: f64,
}

impl Default for RewriteParameters {
    /// The set-up of S2.32.
    fn default() -> Self {
        let container_bytes = 4 << 20;
        Self {
            container_bytes,
            segment_containers: 5,
            window_containers: 8,
            candidates_bytes_max: 5 * container_bytes,
            loss_max: None,
            reads_max: None,
            only_beyond_reads: false,
            threshold_fixed: None,
            expected: None,
            before: None,
            history: None,
            whole_worth: 2.0,
        }
    }
}

impl RewriteParameters {
    /// Whether all parameters are within their ranges.
    ///
    /// # Errors
    /// One is not (`Invalid`); the message names the range.
    pub fn validate(&self) -> Result<()> {
        check("the size of a container", self.container_bytes, &CONTAINER_BYTES_RANGE)?;
        check("the number of containers of a segment", self.segment_containers, &CONTAINERS_RANGE)?;
        check("the number of containers of the window", self.window_containers, &CONTAINERS_RANGE)?;
        check("the worth of a whole container", self.whole_worth, &WHOLE_WORTH_RANGE)?;
        if let Some(loss) = self.loss_max {
            check("the loss", loss, &LOSS_RANGE)?;
        }
        if let Some(reads) = self.reads_max {
            check("the number of reads", reads, &READS_RANGE)?;
        }
        Ok(())
    }

    /// These parameters with what the choice says in their place. Policies that go by counts and
    /// are given no limit at all leave alone what reads well: a segment that keeps to the level of
    /// capping.
    pub(super) fn with(mut self, choice: &RewriteChoice) -> Self {
        let limits = choice.limits();
        self.loss_max = limits.loss_max.or(self.loss_max);
        self.reads_max = limits.reads_max.or(self.reads_max);
        self.threshold_fixed = limits.threshold.or(self.threshold_fixed);
        if limits.by_version {
            self.before = None;
        }
        if self.loss_max.or(self.reads_max).is_none() && self.threshold_fixed.is_none() {
            self.loss_max = Some(LOSS_DEFAULT);
            if matches!(choice, RewriteChoice::Flexible(_) | RewriteChoice::Window(_)) {
                self.reads_max = Some(f64::from(LEVEL_DEFAULT));
                self.only_beyond_reads = true;
            }
        }
        self
    }

    /// Bytes of the stream in a segment.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.container_bytes.saturating_mul(self.segment_containers as u64)
    }
}

fn number<T: FromStr>(what: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::invalid(format!("{what} is '{text}', which is no number")))
}

fn check<T: PartialOrd + fmt::Display>(
    what: &str,
    value: T,
    range: &RangeInclusive<T>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(Error::invalid(format!("{what} is {value}; it must be from {least} to {most}")))
}
