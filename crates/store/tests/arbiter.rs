//! Decisions by an arbiter, in stores that replace objects.

use onefold_store::arbiter::{INLINE_MAX_BYTES, Incarnation, MemoryArbiter, PROPOSALS, appoint};
use onefold_store::layers::{Call, Fault, Faulty, Operation};
use onefold_store::{
    Arbiter, Arbitrated, Blobs, DecidedBy, Decisions, Key, Listed, MemoryStore, Store, conformance,
};
use onefold_types::{ErrorKind, Result, StoreId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, RwLock};
use std::thread;

const STORE: StoreId = StoreId([7; 16]);

/// A store that replaces objects and says that all is well, as some servers do: at any moment the
/// old one is there or the new one.
#[derive(Clone, Default)]
struct Replacing(MemoryStore, Arc<RwLock<()>>);

impl Blobs for Replacing {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let _alone = self.1.write();
        self.0.delete(key)?;
        self.0.put(key, bytes)
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        let _whole = self.1.read();
        self.0.get(key)
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.get_range(key, offset, buffer)
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.0.get_tail(key, length_bytes)
    }

    fn size(&self, key: &Key) -> Result<u64> {
        self.0.size(key)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.0.list(prefix, each)
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.0.list_names(prefix, each)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.0.delete(key)
    }
}

impl Decisions for Replacing {
    fn decide(&self, _: &Key, _: &[u8]) -> Result<Vec<u8>> {
        unreachable!("nobody asks it to decide")
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let _whole = self.1.read();
        self.0.decided(key)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.0.list_decided(prefix, each)
    }
}

impl Store for Replacing {
    fn describe(&self) -> String {
        "a store that replaces".into()
    }
}

/// A store that its arbiter knows by this number, as if it had been made with it.
fn opened<S: Store>(store: S, arbiter: &Arc<MemoryArbiter>) -> Arbitrated<S> {
    let arbitrated = Arbitrated::new(store, Arc::clone(arbiter) as _);
    arbitrated.open_as(STORE, false).unwrap();
    arbitrated
}

const INCARNATION: Incarnation = [3; 16];

fn arbiter() -> Arc<MemoryArbiter> {
    let arbiter = Arc::new(MemoryArbiter::default());
    arbiter.register(STORE, &INCARNATION).unwrap();
    arbiter
}

fn memory() -> MemoryStore {
    let memory = MemoryStore::new();
    memory.put(&key("arbiters/1"), &INCARNATION).unwrap();
    memory
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn names(store: &dyn Blobs, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut push = |name: &str| {
        names.push(name.to_owned());
        Ok(())
    };
    store.list_names(prefix, &mut push).unwrap();
    names
}

#[test]
fn with_an_arbiter_it_is_a_store() {
    conformance::run(&|| {
        let memory = memory();
        let store = opened(memory.clone(), &arbiter());
        // The suite expects to find nothing.
        memory.delete(&key("arbiters/1")).unwrap();
        Box::new(store)
    })
    .unwrap();
}

/// Short values are given to the arbiter, long ones by name; the longest of the former and the
/// shortest of the latter are among them.
#[test]
fn of_several_that_decide_one_wins_whatever_the_store_replaces() {
    let (store, arbiter) = (Replacing(memory(), Arc::default()), arbiter());
    for length in [1, 40, INLINE_MAX_BYTES, INLINE_MAX_BYTES + 1] {
        for round in 0..20 {
            let name = key(&format!("outcomes/{length}-{round}"));
            let (barrier, told) = (Barrier::new(8), Mutex::new(BTreeSet::new()));
            thread::scope(|scope| {
                for writer in 0..8_u8 {
                    let (store, arbiter, name) = (store.clone(), &arbiter, &name);
                    let (barrier, told) = (&barrier, &told);
                    scope.spawn(move || {
                        let store = opened(store, arbiter);
                        barrier.wait();
                        let won = store.decide(name, &vec![writer; length]).unwrap();
                        assert_eq!(won.len(), length);
                        told.lock().unwrap().insert(won);
                    });
                }
            });
            let told = told.into_inner().unwrap();
            assert_eq!(told.len(), 1, "{name} was decided twice");
            assert_eq!(store.decided(&name).unwrap(), told.first().cloned());
            // Of long values the one that won stays.
            let kept = names(&store, PROPOSALS).len();
            assert_eq!(kept, if length > INLINE_MAX_BYTES { round + 1 } else { 0 }, "{length}");
        }
    }
}

#[test]
fn who_loses_between_arbiter_and_store_is_finished_by_whoever_comes_next() {
    for length in [10, INLINE_MAX_BYTES + 1] {
        let (memory, arbiter, name) = (memory(), arbiter(), key("outcomes/a"));
        let (own, other) = (vec![1; length], vec![2; length]);
        // The put of what won fails: the first of a short value, the second of a long one.
        let nth = if length > INLINE_MAX_BYTES { 2 } else { 1 };
        let puts = AtomicUsize::new(0);
        let faulty = Faulty::scripted(memory.clone(), move |call: &Call<'_>| {
            let is_it =
                call.operation == Operation::Put && puts.fetch_add(1, Ordering::SeqCst) + 1 == nth;
            if is_it { Fault::Before(ErrorKind::Unavailable) } else { Fault::None }
        });
        let failing = opened(faulty, &arbiter);
        assert_eq!(failing.decide(&name, &own).unwrap_err().kind(), ErrorKind::Unavailable);
        // Nobody was told, and nothing is there; the next one finds out who had won.
        let store = opened(memory.clone(), &arbiter);
        assert_eq!(store.decided(&name).unwrap(), None);
        assert_eq!(store.decide(&name, &other).unwrap(), own);
        assert_eq!(store.decided(&name).unwrap(), Some(own));
    }
}

#[test]
fn an_arbiter_that_lost_everything_changes_nothing_that_was_told() {
    let memory = memory();
    let name = key("outcomes/a");
    assert_eq!(opened(memory.clone(), &arbiter()).decide(&name, b"first").unwrap(), b"first");
    let empty = arbiter();
    assert_eq!(opened(memory.clone(), &empty).decide(&name, b"second").unwrap(), b"first");
    let unknown = Arbitrated::new(memory, Arc::new(MemoryArbiter::default()) as _);
    assert_eq!(unknown.open_as(STORE, false).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(unknown.decide(&key("outcomes/b"), b"x").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(unknown.decided_by(), DecidedBy::Database);
}

/// An arbiter whose answers are scripted.
struct Saying(Vec<u8>);

impl Arbiter for Saying {
    fn open(&self, _: StoreId, _: &Incarnation) -> Result<()> {
        Ok(())
    }

    fn register(&self, _: StoreId, _: &Incarnation) -> Result<()> {
        Ok(())
    }

    fn decide(&self, _: StoreId, _: &Key, _: &[u8]) -> Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn describe(&self) -> String {
        "an arbiter that lies".into()
    }
}

#[test]
fn answers_that_mean_nothing_are_refused_and_put_nowhere() {
    let long = vec![0; INLINE_MAX_BYTES + 2];
    let names: [&[u8]; 3] = [b"\x01containers/a", b"\x01proposals/../x", b"\x01\xff"];
    let answers = [&b""[..], b"\x02x", b"\x01", &long].into_iter().chain(names);
    for answer in answers {
        let memory = memory();
        let store = Arbitrated::new(memory.clone(), Arc::new(Saying(answer.to_vec())) as _);
        store.open_as(STORE, false).unwrap();
        let error = store.decide(&key("outcomes/a"), b"own").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert_eq!(self::names(&memory, ""), ["arbiters/1"]);
    }
}

/// An arbiter beside which somebody puts what was never decided.
struct Beside(MemoryStore);

impl Arbiter for Beside {
    fn open(&self, _: StoreId, _: &Incarnation) -> Result<()> {
        Ok(())
    }

    fn register(&self, _: StoreId, _: &Incarnation) -> Result<()> {
        Ok(())
    }

    fn decide(&self, _: StoreId, name: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.0.put(name, b"put by another one")?;
        Ok(value.to_vec())
    }

    fn describe(&self) -> String {
        "an arbiter".into()
    }
}

/// Whoever asks the arbiter is told, and nothing is replaced.
#[test]
fn a_second_mechanism_is_noticed() {
    let memory = memory();
    let store = Arbitrated::new(memory.clone(), Arc::new(Beside(memory.clone())) as _);
    store.open_as(STORE, false).unwrap();
    let error = store.decide(&key("outcomes/a"), b"own").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains("stop all processes"), "{error}");
    assert_eq!(memory.get(&key("outcomes/a")).unwrap(), b"put by another one");
}

/// What was put is lost, a long value too: whoever decides it again is told the same.
#[test]
fn what_is_lost_after_it_was_decided_is_decided_again_as_the_same() {
    for length in [10, INLINE_MAX_BYTES + 1] {
        let (memory, arbiter, name) = (memory(), arbiter(), key("sweeps/1"));
        let own = vec![1; length];
        assert_eq!(opened(memory.clone(), &arbiter).decide(&name, &own).unwrap(), own);
        memory.delete(&name).unwrap();
        let store = opened(memory.clone(), &arbiter);
        assert_eq!(store.decide(&name, &vec![2; length]).unwrap(), own, "{length}");
        assert_eq!(memory.get(&name).unwrap(), own);
    }
}

/// One that was replaced has not forgotten the store: a machine that still names it is refused.
#[test]
fn one_arbiter_decides_at_a_time() {
    let memory = MemoryStore::new();
    let (first, second) = (Arc::new(MemoryArbiter::default()), Arc::new(MemoryArbiter::default()));
    let made = Arbitrated::new(memory.clone(), Arc::clone(&first) as _);
    made.open_as(STORE, true).unwrap();
    opened(memory.clone(), &first).decide(&key("outcomes/a"), b"a").unwrap();
    let other = Arbitrated::new(memory.clone(), Arc::clone(&second) as _);
    assert_eq!(other.open_as(STORE, false).unwrap_err().kind(), ErrorKind::Invalid);
    for (number, appointed, replaced) in (2..12).map(|number| match number % 2 {
        0 => (number, &second, &first),
        _ => (number, &first, &second),
    }) {
        appoint(&memory, &**appointed, STORE).unwrap();
        opened(memory.clone(), appointed);
        let old = Arbitrated::new(memory.clone(), Arc::clone(replaced) as _);
        assert_eq!(old.open_as(STORE, false).unwrap_err().kind(), ErrorKind::Invalid, "{number}");
    }
    memory.delete(&key("arbiters/11")).unwrap();
    memory.put(&key("arbiters/12"), b"short").unwrap();
    let unknown = Arbitrated::new(memory.clone(), first as _);
    let error = unknown.open_as(STORE, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("database register"), "{error}");
}

/// What a store acknowledges and does not keep is not relied upon: a lost proposal that has won
/// could never be put, and without a number nobody is known to decide.
#[test]
fn what_decisions_rest_on_is_read_back() {
    let loses = |below: &'static str| {
        move |call: &Call<'_>| match call.operation {
            Operation::Put if call.name.starts_with(below) => Fault::Lose,
            _ => Fault::None,
        }
    };
    let (memory, arbiter) = (memory(), arbiter());
    let losing = opened(Faulty::scripted(memory.clone(), loses(PROPOSALS)), &arbiter);
    let long = vec![1; INLINE_MAX_BYTES + 1];
    assert!(losing.decide(&key("sweeps/1"), &long).is_err());
    let other = vec![2; INLINE_MAX_BYTES + 1];
    assert_eq!(opened(memory.clone(), &arbiter).decide(&key("sweeps/1"), &other).unwrap(), other);
    let losing = Faulty::scripted(memory.clone(), loses("arbiters/"));
    let error = appoint(&losing, &MemoryArbiter::default(), STORE).unwrap_err();
    assert!(error.to_string().contains("at the same time"), "{error}");
}
