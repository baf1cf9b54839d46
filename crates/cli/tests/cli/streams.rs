//! Standard input and commands as sources.

use crate::support::Sandbox;

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
    sandbox.run_with_input(&["backup", "--stdin"], b"").expect(0);
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
