//! Stubs whose data is damaged in the store: nothing is forgotten, what is whole stays whole, and
//! what is damaged is named until it is whole or gone.

use crate::collecting::random_bytes;
use crate::mounted::{Mount, can_mount};
use crate::sharing::{assert_seen, optimize, seen, status, with_share};
use crate::support::Sandbox;
use rustix::fs::{XattrFlags, lsetxattr};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

const GRANULE: usize = 64 << 10;

/// Files of the same bytes, which the damage is in.
const DAMAGED: [&str; 3] = ["large", "inner/copy of it", "inner/most/other name"];

/// The largest container: the large file's data is in it.
fn largest_container(sandbox: &Sandbox) -> PathBuf {
    let shards = fs::read_dir(sandbox.path("store/containers")).unwrap();
    let files = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

fn overwrite(path: &Path, bytes: &[u8]) {
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Flips a bit of the large file's data, lets a check find that, and optimises; the container, and
/// what it was.
fn with_damage(sandbox: &Sandbox) -> (PathBuf, Vec<u8>) {
    assert_eq!(optimize(sandbox)["files_optimized"], 4);
    let container = largest_container(sandbox);
    let whole = fs::read(&container).unwrap();
    let mut bytes = whole.clone();
    bytes[1_000_000] ^= 1;
    overwrite(&container, &bytes);
    assert_ne!(sandbox.run(&["check", "--read-data"]).code, 0);
    (container, whole)
}

/// Optimises a share of which files are damaged.
fn optimize_damaged(sandbox: &Sandbox) -> serde_json::Value {
    let run = sandbox.run(&["--json", "share", "optimize", &sandbox.arg("share")]).expect(3);
    run.message("optimized")
}

fn problems(sandbox: &Sandbox) -> Vec<String> {
    let known = status(sandbox);
    let lines = known["problems"].as_array().unwrap().iter();
    lines.map(|line| line.as_str().unwrap().to_owned()).collect()
}

/// Asserts that just these files are named as damaged.
#[track_caller]
fn assert_named(sandbox: &Sandbox, names: &[&str]) {
    let lines = problems(sandbox);
    let is_named = |line: &String| names.iter().any(|name| line.starts_with(&format!("/{name}: ")));
    assert!(lines.iter().all(is_named), "{lines:?}");
    for name in names {
        let line = |line: &String| line.starts_with(&format!("/{name}: "));
        assert!(lines.iter().any(line), "{name}: {lines:?}");
    }
}

fn manifests(sandbox: &Sandbox) -> usize {
    status(sandbox)["manifests"].as_array().unwrap().len()
}

#[test]
fn stubs_of_a_damaged_container_are_whole_once_it_is_back() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = seen(&share);
    let (container, whole) = with_damage(&sandbox);
    // A new manifest, which takes the place of the earlier one and forgets no stub.
    let fresh = random_bytes(7, 200_000);
    fs::write(share.join("fresh"), &fresh).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let report = optimize_damaged(&sandbox);
    assert_eq!((&report["files_damaged"], &report["errors"]), (&3.into(), &0.into()), "{report}");
    assert_eq!((&report["files_optimized"], manifests(&sandbox)), (&1.into(), 1), "{report}");
    assert_named(&sandbox, &DAMAGED);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);

    overwrite(&container, &whole);
    sandbox.run(&["check", "--read-data"]).expect(0);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    assert_eq!(optimize(&sandbox)["files_damaged"], 0);
    assert_named(&sandbox, &[]);
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    assert!(fs::read(share.join("fresh")).unwrap() == fresh);
    fs::remove_file(share.join("fresh")).unwrap();
    assert_seen(&before, &share);
}

#[test]
fn what_shares_a_container_with_damage_stays_whole_and_the_damage_is_named_until_it_is_gone() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let share = sandbox.path("share");
    let large = fs::read(share.join("large")).unwrap();
    let before = seen(&share);
    with_damage(&sandbox);
    optimize_damaged(&sandbox);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    assert_eq!(optimize_damaged(&sandbox)["files_damaged"], 3, "every time");
    assert_named(&sandbox, &DAMAGED);
    // A snapshot has none of them, and all else.
    let run = sandbox.run(&["backup", "--force", &sandbox.arg("share")]).expect(3);
    for name in DAMAGED {
        assert!(run.stderr.contains(&format!("{name}: ")), "{name}: {}", run.stderr);
    }
    let place = format!("latest:{}", sandbox.arg("share"));
    sandbox.run(&["restore", &place, "--target", &sandbox.arg("out")]).expect(0);
    assert!(!sandbox.path("out/large").exists());

    let mount = Mount::share(&sandbox, "share");
    for name in ["inner/text", "inner/sparse", "inner/small"] {
        let bytes = fs::read(share.join(name)).unwrap();
        assert!(before[Path::new(name)].ends_with(&bytes), "{name}");
        assert!(fs::read(sandbox.path("out").join(name)).unwrap() == bytes, "{name}");
    }
    let file = File::options().read(true).write(true).open(share.join("large")).unwrap();
    let mut bad = Vec::new();
    for offset in (0..large.len()).step_by(4096) {
        let mut buffer = [0; 4096];
        match file.read_at(&mut buffer, offset as u64) {
            Ok(read) => assert!(buffer[..read] == large[offset..offset + read]),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5));
                bad.push(offset);
            }
        }
    }
    assert!(!bad.is_empty() && bad.len() < 600, "{}", bad.len());
    // What is damaged is written anew, granule by granule; what is deleted is gone.
    let last = bad[bad.len() - 1] / GRANULE;
    for granule in bad[0] / GRANULE..=last {
        let end = large.len().min((granule + 1) * GRANULE);
        file.write_all_at(&large[granule * GRANULE..end], (granule * GRANULE) as u64).unwrap();
    }
    drop(file);
    fs::remove_file(share.join("inner/copy of it")).unwrap();
    mount.end();
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(optimize(&sandbox)["files_damaged"], 0);
    let run = [
        "share",
        "run",
        "--unmounted",
        "--pressure",
        "off",
        "--no-collect",
        "--scrub-share",
        "100%",
    ];
    sandbox.run(&[&run[..], &[&sandbox.arg("share")]].concat()).expect(0);
    assert_named(&sandbox, &[]);
    sandbox.run(&["gc", "--space-goal", "all"]).expect(0);
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    assert!(fs::read(share.join("large")).unwrap() == large);
}

#[test]
fn a_scrub_finds_damage_and_a_file_of_the_same_bytes_heals_it() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    let before = seen(&share);
    let large = fs::read(share.join("large")).unwrap();
    optimize(&sandbox);
    let container = largest_container(&sandbox);
    let mut bytes = fs::read(&container).unwrap();
    bytes[1_000_000] ^= 1;
    overwrite(&container, &bytes);
    let run = ["share", "run", "--pressure", "off", "--no-collect", "--scrub-share", "100%"];
    let run = || sandbox.run(&[&run[..], &[&sandbox.arg("share")]].concat());
    run().expect(1);
    assert_named(&sandbox, &DAMAGED);
    // Nobody relies on the container any more: the chunks of a new file are stored, all of them.
    fs::write(share.join("a new one"), &large).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    run();
    run().expect(0);
    assert_named(&sandbox, &[]);
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    assert!(fs::read(share.join("a new one")).unwrap() == large);
    fs::remove_file(share.join("a new one")).unwrap();
    assert_seen(&before, &share);
}

/// Fills the room that a file has for attributes; `false` if there is no end to it.
fn fill_attributes(path: &Path) -> bool {
    let set = |number: usize| {
        let name = format!("user.filled-{number}");
        lsetxattr(path, name.as_str(), &[1; 60], XattrFlags::empty())
    };
    (0..2000).any(|number| set(number).is_err())
}

#[test]
fn a_file_without_room_for_its_stub_stops_no_other() {
    let sandbox = with_share();
    let share = sandbox.path("share");
    if !fill_attributes(&share.join("inner/text")) {
        eprintln!("SKIPPED: a file without room for attributes: here is room for any");
        return;
    }
    let text = fs::read(share.join("inner/text")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let run = sandbox.run(&["--json", "share", "optimize", &sandbox.arg("share")]).expect(3);
    let report = run.message("optimized");
    assert_eq!((&report["files_optimized"], &report["errors"]), (&3.into(), &1.into()), "{report}");
    assert!(run.stderr.contains("/inner/text"), "{}", run.stderr);
    assert!(fs::read(share.join("inner/text")).unwrap() == text);
    assert!(fs::read(share.join("large")).unwrap().iter().all(|byte| *byte == 0));
}

/// Whoever serves a mount goes on for months, and a store may be away for a moment.
#[test]
fn what_a_store_did_not_have_while_it_was_away_is_there_when_it_is_back() {
    if !can_mount() {
        return;
    }
    let sandbox = with_share();
    let expected = fs::read(sandbox.path("share/large")).unwrap();
    optimize(&sandbox);
    let mount = Mount::share(&sandbox, "share");
    let (container, file) = (largest_container(&sandbox), sandbox.path("share/large"));
    let whole = fs::read(&container).unwrap();
    fs::remove_file(&container).unwrap();
    // What is deleted is let go of by then, and then it is looked for again.
    let moment = 2 * onefold_store::LET_GO_PERIOD;
    std::thread::sleep(moment);
    assert!(fs::read(&file).is_err());
    fs::write(&container, whole).unwrap();
    std::thread::sleep(moment);
    assert!(fs::read(&file).unwrap() == expected);
    mount.end();
}

#[test]
fn no_job_takes_the_files_of_its_own_store_for_those_of_the_share() {
    let sandbox = with_share();
    let moved = sandbox.path("share/inner/moved");
    fs::rename(sandbox.path("store"), &moved).unwrap();
    for job in ["optimize", "run"] {
        let mut command = sandbox.command(&["share", job, &sandbox.arg("share")]);
        let refused = command.env("ONEFOLD_REPOSITORY", &moved).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("its own files cannot be moved into it"), "{said}");
    }
}
