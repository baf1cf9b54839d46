//! What only hidden snapshots need, compared with what a collection then takes away.

use crate::ingest::*;
use onefold_engine::collection::inventory::Inventory;
use onefold_engine::collection::only_hidden::{OnlyHidden, only_hidden};
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::index::FingerprintIndex;
use onefold_engine::session::SnapshotList;
use onefold_engine::{Job, Repository, retention};
use onefold_format::layout;
use onefold_store::{Key, MemoryStore, Store};
use onefold_types::{ErrorKind, Fingerprint};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// So little memory that marks go to scratch files.
const TINY_BYTES: usize = 4096;

fn found(store: &Arc<dyn Store>, marks_bytes: Option<usize>) -> OnlyHidden {
    let options = CollectOptions { marks_bytes, ..CollectOptions::default() };
    only_hidden(&open(store), &options, &Job::unattended().0).unwrap()
}

fn collect_all(repository: &Arc<Repository>) -> u64 {
    let options = CollectOptions {
        goal: SpaceGoal::Everything,
        grace: Duration::ZERO,
        ..CollectOptions::default()
    };
    collect(repository, &options, &Job::unattended().0).unwrap().freed_bytes()
}

/// The different chunks that containers hold, and how long they are.
fn chunks(store: &Arc<dyn Store>) -> BTreeMap<Fingerprint, u64> {
    let repository = open(store);
    let index = FingerprintIndex::open(&repository).unwrap();
    let inventory = Inventory::take(&repository, &index.covered()).unwrap();
    let mut chunks = BTreeMap::new();
    let add = &mut |_, section: &onefold_format::container::MetadataSection| {
        let these = section.chunks.iter();
        chunks.extend(these.map(|chunk| (chunk.fingerprint, u64::from(chunk.length))));
        Ok(())
    };
    inventory.scan(&repository, &|_| true, &Job::unattended().0, add).unwrap();
    chunks
}

#[test]
fn r86_what_only_hidden_snapshots_need_is_exact_whatever_is_shared() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let memory = MemoryStore::recording();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let repository = create(&store, &options());
    let mut ids = Vec::new();
    // Each shares much with the one before it, and the fourth is the first once more.
    for version in 0..4u64 {
        for number in 0..6 {
            let name = source.path().join(format!("d1/g{number}"));
            let seed = if version == 3 { number } else { 100 * version + number };
            let seed = if number < 2 { number } else { seed };
            fs::write(name, random_bytes(1000 + seed, 90_000)).unwrap();
        }
        settle_times(source.path());
        ids.push(save(&open(&store), paths(source.path())).snapshot.unwrap());
    }
    collect_all(&repository);
    let nothing = OnlyHidden { is_exact: true, ..OnlyHidden::default() };
    assert_eq!(found(&store, None), nothing);
    for hidden in [&ids[1..2], &ids[2..3], &ids[0..1]] {
        retention::forget(&repository, hidden, "me").unwrap();
        let now = found(&store, None);
        let spilled = found(&store, Some(TINY_BYTES));
        assert_eq!((spilled.chunks, spilled.is_exact), (now.chunks, false));
        assert!(spilled.plain_bytes.abs_diff(now.plain_bytes) < now.plain_bytes / 20, "{now:?}");
        // Nothing was written for it.
        let before = memory.operations();
        found(&store, None);
        assert_eq!(memory.operations(), before);
    }
    let told = found(&store, None);
    assert_eq!(told.snapshots, 3);
    let before = chunks(&store);
    retention::forget_final(&repository, &ids[..3], "me").unwrap();
    let freed = collect_all(&repository);
    let after = chunks(&store);
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let (count, bytes) =
        gone.fold((0, 0), |(count, bytes), (_, length)| (count + 1, bytes + length));
    assert_eq!((told.chunks, told.plain_bytes), (count, bytes));
    // Two times four files that no other version has.
    assert!(bytes > 2 * 4 * 90_000 && bytes < 2 * 4 * 90_000 + 60_000, "{bytes}");
    // Stored bytes go by the shares of containers; what is copied gets headers of its own.
    assert!(freed.abs_diff(told.stored_bytes) < bytes / 20, "{freed}: {told:?}");
    assert_eq!(found(&store, None), nothing);
    assert_tree_equal(&open(&store), ids[3], source.path());
}

#[test]
fn r86_what_hidden_snapshots_need_is_not_told_if_records_are_lost() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    let mut ids = Vec::new();
    for version in 0..3u64 {
        fs::write(source.path().join("d1/f"), random_bytes(version, 50_000)).unwrap();
        ids.push(save(&open(&store), paths(source.path())).snapshot.unwrap());
    }
    retention::forget(&repository, &ids[..1], "me").unwrap();
    let name = layout::outcome(ids[1]);
    for name in [layout::copy_of(&name), name] {
        assert!(memory.remove(&Key::new(name.as_str()).unwrap()), "{name}");
    }
    assert!(!SnapshotList::load(&open(&store)).unwrap().lost.is_empty());
    let options = CollectOptions::default();
    let told = only_hidden(&open(&store), &options, &Job::unattended().0);
    assert_eq!(told.unwrap_err().kind(), ErrorKind::Damaged);
}
