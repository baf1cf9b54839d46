//! Fingerprints that wait for their verdict, in the order of the stream.
//!
//! A slab of entries, numbered by slots, with one list through all of them from the oldest to the
//! newest; a hash table finds an entry by its fingerprint, so that a second chunk like it can join
//! it. The locality rings of S0 need no structure of their own: an entry knows its ring and its
//! rank, and its neighbours in the list are its neighbours in the ring as long as the ring is the
//! same.
//!
//! Invariants: no two entries in the list have one fingerprint; ranks of a ring rise along the
//! list, and so do tickets. Nothing is allocated for an entry once the slab has grown.

use crate::accelerated_filter::Verdict;
use crate::slot_table::{Address, SlotTable, hash_of};
use onefold_types::Fingerprint;

/// No slot has this number.
pub(super) const NO_SLOT: u32 = u32::MAX;
/// The smallest table that is ever allocated.
const TABLE_MIN: usize = 64;

/// A fingerprint that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) fingerprint: Fingerprint,
    pub(super) ticket: u64,
    pub(super) ring: u32,
    pub(super) rank: u32,
    pub(super) older: u32,
    /// The next newer entry; of a free slot, the next free one.
    pub(super) newer: u32,
    /// The first of the chunks equal to this one; they are chained by the same field.
    repeats: u32,
    pub(super) is_waiting: bool,
}

impl Entry {
    /// Ring and rank as one number, for those who number the whole stream.
    pub(super) fn arrival(&self) -> u64 {
        u64::from(self.ring) << 32 | u64::from(self.rank)
    }
}

/// The fingerprints of one stream that wait.
#[derive(Debug)]
pub(super) struct Waiting {
    entries: Vec<Entry>,
    table: SlotTable,
    free: u32,
    oldest: u32,
    newest: u32,
    length: usize,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            table: SlotTable::default(),
            free: NO_SLOT,
            oldest: NO_SLOT,
            newest: NO_SLOT,
            length: 0,
        }
    }

    /// Fingerprints that wait, those that have joined others included.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Different fingerprints that wait.
    pub(super) fn distinct(&self) -> usize {
        self.table.entry_count()
    }

    pub(super) fn oldest(&self) -> Option<&Entry> {
        self.entries.get(self.oldest as usize)
    }

    pub(super) fn oldest_slot(&self) -> u32 {
        self.oldest
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)
    }

    pub(super) fn find(&self, fingerprint: &Fingerprint) -> Option<u32> {
        let entries = &self.entries;
        let address = self.table.find(hash_of(fingerprint.prefix()), |address| {
            entries
                .get(address.slot as usize)
                .is_some_and(|entry| entry.fingerprint == *fingerprint)
        })?;
        Some(address.slot)
    }

    /// Appends a fingerprint that does not wait yet; its slot.
    pub(super) fn push(
        &mut self,
        fingerprint: &Fingerprint,
        ticket: u64,
        ring: u32,
        rank: u32,
    ) -> u32 {
        let slot = self.take_slot(Entry {
            fingerprint: *fingerprint,
            ticket,
            ring,
            rank,
            older: self.newest,
            newer: NO_SLOT,
            repeats: NO_SLOT,
            is_waiting: true,
        });
        match self.entries.get_mut(self.newest as usize) {
            Some(second) => second.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        if (self.table.entry_count() + 1) * 4 > self.table.bucket_count() * 3 {
            self.table.resize((self.table.bucket_count() * 2).max(TABLE_MIN));
        }
        self.table.insert(hash_of(fingerprint.prefix()), Address { slot, position: 0 });
        slot
    }

    /// Lets a chunk wait for the verdict of the one in `slot`, to which it is equal.
    pub(super) fn join(&mut self, slot: u32, ticket: u64) {
        let Some(first) = self.entries.get(slot as usize).copied() else {
            return;
        };
        let repeat = self.take_slot(Entry { ticket, newer: NO_SLOT, older: NO_SLOT, ..first });
        if let Some(first) = self.entries.get_mut(slot as usize) {
            first.repeats = repeat;
        }
    }

    /// Takes an entry out with the verdict on it and on those that have joined it.
    pub(super) fn resolve(
        &mut self,
        slot: u32,
        verdict: Verdict,
        resolved: &mut Vec<(u64, Verdict)>,
    ) {
        let Some(entry) = self.entries.get(slot as usize).copied() else {
            return;
        };
        self.table.remove(hash_of(entry.fingerprint.prefix()), Address { slot, position: 0 });
        match self.entries.get_mut(entry.older as usize) {
            Some(older) => older.newer = entry.newer,
            None => self.oldest = entry.newer,
        }
        match self.entries.get_mut(entry.newer as usize) {
            Some(newer) => newer.older = entry.older,
            None => self.newest = entry.older,
        }
        resolved.push((entry.ticket, verdict));
        self.free_slot(slot);
        let later = match verdict {
            Verdict::New | Verdict::Repeated => Verdict::Repeated,
            Verdict::Duplicate(_) => verdict,
        };
        let mut repeat = entry.repeats;
        while let Some(other) = self.entries.get(repeat as usize).copied() {
            resolved.push((other.ticket, later));
            self.free_slot(repeat);
            repeat = other.repeats;
        }
    }

    fn take_slot(&mut self, entry: Entry) -> u32 {
        self.length += 1;
        if let Some(vacant) = self.entries.get_mut(self.free as usize) {
            let slot = self.free;
            self.free = vacant.newer;
            *vacant = entry;
            return slot;
        }
        self.entries.push(entry);
        // The buffer's bound is far below what 32 bits can number.
        (self.entries.len() - 1) as u32
    }

    fn free_slot(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            entry.is_waiting = false;
            entry.newer = self.free;
            self.free = slot;
            self.length -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(number: u32) -> Fingerprint {
        let mut bytes = [7; 32];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        Fingerprint(bytes)
    }

    #[test]
    fn each_of_many_is_found_until_it_has_its_verdict() {
        let mut waiting = Waiting::new();
        let (count, mut resolved) = (5000, Vec::new());
        let slots: Vec<u32> = (0..count)
            .map(|number| waiting.push(&numbered(number), u64::from(number), 0, number))
            .collect();
        assert_eq!((waiting.len(), waiting.distinct()), (5000, 5000));
        for (number, slot) in (0..count).zip(&slots) {
            assert_eq!(waiting.find(&numbered(number)), Some(*slot));
        }
        for slot in slots.iter().step_by(2) {
            waiting.resolve(*slot, Verdict::New, &mut resolved);
        }
        for (number, slot) in (0..count).zip(&slots) {
            let waits = number % 2 == 1;
            assert_eq!(waiting.find(&numbered(number)), waits.then_some(*slot), "{number}");
        }
        assert_eq!((waiting.distinct(), waiting.oldest().unwrap().ticket), (2500, 1));
    }

    #[test]
    fn the_ring_is_the_upper_half_of_an_arrival() {
        let mut waiting = Waiting::new();
        waiting.push(&numbered(0), 0, 3, 5);
        assert_eq!(waiting.oldest().unwrap().arrival(), (3 << 32) + 5);
    }
}
