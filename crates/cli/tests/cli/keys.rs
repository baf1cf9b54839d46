//! Keys that are rotated, as a user does it (R90), and key files.

use crate::support::Sandbox;
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

#[test]
fn r90_keys_are_rotated_other_passwords_added_anew_and_everything_resealed() {
    let sandbox = Sandbox::with_encrypted_store();
    sandbox.write("second", b"second password\n");
    let second = sandbox.arg("second");
    let kdf = ["--kdf-memory", "8MiB", "--kdf-passes", "1"];
    let add = [&["key", "add", "--new-password-file", &second, "--label", "spare"], &kdf[..]];
    sandbox.run(&add.concat()).expect(0);
    let old = sandbox.backup(&[]);
    // What the message says is done to the letter.
    let run = sandbox.run(&["key", "rotate"]).expect(1);
    assert!(run.stderr.contains("(spare)") && run.stderr.contains("--remove-others"));
    sandbox.run(&["--password-file", &second, "snapshots"]).expect(0);
    let run = sandbox.run(&["--json", "key", "rotate", "--remove-others"]).expect(0);
    let rotated = run.message("keys_rotated");
    assert_eq!(rotated["generations"], 2);
    assert_eq!(rotated["removed"].as_array().unwrap().len(), 2);
    assert_eq!(rotated["left"].as_array().unwrap().len(), 0);
    sandbox.run(&["--password-file", &second, "snapshots"]).expect(12);
    sandbox.run(&add.concat()).expect(0);
    sandbox.run(&["--password-file", &second, "snapshots"]).expect(0);
    let keys = sandbox.run(&["--json", "key", "list"]).expect(0).messages("key");
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| key["has_newest_keys"] == true), "{keys:?}");
    // The new key costs as much to guess as the old one did.
    assert!(keys.iter().all(|key| key["kdf_memory_kib"] == 8192), "{keys:?}");

    sandbox.write("source/two.txt", &vec![7; 100_000]);
    sandbox.backup(&[]);
    let older = || {
        let run = sandbox.run(&["--json", "stats"]).expect(0);
        run.message("statistics")["containers_of_older_keys"].as_u64().unwrap()
    };
    assert!(older() > 0);
    assert!(sandbox.run(&["stats"]).expect(0).stdout.contains("sealed under older keys"));
    let plan = sandbox.run(&["--json", "gc", "--reseal", "--dry-run"]).expect(0);
    assert!(plan.message("summary")["deleted_containers"].as_u64().unwrap() >= older());
    assert!(older() > 0);
    let run = sandbox.run(&["gc", "--reseal", "--max-io", "100MiB"]).expect(0);
    assert!(run.stdout.contains("deleted") || run.stderr.contains("deleted"));
    assert_eq!(older(), 0);
    assert!(!sandbox.run(&["stats"]).expect(0).stdout.contains("older keys"));
    sandbox.run(&["check", "--read-data"]).expect(0);
    let out = sandbox.arg("out");
    sandbox.run(&["restore", &old, "--target", &out]).expect(0);
    let restored = sandbox.path("out").join(&sandbox.arg("source/one.txt")[1..]);
    assert_eq!(std::fs::read(restored).unwrap(), b"a secret\n");
}

#[test]
fn r90_a_store_without_encryption_has_no_keys_to_rotate() {
    let sandbox = Sandbox::with_store();
    let run = sandbox.run(&["key", "rotate"]).expect(1);
    assert!(run.stderr.contains("not encrypted"), "{}", run.stderr);
    sandbox.run(&["gc", "--reseal"]).expect(0);
}

#[test]
fn r90_a_backup_that_runs_beside_a_rotation_is_saved_or_told_to_start_again() {
    let sandbox = Sandbox::with_encrypted_store();
    sandbox.backup(&[]);
    let bytes: Vec<u8> = (0..4_000_000_u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let arguments = ["--json", "backup", "--stdin", "--stdin-filename", "stream"];
    // What others write under the new keys it cannot use, so it is saved only without that.
    for (is_alone, code) in [(true, 0), (false, 1)] {
        let mut child = sandbox.command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // It takes as much only if it has opened the store.
        stdin.write_all(first).unwrap();
        sandbox.run(&["key", "rotate"]).expect(0);
        if !is_alone {
            sandbox.write("source/two.txt", &vec![7; 100_000]);
            sandbox.backup(&[]);
        }
        // A program that fails early does not read its input.
        let _ = stdin.write_all(second);
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert_eq!(text.contains("keys-changed"), !is_alone, "{text}");
        sandbox.run(&["check", "--read-data"]).expect(0);
        if is_alone {
            assert!(sandbox.run(&["dump", "latest:/stream"]).expect(0).stdout_bytes == bytes);
        }
    }
    sandbox.run_with_input(&arguments, &bytes).expect(0);
    assert!(sandbox.run(&["dump", "latest:/stream"]).expect(0).stdout_bytes == bytes);
    sandbox.run(&["check", "--read-data"]).expect(0);
}

/// Opens the store by a key file and no password.
fn by_file(sandbox: &Sandbox, file: &str, arguments: &[&str]) -> crate::support::Run {
    let mut command = sandbox.command(&[&["--key-file", file], arguments].concat());
    command.env_remove("ONEFOLD_PASSWORD");
    sandbox.run_command(command)
}

#[test]
fn a_key_file_opens_the_store_in_each_way_it_can_be_named() {
    let sandbox = Sandbox::with_encrypted_store();
    let (file, link) = (sandbox.arg("backup.key"), sandbox.arg("store/own.key"));
    let add = ["key", "add", "--label", "nightly", "--generate"];
    let run = sandbox.run(&[&add[..], &[&link]].concat()).expect(1);
    assert!(run.stderr.contains("inside the store"), "{}", run.stderr);
    sandbox.run(&[&add[..], &[&file]].concat()).expect(0);
    let status = std::fs::metadata(&file).unwrap();
    assert_eq!(status.permissions().mode() & 0o777, 0o600);
    let line = std::fs::read_to_string(&file).unwrap();
    assert!(line.starts_with("onefold-key-file-1:") && line.lines().count() == 1, "{line}");
    // Another file is never made in its place.
    let run = sandbox.run(&[&add[..], &[&file]].concat()).expect(1);
    assert!(run.stderr.contains("--new-key-file"), "{}", run.stderr);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), line);

    let snapshot = by_file(&sandbox, &file, &["--json", "backup", &sandbox.arg("source")]);
    let snapshot = snapshot.expect(0).message("summary")["snapshot"].clone();
    // The file may be copied as the text that it is.
    sandbox.write("copy.key", format!("  {}\r\n", line.trim()).as_bytes());
    by_file(&sandbox, &sandbox.arg("copy.key"), &["check", "--read-data"]).expect(0);
    let profile = format!("[profile.p]\nkey-file = '{file}'\n");
    sandbox.write("config.toml", profile.as_bytes());
    let variable = |name: &str, value: &str, arguments: &[&str]| {
        let mut command = sandbox.command(arguments);
        command.env_remove("ONEFOLD_PASSWORD").env(name, value);
        sandbox.run_command(command).expect(0).stdout
    };
    let listed = variable("ONEFOLD_KEY_FILE", &file, &["--json", "snapshots"]);
    let config = sandbox.arg("config.toml");
    let again = variable("ONEFOLD_CONFIG", &config, &["--profile", "p", "--json", "snapshots"]);
    assert!(listed.contains(snapshot.as_str().unwrap()) && listed == again, "{listed}{again}");

    let keys = by_file(&sandbox, &file, &["--json", "key", "list"]).expect(0).messages("key");
    let kinds: Vec<_> = keys.iter().map(|key| (&key["kind"], &key["current"])).collect();
    assert_eq!(kinds, [(&json!("password"), &json!(false)), (&json!("key-file"), &json!(true))]);
    assert!(keys[0]["kdf_passes"] == 1 && keys[1]["kdf_passes"].is_null(), "{keys:?}");
    assert!(sandbox.run(&["key", "list"]).expect(0).stdout.contains("key file"));

    // Another store is reached by it as well, also one that is copied to.
    let mut init = sandbox.command(&["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"]);
    init.env("ONEFOLD_REPOSITORY", sandbox.path("other"));
    sandbox.run_command(init).expect(0);
    let other = sandbox.arg("other");
    sandbox.run(&["-r", &other, "key", "add", "--new-key-file", &file]).expect(0);
    by_file(&sandbox, &file, &["copy", "--to", &other, "--to-key-file", &file]).expect(0);
    by_file(&sandbox, &file, &["-r", &other, "check", "--heal-from", &sandbox.arg("store")])
        .expect(1);
    let heal = ["-r", &other, "check", "--heal-from", &sandbox.arg("store"), "--to-key-file"];
    by_file(&sandbox, &file, &[&heal[..], &[&file]].concat()).expect(0);
}

#[test]
fn what_is_no_key_file_or_not_the_right_one_is_told() {
    let sandbox = Sandbox::with_encrypted_store();
    let [file, other] = ["own.key", "other.key"].map(|name| sandbox.arg(name));
    sandbox.write("password", crate::support::PASSWORD.as_bytes());
    sandbox.run(&["key", "add", "--generate", &file]).expect(0);
    let keys = sandbox.run(&["--json", "key", "list"]).expect(0).messages("key");
    let own = keys.iter().find(|key| key["kind"] == "key-file").unwrap()["key"].clone();
    let whole = std::fs::read(&file).unwrap();
    sandbox.write("cut.key", &whole[..whole.len() / 2]);
    let mut altered = whole.clone();
    altered[30] = if altered[30] == b'0' { b'1' } else { b'0' };
    sandbox.write("altered.key", &altered);
    sandbox.write("empty.key", b"");
    let newer = String::from_utf8(whole).unwrap().replace("file-1", "file-2");
    sandbox.write("newer.key", newer.as_bytes());
    for (name, told) in [
        ("cut.key", "cut off or altered"),
        ("altered.key", "cut off or altered"),
        ("empty.key", "no key file"),
        ("password", "no key file"),
        ("newer.key", "newer version"),
        ("missing.key", "missing.key"),
    ] {
        let run = by_file(&sandbox, &sandbox.arg(name), &["snapshots"]).expect(1);
        assert!(run.stderr.contains(told), "{name}: {}", run.stderr);
    }
    let run = sandbox.run(&["--password-file", &file, "snapshots"]).expect(1);
    assert!(run.stderr.contains("--key-file"), "{}", run.stderr);
    // One beside the other is refused, whatever both say.
    sandbox.run(&["--key-file", &file, "--password-file", &file, "snapshots"]).expect(1);
    let mut both = sandbox.command(&["snapshots"]);
    both.env("ONEFOLD_KEY_FILE", &file);
    let run = sandbox.run_command(both).expect(1);
    assert!(run.stderr.contains("ONEFOLD_PASSWORD and ONEFOLD_KEY_FILE"), "{}", run.stderr);
    let run = by_file(&sandbox, &file, &["init", "-r", &sandbox.arg("new")]).expect(1);
    assert!(run.stderr.contains("--new-key-file") && !sandbox.path("new").exists());
    let run = by_file(&sandbox, &file, &["key", "upgrade"]).expect(1);
    assert!(run.stderr.contains("key file"), "{}", run.stderr);

    // The file in use is replaced by another one, and by a password.
    by_file(&sandbox, &file, &["key", "passwd", "--generate", &other]).expect(0);
    let run = by_file(&sandbox, &file, &["snapshots"]).expect(12);
    assert!(run.stderr.contains("wrong key file") && run.stderr.contains("1 more"));
    by_file(&sandbox, &other, &["snapshots"]).expect(0);
    let run = sandbox.run(&["key", "remove", own.as_str().unwrap()]).expect(1);
    assert!(run.stderr.contains("no key"), "{}", run.stderr);
    let keys = sandbox.run(&["--json", "key", "list"]).expect(0).messages("key");
    let gone = keys.iter().find(|key| key["kind"] == "key-file").unwrap()["key"].clone();
    sandbox.run(&["key", "remove", gone.as_str().unwrap()]).expect(0);
    let run = by_file(&sandbox, &other, &["snapshots"]).expect(12);
    assert!(run.stderr.contains("wrong key file"), "{}", run.stderr);
    sandbox.run(&["snapshots"]).expect(0);
}

#[test]
fn keys_are_rotated_by_a_key_file_and_others_are_added_anew() {
    let sandbox = Sandbox::with_encrypted_store();
    let file = sandbox.arg("own.key");
    sandbox.run(&["key", "add", "--generate", &file, "--label", "nightly"]).expect(0);
    let old = sandbox.backup(&[]);
    let run = by_file(&sandbox, &file, &["key", "rotate"]).expect(1);
    assert!(run.stderr.contains("key files"), "{}", run.stderr);
    let rotate = ["--json", "key", "rotate", "--remove-others"];
    let run = by_file(&sandbox, &file, &rotate).expect(0);
    assert_eq!(run.message("keys_rotated")["removed"].as_array().unwrap().len(), 2);
    let run = sandbox.run(&["snapshots"]).expect(12);
    assert!(run.stderr.contains("--key-file"), "{}", run.stderr);
    let keys = by_file(&sandbox, &file, &["--json", "key", "list"]).expect(0).messages("key");
    assert_eq!(
        (keys.len(), &keys[0]["kind"], &keys[0]["label"]),
        (1, &json!("key-file"), &json!("nightly"))
    );
    // A password comes back, rotates the keys once more, and takes the same file in again.
    sandbox.write("password", crate::support::PASSWORD.as_bytes());
    let password = sandbox.arg("password");
    by_file(&sandbox, &file, &["key", "add", "--new-password-file", &password]).expect(0);
    sandbox.run(&["key", "rotate", "--remove-others"]).expect(0);
    by_file(&sandbox, &file, &["snapshots"]).expect(12);
    sandbox.run(&["key", "add", "--new-key-file", &file]).expect(0);
    let run = by_file(&sandbox, &file, &["--json", "snapshots"]).expect(0);
    assert!(run.stdout.contains(&old), "{}", run.stdout);
    by_file(&sandbox, &file, &["check", "--read-data"]).expect(0);
}

/// What a client that may append plants costs whoever opens the store by a key file nothing, and
/// does not lock anybody out.
#[test]
fn r76_planted_slots_of_either_kind_are_not_tried_by_the_other() {
    let sandbox = Sandbox::with_encrypted_store();
    let file = sandbox.arg("own.key");
    sandbox.run(&["key", "add", "--generate", &file]).expect(0);
    let slots: Vec<(String, String)> = std::fs::read_dir(sandbox.path("store/keys"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| !name.contains('.'))
        .map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
        .collect();
    assert_eq!(slots.len(), 2);
    for (number, (name, slot)) in slots.iter().enumerate() {
        let other = |offset: usize| format!("store/keys/{:032x}", 16 * number + offset);
        // A copy under another name, in the place of which another kind stands in the second one.
        sandbox.write(&other(0), slot.as_bytes());
        let (_, stranger) = slots.iter().find(|(found, _)| found != name).unwrap();
        sandbox.write(&format!("{}.copy", other(0)), stranger.as_bytes());
        let unknown = slot.replace("hkdf-sha256", "hkdf-sha999").replace("argon2id", "argon9id");
        sandbox.write(&other(1), unknown.as_bytes());
    }
    sandbox.run(&["snapshots"]).expect(0);
    by_file(&sandbox, &file, &["snapshots"]).expect(0);
    sandbox.write("wrong", b"wrong\n");
    sandbox.run(&["--password-file", &sandbox.arg("wrong"), "snapshots"]).expect(12);
}
