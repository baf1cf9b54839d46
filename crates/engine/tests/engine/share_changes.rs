//! Files that change, go or are stopped at while a job is at work: none of that is a failure.

use crate::ingest::{content_at, random_bytes};
use crate::shares::{World, options};
use crate::steps::{backup_options, paths};
use onefold_engine::ingest;
use onefold_engine::primary::emptying::Left;
use onefold_engine::primary::optimize::optimize;
use onefold_engine::{Job, Observer};
use onefold_store::layers::{Call, Fault, Faulty};
use onefold_types::{Error, ErrorKind};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Takes files away when the walk tells of another one, which is before it looks at them.
struct Remover(Vec<PathBuf>);

impl Observer for Remover {
    fn problem(&self, item: &str, error: &Error) {
        panic!("{item}: {error}");
    }

    fn item(&self, path: &str, what: &'static str) {
        if path.ends_with(".told") {
            assert_eq!(what, "excluded");
            for path in &self.0 {
                fs::remove_file(path).or_else(|_| fs::remove_dir(path)).unwrap();
            }
        }
    }
}

#[test]
fn what_is_deleted_between_the_listing_and_the_look_at_it_was_not_there() {
    let Some(world) = World::new() else { return };
    world.write("kept", &random_bytes(1, 100_000));
    assert_eq!(world.optimize().emptied.files, 1);
    for name in ["a.told", "gone", "kept too"] {
        world.write(name, &random_bytes(2, 1000));
    }
    fs::create_dir(world.path("gone directory")).unwrap();
    let gone = ["gone", "gone directory"].map(|name| world.path(name));
    let report = world.optimize_hearing(Arc::new(Remover(gone.to_vec())));
    assert_eq!((report.emptied.files, report.errors, report.backup.summary.errors), (1, 0, 0));
    assert_eq!(report.backup.left_out.gone, 2);
    // It may have been moved behind the walk, and be a stub.
    assert_eq!((report.manifests_forgotten, report.manifests_kept), (0, 1));
    fs::remove_file(world.path("a.told")).unwrap();
    assert_eq!(world.optimize().manifests_forgotten, 2);

    // The same in a backup, which has patterns of its own.
    let source = tempfile::tempdir().unwrap();
    for name in ["a.told", "gone", "kept"] {
        fs::write(source.path().join(name), name).unwrap();
    }
    let mut asked = paths(source.path());
    if let ingest::Source::Paths { selection, .. } = &mut asked {
        selection.excludes =
            onefold_engine::patterns::Patterns::build(&["*.told".to_owned()], &[]).unwrap();
    }
    let observer = Arc::new(Remover(vec![source.path().join("gone")]));
    let job = Job { observer, ..Job::unattended().0 };
    let report = ingest::backup(&world.repository(), asked, &backup_options(), &job).unwrap();
    let found = (report.summary.files, report.summary.errors, report.left_out.gone);
    assert_eq!(found, (1, 0, 1));
}

/// Whether this process has a file open.
fn is_open(path: &Path) -> bool {
    let inode = path.metadata().unwrap().ino();
    let mut open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    // Each leads to what is open, and looking at it opens nothing.
    open.any(|one| fs::metadata(one.path()).is_ok_and(|found| found.ino() == inode))
}

/// Does something once, when a container is read while the file is open; counts such reads.
fn when_compared(world: &mut World, act: impl Fn() + Send + Sync + 'static) -> Arc<AtomicU64> {
    let (reads, path) = (Arc::new(AtomicU64::new(0)), world.path("file"));
    let counted = Arc::clone(&reads);
    world.store = Arc::new(Faulty::scripted(Arc::clone(&world.store), move |call: &Call<'_>| {
        let is_one = call.name.starts_with("containers/") && is_open(&path);
        if is_one && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            act();
        }
        Fault::None
    }));
    reads
}

/// A share with a file that is in its manifest, and no stub: somebody had it open.
fn with_manifest(data: &[u8]) -> Option<World> {
    let world = World::new()?;
    world.write("file", data);
    let held = File::open(world.path("file")).unwrap();
    assert_eq!(world.optimize().left.get(&Left::Open), Some(&1));
    drop(held);
    Some(world)
}

#[test]
fn a_file_that_changes_while_it_is_compared_is_left_alone_and_no_error() {
    let data = random_bytes(3, 3_000_000);
    let Some(mut world) = with_manifest(&data) else { return };
    let path = world.path("file");
    let reads = when_compared(&mut world, move || {
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[7; 100], 1_500_000).unwrap();
    });
    let report = world.optimize();
    assert!(reads.load(Ordering::SeqCst) > 0);
    assert_eq!((report.emptied.files, report.errors), (0, 0), "{report:?}");
    assert_eq!(report.left.get(&Left::Changed), Some(&1));
    let mut expected = data;
    expected[1_500_000..1_500_100].fill(7);
    assert!(fs::read(world.path("file")).unwrap() == expected);
}

#[test]
fn a_job_that_is_stopped_while_a_file_is_compared_ends_there() {
    let data = random_bytes(4, 8_000_000);
    let Some(mut world) = with_manifest(&data) else { return };
    let (job, _) = Job::unattended();
    let interrupt = job.interrupt.clone();
    let reads = when_compared(&mut world, move || interrupt.request());
    let stopped = optimize(&world.repository(), &world.share(), &options(), &job).unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Interrupted);
    let until_stopped = reads.load(Ordering::SeqCst);
    assert!(fs::read(world.path("file")).unwrap() == data);
    assert_eq!(world.optimize().emptied.files, 1);
    let whole = reads.load(Ordering::SeqCst) - until_stopped;
    assert!((1..whole / 3).contains(&until_stopped), "{until_stopped} of {whole}");
    world.assert_holds("file", &data);
}

/// So long that nobody who reads its zeros one by one would come to their end.
const HOLLOW_BYTES: u64 = 4 << 40;
/// What nobody who passes over holes takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn holes_are_passed_over_and_not_read() {
    let Some(world) = World::new() else { return };
    let path = world.path("hollow");
    let data = random_bytes(5, 1_000_000);
    let at = HOLLOW_BYTES / 2 + 12_345;
    let file = File::create(&path).unwrap();
    file.set_len(HOLLOW_BYTES + 5).unwrap();
    file.write_all_at(&data, at).unwrap();
    drop(file);
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    let repository = world.repository();
    let job = Job::unattended().0;
    let options = backup_options();
    let report = ingest::backup(&repository, paths(&path), &options, &job).unwrap();
    assert_eq!(report.summary.bytes, HOLLOW_BYTES + 5);
    assert!(report.summary.chunks < 1000, "{report:?}");
    assert_eq!(world.optimize().emptied.files, 1);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    let stub = world.stub("hollow");
    let around = at - 1000..at + data.len() as u64 + 1000;
    let mut found = vec![1; (around.end - around.start) as usize];
    assert_eq!(stub.read_at(around.start, &mut found).unwrap(), found.len());
    assert!(found[1000..][..data.len()] == data);
    assert!(found[..1000].iter().chain(&found[1000 + data.len()..]).all(|byte| *byte == 0));
    assert_eq!(stub.next_data(0).unwrap().unwrap() / (64 << 10), at / (64 << 10));
}

/// What is passed over is what reading would have found.
#[test]
fn a_file_with_holes_is_the_same_content_as_one_with_zeros() {
    let Some(world) = World::new() else { return };
    let repository = world.repository();
    let (hollow, full) = (world.path("hollow"), world.path("full"));
    let mib = 1 << 20;
    let mut expected = vec![0; 40 * mib + 77];
    // Data at the beginning, across a block's border, and a hole up to the end.
    for (seed, at, length) in [(6, 0, 100_000), (7, 9 * mib + 65_000, 1_000_000)] {
        expected[at..at + length].copy_from_slice(&random_bytes(seed, length));
    }
    fs::write(&full, &expected).unwrap();
    let file = File::create(&hollow).unwrap();
    file.set_len(expected.len() as u64).unwrap();
    for (at, length) in [(0, 100_000), (9 * mib + 65_000, 1_000_000)] {
        file.write_all_at(&expected[at..at + length], at as u64).unwrap();
    }
    drop(file);
    std::thread::sleep(Duration::from_millis(100));
    let report =
        ingest::backup(&repository, paths(&hollow), &backup_options(), &Job::unattended().0);
    let first = report.unwrap();
    let content = content_at(&repository, first.snapshot.unwrap(), &hollow);
    assert!(content == expected);
    let report = ingest::backup(&repository, paths(&full), &backup_options(), &Job::unattended().0);
    let second = report.unwrap();
    let nodes = |id, path| crate::ingest::entry_at(&repository, id, path).content;
    assert_eq!(
        nodes(first.snapshot.unwrap(), &hollow),
        nodes(second.snapshot.unwrap(), &full),
        "the same bytes have one content"
    );
}
