//! What machines have in common beside the runs of a store: it tells sessions of what others store
//! just now, and whatever it says or fails to say nothing rests on it.

use crate::ingest::content_at;
use crate::steps::{backup_options, environment, file, job, memory_plan, open_in, save};
use onefold_crypto::{Purpose, Suite};
use onefold_engine::common_index::{Claim, ClaimOrder, CommonIndex, NewContainer};
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex, JointIndex};
use onefold_engine::ingest::{BackupOptions, Source, backup};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::{Environment, MemoryPlan, Repository};
use onefold_format::{layout, record};
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_store::layers::{Call, Counting, Fault, Faulty, Operation};
use onefold_store::{Key, MemoryStore, Store};
use onefold_types::environment::ManualClock;
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result, SessionId};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const SECOND_NS: i64 = 1_000_000_000;

/// A common index in memory, which counts what it is asked and may be gone.
#[derive(Default)]
struct Common {
    entries: Mutex<BTreeMap<u64, Vec<ContainerId>>>,
    news: Mutex<Vec<NewContainer>>,
    told: Mutex<Vec<NewContainer>>,
    asked_for_news: AtomicU64,
    located: AtomicU64,
    is_gone: AtomicBool,
}

impl Common {
    fn answer<T>(&self, answer: T) -> Result<T> {
        match self.is_gone.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Unavailable, "it is gone")),
            false => Ok(answer),
        }
    }

    fn asked(&self) -> (u64, u64) {
        (self.asked_for_news.load(Ordering::Relaxed), self.located.load(Ordering::Relaxed))
    }
}

impl CommonIndex for Common {
    fn add(&self, container: ContainerId, prefixes: &[u64]) -> Result<()> {
        self.told.lock().unwrap().push((container, prefixes.to_vec()));
        self.answer(())
    }

    fn locate(&self, prefixes: &[u64], found: &mut Vec<Vec<ContainerId>>) -> Result<()> {
        self.located.fetch_add(1, Ordering::Relaxed);
        let entries = self.entries.lock().unwrap();
        found
            .extend(prefixes.iter().map(|prefix| entries.get(prefix).cloned().unwrap_or_default()));
        self.answer(())
    }

    fn news(&self) -> Result<Vec<NewContainer>> {
        self.asked_for_news.fetch_add(1, Ordering::Relaxed);
        self.answer(std::mem::take(&mut *self.news.lock().unwrap()))
    }

    /// Nobody else is there: see `claims.rs`.
    fn claim(&self, by: SessionId, _: &[u64]) -> Result<(ClaimOrder, Vec<Claim>)> {
        self.answer((ClaimOrder(0, by), Vec::new()))
    }

    fn claims(&self) -> Result<Vec<Claim>> {
        self.answer(Vec::new())
    }
}

/// A store with one snapshot, whose clock is told, and an index over both.
struct Beside {
    repository: Arc<Repository>,
    store: Arc<Counting<MemoryStore>>,
    clock: Arc<ManualClock>,
    now_ns: i64,
    common: Arc<Common>,
    index: JointIndex,
    runs: Arc<FingerprintIndex>,
}

fn beside() -> Beside {
    let store = Arc::new(Counting::new(MemoryStore::new()));
    let shared: Arc<dyn Store> = store.clone();
    let made = crate::steps::create_on(Arc::clone(&shared), Suite::Aes256Gcm);
    save(&made, &[file("a", 1, 300_000)]);
    let now_ns = 1_800_000_000 * SECOND_NS;
    let clock = Arc::new(ManualClock::new(now_ns));
    let environment = Environment { clock: clock.clone(), ..environment(2) };
    let memory = MemoryPlan::new(512 << 20).unwrap();
    let repository = open_in(shared, environment, memory).unwrap();
    let runs = FingerprintIndex::shared(&repository).unwrap();
    let common = Arc::new(Common::default());
    let present: Arc<[ContainerId]> = runs.covered().into();
    let index = JointIndex::new(&repository, Arc::clone(&runs), common.clone(), present, None);
    Beside { repository, store, clock, now_ns, common, index, runs }
}

impl Beside {
    fn pass(&mut self, ns: i64) {
        self.now_ns += ns;
        self.clock.set(self.now_ns);
    }

    fn newest(&self, fingerprint: Fingerprint) -> Vec<ContainerId> {
        let mut found = Vec::new();
        self.index.locate_newest(&self.repository, &[fingerprint], &mut found, &mut 0).unwrap();
        assert_eq!(found.len(), 1);
        found.pop().unwrap()
    }

    fn may_hold(&self, fingerprint: Fingerprint) -> bool {
        self.index.may_hold(&self.repository, &fingerprint).unwrap()
    }

    /// A chunk that the runs know.
    fn known(&self) -> (Fingerprint, ContainerId) {
        let container = self.runs.covered()[0];
        let section =
            onefold_engine::container::reader::read_section(&self.repository, container).unwrap();
        (section.chunks[0].fingerprint, container)
    }
}

fn chunk(number: u64) -> Fingerprint {
    let mut bytes = [0xa5; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Fingerprint(bytes)
}

fn container(number: u128) -> ContainerId {
    ContainerId(number.to_le_bytes())
}

#[test]
fn news_are_asked_for_once_a_second_and_found_without_asking_again() {
    let mut beside = beside();
    let (new, stored_in) = (chunk(1), container(1));
    assert!(!beside.may_hold(new));
    assert_eq!(beside.common.asked(), (1, 0));
    beside.common.news.lock().unwrap().push((stored_in, vec![new.prefix()]));
    beside.pass(SECOND_NS - 1);
    assert!(!beside.may_hold(new));
    beside.pass(1);
    assert!(beside.may_hold(new) && !beside.may_hold(chunk(2)));
    assert_eq!(beside.newest(new), [stored_in]);
    assert_eq!(beside.index.locate(&beside.repository, &new, &mut 0).unwrap(), [stored_in]);
    // The common index was asked for news twice, and for no chunk.
    assert_eq!(beside.common.asked(), (2, 0));
}

#[test]
fn chunks_are_looked_up_in_the_common_index_and_pages_read_for_the_rest_only() {
    let beside = beside();
    let (known, stored_in) = beside.known();
    beside.common.entries.lock().unwrap().insert(known.prefix(), vec![stored_in]);
    beside.store.take();
    assert_eq!(beside.newest(known), [stored_in]);
    assert_eq!(beside.store.counts().total(Operation::GetRange).calls, 0, "the runs were asked");
    beside.common.entries.lock().unwrap().clear();
    assert_eq!(beside.newest(known), [stored_in]);
    assert!(beside.store.counts().total(Operation::GetRange).calls > 0);
    // It is asked for the newest only: who wants all instances asks the runs.
    let asked = beside.common.asked();
    assert_eq!(beside.index.locate(&beside.repository, &known, &mut 0).unwrap(), [stored_in]);
    assert_eq!(beside.common.asked(), asked);
}

/// A database remembers containers that collections have deleted; looking into each would cost a
/// request.
#[test]
fn containers_that_are_not_there_do_not_count() {
    let mut beside = beside();
    let (known, stored_in) = beside.known();
    let (gone, fresh) = (container(7), container(8));
    let named = vec![gone, stored_in, fresh];
    beside.common.entries.lock().unwrap().insert(known.prefix(), named);
    assert_eq!(beside.newest(known), [stored_in]);
    beside.common.news.lock().unwrap().push((fresh, vec![9]));
    beside.pass(SECOND_NS);
    let mut newest_first = [stored_in, fresh];
    newest_first.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(beside.newest(known), newest_first);
    beside.common.entries.lock().unwrap().insert(chunk(3).prefix(), vec![gone]);
    assert!(beside.newest(chunk(3)).is_empty());
}

#[test]
fn one_that_fails_is_left_alone_for_a_while_and_the_runs_answer() {
    let mut beside = beside();
    let (known, stored_in) = beside.known();
    beside.common.is_gone.store(true, Ordering::Relaxed);
    beside.common.entries.lock().unwrap().insert(known.prefix(), vec![container(7)]);
    assert_eq!(beside.newest(known), [stored_in]);
    let asked = beside.common.asked();
    beside.pass(59 * SECOND_NS);
    assert_eq!(beside.newest(known), [stored_in]);
    // Neither is it told of anything: each attempt may take as long as a connection.
    beside.index.note_durable(container(5), &[chunk(5)]);
    assert_eq!((beside.common.asked(), beside.common.told.lock().unwrap().len()), (asked, 0));
    beside.common.is_gone.store(false, Ordering::Relaxed);
    beside.pass(SECOND_NS);
    assert!(beside.may_hold(known));
    assert_eq!(beside.common.asked().0, asked.0 + 1);
    beside.index.note_durable(container(5), &[chunk(5)]);
    assert_eq!(beside.common.told.lock().unwrap().len(), 1);
    // What cannot be told is a failure as well.
    beside.common.is_gone.store(true, Ordering::Relaxed);
    beside.index.note_durable(container(6), &[chunk(6)]);
    beside.index.note_durable(container(6), &[chunk(6)]);
    assert_eq!(beside.common.told.lock().unwrap().len(), 2);
}

/// What others store is kept in eight megabytes: 116,508 chunks and containers of 72 bytes each,
/// and not one more: the oldest is forgotten for the newest.
#[test]
fn no_more_is_kept_of_what_others_store_than_there_is_memory_for() {
    let mut beside = beside();
    let many = |from: u64, count: u64| (from..from + count).map(|n| chunk(n).prefix()).collect();
    let kept = 116_508 - 1000 - 2;
    let news = [(container(1), many(0, kept)), (container(2), many(1 << 20, 1000))];
    beside.common.news.lock().unwrap().extend(news);
    beside.pass(SECOND_NS);
    assert!(beside.may_hold(chunk(kept - 1)) && beside.may_hold(chunk((1 << 20) + 999)));
    beside.common.news.lock().unwrap().push((container(3), many(1 << 30, 1)));
    beside.pass(SECOND_NS);
    assert!(beside.may_hold(chunk(1 << 30)) && beside.may_hold(chunk(1 << 20)));
    assert!(!beside.may_hold(chunk(0)) && !beside.may_hold(chunk(kept - 1)));
    // One that does not fit by itself leaves everything as it is.
    beside.common.news.lock().unwrap().push((container(4), many(1 << 40, 116_508)));
    beside.pass(SECOND_NS);
    assert!(beside.may_hold(chunk(1 << 30)) && !beside.may_hold(chunk(1 << 40)));
}

#[test]
fn what_the_runs_know_takes_no_room() {
    let mut beside = beside();
    let (_, covered) = beside.known();
    let many = (0..116_508).map(|n| chunk(n).prefix()).collect();
    beside.common.news.lock().unwrap().extend([(covered, many), (container(2), vec![77])]);
    beside.pass(SECOND_NS);
    assert!(!beside.may_hold(chunk(5)) || beside.newest(chunk(5)).is_empty());
    assert_eq!(beside.common.asked().0, 1);
    // One that is fresh now is no more once a run knows it.
    let source = [file("b", 2, 200_000)];
    save(&beside.repository, &source);
    let new: Vec<ContainerId> = {
        let before = beside.runs.covered();
        beside.index.refresh(&beside.repository).unwrap();
        let after = beside.runs.covered();
        after.into_iter().filter(|id| !before.contains(id)).collect()
    };
    assert!(!new.is_empty());
    beside.common.news.lock().unwrap().push((new[0], (0..116_508).collect()));
    beside.common.news.lock().unwrap().push((container(4), vec![chunk(9).prefix()]));
    beside.pass(SECOND_NS);
    assert!(beside.may_hold(chunk(9)));
    assert_eq!(beside.newest(chunk(9)), [container(4)]);
}

/// What is named may be condemned, and what a collection has copied is in the runs alone.
#[test]
fn what_may_not_be_relied_upon_is_looked_for_in_the_runs() {
    let beside = beside();
    let (known, stored_in) = beside.known();
    let mut found = vec![container(7)];
    beside.index.locate_instead(&beside.repository, &known, &mut found, &mut 0).unwrap();
    assert_eq!(found, [container(7), stored_in]);
    beside.index.locate_instead(&beside.repository, &known, &mut found, &mut 0).unwrap();
    assert_eq!(found.len(), 2);
}

/// Two sessions store the same at the same time: the second finds what the first has told of,
/// although no run knows it.
#[test]
fn a_session_tells_of_each_container_and_believes_no_section_that_it_has_not_read() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let made = crate::steps::create_on(Arc::clone(&store), Suite::Aes256Gcm);
    let common = Arc::new(Common::default());
    let repository = Arc::new(made.with_common_index(common.clone()));
    let bytes = crate::steps::random_bytes(5, 2_000_000);
    let source = || crate::ingest::stream("stream", &bytes);
    // Lies: a chunk that nobody has stored is said to be in a container that is not there.
    common.news.lock().unwrap().push((container(1), (0..1000).collect()));
    backup(&repository, source(), &backup_options(), &job()).unwrap();
    let told = common.told.lock().unwrap().clone();
    let chunks: usize = told.iter().map(|(_, prefixes)| prefixes.len()).sum();
    let all = FingerprintIndex::open(&repository).unwrap();
    let ids: Vec<ContainerId> = {
        let mut ids: Vec<_> = told.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids, all.covered());
    assert_eq!(chunks as u64, all.entries());
}

/// A stream whose second part is another session's, which crashes before it writes a run.
struct Interrupted<F> {
    parts: [Vec<u8>; 2],
    position: usize,
    between: Option<F>,
}

impl<F: FnOnce() + Send> Read for Interrupted<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let first = self.parts[0].len();
        if self.position == first
            && let Some(between) = self.between.take()
        {
            between();
        }
        let part = if self.position < first { 0 } else { 1 };
        let rest = &self.parts[part][self.position - part * first..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.position += count;
        Ok(count)
    }
}

/// What was found through the common index alone is in a run once something rests on it: whoever
/// only reads asks no database, and may write no run.
#[test]
fn what_a_snapshot_rests_on_is_in_a_run_whoever_stored_it() {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let made = crate::steps::create_on(Arc::clone(&store), Suite::Aes256Gcm);
    let common = Arc::new(Common::default());
    drop(made);
    let clock = Arc::new(ManualClock::new(1_800_000_000 * SECOND_NS));
    let environment_of_own = Environment { clock: clock.clone(), ..environment(2) };
    let own = open_in(store, environment_of_own, memory_plan()).unwrap();
    let own = Arc::new(own.with_common_index(common.clone()));
    let shared = crate::steps::random_bytes(5, 3_000_000);
    // The other session's run cannot be put; one of what the first has stored can.
    let has_stored = AtomicBool::new(false);
    let refuses = move |call: &Call<'_>| {
        let is_put = call.operation == Operation::Put;
        if is_put && call.name.starts_with("containers/") {
            has_stored.store(true, Ordering::SeqCst);
        }
        let is_run = is_put && call.name.starts_with("index/");
        let is_own = is_run && has_stored.load(Ordering::SeqCst);
        if is_own { Fault::Before(ErrorKind::Io) } else { Fault::None }
    };
    let failing: Arc<dyn Store> = Arc::new(Faulty::scripted(memory.clone(), refuses));
    let other = open_in(failing, environment(7), memory_plan()).unwrap();
    let other = Arc::new(other.with_common_index(common.clone()));
    let (bytes, told) = (shared.clone(), common.clone());
    let between = move || {
        let source = crate::ingest::stream("theirs", &bytes);
        assert!(backup(&other, source, &backup_options(), &job()).is_err());
        let news = told.told.lock().unwrap().clone();
        assert!(!news.is_empty());
        let mut entries = told.entries.lock().unwrap();
        for (container, prefixes) in &news {
            prefixes.iter().for_each(|prefix| entries.entry(*prefix).or_default().push(*container));
        }
        *told.news.lock().unwrap() = news;
        clock.set(1_800_000_002 * SECOND_NS);
    };
    let first = crate::steps::random_bytes(6, 1_000_000);
    let parts = [first, shared];
    let expected = parts.concat();
    let reader = Interrupted { parts, position: 0, between: Some(between) };
    let source = Source::Stream {
        name: b"ours".to_vec(),
        reader: Box::new(reader),
        finish: Box::new(|| Ok(())),
    };
    let saved = backup(&own, source, &backup_options(), &job()).unwrap();
    let new = saved.summary.bytes_new;
    assert!(new < 2_000_000, "{new} bytes were stored, also what others had");
    // Nobody may write, and nobody is asked.
    let refuses_all = |call: &Call<'_>| match call.operation.is_write() {
        true => Fault::Before(ErrorKind::ReadOnly),
        false => Fault::None,
    };
    let reading: Arc<dyn Store> = Arc::new(Faulty::scripted(memory.clone(), refuses_all));
    let reader = open_in(reading, environment(8), memory_plan()).unwrap();
    let content = content_at(&reader, saved.snapshot.unwrap(), Path::new("ours"));
    assert!(content == expected, "the stream reads back otherwise than it was saved");
}

/// A database remembers where chunks lay, and a collection has copied them elsewhere: what it names
/// is condemned, or damaged as here, and what is in the runs counts.
#[test]
fn a_chunk_whose_named_container_is_out_is_found_in_another_one() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let made = crate::steps::create_on(Arc::clone(&store), Suite::Aes256Gcm);
    let bytes = crate::steps::random_bytes(5, 400_000);
    let save = |repository: &Arc<Repository>, lookup: LookupChoice| {
        let options = BackupOptions { lookup, ..backup_options() };
        let source = crate::ingest::stream("stream", &bytes);
        backup(repository, source, &options, &job()).unwrap().summary.bytes_new
    };
    save(&made, LookupChoice::None);
    let first = FingerprintIndex::open(&made).unwrap().covered();
    assert!(save(&made, LookupChoice::None) >= 400_000);
    let common = Arc::new(Common::default());
    for id in &first {
        let section = onefold_engine::container::reader::read_section(&made, *id).unwrap();
        let mut entries = common.entries.lock().unwrap();
        for chunk in section.chunks {
            entries.insert(chunk.fingerprint.prefix(), vec![*id]);
        }
        // As a check leaves it that has found something.
        let note = record::encode(&record::Damage { time_ns: 1, problem: "tried".into() }).unwrap();
        let randomness = &*made.environment().randomness;
        let sealed = made.vault().seal_record(Purpose::Damage, &id.0, &note, randomness).unwrap();
        made.store().put(&Key::new(layout::damage(*id)).unwrap(), &sealed).unwrap();
    }
    let repository = Arc::new(made.with_common_index(common.clone()));
    let eager = LookupChoice::Eager(FilterOrder::CacheFirst);
    // Directories and records are new; no chunk of the stream is.
    let new = save(&repository, eager);
    assert!(common.asked().1 > 0, "the common index was not asked");
    assert!(new < 100_000, "{new} bytes were stored again");
}
