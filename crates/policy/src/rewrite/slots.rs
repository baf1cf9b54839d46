//! Small numbers for the chunks and containers that wait in a segment or in the window.
//!
//! Counts and marks then stand in plain arrays. Slots are given back when nothing refers to them
//! any more, so memory is bounded by what waits.

use super::UnitId;
use crate::slot_table::{Address, SlotTable, hash_of};
use onefold_types::Fingerprint;
use std::collections::BTreeMap;

/// No slot.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Distinct fingerprints that wait.
#[derive(Debug, Default)]
pub(super) struct ChunkSlots {
    table: SlotTable,
    fingerprints: Vec<Fingerprint>,
    free: Vec<u32>,
}

impl ChunkSlots {
    /// The fingerprint's slot, and whether it is a new one.
    pub(super) fn intern(&mut self, fingerprint: &Fingerprint) -> (u32, bool) {
        let hash = hash_of(fingerprint.prefix());
        let is_meant =
            |address: Address| self.fingerprints.get(address.slot as usize) == Some(fingerprint);
        if let Some(address) = self.table.find(hash, is_meant) {
            return (address.slot, false);
        }
        let slot = self.free.pop().unwrap_or(self.fingerprints.len() as u32);
        match self.fingerprints.get_mut(slot as usize) {
            Some(old) => *old = *fingerprint,
            None => self.fingerprints.push(*fingerprint),
        }
        if (self.table.entry_count() + 1) * 4 > self.table.bucket_count() * 3 {
            self.table.resize((self.table.bucket_count() * 2).max(1024));
        }
        self.table.insert(hash, Address { slot, position: 0 });
        (slot, true)
    }

    /// Gives a slot back.
    pub(super) fn release(&mut self, slot: u32) {
        let Some(fingerprint) = self.fingerprints.get(slot as usize) else {
            return;
        };
        if self.table.remove(hash_of(fingerprint.prefix()), Address { slot, position: 0 }) {
            self.free.push(slot);
        }
    }

    /// Slots there are, used or not.
    pub(super) fn count(&self) -> usize {
        self.fingerprints.len()
    }

    pub(super) fn clear(&mut self) {
        let buckets = self.table.bucket_count();
        self.table = SlotTable::default();
        self.table.resize(buckets);
        self.fingerprints.clear();
        self.free.clear();
    }
}

/// Distinct old containers that wait.
#[derive(Debug, Default)]
pub(super) struct ContainerSlots {
    by_id: BTreeMap<UnitId, u32>,
    ids: Vec<UnitId>,
    free: Vec<u32>,
    /// Neighbours of the stream mostly lie in one container.
    last: Option<u32>,
}

impl ContainerSlots {
    pub(super) fn intern(&mut self, container: &UnitId) -> u32 {
        if let Some(slot) = self.last
            && self.ids.get(slot as usize) == Some(container)
        {
            return slot;
        }
        let (free, ids) = (&mut self.free, &mut self.ids);
        let slot = *self.by_id.entry(*container).or_insert_with(|| {
            let slot = free.pop().unwrap_or(ids.len() as u32);
            match ids.get_mut(slot as usize) {
                Some(old) => *old = *container,
                None => ids.push(*container),
            }
            slot
        });
        self.last = Some(slot);
        slot
    }

    pub(super) fn id(&self, slot: u32) -> Option<UnitId> {
        self.ids.get(slot as usize).copied()
    }

    /// Gives a slot back.
    pub(super) fn release(&mut self, slot: u32) {
        if let Some(container) = self.ids.get(slot as usize)
            && self.by_id.get(container) == Some(&slot)
        {
            self.by_id.remove(container);
            self.free.push(slot);
            self.last = None;
        }
    }

    /// Slots there are, used or not.
    pub(super) fn count(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
