//! Forgetting by name and by policy, refusals, and the way back.

use crate::support::Sandbox;

/// A store with one snapshot a day, oldest first.
fn with_days(days: u32) -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::with_source();
    let ids = (1..=days).map(|day| {
        let time = format!("2026-03-{day:02}T12:00:00Z");
        sandbox.backup(&["--time", &time])
    });
    let ids = ids.collect();
    (sandbox, ids)
}

#[test]
fn r49_without_names_and_policy_nothing_is_forgotten() {
    let (sandbox, ids) = with_days(2);
    for arguments in [
        vec!["forget"],
        vec!["forget", "--host", "web1"],
        vec!["forget", "--keep-last", "0"],
        vec!["forget", "--keep-within", "0d"],
        vec!["forget", "--keep-last", "-3"],
        vec!["forget", "--keep-dayly", "3"],
        vec!["forget", "--keep-last", "1", &ids[0]],
        vec!["forget", "nonexistent"],
        vec!["forget", &ids[0], "abcdefabcdefabcdef"],
    ] {
        let run = sandbox.run(&arguments);
        assert_eq!(run.code, 1, "{arguments:?}: {}", run.stdout);
        assert_eq!(sandbox.ids(&[]), ids, "{arguments:?}");
    }
}

#[test]
fn r49_a_group_is_never_emptied_unasked() {
    let (sandbox, ids) = with_days(2);
    let policy = ["forget", "--keep-tag", "no-such-tag"];
    let run = sandbox.run(&policy).expect(1);
    assert!(run.stderr.contains("nothing was forgotten"), "{}", run.stderr);
    assert_eq!(sandbox.ids(&[]), ids);
    sandbox.run(&["forget", "--keep-tag", "no-such-tag", "--allow-empty-group"]).expect(0);
    assert!(sandbox.ids(&[]).is_empty());
    let restored: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut arguments = vec!["undelete"];
    arguments.extend(&restored);
    sandbox.run(&arguments).expect(0);
    assert_eq!(sandbox.ids(&[]), ids);
}

#[test]
fn policies_keep_with_reasons() {
    let (sandbox, ids) = with_days(5);
    let dry = sandbox.run(&["forget", "--keep-daily", "2", "-n"]).expect(0);
    assert!(dry.stdout.contains("would forget 3 snapshots"), "{}", dry.stdout);
    assert!(dry.stdout.contains("daily"), "{}", dry.stdout);
    assert_eq!(sandbox.ids(&[]), ids);
    let run = sandbox.run(&["--json", "forget", "--keep-daily", "2"]).expect(0);
    let decisions = run.messages("decision");
    assert_eq!(decisions.len(), 5);
    let kept = decisions.iter().filter(|decision| decision["keep"] == true);
    assert!(kept.clone().count() == 2 && kept.clone().all(|d| d["reasons"][0] == "daily snapshot"));
    assert_eq!(run.message("summary")["forgotten"].as_array().unwrap().len(), 3);
    assert_eq!(sandbox.ids(&[]), ids[3..]);
    assert_eq!(sandbox.ids(&["--all"]), ids);
}

#[test]
fn hidden_snapshots_come_back_and_forgotten_ones_do_not() {
    let (sandbox, ids) = with_days(3);
    let run = sandbox.run(&["forget", &ids[0]]).expect(0);
    assert!(run.stdout.contains("undelete"), "{}", run.stdout);
    let run = sandbox.run(&["ls", &ids[0]]).expect(1);
    assert!(run.stderr.contains("undelete"), "{}", run.stderr);
    sandbox.run(&["undelete", &ids[0][..12]]).expect(0);
    sandbox.run(&["ls", &ids[0]]).expect(0);
    let run = sandbox.run(&["undelete", &ids[0]]).expect(3);
    assert!(run.stderr.contains("not hidden"), "{}", run.stderr);
    sandbox.run(&["forget", "--final", &ids[0]]).expect(0);
    sandbox.run(&["undelete", &ids[0]]).expect(1);
    assert_eq!(sandbox.ids(&["--all"]), ids[1..]);
    // What is hidden can still be forgotten for good.
    sandbox.run(&["forget", &ids[1]]).expect(0);
    sandbox.run(&["forget", "--final", &ids[1]]).expect(0);
    assert_eq!(sandbox.ids(&["--all"]), ids[2..]);
}

#[test]
fn a_snapshot_on_hold_stays() {
    let sandbox = Sandbox::with_source();
    let held = sandbox.backup(&["--hold", "--time", "2026-01-01 00:00:00"]);
    let other = sandbox.backup(&[]);
    sandbox.run(&["forget", &held]).expect(1);
    sandbox.run(&["forget", "--keep-last", "1"]).expect(0);
    assert_eq!(sandbox.ids(&[]), [held, other]);
}
