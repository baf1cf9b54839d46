//! What a check says of damage, and how samples go round.

use crate::support::Sandbox;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The containers of the store.
fn containers(sandbox: &Sandbox) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![sandbox.path("store/containers")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => directories.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn r87_a_check_has_a_true_verdict_for_each_snapshot() {
    let sandbox = Sandbox::with_store();
    // More damaged paths than are listed, in two snapshots; a third one stays whole.
    for number in 0..700 {
        // So much that does not compress that the container of data is the largest.
        let parts =
            (0..16).map(|part| *blake3::hash(format!("{number} {part}").as_bytes()).as_bytes());
        sandbox.write(&format!("source/small/{number}"), &parts.collect::<Vec<_>>().concat());
    }
    let first = sandbox.backup(&[]);
    let held = containers(&sandbox);
    sandbox.write("source/more", b"more");
    let second = sandbox.backup(&[]);
    std::fs::remove_dir_all(sandbox.path("source")).unwrap();
    sandbox.write("source/other", b"nothing of the others");
    let third = sandbox.backup(&["--force"]);
    // The file data lies in the first backup's containers, the nodes of the second elsewhere.
    let largest = held.iter().max_by_key(|path| path.metadata().unwrap().size()).unwrap();
    std::fs::remove_file(largest).unwrap();
    let run = sandbox.run(&["--json", "check", "--no-quarantine"]).expect(1);
    let verdicts = run.messages("verdict");
    assert_eq!(run.lines()[0]["message_type"], "verdict");
    let of = |id: &str| verdicts.iter().find(|it| it["snapshot"] == id).unwrap().clone();
    assert_eq!((&of(&third)["whole"], &of(&third)["damaged_paths"]), (&true.into(), &0.into()));
    let (in_first, in_second) =
        (of(&first)["damaged_paths"].clone(), of(&second)["damaged_paths"].clone());
    assert!(in_first.as_u64().unwrap() >= 1 && in_second.as_u64().unwrap() >= 1, "{verdicts:?}");
    let sum = in_first.as_u64().unwrap() + in_second.as_u64().unwrap();
    assert_eq!(run.message("summary")["damaged_paths"], sum);
    let told = sandbox.run(&["check", "--no-quarantine"]).expect(1).stdout;
    assert!(told.starts_with("snapshot "), "{told}");
    assert!(told.contains(&format!("snapshot {}: whole", &third[..8])), "{told}");
}

#[test]
fn r87_samples_read_something_and_go_round() {
    let sandbox = Sandbox::with_source();
    for number in 0..5 {
        sandbox.write("source/one.txt", format!("content {number}").as_bytes());
        sandbox.backup(&[]);
    }
    let count = containers(&sandbox).len();
    assert!(count >= 5);
    let notes = || {
        let cache = sandbox.path("home/.cache/onefold");
        let mut files = std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
        let path = files.find(|path| path.extension().is_some_and(|it| it == "json")).unwrap();
        let bytes = std::fs::read(path).unwrap();
        let notes: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        notes["sampled_until"].as_str().unwrap().to_owned()
    };
    let mut seen = BTreeSet::new();
    for round in 0..count {
        if round % 2 == 0 {
            let run = sandbox.run(&["--json", "check", "--read-data-sample", "1%"]).expect(0);
            assert_eq!(run.message("summary")["containers_read"], 1);
        } else {
            let told = sandbox.run(&["maintain", "--check-sample", "0.1%"]).expect(0).stdout;
            assert!(told.contains("1 of them read whole"), "{told}");
        }
        seen.insert(notes());
    }
    assert_eq!(seen.len(), count);
}
