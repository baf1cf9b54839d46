//! Differences that are turned round when they are packed anew: the newest is whole, and the old is
//! made of it.

use crate::ingest::{content_at, open, random_bytes, settle_times};
use crate::rewriting::{containers_of, open_with, rewriting, save, unkeyed};
use crate::steps::check_all;
use onefold_engine::collection::{CollectOptions, CollectReport, collect};
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::BackupOptions;
use onefold_engine::{InitOptions, Job, MemoryPlan};
use onefold_format::container::MetadataSection;
use onefold_format::delta::DeltaChoice;
use onefold_store::{MemoryStore, Store};
use onefold_types::{ContainerId, Fingerprint, SessionId, limits};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

const FILE_BYTES: usize = 300_000;

/// A store, and versions of some files in it.
struct Saved {
    memory: MemoryStore,
    store: Arc<dyn Store>,
    root: tempfile::TempDir,
    versions: Vec<(SessionId, PathBuf, Vec<u8>)>,
}

impl Saved {
    fn new() -> Self {
        let memory = MemoryStore::recording();
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        let made = InitOptions { container_size_bytes: limits::MIB, ..unkeyed() };
        crate::ingest::create(&store, &made);
        Self { memory, store, root: tempfile::tempdir().unwrap(), versions: Vec::new() }
    }

    fn path(&self, source: &str) -> PathBuf {
        self.root.path().join(source)
    }

    /// Saves a version of a file that is a source of its own, like all others; how many chunks
    /// became differences.
    fn version(&mut self, source: &str, number: u8, depth: u8) -> u64 {
        let mut bytes = random_bytes(1, FILE_BYTES);
        let changed = bytes.iter_mut().skip(100 * usize::from(number)).step_by(1000);
        changed.for_each(|byte| *byte ^= number);
        let directory = self.path(source);
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("f");
        fs::write(&file, &bytes).unwrap();
        settle_times(&directory);
        let delta = if depth == 0 { DeltaChoice::Off } else { DeltaChoice::Depth(depth) };
        let options = BackupOptions { delta: Some(delta), ..rewriting("none") };
        let report = save(&open(&self.store), &directory, &options);
        self.versions.push((report.snapshot.unwrap(), file, bytes));
        report.deltas.chunks
    }

    fn pack(&self, level: u8, chunks_at_once: usize) -> CollectReport {
        let options = CollectOptions { repack_level: Some(level), ..CollectOptions::default() };
        self.collect(&options, chunks_at_once)
    }

    fn collect(&self, options: &CollectOptions, chunks_at_once: usize) -> CollectReport {
        let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES).unwrap();
        let memory = MemoryPlan { copied_chunks_max: chunks_at_once, ..memory };
        let store = Arc::clone(&self.store);
        collect(&open_with(&store, memory), options, &Job::unattended().0).unwrap()
    }

    fn sections(&self) -> Vec<(ContainerId, MetadataSection)> {
        let repository = open(&self.store);
        let read = |id| (id, read_section(&repository, id).unwrap());
        containers_of(&repository).into_iter().map(read).collect()
    }

    /// The data chunks of a version, found by their bytes.
    fn chunks_of(&self, version: usize) -> BTreeSet<Fingerprint> {
        let repository = open(&self.store);
        let bytes = &self.versions[version].2;
        let sections = self.sections();
        let stored = || sections.iter().flat_map(|(_, section)| &section.chunks);
        let lengths: BTreeSet<u32> = stored().map(|chunk| chunk.length).collect();
        let names: BTreeSet<Fingerprint> = stored().map(|chunk| chunk.fingerprint).collect();
        let mut chunks = BTreeSet::new();
        let mut at = 0;
        while at < bytes.len() {
            let found = lengths.iter().rev().find_map(|length| {
                let end = (at + *length as usize).min(bytes.len());
                let name = repository.fingerprinter().data(&bytes[at..end]);
                names.contains(&name).then_some((name, end))
            });
            let (name, end) = found.unwrap();
            chunks.insert(name);
            at = end;
        }
        chunks
    }

    /// How many instances of a version's chunks are differences.
    fn differences_of(&self, version: usize) -> usize {
        let chunks = self.chunks_of(version);
        let sections = self.sections();
        let all = sections.iter().flat_map(|(_, section)| &section.chunks);
        all.filter(|chunk| chunk.is_delta() && chunks.contains(&chunk.fingerprint)).count()
    }

    fn stored_bytes(&self) -> u64 {
        let frames = self.sections().into_iter().flat_map(|(_, section)| section.frames);
        frames.map(|frame| u64::from(frame.stored_length)).sum()
    }

    fn assert_whole(&self) {
        let repository = open(&self.store);
        for (id, file, bytes) in &self.versions {
            assert!(content_at(&repository, *id, file) == *bytes);
        }
        let checked = check_all(&repository);
        assert!(checked.is_clean() && checked.notes.is_empty(), "{checked:?}");
    }
}

/// However many rounds it takes.
#[test]
fn the_newest_is_made_whole_and_the_old_is_made_of_it() {
    for chunks_at_once in [usize::MAX >> 1, 30] {
        let mut saved = Saved::new();
        assert_eq!(saved.version("v", 0, 1), 0);
        assert!(saved.version("v", 1, 1) > 20);
        assert!(saved.version("v", 2, 1) > 20);
        let before_bytes = saved.stored_bytes();
        assert!(saved.differences_of(2) > 20 && saved.differences_of(0) == 0);
        let report = saved.pack(3, chunks_at_once);
        assert_eq!(report.epochs > 1, chunks_at_once == 30, "{}", report.epochs);
        assert_eq!(saved.differences_of(2), 0);
        for older in [0, 1] {
            assert!(saved.differences_of(older) > 20, "{older}: {}", saved.differences_of(older));
        }
        let after_bytes = saved.stored_bytes();
        assert!(after_bytes < before_bytes * 11 / 10, "{after_bytes} of {before_bytes}");
        // All of them say where their bases are: nobody has to ask the index.
        for (_, section) in saved.sections() {
            for base in section.deltas.iter().flat_map(|delta| &delta.bases) {
                let holder =
                    saved.sections().into_iter().find(|(id, _)| Some(*id) == base.container);
                let (_, holder) = holder.unwrap();
                assert!(holder.chunks.iter().any(|chunk| chunk.fingerprint == base.fingerprint));
            }
        }
        saved.assert_whole();
        assert_eq!(saved.pack(3, chunks_at_once).deleted_containers, 0);
    }
}

/// What the newest need of another source stays whole, and is read once for both.
#[test]
fn what_is_made_of_something_that_is_needed_as_well_is_not_turned_round() {
    let mut saved = Saved::new();
    saved.version("v", 0, 1);
    assert!(saved.version("w", 1, 1) > 20);
    saved.pack(3, usize::MAX >> 1);
    assert_eq!(saved.differences_of(0), 0);
    assert!(saved.differences_of(1) > 20);
    saved.assert_whole();
}

/// Of what stays where it is nothing becomes a difference, so making the newest whole would only
/// take room.
#[test]
fn what_is_made_of_something_that_stays_where_it_is_is_not_turned_round() {
    let mut saved = Saved::new();
    saved.version("v", 0, 1);
    saved.pack(3, usize::MAX >> 1);
    assert!(saved.version("v", 1, 1) > 20);
    let report = saved.pack(3, usize::MAX >> 1);
    assert!(report.repacked_containers > 0 && report.deltas_made == 0, "{report:?}");
    assert_eq!(saved.differences_of(0), 0);
    assert!(saved.differences_of(1) > 20);
    saved.assert_whole();
}

/// Something is made of it in a container that was packed before.
#[test]
fn what_others_are_made_of_outside_stays_whole() {
    let mut saved = Saved::new();
    saved.version("v", 0, 1);
    assert!(saved.version("w", 1, 1) > 20);
    let packed = |saved: &Saved, level: u8| -> Vec<usize> {
        let sections = saved.sections().into_iter().map(|(_, section)| section);
        sections.filter(|it| it.repacked_level == level).map(|it| it.deltas.len()).collect()
    };
    // The newest container comes first, and packing stops behind it.
    let start = saved.memory.operations();
    assert!(saved.pack(3, 60).epochs > 1);
    let stopped = (start..=saved.memory.operations()).any(|operations| {
        saved.store = Arc::new(saved.memory.state_after(operations));
        let (done, left) = (packed(&saved, 3), packed(&saved, 0));
        let is_between = done.iter().sum::<usize>() > 20 && left.iter().sum::<usize>() == 0;
        is_between && !left.is_empty()
    });
    assert!(stopped);
    // The first one is nobody's newest any more, and much like what is.
    assert_eq!(saved.version("v", 2, 0), 0);
    let report = saved.pack(3, usize::MAX >> 1);
    assert!(report.repacked_containers > 0, "{report:?}");
    assert_eq!(saved.differences_of(0), 0);
    saved.assert_whole();
}

/// Differences of differences: what others are made of stays below them.
#[test]
fn deeper_differences_are_turned_round_as_far_as_they_may() {
    for chunks_at_once in [usize::MAX >> 1, 30] {
        let mut saved = Saved::new();
        for number in 0..4 {
            saved.version("v", number, 3);
        }
        let depths = saved.sections().into_iter().flat_map(|(_, section)| section.deltas);
        assert_eq!(depths.map(|delta| delta.depth).max(), Some(3));
        saved.pack(3, chunks_at_once);
        assert_eq!(saved.differences_of(3), 0);
        saved.assert_whole();
    }
}
