//! Collections that mark in scratch files, beside those that mark in memory.

use crate::bounds::Content::Tiny;
use crate::bounds::save_files;
use crate::ingest::*;
use onefold_engine::collection::inventory::Inventory;
use onefold_engine::collection::live_set::EXACT_BYTES_PER_CHUNK;
use onefold_engine::collection::mark::TABLE_NODES_MIN;
use onefold_engine::collection::partitioned::PARTITIONED_BYTES;
use onefold_engine::collection::{
    CollectOptions, CollectReport, MarkAlgorithm, SpaceGoal, collect,
};
use onefold_engine::index::FingerprintIndex;
use onefold_engine::session::SnapshotList;
use onefold_engine::{Job, Repository, retention};
use onefold_format::layout;
use onefold_store::layers::{Fault, Faulty};
use onefold_store::{Key, MemoryStore, Store};
use onefold_types::{ErrorKind, Fingerprint, Level, Result, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// So little that every set is distributed again and again.
const TINY_BYTES: usize = 4096;

const EVERY_ALGORITHM: [(MarkAlgorithm, Option<usize>); 7] = [
    (MarkAlgorithm::Exact, None),
    (MarkAlgorithm::Logical, None),
    (MarkAlgorithm::Physical, None),
    (MarkAlgorithm::PhysicalPlus, None),
    (MarkAlgorithm::Partitioned, None),
    (MarkAlgorithm::Partitioned, Some(TINY_BYTES)),
    // Not even the perfect hash of PGC+ fits.
    (MarkAlgorithm::Auto, Some(128)),
];

fn collect_by(
    store: &Arc<dyn Store>,
    algorithm: MarkAlgorithm,
    marks_bytes: Option<usize>,
) -> Result<CollectReport> {
    let options = CollectOptions {
        goal: SpaceGoal::Everything,
        algorithm,
        grace: Duration::ZERO,
        marks_bytes,
        ..CollectOptions::default()
    };
    collect(&open(store), &options, &Job::unattended().0)
}

/// What files of a directory hold, as a snapshot of it should.
type Content = BTreeMap<std::path::PathBuf, Vec<u8>>;

fn content_of(root: &Path) -> Content {
    let mut content = Content::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        match path.is_dir() {
            true => left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
            false => drop(content.insert(path.clone(), fs::read(&path).unwrap())),
        }
    }
    content
}

fn assert_restores(repository: &Arc<Repository>, id: SessionId, content: &Content) {
    for (path, bytes) in content {
        assert_eq!(&content_at(repository, id, path), bytes, "{path:?}");
    }
}

/// A store with five snapshots of a tree that changes, of which two are forgotten for good; and
/// what the others hold.
fn used_store(tree: &Path) -> (MemoryStore, Vec<(SessionId, Content)>, Content) {
    let (memory, store) = in_memory();
    let repository = create(&store, &options());
    make_tree(tree);
    let mut saved = Vec::new();
    for version in 0..5_u64 {
        let deep = (0..version).fold(tree.join("d0"), |path, part| path.join(format!("e{part}")));
        fs::create_dir_all(&deep).unwrap();
        for number in 0..8 {
            let bytes = random_bytes(1000 * version + number, 30_000 + 5000 * number as usize);
            fs::write(tree.join(format!("d1/g{number}")), &bytes).unwrap();
            fs::write(deep.join(format!("h{number}")), &bytes[..20_000]).unwrap();
        }
        settle_times(tree);
        let id = save(&open(&store), paths(tree)).snapshot.unwrap();
        saved.push((id, content_of(tree)));
    }
    let forgotten = [saved.remove(0).clone(), saved.remove(1)];
    let ids: Vec<SessionId> = forgotten.iter().map(|(id, _)| *id).collect();
    retention::forget_final(&repository, &ids, "me").unwrap();
    let [_, (_, gone)] = forgotten;
    (memory, saved, gone)
}

/// All chunks that containers hold, as often as they do.
fn chunks(repository: &Arc<Repository>) -> BTreeMap<Fingerprint, (u32, Level)> {
    let index = FingerprintIndex::open(repository).unwrap();
    let inventory = Inventory::take(repository, &index.covered()).unwrap();
    let mut chunks = BTreeMap::new();
    let count = &mut |_, section: &onefold_format::container::MetadataSection| {
        for chunk in &section.chunks {
            chunks.entry(chunk.fingerprint).or_insert((0, chunk.level)).0 += 1;
        }
        Ok(())
    };
    inventory.scan(repository, &|_| true, &Job::unattended().0, count).unwrap();
    chunks
}

#[test]
fn every_algorithm_keeps_the_same_and_marks_in_files_are_as_exact_as_a_set() {
    let tree = tempfile::tempdir().unwrap();
    let (memory, saved, _) = used_store(tree.path());
    let mut exact = BTreeMap::new();
    let (mut deleted, mut spilled_bytes) = (0, u64::MAX / 2);
    for (algorithm, marks_bytes) in EVERY_ALGORITHM {
        let store: Arc<dyn Store> = Arc::new(memory.clone_state());
        let before = chunks(&open(&store));
        let report = collect_by(&store, algorithm, marks_bytes).unwrap();
        assert!(report.deleted_containers > 0 && report.copied_chunks > 0, "{algorithm:?}");
        let repository = open(&store);
        assert_eq!(SnapshotList::load(&repository).unwrap().snapshots.len(), saved.len());
        saved.iter().for_each(|(id, content)| assert_restores(&repository, *id, content));
        let left = chunks(&repository);
        assert!(left.len() < before.len());
        if algorithm == MarkAlgorithm::Exact {
            (exact, deleted) = (left.clone(), report.deleted_bytes);
        }
        assert!(exact.keys().all(|chunk| left.contains_key(chunk)), "{algorithm:?}");
        let mark = &report.mark;
        if algorithm == MarkAlgorithm::Partitioned || marks_bytes.is_some() {
            assert_eq!(mark.algorithm, MarkAlgorithm::Partitioned);
            assert_eq!((&left, report.deleted_bytes), (&exact, deleted));
            // Written once, in order; or distributed before that.
            let distributed = mark.spilled_bytes > spilled_bytes * 2;
            assert_eq!(distributed, marks_bytes.is_some(), "{mark:?}");
            spilled_bytes = mark.spilled_bytes.min(spilled_bytes);
            assert!(mark.memory_bytes > 0 && mark.memory_bytes <= PARTITIONED_BYTES as u64);
            // Pieces of files and the least that sets take.
            assert!(marks_bytes.is_none() || mark.memory_bytes < 256 << 10, "{mark:?}");
        }
    }
}

/// Whoever asks for a mark by name gets one, if there are more nodes than a table takes as well.
#[test]
fn more_nodes_than_a_table_takes_are_marked_in_files_whatever_was_asked_for() {
    for (files, fits) in [(TABLE_NODES_MIN - 1000, true), (TABLE_NODES_MIN + 1, false)] {
        let (_, store) = in_memory();
        let repository = create(&store, &options());
        // Each has a map of its own.
        let file = |number: u32| (format!("{number:05}"), Tiny(2 * number..2 * number + 2));
        let files: Vec<_> = (0..files as u32).map(file).collect();
        save_files(&repository, &files);
        for algorithm in
            [MarkAlgorithm::Exact, MarkAlgorithm::Physical, MarkAlgorithm::PhysicalPlus]
        {
            let expected = if fits { algorithm } else { MarkAlgorithm::Partitioned };
            let report = collect_by(&store, algorithm, Some(1 << 20)).unwrap();
            assert_eq!((report.mark.algorithm, report.deleted_containers), (expected, 0));
        }
    }
}

#[test]
fn a_missing_node_is_damage_and_nothing_is_deleted() {
    let tree = tempfile::tempdir().unwrap();
    let (memory, _, _) = used_store(tree.path());
    // Containers that hold nodes are lost, one at a time.
    let repository = open(&(Arc::new(memory.clone_state()) as Arc<dyn Store>));
    let index = FingerprintIndex::open(&repository).unwrap();
    let inventory = Inventory::take(&repository, &index.covered()).unwrap();
    let mut with_nodes = BTreeSet::new();
    let note = &mut |ordinal: usize, section: &onefold_format::container::MetadataSection| {
        if section.chunks.iter().any(|chunk| chunk.level.is_node()) {
            with_nodes.insert(inventory.containers[ordinal].id);
        }
        Ok(())
    };
    inventory.scan(&repository, &|_| true, &Job::unattended().0, note).unwrap();
    // The newest is needed by the newest snapshot.
    let lost = *with_nodes.last().unwrap();
    for marks_bytes in [None, Some(TINY_BYTES)] {
        let damaged = memory.clone_state();
        assert!(damaged.remove(&Key::new(layout::container(lost)).unwrap()));
        let store: Arc<dyn Store> = Arc::new(damaged);
        let before = chunks(&open(&store));
        let error = collect_by(&store, MarkAlgorithm::Partitioned, marks_bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains("is in no container"), "{error}");
        assert!(error.to_string().contains("are damaged"), "{error}");
        assert_eq!(chunks(&open(&store)), before);
    }
}

#[test]
fn a_snapshot_committed_while_collecting_is_rescued() {
    for marks_bytes in [None, Some(TINY_BYTES)] {
        let tree = tempfile::tempdir().unwrap();
        let (memory, saved, gone) = used_store(tree.path());
        let plain: Arc<dyn Store> = Arc::new(memory.clone());
        // Just before an epoch is decided, what was forgotten is saved once more.
        for path in content_of(tree.path()).keys() {
            match gone.get(path) {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
        }
        settle_times(tree.path());
        let again = Arc::new(Mutex::new(None));
        let (made, source) = (Arc::clone(&again), tree.path().to_path_buf());
        let faulty = Faulty::scripted(memory, move |call| {
            if call.name.starts_with(layout::EPOCHS)
                && call.name.len() > layout::EPOCHS.len() + 1
                && made.lock().unwrap().is_none()
            {
                let report = save(&open(&plain), paths(&source));
                *made.lock().unwrap() = report.snapshot;
            }
            Fault::None
        });
        let store: Arc<dyn Store> = Arc::new(faulty);
        let report = collect_by(&store, MarkAlgorithm::Partitioned, marks_bytes).unwrap();
        assert!(report.deleted_containers > 0);
        assert!(report.phases.iter().any(|(phase, _)| *phase == "second mark"), "{report:?}");
        let id = again.lock().unwrap().unwrap();
        let repository = open(&store);
        assert_restores(&repository, id, &gone);
        saved.iter().for_each(|(id, content)| assert_restores(&repository, *id, content));
    }
}

#[test]
fn a_scratch_directory_that_is_missing_is_named_and_nothing_is_deleted() {
    let tree = tempfile::tempdir().unwrap();
    let (memory, _, _) = used_store(tree.path());
    let store: Arc<dyn Store> = Arc::new(memory);
    let before = chunks(&open(&store));
    let options = CollectOptions {
        goal: SpaceGoal::Everything,
        algorithm: MarkAlgorithm::Partitioned,
        marks_bytes: Some(TINY_BYTES),
        scratch: Some(tree.path().join("nothing")),
        ..CollectOptions::default()
    };
    let error = collect(&open(&store), &options, &Job::unattended().0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("nothing'"), "{error}");
    assert_eq!(chunks(&open(&store)), before);
}

#[test]
fn auto_marks_in_memory_then_in_files_and_by_the_perfect_hash_where_no_file_can_be_made() {
    let tree = tempfile::tempdir().unwrap();
    let (memory, _, _) = used_store(tree.path());
    let store: Arc<dyn Store> = Arc::new(memory);
    let mark = |bytes_max: usize, scratch: &Path| {
        let options = CollectOptions {
            mark_only: true,
            marks_bytes: Some(bytes_max),
            scratch: Some(scratch.to_path_buf()),
            ..CollectOptions::default()
        };
        collect(&open(&store), &options, &Job::unattended().0).map(|report| report.mark)
    };
    let entries = mark(usize::MAX, tree.path()).unwrap().index_entries as usize;
    let nowhere = tree.path().join("nothing");
    // As `exact` needs, and a byte less.
    let (exact, less) = (entries * EXACT_BYTES_PER_CHUNK, entries * EXACT_BYTES_PER_CHUNK - 1);
    let used = |bytes_max, scratch| mark(bytes_max, scratch).map(|report| report.algorithm);
    assert_eq!(used(exact, &nowhere).unwrap(), MarkAlgorithm::Exact);
    assert_eq!(used(less, tree.path()).unwrap(), MarkAlgorithm::Partitioned);
    assert_eq!(used(less, &nowhere).unwrap(), MarkAlgorithm::PhysicalPlus);
    // Where that does not fit either, what is lacking is named.
    let error = used(128, &nowhere).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("nothing'"), "{error}");
}
