//! Counts what passes through.
//!
//! Bytes are those of objects and values written or read; for listings `names` counts the names
//! shown. Concurrency: one lock around the table, never held during a call to the store below.

use super::Operation;
use crate::{Blobs, Decisions, Key, Listed, Store};
use onefold_types::Result;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Mutex, PoisonError};

/// What was counted for one operation below one top-level name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Bytes written or read by calls that succeeded.
    pub bytes: u64,
    /// Names shown by listings.
    pub names: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.names += other.names;
    }
}

/// All counts at one moment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts(BTreeMap<(String, Operation), Count>);

impl Counts {
    /// The count of `operation` below the top-level name `top`, such as `containers`.
    #[must_use]
    pub fn of(&self, top: &str, operation: Operation) -> Count {
        self.0.get(&(top.to_owned(), operation)).copied().unwrap_or_default()
    }

    /// The count of `operation` over all names.
    #[must_use]
    pub fn total(&self, operation: Operation) -> Count {
        let mut total = Count::default();
        self.0.iter().filter(|((_, o), _)| *o == operation).for_each(|(_, count)| total += *count);
        total
    }

    /// Every count, by top-level name and operation.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Operation, Count)> {
        self.0.iter().map(|((top, operation), count)| (top.as_str(), *operation, *count))
    }
}

/// A store that counts.
pub struct Counting<S> {
    store: S,
    counts: Mutex<Counts>,
}

impl<S: Store> Counting<S> {
    /// Counts what reaches `store`.
    pub fn new(store: S) -> Self {
        Self { store, counts: Mutex::default() }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The counts so far; counting starts anew.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.store
    }

    fn count<T>(
        &self,
        operation: Operation,
        name: &str,
        result: Result<T>,
        amount: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let top = name.split('/').next().unwrap_or_default().to_owned();
        let mut count = Count { calls: 1, ..Count::default() };
        match &result {
            Err(_) => count.errors = 1,
            Ok(value) if operation.is_listing() => count.names = amount(value),
            Ok(value) => count.bytes = amount(value),
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.0.entry((top, operation)).or_default() += count;
        result
    }
}

impl<S: Store> Blobs for Counting<S> {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let result = self.store.put(key, bytes);
        self.count(Operation::Put, key.as_str(), result, |()| bytes.len() as u64)
    }

    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let mut bytes = 0;
        let result = self.store.put_pieces(key, &mut |piece| {
            let more = next(piece)?;
            bytes += piece.len() as u64;
            Ok(more)
        });
        self.count(Operation::Put, key.as_str(), result, |()| bytes)
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        let result = self.store.get(key);
        self.count(Operation::Get, key.as_str(), result, |bytes| bytes.len() as u64)
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let length = buffer.len() as u64;
        let result = self.store.get_range(key, offset, buffer);
        self.count(Operation::GetRange, key.as_str(), result, |()| length)
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let result = self.store.get_tail(key, length_bytes);
        self.count(Operation::GetTail, key.as_str(), result, |(_, tail)| tail.len() as u64)
    }

    fn size(&self, key: &Key) -> Result<u64> {
        self.count(Operation::Size, key.as_str(), self.store.size(key), |_| 0)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let mut names = 0;
        let result = self.store.list(prefix, &mut |listed| {
            names += 1;
            each(listed)
        });
        self.count(Operation::List, prefix, result, |()| names)
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let mut names = 0;
        let result = self.store.list_names(prefix, &mut |name| {
            names += 1;
            each(name)
        });
        self.count(Operation::ListNames, prefix, result, |()| names)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.count(Operation::Delete, key.as_str(), self.store.delete(key), |()| 0)
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.count(Operation::Settle, prefix, self.store.settle(prefix), |()| 0)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.store.free_bytes()
    }

    crate::pass_hints_on!(this => this.store);
}

impl<S: Store> Decisions for Counting<S> {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let result = self.store.decide(key, value);
        self.count(Operation::Decide, key.as_str(), result, |_| value.len() as u64)
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let length = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, |v| v.len() as u64);
        self.count(Operation::Decided, key.as_str(), self.store.decided(key), length)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let mut names = 0;
        let result = self.store.list_decided(prefix, &mut |name| {
            names += 1;
            each(name)
        });
        self.count(Operation::ListDecided, prefix, result, |()| names)
    }
}

impl<S: Store> Store for Counting<S> {
    fn describe(&self) -> String {
        format!("{}, counting", self.store.describe())
    }

    crate::pass_identity_on!(this => this.store);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, conformance};
    use std::sync::Arc;

    #[test]
    fn conforms() {
        conformance::run(&|| Box::new(Counting::new(MemoryStore::new()))).unwrap();
        conformance::run(&|| {
            let below: Arc<dyn Store> = Arc::new(MemoryStore::new());
            Box::new(Counting::new(below))
        })
        .unwrap();
    }

    #[test]
    fn counts_by_operation_and_top_level_name() {
        let store = Counting::new(MemoryStore::new());
        let (a, b) = (Key::new("containers/aa/1").unwrap(), Key::new("index/1").unwrap());
        store.put(&a, &[0; 10]).unwrap();
        store.put(&b, &[0; 5]).unwrap();
        store.put(&b, &[0; 5]).unwrap_err();
        store.get_range(&a, 2, &mut [0; 3]).unwrap();
        store.list_names("", &mut |_| Ok(())).unwrap();
        let counts = store.take();
        assert_eq!(counts.of("containers", Operation::Put).bytes, 10);
        assert_eq!(
            counts.total(Operation::Put),
            Count { calls: 3, errors: 1, bytes: 15, names: 0 }
        );
        assert_eq!(counts.of("containers", Operation::GetRange).bytes, 3);
        assert_eq!(counts.of("", Operation::ListNames).names, 2);
        assert_eq!(counts.iter().count(), 4);
        assert_eq!(store.counts(), Counts::default());
        assert!(store.inner().get(&a).is_ok());
    }
}
