//! Snapshots of one store in another: the same bytes and metadata whatever the keys and chunks of
//! either, nothing twice, nothing of what is damaged, and nothing written into the first.

use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::copy::{self, CopyOptions, Fate};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::{ExtentWalk, TreeReader};
use onefold_engine::{InitOptions, Repository};
use onefold_format::layout;
use onefold_format::node::{Entry, EntryKind, Reference};
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_store::MemoryStore;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_types::{ErrorKind, SessionId, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn options() -> CopyOptions {
    CopyOptions {
        threads: 2,
        compression: None,
        lookup: LookupChoice::Eager(FilterOrder::CacheFirst),
        reach: None,
        program: "copying".into(),
    }
}

/// A store with two snapshots that have most in common.
fn source(suite: Suite) -> (MemoryStore, Arc<Repository>, [SessionId; 2]) {
    let memory = MemoryStore::recording();
    let repository = create_on(Arc::new(memory.clone()), suite);
    let items = |seed| {
        let mut sparse = random_bytes(7, 100_000);
        sparse.extend(vec![0; 300_000]);
        sparse.extend(random_bytes(8, 50_000));
        vec![
            directory("a", [file("one", 1, 700_000), file("two", seed, 90_000)]),
            directory("b", [directory("c", [Item::File("sparse", sparse)])]),
            file("z", 3, 5_000),
        ]
    };
    let first = save(&repository, &items(2));
    let second = save(&repository, &items(4));
    (memory, repository, [first, second])
}

fn target_with(seed: u64, options: &InitOptions) -> (MemoryStore, Arc<Repository>) {
    let memory = MemoryStore::recording();
    let store = Arc::new(memory.clone());
    let made = Repository::create(store, options, Some(PASSWORD), environment(seed), memory_plan());
    (memory, Arc::new(made.unwrap()))
}

fn copied(
    source: &Arc<Repository>,
    target: &Arc<Repository>,
    snapshots: &[SessionId],
) -> Vec<Fate> {
    let mut fates = Vec::new();
    let each = &mut |_: &_, fate| {
        fates.push(fate);
        Ok(())
    };
    copy::copy((source, target), snapshots, &options(), &job(), each).unwrap();
    fates
}

/// Every path of a tree with its entry, but for names of content, and its bytes.
fn told(repository: &Arc<Repository>, root: Reference) -> Vec<(Vec<u8>, Entry, Vec<u8>)> {
    let reader = TreeReader::open(repository).unwrap();
    let (mut told, mut left) = (Vec::new(), vec![(Vec::new(), root)]);
    while let Some((above, directory)) = left.pop() {
        for entry in reader.entries(directory).unwrap() {
            let path = [above.as_slice(), b"/", &entry.name].concat();
            let mut bytes = Vec::new();
            match (entry.kind, entry.content) {
                (EntryKind::Directory, Some(content)) => left.push((path.clone(), content)),
                (_, Some(content)) => {
                    let mut walk = ExtentWalk::new(Some(content), entry.size).unwrap();
                    while let Some((_, extent)) = walk.next(&reader).unwrap() {
                        match extent.is_hole() {
                            true => bytes.resize(bytes.len() + extent.length as usize, 0),
                            false => bytes.extend_from_slice(
                                &reader.chunks().read(&extent.fingerprint).unwrap(),
                            ),
                        }
                    }
                }
                _ => {}
            }
            let bare = Entry { content: None, chunks: 0, totals: Default::default(), ..entry };
            told.push((path, bare, bytes));
        }
    }
    told.sort_by(|one, other| one.0.cmp(&other.0));
    told
}

fn is_equal(source: &Arc<Repository>, target: &Arc<Repository>, of: SessionId, copy: SessionId) {
    let lists = [source, target].map(|repository| SnapshotList::load(repository).unwrap());
    let (one, other) = (lists[0].get(of).unwrap(), lists[1].get(copy).unwrap());
    let attributes = |record: &onefold_format::record::SnapshotRecord| {
        let (host, user, paths) = (&record.host, &record.user, &record.paths);
        (record.started_ns, host.clone(), user.clone(), paths.clone(), record.tags.clone())
    };
    assert_eq!(attributes(&one.record), attributes(&other.record));
    let original = other.record.original.unwrap();
    assert_eq!((original.store, original.snapshot), (source.store_id(), of));
    assert_eq!(told(source, one.record.root), told(target, other.record.root));
}

#[test]
fn copies_have_the_same_content_whatever_keys_and_chunks_either_store_has() {
    let larger = |suite| init_options(suite).with_chunks_of(4 * CHUNK_BYTES).unwrap();
    let cases = [
        (Suite::None, init_options(Suite::None)),
        (Suite::None, larger(Suite::None)),
        (Suite::None, init_options(Suite::Aes256Gcm)),
        (Suite::Aes256Gcm, init_options(Suite::Aes256Gcm)),
        (Suite::Aes256Gcm, larger(Suite::Aes256Gcm)),
    ];
    for (number, (suite, of_target)) in cases.into_iter().enumerate() {
        let (first, source, ids) = source(suite);
        let (second, target) = target_with(100 + number as u64, &of_target);
        let before = first.operations();
        let fates = copied(&source, &target, &ids);
        for (id, fate) in ids.iter().zip(&fates) {
            let Fate::Copied(copy, _) = fate else { panic!("{number}: {fate:?}") };
            is_equal(&source, &target, *id, *copy);
        }
        assert!(check_all(&target).is_clean(), "{number}");
        assert_eq!(first.operations(), before, "{number}: the first store was written");
        // Of the second one little was read: most is what the first one has.
        let (Fate::Copied(_, one), Fate::Copied(_, two)) = (fates[0], fates[1]) else { panic!() };
        assert!(two.bytes_read * 3 < one.bytes_read, "{number}: {one:?} {two:?}");
        let before = second.operations();
        let again = copied(&source, &target, &ids);
        assert!(again.iter().all(|fate| matches!(fate, Fate::Present(..))), "{again:?}");
        assert_eq!(second.operations(), before, "{number}: something was stored again");
    }
}

/// Stopped while the second container is stored: what has arrived is neither read nor stored again.
#[test]
fn what_arrived_before_a_copy_was_stopped_is_not_read_again() {
    const FILE_BYTES: usize = 16 * limits::MIB;
    let source = create_on(Arc::new(MemoryStore::new()), Suite::None);
    let ids = [save(&source, &[file("large", 1, FILE_BYTES)])];
    let (memory, _) = target_with(200, &init_options(Suite::None));
    let stopped = job();
    let (stop, stored) = (stopped.interrupt.clone(), AtomicU64::new(0));
    let stopping = Faulty::scripted(memory.clone(), move |call| {
        let is_container = call.operation == Operation::Put && call.name.starts_with("containers");
        if is_container && stored.fetch_add(1, Ordering::Relaxed) == 1 {
            stop.request();
        }
        Fault::None
    });
    let target = open_on(Arc::new(stopping), 201).unwrap();
    let result = copy::copy((&source, &target), &ids, &options(), &stopped, &mut |_, _| Ok(()));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Interrupted);
    let target = reopen(&memory, 202);
    assert!(SnapshotList::load(&target).unwrap().snapshots.is_empty());
    let fates = copied(&source, &target, &ids);
    let Fate::Copied(copy, again) = fates[0] else { panic!("{fates:?}") };
    let least = 2 * 400 * limits::KIB as u64;
    assert!(again.bytes_read > 0 && again.bytes_read < FILE_BYTES as u64 - least, "{again:?}");
    assert!(again.summary.bytes_new < FILE_BYTES as u64 - least, "{again:?}");
    is_equal(&source, &target, ids[0], copy);
}

/// One step without data more than may wait for data (`WAITING_MAX`), before data and behind it.
#[test]
fn more_entries_without_data_than_wait_for_data_are_copied() {
    const WAITING_MAX: usize = 1 << 12;
    let (_, source) = create();
    let name = |prefix, number| &*format!("{prefix}{number:05}").leak();
    let empty = |prefix| (0..=WAITING_MAX).map(move |n| Item::File(name(prefix, n), Vec::new()));
    let items: Vec<Item> = empty("a").chain([file("b", 1, 50_000)]).chain(empty("c")).collect();
    let id = save(&source, &items);
    let (_, target) = target_with(400, &init_options(Suite::Aes256Gcm));
    let fates = copied(&source, &target, &[id]);
    let Fate::Copied(copy, _) = fates[0] else { panic!("{fates:?}") };
    is_equal(&source, &target, id, copy);
}

#[test]
fn what_is_damaged_in_the_first_store_is_told_and_not_copied() {
    let (first, source, ids) = source(Suite::Aes256Gcm);
    let (_, target) = target_with(300, &init_options(Suite::Aes256Gcm));
    let containers = containers(&source);
    // Of the data of the newest snapshot: its second file.
    let newest = containers.iter().rev().nth(1).unwrap();
    let damaged = key(layout::container(*newest));
    assert!(first.corrupt(&damaged, |bytes| bytes[200] ^= 1));
    let fresh = reopen(&first, 9);
    let fates = copied(&fresh, &target, &ids);
    assert!(matches!(fates[0], Fate::Copied(..)), "{fates:?}");
    assert!(matches!(fates[1], Fate::Damaged(1, _)), "{fates:?}");
    let list = SnapshotList::load(&target).unwrap();
    assert_eq!(list.snapshots.len(), 1);
    assert!(check_all(&target).is_clean());
}

#[test]
fn a_store_is_not_copied_into_itself() {
    let (first, source, ids) = source(Suite::None);
    let same = open_on(Arc::new(first.clone()), 5).unwrap();
    let result = copy::copy((&source, &same), &ids, &options(), &job(), &mut |_, _| Ok(()));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
}
