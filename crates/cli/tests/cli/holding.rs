//! `hold`, `release`, `tag` and `describe`: what is said about snapshots after they were
//! saved (R89).

use crate::support::Sandbox;
use serde_json::{Value, json};

/// What is listed of the only snapshot that is meant.
fn listed(sandbox: &Sandbox, id: &str) -> Value {
    let run = sandbox.run(&["--json", "snapshots", "--all"]).expect(0);
    run.messages("snapshot").into_iter().find(|line| line["id"] == id).unwrap()
}

#[test]
fn r89_a_hold_is_put_on_and_released_after_the_backup() {
    let sandbox = Sandbox::with_source();
    let first = sandbox.backup(&["--hold", "--time", "2026-01-01 00:00:00"]);
    let second = sandbox.backup(&["--time", "2026-01-02 00:00:00"]);
    sandbox.backup(&[]);
    let policy = ["forget", "--keep-last", "1", "--final"];
    // Nothing is changed by a dry run, and a second time is no error.
    sandbox.run(&["hold", &second, "--dry-run"]).expect(0);
    assert_eq!(listed(&sandbox, &second)["hold"], false);
    let run = sandbox.run(&["--json", "hold", &second, &first]).expect(0);
    assert_eq!(
        run.message("summary"),
        json!({
            "message_type": "summary", "changed": [second], "dry_run": false,
        })
    );
    assert!(sandbox.run(&["hold", &second]).expect(0).stdout.contains("on hold already"));
    assert!(sandbox.run(&["snapshots"]).expect(0).stdout.matches("(hold)").count() == 2);
    sandbox.run(&policy).expect(0);
    assert_eq!(sandbox.ids(&[]).len(), 3);
    for forget in [&["forget", &second][..], &["forget", "--final", &second]] {
        let run = sandbox.run(forget).expect(1);
        assert!(run.stderr.contains("on hold"), "{}", run.stderr);
    }
    // A hidden one is held by its id, and is not forgotten for having been hidden long.
    sandbox.run(&["release", &second]).expect(0);
    sandbox.run(&["forget", &second]).expect(0);
    sandbox.run(&["hold", &second]).expect(0);
    sandbox.run(&["gc", "--forget-hidden", "0s"]).expect(0);
    sandbox.run(&["undelete", &second]).expect(0);
    assert_eq!(listed(&sandbox, &second)["hold"], true);
    let record = |id: &str| {
        sandbox.run(&["--json", "cat", "snapshot", id]).expect(0).message("snapshot_record")
    };
    // Put on hold, released, put on hold, and brought back, which says it once more.
    let last = record(&second)["last_change"].clone();
    assert_eq!(last["number"], 4);
    assert!(last["by"].is_string() && last["time"].is_string(), "{last}");
    assert_eq!(record(&first)["last_change"], Value::Null);
    let run = sandbox.run(&["--json", "release", "--host", &host(&sandbox)]).expect(0);
    assert_eq!(run.message("summary")["changed"].as_array().unwrap().len(), 2);
    sandbox.run(&policy).expect(0);
    assert_eq!(sandbox.ids(&["--all"]).len(), 1);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    sandbox.run(&["check", "--read-data"]).expect(0);
}

fn host(sandbox: &Sandbox) -> String {
    listed(sandbox, &sandbox.ids(&[])[0])["host"].as_str().unwrap().to_owned()
}

#[test]
fn r89_tags_and_descriptions_change_after_the_backup() {
    let sandbox = Sandbox::with_encrypted_store();
    let source = sandbox.arg("source");
    let first = sandbox.backup(&["--tag", "a,b", "--description", "before"]);
    sandbox.backup(&["--tag", "a"]);
    let tags = |arguments: &[&str]| {
        sandbox.run(&[&["tag"], arguments].concat()).expect(0);
        listed(&sandbox, &first)["tags"].clone()
    };
    assert_eq!(tags(&["--add", "c,a", "--remove", "b", &first]), json!(["a", "c"]));
    assert_eq!(tags(&["--set", "x", "--set", "y", &first]), json!(["x", "y"]));
    assert_eq!(sandbox.ids(&["--tag", "y"]), std::slice::from_ref(&first));
    assert_eq!(tags(&["--remove", "z", &first, "-n"]), json!(["x", "y"]));
    assert_eq!(tags(&["--set", "", &first]), json!([]));
    for wrong in [
        &["tag", &first][..],
        &["tag", "--add", " ", &first],
        &["tag", "--add", "q", "--remove", "q", &first],
        &["tag", "--add", "q", "--set", "r", &first],
        &["tag", "--add", "q"],
        &["hold"],
        &["release", "--tag", "no-such-tag"],
        &["hold", "abcdefabcdef"],
        &["describe", &first],
    ] {
        let run = sandbox.run(wrong);
        assert_eq!(run.code, 1, "{wrong:?}: {}", run.stdout);
    }
    assert_eq!(listed(&sandbox, &first)["tags"], json!([]));
    assert!(sandbox.run(&["snapshots"]).expect(0).stdout.contains("before"));
    let text = "-- the last\none\u{1b}[2J";
    sandbox.run(&["describe", &first, text]).expect(0);
    assert_eq!(listed(&sandbox, &first)["description"], text);
    let shown = sandbox.run(&["snapshots"]).expect(0).stdout;
    assert!(shown.contains("-- the last") && !shown.contains('\u{1b}'), "{shown}");
    sandbox.run(&["describe", &first, ""]).expect(0);
    assert!(!sandbox.run(&["snapshots"]).expect(0).stdout.contains("Description"));
    // Who looks at tags sees the new ones.
    sandbox.run(&["tag", "--add", "keep", &first]).expect(0);
    sandbox.run(&["backup", &source]).expect(0);
    sandbox.run(&["forget", "--keep-tag", "keep"]).expect(0);
    assert_eq!(sandbox.ids(&[]), [first]);
    sandbox.run(&["check"]).expect(0);
}

#[test]
fn r89_what_is_changed_is_selected_as_elsewhere() {
    let sandbox = Sandbox::with_source();
    let ids: Vec<String> = ["web", "web", "mail"]
        .iter()
        .enumerate()
        .map(|(day, host)| {
            let time = format!("2026-03-0{}T12:00:00Z", day + 1);
            sandbox.backup(&["--host", host, "--time", &time])
        })
        .collect();
    let changed = |arguments: &[&str]| {
        let run = sandbox.run(&[&["--json"], arguments].concat()).expect(0);
        run.message("summary")["changed"].clone()
    };
    assert_eq!(changed(&["hold", "--host", "web"]), json!(ids[..2]));
    assert_eq!(changed(&["hold", "latest"]), json!(ids[2..]));
    assert_eq!(changed(&["release", "latest", "--host", "web"]), json!(ids[1..2]));
    assert_eq!(changed(&["release", "latest~2", &ids[0][..12]]), json!(ids[..1]));
    assert_eq!(changed(&["tag", "--add", "t", "--host", "mail", "--host", "web"]), json!(ids));
    assert_eq!(changed(&["tag", "--remove", "t", "--tag", "t", "--host", "mail"]), json!(ids[2..]));
    // One that does not exist, and nothing is changed.
    sandbox.run(&["hold", &ids[0], "abcdefabcdef"]).expect(1);
    assert_eq!(listed(&sandbox, &ids[0])["hold"], false);
    sandbox.run(&["--read-only", "release", "latest"]).expect(11);
    assert_eq!(listed(&sandbox, &ids[2])["hold"], true);
    sandbox.run(&["--read-only", "release", "latest", "-n"]).expect(0);
}

#[test]
fn r89_a_changed_snapshot_is_forgotten_and_leaves_nothing() {
    let sandbox = Sandbox::with_source();
    let first = sandbox.backup(&["--time", "2026-01-01 00:00:00"]);
    sandbox.backup(&[]);
    assert!(!sandbox.path("store/changes").exists(), "no change, no directory");
    sandbox.run(&["hold", &first]).expect(0);
    sandbox.run(&["release", &first]).expect(0);
    let changes = || std::fs::read_dir(sandbox.path("store/changes")).unwrap().count();
    assert_eq!(changes(), 2);
    sandbox.run(&["forget", "--final", &first]).expect(0);
    assert_eq!(changes(), 3);
    let run = sandbox.run(&["hold", &first]).expect(1);
    assert!(run.stderr.contains("no snapshot"), "{}", run.stderr);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    assert_eq!(changes(), 0);
    sandbox.run(&["check"]).expect(0);
}

#[test]
fn r143_nothing_is_skipped_of_which_more_is_to_be_said() {
    let sandbox = Sandbox::with_source();
    // A file that changed just now is read again.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let source = sandbox.arg("source");
    let is_skipped = |more: &[&str]| {
        let arguments = [&["--json", "backup", &source, "--skip-if-unchanged"], more].concat();
        sandbox.run(&arguments).expect(0).message("summary")["snapshot"].is_null()
    };
    assert!(!is_skipped(&["--tag", "nightly,web", "--description", "first"]));
    for less in [&[][..], &["--tag", "web"], &["--description", "first"]] {
        assert!(is_skipped(less), "{less:?}");
    }
    for more in [&["--hold"], &["--tag=web,release"], &["--description=second"]] {
        assert!(!is_skipped(more), "{more:?}");
        assert!(is_skipped(more), "{more:?}");
    }
    // What is said of it in the meantime counts.
    assert!(!is_skipped(&["--hold"]));
    let id = sandbox.ids(&[]).last().unwrap().clone();
    assert_eq!(listed(&sandbox, &id)["hold"], true);
    sandbox.run(&["release", &id]).expect(0);
    assert!(!is_skipped(&["--hold"]));
}
