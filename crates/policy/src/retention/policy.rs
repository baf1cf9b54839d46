//! The words a retention policy is written in: counts, spans, periods and groups.
//!
//! Invariant: text that is not understood completely is an error. A rule that was silently dropped
//! or shortened would remove snapshots that its author meant to keep.

use crate::tag_list::TagList;
use jiff::{Span, Zoned};
use onefold_types::{Error, Result, SessionId};
use std::fmt;
use std::str::FromStr;

/// How many a rule keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// That many.
    AtMost(u32),
    /// All; written `unlimited` or `-1`.
    Unlimited,
}

impl Count {
    /// Uses one up; whether one was left.
    pub(super) fn take_one(&mut self) -> bool {
        match self {
            Count::Unlimited => true,
            Count::AtMost(0) => false,
            Count::AtMost(left) => {
                *left -= 1;
                true
            }
        }
    }
}

impl FromStr for Count {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if matches!(text, "unlimited" | "-1") {
            return Ok(Count::Unlimited);
        }
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => Ok(Count::AtMost(number)),
            _ => Err(Error::invalid(format!(
                "'{text}' is not a number of snapshots; give a whole number, or 'unlimited'"
            ))),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::AtMost(number) => write!(f, "{number}"),
            Count::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// A length of calendar time, such as `1y5m7d2h`: years, months, weeks, days and hours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepSpan {
    /// Years (`y`).
    pub years: u32,
    /// Months (`m`).
    pub months: u32,
    /// Weeks (`w`).
    pub weeks: u32,
    /// Days (`d`).
    pub days: u32,
    /// Hours (`h`).
    pub hours: u32,
}

impl KeepSpan {
    /// Whether it has no length; a rule over no time is no rule.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// The moment that lies this span before `moment`, in nanoseconds since 1970.
    ///
    /// Beyond the calendar's range lies everything, so an overlong span reaches back for ever.
    pub(super) fn before_ns(&self, moment: &Zoned) -> i64 {
        let earlier = || -> Option<Zoned> {
            let span = Span::new()
                .try_years(self.years)
                .and_then(|span| span.try_months(self.months))
                .and_then(|span| span.try_weeks(self.weeks))
                .and_then(|span| span.try_days(self.days))
                .and_then(|span| span.try_hours(self.hours));
            moment.checked_sub(span.ok()?).ok()
        };
        let nanoseconds = earlier().map(|moment| moment.timestamp().as_nanosecond());
        nanoseconds.and_then(|number| i64::try_from(number).ok()).unwrap_or(i64::MIN)
    }
}

impl FromStr for KeepSpan {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            Error::invalid(format!("'{text}' is not a span of time: {why}; write it like 1y5m7d2h"))
        };
        let mut span = Self::default();
        let mut units_seen = String::new();
        let mut rest = text;
        while let Some(end) = rest.find(|letter: char| !letter.is_ascii_digit()) {
            let (digits, tail) = rest.split_at(end);
            let number = digits.parse().map_err(|_| refused("a number is missing or too large"))?;
            let mut letters = tail.chars();
            let unit = letters.next().unwrap_or_default();
            let field = match unit {
                'y' => &mut span.years,
                'm' => &mut span.months,
                'w' => &mut span.weeks,
                'd' => &mut span.days,
                'h' => &mut span.hours,
                _ => return Err(refused("the units are y, m, w, d and h")),
            };
            if units_seen.contains(unit) {
                return Err(refused("a unit is given twice"));
            }
            units_seen.push(unit);
            *field = number;
            rest = letters.as_str();
        }
        if !rest.is_empty() {
            return Err(refused("the last number has no unit"));
        }
        if units_seen.is_empty() {
            return Err(refused("it is empty"));
        }
        Ok(span)
    }
}

impl fmt::Display for KeepSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (self.years, 'y'),
            (self.months, 'm'),
            (self.weeks, 'w'),
            (self.days, 'd'),
            (self.hours, 'h'),
        ];
        if self.is_zero() {
            return f.write_str("0h");
        }
        for (number, unit) in units.into_iter().filter(|(number, _)| *number > 0) {
            write!(f, "{number}{unit}")?;
        }
        Ok(())
    }
}

/// A period of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Period {
    /// From :00 to :59.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday (ISO 8601).
    Week,
    /// A calendar month.
    Month,
    /// Three calendar months, from January on.
    Quarter,
    /// A calendar year.
    Year,
}

impl Period {
    /// All periods, from the shortest.
    pub const ALL: [Self; 6] =
        [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Quarter, Self::Year];

    /// `hourly`, `daily`, and so on.
    #[must_use]
    pub fn adjective(self) -> &'static str {
        match self {
            Self::Hour => "hourly",
            Self::Day => "daily",
            Self::Week => "weekly",
            Self::Month => "monthly",
            Self::Quarter => "quarterly",
            Self::Year => "yearly",
        }
    }

    /// A number for the period in which `moment` lies: equal within it, greater in later ones.
    pub(super) fn number(self, moment: &Zoned) -> i64 {
        let year = i64::from(moment.year());
        let month = year * 12 + i64::from(moment.month()) - 1;
        match self {
            // The hour's beginning in universal time: when clocks are set back, the local hour that
            // comes twice is two hours.
            Self::Hour => {
                let offset_seconds = i64::from(moment.offset().seconds());
                let local_seconds = moment.timestamp().as_second() + offset_seconds;
                local_seconds.div_euclid(3600) * 3600 - offset_seconds
            }
            Self::Day => month * 31 + i64::from(moment.day()) - 1,
            Self::Week => {
                let week = moment.date().iso_week_date();
                i64::from(week.year()) * 53 + i64::from(week.week()) - 1
            }
            Self::Month => month,
            Self::Quarter => month.div_euclid(3),
            Self::Year => year,
        }
    }
}

/// The rules; a snapshot that any of them keeps is kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeepPolicy {
    /// The newest snapshots.
    pub last: Option<Count>,
    /// The newest snapshot of each of the last hours that have one.
    pub hourly: Option<Count>,
    /// The same by days.
    pub daily: Option<Count>,
    /// The same by weeks.
    pub weekly: Option<Count>,
    /// The same by months.
    pub monthly: Option<Count>,
    /// The same by quarters.
    pub quarterly: Option<Count>,
    /// The same by years.
    pub yearly: Option<Count>,
    /// All snapshots of the span before the newest.
    pub within: Option<KeepSpan>,
    /// The newest snapshot of each hour of the span before the newest snapshot.
    pub within_hourly: Option<KeepSpan>,
    /// The same by days.
    pub within_daily: Option<KeepSpan>,
    /// The same by weeks.
    pub within_weekly: Option<KeepSpan>,
    /// The same by months.
    pub within_monthly: Option<KeepSpan>,
    /// The same by quarters.
    pub within_quarterly: Option<KeepSpan>,
    /// The same by years.
    pub within_yearly: Option<KeepSpan>,
    /// Snapshots that carry all tags of one of these lists.
    pub tags: Vec<TagList>,
    /// These snapshots.
    pub ids: Vec<SessionId>,
}

impl KeepPolicy {
    /// Whether no rule keeps anything: none is given, or only counts and spans of zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let counts = Period::ALL.map(|period| self.count_of(period));
        let spans = Period::ALL.map(|period| self.within_of(period));
        let keeps_none = |count: &Option<Count>| count.is_none_or(|c| c == Count::AtMost(0));
        let spans_nothing = |span: &Option<KeepSpan>| span.is_none_or(|span| span.is_zero());
        keeps_none(&self.last)
            && counts.iter().all(keeps_none)
            && spans_nothing(&self.within)
            && spans.iter().all(spans_nothing)
            && self.tags.is_empty()
            && self.ids.is_empty()
    }

    /// Whether a rule that goes by dates keeps the newest snapshot.
    pub(super) fn keeps_newest(&self) -> bool {
        let by_dates = Self { tags: Vec::new(), ids: Vec::new(), ..self.clone() };
        !by_dates.is_empty()
    }

    pub(super) fn count_of(&self, period: Period) -> Option<Count> {
        match period {
            Period::Hour => self.hourly,
            Period::Day => self.daily,
            Period::Week => self.weekly,
            Period::Month => self.monthly,
            Period::Quarter => self.quarterly,
            Period::Year => self.yearly,
        }
    }

    pub(super) fn within_of(&self, period: Period) -> Option<KeepSpan> {
        match period {
            Period::Hour => self.within_hourly,
            Period::Day => self.within_daily,
            Period::Week => self.within_weekly,
            Period::Month => self.within_monthly,
            Period::Quarter => self.within_quarterly,
            Period::Year => self.within_yearly,
        }
    }
}

/// What divides snapshots into groups; each group is judged by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupBy {
    /// By host.
    pub host: bool,
    /// By the set of paths.
    pub paths: bool,
    /// By the set of tags.
    pub tags: bool,
}

impl Default for GroupBy {
    fn default() -> Self {
        Self { host: true, paths: true, tags: false }
    }
}

impl FromStr for GroupBy {
    type Err = Error;

    /// A comma list of `host`, `paths` and `tags`; the empty text makes a single group.
    fn from_str(text: &str) -> Result<Self> {
        let mut by = Self { host: false, paths: false, tags: false };
        if text.is_empty() {
            return Ok(by);
        }
        for word in text.split(',') {
            match word.trim() {
                "host" | "hosts" => by.host = true,
                "path" | "paths" => by.paths = true,
                "tag" | "tags" => by.tags = true,
                other => {
                    return Err(Error::invalid(format!(
                        "snapshots cannot be grouped by '{other}'; use host, paths and tags"
                    )));
                }
            }
        }
        Ok(by)
    }
}
