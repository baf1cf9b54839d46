//! Stores that have lost something, as a user meets them: what is said, what is refused, and the
//! way out.

use crate::collecting::random_bytes;
use crate::support::{Sandbox, holds};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The files below a directory of the store and below its second copies.
fn files_of(sandbox: &Sandbox, top: &str) -> Vec<PathBuf> {
    let below = |place: PathBuf| std::fs::read_dir(place).into_iter().flatten();
    let places = [format!("store/{top}"), format!("store/copies/{top}")];
    let entries = places.iter().flat_map(|place| below(sandbox.path(place)));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn containers(sandbox: &Sandbox) -> usize {
    let shards = std::fs::read_dir(sandbox.path("store/containers")).unwrap();
    shards.map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn r59_a_store_that_lost_its_outcomes_is_not_taken_for_an_empty_one() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let before = containers(&sandbox);
    for top in ["outcomes", "copies/outcomes"] {
        std::fs::remove_dir_all(sandbox.path("store").join(top)).unwrap();
    }
    let refused = sandbox.run(&["gc"]).expect(1);
    assert!(refused.stderr.contains("outcomes"), "{}", refused.stderr);
    sandbox.run(&["gc", "--dry-run"]).expect(1);
    sandbox.run(&["check"]).expect(1);
    sandbox.run(&["maintain"]).expect(1);
    assert_eq!(containers(&sandbox), before);
    sandbox.run(&["gc", "--allow-empty"]).expect(0);
    assert_eq!(containers(&sandbox), 0, "if the user says so");
}

/// A backup that has stored containers and waits for more.
fn running_backup(sandbox: &Sandbox) -> (Child, ChildStdin) {
    let arguments = ["backup", "--stdin", "--stdin-filename", "noise"];
    let mut child = sandbox.command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&random_bytes(1, 16 << 20)).unwrap();
    let begun = Instant::now();
    while !sandbox.path("store/containers").is_dir() || containers(sandbox) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no container was stored");
        std::thread::sleep(Duration::from_millis(20));
    }
    (child, stdin)
}

#[test]
fn r59_a_check_beside_a_first_backup_finds_no_loss() {
    let sandbox = Sandbox::with_store();
    let (mut child, stdin) = running_backup(&sandbox);
    sandbox.run(&["check", "--read-data"]).expect(0);
    drop(stdin);
    assert!(child.wait().unwrap().success());
    sandbox.run(&["check", "--read-data"]).expect(0);
}

#[test]
fn r59_a_first_backup_that_was_killed_is_no_loss() {
    let sandbox = Sandbox::with_store();
    let (mut child, _stdin) = running_backup(&sandbox);
    child.kill().unwrap();
    child.wait().unwrap();
    sandbox.run(&["check", "--read-data"]).expect(0);
    let maintained = sandbox.run(&["maintain"]).expect(0);
    assert_eq!(containers(&sandbox), 0, "nobody needs them: {}", maintained.stdout);

    // One that was told to stop says itself that it has no snapshot.
    let sandbox = Sandbox::with_store();
    let (mut child, _stdin) = running_backup(&sandbox);
    let kill = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    sandbox.run(&["check", "--read-data"]).expect(0);
    sandbox.run(&["maintain"]).expect(0);
    sandbox.run(&["gc"]).expect(0);
    assert_eq!(containers(&sandbox), 0, "nobody needs them");
}

#[test]
fn r59_a_backup_that_runs_or_was_killed_does_not_hide_a_loss() {
    for is_killed in [false, true] {
        let sandbox = Sandbox::with_source();
        let (mut child, stdin) = running_backup(&sandbox);
        if is_killed {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        sandbox.backup(&[]);
        a_loss_is_seen(&sandbox);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(stdin);
    }
}

fn a_loss_is_seen(sandbox: &Sandbox) {
    let before = containers(sandbox);
    for top in ["outcomes", "copies/outcomes"] {
        std::fs::remove_dir_all(sandbox.path("store").join(top)).unwrap();
    }
    sandbox.run(&["check"]).expect(1);
    sandbox.write("source/later", b"later");
    let warned = sandbox.run(&["backup", &sandbox.arg("source")]).expect(0);
    assert!(warned.stderr.contains("no record of any"), "{}", warned.stderr);
    sandbox.run(&["gc"]).expect(1);
    assert!(containers(sandbox) >= before);
}

fn lose_outcomes(sandbox: &Sandbox) {
    for top in ["outcomes", "copies/outcomes"] {
        std::fs::remove_dir_all(sandbox.path("store").join(top)).unwrap();
    }
}

#[test]
fn r59_a_first_backup_that_was_slow_does_not_hide_a_loss_by_being_saved() {
    let sandbox = Sandbox::with_source();
    let (mut child, stdin) = running_backup(&sandbox);
    sandbox.backup(&[]);
    let before = containers(&sandbox);
    lose_outcomes(&sandbox);
    sandbox.run(&["check"]).expect(1);
    drop(stdin);
    assert!(child.wait().unwrap().success());
    sandbox.run(&["check"]).expect(1);
    sandbox.run(&["gc", "--wait", "0s"]).expect(1);
    assert!(containers(&sandbox) >= before);
}

#[test]
fn r59_who_was_killed_does_not_hide_the_loss_of_those_who_stored_nothing_new() {
    let sandbox = Sandbox::with_source();
    let (mut child, _stdin) = running_backup(&sandbox);
    child.kill().unwrap();
    child.wait().unwrap();
    // All of it is there already.
    sandbox.write("source/noise", &random_bytes(1, 8 << 20));
    sandbox.backup(&["--rewrite", "none"]);
    lose_outcomes(&sandbox);
    sandbox.run(&["check"]).expect(1);
    sandbox.run(&["gc", "--wait", "0s"]).expect(1);
}

#[test]
fn r59_the_newest_record_is_missed_although_no_other_names_it() {
    let sandbox = Sandbox::with_source();
    let kept = sandbox.backup(&[]);
    sandbox.write("source/more", &random_bytes(2, 1_000_000));
    let newest = sandbox.backup(&[]);
    let before = containers(&sandbox);
    files_of(&sandbox, "outcomes").iter().filter(|path| path.ends_with(&newest)).for_each(|path| {
        std::fs::remove_file(path).unwrap();
    });
    let told = sandbox.run(&["check"]).expect(1).stdout;
    assert!(told.contains(&format!("forget --give-up {newest}")), "{told}");
    let refused = sandbox.run(&["gc", "--space-goal", "all"]).expect(1);
    assert!(refused.stderr.contains(&newest), "{}", refused.stderr);
    assert_eq!(containers(&sandbox), before);
    let (unknown, known) = (newest.chars().rev().collect::<String>(), kept.as_str());
    for id in [unknown.as_str(), known] {
        let refusals = [vec!["-n"], vec![]].map(|more| {
            let arguments = [vec!["forget", "--give-up", id], more].concat();
            sandbox.run(&arguments).expect(1).stderr
        });
        assert_eq!(refusals[0], refusals[1], "a dry run says what the run says");
    }
    sandbox.run(&["forget", "--give-up", &newest, "-n"]).expect(0);
    sandbox.run(&["forget", "--give-up", &newest]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    assert!(containers(&sandbox) < before);
    sandbox.run(&["check", "--read-data"]).expect(0);
    assert_eq!(sandbox.ids(&[]), [kept]);
}

#[test]
fn r59_either_copy_of_the_outcomes_is_enough() {
    for top in ["outcomes", "copies/outcomes"] {
        let sandbox = Sandbox::with_source();
        let id = sandbox.backup(&[]);
        std::fs::remove_dir_all(sandbox.path("store").join(top)).unwrap();
        assert_eq!(sandbox.ids(&[]), [id.as_str()]);
        sandbox.run(&["gc"]).expect(0);
        let noted = sandbox.run(&["check"]).expect(0);
        assert!(noted.stdout.contains("it has two again"), "{}", noted.stdout);
        let other = if top == "outcomes" { "copies/outcomes" } else { "outcomes" };
        std::fs::remove_dir_all(sandbox.path("store").join(other)).unwrap();
        assert_eq!(sandbox.ids(&[]), [id]);
    }
}

#[test]
fn r66_a_lost_record_is_recovered_or_given_up() {
    let sandbox = Sandbox::with_source();
    let lost = sandbox.backup(&[]);
    sandbox.write("source/one.txt", b"another\n");
    let kept = sandbox.backup(&[]);
    files_of(&sandbox, "outcomes").iter().filter(|path| path.ends_with(&lost)).for_each(|path| {
        flip(path);
    });
    let refused = sandbox.run(&["gc"]).expect(1);
    assert!(refused.stderr.contains("--give-up"), "{}", refused.stderr);
    let listed = sandbox.run(&["snapshots"]).expect(0);
    assert!(listed.stderr.contains(&lost), "{}", listed.stderr);

    let trees = sandbox.run(&["--json", "check"]).expect(1).messages("lost_tree");
    assert_eq!(trees.len(), 1, "{trees:?}");
    assert_eq!(trees[0]["whole"], true);
    let tree = trees[0]["tree"].as_str().unwrap();
    let recovered = sandbox.run(&["--json", "recover", tree]).expect(0).message("summary");
    let recovered = recovered["snapshot"].as_str().unwrap().to_owned();
    let place = format!("{recovered}:{}", sandbox.arg("source"));
    sandbox.run(&["restore", &place, "-t", &sandbox.arg("out")]).expect(0);
    assert!(holds(&sandbox.path("out/one.txt"), b"one\n"));
    sandbox.run(&["recover", &"0".repeat(64)]).expect(1);

    for (name, code) in [(kept.as_str(), 10), ("", 10), ("zz", 10)] {
        let refused = sandbox.run(&["forget", "--give-up", name]);
        assert!(refused.code == code || refused.code == 1, "{}", refused.stderr);
    }
    sandbox.run(&["forget", "--give-up", &lost[..8], "-n"]).expect(0);
    sandbox.run(&["gc"]).expect(1);
    sandbox.run(&["forget", "--give-up", &lost[..8]]).expect(0);
    sandbox.run(&["gc"]).expect(0);
    sandbox.run(&["snapshots"]).expect(0);
    assert_eq!(sandbox.ids(&[]).len(), 2);
}

#[test]
fn r61_forgetting_again_mends_a_rotten_tombstone() {
    let sandbox = Sandbox::with_source();
    let id = sandbox.backup(&[]);
    sandbox.run(&["forget", "--final", &id]).expect(0);
    files_of(&sandbox, "tombstones").iter().for_each(|path| flip(path));
    let listed = sandbox.run(&["snapshots"]).expect(0);
    assert!(listed.stderr.contains("forget the snapshot again"), "{}", listed.stderr);
    sandbox.run(&["check"]).expect(1);
    sandbox.run(&["forget", "--final", &id]).expect(0);
    let listed = sandbox.run(&["--json", "snapshots"]).expect(0);
    assert!(listed.messages("snapshot").is_empty());
}

#[test]
fn r60_a_container_lost_with_the_index_is_stored_again_by_the_next_backup() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    // One shard after the other, until one of data is hit; the index knows nothing of it any more.
    for shard in std::fs::read_dir(sandbox.path("store/containers")).unwrap() {
        std::fs::remove_dir_all(shard.unwrap().path()).unwrap();
    }
    std::fs::remove_dir_all(sandbox.path("store/index")).unwrap();
    let again = sandbox.backup(&[]);
    let place = format!("{again}:{}", sandbox.arg("source"));
    sandbox.run(&["restore", &place, "-t", &sandbox.arg("out")]).expect(0);
    assert!(holds(&sandbox.path("out/deep/two.txt"), &vec![b'2'; 50_000]));
}

#[test]
fn r65_a_lost_plan_stops_neither_backup_nor_gc() {
    let sandbox = Sandbox::with_source();
    let id = sandbox.backup(&[]);
    sandbox.run(&["forget", "--final", &id]).expect(0);
    sandbox.run(&["gc"]).expect(0);
    // As if it had been stopped, and its plan lost since.
    for top in ["finished", "plans"] {
        files_of(&sandbox, top).iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
    let again = sandbox.backup(&[]);
    sandbox.run(&["gc"]).expect(0);
    sandbox.run(&["check", "--read-data"]).expect(0);
    assert_eq!(sandbox.ids(&[]), [again]);
}
