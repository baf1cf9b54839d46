//! The local store on the real disk.

use super::*;
use crate::conformance;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// A directory that the tests' machine keeps on disk, and a store in it that can be opened.
fn store() -> (tempfile::TempDir, PathBuf, LocalStore) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let store = LocalStore::create(&path).unwrap();
    store.put(&key("config"), b"{}").unwrap();
    (root, path, store)
}

#[test]
fn conforms() {
    let root = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    conformance::run(&|| {
        number.set(number.get() + 1);
        Box::new(LocalStore::create(root.path().join(number.get().to_string())).unwrap())
    })
    .unwrap();
    let left = fs::read_dir(root.path().join(format!("{}/tmp", number.get()))).unwrap().count();
    assert_eq!(left, 0, "temporary files are left");
}

#[test]
fn more_files_and_directories_than_are_kept_open_are_read_and_written_as_well() {
    let (_root, _path, store) = store();
    // One more than DIRECTORIES_MAX, and many more than HANDLES_MAX.
    let name = |number: usize| key(&format!("a/{number}/object"));
    let count = objects::DIRECTORIES_MAX.get() + 1;
    assert!(count > objects::HANDLES_MAX.get());
    for number in 0..count {
        store.put(&name(number), &number.to_le_bytes()).unwrap();
    }
    // The directory of the first one is open no more.
    store.put(&key("a/0/other"), b"other").unwrap();
    for _ in 0..2 {
        for number in 0..count {
            let mut bytes = [0; 8];
            store.get_range(&name(number), 0, &mut bytes).unwrap();
            assert_eq!(bytes, number.to_le_bytes());
        }
    }
    for number in 0..count {
        store.delete(&name(number)).unwrap();
        let gone = store.get_range(&name(number), 0, &mut [0; 8]).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound, "{number}");
    }
    assert_eq!(store.get(&key("a/0/other")).unwrap(), b"other");
}

#[test]
fn creating_refuses_what_is_not_empty_and_opening_what_is_no_store() {
    let (root, path, _store) = store();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(LocalStore::create(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(LocalStore::create(root.path().join("no/parent")).is_err());
    fs::create_dir(root.path().join("empty")).unwrap();
    fs::create_dir(root.path().join("empty/lost+found")).unwrap();
    fs::create_dir(root.path().join("empty/tmp")).unwrap();
    LocalStore::create(root.path().join("empty")).unwrap();
    fs::write(root.path().join("file"), b"x").unwrap();
    for missing in ["missing", "empty", "file", "missing/below", "file/below"] {
        let error = LocalStore::open(root.path().join(missing)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoStore, "{missing}: {error}");
    }
    assert_eq!(LocalStore::open("").unwrap_err().kind(), ErrorKind::NoStore);
    assert!(LocalStore::create("").is_err() && LocalStore::create("/").is_err());
    LocalStore::open(&path).unwrap();
}

#[test]
fn a_store_opened_for_reading_refuses_every_write() {
    let (_root, path, writable) = store();
    writable.decide(&key("outcomes/s"), b"won").unwrap();
    let store = LocalStore::open_read_only(&path).unwrap();
    assert_eq!(store.get(&key("config")).unwrap(), b"{}");
    assert_eq!(store.decided(&key("outcomes/s")).unwrap().unwrap(), b"won");
    store.settle("").unwrap();
    let refused = [
        store.put(&key("a"), b"x").unwrap_err(),
        store.delete(&key("config")).unwrap_err(),
        store.decide(&key("outcomes/s"), b"x").unwrap_err(),
        store.ensure_reserve(1).unwrap_err(),
        store.shrink_reserve(0).unwrap_err(),
        store.remove_stale_temporaries().unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.kind() == ErrorKind::ReadOnly));
    assert!(writable.get(&key("config")).is_ok());
}

#[test]
fn r32_symlinked_unicode_and_long_paths_work() {
    let (root, path, store) = store();
    store.put(&key("containers/aa/1"), b"one").unwrap();

    let link = root.path().join("link");
    symlink(&path, &link).unwrap();
    let linked = LocalStore::open(&link).unwrap();
    linked.put(&key("containers/aa/2"), b"two").unwrap();
    fs::remove_file(&link).unwrap();
    linked.put(&key("containers/ab/3"), b"three").unwrap();
    assert_eq!(store.get(&key("containers/ab/3")).unwrap(), b"three");

    let odd = LocalStore::create(root.path().join("Ünïcode ☃ \n '$(x)'")).unwrap();
    odd.put(&key("config"), b"x").unwrap();
    assert_eq!(odd.get(&key("config")).unwrap(), b"x");

    // Longer than the kernel takes in one call.
    let mut long = root.path().to_owned();
    for depth in 0..24 {
        long.push(format!("{depth:0>200}"));
        LocalStore::create(&long).unwrap();
    }
    assert!(long.as_os_str().len() > 4096);
    let deep = LocalStore::create(&long).unwrap();
    deep.put(&key("config"), b"deep").unwrap();
    let deep = LocalStore::open(&long).unwrap();
    let name = key(&format!("a/{0}/{0}/{0}", "n".repeat(200)));
    deep.put(&name, b"deeper").unwrap();
    assert_eq!(deep.get(&name).unwrap(), b"deeper");
    deep.list_names("a", &mut |found| {
        assert_eq!(found, name.as_str());
        Ok(())
    })
    .unwrap();
}

#[test]
fn r32_a_relative_path_survives_a_change_of_directory() {
    let (root, _path, _store) = store();
    // The working directory belongs to the whole process, so the path climbs from it instead.
    let here = std::env::current_dir().unwrap();
    let mut relative: PathBuf = here.components().skip(1).map(|_| "..").collect();
    relative.push(root.path().join("store").strip_prefix("/").unwrap());
    assert!(relative.is_relative());
    let store = LocalStore::open(&relative).unwrap();
    store.put(&key("a"), b"x").unwrap();
    // The store is held open, not looked up again: it works even where the path has changed.
    fs::rename(root.path().join("store"), root.path().join("moved")).unwrap();
    store.put(&key("b/c"), b"y").unwrap();
    assert_eq!(fs::read(root.path().join("moved/b/c")).unwrap(), b"y");
}

#[test]
fn stale_temporaries_go_and_a_writer_keeps_its_own() {
    let (_root, path, store) = store();
    fs::write(path.join("tmp/0123456789abcdef0123456789abcdef"), b"half").unwrap();
    fs::write(path.join("tmp/notes"), b"somebody's").unwrap();
    let disk = SystemDisk::open(&path).unwrap();
    let (name, live) = disk.create_temporary().unwrap();
    assert_eq!(store.remove_stale_temporaries().unwrap(), 1);
    assert!(path.join(&name).exists());
    drop(live);
    assert_eq!(store.remove_stale_temporaries().unwrap(), 1);
    assert!(!path.join(&name).exists());
    assert!(path.join("tmp/notes").exists(), "no store names a temporary file so");
}

#[test]
fn foreign_files_and_the_stores_own_are_not_listed() {
    let (_root, path, store) = store();
    store.ensure_reserve(8192).unwrap();
    assert_eq!(fs::metadata(path.join("reserve")).unwrap().len(), 8192);
    fs::write(path.join("tmp/x"), b"x").unwrap();
    fs::write(path.join(".DS_Store"), b"x").unwrap();
    fs::create_dir_all(path.join("a/b/c/d/e")).unwrap();
    fs::write(path.join("a/b/c/d/e/f"), b"too deep").unwrap();
    let mut names = Vec::new();
    let each = &mut |name: &str| {
        names.push(name.to_owned());
        Ok(())
    };
    store.list_names("", each).unwrap();
    assert_eq!(names, ["config"]);
    store.shrink_reserve(0).unwrap();
    assert!(!path.join("reserve").exists());
}

#[test]
fn a_deletion_by_another_process_is_seen_by_what_proves_existence() {
    let (_root, path, store) = store();
    let other = LocalStore::open(&path).unwrap();
    let name = key("containers/aa/1");
    other.put(&name, b"hello").unwrap();
    store.get_range(&name, 0, &mut [0; 5]).unwrap();
    store.get_tail(&name, 2).unwrap();
    other.delete(&name).unwrap();
    for error in [
        store.get(&name).unwrap_err(),
        store.get_tail(&name, 2).unwrap_err(),
        store.size(&name).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}

#[test]
fn damage_to_the_size_is_damage() {
    let (_root, path, store) = store();
    store.put(&key("a"), &[7; 100]).unwrap();
    fs::File::options().write(true).open(path.join("a")).unwrap().set_len(50).unwrap();
    let error = store.get_range(&key("a"), 40, &mut [0; 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let huge = crate::OBJECT_MAX_BYTES as u64 + 1;
    fs::File::options().write(true).open(path.join("a")).unwrap().set_len(huge).unwrap();
    assert_eq!(store.get(&key("a")).unwrap_err().kind(), ErrorKind::LimitExceeded);
    let error = store.get_tail(&key("a"), usize::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert_eq!(store.get_tail(&key("a"), 10).unwrap().1.len(), 10);
}

#[test]
fn r29_more_decisions_than_are_remembered_as_settled_are_read_all_the_same() {
    // SETTLED_MAX and one more; put there by somebody else, so that each is settled when it is
    // read.
    let (_root, path, store) = store();
    fs::create_dir(path.join("outcomes")).unwrap();
    let name = |number: usize| format!("outcomes/{number:06}");
    for number in 0..=super::objects::SETTLED_MAX {
        fs::write(path.join(name(number)), number.to_string()).unwrap();
    }
    for number in [0, 1, super::objects::SETTLED_MAX - 1, super::objects::SETTLED_MAX] {
        let found = store.decided(&key(&name(number))).unwrap().unwrap();
        assert_eq!(found, number.to_string().as_bytes());
    }
    let mut shown = 0;
    let each = &mut |_: &str| {
        shown += 1;
        Ok(())
    };
    store.list_decided("outcomes", each).unwrap();
    assert_eq!(shown, super::objects::SETTLED_MAX + 1);
    // And one that is decided now.
    assert_eq!(store.decide(&key("outcomes/new"), b"won").unwrap(), b"won");
    assert_eq!(store.decided(&key("outcomes/new")).unwrap().unwrap(), b"won");
}

#[test]
fn r141_a_list_of_a_store_that_fails_has_ended_only_if_its_directory_is_gone() {
    let (_root, path, _store) = store();
    let disk = SystemDisk::open(&path).unwrap();
    let place = path.join("listed");
    fs::create_dir_all(&place).unwrap();
    let listed = std::os::fd::OwnedFd::from(fs::File::open(&place).unwrap());
    let error = disk.end_of_list("listed", &listed).unwrap_err();
    assert_ne!(error.kind(), std::io::ErrorKind::NotFound);
    fs::remove_dir(&place).unwrap();
    disk.end_of_list("listed", &listed).unwrap();
    fs::create_dir(&place).unwrap();
    disk.end_of_list("listed", &listed).unwrap();
}
