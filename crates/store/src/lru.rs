//! A map of bounded weight that forgets what was used longest ago.
//!
//! Weight is whatever the owner counts: bytes of a cache, or handles of one each. Concurrency: none
//! of its own; owners put it behind a lock.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

struct Entry<V> {
    value: V,
    weight: usize,
    stamp: u64,
}

/// A bounded map; the sum of all weights never exceeds the capacity.
pub(crate) struct Lru<K, V> {
    entries: HashMap<K, Entry<V>>,
    by_age: BTreeMap<u64, K>,
    weight: usize,
    capacity: usize,
    stamp: u64,
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), by_age: BTreeMap::new(), weight: 0, capacity, stamp: 0 }
    }

    /// The value under `key`, which becomes the youngest.
    pub(crate) fn get<Q>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let entry = self.entries.get_mut(key)?;
        self.stamp += 1;
        if let Some(name) = self.by_age.remove(&entry.stamp) {
            entry.stamp = self.stamp;
            self.by_age.insert(self.stamp, name);
        }
        Some(&entry.value)
    }

    /// Keeps `value` unless it alone is heavier than the capacity.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        if weight > self.capacity {
            return;
        }
        while self.weight > self.capacity - weight {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                break;
            };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.weight -= entry.weight;
            }
        }
        self.stamp += 1;
        self.weight += weight;
        self.by_age.insert(self.stamp, key.clone());
        self.entries.insert(key, Entry { value, weight, stamp: self.stamp });
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let entry = self.entries.remove(key)?;
        self.by_age.remove(&entry.stamp);
        self.weight -= entry.weight;
        Some(entry.value)
    }

    pub(crate) fn weight(&self) -> usize {
        self.weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_use_makes_young() {
        let mut lru = Lru::new(3);
        for name in ["a", "b", "c"] {
            lru.insert(name, name.len(), 1);
        }
        assert!(lru.get("a").is_some());
        lru.insert("d", 1, 1);
        assert!(lru.get("b").is_none());
        assert!(lru.get("a").is_some() && lru.get("c").is_some() && lru.get("d").is_some());
    }

    #[test]
    fn weight_stays_within_the_capacity() {
        let mut lru = Lru::new(10);
        for number in 0..100_usize {
            lru.insert(number % 7, number, number % 12);
            assert!(lru.weight() <= 10);
            assert_eq!(lru.entries.len(), lru.by_age.len());
        }
        lru.insert(50, 0, 11);
        assert!(lru.get(&50).is_none());
    }
}
