//! What backups stored is packed anew, beside everything else: chunks become differences, and what
//! others are made of must not.

use crate::deltas::{explore, in_two_switches};
use crate::model::Scenario;
use crate::steps::*;
use crate::tasks::*;
use crate::world::*;
use onefold_engine::Repository;
use onefold_engine::collection::{CollectOptions, CollectReport, MarkAlgorithm, collect};
use onefold_engine::container::reader::read_section;
use onefold_format::container::MetadataSection;
use onefold_store::layers::Faulty;
use onefold_store::{Blobs, MemoryStore, Store};
use onefold_types::ErrorKind;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

fn repacking() -> CollectOptions {
    CollectOptions { repack_level: Some(3), ..collect_options() }
}

fn sections(repository: &Arc<Repository>) -> Vec<MetadataSection> {
    containers(repository).into_iter().map(|id| read_section(repository, id).unwrap()).collect()
}

fn repack(base: &MemoryStore, seed: u64, options: &CollectOptions) -> CollectReport {
    collect(&reopen(base, seed), options, &job()).unwrap()
}

fn stored_bytes(base: &MemoryStore) -> u64 {
    let names = names(base, onefold_format::layout::CONTAINERS);
    names.into_iter().map(|name| base.get(&key(name)).unwrap().len() as u64).sum()
}

/// Two versions that were stored whole, and another machine's files that nothing is like.
fn whole_versions() -> World {
    let world = World::recording();
    world.save("k", "kl", 2);
    world.save_whole("v", "xyz", 3);
    world.save_whole("v", "XYZ", 4);
    world
}

/// The world's snapshots are whole, by a run in which nobody does anything.
fn assert_whole(world: &World, store: &MemoryStore) {
    let mut run = world.run_on(store.clone_state(), &[], &[], false);
    world.verify(&mut run);
    assert_eq!(run.problems, Vec::<String>::new());
}

#[test]
fn the_old_becomes_differences_against_the_new_once() {
    let world = whole_versions();
    let base = world.base();
    let before = sections(&reopen(base, 2_000_000));
    assert!(before.iter().all(|section| section.deltas.is_empty()));
    let bytes_before = stored_bytes(base);
    let report = repack(base, 2_000_001, &repacking());
    assert_eq!(report.repacked_containers as usize, before.len());
    // Three files of 20,000 bytes, in chunks of some kilobytes.
    assert!(report.deltas_made >= 3, "{report:?}");
    let repository = reopen(base, 2_000_002);
    let after = sections(&repository);
    assert!(after.iter().all(|section| section.repacked_level == 3 && section.session.is_none()));
    let made: usize = after.iter().map(|section| section.deltas.len()).sum();
    assert_eq!(made as u64, report.deltas_made);
    assert!(stored_bytes(base) < bytes_before * 3 / 4, "{bytes_before}");
    // What the newest snapshot of any source needs is whole.
    let newest = BTreeSet::from(["kl", "XYZ"]);
    for snapshot in onefold_engine::session::SnapshotList::load(&repository).unwrap().snapshots {
        let description = snapshot.record.description.as_str();
        let content = content_of(&repository, snapshot.id).unwrap();
        assert_eq!(Some(content), world.expected(description));
    }
    let is_of_newest = |bytes: &[u8]| {
        newest.iter().any(|files| {
            let content = world.expected(files).unwrap();
            content.values().any(|file| file.windows(bytes.len()).any(|window| window == bytes))
        })
    };
    let reader = onefold_engine::chunks::ChunkReader::open(&repository).unwrap();
    for section in &after {
        for delta in &section.deltas {
            let fingerprint = section.chunks[delta.chunk as usize].fingerprint;
            assert!(!is_of_newest(&reader.read(&fingerprint).unwrap()), "{fingerprint}");
            assert!(is_of_newest(&reader.read(&delta.bases[0].fingerprint).unwrap()));
            assert_eq!(delta.depth, 1);
        }
    }
    assert_whole(&world, base);

    let operations = base.operations();
    let again = repack(base, 2_000_003, &repacking());
    assert_eq!((again.repacked_containers, again.deleted_containers), (0, 0));
    assert_eq!(base.operations(), operations, "nothing to do, nothing done");
    // A higher level is another matter.
    let higher = CollectOptions { repack_level: Some(4), ..repacking() };
    let planned = CollectOptions { mark_only: true, ..higher.clone() };
    let planned = repack(base, 2_000_004, &planned);
    assert_eq!(planned.repacked_containers as usize, after.len());
    assert_eq!(repack(base, 2_000_005, &higher).deleted_containers as usize, after.len());
    let levels = sections(&reopen(base, 2_000_006)).into_iter().map(|it| it.repacked_level);
    assert_eq!(levels.collect::<BTreeSet<_>>(), BTreeSet::from([4]));
    assert_whole(&world, base);
}

#[test]
fn what_the_newest_snapshots_of_several_machines_need_stays_whole_though_it_is_alike() {
    let world = World::new();
    world.save_whole("v", "xyz", 2);
    world.save_whole("w", "XYZ", 3);
    let report = repack(world.base(), 2_000_000, &repacking());
    assert!(report.repacked_containers > 0 && report.deltas_made == 0, "{report:?}");
    // Once one of them has another newest snapshot, what is old there is made of the other's.
    world.save_whole("w", "k", 4);
    let higher = CollectOptions { repack_level: Some(4), ..repacking() };
    let report = repack(world.base(), 2_000_001, &higher);
    assert!(report.deltas_made >= 3, "{report:?}");
    assert_whole(&world, world.base());
}

#[test]
fn every_way_to_mark_packs_what_is_live_and_nothing_else() {
    for algorithm in [
        MarkAlgorithm::Exact,
        MarkAlgorithm::Logical,
        MarkAlgorithm::Physical,
        MarkAlgorithm::PhysicalPlus,
        MarkAlgorithm::Partitioned,
    ] {
        let world = whole_versions();
        let dead = world.save_whole("d", "dk", 5);
        let options = CollectOptions { algorithm, ..repacking() };
        let report = repack(world.base(), 2_000_000, &options);
        assert!(report.deltas_made >= 3, "{algorithm:?}: {report:?}");
        // Packed before, and dead now; what is like it comes again, and is no newest snapshot's.
        world.forget(dead);
        world.save_whole("e", "Dx", 6);
        world.save_whole("e", "m", 7);
        let report = repack(world.base(), 2_000_001, &options);
        assert!(report.repacked_containers > 0, "{algorithm:?}");
        assert_whole(&world, world.base());
    }
}

#[test]
fn packing_that_is_stopped_goes_on_where_it_was() {
    let world = whole_versions();
    let memory = world.base();
    let no_time = CollectOptions { duration_max: Some(Duration::ZERO), ..repacking() };
    assert!(repack(memory, 2_000_000, &no_time).out_of_time);
    let start = memory.operations();
    repack(memory, 2_000_001, &repacking());
    for operations in start..=memory.operations() {
        let state = memory.state_after(operations);
        assert_whole(&world, &state);
        repack(&state, 3_000_000 + operations as u64, &repacking());
        let levels = sections(&reopen(&state, 4_000_000)).into_iter().map(|it| it.repacked_level);
        assert_eq!(levels.collect::<BTreeSet<_>>(), BTreeSet::from([3]), "after {operations}");
        assert_whole(&world, &state);
    }
}

#[test]
fn packing_on_a_device_that_fills_up_at_any_moment_loses_nothing() {
    // Whole, and as differences that are turned round.
    for of_differences in [false, true] {
        let world = World::recording();
        world.save_whole("v", "abcdefghij", 3);
        match of_differences {
            false => world.save_whole("v", "ABCDEFGHIJ", 4),
            true => world.save("v", "ABCDEFGHIJ", 4),
        };
        packs_on_a_device_that_fills_up(&world);
    }
}

fn packs_on_a_device_that_fills_up(world: &World) {
    let mut failed = 0;
    for room in (0..320).step_by(8) {
        let store = world.base().clone_state();
        let device = Faulty::full_after(store.clone(), room * 1024).hiding_room();
        let device: Arc<dyn Store> = Arc::new(device);
        let repository = open_on(device, 2_000_000 + room).unwrap();
        match collect(&repository, &repacking(), &job()) {
            Ok(report) => failed += u64::from(report.left.is_some()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace);
                failed += 1;
            }
        }
        assert_whole(world, &store);
        repack(&store, 3_000_000 + room, &repacking());
        assert_whole(world, &store);
    }
    assert!(failed > 5, "{failed}");
}

#[test]
fn what_a_backup_takes_for_a_base_is_packed_anew_beside_it() {
    // The backup makes differences against the older version, which the other makes a difference.
    let world = || {
        let world = whole_versions();
        world.source("w", "xyz");
        world.source("v", "xYz");
        world
    };
    let tasks = || [reuses("v", "xYz"), repacks(), forgets("XYZ"), backs_up("w", "xyz")];
    explore(&Scenario::new(world(), tasks()), 300);
    let mut renewing = Scenario::new(world(), tasks());
    renewing.actors = renewing.actors.into_iter().map(Actor::renewing).collect();
    explore(&renewing, 200);
    let scenario = Scenario::new(world(), [reuses("v", "xYz"), repacks()]);
    in_two_switches(&scenario);
}

#[test]
fn packing_anew_beside_everything_else() {
    let world = World::new();
    world.save("v", "xyk", 2);
    world.save_whole("w", "xYl", 3);
    world.save_whole("v", "XYk", 4);
    world.source("w", "XYl");
    let tasks = [
        reuses("v", "XYk"),
        reuses("w", "XYl"),
        forgets("xyk"),
        repacks(),
        collects(),
        repacks(),
        restores(),
    ];
    explore(&Scenario::new(world, tasks), 300);
}
