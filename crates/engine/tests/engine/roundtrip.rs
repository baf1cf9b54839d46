//! Backup and restore of random trees, and of files that invite mistakes.

use crate::ingest::{
    backup_options, content_at, create, entry_at, in_memory, open, options, paths, random_bytes,
    save,
};
use onefold_engine::ingest::backup;
use onefold_engine::patterns::Patterns;
use onefold_engine::restore::{Delete, Overwrite, RestoreOptions, Without, restore};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{Job, Repository};
use onefold_policy::restore_plan::RestoreEngine;
use onefold_store::Store;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_types::environment::SeededRandomness;
use onefold_types::{ErrorKind, SessionId};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What restoring must bring back of one entry.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    mode: u32,
    modified: (i64, i64),
    links: u64,
    content: Vec<u8>,
}

fn look(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        let status = fs::symlink_metadata(&path).unwrap();
        let content = if status.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_vec()
        } else if status.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let links = if status.is_dir() { 0 } else { status.nlink() };
        let modified = (status.mtime(), status.mtime_nsec());
        if path != root {
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            seen.insert(name, Seen { mode: status.mode(), modified, links, content });
        }
    }
    seen
}

/// A random tree: odd names, all sizes around the chunker's bounds, repeats, zeros, links.
fn grow(directory: &Path, randomness: &SeededRandomness, depth: u64, files: &mut Vec<PathBuf>) {
    for number in 0..1 + randomness.below(7) {
        let mut name = format!("{number}-").into_bytes();
        name.extend((0..randomness.below(12)).map(|_| 1 + randomness.below(255) as u8));
        name.retain(|byte| *byte != b'/');
        let path = directory.join(OsString::from_vec(name));
        match randomness.below(10) {
            0..3 if depth > 0 => {
                fs::create_dir(&path).unwrap();
                grow(&path, randomness, depth - 1, files);
            }
            3 => symlink("a/../b\u{e9}", &path).unwrap(),
            4 if !files.is_empty() => {
                let other = &files[randomness.below(files.len() as u64) as usize];
                fs::hard_link(other, &path).unwrap();
            }
            kind => {
                let sizes = [0, 1, 511, 4095, 4096, 8192, 12_288, 12_289, 65_536, 300_000];
                let size = sizes[randomness.below(10) as usize] + randomness.below(3) as usize;
                // Few seeds, so that files repeat in whole and in part.
                let mut bytes = random_bytes(randomness.below(4), size);
                if kind > 7 {
                    let zeros = vec![0; randomness.below(400_000) as usize];
                    bytes.splice(size / 2..size / 2, zeros);
                }
                fs::write(&path, bytes).unwrap();
                files.push(path);
            }
        }
    }
}

fn restore_to(repository: &Arc<Repository>, id: SessionId, source: &Path, target: &Path) {
    let root = SnapshotList::load(repository).unwrap().get(id).unwrap().record.root;
    use std::os::unix::ffi::OsStrExt;
    let place = source.as_os_str().as_bytes();
    let entry = TreeReader::open(repository).unwrap().resolve(root, place).unwrap();
    let options = RestoreOptions {
        target: target.to_path_buf(),
        overwrite: Overwrite::IfChanged,
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
    };
    let (job, problems) = Job::unattended();
    let report = restore(repository, &entry, &options, &job).unwrap();
    assert_eq!(report.errors, 0, "{problems:?}");
}

#[test]
fn r41_random_trees_come_back_as_they_were() {
    for seed in 0..25 {
        let source = tempfile::tempdir().unwrap();
        let randomness = SeededRandomness::new(seed);
        grow(source.path(), &randomness, 3, &mut Vec::new());
        let (_, store) = in_memory();
        let repository = create(&store, &options());
        let first = save(&repository, paths(source.path())).snapshot.unwrap();
        let before = look(source.path());
        grow(
            &{
                let below = source.path().join("more");
                fs::create_dir(&below).unwrap();
                below
            },
            &randomness,
            2,
            &mut Vec::new(),
        );
        let second = save(&open(&store), paths(source.path())).snapshot.unwrap();
        for (id, expected) in [(first, before), (second, look(source.path()))] {
            let target = tempfile::tempdir().unwrap();
            restore_to(&repository, id, source.path(), target.path());
            assert!(look(target.path()) == expected, "seed {seed}");
        }
    }
}

#[test]
fn r39_buffers_are_not_used_again_before_their_bytes_are_stored() {
    // Many more messages than buffers; debug builds poison a buffer when it goes back.
    let source = tempfile::tempdir().unwrap();
    for number in 0..60u64 {
        let bytes = random_bytes(number, 200_000 + (number as usize % 5) * 300_000);
        fs::write(source.path().join(format!("{number}")), bytes).unwrap();
    }
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let id = save(&repository, paths(source.path())).snapshot.unwrap();
    for number in 0..60u64 {
        let path = source.path().join(format!("{number}"));
        assert!(content_at(&repository, id, &path) == fs::read(&path).unwrap(), "{number}");
    }
}

#[test]
fn r42_what_the_file_system_says_about_holes_is_not_believed() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("fresh");
    // Written and not yet allocated: the file system counts no blocks, a hole map shows holes.
    let file = fs::File::create(&path).unwrap();
    let bytes = random_bytes(5, 500_000);
    file.write_all_at(&bytes, 1_000_000).unwrap();
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let id = save(&repository, paths(&path)).snapshot.unwrap();
    let content = content_at(&repository, id, &path);
    assert_eq!(content.len(), 1_500_000);
    assert!(content[..1_000_000].iter().all(|byte| *byte == 0));
    assert!(content[1_000_000..] == bytes);
    assert_eq!(entry_at(&repository, id, &path).size, 1_500_000);
}

#[test]
fn r34_nothing_is_acknowledged_before_the_device_has_it() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("file"), random_bytes(1, 600_000)).unwrap();
    for refused in ["containers", "metadata", "index", "outcomes"] {
        let (memory, store) = in_memory();
        create(&store, &options());
        let script = move |call: &onefold_store::layers::Call<'_>| {
            let writes = matches!(call.operation, Operation::Put | Operation::Decide);
            match writes && call.name.starts_with(refused) {
                true => Fault::Before(ErrorKind::NoSpace),
                false => Fault::None,
            }
        };
        let faulty: Arc<dyn Store> = Arc::new(Faulty::scripted(memory, script));
        let (job, _) = Job::unattended();
        let outcome = backup(&open(&faulty), paths(source.path()), &backup_options(), &job);
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NoSpace, "{refused}");
        assert!(SnapshotList::load(&open(&store)).unwrap().snapshots.is_empty());
    }
}

#[test]
fn a_stream_is_dumped_the_same_by_every_engine_and_never_beyond_the_memory_limit() {
    let (_, store) = crate::ingest::in_memory();
    let repository = crate::ingest::create(&store, &crate::ingest::options());
    // Repeats near and far, and zeros.
    let part = crate::ingest::random_bytes(7, 700_000);
    let other = crate::ingest::random_bytes(8, 900_000);
    let zeros = vec![0; 300_000];
    let bytes = [&part[..], &other, &zeros, &part, &part[100_000..], &zeros, &other].concat();
    let source = crate::ingest::stream("data", &bytes);
    let id = crate::ingest::save(&repository, source).snapshot.unwrap();
    let entry = crate::ingest::entry_at(&repository, id, std::path::Path::new("/data"));
    let (job, _) = Job::unattended();
    let dump = |engine: Option<&str>| {
        let engine = engine.map(|engine| engine.parse().unwrap());
        let options = onefold_engine::restore::DumpOptions {
            engine,
            ..onefold_engine::restore::DumpOptions::default()
        };
        let mut out = Vec::new();
        onefold_engine::restore::dump(&repository, &entry, &options, &mut out, &job).map(|_| out)
    };
    assert_eq!(dump(None).unwrap(), bytes);
    for name in
        ["forward", "adaptive", "container-cache", "chunk-cache", "optimal", "optimal-chunks"]
    {
        let engine = format!("{name},memory=300000");
        assert_eq!(dump(Some(&engine)).unwrap(), bytes, "{engine}");
    }
    for refused in ["direct", "forward,memory=1G"] {
        let error = dump(Some(refused)).unwrap_err();
        assert_eq!(error.kind(), onefold_types::ErrorKind::Invalid, "{refused}: {error}");
    }
}
