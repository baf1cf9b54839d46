//! Keeps small objects, ranges and decisions in memory, within a budget of bytes.
//!
//! Objects never change and names are never reused, so what is cached cannot be wrong; it can only
//! outlive its object. What proves existence therefore asks the store below every time: `size`,
//! `get_tail` and the listings. `get` and `get_range` may show an object that **another** process
//! deleted; one deleted through this layer is gone at once. A decision that was found is final;
//! that there is none yet is never cached.
//!
//! Concurrency: one lock around the table, never held during a call to the store below. A deletion
//! counts itself under the lock, so that bytes read before it are not cached after it.

use crate::lru::Lru;
use crate::{Blobs, Decisions, Key, Listed, Store};
use onefold_types::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an entry weighs beside its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 128;
/// Ranges kept per object; the oldest goes first.
const RANGES_MAX: usize = 64;

#[derive(Clone, Default)]
struct Cached {
    whole: Option<Arc<Vec<u8>>>,
    decision: Option<Arc<Vec<u8>>>,
    ranges: Vec<(u64, Arc<Vec<u8>>)>,
}

impl Cached {
    fn weight(&self) -> usize {
        let length = |bytes: &Option<Arc<Vec<u8>>>| bytes.as_ref().map_or(0, |b| b.len());
        let ranges: usize = self.ranges.iter().map(|(_, b)| b.len() + ENTRY_OVERHEAD_BYTES).sum();
        length(&self.whole) + length(&self.decision) + ranges + ENTRY_OVERHEAD_BYTES
    }

    /// Fills `buffer` if some cached part covers it.
    fn fill(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let whole = self.whole.iter().map(|bytes| (0, bytes));
        let ranges = self.ranges.iter().map(|(start, bytes)| (*start, bytes));
        for (start, bytes) in whole.chain(ranges) {
            let part = offset
                .checked_sub(start)
                .and_then(|skip| usize::try_from(skip).ok())
                .and_then(|skip| bytes.get(skip..skip.checked_add(buffer.len())?));
            if let Some(part) = part {
                buffer.copy_from_slice(part);
                return true;
            }
        }
        false
    }
}

struct Table {
    entries: Lru<Key, Cached>,
    deletions: u64,
}

/// A store with a cache in front.
pub struct Caching<S> {
    store: S,
    table: Mutex<Table>,
    object_max_bytes: usize,
}

impl<S: Store> Caching<S> {
    /// Caches up to `capacity_bytes`, and only parts of at most `object_max_bytes`.
    pub fn new(store: S, capacity_bytes: usize, object_max_bytes: usize) -> Self {
        let table = Mutex::new(Table { entries: Lru::new(capacity_bytes), deletions: 0 });
        Self { store, table, object_max_bytes }
    }

    /// Bytes the cache holds, overhead included.
    pub fn used_bytes(&self) -> usize {
        self.lock().entries.weight()
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.store
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to the entry of `key`, unless something was deleted since `deletions` was read.
    fn keep(&self, key: &Key, deletions: u64, length: usize, add: impl FnOnce(&mut Cached)) {
        if length > self.object_max_bytes {
            return;
        }
        let mut table = self.lock();
        if table.deletions != deletions {
            return;
        }
        let mut cached = table.entries.remove(key).unwrap_or_default();
        add(&mut cached);
        if cached.ranges.len() > RANGES_MAX {
            cached.ranges.remove(0);
        }
        let weight = cached.weight();
        table.entries.insert(key.clone(), cached, weight);
    }
}

impl<S: Store> Blobs for Caching<S> {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.store.put(key, bytes)
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        let deletions = {
            let mut table = self.lock();
            if let Some(whole) = table.entries.get(key).and_then(|cached| cached.whole.clone()) {
                drop(table);
                return Ok(whole.to_vec());
            }
            table.deletions
        };
        let bytes = self.store.get(key)?;
        self.keep(key, deletions, bytes.len(), |cached| {
            // Whatever ranges there are, the whole contains them.
            cached.ranges.clear();
            cached.whole = Some(Arc::new(bytes.clone()));
        });
        Ok(bytes)
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let deletions = {
            let mut table = self.lock();
            if table.entries.get(key).is_some_and(|cached| cached.fill(offset, buffer)) {
                return Ok(());
            }
            table.deletions
        };
        self.store.get_range(key, offset, buffer)?;
        self.keep(key, deletions, buffer.len(), |cached| {
            cached.ranges.push((offset, Arc::new(buffer.to_vec())));
        });
        Ok(())
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
        let result = self.store.delete(key);
        let mut table = self.lock();
        table.deletions += 1;
        table.entries.remove(key);
        result
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.store.settle(prefix)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.store.free_bytes()
    }
}

impl<S: Store> Decisions for Caching<S> {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        let deletions = self.lock().deletions;
        let winner = self.store.decide(key, value)?;
        self.keep(key, deletions, winner.len(), |cached| {
            cached.decision = Some(Arc::new(winner.clone()));
        });
        Ok(winner)
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let deletions = {
            let mut table = self.lock();
            let cached = table.entries.get(key).and_then(|cached| cached.decision.clone());
            if let Some(decision) = cached {
                drop(table);
                return Ok(Some(decision.to_vec()));
            }
            table.deletions
        };
        let decided = self.store.decided(key)?;
        if let Some(winner) = &decided {
            self.keep(key, deletions, winner.len(), |cached| {
                cached.decision = Some(Arc::new(winner.clone()));
            });
        }
        Ok(decided)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_decided(prefix, each)
    }
}

impl<S: Store> Store for Caching<S> {
    fn describe(&self) -> String {
        format!("{}, cached", self.store.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Counting, Operation};
    use crate::{MemoryStore, conformance};

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn conforms_at_any_capacity() {
        for (capacity, object_max) in [(0, 0), (1000, 400), (1 << 20, 1 << 16), (1 << 30, 1 << 30)]
        {
            let make = || Caching::new(MemoryStore::new(), capacity, object_max);
            conformance::run(&|| Box::new(make())).unwrap();
        }
    }

    #[test]
    fn what_is_cached_is_not_asked_for_again() {
        let store = Caching::new(Counting::new(MemoryStore::new()), 1 << 20, 1000);
        store.put(&key("a"), &[7; 900]).unwrap();
        store.put(&key("big"), &[7; 1001]).unwrap();
        store.decide(&key("d"), b"x").unwrap();
        for _ in 0..3 {
            store.get_range(&key("a"), 10, &mut [0; 100]).unwrap();
            store.get_range(&key("a"), 20, &mut [0; 50]).unwrap();
            store.get(&key("a")).unwrap();
            store.get(&key("big")).unwrap();
            store.decided(&key("d")).unwrap();
            store.decided(&key("undecided")).unwrap();
            store.get_tail(&key("a"), 4).unwrap();
        }
        let counts = store.inner().counts();
        assert_eq!(counts.total(Operation::GetRange).calls, 1);
        assert_eq!(counts.of("a", Operation::Get).calls, 1);
        assert_eq!(counts.of("big", Operation::Get).calls, 3);
        assert_eq!(counts.of("d", Operation::Decided).calls, 0);
        assert_eq!(counts.of("undecided", Operation::Decided).calls, 3);
        assert_eq!(counts.of("a", Operation::GetTail).calls, 3, "existence is never cached");
    }

    #[test]
    fn the_budget_holds() {
        let store = Caching::new(MemoryStore::new(), 10_000, 5_000);
        for number in 0..100 {
            let key = key(&format!("n{number}"));
            store.put(&key, &vec![0; number * 40]).unwrap();
            store.get_range(&key, 0, &mut vec![0; number * 20]).unwrap();
            store.get(&key).unwrap();
            assert!(store.used_bytes() <= 10_000);
        }
        assert!(store.used_bytes() > 4_000);
    }
}
