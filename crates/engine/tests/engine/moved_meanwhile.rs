//! Files that get other names in their directory while a backup reads it.

use crate::steps::{backup_options, create, paths};
use onefold_engine::job::Job;
use onefold_engine::restore::{DumpOptions, dump};
use onefold_engine::session::SnapshotList;
use onefold_engine::{Repository, find, ingest};
use onefold_format::node::{EntryKind, Listing};
use onefold_types::SessionId;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What the files are named, one name more than there are files.
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// Renames one file after the other to the name that is free, until told to stop.
fn rotate(directory: &Path, stop: &AtomicBool) {
    let mut free = NAMES.len() - 1;
    while !stop.load(Ordering::Relaxed) {
        let next = (free + 5) % NAMES.len();
        fs::rename(directory.join(NAMES[next]), directory.join(NAMES[free])).unwrap();
        free = next;
    }
}

/// The contents of all files of a snapshot, and whether their directory was saved whole.
fn saved(repository: &Arc<Repository>, id: SessionId) -> (BTreeSet<Vec<u8>>, bool) {
    let list = SnapshotList::load(repository).unwrap();
    let (mut files, mut is_whole) = (Vec::new(), true);
    let job = Job::unattended().0;
    find::walk(repository, list.get(id).unwrap().record.root, &job, &mut |path, entry| {
        if entry.kind == EntryKind::File {
            files.push(entry.clone());
        } else if path.ends_with(b"/logs") {
            is_whole = entry.listing == Listing::Whole;
        }
        Ok(true)
    })
    .unwrap();
    let read = |entry| {
        let mut bytes = Vec::new();
        dump(repository, entry, &DumpOptions::default(), &mut bytes, &job).unwrap();
        bytes
    };
    (files.iter().map(read).collect(), is_whole)
}

#[test]
fn r159_a_file_that_gets_another_name_meanwhile_is_saved_or_the_directory_is_not_whole() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("logs");
    fs::create_dir(&directory).unwrap();
    let contents: BTreeSet<Vec<u8>> =
        (1..NAMES.len()).map(|number| vec![number as u8; 2000]).collect();
    for (name, content) in NAMES.iter().zip(&contents) {
        fs::write(directory.join(name), content).unwrap();
    }
    let (_, repository) = create();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| rotate(&directory, &stop));
        for _ in 0..60 {
            let job = Job::unattended().0;
            let options = backup_options();
            let report = ingest::backup(&repository, paths(place.path()), &options, &job).unwrap();
            let (found, is_whole) = saved(&repository, report.snapshot.unwrap());
            let left_out = &report.left_out;
            let is_told = left_out.gone + left_out.grown + report.summary.errors > 0;
            assert!(found == contents || is_told, "{left_out:?}");
            assert!(found == contents || !is_whole, "a restore would delete what it cannot know");
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Nothing moves any more.
    let job = Job::unattended().0;
    let report = ingest::backup(&repository, paths(place.path()), &backup_options(), &job).unwrap();
    assert_eq!(saved(&repository, report.snapshot.unwrap()), (contents, true));
    assert_eq!(report.left_out.grown, 0);
}
