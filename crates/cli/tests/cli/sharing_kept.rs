//! What keeps the data of a share's stubs, and who must not touch it.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount, succeeds};
use crate::sharing::{assert_seen, optimize, seen, status, with_share};
use crate::support::Sandbox;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

fn containers(sandbox: &Sandbox) -> Vec<PathBuf> {
    let shards = fs::read_dir(sandbox.path("store/containers")).unwrap();
    let files = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn manifests_are_no_snapshots_and_nobody_forgets_them() {
    let sandbox = with_share();
    let manifest = optimize(&sandbox)["manifest"].as_str().unwrap().to_owned();
    assert_eq!(sandbox.ids(&["--all"]), [] as [String; 0]);
    for more in [&["--final"][..], &[]] {
        let refused = sandbox.run(&[&["forget", &manifest[..12]], more].concat()).expect(1);
        assert!(refused.stderr.contains("manifest of a share"), "{}", refused.stderr);
    }
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    sandbox.run(&["check", "--read-data"]).expect(0);
    // Whoever has lost the directory has its files still.
    sandbox.run(&["restore", &manifest[..12], "--target", &sandbox.arg("out")]).expect(0);
    let text = "words and words\n".repeat(10_000);
    assert_eq!(fs::read_to_string(sandbox.path("out/inner/text")).unwrap(), text);
}

#[test]
fn a_backup_of_a_share_takes_stubs_over_unread_mounted_or_not() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    let mount = Mount::share(&sandbox, "share");
    optimize(&sandbox);
    let file = File::options().write(true).open(share.join("inner/text")).unwrap();
    file.write_all_at(b"changed", 3).unwrap();
    drop(file);
    // What was changed a moment ago is asked for again by whoever compares with a snapshot.
    std::thread::sleep(std::time::Duration::from_millis(150));
    let before = seen(&share);
    let mut snapshots = Vec::new();
    // Into another store what is mounted is read as any other file; what is not, is not.
    let (other, source) = (sandbox.arg("other"), sandbox.arg("share"));
    let other = ["-r", other.as_str()];
    sandbox.run(&[&other[..], &["init", "--encryption", "none"]].concat()).expect(0);
    let backup = [&other[..], &["backup", source.as_str()]].concat();
    sandbox.run(&backup).expect(0);
    let target = sandbox.arg("read");
    let restore = [&other[..], &["restore", "latest", "--target", &target]].concat();
    sandbox.run(&restore).expect(0);
    for name in ["large", "inner/text", "inner/sparse"] {
        let read = sandbox.path("read").join(share.strip_prefix("/").unwrap()).join(name);
        assert!(fs::read(read).unwrap() == fs::read(share.join(name)).unwrap(), "{name}");
    }
    for is_mounted in [true, false] {
        if !is_mounted {
            sandbox.run(&["share", "unmount", &sandbox.arg("share")]).expect(0);
        }
        let run = sandbox.run(&["--json", "backup", "--force", &sandbox.arg("share")]).expect(0);
        let summary = run.message("summary");
        // What was written to, what is small, and what was never optimised.
        assert!(summary["bytes_read"].as_u64().unwrap() < 200_000, "{summary}");
        snapshots.push(summary["snapshot"].as_str().unwrap().to_owned());
    }
    drop(mount);
    // What has not changed since is not asked for; the rest is not there.
    sandbox.run(&backup).expect(0);
    sandbox.run(&[&backup[..], &["--force"]].concat()).expect(3);
    for snapshot in snapshots {
        let out = sandbox.path(&format!("out {snapshot}"));
        sandbox.run(&["restore", &snapshot, "--target", out.to_str().unwrap()]).expect(0);
        let restored = out.join(share.strip_prefix("/").unwrap());
        for (path, told) in &before {
            let file = restored.join(path);
            if file.symlink_metadata().unwrap().is_file() {
                assert!(told.ends_with(&fs::read(&file).unwrap()), "{}", path.display());
                let stub = rustix::fs::getxattr(&file, "user.onefold.stub", &mut [0; 0]);
                assert!(stub.is_err(), "{}", path.display());
            }
        }
    }
}

#[test]
fn r48_what_a_damaged_container_would_poison_stays_in_its_file() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    let mount = Mount::share(&sandbox, "share");
    optimize(&sandbox);
    // One chunk of the large file.
    let largest =
        containers(&sandbox).into_iter().max_by_key(|path| path.metadata().unwrap().len());
    let largest = largest.unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    bytes[1_000_000] ^= 1;
    fs::set_permissions(&largest, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(&largest, &bytes).unwrap();
    // A new file of the same bytes is compared with what the store gives, and left as it is.
    let large = random_bytes(1, (3 << 20) + 5);
    fs::write(share.join("fresh"), &large).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let run = sandbox.run(&["share", "optimize", &sandbox.arg("share")]);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(fs::read(share.join("fresh")).unwrap() == large);
    // Of the old one the range is an error, and all else can be read.
    let file = File::open(share.join("large")).unwrap();
    let (mut good, mut bad) = (0, 0);
    for offset in (0..large.len()).step_by(4096) {
        let mut buffer = [0; 4096];
        match file.read_at(&mut buffer, offset as u64) {
            Ok(read) => {
                assert!(buffer[..read] == large[offset..offset + read]);
                good += 1;
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5));
                bad += 1;
            }
        }
    }
    assert!(bad > 0 && good > bad, "{good} {bad}");
    let known = status(&sandbox);
    let problems = known["problems"].as_array().unwrap();
    assert!((1..200).contains(&problems.len()), "{known}");
    assert!(problems.iter().all(|one| one.as_str().unwrap().starts_with("/large: ")), "{known}");
    drop(file);
    mount.end();
}

#[test]
fn r46_a_stub_that_was_copied_is_told_from_one_that_was_not() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = seen(&share);
    optimize(&sandbox);
    let copied = std::process::Command::new("cp")
        .args(["-a", &sandbox.arg("share/large"), &sandbox.arg("share/copied")])
        .status();
    assert!(copied.unwrap().success());
    let known = status(&sandbox);
    assert_eq!(known["foreign_stubs"], serde_json::json!(["/copied"]), "{known}");
    // Nobody is given zeros for the data.
    let mount = Mount::share(&sandbox, "share");
    assert!(fs::read(share.join("copied")).is_err());
    sandbox.run(&["share", "repair", &sandbox.arg("share")]).expect(0);
    assert!(fs::read(share.join("copied")).unwrap() == fs::read(share.join("large")).unwrap());
    fs::remove_file(share.join("copied")).unwrap();
    assert_seen(&before, &share);
    mount.end();
    // Nor does a backup save them.
    let set = rustix::fs::XattrFlags::empty();
    let mut value = vec![0; 4096];
    let length = rustix::fs::getxattr(share.join("large"), "user.onefold.stub", &mut value[..]);
    value.truncate(length.unwrap());
    File::create(share.join("planted")).unwrap().set_len(3 << 20).unwrap();
    rustix::fs::setxattr(share.join("planted"), "user.onefold.stub", &value, set).unwrap();
    let run = sandbox.run(&["backup", &sandbox.arg("share")]);
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert!(run.stderr.contains("planted: it is a stub of another file"), "{}", run.stderr);
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    fs::create_dir(share.join("elsewhere")).unwrap();
    let elsewhere = sandbox.arg("share/elsewhere");
    assert!(succeeds("mount", &["-t", "tmpfs", "tmpfs", &elsewhere]));
    fs::write(share.join("elsewhere/source"), b"source").unwrap();
    let text = fs::read(share.join("inner/text")).unwrap();
    let mount = Mount::share(&sandbox, "share");
    optimize(&sandbox);
    let held = File::options().read(true).write(true).open(share.join("inner/text")).unwrap();
    let moved = fs::rename(share.join("elsewhere/source"), share.join("inner/text"));
    assert_eq!(moved.unwrap_err().raw_os_error(), Some(18), "EXDEV");
    assert!(fs::read(share.join("inner/text")).unwrap() == text);
    assert_eq!(held.metadata().unwrap().nlink(), 1);
    let longer = held.set_len(1 << 60).unwrap_err();
    assert_eq!(longer.raw_os_error(), Some(27), "EFBIG");
    drop(held);
    assert!(fs::read(share.join("inner/text")).unwrap() == text);
    let inside = sandbox.run(&["share", "create", &sandbox.arg("share/inner")]);
    assert!(inside.stderr.contains("is a share already"), "{}", inside.stderr);
    mount.end();
    assert!(succeeds("umount", &[&elsewhere]));
}

#[test]
fn a_share_is_mounted_again_at_once() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    for _ in 0..3 {
        let mount = Mount::share(&sandbox, "share");
        let twice = sandbox.run(&["share", "mount", &sandbox.arg("share")]);
        assert_eq!(twice.code, 13, "{}", twice.stderr);
        sandbox.run(&["share", "unmount", &sandbox.arg("share")]).expect(0);
        drop(mount);
    }
    assert_eq!(status(&sandbox)["files"], 6, "what is Onefold's own does not count");
}

#[test]
fn a_copy_of_a_share_is_none_and_takes_nothing_from_it() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let text = fs::read(share.join("inner/text")).unwrap();
    optimize(&sandbox);
    let manifests = || status(&sandbox)["manifests"].clone();
    let before = manifests();
    let copied = std::process::Command::new("cp")
        .args(["-a", &sandbox.arg("share"), &sandbox.arg("copy")])
        .status();
    assert!(copied.unwrap().success());
    for command in ["optimize", "rehydrate", "remove", "move"] {
        let run = sandbox.run(&["share", command, &sandbox.arg("copy")]).expect(1);
        assert!(run.stderr.contains("is a copy of a share"), "{}", run.stderr);
    }
    // A backup takes nothing along that would make a restored directory a share.
    sandbox.run(&["backup", &sandbox.arg("share")]).expect(0);
    sandbox.run(&["restore", "latest", "--target", &sandbox.arg("out")]).expect(0);
    let restored = sandbox.path("out").join(share.strip_prefix("/").unwrap());
    assert!(fs::read(restored.join("inner/text")).unwrap() == text);
    assert!(!restored.join(".onefold-share").exists());
    assert_eq!(manifests(), before);
    // Moved on its file system it is the same share, once that is said.
    fs::rename(&share, sandbox.path("moved")).unwrap();
    sandbox.run(&["share", "move", &sandbox.arg("moved")]).expect(0);
    sandbox.run(&["share", "rehydrate", &sandbox.arg("moved")]).expect(0);
    assert!(fs::read(sandbox.path("moved/inner/text")).unwrap() == text);
}

#[test]
fn what_users_set_as_stubs_of_their_own_stops_nobody_else() {
    let sandbox = Sandbox::with_store();
    sandbox.write("files/good", b"good");
    let planted = [("zeros", vec![0; 60]), ("short", vec![1, 2]), ("newer", vec![9; 60])];
    for (name, value) in &planted {
        File::create(sandbox.path("files").join(name)).unwrap().set_len(100_000).unwrap();
        let set = rustix::fs::XattrFlags::empty();
        let path = sandbox.path("files").join(name);
        rustix::fs::setxattr(path, "user.onefold.stub", value, set).unwrap();
    }
    let run = sandbox.run(&["backup", &sandbox.arg("files")]).expect(3);
    for (name, _) in &planted {
        assert!(run.stderr.contains(&format!("files/{name}: ")), "{name}: {}", run.stderr);
    }
    sandbox.run(&["restore", "latest", "--target", &sandbox.arg("out")]).expect(0);
    let path = sandbox.path("out").join(sandbox.path("files").strip_prefix("/").unwrap());
    assert_eq!(fs::read(path.join("good")).unwrap(), b"good");
}

#[test]
fn shares_do_not_overlap_one_another_or_the_store() {
    let sandbox = with_share();
    let refused = |arguments: &[&str], why: &str| {
        let run = sandbox.run(&[&["share"], arguments].concat());
        assert!(run.code != 0, "{arguments:?}");
        assert!(run.stderr.contains(why), "{}", run.stderr);
    };
    refused(&["create", &sandbox.arg("share")], "is a share already");
    refused(&["create", &sandbox.arg("share/inner")], "is a share already");
    refused(&["create", &sandbox.arg("")], "lies in");
    refused(&["create", &sandbox.arg("store/containers")], "inside the store");
    fs::create_dir_all(sandbox.path("above/below")).unwrap();
    sandbox.run(&["share", "create", &sandbox.arg("above/below")]).expect(0);
    refused(&["create", &sandbox.arg("above")], "is a share already");
    refused(&["optimize", &sandbox.arg("above")], "is no share");
    refused(&["status", &sandbox.arg("nothing")], "No such file");
    sandbox.run(&["-r", &sandbox.arg("other"), "init", "--encryption", "none"]).expect(0);
    let other =
        sandbox.run(&["-r", &sandbox.arg("other"), "share", "optimize", &sandbox.arg("share")]);
    assert!(other.stderr.contains("belongs to another store"), "{}", other.stderr);
}

#[test]
fn what_only_has_the_name_of_a_shares_own_is_saved_and_in_nobodys_way() {
    let sandbox = with_share();
    fs::create_dir_all(sandbox.path("plain/inner/.onefold-share")).unwrap();
    fs::write(sandbox.path("plain/inner/.onefold-share/data"), b"data").unwrap();
    sandbox.run(&["backup", &sandbox.arg("plain"), &sandbox.arg("share")]).expect(0);
    sandbox.run(&["restore", "latest", "--target", &sandbox.arg("out")]).expect(0);
    let restored =
        |name: &str| sandbox.path("out").join(sandbox.path(name).strip_prefix("/").unwrap());
    assert_eq!(fs::read(restored("plain/inner/.onefold-share/data")).unwrap(), b"data");
    assert!(restored("share/inner").exists() && !restored("share/.onefold-share").exists());
    sandbox.run(&["share", "create", &sandbox.arg("plain")]).expect(0);
}
