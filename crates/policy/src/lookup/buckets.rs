//! The hash buckets of lazy look-up: waiting fingerprints by the range of prefixes that they fall
//! into (S0.5), and the fullest of these buckets at any time.
//!
//! The index may have millions of buckets, and few of them have somebody waiting: a hash table maps
//! the number of a bucket to its members. Buckets with the same number of members stand in one list
//! in the order in which they reached it, so that the fullest, and among those the one that has
//! waited longest, is found without a search.
//!
//! Invariants: a bucket is kept only while it has members; it stands in the list of its count.

use super::waiting::NO_SLOT;
use crate::slot_table::{Address, SlotTable, hash_of};

/// The smallest table that is ever allocated.
const TABLE_MIN: usize = 64;

/// A member's links in its bucket.
#[derive(Clone, Copy, Debug)]
struct Link {
    bucket: u32,
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    number: u32,
    count: u32,
    first: u32,
    last: u32,
    previous: u32,
    /// The next bucket with as many members; of a free one, the next free one.
    next: u32,
}

/// The first and the last bucket of a list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

const NO_ENDS: Ends = Ends { first: NO_SLOT, last: NO_SLOT };
const NO_LINK: Link = Link { bucket: NO_SLOT, previous: NO_SLOT, next: NO_SLOT };

#[derive(Debug)]
pub(super) struct Buckets {
    /// By the slot of the waiting fingerprint.
    links: Vec<Link>,
    buckets: Vec<Bucket>,
    table: SlotTable,
    free: u32,
    /// The buckets with so many members, by that number.
    levels: Vec<Ends>,
    /// No bucket has more members.
    fullest: usize,
}

impl Buckets {
    pub(super) fn new() -> Self {
        Self {
            links: Vec::new(),
            buckets: Vec::new(),
            table: SlotTable::default(),
            free: NO_SLOT,
            levels: Vec::new(),
            fullest: 0,
        }
    }

    /// Adds a member to the bucket with this number; the members it has now.
    pub(super) fn insert(&mut self, number: u32, slot: u32) -> usize {
        let at = self.find(number).unwrap_or_else(|| self.add(number));
        let Some(bucket) = self.buckets.get_mut(at as usize) else {
            return 0;
        };
        let previous = bucket.last;
        bucket.last = slot;
        if bucket.first == NO_SLOT {
            bucket.first = slot;
        }
        if let Some(link) = self.links.get_mut(previous as usize) {
            link.next = slot;
        }
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, NO_LINK);
        }
        if let Some(link) = self.links.get_mut(slot as usize) {
            *link = Link { bucket: at, previous, next: NO_SLOT };
        }
        self.change_count(at, 1)
    }

    /// Takes a member out of its bucket.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize) else {
            return;
        };
        let Link { bucket: at, previous, next } = std::mem::replace(link, NO_LINK);
        let Some(bucket) = self.buckets.get_mut(at as usize) else {
            return;
        };
        match self.links.get_mut(previous as usize) {
            Some(link) => link.next = next,
            None => bucket.first = next,
        }
        match self.links.get_mut(next as usize) {
            Some(link) => link.previous = previous,
            None => bucket.last = previous,
        }
        self.change_count(at, -1);
    }

    /// Takes all members out of the bucket in which this one is, in the order they came.
    pub(super) fn take_bucket_of(&mut self, slot: u32, members: &mut Vec<u32>) {
        members.clear();
        let bucket =
            self.links.get(slot as usize).and_then(|l| self.buckets.get(l.bucket as usize));
        let mut member = bucket.map_or(NO_SLOT, |bucket| bucket.first);
        while let Some(link) = self.links.get(member as usize) {
            members.push(member);
            member = link.next;
        }
        let at = self.links.get(slot as usize).map_or(NO_SLOT, |link| link.bucket);
        for member in members.iter() {
            if let Some(link) = self.links.get_mut(*member as usize) {
                *link = NO_LINK;
            }
        }
        self.drop_bucket(at);
    }

    /// A member of the fullest bucket.
    pub(super) fn member_of_fullest(&mut self) -> Option<u32> {
        while self.fullest > 0 {
            let first = self.levels.get(self.fullest).map_or(NO_SLOT, |ends| ends.first);
            if let Some(bucket) = self.buckets.get(first as usize) {
                return Some(bucket.first);
            }
            self.fullest -= 1;
        }
        None
    }

    fn find(&self, number: u32) -> Option<u32> {
        let address = self.table.find(hash_of(u64::from(number)), |address| {
            self.buckets.get(address.slot as usize).is_some_and(|bucket| bucket.number == number)
        })?;
        Some(address.slot)
    }

    /// A bucket without members, in no list yet.
    fn add(&mut self, number: u32) -> u32 {
        let bucket = Bucket {
            number,
            count: 0,
            first: NO_SLOT,
            last: NO_SLOT,
            previous: NO_SLOT,
            next: NO_SLOT,
        };
        let at = match self.buckets.get_mut(self.free as usize) {
            Some(vacant) => {
                let at = self.free;
                self.free = vacant.next;
                *vacant = bucket;
                at
            }
            None => {
                self.buckets.push(bucket);
                (self.buckets.len() - 1) as u32
            }
        };
        if (self.table.entry_count() + 1) * 4 > self.table.bucket_count() * 3 {
            self.table.resize((self.table.bucket_count() * 2).max(TABLE_MIN));
        }
        self.table.insert(hash_of(u64::from(number)), Address { slot: at, position: 0 });
        at
    }

    /// Moves a bucket to the list of its new count; the new count.
    fn change_count(&mut self, at: u32, difference: i32) -> usize {
        self.unlink(at);
        let Some(bucket) = self.buckets.get_mut(at as usize) else {
            return 0;
        };
        bucket.count = bucket.count.saturating_add_signed(difference);
        let count = bucket.count as usize;
        if count == 0 {
            self.forget(at);
        } else {
            self.link(at);
        }
        count
    }

    fn drop_bucket(&mut self, at: u32) {
        self.unlink(at);
        self.forget(at);
    }

    /// Frees a bucket that is in no list.
    fn forget(&mut self, at: u32) {
        if let Some(bucket) = self.buckets.get_mut(at as usize) {
            let address = Address { slot: at, position: 0 };
            self.table.remove(hash_of(u64::from(bucket.number)), address);
            bucket.next = self.free;
            self.free = at;
        }
    }

    fn link(&mut self, at: u32) {
        let Some(bucket) = self.buckets.get_mut(at as usize) else {
            return;
        };
        let level = bucket.count as usize;
        if self.levels.len() <= level {
            self.levels.resize(level + 1, NO_ENDS);
        }
        let Some(ends) = self.levels.get_mut(level) else {
            return;
        };
        bucket.previous = ends.last;
        bucket.next = NO_SLOT;
        let previous = std::mem::replace(&mut ends.last, at);
        match self.buckets.get_mut(previous as usize) {
            Some(bucket) => bucket.next = at,
            None => ends.first = at,
        }
        self.fullest = self.fullest.max(level);
    }

    fn unlink(&mut self, at: u32) {
        let Some(bucket) = self.buckets.get(at as usize).copied() else {
            return;
        };
        if bucket.count == 0 {
            return;
        }
        let Some(ends) = self.levels.get_mut(bucket.count as usize) else {
            return;
        };
        match self.buckets.get_mut(bucket.previous as usize) {
            Some(previous) => previous.next = bucket.next,
            None => ends.first = bucket.next,
        }
        match self.buckets.get_mut(bucket.next as usize) {
            Some(next) => next.previous = bucket.previous,
            None => ends.last = bucket.previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members_of(buckets: &mut Buckets, slot: u32) -> Vec<u32> {
        let mut members = vec![77];
        buckets.take_bucket_of(slot, &mut members);
        members
    }

    #[test]
    fn where_nobody_waits_nobody_is_fullest() {
        let mut buckets = Buckets::new();
        assert_eq!(buckets.member_of_fullest(), None);
        buckets.insert(5, 0);
        assert_eq!(buckets.member_of_fullest(), Some(0));
        buckets.remove(0);
        assert_eq!(buckets.member_of_fullest(), None);
        assert_eq!(members_of(&mut buckets, 0), []);
    }

    #[test]
    fn members_leave_in_the_order_they_came_whoever_left_before() {
        for leaves in 0..3 {
            let mut buckets = Buckets::new();
            let counts = [3, 1, 2].map(|slot| buckets.insert(9, slot));
            assert_eq!(counts, [1, 2, 3]);
            assert_eq!(buckets.insert(8, 0), 1);
            let mut left = vec![3, 1, 2];
            buckets.remove(left.remove(leaves));
            assert_eq!(buckets.insert(9, 7), 3);
            left.push(7);
            assert_eq!(members_of(&mut buckets, 7), left);
            assert_eq!(members_of(&mut buckets, 0), [0]);
        }
    }

    #[test]
    fn of_buckets_that_are_equally_full_the_first_to_be_so_is_the_fullest() {
        let mut buckets = Buckets::new();
        for (number, slot) in [(1, 10), (2, 20), (3, 30), (2, 21), (3, 31), (1, 11)] {
            buckets.insert(number, slot);
        }
        assert_eq!(buckets.member_of_fullest(), Some(20));
        buckets.remove(20);
        assert_eq!(buckets.member_of_fullest(), Some(30));
        assert_eq!(members_of(&mut buckets, 31), [30, 31]);
        assert_eq!(buckets.member_of_fullest(), Some(10));
        assert_eq!(members_of(&mut buckets, 10), [10, 11]);
        assert_eq!(buckets.member_of_fullest(), Some(21));
    }
}
