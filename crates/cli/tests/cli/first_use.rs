//! From an empty directory to restored files.

use crate::support::{Sandbox, holds};

#[test]
fn init_backup_list_restore_check() {
    let sandbox = Sandbox::empty();
    let run = sandbox.run(&["init"]).expect(0);
    assert!(run.stdout.contains("encrypted"), "{}", run.stdout);
    sandbox.write("source/a.txt", b"alpha");
    sandbox.write("source/b/c.bin", &[7; 300_000]);
    let source = sandbox.arg("source");

    let run = sandbox.run(&["backup", &source, "--tag", "first,try"]).expect(0);
    assert!(run.stdout.contains("2 new") && run.stdout.contains("saved"), "{}", run.stdout);

    let run = sandbox.run(&["snapshots"]).expect(0);
    assert!(run.stdout.contains(&source) && run.stdout.contains("first,try"), "{}", run.stdout);

    let run = sandbox.run(&["ls", "latest"]).expect(0);
    assert!(run.stdout.contains(&format!("{source}/b/c.bin\n")), "{}", run.stdout);

    let target = sandbox.arg("out");
    let place = format!("latest:{source}");
    sandbox.run(&["restore", &place, "--target", &target, "--verify"]).expect(0);
    assert!(holds(&sandbox.path("out/a.txt"), b"alpha"));
    assert!(holds(&sandbox.path("out/b/c.bin"), &[7; 300_000]));

    let run = sandbox.run(&["check", "--read-data"]).expect(0);
    assert!(run.stdout.contains("no problems"), "{}", run.stdout);
}

#[test]
fn a_second_backup_reads_nothing_and_adds_little() {
    let sandbox = Sandbox::with_source();
    // A file that changed just now is read again, because it could change within the same tick.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let first = sandbox.backup(&[]);
    let run = sandbox.run(&["--json", "backup", &sandbox.arg("source")]).expect(0);
    let summary = run.message("summary");
    assert_eq!(summary["parent"], first.as_str());
    assert_eq!(summary["files_unchanged"], 3);
    assert_eq!(summary["bytes_read"], 0);
    let skipped = ["backup", &sandbox.arg("source"), "--skip-if-unchanged"];
    let run = sandbox.run(&skipped).expect(0);
    assert!(run.stdout.contains("no snapshot saved"), "{}", run.stdout);
    assert_eq!(sandbox.ids(&[]).len(), 2);
}

#[test]
fn a_dry_run_changes_nothing() {
    let sandbox = Sandbox::with_source();
    let run = sandbox.run(&["backup", "-n", &sandbox.arg("source")]).expect(0);
    assert!(run.stdout.contains("nothing saved"), "{}", run.stdout);
    assert!(sandbox.ids(&[]).is_empty());
    sandbox.backup(&[]);
    let target = sandbox.arg("out");
    sandbox.run(&["restore", "latest", "-n", "--target", &target]).expect(0);
    assert!(!sandbox.path("out").exists() || sandbox.path("out").read_dir().unwrap().count() == 0);
}

#[test]
fn restore_selects_overwrites_and_deletes_as_told() {
    let sandbox = Sandbox::with_source();
    sandbox.backup(&[]);
    let place = format!("latest:{}", sandbox.arg("source"));
    let target = sandbox.arg("out");
    let restore = |more: &[&str]| {
        let mut arguments = vec!["restore", &place, "--target", &target];
        arguments.extend(more);
        sandbox.run(&arguments).expect(0);
    };
    restore(&["--iinclude", "*.txt", "--exclude", "one.txt"]);
    assert!(!sandbox.path("out/one.txt").exists());
    assert!(holds(&sandbox.path("out/deep/Three.TXT"), b"three"));
    sandbox.write("out/one.txt", b"mine");
    sandbox.write("out/deep/extra", b"extra");
    restore(&["--overwrite", "never"]);
    assert!(holds(&sandbox.path("out/one.txt"), b"mine"));
    restore(&["--delete"]);
    assert!(holds(&sandbox.path("out/one.txt"), b"one\n"));
    assert!(!sandbox.path("out/deep/extra").exists());
}

#[test]
fn passwords_can_be_added_changed_and_removed() {
    let sandbox = Sandbox::empty();
    sandbox.run(&["init"]).expect(0);
    sandbox.write("second", b"second password\n");
    sandbox.write("third", b"third password");
    let second = sandbox.arg("second");
    let third = sandbox.arg("third");
    let add = ["key", "add", "--new-password-file", &second, "--label", "spare"];
    sandbox.run(&add).expect(0);
    sandbox.run(&["--password-file", &second, "snapshots"]).expect(0);
    let run = sandbox.run(&["--json", "key", "list"]).expect(0);
    let keys = run.messages("key");
    assert_eq!(keys.len(), 2);
    let current = keys.iter().find(|key| key["current"] == true).unwrap();
    let remove = ["key", "remove", current["key"].as_str().unwrap()];
    sandbox.run(&remove).expect(1);
    let change = ["--password-file", &second, "key", "passwd", "--new-password-file", &third];
    sandbox.run(&change).expect(0);
    sandbox.run(&["--password-file", &second, "snapshots"]).expect(12);
    let mut remove = vec!["--password-file", &third];
    remove.extend(["key", "remove", current["key"].as_str().unwrap()]);
    sandbox.run(&remove).expect(0);
    sandbox.run(&["snapshots"]).expect(12);
    sandbox.run(&["--password-file", &third, "snapshots"]).expect(0);
}

#[test]
fn every_chunker_and_hash_can_be_chosen() {
    for (chunker, hash) in
        [("fixed", "sha256"), ("rabin", "sha1"), ("regression", "blake3"), ("fastcdc", "blake3")]
    {
        let sandbox = Sandbox::empty().with_password(false);
        let mut arguments = vec!["init", "--encryption", "none", "--chunker", chunker];
        arguments.extend(["--hash", hash, "--chunk-size", "16KiB", "--compression", "lz4"]);
        let run = sandbox.run(&arguments).expect(0);
        assert_eq!(run.stderr.contains("SHA-1"), hash == "sha1", "{}", run.stderr);
        let config = sandbox.run(&["--json", "cat", "config"]).expect(0).message("config");
        assert_eq!(config["chunker"]["kind"], chunker);
        assert_eq!(config["chunker"]["size_avg_bytes"], 16384);
        sandbox.write("source/a", &[1; 100_000]);
        sandbox.backup(&[]);
    }
    let sandbox = Sandbox::empty();
    for wrong in [["--chunk-size", "1"], ["--chunk-max", "9GiB"], ["--compression", "zip"]] {
        sandbox.run(&["init", "--encryption", "none", wrong[0], wrong[1]]).expect(1);
        assert!(!sandbox.path("store").exists());
    }
}

#[test]
fn selective_compression_is_a_choice_of_backups_and_loses_nothing() {
    let sandbox = Sandbox::empty().with_password(false);
    let init = ["--json", "init", "--encryption", "none", "--compression", "zstd,2,selective"];
    let made = sandbox.run(&init).expect(0);
    assert_eq!(made.message("initialized")["compression"], "zstd,2");
    let noise = crate::collecting::random_bytes(1, 100_000);
    let twice = [&noise[..], &noise].concat();
    sandbox.write("source/twice", &twice);
    sandbox.write("source/text", "a line of text\n".repeat(20_000).as_bytes());
    sandbox.backup(&["--compression", "zstd,2,selective"]);
    sandbox.run(&["check", "--read-data"]).expect(0);
    let target = sandbox.arg("out");
    sandbox.run(&["restore", "latest", "--target", &target]).expect(0);
    let restored = sandbox.path("out").join(sandbox.arg("source/twice").trim_start_matches('/'));
    assert!(crate::support::holds(&restored, &twice));
}

#[test]
fn the_program_carries_the_licences_of_what_it_contains() {
    let sandbox = Sandbox::empty();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../THIRD-PARTY-LICENSES.txt");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("\nzstd-sys ") && text.contains("Permission is hereby granted"));
    let run = sandbox.run(&["version", "--licences"]).expect(0);
    assert!(run.stdout == text, "not the text of {file}:\n{}", run.stdout);
    assert_eq!(sandbox.run(&["version", "--licenses"]).expect(0).stdout, text);
    let told = sandbox.run(&["--json", "version", "--licences"]).expect(0).message("version");
    assert_eq!(told["licences"], text);
}
