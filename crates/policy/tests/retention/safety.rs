//! What no policy may remove.

use super::*;
use onefold_policy::retention::{Count, KeepSpan};
use onefold_types::ErrorKind;
use proptest::prelude::*;

#[test]
fn r49_a_policy_without_rules_is_refused() {
    let list = [candidate(0, 0)];
    let zero = KeepPolicy {
        within: Some(KeepSpan::default()),
        within_yearly: Some(KeepSpan::default()),
        ..policy("last 0 daily 0")
    };
    for policy in [KeepPolicy::default(), zero] {
        for allow_empty_group in [false, true] {
            let request = RetentionRequest { allow_empty_group, ..request(policy.clone()) };
            let error = plan_retention(&list, &request, &TimeZone::UTC, 100).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().starts_with("no policy was given"), "{error}");
        }
    }
}

#[test]
fn r49_a_group_is_never_emptied_by_a_mistyped_tag() {
    let mut tagged = candidate(0, 0);
    tagged.host = "tagged".to_owned();
    tagged.tags = vec!["keep".to_owned()];
    let list = [tagged, candidate(1, 1), candidate(2, 2)];
    let policy = KeepPolicy { tags: vec!["keep".parse().unwrap()], ..KeepPolicy::default() };
    let mut request = request(policy);
    let plans = plan_retention(&list, &request, &TimeZone::UTC, 100).unwrap();
    let error = plans[0].decisions.as_ref().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the policy would remove every snapshot (2) of the group host alpha; paths /home"
    );
    assert!(plans[1].decisions.as_ref().unwrap()[0].keep);

    request.allow_empty_group = true;
    let plans = plan_retention(&list, &request, &TimeZone::UTC, 100).unwrap();
    assert!(plans[0].decisions.as_ref().unwrap().iter().all(|one| !one.keep));
}

#[test]
fn r53_snapshots_from_the_future_displace_nothing() {
    let now_ns = at("2025-06-15T12:00", &TimeZone::UTC);
    let good: Vec<Candidate> =
        (0..20).map(|number| candidate(number, now_ns - i64::from(number) * DAY_NS)).collect();
    let policies = [
        policy("last 5"),
        policy("daily 5"),
        policy("within 5d"),
        policy("within-daily 5d monthly 2"),
    ];
    for policy in policies {
        let before = decide(&good, policy.clone(), &TimeZone::UTC, now_ns);
        let mut flooded = good.clone();
        for number in 20..120_u8 {
            flooded.push(candidate(number, now_ns + 1 + i64::from(number) * 365 * DAY_NS / 4));
        }
        let after = decide(&flooded, policy, &TimeZone::UTC, now_ns);
        assert_eq!(after[100..], before, "the good ones fare as without the flood");
        assert!(after[..100].iter().all(|one| one.reasons == ["dated in the future"]));
    }
}

#[test]
fn r53_within_keeps_good_snapshots_among_forged_past_ones() {
    let now_ns = at("2025-06-15T12:00", &TimeZone::UTC);
    let mut list: Vec<Candidate> =
        (0..5).map(|number| candidate(number, now_ns - i64::from(number) * DAY_NS)).collect();
    for number in 5..105 {
        // Each a little newer than a good one, in the same day.
        let day = i64::from(number % 5);
        list.push(candidate(number, now_ns - day * DAY_NS + i64::from(number) - 200));
        list.push(candidate(number + 100, now_ns - day * DAY_NS - HOUR_NS));
    }
    let policy = policy("within 7d");
    let decisions = decide(&list, policy, &TimeZone::UTC, now_ns);
    assert!(decisions.iter().all(|one| one.keep));
}

fn any_span() -> impl Strategy<Value = Option<KeepSpan>> {
    let fields = (0..3_u32, 0..20_u32, 0..9_u32, 0..40_u32, any::<u32>());
    let span = fields.prop_map(|(years, months, weeks, days, hours)| KeepSpan {
        years,
        months,
        weeks,
        days,
        hours,
    });
    prop::option::of(span)
}

fn any_count() -> impl Strategy<Value = Option<Count>> {
    let count = prop_oneof![Just(Count::Unlimited), (0..6_u32).prop_map(Count::AtMost)];
    prop::option::of(count)
}

proptest! {
    #[test]
    fn forget_never_removes_what_the_last_must_keep(
        times in prop::collection::vec(
            prop_oneof![any::<i64>(), -2_000 * HOUR_NS..2_000 * HOUR_NS], 1..60),
        last in 1..10_u32,
        counts in (any_count(), any_count(), any_count(), any_count()),
        spans in (any_span(), any_span(), any_span()),
        now_ns in prop_oneof![Just(0), any::<i64>()],
    ) {
        let list: Vec<Candidate> =
            (0..).zip(&times).map(|(number, time_ns)| candidate(number, *time_ns)).collect();
        let (hourly, daily, weekly, yearly) = counts;
        let (within, within_daily, within_weekly) = spans;
        let policy = KeepPolicy {
            last: Some(Count::AtMost(last)), hourly, daily, weekly, yearly,
            within, within_daily, within_weekly,
            ..KeepPolicy::default()
        };
        let decisions = decide(&list, policy.clone(), &berlin(), now_ns);
        prop_assert_eq!(decisions.len(), list.len());
        let time_of = |one: &Decision| times[usize::from(one.id.0[0])];
        prop_assert!(decisions.is_sorted_by_key(|one| std::cmp::Reverse(time_of(one))));
        let past = decisions.iter().filter(|one| time_of(one) <= now_ns);
        prop_assert!(past.take(last as usize).all(|one| one.keep));
        prop_assert!(decisions.iter().all(|one| one.keep || time_of(one) <= now_ns));
        prop_assert!(decisions.iter().all(|one| one.keep != one.reasons.is_empty()));
        // Asked again after the removal, the same policy removes nothing more.
        let left: Vec<Candidate> = list.iter()
            .filter(|one| decisions.iter().any(|d| d.id == one.id && d.keep)).cloned().collect();
        let again = decide(&left, policy, &berlin(), now_ns);
        prop_assert!(again.iter().all(|one| one.keep), "{:?}", again);
    }
}

#[test]
fn r102_what_was_saved_last_is_kept_whatever_its_clock_said() {
    let now_ns = at("2025-06-15T12:00", &TimeZone::UTC);
    let mut list: Vec<Candidate> = (0..5u8)
        .map(|number| Candidate {
            sequence: u64::from(number) + 1,
            ..candidate(number, now_ns - i64::from(5 - number) * DAY_NS)
        })
        .collect();
    // The clock began in 1970 when the last one was saved.
    list.push(Candidate { sequence: 6, ..candidate(5, 86_400_000_000_000) });
    let keeps = |list: &[Candidate], policy| kept(list, policy, &TimeZone::UTC);
    for rule in ["last 1", "daily 1", "within 1h", "within-daily 1d"] {
        assert!(keeps(&list, policy(rule)).contains(&5), "{rule}");
    }
    assert_eq!(keeps(&list, policy("last 2")), [3, 4, 5]);
    // A rule that does not keep the newest does not keep it either.
    list[2].tags = vec!["a".to_owned()];
    let tagged = KeepPolicy { tags: vec!["a".parse().unwrap()], ..KeepPolicy::default() };
    assert_eq!(keeps(&list, tagged), [2]);
    // Once others were saved it is as old as it says.
    list.push(Candidate { sequence: 7, ..candidate(6, now_ns) });
    assert_eq!(keeps(&list, policy("last 2")), [4, 6]);
    // A clock that was set back by a second, and one that stands.
    list.truncate(5);
    list.push(Candidate { sequence: 6, ..candidate(5, list[4].time_ns - 1_000_000_000) });
    assert_eq!(keeps(&list, policy("last 1")), [4, 5]);
    list[5].time_ns = list[4].time_ns;
    (list[4].id, list[5].id) = (list[5].id, list[4].id);
    assert_eq!(keeps(&list, policy("last 1")), [4]);
    (list[4].id, list[5].id) = (list[5].id, list[4].id);
    // Another one that was saved at the same time.
    list[5] = Candidate { sequence: 5, ..candidate(5, 86_400_000_000_000) };
    assert_eq!(keeps(&list, policy("last 1")), [4]);
    // What was made out of others has dates of its own and no place in the order.
    list[5] = Candidate { sequence: 6, ..candidate(5, now_ns - 2 * DAY_NS) };
    list[4].sequence = 0;
    list[3].sequence = 0;
    assert_eq!(keeps(&list, policy("last 1")), [4]);
}
