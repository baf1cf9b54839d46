//! Standard input and commands as sources.

use crate::bounds::{code_within, send};
use crate::support::Sandbox;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn dumped(sandbox: &Sandbox, location: &str) -> Vec<u8> {
    sandbox.run(&["dump", location]).expect(0).stdout_bytes
}

#[test]
fn r56_different_streams_under_one_name_are_both_kept() {
    let sandbox = Sandbox::with_store();
    let first: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let second: Vec<u8> = first.iter().map(|byte| byte ^ 0x55).collect();
    for content in [&first, &second] {
        sandbox.run_with_input(&["backup", "--stdin"], content).expect(0);
    }
    assert!(dumped(&sandbox, "latest~1:/stdin") == first);
    assert!(dumped(&sandbox, "latest:/stdin") == second);
}

#[test]
fn streams_have_names_and_may_be_empty() {
    let sandbox = Sandbox::with_store();
    let arguments = ["backup", "--stdin", "--stdin-filename", "db/dump.sql"];
    sandbox.run_with_input(&arguments, b"select 1").expect(0);
    assert_eq!(dumped(&sandbox, "latest:db/dump.sql"), b"select 1");
    sandbox.run_with_input(&["backup", "--stdin", "--allow-empty"], b"").expect(0);
    assert_eq!(dumped(&sandbox, "latest:/stdin"), b"");
    let wrong = ["backup", "--stdin", "--stdin-filename", "../x"];
    sandbox.run_with_input(&wrong, b"").expect(1);
    sandbox.run(&["backup", "--stdin", "x"]).expect(1);
    sandbox.run(&["backup", "--stdin-filename", "x", &sandbox.arg("home")]).expect(1);
}

#[test]
fn the_output_of_a_command_is_saved() {
    let sandbox = Sandbox::with_store();
    let mut arguments = vec!["backup", "--stdin-filename", "numbers", "--stdin-from-command"];
    arguments.extend(["--", "sh", "-c", "printf '%s' 1 2 3"]);
    sandbox.run(&arguments).expect(0);
    assert_eq!(dumped(&sandbox, "latest:numbers"), b"123");
}

#[test]
fn a_failing_command_saves_nothing() {
    let sandbox = Sandbox::with_store();
    for command in [
        vec!["sh", "-c", "echo partial; exit 7"],
        vec!["sh", "-c", "echo partial; kill -9 $$"],
        vec!["no-such-command-anywhere"],
    ] {
        let mut arguments = vec!["backup", "--stdin-from-command", "--"];
        arguments.extend(&command);
        let run = sandbox.run(&arguments).expect(1);
        assert!(run.stderr.contains(command[0]), "{}", run.stderr);
    }
    sandbox.run(&["backup", "--stdin-from-command"]).expect(1);
    assert!(sandbox.ids(&[]).is_empty());
}

/// The numbers of the processes that a script has written down, one a line.
fn numbers(sandbox: &Sandbox, name: &str, count: usize) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(sandbox.path(name)).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() >= count && text.ends_with('\n') {
            return lines;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "only {lines:?} have started");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lives(number: &str) -> bool {
    Path::new("/proc").join(number).exists()
}

/// Starts children and children of children, which keep the pipe open.
const FAMILY: &str = "echo $$ >> family; echo hi; sleep 300 & echo $! >> family
    sh -c 'echo $$ >> family; sleep 300 & echo $! >> family; wait' &
    wait";

#[test]
fn r88_what_a_command_has_started_ends_with_an_interrupted_backup() {
    // Other signals may be ignored where tests run.
    for (signal, to_group) in [("-TERM", false), ("-TERM", true)] {
        let sandbox = Sandbox::with_store();
        let arguments = ["backup", "--stdin-from-command", "--", "sh", "-c", FAMILY];
        let mut command = sandbox.command(&arguments);
        // As a shell with job control would.
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let family = numbers(&sandbox, "family", 4);
        assert!(family.iter().all(|number| lives(number)), "{family:?}");
        match to_group {
            // As Ctrl-C at a terminal reaches all.
            true => {
                let group = format!("-{}", child.id());
                let sent = Command::new("kill").args([signal, "--", &group]).status();
                assert!(sent.unwrap().success());
            }
            false => send(signal, &child),
        }
        assert_eq!(code_within(&mut child, Duration::from_secs(5)), Some(130), "{signal}");
        let left: Vec<&String> = family.iter().filter(|number| lives(number)).collect();
        assert!(left.is_empty(), "{signal}: {left:?} of {family:?} are still there");
        assert!(sandbox.ids(&[]).is_empty());
    }
}

#[test]
fn r88_what_a_command_has_started_ends_if_it_fails_and_stays_if_it_succeeds() {
    for (code, stays) in [(0, true), (3, false)] {
        let sandbox = Sandbox::with_store();
        let script =
            format!("sleep 300 > /dev/null 2>&1 & echo $! >> family; echo hi; exit {code}");
        let arguments = ["backup", "--stdin-from-command", "--", "sh", "-c", &script];
        sandbox.run(&arguments).expect(i32::from(code != 0));
        let family = numbers(&sandbox, "family", 1);
        assert_eq!(lives(&family[0]), stays, "after code {code}");
        if stays {
            let ended = Command::new("kill").arg(&family[0]).status().unwrap();
            assert!(ended.success());
        }
    }
}

#[test]
fn r88_a_daemon_that_a_command_has_started_stays() {
    let sandbox = Sandbox::with_store();
    let script = "setsid sleep 300 > /dev/null 2>&1 & sleep 0.3; echo $! >> family; exit 3";
    let arguments = ["backup", "--stdin-from-command", "--", "sh", "-c", script];
    sandbox.run(&arguments).expect(1);
    let daemon = numbers(&sandbox, "family", 1);
    assert!(lives(&daemon[0]));
    let ended = Command::new("kill").arg(&daemon[0]).status().unwrap();
    assert!(ended.success());
}
