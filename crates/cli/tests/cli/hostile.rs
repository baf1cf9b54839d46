//! Stores that somebody without the key can write to: what is planted in one is refused or passed
//! over, in words, and neither the data nor the machine of its owner is touched.

use crate::support::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Rewrites a text in both copies of the configuration.
fn edit_configuration(sandbox: &Sandbox, from: &str, to: &str) {
    for name in ["store/config", "store/config.copy"] {
        let path = sandbox.path(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replace(from, to)).unwrap();
    }
}

/// The store says it is not encrypted, as somebody without the key can have it say.
fn deny_encryption(sandbox: &Sandbox) {
    edit_configuration(sandbox, "aes-256-gcm", "none");
    let text = fs::read_to_string(sandbox.path("store/config")).unwrap();
    let at = text.find("\"authenticity\": \"").unwrap() + 17;
    let tag = text[at..].split('"').next().unwrap().to_owned();
    edit_configuration(sandbox, &tag, "");
}

fn files_below(path: &Path) -> u64 {
    let mut count = 0;
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        count += if entry.file_type().unwrap().is_dir() { files_below(&entry.path()) } else { 1 };
    }
    count
}

#[test]
fn r73_encryption_cannot_be_switched_off_by_whoever_can_write_to_the_store() {
    let sandbox = Sandbox::with_encrypted_store();
    let saved = sandbox.backup(&[]);
    deny_encryption(&sandbox);
    let before = files_below(&sandbox.path("store"));
    let (source, target) = (sandbox.arg("source"), sandbox.arg("out"));
    let commands: [&[&str]; 9] = [
        &["backup", &source],
        &["backup", "--dry-run", &source],
        &["snapshots"],
        &["restore", &saved, "--target", &target],
        &["check"],
        &["forget", &saved],
        &["gc"],
        &["key", "list"],
        &["stats"],
    ];
    let refused = |sandbox: &Sandbox, why: &str| {
        for arguments in commands {
            let run = sandbox.run(arguments).expect(1);
            assert!(run.stderr.contains("says that it is not encrypted"), "{}", run.stderr);
            assert!(run.stderr.contains(why), "{why}: {}", run.stderr);
        }
        assert_eq!(files_below(&sandbox.path("store")), before);
        assert!(!sandbox.path("out").exists());
    };
    refused(&sandbox, "a password is given");
    // Without a password what is remembered speaks against it; then what lies in the store does.
    let no_password = sandbox.with_password(false);
    refused(&no_password, "this machine has met an encrypted one");
    fs::remove_dir_all(no_password.path("home/.local")).unwrap();
    refused(&no_password, "there are passwords in its directory");
    // With the store as it was, all is well.
    let sandbox = no_password.with_password(true);
    edit_configuration(&sandbox, "\"none\"", "\"aes-256-gcm\"");
    let run = sandbox.run(&["snapshots"]).expect(1);
    assert!(run.stderr.contains("changed by somebody without the key"), "{}", run.stderr);
}

#[test]
fn r73_one_changed_copy_of_the_configuration_is_not_believed() {
    for changed in ["store/config", "store/config.copy"] {
        let sandbox = Sandbox::with_encrypted_store();
        let path = sandbox.path(changed);
        let sound = fs::read_to_string(&path).unwrap();
        for (from, to) in [("aes-256-gcm", "none"), ("zstd,2", "none"), ("4194304", "4194305")] {
            fs::write(&path, sound.replace(from, to)).unwrap();
            sandbox.backup(&[]);
            let run = sandbox.run(&["check"]).expect(1);
            let name = changed.trim_start_matches("store/");
            assert!(run.stdout.contains(&format!("'{name}' is not what was written")), "{from}");
            let containers = fs::read_dir(sandbox.path("store/containers")).unwrap();
            for shard in containers {
                for container in fs::read_dir(shard.unwrap().path()).unwrap() {
                    let bytes = fs::read(container.unwrap().path()).unwrap();
                    let plain = bytes.windows(8).any(|window| window == b"a secret");
                    assert!(!plain, "stored in clear");
                }
            }
        }
    }
}

#[test]
fn r73_another_store_in_place_of_the_known_one_is_told_about() {
    let sandbox = Sandbox::with_encrypted_store();
    sandbox.backup(&[]);
    // One that is not encrypted, made elsewhere, without keys.
    let other = Sandbox::with_store();
    fs::rename(sandbox.path("store"), sandbox.path("away")).unwrap();
    let copied = std::process::Command::new("cp")
        .args([
            "-a",
            other.path("store").to_str().unwrap(),
            sandbox.path("store").to_str().unwrap(),
        ])
        .status();
    assert!(copied.unwrap().success());
    let sandbox = sandbox.with_password(false);
    let run = sandbox.run(&["backup", &sandbox.arg("source")]).expect(1);
    assert!(run.stderr.contains("this machine has met an encrypted one"), "{}", run.stderr);
    // One that was made here on purpose is known.
    fs::remove_dir_all(sandbox.path("store")).unwrap();
    sandbox.run(&["init", "--encryption", "none"]).expect(0);
    assert_eq!(sandbox.run(&["backup", &sandbox.arg("source")]).expect(0).stderr, "");
    // Disks that take turns are told about once.
    let sandbox = sandbox.with_password(true);
    fs::remove_dir_all(sandbox.path("store")).unwrap();
    fs::rename(sandbox.path("away"), sandbox.path("store")).unwrap();
    assert_eq!(sandbox.run(&["snapshots"]).expect(0).stderr, "", "it was met before");
    fs::remove_dir_all(sandbox.path("home/.local")).unwrap();
    sandbox.run(&["snapshots"]).expect(0);
    fs::rename(sandbox.path("store"), sandbox.path("away")).unwrap();
    let elsewhere = Sandbox::with_encrypted_store();
    fs::rename(elsewhere.path("store"), sandbox.path("store")).unwrap();
    let run = sandbox.run(&["snapshots"]).expect(0);
    assert!(run.stderr.contains("has not met there before"), "{}", run.stderr);
    assert_eq!(sandbox.run(&["snapshots"]).expect(0).stderr, "");
}

#[test]
fn r74_links_in_a_store_lead_no_command_out_of_it() {
    for (password, code) in [("wrong", 12), (PASSWORD, 1)] {
        let sandbox = Sandbox::with_encrypted_store();
        sandbox.backup(&[]);
        for name in ["passwd", "shadow", "0123456789abcdef0123456789abcdef"] {
            sandbox.write(&format!("victim/{name}"), b"somebody's");
        }
        let (store, victim) = (sandbox.path("store"), sandbox.path("victim"));
        fs::remove_dir_all(store.join("tmp")).unwrap();
        symlink(&victim, store.join("tmp")).unwrap();
        fs::remove_file(store.join("reserve")).unwrap();
        symlink(victim.join("passwd"), store.join("reserve")).unwrap();
        let source = sandbox.arg("source");
        let commands: [&[&str]; 4] =
            [&["backup", &source], &["undelete", "latest"], &["gc"], &["forget", "latest"]];
        for arguments in commands {
            let mut command = sandbox.command(arguments);
            command.env("ONEFOLD_PASSWORD", password);
            let run = sandbox.run_command(command);
            if arguments[0] == "backup" {
                assert_eq!(run.code, code, "{}", run.stderr);
            }
        }
        assert_eq!(files_below(&victim), 3, "nothing is made or removed there");
        for name in ["passwd", "shadow"] {
            assert!(holds(&victim.join(name), b"somebody's"), "{name}");
        }
    }
}
