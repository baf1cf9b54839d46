//! Every documented exit code.

use crate::bounds::{send, until_there_is};
use crate::support::Sandbox;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn usage_errors_are_failures() {
    let sandbox = Sandbox::empty();
    for arguments in [
        vec!["nonsense"],
        vec!["backup", "--unknown"],
        vec![],
        vec!["--threads", "0", "snapshots"],
        vec!["--memory", "lots", "snapshots"],
        vec!["-q", "-v", "snapshots"],
    ] {
        let run = sandbox.run(&arguments).expect(1);
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{arguments:?}");
    }
    let run = sandbox.run(&["--help"]).expect(0);
    assert!(run.stdout.contains("EXAMPLES"));
    sandbox.run(&["version"]).expect(0);
    sandbox.run(&["--version"]).expect(0);
}

#[test]
fn no_store_is_10() {
    let sandbox = Sandbox::empty();
    sandbox.write("source/a", b"a");
    let source = sandbox.arg("source");
    for arguments in [vec!["snapshots"], vec!["check"], vec!["backup", &source]] {
        let run = sandbox.run(&arguments).expect(10);
        assert!(run.stderr.contains("store"), "{}", run.stderr);
    }
    assert!(!sandbox.path("store").exists());
    std::fs::create_dir(sandbox.path("store")).unwrap();
    sandbox.run(&["snapshots"]).expect(10);
}

#[test]
fn r51_there_is_no_default_store() {
    let sandbox = Sandbox::empty();
    let mut command = sandbox.command(&["init"]);
    command.env_remove("ONEFOLD_REPOSITORY");
    let run = sandbox.run_command(command).expect(1);
    assert!(run.stderr.contains("no store is named"), "{}", run.stderr);
}

#[test]
fn a_store_that_cannot_be_written_is_11() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let source = sandbox.arg("source");
    let run = sandbox.run(&["--read-only", "backup", &source]).expect(11);
    assert!(run.stderr.contains("cannot be written"), "{}", run.stderr);
    sandbox.run(&["--read-only", "forget", "latest"]).expect(11);
    sandbox.run(&["--read-only", "snapshots"]).expect(0);
    sandbox.run(&["--read-only", "ls"]).expect(0);
    sandbox.run(&["--read-only", "check"]).expect(0);
}

#[test]
fn a_wrong_password_is_12() {
    let sandbox = Sandbox::empty();
    sandbox.run(&["init"]).expect(0);
    let mut command = sandbox.command(&["snapshots"]);
    command.env("ONEFOLD_PASSWORD", "wrong");
    let run = sandbox.run_command(command).expect(12);
    assert!(run.stderr.contains("wrong password"), "{}", run.stderr);
}

#[test]
fn without_password_and_terminal_the_ways_are_named() {
    let sandbox = Sandbox::empty();
    sandbox.run(&["init"]).expect(0);
    for arguments in [["snapshots"], ["init"]] {
        let mut command = sandbox.command(&arguments);
        command.env_remove("ONEFOLD_PASSWORD");
        if arguments == ["init"] {
            command.env("ONEFOLD_REPOSITORY", sandbox.path("other"));
        }
        let run = sandbox.run_command(command).expect(1);
        assert!(run.stderr.contains("ONEFOLD_PASSWORD_FILE"), "{}", run.stderr);
    }
    assert!(!sandbox.path("other").exists());
}

#[test]
fn an_empty_password_is_refused() {
    let sandbox = Sandbox::empty();
    let mut command = sandbox.command(&["init"]);
    command.env("ONEFOLD_PASSWORD", "");
    let run = sandbox.run_command(command).expect(1);
    assert!(run.stderr.contains("empty"), "{}", run.stderr);
    sandbox.write("empty", b"\n");
    let empty = sandbox.arg("empty");
    sandbox.run(&["init", "--password-file", &empty]).expect(1);
    assert!(!sandbox.path("store").exists());
}

#[test]
fn r130_an_empty_place_is_refused_and_nothing_is_made() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let source = sandbox.arg("source");
    let names = || {
        let entries = std::fs::read_dir(sandbox.path("")).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>()
    };
    let before = names();
    for arguments in [
        &["init", "--encryption", "none", "-r", ""][..],
        &["init", "--encryption", "none", "-r", "  "],
        &["backup", &source, "-r", " "],
        &["snapshots", "-r", ""],
        &["backup", ""],
        &["backup", "--files-from", "", &source],
        &["restore", "latest", "--target", ""],
        &["dump", "latest", "source/one.txt", "--output", ""],
        &["copy", "--from", ""],
        &["check", "--password-file", ""],
    ] {
        assert_ne!(sandbox.run(arguments).code, 0, "{arguments:?}");
    }
    for place in ["", " "] {
        let mut command = sandbox.command(&["init", "--encryption", "none"]);
        command.env("ONEFOLD_REPOSITORY", place);
        sandbox.run_command(command).expect(1);
    }
    assert_eq!(names(), before);
}

#[test]
fn a_second_init_leaves_the_store_alone() {
    let sandbox = Sandbox::with_source();
    let id = sandbox.backup(&[]);
    let run = sandbox.run(&["init", "--encryption", "none"]).expect(1);
    assert!(run.stderr.contains("not empty"), "{}", run.stderr);
    assert_eq!(sandbox.ids(&[]), [id]);
}

#[test]
fn too_little_memory_is_refused() {
    let sandbox = Sandbox::with_store();
    let run = sandbox.run(&["--memory", "10MiB", "snapshots"]).expect(1);
    assert!(run.stderr.contains("too small"), "{}", run.stderr);
    sandbox.run(&["--memory", "64MiB", "snapshots"]).expect(0);
}

#[test]
fn invalid_environment_values_are_errors() {
    let sandbox = Sandbox::with_store();
    for (name, value) in [
        ("ONEFOLD_MEMORY", "plenty"),
        ("ONEFOLD_THREADS", "-1"),
        ("ONEFOLD_PROGRESS", "sometimes"),
        ("ONEFOLD_CONFIG", "missing.toml"),
        ("ONEFOLD_PROFILE", "missing"),
        ("ONEFOLD_REPOSITORY", ""),
    ] {
        let mut command = sandbox.command(&["snapshots"]);
        command.env(name, value);
        let run = sandbox.run_command(command);
        assert_eq!(run.code, 1, "{name}={value}: {}", run.stderr);
    }
    let mut command = sandbox.command(&["snapshots"]);
    command.env("ONEFOLD_REPO", "x");
    let run = sandbox.run_command(command).expect(0);
    assert!(run.stderr.contains("ONEFOLD_REPO is not known"), "{}", run.stderr);
}

#[test]
fn an_interruption_is_130_and_saves_nothing() {
    let sandbox = Sandbox::with_store();
    let mut child = sandbox.command(&["backup", "--stdin"]).stdin(Stdio::piped()).spawn().unwrap();
    // Standard input stays open, so only the signal can end it.
    let stdin = child.stdin.take();
    std::thread::sleep(Duration::from_millis(700));
    let pid = child.id().to_string();
    let killed = std::process::Command::new("sh")
        .args(["-c", &format!("kill -TERM {pid}")])
        .status()
        .unwrap();
    assert!(killed.success());
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > Duration::from_secs(30) => {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    drop(stdin);
    assert_eq!(status.code(), Some(130));
    assert!(sandbox.ids(&[]).is_empty());
}

/// While a password is waited for there is nothing yet that could be stopped at a safe point.
#[test]
fn a_signal_before_the_store_is_open_is_130_too() {
    let sandbox = Sandbox::with_encrypted_store();
    for signal in ["-TERM", "-HUP"] {
        let waits = ["--password-command", "exec 2>&-; sleep 5; echo x"];
        let told = [&["--json"], &waits[..], &["check"]].concat();
        let mut command = sandbox.command(&told);
        for name in ["ONEFOLD_PASSWORD", "ONEFOLD_PASSWORD_FILE", "ONEFOLD_PASSWORD_COMMAND"] {
            command.env_remove(name);
        }
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        until_there_is("terminal", &child);
        std::thread::sleep(Duration::from_millis(100));
        send(signal, &child);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{signal}");
        let told: Value = serde_json::from_slice(&ended.stderr).unwrap();
        assert_eq!((&told["message_type"], &told["code"]), (&"exit_error".into(), &130.into()));
    }
}

#[test]
fn damage_found_by_check_is_1() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let mut containers = Vec::new();
    for shard in sandbox.path("store/containers").read_dir().unwrap() {
        let files = shard.unwrap().path().read_dir().unwrap();
        containers.extend(files.map(|file| file.unwrap().path()));
    }
    for path in &containers {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[40] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let run = sandbox.run(&["--json", "check", "--read-data", "--no-quarantine"]).expect(1);
    assert_eq!(run.message("summary")["clean"], false);
    assert!(!run.messages("problem").is_empty());
    let run = sandbox.run(&["check", "--read-data", "--no-quarantine"]).expect(1);
    assert!(run.stdout.contains("PROBLEMS"), "{}", run.stdout);
}

#[test]
fn a_restore_that_misses_files_is_3() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    // A file where a directory must go cannot be replaced under this rule.
    sandbox.write("out/deep", b"in the way");
    let place = format!("latest:{}", sandbox.arg("source"));
    let target = sandbox.arg("out");
    let arguments = ["restore", &place, "--target", &target, "--overwrite", "never"];
    let run = sandbox.run(&arguments);
    assert!([0, 3].contains(&run.code), "{}", run.stderr);
    assert_eq!(run.code == 3, run.stderr.contains("deep"), "{}", run.stderr);
}
