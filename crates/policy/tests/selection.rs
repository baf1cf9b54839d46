//! What references and filters mean, by tables.

use onefold_policy::retention::Candidate;
use onefold_policy::selection::{SnapshotFilter, SnapshotReference, resolve};
use onefold_policy::tag_list::TagList;
use onefold_types::{ErrorKind, Result, SessionId};
use proptest::prelude::*;

fn strings(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn candidate(first: [u8; 2], time_ns: i64, host: &str, tags: &str, paths: &str) -> Candidate {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&first);
    Candidate {
        id: SessionId(id),
        time_ns,
        host: host.to_owned(),
        paths: strings(paths),
        tags: strings(tags),
        hold: false,
        sequence: 0,
        is_empty: false,
        is_partial: false,
        is_copy: false,
    }
}

fn store() -> Vec<Candidate> {
    vec![
        candidate([0xab, 0xcd], 30, "alpha", "daily db", "/a /b"),
        candidate([0xab, 0xce], 10, "alpha", "", "/a"),
        candidate([0x12, 0x34], 40, "beta", "daily", "/a"),
        candidate([0x12, 0x99], 20, "beta", "db", "/b"),
    ]
}

fn filter(hosts: &str, tags: &[&str], paths: &str) -> SnapshotFilter {
    let tags = tags.iter().map(|list| list.parse().unwrap()).collect();
    SnapshotFilter { hosts: strings(hosts), tags, paths: strings(paths) }
}

fn resolve_text(text: &str, filter: &SnapshotFilter) -> Result<[u8; 2]> {
    let id = resolve(&text.parse()?, &store(), filter)?;
    Ok([id.0[0], id.0[1]])
}

#[test]
fn references_find_their_snapshot() {
    let whole = store()[1].id.to_string();
    let cases: [(&str, SnapshotFilter, [u8; 2]); 16] = [
        ("latest", filter("", &[], ""), [0x12, 0x34]),
        ("latest~0", filter("", &[], ""), [0x12, 0x34]),
        ("latest~1", filter("", &[], ""), [0xab, 0xcd]),
        ("latest~3", filter("", &[], ""), [0xab, 0xce]),
        ("latest", filter("alpha", &[], ""), [0xab, 0xcd]),
        ("latest~1", filter("alpha beta", &[], ""), [0xab, 0xcd]),
        ("latest", filter("", &["db"], ""), [0xab, 0xcd]),
        ("latest", filter("", &["daily,db"], ""), [0xab, 0xcd]),
        ("latest~1", filter("", &["daily,db", "db"], ""), [0x12, 0x99]),
        ("latest", filter("", &[""], ""), [0xab, 0xce]),
        ("latest", filter("", &[], "/b"), [0xab, 0xcd]),
        ("latest~1", filter("", &[], "/b"), [0x12, 0x99]),
        ("latest", filter("", &[], "/a /b"), [0xab, 0xcd]),
        ("abcd", filter("", &[], ""), [0xab, 0xcd]),
        (&whole, filter("", &[], ""), [0xab, 0xce]),
        ("1299", filter("alpha", &["none"], "/z"), [0x12, 0x99]),
    ];
    for (text, filter, expected) in cases {
        assert_eq!(resolve_text(text, &filter).unwrap(), expected, "{text} {filter:?}");
    }
}

#[test]
fn references_are_never_guessed() {
    let all = SnapshotFilter::default();
    let long = "a".repeat(33);
    let cases = [
        ("latest~4", ErrorKind::NotFound, "only 4 snapshots fit"),
        ("ff", ErrorKind::NotFound, "there is no snapshot 'ff'"),
        ("abc", ErrorKind::Invalid, "begins the names of 2 snapshots: abcd00"),
        ("", ErrorKind::Invalid, "names no snapshot"),
        ("AB", ErrorKind::Invalid, "names no snapshot"),
        ("Latest", ErrorKind::Invalid, "names no snapshot"),
        ("latest~", ErrorKind::Invalid, "a number must follow"),
        ("latest~+1", ErrorKind::Invalid, "a number must follow"),
        ("latest~99999999999", ErrorKind::Invalid, "a number must follow"),
        ("abcd~1", ErrorKind::Invalid, "'~' may only follow 'latest'"),
        (&long, ErrorKind::Invalid, "names no snapshot"),
    ];
    for (text, kind, message) in cases {
        let error = resolve_text(text, &all).unwrap_err();
        assert_eq!(error.kind(), kind, "{text}");
        assert!(error.to_string().contains(message), "{text}: {error}");
    }
    let nowhere = resolve_text("latest", &filter("gamma", &[], "")).unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::NotFound);
    assert!(nowhere.to_string().contains("no snapshot fits"), "{nowhere}");
    let one = resolve_text("latest~1", &filter("", &[""], "")).unwrap_err().to_string();
    assert!(one.contains("latest~1 is asked for, but only one snapshot fits"), "{one}");
}

#[test]
fn many_matches_are_listed_in_part() {
    let list: Vec<Candidate> =
        (0..30).map(|number| candidate([0xaa, number], 0, "", "", "")).collect();
    let reference = "aa".parse().unwrap();
    let error = resolve(&reference, &list, &SnapshotFilter::default()).unwrap_err();
    assert!(error.to_string().ends_with("and 20 more"), "{error}");
    let ten = resolve(&reference, &list[..10], &SnapshotFilter::default()).unwrap_err();
    assert!(!ten.to_string().contains("more"), "{ten}");
}

#[test]
fn equal_dates_are_ordered_by_name() {
    let list = [candidate([2, 0], 5, "", "", ""), candidate([9, 0], 5, "", "", "")];
    for list in [list.to_vec(), list.iter().rev().cloned().collect()] {
        let latest = SnapshotReference::Latest { back: 0 };
        let id = resolve(&latest, &list, &SnapshotFilter::default()).unwrap();
        assert_eq!(id.0[0], 9);
    }
}

#[test]
fn a_snapshot_listed_twice_is_not_ambiguous() {
    let one = candidate([7, 7], 0, "", "", "");
    let id = resolve(&"07".parse().unwrap(), &[one.clone(), one], &SnapshotFilter::default());
    assert_eq!(id.unwrap().0[0], 7);
}

#[test]
fn tag_lists_with_holes_are_refused() {
    assert_eq!("a, b".parse::<TagList>().unwrap().names(), ["a", "b"]);
    assert!(" ".parse::<TagList>().unwrap().names().is_empty());
    for text in ["a,,b", ",a", "a,"] {
        assert!(text.parse::<TagList>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_parsing_panic(text in "[latest~0-9a-f:é ]{0,12}|.{0,40}") {
        if let Ok(reference) = text.parse::<SnapshotReference>() {
            let again: SnapshotReference = reference.to_string().parse().unwrap();
            prop_assert_eq!(again, reference);
        }
    }
}

#[test]
fn r102_of_snapshots_about_as_new_the_one_that_was_saved_last_is_the_latest() {
    let minute_ns = 60_000_000_000;
    let saved = |number, time_ns, sequence| Candidate {
        sequence,
        ..candidate([number, 0], time_ns, "alpha", "", "/a")
    };
    let latest = |candidates: &[Candidate], text: &str| {
        let reference = text.parse().unwrap();
        resolve(&reference, candidates, &SnapshotFilter::default()).unwrap().0[0]
    };
    // The clock was set back by a minute, and stood still before.
    let mut all = vec![
        saved(7, 100 * minute_ns, 1),
        saved(3, 100 * minute_ns, 2),
        saved(5, 99 * minute_ns, 3),
    ];
    for (text, expected) in [("latest", 5), ("latest~1", 3), ("latest~2", 7)] {
        assert_eq!(latest(&all, text), expected, "{text}");
    }
    // By more than clocks differ: dates count, and that is told.
    all[2].time_ns = 89 * minute_ns;
    assert_eq!(latest(&all, "latest"), 3);
    // A copy was made when its place says, and not saved then.
    all[2] = Candidate { is_copy: true, ..saved(5, 99 * minute_ns, 3) };
    assert_eq!(latest(&all, "latest"), 3);
}
