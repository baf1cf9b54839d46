//! Symbolic and hard links in a store: none is followed, and nothing beside the store changes.

use super::objects::Objects;
use super::system_disk::SystemDisk;
use crate::Key;
use onefold_types::{ErrorKind, Result};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const STALE: &str = "0123456789abcdef0123456789abcdef";

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// Both ways of opening names below the root.
fn stores(path: &Path) -> [Objects<SystemDisk>; 2] {
    [SystemDisk::open(path), SystemDisk::open_walking(path)]
        .map(|disk| Objects::new(disk.unwrap(), "store".to_owned(), true))
}

/// A store and, beside it, what belongs to somebody else.
fn store_and_victim() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let (path, victim) = (root.path().join("store"), root.path().join("victim"));
    fs::create_dir(&path).unwrap();
    fs::create_dir_all(victim.join("aa")).unwrap();
    for name in ["passwd", "aa/1", STALE] {
        fs::write(victim.join(name), b"somebody's").unwrap();
    }
    for store in stores(&path) {
        store.put(&key("config"), b"{}").or_else(exists).unwrap();
        store.put(&key("containers/bb/2"), b"two").or_else(exists).unwrap();
        store.decide(&key("outcomes/a"), b"won").unwrap();
    }
    (root, path, victim)
}

fn exists(error: onefold_types::Error) -> Result<()> {
    if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// All files below a directory with what is in them.
fn content(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(content(&path)),
            false => drop(all.insert(path.clone(), fs::read(path).unwrap())),
        }
    }
    all
}

/// Everything that can be done with a name; how each ended.
fn use_all(store: &Objects<SystemDisk>, name: &str) -> Vec<(&'static str, Result<()>)> {
    let name = key(name);
    vec![
        ("get", store.get(&name).map(drop)),
        ("range", store.get_range(&name, 0, &mut [0; 3])),
        ("tail", store.get_tail(&name, 3).map(drop)),
        ("size", store.size(&name).map(drop)),
        ("decided", store.decided(&name).map(drop)),
        ("list", store.list(name.split().0, &mut |_| Ok(()))),
        ("names", store.list_names(name.split().0, &mut |_| Ok(()))),
        ("settle", store.settle(name.split().0)),
        ("put", store.put(&name, b"new")),
        ("decide", store.decide(&name, b"new").map(drop)),
    ]
}

#[test]
fn r74_no_directory_is_a_link() {
    let (_root, path, victim) = store_and_victim();
    let before = content(&victim);
    for target in [&victim, &PathBuf::from("../victim"), &path.join("outcomes")] {
        symlink(target, path.join("packs")).unwrap();
        symlink(target, path.join("containers/aa")).unwrap();
        for store in stores(&path) {
            for name in ["packs/1", "packs/aa/1", "containers/aa/1"] {
                for (what, result) in use_all(&store, name) {
                    let error = result.expect_err(what);
                    assert!(error.to_string().contains("symbolic link"), "{what} {name}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Io, "{what} {name}: {error}");
                }
                store.delete(&key(name)).expect_err("to delete through a link");
            }
            assert_eq!(store.get(&key("containers/bb/2")).unwrap(), b"two");
        }
        fs::remove_file(path.join("packs")).unwrap();
        fs::remove_file(path.join("containers/aa")).unwrap();
    }
    assert_eq!(content(&victim), before);
}

#[test]
fn r74_no_object_is_a_link() {
    let (_root, path, victim) = store_and_victim();
    let before = content(&victim);
    for target in ["../../victim/passwd", "../bb/2", "nowhere"] {
        fs::create_dir_all(path.join("containers/aa")).unwrap();
        symlink(target, path.join("containers/aa/1")).unwrap();
        for store in stores(&path) {
            for (what, result) in use_all(&store, "containers/aa/1") {
                match what {
                    "put" => {
                        let kind = result.unwrap_err().kind();
                        assert_eq!(kind, ErrorKind::AlreadyExists, "a taken name");
                    }
                    _ => assert_eq!(result.expect_err(what).kind(), ErrorKind::Io, "{what}"),
                }
            }
        }
        // To delete it is to remove the link.
        stores(&path)[0].delete(&key("containers/aa/1")).unwrap();
        assert!(fs::symlink_metadata(path.join("containers/aa/1")).is_err());
    }
    assert_eq!(content(&victim), before);
}

#[test]
fn r74_links_in_place_of_the_stores_own_files_lead_nowhere() {
    let (_root, path, victim) = store_and_victim();
    let before = content(&victim);
    fs::remove_dir_all(path.join("tmp")).unwrap();
    symlink(&victim, path.join("tmp")).unwrap();
    for store in stores(&path) {
        store.remove_stale_temporaries().expect_err("to clean through a link");
        let error = store.put(&key("a/new"), b"new").unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        store.put_pieces(&key("a/new"), &mut |_| Ok(false)).expect_err("to write through a link");
    }
    fs::remove_file(path.join("tmp")).unwrap();
    for target in ["../victim/passwd", "../victim/made"] {
        symlink(target, path.join("reserve")).unwrap();
        for store in stores(&path) {
            store.ensure_reserve(8192).expect_err("to fill through a link");
            let _ = store.shrink_reserve(0);
        }
        fs::remove_file(path.join("reserve")).unwrap();
    }
    // A second name of somebody's file is none of the store's.
    fs::hard_link(victim.join("passwd"), path.join("reserve")).unwrap();
    for store in stores(&path) {
        store.ensure_reserve(8192).expect_err("to fill somebody's file");
        store.shrink_reserve(2).expect_err("to cut somebody's file");
    }
    assert_eq!(content(&victim), before);
}

#[test]
fn walking_and_the_kernel_open_the_same() {
    let (_root, path, _victim) = store_and_victim();
    for store in stores(&path) {
        store.put(&key("a/b/c/d"), b"deep").or_else(exists).unwrap();
        assert_eq!(store.get(&key("a/b/c/d")).unwrap(), b"deep");
        assert_eq!(store.size(&key("containers/bb/2")).unwrap(), 3);
        assert_eq!(store.get(&key("config/x")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(store.decided(&key("outcomes/b")).unwrap(), None);
        assert_eq!(store.decided(&key("nothing/below/it")).unwrap(), None);
        store.decided(&key("config/x")).expect_err("a part that is no directory");
        store.ensure_reserve(4096).unwrap();
        store.settle("").unwrap();
        assert_eq!(store.remove_stale_temporaries().unwrap(), 0);
    }
}
