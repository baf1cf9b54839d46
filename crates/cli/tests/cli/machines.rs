//! A store in a directory of another machine, reached by ssh: what a local one does, it does.

use crate::support::{Run, Sandbox};
use onefold_remote::sftp_server::{self, Sshd};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A sandbox, a server, and the name of a store on it.
fn with_server() -> Option<(Sandbox, Sshd, String)> {
    let sshd = Sshd::start().unwrap()?;
    let sandbox = Sandbox::empty();
    let store = sshd.store(&sandbox.path("far/store"));
    Some((sandbox, sshd, store))
}

fn command(sandbox: &Sandbox, sshd: &Sshd, store: &str, arguments: &[&str]) -> Command {
    let mut command = sandbox.command(arguments);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", sshd.client().display()));
    command.env("ONEFOLD_REPOSITORY", store);
    command
}

fn run(sandbox: &Sandbox, sshd: &Sshd, store: &str, arguments: &[&str]) -> Run {
    sandbox.run_command(command(sandbox, sshd, store, arguments))
}

const INIT: [&str; 5] = ["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"];

fn bytes(seed: u32) -> Vec<u8> {
    (0..3_000_000_u32).map(|at| ((at + seed) ^ (at >> 7) ^ (at >> 13)) as u8).collect()
}

#[test]
fn a_store_on_another_machine_does_what_one_in_a_directory_does() {
    let Some((sandbox, sshd, store)) = with_server() else { return };
    let run = |arguments: &[&str]| run(&sandbox, &sshd, &store, arguments);
    assert!(run(&["snapshots"]).expect(10).stderr.contains("onefold init"));
    let made = run(&INIT).expect(0);
    assert!(made.stdout.contains(&store), "{}", made.stdout);
    run(&INIT).expect(1);
    sandbox.write("source/large", &bytes(0));
    sandbox.write("source/small", b"one");
    run(&["backup", "source"]).expect(0);
    sandbox.write("source/small", b"two");
    fs::remove_file(sandbox.path("source/large")).unwrap();
    run(&["backup", "source"]).expect(0);
    let listed = run(&["--json", "snapshots"]).expect(0).messages("snapshot");
    assert_eq!(listed.len(), 2);
    run(&["check", "--read-data"]).expect(0);
    let first = listed[0]["id"].as_str().unwrap();
    run(&["restore", first, "--target", "restored"]).expect(0);
    assert!(fs::read(sandbox.path("restored/source/large")).unwrap() == bytes(0));
    run(&["hold", "latest"]).expect(0);
    run(&["release", "latest"]).expect(0);
    run(&["forget", "--keep-last", "1", "--final"]).expect(0);
    let before = size(&sandbox.path("far/store"));
    run(&["gc", "--wait", "0s"]).expect(0);
    assert!(size(&sandbox.path("far/store")) < before, "nothing was freed");
    run(&["check", "--read-data"]).expect(0);
    run(&["restore", "latest", "--target", "again"]).expect(0);
    assert_eq!(fs::read(sandbox.path("again/source/small")).unwrap(), b"two");
    run(&["--read-only", "backup", "source"]).expect(11);
    run(&["--read-only", "snapshots"]).expect(0);
    let told = run(&["--json", "info"]).expect(0).message("info");
    assert_eq!((&told["kind"], &told["place"]["hard_links"]), (&"sftp".into(), &"yes".into()));
    // It is the directory's own store, and whoever is there works with it.
    let mut near = sandbox.command(&["check", "--read-data"]);
    near.env("ONEFOLD_REPOSITORY", sandbox.path("far/store"));
    sandbox.run_command(near).expect(0);
    let left = fs::read_dir(sandbox.path("far/store/tmp")).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["first", "second"], "temporary files are left");
}

/// Bytes of all files below a directory.
fn size(directory: &std::path::Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => size(&entry.path()),
        false => entry.metadata().unwrap().len(),
    });
    sizes.sum()
}

#[test]
fn what_is_wrong_with_server_key_or_path_is_said_and_has_its_code() {
    let Some((sandbox, sshd, store)) = with_server() else { return };
    let run = |store: &str| run(&sandbox, &sshd, store, &["snapshots"]);
    let missing = run(&store).expect(10);
    assert!(missing.stderr.contains(&store), "{}", missing.stderr);
    sshd.use_key("stranger").unwrap();
    let stranger = run(&store).expect(11);
    assert!(stranger.stderr.contains("ssh-copy-id"), "{}", stranger.stderr);
    sshd.use_key("key").unwrap();
    sshd.trust("stranger.pub").unwrap();
    let unknown = run(&store).expect(11);
    assert!(unknown.stderr.contains("compare the key"), "{}", unknown.stderr);
    sshd.trust("host.pub").unwrap();
    let nowhere = run("sftp://no-such-machine.invalid/x").expect(1);
    assert!(nowhere.stderr.contains("no machine of that name"), "{}", nowhere.stderr);
    // A place where nothing can be made, and one where something is already.
    let init = |directory: &str| {
        let store = sshd.store(&PathBuf::from(directory));
        sandbox.run_command(command(&sandbox, &sshd, &store, &INIT))
    };
    let refused = init("/proc/store");
    assert!(refused.stderr.contains("making the directory"), "{}", refused.stderr);
    sandbox.write("taken/x", b"");
    let taken = init(&sandbox.arg("taken")).expect(1);
    assert!(taken.stderr.contains("is not empty"), "{}", taken.stderr);
    assert!(!sandbox.path("taken/tmp").exists());
}

/// The program that leads there may be another one, by option, variable or profile.
#[test]
fn another_command_leads_to_the_server() {
    let Some(server) = sftp_server::find() else { return };
    let sandbox = Sandbox::empty();
    let store = format!("sftp:anybody@anywhere:{}", sandbox.arg("far"));
    sandbox.write("bin/server", format!("#!/bin/sh\nexec {server} \"$@\"\n").as_bytes());
    let script = sandbox.path("bin/server");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let by = format!("'{}' -e", script.display());
    let option = ["-r", &store, "--sftp-command", &by];
    let init: Vec<&str> = option.into_iter().chain(INIT).collect();
    sandbox.run(&init).expect(0);
    let mut variable = sandbox.command(&["-r", &store, "snapshots"]);
    variable.env("ONEFOLD_SFTP_COMMAND", &by);
    sandbox.run_command(variable).expect(0);
    let text = format!("[profile.far]\nrepository = '{store}'\nsftp-command = \"{by}\"\n");
    sandbox.write("far.toml", text.as_bytes());
    let mut profile = sandbox.command(&["--config", "far.toml", "--profile", "far", "snapshots"]);
    profile.env_remove("ONEFOLD_REPOSITORY");
    sandbox.run_command(profile).expect(0);
    let open = sandbox.run(&["-r", &store, "--sftp-command", "a 'b", "snapshots"]).expect(1);
    assert!(open.stderr.contains("a quote is not closed"), "{}", open.stderr);
    // A server that lets nobody write can be read.
    let reading = format!("{server} -R");
    sandbox.run(&["-r", &store, "--sftp-command", &reading, "snapshots"]).expect(0);
    sandbox.write("source/x", b"x");
    let refused = sandbox.run(&["-r", &store, "--sftp-command", &reading, "backup", "source"]);
    let refused = refused.expect(1);
    assert!(refused.stderr.contains("lets nobody write"), "{}", refused.stderr);
    // One command for two machines would write the copy into the first one's store.
    let to = "sftp://elsewhere/x";
    let both = sandbox.run(&["-r", &store, "--sftp-command", &by, "copy", "--to", to]).expect(1);
    assert!(both.stderr.contains("two machines"), "{}", both.stderr);
}
