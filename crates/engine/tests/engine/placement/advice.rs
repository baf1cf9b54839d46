//! Restores by placements that are fresh, stale, damaged or missing.

use super::{Walked, new_store, record_of, save_tree};
use crate::ingest::{in_memory, open, random_bytes};
use crate::rewriting::{Versions, restore_options, rewriting, save, unkeyed};
use crate::steps::{check_all, put_with};
use onefold_engine::placement::PlacedItem;
use onefold_engine::restore::{RestoreOptions, RestoreReport, restore};
use onefold_engine::session::{Commit, SnapshotList, WriterSession};
use onefold_engine::{Job, Repository};
use onefold_format::node::{
    Entry, EntryKind, Node, PlacementMap, PlacementPage, PlacementPart, PlacementRun, Reference,
};
use onefold_format::record::SnapshotRecord;
use onefold_store::Store;
use onefold_types::{ContainerId, Fingerprint, Level};
use std::fs;
use std::sync::Arc;

/// Restores a snapshot whole by some placement, and compares it with what a version held.
fn restore_by(
    repository: &Arc<Repository>,
    root: Reference,
    placement: Reference,
    versions: &Versions,
) -> RestoreReport {
    let target = tempfile::tempdir().unwrap();
    let entry = Entry { kind: EntryKind::Directory, content: Some(root), ..Entry::default() };
    let options = RestoreOptions {
        placed: Some(PlacedItem { placement, first_chunk: 0 }),
        ..restore_options(target.path())
    };
    let report = restore(repository, &entry, &options, &Job::unattended().0).unwrap();
    assert_eq!(report.errors, 0);
    for (number, bytes) in versions.history.last().unwrap().iter().enumerate() {
        let path = versions.file(number);
        let read = fs::read(target.path().join(path.strip_prefix("/").unwrap())).unwrap();
        assert!(read == *bytes, "file {number} differs");
    }
    report
}

#[test]
fn sx_2_a_fresh_placement_spares_every_question_and_a_wrong_one_costs_questions_only() {
    let mut versions = Versions::new(3, 500_000);
    let store = new_store();
    let mut records = Vec::new();
    for _ in 0..3 {
        versions.write_next();
        let (_, id) = save_tree(&store, versions.path());
        records.push(record_of(&open(&store), id));
    }
    let repository = open(&store);
    let root = records[2].root;
    let chunks = Walked::of(&repository, root).chunks.len() as u64;
    let fresh = restore_by(&repository, root, records[2].placement.unwrap(), &versions);
    assert_eq!((fresh.chunks_guided, fresh.chunks_looked_up), (chunks, 0));
    assert_eq!(fresh.containers, records[2].summary.containers);
    // That of another version, where files have other chunks in other places.
    let stale = restore_by(&repository, root, records[0].placement.unwrap(), &versions);
    assert_eq!(stale.chunks_guided + stale.chunks_looked_up, chunks);
    assert!(stale.chunks_looked_up > 0);
    for (damaged, _) in damaged_placements(&repository, root) {
        let lost = restore_by(&repository, root, damaged, &versions);
        assert_eq!((lost.chunks_guided, lost.chunks_looked_up), (0, chunks));
    }
}

fn damaged_placements(repository: &Arc<Repository>, root: Reference) -> Vec<(Reference, bool)> {
    let missing = |seed: u8| Reference { fingerprint: Fingerprint([seed; 32]), level: Level(1) };
    let lost_page = Node::PlacementMap(PlacementMap {
        parts: vec![PlacementPart { page: missing(7), chunks: 100_000 }],
        uses: vec![missing(8)],
    });
    let empty_page = Node::PlacementPage(PlacementPage {
        containers: vec![ContainerId([3; 16])],
        runs: vec![
            PlacementRun { container: Some(0), frame: 0, chunks: 0, bytes: 0 },
            PlacementRun { container: Some(0), frame: 0, chunks: 50, bytes: 400_000 },
        ],
    });
    put_with(repository, |stream| {
        let mut put = |level, node: &Node| {
            let fingerprint = stream.put_node(Level(level), &node.encode()).unwrap();
            Reference { fingerprint, level: Level(level) }
        };
        let page = put(1, &empty_page);
        let of_empty = Node::PlacementMap(PlacementMap {
            parts: vec![PlacementPart { page, chunks: 100_000 }],
            uses: vec![page],
        });
        vec![
            // Whether a check can tell from the map alone.
            (Reference { level: Level(2), ..missing(9) }, true),
            (root, true),
            (page, true),
            (put(2, &lost_page), false),
            (put(2, &of_empty), false),
        ]
    })
}

#[test]
fn sx_3_a_damaged_or_missing_placement_costs_time_and_nothing_else() {
    let mut versions = Versions::new(3, 500_000);
    let (memory, store) = in_memory();
    crate::ingest::create(&store, &unkeyed());
    versions.write_next();
    let (_, first) = save_tree(&store, versions.path());
    let healthy = record_of(&open(&store), first);
    let start = memory.clone_state();
    let count = damaged_placements(&open(&store), healthy.root).len();
    for number in 0..count {
        let memory = start.clone_state();
        let store: Arc<dyn Store> = Arc::new(memory);
        let repository = open(&store);
        let (placement, is_told) = damaged_placements(&repository, healthy.root)[number];
        let session = WriterSession::begin(&repository).unwrap();
        let predecessors = SnapshotList::load(&repository).unwrap().heads;
        let record = SnapshotRecord { placement: Some(placement), predecessors, ..healthy.clone() };
        let Commit::Saved(damaged) = session.commit(record).unwrap() else { panic!("fenced") };
        let checked = check_all(&open(&store));
        assert!(checked.is_clean(), "{number}: {checked:?}");
        assert_eq!(checked.notes.len(), usize::from(is_told), "{number}: {:?}", checked.notes);
        versions.assert_restores(&open(&store), damaged, 0);
        // All files are kept: their places are taken over as far as they are known.
        for choice in ["auto", "history,loss=7", "none"] {
            let report = save(&open(&store), versions.path(), &rewriting(choice));
            assert_eq!(report.summary.files_unchanged, 3);
            versions.assert_restores(&open(&store), report.snapshot.unwrap(), 0);
        }
        fs::write(versions.path().join("d/new"), random_bytes(11, 80_000)).unwrap();
        let report = save(&open(&store), versions.path(), &rewriting("auto,loss=7"));
        versions.assert_restores(&open(&store), report.snapshot.unwrap(), 0);
        let checked = check_all(&open(&store));
        assert!(checked.is_clean(), "{number}: {checked:?}");
        fs::remove_file(versions.path().join("d/new")).unwrap();
    }
}
