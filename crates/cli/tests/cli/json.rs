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

/// Fields whose parts the documentation describes as a whole.
const WHOLES: [&str; 5] = ["lookups", "rewriting", "summary", "engines", "restores"];
/// Objects that are printed as they are stored.
const OBJECTS: [&str; 5] = ["config", "snapshot_record", "container", "key_slot", "node"];

/// Every field of a line, those of objects in it included.
fn fields_of(value: &serde_json::Value, into: &mut Vec<String>) {
    let parts = value.as_object().into_iter().flatten();
    for (name, part) in parts {
        into.push(name.clone());
        if !WHOLES.contains(&name.as_str()) {
            fields_of(part, into);
            part.as_array().into_iter().flatten().for_each(|one| fields_of(one, into));
        }
    }
}

/// Whether the documentation of a command's message names a field.
fn is_documented(document: &str, command: &str, message_type: &str, field: &str) -> bool {
    let quoted = |text: &str| format!("`{text}`");
    let names = |row: &str, field: &str| row.contains(&quoted(field));
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let of_type = |row: &&str| {
        let mut cells = row.split(" | ");
        let commands = cells.next().unwrap_or_default();
        cells.next().is_some_and(|cell| names(cell, message_type))
            && commands.split(['`', ' ', ',', '|']).any(|word| word == command)
    };
    let rows: Vec<&str> = rows.filter(of_type).collect();
    let as_of = [("node", "ls"), ("gc", "gc"), ("key", "key")];
    rows.iter().any(|row| {
        let through = as_of.iter().any(|(named, of)| {
            let says = row.contains(&format!("as `{named}`"))
                || row.contains(&format!("of `{named}`"))
                || row.contains(&format!("for `{named}`"));
            let others = document.lines().filter(|line| line.starts_with(&format!("| `{of}`")));
            says && others.into_iter().any(|other| names(other, field))
        });
        names(row, field) || through
    })
}

#[test]
fn every_field_that_is_printed_is_documented() {
    let document = include_str!("../../../../docs/CONFIG.md");
    let sandbox = Sandbox::with_source();
    let (source, target, file) = (sandbox.arg("source"), sandbox.arg("out"), sandbox.arg("file"));
    let inside = format!("{source}/one.txt");
    let place = format!("latest:{source}=/copy");
    let first = sandbox.backup(&[]);
    let mut missing = Vec::new();
    for arguments in [
        vec!["-r", "another", "init", "--encryption", "none"],
        vec!["backup", &source],
        vec!["copy", "--to", "another"],
        vec!["info"],
        vec!["-v", "backup", &source, "--force", "--lookup", "none"],
        vec!["snapshots"],
        vec!["ls", "-l", "latest"],
        vec!["find", "*.txt"],
        vec!["diff", &first, "latest"],
        vec!["restore", "latest", "--target", &target],
        vec!["restore", "latest", "--target", &target, "--plan"],
        vec!["dump", "latest", &inside, "--output", &file],
        vec!["copy-snapshot", "latest"],
        vec!["synthesize", &place],
        vec!["hold", "latest"],
        vec!["share", "estimate", &source],
        vec!["release", "latest"],
        vec!["forget", "--keep-last", "2", "--dry-run"],
        vec!["forget", &first],
        vec!["undelete", &first],
        vec!["forget", &first],
        vec!["stats", "--hidden"],
        vec!["forget", "--keep-last", "1", "--prune"],
        vec!["gc", "--dry-run"],
        vec!["gc"],
        vec!["maintain"],
        vec!["check", "--read-data"],
        vec!["check", "--repair-index"],
        vec!["stats"],
        vec!["version"],
    ] {
        let run = sandbox.run(&[&["--json"], arguments.as_slice()].concat()).expect(0);
        let command = if arguments[0] == "-r" { "init" } else { arguments[0] };
        let command = if command == "-v" { "backup" } else { command };
        note_missing(document, command, &run, &mut missing);
    }
    let keys = Sandbox::with_encrypted_store();
    keys.write("password", b"another\n");
    let password = keys.arg("password");
    for arguments in [
        &["key", "list"][..],
        &["key", "add", "--new-password-file", &password, "--kdf-memory", "8MiB"],
        &["key", "passwd", "--new-password-file", &password, "--kdf-memory", "8MiB"],
        &["--password-file", &password, "key", "rotate", "--remove-others"],
    ] {
        let run = keys.run(&[&["--json"], arguments].concat()).expect(0);
        note_missing(document, "key", &run, &mut missing);
    }
    missing.sort();
    missing.dedup();
    assert!(missing.is_empty(), "docs/CONFIG.md does not name: {missing:#?}");
}

fn note_missing(
    document: &str,
    command: &str,
    run: &crate::support::Run,
    missing: &mut Vec<String>,
) {
    for line in run.lines() {
        let message_type = line["message_type"].as_str().unwrap().to_owned();
        if OBJECTS.contains(&message_type.as_str()) && command == "cat" {
            continue;
        }
        let mut fields = Vec::new();
        fields_of(&line, &mut fields);
        for field in fields.iter().filter(|field| *field != "message_type") {
            if !is_documented(document, command, &message_type, field) {
                missing.push(format!("{command}: {message_type}: {field}"));
            }
        }
    }
}
