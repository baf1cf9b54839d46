//! Backups and restores beside shares: what is saved of stubs, and what is restored over them.

use crate::mounted::{Mount, can_mount};
use crate::sharing::{optimize, seen, status, with_share};
use crate::support::Sandbox;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The bytes of all files below a directory.
fn bytes_of(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let names = seen(directory).into_keys();
    let files = names.filter(|name| directory.join(name).symlink_metadata().unwrap().is_file());
    files.map(|name| (name.clone(), fs::read(directory.join(name)).unwrap())).collect()
}

#[track_caller]
fn assert_ordinary(expected: &BTreeMap<PathBuf, Vec<u8>>, directory: &Path) {
    let now = bytes_of(directory);
    assert_eq!(expected.keys().collect::<Vec<_>>(), now.keys().collect::<Vec<_>>());
    for (name, bytes) in expected {
        assert!(bytes == &now[name], "{}: other bytes", name.display());
        let stub = rustix::fs::getxattr(directory.join(name), "user.onefold.stub", &mut [0; 0]);
        assert_eq!(stub, Err(rustix::io::Errno::NODATA), "{}", name.display());
    }
}

fn append(path: &Path, bytes: &[u8]) {
    File::options().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

/// What changed just now is not believed to be what it was.
fn settle() {
    std::thread::sleep(Duration::from_millis(100));
}

fn restore_over(sandbox: &Sandbox, overwrite: &str) {
    let (place, target) = (format!("latest:{}", sandbox.arg("share")), sandbox.arg("share"));
    let arguments =
        ["restore", &place, "--target", &target, "--overwrite", overwrite, "--delete-unknown"];
    sandbox.run(&arguments).expect(0);
}

#[test]
fn a_restore_over_a_share_leaves_ordinary_files_with_what_was_saved() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = bytes_of(&share);
    sandbox.run(&["backup", &sandbox.arg("share")]).expect(0);
    for overwrite in ["if-changed", "always"] {
        settle();
        assert_eq!(optimize(&sandbox)["files_optimized"], 4);
        // All zeros, with the size and the times that were saved.
        assert!(fs::read(share.join("large")).unwrap().iter().all(|byte| *byte == 0));
        append(&share.join("inner/copy of it"), b"and more");
        fs::write(share.join("not saved"), b"extra").unwrap();
        restore_over(&sandbox, overwrite);
        assert_ordinary(&before, &share);
        let known = status(&sandbox);
        assert_eq!((&known["files_optimized"], &known["files"]), (&0.into(), &6.into()), "{known}");
    }
    if !can_mount() {
        return;
    }
    settle();
    optimize(&sandbox);
    let mount = Mount::share(&sandbox, "share");
    fs::write(share.join("not saved"), b"extra").unwrap();
    fs::write(share.join("inner/text"), b"changed").unwrap();
    restore_over(&sandbox, "if-changed");
    assert!(before == bytes_of(&share));
    mount.end();
    let mount = Mount::share(&sandbox, "share");
    assert!(before == bytes_of(&share));
    mount.end();
}

#[test]
fn a_restore_that_takes_a_manifest_back_leaves_the_share_what_it_is() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let large = fs::read(share.join("large")).unwrap();
    let manifest = optimize(&sandbox)["manifest"].as_str().unwrap().to_owned();
    let control = share.join(".onefold-share");
    let names = || {
        let found = fs::read_dir(&control).unwrap().map(|one| one.unwrap().file_name());
        found.collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    let target = sandbox.arg("share");
    // It knows the stubs alone, so all else stays.
    sandbox.run(&["restore", &manifest[..12], "--target", &target, "--delete"]).expect(3);
    assert!(share.join("inner/small").exists());
    assert_eq!(names(), before);
    assert!(fs::read(share.join("large")).unwrap() == large);
    assert_eq!(status(&sandbox)["files_optimized"], 0);
}

#[test]
fn stubs_that_grew_are_saved_with_what_was_appended() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let path = share.join("inner/text");
    let mut expected = fs::read(&path).unwrap();
    optimize(&sandbox);
    let is_mountable = can_mount();
    for is_mounted in [false, true].into_iter().filter(|is_mounted| !is_mounted || is_mountable) {
        let mount = is_mounted.then(|| Mount::share(&sandbox, "share"));
        append(&path, b"appended");
        expected.extend(b"appended");
        if let Some(mount) = mount {
            mount.end();
        }
        settle();
        sandbox.run(&["backup", &sandbox.arg("share")]).expect(0);
        let out = sandbox.path(&format!("out {is_mounted}"));
        let place = format!("latest:{}", sandbox.arg("share"));
        sandbox.run(&["restore", &place, "--target", out.to_str().unwrap()]).expect(0);
        assert!(fs::read(out.join("inner/text")).unwrap() == expected, "mounted: {is_mounted}");
        // Of a stub that somebody has open the manifest keeps what the store has.
        let open = File::open(&path).unwrap();
        optimize(&sandbox);
        drop(open);
        sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    }
    // It becomes a stub of all that it has.
    optimize(&sandbox);
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(status(&sandbox)["manifests"].as_array().unwrap().len(), 1);
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    assert!(fs::read(&path).unwrap() == expected);
}

/// What a stub takes of the disk tells nothing of its holes.
#[test]
fn holes_of_stubs_are_restored_as_holes() {
    let sandbox = with_share();
    let (share, length) = (sandbox.path("share"), 1 << 40);
    let hollow = File::create(share.join("hollow")).unwrap();
    hollow.set_len(length).unwrap();
    hollow.write_all_at(b"data", length / 2).unwrap();
    drop(hollow);
    settle();
    optimize(&sandbox);
    sandbox.run(&["backup", &sandbox.arg("share")]).expect(0);
    sandbox.run(&["restore", "latest", "--target", &sandbox.arg("out")]).expect(0);
    let path = sandbox.path("out").join(share.strip_prefix("/").unwrap()).join("hollow");
    let known = path.metadata().unwrap();
    assert!(known.len() == length && known.blocks() < 1000, "{known:?}");
    let mut data = [0; 4];
    File::open(path).unwrap().read_exact_at(&mut data, length / 2).unwrap();
    assert_eq!(&data, b"data");
}

/// What is missing in the store is not taken for a file that was deleted meanwhile.
#[test]
fn a_stub_whose_data_is_lost_is_a_problem_of_a_backup() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    optimize(&sandbox);
    let mount = Mount::share(&sandbox, "share");
    let written = File::options().write(true).open(sandbox.path("share/large")).unwrap();
    written.write_all_at(b"something of its own", 100).unwrap();
    drop(written);
    mount.end();
    fs::remove_dir_all(sandbox.path("store/containers")).unwrap();
    let run = sandbox.run(&["--json", "backup", &sandbox.arg("share")]);
    assert_ne!(run.code, 0, "{}{}", run.stdout, run.stderr);
}
