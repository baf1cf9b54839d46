//! Attributes and links that the target cannot have cost nothing else.

use super::replacing::Tmpfs;
use super::support::{Item, in_memory, random_bytes, store_tree};
use super::{options, restore_cleanly, restore_with_problems};
use onefold_engine::restore::{Overwrite, RestoreOptions};
use onefold_format::node::EntryKind;
use onefold_types::ErrorKind;
use rustix::fs::XattrFlags;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

fn has(path: &Path, name: &str) -> bool {
    rustix::fs::lgetxattr(path, name, &mut [0; 4096][..]).is_ok()
}

fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).is_ok()
}

/// More than a block of ext4 holds, and than the kernel lets any attribute have.
#[test]
fn r107_an_attribute_that_does_not_fit_costs_itself_only() {
    let (_, repository) = in_memory();
    let xattrs = |length: usize| {
        let value = vec![b'a'; length];
        vec![(b"user.big".to_vec(), value), (b"user.zz".to_vec(), b"1".to_vec())]
    };
    for length in [30_000, 70_000] {
        let file = Item::file("f", "hello").edit(|entry| entry.xattrs = xattrs(length));
        let directory = Item::directory("d", vec![]).edit(|entry| entry.xattrs = xattrs(length));
        let root = store_tree(&repository, vec![file, directory]);
        let target = tempfile::tempdir().unwrap();
        // The second time what is there has to be kept.
        for overwrite in [Overwrite::IfDifferent, Overwrite::IfDifferent, Overwrite::IfChanged] {
            let options = RestoreOptions { overwrite, ..options(target.path()) };
            let (report, problems) = restore_with_problems(&repository, &root, &options);
            for (name, mode) in [("f", 0o644), ("d", 0o755)] {
                let path = target.path().join(name);
                let known = fs::metadata(&path).unwrap();
                assert_eq!(known.mode() & 0o7777, mode, "{name}: {problems:?}");
                let times = (known.mtime(), known.mtime_nsec());
                assert_eq!(times, (1_600_000_000, 123_456_789), "{name}: {problems:?}");
                assert!(has(&path, "user.zz"), "{name}: {problems:?}");
                let told = problems.iter().any(|problem| problem.0.ends_with(name));
                let is_there = rustix::fs::lgetxattr_query(&path, "user.big") == Ok(length);
                assert!(told != is_there, "{name}: {problems:?}");
            }
            assert_eq!(report.errors, problems.len() as u64);
            assert!(length < 65_536 || problems.len() == 2, "{problems:?}");
        }
        assert_eq!(fs::read(target.path().join("f")).unwrap(), b"hello");
    }
}

/// A capability that lets a program do something, as the kernel keeps it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn r107_what_was_added_is_removed_in_all_namespaces() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_, repository) = in_memory();
    let items = |lacks: bool| {
        let edit = |item: Item| item.edit(|entry| entry.lacks_attributes = lacks);
        vec![
            edit(Item::file("f", "content")),
            edit(Item::directory("d", vec![])),
            edit(Item::symlink("link", "f")),
            edit(Item::special("pipe", EntryKind::Fifo)),
        ]
    };
    for lacks in [false, true] {
        let root = store_tree(&repository, items(lacks));
        let target = tempfile::tempdir().unwrap();
        restore_cleanly(&repository, &root, &options(target.path()));
        let mut added = Vec::new();
        for (name, attribute, value) in [
            ("f", "user.added", &b"1"[..]),
            ("f", "trusted.added", b"1"),
            ("f", "security.capability", &CAPABILITY),
            ("f", "security.added", b"1"),
            ("d", "trusted.added", b"1"),
            ("d", "user.added", b"1"),
            ("link", "trusted.added", b"1"),
            ("pipe", "trusted.added", b"1"),
        ] {
            let path = target.path().join(name);
            if set(&path, attribute, value) {
                added.push((path, attribute));
            }
        }
        assert!(added.iter().any(|(_, attribute)| *attribute == "security.capability"));
        for overwrite in [Overwrite::IfChanged, Overwrite::IfDifferent] {
            let options = RestoreOptions { overwrite, ..options(target.path()) };
            restore_cleanly(&repository, &root, &options);
            for (path, attribute) in &added {
                assert_eq!(has(path, attribute), lacks, "{} {attribute}", path.display());
            }
        }
        // What takes the place of a file has what nobody could save of it.
        fs::write(target.path().join("f"), "something else").unwrap();
        let is_there = has(&target.path().join("f"), "user.added");
        restore_cleanly(&repository, &root, &options(target.path()));
        assert_eq!(fs::read(target.path().join("f")).unwrap(), b"content");
        assert_eq!(has(&target.path().join("f"), "user.added"), is_there);
    }
}

#[test]
fn r107_rights_that_stay_are_told_each_time() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_, repository) = in_memory();
    let root = store_tree(&repository, vec![Item::file("f", "x"), Item::file("g", "y")]);
    let target = tempfile::tempdir().unwrap();
    restore_cleanly(&repository, &root, &options(target.path()));
    let chattr = |flag: &str, name: &str| {
        let path = target.path().join(name);
        let output = std::process::Command::new("chattr").arg(flag).arg(path).output();
        output.is_ok_and(|output| output.status.success())
    };
    for name in ["f", "g"] {
        assert!(set(&target.path().join(name), "security.capability", &CAPABILITY));
        if !chattr("+i", name) {
            eprintln!("SKIPPED: nothing can be made immutable here");
            return;
        }
    }
    let (report, problems) = restore_with_problems(&repository, &root, &options(target.path()));
    assert!(chattr("-i", "f") && chattr("-i", "g"));
    for name in ["/f", "/g"] {
        let told = |problem: &&super::Problem| {
            problem.0 == name && problem.2.contains("security.capability")
        };
        assert_eq!(problems.iter().filter(told).count(), 1, "{problems:?}");
    }
    assert!(report.errors >= 2);
}

fn name_of(item: Item, links: u64) -> Item {
    item.edit(|entry| (entry.links, entry.inode, entry.device) = (links, 5, 5))
}

/// More file systems than there are copies that links are tried to be made to.
const MOUNTS: usize = 8;

#[test]
fn r107_links_that_the_target_cannot_make_are_copied_and_counted() {
    let (_, repository) = in_memory();
    let bytes = random_bytes(9, 100_000);
    let links = 2 * MOUNTS as u64 + 1;
    let directories = (0..MOUNTS).map(|number| {
        let names = ["one", "two"].map(|name| name_of(Item::file(name, bytes.clone()), links));
        Item::directory(format!("m{number}"), names.to_vec())
    });
    let first = name_of(Item::file("a", bytes.clone()), links);
    let items = std::iter::once(first).chain(directories).collect();
    let root = store_tree(&repository, vec![Item::directory("out", items)]);
    let target = tempfile::tempdir().unwrap();
    let place = |number: usize| target.path().join(format!("out/m{number}"));
    let mounts: Vec<_> = (0..MOUNTS).map_while(|at| Tmpfs::new(place(at), "1m")).collect();
    if mounts.len() < MOUNTS {
        return;
    }
    let options = RestoreOptions {
        verify: true,
        overwrite: Overwrite::IfDifferent,
        ..options(target.path())
    };
    for copied in [MOUNTS as u64, 0] {
        let report = restore_cleanly(&repository, &root, &options);
        assert_eq!(report.links_copied, copied);
        for number in 0..MOUNTS {
            let [one, two] = ["one", "two"].map(|name| place(number).join(name));
            let known = [&one, &two].map(|path| fs::metadata(path).unwrap());
            assert_eq!(known[0].ino(), known[1].ino(), "m{number}");
            assert_eq!(known[0].mode() & 0o7777, 0o644);
            assert_eq!(known[0].mtime_nsec(), 123_456_789);
            assert!(fs::read(&two).unwrap() == bytes, "m{number}");
        }
    }
}

#[test]
fn r107_nothing_is_copied_of_a_file_that_is_not_complete() {
    let (memory, repository) = in_memory();
    let bytes = random_bytes(10, 50_000);
    let file = |name: &str| name_of(Item::file(name, bytes.clone()), 2);
    let root = store_tree(&repository, vec![file("a"), Item::directory("m", vec![file("b")])]);
    let target = tempfile::tempdir().unwrap();
    let Some(mount) = Tmpfs::new(target.path().join("m"), "1m") else { return };
    for id in super::data_containers(&memory, &repository) {
        let key = onefold_store::Key::new(onefold_format::layout::container(id)).unwrap();
        assert!(memory.remove(&key));
    }
    let (report, problems) = restore_with_problems(&repository, &root, &options(target.path()));
    assert_eq!((report.errors, report.links_copied), (2, 0), "{problems:?}");
    assert!(problems.iter().all(|problem| problem.1 == ErrorKind::Damaged), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.0 == "/m/b" && problem.2.contains("hard link")));
    assert!(!target.path().join("a").exists() && !mount.0.join("b").exists());
}

/// Changes something of an item, under whichever of its names.
type Change = fn(&Path);

const CHANGES: [Change; 3] = [
    |path| {
        let now = rustix::fs::Timespec { tv_sec: 1_500_000_000, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
    },
    |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap(),
    |path| assert!(set(path, "user.outside", b"x")),
];

/// What an item has of which a restore sets anything.
fn seen(path: &Path) -> (u64, u32, i64, i64, bool) {
    let known = fs::symlink_metadata(path).unwrap();
    (known.ino(), known.mode(), known.mtime(), known.mtime_nsec(), has(path, "user.outside"))
}

#[test]
fn r160_attributes_of_names_that_are_not_restored_stay_as_they_are() {
    let (_, repository) = in_memory();
    let items = vec![
        Item::file("file", "right"),
        Item::special("pipe", EntryKind::Fifo),
        Item::symlink("link", "file"),
    ];
    let root = store_tree(&repository, items);
    for overwrite in [Overwrite::IfDifferent, Overwrite::IfChanged] {
        // Links have a time only, and only files have attributes of users.
        for (name, changes) in [("file", 3), ("pipe", 2), ("link", 1)] {
            for change in &CHANGES[..changes] {
                let above = tempfile::tempdir().unwrap();
                let [inside, outside] = ["in", "outside"].map(|at| above.path().join(at));
                let options = RestoreOptions { overwrite, ..options(&inside) };
                restore_cleanly(&repository, &root, &options);
                let restored = inside.join(name);
                let wanted = seen(&restored);
                fs::hard_link(&restored, &outside).unwrap();
                let report = restore_cleanly(&repository, &root, &options);
                assert_eq!((seen(&restored), report.files_unchanged), (wanted, 1), "{name}");
                change(&outside);
                let before = seen(&outside);
                assert_eq!(seen(&restored), before, "{name}: it has two names");
                restore_cleanly(&repository, &root, &options);
                assert_eq!(seen(&outside), before, "{name}: nobody asked for the other name");
                let after = seen(&restored);
                assert_ne!(after.0, wanted.0, "{name}");
                assert_eq!(
                    (after.1, after.2, after.3, after.4),
                    (wanted.1, wanted.2, wanted.3, false)
                );
            }
        }
    }
}

#[test]
fn r160_attributes_of_names_beside_a_copy_of_a_link_stay_as_they_are() {
    let (_, repository) = in_memory();
    let file = |name: &str| name_of(Item::file(name, "right"), 2);
    let root = store_tree(&repository, vec![file("a"), Item::directory("m", vec![file("b")])]);
    let target = tempfile::tempdir().unwrap();
    let Some(mount) = Tmpfs::new(target.path().join("m"), "1m") else { return };
    restore_cleanly(&repository, &root, &options(target.path()));
    let [copy, outside] = ["b", "outside"].map(|name| mount.0.join(name));
    fs::hard_link(&copy, &outside).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
    let before = seen(&outside);
    restore_cleanly(&repository, &root, &options(target.path()));
    assert_eq!(seen(&outside), before);
    assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o7777, 0o644);
    assert_eq!(fs::read(&copy).unwrap(), b"right");
}
