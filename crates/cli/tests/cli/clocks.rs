//! Snapshots whose dates come from clocks that were wrong (R102).

use crate::support::Sandbox;

/// What is said of a wrong clock.
const TOLD: &str = "clock was wrong";

fn parent_of_next(sandbox: &Sandbox, more: &[&str]) -> String {
    let source = sandbox.arg("source");
    let run = sandbox.run(&[&["--json", "backup", &source], more].concat()).expect(0);
    run.message("summary")["parent"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn r102_what_is_dated_before_its_forerunners_is_told_and_kept() {
    let sandbox = Sandbox::with_source();
    let first = sandbox.backup(&[]);
    sandbox.write("source/new.txt", b"new");
    let source = sandbox.arg("source");
    let run = sandbox.run(&["backup", &source, "--time", "1970-01-02 00:00:00"]).expect(0);
    assert!(run.stderr.contains("1970") && run.stderr.contains(&first[..8]), "{}", run.stderr);
    let all = sandbox.ids(&[]);
    let early = all.iter().find(|id| **id != first).unwrap();
    for command in [
        &["snapshots"][..],
        &["ls", "latest"],
        &["restore", "latest", "--target", "restored"],
        &["dump", &format!("latest:{}/one.txt", source)],
        &["forget", "--keep-last", "1", "--dry-run"],
    ] {
        let run = sandbox.run(command).expect(0);
        let is_told = run.stderr.contains(TOLD) && run.stderr.contains(&early[..8]);
        assert!(is_told, "{command:?}: {}", run.stderr);
    }
    // Who names it means it.
    assert_eq!(sandbox.run(&["ls", early]).expect(0).stderr, "");
    for policy in ["--keep-last", "--keep-daily", "--keep-monthly"] {
        let run = sandbox.run(&["forget", policy, "1"]).expect(0);
        assert!(run.stdout.contains("saved last, dated before others"), "{}", run.stdout);
        assert_eq!(sandbox.ids(&[]).len(), 2);
    }
    // It is what the next one is compared with, and then the last one no more.
    assert_eq!(parent_of_next(&sandbox, &[]), *early);
    sandbox.run(&["forget", "--keep-last", "1"]).expect(0);
    assert!(!sandbox.ids(&[]).contains(early));
}

#[test]
fn r102_what_is_dated_in_the_future_is_told() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    let run = sandbox.run(&["backup", &source, "--time", "2095-01-01 00:00:00"]).expect(0);
    assert!(run.stderr.contains("2095") && run.stderr.contains("future"), "{}", run.stderr);
    let future = sandbox.ids(&[]).remove(0);
    sandbox.write("source/new.txt", b"new");
    let run = sandbox.run(&["--json", "backup", &source]).expect(0);
    assert!(run.stderr.contains("2095") && run.stderr.contains(&future[..8]), "{}", run.stderr);
    assert_eq!(run.message("summary")["parent"], future.as_str());
    let last = run.message("summary")["snapshot"].as_str().unwrap().to_owned();
    let run = sandbox.run(&["restore", "latest", "--target", "restored"]).expect(0);
    assert!(run.stderr.contains(&future[..8]) && run.stderr.contains(&last[..8]), "{}", run.stderr);
    for command in [&["snapshots"][..], &["forget", "--keep-last", "1", "--dry-run"]] {
        let run = sandbox.run(command).expect(0);
        assert!(run.stderr.contains("dated in the future"), "{}", run.stderr);
    }
    // By the order in which they were saved, and by no date.
    sandbox.write("source/newer.txt", b"newer");
    assert_eq!(parent_of_next(&sandbox, &[]), last);
}

#[test]
fn r102_of_sound_clocks_nothing_is_said() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    // Old data may be saved with its dates, in their order.
    for time in ["2001-01-01 00:00:00", "2002-01-01 00:00:00"] {
        let run = sandbox.run(&["backup", &source, "--time", time]).expect(0);
        assert_eq!(run.stderr, "");
    }
    for command in [
        &["backup", &source][..],
        &["snapshots"],
        &["ls", "latest"],
        &["forget", "--keep-last", "1"],
    ] {
        assert_eq!(sandbox.run(command).expect(0).stderr, "", "{command:?}");
    }
    assert_eq!(sandbox.ids(&[]).len(), 1);
}
