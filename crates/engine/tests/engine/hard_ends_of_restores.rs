//! What cannot be ends a restore in an error of its own, and never in a file that looks right.
//!
//! As in [`crate::hard_ends`] for backups: each canary of `crates/tidy/mutants.toml` whose rule
//! begins with "hard ends of restores" breaks the program in a way that no input brings about.

use crate::ingest::{entry_at, in_memory, open, random_bytes};
use crate::rewriting::{restore_options, rewriting, save, unkeyed};
use onefold_engine::job::Collected;
use onefold_engine::restore::{DumpOptions, RestoreOptions, dump, restore};
use onefold_engine::session::SnapshotList;
use onefold_engine::{InitOptions, Job, Repository};
use onefold_format::node::Entry;
use onefold_policy::restore_plan::RestoreEngine;
use onefold_store::Store;
use onefold_types::{Error, SessionId, limits};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Files by name, as one version holds them.
type Version = BTreeMap<&'static str, Vec<u8>>;

/// A file of which every chunk differs, one that repeats itself and has a hole, and small ones. The
/// later version differs in some parts of each.
fn versions() -> [Version; 2] {
    let block = random_bytes(1, 300_000);
    let mut first = Version::new();
    first.insert("long", random_bytes(2, 3_000_000));
    let hole = vec![0; 1_500_000];
    first.insert("repeated", [&block[..], &block, &hole, &block, &block[..777]].concat());
    first.insert("small", random_bytes(3, 5_000));
    first.insert("tail", random_bytes(4, 20_000));
    let mut later = first.clone();
    for (seed, bytes) in (10..).zip(later.values_mut()) {
        let middle = bytes.len() / 2;
        bytes[middle..middle + 1000].copy_from_slice(&random_bytes(seed, 1000));
        bytes.extend_from_slice(&random_bytes(seed + 10, 70_000));
    }
    [first, later]
}

fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

fn write(version: &Version, directory: &Path) {
    for (name, bytes) in version {
        fs::write(directory.join(name), bytes).unwrap();
        let file = File::options().write(true).open(directory.join(name)).unwrap();
        file.set_modified(long_ago()).unwrap();
    }
}

/// Whether files hold what they are to hold, and have the times of their originals. A file that
/// differs must be told of, and must not look right unless it is what was there before.
fn compare(version: &Version, before: Option<&Version>, target: &Path, told: &Collected) {
    let told = told.0.lock().unwrap();
    for (name, bytes) in version {
        let path = target.join(name);
        let has_its_time = fs::metadata(&path).is_ok_and(|it| it.modified().unwrap() == long_ago());
        let read = fs::read(&path).unwrap_or_default();
        let is_as_before = before.is_some_and(|before| before[name] == read);
        // Of one that is not there, its directory may have been told of.
        let is_told_of = told.iter().any(|(item, ..)| item.ends_with(name) || !path.exists());
        let is_right =
            has_its_time && read == *bytes || is_told_of && (!has_its_time || is_as_before);
        assert!(is_right, "SILENT: '{name}' differs; told: {told:?}");
    }
    if let Some((item, kind, what)) = told.first() {
        panic!("ended in {kind:?}: {item}: {what}");
    }
}

fn ended_in(error: &Error) -> ! {
    panic!("ended in {:?}: {error}", error.kind());
}

/// Both versions in one store, the later one scattered over containers of both.
struct Saved {
    store: Arc<dyn Store>,
    source: PathBuf,
    ids: [SessionId; 2],
}

impl Saved {
    fn new(versions: &[Version; 2]) -> Self {
        let (_, store) = in_memory();
        let container_size_bytes = limits::MIB;
        crate::ingest::create(&store, &InitOptions { container_size_bytes, ..unkeyed() });
        let source = tempfile::tempdir().unwrap();
        let ids = [0, 1].map(|number: usize| {
            write(&versions[number], source.path());
            crate::ingest::settle_times(source.path());
            save(&open(&store), source.path(), &rewriting("none")).snapshot.unwrap()
        });
        Self { store, source: source.path().to_path_buf(), ids }
    }

    fn restore(&self, number: usize, options: &RestoreOptions) -> Arc<Collected> {
        let repository = open(&self.store);
        let root = directory_of(&repository, self.ids[number], &self.source);
        let (job, told) = Job::unattended();
        if let Err(error) = restore(&repository, &root, options, &job) {
            ended_in(&error);
        }
        told
    }

    fn dump(&self, number: usize, name: &str, options: &DumpOptions) -> Vec<u8> {
        let repository = open(&self.store);
        let entry = entry_at(&repository, self.ids[number], &self.source.join(name));
        let mut bytes = Vec::new();
        let length = dump(&repository, &entry, options, &mut bytes, &Job::unattended().0);
        match length {
            Ok(length) => assert_eq!(length, bytes.len() as u64, "SILENT: {name}"),
            Err(error) => ended_in(&error),
        }
        bytes
    }
}

fn directory_of(repository: &Arc<Repository>, id: SessionId, path: &Path) -> Entry {
    assert!(SnapshotList::load(repository).unwrap().get(id).is_some());
    entry_at(repository, id, path)
}

#[test]
fn i13_what_cannot_be_ends_a_restore_in_an_error_of_its_own() {
    let versions = versions();
    let saved = Saved::new(&versions);
    let forward = RestoreEngine::ForwardAssembly { area_bytes: 200_000, rolling: true };
    let chunks = RestoreEngine::OptimalChunks { memory_bytes: 100_000 };
    for (engine, threads) in [(RestoreEngine::Direct, 1), (forward, 2), (chunks, 1)] {
        let target = tempfile::tempdir().unwrap();
        // Nothing is read back: what is wrong must be noticed while it is written.
        let options =
            RestoreOptions { engine, threads, verify: false, ..restore_options(target.path()) };
        let mut before = None;
        // The second and third time, what is there is rewritten where it differs.
        for number in [0, 1, 0] {
            let told = saved.restore(number, &options);
            compare(&versions[number], before, target.path(), &told);
            before = Some(&versions[number]);
        }
    }
}

#[test]
fn i13_what_cannot_be_ends_a_dump_in_an_error_of_its_own() {
    let versions = versions();
    let saved = Saved::new(&versions);
    for (number, version) in versions.iter().enumerate() {
        for (name, bytes) in version {
            for (engine, offset) in [
                (None, 0),
                (Some(RestoreEngine::OptimalChunks { memory_bytes: 100_000 }), 1),
                (Some(RestoreEngine::ContainerCache { memory_bytes: 1 << 20 }), 4_321),
            ] {
                let options = DumpOptions { engine, offset, ..DumpOptions::default() };
                let read = saved.dump(number, name, &options);
                assert!(read == bytes[offset as usize..], "SILENT: '{name}' from {offset} on");
            }
        }
    }
}
