//! Stubs that lost their attribute, in a share, in a copy of it, and elsewhere.

use crate::sharing::{optimize, status, with_share};
use crate::support::{Run, Sandbox};
use rustix::fs::{XattrFlags, lgetxattr, lremovexattr, lsetxattr};
use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

const ATTRIBUTE: &str = "user.onefold.stub";
/// Files of the share that become stubs.
const STUBS: [&str; 4] = ["large", "inner/copy of it", "inner/text", "inner/sparse"];

fn share_command(sandbox: &Sandbox, command: &str, name: &str) -> Run {
    sandbox.run(&["--json", "share", command, &sandbox.arg(name)])
}

fn contents(directory: &Path) -> Vec<Vec<u8>> {
    STUBS.map(|name| fs::read(directory.join(name)).unwrap()).into()
}

/// What a program writes that copies a file and knows neither attributes nor holes.
fn replace_by_zeros(path: &Path, is_dense: bool, time: SystemTime) {
    let length = path.metadata().unwrap().len();
    let new = path.with_extension("new");
    let file = File::create(&new).unwrap();
    file.set_len(length).unwrap();
    if is_dense {
        fs::write(&new, vec![0; length as usize]).unwrap();
    }
    file.set_modified(time).unwrap();
    fs::rename(new, path).unwrap();
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().unwrap().modified().unwrap()
}

#[test]
fn r116_a_stub_without_its_attribute_is_no_new_version_and_comes_back() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = contents(&share);
    assert_eq!(optimize(&sandbox)["files_optimized"], 4);
    lremovexattr(share.join("inner/text"), ATTRIBUTE).unwrap();
    lremovexattr(share.join("large"), ATTRIBUTE).unwrap();
    let copy = share.join("inner/copy of it");
    replace_by_zeros(&copy, true, modified(&copy));
    // An archive has whole seconds.
    let sparse = share.join("inner/sparse");
    let since = modified(&sparse).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seconds = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(since.as_secs());
    replace_by_zeros(&sparse, false, seconds);

    assert_eq!(
        share_command(&sandbox, "status", "share").expect(3).message("share_status")["files_lost"],
        4
    );
    for _ in 0..2 {
        let report = share_command(&sandbox, "optimize", "share").expect(3).message("optimized");
        assert_eq!((&report["files_lost"], &report["files_optimized"]), (&4.into(), &0.into()));
        sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    }
    let report = share_command(&sandbox, "repair", "share").expect(0).message("repaired");
    assert_eq!(report["files"], 4);
    assert_eq!(status(&sandbox)["files_optimized"], 4);
    optimize(&sandbox);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    share_command(&sandbox, "rehydrate", "share").expect(0);
    assert!(contents(&share) == before);
}

#[test]
fn r116_rehydrating_brings_back_what_lost_its_attribute() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = contents(&share);
    optimize(&sandbox);
    lremovexattr(share.join("inner/text"), ATTRIBUTE).unwrap();
    share_command(&sandbox, "rehydrate", "share").expect(0);
    assert!(contents(&share) == before);
}

#[test]
fn r116_zeros_that_somebody_writes_later_are_a_new_version() {
    let sandbox = with_share();
    let text = sandbox.path("share/inner/text");
    optimize(&sandbox);
    replace_by_zeros(&text, true, SystemTime::now());
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(status(&sandbox)["files_lost"], 0);
    assert_eq!(optimize(&sandbox)["files_optimized"], 1);
}

#[test]
fn r116_a_stub_of_which_something_came_back_keeps_it_and_gets_the_rest() {
    let sandbox = Sandbox::with_store();
    let file = sandbox.path("share/file");
    fs::create_dir_all(sandbox.path("share")).unwrap();
    let mut data = crate::collecting::random_bytes(5, 4 << 20);
    fs::write(&file, &data).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    sandbox.run(&["share", "create", "--min-age", "0s", &sandbox.arg("share")]).expect(0);
    optimize(&sandbox);
    // Written to without the mount: the granule is the file's own from the next job on.
    let written = [7; 1 << 16];
    let open = File::options().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, &written, 1 << 20).unwrap();
    drop(open);
    data[1 << 20..(1 << 20) + written.len()].copy_from_slice(&written);
    let directory = sandbox.arg("share");
    sandbox.run(&["share", "optimize", "--min-age", "9d", &directory]).expect(3);
    lremovexattr(&file, ATTRIBUTE).unwrap();
    share_command(&sandbox, "optimize", "share").expect(3);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    share_command(&sandbox, "repair", "share").expect(0);
    share_command(&sandbox, "rehydrate", "share").expect(0);
    assert!(fs::read(&file).unwrap() == data);
}

/// Copies a share as a program does that knows neither attributes nor holes.
fn copy_without_attributes(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (to.join(entry.file_name()), entry.file_type().unwrap());
        if kind.is_dir() {
            copy_without_attributes(&entry.path(), &path);
        } else if kind.is_file() {
            fs::write(&path, fs::read(entry.path()).unwrap()).unwrap();
            File::open(&path).unwrap().set_modified(modified(&entry.path())).unwrap();
        }
    }
}

#[test]
fn r116_a_copy_of_a_share_without_attributes_comes_back_by_path() {
    let sandbox = with_share();
    let before = contents(&sandbox.path("share"));
    optimize(&sandbox);
    for name in ["copy", "later"] {
        copy_without_attributes(&sandbox.path("share"), &sandbox.path(name));
    }
    let report = share_command(&sandbox, "repair", "copy").expect(0).message("repaired");
    assert_eq!(report["ordinary"], true);
    assert!(fs::read(sandbox.path("copy/inner/most/other name")).unwrap() == before[0]);
    assert!(contents(&sandbox.path("copy")) == before);
    // Whether that is what it was, nobody knows: it is told, and stays.
    File::open(sandbox.path("later/large")).unwrap().set_modified(SystemTime::now()).unwrap();
    let run = share_command(&sandbox, "repair", "later").expect(3);
    assert_eq!(run.message("repaired")["ordinary"], false);
    assert!(run.stderr.contains("large"), "{}", run.stderr);
}

#[test]
fn r116_what_a_backup_says_to_do_about_a_copied_stub_helps() {
    let sandbox = with_share();
    let text = sandbox.path("share/inner/text");
    let before = fs::read(&text).unwrap();
    optimize(&sandbox);
    fs::create_dir(sandbox.path("elsewhere")).unwrap();
    let copy = sandbox.path("elsewhere/text");
    let mut value = [0; 4096];
    let length = lgetxattr(&text, ATTRIBUTE, &mut value[..]).unwrap();
    File::create(&copy).unwrap().set_len(before.len() as u64).unwrap();
    lsetxattr(&copy, ATTRIBUTE, &value[..length], XattrFlags::empty()).unwrap();
    let directory = sandbox.arg("elsewhere");
    let run = sandbox.run(&["backup", &directory]).expect(3);
    assert!(run.stderr.contains("'onefold share repair' of its directory"), "{}", run.stderr);
    let report = share_command(&sandbox, "repair", "elsewhere").expect(0).message("repaired");
    assert_eq!(report["files"], 1);
    assert!(fs::read(&copy).unwrap() == before);
    sandbox.run(&["backup", &directory]).expect(0);
}

#[test]
fn r116_copies_elsewhere_come_back_that_have_the_inode_number_of_their_original() {
    let sandbox = with_share();
    let text = sandbox.path("share/inner/text");
    let before = fs::read(&text).unwrap();
    optimize(&sandbox);
    // As on a new file system, which gives numbers from the first on. Files of a share stay stubs.
    fs::create_dir(sandbox.path("above")).unwrap();
    fs::rename(&text, sandbox.path("above/text")).unwrap();
    let inner = share_command(&sandbox, "repair", "share/inner").expect(0).message("repaired");
    assert_eq!(inner["files"], 0);
    let report = share_command(&sandbox, "repair", "above").expect(0).message("repaired");
    assert_eq!(report["files"], 1);
    assert!(fs::read(sandbox.path("above/text")).unwrap() == before);
    assert_eq!(status(&sandbox)["files_optimized"], 3);
}

#[test]
fn r116_an_archive_that_keeps_every_second_second_loses_nothing() {
    let sandbox = with_share();
    let text = sandbox.path("share/inner/text");
    let before = fs::read(&text).unwrap();
    let odd = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_000_000_001_500);
    File::open(&text).unwrap().set_modified(odd).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    optimize(&sandbox);
    replace_by_zeros(&text, true, odd - std::time::Duration::from_millis(1500));
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(share_command(&sandbox, "optimize", "share").code, 3);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    share_command(&sandbox, "repair", "share").expect(0);
    share_command(&sandbox, "rehydrate", "share").expect(0);
    assert!(fs::read(&text).unwrap() == before);
    assert_eq!(modified(&text), odd);
}

#[test]
fn r116_a_copy_of_a_stub_that_was_written_to_is_no_new_version() {
    let sandbox = Sandbox::with_store();
    let share = sandbox.path("share");
    fs::create_dir_all(&share).unwrap();
    let before = crate::collecting::random_bytes(6, 4 << 20);
    let names = ["written to", "new", "filled"];
    for name in names {
        fs::write(share.join(name), &before).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    sandbox.run(&["share", "create", "--min-age", "0s", &sandbox.arg("share")]).expect(0);
    optimize(&sandbox);
    // What a sparse copy has of a stub in which a byte was written through the mount; another one
    // whose zeros are meant; a new disk of the same size.
    let granule = 1 << 20..(1 << 20) + (1 << 16);
    let mut part = before[granule.clone()].to_vec();
    part[5] ^= 1;
    for (name, content) in names.into_iter().zip([&part[..], &[7; 1 << 16], &part[..]]) {
        let new = share.join("copy");
        let file = File::create(&new).unwrap();
        file.set_len(before.len() as u64).unwrap();
        if name == "filled" {
            fs::write(&new, vec![0; before.len()]).unwrap();
        }
        std::os::unix::fs::FileExt::write_all_at(&file, content, granule.start as u64).unwrap();
        fs::rename(new, share.join(name)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    for optimized in [2, 0] {
        let run = share_command(&sandbox, "optimize", "share").expect(3);
        assert!(run.stderr.contains("/written to"), "{}", run.stderr);
        assert_eq!(run.message("optimized")["files_optimized"], optimized);
        sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    }
    // Neither the byte that was written nor the rest is guessed.
    let run = share_command(&sandbox, "repair", "share").expect(3);
    assert!(run.stderr.contains("'onefold restore'"), "{}", run.stderr);
    let known = share_command(&sandbox, "status", "share").expect(3).message("share_status");
    let is_kept = |manifest: &serde_json::Value| {
        let (manifest, target) = (manifest.as_str().unwrap(), sandbox.path("out"));
        sandbox.run(&["restore", manifest, "--target", &sandbox.arg("out")]).expect(0);
        let is_it = fs::read(target.join("written to")).is_ok_and(|found| found == before);
        fs::remove_dir_all(target).unwrap();
        is_it
    };
    assert!(known["manifests"].as_array().unwrap().iter().any(is_kept), "{known}");
}

#[test]
fn r120_no_job_changes_when_a_file_was_read_last() {
    let sandbox = with_share();
    let large = sandbox.path("share/large");
    let read = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let times = fs::FileTimes::new().set_accessed(read);
    File::open(&large).unwrap().set_times(times).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    sandbox.run(&["backup", &sandbox.arg("share")]).expect(0);
    assert_eq!(large.metadata().unwrap().accessed().unwrap(), read);
    optimize(&sandbox);
    assert_eq!(large.metadata().unwrap().accessed().unwrap(), read);
}

#[test]
fn r116_what_lies_in_the_place_of_a_share_comes_back_by_its_path() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = contents(&share);
    optimize(&sandbox);
    // Restored from a backup that leaves out what begins with a dot, and knows no attributes.
    copy_without_attributes(&share, &sandbox.path("restored"));
    fs::remove_dir_all(sandbox.path("restored/.onefold-share")).unwrap();
    fs::remove_dir_all(&share).unwrap();
    fs::rename(sandbox.path("restored"), &share).unwrap();
    let create = ["share", "create", "--min-age", "0s", &sandbox.arg("share")];
    let refused = sandbox.run(&create).expect(1);
    assert!(refused.stderr.contains("share repair"), "{}", refused.stderr);
    let report = share_command(&sandbox, "repair", "share").expect(0).message("repaired");
    assert!(report["files"].as_u64().unwrap() >= 4, "{report}");
    assert!(contents(&share) == before);
    let lost = refused.stderr.split("--lost ").nth(1).unwrap().split(' ').next().unwrap();
    sandbox.run(&["share", "remove", "--lost", lost, "--final"]).expect(0);
    sandbox.run(&create).expect(0);
}
