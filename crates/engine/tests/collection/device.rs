//! What a power loss takes away: visible is not yet durable.
//!
//! The store below is what all actors see. This keeps what of it is not durable: objects whose
//! `put` or `decide` has not ended yet, and deletions that nobody has settled. What `put`
//! acknowledged, `decide` or `decided` returned and `settle` covered is durable.

use onefold_store::{Blobs, Key, MemoryStore};
use onefold_types::environment::SeededRandomness;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// What a power loss does to that which is not durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loss {
    /// Every write vanishes, every deletion stays.
    #[default]
    All,
    /// Each by chance.
    Some(u64),
}

#[derive(Default)]
struct Volatile {
    written: BTreeSet<Key>,
    deleted: BTreeMap<Key, Vec<u8>>,
}

/// The device under the store of one run.
#[derive(Clone, Default)]
pub struct Device(Arc<Mutex<Volatile>>);

impl Device {
    /// An object has become visible.
    pub fn write(&self, key: &Key) {
        let mut volatile = self.0.lock().unwrap();
        volatile.deleted.remove(key);
        volatile.written.insert(key.clone());
    }

    /// An object that is visible has become durable.
    pub fn keep(&self, key: &Key) {
        self.0.lock().unwrap().written.remove(key);
    }

    /// An object has gone.
    pub fn delete(&self, key: &Key, bytes: Vec<u8>) {
        let mut volatile = self.0.lock().unwrap();
        volatile.written.remove(key);
        volatile.deleted.insert(key.clone(), bytes);
    }

    /// All below the prefix is durable.
    pub fn settle(&self, prefix: &str) {
        let below = |key: &Key| key.as_str().strip_prefix(prefix).is_some_and(is_below);
        let mut volatile = self.0.lock().unwrap();
        volatile.written.retain(|key| !below(key));
        volatile.deleted.retain(|key, _| !below(key));
    }

    /// The store as it is after a power loss.
    pub fn after_loss(&self, store: &MemoryStore, loss: Loss) -> MemoryStore {
        let left = store.clone_state();
        let volatile = self.0.lock().unwrap();
        let chance = match loss {
            Loss::All => None,
            Loss::Some(seed) => Some(SeededRandomness::new(seed)),
        };
        for key in &volatile.written {
            if chance.as_ref().is_none_or(|chance| chance.below(2) == 0) {
                left.remove(key);
            }
        }
        for (key, bytes) in &volatile.deleted {
            if chance.as_ref().is_some_and(|chance| chance.below(2) == 0) {
                left.put(key, bytes).unwrap();
            }
        }
        left
    }
}

fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}
