//! Shares of which data is damaged in the store: on whose word a manifest keeps what is left.

use crate::ingest::{in_memory, random_bytes};
use crate::rewriting::{open_with, plan};
use crate::shares::{World, options};
use onefold_engine::check::{CheckOptions, ReadData, check};
use onefold_engine::chunks::ChunkReader;
use onefold_engine::primary::Share;
use onefold_engine::primary::optimize::{OptimizeReport, optimize};
use onefold_engine::{Job, MemoryPlan, Repository};
use onefold_format::layout;
use onefold_format::share::SharePolicy;
use onefold_store::{Key, MemoryStore};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One chunk, and no map of chunks.
const BYTES: usize = 1000;

/// Damages the containers that hold some chunks, and puts them into quarantine.
fn damage(memory: &MemoryStore, repository: &Arc<Repository>, chunks: &[&[u8]]) {
    let reader = ChunkReader::open(repository).unwrap();
    for chunk in chunks {
        let fingerprint = repository.fingerprinter().data(chunk);
        let place = layout::container(reader.locate(&fingerprint).unwrap().container);
        assert!(memory.corrupt(&Key::new(place).unwrap(), |bytes| bytes[100] ^= 1));
    }
    let all = CheckOptions { read_data: ReadData::All, threads: 1, record_quarantine: true };
    let report = check(repository, all, &Job::unattended().0).unwrap();
    assert_eq!(report.damaged_containers.len(), chunks.len());
}

#[test]
fn a_damaged_stub_is_kept_on_the_word_of_the_directorys_own_manifests_only() {
    let (memory, store) = in_memory();
    let Some(world) = World::over(store) else { return };
    let root = tempfile::tempdir().unwrap();
    let (original, moved) = (root.path().join("original"), root.path().join("moved"));
    let describes = |directory: &Path| directory.join(".onefold-share/share.json");
    let policy = SharePolicy { age_min_seconds: 0, size_min_bytes: 1, excludes: Vec::new() };
    fs::create_dir(&original).unwrap();
    Share::create(&world.repository(), &original, policy).unwrap();
    let run = |directory: &Path, name: &str, bytes: &[u8]| -> OptimizeReport {
        fs::write(directory.join(name), bytes).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let share = Share::open(directory).unwrap();
        optimize(&world.repository(), &share, &options(), &Job::unattended().0).unwrap()
    };
    let [own, elsewhere] = [1, 2].map(|seed| random_bytes(seed, BYTES));
    run(&original, "own", &own);
    let before = fs::read(describes(&original)).unwrap();
    fs::rename(&original, &moved).unwrap();
    Share::look_at(&moved).unwrap().move_here(&world.repository()).unwrap();
    run(&moved, "more", b"more");
    // One directory plays the copy, and then the original that was not moved: what it made there
    // since then is none of the moved one's.
    let after = fs::read(describes(&moved)).unwrap();
    fs::rename(&moved, &original).unwrap();
    fs::write(describes(&original), before).unwrap();
    run(&original, "elsewhere", &elsewhere);
    fs::rename(&original, &moved).unwrap();
    fs::write(describes(&moved), after).unwrap();
    damage(&memory, &world.repository(), &[&own, &elsewhere]);
    let report = run(&moved, "new", b"new");
    assert_eq!(report.backup.damaged_stubs.files, 1, "{:?}", report.backup.damaged_stubs);
    assert!(report.backup.damaged_stubs.lines[0].starts_with("/own: "));
    assert_eq!((report.backup.summary.errors, report.manifests_forgotten), (1, 0), "{report:?}");
}

#[test]
fn one_content_more_than_there_is_room_for_counts_as_named_by_nobody() {
    for (named_contents_max, kept) in [(2, 2), (1, 1), (0, 0)] {
        let (memory, store) = in_memory();
        let Some(world) = World::over(store) else { return };
        let chunks = [1, 2].map(|seed| random_bytes(seed, BYTES));
        for (name, chunk) in ["a", "b"].iter().zip(&chunks) {
            world.write(name, chunk);
            world.optimize();
        }
        damage(&memory, &world.repository(), &[&chunks[0], &chunks[1]]);
        let repository = open_with(&world.store, MemoryPlan { named_contents_max, ..plan() });
        let job = Job::unattended().0;
        let report = optimize(&repository, &world.share(), &options(), &job).unwrap();
        assert_eq!(report.backup.damaged_stubs.files, kept);
        assert_eq!(report.backup.summary.errors, 2 - kept);
        // Whatever the others need, what names them stays.
        assert_eq!(report.manifests_kept > 0, kept < 2);
    }
}
