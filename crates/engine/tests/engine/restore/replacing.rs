//! How what is there gives way to what is restored: by another file, or in place.

use super::support::{Item, Part, in_memory, random_bytes, store_tree};
use super::{options, restore_cleanly, restore_with_problems};
use onefold_engine::restore::{Overwrite, RestoreOptions, RestoreReport};
use onefold_engine::{Interrupt, Job};
use onefold_format::node::EntryKind;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::ErrorKind;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A small file system in memory that is mounted until this is dropped.
pub struct Tmpfs(pub PathBuf);

impl Tmpfs {
    /// `None` where this user may not mount.
    pub fn new(place: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&place).unwrap();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]);
        let mounted = mount_at(&mut mount, &place);
        if !mounted {
            eprintln!("SKIPPED: it takes the right to mount");
        }
        mounted.then_some(Self(place))
    }
}

fn mount_at(command: &mut Command, place: &Path) -> bool {
    command.arg(place).output().is_ok_and(|output| output.status.success())
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn comparing(target: &Path) -> RestoreOptions {
    RestoreOptions { overwrite: Overwrite::IfDifferent, verify: true, ..options(target) }
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Bytes that differ from others in the middle only.
fn changed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 9].copy_from_slice(b"something");
    bytes
}

#[test]
fn r108_who_has_a_file_open_keeps_what_was_there() {
    let (_, repository) = in_memory();
    let bytes = random_bytes(1, 300_000);
    let root = store_tree(
        &repository,
        vec![Item::file("differs", bytes.clone()), Item::file("right", bytes.clone())],
    );
    for there in [changed(&bytes), bytes[..100_000].to_vec(), [&bytes[..], b"more"].concat()] {
        let target = tempfile::tempdir().unwrap();
        let [differs, right] = ["differs", "right"].map(|name| target.path().join(name));
        fs::write(&differs, &there).unwrap();
        fs::write(&right, &bytes).unwrap();
        let before = [inode(&differs), inode(&right)];
        let mut open = File::open(&differs).unwrap();
        let report = restore_cleanly(&repository, &root, &comparing(target.path()));
        assert_eq!((report.files_unchanged, report.files_in_place), (1, 0));
        let mut seen = Vec::new();
        open.rewind().unwrap();
        open.read_to_end(&mut seen).unwrap();
        assert!(seen == there, "it was rewritten under whoever had it open");
        assert!(fs::read(&differs).unwrap() == bytes);
        assert_ne!(inode(&differs), before[0]);
        assert_eq!(inode(&right), before[1], "what is right is not replaced");
        assert_eq!(names(target.path()), ["differs", "right"]);
    }
}

#[test]
fn r108_holes_and_what_is_equal_are_taken_over() {
    use super::support::Part;
    let (_, repository) = in_memory();
    let bytes = random_bytes(2, 400_000);
    let parts = [Part::Bytes(bytes.clone()), Part::Hole(3 << 20), Part::Bytes(bytes.clone())];
    let item = Item::parts("f", parts.to_vec()).edit(|entry| entry.sparse = true);
    let root = store_tree(&repository, vec![item]);
    let expected = [&bytes[..], &vec![0; 3 << 20], &bytes].concat();
    let target = tempfile::tempdir().unwrap();
    let path = target.path().join("f");
    restore_cleanly(&repository, &root, &options(target.path()));
    for at in [5, bytes.len() + 1000, expected.len() - 5] {
        File::options().write(true).open(&path).unwrap().write_all_at(b"x", at as u64).unwrap();
        let before = inode(&path);
        restore_cleanly(&repository, &root, &comparing(target.path()));
        assert!(fs::read(&path).unwrap() == expected, "{at}");
        assert_ne!(inode(&path), before);
        assert!(fs::metadata(&path).unwrap().blocks() < 2400, "the hole is a hole");
    }
}

/// Restores over files that are there, in a file system of some size; what was there is changed.
fn in_room(size: &str, files: &[(&str, usize)], fresh: Option<usize>) -> Option<RestoreReport> {
    let (_, repository) = in_memory();
    let bytes = |name: &str, length: usize| random_bytes(name.len() as u64, length);
    let mut items: Vec<Item> =
        files.iter().map(|(name, length)| Item::file(name, bytes(name, *length))).collect();
    items.extend(fresh.map(|length| Item::file("new", bytes("new", length))));
    let root = store_tree(&repository, items);
    let above = tempfile::tempdir().unwrap();
    let target = Tmpfs::new(above.path().join("t"), size)?;
    for (name, length) in files {
        fs::write(target.0.join(name), changed(&bytes(name, *length))).unwrap();
    }
    let before: Vec<u64> = files.iter().map(|(name, _)| inode(&target.0.join(name))).collect();
    let report = restore_cleanly(&repository, &root, &comparing(&target.0));
    let mut stayed = 0;
    for ((name, length), before) in files.iter().zip(before) {
        let path = target.0.join(name);
        assert!(fs::read(&path).unwrap() == bytes(name, *length), "{name}");
        assert_eq!(fs::metadata(&path).unwrap().mtime(), 1_600_000_000);
        stayed += u64::from(inode(&path) == before);
    }
    assert_eq!(stayed, report.files_in_place);
    assert_eq!(names(&target.0).len(), files.len() + usize::from(fresh.is_some()));
    Some(report)
}

#[test]
fn r108_where_there_is_no_room_a_file_is_rewritten_in_place() {
    let Some(report) = in_room("5m", &[("a", 3_000_000)], None) else { return };
    assert_eq!(report.files_in_place, 1);
    // Room for one of them after the other.
    let report = in_room("5m", &[("a", 1_500_000), ("bb", 1_500_000), ("ccc", 90)], None).unwrap();
    assert_eq!(report.files_in_place, 0);
    // One of them has to wait for the room that the other one takes.
    in_room("6m", &[("a", 2_000_000)], Some(3_000_000)).unwrap();
}

#[test]
fn r108_a_restore_in_place_keeps_the_file_but_not_under_other_names() {
    let (_, repository) = in_memory();
    let bytes = random_bytes(3, 100_000);
    let root = store_tree(
        &repository,
        vec![Item::file("alone", bytes.clone()), Item::file("linked", bytes.clone())],
    );
    let target = tempfile::tempdir().unwrap();
    let [alone, linked, other] = ["alone", "linked", "other"].map(|name| target.path().join(name));
    fs::write(&alone, changed(&bytes)).unwrap();
    fs::write(&linked, changed(&bytes)).unwrap();
    fs::hard_link(&linked, &other).unwrap();
    let before = [inode(&alone), inode(&linked)];
    let options = RestoreOptions { in_place: true, ..comparing(target.path()) };
    let report = restore_cleanly(&repository, &root, &options);
    assert_eq!(report.files_in_place, 1);
    assert_eq!(inode(&alone), before[0]);
    assert_ne!(inode(&linked), before[1]);
    assert!(fs::read(&alone).unwrap() == bytes && fs::read(&linked).unwrap() == bytes);
    assert!(fs::read(&other).unwrap() == changed(&bytes), "nobody asked for the other name");
}

#[test]
fn r108_what_may_not_be_replaced_or_opened_is_left_as_it_was() {
    let (_, repository) = in_memory();
    let bytes = random_bytes(4, 50_000);
    let root = store_tree(&repository, vec![Item::file("f", bytes.clone())]);
    for in_place in [false, true] {
        let target = tempfile::tempdir().unwrap();
        let path = target.path().join("f");
        fs::write(&path, changed(&bytes)).unwrap();
        let chattr = |flag: &str| {
            Command::new("chattr").arg(flag).arg(&path).output().is_ok_and(|it| it.status.success())
        };
        if !chattr("+i") {
            eprintln!("SKIPPED: nothing can be made immutable here");
            return;
        }
        let options = RestoreOptions { in_place, ..comparing(target.path()) };
        let (report, problems) = restore_with_problems(&repository, &root, &options);
        assert!(chattr("-i"));
        assert_eq!((report.errors, problems[0].0.as_str()), (1, "/f"), "{problems:?}");
        assert!(problems[0].2.contains("left as it was"), "{problems:?}");
        assert!(fs::read(&path).unwrap() == changed(&bytes));
        assert_eq!(names(target.path()), ["f"]);
    }
}

#[test]
fn r108_a_file_that_is_a_mount_point_is_rewritten_in_place() {
    let (_, repository) = in_memory();
    let bytes = random_bytes(5, 50_000);
    let root = store_tree(&repository, vec![Item::file("f", bytes.clone())]);
    let above = tempfile::tempdir().unwrap();
    let Some(target) = Tmpfs::new(above.path().join("t"), "10m") else { return };
    let [path, elsewhere] = ["f", "elsewhere"].map(|name| target.0.join(name));
    fs::write(&path, "").unwrap();
    fs::write(&elsewhere, changed(&bytes)).unwrap();
    assert!(mount_at(Command::new("mount").arg("--bind").arg(&elsewhere), &path));
    let (report, problems) = restore_with_problems(&repository, &root, &comparing(&target.0));
    let found = fs::read(&elsewhere).unwrap();
    assert!(mount_at(&mut Command::new("umount"), &path));
    assert_eq!((problems, report.files_in_place), (Vec::new(), 1));
    assert!(found == bytes);
}

#[test]
fn r108_what_a_killed_restore_left_is_removed_by_the_next() {
    let (_, repository) = in_memory();
    let root = store_tree(&repository, vec![Item::file("f", "right")]);
    let target = tempfile::tempdir().unwrap();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let running = std::os::unix::process::parent_id();
    let left = [gone.id(), std::process::id()].map(|it| format!(".onefold-restoring-{it}-17"));
    let stays = [format!(".onefold-restoring-{running}-17"), ".onefold-restoring-x".to_owned()];
    for name in left.iter().chain(&stays).map(String::as_str).chain(["f"]) {
        fs::write(target.path().join(name), "was there").unwrap();
    }
    restore_cleanly(&repository, &root, &comparing(target.path()));
    let mut expected = [stays.to_vec(), vec!["f".to_owned()]].concat();
    expected.sort();
    assert_eq!(names(target.path()), expected);
}

fn copy_tree(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

/// The target is looked at while a file is being written: a restore that is killed leaves that.
#[test]
fn r162_what_a_killed_restore_has_left_is_not_left_alone_as_somebodys_own() {
    let above = tempfile::tempdir().unwrap();
    let [target, killed, again] = ["target", "killed", "again"].map(|at| above.path().join(at));
    let (from, to) = (target.clone(), killed.clone());
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    let faulty = Faulty::scripted(MemoryStore::new(), move |call| {
        let is_begun = from.join("d/f").exists() && !ended.load(Ordering::Relaxed);
        if call.operation == Operation::GetRange && is_begun {
            copy_tree(&from, &to);
        }
        Fault::None
    });
    let repository = super::support::repository_on(Arc::new(faulty) as Arc<dyn Store>);
    // A hole is made before anything is read.
    let bytes = random_bytes(6, 50_000);
    let file = Item::parts("f", vec![Part::Hole(8192), Part::Bytes(bytes.clone())]);
    let pipe = Item::special("p", EntryKind::Fifo);
    let root = store_tree(&repository, vec![Item::directory("d", vec![file, pipe])]);
    let wanted = [vec![0; 8192], bytes].concat();
    let options = RestoreOptions { threads: 1, ..options(&target) };
    restore_cleanly(&repository, &root, &options);
    has_ended.store(true, Ordering::Relaxed);
    let half = fs::read(killed.join("d/f")).unwrap();
    assert!(half != wanted, "it was killed too late");
    // The pipe as it is before it gets what it is to have: the mode of the file.
    let made = fs::metadata(killed.join("d/f")).unwrap().permissions();
    fs::set_permissions(killed.join("d/p"), made).unwrap();
    let seen = |path: &Path| {
        let known = fs::metadata(path).unwrap();
        (known.mode() & 0o7777, known.mtime())
    };
    for overwrite in [Overwrite::Never, Overwrite::IfNewer] {
        copy_tree(&killed, &again);
        let options = RestoreOptions { overwrite, target: again.clone(), ..options.clone() };
        let report = restore_cleanly(&repository, &root, &options);
        assert_eq!(report.files_skipped, 0, "{overwrite:?}");
        assert!(fs::read(again.join("d/f")).unwrap() == wanted, "{overwrite:?}");
        assert_eq!(seen(&again.join("d/f")), (0o644, 1_600_000_000));
        assert_eq!(seen(&again.join("d")), (0o755, 1_600_000_000));
        assert_eq!(seen(&again.join("d/p")), (0o640, 1_600_000_000));
        // What is finished is somebody's own, be it as short and as young.
        copy_tree(&killed, &again);
        for (name, mode) in [("d/f", 0o600), ("d/p", 0o600), ("d", 0o700)] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(again.join(name), mode).unwrap();
        }
        let report = restore_cleanly(&repository, &root, &options);
        assert_eq!(report.files_skipped, 2, "{overwrite:?}");
        assert!(fs::read(again.join("d/f")).unwrap() == half, "{overwrite:?}");
        assert_eq!(seen(&again.join("d")).0, 0o700);
    }
}

#[test]
fn r108_items_of_other_kinds_are_replaced_without_a_moment_in_between() {
    let (_, repository) = in_memory();
    let root = store_tree(
        &repository,
        vec![Item::file("file", "restored"), Item::symlink("link", "where it leads")],
    );
    let target = tempfile::tempdir().unwrap();
    let at = |name: &str| target.path().join(name);
    std::os::unix::fs::symlink("elsewhere", at("file")).unwrap();
    fs::write(at("link"), "a file").unwrap();
    restore_cleanly(&repository, &root, &comparing(target.path()));
    assert_eq!(fs::read(at("file")).unwrap(), b"restored");
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("where it leads"));
    assert_eq!(names(target.path()), ["file", "link"]);
}

fn linked(name: &str, bytes: &[u8], inode: u64) -> Item {
    Item::file(name, bytes).edit(|entry| (entry.links, entry.inode, entry.device) = (2, inode, 7))
}

/// Two names of one file in the target, for any two items.
fn restored_over_one(items: Vec<Item>, there: &str) -> (tempfile::TempDir, RestoreReport) {
    let (_, repository) = in_memory();
    let root = store_tree(&repository, items);
    let target = tempfile::tempdir().unwrap();
    fs::write(target.path().join("x"), there).unwrap();
    fs::hard_link(target.path().join("x"), target.path().join("y")).unwrap();
    let report = restore_cleanly(&repository, &root, &comparing(target.path()));
    assert_eq!(names(target.path()), ["x", "y"]);
    (target, report)
}

#[test]
fn r108_names_of_one_file_become_what_the_snapshot_says() {
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
    for there in ["same", "another", "2"] {
        let separate = vec![
            Item::file("x", "same").edit(|entry| entry.mode = 0o600),
            Item::file("y", "same").edit(|entry| entry.mode = 0o644),
        ];
        let (target, _) = restored_over_one(separate, there);
        let [x, y] = ["x", "y"].map(|name| target.path().join(name));
        assert_ne!(inode(&x), inode(&y));
        assert_eq!(
            (fs::read(&x).unwrap(), fs::read(&y).unwrap()),
            (b"same".into(), b"same".into())
        );
        assert_eq!((mode(x), mode(y)), (0o600, 0o644));
        let (target, report) =
            restored_over_one(vec![linked("x", b"same", 5), linked("y", b"same", 5)], there);
        let [x, y] = ["x", "y"].map(|name| target.path().join(name));
        assert_eq!(inode(&x), inode(&y));
        assert_eq!(fs::read(&y).unwrap(), b"same");
        // Their attributes differ, and whether all of its names are restored shows only later.
        assert_eq!(report.files_unchanged, 0);
    }
}

#[test]
fn r108_an_interrupted_restore_leaves_what_was_there_or_what_is_restored() {
    let interrupt: Arc<Mutex<Option<(Interrupt, u32)>>> = Arc::default();
    let shared = Arc::clone(&interrupt);
    let faulty = Faulty::scripted(MemoryStore::new(), move |call| {
        if call.operation == Operation::GetRange
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
    let bytes = |number: u64| random_bytes(number, 70_000 + number as usize * 999);
    let name = |number: u64| format!("f{number:02}");
    let root = store_tree(&repository, (0..60).map(|it| Item::file(name(it), bytes(it))).collect());
    for reads in [1, 3, 6, 9] {
        let target = tempfile::tempdir().unwrap();
        for number in 0..60 {
            fs::write(target.path().join(name(number)), changed(&bytes(number))).unwrap();
        }
        let (job, told) = Job::unattended();
        *interrupt.lock().unwrap() = Some((job.interrupt.clone(), reads));
        let options = comparing(target.path());
        let error = onefold_engine::restore::restore(&repository, &root, &options, &job);
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Interrupted);
        assert_eq!(super::problems(&told), []);
        *interrupt.lock().unwrap() = None;
        assert_eq!(names(target.path()), (0..60).map(name).collect::<Vec<_>>());
        for number in 0..60 {
            let found = fs::read(target.path().join(name(number))).unwrap();
            assert!(found == bytes(number) || found == changed(&bytes(number)), "{number}");
        }
        restore_cleanly(&repository, &root, &options);
        for number in 0..60 {
            assert!(fs::read(target.path().join(name(number))).unwrap() == bytes(number));
        }
    }
}
