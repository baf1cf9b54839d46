//! What is nobody's damage: two collections at once, requests that somebody on the way repeats, a
//! configuration of which one copy has rotten.

use crate::ingest::{content_at, create, in_memory, open, options, random_bytes, save, stream};
use crate::rewriting::unkeyed;
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_engine::check::{self, CheckOptions, CheckReport, ReadData};
use onefold_engine::collection::{CollectOptions, SpaceGoal, collect};
use onefold_engine::repository::Password;
use onefold_engine::{InitOptions, Job, Repository, retention};
use onefold_format::configuration::Configuration;
use onefold_format::layout;
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{Blobs, Key, MemoryStore, Store};
use onefold_types::{ErrorKind, Result, SessionId};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CHUNK_BYTES: usize = 4096;
const NAME: &str = "stream";

fn everything() -> CollectOptions {
    CollectOptions { goal: SpaceGoal::Everything, grace: Duration::ZERO, ..Default::default() }
}

fn small_containers() -> InitOptions {
    let chunker = ChunkerParameters::with_average(ChunkerKind::Fixed, CHUNK_BYTES).unwrap();
    InitOptions { chunker, container_size_bytes: 64 * 1024, ..options() }
}

fn checked(repository: &Arc<Repository>) -> CheckReport {
    let options = CheckOptions { read_data: ReadData::All, threads: 2, record_quarantine: false };
    check::check(repository, options, &Job::unattended().0).unwrap()
}

/// Snapshots of a stream, of which every other chunk is another one each time.
fn snapshots(store: &Arc<dyn Store>, count: usize) -> (Vec<SessionId>, Vec<u8>) {
    let repository = open(store);
    let mut bytes = random_bytes(1, 200 * CHUNK_BYTES);
    let mut ids = Vec::new();
    for version in 0..count {
        for (at, chunk) in bytes.chunks_mut(CHUNK_BYTES).enumerate() {
            if at % 2 == version % 2 {
                chunk.copy_from_slice(&random_bytes((version * 1000 + at) as u64, CHUNK_BYTES));
            }
        }
        ids.push(save(&repository, stream(NAME, &bytes)).snapshot.unwrap());
    }
    (ids, bytes)
}

/// While the first collection copies, another one forgets more and collects everything.
#[test]
fn r114_the_slower_of_two_collections_reports_no_damage_of_a_sound_store() {
    let (memory, store) = in_memory();
    create(&store, &small_containers());
    let (ids, bytes) = snapshots(&store, 5);
    retention::forget_final(&open(&store), &[ids[0], ids[2]], "test").unwrap();
    let (overtaken, faster) = (Arc::new(AtomicBool::new(false)), open(&store));
    let is_first = Arc::clone(&overtaken);
    let more = [ids[1], ids[3]];
    let slower = Faulty::scripted(memory, move |call| {
        let copies = call.operation == Operation::Put && call.name.starts_with("containers/");
        if copies && !is_first.swap(true, Ordering::SeqCst) {
            retention::forget_final(&faster, &more, "test").unwrap();
            let report = collect(&faster, &everything(), &Job::unattended().0).unwrap();
            assert!(report.deleted_containers > 0 && report.kept.is_empty(), "{report:?}");
        }
        Fault::None
    });
    let slower: Arc<dyn Store> = Arc::new(slower);
    let report = collect(&open(&slower), &everything(), &Job::unattended().0).unwrap();
    assert!(overtaken.load(Ordering::SeqCst));
    assert!(report.kept.is_empty(), "{:?}", report.kept);
    let repository = open(&store);
    assert!(checked(&repository).is_clean());
    assert!(content_at(&repository, ids[4], Path::new(NAME)) == bytes);
}

/// Somebody on the way sends each request to put something twice, and passes the second answer on.
#[test]
fn r115_what_is_put_twice_on_the_way_counts_as_stored() {
    let (memory, store) = in_memory();
    let repeating: Arc<dyn Store> =
        Arc::new(Faulty::scripted(memory, |call| match call.operation == Operation::Put {
            true => Fault::After(ErrorKind::AlreadyExists),
            false => Fault::None,
        }));
    create(&repeating, &small_containers());
    let (ids, bytes) = snapshots(&repeating, 3);
    retention::forget(&open(&repeating), &ids[..1], "test").unwrap();
    retention::forget_final(&open(&repeating), &ids[..2], "test").unwrap();
    let collected = collect(&open(&repeating), &everything(), &Job::unattended().0).unwrap();
    assert!(collected.deleted_containers > 0, "{collected:?}");
    let repository = open(&store);
    assert!(checked(&repository).is_clean());
    assert!(content_at(&repository, ids[2], Path::new(NAME)) == bytes);
}

/// What is there under a fresh name and is something else is no success.
#[test]
fn r115_other_bytes_under_a_fresh_name_are_refused() {
    let store = MemoryStore::new();
    let key = Key::new("metadata/x").unwrap();
    store.put_fresh(&key, b"own").unwrap();
    store.put_fresh(&key, b"own").unwrap();
    let refused = store.put_fresh(&key, b"other").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
}

fn replace(store: &MemoryStore, name: &str, bytes: &[u8]) {
    let key = Key::new(name).unwrap();
    assert!(store.remove(&key));
    store.put(&key, bytes).unwrap();
}

/// Each bit of either copy flipped: a name in it, a number, or what makes it JSON.
#[test]
fn r115_a_configuration_with_any_bit_flipped_opens_by_its_copy() {
    for (how, step) in [(small_containers(), 7), (unkeyed(), 1)] {
        let (memory, store) = in_memory();
        create(&store, &how);
        let written = memory.get(&Key::new(layout::CONFIGURATION).unwrap()).unwrap();
        let configuration = Configuration::decode(&written).unwrap();
        for name in [layout::CONFIGURATION, layout::CONFIGURATION_COPY] {
            for bit in (0..written.len() * 8).step_by(step) {
                let mut flipped = written.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                // A choice that there is cannot be told from the one that was made without a key.
                let is_another = Configuration::decode(&flipped)
                    .is_ok_and(|read| read != configuration && configuration.encryption == "none");
                replace(&memory, name, &flipped);
                let opened = open(&store);
                assert!(is_another || *opened.configuration() == configuration, "{name} {bit}");
            }
            replace(&memory, name, &written);
        }
    }
}

/// A store of a newer build says so in both copies.
#[test]
fn r115_a_store_is_newer_if_both_copies_say_so() {
    let (memory, store) = in_memory();
    create(&store, &unkeyed());
    let written = memory.get(&Key::new(layout::CONFIGURATION).unwrap()).unwrap();
    let text = String::from_utf8(written).unwrap();
    let kind_of = |first: &str, second: &str| {
        replace(&memory, layout::CONFIGURATION, first.as_bytes());
        replace(&memory, layout::CONFIGURATION_COPY, second.as_bytes());
        let password = || -> Result<Password> { panic!("nobody is asked") };
        let (environment, plan) = (onefold_engine::Environment::system(), crate::ingest::memory());
        Repository::open(Arc::clone(&store), password, environment, plan).err().unwrap().kind()
    };
    let (one, other) = (text.replace("mincdc", "newcdc"), text.replace("blake3", "blake9"));
    assert_eq!(kind_of(&one, &one), ErrorKind::NewerFormat);
    assert_eq!(kind_of(&one, &other), ErrorKind::Damaged);
}
