//! Files that have not changed, but lie scattered in frames of which little is needed, are read
//! again and stored together, as far as the loss leaves room.

use crate::ingest::{in_memory, open, random_bytes};
use crate::rewriting::{rewriting, sources, unkeyed};
use crate::steps::check_all;
use onefold_engine::Job;
use onefold_engine::ingest::{BackupReport, backup};
use onefold_engine::restore::{self, Overwrite, PlanReport, RestoreOptions, Without};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_store::Store;
use onefold_types::SessionId;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const FILES: usize = 60;
const FILE_BYTES: usize = 40_000;
/// Every fifth file never changes: about one in each frame of the first version.
const KEPT_EVERY: usize = 5;

fn save(store: &Arc<dyn Store>, path: &Path, choice: &str) -> BackupReport {
    let source = sources(&[path.to_path_buf()]);
    backup(&open(store), source, &rewriting(choice), &Job::unattended().0).unwrap()
}

fn plan(store: &Arc<dyn Store>, id: SessionId) -> PlanReport {
    let repository = open(store);
    let list = SnapshotList::load(&repository).unwrap();
    let record = &list.get(id).unwrap().record;
    let root = TreeReader::open(&repository).unwrap().resolve(record.root, b"/").unwrap();
    let options = RestoreOptions {
        target: std::path::PathBuf::new(),
        overwrite: Overwrite::IfChanged,
        delete: false,
        sparse: false,
        verify: false,
        dry_run: false,
        include: onefold_engine::patterns::Patterns::none(),
        exclude: onefold_engine::patterns::Patterns::none(),
        threads: 1,
        engine: RestoreEngine::Direct,
        placed: None,
        reach: None,
        without: Without::default(),
        spared: None,
    };
    restore::plan(&repository, &root, &options, &Job::unattended().0).unwrap()
}

/// Versions of a tree; the store, and the reports. In the second and third four of five files
/// change wholly, later it is one file.
fn versions(choice: &str) -> (Arc<dyn Store>, Vec<BackupReport>) {
    let source = tempfile::tempdir().unwrap();
    let (_, store) = in_memory();
    crate::ingest::create(&store, &unkeyed());
    let mut reports = Vec::new();
    for version in 0..6u64 {
        let changes = |number: usize| match version {
            0 => true,
            1 | 2 => !number.is_multiple_of(KEPT_EVERY),
            _ => number == 1,
        };
        for number in (0..FILES).filter(|number| changes(*number)) {
            let bytes = random_bytes(version * 1000 + number as u64, FILE_BYTES);
            fs::write(source.path().join(format!("f{number:02}")), bytes).unwrap();
        }
        crate::ingest::settle_times(source.path());
        reports.push(save(&store, source.path(), choice));
    }
    assert!(check_all(&open(&store)).is_clean());
    (store, reports)
}

#[test]
fn files_left_behind_in_frames_of_which_little_is_needed_are_gathered() {
    let (plain_store, plain) = versions("none");
    let (store, reports) = versions("auto,loss=20");
    let (all, kept) = (FILES as u64, (FILES / KEPT_EVERY) as u64);
    let unchanged = |reports: &[BackupReport]| -> Vec<u64> {
        reports.iter().map(|report| report.summary.files_unchanged).collect()
    };
    assert_eq!(unchanged(&plain), [0, kept, kept, all - 1, all - 1, all - 1]);
    // The fourth version is the first of which little is read; after it, those that were left
    // behind are read again, and then left alone.
    assert_eq!(unchanged(&reports), [0, kept, kept, all - 1, all - 1 - kept, all - 1]);
    let rewritten = |version: usize| reports[version].summary.bytes_rewritten;
    assert_eq!(rewritten(4), kept * FILE_BYTES as u64);
    assert_eq!((rewritten(3), rewritten(5)), (0, 0));
    let opened = plan(&store, reports[5].snapshot.unwrap()).bytes_opened;
    let opened_plain = plan(&plain_store, plain[5].snapshot.unwrap()).bytes_opened;
    assert!(opened * 4 < opened_plain * 3, "{opened} {opened_plain}");
}

#[test]
fn nothing_is_read_again_without_room_to_store_it_again() {
    for choice in ["auto,loss=0", "history,loss=0", "window,loss=20", "capping,level=2"] {
        let (_, reports) = versions(choice);
        let all = FILES as u64;
        let last = &reports[3..];
        assert!(last.iter().all(|report| report.summary.files_unchanged == all - 1), "{choice}");
    }
}
