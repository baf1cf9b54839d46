//! Chunks that are lost and that nothing names any more: later backups find out (rule D5).

use crate::ingest::*;
use crate::steps::{job, key, names};
use onefold_engine::check::{self, CheckOptions, CheckReport, ReadData};
use onefold_engine::index::ChunkIndex as _;
use onefold_engine::ingest::BackupReport;
use onefold_engine::session::doubts::Doubts;
use onefold_engine::session::{SnapshotList, decided};
use onefold_engine::synthesis::{Element, SynthesisOptions, fastcopy, synthesize};
use onefold_engine::{Repository, index};
use onefold_format::layout;
use onefold_store::{MemoryStore, Store};
use onefold_types::SessionId;
use std::path::Path;
use std::sync::Arc;

/// A store with one snapshot of each of some trees.
struct Saved {
    memory: MemoryStore,
    store: Arc<dyn Store>,
    trees: Vec<tempfile::TempDir>,
}

impl Saved {
    fn new(trees: usize) -> Self {
        let (memory, store) = in_memory();
        let repository = create(&store, &options());
        let make = |number: usize| {
            let directory = tempfile::tempdir().unwrap();
            std::fs::create_dir(directory.path().join("d")).unwrap();
            for file in 0..8 {
                let bytes = random_bytes((number * 100 + file) as u64, 40_000);
                std::fs::write(directory.path().join(format!("d/f{file}")), bytes).unwrap();
            }
            directory
        };
        let trees: Vec<_> = (0..trees).map(make).collect();
        settle_times(Path::new("/"));
        for tree in &trees {
            save(&repository, paths(tree.path()));
        }
        Self { memory, store, trees }
    }

    fn open(&self) -> Arc<Repository> {
        open(&self.store)
    }

    /// Removes the containers of the last snapshot's data, and perhaps what the index knows.
    fn lose_last(&self, with_index: bool) {
        let repository = self.open();
        let newest = SnapshotList::load(&repository).unwrap().snapshots.pop().unwrap();
        let reader = onefold_engine::tree::TreeReader::open(&repository).unwrap();
        let mut lost = std::collections::BTreeSet::new();
        onefold_engine::find::walk(&repository, newest.record.root, &job(), &mut |_, entry| {
            if let Some(content) = entry.content.filter(|_| entry.size > 0) {
                reader.extents(content, entry.size, &mut |extent| {
                    let found = index::FingerprintIndex::open(&repository)?.locate(
                        &repository,
                        &extent.fingerprint,
                        &mut 0,
                    )?;
                    lost.extend(found);
                    Ok(())
                })?;
            }
            Ok(true)
        })
        .unwrap();
        assert!(!lost.is_empty());
        for id in lost {
            assert!(self.memory.remove(&key(layout::container(id))));
        }
        if with_index {
            for name in names(&self.memory, layout::INDEX) {
                self.memory.remove(&key(name));
            }
        }
    }

    /// Saves a tree again, and compares what was saved with it.
    fn save_again(&self, tree: usize) -> BackupReport {
        let repository = self.open();
        let report = save(&repository, paths(self.trees[tree].path()));
        let id = report.snapshot.unwrap();
        crate::ingest::assert_tree_equal(&repository, id, self.trees[tree].path());
        report
    }

    fn check(&self) -> CheckReport {
        let options =
            CheckOptions { read_data: ReadData::None, threads: 1, record_quarantine: true };
        check::check(&self.open(), options, &job()).unwrap()
    }

    fn newest_is_whole(&self, report: &BackupReport) {
        let newest = report.snapshot.unwrap();
        let checked = self.check();
        let of_newest = checked.damaged_paths.iter().filter(|path| path.snapshot == newest);
        assert_eq!(of_newest.count(), 0, "{checked:?}");
    }
}

#[test]
fn r60_a_container_that_was_lost_with_the_index_is_stored_again() {
    let saved = Saved::new(1);
    saved.lose_last(true);
    let report = saved.save_again(0);
    assert_eq!((report.summary.files_unchanged, report.summary.files_changed), (0, 8));
    saved.newest_is_whole(&report);
    // The next one relies on what has been looked up.
    let next = saved.save_again(0);
    assert_eq!((next.summary.files_unchanged, next.summary.chunks_new), (8, 0));
}

#[test]
fn r60_whoever_made_the_index_anew_every_parent_is_looked_through_once() {
    let saved = Saved::new(3);
    saved.lose_last(true);
    // The index is made anew by the backup of another tree, and looks whole from then on.
    assert_eq!(saved.save_again(0).summary.files_unchanged, 8);
    let healed = saved.save_again(2);
    assert_eq!(healed.summary.files_unchanged, 0);
    let look_ups = |tree| saved.save_again(tree).lookup.counters.lookups;
    let (doubted, trusted) = (look_ups(1), look_ups(1));
    assert!(doubted > 2 * trusted, "{doubted} look-ups with a doubt, {trusted} without");
    // What was lost is stored again, so that everything is whole, older snapshots included.
    assert!(saved.check().is_clean());
    assert!(Doubts::load(&saved.open()).unwrap().is_empty());
}

#[test]
fn r60_repairing_the_index_does_not_hide_a_loss() {
    for with_check in [false, true] {
        let saved = Saved::new(2);
        saved.lose_last(false);
        if with_check {
            assert!(!saved.check().is_clean());
        }
        check::repair_index(&saved.open(), None, &job()).unwrap();
        if with_check {
            assert!(!saved.check().is_clean(), "the loss is not forgotten");
        }
        let healed = saved.save_again(1);
        assert_eq!(healed.summary.files_unchanged, 0);
        saved.newest_is_whole(&healed);
    }
}

#[test]
fn r60_a_loss_of_which_nothing_tells_is_noted_by_a_check() {
    let saved = Saved::new(2);
    saved.lose_last(true);
    for name in names(&saved.memory, layout::METADATA) {
        saved.memory.remove(&key(name));
    }
    // As if the index had been made anew by somebody who says nothing.
    check::repair_index(&saved.open(), None, &job()).unwrap();
    Doubts::load(&saved.open()).unwrap().remove(&saved.open()).unwrap();
    assert!(!saved.check().is_clean());
    assert_eq!(Doubts::load(&saved.open()).unwrap().count(), 1);
    assert!(!saved.check().is_clean());
    assert_eq!(Doubts::load(&saved.open()).unwrap().count(), 1, "once is enough");
    let healed = saved.save_again(1);
    saved.newest_is_whole(&healed);
}

#[test]
fn r60_a_check_that_finds_all_whole_removes_the_doubts() {
    let saved = Saved::new(1);
    check::repair_index(&saved.open(), None, &job()).unwrap();
    assert_eq!(Doubts::load(&saved.open()).unwrap().count(), 1);
    let report = saved.check();
    assert!(report.is_clean(), "{report:?}");
    assert!(Doubts::load(&saved.open()).unwrap().is_empty());
    assert_eq!(saved.save_again(0).summary.files_unchanged, 8);
}

#[test]
fn r60_what_a_crash_leaves_unindexed_raises_no_doubt() {
    let saved = Saved::new(1);
    // A container that was stored and never described.
    let repository = saved.open();
    let (before, runs) = (names(&saved.memory, "metadata"), names(&saved.memory, "index"));
    std::fs::write(saved.trees[0].path().join("d/new"), random_bytes(7, 90_000)).unwrap();
    settle_times(Path::new("/"));
    save(&repository, paths(saved.trees[0].path()));
    let remove_new = |top: &str, before: &[String]| {
        for name in names(&saved.memory, top) {
            if !before.contains(&name) {
                saved.memory.remove(&key(name));
            }
        }
    };
    remove_new("metadata", &before);
    remove_new("index", &runs);
    saved.save_again(0);
    assert!(Doubts::load(&repository).unwrap().is_empty());
}

#[test]
fn r60_copies_and_synthetic_snapshots_inherit_doubts() {
    let saved = Saved::new(2);
    check::repair_index(&saved.open(), None, &job()).unwrap();
    let repository = saved.open();
    let doubts = Doubts::load(&repository).unwrap();
    let verified = saved.save_again(0).snapshot.unwrap();
    let list = SnapshotList::load(&repository).unwrap();
    let unverified = list
        .snapshots
        .iter()
        .find(|one| {
            doubts.concern(&one.record)
                && one.record.paths != list.get(verified).unwrap().record.paths
        })
        .unwrap()
        .id;
    let synthesis = SynthesisOptions { program: "test".into(), ..SynthesisOptions::default() };
    let concern = |id: SessionId| {
        let list = SnapshotList::load(&repository).unwrap();
        doubts.concern(&list.get(id).unwrap().record)
    };
    let copy = |id| fastcopy(&repository, id, &synthesis, &job()).unwrap();
    assert!(!concern(copy(verified)) && concern(copy(unverified)));
    let part = |snapshot, to: &str| Element { snapshot, path: Vec::new(), to: to.into() };
    let both = [part(verified, "a"), part(unverified, "b")];
    let both_again = [part(unverified, "b"), part(verified, "a")];
    for parts in [both, both_again] {
        assert!(concern(synthesize(&repository, &parts, &synthesis, &job()).unwrap()));
    }
    let twice = [part(verified, "a"), part(verified, "b")];
    assert!(!concern(synthesize(&repository, &twice, &synthesis, &job()).unwrap()));
    assert_eq!(decided::names(&repository, layout::OUTCOMES).unwrap().len(), 8);
}
