//! Shares: what somebody does to stubs without the mount is neither lost nor overlooked.

use crate::ingest::random_bytes;
use crate::shares::{World, options};
use onefold_engine::container::{list, reader::read_section};
use onefold_engine::ingest::attributes;
use onefold_engine::ingest::stubs::LISTED_MAX;
use onefold_engine::job::Interrupt;
use onefold_engine::primary::emptying::{self, Left};
use onefold_engine::primary::optimize::{OptimizeReport, optimize};
use onefold_engine::primary::problems::MORE;
use onefold_engine::primary::rehydrate::rehydrate;
use onefold_engine::primary::scrub::scrub;
use onefold_engine::primary::{Share, repair};
use onefold_engine::session::SnapshotList;
use onefold_engine::stub::{self, StubFile};
use onefold_engine::tree::TreeReader;
use onefold_engine::{Job, Observer};
use onefold_format::layout;
use onefold_format::node::Entry;
use onefold_format::share::SharePolicy;
use onefold_store::{Key, MemoryStore};
use onefold_types::Error;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LENGTH: usize = 400_000;
const WRITTEN: &str = "somebody has written into it";

/// What was told.
#[derive(Default)]
struct Ear(Mutex<Vec<String>>);

impl Observer for Ear {
    fn problem(&self, item: &str, error: &Error) {
        self.0.lock().unwrap().push(format!("{item}: {error}"));
    }

    fn item(&self, _: &str, _: &'static str) {}
}

/// Writes into a file without the mount, long enough ago to be believed; when it was changed then.
fn write_below(path: &Path, offset: u64, bytes: &[u8]) -> (i64, i64) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let known = file.metadata().unwrap();
    (known.mtime(), known.mtime_nsec())
}

fn problems(share: &Share) -> Vec<String> {
    share.problems().unwrap()
}

fn bring_back(world: &World) {
    let job = Job::unattended().0;
    let (repository, share) = (world.repository(), world.share());
    let report = rehydrate(&repository, &share, &options(), &mut || Ok(()), &job).unwrap();
    assert_eq!((report.open, report.errors), (0, 0));
}

#[test]
fn what_is_written_into_a_stub_below_is_kept_and_told_by_the_next_job() {
    let Some(world) = World::new() else { return };
    let mut data = random_bytes(41, LENGTH);
    world.write("file", &data);
    world.optimize();
    // A part of a block, and several blocks, of which one is all zeros.
    let block = [vec![7; 5000], vec![0; 8192], vec![9; 5000]].concat();
    write_below(&world.path("file"), 300_000, b"by hand");
    let modified = write_below(&world.path("file"), 100_000, &block);
    data[300_000..300_007].copy_from_slice(b"by hand");
    data[100_000..118_192].copy_from_slice(&block);

    let ear = Arc::new(Ear::default());
    let report = world.optimize_hearing(Arc::clone(&ear) as Arc<dyn Observer>);
    // It has changed too lately to be believed: the next run empties it.
    assert_eq!((report.written_below, report.errors), (1, 0), "{report:?}");
    world.collect();
    world.assert_holds("file", &data);
    let told = std::mem::take(&mut *ear.0.lock().unwrap());
    assert!(told.len() == 1 && told[0].starts_with("/file: ") && told[0].contains(WRITTEN));
    assert_eq!(problems(&world.share()), told);
    // A scrub does not read it away; the next run looks again, and finds nothing.
    scrub(&world.repository(), &world.share(), 1.0, &Job::unattended().0).unwrap();
    assert_eq!(problems(&world.share()), told);
    std::thread::sleep(Duration::from_millis(100));
    let report = world.optimize();
    assert_eq!((report.written_below, report.emptied.bytes), (0, LENGTH as u64), "{report:?}");
    assert!(problems(&world.share()).is_empty());
    let known = world.path("file").metadata().unwrap();
    assert_eq!((known.mtime(), known.mtime_nsec()), modified);
    assert!(known.blocks() < 100, "its data is in the store");
    world.collect();
    world.assert_holds("file", &data);
    bring_back(&world);
    assert!(fs::read(world.path("file")).unwrap() == data);
}

#[test]
fn whoever_looks_first_keeps_what_was_written_below() {
    for who in ["scrub", "repair", "rehydrate", "recall", "cut"] {
        let Some(world) = World::new() else { return };
        let mut data = random_bytes(42, LENGTH);
        world.write("file", &data);
        world.optimize();
        write_below(&world.path("file"), 70_000, b"by hand");
        data[70_000..70_007].copy_from_slice(b"by hand");
        let (repository, share, job) = (world.repository(), world.share(), Job::unattended().0);
        match who {
            "scrub" => drop(scrub(&repository, &share, 1.0, &job).unwrap()),
            "repair" => drop(repair::repair(&repository, &share, &job).unwrap()),
            "rehydrate" => bring_back(&world),
            "recall" => {
                // As the mount does for a program that writes into the same granule.
                let stub = world.stub("file");
                stub.write_at(90_000, b"by a program").unwrap();
                data[90_000..90_012].copy_from_slice(b"by a program");
                assert!(stub.was_written_below());
            }
            _ => {
                // A half of it is cut off, and the other one comes back.
                let file = File::options().write(true).open(world.path("file")).unwrap();
                file.set_len(LENGTH as u64 / 2).unwrap();
                data.truncate(LENGTH / 2);
                drop(file);
                world.stub("file").settle_length().unwrap();
                bring_back(&world);
            }
        }
        match who {
            "rehydrate" | "cut" => assert!(fs::read(world.path("file")).unwrap() == data, "{who}"),
            _ => world.assert_holds("file", &data),
        }
        if who != "recall" {
            assert_eq!(problems(&share).len(), 1, "{who}");
        }
    }
}

#[test]
fn zeros_around_what_was_written_below_are_the_stores_bytes() {
    let Some(world) = World::new() else { return };
    let mut data = random_bytes(43, LENGTH);
    world.write("file", &data);
    world.write("zeros", &data);
    world.write("all", &data);
    world.optimize();
    // A mapping of a file that is no longer than what the system writes at once.
    write_below(&world.path("all"), 0, &[0; LENGTH]);
    write_below(&world.path("all"), 200_000, b"a record");
    let mut all = data.clone();
    all[200_000..200_008].copy_from_slice(b"a record");
    // Nothing but zeros: nobody has written there as far as can be told.
    write_below(&world.path("zeros"), 4096, &[0; 20_000]);
    // As a mapping leaves them far around what was written.
    write_below(&world.path("file"), 8192, &[0; 65_536]);
    write_below(&world.path("file"), 12_288 + 50, b"a record");
    data[12_338..12_346].copy_from_slice(b"a record");
    // What ends in the middle of a block; what the file was cut to and written anew behind.
    write_below(&world.path("file"), LENGTH as u64 - 3, b"end");
    data[LENGTH - 3..].copy_from_slice(b"end");
    let report = world.optimize();
    assert_eq!(report.written_below, 2, "{report:?}");
    world.assert_holds("all", &all);
    world.assert_holds("file", &data);
    world.assert_holds("zeros", &random_bytes(43, LENGTH));
}

/// A part of a block that were left would be zeros, and look as if somebody had written there.
#[test]
fn what_is_emptied_holds_nothing_in_its_last_block_either() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(45, LENGTH);
    world.write("file", &data);
    world.optimize();
    let file = File::options().read(true).write(true).open(world.path("file")).unwrap();
    let found = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0));
    assert_eq!(found, Err(rustix::io::Errno::NXIO));
    assert_eq!(file.metadata().unwrap().len(), LENGTH as u64);
    // Stopped at it by a crash, an earlier version had zeros there, and all else as it was.
    let tail = LENGTH / 4096 * 4096;
    file.write_all_at(&data[..tail], 0).unwrap();
    file.write_all_at(&vec![0; LENGTH - tail], tail as u64).unwrap();
    drop(file);
    let report = world.optimize();
    assert_eq!((report.written_below, report.errors), (0, 0), "{report:?}");
    world.collect();
    world.assert_holds("file", &data);
}

#[test]
fn a_file_that_is_replaced_below_is_what_it_was_replaced_by_with_all_its_zeros() {
    let Some(world) = World::new() else { return };
    world.write("file", &random_bytes(46, LENGTH));
    world.optimize();
    let mut other = random_bytes(47, LENGTH);
    for zeros in [0..9000, 100_000..170_000, LENGTH - 9000..LENGTH] {
        other[zeros].fill(0);
    }
    write_below(&world.path("file"), 0, &other);
    assert_eq!(world.optimize().written_below, 1);
    world.collect();
    world.assert_holds("file", &other);
    bring_back(&world);
    assert!(fs::read(world.path("file")).unwrap() == other);
}

#[test]
fn one_file_more_than_are_listed_is_kept_and_told_as_well() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(49, 6000);
    let names: Vec<String> = (0..=LISTED_MAX).map(|number| format!("{number}")).collect();
    names.iter().for_each(|name| world.write(name, &data));
    world.optimize();
    for name in &names {
        let file = File::options().write(true).open(world.path(name)).unwrap();
        file.write_all_at(b"by hand", 100).unwrap();
    }
    let ear = Arc::new(Ear::default());
    let report = world.optimize_hearing(Arc::clone(&ear) as Arc<dyn Observer>);
    assert_eq!(report.written_below, LISTED_MAX as u64 + 1);
    let told = ear.0.lock().unwrap().iter().filter(|line| line.contains(WRITTEN)).count();
    let written_down = problems(&world.share());
    assert_eq!((told, written_down.len()), (LISTED_MAX + 1, LISTED_MAX + 1));
    assert_eq!(written_down.last().map(String::as_str), Some(MORE));
    let expected = [&data[..100], b"by hand", &data[107..]].concat();
    for name in [&names[0], &names[LISTED_MAX - 1], &names[LISTED_MAX]] {
        world.assert_holds(name, &expected);
    }
}

/// What is written beside a part that is damaged in the store stays where it is, whoever writes.
#[test]
fn what_is_written_below_beside_damage_is_not_taken_out_by_a_write() {
    let memory = MemoryStore::new();
    let Some(world) = World::over(Arc::new(memory.clone())) else { return };
    let data = random_bytes(50, LENGTH);
    world.write("file", &data);
    world.optimize();
    damage_data(&memory, &world);
    write_below(&world.path("file"), 5000, b"by hand");
    let stub = world.stub("file");
    assert!(stub.write_at(4096, b"by a program").is_err());
    assert!(stub.write_at(4096, b"by a program").is_err());
    let mut left = [0; 7];
    stub.file().read_exact_at(&mut left, 5000).unwrap();
    assert_eq!(&left, b"by hand");
}

/// Damages every container that holds data of a share.
fn damage_data(memory: &MemoryStore, world: &World) {
    let repository = world.repository();
    for id in list::container_names(&repository).unwrap() {
        let section = read_section(&repository, id).unwrap();
        if let Some(chunk) = section.chunks.iter().find(|chunk| chunk.length > 5000) {
            let at = section.frames[chunk.frame as usize].offset as usize;
            let key = Key::new(layout::container(id)).unwrap();
            assert!(memory.corrupt(&key, |bytes| bytes[at + 100] ^= 1));
        }
    }
}

/// As whoever restores a damaged file over what is left of it.
#[test]
fn what_is_written_below_is_kept_where_the_store_has_nothing_any_more() {
    let memory = MemoryStore::new();
    let Some(world) = World::over(Arc::new(memory.clone())) else { return };
    let data = random_bytes(48, LENGTH);
    world.write("file", &data);
    world.write("part", &data);
    world.optimize();
    damage_data(&memory, &world);
    write_below(&world.path("file"), 0, &data);
    let (repository, share) = (world.repository(), world.share());
    let job = Job::unattended().0;
    let report = rehydrate(&repository, &share, &options(), &mut || Ok(()), &job).unwrap();
    // Of the other one nothing was written.
    assert_eq!(report.errors, 1, "{report:?}");
    assert!(fs::read(world.path("file")).unwrap() == data);
    assert!(stub::value(File::open(world.path("file")).unwrap()).unwrap().is_none());
}

#[test]
fn what_a_stopped_job_has_left_is_punched_and_what_was_written_into_it_since_is_not() {
    for is_written in [false, true] {
        let Some(world) = World::new() else { return };
        let mut data = random_bytes(44, LENGTH);
        world.write("file", &data);
        world.optimize();
        // As a crash had left it: a stub with all its data, and the name of who was at it.
        let file = File::options().read(true).write(true).open(world.path("file")).unwrap();
        let value = stub::value(&file).unwrap().unwrap();
        let inode = file.metadata().unwrap().ino();
        let (owner, mut half) = stub::open(&world.repository(), inode, &value).unwrap();
        half.are_times_pending = true;
        stub::write(&world.repository(), owner, &file, &half).unwrap();
        file.write_all_at(&data, 0).unwrap();
        drop(file);
        if is_written {
            write_below(&world.path("file"), 70_000, b"by hand");
            data[70_000..70_007].copy_from_slice(b"by hand");
        }
        let share = world.share();
        share.note_emptying(std::iter::once(Path::new("file"))).unwrap();
        emptying::go_on(&world.repository(), &share, &mut |_, error| panic!("{error}")).unwrap();
        let blocks = || world.path("file").metadata().unwrap().blocks();
        assert_eq!(blocks() > 100, is_written);
        std::thread::sleep(Duration::from_millis(100));
        let report = world.optimize();
        assert_eq!(report.written_below, u64::from(is_written));
        std::thread::sleep(Duration::from_millis(100));
        world.optimize();
        assert!(blocks() < 100);
        world.collect();
        world.assert_holds("file", &data);
    }
}

#[test]
fn what_is_written_below_behind_the_jobs_look_is_not_punched() {
    let Some(world) = World::new() else { return };
    let mut data = random_bytes(45, LENGTH);
    world.write("file", &data);
    world.optimize();
    // It came back in part, and is what the manifest says.
    world.stub("file").write_at(0, &data[..12]).unwrap();
    write_below(&world.path("file"), 300_000, b"by hand");
    // The walk has met it as it is now, the look has met it before.
    let (repository, share) = (world.repository(), world.share());
    let tree = Arc::new(TreeReader::open(&repository).unwrap());
    let list = SnapshotList::load(&repository).unwrap();
    let root = list.manifests(share.id).last().unwrap().record.root;
    let top: OwnedFd = File::open(world.directory.path()).unwrap().into();
    let entries = tree.entries(root).unwrap();
    let known = entries.iter().find(|entry| entry.name == b"file").unwrap();
    let stat = rustix::fs::stat(world.path("file")).unwrap();
    let now = attributes::entry_of(known.name.clone(), &stat);
    let stored = Entry { content: known.content, chunks: known.chunks, ..now };
    let left = emptying::prepare(&tree, (&top, &stored.name), &stored, &Interrupt::default())
        .unwrap()
        .err()
        .unwrap();
    assert_eq!((left.why, left.needs_earlier), (Left::Changed, false));
    data[300_000..300_007].copy_from_slice(b"by hand");
    assert_eq!(world.optimize().written_below, 1);
    world.collect();
    world.assert_holds("file", &data);
}

/// Another share of the same store, beside the first one.
fn neighbour(world: &World) -> (tempfile::TempDir, Share) {
    let directory = tempfile::tempdir_in(world.directory.path().parent().unwrap()).unwrap();
    let policy = SharePolicy { age_min_seconds: 0, size_min_bytes: 1, excludes: Vec::new() };
    let share = Share::create(&world.repository(), directory.path(), policy).unwrap();
    (directory, share)
}

fn optimize_it(world: &World, share: &Share, ear: &Arc<Ear>) -> OptimizeReport {
    let observer = Arc::clone(ear) as Arc<dyn Observer>;
    let job = Job { observer, ..Job::unattended().0 };
    optimize(&world.repository(), share, &options(), &job).unwrap()
}

fn manifests(world: &World, share: &Share) -> usize {
    SnapshotList::load(&world.repository()).unwrap().manifests(share.id).count()
}

#[track_caller]
fn assert_stub_holds(world: &World, path: &Path, bytes: &[u8]) {
    let tree = Arc::new(TreeReader::open(&world.repository()).unwrap());
    let stub = StubFile::open(&tree, File::open(path).unwrap()).unwrap().expect("a stub");
    let mut read = vec![0; bytes.len() + 1];
    let length = stub.read_at(0, &mut read).unwrap();
    assert!(read[..length] == *bytes);
}

#[test]
fn a_stub_that_is_moved_into_another_share_below_is_taken_over_there() {
    let Some(world) = World::new() else { return };
    let (directory, other) = neighbour(&world);
    let data = random_bytes(47, LENGTH);
    world.write("moved", &data);
    world.write("stays", &random_bytes(48, LENGTH));
    fs::write(directory.path().join("other"), random_bytes(49, LENGTH)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let ear = Arc::new(Ear::default());
    optimize_it(&world, &other, &ear);
    world.optimize();
    let there = directory.path().join("moved");
    fs::rename(world.path("moved"), &there).unwrap();
    // The first share's job finds it gone, and space is freed, before the other one has a turn.
    assert_eq!(world.optimize().manifests_forgotten, 0);
    assert_eq!(manifests(&world, &world.share()), 2);
    world.collect();
    let report = optimize_it(&world, &other, &ear);
    assert_eq!((report.moved_here, report.errors), (1, 0), "{report:?}");
    let told = std::mem::take(&mut *ear.0.lock().unwrap());
    assert!(told.len() == 1 && told[0].starts_with("/moved: it was moved here"), "{told:?}");
    assert_eq!(problems(&other), told);
    // From now on it is the other one's, and the first one forgets it.
    assert_eq!(world.optimize().manifests_forgotten, 1);
    assert_eq!(manifests(&world, &world.share()), 1);
    world.collect();
    assert_stub_holds(&world, &there, &data);
    assert_eq!(optimize_it(&world, &other, &ear).moved_here, 0);
    assert!(problems(&other).is_empty() && ear.0.lock().unwrap().is_empty());
    world.collect();
    assert_stub_holds(&world, &there, &data);
}

#[test]
fn names_of_a_stub_in_two_shares_or_outside_of_any_are_told() {
    let Some(world) = World::new() else { return };
    let (directory, other) = neighbour(&world);
    let data = random_bytes(50, LENGTH);
    world.write("both", &data);
    world.write("outside", &data);
    world.write("inside", &data);
    world.optimize();
    let outside = tempfile::tempdir_in(world.directory.path().parent().unwrap()).unwrap();
    fs::hard_link(world.path("both"), directory.path().join("linked")).unwrap();
    fs::hard_link(world.path("outside"), outside.path().join("linked")).unwrap();
    fs::hard_link(world.path("inside"), world.path("another")).unwrap();
    let (ear, here) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
    optimize_it(&world, &other, &ear);
    optimize_it(&world, &world.share(), &here);
    let (there, here) = (problems(&other), problems(&world.share()));
    assert!(there.len() == 1 && there[0].starts_with("/linked: it has names in this"), "{there:?}");
    assert_eq!(here.len(), 2, "{here:?}");
    assert!(here[0].starts_with("/both: it has names outside"), "{here:?}");
    assert!(here[1].starts_with("/outside: it has names outside"), "{here:?}");
    // Each of the two keeps its data for itself.
    fs::remove_file(world.path("both")).unwrap();
    for _ in 0..2 {
        world.optimize();
    }
    world.collect();
    assert_stub_holds(&world, &directory.path().join("linked"), &data);
}

#[test]
fn what_is_told_of_a_file_is_over_when_the_file_is_gone() {
    let Some(world) = World::new() else { return };
    world.write("there: not gone", &random_bytes(51, 1000));
    world.write("goes", &random_bytes(52, 1000));
    let share = world.share();
    let lines = ["/goes: is damaged", "/goes/inner: was damaged", "/there: not gone: is damaged"];
    lines.iter().for_each(|line| share.note_problem(line).unwrap());
    // No file of the share, and nothing of a file.
    share.note_problem("/.onefold-share/second-copies: is damaged").unwrap();
    share.note_problem("something else: what it is").unwrap();
    assert_eq!(problems(&share).len(), 4);
    fs::remove_file(world.path("goes")).unwrap();
    let left = problems(&share);
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left.iter().all(|line| !line.starts_with("/goes")), "{left:?}");
    // A job takes it out of what is written down.
    world.optimize();
    world.write("goes", b"a new one");
    let now = problems(&share);
    assert!(now.iter().all(|line| left.contains(line)), "{now:?}");
}

#[test]
fn a_stub_that_was_cut_to_less_than_is_worth_storing_is_no_file_that_changes() {
    let Some(world) = World::new() else { return };
    let data = random_bytes(53, LENGTH);
    world.write("file", &data);
    let mut options = options();
    world.optimize();
    world.stub("file").set_len(1000).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    options.cold = Some(onefold_policy::primary::cold_files::ColdFiles {
        modified_before_ns: i64::MAX,
        size_min_bytes: 4096,
    });
    let job = Job::unattended().0;
    for _ in 0..2 {
        let report = optimize(&world.repository(), &world.share(), &options, &job).unwrap();
        assert_eq!(report.left.get(&Left::Changed), None, "{report:?}");
    }
    world.collect();
    world.assert_holds("file", &data[..1000]);
}
