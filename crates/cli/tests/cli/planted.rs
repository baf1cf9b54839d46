//! A table of attacks without the key: something planted under every kind of name that a store has.
//!
//! Whoever can write to a store can stop it; but no snapshot is lost, nothing wrong is restored, a
//! command that stops names what is in its way, and all is well once that is gone.

use crate::support::{Run, Sandbox, holds};
use std::fs;

const ID: &str = "ffffffffffffffffffffffffffffffff";

/// Names as a store would give them.
fn names() -> Vec<String> {
    let with_id = ["outcomes", "tombstones", "fates", "plans", "damage", "doubts", "index", "keys"];
    let with_id = with_id.into_iter().chain(["checkpoints"]);
    let mut names: Vec<String> = with_id.map(|top| format!("{top}/{ID}")).collect();
    names.extend(["epochs", "sweeps", "finished"].map(|top| format!("{top}/2")));
    names.extend(["epochs/18446744073709551615", "sweeps/9", "finished/9"].map(str::to_owned));
    names.extend([
        format!("marks/{ID}.{ID}"),
        format!("sessions/{ID}/announced"),
        format!("sessions/{ID}/ready-18446744073709551615"),
        format!("containers/ff/{ID}"),
        format!("metadata/{ID}"),
        format!("keys/{ID}.copy"),
        format!("keys/{ID}.removed.{ID}"),
        format!("changes/{ID}.1"),
        format!("changes/{ID}.18446744073709551615"),
        format!("changes/{ID}.{ID}"),
        format!("changes/{ID}"),
        "unheard-of/name".to_owned(),
    ]);
    let copies = ["outcomes", "tombstones", "fates"].map(|top| format!("copies/{top}/{ID}"));
    names.extend(copies);
    names.extend(["copies/epochs/2", "copies/sweeps/2"].map(str::to_owned));
    names.push(format!("copies/changes/{ID}.2"));
    names.extend(["generations/2", "generations/4294967295"].map(str::to_owned));
    names.extend(["copies/generations/2", "copies/generations/9"].map(str::to_owned));
    names
}

/// Whether a run went well, or stopped and named the planted file.
fn is_answered(run: &Run, name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let what = last.split('.').next().unwrap_or(last);
    let said = [run.stdout.as_str(), run.stderr.as_str()].concat();
    let is_named = said.contains(what) || said.contains(&what[..what.len().min(8)]);
    run.code == 0 || (matches!(run.code, 1 | 3) && is_named && !said.contains("panicked"))
}

#[test]
fn r75_whatever_is_planted_loses_nothing_and_is_named() {
    let sandbox = Sandbox::with_encrypted_store();
    let (source, target) = (sandbox.arg("source"), sandbox.arg("out"));
    let first = sandbox.backup(&[]);
    sandbox.write("source/one.txt", b"another secret\n");
    sandbox.backup(&[]);
    sandbox.run(&["forget", &first, "--final"]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    let mut stopped = Vec::new();
    for (number, name) in names().iter().enumerate() {
        // Either is nothing that a holder of the key wrote.
        let content = if number % 2 == 0 { &b""[..] } else { &[0x5a; 80] };
        let place = format!("store/{name}");
        sandbox.write(&place, content);
        sandbox.write("source/number", number.to_string().as_bytes());
        let commands: [&[&str]; 5] = [
            &["snapshots"],
            &["restore", "latest", "--target", &target],
            &["backup", &source],
            &["gc", "--space-goal", "all", "--wait", "0s"],
            &["check"],
        ];
        for arguments in commands {
            let run = sandbox.run(arguments);
            assert!(
                is_answered(&run, name),
                "{name} ({} bytes): {}: {}\n{}{}",
                content.len(),
                arguments[0],
                run.code,
                run.stdout,
                run.stderr
            );
            if arguments[0] == "restore" {
                assert_eq!(run.code, 0, "{name}: {}", run.stderr);
                let restored = sandbox.path(&format!("out{source}/one.txt"));
                let elsewhere = sandbox.path("out/source/one.txt");
                let text = b"another secret\n";
                assert!(holds(&restored, text) || holds(&elsewhere, text), "{name}");
            }
            if run.code != 0 {
                stopped.push(format!("{} by {name}", arguments[0]));
            }
        }
        let _ = fs::remove_file(sandbox.path(&place));
        sandbox.run(&["forget", "--keep-last", "1", "--final"]).expect(0);
        sandbox.run(&["gc", "--space-goal", "all", "--wait", "0s"]).expect(0);
        sandbox.run(&["check", "--read-data"]).expect(0);
    }
    // Listings, restores and backups go on whatever is planted.
    let basic =
        |line: &&String| ["snapshots", "restore", "backup"].iter().any(|it| line.starts_with(it));
    assert_eq!(stopped.iter().find(basic), None, "{stopped:#?}");
}

#[test]
fn r75_a_directory_in_the_place_of_a_decision_is_named_and_so_is_the_remedy() {
    let sandbox = Sandbox::with_encrypted_store();
    let id = sandbox.backup(&[]);
    let planted = [
        (format!("changes/{id}.1"), &["hold", "latest"]),
        (format!("tombstones/{id}"), &["forget", "--final"]),
    ];
    for (name, arguments) in &planted {
        let place = sandbox.path("store").join(name);
        fs::create_dir_all(&place).unwrap();
        let run = sandbox.run(&["check"]).expect(1);
        assert!(run.stdout.contains(name) && run.stdout.contains("removed"), "{}", run.stdout);
        let mut arguments = arguments.to_vec();
        if arguments[0] == "forget" {
            arguments.push(&id);
        }
        let run = sandbox.run(&arguments).expect(1);
        assert!(run.stderr.contains(name) && run.stderr.contains("removed"), "{}", run.stderr);
        fs::remove_dir(place).unwrap();
        if arguments[0] == "hold" {
            sandbox.run(&["check"]).expect(0);
            sandbox.run(&arguments).expect(0);
            sandbox.run(&["release", "latest"]).expect(0);
        }
    }
    sandbox.run(&["forget", "--final", &id]).expect(0);
    sandbox.run(&["gc"]).expect(0);
    sandbox.run(&["check"]).expect(0);
}

#[test]
fn r88_a_second_copy_that_cannot_be_stored_is_told() {
    let sandbox = Sandbox::with_encrypted_store();
    let id = sandbox.backup(&[]);
    let name = format!("copies/changes/{id}.1");
    fs::create_dir_all(sandbox.path("store").join(&name)).unwrap();
    let run = sandbox.run(&["hold", "latest"]).expect(0);
    assert!(run.stderr.contains("second copy") && run.stderr.contains(&name), "{}", run.stderr);
    assert_eq!(sandbox.run(&["--json", "snapshots"]).message("snapshot")["hold"], true);
    fs::remove_dir(sandbox.path("store").join(&name)).unwrap();
    // What the message says: a check stores it.
    let run = sandbox.run(&["check"]).expect(0);
    assert!(run.stdout.contains("two again"), "{}", run.stdout);
    assert!(sandbox.path("store").join(&name).is_file());
}
