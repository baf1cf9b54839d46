//! Containers without their data: the fingerprints of each, in stream order.

use onefold_types::environment::SeededRandomness;
use onefold_types::{ContainerId, Fingerprint};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A container and what it holds.
pub type Listed = (ContainerId, Arc<[Fingerprint]>);

/// All closed containers.
pub struct Containers {
    stored: BTreeMap<ContainerId, Arc<[Fingerprint]>>,
    /// Closed, but not yet in an index run.
    closed: Vec<Listed>,
    reads: u64,
    /// Names rise with this; no clock is asked.
    milliseconds: i64,
    randomness: SeededRandomness,
}

impl Default for Containers {
    fn default() -> Self {
        Self {
            stored: BTreeMap::new(),
            closed: Vec::new(),
            reads: 0,
            milliseconds: 0,
            randomness: SeededRandomness::new(1),
        }
    }
}

impl Containers {
    /// What a container lists; counts a read, even of one that is gone.
    pub fn read(&mut self, container: ContainerId) -> Option<Arc<[Fingerprint]>> {
        self.reads += 1;
        self.stored.get(&container).cloned()
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Containers stored.
    pub fn len(&self) -> usize {
        self.stored.len()
    }

    /// Stores a container under a fresh name, newer than all before.
    pub fn store(&mut self, fingerprints: Vec<Fingerprint>) -> ContainerId {
        self.milliseconds += 1;
        let id = ContainerId::ordered(self.milliseconds * 1_000_000, &self.randomness);
        let fingerprints: Arc<[Fingerprint]> = fingerprints.into();
        self.stored.insert(id, Arc::clone(&fingerprints));
        self.closed.push((id, fingerprints));
        id
    }

    /// Removes a container.
    pub fn remove(&mut self, container: ContainerId) {
        self.stored.remove(&container);
        self.closed.retain(|(id, _)| *id != container);
    }

    /// Containers to be indexed.
    pub fn take_closed(&mut self) -> Vec<Listed> {
        std::mem::take(&mut self.closed)
    }

    /// All containers, oldest first.
    pub fn all(&self) -> Vec<Listed> {
        self.stored.iter().map(|(id, list)| (*id, Arc::clone(list))).collect()
    }
}

/// The container that one stream is filling.
pub struct OpenContainer {
    capacity: usize,
    fingerprints: Vec<Fingerprint>,
}

impl OpenContainer {
    /// An empty one that takes `capacity` chunks.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, fingerprints: Vec::new() }
    }

    /// Appends a chunk; a full container is closed.
    pub fn append(&mut self, fingerprint: Fingerprint, containers: &mut Containers) {
        self.fingerprints.push(fingerprint);
        if self.fingerprints.len() >= self.capacity {
            self.close(containers);
        }
    }

    /// Closes the container if it holds anything.
    pub fn close(&mut self, containers: &mut Containers) {
        if !self.fingerprints.is_empty() {
            containers.store(std::mem::take(&mut self.fingerprints));
        }
    }
}
