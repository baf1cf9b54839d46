//! What a writer makes is within the bounds that a reader keeps to, at every bound.

use crate::rewriting::restore_options;
use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::chunk_store::{ChunkBatch, StreamWriter};
use onefold_engine::collection::{CollectOptions, MarkAlgorithm, SpaceGoal, collect};
use onefold_engine::container::reader;
use onefold_engine::repository::Password;
use onefold_engine::restore::{self, DumpOptions};
use onefold_engine::session::WriterSession;
use onefold_engine::tree::NodeSink;
use onefold_engine::tree::TreeReader;
use onefold_engine::tree::directory::{DirectoryBuilder, NoNames, OwnerNames};
use onefold_engine::tree::file_map::FileMapBuilder;
use onefold_engine::{InitOptions, MemoryPlan, Repository, find, retention};
use onefold_format::node::{DirectoryLeaf, Entry, EntryKind, Extent, Node, Reference};
use onefold_store::MemoryStore;
use onefold_types::{ErrorKind, Fingerprint, Level, SessionId, limits};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// A store whose containers are of the usual size.
fn create_large(suite: Suite) -> (MemoryStore, Arc<Repository>) {
    let memory = MemoryStore::new();
    let options =
        InitOptions { container_size_bytes: limits::CONTAINER_TARGET_BYTES, ..init_options(suite) };
    let store = Arc::new(memory.clone());
    let repository =
        Repository::create(store, &options, Some(PASSWORD), environment(1), memory_plan());
    (memory, Arc::new(repository.unwrap()))
}

/// The store as a process with much memory sees it: it copies all in one go.
fn open_roomy(memory: &MemoryStore) -> Arc<Repository> {
    let password = || Ok(Password::new(PASSWORD.to_vec()));
    let plan = MemoryPlan::new(256 * limits::MIB).unwrap();
    Repository::open(Arc::new(memory.clone()), password, environment(5), plan)
        .map(Arc::new)
        .unwrap()
}

/// The bytes of a file whose chunks are as small as these can be and differ.
fn tiny_bytes(numbers: Range<u32>) -> Vec<u8> {
    numbers.flat_map(|number| number.to_le_bytes().into_iter().take(3)).collect()
}

/// Stores a file in chunks of three bytes.
fn put_tiny(
    repository: &Repository,
    stream: &mut StreamWriter,
    name: &str,
    numbers: Range<u32>,
) -> Entry {
    let mut map = FileMapBuilder::default();
    let bytes = tiny_bytes(numbers);
    for part in bytes.chunks(3 << 14) {
        let ranges: Vec<Range<usize>> = (0..part.len() / 3).map(|at| at * 3..at * 3 + 3).collect();
        let chunks: Vec<&[u8]> = part.chunks(3).collect();
        let mut fingerprints = Vec::new();
        repository.fingerprinter().data_batch(&chunks, &mut fingerprints);
        let batch = ChunkBatch {
            buffer: part.to_vec(),
            ranges,
            fingerprints: fingerprints.clone(),
            ..ChunkBatch::default()
        };
        stream.put_data(batch, &mut |_| {}).unwrap();
        for fingerprint in fingerprints {
            map.push(Extent { fingerprint, length: 3 }, stream).unwrap();
        }
    }
    let content = map.finish(stream).unwrap();
    let chunks = bytes.len() as u64 / 3;
    Entry { content, size: bytes.len() as u64, chunks, ..entry(name, EntryKind::File) }
}

/// What a file consists of.
#[derive(Clone)]
pub enum Content {
    /// Chunks of three bytes.
    Tiny(Range<u32>),
    /// One chunk, which fills most of a frame.
    Large(u64),
}

const LARGE_BYTES: usize = 200 * limits::KIB;

/// Saves files; their names must rise.
pub fn save_files(repository: &Arc<Repository>, files: &[(String, Content)]) -> SessionId {
    let session = WriterSession::begin(repository).unwrap();
    let store = chunk_store(repository, &session);
    let mut stream = store.stream().unwrap();
    let mut builder = DirectoryBuilder::default();
    for (name, content) in files {
        let entry = match content {
            Content::Tiny(numbers) => put_tiny(repository, &mut stream, name, numbers.clone()),
            Content::Large(seed) => {
                let bytes = random_bytes(*seed, LARGE_BYTES);
                let fingerprint = repository.fingerprinter().data(&bytes);
                put_chunk(&mut stream, fingerprint, &bytes);
                let content = Some(Reference { fingerprint, level: Level::DATA });
                Entry { content, size: bytes.len() as u64, ..entry(name, EntryKind::File) }
            }
        };
        builder.push(entry, &NoNames, &mut stream).unwrap();
    }
    let root = builder.finish(&NoNames, &mut stream).unwrap();
    stream.finish().unwrap();
    store.finish().unwrap();
    saved(commit(repository, session, root.reference))
}

/// The numbers of data chunks in each container, the largest first.
fn data_chunks(repository: &Repository) -> Vec<usize> {
    let mut counts: Vec<usize> = containers(repository)
        .into_iter()
        .map(|id| reader::read_section(repository, id).unwrap().chunks)
        .filter(|chunks| !chunks[0].level.is_node())
        .map(|chunks| chunks.len())
        .collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}

fn assert_files(repository: &Arc<Repository>, id: SessionId, files: &[(String, Content)]) {
    let trees = TreeReader::open(repository).unwrap();
    for (name, content) in files {
        let entry = trees.resolve(root_of(repository, id), name.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        restore::dump(repository, &entry, &DumpOptions::default(), &mut bytes, &job()).unwrap();
        let expected = match content {
            Content::Tiny(numbers) => tiny_bytes(numbers.clone()),
            Content::Large(seed) => random_bytes(*seed, LARGE_BYTES),
        };
        assert!(bytes == expected, "{name}");
    }
}

#[test]
fn r57_a_container_never_holds_more_chunks_than_its_reader_takes() {
    let most = limits::CONTAINER_CHUNKS_TARGET as u32;
    // A frame takes 87,382 such chunks: it must end before it is full as well.
    for (count, expected) in [
        (most, vec![most]),
        (most + 1, vec![most, 1]),
        (100_000, vec![most, most, most, 100_000 - 3 * most]),
    ] {
        let (memory, repository) = create_large(Suite::None);
        let files = [("f".to_owned(), Content::Tiny(0..count))];
        let id = save_files(&repository, &files);
        let expected: Vec<usize> = expected.into_iter().map(|count| count as usize).collect();
        assert_eq!(data_chunks(&repository), expected);
        let repository = open_roomy(&memory);
        assert_files(&repository, id, &files);
        let report = check_all(&repository);
        assert!(report.is_clean(), "{report:?}");
    }
}

/// Several snapshots of which some chunks are dead, and one that needs all others: a collection
/// puts what is live together. With large chunks, what is dead lies in frames of its own.
fn collected(parts: u32, each: u32, large: bool) -> u64 {
    let (memory, repository) = create_large(Suite::Aes256Gcm);
    let (mut forgotten, mut live) = (Vec::new(), Vec::new());
    for part in 0..parts {
        let mut files = vec![(format!("f{part}"), Content::Tiny(part * each..(part + 1) * each))];
        if large {
            files.push((format!("f{part}large"), Content::Large(u64::from(part))));
        }
        live.extend_from_slice(&files);
        let dead = 1_000_000 + part * 1_000;
        files.push(("gone".into(), Content::Tiny(dead..dead + 1_000)));
        forgotten.push(save_files(&repository, &files));
    }
    let kept = save_files(&repository, &live);
    retention::forget_final(&repository, &forgotten, "me").unwrap();
    let options = CollectOptions {
        goal: SpaceGoal::Everything,
        algorithm: MarkAlgorithm::Exact,
        grace: Duration::ZERO,
        threads: 2,
        ..CollectOptions::default()
    };
    let report = collect(&open_roomy(&memory), &options, &job()).unwrap();
    assert!(report.deleted_containers >= u64::from(parts), "{report:?}");
    let repository = open_roomy(&memory);
    let counts = data_chunks(&repository);
    assert!(counts.len() > 1 && counts[0] <= limits::CONTAINER_CHUNKS_MAX, "{counts:?}");
    assert_files(&repository, kept, &live);
    let check = check_all(&repository);
    assert!(check.is_clean(), "{check:?}");
    report.frames_carried
}

#[test]
fn r58_copies_of_tiny_chunks_do_not_exceed_what_a_reader_takes() {
    let of_nodes = collected(2, 40_000, false);
    assert!(of_nodes < 10, "{of_nodes}");
}

#[test]
fn r58_carried_frames_do_not_exceed_what_a_reader_takes() {
    let with_data = collected(4, 25_000, true);
    assert!(with_data >= 16, "{with_data}");
}

#[test]
fn r57_as_many_tiny_files_as_exceed_a_container_are_saved_and_restored() {
    let memory = std::path::Path::new("/dev/shm");
    let source = match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    let files = limits::CONTAINER_CHUNKS_MAX as u32 + 100;
    for number in 0..files {
        let bytes = tiny_bytes(number..number + 1);
        std::fs::write(source.path().join(format!("{number:06}")), bytes).unwrap();
    }
    let (memory, repository) = create_large(Suite::Aes256Gcm);
    let report = crate::ingest::save(&repository, crate::ingest::paths(source.path()));
    assert_eq!((report.summary.files, report.summary.errors), (u64::from(files), 0));
    let repository = open_roomy(&memory);
    let check = check_all(&repository);
    assert!(check.is_clean(), "{check:?}");
    for number in (0..files).step_by(9000) {
        let path = source.path().join(format!("{number:06}"));
        let content = crate::ingest::content_at(&repository, report.snapshot.unwrap(), &path);
        assert_eq!(content, tiny_bytes(number..number + 1));
    }
}

/// Entries that no real directory has: the longest name, and as many attributes as are taken.
fn heavy(number: usize, name_bytes: usize, xattr_bytes: usize) -> Entry {
    let name = format!("{number:08}").into_bytes();
    let mut entry = Entry { name, mode: u32::MAX, ..entry("", EntryKind::File) };
    entry.name.resize(name_bytes, b'x');
    (entry.uid, entry.gid) = (number as u32, number as u32);
    (entry.links, entry.inode) = (u64::MAX, (number as u64) << 63);
    if xattr_bytes > 0 {
        entry.xattrs = vec![(b"user.a".to_vec(), vec![7; xattr_bytes - 6])];
    }
    entry
}

struct LongNames(usize);

impl OwnerNames for LongNames {
    fn user(&self, uid: u32) -> Option<Vec<u8>> {
        Some(uid.to_string().into_bytes().repeat(self.0))
    }

    fn group(&self, gid: u32) -> Option<Vec<u8>> {
        self.user(gid)
    }
}

#[test]
fn r57_directories_of_the_heaviest_entries_are_nodes_that_a_reader_takes() {
    let (memory, repository) = create_large(Suite::None);
    let cases = [
        (5_000, 8, 0, 1),
        (1_500, 255, 0, 400),
        (100, limits::NAME_MAX_BYTES, 0, 5_000),
        (5, 200, limits::XATTRS_MAX_BYTES, 1),
        (40, 200, limits::XATTRS_MAX_BYTES / 3, 30),
    ];
    let mut expected = Vec::new();
    for (count, name_bytes, xattr_bytes, repeats) in cases {
        let entries: Vec<Entry> =
            (0..count).map(|number| heavy(number, name_bytes, xattr_bytes)).collect();
        let directory = put_with(&repository, |stream| {
            let mut builder = DirectoryBuilder::default();
            for entry in &entries {
                builder.push(entry.clone(), &LongNames(repeats), stream).unwrap();
            }
            builder.finish(&LongNames(repeats), stream).unwrap()
        });
        expected.push((directory.reference, entries));
    }
    let repository = open_roomy(&memory);
    let trees = TreeReader::open(&repository).unwrap();
    for (reference, entries) in expected {
        assert!(trees.entries(reference).unwrap() == entries);
    }
}

#[test]
fn r57_what_cannot_be_a_node_is_an_error_and_not_stored() {
    let (_, repository) = create_large(Suite::None);
    put_with(&repository, |stream| {
        // More leaves than a map can list.
        let mut builder = DirectoryBuilder::default();
        for number in 0..12_000 {
            builder.push(heavy(number, limits::NAME_MAX_BYTES, 0), &NoNames, stream).unwrap();
        }
        let error = builder.finish(&NoNames, stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
        // Names that are too long, or stand twice; a child that is not below its parent.
        let too_long = [heavy(1, limits::NAME_MAX_BYTES + 1, 0)];
        let twice = [heavy(1, 8, 0), heavy(1, 8, 0)];
        let content = Some(Reference { fingerprint: Fingerprint([1; 32]), level: Level(1) });
        let beside = [Entry { content, size: 1, ..heavy(1, 8, 0) }];
        for entries in [&too_long[..], &twice, &beside] {
            let entries = entries.to_vec();
            let leaf = Node::DirectoryLeaf(DirectoryLeaf { entries, ..DirectoryLeaf::default() });
            let error = stream.put_tree_node(Level(1), &leaf).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        }
    });
}

#[test]
fn r57_the_largest_chunk_is_stored_and_a_larger_one_is_an_error() {
    let (memory, repository) = create_large(Suite::Aes256Gcm);
    let put = |bytes: &[u8]| {
        let store = chunk_store_avoiding(&repository, Default::default());
        let mut stream = store.stream().unwrap();
        let fingerprint = repository.fingerprinter().data(bytes);
        let batch = ChunkBatch {
            buffer: bytes.to_vec(),
            ranges: std::iter::once(0..bytes.len()).collect(),
            fingerprints: vec![fingerprint],
            ..ChunkBatch::default()
        };
        stream.put_data(batch, &mut |_| {})?;
        stream.finish()?;
        store.finish().map(|_| fingerprint)
    };
    // Behind others, it makes the largest frame there is.
    put_with(&repository, |stream| {
        let before = random_bytes(1, limits::FRAME_PLAIN_TARGET_BYTES - 1);
        put_chunk(stream, repository.fingerprinter().data(&before), &before);
        let largest = random_bytes(2, limits::CHUNK_SIZE_MAX_BYTES);
        put_chunk(stream, repository.fingerprinter().data(&largest), &largest);
    });
    let largest = random_bytes(3, limits::CHUNK_SIZE_MAX_BYTES);
    let fingerprint = put(&largest).unwrap();
    let error = put(&random_bytes(4, limits::CHUNK_SIZE_MAX_BYTES + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
    let repository = open_roomy(&memory);
    let trees = TreeReader::open(&repository).unwrap();
    assert!(*trees.chunks().read(&fingerprint).unwrap() == largest);
    for seed in [1, 2] {
        let length = [limits::FRAME_PLAIN_TARGET_BYTES - 1, limits::CHUNK_SIZE_MAX_BYTES];
        let bytes = random_bytes(seed, length[seed as usize - 1]);
        let name = repository.fingerprinter().data(&bytes);
        assert!(*trees.chunks().read(&name).unwrap() == bytes);
    }
}

/// A chain of directories, each in the one before; the last one holds a file.
fn make_chain(top: &std::path::Path, depth: usize) -> Vec<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut chain = vec![rustix::fs::open(top, flags, Mode::empty()).unwrap()];
    for _ in 0..depth {
        let above = &chain[chain.len() - 1];
        rustix::fs::mkdirat(above, "d", Mode::RWXU).unwrap();
        let next = rustix::fs::openat(above, "d", flags, Mode::empty()).unwrap();
        chain.push(next);
    }
    let create = OFlags::CREATE | OFlags::WRONLY;
    rustix::fs::openat(&chain[depth], "f", create, Mode::RUSR).unwrap();
    chain
}

#[test]
fn r57_what_is_nested_deeper_than_a_restore_goes_is_reported_and_left_out() {
    let source = tempfile::tempdir().unwrap();
    // Each level is held open twice, and other tests hold some.
    let below = source.path().components().count() - 1;
    let open_max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if open_max.is_some_and(|most| most < 3 * limits::DEPTH_MAX as u64) {
        return;
    }
    // One level too deep, counted from the root of the snapshot.
    let chain = make_chain(source.path(), limits::DEPTH_MAX - below);
    let (memory, repository) = create_large(Suite::None);
    let (told, problems) = onefold_engine::Job::unattended();
    let paths = crate::ingest::paths(source.path());
    let options = crate::ingest::backup_options();
    let report = onefold_engine::ingest::backup(&repository, paths, &options, &told).unwrap();
    for above in chain.iter().rev().skip(1) {
        // The deepest directory holds the only file.
        let _ = rustix::fs::unlinkat(above, "d/f", AtFlags::empty());
        rustix::fs::unlinkat(above, "d", AtFlags::REMOVEDIR).unwrap();
    }
    assert_eq!(report.summary.errors, 1);
    assert_eq!(problems.0.lock().unwrap().len(), 1);
    let repository = open_roomy(&memory);
    let root = root_of(&repository, report.snapshot.unwrap());
    let mut directories = 0;
    find::walk(&repository, root, &job(), &mut |_, _| {
        directories += 1;
        Ok(true)
    })
    .unwrap();
    assert_eq!(directories, limits::DEPTH_MAX - 1);
    let target = tempfile::tempdir().unwrap();
    let options = restore_options(target.path());
    let top = Entry { content: Some(root), ..entry("", EntryKind::Directory) };
    restore::plan(&repository, &top, &options, &job()).unwrap();
}
