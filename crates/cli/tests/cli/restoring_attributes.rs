//! Modes, owners and times that a target does not keep, and those that are not restored.

use crate::folding::{COARSE, Folding, UNKEPT, UNOWNED};
use crate::full_devices::Mounted;
use crate::mounted::can_mount;
use crate::support::{Run, Sandbox, holds};
use rustix::fs::{XattrFlags, setxattr};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A file with an owner, a mode and a time in seconds since 1970.
fn write(sandbox: &Sandbox, name: &str, (uid, gid): (u32, u32), mode: u32, seconds: u64) {
    let path = sandbox.path(&format!("source/{name}"));
    sandbox.write(&format!("source/{name}"), name.as_bytes());
    chown(&path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
}

fn restore(sandbox: &Sandbox, target: &str, more: &[&str]) -> Run {
    let (place, target) = (format!("latest:{}", sandbox.arg("source")), sandbox.arg(target));
    sandbox.run(&[&["--json", "restore", &place, "--target", &target], more].concat())
}

/// What a summary says of modes, owners and times.
fn not_kept(run: &Run) -> [Value; 3] {
    let summary = run.message("summary");
    ["modes", "owners", "times"].map(|kind| summary[format!("{kind}_not_kept")].clone())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn r161_modes_owners_and_times_that_a_target_takes_and_does_not_keep_are_told() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    let _folding = Folding::mount(&sandbox.path("served"));
    write(&sandbox, "kept", (12, 34), 0o640, 1_000_000_001);
    write(&sandbox, COARSE, (12, 34), 0o640, 1_000_000_001);
    sandbox.backup(&[]);
    // A time does no harm.
    let run = restore(&sandbox, "served/times", &[]).expect(0);
    assert_eq!(not_kept(&run), [0, 0, 1].map(Value::from));
    let told = format!("modification time of 1 item: '/{COARSE}'");
    assert!(run.stderr.contains(&told), "{}", run.stderr);

    write(&sandbox, UNKEPT, (12, 34), 0o640, 1_000_000_001);
    sandbox.backup(&[]);
    for more in [&[][..], &["--overwrite", "if-changed"], &["--verify"]] {
        let run = restore(&sandbox, "served/all", more).expect(3);
        assert_eq!(not_kept(&run), [1, 1, 2].map(Value::from), "{more:?}");
        let kinds = ["mode of 1 item", "owner of 1 item"];
        for told in kinds.map(|kind| format!("{kind}: '/{UNKEPT}'")) {
            assert_eq!(run.stderr.matches(&told).count(), 1, "{}", run.stderr);
        }
        assert!(run.stderr.contains("had 12:34") && run.stderr.contains("had 640"));
        assert!(holds(&sandbox.path("served/all").join(UNKEPT), UNKEPT.as_bytes()));
    }
    // Whose owners are not asked for, of those nobody is told.
    let run = restore(&sandbox, "served/own", &["--no-owner"]).expect(3);
    assert_eq!(not_kept(&run), [1, 0, 2].map(Value::from));
    let run = restore(&sandbox, "out", &[]).expect(0);
    assert_eq!(not_kept(&run), [0, 0, 0].map(Value::from));
}

#[test]
fn r161_what_was_granted_to_an_owner_is_not_for_the_one_that_the_target_puts() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    let _folding = Folding::mount(&sandbox.path("served"));
    write(&sandbox, UNOWNED, (12, 34), 0o6755, 1_000_000_000);
    write(&sandbox, "kept", (12, 34), 0o6755, 1_000_000_000);
    sandbox.backup(&[]);
    let run = restore(&sandbox, "served/out", &[]).expect(3);
    assert_eq!(not_kept(&run), [0, 1, 0].map(Value::from));
    assert_eq!(mode(&sandbox.path("served/out").join(UNOWNED)), 0o755);
    assert_eq!(mode(&sandbox.path("served/out/kept")), 0o6755);
}

/// Inodes of 128 bytes hold times up to 2038.
#[test]
fn r161_a_time_that_a_target_cannot_hold_is_told() {
    let sandbox = Sandbox::with_store();
    let (image, place) = (sandbox.path("image"), sandbox.path("small"));
    let made = Mounted::new("ext4 -I 128", 16 << 20, &image, &place);
    let Ok(_mounted) = made.inspect_err(|why| eprintln!("SKIPPED: small inodes: {why}")) else {
        return;
    };
    write(&sandbox, "far", (0, 0), 0o644, 7_258_118_400);
    write(&sandbox, "near", (0, 0), 0o644, 1_600_000_000);
    sandbox.backup(&[]);
    let run = restore(&sandbox, "small/out", &[]).expect(0);
    assert_eq!(not_kept(&run), [0, 0, 1].map(Value::from));
    assert!(run.stderr.contains("modification time of 1 item: '/far'"), "{}", run.stderr);
    assert!(run.stderr.contains("and had 2200-01-01"), "{}", run.stderr);
}

#[test]
fn r161_power_that_was_given_to_a_group_or_an_owner_is_not_for_whoever_restores() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: owners that are not restored were not tested: it takes root");
        return;
    }
    let sandbox = Sandbox::with_store();
    let here = rustix::process::getegid().as_raw();
    let cases = [
        ("group", (0, 34), 0o2755, 0o755),
        ("mine", (0, here), 0o6755, 0o6755),
        ("user", (12, here), 0o6755, 0o755),
    ];
    for (name, owner, mode, _) in cases {
        write(&sandbox, name, owner, mode, 1_000_000_000);
    }
    // One that gives the right to listen on low ports.
    let mut capability = [0; 20];
    (capability[0], capability[3], capability[5]) = (1, 2, 4);
    let has =
        |path: &Path| rustix::fs::getxattr(path, "security.capability", &mut [0; 64][..]).is_ok();
    let mut has_capabilities = true;
    for name in ["user", "mine"] {
        let path = sandbox.path(&format!("source/{name}"));
        let set = setxattr(&path, "security.capability", &capability, XattrFlags::empty());
        has_capabilities &= set.is_ok();
    }
    // A directory has its new items belong to its group, and gives nobody any power.
    fs::create_dir(sandbox.path("source/shared")).unwrap();
    chown(sandbox.path("source/shared"), Some(12), Some(34)).unwrap();
    let shared = fs::Permissions::from_mode(0o2775);
    fs::set_permissions(sandbox.path("source/shared"), shared).unwrap();
    sandbox.backup(&[]);
    restore(&sandbox, "own", &["--no-owner"]).expect(0);
    restore(&sandbox, "whole", &[]).expect(0);
    for (name, (uid, gid), saved, wanted) in cases {
        let [own, whole] = ["own", "whole"].map(|target| sandbox.path(target).join(name));
        assert_eq!(mode(&own), wanted, "{name}");
        assert_eq!(mode(&whole), saved, "{name}");
        let known = fs::metadata(&whole).unwrap();
        assert_eq!((known.uid(), known.gid()), (uid, gid), "{name}");
        if has_capabilities && name != "group" {
            assert_eq!((has(&own), has(&whole)), (name == "mine", true), "{name}");
        }
    }
    for target in ["own", "whole"] {
        assert_eq!(mode(&sandbox.path(target).join("shared")), 0o2775, "{target}");
    }
}
