//! Listings are whole or fail, and settling misses no directory, on a simulated and a real disk.

use super::objects::Objects;
use super::simulated::{Behaviour, SimulatedDisk, Trip};
use super::{Blobs, Decisions, LocalStore};
use crate::Key;
use onefold_types::{ErrorKind, Result};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

const ENOENT: i32 = 2;
const EIO: i32 = 5;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn process(disk: &SimulatedDisk, trip: Option<(usize, Trip)>) -> Objects<SimulatedDisk> {
    Objects::new(disk.process(trip), "simulated".to_owned(), true)
}

fn names(
    list: impl FnOnce(&mut dyn FnMut(&str) -> Result<()>) -> Result<()>,
) -> Result<Vec<String>> {
    let mut names = Vec::new();
    list(&mut |name| {
        names.push(name.to_owned());
        Ok(())
    })?;
    names.sort();
    Ok(names)
}

#[test]
fn r62_a_listing_is_whole_or_fails_whichever_call_fails() {
    for no_kinds in [false, true] {
        let disk = SimulatedDisk::new(Behaviour { no_kinds, ..Behaviour::default() });
        let all = ["outcomes/a", "outcomes/b", "sessions/s/announced", "sessions/t/announced"];
        all.iter().for_each(|name| process(&disk, None).put(&key(name), b"x").unwrap());
        let whole = process(&disk, None);
        assert_eq!(names(|each| whole.list_names("", each)).unwrap(), all);
        let calls = whole.disk.calls();
        assert!(calls >= if no_kinds { 13 } else { 5 }, "{calls} calls");
        for at in 0..calls {
            let objects = process(&disk, Some((at, Trip::Fail(EIO))));
            let error = names(|each| objects.list_names("", each)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        }
        for at in 0.. {
            let objects = process(&disk, Some((at, Trip::Fail(EIO))));
            let mut shown = 0;
            let listed = objects.list("outcomes", &mut |_| {
                shown += 1;
                Ok(())
            });
            if objects.disk.calls() <= at {
                break;
            }
            assert_eq!(listed.unwrap_err().kind(), ErrorKind::Io, "call {at}, {shown} shown");
        }
    }
}

#[test]
fn r62_a_name_that_exists_and_leads_nowhere_fails_a_listing() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let store = LocalStore::create(&path).unwrap();
    store.put(&key("config"), b"{}").unwrap();
    store.decide(&key("outcomes/a"), b"saved").unwrap();
    let failing = |prefix: &str, why: &str| {
        let listings = [
            names(|each| store.list_decided(prefix, each)).map(drop),
            store.list(prefix, &mut |_| Ok(())),
            names(|each| store.list_names("", each)).map(drop),
        ];
        for listed in listings {
            let error = listed.expect_err(why);
            assert_eq!(error.kind(), ErrorKind::Io, "{why}: {error}");
        }
    };
    // One entry: a loop, a link to nothing, one through a file, and what is no file.
    for target in ["b", "nowhere", "../config/below"] {
        symlink(target, path.join("outcomes/b")).unwrap();
        failing("outcomes", target);
        store.decided(&key("outcomes/b")).expect_err(target);
        store.decide(&key("outcomes/b"), b"x").expect_err(target);
        fs::remove_file(path.join("outcomes/b")).unwrap();
    }
    drop(std::os::unix::net::UnixListener::bind(path.join("outcomes/b")).unwrap());
    failing("outcomes", "a socket");
    fs::remove_file(path.join("outcomes/b")).unwrap();
    // The whole directory.
    fs::rename(path.join("outcomes"), root.path().join("away")).unwrap();
    assert!(names(|each| store.list_decided("outcomes", each)).unwrap().is_empty());
    store.settle("outcomes").unwrap();
    assert!(store.decided(&key("outcomes/a")).unwrap().is_none());
    for target in ["outcomes", "nowhere", "config/below"] {
        symlink(target, path.join("outcomes")).unwrap();
        failing("outcomes", target);
        store.decided(&key("outcomes/a")).expect_err(target);
        store.settle("outcomes").expect_err(target);
        fs::remove_file(path.join("outcomes")).unwrap();
    }
    fs::write(path.join("outcomes"), b"a file").unwrap();
    let listed = names(|each| store.list_decided("outcomes", each));
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::Io);
    store.decided(&key("outcomes/a")).expect_err("a file in place of a directory");
    fs::remove_file(path.join("outcomes")).unwrap();
    // A link that leads to a directory is none either; names that are no keys are foreign.
    symlink(root.path().join("away"), path.join("outcomes")).unwrap();
    failing("outcomes", "a link to a directory");
    fs::remove_file(path.join("outcomes")).unwrap();
    fs::rename(root.path().join("away"), path.join("outcomes")).unwrap();
    fs::write(path.join("outcomes").join(std::ffi::OsStr::from_bytes(b"\xff")), b"x").unwrap();
    symlink("nowhere", path.join("outcomes/.Upper")).unwrap();
    assert_eq!(names(|each| store.list_decided("outcomes", each)).unwrap(), ["outcomes/a"]);
}

/// Which directories of the store were synced, in order.
fn synced(disk: &SimulatedDisk) -> Vec<String> {
    let log = disk.take_log().into_iter();
    log.filter_map(|line| line.strip_prefix("sync directory /").map(str::to_owned)).collect()
}

#[test]
fn r72_settling_goes_on_when_a_directory_vanishes() {
    let disk = SimulatedDisk::new(Behaviour::default());
    let shards: Vec<String> = (0..8).map(|number| format!("containers/a{number}")).collect();
    for shard in &shards {
        process(&disk, None).put(&key(&format!("{shard}/1")), b"x").unwrap();
    }
    disk.take_log();
    let whole = process(&disk, None);
    whole.settle("containers").unwrap();
    let all: BTreeSet<String> = synced(&disk).into_iter().collect();
    assert!(shards.iter().all(|shard| all.contains(shard)), "{all:?}");
    let mut settled = 0;
    for at in 0..whole.disk.calls() {
        let objects = process(&disk, Some((at, Trip::Fail(ENOENT))));
        let result = objects.settle("containers");
        let order = synced(&disk);
        if let Err(error) = result {
            assert_ne!(error.kind(), ErrorKind::NotFound, "{error}");
            continue;
        }
        settled += 1;
        assert_eq!(order.iter().cloned().collect::<BTreeSet<_>>(), all, "call {at}");
    }
    assert!(settled >= 8, "{settled} of the failures were no reason to fail");
}

/// Removes or replaces a shard while another process settles, and takes the power away afterwards.
#[test]
fn r72_what_was_visible_survives_although_a_shard_vanishes_while_it_is_settled() {
    let visible = ["containers/a0/1", "containers/a2/1", "containers/a3/1"].map(key);
    for (at, again) in (0..30).flat_map(|at| [(at, false), (at, true)]) {
        let disk = SimulatedDisk::new(Behaviour::default());
        process(&disk, None).put(&key("containers/a1/1"), b"x").unwrap();
        for name in &visible {
            // Each writer stops before it has synced the directory of its object.
            let mut stop = 0;
            while process(&disk, None).get(name).is_err() {
                let _ = process(&disk, Some((stop, Trip::Stop))).put(name, b"x");
                stop += 1;
            }
        }
        let other = process(&disk, None);
        let vanishing = move || {
            other.delete(&key("containers/a1/1")).unwrap();
            if again {
                other.put(&key("containers/a1/2"), b"x").unwrap();
            }
        };
        let beside = disk.process_beside(at, vanishing);
        let settling = Objects::new(beside, "simulated".to_owned(), true);
        settling.settle("containers").unwrap();
        for state in disk.states_after_power_loss() {
            let lost = visible.iter().find(|name| !state.contains_key(name.as_str()));
            assert_eq!(lost, None, "vanished before call {at}");
        }
    }
}
