//! When background jobs may work: a time of the day, and how much others may wait meanwhile.

use crate::bounds;
use jiff::civil::Time;
use onefold_types::{Error, Result};
use std::str::FromStr;

/// From one local time of the day up to another one, over midnight if that is the earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    from: Time,
    to: Time,
}

impl Window {
    /// Whether a time of the day lies in it.
    #[must_use]
    pub fn contains(&self, time: Time) -> bool {
        match self.from < self.to {
            true => self.from <= time && time < self.to,
            false => self.from <= time || time < self.to,
        }
    }

    /// Whether it is open now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.contains(jiff::Zoned::now().time())
    }
}

impl FromStr for Window {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!("'{text}' is no window; write it like 22:00-06:00, local time"))
        };
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let time = |text: &str| text.trim().parse::<Time>().map_err(|_| wrong());
        let window = Self { from: time(from)?, to: time(to)? };
        if window.from == window.to {
            return Err(Error::invalid(format!("the window '{text}' has no length")));
        }
        Ok(window)
    }
}

/// The share of the time that others may stall; `None`: whatever it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PressureMax(pub Option<f64>);

impl FromStr for PressureMax {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "off" => Ok(Self(None)),
            _ => text.parse().map(|bounds::Share(share)| Self(Some(share))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_may_go_over_midnight_and_end_before_their_last_minute() {
        let time = |text: &str| text.parse::<Time>().unwrap();
        let night = "22:00-06:00".parse::<Window>().unwrap();
        assert!(night.contains(time("22:00")) && night.contains(time("05:59:59")));
        assert!(!night.contains(time("06:00")) && !night.contains(time("21:59")));
        let day = "9:30 - 17:00".parse::<Window>();
        assert!(day.is_err(), "hours have two digits");
        let day = "09:30 - 17:00".parse::<Window>().unwrap();
        assert!(day.contains(time("09:30")) && !day.contains(time("17:00")));
        for odd in ["", "22:00", "22:00-22:00", "24:00-01:00", "a-b", "-", "1-2-3"] {
            assert!(odd.parse::<Window>().is_err(), "{odd}");
        }
    }

    #[test]
    fn pressure_is_a_share_or_off() {
        assert_eq!("20%".parse::<PressureMax>().unwrap(), PressureMax(Some(0.2)));
        assert_eq!("off".parse::<PressureMax>().unwrap(), PressureMax(None));
        assert!("0%".parse::<PressureMax>().is_err() && "none".parse::<PressureMax>().is_err());
    }
}
