//! What happens to what is in the target already.

use super::support::{CHUNK_BYTES, Item, Part, in_memory, random_bytes, store_tree};
use super::{options, patterns, restore_cleanly, restore_with_problems};
use onefold_engine::restore::{Delete, Overwrite, RestoreOptions, restore};
use onefold_engine::{Interrupt, Job};
use onefold_store::layers::{Fault, Faulty};
use onefold_store::{MemoryStore, Store};
use onefold_types::ErrorKind;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

fn set_modified(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

#[test]
fn the_rules_decide_which_files_are_replaced() {
    let (_, repository) = in_memory();
    let root = store_tree(&repository, vec![Item::file("f", "snapshot")]);
    let (earlier, same, later) = (1_500_000_000, 1_600_000_000, 1_700_000_000);
    for (rule, modified, content, expected) in [
        (Overwrite::IfDifferent, later, "existing", "snapshot"),
        (Overwrite::IfChanged, later, "existing", "snapshot"),
        (Overwrite::IfChanged, same, "longer than it", "snapshot"),
        (Overwrite::IfNewer, earlier, "existing", "snapshot"),
        (Overwrite::IfNewer, later, "existing", "existing"),
        (Overwrite::Never, earlier, "existing", "existing"),
    ] {
        let target = tempfile::tempdir().unwrap();
        let path = target.path().join("f");
        fs::write(&path, content).unwrap();
        set_modified(&path, modified);
        let options = RestoreOptions { overwrite: rule, ..options(target.path()) };
        let report = restore_cleanly(&repository, &root, &options);
        let found = fs::read_to_string(&path).unwrap();
        assert_eq!(found, expected, "{rule:?} {modified}");
        assert_eq!(report.files_skipped, u64::from(expected == "existing"));
    }
}

#[test]
fn only_what_differs_is_written() {
    let (_, repository) = in_memory();
    let bytes = random_bytes(1, CHUNK_BYTES * 50 + 10);
    let root = store_tree(
        &repository,
        vec![Item::parts("f", vec![Part::Bytes(bytes.clone()), Part::Hole(100_000)])],
    );
    let mut expected = bytes.clone();
    expected.resize(bytes.len() + 100_000, 0);
    let chunk = CHUNK_BYTES as u64;
    let change = |name: &str, file: &fs::File| match name {
        "none" => {}
        "one byte" => file.write_all_at(&[1], 5 * chunk + 7).unwrap(),
        "two chunks" => file.write_all_at(&[1; 2], 9 * chunk - 1).unwrap(),
        "hole" => file.write_all_at(b"x", bytes.len() as u64 + 9).unwrap(),
        "shorter" => file.set_len(48 * chunk).unwrap(),
        _ => file.set_len(1_000_000).unwrap(),
    };
    for (name, written) in [
        ("none", 0),
        ("one byte", chunk),
        ("two chunks", 2 * chunk),
        ("hole", 0),
        ("shorter", 2 * chunk + 10),
        ("longer", 0),
    ] {
        let target = tempfile::tempdir().unwrap();
        let path = target.path().join("f");
        fs::write(&path, &expected).unwrap();
        change(name, &fs::File::options().write(true).open(&path).unwrap());
        let options = RestoreOptions {
            overwrite: Overwrite::IfDifferent,
            verify: true,
            ..options(target.path())
        };
        let report = restore_cleanly(&repository, &root, &options);
        assert_eq!(report.bytes_written, written, "{name}");
        assert_eq!(report.files_unchanged, u64::from(name == "none"), "{name}");
        assert!(fs::read(&path).unwrap() == expected, "{name}");
        assert_eq!(fs::metadata(&path).unwrap().mtime_nsec(), 123_456_789);
    }
}

#[test]
fn unchanged_files_are_not_read_but_their_attributes_are_mended() {
    let (_, repository) = in_memory();
    let root = store_tree(&repository, vec![Item::file("f", "snapshot")]);
    let target = tempfile::tempdir().unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    let path = target.path().join("f");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&path, private).unwrap();
    rustix::fs::setxattr(&path, "user.extra", b"x", rustix::fs::XattrFlags::empty()).unwrap();
    let report = restore_cleanly(&repository, &root, &options(target.path()));
    assert_eq!((report.files_unchanged, report.bytes_read), (1, 0));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    let mut buffer = [0; 100];
    assert!(rustix::fs::getxattr(&path, "user.extra", &mut buffer).is_err());
}

#[test]
fn items_of_another_kind_give_way() {
    let (_, repository) = in_memory();
    let root = store_tree(
        &repository,
        vec![
            Item::directory("directory", vec![Item::file("f", "x")]),
            Item::file("file", "y"),
            Item::symlink("link", "elsewhere"),
        ],
    );
    let target = tempfile::tempdir().unwrap();
    let at = |name: &str| target.path().join(name);
    fs::write(at("directory"), "a file").unwrap();
    fs::create_dir(at("file")).unwrap();
    symlink("wrong", at("link")).unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    assert_eq!(fs::read(at("directory/f")).unwrap(), b"x");
    assert_eq!(fs::read(at("file")).unwrap(), b"y");
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("elsewhere"));

    fs::remove_file(at("file")).unwrap();
    fs::create_dir_all(at("file/full")).unwrap();
    let (report, problems) = restore_with_problems(&repository, &root, &options(target.path()));
    assert_eq!((report.errors, problems[0].0.as_str()), (1, "/file"));
    let options = RestoreOptions { delete: Delete::Known, ..options(target.path()) };
    restore_cleanly(&repository, &root, &options);
    assert_eq!(fs::read(at("file")).unwrap(), b"y");
}

#[test]
fn delete_removes_what_is_not_in_the_snapshot_and_nothing_else() {
    let (_, repository) = in_memory();
    let root = store_tree(
        &repository,
        vec![Item::directory("a", vec![Item::file("keep", "x")]), Item::directory("out", vec![])],
    );
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "p").unwrap();
    let target = tempfile::tempdir().unwrap();
    let at = |name: &str| target.path().join(name);
    fs::create_dir_all(at("a/gone/deep")).unwrap();
    fs::create_dir_all(at("out")).unwrap();
    for name in ["a/gone/deep/f", "a/gone/g", "h", "stay.log", "a/also.log", "out/f"] {
        fs::write(at(name), "x").unwrap();
    }
    symlink(outside.path(), at("a/link")).unwrap();
    symlink(outside.path(), at("a/gone/link")).unwrap();
    let options = RestoreOptions {
        delete: Delete::Known,
        exclude: patterns(&["*.log", "/out"]),
        ..options(target.path())
    };
    let dry = RestoreOptions { dry_run: true, ..options.clone() };
    // gone, gone/deep, gone/deep/f, gone/g, gone/link, link, h
    let paths = ["/a/gone", "/a/link", "/h"];
    for options in [&dry, &options] {
        let surplus = restore_cleanly(&repository, &root, options).surplus;
        assert_eq!((surplus.deleted, surplus.kept, surplus.deleted_paths.more), (7, 0, 0));
        assert_eq!(surplus.deleted_paths.paths, paths);
    }
    assert!(at("stay.log").exists() && at("a/also.log").exists() && at("out/f").exists());
    assert!(at("a/keep").exists() && !at("a/gone").exists() && !at("h").exists());
    assert!(!at("a/link").is_symlink());
    assert!(outside.path().join("precious").exists());
}

#[test]
fn delete_spares_the_store_and_refuses_impossible_targets() {
    let target = tempfile::tempdir().unwrap();
    let place = target.path().join("backups/store");
    fs::create_dir_all(target.path().join("backups")).unwrap();
    let store = Arc::new(onefold_store::LocalStore::create(&place).unwrap());
    let repository = super::support::repository_on(store);
    let root = store_tree(&repository, vec![Item::file("f", "x")]);
    let delete = |target: &Path| RestoreOptions { delete: Delete::Known, ..options(target) };
    let (report, problems) = restore_with_problems(&repository, &root, &delete(target.path()));
    assert_eq!(report.errors, 1);
    assert_eq!(problems[0].0, "/backups/store");
    assert!(place.join("config").exists() && target.path().join("f").exists());
    restore_cleanly(&repository, &root, &options(target.path()));
    for wrong in [Path::new("/"), &place, &place.join("containers")] {
        let (job, _) = Job::unattended();
        let error = restore(&repository, &root, &delete(wrong), &job).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong:?}");
    }
}

#[test]
fn an_interrupted_restore_leaves_no_incomplete_file_and_can_be_completed() {
    let memory = MemoryStore::new();
    let interrupt: Arc<Mutex<Option<(Interrupt, u32)>>> = Arc::default();
    let shared = Arc::clone(&interrupt);
    let faulty = Faulty::scripted(memory, move |call| {
        if call.operation == onefold_store::layers::Operation::GetRange
            && let Some((interrupt, left)) = &mut *shared.lock().unwrap()
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                interrupt.request();
            }
        }
        Fault::None
    });
    let repository = super::support::repository_on(Arc::new(faulty) as Arc<dyn Store>);
    let bytes = |n: u64| random_bytes(n, 70_000 + n as usize * 999);
    let files = (0..60).map(|n| Item::file(format!("f{n}"), bytes(n)));
    let root = store_tree(&repository, files.collect());
    for reads in [1, 3, 6, 9] {
        let target = tempfile::tempdir().unwrap();
        let (job, _) = Job::unattended();
        *interrupt.lock().unwrap() = Some((job.interrupt.clone(), reads));
        let error = restore(&repository, &root, &options(target.path()), &job).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        *interrupt.lock().unwrap() = None;
        let mut whole = 0;
        for entry in fs::read_dir(target.path()).unwrap() {
            let path = entry.unwrap().path();
            let number = path.file_name().unwrap().to_str().unwrap()[1..].parse();
            assert!(fs::read(&path).unwrap() == bytes(number.unwrap()), "{path:?}");
            whole += 1;
        }
        assert!(whole < 60);
        let report = restore_cleanly(&repository, &root, &options(target.path()));
        assert_eq!(report.files_unchanged, whole);
        for number in 0..60 {
            let found = fs::read(target.path().join(format!("f{number}"))).unwrap();
            assert!(found == bytes(number));
        }
    }
}

#[test]
fn a_full_target_stops_the_restore_and_names_the_file() {
    let target = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(target.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return;
    }
    let (_, repository) = in_memory();
    let bytes = random_bytes(1, 3_000_000);
    let root = store_tree(&repository, vec![Item::file("large", bytes)]);
    let (job, _) = Job::unattended();
    let result = restore(&repository, &root, &options(target.path()), &job);
    let left = fs::read_dir(target.path()).unwrap().count();
    let unmounted = std::process::Command::new("umount").arg(target.path()).status();
    assert!(unmounted.unwrap().success());
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("/large"), "{error}");
    assert_eq!(left, 0);
}

#[test]
fn r144_what_is_below_a_directory_whose_place_is_taken_is_told_and_counted() {
    let (_, repository) = in_memory();
    let inner = (1..=4).map(|n| Item::file(format!("{n}"), "x"));
    let deep = Item::directory("deep", vec![Item::file("5", "x")]);
    let taken = Item::directory("taken", inner.chain([deep]).collect());
    let empty = Item::directory("empty", Vec::new());
    let root = store_tree(&repository, vec![taken, empty, Item::file("free", "x")]);
    let target = tempfile::tempdir().unwrap();
    for overwrite in [Overwrite::Never, Overwrite::IfNewer] {
        for dry_run in [true, false] {
            let _ = fs::remove_file(target.path().join("free"));
            for name in ["taken", "empty"] {
                fs::write(target.path().join(name), "here first").unwrap();
            }
            let options = RestoreOptions { overwrite, dry_run, ..options(target.path()) };
            let (report, problems) = restore_with_problems(&repository, &root, &options);
            // The two files in the way, and all that is below one of the directories.
            assert_eq!((report.files_skipped, report.errors), (8, 1), "{report:?}");
            assert_eq!((&*problems[0].0, problems.len()), ("/taken", 1));
            assert!(problems[0].2.contains("6 items below it are not restored"), "{problems:?}");
            assert_eq!(target.path().join("free").exists(), !dry_run);
            for name in ["taken", "empty"] {
                assert_eq!(fs::read(target.path().join(name)).unwrap(), b"here first");
            }
        }
    }
    // Of what is selected below each one counts.
    let include = patterns(&["/taken/[12]", "/taken/deep"]);
    let options = RestoreOptions { overwrite: Overwrite::Never, include, ..options(target.path()) };
    let (report, problems) = restore_with_problems(&repository, &root, &options);
    assert_eq!((report.files_skipped, report.errors), (5, 1), "{report:?}");
    assert!(problems[0].2.contains("what is selected below it"), "{problems:?}");
}
