//! A store in memory: for tests, simulations and models of the store itself.
//!
//! A clone is another handle to the same store. Whatever is visible is durable, so the states a
//! power loss can leave are the states between two operations: [`MemoryStore::recording`] keeps a
//! log of the operations that changed something, and [`MemoryStore::state_after`] rebuilds the
//! store as it was after the first n of them.
//!
//! Concurrency: one lock; every operation is atomic. The lock is never held while a caller's
//! closure runs.

use crate::{Blobs, Decisions, Key, Listed, OBJECT_MAX_BYTES, Store, key};
use onefold_types::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Names handed to a listing at once, so that the lock is not held while they are shown.
const LIST_BATCH: usize = 1024;

#[derive(Clone)]
enum Change {
    Write(Key, Arc<Vec<u8>>),
    Delete(Key),
}

#[derive(Clone, Default)]
struct State {
    objects: BTreeMap<Key, Arc<Vec<u8>>>,
    log: Option<Vec<Change>>,
}

impl State {
    fn write(&mut self, key: &Key, bytes: &[u8]) -> Result<()> {
        if bytes.len() > OBJECT_MAX_BYTES {
            let message = format!("'{key}' of {} bytes exceeds the largest object", bytes.len());
            return Err(Error::new(ErrorKind::LimitExceeded, message));
        }
        let directory = format!("{key}/");
        let below = self.objects.range::<str, _>((Bound::Excluded(&*directory), Bound::Unbounded));
        let is_directory = below.take(1).any(|(k, _)| k.as_str().starts_with(&directory));
        if self.objects.contains_key(key) || is_directory {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("'{key}' exists")));
        }
        let mut above = key.split().0;
        while !above.is_empty() {
            if self.objects.contains_key(above) {
                let message = format!("'{key}': '{above}' is an object, not a directory");
                return Err(Error::invalid(message));
            }
            above = key::split(above).0;
        }
        self.apply(Change::Write(key.clone(), Arc::new(bytes.to_vec())));
        Ok(())
    }

    fn apply(&mut self, change: Change) {
        match &change {
            Change::Write(key, bytes) => drop(self.objects.insert(key.clone(), bytes.clone())),
            Change::Delete(key) => drop(self.objects.remove(key)),
        }
        if let Some(log) = &mut self.log {
            log.push(change);
        }
    }
}

/// A store in memory; see the module.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<State>>);

impl MemoryStore {
    /// An empty store without a log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store that keeps every change in its log.
    #[must_use]
    pub fn recording() -> Self {
        let log = Some(Vec::new());
        Self(Arc::new(Mutex::new(State { objects: BTreeMap::new(), log })))
    }

    /// All objects, decisions among them: two stores with the same are the same.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<Key, Arc<Vec<u8>>> {
        self.lock().objects.clone()
    }

    /// An independent copy of the present state, log included.
    #[must_use]
    pub fn clone_state(&self) -> MemoryStore {
        Self(Arc::new(Mutex::new(self.lock().clone())))
    }

    /// How many changes the log holds; zero for a store that does not record.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.lock().log.as_ref().map_or(0, Vec::len)
    }

    /// An independent store in the state after the first `n` recorded changes. Tampering through
    /// [`MemoryStore::corrupt`] and [`MemoryStore::remove`] is not part of it.
    #[must_use]
    pub fn state_after(&self, n: usize) -> MemoryStore {
        let mut state = State::default();
        for change in self.lock().log.iter().flatten().take(n) {
            state.apply(change.clone());
        }
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state after every number of changes, from none to all.
    #[must_use]
    pub fn crash_states(&self) -> Vec<MemoryStore> {
        (0..=self.operations()).map(|n| self.state_after(n)).collect()
    }

    /// Changes the bytes of an object in place; says whether there was one.
    pub fn corrupt(&self, key: &Key, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut state = self.lock();
        let Some(bytes) = state.objects.get_mut(key) else {
            return false;
        };
        change(Arc::make_mut(bytes));
        true
    }

    /// Takes an object away without a trace in the log; says whether there was one.
    pub fn remove(&self, key: &Key) -> bool {
        self.lock().objects.remove(key).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, key: &Key) -> Result<Arc<Vec<u8>>> {
        self.lock()
            .objects
            .get(key)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("'{key}' does not exist")))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory of {} objects", self.lock().objects.len())
    }
}

impl Blobs for MemoryStore {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.lock().write(key, bytes)
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        Ok(self.object(key)?.to_vec())
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let object = self.object(key)?;
        let range = usize::try_from(offset)
            .ok()
            .and_then(|start| object.get(start..start.checked_add(buffer.len())?));
        let Some(range) = range else {
            return Err(Error::damaged(format!(
                "'{key}' has {} bytes; {} from {offset} on were wanted",
                object.len(),
                buffer.len()
            )));
        };
        buffer.copy_from_slice(range);
        Ok(())
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let object = self.object(key)?;
        let start = object.len().saturating_sub(length_bytes);
        Ok((object.len() as u64, object.get(start..).unwrap_or_default().to_vec()))
    }

    fn size(&self, key: &Key) -> Result<u64> {
        Ok(self.object(key)?.len() as u64)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        key::check_prefix(prefix)?;
        let below = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let mut after = below.clone();
        loop {
            let batch: Vec<Listed> = self
                .lock()
                .objects
                .range::<str, _>((Bound::Excluded(&*after), Bound::Unbounded))
                .take_while(|(key, _)| key.as_str().starts_with(&below))
                .take(LIST_BATCH)
                .map(|(key, bytes)| Listed { key: key.clone(), size_bytes: bytes.len() as u64 })
                .collect();
            let Some(last) = batch.last() else {
                return Ok(());
            };
            after = last.key.as_str().to_owned();
            batch.into_iter().try_for_each(&mut *each)?;
        }
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.list(prefix, &mut |listed| each(listed.key.as_str()))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        let mut state = self.lock();
        if state.objects.contains_key(key) {
            state.apply(Change::Delete(key.clone()));
        }
        Ok(())
    }
}

impl Decisions for MemoryStore {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let mut state = self.lock();
        if let Some(winner) = state.objects.get(key) {
            return Ok(winner.to_vec());
        }
        state.write(key, value)?;
        Ok(value.to_vec())
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        Ok(self.lock().objects.get(key).map(|value| value.to_vec()))
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.list_names(prefix, each)
    }
}

impl Store for MemoryStore {
    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn conforms() {
        conformance::run(&|| Box::new(MemoryStore::new())).unwrap();
        conformance::run(&|| Box::new(MemoryStore::recording())).unwrap();
        conformance::run(&|| Box::new(Arc::new(MemoryStore::new()))).unwrap();
    }

    #[test]
    fn r29_every_state_between_two_operations_can_be_rebuilt() {
        let store = MemoryStore::recording();
        store.put(&key("a"), b"1").unwrap();
        store.put(&key("a"), b"2").unwrap_err();
        store.decide(&key("d"), b"3").unwrap();
        store.decide(&key("d"), b"4").unwrap();
        store.delete(&key("a")).unwrap();
        store.delete(&key("a")).unwrap();
        assert_eq!(store.operations(), 3);
        let seen: Vec<(bool, bool)> = store
            .crash_states()
            .iter()
            .map(|s| (s.get(&key("a")).is_ok(), s.decided(&key("d")).unwrap().is_some()))
            .collect();
        assert_eq!(seen, [(false, false), (true, false), (true, true), (false, true)]);
    }

    #[test]
    fn copies_are_independent_and_clones_are_not() {
        let store = MemoryStore::new();
        store.put(&key("a"), b"abc").unwrap();
        let (copy, handle) = (store.clone_state(), store.clone());
        assert!(store.corrupt(&key("a"), |bytes| bytes[1] ^= 1));
        assert!(!store.corrupt(&key("b"), |bytes| bytes.clear()));
        assert_eq!(copy.get(&key("a")).unwrap(), b"abc");
        assert_eq!(handle.get(&key("a")).unwrap(), b"acc");
        assert!(store.remove(&key("a")) && !store.remove(&key("a")));
        assert!(copy.get(&key("a")).is_ok() && handle.get(&key("a")).is_err());
    }
}
