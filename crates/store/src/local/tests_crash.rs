//! The rules for durability, checked on a simulated disk (R27, R28, R29).

use super::objects::Objects;
use super::simulated::{Behaviour, SimulatedDisk, Survivors, Trip};
use crate::Key;
use onefold_types::{ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex};

const LARGE_BYTES: usize = 300_000;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn process(disk: &SimulatedDisk, trip: Option<(usize, Trip)>) -> Objects<SimulatedDisk> {
    Objects::new(disk.process(trip), "simulated".to_owned(), true)
}

/// The content of the object `name`, made once: the checks compare it very often.
fn content(name: &str) -> &'static [u8] {
    static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| b"large".repeat(LARGE_BYTES / 5));
    static SMALL: LazyLock<Mutex<BTreeMap<String, &'static [u8]>>> = LazyLock::new(Mutex::default);
    if name.ends_with("large") {
        return &LARGE;
    }
    let mut small = SMALL.lock().unwrap();
    small.entry(name.to_owned()).or_insert_with(|| name.repeat(4).into_bytes().leak())
}

/// What a run was promised.
#[derive(Default)]
struct Promises {
    kept: BTreeSet<String>,
    gone: BTreeSet<String>,
}

/// Every kind of write there is, until the process stops.
fn script(objects: &Objects<SimulatedDisk>, promises: &mut Promises) -> Result<()> {
    let mut put = |name: &str| -> Result<()> {
        objects.put(&key(name), content(name))?;
        promises.kept.insert(name.to_owned());
        Ok(())
    };
    put("config")?;
    put("containers/aa/large")?;
    put("containers/aa/2")?;
    put("containers/ab/3")?;
    put("sessions/s/announced")?;
    objects.decide(&key("outcomes/s"), content("outcomes/s"))?;
    promises.kept.insert("outcomes/s".to_owned());
    for name in ["containers/aa/2", "sessions/s/announced"] {
        promises.kept.remove(name);
        objects.delete(&key(name))?;
    }
    objects.settle("containers")?;
    promises.gone.insert("containers/aa/2".to_owned());
    objects.put(&key("sessions/s/ready"), content("sessions/s/ready"))?;
    promises.kept.insert("sessions/s/ready".to_owned());
    objects.ensure_reserve(64)?;
    objects.put(&key("containers/aa/4"), content("containers/aa/4"))?;
    promises.kept.insert("containers/aa/4".to_owned());
    Ok(())
}

fn broken_promise(state: &Survivors, promises: &Promises) -> Option<String> {
    for (name, bytes) in state {
        if name != "reserve" && *bytes != content(name) {
            return Some(format!("{name} is not whole: {} bytes", bytes.len()));
        }
    }
    let lost = promises.kept.iter().find(|name| !state.contains_key(*name));
    let back = promises.gone.iter().find(|name| state.contains_key(*name));
    lost.map(|n| format!("{n} is lost")).or_else(|| back.map(|n| format!("{n} is back")))
}

/// Stops the script before each of its calls in turn and checks every state a power loss then
/// leaves; returns the promises broken and the number of states.
fn broken_promises(behaviour: Behaviour) -> (Vec<String>, usize) {
    let (mut broken, mut states) = (Vec::new(), 0);
    for stop in 0.. {
        let disk = SimulatedDisk::new(behaviour);
        let objects = process(&disk, Some((stop, Trip::Stop)));
        let mut promises = Promises::default();
        let finished = script(&objects, &mut promises).is_ok();
        for state in disk.states_after_power_loss() {
            states += 1;
            let what = broken_promise(&state, &promises);
            broken.extend(what.map(|what| format!("stopped at call {stop}: {what}")));
        }
        if finished {
            break;
        }
    }
    (broken, states)
}

#[test]
fn r29_no_power_loss_breaks_a_promise() {
    let plain = Behaviour::default();
    let behaviours = [
        plain,
        Behaviour { no_rename: true, ..plain },
        Behaviour { no_direct: true, ..plain },
        Behaviour { short_writes: true, ..plain },
    ];
    for behaviour in behaviours {
        let (broken, states) = broken_promises(behaviour);
        assert!(broken.is_empty(), "{:?}", broken.first());
        assert!(states > 150, "only {states} states");
    }
}

#[test]
fn r29_the_harness_sees_a_missing_sync() {
    let plain = Behaviour::default();
    let (broken, _) = broken_promises(Behaviour { lies_about_files: true, ..plain });
    assert!(broken.iter().any(|what| what.contains("not whole")));
    let (broken, _) = broken_promises(Behaviour { lies_about_directories: true, ..plain });
    assert!(broken.iter().any(|what| what.contains("is lost")));
    assert!(broken.iter().any(|what| what.contains("is back")));
}

#[test]
fn r29_a_file_is_synced_before_it_is_named_and_its_directory_before_return() {
    let disk = SimulatedDisk::new(Behaviour::default());
    let objects = process(&disk, None);
    objects.put(&key("containers/aa/1"), b"hello").unwrap();
    let first = [
        "make directory containers",
        "sync directory /",
        "make directory containers/aa",
        "sync directory /containers",
        "make directory tmp",
        "create temporary",
        "write",
        "sync file",
        "rename to 1",
        "sync directory /containers/aa",
    ];
    assert_eq!(disk.take_log(), first);
    objects.put(&key("containers/aa/2"), b"hello").unwrap();
    let rest = ["create temporary", "write", "sync file", "rename to 2"];
    let then = ["sync directory /containers/aa"];
    assert_eq!(disk.take_log(), [&rest[..], &then].concat());

    // Another process knows nothing of the directories: it syncs them once, all shards together.
    objects.put(&key("containers/bb/3"), b"hello").unwrap();
    disk.take_log();
    let other = process(&disk, None);
    other.put(&key("containers/aa/4"), b"hello").unwrap();
    let above = ["sync directory /", "sync directory /containers"];
    let rest = ["create temporary", "write", "sync file", "rename to 4"];
    assert_eq!(disk.take_log(), [&above[..], &rest, &then].concat());
    other.put(&key("containers/bb/5"), b"hello").unwrap();
    assert_eq!(disk.take_log().len(), 5);

    // So with the directories of the store: one sync settles all that there are.
    objects.put(&key("index/6"), b"hello").unwrap();
    disk.take_log();
    let third = process(&disk, None);
    third.put(&key("index/7"), b"hello").unwrap();
    third.put(&key("containers/aa/8"), b"hello").unwrap();
    let above = disk.take_log();
    assert_eq!(above.iter().filter(|call| *call == "sync directory /").count(), 1, "{above:?}");

    let links = SimulatedDisk::new(Behaviour { no_rename: true, ..Behaviour::default() });
    process(&links, None).put(&key("config"), b"hello").unwrap();
    let log = links.take_log();
    let tail = ["sync file", "link to config", "sync directory /", "remove temporary"];
    assert_eq!(log[log.len() - 4..], tail);
}

#[test]
fn r29_a_decision_that_was_seen_survives_its_unfinished_winner() {
    let name = key("outcomes/s");
    for (stop, find) in (0..40).flat_map(|stop| [(stop, false), (stop, true)]) {
        let disk = SimulatedDisk::new(Behaviour::default());
        let winner = process(&disk, Some((stop, Trip::Stop)));
        let _ = winner.decide(&name, b"first");
        let reader = process(&disk, None);
        let seen = if find {
            reader.decided(&name).unwrap()
        } else {
            Some(reader.decide(&name, b"second").unwrap())
        };
        let Some(seen) = seen else { continue };
        for state in disk.states_after_power_loss() {
            assert_eq!(state.get(name.as_str()), Some(&seen), "stopped at call {stop}");
        }
    }
}

#[test]
fn r29_a_directory_made_anew_by_another_process_is_not_taken_for_settled() {
    let names = ["sessions/s/ready-1", "sessions/s/ready-2", "sessions/s/ready-3"].map(key);
    for stop in 0..40 {
        let disk = SimulatedDisk::new(Behaviour::default());
        let first = process(&disk, None);
        first.put(&names[0], b"x").unwrap();
        // The second process empties and removes the directory, then stops while making it again.
        let second = process(&disk, Some((stop, Trip::Stop)));
        let _ = second.delete(&names[0]).and_then(|()| second.put(&names[1], b"x"));
        first.put(&names[2], b"x").unwrap();
        for state in disk.states_after_power_loss() {
            assert!(state.contains_key(names[2].as_str()), "stopped at call {stop}");
        }
    }
}

#[test]
fn r27_every_failing_call_is_reported_and_leaves_whole_objects() {
    let failures = [(28, ErrorKind::NoSpace), (122, ErrorKind::NoSpace), (5, ErrorKind::Io)];
    for (number, kind) in failures.into_iter().chain([(30, ErrorKind::ReadOnly)]) {
        for at in 0.. {
            let disk = SimulatedDisk::new(Behaviour::default());
            let objects = process(&disk, Some((at, Trip::Fail(number))));
            let mut promises = Promises::default();
            let result = script(&objects, &mut promises);
            if objects.disk.calls() <= at {
                break;
            }
            if let Err(error) = result {
                assert!(error.kind() == kind || error.kind() == ErrorKind::Io, "{error}");
                assert!(error.to_string().contains("'simulated'"), "{error}");
            }
            assert_eq!(disk.temporaries(), 0, "call {at} left a temporary file");
            for state in disk.states_after_power_loss() {
                assert_eq!(broken_promise(&state, &promises), None, "call {at}");
            }
        }
    }
}

#[test]
fn r29_after_a_failed_sync_of_a_directory_nothing_is_promised() {
    let disk = SimulatedDisk::new(Behaviour::default());
    let objects = process(&disk, None);
    objects.put(&key("a"), b"x").unwrap();
    let calls = objects.disk.calls();
    objects.put(&key("b"), b"x").unwrap();
    let last = objects.disk.calls() - 1;
    assert!(last > calls);

    let disk = SimulatedDisk::new(Behaviour::default());
    let objects = process(&disk, Some((last, Trip::Fail(5))));
    objects.put(&key("a"), b"x").unwrap();
    objects.put(&key("b"), b"x").unwrap_err();
    objects.put(&key("c"), b"x").unwrap_err();
    objects.decided(&key("a")).unwrap_err();
    assert_eq!(objects.get(&key("a")).unwrap(), b"x");
    process(&disk, None).put(&key("d"), b"x").unwrap();
}

#[test]
fn r28_deleting_and_the_reserve_make_room_on_a_full_device() {
    for no_direct in [false, true] {
        let capacity_bytes = Some(100_000);
        let behaviour = Behaviour { capacity_bytes, no_direct, ..Behaviour::default() };
        let disk = SimulatedDisk::new(behaviour);
        let objects = process(&disk, None);
        objects.ensure_reserve(20_000).unwrap();
        objects.ensure_reserve(10_000).unwrap();
        assert_eq!(objects.ensure_reserve(200_000).unwrap_err().kind(), ErrorKind::NoSpace);
        objects.shrink_reserve(0).unwrap();
        objects.ensure_reserve(20_000).unwrap();
        objects.put(&key("a"), &[1; 50_000]).unwrap();
        objects.put(&key("b"), &[1; 30_000]).unwrap();
        let error = objects.put(&key("c"), &[1; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("gc"), "{error}");
        assert!(objects.get(&key("c")).is_err());
        assert_eq!(disk.temporaries(), 0);
        assert!(objects.decide(&key("tombstones/s"), b"forgotten").is_err());
        assert_eq!(
            (objects.room().unwrap(), objects.reserve_bytes().unwrap()),
            ((0, 100_000), 20_000)
        );
        objects.shrink_reserve(19_000).unwrap();
        assert_eq!(objects.room().unwrap().0, 1_000);
        objects.decide(&key("tombstones/t"), b"forgotten").unwrap();
        objects.shrink_reserve(0).unwrap();
        objects.shrink_reserve(0).unwrap();
        objects.decide(&key("tombstones/s"), b"forgotten").unwrap();
        objects.delete(&key("a")).unwrap();
        objects.put(&key("c"), &[1; 50_000]).unwrap();
    }
}

#[test]
fn a_disk_that_can_neither_rename_nor_link_is_refused_in_words() {
    let behaviour = Behaviour { no_rename: true, no_links: true, ..Behaviour::default() };
    let disk = SimulatedDisk::new(behaviour);
    let error = process(&disk, None).put(&key("config"), b"x").unwrap_err();
    assert!(error.to_string().contains("cannot be safe"), "{error}");
    assert_eq!(disk.temporaries(), 0);
}

#[test]
fn stale_temporaries_go_and_live_ones_stay() {
    use super::disk::Disk;
    let disk = SimulatedDisk::new(Behaviour::default());
    let objects = process(&disk, None);
    assert_eq!(objects.remove_stale_temporaries().unwrap(), 0);
    objects.put(&key("config"), b"x").unwrap();
    let (_, live) = disk.create_temporary().unwrap();
    drop(disk.create_temporary().unwrap());
    assert_eq!(objects.remove_stale_temporaries().unwrap(), 1);
    assert_eq!(disk.temporaries(), 1);
    drop(live);
    assert_eq!(objects.remove_stale_temporaries().unwrap(), 1);
}

#[test]
fn large_and_short_writes_come_back_whole() {
    let plain = Behaviour::default();
    for behaviour in [
        plain,
        Behaviour { short_writes: true, ..plain },
        Behaviour { no_direct: true, short_writes: true, ..plain },
    ] {
        let objects = process(&SimulatedDisk::new(behaviour), None);
        let sizes = [0, 1, 262_144, 262_145, 1 << 20, (1 << 20) + 4097, (2 << 20) + 1];
        let objects_put: BTreeMap<usize, Vec<u8>> =
            sizes.iter().map(|n| (*n, (0..*n).map(|i| ((i * 7) >> 3) as u8).collect())).collect();
        for (size, bytes) in &objects_put {
            let key = key(&format!("containers/{size}"));
            objects.put(&key, bytes).unwrap();
            assert!(objects.get(&key).unwrap() == *bytes, "{size}");
            let (whole, tail) = objects.get_tail(&key, 5000).unwrap();
            assert_eq!((whole, &tail[..]), (*size as u64, &bytes[size.saturating_sub(5000)..]));
        }
    }
}
