//! Points in time: local for people, universal for programs.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use onefold_format::node::Time;
use onefold_types::{Error, Result};
use std::time::Duration;

fn zoned(time_ns: i64, zone: TimeZone) -> Option<Zoned> {
    Timestamp::from_nanosecond(i128::from(time_ns)).ok().map(|moment| moment.to_zoned(zone))
}

/// A moment in local time.
#[must_use]
pub fn local(time_ns: i64) -> String {
    zoned(time_ns, TimeZone::system()).map_or_else(
        || format!("{time_ns} ns"),
        |moment| moment.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

/// A moment in universal time, as RFC 3339 writes it.
#[must_use]
pub fn universal(time_ns: i64) -> String {
    Timestamp::from_nanosecond(i128::from(time_ns))
        .map_or_else(|_| format!("{time_ns} ns"), |moment| moment.to_string())
}

/// A file's time in local time.
#[must_use]
pub fn local_of_file(time: Time) -> String {
    nanoseconds(time).map_or_else(|| format!("@{}", time.seconds), local)
}

/// A file's time in universal time; times far outside the calendar are seconds since 1970.
#[must_use]
pub fn universal_of_file(time: Time) -> String {
    nanoseconds(time).map_or_else(|| format!("@{}", time.seconds), universal)
}

fn nanoseconds(time: Time) -> Option<i64> {
    time.seconds.checked_mul(1_000_000_000)?.checked_add(i64::from(time.nanoseconds))
}

/// Parses a moment: RFC 3339 with an offset, or a local date and time.
pub fn parse(text: &str) -> Result<i64> {
    let wrong = || {
        Error::invalid(format!(
            "'{text}' is not a time; write it like '2026-01-31 18:30:00' or \
             '2026-01-31T18:30:00Z'"
        ))
    };
    let moment = match text.parse::<Timestamp>() {
        Ok(moment) => moment,
        Err(_) => text
            .parse::<DateTime>()
            .map_err(|_| wrong())?
            .to_zoned(TimeZone::system())
            .map_err(|_| wrong())?
            .timestamp(),
    };
    i64::try_from(moment.as_nanosecond()).map_err(|_| wrong())
}

/// A length of time as people read it.
#[must_use]
pub fn span(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, _) => format!("{:.2} s", elapsed.as_secs_f64()),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02} min"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_parsed_and_shown() {
        assert_eq!(parse("1970-01-01T00:00:01Z").unwrap(), 1_000_000_000);
        assert_eq!(parse("1970-01-01T01:00:00+01:00").unwrap(), 0);
        assert!(parse("2026-01-31 18:30:00").is_ok());
        assert!(parse("2026-01-31").is_ok());
        for text in ["", "now", "2026-13-01", "18:30"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(universal(0), "1970-01-01T00:00:00Z");
        let far = Time { seconds: i64::MAX, nanoseconds: 0 };
        assert_eq!(universal_of_file(far), format!("@{}", i64::MAX));
    }

    #[test]
    fn spans_are_shown_in_fitting_units() {
        assert_eq!(span(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(span(Duration::from_secs(61)), "1:01 min");
        assert_eq!(span(Duration::from_secs(3661)), "1:01:01 h");
    }
}
