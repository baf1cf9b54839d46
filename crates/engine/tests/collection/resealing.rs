//! Everything that older keys have sealed is moved into new containers (R90).

use crate::basics::Saved;
use crate::steps::*;
use onefold_crypto::{KeySlot, MasterKey, Purpose, Suite, Vault};
use onefold_engine::Repository;
use onefold_engine::collection::{CollectOptions, CollectReport, SpaceGoal, collect};
use onefold_engine::container::reader;
use onefold_engine::session::checkpoints;
use onefold_engine::statistics::statistics;
use onefold_format::container::METADATA_PART;
use onefold_format::index_run::{FOOTER_BYTES, Footer, TABLE_PART};
use onefold_format::{layout, metadata_pack};
use onefold_store::{Blobs, MemoryStore};
use onefold_types::{CheckpointId, Result, RunId, limits};
use std::sync::Arc;
use std::time::Duration;

fn resealing() -> CollectOptions {
    CollectOptions {
        goal: SpaceGoal::Unused(0.5),
        grace: Duration::ZERO,
        threads: 1,
        reseal: true,
        ..CollectOptions::default()
    }
}

/// Collects, and says how many containers there are then that are sealed under older keys.
fn reseal(repository: &Arc<Repository>, options: &CollectOptions) -> Result<(CollectReport, u64)> {
    let report = collect(repository, options, &job())?;
    let left = statistics(repository, &job())?.containers_of_older_keys;
    Ok((report, left))
}

/// What a thief has who stole the master key before the keys were rotated.
fn stolen_before(repository: &Repository, memory: &MemoryStore) -> Vault {
    let id = repository.keys().unwrap()[0].id;
    let slot = KeySlot::from_bytes(&memory.get(&key(layout::key_slot(id))).unwrap()).unwrap();
    let ring = slot.open(PASSWORD, repository.store_id()).unwrap();
    Vault::new(Some(&MasterKey::from_bytes(*ring.master_key().as_bytes())))
}

/// How many sections of containers and packs, tables of runs, and checkpoints a thief can open.
fn openable(thief: &Vault, repository: &Repository, memory: &MemoryStore) -> [usize; 4] {
    let opens = |purpose, name: &[u8; 16], part, mut sealed: Vec<u8>| {
        usize::from(thief.stored(purpose, name).unwrap().open(part, &mut sealed).is_ok())
    };
    let mut counts = [0; 4];
    for name in names(memory, layout::CONTAINERS) {
        let id = layout::last_component(&name).parse().unwrap();
        let sealed = reader::read_sealed_section(repository, id).unwrap();
        counts[0] += opens(Purpose::Container, &id.0, METADATA_PART, sealed);
    }
    for name in names(memory, layout::METADATA) {
        let bytes = memory.get(&key(name)).unwrap();
        for (id, sealed) in metadata_pack::read(&bytes).unwrap() {
            counts[1] += opens(Purpose::Container, &id.0, METADATA_PART, sealed.to_vec());
        }
    }
    for name in names(memory, layout::INDEX) {
        let id: RunId = layout::last_component(&name).parse().unwrap();
        let bytes = memory.get(&key(name)).unwrap();
        let footer = Footer::decode(&bytes, bytes.len() as u64).unwrap();
        let end = bytes.len() - FOOTER_BYTES;
        let table = bytes[end - footer.table_length as usize..end].to_vec();
        counts[2] += opens(Purpose::IndexRun, &id.0, TABLE_PART, table);
    }
    for name in names(memory, layout::CHECKPOINTS) {
        let id: CheckpointId = layout::last_component(&name).parse().unwrap();
        let sealed = memory.get(&key(name)).unwrap();
        counts[3] += usize::from(thief.open_record(Purpose::Checkpoint, &id.0, &sealed).is_ok());
    }
    counts
}

/// A store with some containers, some of whose chunks are dead, and its keys rotated.
fn rotated(files: usize) -> (Saved, Vault) {
    let mut saved = Saved::new(Suite::Aes256Gcm);
    let names = ["a", "b", "c", "d"];
    let first = saved.save(&[(names[0], 1, 500 * limits::KIB), (names[1], 2, 20 * limits::KIB)]);
    for seed in 3..3 + files as u64 {
        saved.save(&[(names[1], 2, 20 * limits::KIB), (names[2], seed, 400 * limits::KIB)]);
    }
    saved.forget(&[first]);
    assert!(checkpoints::extend(&saved.repository, 1).unwrap());
    let thief = stolen_before(&saved.repository, &saved.memory);
    saved.repository.rotate_keys(PASSWORD, false).unwrap();
    saved.repository = reopen(&saved.memory, 20);
    saved.save(&[(names[3], 90, 50 * limits::KIB)]);
    (saved, thief)
}

#[test]
fn r90_nothing_in_containers_packs_and_index_opens_with_the_old_key_after_resealing() {
    let (mut saved, thief) = rotated(3);
    let repository = Arc::clone(&saved.repository);
    let before = openable(&thief, &repository, &saved.memory);
    assert!(before.iter().all(|count| *count > 0), "{before:?}");
    let plan = CollectOptions { mark_only: true, ..resealing() };
    let (planned, _) = reseal(&repository, &plan).unwrap();
    let (report, left) = reseal(&repository, &resealing()).unwrap();
    assert_eq!(left, 0, "{report:?}");
    assert_eq!(planned.deleted_containers, report.deleted_containers);
    assert_eq!(report.deleted_containers, before[0] as u64);
    assert_eq!(openable(&thief, &repository, &saved.memory), [0; 4]);
    saved.assert_whole();
    // What was resealed is deduplicated against, and stays where it is.
    let containers = names(&saved.memory, layout::CONTAINERS);
    saved.save(&[("b", 2, 20 * limits::KIB), ("c", 3, 400 * limits::KIB)]);
    assert_eq!(names(&saved.memory, layout::CONTAINERS), containers);
    let (report, _) = reseal(&repository, &resealing()).unwrap();
    assert_eq!(report.deleted_containers, 0);
}

#[test]
fn r90_without_being_asked_a_collection_leaves_what_is_live_under_older_keys() {
    let (saved, _) = rotated(2);
    let options = CollectOptions { reseal: false, ..resealing() };
    let (_, left) = reseal(&saved.repository, &options).unwrap();
    assert!(left > 0);
    saved.assert_whole();
}

#[test]
fn r90_resealing_that_is_stopped_goes_on_where_it_was() {
    let (saved, _) = rotated(6);
    let repository = &saved.repository;
    let all = statistics(repository, &job()).unwrap().containers_of_older_keys;
    let no_time = CollectOptions { duration_max: Some(Duration::ZERO), ..resealing() };
    let (report, left) = reseal(repository, &no_time).unwrap();
    assert!(report.out_of_time && left == all);
    let start = saved.memory.operations();
    assert_eq!(reseal(repository, &resealing()).unwrap().1, 0);
    let end = saved.memory.operations();
    let mut has_begun = false;
    for operations in (start..=end).step_by(3) {
        let state = saved.memory.state_after(operations);
        let repository = reopen(&state, 30);
        let before = statistics(&repository, &job()).unwrap().containers_of_older_keys;
        has_begun |= before > 0 && before < all;
        let (_, left) = reseal(&repository, &resealing()).unwrap();
        assert_eq!(left, 0, "after {operations} of {start} to {end}");
        let again = Saved { memory: state, repository, contents: saved.contents.clone() };
        again.assert_whole();
    }
    assert!(has_begun || all <= 1, "one round moved all {all}");
}
