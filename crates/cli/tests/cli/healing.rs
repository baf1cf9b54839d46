//! `check --heal-from`, as a user meets it: another store with another password, what is told of
//! it, exit codes, and what is refused.

use crate::support::{Run, Sandbox};
use std::path::PathBuf;

const NAMES: [&str; 4] = ["one.txt", "large", "deep/two", "deep/three"];

/// An encrypted store with a snapshot, and its copy in a store with a password of its own.
fn copied() -> Sandbox {
    let sandbox = Sandbox::with_encrypted_store();
    let numbers = |from: u32| (from..from + 300_000).flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    sandbox.write("source/large", &numbers(0));
    sandbox.write("source/deep/two", &numbers(1 << 20));
    sandbox.write("source/deep/three", b"three");
    sandbox.backup(&[]);
    sandbox.write("other-password", b"battery staple\n");
    let kdf = ["--kdf-memory", "8MiB", "--kdf-passes", "1"];
    sandbox.run(&[&other(&sandbox)[..], &["init"], &kdf[..]].concat()).expect(0);
    let (to, file) = (sandbox.arg("second"), sandbox.arg("other-password"));
    sandbox.run(&["copy", "--to", &to, "--to-password-file", &file]).expect(0);
    sandbox
}

fn other(sandbox: &Sandbox) -> [&'static str; 4] {
    let leak = |text: String| -> &'static str { text.leak() };
    ["-r", leak(sandbox.arg("second")), "--password-file", leak(sandbox.arg("other-password"))]
}

fn containers(sandbox: &Sandbox, store: &str) -> Vec<PathBuf> {
    let directories = std::fs::read_dir(sandbox.path(store).join("containers")).unwrap();
    let inside = directories.flat_map(|at| std::fs::read_dir(at.unwrap().path()).unwrap());
    inside.map(|entry| entry.unwrap().path()).collect()
}

fn largest(sandbox: &Sandbox, store: &str) -> PathBuf {
    let size = |path: &PathBuf| path.metadata().unwrap().len();
    containers(sandbox, store).into_iter().max_by_key(size).unwrap()
}

/// Flips a bit in the middle of the data.
fn damage(path: &PathBuf) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn heal(sandbox: &Sandbox, global: &[&str], more: &[&str]) -> Run {
    let (from, file) = (sandbox.arg("second"), sandbox.arg("other-password"));
    let healing = ["check", "--heal-from", &from, "--to-password-file", &file];
    sandbox.run(&[global, &healing[..], more].concat())
}

fn assert_restores(sandbox: &Sandbox) {
    let out = sandbox.arg("out");
    sandbox.run(&["restore", "latest", "--target", &out]).expect(0);
    for name in NAMES {
        let source = sandbox.path("source").join(name);
        let restored = sandbox.path("out").join(source.strip_prefix("/").unwrap());
        assert_eq!(std::fs::read(restored).unwrap(), std::fs::read(source).unwrap(), "{name}");
    }
}

#[test]
fn a_store_is_healed_from_its_copy_and_says_so() {
    let sandbox = copied();
    let sound = heal(&sandbox, &[], &["--read-data"]).expect(0);
    assert!(sound.stdout.contains("nothing to heal"), "{}", sound.stdout);
    damage(&largest(&sandbox, "store"));
    // Without reading data nobody sees it.
    heal(&sandbox, &[], &[]).expect(0);
    sandbox.run(&["check", "--read-data", "--no-quarantine"]).expect(1);
    let before = containers(&sandbox, "second");
    let run = heal(&sandbox, &["--json"], &["--read-data"]).expect(0);
    let healing = run.message("healing");
    assert_eq!((&healing["snapshots"], &healing["items_left"]), (&1.into(), &0.into()));
    assert!(healing["items_healed"].as_u64().unwrap() >= 1, "{healing}");
    assert!(healing["chunks"].as_u64().unwrap() > 1, "{healing}");
    assert!(healing["bytes_from_copy"].as_u64().unwrap() > 0, "{healing}");
    assert!(healing["bytes_stored"].as_u64().unwrap() > 0, "{healing}");
    assert_eq!(healing["without_copy"], serde_json::json!([]));
    assert_eq!(run.messages("healed").len(), 1);
    let summary = run.message("summary");
    assert_eq!((&summary["clean"], &summary["damaged_paths"]), (&true.into(), &0.into()));
    assert!(summary["chunks_verified"].as_u64().unwrap() > 10, "{summary}");
    assert_eq!(containers(&sandbox, "second"), before);
    sandbox.run(&["check", "--read-data"]).expect(0);
    assert_restores(&sandbox);
}

#[test]
fn everything_that_is_lost_comes_back_and_is_told_in_words() {
    let sandbox = copied();
    containers(&sandbox, "store").iter().for_each(|path| std::fs::remove_file(path).unwrap());
    sandbox.run(&["check"]).expect(1);
    let run = heal(&sandbox, &["--memory", "96MiB"], &[]).expect(0);
    assert!(run.stdout.contains("healed out of '"), "{}", run.stdout);
    assert!(run.stdout.contains("1 damaged snapshot"), "{}", run.stdout);
    assert!(run.stdout.contains("no problems found"), "{}", run.stdout);
    sandbox.run(&["check", "--read-data"]).expect(0);
    assert_restores(&sandbox);
}

#[test]
fn what_the_copy_has_not_is_named_and_the_code_is_that_of_damage() {
    let sandbox = copied();
    std::fs::remove_file(largest(&sandbox, "store")).unwrap();
    let lost = largest(&sandbox, "second");
    let kept = std::fs::read(&lost).unwrap();
    damage(&lost);
    let run = heal(&sandbox, &["--json"], &[]).expect(1);
    assert!(run.message("healing")["items_left"].as_u64().unwrap() >= 1, "{}", run.stdout);
    let problems = run.messages("problem");
    let paths: Vec<&str> = problems.iter().filter_map(|it| it["path"].as_str()).collect();
    assert!(!paths.is_empty() && paths.iter().all(|at| at.contains("/source/")), "{paths:?}");
    assert_eq!(run.message("summary")["clean"], false);
    // Once the copy is whole, so is this one.
    std::fs::write(&lost, kept).unwrap();
    heal(&sandbox, &[], &[]).expect(0);
    assert_restores(&sandbox);
}

#[test]
fn the_profile_knows_the_password_of_a_store_that_it_copies_to() {
    let sandbox = copied();
    std::fs::remove_file(largest(&sandbox, "store")).unwrap();
    let untold = sandbox.run(&["check", "--heal-from", &sandbox.arg("second")]).expect(1);
    assert!(untold.stderr.contains("--to-password-file"), "{}", untold.stderr);
    assert!(untold.stderr.contains("the store to heal from"), "{}", untold.stderr);
    let target = format!(
        "[[profile.default.copy]]\nto = '{}'\npassword-file = '{}'\n",
        sandbox.arg("second"),
        sandbox.arg("other-password")
    );
    sandbox.write("config.toml", target.as_bytes());
    let config = ["--config", &sandbox.arg("config.toml")];
    let heal = ["check", "--heal-from", &sandbox.arg("second")];
    sandbox.run(&[&config[..], &heal[..]].concat()).expect(0);
    assert_restores(&sandbox);
}

#[test]
fn what_nothing_can_be_healed_from_is_refused_in_a_sentence() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let same = sandbox.run(&["check", "--heal-from", &sandbox.arg("store")]).expect(1);
    assert!(same.stderr.contains("both are store"), "{}", same.stderr);
    let nothing = sandbox.run(&["check", "--heal-from", &sandbox.arg("nothing")]).expect(10);
    assert!(nothing.stderr.contains("the store to heal from"), "{}", nothing.stderr);
    assert!(!nothing.stderr.contains("init"), "{}", nothing.stderr);
    let to = sandbox.arg("second");
    sandbox.run(&["-r", &to, "init", "--encryption", "none"]).expect(0);
    let little = ["--memory", "95MiB", "check", "--heal-from", &to];
    let little = sandbox.run(&little).expect(1);
    assert!(little.stderr.contains("at least 96 MiB"), "{}", little.stderr);
    let fixed = sandbox.run(&["--read-only", "check", "--heal-from", &to]).expect(11);
    assert!(fixed.stderr.contains("--read-only"), "{}", fixed.stderr);
    sandbox.run(&["check", "--heal-from", &to, "--no-quarantine"]).expect(1);
    sandbox.run(&["check", "--to-password-file", "x"]).expect(1);
    // No copy there: nothing is worse, and it is said.
    std::fs::remove_file(largest(&sandbox, "store")).unwrap();
    let run = sandbox.run(&["--json", "check", "--heal-from", &to]).expect(1);
    assert_eq!(run.message("healing")["without_copy"].as_array().unwrap().len(), 1);
}
