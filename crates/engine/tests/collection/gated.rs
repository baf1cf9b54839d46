//! A store as one actor sees it: every operation waits for the actor's turn, and may be answered
//! by a lie.
//!
//! Listings may be split, so that half of the names are read in a step of their own: the protocol
//! promises that lists may be read name by name. With a [`Device`], a write is two steps: visible
//! first, durable in the second one. An object that was read before may be read on after it was
//! deleted, or not: stores differ in that. With a [`Network`], requests arrive again later, and
//! answers are lost.

use crate::device::Device;
use crate::network::Network;
use crate::schedule::Schedule;
use crossbeam_channel::Receiver;
use onefold_engine::environment::{Ticker, Ticks};
use onefold_format::layout;
use onefold_store::layers::Operation;
use onefold_store::{Blobs, Decisions, Key, Listed, MemoryStore, Store};
use onefold_types::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

thread_local! {
    /// The renewer that this thread is.
    static RENEWER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The ticks of one actor: its renewer's turns; without a renewer there are none.
pub struct Turns {
    pub schedule: Arc<Schedule>,
    pub renewer: Option<usize>,
}

impl Ticker for Turns {
    fn start(&self) -> Box<dyn Ticks> {
        if let Some(renewer) = self.renewer {
            self.schedule.enter(renewer);
        }
        Box::new(TurnsOfSession { schedule: Arc::clone(&self.schedule), renewer: self.renewer })
    }
}

struct TurnsOfSession {
    schedule: Arc<Schedule>,
    renewer: Option<usize>,
}

impl Ticks for TurnsOfSession {
    fn next(&mut self, stopped: &Receiver<()>) -> bool {
        RENEWER.set(self.renewer);
        self.renewer.is_some_and(|renewer| self.schedule.tick(renewer, stopped))
    }
}

impl Drop for TurnsOfSession {
    fn drop(&mut self) {
        if let Some(renewer) = self.renewer {
            self.schedule.leave(renewer);
        }
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
    /// What lies under the store, if writes are not durable at once.
    pub device: Option<Device>,
    /// What the actor has opened and goes on reading, if its store lets it.
    pub opened: Option<Mutex<BTreeMap<Key, Vec<u8>>>>,
    /// What somebody on the same machine has read before: whoever peeks is given it.
    pub kept: Option<Arc<MemoryStore>>,
    /// Whether reads inside an object are steps.
    pub gates_reads: bool,
    /// What lies between the actor and the store, if it is elsewhere.
    pub network: Option<Network>,
}

impl Gated {
    fn actor(&self) -> usize {
        RENEWER.get().unwrap_or(self.actor)
    }

    fn wait(&self, operation: Operation, name: &str) -> Result<()> {
        let fixed = name.starts_with("config") || name.starts_with("keys");
        // A container may be read on after it was deleted; that it exists is told by its tail.
        let passes = match operation {
            Operation::GetRange => !self.gates_reads,
            // Where everything is durable at once there is nothing to it.
            Operation::Settle => self.device.is_none(),
            _ => false,
        };
        // Packs of metadata sections are copies that prove nothing.
        // So do second copies of decisions: the first is read before.
        let is_copy = name.starts_with("metadata/") || name.starts_with("copies/");
        if fixed || passes || is_copy {
            return self.schedule.pass(self.actor());
        }
        self.schedule.step(self.actor(), operation, name)
    }

    fn answer(&self, operation: Operation, name: &str) -> Result<Option<MemoryStore>> {
        self.wait(operation, name)?;
        // Whoever lies about a decision lies about its copy.
        let (operation, name) = match (operation, name.strip_prefix("copies/")) {
            (Operation::ListNames, Some(first)) => (Operation::ListDecided, first),
            (Operation::Get, Some(first)) => (Operation::Decided, first),
            (operation, Some(first)) => (operation, first),
            (operation, None) => (operation, name),
        };
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

    /// The second half of a write: it is durable when this has returned.
    fn make_durable(&self, key: &Key) -> Result<()> {
        if let Some(device) = &self.device {
            self.wait(Operation::Settle, key.as_str())?;
            device.keep(key);
        }
        Ok(())
    }

    /// Notes that an object is visible and not durable yet.
    fn note_write(&self, key: &Key) {
        if let Some(device) = &self.device {
            device.write(key);
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
                self.schedule.breaks(text);
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
            Some(store) => {
                store.put(key, bytes)?;
                self.note_write(key);
                self.make_durable(key)?;
                self.network.as_ref().map_or(Ok(()), |network| network.put(key, bytes))
            }
            None => Ok(()),
        }
    }
    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.read(Operation::Get, key.as_str(), |store| store.get(key))
    }
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let Some(opened) = &self.opened else {
            let read = |store: &MemoryStore| store.get_range(key, offset, buffer);
            return self.read(Operation::GetRange, key.as_str(), read);
        };
        let bytes = self.read(Operation::GetRange, key.as_str(), |store| store.get(key));
        let mut opened = opened.lock().unwrap();
        if let Ok(bytes) = bytes {
            opened.insert(key.clone(), bytes);
        }
        let handle = MemoryStore::new();
        if let Some(bytes) = opened.get(key) {
            handle.put(key, bytes)?;
        }
        handle.get_range(key, offset, buffer)
    }
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.read(Operation::GetTail, key.as_str(), |store| store.get_tail(key, length_bytes))
    }
    fn peek_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &self.kept {
            Some(kept) if kept.size(key).is_ok() => kept.get_range(key, offset, buffer),
            _ => self.get_range(key, offset, buffer),
        }
    }
    fn glance_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.peek_range(key, offset, buffer)
    }
    fn peek_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        match &self.kept {
            Some(kept) if kept.size(key).is_ok() => kept.get_tail(key, length_bytes),
            _ => self.get_tail(key, length_bytes),
        }
    }
    fn size(&self, key: &Key) -> Result<u64> {
        self.read(Operation::Size, key.as_str(), |store| {
            self.deliver_late(key);
            store.size(key)
        })
    }
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.listed(Operation::List, prefix)?.into_iter().try_for_each(each)
    }
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let listed = self.listed(Operation::ListNames, prefix)?;
        listed.iter().try_for_each(|listed| each(listed.key.as_str()))
    }
    fn delete(&self, key: &Key) -> Result<()> {
        let Some(store) = self.answer(Operation::Delete, key.as_str())? else {
            return Ok(());
        };
        if let (Some(device), Ok(bytes)) = (&self.device, store.get(key)) {
            device.delete(key, bytes);
        }
        store.delete(key)?;
        self.network.as_ref().map_or(Ok(()), |network| network.delete(key))
    }
    fn settle(&self, prefix: &str) -> Result<()> {
        self.wait(Operation::Settle, prefix)?;
        if let Some(device) = &self.device {
            device.settle(prefix);
        }
        Ok(())
    }
}

impl Decisions for Gated {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let answer = self.answer(Operation::Decide, key.as_str())?;
        self.watch(key);
        let Some(store) = answer else {
            return Ok(value.to_vec());
        };
        let is_first = store.size(key).is_err();
        let won = store.decide(key, value)?;
        if is_first {
            self.note_write(key);
        }
        self.make_durable(key)?;
        self.network.as_ref().map_or(Ok(()), |network| network.decide(key, value))?;
        Ok(won)
    }
    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let won = self.read(Operation::Decided, key.as_str(), |store| store.decided(key))?;
        if let (Some(device), true) = (&self.device, won.is_some()) {
            device.keep(key);
        }
        Ok(won)
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
