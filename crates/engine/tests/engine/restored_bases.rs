//! What a restore reads for chunks that are stored as differences.

use crate::ingest::{
    PASSWORD, backup_options, content_at, create, in_memory, options, random_bytes,
};
use crate::rewriting::{containers_of, restore_options, save};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::collection::{CollectOptions, collect};
use onefold_engine::container::reader::read_section;
use onefold_engine::ingest::{BackupOptions, BackupReport};
use onefold_engine::repository::Password;
use onefold_engine::restore::request_costs::Reach;
use onefold_engine::restore::{RestoreOptions, plan, restore};
use onefold_engine::session::SnapshotList;
use onefold_engine::{Environment, InitOptions, Job, MemoryPlan, Repository};
use onefold_format::delta::DeltaChoice;
use onefold_format::node::{Entry, EntryKind};
use onefold_store::layers::{Counting, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::{SessionId, limits};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

const CHUNKS: usize = 1000;

const CHUNK_BYTES: usize = 8 * limits::KIB;

/// A store, and a file in it of which chunks are differences against those of earlier versions.
struct Saved {
    counting: Arc<Counting<MemoryStore>>,
    repository: Arc<Repository>,
    id: SessionId,
    file: PathBuf,
    bytes: Vec<u8>,
    /// Differences in the last version.
    deltas: u64,
}

impl Saved {
    fn new(container_size_bytes: usize, first: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let (memory, store) = in_memory();
        let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, CHUNK_BYTES).unwrap();
        let made = InitOptions { chunker, container_size_bytes, ..options() };
        let repository = create(&store, &made);
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        let mut bytes = random_bytes(1, CHUNKS * CHUNK_BYTES);
        let delta = Some(DeltaChoice::default());
        let rewrite = "none".parse().unwrap();
        let saving = BackupOptions { delta, rewrite, ..backup_options() };
        for version in [first, &bytes] {
            fs::write(&file, version).unwrap();
            save(&repository, root.path(), &saving);
        }
        change(&mut bytes);
        fs::write(&file, &bytes).unwrap();
        let report = save(&repository, root.path(), &saving);
        Self::opened(memory, (&report, file, bytes))
    }

    /// A store that was written, and what a backup saved in it last.
    fn opened(memory: MemoryStore, saved: (&BackupReport, PathBuf, Vec<u8>)) -> Self {
        Self::opened_with(limits::MEMORY_LIMIT_DEFAULT_BYTES, memory, saved)
    }

    /// The same with so much memory.
    fn opened_with(
        limit_bytes: usize,
        memory: MemoryStore,
        (report, file, bytes): (&BackupReport, PathBuf, Vec<u8>),
    ) -> Self {
        let counting = Arc::new(Counting::new(memory));
        let password = || Ok(Password::new(PASSWORD.to_vec()));
        let memory = MemoryPlan::new(limit_bytes).unwrap();
        let store = Arc::clone(&counting) as Arc<dyn Store>;
        let opened = Repository::open(store, password, Environment::system(), memory);
        let repository = Arc::new(opened.unwrap());
        let (deltas, id) = (report.deltas.chunks, report.snapshot.unwrap());
        Self { counting, repository, id, file, bytes, deltas }
    }

    /// Reads of containers that a restore into a directory makes, and their bytes. It says the same
    /// of itself, and its plan does before.
    fn restored(&self, reach: Reach) -> (u64, u64) {
        let target = tempfile::tempdir().unwrap();
        let restoring = RestoreOptions { reach: Some(reach), ..restore_options(target.path()) };
        let (mut said, mut planned) = (0, 0);
        let (calls, bytes) = self.reads(|repository| {
            let list = SnapshotList::load(repository).unwrap();
            let content = Some(list.get(self.id).unwrap().record.root);
            let whole = Entry { kind: EntryKind::Directory, content, ..Entry::default() };
            let job = Job::unattended().0;
            planned = plan(repository, &whole, &restoring, &job).unwrap().bytes_read;
            self.counting.take();
            let restored = restore(repository, &whole, &restoring, &job).unwrap();
            assert_eq!(restored.errors, 0);
            said = restored.bytes_read;
            fs::read(target.path().join(self.file.strip_prefix("/").unwrap())).unwrap()
        });
        assert_eq!(bytes, said);
        // A request that reaches far reads what lies between.
        assert!(if reach == Reach::NEAR { said == planned } else { said >= planned });
        (calls, bytes)
    }

    /// Reads of containers that `read` makes, and their bytes.
    fn reads(&self, read: impl FnOnce(&Arc<Repository>) -> Vec<u8>) -> (u64, u64) {
        self.counting.take();
        assert!(read(&self.repository) == self.bytes);
        let reads = self.counting.take().of("containers", Operation::GetRange);
        (reads.calls, reads.bytes)
    }
}

/// Frames of bases that lie beside one another come with one request, as far as that pays, and each
/// comes once.
#[test]
fn what_differences_are_made_of_is_read_once_and_with_few_requests() {
    let saved = Saved::new(limits::CONTAINER_TARGET_BYTES, &[], |bytes| {
        bytes.iter_mut().step_by(CHUNK_BYTES).for_each(|byte| *byte ^= 1);
    });
    assert!(saved.deltas > CHUNKS as u64 * 95 / 100, "{}", saved.deltas);
    let stored = (CHUNKS * CHUNK_BYTES) as u64;
    for (reach, most) in [(Reach::NEAR, 24), (Reach::FAR, 12)] {
        let (calls, bytes) = saved.restored(reach);
        assert!(calls <= most, "{calls} reads");
        assert!(bytes < stored * 11 / 10, "{bytes} bytes of {stored}");
    }
}

/// What is made of chunks all over the store waits until each of them is open: there is no room for
/// these, and none is needed.
#[test]
fn versions_over_versions_are_read_once_with_little_memory() {
    const LONG_CHUNK_BYTES: usize = 32 * limits::KIB;
    const VERSIONS: usize = 6;
    let (memory, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, LONG_CHUNK_BYTES).unwrap();
    let container_size_bytes = limits::CONTAINER_TARGET_BYTES;
    let repository = create(&store, &InitOptions { chunker, container_size_bytes, ..options() });
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    let saving = BackupOptions {
        delta: Some(DeltaChoice::default()),
        rewrite: "none".parse().unwrap(),
        ..backup_options()
    };
    let mut bytes = random_bytes(1, CHUNKS * LONG_CHUNK_BYTES);
    let mut deltas = 0;
    let mut report = BackupReport::default();
    // Each version changes its share of the chunks, everywhere in the file.
    for version in 0..=VERSIONS {
        if version > 0 {
            let changed = bytes.chunks_mut(LONG_CHUNK_BYTES).skip(version - 1).step_by(VERSIONS);
            changed.for_each(|chunk| chunk[1000] ^= 1);
        }
        fs::write(&file, &bytes).unwrap();
        report = save(&repository, root.path(), &saving);
        deltas += report.deltas.chunks;
    }
    assert!(deltas > CHUNKS as u64 * 95 / 100, "{deltas}");
    let saved = Saved::opened_with(64 * limits::MIB, memory, (&report, file, bytes));
    let stored = (CHUNKS * LONG_CHUNK_BYTES) as u64;
    for reach in [Reach::NEAR, Reach::FAR] {
        let (_, read) = saved.restored(reach);
        assert!(read < stored * 11 / 10, "{read} bytes of {stored}");
    }
}

/// A collection has moved them, and the differences do not say where they are any more.
#[test]
fn bases_that_were_moved_are_read_once_and_with_few_requests() {
    let (memory, store) = in_memory();
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, CHUNK_BYTES).unwrap();
    let container_size_bytes = limits::CONTAINER_TARGET_BYTES;
    let repository = create(&store, &InitOptions { chunker, container_size_bytes, ..options() });
    let root = tempfile::tempdir().unwrap();
    let saving = BackupOptions {
        delta: Some(DeltaChoice::default()),
        rewrite: "none".parse().unwrap(),
        ..backup_options()
    };
    // Two sources: what the newest of both need stays what it is.
    let mut bytes = random_bytes(1, CHUNKS * CHUNK_BYTES);
    let mut saved = Vec::new();
    for source in ["v", "w"] {
        let directory = root.path().join(source);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("file"), &bytes).unwrap();
        saved.push((save(&repository, &directory, &saving), directory.join("file")));
        bytes.iter_mut().step_by(CHUNK_BYTES).for_each(|byte| *byte ^= 1);
    }
    bytes.iter_mut().step_by(CHUNK_BYTES).for_each(|byte| *byte ^= 1);
    let packing = CollectOptions { repack_level: Some(3), ..CollectOptions::default() };
    collect(&repository, &packing, &Job::unattended().0).unwrap();
    let sections = containers_of(&repository).into_iter().map(|id| read_section(&repository, id));
    let deltas = sections.flat_map(|section| section.unwrap().deltas).collect::<Vec<_>>();
    assert!(deltas.iter().flat_map(|delta| &delta.bases).all(|base| base.container.is_none()));
    let (report, file) = saved.pop().unwrap();
    let saved = Saved::opened(memory, (&report, file, bytes));
    assert!(saved.deltas > CHUNKS as u64 * 9 / 10, "{}", saved.deltas);
    assert_eq!(deltas.len() as u64, saved.deltas);
    let stored = (CHUNKS * CHUNK_BYTES) as u64;
    for (reach, most) in [(Reach::NEAR, 24), (Reach::FAR, 12)] {
        let (calls, read) = saved.restored(reach);
        assert!(calls <= most, "{calls} reads");
        assert!(read < stored * 11 / 10, "{read} bytes of {stored}");
    }
}

/// What is wanted of a frame that holds bases comes with these: of a file of which every other
/// chunk was changed all frames are wanted for both.
#[test]
fn what_lies_beside_bases_is_not_read_for_itself() {
    let saved = Saved::new(limits::MIB, &[], |bytes| {
        let changed = bytes.chunks_mut(CHUNK_BYTES).step_by(2);
        changed.enumerate().for_each(|(number, chunk)| {
            chunk[3000..4000].copy_from_slice(&random_bytes(number as u64 + 2, 1000));
        });
    });
    assert!(saved.deltas > CHUNKS as u64 * 45 / 100, "{}", saved.deltas);
    let stored = (CHUNKS * CHUNK_BYTES + CHUNKS / 2 * 1000) as u64;
    for reach in [Reach::NEAR, Reach::FAR] {
        let (_, bytes) = saved.restored(reach);
        assert!(bytes < stored * 11 / 10, "{bytes} bytes of {stored}");
    }
    // A dump gives things in their order, and keeps what it meets until then.
    let (_, bytes) = saved.reads(|it| content_at(it, saved.id, &saved.file));
    assert!(bytes < stored * 11 / 10, "{bytes} bytes of {stored}");
}

/// A dump reads a little at a time, and what that is made of lies everywhere: it is read for all of
/// it at once.
#[test]
fn what_differences_of_a_dump_are_made_of_is_read_once() {
    let whole = random_bytes(1, CHUNKS * CHUNK_BYTES);
    let mut torn = Vec::new();
    for number in 0..CHUNKS {
        let from = number * 389 % CHUNKS * CHUNK_BYTES;
        torn.extend_from_slice(&whole[from..from + CHUNK_BYTES]);
    }
    let saved = Saved::new(limits::MIB / 4, &torn, |bytes| {
        for (number, chunk) in bytes.chunks_mut(CHUNK_BYTES).enumerate() {
            chunk[3000..5000].copy_from_slice(&random_bytes(number as u64 + 2, 2000));
        }
    });
    assert!(saved.deltas > CHUNKS as u64 * 95 / 100, "{}", saved.deltas);
    let read = |repository: &Arc<Repository>| content_at(repository, saved.id, &saved.file);
    let (_, bytes) = saved.reads(read);
    // The first version whole, and two of eight kilobytes of each chunk of the second.
    let stored = (CHUNKS * (CHUNK_BYTES + 2000)) as u64;
    assert!(bytes < stored * 11 / 10, "{bytes} bytes of {stored}");
}
