//! A store in a bucket, from `init` to `gc`: what a directory does, a bucket does.

use crate::support::{Run, Sandbox};
use onefold_remote::gateway::{ACCESS, Gateway, SECRET};
use std::fs;

/// A sandbox, a server, and the name of a store on it.
fn with_server() -> Option<(Sandbox, Gateway, String)> {
    let gateway = Gateway::start().unwrap()?;
    let store = gateway.store("hosts/one");
    Some((Sandbox::empty(), gateway, store))
}

fn run(sandbox: &Sandbox, store: &str, arguments: &[&str]) -> Run {
    run_with(sandbox, store, SECRET, arguments)
}

fn run_with(sandbox: &Sandbox, store: &str, secret: &str, arguments: &[&str]) -> Run {
    let mut command = sandbox.command(arguments);
    command.env("ONEFOLD_REPOSITORY", store);
    command.env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", secret);
    sandbox.run_command(command)
}

#[test]
fn a_store_in_a_bucket_does_what_one_in_a_directory_does() {
    let Some((sandbox, gateway, store)) = with_server() else { return };
    let run = |arguments: &[&str]| run(&sandbox, &store, arguments);
    assert!(run(&["snapshots"]).expect(10).stderr.contains("onefold init"));
    let made = run(&["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"]).expect(0);
    assert!(made.stdout.contains("s3://bucket/hosts/one"), "{}", made.stdout);
    run(&["init"]).expect(1);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ (at >> 7) ^ (at >> 13)) as u8).collect();
    sandbox.write("source/large", &bytes);
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
    assert!(fs::read(sandbox.path("restored/source/large")).unwrap() == bytes);
    run(&["hold", "latest"]).expect(0);
    run(&["release", "latest"]).expect(0);
    run(&["forget", "--keep-last", "1", "--final"]).expect(0);
    let before = size(&gateway);
    run(&["gc", "--wait", "0s"]).expect(0);
    assert!(size(&gateway) < before, "nothing was freed");
    run(&["check", "--read-data"]).expect(0);
    run(&["restore", "latest", "--target", "again"]).expect(0);
    assert_eq!(fs::read(sandbox.path("again/source/small")).unwrap(), b"two");
    run(&["--read-only", "backup", "source"]).expect(11);
    run(&["--read-only", "snapshots"]).expect(0);
    let told = run(&["--json", "info"]).expect(0).message("info");
    let place = &told["place"];
    assert_eq!((&told["kind"], &place["credentials"]), (&"bucket".into(), &"variables".into()));
    for trial in ["conditional_put", "ranged_reads", "lists_at_once", "deletes"] {
        assert_eq!(place[trial], "yes", "{trial}: {told}");
    }
    let untried = run(&["--json", "--read-only", "info"]).expect(0).message("info");
    assert!(untried["place"]["deletes"].is_null(), "{untried}");
    run(&["check"]).expect(0);
}

/// Bytes of all objects of the store.
fn size(gateway: &Gateway) -> u64 {
    fn below(directory: &std::path::Path) -> u64 {
        let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
        entries
            .map(|entry| match entry.file_type().unwrap().is_dir() {
                true => below(&entry.path()),
                false => entry.metadata().unwrap().len(),
            })
            .sum()
    }
    below(&gateway.directory("hosts/one"))
}

#[test]
fn wrong_credentials_and_a_server_that_is_gone_are_said_and_have_their_codes() {
    let Some((sandbox, gateway, store)) = with_server() else { return };
    let wrong = run_with(&sandbox, &store, "wrong", &["init"]).expect(11);
    assert!(wrong.stderr.contains("AWS_ACCESS_KEY_ID"), "{}", wrong.stderr);
    let elsewhere = store.replace("s3://bucket/", "s3://missing/");
    let missing = run(&sandbox, &elsewhere, &["init"]).expect(10);
    assert!(missing.stderr.contains("no such bucket"), "{}", missing.stderr);
    // A profile names a bucket as it is.
    let text = format!("[profile.far]\nrepository = '{store}'\n");
    sandbox.write("far.toml", text.as_bytes());
    let mut command = sandbox.command(&["--config", "far.toml", "--profile", "far", "snapshots"]);
    command.env_remove("ONEFOLD_REPOSITORY");
    command.env("AWS_ACCESS_KEY_ID", ACCESS).env("AWS_SECRET_ACCESS_KEY", SECRET);
    let none = sandbox.run_command(command).expect(10);
    assert!(none.stderr.contains("s3://bucket/hosts/one"), "{}", none.stderr);
    drop(gateway);
}
