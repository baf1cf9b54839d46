//! The locality-preserved cache: fingerprints of whole containers, kept and dropped together.
//!
//! Algorithm: FAST'08, section 4.3. Fingerprints are random, so caching them one by one never
//! helps; but chunks that were stored together tend to come back together. The cache therefore
//! holds the fingerprints of whole containers, and replaces the container that was least recently
//! hit.
//!
//! Memory: 32 bytes for a fingerprint in the container's own array, shared with whoever read it,
//! and twelve bytes for its table entry; 48 bytes per chunk in a full cache, and up to 64 while it
//! fills. The table doubles towards the size at which the budget is spent, so that even while
//! entries move, the old and the new table together stay inside the budget.
//!
//! Invariants: all fingerprints of a container enter and leave at once; an answer was compared over
//! all 32 bytes; dropping one container never loses a fingerprint that another cached container
//! holds too; `bytes_used` never exceeds the capacity.

use crate::ports::Instance;
use crate::slot_table::{Address, BUCKET_BYTES, SlotTable, hash_of};
use onefold_types::{ContainerId, Fingerprint};
use std::sync::Arc;

/// The position that stands for the container itself: the table finds containers by name too.
const WHOLE_CONTAINER: u32 = u32::MAX;
/// The end of a list of slots.
const NO_SLOT: u32 = u32::MAX;
/// Two reference counts precede the elements of a shared array.
const ARRAY_HEADER_BYTES: usize = 2 * size_of::<usize>();
/// The table holds at most three entries in four buckets: a miss then looks at nine buckets, which
/// lie in two or three cache lines; at seven in eight it would look at 33.
const LOAD_NUMERATOR: usize = 3;
const LOAD_DENOMINATOR: usize = 4;
/// The smallest table that is ever allocated.
const BUCKETS_MIN: usize = 64;

#[derive(Debug)]
struct Group {
    container: ContainerId,
    /// `None` while the slot is free.
    fingerprints: Option<Arc<[Fingerprint]>>,
    newer: u32,
    /// The next older slot, or the next free one.
    older: u32,
}

/// Fingerprints of containers in memory, within a budget of bytes.
#[derive(Debug)]
pub struct LocalityCache {
    table: SlotTable,
    groups: Vec<Group>,
    free: u32,
    newest: u32,
    oldest: u32,
    containers: usize,
    array_bytes: usize,
    capacity_bytes: usize,
    buckets_max: usize,
    evictions: u64,
}

impl LocalityCache {
    /// An empty cache that will take no more than `capacity_bytes`; it starts by taking nothing.
    #[must_use]
    pub fn new(capacity_bytes: usize) -> Self {
        // At this many buckets, a table at full load and its fingerprints fill the budget.
        let bytes_per_bucket =
            BUCKET_BYTES + size_of::<Fingerprint>() * LOAD_NUMERATOR / LOAD_DENOMINATOR;
        Self {
            table: SlotTable::default(),
            groups: Vec::new(),
            free: NO_SLOT,
            newest: NO_SLOT,
            oldest: NO_SLOT,
            containers: 0,
            array_bytes: 0,
            capacity_bytes,
            buckets_max: (capacity_bytes / bytes_per_bucket).min(u32::MAX as usize),
            evictions: 0,
        }
    }

    /// Caches the fingerprints of `container`, given in the order of its metadata section, and
    /// makes it the most recently used; drops least recently used containers to make room.
    ///
    /// Returns `false`, and drops no other container, if this one alone exceeds the capacity. A
    /// container cached already with other fingerprints is replaced.
    pub fn insert(&mut self, container: ContainerId, fingerprints: Arc<[Fingerprint]>) -> bool {
        if let Some(slot) = self.slot_of(container) {
            if self.group_fingerprints(slot) == Some(&*fingerprints) {
                self.touch(slot);
                return true;
            }
            self.remove(container);
        }
        let Ok(count) = u32::try_from(fingerprints.len()) else {
            return false;
        };
        if count == WHOLE_CONTAINER || !self.make_room(fingerprints.len()) {
            return false;
        }
        let slot = self.take_slot(container, Arc::clone(&fingerprints));
        self.array_bytes += array_bytes(fingerprints.len());
        self.containers += 1;
        self.table.insert(container_hash(container), Address { slot, position: WHOLE_CONTAINER });
        for (position, fingerprint) in (0..count).zip(fingerprints.iter()) {
            self.table.insert(hash_of(fingerprint.prefix()), Address { slot, position });
        }
        true
    }

    /// Drops a container; `false` if it was not cached.
    pub fn remove(&mut self, container: ContainerId) -> bool {
        match self.slot_of(container) {
            Some(slot) => {
                self.remove_slot(slot);
                true
            }
            None => false,
        }
    }

    /// Where a cached container holds the chunk; a hit makes that container the most recently used.
    pub fn lookup(&mut self, fingerprint: &Fingerprint) -> Option<Instance> {
        let groups = &self.groups;
        let address = self.table.find(hash_of(fingerprint.prefix()), |address| {
            let array = groups.get(address.slot as usize).and_then(|g| g.fingerprints.as_deref());
            array.and_then(|array| array.get(address.position as usize)) == Some(fingerprint)
        })?;
        let container = self.groups.get(address.slot as usize)?.container;
        self.touch(address.slot);
        Some(Instance { container, position: address.position })
    }

    /// Appends all cached instances of the chunk, newest container first; does not count as a use.
    pub fn holders(&self, fingerprint: &Fingerprint, found: &mut Vec<Instance>) {
        let start = found.len();
        let groups = &self.groups;
        self.table.find(hash_of(fingerprint.prefix()), |address| {
            let group = groups.get(address.slot as usize);
            let array = group.and_then(|group| group.fingerprints.as_deref());
            let holds =
                array.and_then(|array| array.get(address.position as usize)) == Some(fingerprint);
            if let (true, Some(group)) = (holds, group) {
                let (container, position) = (group.container, address.position);
                found.push(Instance { container, position });
            }
            false
        });
        // Names are ordered by time. A container may hold a chunk twice.
        found[start..].sort_unstable_by(|a, b| b.cmp(a));
        found.dedup_by_key(|instance| instance.container);
    }

    /// Where this cached container holds the chunk; does not count as a use.
    #[must_use]
    pub fn position_in(&self, container: ContainerId, fingerprint: &Fingerprint) -> Option<u32> {
        let slot = self.slot_of(container)?;
        let array = self.group_fingerprints(slot)?;
        let address = self.table.find(hash_of(fingerprint.prefix()), |address| {
            address.slot == slot && array.get(address.position as usize) == Some(fingerprint)
        })?;
        Some(address.position)
    }

    /// Whether the container is cached; does not count as a use.
    #[must_use]
    pub fn contains_container(&self, container: ContainerId) -> bool {
        self.slot_of(container).is_some()
    }

    /// Memory taken: table, slots and fingerprint arrays, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.table.bytes_used() + self.slots_bytes() + self.array_bytes
    }

    /// Containers cached.
    #[must_use]
    pub fn container_count(&self) -> usize {
        self.containers
    }

    /// Containers dropped to make room since the cache was made.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Evicts until a container of `count` fingerprints fits, and grows the table for it.
    fn make_room(&mut self, count: usize) -> bool {
        // Tested first with all others gone, so that an oversized container empties no cache.
        let slots =
            if self.groups.is_empty() { self.slots_bytes_grown() } else { self.slots_bytes() };
        if self.room_needed(1 + count, array_bytes(count), slots).is_none() {
            return false;
        }
        loop {
            let entries = self.table.entry_count() + 1 + count;
            let arrays = self.array_bytes + array_bytes(count);
            if let Some(buckets) = self.room_needed(entries, arrays, self.slots_bytes_grown()) {
                return buckets <= self.table.bucket_count() || self.table.resize(buckets);
            }
            if self.oldest == NO_SLOT {
                return false;
            }
            self.remove_slot(self.oldest);
            self.evictions += 1;
        }
    }

    /// The buckets needed for that many entries if everything then fits into the budget.
    fn room_needed(&self, entries: usize, arrays: usize, slots: usize) -> Option<usize> {
        let needed = entries.checked_mul(LOAD_DENOMINATOR)?.div_ceil(LOAD_NUMERATOR) + 1;
        let mut buckets = self.buckets_max;
        if needed > buckets {
            return None;
        }
        while buckets / 2 >= needed.max(BUCKETS_MIN) {
            buckets /= 2;
        }
        let grows = buckets > self.table.bucket_count();
        let growth = if grows { buckets * BUCKET_BYTES } else { 0 };
        let bytes = self.table.bytes_used() + growth + slots + arrays;
        (bytes <= self.capacity_bytes).then_some(buckets)
    }

    fn slots_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>()
    }

    /// Bytes of the slots once one more container has its slot.
    fn slots_bytes_grown(&self) -> usize {
        if self.free != NO_SLOT || self.groups.len() < self.groups.capacity() {
            return self.slots_bytes();
        }
        (self.groups.len() + self.slots_growth()) * size_of::<Group>()
    }

    fn slots_growth(&self) -> usize {
        (self.groups.len() / 4).max(4)
    }

    fn take_slot(&mut self, container: ContainerId, array: Arc<[Fingerprint]>) -> u32 {
        let group = Group { container, fingerprints: Some(array), newer: NO_SLOT, older: NO_SLOT };
        let slot = match self.groups.get_mut(self.free as usize) {
            Some(vacant) => {
                let slot = self.free;
                self.free = vacant.older;
                *vacant = group;
                slot
            }
            None => {
                if self.groups.len() == self.groups.capacity() {
                    self.groups.reserve_exact(self.slots_growth());
                }
                self.groups.push(group);
                // Each container takes an entry of the table, whose buckets 32 bits can number.
                (self.groups.len() - 1) as u32
            }
        };
        self.link_newest(slot);
        slot
    }

    fn remove_slot(&mut self, slot: u32) {
        self.unlink(slot);
        let Some(group) = self.groups.get_mut(slot as usize) else {
            return;
        };
        let container = group.container;
        let array = group.fingerprints.take();
        group.older = self.free;
        self.free = slot;
        self.table.remove(container_hash(container), Address { slot, position: WHOLE_CONTAINER });
        let array = array.as_deref().unwrap_or_default();
        for (position, fingerprint) in (0..WHOLE_CONTAINER).zip(array) {
            self.table.remove(hash_of(fingerprint.prefix()), Address { slot, position });
        }
        self.array_bytes -= array_bytes(array.len());
        self.containers -= 1;
    }

    fn slot_of(&self, container: ContainerId) -> Option<u32> {
        let address = self.table.find(container_hash(container), |address| {
            address.position == WHOLE_CONTAINER
                && self.groups.get(address.slot as usize).is_some_and(|g| g.container == container)
        })?;
        Some(address.slot)
    }

    fn group_fingerprints(&self, slot: u32) -> Option<&[Fingerprint]> {
        self.groups.get(slot as usize)?.fingerprints.as_deref()
    }

    fn touch(&mut self, slot: u32) {
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some(group) = self.groups.get_mut(slot as usize) else {
            return;
        };
        let (newer, older) = (group.newer, group.older);
        match self.groups.get_mut(newer as usize) {
            Some(group) => group.older = older,
            None => self.newest = older,
        }
        match self.groups.get_mut(older as usize) {
            Some(group) => group.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let second = self.newest;
        if let Some(group) = self.groups.get_mut(slot as usize) {
            group.newer = NO_SLOT;
            group.older = second;
        }
        match self.groups.get_mut(second as usize) {
            Some(group) => group.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
    }
}

fn array_bytes(count: usize) -> usize {
    ARRAY_HEADER_BYTES + count * size_of::<Fingerprint>()
}

fn container_hash(container: ContainerId) -> u32 {
    let [a, b, c, d, e, f, g, h, ..] = container.0;
    hash_of(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}
