//! Which chunker, with which sizes: what a store records and a user sets.
//!
//! Invariant: parameters that pass [`ChunkerParameters::validate`] build a chunker, and boundaries
//! are a function of the parameters, the secret and the bytes.

use onefold_types::limits::{CHUNK_SIZE_MAX_BYTES, CHUNK_SIZE_MIN_BYTES};
use onefold_types::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The smallest average of a content-defined chunker.
pub const AVERAGE_MIN_BYTES: usize = 4 * CHUNK_SIZE_MIN_BYTES;
/// The largest average of a content-defined chunker.
pub const AVERAGE_MAX_BYTES: usize = CHUNK_SIZE_MAX_BYTES / 2;
/// The average must exceed the minimum by this much, or content has too little choice.
const SPREAD_MIN_BYTES: usize = 64;
/// The largest regression depth.
pub const DEPTH_MAX: u8 = 4;
/// Regression leaves at least so many bits of the pattern.
const WEAKEST_PATTERN_BITS: u32 = 2;

/// How boundaries are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkerKind {
    /// Every n bytes.
    Fixed,
    /// Rabin fingerprints.
    Rabin,
    /// Rabin fingerprints with regression.
    Regression,
    /// Gear hash, normalised.
    FastCdc,
    /// Smallest hash between minimum and maximum.
    MinCdc,
}

impl ChunkerKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Fixed, Self::Rabin, Self::Regression, Self::FastCdc, Self::MinCdc];

    fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Rabin => "rabin",
            Self::Regression => "regression",
            Self::FastCdc => "fastcdc",
            Self::MinCdc => "mincdc",
        }
    }
}

impl fmt::Display for ChunkerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ChunkerKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("'{text}' is not a chunker; choose one of {names}"))
        })
    }
}

/// A chunker and its sizes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkerParameters {
    /// How boundaries are found.
    pub kind: ChunkerKind,
    /// No chunk but the last of a run is shorter.
    pub size_min_bytes: usize,
    /// The mean size on random data, nearly.
    pub size_avg_bytes: usize,
    /// No chunk is longer.
    pub size_max_bytes: usize,
    /// How many bits of the pattern regression may let go, 0..=4; 0 for every other kind.
    pub regression_depth: u8,
}

impl ChunkerParameters {
    /// Sizes that suit the kind.
    ///
    /// The mean on random data is within 5 % of the average. Rabin and regression need a power of
    /// two between minimum and average; the minimum, about half the average, gives way. Regression
    /// has twice the average for maximum, where Rabin has four times, because it does not cut by
    /// force there.
    pub fn with_average(kind: ChunkerKind, size_avg_bytes: usize) -> Result<Self> {
        check_average(kind, size_avg_bytes)?;
        let size_min_bytes = match kind {
            ChunkerKind::Fixed => size_avg_bytes,
            ChunkerKind::Rabin | ChunkerKind::Regression => {
                size_avg_bytes - (1 << pattern_bits(size_avg_bytes / 2))
            }
            ChunkerKind::FastCdc => size_avg_bytes / 4,
            ChunkerKind::MinCdc => size_avg_bytes / 2,
        };
        let size_max_bytes = match kind {
            ChunkerKind::Fixed => size_avg_bytes,
            ChunkerKind::Rabin | ChunkerKind::FastCdc => 4 * size_avg_bytes,
            ChunkerKind::Regression => 2 * size_avg_bytes,
            ChunkerKind::MinCdc => 2 * size_avg_bytes - size_min_bytes,
        };
        let parameters = Self {
            kind,
            size_min_bytes,
            size_avg_bytes,
            size_max_bytes: size_max_bytes.min(CHUNK_SIZE_MAX_BYTES),
            regression_depth: if kind == ChunkerKind::Regression { DEPTH_MAX } else { 0 },
        };
        parameters.validate()?;
        Ok(parameters)
    }

    /// Refuses impossible values and says which are possible.
    pub fn validate(&self) -> Result<()> {
        check_average(self.kind, self.size_avg_bytes)?;
        let (kind, avg) = (self.kind, self.size_avg_bytes);
        if kind == ChunkerKind::Fixed {
            if self.size_min_bytes != avg || self.size_max_bytes != avg {
                return Err(Error::invalid(format!(
                    "fixed chunks have one size: minimum and maximum must be {avg} bytes as well"
                )));
            }
        } else {
            let min_range = CHUNK_SIZE_MIN_BYTES..=avg - SPREAD_MIN_BYTES;
            check("minimum chunk size", "bytes", self.size_min_bytes, &min_range)?;
            let max_range = avg + SPREAD_MIN_BYTES..=CHUNK_SIZE_MAX_BYTES;
            check("maximum chunk size", "bytes", self.size_max_bytes, &max_range)?;
        }
        if kind == ChunkerKind::MinCdc && (self.size_min_bytes + self.size_max_bytes) / 2 != avg {
            return Err(Error::invalid(format!(
                "mincdc cuts evenly between minimum and maximum: the average must be {} bytes, \
                 not {avg}",
                (self.size_min_bytes + self.size_max_bytes) / 2
            )));
        }
        check("regression depth", "bits", self.regression_depth.into(), &(0..=self.depth_max()))
    }

    /// From the minimum to the average.
    pub(crate) fn spread_bytes(&self) -> usize {
        self.size_avg_bytes.saturating_sub(self.size_min_bytes)
    }

    fn depth_max(&self) -> usize {
        let bits = pattern_bits(self.spread_bytes());
        match self.kind {
            ChunkerKind::Regression => {
                usize::from(DEPTH_MAX).min(bits.saturating_sub(WEAKEST_PATTERN_BITS) as usize)
            }
            _ => 0,
        }
    }
}

/// The number of pattern bits with which the mean distance from the minimum to a match is
/// nearest to `spread_bytes`.
pub(crate) fn pattern_bits(spread_bytes: usize) -> u32 {
    let floor = spread_bytes.max(1).ilog2();
    // Nearer to the next power of two, on the logarithmic scale, when spread^2 > 2^(2 floor + 1).
    let squared = (spread_bytes as u64).saturating_mul(spread_bytes as u64);
    floor + u32::from(squared > 1 << (2 * floor + 1))
}

fn check_average(kind: ChunkerKind, size_avg_bytes: usize) -> Result<()> {
    match kind {
        ChunkerKind::Fixed => {
            let range = CHUNK_SIZE_MIN_BYTES..=CHUNK_SIZE_MAX_BYTES;
            check("size of fixed chunks", "bytes", size_avg_bytes, &range)
        }
        _ => {
            let range = AVERAGE_MIN_BYTES..=AVERAGE_MAX_BYTES;
            check("average chunk size", "bytes", size_avg_bytes, &range)
        }
    }
}

fn check(
    what: &str,
    unit: &str,
    value: usize,
    range: &std::ops::RangeInclusive<usize>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what} {value} is out of range; it must be {} to {} {unit}",
        range.start(),
        range.end()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        for kind in ChunkerKind::ALL {
            assert_eq!(kind.to_string().parse::<ChunkerKind>().unwrap(), kind);
        }
        let message = "Rabin".parse::<ChunkerKind>().unwrap_err().to_string();
        assert!(message.contains("fixed, rabin, regression, fastcdc, mincdc"), "{message}");
    }

    #[test]
    fn every_average_in_range_builds() {
        for kind in ChunkerKind::ALL {
            for average in (256..5000).chain([8191, 8192, 12_345, 65_536, 300_001, 524_288]) {
                let parameters = ChunkerParameters::with_average(kind, average).unwrap();
                assert_eq!(parameters.size_avg_bytes, average);
                assert!(parameters.validate().is_ok());
            }
            for average in [0, 1, 63, 1_048_577, usize::MAX] {
                let message = ChunkerParameters::with_average(kind, average).unwrap_err();
                assert!(message.to_string().contains("must be"), "{message}");
            }
        }
        assert!(ChunkerParameters::with_average(ChunkerKind::Fixed, 64).is_ok());
        assert!(ChunkerParameters::with_average(ChunkerKind::Fixed, 1 << 20).is_ok());
        assert!(ChunkerParameters::with_average(ChunkerKind::Rabin, 255).is_err());
        assert!(ChunkerParameters::with_average(ChunkerKind::MinCdc, 524_289).is_err());
    }

    #[test]
    fn the_sizes_are_as_documented() {
        let sizes = |kind, average| {
            let parameters = ChunkerParameters::with_average(kind, average).unwrap();
            (parameters.size_min_bytes, parameters.size_max_bytes)
        };
        assert_eq!(sizes(ChunkerKind::Fixed, 8192), (8192, 8192));
        assert_eq!(sizes(ChunkerKind::Rabin, 8192), (4096, 32_768));
        assert_eq!(sizes(ChunkerKind::Rabin, 12_288), (4096, 49_152));
        assert_eq!(sizes(ChunkerKind::Regression, 65_536), (32_768, 131_072));
        assert_eq!(sizes(ChunkerKind::FastCdc, 8192), (2048, 32_768));
        assert_eq!(sizes(ChunkerKind::MinCdc, 8192), (4096, 12_288));
        assert_eq!(sizes(ChunkerKind::MinCdc, 8191), (4095, 12_287));
    }

    #[test]
    fn impossible_values_are_refused_with_the_range() {
        let valid = ChunkerParameters::with_average(ChunkerKind::Regression, 8192).unwrap();
        let change = |edit: fn(&mut ChunkerParameters)| {
            let mut changed = valid.clone();
            edit(&mut changed);
            changed.validate().unwrap_err().to_string()
        };
        let cases = [
            (change(|p| p.size_min_bytes = 63), "64 to 8128"),
            (change(|p| p.size_min_bytes = 8192), "64 to 8128"),
            (change(|p| p.size_max_bytes = 8192), "8256 to 1048576"),
            (change(|p| p.size_max_bytes = usize::MAX), "8256 to 1048576"),
            (change(|p| p.regression_depth = 5), "0 to 4"),
            (change(|p| p.size_avg_bytes = 0), "256 to 524288"),
            (change(|p| p.kind = ChunkerKind::Rabin), "0 to 0"),
            (change(|p| p.kind = ChunkerKind::Fixed), "8192"),
            (change(|p| p.kind = ChunkerKind::MinCdc), "must be 10240"),
        ];
        for (message, part) in cases {
            assert!(message.contains(part), "'{message}' lacks '{part}'");
        }
    }

    #[test]
    fn pattern_bits_round_on_the_logarithmic_scale() {
        let expected = [(64, 6), (90, 6), (91, 7), (128, 7), (4096, 12), (5792, 12), (5793, 13)];
        for (spread, bits) in expected {
            assert_eq!(pattern_bits(spread), bits, "{spread}");
        }
    }
}
