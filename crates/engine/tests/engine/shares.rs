//! Shares without a mount: what keeps the data of stubs, and what a crash leaves of a file.
//!
//! They take a file system with leases, holes and attributes below the directory for temporary
//! files. Where it is none, standard error says so.

use crate::ingest::{create, in_memory, open, random_bytes};
use crate::rewriting::unkeyed;
use crate::steps::backup_options;
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::primary::optimize::{OptimizeOptions, OptimizeReport, optimize};
use onefold_engine::primary::rehydrate::rehydrate;
use onefold_engine::primary::turns::Partitions;
use onefold_engine::primary::{Share, addresses, emptying};
use onefold_engine::session::{SnapshotList, tombstones};
use onefold_engine::stub::{self, StubFile};
use onefold_engine::tree::TreeReader;
use onefold_engine::{Job, Observer, Repository};
use onefold_format::share::{
    DESCRIPTION_NEW_MAX_BYTES, MOVED_FROM_MAX, ShareDescription, SharePlace, SharePolicy,
};
use onefold_format::stub::StubOwner;
use onefold_store::Store;
use onefold_types::{Error, ErrorKind, ShareId};
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

pub struct World {
    pub directory: TempDir,
    pub store: Arc<dyn Store>,
}

impl World {
    /// `None` where no share can be.
    pub fn new() -> Option<Self> {
        Self::over(in_memory().1)
    }

    /// The same in a store of the test's own.
    pub fn over(store: Arc<dyn Store>) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        if let Err(error) = emptying::probe(&tempfile::tempfile().unwrap()) {
            eprintln!("SKIPPED: shares were not tested: {error}");
            return None;
        }
        create(&store, &unkeyed());
        let excludes = vec!["*.told".to_owned()];
        let policy = SharePolicy { age_min_seconds: 0, size_min_bytes: 1, excludes };
        Share::create(&open(&store), directory.path(), policy).unwrap();
        Some(Self { directory, store })
    }

    pub fn repository(&self) -> Arc<Repository> {
        open(&self.store)
    }

    pub fn share(&self) -> Share {
        Share::open(self.directory.path()).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), bytes).unwrap();
        // What changed just now is not believed to be what it was.
        std::thread::sleep(Duration::from_millis(100));
    }

    pub fn optimize_hearing(&self, observer: Arc<dyn Observer>) -> OptimizeReport {
        let job = Job { observer, ..Job::unattended().0 };
        optimize(&self.repository(), &self.share(), &options(), &job).unwrap()
    }

    pub fn optimize(&self) -> OptimizeReport {
        optimize(&self.repository(), &self.share(), &options(), &Job::unattended().0).unwrap()
    }

    pub fn collect(&self) {
        let options = CollectOptions { goal: SpaceGoal::Everything, ..CollectOptions::default() };
        collect(&self.repository(), &options, &Job::unattended().0).unwrap();
    }

    pub fn stub(&self, name: &str) -> StubFile {
        self.stub_in(&self.repository(), name)
    }

    pub fn stub_in(&self, repository: &Arc<Repository>, name: &str) -> StubFile {
        let tree = Arc::new(TreeReader::open(repository).unwrap());
        let file = File::options().read(true).write(true).open(self.path(name)).unwrap();
        StubFile::open(&tree, file).unwrap().expect("a stub")
    }

    #[track_caller]
    pub fn assert_holds(&self, name: &str, bytes: &[u8]) {
        let mut read = vec![0; bytes.len() + 1];
        let length = self.stub(name).read_at(0, &mut read).unwrap();
        assert!(read[..length] == *bytes, "{name}");
    }
}

pub fn options() -> OptimizeOptions {
    let partitions = Partitions::None;
    let by = "test".into();
    OptimizeOptions {
        backup: backup_options(),
        cold: None,
        partitions,
        by,
        forgets_at_once: false,
        shares_disk: true,
    }
}

/// Moves a file when the walk leaves another one out, as whoever serves the mount does.
struct Mover {
    share: Share,
    from: PathBuf,
    to: PathBuf,
    writes_down: bool,
}

impl Observer for Mover {
    fn problem(&self, item: &str, error: &Error) {
        panic!("{item}: {error}");
    }

    fn item(&self, path: &str, what: &'static str) {
        if path.ends_with(".told") {
            assert_eq!(what, "excluded");
            if self.writes_down {
                self.share.note_move().unwrap();
            }
            fs::rename(&self.from, &self.to).unwrap();
        }
    }
}

#[test]
fn a_stub_that_is_moved_past_the_walk_keeps_its_data() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(1, 300_000);
    world.write("z/stub", &data);
    world.write("a/other", &random_bytes(2, 1000));
    assert_eq!(world.optimize().emptied.files, 2);
    world.write("b/now.told", b"");
    let (from, to) = (world.path("z/stub"), world.path("a/stub"));
    let mover = Mover { share: world.share(), from, to, writes_down: true };
    let report = world.optimize_hearing(Arc::new(mover));
    assert_eq!((report.manifests_forgotten, report.manifests_kept), (0, 1));
    world.collect();
    world.assert_holds("a/stub", &data);
    fs::remove_file(world.path("b/now.told")).unwrap();
    // Nothing is moved any more: both earlier ones go, and the data stays.
    let report = world.optimize();
    assert_eq!((report.manifests_forgotten, report.manifests_kept), (2, 0));
    world.collect();
    world.assert_holds("a/stub", &data);
}

#[test]
fn a_file_that_could_not_be_looked_at_keeps_what_there_is() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(3, 100_000);
    world.write("stub", &data);
    world.optimize();
    // A stub of nobody: the walk cannot say what it needs.
    world.write("strange", b"");
    let strange = File::options().write(true).open(world.path("strange")).unwrap();
    strange.set_len(1 << 20).unwrap();
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::fsetxattr(&strange, stub::ATTRIBUTE, &[1; 60], set).unwrap();
    world.write("more", &random_bytes(4, 1000));
    let report = world.optimize();
    assert_eq!((report.manifests_forgotten, report.manifests_kept), (0, 1));
    assert_eq!(report.backup.summary.errors, 1);
    world.collect();
    world.assert_holds("stub", &data);
}

fn modified(path: &Path) -> (i64, i64) {
    let known = path.metadata().unwrap();
    (known.mtime(), known.mtime_nsec())
}

#[test]
fn a_file_that_is_half_emptied_is_whole_and_the_next_run_goes_on() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(5, 500_000);
    for (name, is_punched) in [("stubbed", false), ("punched", true)] {
        world.write(name, &data);
        let long_ago = SystemTime::UNIX_EPOCH + Duration::new(86_400, 5);
        File::open(world.path(name)).unwrap().set_modified(long_ago).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let before = modified(&world.path(name));
        world.optimize();
        // As a crash had left it: between the stub and the hole, or before the times.
        let file = File::options().read(true).write(true).open(world.path(name)).unwrap();
        let inode = file.metadata().unwrap().ino();
        let value = stub::value(&file).unwrap().unwrap();
        let (owner, done) = stub::open(&world.repository(), inode, &value).unwrap();
        assert_eq!(owner, StubOwner { share: world.share().id, inode });
        assert!(!done.are_times_pending);
        file.write_all_at(&data, 0).unwrap();
        if is_punched {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, 0, data.len() as u64).unwrap();
        } else {
            file.set_modified(long_ago).unwrap();
        }
        let mut half = done;
        half.are_times_pending = true;
        stub::write(&world.repository(), owner, &file, &half).unwrap();
        file.sync_all().unwrap();
        drop(file);
        world.assert_holds(name, &data);
        std::thread::sleep(Duration::from_millis(100));
        world.optimize();
        let stub = world.stub(name);
        assert!(!stub.stub().are_times_pending, "{name}");
        drop(stub);
        assert!(world.path(name).metadata().unwrap().blocks() < 100, "{name}");
        assert_eq!(modified(&world.path(name)), before, "{name}");
        world.assert_holds(name, &data);
    }
}

#[test]
fn what_came_back_is_there_when_a_crash_forgets_that_it_did() {
    let Some(world) = World::new() else { return };
    let mut data = random_bytes(6, 400_000);
    world.write("file", &data);
    world.optimize();
    let value = stub::value(File::open(world.path("file")).unwrap()).unwrap().unwrap();
    world.stub("file").write_at(70_000, b"never confirmed").unwrap();
    // The file's data is durable before the stub says so: a crash between shows the old bytes.
    let set = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(world.path("file"), stub::ATTRIBUTE, &value, set).unwrap();
    world.assert_holds("file", &data);
    // Nobody can tell it from what was written below: whoever opens it next keeps it.
    assert!(world.stub("file").keep_written(&|| Ok(true)).unwrap());
    data[70_000..70_015].copy_from_slice(b"never confirmed");
    world.assert_holds("file", &data);
    assert!(!world.stub("file").keep_written(&|| Ok(true)).unwrap());
    world.stub("file").write_at(80_000, b"again").unwrap();
    data[80_000..80_005].copy_from_slice(b"again");
    world.assert_holds("file", &data);
    // Cut by somebody who was stopped before the stub said so, then grown.
    File::options().write(true).open(world.path("file")).unwrap().set_len(150_000).unwrap();
    let stub = world.stub("file");
    stub.settle_length().unwrap();
    stub.set_len(400_000).unwrap();
    drop(stub);
    data[150_000..].fill(0);
    world.assert_holds("file", &data);
    // All of it comes back, and nothing is needed in the store.
    let mut collected = || {
        world.collect();
        Ok(())
    };
    let job = Job::unattended().0;
    let report =
        rehydrate(&world.repository(), &world.share(), &options(), &mut collected, &job).unwrap();
    assert_eq!((report.files, report.open, report.errors), (1, 0, 0));
    world.collect();
    assert!(fs::read(world.path("file")).unwrap() == data);
}

#[test]
fn files_that_are_open_or_change_are_left_alone() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(7, 200_000);
    world.write("open", &data);
    world.write("mapped", &data);
    let held = File::open(world.path("open")).unwrap();
    let report = world.optimize();
    assert_eq!(report.left.get(&emptying::Left::Open), Some(&1));
    assert_eq!(report.emptied.files, 1);
    assert!(fs::read(world.path("open")).unwrap() == data);
    drop(held);
    // It is stored already and not read again.
    let report = world.optimize();
    assert_eq!((report.emptied.files, report.backup.summary.bytes_read), (1, 0));
    world.assert_holds("open", &data);
}

#[test]
fn a_stub_is_one_however_much_of_the_disk_it_takes() {
    let Some(world) = World::new() else { return };
    // Attributes may take a block of the disk, and what came back, or was asked for, takes more.
    let files = [("tiny", 1), ("block", 4096), ("more", 5000), ("large", 200_000)];
    let data = |length: usize| random_bytes(length as u64, length);
    for (name, length) in files {
        world.write(name, &data(length));
    }
    assert_eq!(world.optimize().emptied.files, 4);
    let room = File::options().write(true).open(world.path("large")).unwrap();
    rustix::fs::fallocate(&room, FallocateFlags::empty(), 0, 200_000).unwrap();
    drop(room);
    for _ in 0..2 {
        let report = world.optimize();
        assert_eq!(report.backup.summary.bytes_read, 0);
        world.collect();
        for (name, length) in files {
            world.assert_holds(name, &data(length));
        }
    }
    let job = Job::unattended().0;
    let (repository, share) = (world.repository(), world.share());
    let report = rehydrate(&repository, &share, &options(), &mut || Ok(()), &job).unwrap();
    assert_eq!(report.files, 4);
    for (name, length) in files {
        assert!(fs::read(world.path(name)).unwrap() == data(length), "{name}");
    }
}

#[test]
fn times_are_put_back_by_whoever_goes_on() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(8, 300_000);
    world.write("inner/file", &data);
    let path = world.path("inner/file");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::new(86_400, 5);
    File::open(&path).unwrap().set_modified(long_ago).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let before = modified(&path);
    world.optimize();
    // Stopped at emptying it, before its times were put back.
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let inode = file.metadata().unwrap().ino();
    let value = stub::value(&file).unwrap().unwrap();
    let (owner, mut half) = stub::open(&world.repository(), inode, &value).unwrap();
    half.are_times_pending = true;
    stub::write(&world.repository(), owner, &file, &half).unwrap();
    file.set_modified(SystemTime::now()).unwrap();
    drop(file);
    let share = world.share();
    share.note_emptying([Path::new("inner/file"), Path::new("../elsewhere")].into_iter()).unwrap();
    emptying::go_on(&world.repository(), &share, &mut |path, error| {
        panic!("{}: {error}", path.display());
    })
    .unwrap();
    assert_eq!(modified(&path), before);
    world.assert_holds("inner/file", &data);
    // Stopped at bringing it back.
    let stub = world.stub("inner/file");
    stub.begin_bringing_back(stub.stub().modified, onefold_format::node::Time::default()).unwrap();
    assert!(stub.recall(0..100_000, &|| Ok(true)).unwrap());
    drop(stub);
    assert_ne!(modified(&path), before);
    let mut collected = || Ok(());
    let job = Job::unattended().0;
    let (repository, options) = (world.repository(), options());
    rehydrate(&repository, &share, &options, &mut collected, &job).unwrap();
    assert_eq!(modified(&path), before);
    // All of it is back, and nobody came to putting the time back before the stub went.
    std::thread::sleep(Duration::from_millis(100));
    world.optimize();
    let stub = world.stub("inner/file");
    stub.begin_bringing_back(stub.stub().modified, onefold_format::node::Time::default()).unwrap();
    assert!(stub.recall(0..u64::MAX, &|| Ok(true)).unwrap());
    assert!(stub.end_if_recalled().unwrap());
    drop(stub);
    assert_eq!(modified(&path), before);
    // Whoever writes meanwhile has the last word.
    std::thread::sleep(Duration::from_millis(100));
    world.optimize();
    let stub = world.stub("inner/file");
    stub.begin_bringing_back(stub.stub().modified, onefold_format::node::Time::default()).unwrap();
    stub.write_at(300_000, b"appended").unwrap();
    drop(stub);
    let written = modified(&path);
    rehydrate(&repository, &share, &options, &mut collected, &job).unwrap();
    assert_eq!(modified(&path), written);
}

#[test]
fn a_stub_that_cannot_be_emptied_again_keeps_what_it_needs() {
    let Some(world) = World::new() else { return };
    let mut data = random_bytes(9, 400_000);
    world.write("open", &data);
    world.write("busy", &data);
    world.optimize();
    for name in ["open", "busy"] {
        world.stub(name).write_at(0, b"changed").unwrap();
    }
    data[..7].copy_from_slice(b"changed");
    std::thread::sleep(Duration::from_millis(100));
    // One is open when it is met; the other is opened by somebody once it was read.
    let held = world.stub("open");
    let opener = Opener { path: world.path("busy"), held: Mutex::default() };
    let report = world.optimize_hearing(Arc::new(opener));
    assert_eq!(report.left.get(&emptying::Left::Open), Some(&1), "{report:?}");
    assert_eq!((report.manifests_forgotten, report.manifests_kept), (0, 1));
    drop(held);
    world.collect();
    for name in ["open", "busy"] {
        world.assert_holds(name, &data);
    }
    let report = world.optimize();
    assert_eq!((report.manifests_forgotten, report.manifests_kept), (2, 0), "{report:?}");
    world.collect();
    for name in ["open", "busy"] {
        world.assert_holds(name, &data);
        assert!(world.stub(name).stub().is_untouched());
    }
}

#[test]
fn what_no_manifest_tells_of_is_kept_by_none() {
    let Some(world) = World::new() else { return };
    world.write("lost", &random_bytes(1, 300_000));
    world.optimize();
    let (repository, share) = (world.repository(), world.share().id);
    for manifest in SnapshotList::load(&repository).unwrap().manifests(share) {
        tombstones::forget(&repository, manifest.id, "test", "its stubs are lost").unwrap();
    }
    world.collect();
    for (name, kept) in [("other", 0), ("another", 1)] {
        world.write(name, &random_bytes(2, 300_000));
        let report = world.optimize();
        assert_eq!((report.backup.summary.errors, report.backup.damaged_stubs.files), (1, 0));
        // Whatever the file may need, earlier manifests stay; none of them stops a collection.
        assert_eq!((report.manifests_forgotten, report.manifests_kept), (0, kept), "{report:?}");
        world.collect();
    }
}

/// Opens a file once it was read.
struct Opener {
    path: PathBuf,
    held: Mutex<Option<File>>,
}

impl Observer for Opener {
    fn problem(&self, item: &str, error: &Error) {
        panic!("{item}: {error}");
    }

    fn item(&self, path: &str, _: &'static str) {
        if path.ends_with("busy") {
            *self.held.lock().unwrap() = Some(File::open(&self.path).unwrap());
        }
    }
}

#[test]
fn a_share_remembers_where_it_was_moved_from_as_far_as_that_is_bounded() {
    let Some(world) = World::new() else { return };
    let repository = world.repository();
    let policy = SharePolicy { age_min_seconds: 0, size_min_bytes: 1, excludes: Vec::new() };
    let root = tempfile::tempdir().unwrap();
    let at = |number: usize| root.path().join(number.to_string());
    fs::create_dir(at(0)).unwrap();
    let made = Share::create(&repository, &at(0), policy).unwrap();
    for number in 1..=MOVED_FROM_MAX + 1 {
        fs::rename(at(number - 1), at(number)).unwrap();
        assert_eq!(Share::open(&at(number)).err().unwrap().kind(), ErrorKind::Invalid);
        Share::look_at(&at(number)).unwrap().move_here(&repository).unwrap();
        assert_eq!(Share::open(&at(number)).unwrap().id, made.id);
        let text = fs::read(at(number).join(".onefold-share/share.json")).unwrap();
        let moved_from = ShareDescription::decode(&text).unwrap().moved_from;
        assert_eq!(moved_from.len(), number.min(MOVED_FROM_MAX));
        let last = addresses::here(&at(number - 1).parent().unwrap().canonicalize().unwrap());
        assert!(moved_from.last().unwrap().address.path.starts_with(&last.path));
    }
}

#[test]
fn a_share_whose_description_would_be_too_long_is_not_begun() {
    let Some(world) = World::new() else { return };
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().canonicalize().unwrap();
    let policy = |length: usize| SharePolicy {
        age_min_seconds: 0,
        size_min_bytes: 1,
        excludes: vec!["x".repeat(length)],
    };
    let empty = ShareDescription {
        share: ShareId([0; 16]),
        store: world.repository().store_id(),
        place: SharePlace { inode: u64::MAX, made_ns: i64::MIN },
        addresses: vec![addresses::here(&directory)],
        moved_from: Vec::new(),
        policy: policy(0),
    };
    let room = DESCRIPTION_NEW_MAX_BYTES - empty.encode().unwrap().len();
    let refused = Share::create(&world.repository(), &directory, policy(room + 1));
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::Invalid);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    Share::create(&world.repository(), &directory, policy(room)).unwrap();
    let share = Share::open(&directory).unwrap();
    assert_eq!(share.policy, policy(room));
    // Wherever it is moved to, that can be written down.
    let deep = "d".repeat(250);
    let deeper = root.path().join([deep.as_str(); 8].join("/"));
    fs::create_dir_all(&deeper).unwrap();
    let (from, to) = (directory.join(".onefold-share"), deeper.join(".onefold-share"));
    fs::rename(from, to).unwrap();
    Share::look_at(&deeper).unwrap().move_here(&world.repository()).unwrap();
    assert_eq!(Share::open(&deeper).unwrap().policy, policy(room));
}

#[test]
fn what_another_directory_has_made_is_not_forgotten_but_told() {
    let Some(world) = World::new() else { return };
    let root = tempfile::tempdir().unwrap();
    let (original, moved) = (root.path().join("original"), root.path().join("moved"));
    let describes = |directory: &Path| directory.join(".onefold-share/share.json");
    let policy = SharePolicy { age_min_seconds: 0, size_min_bytes: 1, excludes: Vec::new() };
    fs::create_dir(&original).unwrap();
    Share::create(&world.repository(), &original, policy).unwrap();
    let run = |directory: &Path, name: &str| {
        fs::write(directory.join(name), random_bytes(name.len() as u64, 100_000)).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let share = Share::open(directory).unwrap();
        let job = Job::unattended().0;
        optimize(&world.repository(), &share, &options(), &job).unwrap()
    };
    let first = run(&original, "a").backup.snapshot.unwrap();
    let before = fs::read(describes(&original)).unwrap();
    fs::rename(&original, &moved).unwrap();
    Share::look_at(&moved).unwrap().move_here(&world.repository()).unwrap();
    let after = fs::read(describes(&moved)).unwrap();
    // One directory plays the original, which was not moved, and its copy in turn: a copy block by
    // block differs in nothing else.
    let as_original = || {
        fs::rename(&moved, &original).unwrap();
        fs::write(describes(&original), &before).unwrap();
    };
    let as_moved = || {
        fs::rename(&original, &moved).unwrap();
        fs::write(describes(&moved), &after).unwrap();
    };
    as_original();
    let report = run(&original, "bb");
    let second = report.backup.snapshot.unwrap();
    assert_eq!((report.backup.parent, report.manifests_forgotten), (Some(first), 1));
    assert_eq!(report.elsewhere, []);
    as_moved();
    for name in ["ccc", "dddd"] {
        let report = run(&moved, name);
        assert_ne!(report.backup.parent, Some(second));
        let others: Vec<_> = report.elsewhere.iter().map(|other| other.id).collect();
        assert_eq!(others, [second]);
        // Since then this directory has made one itself.
        assert_eq!(report.elsewhere[0].is_newer, name == "ccc");
    }
    as_original();
    let report = run(&original, "eeeee");
    assert_eq!((report.backup.parent, report.manifests_forgotten), (Some(second), 1));
    assert!(report.elsewhere.iter().all(|other| other.is_newer), "{report:?}");
    assert_eq!(report.elsewhere.len(), 1);
}

#[test]
fn a_share_that_was_moved_relies_on_a_manifest_of_its_own_although_nothing_has_changed() {
    let Some(world) = World::new() else { return };
    let root = tempfile::tempdir().unwrap();
    let (original, moved) = (root.path().join("original"), root.path().join("moved"));
    let describes = |directory: &Path| directory.join(".onefold-share/share.json");
    let policy = SharePolicy { age_min_seconds: 0, size_min_bytes: 1, excludes: Vec::new() };
    fs::create_dir(&original).unwrap();
    Share::create(&world.repository(), &original, policy).unwrap();
    let data = random_bytes(1, 100_000);
    fs::write(original.join("file"), &data).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let run = |directory: &Path| {
        let share = Share::open(directory).unwrap();
        let job = Job::unattended().0;
        optimize(&world.repository(), &share, &options(), &job).unwrap()
    };
    run(&original);
    // As it is described after a move, without a trace in what the manifest says of directories.
    let mut description = ShareDescription::decode(&fs::read(describes(&original)).unwrap());
    let after = description.as_mut().unwrap();
    after
        .move_to(addresses::here(&root.path().canonicalize().unwrap().join("moved")), i64::MAX)
        .unwrap();
    // The second manifest has a stub where the first one had a file, the third is none.
    let second = run(&original).backup.snapshot.unwrap();
    assert_eq!(run(&original).backup.snapshot, None);
    fs::rename(&original, &moved).unwrap();
    fs::write(describes(&moved), after.encode().unwrap()).unwrap();
    let report = run(&moved);
    assert_eq!(report.backup.parent, Some(second));
    assert!(report.backup.snapshot.is_some(), "{report:?}");
    assert_eq!((report.manifests_forgotten, run(&moved).backup.snapshot), (1, None));
}
