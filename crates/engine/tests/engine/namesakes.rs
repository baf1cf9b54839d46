//! Files that are not at their path in an earlier snapshot: their names give hints for bases, and
//! never stand for their bytes.

use crate::ingest::{backup_options, content_at, entry_at, in_memory, options, random_bytes};
use crate::rewriting::save;
use crate::steps::check_all;
use onefold_engine::ingest::namesakes::{ENTRIES_MAX, FILES_MAX, Namesakes};
use onefold_engine::ingest::{BackupOptions, BackupReport};
use onefold_engine::tree::TreeReader;
use onefold_engine::{Repository, retention};
use onefold_format::delta::DeltaChoice;
use onefold_store::Store;
use std::fs;
use std::path::{Path, PathBuf};
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

/// A store, and two directories of which it knows nothing.
fn with_two() -> (Arc<Repository>, tempfile::TempDir, [PathBuf; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let two = ["one", "two"].map(|name| directory.path().join(name));
    (repository(), directory, two)
}

fn by_place(repository: &Arc<Repository>, source: &Path) -> (BackupReport, u64) {
    let delta = Some(DeltaChoice::default());
    let with_deltas = BackupOptions { delta, threads: 1, ..backup_options() };
    let report = save(repository, source, &with_deltas);
    let found = report.deltas.chunks_by_place;
    (report, found)
}

#[test]
fn a_file_that_was_moved_or_renamed_or_comes_from_elsewhere_finds_its_earlier_version() {
    let (repository, _directory, [first, second]) = with_two();
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
    let (repository, _directory, [first, second]) = with_two();
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
fn where_no_memory_is_left_some_files_are_noted_all_the_same() {
    let (repository, _directory, [first, _]) = with_two();
    links(&first, (0..1_023).map(|number| format!("f{number:06}")), 8_192);
    write(&first.join("z.so"), &random_bytes(7, 8_192));
    let taken = repository.purse().take(usize::MAX);
    assert!(is_found(&repository, &first, "z.so"));
    links(&first.join("."), std::iter::once("e".to_owned()), 8_192);
    assert!(!is_found(&repository, &first, "z.so"), "one more than the least");
    drop(taken);
}

#[test]
fn few_bytes_are_not_worth_the_reading_of_many_names() {
    let (repository, _directory, [first, second]) = with_two();
    let bytes = random_bytes(1, 300_000);
    write(&first.join("libx.so"), &bytes);
    for number in 0..1_400 {
        write(&first.join(format!("small/{number}")), &[1]);
    }
    by_place(&repository, &first);
    write(&second.join("libx.so"), &changed(&bytes, 1));
    assert_eq!(by_place(&repository, &second).1, 0, "300,000 bytes, and 1,401 files before");
    // One thread reads them one after the other.
    write(&second.join("more/another"), &random_bytes(2, 100_000));
    write(&second.join("more/libx.so"), &changed(&bytes, 2));
    let report = by_place(&repository, &second.join("more")).0;
    assert!(report.deltas.chunks_by_place > 0, "{:?}", report.deltas);
}

/// Gives a few files of so many bytes all these names: names of one file take no room.
fn links(directory: &Path, names: impl Iterator<Item = String>, bytes: usize) {
    fs::create_dir_all(directory).unwrap();
    let mut first = PathBuf::new();
    for (number, name) in names.enumerate() {
        // File systems allow some ten thousand names.
        if number % 30_000 == 0 {
            first = directory.join(&name);
            write(&first, &random_bytes(number as u64, bytes));
        } else {
            fs::hard_link(&first, directory.join(name)).unwrap();
        }
    }
}

/// Whether a file is found by its name in what was saved of a directory.
fn is_found(repository: &Arc<Repository>, directory: &Path, name: &str) -> bool {
    let report = by_place(repository, directory).0;
    let entry = entry_at(repository, report.snapshot.unwrap(), directory);
    let tree = TreeReader::open(repository).unwrap();
    let namesakes = Namesakes::of(repository, &tree, entry.content.unwrap());
    namesakes.find(name.as_bytes(), 8_192).is_some()
}

#[test]
fn a_file_behind_those_that_are_noted_or_looked_at_gives_no_hint() {
    for (most, bytes) in [(FILES_MAX, 8_192), (ENTRIES_MAX, 1)] {
        let (repository, _directory, [directory, _]) = with_two();
        links(&directory, (0..most - 1).map(|number| format!("f{number:06}")), bytes);
        write(&directory.join("z.so"), &random_bytes(7, 8_192));
        assert!(is_found(&repository, &directory, "z.so"), "the last of {most}");
        links(&directory.join("."), std::iter::once("e".to_owned()), bytes);
        assert!(!is_found(&repository, &directory, "z.so"), "one behind {most}");
    }
}
