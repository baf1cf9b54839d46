//! One list of operations in every configuration: what is restored, and which chunks are live, may
//! not depend on how chunks are looked up, rewritten, marked, read or compressed, nor on threads,
//! streams and memory.

use crate::ingest::{backup_options, create, in_memory, options, random_bytes};
use crate::rewriting::{open_with, restore_options, save_with, sources};
use crate::steps::{add_bases, check_all};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_crypto::{HashKind, Suite};
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::container::list::container_names;
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::BackupOptions;
use onefold_engine::restore::{RestoreOptions, restore};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{InitOptions, Job, MemoryPlan, Repository, retention};
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_policy::accelerated_filter::FilterConfiguration;
use onefold_types::environment::SeededRandomness;
use onefold_types::{Fingerprint, Level, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const CONFIGURATIONS: u64 = 200;
/// Versions of the source; the first two are forgotten.
const VERSIONS: usize = 5;

const CHUNKERS: [ChunkerKind; 5] = ChunkerKind::ALL;
const HASHES: [&str; 3] = ["blake3", "sha256", "sha1"];
const COMPRESSIONS: [&str; 4] = ["none", "lz4", "zstd,1", "zstd,9"];
const LOOKUPS: [&str; 6] =
    ["auto", "eager", "eager,filter-first", "lazy", "lazy,ring=4,bucket=2", "sampled"];
const REWRITINGS: [&str; 7] = [
    "auto,loss=2",
    "none",
    "capping,level=2",
    "flexible,loss=7",
    "window,reads=4",
    "history",
    "auto,loss=20",
];
const INDEXES: [&str; 3] = ["bloom", "fuse", "signature"];
const MARKS: [&str; 6] = ["auto", "exact", "lgc", "partitioned", "pgc", "pgc+"];
const DELTAS: [&str; 3] = ["on", "off", "depth=3"];
const ENGINES: [&str; 7] = [
    "direct",
    "container-cache",
    "chunk-cache",
    "forward",
    "adaptive",
    "optimal",
    "optimal-chunks",
];

/// What one configuration is made of.
struct Configuration {
    init: InitOptions,
    backup: BackupOptions,
    mark: &'static str,
    engine: &'static str,
    memory: MemoryPlan,
    text: String,
}

fn pick<'a, T>(randomness: &SeededRandomness, all: &'a [T]) -> &'a T {
    &all[randomness.below(all.len() as u64) as usize]
}

impl Configuration {
    fn of(seed: u64) -> Self {
        let random = SeededRandomness::new(seed);
        let (chunker, hash) = (*pick(&random, &CHUNKERS), *pick(&random, &HASHES));
        let compression = *pick(&random, &COMPRESSIONS);
        let (lookup, rewrite) = (*pick(&random, &LOOKUPS), *pick(&random, &REWRITINGS));
        let index = *pick(&random, &INDEXES);
        let (mark, engine) = (*pick(&random, &MARKS), *pick(&random, &ENGINES));
        let is_encrypted = random.below(4) == 0;
        let threads = 1 + random.below(4) as usize;
        let streams = 1 + random.below(3) as usize;
        let filter = *pick(&random, &FilterConfiguration::ALL);
        let mebibytes = *pick(&random, &[48, 64, 128]);
        let delta = *pick(&random, &DELTAS);
        let init = InitOptions {
            suite: if is_encrypted { Suite::Aes256Gcm } else { Suite::None },
            hash: hash.parse::<HashKind>().unwrap(),
            chunker: ChunkerParameters::with_average(chunker, 4096).unwrap(),
            compression: compression.parse().unwrap(),
            container_size_bytes: *pick(&random, &[64 << 10, 256 << 10]),
            ..options()
        };
        let backup = BackupOptions {
            lookup: lookup.parse().unwrap(),
            rewrite: rewrite.parse().unwrap(),
            delta: Some(delta.parse().unwrap()),
            index_kind: Some(index.parse().unwrap()),
            threads,
            streams,
            filter,
            ..backup_options()
        };
        let text = format!(
            "{seed}: {chunker} {hash} {compression} {lookup} {rewrite} {index} {mark} {engine} \
             encrypted {is_encrypted} threads {threads} streams {streams} {mebibytes} MiB \
             deltas {delta} {filter:?}"
        );
        let memory = MemoryPlan::new(mebibytes << 20).unwrap();
        Self { init, backup, mark, engine, memory, text }
    }

    /// What has the same chunks under the same names.
    fn class(&self) -> Option<String> {
        let InitOptions { suite, hash, chunker, .. } = &self.init;
        (*suite == Suite::None).then(|| format!("{hash:?} {chunker:?}"))
    }
}

/// Version after version of two directories: what stays, what changes within, comes and goes.
fn write(root: &Path, version: usize) {
    for directory in ["one", "two"] {
        let at = root.join(directory);
        fs::create_dir_all(&at).unwrap();
        for number in 0..4_u64 {
            let mut bytes = random_bytes(number, 30_000 + 20_000 * number as usize);
            if number > 0 {
                for step in 0..=version as u64 {
                    let start = (step * 17_001 % (bytes.len() as u64 - 2000)) as usize;
                    bytes[start..start + 500].copy_from_slice(&random_bytes(1000 + step, 500));
                }
            }
            fs::write(at.join(format!("f{number}")), bytes).unwrap();
        }
        let passing = at.join(format!("only{version}"));
        fs::write(passing, random_bytes(50 + version as u64, 20_000)).unwrap();
        if version > 0 {
            fs::remove_file(at.join(format!("only{}", version - 1))).unwrap();
        }
        fs::write(at.join("zeros"), vec![0; 100_000]).unwrap();
    }
}

fn content(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for directory in ["one", "two"] {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            all.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
        }
    }
    all
}

fn root_of(repository: &Repository, id: SessionId) -> Reference {
    SnapshotList::load(repository).unwrap().get(id).unwrap().record.root
}

/// The data chunks below a directory.
fn data_chunks(trees: &TreeReader, directory: Reference, found: &mut BTreeSet<Fingerprint>) {
    for entry in trees.entries(directory).unwrap() {
        match (entry.kind, entry.content) {
            (EntryKind::Directory, Some(content)) => data_chunks(trees, content, found),
            (EntryKind::File, Some(content)) => trees
                .extents(content, entry.size, &mut |extent| {
                    found.extend((!extent.is_hole()).then_some(extent.fingerprint));
                    Ok(())
                })
                .unwrap(),
            _ => {}
        }
    }
}

/// Runs all operations; the data chunks that are live at the end.
fn run(configuration: &Configuration) -> BTreeSet<Fingerprint> {
    let source = tempfile::tempdir().unwrap();
    let (_, store) = in_memory();
    create(&store, &configuration.init);
    let (job, _) = Job::unattended();
    let (mut ids, mut contents) = (Vec::new(), Vec::new());
    let collects = |goal| CollectOptions {
        goal,
        algorithm: configuration.mark.parse().unwrap(),
        threads: configuration.backup.threads,
        ..CollectOptions::default()
    };
    for version in 0..VERSIONS {
        write(source.path(), version);
        contents.push(content(source.path()));
        let repository = open_with(&store, configuration.memory);
        let paths = [source.path().join("one"), source.path().join("two")];
        let report = save_with(&repository, sources(&paths), &configuration.backup);
        ids.push(report.snapshot.unwrap());
        if version == 2 {
            retention::forget_final(&repository, &ids[..2], "test").unwrap();
            collect(&repository, &collects(SpaceGoal::default()), &job).unwrap();
        }
    }
    let repository = open_with(&store, configuration.memory);
    retention::forget_final(&repository, &ids[2..3], "test").unwrap();
    collect(&repository, &collects(SpaceGoal::Everything), &job).unwrap();
    // What only instances were made of that went with the first one goes with the second.
    let repository = open_with(&store, configuration.memory);
    collect(&repository, &collects(SpaceGoal::Everything), &job).unwrap();

    let repository = open_with(&store, configuration.memory);
    let checked = check_all(&repository);
    assert!(checked.is_clean(), "{checked:?}");
    let (trees, mut live) = (TreeReader::open(&repository).unwrap(), BTreeSet::new());
    for (id, expected) in ids.iter().zip(&contents).skip(3) {
        data_chunks(&trees, root_of(&repository, *id), &mut live);
        assert!(restored(&repository, *id, configuration, source.path()) == *expected);
    }
    let mut stored = BTreeSet::new();
    for id in container_names(&repository).unwrap() {
        let section = read_section(&repository, id).unwrap();
        let data = section.chunks.iter().filter(|chunk| chunk.level == Level::DATA);
        stored.extend(data.map(|chunk| chunk.fingerprint));
    }
    assert!(live.is_subset(&stored), "what is live is stored");
    let mut needed = live.clone();
    add_bases(&repository, &mut needed);
    let dead = stored.difference(&needed).count();
    // These mark in filters, which take a dead chunk for a live one now and then (S3.9, S3.13).
    let kept_max =
        if matches!(configuration.mark, "lgc" | "pgc") { live.len() / 50 + 1 } else { 0 };
    assert!(dead <= kept_max, "a collection of everything keeps {dead} dead chunks");
    live
}

/// What a restore gives back.
fn restored(
    repository: &Arc<Repository>,
    id: SessionId,
    configuration: &Configuration,
    source: &Path,
) -> BTreeMap<PathBuf, Vec<u8>> {
    let target = tempfile::tempdir().unwrap();
    let content = Some(root_of(repository, id));
    let root = Entry { kind: EntryKind::Directory, content, ..Entry::default() };
    let options = RestoreOptions {
        threads: configuration.backup.threads,
        engine: configuration.engine.parse().unwrap(),
        ..restore_options(target.path())
    };
    let report = restore(repository, &root, &options, &Job::unattended().0).unwrap();
    assert_eq!(report.errors, 0);
    self::content(&target.path().join(source.strip_prefix("/").unwrap()))
}

#[test]
fn i13_every_configuration_restores_the_same_and_keeps_the_same() {
    let next = AtomicU64::new(0);
    let classes: Mutex<BTreeMap<String, (String, BTreeSet<Fingerprint>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= CONFIGURATIONS {
                        return;
                    }
                    let configuration = Configuration::of(seed);
                    let context = Context(&configuration.text);
                    let live = run(&configuration);
                    if let Some(class) = configuration.class() {
                        let mut classes = classes.lock().unwrap();
                        let known = classes
                            .entry(class)
                            .or_insert_with(|| (configuration.text.clone(), live.clone()));
                        assert!(known.1 == live, "{} keeps others", known.0);
                    }
                    drop(context);
                }
            });
        }
    });
    let classes = classes.into_inner().unwrap();
    assert_eq!(classes.len(), CHUNKERS.len() * HASHES.len(), "every chunker with every hash");
}

/// Says in which configuration a test died.
struct Context<'a>(&'a str);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("configuration {}", self.0);
        }
    }
}
