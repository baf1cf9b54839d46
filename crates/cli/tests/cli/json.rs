//! JSON mode: every line is an object with a type, and nothing else is printed.

use crate::support::Sandbox;

#[test]
fn every_command_prints_json_only() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    let target = sandbox.arg("out");
    let file = sandbox.arg("file");
    let inside = format!("{source}/one.txt");
    let place = format!("latest:{source}=/copy");
    for arguments in [
        vec!["backup", &source],
        vec!["-v", "backup", &source, "--force"],
        vec!["snapshots"],
        vec!["snapshots", "--group-by", "host"],
        vec!["ls", "-l", "latest"],
        vec!["find", "*.txt"],
        vec!["diff", "latest~1", "latest"],
        vec!["restore", "latest", "--target", &target],
        vec!["dump", "latest", &inside, "--output", &file],
        vec!["copy-snapshot", "latest"],
        vec!["synthesize", &place],
        vec!["hold", "latest", "--dry-run"],
        vec!["hold", "latest"],
        vec!["tag", "--add", "t", "latest"],
        vec!["describe", "latest", "a note"],
        vec!["release", "latest"],
        vec!["forget", "--keep-last", "1", "--dry-run"],
        vec!["forget", "latest"],
        vec!["check"],
        vec!["stats"],
        vec!["key", "list"],
        vec!["cat", "config"],
        vec!["cat", "snapshot", "latest"],
        vec!["version"],
    ] {
        let mut all = vec!["--json"];
        all.extend(&arguments);
        let run = sandbox.run(&all);
        assert_eq!(run.code, 0, "{arguments:?}: {}{}", run.stdout, run.stderr);
        let expects_lines = arguments[0] != "key";
        assert_eq!(!run.lines().is_empty(), expects_lines, "{arguments:?}");
        run.error_lines();
    }
}

#[test]
fn errors_are_json_too() {
    let sandbox = Sandbox::empty();
    for (arguments, code, kind) in [
        (vec!["--json", "snapshots"], 10, "no-store"),
        (vec!["nonsense", "--json"], 1, "invalid"),
        (vec!["--json", "restore", "latest"], 1, "invalid"),
        (vec!["--json", "--memory", "1", "snapshots"], 1, "invalid"),
    ] {
        let run = sandbox.run(&arguments).expect(code);
        assert!(run.stdout.is_empty(), "{}", run.stdout);
        let lines = run.error_lines();
        let last = lines.last().unwrap();
        assert_eq!(last["message_type"], "exit_error");
        assert_eq!(last["code"], code);
        assert_eq!(last["kind"], kind);
    }
}

#[test]
fn r50_missing_sources_are_listed() {
    let sandbox = Sandbox::with_source();
    let missing = sandbox.arg("missing");
    let run = sandbox.run(&["--json", "backup", &sandbox.arg("source"), &missing]).expect(3);
    assert_eq!(run.message("summary")["errors"], 1);
    let errors = run.error_lines();
    assert_eq!(errors.len(), 1, "{}", run.stderr);
    assert_eq!(errors[0]["message_type"], "error");
    assert_eq!(errors[0]["item"], missing.as_str());
}

#[test]
fn progress_lines_are_json_on_standard_error() {
    let sandbox = Sandbox::with_source();
    let source = sandbox.arg("source");
    let mut command = sandbox.command(&["--json", "backup", &source]);
    command.env("ONEFOLD_PROGRESS", "always");
    let run = sandbox.run_command(command).expect(0);
    run.message("summary");
    run.error_lines();
}
