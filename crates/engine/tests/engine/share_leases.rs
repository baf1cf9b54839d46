//! Shares: whoever waits for a file gets it, and what he then does is not undone.

use crate::ingest::random_bytes;
use crate::shares::{World, options};
use onefold_engine::job::Interrupt;
use onefold_engine::primary::emptying::{self, Left, LeftAlone, Prepared};
use onefold_engine::primary::rehydrate::rehydrate;
use onefold_engine::primary::repair;
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{Job, stub};
use onefold_format::node::EntryKind;
use onefold_lease::Lease;
use onefold_store::layers::{Fault, Faulty};
use onefold_types::{ErrorKind, Result};
use rustix::fs::{FallocateFlags, FlockOperation, fcntl_lock};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What waits longer for something than this waits in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the kernel lists a lease of a file, and calls it so.
fn is_leased(inode: u64, how: &str) -> bool {
    let of_inode = format!(":{inode}");
    fs::read_to_string("/proc/locks").unwrap().lines().any(|line| {
        line.contains("LEASE")
            && line.contains(how)
            && line.split_whitespace().any(|word| word.ends_with(&of_inode))
    })
}

/// Somebody who opens a file for writing as soon as the holder of its lease lets him.
fn wait_for(path: PathBuf) -> JoinHandle<File> {
    let inode = fs::metadata(&path).unwrap().ino();
    let waiting =
        std::thread::spawn(move || File::options().read(true).write(true).open(path).unwrap());
    let began = Instant::now();
    while !is_leased(inode, "BREAKING") {
        assert!(began.elapsed() < PATIENCE, "nobody holds a lease of it");
        std::thread::sleep(Duration::from_millis(1));
    }
    waiting
}

#[test]
fn a_file_that_somebody_waits_for_does_not_become_a_stub() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(31, 100_000);
    for name in ["first", "second", "third"] {
        world.write(name, &data);
    }
    // All are open: they are in the manifest, and no stubs.
    let held = ["first", "second", "third"].map(|name| File::open(world.path(name)).unwrap());
    let report = world.optimize();
    assert_eq!((report.emptied.files, report.left.get(&Left::Open)), (0, Some(&3)), "{report:?}");
    let [first, second, third] = held;
    drop((first, third));

    let (repository, share) = (world.repository(), world.share());
    let tree = Arc::new(TreeReader::open(&repository).unwrap());
    let list = SnapshotList::load(&repository).unwrap();
    let root = list.manifests(share.id).last().unwrap().record.root;
    let top: OwnedFd = File::open(world.directory.path()).unwrap().into();
    let prepared: Vec<_> = tree
        .entries(root)
        .unwrap()
        .iter()
        .filter(|stored| stored.kind == EntryKind::File)
        .map(|stored| {
            emptying::prepare(&tree, (&top, &stored.name), stored, &Interrupt::default())
                .unwrap()
                .unwrap()
        })
        .collect();
    assert_eq!(prepared.len(), 3);
    // The second one is open; when that is noticed, the first one is held by its lease.
    let (mut waiting, mut left) = (None, Vec::new());
    let mut hear = |_: &Prepared, one: Result<LeftAlone>| {
        if left.is_empty() {
            waiting = Some(wait_for(world.path("first")));
        }
        left.push(one.unwrap().why);
    };
    let emptied = emptying::empty(&repository, &share, &prepared, &mut hear).unwrap();
    assert_eq!((emptied.files, left), (1, vec![Left::Open, Left::Open]));
    let file = waiting.unwrap().join().unwrap();
    assert!(stub::value(&file).unwrap().is_none());
    assert_eq!(fs::read(world.path("first")).unwrap(), data);
    world.assert_holds("third", &data);
    drop(second);
}

#[test]
fn whoever_waits_for_a_file_that_is_brought_back_gets_it_and_changes_it_for_good() {
    let Some(mut world) = World::new() else { return };
    let mut data = random_bytes(32, 3_000_000);
    world.write("file", &data);
    world.optimize();
    let path = world.path("file");
    let inode = fs::metadata(&path).unwrap().ino();
    let waiting: Arc<Mutex<Option<JoinHandle<File>>>> = Arc::default();
    let is_first = AtomicBool::new(true);
    let (opens, opener) = (path.clone(), Arc::clone(&waiting));
    // What is read first of its data is read when it is held.
    world.store = Arc::new(Faulty::scripted(Arc::clone(&world.store), move |call| {
        let is_read = call.name.starts_with("containers/") && is_leased(inode, "ACTIVE");
        if is_read && is_first.swap(false, Ordering::SeqCst) {
            *opener.lock().unwrap() = Some(wait_for(opens.clone()));
        }
        Fault::None
    }));
    let job = Job::unattended().0;
    let mut nothing = || Ok(());
    let share = world.share();
    let bring_back = |world: &World, nothing: &mut dyn FnMut() -> Result<()>| {
        rehydrate(&world.repository(), &share, &options(), nothing, &job).unwrap()
    };
    let report = bring_back(&world, &mut nothing);
    assert_eq!((report.files, report.open, report.errors), (0, 1, 0), "{report:?}");
    drop(waiting.lock().unwrap().take().expect("it was opened").join().unwrap());
    world.assert_holds("file", &data);
    // What came back is the file's own, the rest the store's.
    assert!(!world.stub("file").stub().is_untouched());
    world.stub("file").write_at(2_999_990, b"0123456789").unwrap();
    data.truncate(2_999_990);
    data.extend(b"0123456789");
    let report = bring_back(&world, &mut nothing);
    assert_eq!((report.files, report.open, report.errors), (1, 0, 0), "{report:?}");
    assert_eq!(fs::read(Path::new(&path)).unwrap(), data);
}

#[test]
fn r118_a_write_fails_if_a_job_is_at_the_file_for_too_long_and_keeps_jobs_away_if_not() {
    let Some(world) = World::new() else { return };
    let mut data = random_bytes(35, 300_000);
    world.write("file", &data);
    world.optimize();
    let stub = world.stub("file").with_job_wait(Duration::from_millis(30));
    let job = File::options().read(true).write(true).open(world.path("file")).unwrap();
    fcntl_lock(&job, FlockOperation::NonBlockingLockExclusive).unwrap();
    let changes: [&dyn Fn() -> Result<()>; 3] =
        [&|| stub.write_at(5, b"new").map(drop), &|| stub.set_len(7), &|| {
            stub.punch(0..10, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)
        }];
    for change in changes {
        assert_eq!(change().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    world.assert_holds("file", &data);
    fcntl_lock(&job, FlockOperation::Unlock).unwrap();
    stub.write_at(5, b"new").unwrap();
    data[5..8].copy_from_slice(b"new");
    let taken = fcntl_lock(&job, FlockOperation::NonBlockingLockExclusive);
    assert!(taken.is_err(), "a job could get at it");
    drop((stub, job));
    world.assert_holds("file", &data);
}

#[test]
fn r116_a_lost_stub_that_somebody_has_a_lease_of_is_waited_for_and_not_stored() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(36, 300_000);
    world.write("file", &data);
    world.optimize();
    rustix::fs::removexattr(world.path("file"), stub::ATTRIBUTE).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    // As a file server has one of a file that its client has open.
    let file = File::options().read(true).write(true).open(world.path("file")).unwrap();
    let (taken, is_taken) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let lease = Lease::take(&file).unwrap().unwrap();
        taken.send(()).unwrap();
        let began = Instant::now();
        while lease.is_held().unwrap() && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(300));
    });
    is_taken.recv().unwrap();
    let report = world.optimize();
    server.join().unwrap();
    assert_eq!((report.lost.files(), report.emptied.files), (1, 0), "{report:?}");
    world.collect();
    let (repository, job) = (world.repository(), Job::unattended().0);
    assert_eq!(repair::repair(&repository, &world.share(), &job).unwrap().files, 1);
    world.assert_holds("file", &data);
}
