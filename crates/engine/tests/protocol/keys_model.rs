//! Removals and rotations of keys in every order of their steps.
//!
//! Actors run the real code over a store whose operations wait for their turn. All orders are
//! tried: from every state that was reached, each actor makes one step more. As an actor is told by
//! what it did and was answered, a state in which all actors and the store are as in an earlier one
//! needs no second visit. An actor that never gets another turn has crashed, so what holds in every
//! state holds after every crash.
//!
//! Where keys are rotated, somebody opens the store and seals a record in every state, with each
//! password that opens it. Whoever opens it in any state after that must be able to open these
//! records: nothing that somebody could have written is lost with a key. All this is told by what
//! is in the store, so of states that leave the same one is looked at ([`Judge`]).

use crate::keys::{CHEAP, OTHER, open_with, with_two_keys};
use crate::steps::*;
use onefold_crypto::Purpose;
use onefold_engine::Repository;
use onefold_engine::repository::Password;
use onefold_store::{Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::{Error, ErrorKind, KeyId, Result};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

const NEW: &[u8] = b"a new password";

/// How a list is read.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Lists {
    Whole,
    /// Whole, and slots are read in the step in which they are listed: fewer orders.
    WithSlots,
    /// The same, and generations of keys are listed in a step of their own, for rotations.
    WithGenerations,
    /// Names of slots in a first step, those of intents in a second one; slots are read with them.
    SlotsFirst,
    /// The other way round.
    IntentsFirst,
}

/// One run: whose turn it is, and what everybody has done.
///
/// A turn lasts until its actor asks for the next one or ends, so at most one actor runs: what it
/// reads between two steps does not depend on how fast the others are.
struct Turns {
    order: VecDeque<usize>,
    /// Actors that neither wait for a turn nor have ended; all of them before the first turn.
    running: usize,
    histories: Vec<String>,
    stopped: Vec<bool>,
    ended: Vec<bool>,
}

/// The turns of a run, and what tells that they have changed.
type Shared = Arc<(Mutex<Turns>, Condvar)>;

struct Gated {
    store: MemoryStore,
    turns: Shared,
    actor: usize,
    lists: Lists,
    armed: Arc<AtomicBool>,
}

impl Gated {
    /// Waits for the actor's turn and does its step; when the order has ended it never comes.
    fn step<T>(&self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T>
    where
        Result<T>: std::fmt::Debug,
    {
        if !self.armed.load(Ordering::SeqCst) {
            return work();
        }
        let mut turns = self.turns.0.lock().unwrap();
        turns.running -= 1;
        self.turns.1.notify_all();
        loop {
            match turns.order.front() {
                None => {
                    turns.running += 1;
                    turns.stopped[self.actor] = true;
                    return Err(Error::new(ErrorKind::Io, "this process has crashed"));
                }
                Some(actor) if *actor == self.actor && turns.running == 0 => break,
                Some(actor) => {
                    if turns.ended[*actor] {
                        self.turns.1.notify_all();
                        panic!("actor {actor} did not do the same again");
                    }
                    turns = self.turns.1.wait(turns).unwrap();
                }
            }
        }
        turns.order.pop_front();
        turns.running += 1;
        let result = work();
        let answer = match format!("{result:?}") {
            long if long.len() > 300 => format!("{} bytes", long.len()),
            short => short,
        };
        turns.histories[self.actor] += &format!("{what} {answer}\n");
        result
    }

    fn names(&self, part: Option<bool>) -> Result<Vec<String>> {
        self.step("list", || {
            let mut names = Vec::new();
            self.store.list_names("keys", &mut |name| {
                let is_intent = name.contains(".removed.");
                names.extend((part.is_none() || part == Some(is_intent)).then(|| name.to_owned()));
                Ok(())
            })?;
            Ok(names)
        })
    }
}

impl Blobs for Gated {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.step(&format!("put {key}"), || self.store.put(key, bytes))
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        match key.as_str().starts_with("keys") && self.lists == Lists::Whole {
            true => self.step(&format!("get {key}"), || self.store.get(key)),
            false => self.store.get(key),
        }
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
        if prefix != "keys" {
            return self.store.list_names(prefix, each);
        }
        let names = match self.lists {
            Lists::Whole | Lists::WithSlots | Lists::WithGenerations => self.names(None)?,
            split => {
                let intents_first = split == Lists::IntentsFirst;
                let mut names = self.names(Some(intents_first))?;
                names.extend(self.names(Some(!intents_first))?);
                names
            }
        };
        names.iter().try_for_each(|name| each(name))
    }
    fn delete(&self, key: &Key) -> Result<()> {
        self.step(&format!("delete {key}"), || self.store.delete(key))
    }
}

impl Decisions for Gated {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.step(&format!("decide {key}"), || self.store.decide(key, value))
    }
    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.store.decided(key)
    }
    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let list = || {
            let mut names = Vec::new();
            self.store.list_decided(prefix, &mut |name| {
                names.push(name.to_owned());
                Ok(())
            })?;
            Ok(names)
        };
        let names = match self.lists {
            Lists::WithGenerations => self.step(&format!("list {prefix}"), list)?,
            _ => list()?,
        };
        names.iter().try_for_each(|name| each(name))
    }
}

impl Store for Gated {
    fn describe(&self) -> String {
        format!("the store of actor {}", self.actor)
    }
}

type Task = Box<dyn Fn(&Repository) -> Result<()> + Send + Sync>;

/// Somebody with a password who does something.
struct Actor {
    password: &'static [u8],
    task: Task,
    rotates: bool,
}

/// This thread tries keys by itself from now on: each would start a thread for that otherwise, and
/// most of the time of these tests would be the system's. It costs some memory for each thread that
/// is never given back, so those that live for one run do without.
fn try_keys_alone() {
    if rayon::current_thread_index().is_none() {
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
        drop(alone.build().unwrap());
    }
}

/// What a run has left.
struct Left {
    store: MemoryStore,
    histories: Vec<String>,
    /// How each actor ended; `None` if it was stopped before.
    ended: Vec<Option<bool>>,
}

fn run(base: &MemoryStore, actors: &[Actor], order: &[usize], lists: Lists) -> Left {
    let store = base.clone_state();
    let turns = Turns {
        order: order.iter().copied().collect(),
        running: actors.len(),
        histories: vec![String::new(); actors.len()],
        stopped: vec![false; actors.len()],
        ended: vec![false; actors.len()],
    };
    let turns = Arc::new((Mutex::new(turns), Condvar::new()));
    let armed = Arc::new(AtomicBool::new(false));
    let open = |(number, actor): (usize, &Actor)| {
        let (turns, armed) = (Arc::clone(&turns), Arc::clone(&armed));
        let gated = Gated { store: store.clone(), turns, actor: number, lists, armed };
        let password = Password::new(actor.password.to_vec());
        let environment = environment(100 + number as u64);
        Repository::open(Arc::new(gated), || Ok(password), environment, memory_plan()).unwrap()
    };
    let opened: Vec<Repository> = actors.iter().enumerate().map(open).collect();
    armed.store(true, Ordering::SeqCst);
    let (opened_by, all_turns) = (&opened, &turns);
    let results: Vec<bool> = std::thread::scope(|scope| {
        let act = |(number, actor): (usize, &'_ Actor)| {
            let ok = (actor.task)(&opened_by[number]).is_ok();
            let mut turns = all_turns.0.lock().unwrap();
            turns.running -= 1;
            turns.ended[number] = true;
            all_turns.1.notify_all();
            ok
        };
        let running: Vec<_> =
            actors.iter().enumerate().map(|actor| scope.spawn(move || act(actor))).collect();
        running.into_iter().map(|running| running.join().unwrap()).collect()
    });
    drop(opened);
    let turns = turns.0.lock().unwrap();
    let ended = results.iter().zip(&turns.stopped).map(|(ok, stopped)| (!stopped).then_some(*ok));
    Left { store, histories: turns.histories.clone(), ended: ended.collect() }
}

fn passwords_that_open(store: &MemoryStore) -> Vec<&'static [u8]> {
    // Opening may finish a rotation, so each opens a store of its own.
    let opens = |word: &&[u8]| open_with(&store.clone_state(), word, 7).is_ok();
    [PASSWORD, OTHER, NEW].into_iter().filter(opens).collect()
}

fn decided_generations(store: &MemoryStore) -> usize {
    names(store, "generations").len()
}

/// Records that somebody could have sealed.
type Sealed = Vec<Vec<u8>>;

type Objects = BTreeMap<Key, Arc<Vec<u8>>>;

/// What is known of stores that were looked at.
#[derive(Default)]
struct Judge {
    opening: HashMap<Objects, Vec<&'static [u8]>>,
    finished: HashSet<Objects>,
    sealed: HashMap<(Objects, Sealed), Sealed>,
}

impl Judge {
    /// What must hold in every state: somebody can open the store.
    fn verify(&mut self, left: &Left, order: &[usize]) {
        let objects = left.store.objects();
        let passwords = || passwords_that_open(&left.store);
        let opening = self.opening.entry(objects.clone()).or_insert_with(passwords);
        assert!(
            !opening.is_empty(),
            "no key is left after {order:?}:\n{}",
            left.histories.join("--\n")
        );
        if order.len().is_multiple_of(3) && self.finished.insert(objects) {
            opening.iter().for_each(|password| finish(left, password));
        }
    }

    /// What can be sealed in a state, if `earlier` was before.
    fn sealed(&mut self, left: &Left, earlier: &Sealed, order: &[usize]) -> Sealed {
        let before = (left.store.objects(), earlier.clone());
        let seal = || seal_and_open(left, earlier, order);
        self.sealed.entry(before).or_insert_with(seal).clone()
    }
}

/// Opens what was sealed in earlier states with every password, and seals a record with each.
fn seal_and_open(left: &Left, earlier: &Sealed, order: &[usize]) -> Sealed {
    let (purpose, name) = (Purpose::Outcome, [7; 16]);
    let mut sealed = earlier.clone();
    for password in passwords_that_open(&left.store) {
        let copy = left.store.clone_state();
        let before = decided_generations(&copy);
        let repository = open_with(&copy, password, 7).unwrap();
        for record in earlier {
            let opened = repository.vault().open_record(purpose, &name, record);
            assert!(
                opened.is_ok(),
                "a record is lost after {order:?}: {:?}\n{}",
                opened.err(),
                left.histories.join("--\n")
            );
        }
        // Opening that decides is a step of its own, which the states that follow do not know.
        if decided_generations(&copy) == before {
            let randomness = &*repository.environment().randomness;
            let record = repository.vault().seal_record(purpose, &name, b"written", randomness);
            sealed.push(record.unwrap());
        }
    }
    sealed.sort_unstable();
    sealed.dedup();
    sealed
}

/// Whoever can open the store can finish every removal that was stopped, after adding a password if
/// need be.
fn finish(left: &Left, password: &[u8]) {
    let store = left.store.clone_state();
    let repository = open_with(&store, password, 8).unwrap();
    let keys = repository.keys().unwrap();
    let mut going: Vec<KeyId> = repository.key_names().unwrap();
    going.retain(|id| match keys.iter().find(|named| named.id == *id) {
        Some(named) => named.being_removed && !named.current,
        None => true,
    });
    for id in going {
        match repository.remove_key(id) {
            Ok(()) => {}
            // A slot that is gone already, whose intents another removal has cleared away.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => {
                repository.add_key(b"one more", CHEAP, "").unwrap();
                repository.remove_key(id).unwrap();
            }
        }
        assert!(!repository.key_names().unwrap().contains(&id));
        open_with(&store, password, 9).unwrap();
    }
    // And can rotate the keys, whatever a rotation has left.
    let rotation = repository.rotate_keys(password, true).unwrap();
    assert!(rotation.left.is_empty(), "{rotation:?}");
    let repository = open_with(&store, password, 10).unwrap();
    let keys = repository.keys().unwrap();
    assert!(keys.len() == 1 && keys[0].current && !keys[0].has_other_keys, "{keys:?}");
    assert_eq!(passwords_that_open(&store), [password]);
}

/// Tries all orders; returns how the runs ended that went to their end, each once.
fn explore(base: &MemoryStore, actors: &[Actor], lists: Lists) -> BTreeSet<Vec<bool>> {
    explore_with(base, actors, lists, usize::MAX)
}

/// The same with so many switches of turns at most.
fn explore_with(
    base: &MemoryStore,
    actors: &[Actor],
    lists: Lists,
    switches_max: usize,
) -> BTreeSet<Vec<bool>> {
    try_keys_alone();
    let (mut seen, mut ends) = (HashSet::<u64>::new(), BTreeSet::new());
    let mut judge = Judge::default();
    let is_sealed = actors.iter().any(|actor| actor.rotates);
    let mut orders = vec![(Vec::new(), Sealed::new())];
    while let Some((order, sealed)) = orders.pop() {
        let left = run(base, actors, &order, lists);
        // What an actor did and was answered says what is in the store as well.
        let mut hasher = DefaultHasher::new();
        let switches = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
        left.histories.hash(&mut hasher);
        if switches_max < usize::MAX {
            (switches, order.last()).hash(&mut hasher);
        }
        if !seen.insert(hasher.finish()) {
            continue;
        }
        judge.verify(&left, &order);
        let sealed = match is_sealed {
            true => judge.sealed(&left, &sealed, &order),
            false => Sealed::new(),
        };
        for (actor, ended) in left.ended.iter().enumerate() {
            let is_switch = order.last().is_some_and(|last| *last != actor);
            if ended.is_none() && switches + usize::from(is_switch) <= switches_max {
                orders.push(([order.as_slice(), &[actor]].concat(), sealed.clone()));
            }
        }
        ends.extend(left.ended.iter().copied().collect::<Option<Vec<bool>>>());
    }
    assert!(seen.len() > 50, "{} states", seen.len());
    ends
}

fn removes(password: &'static [u8], id: KeyId) -> Actor {
    let task = Box::new(move |repository: &Repository| repository.remove_key(id));
    Actor { password, task, rotates: false }
}

/// Removes every key but the own one, as far as that can be done.
fn removes_others(password: &'static [u8]) -> Actor {
    let task = |repository: &Repository| {
        let own = repository.keys()?.into_iter().find(|named| named.current).map(|it| it.id);
        let names = repository.key_names()?;
        let others = names.into_iter().filter(|id| Some(*id) != own);
        others.map(|id| repository.remove_key(id)).fold(Ok(()), Result::and)
    };
    Actor { password, task: Box::new(task), rotates: false }
}

fn rotates(password: &'static [u8]) -> Actor {
    let task = move |repository: &Repository| repository.rotate_keys(password, true).map(drop);
    Actor { password, task: Box::new(task), rotates: true }
}

fn adds(password: &'static [u8]) -> Actor {
    let task = |repository: &Repository| repository.add_key(NEW, CHEAP, "").map(drop);
    Actor { password, task: Box::new(task), rotates: false }
}

fn changes(password: &'static [u8]) -> Actor {
    let task = |repository: &Repository| repository.change_key(NEW, CHEAP, "").map(drop);
    Actor { password, task: Box::new(task), rotates: false }
}

#[test]
fn r64_two_that_remove_each_others_key_leave_one_in_every_order() {
    let (base, first, second) = with_two_keys();
    for lists in [Lists::Whole, Lists::SlotsFirst, Lists::IntentsFirst] {
        let actors = [removes(PASSWORD, second), removes(OTHER, first)];
        let ends = explore(&base, &actors, lists);
        assert!(!ends.contains(&vec![true, true]), "{lists:?}: {ends:?}");
        assert!(ends.contains(&vec![true, false]) && ends.contains(&vec![false, true]));
    }
}

#[test]
fn r64_two_that_remove_the_same_key_beside_its_owner_leave_one_in_every_order() {
    let (base, first, second) = with_two_keys();
    let actors = [removes(PASSWORD, second), removes(PASSWORD, second), removes(OTHER, first)];
    let ends = explore_with(&base, &actors, Lists::WithSlots, 4);
    assert!(ends.iter().all(|ended| !(ended[2] && (ended[0] || ended[1]))), "{ends:?}");
}

#[test]
fn r64_a_removal_beside_a_change_leaves_a_key_in_every_order() {
    let (base, first, second) = with_two_keys();
    for removal in [removes(PASSWORD, second), removes(OTHER, first)] {
        let ends = explore(&base, &[removal, changes(PASSWORD)], Lists::WithSlots);
        assert!(ends.contains(&vec![true, true]), "{ends:?}");
    }
    let ends = explore(&base, &[changes(PASSWORD), changes(OTHER)], Lists::WithSlots);
    assert!(ends.contains(&vec![true, true]), "{ends:?}");
}

#[test]
fn r90_of_two_rotations_at_once_one_wins_in_every_order() {
    let (base, _, _) = with_two_keys();
    for other in [PASSWORD, OTHER] {
        let actors = [rotates(PASSWORD), rotates(other)];
        let ends = explore_with(&base, &actors, Lists::WithGenerations, 2);
        assert!(!ends.contains(&vec![true, true]), "{ends:?}");
        assert!(ends.contains(&vec![true, false]) && ends.contains(&vec![false, true]), "{ends:?}");
    }
}

#[test]
fn r90_a_rotation_beside_removals_loses_no_key_in_any_order() {
    let (base, first, _) = with_two_keys();
    for other in [removes(OTHER, first), removes_others(OTHER), removes_others(PASSWORD)] {
        let ends = explore_with(&base, &[rotates(PASSWORD), other], Lists::WithGenerations, 2);
        assert!(ends.iter().any(|ended| ended[0]), "{ends:?}");
    }
    // A removal that has looked before the decision, and deletes after it.
    let actors = [rotates(PASSWORD), removes_others(OTHER)];
    explore_with(&base, &actors, Lists::WithSlots, 3);
}

#[test]
fn r90_a_rotation_beside_new_passwords_loses_no_key_in_any_order() {
    let (base, _, _) = with_two_keys();
    for other in [adds(OTHER), changes(PASSWORD), changes(OTHER)] {
        let ends = explore_with(&base, &[rotates(PASSWORD), other], Lists::WithGenerations, 2);
        assert!(ends.iter().any(|ended| ended[0] && !ended[1]), "{ends:?}");
    }
}
