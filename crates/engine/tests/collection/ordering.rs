//! The order of the chunks that a collection copies.

use crate::basics::{Saved, everything};
use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::collection::{CollectOptions, ORDERING_SNAPSHOTS_MAX, collect};
use onefold_engine::container::reader;
use onefold_engine::ingest::{BackupOptions, ParentChoice, backup};
use onefold_engine::session::{SnapshotList, WriterSession};
use onefold_engine::{Repository, retention};
use onefold_format::record::SnapshotRecord;
use onefold_store::MemoryStore;
use onefold_types::{ContainerId, Fingerprint};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

#[test]
fn copies_are_whole_in_every_order() {
    for ordering_snapshots_max in [ORDERING_SNAPSHOTS_MAX, 1, 0] {
        let saved = Saved::versions(Suite::None);
        let options = CollectOptions { ordering_snapshots_max, ..everything() };
        let report = collect(&saved.repository, &options, &job()).unwrap();
        assert!(report.copied_chunks > 0 && report.kept.is_empty(), "{ordering_snapshots_max}");
        saved.assert_whole();
    }
}

/// Bytes of a file that is one chunk.
const FILE_BYTES: usize = 2_000;

/// Saves a file as the only one of a source of its own, later than those before.
fn save_source(repository: &Arc<Repository>, source: u64) -> Fingerprint {
    let session = WriterSession::begin(repository).unwrap();
    let item = file("file", source, FILE_BYTES);
    let root = put_tree(repository, &session, &[item]).reference;
    let mut record = record_of(repository, root);
    record.paths = vec![format!("/source/{source}")];
    record.started_ns += source as i64 * 1_000_000_000;
    saved(session.commit(record).unwrap());
    repository.fingerprinter().data(&random_bytes(source, FILE_BYTES))
}

/// The chunks of files, by the containers that hold them.
fn holders(repository: &Repository, files: &[Fingerprint]) -> BTreeSet<BTreeSet<Fingerprint>> {
    let held = containers(repository).into_iter().map(|id| {
        let chunks = reader::read_section(repository, id).unwrap().chunks.into_iter();
        chunks.map(|chunk| chunk.fingerprint).filter(|chunk| files.contains(chunk)).collect()
    });
    held.filter(|held: &BTreeSet<_>| !held.is_empty()).collect()
}

#[test]
fn the_newest_snapshots_of_that_many_sources_and_no_more_are_asked_for_the_order() {
    let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    for surplus in [0, 1, 2] {
        let (_, repository) = create();
        let sources = ORDERING_SNAPSHOTS_MAX + surplus;
        // All in one frame, of which so much dies that what is left is copied chunk by chunk.
        let together = names.iter().zip(0..sources as u64);
        let mut together: Vec<Item> =
            together.map(|(name, source)| file(name, source, FILE_BYTES)).collect();
        together.push(file("filler", 9_000, 60_000));
        let first = save(&repository, &together);
        let files: Vec<_> =
            (0..sources as u64).map(|source| save_source(&repository, source)).collect();
        let all = BTreeSet::from_iter(files.iter().copied());
        assert_eq!(holders(&repository, &files), BTreeSet::from([all]));
        retention::forget_final(&repository, &[first], "me").unwrap();

        let report = collect(&repository, &everything(), &job()).unwrap();
        assert_eq!(report.copied_chunks, sources as u64, "{report:?}");
        let (oldest, asked) = files.split_at(surplus);
        let mut expected = BTreeSet::from([BTreeSet::from_iter(asked.iter().copied())]);
        expected.extend((surplus > 0).then(|| BTreeSet::from_iter(oldest.iter().copied())));
        assert_eq!(holders(&repository, &files), expected, "{surplus} more than are asked");
    }
}

/// Directories with changes, of all there are.
const CHANGED: usize = 3;
const DIRECTORIES: usize = 60;

/// Makes a directory of three files, each a chunk.
fn write_directory(root: &Path, number: usize, seed: u64) {
    let directory = root.join(format!("{number:02}"));
    fs::create_dir_all(&directory).unwrap();
    for file in 0..3 {
        let bytes = random_bytes(seed + number as u64 * 10 + file, FILE_BYTES);
        fs::write(directory.join(file.to_string()), bytes).unwrap();
    }
}

/// The chunks of data, in the order in which they lie, in each container that is not in `before`.
fn copied(repository: &Repository, before: &BTreeSet<ContainerId>) -> BTreeSet<Vec<Fingerprint>> {
    let new = containers(repository).into_iter().filter(|id| !before.contains(id));
    let lists = new.map(|id| {
        let chunks = reader::read_section(repository, id).unwrap().chunks.into_iter();
        chunks.filter(|one| !one.level.is_node()).map(|one| one.fingerprint).collect()
    });
    lists.filter(|chunks: &Vec<_>| !chunks.is_empty()).collect()
}

#[test]
fn placements_spare_the_walk_below_what_lies_elsewhere_and_give_the_same_order() {
    let (place, memory) = (tempfile::tempdir().unwrap(), MemoryStore::recording());
    let repository = create_on(Arc::new(memory.clone()), Suite::None);
    let source = place.path().join("source");
    let back_up = |parent| {
        let options = BackupOptions { parent, threads: 1, ..backup_options() };
        backup(&repository, paths(&source), &options, &job()).unwrap().snapshot.unwrap()
    };
    // What is to be copied lies in the first snapshot's containers, and half of it dies.
    (0..2 * CHANGED).for_each(|number| write_directory(&source, number * 10, 0));
    let first = back_up(ParentChoice::None);
    (0..CHANGED).for_each(|number| write_directory(&source, number * 20, 50_000));
    let others = (0..DIRECTORIES).filter(|number| number % 10 != 0);
    others.for_each(|number| write_directory(&source, number, 0));
    let second = back_up(ParentChoice::None);
    let list = SnapshotList::load(&repository).unwrap();
    let record = list.snapshots.iter().find(|one| one.id == second).unwrap().record.clone();
    assert!(record.placement.is_some());
    retention::forget_final(&repository, &[first], "me").unwrap();
    let before = containers(&repository);

    let mut orders = Vec::new();
    for (placement, nodes) in [(record.placement, CHANGED + 2..=CHANGED + 6), (None, 61..=99)] {
        let copy = memory.clone_state();
        let repository = reopen(&copy, 7);
        let session = WriterSession::begin(&repository).unwrap();
        let (started_ns, root) = (record.started_ns + 1_000_000_000, record.root);
        saved(
            session
                .commit(SnapshotRecord { placement, started_ns, root, ..record.clone() })
                .unwrap(),
        );
        let report = collect(&repository, &everything(), &job()).unwrap();
        assert!(report.copied_chunks >= 3 * CHANGED as u64, "{report:?}");
        assert!(nodes.contains(&(report.nodes_for_order as usize)), "{nodes:?}: {report:?}");
        orders.push(copied(&repository, &before));
    }
    let [by_placement, by_walk] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!(by_placement, by_walk);
    assert_eq!(by_walk.iter().map(Vec::len).collect::<Vec<_>>(), [3 * CHANGED]);
}
