//! `gc` and `maintain` as a user meets them.

use crate::support::{Sandbox, holds};
use onefold_types::environment::{Randomness, SeededRandomness};

pub fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandomness::new(seed).fill(&mut bytes);
    bytes
}

/// A store with two snapshots of different megabytes; their ids.
fn with_two() -> (Sandbox, String, String) {
    let sandbox = Sandbox::with_store();
    sandbox.write("source/data", &random_bytes(1, 1_000_000));
    let first = sandbox.backup(&[]);
    sandbox.write("source/data", &random_bytes(2, 1_000_000));
    let second = sandbox.backup(&[]);
    (sandbox, first, second)
}

fn stored_bytes(sandbox: &Sandbox) -> u64 {
    fn bytes_in(path: &std::path::Path) -> u64 {
        let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
        entries
            .map(|entry| match entry.metadata().unwrap() {
                metadata if metadata.is_dir() => bytes_in(&entry.path()),
                metadata => metadata.len(),
            })
            .sum()
    }
    bytes_in(&sandbox.path("store/containers"))
}

#[test]
fn what_is_hidden_stays_and_what_is_forgotten_for_good_goes() {
    let (sandbox, first, _) = with_two();
    sandbox.run(&["forget", &first]).expect(0);
    let hidden = sandbox.run(&["--json", "gc"]).expect(0);
    assert_eq!(hidden.message("summary")["deleted_containers"], 0);
    sandbox.run(&["forget", "--final", &first]).expect(0);

    let says_old = |command: &str| {
        sandbox.run(&[command]).expect(0).stdout.contains("at the time of the backup")
    };
    assert!(!says_old("snapshots") && !says_old("stats"));
    let before = stored_bytes(&sandbox);
    let plan = sandbox.run(&["--json", "gc", "--dry-run"]).expect(0).message("summary");
    assert_eq!(stored_bytes(&sandbox), before, "a plan changes nothing");
    let done = sandbox.run(&["--json", "gc"]).expect(0).message("summary");
    for field in ["deleted_containers", "deleted_bytes"] {
        assert_eq!(plan[field], done[field], "the run does what its plan said");
    }
    let freed = done["freed_bytes"].as_u64().unwrap();
    assert!(freed >= 1_000_000, "{done}");
    assert_eq!(stored_bytes(&sandbox), before - freed);
    assert!(says_old("snapshots") && says_old("stats"), "what restores take was moved meanwhile");

    let place = format!("latest:{}", sandbox.arg("source"));
    sandbox.run(&["restore", &place, "-t", &sandbox.arg("out")]).expect(0);
    assert!(holds(&sandbox.path("out/data"), &random_bytes(2, 1_000_000)));
    sandbox.run(&["check", "--read-data"]).expect(0);
    let again = sandbox.run(&["gc"]).expect(0);
    assert!(again.stdout.contains("nothing to collect"), "{}", again.stdout);
}

#[test]
fn hidden_snapshots_are_forgotten_for_good_after_the_time_allowed() {
    let (sandbox, first, second) = with_two();
    sandbox.run(&["forget", &first]).expect(0);
    sandbox.run(&["gc", "--forget-hidden", "1d"]).expect(0);
    sandbox.run(&["undelete", &first]).expect(0);
    sandbox.run(&["forget", &first]).expect(0);
    let run = sandbox.run(&["gc", "--forget-hidden", "0s"]).expect(0);
    assert!(run.stdout.contains("forgot 1 snapshot for good"), "{}", run.stdout);
    assert_eq!(sandbox.run(&["undelete", &first]).code, 1);
    assert_eq!(sandbox.ids(&[]), [second]);
}

#[test]
fn maintain_does_what_is_due_and_only_that() {
    let (sandbox, first, _) = with_two();
    let idle = sandbox.run(&["maintain"]).expect(0);
    assert!(idle.stdout.contains("collection: not due"), "{}", idle.stdout);
    sandbox.run(&["forget", "--final", &first]).expect(0);
    let due = sandbox.run(&["maintain", "--check-sample", "100%"]).expect(0);
    assert!(due.stdout.contains("1 snapshot forgotten since"), "{}", due.stdout);
    assert!(due.stdout.contains("freed"), "{}", due.stdout);
    let done = sandbox.run(&["maintain"]).expect(0);
    assert!(done.stdout.contains("collection: not due"), "{}", done.stdout);
}

#[test]
fn a_damaged_store_is_not_collected_and_the_damage_is_named() {
    let (sandbox, first, second) = with_two();
    sandbox.run(&["forget", "--final", &first]).expect(0);
    let containers = walk(&sandbox.path("store/containers"));
    // The newest of those without data, which are small, holds the second snapshot's tree; that of
    // the data may have been named in the same moment.
    let is_small = |path: &&std::path::PathBuf| std::fs::metadata(path).unwrap().len() < 100_000;
    let newest = containers.iter().filter(is_small).max_by_key(|path| path.file_name()).unwrap();
    std::fs::remove_file(newest).unwrap();
    let left = walk(&sandbox.path("store/containers"));
    let run = sandbox.run(&["gc"]).expect(1);
    assert!(run.stderr.contains(&second[..8]), "{}", run.stderr);
    assert!(run.stderr.contains("onefold check"), "{}", run.stderr);
    assert_eq!(walk(&sandbox.path("store/containers")), left, "nothing was deleted");
}

fn walk(path: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(walk(&entry.path())),
            false => files.push(entry.path()),
        }
    }
    files.sort();
    files
}
