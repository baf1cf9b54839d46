//! Shares: chunks that very many files have are kept twice, and one copy makes the other whole.

use crate::ingest::{in_memory, random_bytes, save};
use crate::rewriting::{open_with, plan};
use crate::shares::{World, options};
use crate::steps::paths;
use onefold_engine::check::{self, CheckOptions, ReadData};
use onefold_engine::chunks::ChunkReader;
use onefold_engine::primary::hot_chunks::HOT_FILES_MIN;
use onefold_engine::primary::{scrub, second_copies};
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{Job, MemoryPlan, Observer, Repository};
use onefold_format::layout;
use onefold_format::node::EntryKind;
use onefold_store::layers::{Counting, Fault, Faulty, Operation};
use onefold_store::{Key, MemoryStore, Store};
use onefold_types::{ContainerId, Error, ErrorKind};
use std::fs;
use std::sync::Arc;

/// One chunk, and no map of chunks.
const BYTES: usize = 1000;

fn container_of(repository: &Arc<Repository>, bytes: &[u8]) -> ContainerId {
    let fingerprint = repository.fingerprinter().data(bytes);
    ChunkReader::open(repository).unwrap().locate(&fingerprint).unwrap().container
}

fn scrubbed(world: &World) -> u64 {
    scrub::scrub(&world.repository(), &world.share(), 1.0, &Job::unattended().0).unwrap().damaged
}

#[test]
fn one_damaged_frame_does_not_damage_the_files_of_very_many() {
    let (memory, store) = in_memory();
    let Some(world) = World::over(store) else { return };
    let shared = random_bytes(41, BYTES);
    let others = usize::from(HOT_FILES_MIN) - 1;
    for number in 0..others {
        fs::write(world.path(&format!("{number:03}")), &shared).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let kept = world.optimize().second_copies;
    assert_eq!((kept.chunks, kept.are_new), (0, false), "one file too few");
    world.write("last", &shared);
    let kept = world.optimize().second_copies;
    assert_eq!((kept.chunks, kept.bytes, kept.are_new), (1, BYTES as u64, true));
    // Nothing else is hot when something changes: the copies stay as they are.
    world.write("later", &random_bytes(43, BYTES));
    let kept = world.optimize().second_copies;
    assert_eq!((kept.chunks, kept.are_new), (1, false));
    let repository = world.repository();
    let list = SnapshotList::load(&repository).unwrap();
    assert_eq!(list.second_copies(world.share().id).count(), 1);
    world.collect();

    let damaged = container_of(&world.repository(), &shared);
    let place = Key::new(layout::container(damaged)).unwrap();
    assert!(memory.corrupt(&place, |bytes| bytes[100] ^= 1));
    let repository = world.repository();
    let fingerprint = repository.fingerprinter().data(&shared);
    assert!(TreeReader::open(&repository).unwrap().chunks().read(&fingerprint).is_err());
    // Whoever reads a file does not notice, whoever looks for damage does.
    let mut read = vec![0; BYTES];
    assert!(world.stub("last").read_at(0, &mut read).is_err());
    second_copies::install(&repository).unwrap();
    let last = world.stub_in(&repository, "last");
    assert_eq!((last.read_at(0, &mut read).unwrap(), &read), (BYTES, &shared));
    drop(last);
    assert_eq!(scrubbed(&world), u64::from(HOT_FILES_MIN));
    let all = CheckOptions { read_data: ReadData::All, threads: 1, record_quarantine: true };
    let report = check::check(&world.repository(), all, &Job::unattended().0).unwrap();
    assert_eq!(report.damaged_containers.len(), 1);

    // The job stores again what was missing, out of the copy.
    let report = world.optimize();
    assert_eq!((report.errors, report.backup.summary.errors), (0, 0), "{report:?}");
    assert_ne!(container_of(&world.repository(), &shared), damaged);
    assert_eq!(scrubbed(&world), 0);
    world.collect();
    for name in ["000", "last"] {
        world.assert_holds(name, &shared);
    }
    // With the last of the files go the copies.
    for number in 0..others {
        fs::remove_file(world.path(&format!("{number:03}"))).unwrap();
    }
    assert_eq!(world.optimize().second_copies.chunks, 0);
    let list = SnapshotList::load(&world.repository()).unwrap();
    assert_eq!(list.second_copies(world.share().id).count(), 0);
}

#[test]
fn a_hot_chunk_that_is_lost_already_gets_no_copy_and_stops_nothing() {
    let (memory, store) = in_memory();
    let Some(world) = World::over(store) else { return };
    let (shared, other) = (random_bytes(51, BYTES), random_bytes(52, BYTES));
    for number in 1..HOT_FILES_MIN {
        fs::write(world.path(&format!("{number:03}")), &shared).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    world.optimize();
    let damaged = container_of(&world.repository(), &shared);
    let place = Key::new(layout::container(damaged)).unwrap();
    assert!(memory.corrupt(&place, |bytes| bytes[100] ^= 1));
    // It has become hot, and what is in the store is not what the file has.
    for number in 0..HOT_FILES_MIN {
        fs::write(world.path(&format!("other {number:03}")), &other).unwrap();
    }
    world.write("last", &shared);
    let report = world.optimize_hearing(Arc::new(Deaf));
    assert_eq!(
        (report.second_copies.chunks, report.second_copies.are_new),
        (1, true),
        "{report:?}"
    );
    assert_eq!(report.emptied.files, u64::from(HOT_FILES_MIN));
    assert_eq!(fs::read(world.path("last")).unwrap(), shared);
    world.assert_holds("other 000", &other);
}

#[test]
fn a_file_counts_once_whatever_names_it_has() {
    let Some(world) = World::new() else { return };
    let shared = random_bytes(44, BYTES);
    let files = usize::from(HOT_FILES_MIN);
    for number in 0..files - 1 {
        fs::write(world.path(&format!("{number:03}")), &shared).unwrap();
    }
    for (name, other) in [("000", "000 too"), ("001", "001 too"), ("000", "zzz")] {
        fs::hard_link(world.path(name), world.path(other)).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let report = world.optimize();
    assert_eq!((report.emptied.files, report.second_copies.chunks), (files as u64 - 1, 0));
    world.write("last", &shared);
    assert_eq!(world.optimize().second_copies.chunks, 1);
}

#[test]
fn what_cannot_be_hot_is_read_once_and_what_may_be_twice() {
    let counting = Arc::new(Counting::new(MemoryStore::new()));
    let Some(world) = World::over(Arc::clone(&counting) as Arc<dyn Store>) else { return };
    // Directories that take more than is kept of what was read.
    let tree = tempfile::tempdir().unwrap();
    for number in 0..6000 {
        let directory = tree.path().join(format!("{}", number / 50));
        fs::create_dir_all(&directory).unwrap();
        let name = random_bytes(number, 100);
        let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(directory.join(name), number.to_le_bytes()).unwrap();
    }
    let root = || {
        let id = save(&world.repository(), paths(tree.path())).snapshot.unwrap();
        SnapshotList::load(&world.repository()).unwrap().get(id).unwrap().record.root
    };
    let read = || counting.take().of(layout::CONTAINERS, Operation::GetRange).bytes;
    let opened = || open_with(&world.store, MemoryPlan { frame_cache_bytes: 0, ..plan() });
    let needed = |root| {
        let tree = TreeReader::open(&opened()).unwrap();
        read();
        let mut left = vec![root];
        while let Some(directory) = left.pop() {
            for entry in tree.entries(directory).unwrap() {
                match entry.kind {
                    EntryKind::Directory => left.extend(entry.content),
                    _ => tree.extents(entry.content.unwrap(), entry.size, &mut |_| Ok(())).unwrap(),
                }
            }
        }
        read()
    };
    let keep = |root| {
        let (repository, options) = (opened(), options());
        read();
        let (by, job) = ((&options.backup, "test"), Job::unattended().0);
        second_copies::keep(&repository, &world.share(), &[root], by, &job).unwrap();
        read()
    };
    let cool = root();
    let once = needed(cool);
    assert!(once > 200_000, "{once}");
    assert_eq!(keep(cool), once);
    for number in 0..HOT_FILES_MIN {
        fs::write(tree.path().join(format!("hot {number:03}")), random_bytes(7, BYTES)).unwrap();
    }
    let hot = root();
    keep(hot);
    // The copies are there: all that is read beside is their list.
    let (once, both) = (needed(hot), keep(hot));
    assert!((once / 2 * 3..2 * once + 10_000).contains(&both), "{both}, once {once}");
}

/// A share in which one chunk is hot, and what it holds.
fn with_hot_chunk(seed: u64) -> Option<(MemoryStore, World, Vec<u8>)> {
    let (memory, store) = in_memory();
    let world = World::over(store)?;
    let shared = random_bytes(seed, BYTES);
    for number in 0..HOT_FILES_MIN {
        fs::write(world.path(&format!("{number:03}")), &shared).unwrap();
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(world.optimize().second_copies.chunks, 1);
    Some((memory, world, shared))
}

#[test]
fn damaged_copies_are_noticed_and_made_anew() {
    let Some((memory, world, _)) = with_hot_chunk(61) else { return };
    let repository = world.repository();
    let list = SnapshotList::load(&repository).unwrap();
    let copies = list.second_copies(world.share().id).last().unwrap().record.root;
    let tree = TreeReader::open(&repository).unwrap();
    let file = tree.resolve(copies, b"/.onefold-share/second-copies").unwrap();
    let first = file.content.unwrap().fingerprint;
    let container = ChunkReader::open(&repository).unwrap().locate(&first).unwrap().container;
    let place = Key::new(layout::container(container)).unwrap();
    assert!(memory.corrupt(&place, |bytes| bytes[100] ^= 1));
    assert_eq!(scrubbed(&world), 1);
    assert_eq!(world.share().problems().unwrap().len(), 1);
    world.write("more", b"more");
    let report = world.optimize();
    assert_eq!((report.second_copies.chunks, report.second_copies.are_new), (1, true));
    assert!(world.share().problems().unwrap().is_empty());
    assert_eq!(scrubbed(&world), 0);
}

#[test]
fn what_the_device_does_not_give_is_taken_from_the_copy() {
    let Some((_, mut world, shared)) = with_hot_chunk(62) else { return };
    let bad = layout::container(container_of(&world.repository(), &shared));
    world.store = Arc::new(Faulty::scripted(Arc::clone(&world.store), move |call| {
        match call.name == bad && call.operation != Operation::List {
            true => Fault::Before(ErrorKind::Io),
            false => Fault::None,
        }
    }));
    let repository = world.repository();
    second_copies::install(&repository).unwrap();
    let mut read = vec![0; BYTES];
    assert_eq!(world.stub_in(&repository, "007").read_at(0, &mut read).unwrap(), BYTES);
    assert_eq!(read, shared);
}

/// Hears of what is wrong, which is expected.
pub struct Deaf;

impl Observer for Deaf {
    fn problem(&self, _: &str, _: &Error) {}

    fn item(&self, _: &str, _: &'static str) {}
}
