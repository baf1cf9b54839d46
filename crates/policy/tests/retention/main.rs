//! Which snapshots the retention rules keep, by tables of dates.

mod rules;
mod safety;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use onefold_policy::retention::{
    Candidate, Decision, KeepPolicy, RetentionRequest, plan_retention,
};
use onefold_types::SessionId;

const HOUR_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 24 * HOUR_NS;

/// Central European time, written as a rule so that no time zone database is read.
fn berlin() -> TimeZone {
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
}

fn at(text: &str, zone: &TimeZone) -> i64 {
    let date: DateTime = text.parse().unwrap();
    let zoned = zone.to_ambiguous_zoned(date).compatible().unwrap();
    i64::try_from(zoned.timestamp().as_nanosecond()).unwrap()
}

fn candidate(number: u8, time_ns: i64) -> Candidate {
    Candidate {
        id: SessionId([number; 16]),
        time_ns,
        host: "alpha".to_owned(),
        paths: vec!["/home".to_owned()],
        tags: Vec::new(),
        hold: false,
        sequence: 0,
        is_empty: false,
        is_partial: false,
        is_copy: false,
    }
}

fn candidates(dates: &[&str], zone: &TimeZone) -> Vec<Candidate> {
    (0..).zip(dates).map(|(number, date)| candidate(number, at(date, zone))).collect()
}

fn request(policy: KeepPolicy) -> RetentionRequest {
    RetentionRequest { policy, ..RetentionRequest::default() }
}

/// The decisions on a single group, newest first.
fn decide(list: &[Candidate], policy: KeepPolicy, zone: &TimeZone, now_ns: i64) -> Vec<Decision> {
    let mut plans = plan_retention(list, &request(policy), zone, now_ns).unwrap();
    assert_eq!(plans.len(), 1);
    plans.remove(0).decisions.unwrap()
}

/// The numbers of the kept candidates, in ascending order.
fn kept(list: &[Candidate], policy: KeepPolicy, zone: &TimeZone) -> Vec<u8> {
    let decisions = decide(list, policy, zone, i64::MAX);
    let mut numbers: Vec<u8> =
        decisions.iter().filter(|one| one.keep).map(|one| one.id.0[0]).collect();
    numbers.sort_unstable();
    numbers
}

/// The policy of rules such as `daily 5 within-weekly 3m`.
fn policy(rules: &str) -> KeepPolicy {
    let words: Vec<&str> = rules.split_whitespace().collect();
    let mut policy = KeepPolicy::default();
    for pair in words.chunks(2) {
        let (count, span) = (pair[1].parse().ok(), pair[1].parse().ok());
        match pair[0] {
            "last" => policy.last = count,
            "hourly" => policy.hourly = count,
            "daily" => policy.daily = count,
            "weekly" => policy.weekly = count,
            "monthly" => policy.monthly = count,
            "quarterly" => policy.quarterly = count,
            "yearly" => policy.yearly = count,
            "within" => policy.within = span,
            "within-hourly" => policy.within_hourly = span,
            "within-daily" => policy.within_daily = span,
            "within-weekly" => policy.within_weekly = span,
            "within-monthly" => policy.within_monthly = span,
            "within-quarterly" => policy.within_quarterly = span,
            "within-yearly" => policy.within_yearly = span,
            other => panic!("no rule {other}"),
        }
    }
    policy
}
