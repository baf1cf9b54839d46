//! What each rule keeps, and the words rules are written in.

use super::*;
use onefold_policy::retention::{Count, GroupBy, KeepSpan};

#[test]
fn each_rule_keeps_what_it_says() {
    let dates = [
        "2023-06-30T12:00", // 0
        "2024-12-29T23:00", // 1: Sunday, week 52 of 2024
        "2024-12-30T09:00", // 2: Monday, week 1 of 2025
        "2024-12-31T23:59", // 3
        "2025-01-01T00:00", // 4: Wednesday, week 1 of 2025
        "2025-01-05T23:59", // 5: Sunday, week 1 of 2025
        "2025-01-06T00:00", // 6: Monday, week 2
        "2025-01-06T00:59", // 7
        "2025-01-06T01:00", // 8
        "2025-04-01T10:00", // 9: the second quarter
    ];
    let all: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    let cases: [(&str, &[u8]); 26] = [
        ("last 1", &[9]),
        ("last 3", &[7, 8, 9]),
        ("last unlimited", all),
        ("hourly 3", &[7, 8, 9]),
        ("daily 2", &[8, 9]),
        ("daily 5", &[3, 4, 5, 8, 9]),
        ("weekly 3", &[5, 8, 9]),
        ("weekly 4", &[1, 5, 8, 9]),
        ("monthly 3", &[3, 8, 9]),
        ("quarterly 3", &[3, 8, 9]),
        ("yearly 2", &[3, 9]),
        ("yearly 9", &[0, 3, 9]),
        ("yearly -1", &[0, 3, 9]),
        ("within 1h", &[9]),
        ("within 3m10h", &[4, 5, 6, 7, 8, 9]),
        ("within 3m9h", &[5, 6, 7, 8, 9]),
        ("within 3m1d", &[3, 4, 5, 6, 7, 8, 9]),
        ("within 9999y", all),
        ("within-hourly 3m10h", &[4, 5, 7, 8, 9]),
        ("within-daily 3m10h", &[4, 5, 8, 9]),
        ("within-weekly 3m10h", &[5, 8, 9]),
        ("within-monthly 1y", &[3, 8, 9]),
        ("within-quarterly 1y", &[3, 8, 9]),
        ("within-yearly 9y", &[0, 3, 9]),
        ("daily 0 last 1 monthly 2", &[8, 9]),
        ("within 0h yearly 1", &[9]),
    ];
    for zone in [TimeZone::UTC, berlin()] {
        let list = candidates(&dates, &zone);
        for (rules, expected) in cases {
            assert_eq!(kept(&list, policy(rules), &zone), expected, "{rules}");
        }
    }
}

#[test]
fn periods_are_those_of_the_zone() {
    // 23:30 UTC is half past midnight of the next day in Berlin.
    let list =
        candidates(&["2025-01-01T22:30", "2025-01-01T23:30", "2025-01-02T10:00"], &TimeZone::UTC);
    let policy = policy("daily 2");
    assert_eq!(kept(&list, policy.clone(), &TimeZone::UTC), [1, 2]);
    assert_eq!(kept(&list, policy, &berlin()), [0, 2]);
}

#[test]
fn days_of_23_and_25_hours_are_days() {
    let zone = berlin();
    // Clocks go forward on 2025-03-30 and back on 2025-10-26.
    for (before, on, after) in [
        ("2025-03-29T23:59", ["2025-03-30T00:00", "2025-03-30T23:59"], "2025-03-31T00:00"),
        ("2025-10-25T23:59", ["2025-10-26T00:00", "2025-10-26T23:59"], "2025-10-27T00:00"),
    ] {
        let list = candidates(&[before, on[0], on[1], after], &zone);
        let daily = policy("daily 3");
        assert_eq!(kept(&list, daily, &zone), [0, 2, 3]);
        // A day before 00:00 is the last midnight, 23 or 25 hours earlier.
        let within = policy("within 1d");
        assert_eq!(kept(&list, within, &zone), [1, 2, 3]);
        let hours = policy("within 24h");
        let expected: &[u8] = if on[0].contains("-03-") { &[0, 1, 2, 3] } else { &[2, 3] };
        assert_eq!(kept(&list, hours, &zone), expected);
    }
}

#[test]
fn the_hour_that_comes_twice_is_two_hours() {
    let zone = berlin();
    let first = at("2025-10-26T02:30", &zone);
    let list = [
        candidate(0, first),
        candidate(1, first + HOUR_NS / 4),
        candidate(2, first + HOUR_NS),
        candidate(3, first + HOUR_NS + HOUR_NS / 4),
        candidate(4, first + 2 * HOUR_NS),
    ];
    let policy = policy("hourly 3");
    assert_eq!(kept(&list, policy, &zone), [1, 3, 4]);
}

#[test]
fn hours_are_those_of_the_zone() {
    // In Nepal, clocks are five hours and three quarters ahead.
    let zone = TimeZone::posix("NPT-5:45").unwrap();
    let dates = ["2025-01-01T09:15", "2025-01-01T10:00", "2025-01-01T10:59", "2025-01-01T11:00"];
    let list = candidates(&dates, &zone);
    assert_eq!(kept(&list, policy("hourly 3"), &zone), [0, 2, 3]);
    assert_eq!(kept(&list, policy("hourly 3"), &TimeZone::UTC), [0, 1, 3], "03:30 to 05:15");
}

#[test]
fn a_snapshot_of_this_moment_is_not_of_the_future() {
    for (now_ns, reason) in [(5, "last snapshot"), (4, "dated in the future")] {
        let decisions = decide(&[candidate(0, 5)], policy("last 1"), &TimeZone::UTC, now_ns);
        assert_eq!(decisions[0].reasons, [reason]);
    }
}

#[test]
fn a_day_that_comes_twice_is_one_day() {
    // Clocks go back from 00:01 to 23:01 of the day before, as once in Newfoundland.
    let zone = TimeZone::posix("NST3:30NDT,M4.1.0/0:01,M10.5.0/0:01").unwrap();
    let change = at("2025-10-25T22:00", &zone) + 2 * HOUR_NS;
    let minute_ns = HOUR_NS / 60;
    let list = [
        candidate(0, at("2025-10-24T12:00", &zone)),
        candidate(1, at("2025-10-25T12:00", &zone)),
        candidate(2, change + minute_ns / 2),
        candidate(3, change + 10 * minute_ns),
        candidate(4, at("2025-10-26T12:00", &zone)),
    ];
    let policy = policy("daily 3");
    assert_eq!(kept(&list, policy, &zone), [0, 3, 4]);
}

#[test]
fn reasons_name_every_rule_that_keeps_a_snapshot() {
    let mut list = candidates(
        &["2025-01-01T08:00", "2025-01-01T09:00", "2025-02-01T10:00", "2025-02-01T11:00"],
        &TimeZone::UTC,
    );
    list[1].hold = true;
    list[2].tags = vec!["a".to_owned(), "b".to_owned()];
    let policy = KeepPolicy {
        tags: vec!["a".parse().unwrap(), "b,a".parse().unwrap(), "b,c".parse().unwrap()],
        ids: vec![SessionId([3; 16])],
        ..policy("last 1 daily 7 within 1h within-monthly 1y")
    };
    let decisions = decide(&list, policy, &TimeZone::UTC, i64::MAX);
    let reasons: Vec<Vec<&str>> =
        decisions.iter().map(|one| one.reasons.iter().map(String::as_str).collect()).collect();
    assert_eq!(
        reasons,
        [
            vec!["named", "last snapshot", "daily snapshot", "monthly within 1y", "within 1h"],
            vec!["has tags a", "has tags b,a", "within 1h"],
            vec!["on hold", "daily snapshot", "monthly within 1y"],
            vec!["oldest daily snapshot", "oldest monthly within 1y"],
        ]
    );
}

#[test]
fn r98_of_a_group_never_only_empty_snapshots_are_kept() {
    let kept = |empty: [bool; 4]| -> Vec<u8> {
        let of = |(number, is_empty): (u8, bool)| Candidate {
            is_empty,
            ..candidate(number, i64::from(number))
        };
        let list: Vec<Candidate> = (0..).zip(empty).map(of).collect();
        let plans = plan_retention(&list, &request(policy("last 2")), &TimeZone::UTC, 100).unwrap();
        let decisions = plans.into_iter().flat_map(|plan| plan.decisions.unwrap());
        decisions.filter(|one| one.keep).map(|one| one.id.0[0]).collect()
    };
    assert_eq!(kept([false, false, true, true]), [3, 2, 1], "the newest with content as well");
    assert_eq!(kept([false, false, false, true]), [3, 2]);
    assert_eq!(kept([true, true, true, true]), [3, 2], "there is none with content");
}

#[test]
fn r148_of_a_group_never_only_partial_snapshots_are_kept() {
    let kept = |partial: [bool; 4], empty: [bool; 4]| -> Vec<u8> {
        let of = |(number, (is_partial, is_empty)): (u8, (bool, bool))| Candidate {
            is_partial,
            is_empty,
            ..candidate(number, i64::from(number))
        };
        let list: Vec<Candidate> = (0..).zip(partial.into_iter().zip(empty)).map(of).collect();
        let plans = plan_retention(&list, &request(policy("last 1")), &TimeZone::UTC, 100).unwrap();
        let decisions = plans.into_iter().flat_map(|plan| plan.decisions.unwrap());
        decisions.filter(|one| one.keep).map(|one| one.id.0[0]).collect()
    };
    let none = [false; 4];
    assert_eq!(kept([false, false, true, true], none), [3, 1], "the newest whole one as well");
    assert_eq!(kept([true, true, true, false], none), [3]);
    assert_eq!(kept([true; 4], none), [3], "none is whole");
    // What is empty is not whole either.
    assert_eq!(kept([false, false, true, true], [false, true, false, true]), [3, 2, 0]);
}

#[test]
fn groups_are_judged_apart() {
    let mut list = Vec::new();
    for (number, (host, path, tag)) in
        (0..).zip([("a", "/x", "t"), ("a", "/x", "u"), ("a", "/y", "t"), ("b", "/x", "t")])
    {
        let mut one = candidate(number, i64::from(number));
        (one.host, one.paths, one.tags) = (host.into(), vec![path.into()], vec![tag.into()]);
        list.push(one);
    }
    // The order in which a snapshot names its paths makes no difference.
    list.push(Candidate { paths: vec!["/x".into(), "/x".into()], ..list[0].clone() });
    for (by, groups) in [("", 1), ("host", 2), ("paths", 2), ("host,paths", 3), ("host,tags", 3)] {
        let request = RetentionRequest {
            policy: policy("last 1"),
            group_by: by.parse().unwrap(),
            allow_empty_group: false,
        };
        let plans = plan_retention(&list, &request, &TimeZone::UTC, 100).unwrap();
        assert_eq!(plans.len(), groups, "{by:?}");
        for plan in plans {
            assert_eq!(plan.decisions.unwrap().iter().filter(|one| one.keep).count(), 1);
        }
    }
    assert_eq!(GroupBy::default(), "host,paths".parse().unwrap());
    assert!("host,day".parse::<GroupBy>().is_err());
}

#[test]
fn spans_and_counts_are_understood_completely_or_refused() {
    for text in ["0", "17", "unlimited"] {
        assert_eq!(text.parse::<Count>().unwrap().to_string(), text);
    }
    let full = KeepSpan { years: 1, months: 5, weeks: 0, days: 7, hours: 2 };
    assert_eq!("1y5m7d2h".parse::<KeepSpan>().unwrap(), full);
    assert_eq!("2h7d5m1y".parse::<KeepSpan>().unwrap(), full);
    assert_eq!(full.to_string(), "1y5m7d2h");
    assert_eq!("3w".parse::<KeepSpan>().unwrap().to_string(), "3w");
    assert_eq!(KeepSpan::default().to_string(), "0h");
    for text in
        ["", "7", "d", "1y2", "1d2d", "-1d", "+1d", "1.5d", "1 d", "1s", "99999999999y", "٣d", "1Y"]
    {
        assert!(text.parse::<KeepSpan>().is_err(), "{text:?}");
    }
    assert_eq!("7".parse::<Count>().unwrap(), Count::AtMost(7));
    for text in ["-1", "unlimited"] {
        assert_eq!(text.parse::<Count>().unwrap(), Count::Unlimited);
    }
    for text in ["", "-2", "+3", "1d", "all", "99999999999"] {
        assert!(text.parse::<Count>().is_err(), "{text:?}");
    }
}
