//! A store in a directory of another machine, reached by ssh: what a local one does, it does.

use crate::collecting::random_bytes;
use crate::support::{Run, Sandbox};
use onefold_remote::sftp_server::{self, Sshd};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

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

/// A script in the place of ssh.
fn script(sandbox: &Sandbox, name: &str, lines: &str) -> String {
    sandbox.write(name, format!("#!/bin/sh\n{lines}\n").as_bytes());
    let path = sandbox.path(name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("'{}'", path.display())
}

/// A program that leads to the server may end by itself, and is ended if it does not, half a second
/// after nobody talks to it any more.
#[test]
fn what_leads_to_a_server_is_waited_for_a_moment_and_no_longer() {
    let Some(server) = sftp_server::find() else { return };
    let sandbox = Sandbox::empty();
    let store = format!("sftp://anywhere{}", sandbox.arg("far"));
    let with = |by: &str| ["-r", &store, "--sftp-command", by].map(str::to_owned);
    let run = |by: &str, arguments: &[&str]| {
        let words = with(by);
        let all: Vec<&str> = words.iter().map(String::as_str).chain(arguments.to_vec()).collect();
        let began = Instant::now();
        (sandbox.run(&all), began.elapsed())
    };
    let (ended, pid) = (sandbox.arg("ended"), sandbox.arg("pid"));
    let slow = script(&sandbox, "slow", &format!("{server}\nsleep 0.2\necho > '{ended}'"));
    run(&slow, &INIT).0.expect(0);
    assert!(sandbox.path("ended").exists(), "it was not left to end by itself");
    let stays = format!("echo $$ > '{pid}'\n{server}\nexec sleep 600");
    let (done, took) = run(&script(&sandbox, "stays", &stays), &["snapshots"]);
    done.expect(0);
    assert!(took < Duration::from_secs(60), "{took:?}");
    let pid = fs::read_to_string(sandbox.path("pid")).unwrap();
    assert!(!PathBuf::from("/proc").join(pid.trim()).exists(), "it is still there");
}

/// Where there is no connection the program is heard for two seconds: it may say why. What it says
/// later is not waited for, nor its end.
#[test]
fn the_last_words_of_what_leads_nowhere_are_heard_and_not_waited_for_for_ever() {
    let sandbox = Sandbox::empty();
    let leads = |name: &str, then: &str| script(&sandbox, name, &format!("exec <&- >&-\n{then}"));
    let all = [
        (leads("soon", "sleep 1\necho my own reason >&2"), true),
        (leads("late", "sleep 4\necho my own reason >&2"), false),
        (leads("stays", "echo my own reason >&2\nexec sleep 600"), true),
    ];
    thread::scope(|scope| {
        for (by, is_heard) in &all {
            scope.spawn(|| {
                let began = Instant::now();
                let place = ["-r", "sftp://anywhere/x", "--sftp-command", by, "snapshots"];
                let run = sandbox.run(&place).expect(13);
                assert_eq!(run.stderr.contains("my own reason"), *is_heard, "{}", run.stderr);
                assert!(began.elapsed() < Duration::from_secs(90), "{:?}", began.elapsed());
            });
        }
    });
}

/// A server that denies deleting and renaming, as the documents have it, is enough for a client.
#[test]
fn r158_a_login_that_may_not_delete_saves_and_restores() {
    let documents = include_str!("../../../../docs/CONFIG.md");
    let (_, denied) = documents.split_once("ForceCommand internal-sftp -P ").unwrap();
    let denied = denied.split_whitespace().next().unwrap();
    let Some(server) = sftp_server::find() else { return };
    let sandbox = Sandbox::empty();
    fs::create_dir(sandbox.path("far")).unwrap();
    let store = format!("sftp://anywhere{}", sandbox.path("far/store").display());
    let by = format!("{server} -P {denied}");
    let run = |arguments: &[&str]| {
        let usual = ["-r", &store, "--sftp-command", &by];
        sandbox.run(&[&usual[..], arguments].concat())
    };
    run(&INIT).expect(0);
    // More than there may be runs of the index, which are merged then.
    for version in 0..20_u8 {
        sandbox.write("source/file", &random_bytes(version.into(), 50_000));
        run(&["backup", "source"]).expect(0);
    }
    run(&["restore", "latest", "--target", "restored"]).expect(0);
    let restored = fs::read(sandbox.path("restored/source/file")).unwrap();
    assert!(restored == random_bytes(19, 50_000));
    let refused = run(&["gc", "--wait", "0s"]).expect(11).stderr;
    assert!(refused.contains("does not permit it"), "{refused}");
    let here = |arguments: &[&str]| sandbox.run(&[&["-r", "far/store"], arguments].concat());
    here(&["gc", "--wait", "0s"]).expect(0);
    here(&["check", "--read-data"]).expect(0);
}
