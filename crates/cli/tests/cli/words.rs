//! What is said of single files: not read, changed while they were read, read again (R103).

use crate::mounted::succeeds;
use crate::readable::run_beside_lease;
use crate::sharing_users::{NOBODY, can_change_rights, run_as};
use crate::support::{Run, Sandbox};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

#[test]
fn r103_what_may_not_be_read_is_told_so() {
    if !can_change_rights() {
        return;
    }
    let sandbox = Sandbox::with_source();
    let succeeds = |arguments: &[&str]| {
        std::process::Command::new("chown").args(arguments).status().unwrap().success()
    };
    assert!(succeeds(&["-R", "65534:65534", &sandbox.arg("")]));
    let mode = |name: &str, mode| {
        fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("source/one.txt", 0o000);
    let run = run_as(&sandbox, &NOBODY, &["backup", &sandbox.arg("source")]).expect(3);
    assert!(run.stderr.contains("it could not be read: Permission denied"), "{}", run.stderr);
    assert!(!run.stderr.contains("stub"), "{}", run.stderr);
    assert!(run.stdout.contains("1 item could not be read"), "{}", run.stdout);
    // The snapshot is partial, and a whole one is not.
    mode("source/one.txt", 0o600);
    run_as(&sandbox, &NOBODY, &["backup", &sandbox.arg("source")]).expect(0);
    let listed = sandbox.run(&["snapshots"]).expect(0).stdout;
    let marked = listed.lines().filter(|line| line.contains("(partial)"));
    assert_eq!(marked.count(), 1, "{listed}");
    let messages = sandbox.run(&["--json", "snapshots"]).expect(0).messages("snapshot");
    let partial: Vec<bool> = messages.iter().filter_map(|line| line["partial"].as_bool()).collect();
    assert_eq!(partial, [true, false]);
}

#[test]
fn r103_a_file_that_grows_while_it_is_read_is_saved_and_no_error() {
    let sandbox = Sandbox::with_source();
    // More than is at hand when it has been read.
    let log: Vec<u8> = (0..1u32 << 20).flat_map(u32::to_le_bytes).collect();
    sandbox.write("source/log", &log);
    // The others are settled when they are read, and count as unchanged next time.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let grow = |mut file: &fs::File| file.write_all(b"line\n").unwrap();
    let arguments = ["backup", &sandbox.arg("source")];
    let run = run_beside_lease(&sandbox, "source/log", &arguments, &grow).expect(0);
    let told = "source/log: it changed while it was read; what was read is saved";
    assert!(run.stderr.contains("warning:") && run.stderr.contains(told), "{}", run.stderr);
    assert!(!run.stderr.contains("error:") && !run.stdout.contains("could not"), "{}", run.stdout);
    let counted = "1 file changed while it was read; what was read is saved";
    assert!(run.stdout.contains(counted), "{}", run.stdout);
    let saved = sandbox.run(&["dump", &format!("latest:{}", sandbox.arg("source/log"))]);
    assert!(saved.expect(0).stdout_bytes.ends_with(b"line\n"));
    let message = sandbox.run(&["--json", "snapshots"]).expect(0).message("snapshot");
    assert_eq!(message["partial"], false);
    // The next backup does not take it for unchanged.
    let run = sandbox.run(&["--json", "backup", &sandbox.arg("source")]).expect(0);
    let summary = run.message("summary");
    assert_eq!((&summary["files_changed"], &summary["changed_while_read"]), (&1.into(), &0.into()));
}

#[test]
fn r103_a_small_file_that_changes_is_read_again() {
    let sandbox = Sandbox::with_source();
    let grow = |mut file: &fs::File| file.write_all(b"two\n").unwrap();
    let arguments = ["backup", "-v", &sandbox.arg("source")];
    let run = run_beside_lease(&sandbox, "source/one.txt", &arguments, &grow).expect(0);
    assert!(run.stdout.contains("read again"), "{}", run.stdout);
    assert!(!run.stderr.contains("changed"), "{}", run.stderr);
    let saved = sandbox.run(&["dump", &format!("latest:{}", sandbox.arg("source/one.txt"))]);
    assert_eq!(saved.expect(0).stdout, "one\ntwo\n");
    sandbox.run(&["check", "--read-data"]).expect(0);
}

#[test]
fn r103_a_file_that_the_kernel_makes_up_has_no_size_and_does_not_change() {
    let sandbox = Sandbox::with_store();
    let file = "/proc/sys/kernel/ostype";
    let run = sandbox.run(&["backup", file]).expect(0);
    assert!(!run.stderr.contains("changed"), "{}", run.stderr);
    let saved = sandbox.run(&["dump", &format!("latest:{file}")]).expect(0);
    assert_eq!(saved.stdout, "Linux\n");
}

#[test]
fn r103_a_snapshot_of_many_paths_takes_few_lines() {
    let sandbox = Sandbox::with_store();
    let names: Vec<String> = (0..200).map(|number| format!("source/{number}")).collect();
    names.iter().for_each(|name| sandbox.write(name, b"x"));
    sandbox.write("list", names.join("\n").as_bytes());
    sandbox.run(&["backup", "--files-from", &sandbox.arg("list")]).expect(0);
    let listed = sandbox.run(&["snapshots"]).expect(0).stdout;
    assert!(listed.lines().count() < 20 && listed.contains("and 190 more"), "{listed}");
    let message = sandbox.run(&["--json", "snapshots"]).expect(0).message("snapshot");
    assert_eq!(message["paths"].as_array().map(Vec::len), Some(200));
}

#[test]
fn r145_what_is_made_of_a_partial_snapshot_is_partial_and_taking_it_out_says_so() {
    if !can_change_rights() {
        return;
    }
    let sandbox = Sandbox::with_source();
    let run = |arguments: &[&str]| run_as(&sandbox, &NOBODY, arguments);
    assert!(succeeds("chown", &["-R", "65534:65534", &sandbox.arg("")]));
    let one = sandbox.path("source/one.txt");
    fs::set_permissions(&one, fs::Permissions::from_mode(0o000)).unwrap();
    run(&["backup", &sandbox.arg("source")]).expect(3);
    run(&["copy-snapshot", "latest"]).expect(0);
    run(&["synthesize", "latest", "latest~1:/=/"]).expect(0);
    let messages = run(&["--json", "snapshots"]).expect(0).messages("snapshot");
    let partial: Vec<bool> = messages.iter().filter_map(|line| line["partial"].as_bool()).collect();
    assert_eq!(partial, [true; 3]);
    let told = |run: Run| {
        run.stderr.matches("some of the source could not be read when it was saved").count()
    };
    let [all, two] = ["source", "source/deep/two.txt"].map(|it| sandbox.arg(it));
    let (all, two) = (format!("latest:{all}"), format!("latest:{two}"));
    let restore = ["restore", &all, "--target", &sandbox.arg("out")];
    assert_eq!([&restore[..], &["dump", &two]].map(|it| told(run(it).expect(0))), [1, 1]);
    fs::set_permissions(&one, fs::Permissions::from_mode(0o600)).unwrap();
    run(&["backup", &sandbox.arg("source")]).expect(0);
    let restore = ["restore", &all, "--target", &sandbox.arg("whole")];
    assert_eq!([&restore[..], &["dump", &two]].map(|it| told(run(it).expect(0))), [0, 0]);
}

#[test]
fn r155_a_machine_without_a_place_to_remember_is_told_that_it_reads_all_files() {
    let sandbox = Sandbox::with_source();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let backup = |has_home: bool| {
        let mut command = sandbox.command(&["--json", "backup", &sandbox.arg("source")]);
        if !has_home {
            command.env_remove("HOME");
        }
        let run = sandbox.run_command(command).expect(0);
        let unchanged = run.message("summary")["files_unchanged"].as_u64().unwrap();
        (unchanged > 0, run.stderr.contains("ONEFOLD_STATE_DIR"))
    };
    let runs = [backup(true), backup(true), backup(false), backup(true)];
    assert_eq!(runs, [(false, false), (true, false), (false, true), (true, false)]);
}
