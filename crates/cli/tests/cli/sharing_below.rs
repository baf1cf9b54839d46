//! Shares while nobody mounts them: what is done to their files is found, kept and told; what root
//! does in a share or store of somebody else leaves it to him.

use crate::mounted::{Mount, can_mount, succeeds};
use crate::sharing::{optimize, status, with_share};
use crate::sharing_copied::Disk;
use crate::sharing_users::{NOBODY, can_change_rights, of_nobody, run_as};
use crate::support::Sandbox;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

fn write_below(sandbox: &Sandbox, name: &str, offset: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(sandbox.path("share").join(name)).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    std::thread::sleep(Duration::from_millis(100));
}

fn problems(sandbox: &Sandbox) -> Vec<String> {
    let known = status(sandbox);
    let lines = known["problems"].as_array().unwrap().iter();
    lines.map(|line| line.as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_written_below_is_told_once_and_programs_see_it_from_then_on() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let mut large = fs::read(share.join("large")).unwrap();
    let mut text = fs::read(share.join("inner/text")).unwrap();
    optimize(&sandbox);
    write_below(&sandbox, "large", 1_000_000, b"by hand");
    large[1_000_000..1_000_007].copy_from_slice(b"by hand");
    let run = sandbox.run(&["--json", "share", "optimize", &sandbox.arg("share")]).expect(3);
    assert_eq!(run.message("optimized")["files_written_below"], 1);
    let line = |name: &str| format!("/{name}: somebody has written into it without the mount");
    assert!(run.stderr.contains("somebody has written into it without"), "{}", run.stderr);
    // It has two names, and is told of by the first that is met.
    let told = problems(&sandbox);
    let names = ["large", "inner/most/other name"].map(line);
    assert!(told.len() == 1 && names.iter().any(|name| told[0].starts_with(name)), "{told:?}");
    std::thread::sleep(Duration::from_millis(100));
    let report = optimize(&sandbox);
    assert_eq!((&report["files_written_below"], &report["errors"]), (&0.into(), &0.into()));
    assert!(problems(&sandbox).is_empty());
    if can_mount() {
        // The mount keeps it as well, for whoever opens the file first.
        write_below(&sandbox, "inner/text", 70_000, b"by hand");
        text[70_000..70_007].copy_from_slice(b"by hand");
        let mount = Mount::share(&sandbox, "share");
        assert!(fs::read(share.join("inner/text")).unwrap() == text);
        assert!(fs::read(share.join("large")).unwrap() == large);
        assert!(problems(&sandbox)[0].contains(&line("inner/text")));
        let file = File::options().write(true).open(share.join("inner/text")).unwrap();
        file.write_all_at(b"by a program", 72_000).unwrap();
        drop(file);
        mount.end();
        text[72_000..72_012].copy_from_slice(b"by a program");
    }
    std::thread::sleep(Duration::from_millis(100));
    optimize(&sandbox);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    assert!(fs::read(share.join("large")).unwrap() == large);
    assert!(fs::read(share.join("inner/text")).unwrap() == text);
}

#[test]
fn a_file_whose_data_is_lost_stops_nothing_once_it_is_deleted_as_is_said() {
    let sandbox = with_share();
    let share = sandbox.arg("share");
    optimize(&sandbox);
    fs::remove_dir_all(sandbox.path("store/containers")).unwrap();
    fs::create_dir(sandbox.path("store/containers")).unwrap();
    let way_out = "delete the file, or restore it from a backup";
    let run = sandbox.run(&["share", "rehydrate", &share]).expect(3);
    assert!(run.stderr.contains("/large: ") && run.stderr.contains(way_out), "{}", run.stderr);
    let run = sandbox.run(&["share", "remove", &share]).expect(1);
    assert!(run.stderr.contains("has to be deleted"), "{}", run.stderr);
    // A copy that was made without the mount.
    let copied = sandbox.path("share/inner/copied");
    let how = ["-a", "--sparse=always"];
    let large = sandbox.arg("share/large");
    assert!(succeeds("cp", &[&how[..], &[&large, copied.to_str().unwrap()]].concat()));
    let run = sandbox.run(&["share", "repair", &share]).expect(3);
    assert!(run.stderr.contains("/inner/copied: ") && run.stderr.contains(way_out), "{run:?}");
    let gone = ["large", "inner/copied", "inner/copy of it", "inner/most/other name"];
    for name in gone.iter().chain(&["inner/text", "inner/sparse"]) {
        fs::remove_file(sandbox.path("share").join(name)).unwrap();
    }
    assert!(problems(&sandbox).is_empty(), "nothing is told of what is gone");
    sandbox.run(&["share", "rehydrate", &share]).expect(0);
    sandbox.run(&["share", "remove", &share]).expect(0);
}

#[test]
fn a_file_that_the_disk_has_no_room_for_is_named() {
    let sandbox = Sandbox::with_store();
    let Some(_disk) = Disk::new(&sandbox, "disk") else { return };
    let share = sandbox.path("disk/share");
    fs::create_dir(&share).unwrap();
    let bytes = crate::collecting::random_bytes(61, 20 << 20);
    fs::write(share.join("large one"), &bytes).unwrap();
    let arg = sandbox.arg("disk/share");
    sandbox.run(&["share", "create", "--min-age", "0s", &arg]).expect(0);
    std::thread::sleep(Duration::from_millis(100));
    sandbox.run(&["share", "optimize", &arg]).expect(0);
    // The store is elsewhere, so all that is free might be taken, and it is too little.
    fs::write(sandbox.path("disk/filler"), vec![1; 42 << 20]).unwrap();
    let run = sandbox.run(&["share", "rehydrate", &arg]);
    assert_ne!(run.code, 0);
    assert!(run.stderr.contains("/large one: its data takes 20480 KiB"), "{}", run.stderr);
}

/// Everything below a directory that does not belong to nobody.
fn of_others(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let known = path.symlink_metadata().unwrap();
        if (known.uid(), known.gid()) != (65534, 65534) {
            found.push(path.display().to_string());
        }
        if known.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

#[test]
fn what_root_makes_in_a_store_and_a_share_of_somebody_is_his() {
    if !can_change_rights() {
        return;
    }
    let sandbox = of_nobody();
    let share = sandbox.arg("share");
    sandbox.run(&["share", "run", "--pressure", "off", &share]).expect(0);
    sandbox.run(&["backup", &share]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    if can_mount() {
        Mount::share(&sandbox, "share").end();
        assert!(sandbox.path("share/.onefold-share/mount.lock").exists());
    }
    assert_eq!(of_others(&sandbox.path("store")), Vec::<String>::new());
    assert_eq!(of_others(&sandbox.path("share")), Vec::<String>::new());
    run_as(&sandbox, &NOBODY, &["check", "--read-data"]).expect(0);
    run_as(&sandbox, &NOBODY, &["share", "rehydrate", &share]).expect(0);
    run_as(&sandbox, &NOBODY, &["share", "remove", &share]).expect(0);
    // So is a share that root makes of a directory of his.
    sandbox.run(&["share", "create", "--min-age", "0s", &share]).expect(0);
    run_as(&sandbox, &NOBODY, &["share", "optimize", &share]).expect(0);
}
