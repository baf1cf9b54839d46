//! Retention: which snapshots of each group are kept, and why.
//!
//! Algorithm: the `keep` rules of restic's `forget` (its manual, "Removing backup snapshots"), with
//! quarters added. Snapshots are put into groups; within a group they are visited from the newest
//! to the oldest, and each rule marks what it keeps. One mark suffices.
//!
//! - `last n` keeps the newest `n`.
//! - `daily n` keeps the newest snapshot of each of the last `n` days that have one; the other
//!   periods likewise. Periods are those of the calendar in the given time zone; weeks begin on
//!   Monday and belong to the year of their Thursday (ISO 8601). While fewer than `n` periods have
//!   a snapshot, the oldest snapshot is kept as well, so that the history reaches as far back as it
//!   can.
//! - `within span` keeps everything from the newest snapshot back to that span before it;
//!   `within-daily span` keeps one per day of that window, and so on.
//! - `tags` and `ids` keep what matches.
//! - A snapshot on hold is kept whatever the policy says.
//! - Where all that a group keeps is empty, or lacks what could not be read, the newest snapshot
//!   that is whole is kept as well.
//!
//! Safety. A policy without a rule is an error, and a group of which nothing would remain is
//! refused as a whole. Snapshots dated after `now` are kept, and no rule counts them: neither a
//! wrong clock nor a writer who forges dates can push good snapshots out that way. Against a writer
//! who may add snapshots dated in the past, only `within` protects, because it keeps what it keeps
//! whatever else lies in the window; rules that count cannot. Even that protection ends when the
//! good snapshots are older than the span: a forged newest one moves the window past them.
//!
//! The snapshot of a group that was saved last is kept by every rule that goes by dates and keeps
//! the newest, also if a clock was wrong and dates others later.
//!
//! Invariants: each candidate appears in exactly one group, once; equal input gives equal output.

mod policy;

pub use policy::{Count, GroupBy, KeepPolicy, KeepSpan, Period};

use crate::tag_list::TagList;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot, as far as retention and selection look at it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The session that made it.
    pub id: SessionId,
    /// Its date: nanoseconds since 1970-01-01 00:00:00 UTC.
    pub time_ns: i64,
    /// The machine it was taken on.
    pub host: String,
    /// The paths it was taken of.
    pub paths: Vec<String>,
    /// The tags it carries.
    pub tags: Vec<String>,
    /// Whether it must be kept whatever the policy says.
    pub hold: bool,
    /// Whether there is nothing in its files, or no file in it.
    pub is_empty: bool,
    /// Whether something that was to be saved could not be read.
    pub is_partial: bool,
    /// Its place in the order in which snapshots were saved, which no clock decides; 0: none.
    pub sequence: u64,
    /// Whether it was saved in another store, and copied when its place says.
    pub is_copy: bool,
}

/// What clocks of sound machines may differ by.
const CLOCKS_DIFFER_NS: i64 = 10 * 60 * 1_000_000_000;

/// Whether a date lies before another one by more than sound clocks differ.
#[must_use]
pub fn is_dated_before(date_ns: i64, other_ns: i64) -> bool {
    date_ns < other_ns.saturating_sub(CLOCKS_DIFFER_NS)
}

/// What is asked of [`plan_retention`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RetentionRequest {
    /// The rules.
    pub policy: KeepPolicy,
    /// What makes snapshots belong together.
    pub group_by: GroupBy,
    /// Accept that nothing remains of a group.
    pub allow_empty_group: bool,
}

/// What the members of a group have in common; `None` where groups are not divided by it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GroupKey {
    /// The host.
    pub host: Option<String>,
    /// The set of paths, sorted.
    pub paths: Option<Vec<String>>,
    /// The set of tags, sorted.
    pub tags: Option<Vec<String>>,
}

/// The decision on one snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// The snapshot.
    pub id: SessionId,
    /// Whether it stays.
    pub keep: bool,
    /// Why it stays, one entry for each rule that keeps it; empty if it goes.
    pub reasons: Vec<String>,
}

/// The plan for one group.
#[derive(Debug)]
pub struct GroupPlan {
    /// What the members have in common.
    pub key: GroupKey,
    /// The decisions, newest snapshot first; or why the group is refused, which leaves it
    /// untouched.
    pub decisions: Result<Vec<Decision>>,
}

/// Decides on every candidate; groups are ordered by key.
///
/// `now_ns` comes from a clock that the writers of snapshots cannot set; periods are those of the
/// calendar in `zone`.
///
/// # Errors
/// `Invalid` if the policy has no rule. A group of which nothing would remain is refused by itself.
pub fn plan_retention(
    candidates: &[Candidate],
    request: &RetentionRequest,
    zone: &TimeZone,
    now_ns: i64,
) -> Result<Vec<GroupPlan>> {
    if request.policy.is_empty() {
        return Err(Error::invalid(
            "no policy was given that keeps anything; nothing will be removed",
        ));
    }
    let mut groups: BTreeMap<GroupKey, Vec<&Candidate>> = BTreeMap::new();
    for candidate in candidates {
        groups.entry(group_key(candidate, request.group_by)).or_default().push(candidate);
    }
    let plan = |(key, members): (GroupKey, Vec<&Candidate>)| {
        let decisions = decide_group(members, &request.policy, zone, now_ns);
        let kept = decisions.iter().any(|decision| decision.keep);
        let decisions = if kept || request.allow_empty_group {
            Ok(decisions)
        } else {
            Err(refusal(&key, decisions.len()))
        };
        GroupPlan { key, decisions }
    };
    Ok(groups.into_iter().map(plan).collect())
}

fn refusal(key: &GroupKey, count: usize) -> Error {
    let mut names = Vec::new();
    names.extend(key.host.as_ref().map(|host| format!("host {host}")));
    names.extend(key.paths.as_ref().map(|paths| format!("paths {}", paths.join(", "))));
    names.extend(key.tags.as_ref().map(|tags| format!("tags {}", tags.join(", "))));
    let group = if names.is_empty() { "all".to_owned() } else { names.join("; ") };
    Error::new(
        ErrorKind::Invalid,
        format!("the policy would remove every snapshot ({count}) of the group {group}"),
    )
}

fn group_key(candidate: &Candidate, by: GroupBy) -> GroupKey {
    let set = |names: &[String]| {
        let names: BTreeSet<&String> = names.iter().collect();
        names.into_iter().cloned().collect()
    };
    GroupKey {
        host: by.host.then(|| candidate.host.clone()),
        paths: by.paths.then(|| set(&candidate.paths)),
        tags: by.tags.then(|| set(&candidate.tags)),
    }
}

/// A rule that keeps one snapshot of each period, and what it has met so far.
struct PeriodRule {
    period: Period,
    reason: String,
    /// How many more periods it keeps one of.
    left: Count,
    /// It looks no further back than this.
    since_ns: i64,
    /// The earliest period it has kept a snapshot of.
    earliest: Option<i64>,
}

impl PeriodRule {
    /// Why the rule keeps this snapshot, if it does. Snapshots come newest first.
    fn visit(&mut self, time_ns: i64, local: &Zoned, is_oldest: bool) -> Option<String> {
        if time_ns < self.since_ns {
            return None;
        }
        // Where clocks are set back over midnight, a day comes twice; the second visit is not new.
        let number = self.period.number(local);
        let begins_period = self.earliest.is_none_or(|earliest| number < earliest);
        if !(begins_period || is_oldest) || !self.left.take_one() {
            return None;
        }
        self.earliest = Some(self.earliest.map_or(number, |earliest| earliest.min(number)));
        Some(match begins_period {
            true => self.reason.clone(),
            false => format!("oldest {}", self.reason),
        })
    }
}

fn period_rules(policy: &KeepPolicy, newest: &Zoned) -> Vec<PeriodRule> {
    let mut rules = Vec::new();
    for period in Period::ALL {
        if let Some(left) = policy.count_of(period) {
            let reason = format!("{} snapshot", period.adjective());
            rules.push(PeriodRule { period, reason, left, since_ns: i64::MIN, earliest: None });
        }
    }
    for period in Period::ALL {
        if let Some(span) = policy.within_of(period).filter(|span| !span.is_zero()) {
            rules.push(PeriodRule {
                period,
                reason: format!("{} within {span}", period.adjective()),
                left: Count::Unlimited,
                since_ns: span.before_ns(newest),
                earliest: None,
            });
        }
    }
    rules
}

fn decide_group(
    mut members: Vec<&Candidate>,
    policy: &KeepPolicy,
    zone: &TimeZone,
    now_ns: i64,
) -> Vec<Decision> {
    // Newest first; of equal dates the one that was saved last, and then by the name, so that no
    // order depends on the input's.
    members.sort_unstable_by_key(|one| Reverse((one.time_ns, one.sequence, one.id)));
    let local = |time_ns: i64| {
        // A timestamp holds more than 64 bits of nanoseconds do.
        let time = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default();
        time.to_zoned(zone.clone())
    };
    let newest_ns = members.iter().map(|one| one.time_ns).find(|time_ns| *time_ns <= now_ns);
    let newest = local(newest_ns.unwrap_or(now_ns));
    let mut rules = period_rules(policy, &newest);
    let within = policy.within.filter(|span| !span.is_zero());
    let within = within.map(|span| (span.before_ns(&newest), format!("within {span}")));
    let mut last = policy.last.unwrap_or(Count::AtMost(0));

    let saved_last = misdated_last(&members, now_ns).filter(|_| policy.keeps_newest());
    let count = members.len();
    let decide = |(number, one): (usize, &Candidate)| {
        let mut reasons = standing_reasons(one, policy);
        if saved_last == Some(one.id) {
            reasons.push("saved last, dated before others".to_owned());
        }
        if one.time_ns > now_ns {
            reasons.push("dated in the future".to_owned());
            return Decision { id: one.id, keep: true, reasons };
        }
        if last.take_one() {
            reasons.push("last snapshot".to_owned());
        }
        let (time, is_oldest) = (local(one.time_ns), number + 1 == count);
        let kept_by = |rule: &mut PeriodRule| rule.visit(one.time_ns, &time, is_oldest);
        reasons.extend(rules.iter_mut().filter_map(kept_by));
        let in_window = within.as_ref().filter(|(since_ns, _)| one.time_ns >= *since_ns);
        reasons.extend(in_window.map(|(_, reason)| reason.clone()));
        Decision { id: one.id, keep: !reasons.is_empty(), reasons }
    };
    let mut decisions: Vec<Decision> = members.iter().copied().enumerate().map(decide).collect();
    keep_a_whole_one(&members, &mut decisions);
    decisions
}

/// Keeps a snapshot with content, and a whole one, in each group. A disk that is not mounted gives
/// empty snapshots, and one that fails gives partial ones; they would push out the others.
fn keep_a_whole_one(members: &[&Candidate], decisions: &mut [Decision]) {
    if decisions.iter().all(|decision| !decision.keep) {
        return;
    }
    type Rule = (fn(&Candidate) -> bool, &'static str);
    let has_content: Rule = (|one| !one.is_empty, "newest with content");
    let is_whole: Rule = (|one| !one.is_empty && !one.is_partial, "newest whole one");
    for (is_it, why) in [has_content, is_whole] {
        let mut those = members.iter().zip(&mut *decisions).filter(|(one, _)| is_it(one));
        let Some((_, newest)) = those.next() else { continue };
        if !newest.keep && those.all(|(_, decision)| !decision.keep) {
            newest.keep = true;
            newest.reasons.push(why.to_owned());
        }
    }
}

/// The member that was saved last, if others that were saved earlier are dated later, and not in
/// the future.
fn misdated_last(members: &[&Candidate], now_ns: i64) -> Option<SessionId> {
    let last = members.iter().max_by_key(|one| (one.sequence, one.time_ns, one.id))?;
    let is_later = |other: &&Candidate| {
        (1..last.sequence).contains(&other.sequence)
            && other.time_ns <= now_ns
            && last.time_ns < other.time_ns
    };
    members.iter().any(is_later).then_some(last.id)
}

/// The reasons that do not depend on any other snapshot.
fn standing_reasons(candidate: &Candidate, policy: &KeepPolicy) -> Vec<String> {
    let mut reasons = Vec::new();
    if candidate.hold {
        reasons.push("on hold".to_owned());
    }
    if policy.ids.contains(&candidate.id) {
        reasons.push("named".to_owned());
    }
    let matches = |list: &&TagList| list.matches(&candidate.tags);
    reasons.extend(policy.tags.iter().filter(matches).map(|list| match list.names() {
        [] => "has no tags".to_owned(),
        names => format!("has tags {}", names.join(",")),
    }));
    reasons
}
