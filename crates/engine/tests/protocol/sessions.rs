//! Sessions and epochs: what a writer may rely on, and who decides.

use crate::steps::*;
use onefold_crypto::Purpose;
use onefold_engine::Repository;
use onefold_engine::collection::settle;
use onefold_engine::container::reader;
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex};
use onefold_engine::session::epoch::{self, Epoch, Newest};
use onefold_engine::session::outcome;
use onefold_engine::session::{Commit, SnapshotList, WriterSession, tombstones};
use onefold_format::layout;
use onefold_format::record::{self, Outcome};
use onefold_store::layers::{Call, Counting, Fault, Faulty, Operation};
use onefold_store::{Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::{ContainerId, ErrorKind, PlanId, Result, SessionId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn what_a_commit_relies_on_is_settled_shard_by_shard_or_as_a_whole() {
    // DIRECTORIES_APART_MAX in session/writer.rs, and one more.
    for (shards, settled) in [(0, 0), (64, 64), (65, 1)] {
        let (memory, _) = create();
        let counting = Arc::new(Counting::new(memory));
        let repository = open_on(Arc::clone(&counting) as Arc<dyn Store>, 7).unwrap();
        let session = WriterSession::begin(&repository).unwrap();
        let root = put_tree(&repository, &session, &[file("f", 1, 1000)]);
        let found_in: BTreeSet<ContainerId> =
            (0..=u8::MAX).map(|number| ContainerId([number; 16])).take(shards).collect();
        let directories: BTreeSet<String> =
            found_in.iter().map(|id| layout::container_directory(*id)).collect();
        assert_eq!(directories.len(), shards);
        let record = record_of(&repository, root.reference);
        counting.take();
        saved(session.commit_relying_on(record, &found_in).unwrap());
        let count = counting.counts().of("containers", Operation::Settle);
        assert_eq!(count.calls, settled, "{shards} shards");
    }
}

/// Decides an epoch that condemns containers, as a collector does in G2 and G3.
fn open_epoch(
    repository: &Repository,
    number: u64,
    condemned: impl IntoIterator<Item = ContainerId>,
) -> PlanId {
    let randomness = &*repository.environment().randomness;
    let id = PlanId::random(randomness);
    let plan =
        record::Plan { condemned: condemned.into_iter().collect(), ..record::Plan::default() };
    let seal = |name: &[u8; 16], bytes: Vec<u8>| {
        let vault = repository.vault();
        vault.seal_record(Purpose::Plan, name, &bytes, randomness).unwrap()
    };
    let sealed = seal(&id.0, record::encode(&plan).unwrap());
    repository.store().put(&key(layout::plan(id)), &sealed).unwrap();
    let epoch = record::encode(&record::Epoch { plan: id }).unwrap();
    let sealed = seal(&epoch::epoch_name(number), epoch);
    let won = repository.store().decide(&key(layout::epoch(number)), &sealed).unwrap();
    assert_eq!(won, sealed, "another plan won");
    id
}

/// Deletes what was condemned and declares the epoch finished (G6 and G8).
fn finish_epoch(repository: &Repository, number: u64, condemned: &BTreeSet<ContainerId>) {
    for id in condemned {
        repository.store().delete(&key(layout::container(*id))).unwrap();
    }
    epoch::finish(repository, number).unwrap();
}

/// Fences a session, as a collector does in G4; returns whether it won.
fn fence(repository: &Repository, id: SessionId) -> bool {
    let bytes = record::encode(&Outcome::Fenced).unwrap();
    let randomness = &*repository.environment().randomness;
    let sealed =
        repository.vault().seal_record(Purpose::Outcome, &id.0, &bytes, randomness).unwrap();
    let won = repository.store().decide(&key(layout::outcome(id)), &sealed).unwrap();
    won == sealed
}

/// The containers that hold some chunk of a tree's data, as the containers themselves say.
fn holders(repository: &Arc<Repository>, bytes: &[u8]) -> BTreeSet<ContainerId> {
    let wanted: BTreeSet<_> =
        bytes.chunks(CHUNK_BYTES).map(|chunk| repository.fingerprinter().data(chunk)).collect();
    let holds = |id: &ContainerId| {
        let section = reader::read_section(repository, *id).unwrap();
        section.chunks.iter().any(|chunk| wanted.contains(&chunk.fingerprint))
    };
    containers(repository).into_iter().filter(holds).collect()
}

#[test]
fn before_the_first_collection_nothing_is_avoided() {
    let (_, repository) = create();
    assert_eq!(epoch::read_newest(&repository).unwrap(), Epoch::default());
    assert!(WriterSession::begin(&repository).unwrap().avoid().is_empty());
}

#[test]
fn r10_a_session_in_an_open_epoch_stores_condemned_chunks_again() {
    let (memory, repository) = create();
    let bytes = random_bytes(1, 200_000);
    save(&repository, &[Item::File("f", bytes.clone())]);
    let condemned = containers(&repository);
    open_epoch(&repository, 1, condemned.iter().copied());

    let other = reopen(&memory, 2);
    let session = WriterSession::begin(&other).unwrap();
    assert_eq!(*session.avoid(), condemned);
    let root = put_tree(&other, &session, &[Item::File("f", bytes.clone())]);
    let second = saved(commit(&other, session, root.reference));
    let holders = holders(&other, &bytes);
    assert!(!holders.is_subset(&condemned), "the chunks were stored again");

    // The epoch ends; what was committed meanwhile is whole without what was condemned.
    finish_epoch(&repository, 1, &condemned);
    let first = SnapshotList::load(&repository).unwrap().snapshots[0].id;
    tombstones::forget(&repository, first, "me", "").unwrap();
    let report = check_all(&reopen(&memory, 3));
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(root_of(&repository, second), root.reference);
}

#[test]
fn r9_whoever_loses_an_epoch_drops_its_plan() {
    let (memory, repository) = create();
    save(&repository, &[file("f", 1, 20_000)]);
    let plan = |condemned: Vec<ContainerId>| record::Plan {
        condemned,
        tombstones: Vec::new(),
        outcomes: Vec::new(),
        changes: Vec::new(),
        unused_bytes: 0,
        stored_bytes: 0,
    };
    let all: Vec<ContainerId> = containers(&repository).into_iter().collect();
    let won = epoch::publish(&repository, 1, plan(all[..1].to_vec()), &[]).unwrap().unwrap();
    // Another process looked at the same time, and would condemn more.
    let other = reopen(&memory, 2);
    assert_eq!(epoch::publish(&other, 1, plan(all), &[]).unwrap(), None);
    assert_eq!(epoch::plan_names(&other).unwrap(), [won.plan_id]);
    let Newest::Open(decided) = epoch::newest(&other).unwrap() else { panic!("it is open") };
    assert_eq!(decided, won);
}

#[test]
fn r8_an_old_session_is_waited_for_and_then_fenced() {
    let (memory, repository) = create();
    let old = WriterSession::begin(&repository).unwrap();
    open_epoch(&repository, 1, []);
    let mut young = WriterSession::begin(&repository).unwrap();
    young.declare_ready().unwrap();
    // One that ends in time need not be fenced.
    let settling = reopen(&memory, 2);
    let settled = std::thread::scope(|scope| {
        let settle = || settle::settle(&settling, 1, Duration::from_secs(60), &job()).unwrap();
        let waiting = scope.spawn(settle);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished(), "a session is old and has not ended");
        let root = put_tree(&repository, &old, &[file("f", 1, 1000)]);
        saved(commit(&repository, old, root.reference));
        waiting.join().unwrap()
    });
    assert_eq!((settled.old, settled.fenced), (1, 0));
    // One that does not end is fenced and cannot commit; the young one can.
    finish_epoch(&repository, 1, &BTreeSet::new());
    open_epoch(&repository, 2, []);
    let older = young;
    let mut young = WriterSession::begin(&repository).unwrap();
    young.declare_ready().unwrap();
    let settled = settle::settle(&settling, 2, Duration::ZERO, &job()).unwrap();
    assert_eq!((settled.old, settled.fenced), (1, 1));
    let root = put_tree(&repository, &older, &[file("f", 2, 1000)]);
    let fenced = older.commit(record_of(&repository, root.reference)).unwrap();
    assert!(matches!(fenced, Commit::Fenced), "{fenced:?}");
    let root = put_tree(&repository, &young, &[file("f", 3, 1000)]);
    saved(commit(&repository, young, root.reference));
}

#[test]
fn r12_after_a_finished_epoch_only_containers_that_exist_count() {
    let (memory, repository) = create();
    let bytes = random_bytes(1, 200_000);
    let first = save(&repository, &[Item::File("f", bytes.clone())]);
    tombstones::forget(&repository, first, "me", "").unwrap();
    let condemned = containers(&repository);
    open_epoch(&repository, 1, condemned.iter().copied());
    finish_epoch(&repository, 1, &condemned);
    // The collector stopped before G7: the index still names the containers.
    let fingerprint = repository.fingerprinter().data(&bytes[..CHUNK_BYTES]);
    let index = FingerprintIndex::open(&repository).unwrap();
    let named = index.locate(&repository, &fingerprint, &mut 0).unwrap();
    assert_eq!(named.len(), 1);

    let other = reopen(&memory, 2);
    let session = WriterSession::begin(&other).unwrap();
    assert!(session.avoid().is_empty(), "the epoch is over");
    let root = put_tree(&other, &session, &[Item::File("f", bytes.clone())]);
    saved(commit(&other, session, root.reference));
    assert!(holders(&other, &bytes).is_disjoint(&condemned));
    let report = check_all(&other);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.notes.len(), 2, "stale index and pack entries: {:?}", report.notes);
}

#[test]
fn r1_a_parent_forgotten_between_listing_and_check_is_not_trusted() {
    let (_, repository) = create();
    let parent = save(&repository, &[file("f", 1, 10)]);
    let listed = SnapshotList::load(&repository).unwrap();
    assert!(listed.get(parent).is_some());
    tombstones::forget(&repository, parent, "me", "").unwrap();
    let session = WriterSession::begin(&repository).unwrap();
    assert!(!session.check_parent(parent).unwrap());

    // Neither is a session that never committed, or was fenced.
    assert!(!session.check_parent(SessionId([9; 16])).unwrap());
    let other = WriterSession::begin(&repository).unwrap();
    assert!(!session.check_parent(other.id()).unwrap());
    assert!(fence(&repository, other.id()));
    assert!(!session.check_parent(other.id()).unwrap());
    let live = save(&repository, &[file("f", 1, 10)]);
    assert!(session.check_parent(live).unwrap());
}

#[test]
fn r7_an_outcome_is_decided_once() {
    let (memory, repository) = create();
    // The collector is first: the writer learns that it was fenced.
    let session = WriterSession::begin(&repository).unwrap();
    let root = put_tree(&repository, &session, &[file("f", 1, 10)]);
    let id = session.id();
    assert!(fence(&repository, id));
    assert_eq!(commit(&repository, session, root.reference), Commit::Fenced);
    assert!(SnapshotList::load(&repository).unwrap().get(id).is_none());
    let outcome = outcome::read_outcome(&repository, id).unwrap();
    assert_eq!(outcome, Some(Outcome::Fenced));

    // The writer is first: the collector learns that it committed.
    let session = WriterSession::begin(&repository).unwrap();
    let id = session.id();
    assert_eq!(commit(&repository, session, root.reference), Commit::Saved(id));
    assert!(!fence(&repository, id));
    assert!(SnapshotList::load(&repository).unwrap().get(id).is_some());

    // At once: exactly one wins, and both agree which.
    for seed in 10..40 {
        let (writer, collector) = (reopen(&memory, seed), reopen(&memory, seed + 100));
        let session = WriterSession::begin(&writer).unwrap();
        let id = session.id();
        let (committed, fenced) = std::thread::scope(|scope| {
            let fenced = scope.spawn(move || fence(&collector, id));
            let committed = commit(&writer, session, root.reference);
            (committed, fenced.join().unwrap())
        });
        assert_eq!(committed == Commit::Fenced, fenced);
        let is_snapshot = SnapshotList::load(&repository).unwrap().get(id).is_some();
        assert_eq!(is_snapshot, !fenced);
    }
}

#[test]
fn session_objects_go_once_the_outcome_is_decided() {
    let (memory, repository) = create();
    let session = WriterSession::begin(&repository).unwrap();
    assert_eq!(names(&memory, "sessions").len(), 1, "announced");
    let root = put_tree(&repository, &session, &[file("f", 1, 10)]);
    let record = record_of(&repository, root.reference);
    let before = memory.operations();
    session.commit(record).unwrap();
    assert!(names(&memory, "sessions").is_empty());
    // Ready comes before the outcome, and nothing is removed before it is decided.
    let at = |n: usize| memory.state_after(before + n);
    assert_eq!((names(&at(1), "sessions").len(), names(&at(1), "outcomes").len()), (2, 0));
    assert_eq!((names(&at(2), "sessions").len(), names(&at(2), "outcomes").len()), (2, 1));

    let session = WriterSession::begin(&repository).unwrap();
    let id = session.id();
    session.abandon();
    assert!(names(&memory, "sessions").is_empty());
    let outcome = outcome::read_outcome(&repository, id).unwrap();
    assert_eq!(outcome, Some(Outcome::Fenced));
}

/// A store in which something happens just before a plan is read.
struct BeforePlan {
    store: MemoryStore,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Blobs for BeforePlan {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.store.put(key, bytes)
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        if key.top() == layout::PLANS
            && let Some(act) = self.act.lock().unwrap().take()
        {
            act();
        }
        self.store.get(key)
    }
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.store.get_range(key, offset, buffer)
    }
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.store.get_tail(key, length_bytes)
    }
    fn size(&self, key: &Key) -> Result<u64> {
        self.store.size(key)
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.store.list(prefix, each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_names(prefix, each)
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.store.delete(key)
    }
}

impl Decisions for BeforePlan {
    onefold_store::pass_decisions_on!(this => this.store);
}

impl Store for BeforePlan {
    fn describe(&self) -> String {
        "a store with a fast collector".to_owned()
    }
}

#[test]
fn a_vanished_plan_means_that_the_epoch_is_read_again() {
    let (memory, repository) = create();
    let [first, second] = [ContainerId([1; 16]), ContainerId([2; 16])];
    let plan = open_epoch(&repository, 1, [first]);
    // Between reading epoch 1 and its plan, epoch 1 ends, epoch 2 begins, and the plan is removed.
    let collector = Arc::clone(&repository);
    let act = move || {
        finish_epoch(&collector, 1, &BTreeSet::new());
        open_epoch(&collector, 2, [second]);
        collector.store().delete(&key(layout::plan(plan))).unwrap();
    };
    let store = BeforePlan { store: memory.clone(), act: Mutex::new(Some(Box::new(act))) };
    let writer = open_on(Arc::new(store), 2).unwrap();
    let expected = Epoch { number: 2, avoid: BTreeSet::from([second]) };
    assert_eq!(epoch::read_newest(&writer).unwrap(), expected);
}

#[test]
fn r54_a_forged_epoch_condemns_nothing_and_stops_nobody() {
    let (memory, repository) = create();
    memory.decide(&key(layout::epoch(1)), &[5; 60]).unwrap();
    let session = WriterSession::begin(&repository).unwrap();
    assert!(session.avoid().is_empty());
    assert_eq!(epoch::decided_sweep(&repository, 1).unwrap(), Some(Vec::new()));
    assert_eq!(epoch::newest(&repository).unwrap(), epoch::Newest::Finished(1));
    // Not an epoch: another spelling of a number, and none at all.
    for name in ["epochs/007", "epochs/x"] {
        memory.decide(&key(name), &[5; 60]).unwrap();
    }
    assert_eq!(epoch::newest_number(&repository).unwrap(), 1);
}

#[test]
fn r24_a_session_that_lost_a_container_cannot_commit() {
    let memory = MemoryStore::new();
    let full = |call: &Call<'_>| match call.operation {
        Operation::Put if call.name.starts_with("containers/") => Fault::Before(ErrorKind::NoSpace),
        _ => Fault::None,
    };
    let faulty = Arc::new(Faulty::scripted(memory.clone(), full));
    let repository = create_on(Arc::clone(&faulty) as _, onefold_crypto::Suite::Aes256Gcm);
    let session = WriterSession::begin(&repository).unwrap();
    let store = chunk_store(&repository, &session);
    let mut stream = store.stream().unwrap();
    put_directory(&repository, &mut stream, &[file("f", 1, 100_000)]);
    let finished = stream.finish().and_then(|_| store.finish().map(|_| ()));
    assert_eq!(finished.unwrap_err().kind(), ErrorKind::NoSpace);
    assert!(names(&memory, "index").is_empty(), "nothing is indexed that is not durable");
}

#[test]
fn r75_nobody_believes_a_planted_end_of_an_epoch() {
    let memory = MemoryStore::new();
    let repository = create_on(Arc::new(memory.clone()), onefold_crypto::Suite::Aes256Gcm);
    // Somebody else's: nothing, and what is authentic in another place.
    memory.put(&key(layout::finished(1)), &[]).unwrap();
    memory.put(&key(layout::finished(2)), &[7; 40]).unwrap();
    let condemned = ContainerId([5; 16]);
    for number in [1, 2] {
        open_epoch(&repository, number, [condemned]);
        assert_eq!(epoch::read_newest(&repository).unwrap().avoid, BTreeSet::from([condemned]));
        assert!(matches!(epoch::newest(&repository).unwrap(), Newest::Open(_)));
        epoch::finish(&repository, number).unwrap();
        assert!(epoch::is_finished(&repository, number).unwrap());
        assert!(epoch::read_newest(&repository).unwrap().avoid.is_empty());
        let sealed = memory.get(&key(layout::finished(number))).unwrap();
        let next = key(layout::finished(number + 1));
        let _ = memory.delete(&next);
        memory.put(&next, &sealed).unwrap();
        assert!(!epoch::is_finished(&repository, number + 1).unwrap(), "it is another's");
        epoch::finish(&repository, number).unwrap();
    }
}
