//! Rewriting through the whole of a backup: what is stored again, and that nothing is lost by it.

use crate::ingest::{backup_options, content_at, in_memory, open, options, random_bytes};
use crate::steps::check_all;
use onefold_crypto::Suite;
use onefold_engine::container::list::container_names;
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::{BackupOptions, BackupReport, Source, backup};
use onefold_engine::patterns::Patterns;
use onefold_engine::repository::Password;
use onefold_engine::restore::{Delete, Overwrite, RestoreOptions, RestoreReport, Without, restore};
use onefold_engine::session::SnapshotList;
use onefold_engine::{Environment, InitOptions, Job, MemoryPlan, Repository};
use onefold_format::delta::DeltaChoice;
use onefold_format::node::{Entry, EntryKind};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_policy::rewrite::RewriteChoice;
use onefold_store::layers::Faulty;
use onefold_store::{MemoryStore, Store};
use onefold_types::environment::SeededRandomness;
use onefold_types::{ContainerId, Fingerprint, Level, SessionId, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The share of the ratio that may be lost in these tests, in per cent.
const LOSS: f64 = 0.07;
/// Chunks that may be stored again for each new one at that loss.
const RATE: f64 = LOSS / (1.0 - LOSS);
/// One chunk is held however little room there is.
const CHUNK_MAX: u64 = 12 * limits::KIB as u64;
/// Every policy; the last five store something again.
const POLICIES: [&str; 6] = [
    "none",
    "capping,level=2",
    "flexible,loss=7",
    "window,loss=7",
    "history,loss=7",
    "auto,loss=7",
];

/// A directory whose files change in their middle from version to version, so that later versions
/// find their chunks scattered over many containers.
pub struct Versions {
    directory: tempfile::TempDir,
    files: Vec<Vec<u8>>,
    randomness: SeededRandomness,
    /// The content of each version.
    pub history: Vec<Vec<Vec<u8>>>,
}

impl Versions {
    pub fn new(files: usize, file_bytes: usize) -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            files: (0..files as u64).map(|seed| random_bytes(1000 + seed, file_bytes)).collect(),
            randomness: SeededRandomness::new(77),
            history: Vec::new(),
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn file(&self, number: usize) -> PathBuf {
        self.path().join(format!("d/f{number}"))
    }

    /// Writes the next version: the first as made, later ones changed once in about 64 KiB.
    pub fn write_next(&mut self) {
        self.write_some(|_| true);
    }

    /// The same, with these files changed and the others left alone.
    pub fn write_some(&mut self, changes: impl Fn(usize) -> bool) {
        fs::create_dir_all(self.path().join("d")).unwrap();
        let is_first = self.history.is_empty();
        for number in 0..self.files.len() {
            if !is_first && !changes(number) {
                continue;
            }
            if !is_first {
                self.change(number);
            }
            fs::write(self.file(number), &self.files[number]).unwrap();
        }
        self.history.push(self.files.clone());
        crate::ingest::settle_times(self.path());
    }

    fn change(&mut self, number: usize) {
        let file = &mut self.files[number];
        let mut at = self.randomness.below(64 * 1024) as usize;
        while at + 100 < file.len() {
            let patch = random_bytes(self.randomness.below(1 << 40), 100);
            file[at..at + 100].copy_from_slice(&patch);
            at += 32 * 1024 + self.randomness.below(64 * 1024) as usize;
        }
    }

    /// Whether a snapshot holds what a version held.
    pub fn assert_restores(&self, repository: &Arc<Repository>, id: SessionId, version: usize) {
        for (number, bytes) in self.history[version].iter().enumerate() {
            let read = content_at(repository, id, &self.file(number));
            assert!(read == *bytes, "file {number} of version {version} differs");
        }
    }
}

pub fn unkeyed() -> InitOptions {
    InitOptions { suite: Suite::None, ..options() }
}

pub fn open_with(store: &Arc<dyn Store>, memory: MemoryPlan) -> Arc<Repository> {
    let password = || Ok(Password::new(b"password".to_vec()));
    Repository::open(Arc::clone(store), password, Environment::system(), memory)
        .map(Arc::new)
        .unwrap()
}

pub fn plan() -> MemoryPlan {
    MemoryPlan::new(64 << 20).unwrap()
}

/// Enough for two streams.
fn plan_for_two() -> MemoryPlan {
    MemoryPlan::new(128 << 20).unwrap()
}

pub fn rewriting(choice: &str) -> BackupOptions {
    BackupOptions { rewrite: choice.parse().unwrap(), ..backup_options() }
}

pub fn sources(paths: &[PathBuf]) -> Source {
    Source::Paths { paths: paths.to_vec(), selection: Box::default() }
}

pub fn save_with(
    repository: &Arc<Repository>,
    source: Source,
    options: &BackupOptions,
) -> BackupReport {
    let (job, problems) = Job::unattended();
    let report = backup(repository, source, options, &job).unwrap();
    assert!(problems.0.lock().unwrap().is_empty(), "{problems:?}");
    report
}

pub fn save(repository: &Arc<Repository>, path: &Path, options: &BackupOptions) -> BackupReport {
    save_with(repository, sources(&[path.to_path_buf()]), options)
}

pub fn containers_of(repository: &Repository) -> BTreeSet<ContainerId> {
    container_names(repository).unwrap().into_iter().collect()
}

/// How often each data chunk stands in these containers.
fn copies_in<'a>(
    repository: &Repository,
    containers: impl Iterator<Item = &'a ContainerId>,
) -> BTreeMap<Fingerprint, u32> {
    let mut copies = BTreeMap::new();
    for id in containers {
        for chunk in &read_section(repository, *id).unwrap().chunks {
            if chunk.level == Level::DATA {
                *copies.entry(chunk.fingerprint).or_default() += 1;
            }
        }
    }
    copies
}

/// How often each data chunk stands in containers that are there now and were not before.
pub fn copies_since(
    repository: &Repository,
    before: &BTreeSet<ContainerId>,
) -> BTreeMap<Fingerprint, u32> {
    copies_in(repository, containers_of(repository).difference(before))
}

/// How many of the chunks that were there before a session has stored more than once.
fn stored_a_third_time(repository: &Repository, before: &BTreeSet<ContainerId>) -> usize {
    let known = copies_in(repository, before.iter());
    let copies = copies_since(repository, before);
    copies.iter().filter(|(name, count)| **count > 1 && known.contains_key(name)).count()
}

/// Everything, each byte compared again.
pub fn restore_options(target: &Path) -> RestoreOptions {
    RestoreOptions {
        target: target.to_path_buf(),
        overwrite: Overwrite::IfDifferent,
        in_place: false,
        saved_within_ns: 0..0,
        delete: Delete::Nothing,
        sparse: false,
        verify: true,
        dry_run: false,
        include: Patterns::none(),
        exclude: Patterns::none(),
        threads: 2,
        engine: RestoreEngine::Direct,
        placed: None,
        sources: None,
        follows_out: false,
        reach: None,
        without: Without::default(),
        spared: None,
    }
}

/// Restores a snapshot whole; compares it with what a version held.
fn restore_whole(
    repository: &Arc<Repository>,
    id: SessionId,
    versions: &Versions,
    version: usize,
) -> RestoreReport {
    let target = tempfile::tempdir().unwrap();
    let list = SnapshotList::load(repository).unwrap();
    let root = Entry {
        kind: EntryKind::Directory,
        content: Some(list.get(id).unwrap().record.root),
        ..Entry::default()
    };
    let options = restore_options(target.path());
    let report = restore(repository, &root, &options, &Job::unattended().0).unwrap();
    assert_eq!(report.errors, 0);
    for (number, bytes) in versions.history[version].iter().enumerate() {
        let path = versions.file(number);
        let read = fs::read(target.path().join(path.strip_prefix("/").unwrap())).unwrap();
        assert!(read == *bytes, "file {number} of version {version} differs");
    }
    report
}

/// Backs up eight versions; every snapshot must then restore, and the store must be clean.
fn run_versions(
    choice: &str,
    memory: MemoryPlan,
    delta: Option<DeltaChoice>,
) -> (Vec<BackupReport>, RestoreReport) {
    let mut versions = Versions::new(5, 700_000);
    let (_, store) = in_memory();
    crate::ingest::create(&store, &unkeyed());
    let mut reports = Vec::new();
    for _ in 0..8 {
        versions.write_next();
        let repository = open_with(&store, memory);
        let before = containers_of(&repository);
        let options = BackupOptions { delta, ..rewriting(choice) };
        let report = save(&repository, versions.path(), &options);
        let copies = copies_since(&repository, &before);
        assert!(copies.values().all(|count| *count == 1), "{choice}: stored twice in a session");
        reports.push(report);
    }
    let repository = open(&store);
    for (version, report) in reports.iter().enumerate() {
        versions.assert_restores(&repository, report.snapshot.unwrap(), version);
    }
    let checked = check_all(&repository);
    assert!(checked.is_clean(), "{choice}: {checked:?}");
    assert!(checked.notes.is_empty(), "{choice}: {:?}", checked.notes);
    // A process of its own, which has read nothing yet.
    let restored = restore_whole(&open(&store), reports[7].snapshot.unwrap(), &versions, 7);
    (reports, restored)
}

/// All chunks stored again so far, and all new ones, after each version.
fn assert_within_loss(choice: &str, reports: &[BackupReport]) {
    let (mut chunks, mut new, mut bytes, mut bytes_new) = (0, 0, 0, 0);
    for (version, report) in reports.iter().enumerate() {
        let summary = &report.summary;
        chunks += summary.chunks_rewritten;
        new += summary.chunks_new;
        bytes += summary.bytes_rewritten;
        bytes_new += summary.bytes_new;
        // The last step is one chunk.
        assert!(
            chunks as f64 <= RATE * new as f64 + 1.0,
            "{choice}: {chunks} of {new} chunks after version {version}"
        );
        let step = limits::MIB as f64 / 16.0;
        assert!(
            bytes as f64 <= RATE * bytes_new as f64 + step,
            "{choice}: {bytes} of {bytes_new} bytes after version {version}"
        );
    }
}

#[test]
fn s2_30_every_policy_restores_every_version_and_keeps_to_the_loss() {
    let mut opened = BTreeMap::new();
    for choice in POLICIES {
        let (reports, _) = run_versions(choice, plan(), None);
        let rewritten: u64 = reports.iter().map(|report| report.summary.chunks_rewritten).sum();
        assert_eq!(rewritten > 0, choice != "none", "{choice}");
        assert_eq!(reports[0].summary.chunks_rewritten, 0, "nothing is old in the first version");
        let again: u64 = reports.iter().map(|report| report.summary.bytes_rewritten).sum();
        assert_eq!(again > 0, choice != "none", "{choice}");
        if choice.contains("loss") {
            assert_within_loss(choice, &reports);
        }
        // With differences nothing is to be gained in so small a store: all of it is needed.
        let (_, restored) = run_versions(choice, plan(), Some(DeltaChoice::Off));
        opened.insert(choice, restored.bytes_opened);
    }
    // The newest version is what restores are about, and frames are what they open.
    assert!(opened["auto,loss=7"] < opened["none"], "{opened:?}");
    assert!(opened["capping,level=2"] < opened["none"], "{opened:?}");
}

#[test]
fn s2_11_the_loss_holds_where_most_files_are_kept_unread() {
    for choice in POLICIES.iter().filter(|choice| choice.contains("loss")) {
        let mut versions = Versions::new(6, 500_000);
        let (_, store) = in_memory();
        crate::ingest::create(&store, &unkeyed());
        let mut reports = Vec::new();
        for version in 0..10 {
            versions.write_some(|number| number % 3 == version % 3);
            reports.push(save(&open(&store), versions.path(), &rewriting(choice)));
        }
        assert!(reports.iter().skip(1).all(|report| report.summary.files_unchanged == 4));
        assert_within_loss(choice, &reports);
        let repository = open(&store);
        for (version, report) in reports.iter().enumerate() {
            versions.assert_restores(&repository, report.snapshot.unwrap(), version);
        }
        assert!(check_all(&repository).is_clean());
    }
}

#[test]
fn s2_18_candidates_stay_within_however_little_memory() {
    for bytes in [0, 10_000, 400_000] {
        let memory = MemoryPlan { rewrite_candidates_bytes: bytes, ..plan() };
        for choice in &POLICIES[1..] {
            let (reports, _) = run_versions(choice, memory, None);
            for counters in reports.iter().flat_map(|report| &report.rewrite.streams) {
                let peak = counters.candidates_bytes_peak;
                assert!(peak <= CHUNK_MAX.max(bytes as u64), "{choice}: {peak} of {bytes} bytes");
            }
        }
    }
}

#[test]
fn s2_18_two_streams_share_the_memory_and_still_restore() {
    // Several streams record no placement, so by history nothing is stored again.
    for choice in POLICIES[1..].iter().filter(|choice| !choice.starts_with("history")) {
        for bytes in [100_000, 2 * limits::MIB] {
            let memory = MemoryPlan { rewrite_candidates_bytes: bytes, ..plan_for_two() };
            let mut trees = [Versions::new(3, 700_000), Versions::new(3, 600_000)];
            let (_, store) = in_memory();
            crate::ingest::create(&store, &unkeyed());
            let mut saved = Vec::new();
            let mut rewritten = 0;
            for _ in 0..6 {
                trees.iter_mut().for_each(Versions::write_next);
                let paths: Vec<_> = trees.iter().map(|tree| tree.path().to_path_buf()).collect();
                let options = BackupOptions { streams: 2, ..rewriting(choice) };
                let report = save_with(&open_with(&store, memory), sources(&paths), &options);
                assert_eq!(report.rewrite.streams.len(), 2);
                let peaks = report.rewrite.streams.iter().map(|one| one.candidates_bytes_peak);
                let together: u64 = peaks.sum();
                assert!(together <= bytes as u64, "{choice}: {together} of {bytes}");
                rewritten += report.summary.chunks_rewritten;
                saved.push(report.snapshot.unwrap());
            }
            // How two threads share the work differs; capping with room always finds something.
            let is_sure = choice.starts_with("capping") && bytes > 100_000;
            assert!(rewritten > 0 || !is_sure, "{choice}");
            let repository = open(&store);
            for (version, id) in saved.iter().enumerate() {
                trees.iter().for_each(|tree| tree.assert_restores(&repository, *id, version));
            }
            assert!(check_all(&repository).is_clean());
        }
    }
}

/// A tree whose last file is a copy of its first, farther away than any window reaches.
fn write_with_far_copies(versions: &mut Versions) {
    versions.write_next();
    let first = versions.file(0);
    for copy in ["d/g", "d/h"] {
        fs::copy(&first, versions.path().join(copy)).unwrap();
    }
    crate::ingest::settle_times(versions.path());
}

/// How often something was stored a third time, for each policy and look-up.
fn third_times_of_far_copies(memory: MemoryPlan) -> BTreeMap<String, usize> {
    let mut third = BTreeMap::new();
    for lookup in ["eager", "lazy", "lazy,ring=64,bucket=65536"] {
        for choice in &POLICIES[1..] {
            let mut versions = Versions::new(4, 700_000);
            let (_, store) = in_memory();
            crate::ingest::create(&store, &unkeyed());
            let mut rewritten = 0;
            for version in 0..6 {
                write_with_far_copies(&mut versions);
                let repository = open_with(&store, memory);
                let before = containers_of(&repository);
                let (lookup, delta) = (lookup.parse().unwrap(), Some(DeltaChoice::Off));
                let options = BackupOptions { lookup, delta, ..rewriting(choice) };
                let report = save(&repository, versions.path(), &options);
                rewritten += report.summary.chunks_rewritten;
                let count = stored_a_third_time(&repository, &before);
                *third.entry(format!("{choice} {lookup}")).or_default() += count;
                versions.assert_restores(&repository, report.snapshot.unwrap(), version);
            }
            assert!(rewritten > 0, "{choice} {lookup}");
        }
    }
    third
}

#[test]
fn a_chunk_stored_again_is_not_stored_a_third_time_in_the_session() {
    let third = third_times_of_far_copies(plan());
    assert!(third.values().all(|count| *count == 0), "{third:?}");
}

/// The same for two streams that hold the same files.
fn third_times_of_twin_streams(memory: MemoryPlan) -> BTreeMap<String, usize> {
    let mut third = BTreeMap::new();
    // Several streams record no placement, so by history nothing is stored again.
    for choice in POLICIES[1..].iter().filter(|choice| !choice.starts_with("history")) {
        let mut versions = Versions::new(3, 700_000);
        let (_, store) = in_memory();
        crate::ingest::create(&store, &unkeyed());
        let mut rewritten = 0;
        for version in 0..5 {
            versions.write_next();
            let twin = versions.path().join("twin");
            fs::create_dir_all(&twin).unwrap();
            for number in 0..3 {
                fs::copy(versions.file(number), twin.join(format!("f{number}"))).unwrap();
            }
            crate::ingest::settle_times(versions.path());
            let repository = open_with(&store, memory);
            let before = containers_of(&repository);
            let options = BackupOptions { streams: 2, ..rewriting(choice) };
            let both = sources(&[versions.path().join("d"), twin]);
            let report = save_with(&repository, both, &options);
            rewritten += report.summary.chunks_rewritten;
            let count = stored_a_third_time(&repository, &before);
            *third.entry((*choice).to_owned()).or_default() += count;
            versions.assert_restores(&repository, report.snapshot.unwrap(), version);
        }
        // How two threads share the work differs; capping always finds something.
        assert!(rewritten > 0 || !choice.starts_with("capping"), "{choice}");
    }
    third
}

#[test]
fn two_streams_of_equal_content_store_a_chunk_again_once() {
    let third = third_times_of_twin_streams(plan_for_two());
    assert!(third.values().all(|count| *count == 0), "{third:?}");
}

#[test]
fn a_chunk_stored_again_is_not_stored_a_third_time_once_it_is_indexed() {
    // With room for few pending chunks what was stored again is indexed, and met again, before the
    // stream ends; with hardly any cache it is met in the index.
    let hardly_any = MemoryPlan { pending_chunks_max: 40, locality_cache_bytes: 20_000, ..plan() };
    let third = third_times_of_far_copies(hardly_any);
    assert!(third.values().all(|count| *count == 0), "{third:?}");
    let third =
        third_times_of_twin_streams(MemoryPlan { pending_chunks_max: 40, ..plan_for_two() });
    assert!(third.values().all(|count| *count == 0), "{third:?}");
}

#[test]
fn s2_30_a_session_that_dies_with_undecided_chunks_leaves_nothing_pointed_wrongly() {
    for choice in ["auto,loss=20", "window,loss=20", "capping,level=2"] {
        let mut versions = Versions::new(4, 500_000);
        let memory = MemoryStore::recording();
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        crate::ingest::create(&store, &unkeyed());
        let mut saved = Vec::new();
        let start = loop {
            let start = memory.operations();
            versions.write_next();
            let report = save(&open(&store), versions.path(), &rewriting(choice));
            if report.summary.chunks_rewritten > 0 {
                break start;
            }
            saved.push(report.snapshot.unwrap());
            assert!(saved.len() < 10, "{choice} stores nothing again");
        };
        let last = saved.len();
        let end = memory.operations();
        assert!(end - start >= 6, "session, containers, pack, run, outcome: {}", end - start);
        for count in start..end {
            let crashed: Arc<dyn Store> = Arc::new(memory.state_after(count));
            let repository = open(&crashed);
            let next = save(&repository, versions.path(), &rewriting(choice));
            versions.assert_restores(&repository, next.snapshot.unwrap(), last);
            for (version, id) in saved.iter().enumerate() {
                versions.assert_restores(&repository, *id, version);
            }
            let checked = check_all(&repository);
            assert!(checked.is_clean(), "{choice} after {count}: {checked:?}");
        }
    }
}

#[test]
fn a_store_that_fills_up_while_chunks_are_stored_again_loses_nothing() {
    let mut versions = Versions::new(4, 500_000);
    let (memory, store) = in_memory();
    crate::ingest::create(&store, &unkeyed());
    let mut saved = Vec::new();
    for _ in 0..3 {
        versions.write_next();
        let report = save(&open(&store), versions.path(), &rewriting("capping,level=2"));
        saved.push(report.snapshot.unwrap());
    }
    versions.write_next();
    for room_bytes in [1_000, 200_000, 500_000] {
        let faulty: Arc<dyn Store> = Arc::new(Faulty::full_after(memory.clone(), room_bytes));
        let delta = Some(DeltaChoice::Off);
        let options = BackupOptions { delta, ..rewriting("capping,level=2") };
        let source = sources(&[versions.path().to_path_buf()]);
        let error = backup(&open(&faulty), source, &options, &Job::unattended().0).unwrap_err();
        assert_eq!(error.kind(), onefold_types::ErrorKind::NoSpace, "{error}");
        let list = SnapshotList::load(&open(&store)).unwrap();
        assert_eq!(list.snapshots.len(), 3);
    }
    let repository = open(&store);
    let next = save(&repository, versions.path(), &rewriting("auto,loss=7"));
    saved.push(next.snapshot.unwrap());
    for (version, id) in saved.iter().enumerate() {
        versions.assert_restores(&repository, *id, version);
    }
    assert!(check_all(&repository).is_clean());
}

#[test]
fn a_dry_run_counts_what_would_be_stored_again_and_writes_nothing() {
    let mut versions = Versions::new(4, 500_000);
    let memory = MemoryStore::recording();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    crate::ingest::create(&store, &unkeyed());
    for _ in 0..3 {
        versions.write_next();
        save(&open(&store), versions.path(), &rewriting("capping,level=2"));
    }
    versions.write_next();
    let before = memory.operations();
    let dry = BackupOptions { dry_run: true, ..rewriting("capping,level=2") };
    let dry = save(&open(&store), versions.path(), &dry);
    assert_eq!(memory.operations(), before);
    let real = save(&open(&store), versions.path(), &rewriting("capping,level=2"));
    assert!(real.summary.chunks_rewritten > 0);
    assert_eq!(dry.summary.chunks_rewritten, real.summary.chunks_rewritten);
    assert_eq!(dry.summary.bytes_rewritten, real.summary.bytes_rewritten);
}

#[test]
fn the_report_says_what_each_policy_saw_and_did() {
    let mut versions = Versions::new(4, 500_000);
    let (_, store) = in_memory();
    crate::ingest::create(&store, &unkeyed());
    for _ in 0..4 {
        versions.write_next();
        let report = save(&open(&store), versions.path(), &rewriting("auto,loss=7"));
        let [counters] = report.rewrite.streams.as_slice() else { panic!("one stream") };
        assert_eq!(report.rewrite.choice, Some("auto,loss=7".parse::<RewriteChoice>().unwrap()));
        assert_eq!(counters.chunk_bytes, report.summary.bytes_read);
        assert_eq!(counters.rewritten, report.summary.chunks_rewritten);
        assert_eq!(counters.rewritten_bytes, report.summary.bytes_rewritten);
        let decided = counters.kept + counters.rewritten + counters.shared;
        assert_eq!(decided, counters.duplicates);
    }
}
