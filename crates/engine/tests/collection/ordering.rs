//! The order of the chunks that a collection copies.

use crate::basics::{Saved, everything};
use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::collection::{CollectOptions, ORDERING_SNAPSHOTS_MAX, collect};
use onefold_engine::container::reader;
use onefold_engine::session::WriterSession;
use onefold_engine::{Repository, retention};
use onefold_types::Fingerprint;
use std::collections::BTreeSet;
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
