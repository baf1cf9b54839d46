//! Collections on full devices: what is dead is freed whatever share it is, in rounds that fit.

use crate::basics::Saved;
use crate::steps::*;
use crate::world::*;
use onefold_crypto::Suite;
use onefold_engine::Repository;
use onefold_engine::collection::{CollectReport, collect};
use onefold_store::layers::Faulty;
use onefold_store::{Blobs, Key, MemoryStore};
use onefold_types::{ErrorKind, limits};
use std::sync::Arc;

/// Containers of these stores are closed at 128 KiB.
const CONTAINER_BYTES: usize = 128 * limits::KIB;
const FILES: u64 = 120;
const FILE_BYTES: usize = 20_000;

/// A store of which so many percent are dead, spread over all containers; every tenth container
/// is wholly dead beside.
fn mixed(dead_percent: u64) -> Saved {
    let mut saved = Saved::new(Suite::None);
    let name = |at: u64| -> &'static str { Box::leak(format!("f{at:03}").into_boxed_str()) };
    let all: Vec<_> = (0..FILES).map(|at| (name(at), at, FILE_BYTES)).collect();
    let first = saved.save(&all);
    let own = saved.save(&[("own", 9_000, 12 * FILE_BYTES)]);
    let is_live = |at: u64| (at * 37 + 11) % 100 >= dead_percent;
    let kept: Vec<_> = all.iter().copied().filter(|(_, at, _)| is_live(*at)).collect();
    saved.save(&kept);
    saved.forget(&[first, own]);
    saved
}

/// What stands for the room that a store sets aside: objects that are deleted one by one.
struct Reserve {
    device: Arc<Faulty<MemoryStore>>,
    steps: Vec<Key>,
}

impl Reserve {
    /// A device on which not a byte is free beside this.
    fn on(memory: &MemoryStore, hides_room: bool) -> Self {
        let sizes = [64 * limits::KIB, 256 * limits::KIB, 2 * CONTAINER_BYTES];
        let device = Faulty::full_after(memory.clone(), sizes.iter().sum::<usize>() as u64);
        let device = Arc::new(if hides_room { device.hiding_room() } else { device });
        let step = |(number, size): (usize, &usize)| {
            let key = Key::new(format!("ballast/{number}")).unwrap();
            device.put(&key, &vec![0; *size]).unwrap();
            key
        };
        let steps = sizes.iter().enumerate().rev().map(step).collect();
        Self { device, steps }
    }

    /// Collects as often as it takes, giving up the reserve step by step; what the last one said.
    fn collect(&mut self, most: usize) -> CollectReport {
        for seed in 0.. {
            assert!(seed < most as u64, "no end after {most} collections");
            let left = match self.repository(seed) {
                Ok(repository) => match collect(&repository, &collect_options(), &job()) {
                    Ok(report) if report.left.is_none() => return report,
                    Ok(report) => format!("{:?}", report.left),
                    Err(error) if error.kind() == ErrorKind::NoSpace => error.to_string(),
                    Err(error) => panic!("{error}"),
                },
                Err(error) => panic!("{error}"),
            };
            if let Some(step) = self.steps.pop() {
                self.device.delete(&step).unwrap();
            } else {
                panic!("all of the reserve is used, and this is left: {left}");
            }
        }
        unreachable!()
    }

    fn repository(&self, seed: u64) -> onefold_types::Result<Arc<Repository>> {
        open_on(Arc::clone(&self.device) as Arc<dyn onefold_store::Store>, 500 + seed)
    }
}

#[test]
fn r67_whatever_is_dead_on_a_full_device_is_freed_by_collections_alone() {
    for hides_room in [false, true] {
        for dead_percent in [5, 20, 50, 80, 95] {
            let saved = mixed(dead_percent);
            let before = stored(&saved.memory);
            let mut reserve = Reserve::on(&saved.memory, hides_room);
            reserve.collect(12);
            for step in std::mem::take(&mut reserve.steps) {
                reserve.device.delete(&step).unwrap();
            }
            let context = format!("{dead_percent} % dead, hidden: {hides_room}");
            saved.assert_whole();
            let repository = reopen(&saved.memory, 900);
            assert_eq!(wholly_dead(&repository), [], "{context}");
            let plan = dry_run(&repository).unwrap();
            assert_eq!(plan.deleted_containers, 0, "{context}: {plan:?}");
            let freed = before - stored(&saved.memory);
            let dead = FILES * FILE_BYTES as u64 * dead_percent / 100;
            assert!(freed > dead * 9 / 10, "{context}: {freed} of {dead} bytes freed");
            save(&reserve.repository(50).unwrap(), &[file("next", 7, 100_000)]);
        }
    }
}

#[test]
fn r67_rounds_fit_the_room_that_the_device_tells() {
    let saved = mixed(50);
    // Not a byte of what is copied may be wasted: there are no puts that fail.
    let device = Faulty::full_after(saved.memory.clone(), 400 * limits::KIB as u64);
    let repository = open_on(Arc::new(device), 8).unwrap();
    let containers_before = containers(&repository);
    let report = collect(&repository, &collect_options(), &job()).unwrap();
    assert!(report.left.is_none() && report.epochs > 2, "{report:?}");
    let gone = containers_before.difference(&containers(&repository)).count();
    assert_eq!(report.deleted_containers as usize, gone, "no copy was deleted again");
    saved.assert_whole();
}

#[test]
fn r67_copies_of_a_failed_round_do_not_stay() {
    let saved = mixed(50);
    let device = Faulty::full_after(saved.memory.clone(), 700 * limits::KIB as u64).hiding_room();
    let repository = open_on(Arc::new(device), 8).unwrap();
    let report = collect(&repository, &collect_options(), &job()).unwrap();
    assert!(report.left.is_none(), "{report:?}");
    assert_eq!(wholly_dead(&repository), []);
    assert_eq!(dry_run(&repository).unwrap().deleted_containers, 0);
    saved.assert_whole();
}

#[test]
fn r67_what_does_not_fit_is_said_and_what_is_dead_goes_all_the_same() {
    let saved = mixed(50);
    let dead = wholly_dead(&saved.repository);
    let room = 16 * limits::KIB as u64;
    for hides_room in [true, false] {
        let copy = saved.memory.clone_state();
        let device = Faulty::full_after(copy.clone(), room);
        let device = if hides_room { device.hiding_room() } else { device };
        let repository = open_on(Arc::new(device), 8).unwrap();
        let options = collect_options();
        let outcome = collect(&repository, &options, &job());
        let after = containers(&reopen(&copy, 9));
        match outcome {
            Ok(report) => {
                assert!(dead.iter().all(|id| !after.contains(id)), "hidden: {hides_room}");
                assert!(report.deleted_containers as usize >= dead.len());
            }
            Err(error) => assert!(hides_room && error.kind() == ErrorKind::NoSpace, "{error}"),
        }
        saved.assert_whole();
    }
}

fn stored(memory: &MemoryStore) -> u64 {
    let mut bytes = 0;
    let add = &mut |listed: onefold_store::Listed| {
        bytes += listed.size_bytes;
        Ok(())
    };
    memory.list(onefold_format::layout::CONTAINERS, add).unwrap();
    bytes
}
