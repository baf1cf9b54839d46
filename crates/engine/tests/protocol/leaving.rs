//! Leaving condemned containers (W8): a session may go on if everything that it found in them is
//! found elsewhere, in containers that exist and are not its own.

use crate::steps::*;
use onefold_crypto::Suite;
use onefold_engine::Repository;
use onefold_engine::chunk_store::{ChunkStore, ChunkStoreOptions, RewriteOptions};
use onefold_engine::container::reader;
use onefold_engine::index::FingerprintIndex;
use onefold_format::layout;
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_policy::lookup::{LazyParameters, LookupStrategy};
use onefold_store::layers::{Fault, Faulty, Operation};
use onefold_store::{MemoryStore, Store};
use onefold_types::{ContainerId, ErrorKind, Fingerprint};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Chunks that a session remembers by name.
const NAMED_MAX: usize = 1 << 16;

fn chunk(repository: &Repository, seed: u64) -> (Fingerprint, Vec<u8>) {
    let bytes = random_bytes(seed, 5000);
    (repository.fingerprinter().data(&bytes), bytes)
}

fn store() -> (MemoryStore, Arc<Repository>) {
    let memory = MemoryStore::new();
    let repository = create_on(Arc::new(memory.clone()), Suite::None);
    (memory, repository)
}

fn opened(repository: &Arc<Repository>) -> Arc<ChunkStore> {
    chunk_store_avoiding(repository, BTreeSet::new())
}

/// Stores chunks in a container of their own, as another session does that knows of no other.
fn put_anew(repository: &Arc<Repository>, seeds: &[u64]) -> ContainerId {
    let before = containers(repository);
    let store = chunk_store_avoiding(repository, before.clone());
    put_through(repository, &store, seeds);
    let after = containers(repository);
    let mut new = after.difference(&before);
    let id = *new.next().unwrap();
    assert_eq!(new.next(), None);
    id
}

fn put_through(repository: &Repository, store: &Arc<ChunkStore>, seeds: &[u64]) {
    let mut stream = store.stream().unwrap();
    for seed in seeds {
        let (fingerprint, bytes) = chunk(repository, *seed);
        put_chunk(&mut stream, fingerprint, &bytes);
    }
    stream.finish().unwrap();
    store.finish().unwrap();
}

fn has(repository: &Repository, store: &ChunkStore, seed: u64) -> bool {
    store.is_present(&chunk(repository, seed).0).unwrap()
}

fn leaves(store: &ChunkStore, condemned: &[ContainerId]) -> bool {
    store.leave(&condemned.iter().copied().collect()).unwrap()
}

#[test]
fn w8_a_chunk_that_is_nowhere_else_keeps_a_session_where_it_is() {
    let (_, repository) = store();
    let only = put_anew(&repository, &[1, 2]);
    let session = opened(&repository);
    assert!(has(&repository, &session, 1));
    assert!(!leaves(&session, &[only]));
    // Nothing has changed by that.
    assert!(has(&repository, &session, 1) && has(&repository, &session, 2));
}

#[test]
fn w8_what_a_stream_has_found_counts_as_well() {
    let (_, repository) = store();
    let only = put_anew(&repository, &[1, 2]);
    let session = opened(&repository);
    put_through(&repository, &session, &[2]);
    assert_eq!(session.totals().chunks_new, 0);
    assert!(!leaves(&session, &[only]));
}

#[test]
fn w8_copies_are_relied_upon_instead() {
    let (memory, repository) = store();
    let condemned = put_anew(&repository, &[1, 2]);
    let session = opened(&repository);
    assert!(has(&repository, &session, 1));
    put_anew(&repository, &[1]);
    assert!(leaves(&session, &[condemned]));
    memory.remove(&key(layout::container(condemned)));
    assert!(has(&repository, &session, 1));
    // What was not relied upon is not there any more.
    assert!(!has(&repository, &session, 2));
}

#[test]
fn w8_every_chunk_must_be_elsewhere() {
    let (_, repository) = store();
    let condemned = put_anew(&repository, &[1, 2]);
    let session = opened(&repository);
    assert!(has(&repository, &session, 1) && has(&repository, &session, 2));
    put_anew(&repository, &[1]);
    assert!(!leaves(&session, &[condemned]));
    put_anew(&repository, &[2]);
    assert!(leaves(&session, &[condemned]));
}

#[test]
fn w8_elsewhere_is_neither_condemned_nor_gone() {
    let (memory, repository) = store();
    let condemned = put_anew(&repository, &[1]);
    let session = opened(&repository);
    assert!(has(&repository, &session, 1));
    let other = put_anew(&repository, &[1]);
    assert!(!leaves(&session, &[condemned, other]));
    // The index goes on naming it.
    memory.remove(&key(layout::container(other)));
    assert!(!leaves(&session, &[condemned]));
}

#[test]
fn w8_a_session_cannot_leave_what_it_stored_itself() {
    let (_, repository) = store();
    let session = opened(&repository);
    put_through(&repository, &session, &[1]);
    let own: Vec<_> = containers(&repository).into_iter().collect();
    put_anew(&repository, &[1]);
    assert!(!leaves(&session, &own));
}

#[test]
fn w8_containers_that_were_not_met_are_avoided_from_now_on() {
    let (_, repository) = store();
    let condemned = put_anew(&repository, &[1]);
    let session = opened(&repository);
    assert!(leaves(&session, &[condemned]));
    assert!(!has(&repository, &session, 1));
}

#[test]
fn w8_more_than_is_remembered_cannot_be_left() {
    let (_, repository) = store();
    let condemned = put_anew(&repository, &[1]);
    let session = opened(&repository);
    let (fingerprint, _) = chunk(&repository, 1);
    for _ in 0..=NAMED_MAX {
        assert!(session.is_present(&fingerprint).unwrap());
    }
    put_anew(&repository, &[1]);
    assert!(!leaves(&session, &[condemned]));
}

/// Puts chunk 1 into one container, and what differs from it in a byte into another one, as a
/// difference; returns the containers and the name of the other chunk.
fn put_a_delta(repository: &Arc<Repository>) -> ([ContainerId; 2], Fingerprint) {
    let (containers, name, _) = put_a_delta_in_a_session(repository);
    (containers, name)
}

/// The same, with the session that made the difference.
fn put_a_delta_in_a_session(
    repository: &Arc<Repository>,
) -> ([ContainerId; 2], Fingerprint, Arc<ChunkStore>) {
    put_through(repository, &chunk_store_with_deltas(repository), &[1]);
    let before = containers(repository);
    let session = chunk_store_with_deltas(repository);
    assert!(has(repository, &session, 1), "what was met is taken for a base");
    let (_, mut bytes) = chunk(repository, 1);
    bytes[2500] ^= 1;
    let name = repository.fingerprinter().data(&bytes);
    let mut stream = session.stream().unwrap();
    put_chunk(&mut stream, name, &bytes);
    stream.finish().unwrap();
    session.finish().unwrap();
    let after = containers(repository);
    let delta = *after.difference(&before).next().unwrap();
    assert_eq!(reader::read_section(repository, delta).unwrap().deltas.len(), 1);
    ([*before.first().unwrap(), delta], name, session)
}

#[test]
fn w8_what_a_delta_rests_on_is_not_forgotten_by_asking() {
    let (_, repository) = store();
    let ([base, _], name) = put_a_delta(&repository);
    let session = opened(&repository);
    assert!(session.is_present(&name).unwrap());
    // Whoever renews the session asks again and again.
    for _ in 0..3 {
        assert!(!leaves(&session, &[base]), "the delta cannot be made without it");
    }
    assert!(session.is_present(&name).unwrap());
    assert!(session.found_in().contains(&base));
    put_anew(&repository, &[1]);
    assert!(leaves(&session, &[base]));
    assert!(!session.found_in().contains(&base));
}

#[test]
fn w8_what_own_differences_are_made_of_is_stored_again_to_leave_it() {
    let (memory, repository) = store();
    let ([base, _], name, session) = put_a_delta_in_a_session(&repository);
    let before = containers(&repository);
    assert!(session.found_in().contains(&base));
    assert!(leaves(&session, &[base]), "whatever has become of the base elsewhere");
    assert!(!session.found_in().contains(&base));
    let after = containers(&repository);
    let own: Vec<_> = after.difference(&before).collect();
    let section = reader::read_section(&repository, *own[0]).unwrap();
    assert_eq!((own.len(), section.chunks.len(), section.deltas.len()), (1, 1, 0));
    session.expect_whole().unwrap();
    memory.remove(&key(layout::container(base)));
    let repository = reopen(&memory, 9);
    let reader = onefold_engine::chunks::ChunkReader::open(&repository).unwrap();
    let (_, mut bytes) = chunk(&repository, 1);
    bytes[2500] ^= 1;
    assert_eq!(*reader.read(&name).unwrap(), *bytes);
}

#[test]
fn w8_a_device_that_fails_meanwhile_leaves_all_as_it_was() {
    let (memory, repository) = store();
    let condemned = put_anew(&repository, &[1, 2]);
    drop(repository);
    let fails = Arc::new(AtomicBool::new(false));
    let is_failing = Arc::clone(&fails);
    let script = move |call: &onefold_store::layers::Call<'_>| {
        let is_index = call.name.starts_with(layout::INDEX);
        match is_index
            && call.operation == Operation::GetRange
            && is_failing.load(Ordering::Relaxed)
        {
            true => Fault::Before(ErrorKind::Io),
            false => Fault::None,
        }
    };
    let device: Arc<dyn Store> = Arc::new(Faulty::scripted(memory, script));
    let repository = open_on(device, 2).unwrap();
    let session = opened(&repository);
    assert!(has(&repository, &session, 1));
    fails.store(true, Ordering::Relaxed);
    let error = session.leave(&BTreeSet::from([condemned])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    fails.store(false, Ordering::Relaxed);
    assert!(!leaves(&session, &[condemned]), "it is nowhere else");
    assert!(has(&repository, &session, 1));
}

/// A session that looks chunks up late, or stores old duplicates again, late as well.
fn waiting(repository: &Arc<Repository>, lookup: &str, rewrite: &str) -> Arc<ChunkStore> {
    let options = ChunkStoreOptions {
        lookup: match lookup {
            "lazy" => LookupStrategy::Lazy(LazyParameters::default()),
            _ => LookupStrategy::Eager(FilterOrder::CacheFirst),
        },
        rewrite: RewriteOptions { choice: rewrite.parse().unwrap(), ..RewriteOptions::default() },
        ..chunk_store_options(repository)
    };
    let index = FingerprintIndex::open(repository).unwrap();
    ChunkStore::open(repository, Arc::new(index), BTreeSet::new(), options).unwrap()
}

#[test]
fn sx_4_what_waits_for_a_verdict_is_stored_anew_if_its_container_is_condemned_meanwhile() {
    for is_condemned in [false, true] {
        let (memory, repository) = store();
        let old = put_anew(&repository, &[1, 2]);
        let session = waiting(&repository, "lazy", "none");
        let mut stream = session.stream().unwrap();
        let (fingerprint, bytes) = chunk(&repository, 1);
        put_chunk(&mut stream, fingerprint, &bytes);
        // It waits, so nothing is relied upon.
        if is_condemned {
            assert!(leaves(&session, &[old]));
        }
        stream.finish().unwrap();
        session.finish().unwrap();
        if is_condemned {
            memory.remove(&key(layout::container(old)));
        }
        assert_eq!(session.totals().chunks_new, u64::from(is_condemned));
        assert!(has(&repository, &session, 1));
        // The verdict came late, and counts as any other.
        assert_eq!(leaves(&session, &[old]), is_condemned);
    }
}

#[test]
fn sx_4_a_duplicate_that_is_undecided_keeps_a_session_where_it_is() {
    let (_, repository) = store();
    let old = put_anew(&repository, &[1, 2]);
    let session = waiting(&repository, "eager", "window,loss=20");
    let mut stream = session.stream().unwrap();
    let (fingerprint, bytes) = chunk(&repository, 1);
    put_chunk(&mut stream, fingerprint, &bytes);
    assert!(!leaves(&session, &[old]), "it may be decided that it stays where it is");
    // The same once it is elsewhere as well.
    put_anew(&repository, &[1]);
    assert!(leaves(&session, &[old]));
    stream.finish().unwrap();
    session.finish().unwrap();
    assert!(has(&repository, &session, 1));
}
