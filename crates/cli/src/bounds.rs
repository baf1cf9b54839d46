//! What a collection may use: options of `gc` and `maintain`, and their sections of a profile.

use crate::size::ByteSize;
use crate::text_values::optional_text;
use clap::Args;
use onefold_engine::collection::SpaceGoal;
use onefold_store::layers::ThrottleLimits;
use onefold_types::{Error, Result};
use serde::Deserialize;
use std::str::FromStr;
use std::time::Duration;

/// How long running backups may take to take notice.
const WAIT_DEFAULT: Duration = Duration::from_secs(600);

/// The options.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct BoundArguments {
    /// How long running backups may take to take notice before they have to start over [default:
    /// 10m]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Period>,
    /// Begin nothing new after this time; the next collection goes on
    #[arg(long, value_name = "DURATION")]
    max_duration: Option<Period>,
    /// Bytes to read and write a second, at most
    #[arg(long, value_name = "SIZE")]
    max_io: Option<Rate>,
    /// Share of the time to work, at most, such as 25%
    #[arg(long, value_name = "PERCENT%")]
    max_cpu: Option<Share>,
    /// First forget for good what has been hidden for so long, such as 30d
    #[arg(long, value_name = "DURATION")]
    forget_hidden: Option<Period>,
    /// Pack what backups stored anew, once: at this level of zstd (1 to 22), old chunks as
    /// differences against newer ones that are like them [level: 12]
    #[arg(
        long,
        value_name = "LEVEL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "12"
    )]
    repack: Option<RepackLevel>,
}

/// The same in a profile.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BoundProfile {
    #[serde(deserialize_with = "optional_text")]
    wait: Option<Period>,
    #[serde(deserialize_with = "optional_text")]
    max_duration: Option<Period>,
    #[serde(deserialize_with = "optional_text")]
    max_io: Option<Rate>,
    #[serde(deserialize_with = "optional_text")]
    max_cpu: Option<Share>,
    #[serde(deserialize_with = "optional_text")]
    forget_hidden: Option<Period>,
    #[serde(deserialize_with = "optional_text")]
    repack: Option<RepackLevel>,
    /// How much of the data `maintain` reads and verifies; not a bound of `gc`.
    #[serde(deserialize_with = "optional_text")]
    pub check_sample: Option<Sample>,
}

/// What options and profile come to.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How long running backups may take to take notice.
    pub wait: Duration,
    /// Nothing new is begun after this time.
    pub duration_max: Option<Duration>,
    /// The bounds of the store's layer.
    pub limits: ThrottleLimits,
    /// What has been hidden for so long is forgotten for good.
    pub forget_hidden: Option<Duration>,
    /// The level at which what backups stored is packed anew.
    pub repack_level: Option<u8>,
}

impl BoundArguments {
    /// The options, and the profile where none is given.
    #[must_use]
    pub fn or(&self, profile: &BoundProfile) -> Bounds {
        Bounds {
            wait: self.wait.or(profile.wait).map_or(WAIT_DEFAULT, |it| it.0),
            duration_max: self.max_duration.or(profile.max_duration).map(|it| it.0),
            limits: ThrottleLimits {
                bytes_per_second: self.max_io.or(profile.max_io).map(|it| it.0),
                work_share: self.max_cpu.or(profile.max_cpu).map(|it| it.0),
            },
            forget_hidden: self.forget_hidden.or(profile.forget_hidden).map(|it| it.0),
            repack_level: self.repack.or(profile.repack).map(|it| it.0),
        }
    }
}

/// A length of time; a day has 24 hours, whatever a time zone makes of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Period(pub Duration);

impl FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong =
            || Error::invalid(format!("'{text}' is not a length of time; write it like 90s or 2h"));
        let span: jiff::Span = text.parse().map_err(|_| wrong())?;
        let relative = jiff::SpanRelativeTo::days_are_24_hours();
        let span = span.to_duration(relative).map_err(|_| wrong())?;
        Duration::try_from(span).map(Self).map_err(|_| wrong())
    }
}

/// Bytes a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<ByteSize>()? {
            ByteSize(0) => Err(Error::invalid("with nothing a second there is no end; try 10MiB")),
            ByteSize(rate) => Ok(Self(rate)),
        }
    }
}

/// A level of zstd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RepackLevel(pub u8);

impl FromStr for RepackLevel {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<u8>() {
            Ok(level @ 1..=22) => Ok(Self(level)),
            _ => Err(Error::invalid(format!("'{text}' is no level of zstd; write 1 to 22"))),
        }
    }
}

/// A share of the time, above 0 and at most 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim_end_matches('%').trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self(percent / 100.0)),
            _ => Err(Error::invalid(format!("'{text}' is not a share; write it like 25%"))),
        }
    }
}

/// A share of the data in percent; none of it as well.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample(pub f64);

impl FromStr for Sample {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim_end_matches('%').trim().parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Self(percent)),
            _ => Err(Error::invalid(format!("'{text}' is not a share; write it like 2%"))),
        }
    }
}

/// A space goal as a user says it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal(pub SpaceGoal);

impl FromStr for Goal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong =
            || Error::invalid(format!("'{text}' is no goal; write it like 5%, 10GiB, dead or all"));
        Ok(Self(match text {
            "dead" => SpaceGoal::DeadOnly,
            "all" => SpaceGoal::Everything,
            _ if text.ends_with('%') => {
                let number = text.trim_end_matches('%').trim().parse::<f64>();
                let percent = number.ok().filter(|percent| (0.0..=100.0).contains(percent));
                SpaceGoal::Unused(percent.ok_or_else(wrong)? / 100.0)
            }
            _ => SpaceGoal::Free(text.parse::<ByteSize>().map_err(|_| wrong())?.0),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_people_write_them() {
        let period = |text: &str| text.parse::<Period>().map(|it| it.0);
        assert_eq!(period("2h").unwrap(), Duration::from_secs(7200));
        assert_eq!(period("30d").unwrap(), Duration::from_secs(30 * 86_400));
        assert!(period("-1s").is_err() && period("soon").is_err());
        let share = |text: &str| text.parse::<Share>().map(|it| it.0);
        assert_eq!(share("25%").unwrap(), 0.25);
        assert!(share("0%").is_err() && share("101%").is_err());
        assert!("0".parse::<Rate>().is_err() && "1K".parse::<Rate>().is_ok());
    }

    #[test]
    fn goals_are_read_as_people_write_them() {
        let goal = |text: &str| text.parse::<Goal>().map(|goal| goal.0);
        assert_eq!(goal("5%").unwrap(), SpaceGoal::Unused(0.05));
        assert_eq!(goal("dead").unwrap(), SpaceGoal::DeadOnly);
        assert_eq!(goal("all").unwrap(), SpaceGoal::Everything);
        assert_eq!(goal("2GiB").unwrap(), SpaceGoal::Free(2 << 30));
        assert!(goal("-1%").is_err() && goal("lots").is_err());
    }
}
