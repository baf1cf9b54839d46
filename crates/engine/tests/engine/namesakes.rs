//! Files that are not at their path in an earlier snapshot: their names give hints for bases, and
//! never stand for their bytes.

use crate::ingest::{backup_options, content_at, in_memory, options, random_bytes};
use crate::rewriting::save;
use crate::steps::check_all;
use onefold_engine::ingest::namesakes::Namesakes;
use onefold_engine::ingest::{BackupOptions, BackupReport};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{Repository, retention};
use onefold_format::delta::DeltaChoice;
use onefold_store::Store;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

fn repository() -> Arc<Repository> {
    let (_, store): (_, Arc<dyn Store>) = in_memory();
    crate::ingest::create(&store, &options())
}

/// A file with a byte changed in each of its chunks, so that none is found again.
fn changed(bytes: &[u8], by: u8) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed.iter_mut().skip(100).step_by(1_000).for_each(|byte| *byte ^= by);
    changed
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
}

fn by_place(repository: &Arc<Repository>, source: &Path) -> (BackupReport, u64) {
    let with_deltas = BackupOptions { delta: Some(DeltaChoice::default()), ..backup_options() };
    let report = save(repository, source, &with_deltas);
    let found = report.deltas.chunks_by_place;
    (report, found)
}

#[test]
fn a_file_that_was_moved_or_renamed_or_comes_from_elsewhere_finds_its_earlier_version() {
    let repository = repository();
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("one"), directory.path().join("two"));
    let bytes = random_bytes(1, 300_000);
    write(&first.join("lib/libx-1.2.so"), &bytes);
    let (report, found) = by_place(&repository, &first);
    assert_eq!(found, 0, "there is no earlier one");
    // Another directory, so that there is no parent; length and times are the same.
    let moved = second.join("deep/er/libx-1.2.so");
    write(&moved, &changed(&bytes, 1));
    let (of_second, found) = by_place(&repository, &second);
    assert!(found > 0, "{:?}", of_second.deltas);
    assert_eq!(of_second.parent, None);
    assert!(content_at(&repository, of_second.snapshot.unwrap(), &moved) == changed(&bytes, 1));
    // A parent in which it has another place and another version.
    fs::remove_file(&moved).unwrap();
    let renamed = second.join("libx-1.30.so");
    write(&renamed, &changed(&bytes, 2));
    let (renamed_report, found) = by_place(&repository, &second);
    assert!(found > 0, "{:?}", renamed_report.deltas);
    assert!(
        content_at(&repository, renamed_report.snapshot.unwrap(), &renamed) == changed(&bytes, 2)
    );
    // Another name gives no hint.
    let other = second.join("liby-1.30.so");
    write(&other, &changed(&bytes, 4));
    assert_eq!(by_place(&repository, &second).1, 0);
    assert!(check_all(&repository).is_clean());
    // Hints are all that came of it: what they came from may go.
    let gone = [report.snapshot.unwrap(), of_second.snapshot.unwrap()];
    retention::forget_final(&repository, &gone, "test").unwrap();
    let collecting = onefold_engine::collection::CollectOptions::default();
    onefold_engine::collection::collect(
        &repository,
        &collecting,
        &onefold_engine::Job::unattended().0,
    )
    .unwrap();
    assert!(
        content_at(&repository, renamed_report.snapshot.unwrap(), &renamed) == changed(&bytes, 2)
    );
    assert!(check_all(&repository).is_clean());
}

#[test]
fn another_host_gives_no_hints_and_neither_does_who_makes_no_differences() {
    let repository = repository();
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("one"), directory.path().join("two"));
    let bytes = random_bytes(1, 300_000);
    write(&first.join("libx.so"), &bytes);
    by_place(&repository, &first);
    write(&second.join("libx.so"), &changed(&bytes, 1));
    let with = |host: &str, delta| BackupOptions {
        delta: Some(delta),
        host: host.to_owned(),
        ..backup_options()
    };
    let elsewhere = save(&repository, &second, &with("elsewhere", DeltaChoice::default()));
    assert_eq!(elsewhere.deltas.chunks_by_place, 0);
    write(&second.join("libx.so"), &changed(&bytes, 2));
    let whole = save(&repository, &second, &with("elsewhere", DeltaChoice::Off));
    assert_eq!(whole.deltas.bases_tried, 0);
}

#[test]
fn what_does_not_fit_into_memory_gives_no_hint_and_nothing_else_happens() {
    let repository = repository();
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("one"), directory.path().join("two"));
    let names = ["a.so", "b.so", "c.so", "d.so"];
    for (seed, name) in (1..).zip(names) {
        write(&first.join(name), &random_bytes(seed, 30_000));
        write(&second.join(name), &changed(&random_bytes(seed, 30_000), 1));
    }
    by_place(&repository, &first);
    let found = |files: usize| {
        let tree = TreeReader::open(&repository).unwrap();
        let root = SnapshotList::load(&repository).unwrap().snapshots[0].record.root;
        let purse = repository.purse();
        // Each takes at most 80 bytes and at least 60.
        let _all_but = purse.take(purse.left_bytes() - files * 80);
        let namesakes = Namesakes::of(&repository, &tree, root);
        names.iter().filter(|name| namesakes.find(name.as_bytes(), 30_000).is_some()).count()
    };
    assert_eq!((found(0), found(1), found(3), found(10)), (0, 1, 3, 4));
    assert_eq!(by_place(&repository, &second).0.summary.errors, 0);
}
