//! How much is stored again: nothing of what reads well, and nothing for ever.

use crate::ingest::{content_at, in_memory, open, random_bytes, stream};
use crate::rewriting::{containers_of, copies_since, rewriting, save, save_with, unkeyed};
use crate::steps::check_all;
use onefold_engine::ingest::{BackupOptions, ParentChoice};
use onefold_engine::retention::forget_final;
use onefold_engine::session::SnapshotList;
use onefold_engine::statistics::statistics;
use onefold_engine::{InitOptions, Job};
use onefold_format::delta::DeltaChoice;
use onefold_policy::lookup::DeviceCosts;
use onefold_policy::rewrite::RewriteChoice;
use onefold_store::Store;
use onefold_types::environment::SeededRandomness;
use onefold_types::{SessionId, limits};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Files of which later versions keep the beginning only, so that frames and containers are left
/// that hold a little of much.
struct Remains {
    directory: tempfile::TempDir,
    files: Vec<Vec<u8>>,
    randomness: SeededRandomness,
    kept_bytes: usize,
}

impl Remains {
    fn new(files: u64, file_bytes: usize, kept_bytes: usize) -> Self {
        let remains = Self {
            directory: tempfile::tempdir().unwrap(),
            files: (0..files).map(|seed| random_bytes(500 + seed, file_bytes)).collect(),
            randomness: SeededRandomness::new(31),
            kept_bytes,
        };
        remains.write();
        remains
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self) {
        for (number, bytes) in self.files.iter().enumerate() {
            fs::write(self.path().join(format!("f{number:03}")), bytes).unwrap();
        }
        crate::ingest::settle_times(self.path());
    }

    fn change(&mut self) {
        for file in &mut self.files {
            if self.randomness.below(10) < 7 {
                let rest = file.len() - self.kept_bytes;
                file.truncate(self.kept_bytes);
                file.extend(random_bytes(self.randomness.below(1 << 40), rest));
            }
        }
        self.write();
    }
}

fn store() -> Arc<dyn Store> {
    store_of(unkeyed().container_size_bytes)
}

fn store_of(container_size_bytes: usize) -> Arc<dyn Store> {
    let (_, store) = in_memory();
    crate::ingest::create(&store, &InitOptions { container_size_bytes, ..unkeyed() });
    store
}

/// Reads every file, whatever has changed.
fn forced(choice: &str) -> BackupOptions {
    BackupOptions { parent: ParentChoice::None, ..rewriting(choice) }
}

#[test]
fn r91_of_data_that_does_not_change_nothing_is_stored_again_for_ever() {
    let choices =
        ["auto,loss=2", "auto,loss=30", "history,loss=30", "capping,level=2", "flexible,loss=20"];
    let more = ["window,loss=20", "window,reads=2", "auto,reads=2", "flexible,reads=2,loss=50"];
    let mut stored = 0;
    for choice in choices.into_iter().chain(more) {
        for (kept_bytes, changes) in [(16 << 10, 1), (16 << 10, 4), (60_000, 1), (60_000, 4)] {
            let store = store();
            let mut remains = Remains::new(64, 128 << 10, kept_bytes);
            for _ in 0..changes {
                save(&open(&store), remains.path(), &rewriting(choice));
                remains.change();
            }
            save(&open(&store), remains.path(), &rewriting(choice));
            let repository = open(&store);
            let before = containers_of(&repository);
            let again: Vec<u64> = (0..8)
                .map(|_| save(&open(&store), remains.path(), &forced(choice)))
                .map(|report| report.summary.chunks_rewritten)
                .collect();
            let copies = copies_since(&repository, &before);
            let twice = copies.values().filter(|count| **count > 1).count();
            let case = format!("{choice}, {kept_bytes} kept, {changes} changes: {again:?}");
            assert_eq!(twice, 0, "{case}: stored again more than once");
            assert_eq!(again[6..], [0, 0], "{case}: never ends");
            stored += again.iter().sum::<u64>();
        }
    }
    assert!(stored > 1000, "too little is torn for this to tell anything: {stored}");
}

/// Changes one chunk in ten, one at a time, all over the files.
fn change_a_tenth(remains: &mut Remains) {
    for file in &mut remains.files {
        for start in (0..file.len() - 100).step_by(80 << 10) {
            let at = start + remains.randomness.below(70 << 10) as usize;
            let end = (at + 100).min(file.len());
            let at = at.min(end);
            file[at..end]
                .copy_from_slice(&random_bytes(remains.randomness.below(1 << 40), end - at));
        }
    }
    remains.write();
}

#[test]
fn r92_a_second_version_that_reads_well_stores_nothing_again() {
    let limits = ["auto,loss=2", "capping,level=20", "window,reads=20"];
    for choice in ["history", "capping", "flexible", "window"].into_iter().chain(limits) {
        // Containers of many frames, as they are by default.
        let store = store_of(limits::CONTAINER_TARGET_BYTES);
        let mut remains = Remains::new(16, 2 << 20, 0);
        for version in 0..2 {
            let report = save(&open(&store), remains.path(), &rewriting(choice));
            let changed = report.summary.chunks_new as f64 / report.summary.chunks as f64;
            assert!(version == 0 || (0.05..0.3).contains(&changed), "{changed}");
            assert_eq!(report.summary.chunks_rewritten, 0, "{choice}, version {version}");
            change_a_tenth(&mut remains);
        }
    }
}

/// The chunks stored again while ten versions are saved, of which the newest two are kept.
fn stored_again(choice: &str, forgets: bool) -> u64 {
    let store = store();
    let mut remains = Remains::new(40, 128 << 10, 40_000);
    let mut snapshots: Vec<SessionId> = Vec::new();
    let mut again = 0;
    for _ in 0..10 {
        let repository = open(&store);
        let options = BackupOptions { delta: Some(DeltaChoice::Off), ..forced(choice) };
        let report = save(&repository, remains.path(), &options);
        again += report.summary.chunks_rewritten;
        snapshots.extend(report.snapshot);
        if forgets && snapshots.len() > 2 {
            forget_final(&repository, &[snapshots.remove(0)], "test").unwrap();
        }
        remains.change();
    }
    let kept = SnapshotList::load(&open(&store)).unwrap().snapshots.len();
    assert_eq!(kept, if forgets { 2 } else { 10 });
    again
}

#[test]
fn r93_forgetting_takes_nothing_from_what_may_be_stored_again() {
    for choice in ["auto,loss=4", "flexible,loss=7", "history,loss=7"] {
        let (kept, forgotten) = (stored_again(choice, false), stored_again(choice, true));
        assert!(kept > 50, "{choice}: {kept}");
        assert!(forgotten * 10 >= kept * 8, "{choice}: {forgotten} of {kept}");
    }
}

/// Some bytes, and then a little of each of their containers, several times over.
fn torn_stream(bytes: usize, container_bytes: usize, passes: usize) -> Vec<u8> {
    let whole = random_bytes(99, bytes);
    let pieces: Vec<u8> =
        whole.chunks(container_bytes).flat_map(|one| &one[..one.len() / 4]).copied().collect();
    [whole, pieces.repeat(passes)].concat()
}

#[test]
fn s2_4_only_what_is_in_the_open_container_costs_no_read() {
    let container_bytes = unkeyed().container_size_bytes;
    let torn = torn_stream(32 * container_bytes, container_bytes, 3);
    for choice in ["none", "capping,level=2", "flexible,loss=20", "window,loss=20", "auto,loss=20"]
    {
        let store = store();
        let repository = open(&store);
        let report = save_with(&repository, stream("torn", &torn), &rewriting(choice));
        let id = report.snapshot.unwrap();
        let copies = copies_since(&repository, &Default::default());
        let twice = copies.values().filter(|count| **count == 2).count() as u64;
        assert!(copies.values().all(|count| *count <= 2), "{choice}: a third time");
        assert_eq!(report.summary.chunks_rewritten, twice, "{choice}");
        assert_eq!(twice > 0, choice != "none", "{choice}: {twice}");
        let read = content_at(&open(&store), id, Path::new("/torn"));
        assert!(read == torn, "{choice}");
        assert!(check_all(&open(&store)).is_clean(), "{choice}");
    }
    // All of this is in one container while the stream goes on.
    let small = torn_stream(container_bytes / 2, container_bytes / 8, 2);
    assert!(small.len() < container_bytes);
    let report = save_with(&open(&store()), stream("small", &small), &rewriting("capping,level=1"));
    assert_eq!(report.summary.chunks_rewritten, 0);
}

#[test]
fn s2_1_what_is_stored_again_counts_as_stored() {
    let container_bytes = unkeyed().container_size_bytes;
    let torn = torn_stream(32 * container_bytes, container_bytes, 3);
    let stored = |choice| {
        let repository = open(&store());
        let report = save_with(&repository, stream("torn", &torn), &rewriting(choice));
        let (job, _) = Job::unattended();
        (report.summary, statistics(&repository, &job).unwrap())
    };
    let (_, without) = stored("none");
    let (summary, with) = stored("capping,level=2");
    assert!(summary.bytes_rewritten > 0);
    assert_eq!([without.bytes_logical, with.bytes_logical], [torn.len() as u64; 2]);
    assert_eq!(with.chunks_data, without.chunks_data + summary.chunks_rewritten);
    assert_eq!(with.bytes_data, without.bytes_data + summary.bytes_rewritten);
}

#[test]
fn by_default_something_is_stored_again_where_reads_take_long_only() {
    for (costs, rewrites) in [(DeviceCosts::SATA_SSD, false), (DeviceCosts::HARD_DISK, true)] {
        let store = store();
        let mut remains = Remains::new(64, 128 << 10, 16 << 10);
        let mut again = 0;
        for _ in 0..6 {
            let rewrite = RewriteChoice::default();
            let options =
                BackupOptions { rewrite, device_costs: Some(costs), ..forced("auto,loss=2") };
            let report = save(&open(&store), remains.path(), &options);
            assert_eq!(report.rewrite.choice == Some(rewrite), rewrites, "{:?}", report.rewrite);
            again += report.summary.chunks_rewritten;
            remains.change();
        }
        assert_eq!(again > 0, rewrites, "{costs:?}: {again}");
    }
}
