//! What others have mounted inside a share: what is below stays optimised, whoever looks.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount, succeeds};
use crate::sharing::{assert_seen, optimize, seen, status, with_share};
use crate::sharing_users::{can_change_rights, run_as};
use crate::support::Sandbox;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Something mounted that goes with the test.
pub struct Covered(pub String);

impl Drop for Covered {
    fn drop(&mut self) {
        succeeds("umount", &["-l", &self.0]);
    }
}

/// A share of stubs only, and what is seen of it.
fn optimised() -> (Sandbox, BTreeMap<PathBuf, Vec<u8>>) {
    let sandbox = with_share();
    fs::create_dir(sandbox.path("share/bound")).unwrap();
    for (seed, name) in [(11, "bound/file"), (12, "single")] {
        fs::write(sandbox.path("share").join(name), random_bytes(seed, 300_000)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let before = seen(&sandbox.path("share"));
    optimize(&sandbox);
    (sandbox, before)
}

/// Mounts a file system of its own, a directory and a file of the same device.
pub fn cover(sandbox: &Sandbox) -> [Covered; 3] {
    fs::create_dir(sandbox.path("elsewhere")).unwrap();
    fs::write(sandbox.path("elsewhere/other"), b"other").unwrap();
    let at = |name: &str| Covered(sandbox.arg(&format!("share/{name}")));
    let covered = [at("inner"), at("bound"), at("single")];
    let (directory, file) = (sandbox.arg("elsewhere"), sandbox.arg("elsewhere/other"));
    assert!(succeeds("mount", &["-t", "tmpfs", "tmpfs", &covered[0].0]));
    assert!(succeeds("mount", &["--bind", &directory, &covered[1].0]));
    assert!(succeeds("mount", &["--bind", &file, &covered[2].0]));
    assert!(fs::read(sandbox.path("share/single")).unwrap() == b"other");
    covered
}

#[test]
fn what_is_mounted_in_a_share_hides_nothing_from_its_jobs() {
    if !can_mount() {
        return;
    }
    for is_mounted in [false, true] {
        let (sandbox, before) = optimised();
        let share = sandbox.path("share");
        let covered = cover(&sandbox);
        let mount = is_mounted.then(|| Mount::share(&sandbox, "share"));
        fs::write(share.join("new"), random_bytes(13, 400_000)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let ran = optimize(&sandbox);
        let did = ["files_optimized", "manifests_forgotten", "manifests_kept", "errors"];
        assert_eq!(did.map(|one| ran[one].as_u64().unwrap()), [1, 1, 0, 0], "{ran}");
        assert_eq!(status(&sandbox)["files"], 9);
        sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
        if let Some(mount) = mount {
            // Users see what they have mounted.
            assert!(fs::read(share.join("single")).unwrap() == b"other");
            mount.end();
        }
        drop(covered);
        let mount = Mount::share(&sandbox, "share");
        fs::remove_file(share.join("new")).unwrap();
        assert_seen(&before, &share);
        mount.end();
        // The way back looks below as well.
        let covered = cover_again(&sandbox);
        sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
        drop(covered);
        assert_seen(&before, &share);
    }
}

fn cover_again(sandbox: &Sandbox) -> [Covered; 3] {
    fs::remove_dir_all(sandbox.path("elsewhere")).unwrap();
    cover(sandbox)
}

#[test]
fn what_is_mounted_in_a_share_keeps_earlier_manifests_where_nobody_may_look_below() {
    if !can_mount() || !can_change_rights() {
        return;
    }
    let (sandbox, before) = optimised();
    let (share, shown) = (sandbox.path("share"), sandbox.arg("share"));
    let manifests = status(&sandbox)["manifests"].clone();
    let covered = cover(&sandbox);
    fs::write(share.join("new"), random_bytes(13, 400_000)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let run = |arguments: &[&str]| {
        let bounded = ["--bounding-set", "-sys_admin"];
        run_as(&sandbox, &bounded, &[&["--json"], arguments].concat())
    };
    let ran = run(&["share", "optimize", &shown]).expect(3);
    let told = ran.message("optimized");
    let did = ["files_optimized", "manifests_forgotten", "manifests_kept", "errors"];
    assert_eq!(did.map(|one| told[one].as_u64().unwrap()), [1, 0, 1, 3], "{told}");
    let problems = ran.error_lines();
    for name in ["/inner", "/bound", "/single"] {
        let is_told = |line: &Value| {
            let message = line["message"].as_str().unwrap_or_default();
            line["item"] == name && message.starts_with("something is mounted on it")
        };
        assert!(problems.iter().any(is_told), "{name}: {problems:?}");
    }
    let back = run(&["share", "rehydrate", &shown]).expect(3).message("rehydrated");
    assert_eq!((&back["files"], &back["errors"]), (&2.into(), &3.into()), "{back}");
    assert!(status(&sandbox)["manifests"].as_array().unwrap().len() >= 2);
    assert_eq!(status(&sandbox)["manifests"][0], manifests[0]);
    run(&["share", "remove", &shown]).expect(1);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    drop(covered);
    let mount = Mount::share(&sandbox, "share");
    fs::remove_file(share.join("new")).unwrap();
    assert_seen(&before, &share);
    mount.end();
}

/// Of another store: its containers as stubs could be read by nobody who opens it elsewhere, and
/// two stores could keep each other's data.
#[test]
fn a_store_inside_a_share_of_another_one_stays_as_it_is() {
    let sandbox = with_share();
    let inner = sandbox.arg("share/inner store");
    sandbox.write("source/file", &random_bytes(21, 500_000));
    sandbox.run(&["-r", &inner, "init", "--encryption", "none"]).expect(0);
    sandbox.run(&["-r", &inner, "backup", &sandbox.arg("source")]).expect(0);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let files = seen(&sandbox.path("share/inner store"));
    let run = sandbox.run(&["--json", "share", "optimize", &sandbox.arg("share")]).expect(0);
    assert!(run.message("optimized")["files_optimized"].as_u64().unwrap() > 0);
    assert_seen(&files, &sandbox.path("share/inner store"));
    sandbox.run(&["-r", &inner, "check", "--read-data"]).expect(0);
    // Nor does it become one, or a part of it.
    let other = sandbox.arg("other");
    sandbox.run(&["-r", &other, "init", "--encryption", "none"]).expect(0);
    let refused = sandbox.run(&["share", "create", &other]).expect(1);
    assert!(refused.stderr.contains("is a store"), "{}", refused.stderr);
    sandbox.run(&["-r", &other, "backup", &sandbox.arg("source")]).expect(0);
    for part in ["other", "other/containers"] {
        let refused = sandbox.run(&["share", "create", &sandbox.arg(part)]).expect(1);
        assert!(refused.stderr.contains("is a store"), "{}", refused.stderr);
    }
}
