//! Backups of real directories and streams into a store in memory.

pub use crate::steps::{backup_options, paths, random_bytes};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_crypto::{HashKind, KdfCost, Suite};
use onefold_engine::ingest::{
    BackupOptions, BackupReport, ParentChoice, Selection, Source, backup,
};
use onefold_engine::job::Observer;
use onefold_engine::patterns::Patterns;
use onefold_engine::repository::Password;
use onefold_engine::restore::DumpOptions;
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{Environment, InitOptions, Interrupt, Job, MemoryPlan, Repository, restore};
use onefold_format::node::{Entry, EntryKind};
use onefold_store::layers::{Fault, Faulty};
use onefold_store::{MemoryStore, Store};
use onefold_types::{Error, ErrorKind, SessionId};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

pub const PASSWORD: &[u8] = b"password";

pub fn options() -> InitOptions {
    InitOptions {
        kdf_cost: KdfCost { memory_kib: 8, passes: 1, lanes: 1 },
        container_size_bytes: 128 * 1024,
        ..InitOptions::standard().unwrap().with_chunks_of(8 << 10).unwrap()
    }
}

pub fn memory() -> MemoryPlan {
    MemoryPlan::new(64 << 20).unwrap()
}

pub fn create(store: &Arc<dyn Store>, options: &InitOptions) -> Arc<Repository> {
    let environment = Environment::system();
    let password = Some(PASSWORD);
    Repository::create(Arc::clone(store), options, password, environment, memory())
        .map(Arc::new)
        .unwrap()
}

pub fn open(store: &Arc<dyn Store>) -> Arc<Repository> {
    let password = || Ok(Password::new(PASSWORD.to_vec()));
    Repository::open(Arc::clone(store), password, Environment::system(), memory())
        .map(Arc::new)
        .unwrap()
}

pub fn in_memory() -> (MemoryStore, Arc<dyn Store>) {
    let memory = MemoryStore::new();
    (memory.clone(), Arc::new(memory))
}

pub fn stream(name: &str, bytes: &[u8]) -> Source {
    Source::Stream {
        name: name.as_bytes().to_vec(),
        reader: Box::new(std::io::Cursor::new(bytes.to_vec())),
        finish: Box::new(|| Ok(())),
    }
}

pub fn save(repository: &Arc<Repository>, source: Source) -> BackupReport {
    let (job, problems) = Job::unattended();
    let report = backup(repository, source, &backup_options(), &job).unwrap();
    assert!(problems.0.lock().unwrap().is_empty(), "{problems:?}");
    report
}

/// Twenty files in three directories, 1.4 MB of random bytes in all.
pub fn make_tree(root: &Path) {
    for number in 0..20u64 {
        let directory = root.join(format!("d{}", number % 3));
        fs::create_dir_all(&directory).unwrap();
        let bytes = random_bytes(number, 1000 + number as usize * 7000);
        fs::write(directory.join(format!("f{number:02}")), bytes).unwrap();
    }
    settle_times(root);
}

/// Makes every file's change time old enough to be trusted.
pub fn settle_times(_root: &Path) {
    std::thread::sleep(std::time::Duration::from_millis(60));
}

pub fn entry_at(repository: &Arc<Repository>, id: SessionId, path: &Path) -> Entry {
    use std::os::unix::ffi::OsStrExt;
    let list = SnapshotList::load(repository).unwrap();
    let root = list.get(id).unwrap().record.root;
    let reader = TreeReader::open(repository).unwrap();
    reader.resolve(root, path.as_os_str().as_bytes()).unwrap()
}

pub fn content_at(repository: &Arc<Repository>, id: SessionId, path: &Path) -> Vec<u8> {
    let entry = entry_at(repository, id, path);
    let mut bytes = Vec::new();
    let (job, _) = Job::unattended();
    restore::dump(repository, &entry, &DumpOptions::default(), &mut bytes, &job).unwrap();
    bytes
}

pub fn assert_tree_equal(repository: &Arc<Repository>, id: SessionId, root: &Path) {
    let mut files = 0;
    for directory in fs::read_dir(root).unwrap() {
        for file in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            assert_eq!(content_at(repository, id, &path), fs::read(&path).unwrap(), "{path:?}");
            files += 1;
        }
    }
    assert!(files > 0);
}

#[test]
fn a_tree_is_saved_whole_and_unchanged_files_are_not_read_again() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let first = save(&repository, paths(source.path()));
    assert_eq!((first.summary.files, first.summary.files_new), (20, 20));
    assert_tree_equal(&repository, first.snapshot.unwrap(), source.path());
    let second = save(&open(&store), paths(source.path()));
    assert_eq!(second.parent, first.snapshot);
    assert_eq!((second.summary.files_unchanged, second.summary.bytes_read), (20, 0));
    assert_eq!((second.summary.chunks_new, second.summary.bytes_stored), (0, 0));
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(list.snapshots.len(), 2);
    assert_eq!(list.snapshots[0].record.root, list.snapshots[1].record.root);
    assert_eq!(list.snapshots[1].record.predecessors, [first.snapshot.unwrap()]);
}

#[test]
fn only_what_changed_is_read_and_stored() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    save(&repository, paths(source.path()));
    let changed = source.path().join("d1/f19");
    let mut bytes = fs::read(&changed).unwrap();
    bytes.splice(70_000..70_000, *b"inserted");
    fs::write(&changed, &bytes).unwrap();
    fs::remove_file(source.path().join("d0/f00")).unwrap();
    settle_times(source.path());
    let report = save(&repository, paths(source.path()));
    let summary = report.summary;
    assert_eq!((summary.files_changed, summary.files_unchanged, summary.files_new), (1, 18, 0));
    assert_eq!(summary.bytes_read, bytes.len() as u64);
    assert!(summary.bytes_new < 60_000, "{summary:?}");
    assert_tree_equal(&repository, report.snapshot.unwrap(), source.path());
}

/// Changed files are read in batches, and a batch is closed after so many items, most of which may
/// be files that are kept: whichever item closes it, no file of the batch may be left behind.
#[test]
fn the_item_that_closes_a_batch_may_be_a_file_that_is_read() {
    let source = tempfile::tempdir().unwrap();
    let at = |number: usize| source.path().join(format!("f{number:04}"));
    (0..1200).for_each(|number| fs::write(at(number), number.to_string()).unwrap());
    settle_times(source.path());
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    save(&repository, paths(source.path()));
    // The batch opens with the first file; one of the others is the item that fills it up.
    let changed: Vec<usize> = [0].into_iter().chain(1015..1035).collect();
    changed.iter().for_each(|number| fs::write(at(*number), format!("new {number}")).unwrap());
    settle_times(source.path());
    for last in [1021, 1022, 1023, 1024, 1025] {
        fs::write(at(last), format!("newer {last}")).unwrap();
        fs::write(at(0), format!("newer {last}")).unwrap();
        settle_times(source.path());
        let report = save(&repository, paths(source.path()));
        assert!(report.summary.files_changed >= 2, "{:?}", report.summary);
        for number in [0, 1, last - 1, last, last + 1] {
            let content = content_at(&repository, report.snapshot.unwrap(), &at(number));
            assert_eq!(content, fs::read(at(number)).unwrap(), "{number} after {last}");
        }
    }
}

#[test]
fn a_file_changed_within_the_time_stamp_granularity_is_read_again() {
    let source = tempfile::tempdir().unwrap();
    fs::create_dir(source.path().join("d")).unwrap();
    fs::write(source.path().join("d/f"), "one").unwrap();
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    // Read at once: another change could bear the same time stamp.
    save(&repository, paths(source.path()));
    let second = save(&repository, paths(source.path()));
    assert_eq!(second.summary.files_unchanged, 0);
}

#[test]
fn r56_successive_streams_under_one_name_keep_their_own_content() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let contents = [random_bytes(1, 5_000_000), random_bytes(2, 5_000_000), Vec::new()];
    let saved: Vec<SessionId> = contents
        .iter()
        .map(|bytes| save(&repository, stream("dir/data", bytes)).snapshot.unwrap())
        .collect();
    for (id, bytes) in saved.into_iter().zip(contents) {
        assert_eq!(content_at(&repository, id, Path::new("/dir/data")), bytes);
    }
}

#[test]
fn a_stream_whose_source_fails_saves_nothing() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let source = Source::Stream {
        name: b"data".to_vec(),
        reader: Box::new(std::io::Cursor::new(vec![1; 100_000])),
        finish: Box::new(|| Err(Error::new(ErrorKind::Source, "the command failed"))),
    };
    let (job, _) = Job::unattended();
    let error = backup(&repository, source, &backup_options(), &job).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Source);
    assert!(SnapshotList::load(&repository).unwrap().snapshots.is_empty());
}

#[test]
fn r25_chunks_are_found_again_by_a_new_process_in_every_mode() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    for suite in [Suite::None, Suite::Aes256Gcm] {
        for hash in [HashKind::Blake3, HashKind::Sha256, HashKind::Sha1] {
            for kind in [ChunkerKind::MinCdc, ChunkerKind::Rabin] {
                let chunker = ChunkerParameters::with_average(kind, 8192).unwrap();
                let (_, store) = in_memory();
                create(&store, &InitOptions { suite, hash, chunker, ..options() });
                save(&open(&store), paths(source.path()));
                let (job, _) = Job::unattended();
                let all = BackupOptions { parent: ParentChoice::None, ..backup_options() };
                let again = backup(&open(&store), paths(source.path()), &all, &job).unwrap();
                assert_eq!(again.summary.files_new, 20);
                assert_eq!(again.summary.chunks_new, 0, "{suite:?} {hash} {kind}");
            }
        }
    }
}

#[test]
fn r23_zeros_and_holes_survive_every_chunker() {
    let mut bytes = vec![0; 300_000];
    bytes.extend(random_bytes(3, 50_000));
    bytes.extend(vec![0; 65_536 * 3 + 17]);
    bytes.push(1);
    bytes.extend(vec![0; 1_000_000]);
    for kind in ChunkerKind::ALL {
        let chunker = ChunkerParameters::with_average(kind, 8192).unwrap();
        let (_, store) = in_memory();
        let repository = create(&store, &InitOptions { chunker, ..options() });
        let report = save(&repository, stream("zeros", &bytes));
        let read = content_at(&repository, report.snapshot.unwrap(), Path::new("/zeros"));
        assert!(read == bytes, "{kind}");
        assert!(report.summary.bytes_new < 200_000, "{kind}: {:?}", report.summary);
    }
}

#[test]
fn odd_entries_keep_what_makes_them_odd() {
    use std::os::unix::ffi::OsStrExt;
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    let odd = std::ffi::OsStr::from_bytes(b"n\xffme\n");
    fs::write(root.join(odd), "odd").unwrap();
    fs::write(root.join("set-id"), "x").unwrap();
    fs::set_permissions(root.join("set-id"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::hard_link(root.join("set-id"), root.join("twin")).unwrap();
    symlink("../\u{fc}/nowhere", root.join("link")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let report = save(&repository, paths(root));
    assert_eq!((report.summary.files, report.summary.others), (3, 2));
    let id = report.snapshot.unwrap();
    let at = |name: &std::ffi::OsStr| entry_at(&repository, id, &root.join(name));
    assert_eq!(content_at(&repository, id, &root.join(odd)), b"odd");
    let (first, twin) = (at("set-id".as_ref()), at("twin".as_ref()));
    assert_eq!((first.mode, first.links), (0o4751, 2));
    assert_eq!((first.inode, first.device, first.content), (twin.inode, twin.device, twin.content));
    assert_eq!(at("link".as_ref()).target, "../\u{fc}/nowhere".as_bytes());
    assert_eq!(at("empty".as_ref()).kind, EntryKind::Directory);
    assert_eq!(at("pipe".as_ref()).kind, EntryKind::Fifo);
    let on_disk = fs::metadata(root.join("set-id")).unwrap();
    let kept = (first.modified.seconds, i64::from(first.modified.nanoseconds));
    assert_eq!(kept, (on_disk.mtime(), on_disk.mtime_nsec()));
}

#[test]
fn r50_missing_sources_are_counted_and_nothing_is_saved_if_all_are_missing() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let missing = source.path().join("missing");
    let (job, problems) = Job::unattended();
    let error = backup(&repository, paths(&missing), &backup_options(), &job).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Source);
    assert!(SnapshotList::load(&repository).unwrap().snapshots.is_empty());
    assert_eq!(problems.0.lock().unwrap().len(), 1);
    let Source::Paths { selection, .. } = paths(&missing) else { return };
    let both = Source::Paths { paths: vec![missing, source.path().join("d0")], selection };
    let report = backup(&repository, both, &backup_options(), &job).unwrap();
    assert_eq!((report.summary.errors, report.summary.files), (1, 7));
    assert!(report.snapshot.is_some());
}

#[test]
fn what_is_excluded_is_left_out() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    fs::write(source.path().join("d2/CACHEDIR.TAG"), CACHE_TAG).unwrap();
    fs::write(source.path().join("d1/.skip"), "").unwrap();
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let selection = Box::new(Selection {
        excludes: Patterns::build(&["f03", "*6"], &[]).unwrap(),
        one_file_system: true,
        exclude_larger_than_bytes: Some(100_000),
        exclude_caches: true,
        exclude_if_present: vec![".skip".into()],
        ..Selection::default()
    });
    let paths = vec![source.path().to_path_buf()];
    let report = save(&repository, Source::Paths { paths, selection });
    // d0: 00 03 06 09 12 15 18 without 03, 06 and the two large ones; d1 and d2: their marks.
    assert_eq!((report.summary.files, report.summary.directories), (3 + 2, 4));
}

const CACHE_TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n";

#[test]
fn several_streams_give_the_same_tree_as_one() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let trees: Vec<_> = [1, 3]
        .into_iter()
        .map(|streams| {
            let (_, store) = in_memory();
            let repository = create(&store, &InitOptions { suite: Suite::None, ..options() });
            let Source::Paths { selection, .. } = paths(source.path()) else { unreachable!() };
            let directories = ["d0", "d1", "d2"].map(|name| source.path().join(name));
            let source = Source::Paths { paths: directories.to_vec(), selection };
            let options = BackupOptions { streams, ..backup_options() };
            let (job, _) = Job::unattended();
            let report = backup(&repository, source, &options, &job).unwrap();
            let list = SnapshotList::load(&repository).unwrap();
            (list.snapshots[0].record.root, report.summary.chunks_new)
        })
        .collect();
    assert_eq!(trees[0], trees[1]);
}

#[test]
fn a_dry_run_writes_nothing_and_counts_the_same() {
    let source = tempfile::tempdir().unwrap();
    make_tree(source.path());
    let memory = MemoryStore::recording();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let repository = create(&store, &options());
    let before = memory.operations();
    let (job, _) = Job::unattended();
    let dry = BackupOptions { dry_run: true, ..backup_options() };
    let report = backup(&repository, paths(source.path()), &dry, &job).unwrap();
    assert_eq!(memory.operations(), before);
    assert_eq!(report.snapshot, None);
    let real = save(&repository, paths(source.path()));
    assert_eq!(report.summary.bytes_new, real.summary.bytes_new);
}

/// Files that are read between the two names.
const BETWEEN: usize = 80;

#[test]
fn r97_a_file_of_several_names_that_is_cut_between_them_is_what_it_was_under_each() {
    let source = tempfile::tempdir().unwrap();
    let (first, last) = (source.path().join("a"), source.path().join("z"));
    let bytes = random_bytes(1, 100_000);
    fs::write(&first, &bytes).unwrap();
    fs::hard_link(&first, &last).unwrap();
    for number in 0..BETWEEN {
        let between = source.path().join(format!("m{number:02}"));
        fs::write(between, random_bytes(100 + number as u64, 400_000)).unwrap();
    }
    settle_times(source.path());
    // Cut once the first data is stored: it was read then, and the other name not met yet.
    let cut = last.clone();
    let faulty = Faulty::scripted(in_memory().1, move |call| {
        if call.name.starts_with("containers/") {
            fs::File::options().write(true).open(&cut).unwrap().set_len(60_000).unwrap();
        }
        Fault::None
    });
    let store: Arc<dyn Store> = Arc::new(faulty);
    let repository = create(&store, &options());
    let id = save(&repository, paths(source.path())).snapshot.unwrap();
    for (path, length) in [(&first, 100_000), (&last, 60_000)] {
        assert_eq!(entry_at(&repository, id, path).size, length as u64);
        assert!(content_at(&repository, id, path) == bytes[..length]);
    }
    // What changed behind its back is read by the next.
    let id = save(&repository, paths(source.path())).snapshot.unwrap();
    for path in [&first, &last] {
        assert!(content_at(&repository, id, path) == bytes[..60_000]);
    }
}

/// Keeps what warnings are about.
#[derive(Default)]
struct Warned(std::sync::Mutex<Vec<String>>);

impl Observer for Warned {
    fn problem(&self, item: &str, error: &onefold_types::Error) {
        panic!("{item}: {error}");
    }

    fn warning(&self, item: &str, _: &'static str) {
        self.0.lock().unwrap().push(item.to_owned());
    }
}

#[test]
fn files_that_change_while_they_are_read_are_reported() {
    let warned = Arc::new(Warned::default());
    let job = Job {
        interrupt: Interrupt::default(),
        progress: Arc::default(),
        observer: Arc::clone(&warned) as Arc<dyn Observer>,
    };
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("log");
    fs::write(&path, random_bytes(1, 100_000)).unwrap();
    let growing = std::sync::atomic::AtomicBool::new(true);
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::io::Write;
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            while growing.load(std::sync::atomic::Ordering::SeqCst) {
                file.write_all(b"more").unwrap();
            }
        });
        let mut reports = Vec::new();
        for _ in 0..200 {
            let options = BackupOptions { parent: ParentChoice::None, ..backup_options() };
            reports.push(backup(&repository, paths(&path), &options, &job).unwrap());
            if !warned.0.lock().unwrap().is_empty() {
                break;
            }
        }
        growing.store(false, std::sync::atomic::Ordering::SeqCst);
        reports.pop().unwrap()
    });
    // It is no error: what was read is what the file was.
    assert_eq!(report.summary.errors, 0);
    assert_eq!(warned.0.lock().unwrap()[0], path.display().to_string());
    // What was read is saved, with the size that was read.
    let id = report.snapshot.unwrap();
    let entry = entry_at(&repository, id, &path);
    assert_eq!(content_at(&repository, id, &path).len() as u64, entry.size);
    assert_eq!(entry.changed, onefold_format::node::Time::default());
}

/// The names of all threads of this process that begin like this, but for the number behind.
fn threads_named(beginning: &str) -> BTreeSet<usize> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let names =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter_map(|name| name.trim_end().strip_prefix(beginning)?.parse().ok()).collect()
}

#[test]
fn s0_1_what_is_read_is_cut_and_named_on_as_many_threads_as_are_asked_for() {
    let (_, store) = in_memory();
    let repository = create(&store, &options());
    let source = tempfile::tempdir().unwrap();
    // So many that readers have to be waited for: who has nothing to do and sees the end leaves.
    for number in 0..400 {
        let bytes = random_bytes(number, 64 << 10);
        fs::write(source.path().join(number.to_string()), bytes).unwrap();
    }
    let options = BackupOptions { threads: 23, ..backup_options() };
    let mut seen = BTreeSet::new();
    std::thread::scope(|scope| {
        let running = scope
            .spawn(|| backup(&repository, paths(source.path()), &options, &Job::unattended().0));
        while !running.is_finished() {
            seen.extend(threads_named("read-"));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        running.join().unwrap().unwrap();
    });
    // They are shared by the streams that there may be. No other test has so many.
    let expected = 23_usize.div_ceil(repository.memory().streams);
    assert!(expected > 4);
    assert_eq!(seen, (0..expected).collect(), "readers by their numbers");
}
