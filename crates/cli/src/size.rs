//! Sizes: parsed with units, shown with units.
//!
//! `K`, `KiB`, `M`, `MiB` and so on are powers of 1024; `KB`, `MB` and so on are powers of 1000; a
//! bare number is bytes. Case does not matter. Text that is not understood whole is an error.

use onefold_types::{Error, Result};
use serde::de;
use std::fmt;
use std::str::FromStr;

const UNITS: [char; 5] = ['k', 'm', 'g', 't', 'p'];
/// Digits after the point that are looked at; more would be less than a byte of a petabyte.
const FRACTION_DIGITS_MAX: usize = 15;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// The size as a length in memory.
    pub fn in_memory(self) -> Result<usize> {
        usize::try_from(self.0).map_err(|_| Error::invalid(format!("{self} is too much")))
    }
}

impl FromStr for ByteSize {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "'{text}' is not a size; write it like 512, 64KiB, 1.5GiB or 10MB"
            ))
        };
        let trimmed = text.trim();
        let end = trimmed
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let factor = factor(unit.trim()).ok_or_else(wrong)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > FRACTION_DIGITS_MAX {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let digits: u128 = fraction.parse().map_err(|_| wrong())?;
        let scale = 10u128.pow(fraction.len() as u32);
        let bytes = u128::from(whole)
            .checked_mul(u128::from(factor))
            .map(|bytes| bytes + digits * u128::from(factor) / scale);
        bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Self).ok_or_else(wrong)
    }
}

/// How many bytes a unit stands for.
fn factor(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let mut letters = unit.chars();
    let Some(first) = letters.next() else {
        return Some(1);
    };
    let rest = letters.as_str();
    if first == 'b' {
        return rest.is_empty().then_some(1);
    }
    let power = UNITS.iter().position(|letter| *letter == first)? as u32 + 1;
    match rest {
        "" | "ib" => Some(1024u64.pow(power)),
        "b" => Some(1000u64.pow(power)),
        _ => None,
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&human(self.0))
    }
}

impl<'de> de::Deserialize<'de> for ByteSize {
    fn deserialize<D: de::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

/// A number of bytes as people read it.
#[must_use]
pub fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = None;
    for letter in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(letter.to_ascii_uppercase());
    }
    match unit {
        None => format!("{bytes} B"),
        Some(unit) => format!("{value:.2} {unit}iB"),
    }
}

/// A count with its noun, in the plural where it is not one.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    match (count, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_units() {
        for (text, expected) in [
            ("0", 0),
            ("512", 512),
            ("512b", 512),
            ("8KiB", 8192),
            ("8k", 8192),
            ("8 kib", 8192),
            ("10MB", 10_000_000),
            ("1.5GiB", 1_610_612_736),
            ("2T", 2 << 40),
            ("0.5", 0),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap(), ByteSize(expected), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "K", "-1", "1x", "1KiBB", "1.2.3", ".5", "1.", "99999999999P", "1 2", "٣"]
        {
            assert!(text.parse::<ByteSize>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_shown_with_units() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.50 KiB");
        assert_eq!(human(5 << 30), "5.00 GiB");
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(2, "directory"), "2 directories");
    }
}
