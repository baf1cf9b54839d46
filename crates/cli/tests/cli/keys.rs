//! Keys that are rotated, as a user does it (R90).

use crate::support::Sandbox;
use std::io::Write;
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
