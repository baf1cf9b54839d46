//! Bounds of what is known of differences, each crossed by one through backups, checks and
//! collections: what is beyond is stored or found otherwise, and nothing is lost.

use crate::ingest::{backup_options, content_at, create, in_memory, open, options, random_bytes};
use crate::rewriting::{containers_of, save};
use crate::steps::check_all;
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::chunk_store::bases::{Bases, FIND_MAX};
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::container::reader::read_section;
use onefold_engine::container::similar::SimilarChunks;
use onefold_engine::index::{ChunkIndex, FingerprintIndex};
use onefold_engine::ingest::versions::CHUNKS_MAX;
use onefold_engine::ingest::{BackupOptions, BackupReport};
use onefold_engine::{InitOptions, Job, Repository, retention};
use onefold_format::container::SKETCH_BYTES;
use onefold_format::delta::DeltaChoice;
use onefold_format::layout;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{Blobs, Key};
use onefold_types::{ContainerId, limits};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const CHUNK_BYTES: usize = limits::KIB;
/// Containers whose sketches a session remembers.
const CONTAINERS_MAX: usize = 1 << 15;
/// Questions that a collection puts at once, and twice the bases that a check remembers.
const ASKED_MAX: usize = 1 << 16;

/// A store that cuts every so many bytes, so that it is known which chunk is which.
fn repository(chunk_bytes: usize) -> Arc<Repository> {
    let (_, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, chunk_bytes).unwrap();
    create(&store, &InitOptions { chunker, container_size_bytes: limits::MIB, ..options() })
}

fn backed_up(repository: &Arc<Repository>, path: &Path) -> BackupReport {
    let delta = Some(DeltaChoice::default());
    let rewrite = "none".parse().unwrap();
    let options = BackupOptions { delta, rewrite, ..backup_options() };
    save(repository, path, &options)
}

#[test]
fn chunks_behind_those_of_an_earlier_version_that_are_looked_at_have_no_place() {
    let repository = repository(CHUNK_BYTES);
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    let mut bytes = random_bytes(1, (CHUNKS_MAX + 1) * CHUNK_BYTES);
    fs::write(&file, &bytes).unwrap();
    backed_up(&repository, root.path());
    for (chunk, has_place) in [(CHUNKS_MAX - 1, 1), (CHUNKS_MAX, 0)] {
        bytes[chunk * CHUNK_BYTES + CHUNK_BYTES / 2] ^= 1;
        fs::write(&file, &bytes).unwrap();
        let report = backed_up(&repository, root.path());
        assert_eq!(report.deltas.chunks_by_place, has_place, "chunk {chunk}: {:?}", report.deltas);
        let found = content_at(&repository, report.snapshot.unwrap(), &file);
        assert!(found == bytes, "chunk {chunk}");
    }
}

#[test]
fn more_deltas_than_are_asked_about_at_once_keep_what_they_are_made_of() {
    let repository = repository(CHUNK_BYTES);
    let root = tempfile::tempdir().unwrap();
    let mut files: Vec<Vec<u8>> =
        (0..2).map(|seed| random_bytes(seed, (ASKED_MAX / 2 + 1) * CHUNK_BYTES)).collect();
    let write = |files: &[Vec<u8>]| {
        for (number, bytes) in files.iter().enumerate() {
            fs::write(root.path().join(number.to_string()), bytes).unwrap();
        }
    };
    write(&files);
    let first = backed_up(&repository, root.path()).snapshot.unwrap();
    for bytes in &mut files {
        bytes.iter_mut().skip(CHUNK_BYTES / 2).step_by(CHUNK_BYTES).for_each(|byte| *byte ^= 1);
    }
    write(&files);
    let second = backed_up(&repository, root.path());
    assert!(second.deltas.chunks > ASKED_MAX as u64, "{:?}", second.deltas);
    retention::forget_final(&repository, &[first], "test").unwrap();
    let options = CollectOptions { goal: SpaceGoal::Everything, ..CollectOptions::default() };
    let report = collect(&repository, &options, &Job::unattended().0).unwrap();
    assert!(report.mark.bases_pinned > ASKED_MAX as u64, "{report:?}");
    assert!(check_all(&repository).is_clean());
    for (number, bytes) in files.iter().enumerate() {
        let path = root.path().join(number.to_string());
        let found = content_at(&repository, second.snapshot.unwrap(), &path);
        assert!(found == *bytes, "file {number}");
    }
}

#[test]
fn one_container_more_than_sketches_are_remembered_of_gives_no_base() {
    let repository = repository(8 * CHUNK_BYTES);
    let root = tempfile::tempdir().unwrap();
    let mut bytes = random_bytes(1, 8 * CHUNK_BYTES);
    fs::write(root.path().join("file"), &bytes).unwrap();
    backed_up(&repository, root.path());
    let sections = containers_of(&repository).into_iter();
    let mut sections = sections.map(|id| (id, read_section(&repository, id).unwrap()));
    let (known, section) = sections.find(|(_, section)| !section.sketches.is_empty()).unwrap();
    bytes[100] ^= 1;
    for (others, is_found) in [(CONTAINERS_MAX - 1, true), (CONTAINERS_MAX, false)] {
        let index: Arc<dyn ChunkIndex> = Arc::new(FingerprintIndex::open(&repository).unwrap());
        let bases = Bases::new(&repository, &index, &BTreeSet::new(), DeltaChoice::default());
        for number in 0..others as u32 {
            let mut id = [7; 16];
            id[..4].copy_from_slice(&number.to_le_bytes());
            bases.note_sketches(ContainerId(id), &[(0, [number as u8; SKETCH_BYTES])]);
        }
        bases.note_sketches(known, &section.sketches);
        let found = bases.find(&bytes, None, true).base;
        assert_eq!(found.is_some(), is_found, "behind {others} others");
    }
}

#[test]
fn more_chunks_than_packing_anew_remembers_stay_whole_and_nothing_is_lost() {
    let repository = repository(CHUNK_BYTES);
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    // A chunk takes 72 bytes of the table, and as much or more beside it.
    let chunks = repository.memory().locality_cache_bytes / 2 / 72 + 1;
    let mut bytes = random_bytes(1, chunks * CHUNK_BYTES);
    let whole = BackupOptions {
        delta: Some(DeltaChoice::Off),
        rewrite: "none".parse().unwrap(),
        ..backup_options()
    };
    let mut saved = Vec::new();
    for _ in 0..2 {
        fs::write(&file, &bytes).unwrap();
        let report = save(&repository, root.path(), &whole);
        saved.push((report.snapshot.unwrap(), bytes.clone()));
        bytes.iter_mut().skip(500).step_by(CHUNK_BYTES).for_each(|byte| *byte ^= 1);
    }
    let options = CollectOptions { repack_level: Some(1), ..CollectOptions::default() };
    let report = collect(&repository, &options, &Job::unattended().0).unwrap();
    // What is packed first is remembered, and no chunk is without one that is like it.
    let made = report.deltas_made as usize;
    assert!(made > chunks / 4 && made < chunks * 9 / 10, "{made} of {chunks}");
    for (snapshot, bytes) in saved {
        assert!(content_at(&repository, snapshot, &file) == bytes);
    }
    assert!(check_all(&repository).is_clean());
}

/// Differences that a backup makes if the first read of a base takes so long.
fn deltas_beside_a_read_of(delay: Duration) -> u64 {
    let (memory, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, CHUNK_BYTES).unwrap();
    let made = create(&store, &InitOptions { chunker, ..options() });
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    let mut bytes = random_bytes(1, 200 * CHUNK_BYTES);
    fs::write(&file, &bytes).unwrap();
    backed_up(&made, root.path());
    let names = containers_of(&made).into_iter().map(layout::container);
    let data = names.max_by_key(|name| memory.size(&Key::new(name.as_str()).unwrap()).unwrap());
    bytes.iter_mut().skip(500).step_by(CHUNK_BYTES).for_each(|byte| *byte ^= 1);
    fs::write(&file, &bytes).unwrap();
    let (data, is_first) = (data.unwrap(), AtomicBool::new(true));
    let slow = Faulty::scripted(memory, move |call| {
        let is_base = call.operation == Operation::GetRange && call.name == data;
        if is_base && is_first.swap(false, Ordering::SeqCst) {
            thread::sleep(delay);
        }
        Fault::None
    });
    let report = backed_up(&open(&(Arc::new(slow) as _)), root.path());
    let found = content_at(&made, report.snapshot.unwrap(), &file);
    assert!(found == bytes);
    report.deltas.chunks
}

#[test]
fn a_base_that_takes_too_long_to_be_found_is_the_last_that_is_looked_for() {
    let tick = Duration::from_millis(800);
    let in_time = deltas_beside_a_read_of(FIND_MAX - tick);
    let late = deltas_beside_a_read_of(FIND_MAX + tick / 8);
    assert!(in_time > 150, "{in_time}");
    assert!(late < in_time / 2, "{late} of {in_time}");
}
