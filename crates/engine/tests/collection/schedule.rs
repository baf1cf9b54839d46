//! Schedules: which actor makes its next step when, so that a run can be chosen and played again.
//!
//! Every actor works on the store through its own [`Gated`] handle, from which each operation that
//! matters to the protocol waits for the actor's turn. A step is one such operation; between two
//! steps an actor runs freely, alone. Listings may be split, so that half of the names are read
//! in a step of their own: the protocol promises that lists may be read name by name.
//!
//! A crash is an actor all of whose operations fail from some step on. An actor that gets no turn
//! until all others have ended is frozen, and resumes.

use onefold_format::layout;
use onefold_store::layers::Operation;
use onefold_store::{Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::environment::SeededRandomness;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A part of a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// The actor makes so many steps, fewer if it ends.
    Run(usize, usize),
    /// The actor goes on until it is about to do this below this prefix.
    Until(usize, Operation, &'static str),
    /// The actor's operations fail from now on, until it has ended.
    Crash(usize),
    /// The actor goes on to its end.
    End(usize),
}

/// What the actor that has its turn may do.
enum Turn {
    Steps(usize),
    Until(Operation, &'static str),
    Free,
}

struct State {
    segments: VecDeque<Segment>,
    actor: usize,
    turn: Turn,
    ended: Vec<bool>,
    crashed: Vec<bool>,
    steps: Vec<usize>,
    trace: Vec<(usize, Operation, String)>,
    /// Rules of the protocol that were seen to be broken.
    broken: Vec<String>,
}

impl State {
    /// The next segment whose actor has not ended; after the last one the actors end one by one.
    fn next(&mut self) {
        while let Some(segment) = self.segments.pop_front() {
            let (actor, turn) = match segment {
                Segment::Run(actor, steps) => (actor, Turn::Steps(steps)),
                Segment::Until(actor, operation, prefix) => (actor, Turn::Until(operation, prefix)),
                Segment::Crash(actor) | Segment::End(actor) => (actor, Turn::Free),
            };
            if self.ended[actor] {
                continue;
            }
            self.crashed[actor] |= matches!(segment, Segment::Crash(_));
            (self.actor, self.turn) = (actor, turn);
            return;
        }
        if let Some(actor) = self.ended.iter().position(|ended| !ended) {
            (self.actor, self.turn) = (actor, Turn::Free);
        }
    }

    fn take(&mut self, operation: Operation, name: &str) -> bool {
        match &mut self.turn {
            Turn::Steps(0) => false,
            Turn::Steps(left) => {
                *left -= 1;
                true
            }
            Turn::Until(wanted, prefix) => !(*wanted == operation && name.starts_with(*prefix)),
            Turn::Free => true,
        }
    }
}

/// Who has the turn.
pub struct Schedule {
    state: Mutex<State>,
    changed: Condvar,
}

impl Schedule {
    pub fn new(actors: usize, segments: &[Segment]) -> Arc<Self> {
        let mut state = State {
            segments: segments.iter().copied().collect(),
            actor: 0,
            turn: Turn::Free,
            ended: vec![false; actors],
            crashed: vec![false; actors],
            steps: vec![0; actors],
            trace: Vec::new(),
            broken: Vec::new(),
        };
        state.next();
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the actor's turn to make this step.
    pub fn step(&self, actor: usize, operation: Operation, name: &str) -> Result<()> {
        let mut state = self.lock();
        loop {
            if state.crashed[actor] {
                return Err(Error::new(ErrorKind::Io, "this process has crashed"));
            }
            if state.actor == actor {
                if state.take(operation, name) {
                    state.steps[actor] += 1;
                    state.trace.push((actor, operation, name.to_owned()));
                    return Ok(());
                }
                state.next();
                self.changed.notify_all();
                continue;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The actor has ended; the turn goes to another.
    pub fn end(&self, actor: usize) {
        let mut state = self.lock();
        state.ended[actor] = true;
        if state.actor == actor {
            state.next();
        }
        self.changed.notify_all();
    }

    pub fn has_crashed(&self, actor: usize) -> bool {
        self.lock().crashed[actor]
    }

    /// Rules of the protocol that were seen to be broken.
    pub fn broken(&self) -> Vec<String> {
        self.lock().broken.clone()
    }

    /// Steps that each actor made.
    pub fn steps(&self) -> Vec<usize> {
        self.lock().steps.clone()
    }

    /// What happened, for the message of a test that fails.
    pub fn trace(&self) -> String {
        let state = self.lock();
        let mut text = String::new();
        for (actor, operation, name) in &state.trace {
            text += &format!("{actor}: {operation:?} {name}\n");
        }
        text
    }
}

/// What a dishonest store answers.
pub enum Answer {
    /// The truth.
    Honest,
    /// The operation is acknowledged and does nothing.
    Lost,
    /// The operation fails.
    Fails(ErrorKind),
    /// The operation is done on another store: an older state, or one with things hidden.
    By(MemoryStore),
}

/// Answers one actor's operations, given the true store. Canaries are built of these.
pub type Lie = Box<dyn Fn(Operation, &str, &MemoryStore) -> Answer + Send + Sync>;

/// A store as one actor uses it.
pub struct Gated {
    pub store: MemoryStore,
    pub actor: usize,
    pub schedule: Arc<Schedule>,
    pub splits_lists: bool,
    pub lie: Option<Lie>,
}

impl Gated {
    fn wait(&self, operation: Operation, name: &str) -> Result<()> {
        let fixed = name.starts_with("config") || name.starts_with("keys");
        // A container may be read on after it was deleted; that it exists is told by its tail.
        let passes = matches!(operation, Operation::GetRange | Operation::Settle);
        // Packs of metadata sections are copies that prove nothing.
        let is_copy = name.starts_with("metadata/");
        if fixed || passes || is_copy {
            return match self.schedule.has_crashed(self.actor) {
                true => Err(Error::new(ErrorKind::Io, "this process has crashed")),
                false => Ok(()),
            };
        }
        self.schedule.step(self.actor, operation, name)
    }

    fn answer(&self, operation: Operation, name: &str) -> Result<Option<MemoryStore>> {
        self.wait(operation, name)?;
        match self.lie.as_ref().map_or(Answer::Honest, |lie| lie(operation, name, &self.store)) {
            Answer::Honest => Ok(Some(self.store.clone())),
            Answer::Lost => Ok(None),
            Answer::Fails(kind) => Err(Error::new(kind, format!("injected at '{name}'"))),
            Answer::By(other) => Ok(Some(other)),
        }
    }

    fn read<T>(
        &self,
        operation: Operation,
        name: &str,
        read: impl FnOnce(&MemoryStore) -> Result<T>,
    ) -> Result<T> {
        match self.answer(operation, name)? {
            Some(store) => read(&store),
            None => Err(Error::new(ErrorKind::NotFound, format!("'{name}' is hidden"))),
        }
    }

    /// Epochs must not overlap (G1): what comes of it when they do takes luck to see.
    fn watch(&self, key: &Key) {
        let number = key.as_str().strip_prefix("epochs/").and_then(|name| name.parse::<u64>().ok());
        if let Some(number) = number.filter(|number| *number > 1) {
            let before = Key::new(layout::finished(number - 1)).unwrap();
            if self.store.size(&before).is_err() {
                let actor = self.actor;
                let text = format!("actor {actor} planned epoch {number} beside the one before");
                self.schedule.lock().broken.push(text);
            }
        }
    }

    fn listed(&self, operation: Operation, prefix: &str) -> Result<Vec<Listed>> {
        let list = |store: &MemoryStore| {
            let mut all = Vec::new();
            store.list(prefix, &mut |listed| {
                all.push(listed);
                Ok(())
            })?;
            Ok(all)
        };
        let mut first: Vec<Listed> = self.read(operation, prefix, list)?;
        if self.splits_lists && first.len() > 1 {
            let middle = first[first.len() / 2].key.clone();
            first.truncate(first.len() / 2);
            let second = self.read(operation, prefix, list)?;
            first.extend(second.into_iter().filter(|listed| listed.key >= middle));
        }
        Ok(first)
    }
}

impl Blobs for Gated {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        match self.answer(Operation::Put, key.as_str())? {
            Some(store) => store.put(key, bytes),
            None => Ok(()),
        }
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.read(Operation::Get, key.as_str(), |store| store.get(key))
    }
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = |store: &MemoryStore| store.get_range(key, offset, buffer);
        self.read(Operation::GetRange, key.as_str(), read)
    }
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.read(Operation::GetTail, key.as_str(), |store| store.get_tail(key, length_bytes))
    }
    fn size(&self, key: &Key) -> Result<u64> {
        self.read(Operation::Size, key.as_str(), |store| store.size(key))
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.listed(Operation::List, prefix)?.into_iter().try_for_each(each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let listed = self.listed(Operation::ListNames, prefix)?;
        listed.iter().try_for_each(|listed| each(listed.key.as_str()))
    }
    fn delete(&self, key: &Key) -> Result<()> {
        match self.answer(Operation::Delete, key.as_str())? {
            Some(store) => store.delete(key),
            None => Ok(()),
        }
    }
    fn settle(&self, prefix: &str) -> Result<()> {
        self.wait(Operation::Settle, prefix)
    }
}

impl Decisions for Gated {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let answer = self.answer(Operation::Decide, key.as_str())?;
        self.watch(key);
        match answer {
            Some(store) => store.decide(key, value),
            None => Ok(value.to_vec()),
        }
    }
    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.read(Operation::Decided, key.as_str(), |store| store.decided(key))
    }
    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let listed = self.listed(Operation::ListDecided, prefix)?;
        listed.iter().try_for_each(|listed| each(listed.key.as_str()))
    }
}

impl Store for Gated {
    fn describe(&self) -> String {
        format!("the store of actor {}", self.actor)
    }
}

/// A random schedule: one seed is one schedule.
pub fn random_segments(seed: u64, actors: usize) -> Vec<Segment> {
    let randomness = SeededRandomness::new(seed ^ 0x5eed);
    let below = |bound: usize| randomness.below(bound as u64) as usize;
    let mut segments = Vec::new();
    // Few long segments find other things than many short ones.
    let (count, longest) = [(4, 60), (8, 30), (20, 12)][below(3)];
    for _ in 0..count + below(count) {
        segments.push(Segment::Run(below(actors), 1 + below(longest)));
        if below(40) == 0 {
            segments.push(Segment::Crash(below(actors)));
        }
    }
    // Whoever is left ends in any order.
    let mut left: Vec<usize> = (0..actors).collect();
    while !left.is_empty() {
        segments.push(Segment::End(left.swap_remove(below(left.len()))));
    }
    segments
}
