//! The hash table under the locality cache: from 32 hash bits to the addresses that may match.
//!
//! Algorithm: open addressing with linear probing and backward-shift deletion (Knuth, The Art of
//! Computer Programming, volume 3, section 6.4, algorithm R). Deletion leaves no marks behind, so
//! there is no marker that an insertion could misread and no slow decay under churn.
//!
//! The table is a multimap: one hash may stand at many addresses, and the caller's test tells which
//! is meant. An entry takes twelve bytes. It keeps its hash, so neither deletion nor growth has to
//! look at the fingerprints themselves, and the home bucket is the hash scaled by the number of
//! buckets, so that number need not be a power of two.
//!
//! Invariants: at least one bucket is empty; between an entry's home and the entry no bucket is.

/// Marks an empty bucket; no slot has this number.
const EMPTY_SLOT: u32 = u32::MAX;

/// Bytes one bucket takes.
pub(crate) const BUCKET_BYTES: usize = size_of::<Bucket>();

/// What the table stores: a slot of the cache and a position within it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) slot: u32,
    pub(crate) position: u32,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    hash: u32,
    address: Address,
}

const EMPTY: Bucket = Bucket { hash: 0, address: Address { slot: EMPTY_SLOT, position: 0 } };

impl Bucket {
    fn is_empty(&self) -> bool {
        self.address.slot == EMPTY_SLOT
    }
}

/// Spreads 64 key bits over the 32 bits the table uses. Fingerprints are uniform already; the
/// multiplication keeps the table fast for keys that are not, such as counters in a simulation.
pub(crate) fn hash_of(key: u64) -> u32 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    ((product ^ (product >> 64)) as u64 >> 32) as u32
}

#[derive(Debug, Default)]
pub(crate) struct SlotTable {
    buckets: Vec<Bucket>,
    entries: usize,
}

impl SlotTable {
    pub(crate) fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    pub(crate) fn entry_count(&self) -> usize {
        self.entries
    }

    pub(crate) fn bytes_used(&self) -> usize {
        self.buckets.len() * BUCKET_BYTES
    }

    /// Adds an entry; `false` if the table has no bucket to spare.
    pub(crate) fn insert(&mut self, hash: u32, address: Address) -> bool {
        if self.entries + 1 >= self.buckets.len() || address.slot == EMPTY_SLOT {
            return false;
        }
        let mut at = self.home(hash);
        while !self.buckets[at].is_empty() {
            at = self.after(at);
        }
        self.buckets[at] = Bucket { hash, address };
        self.entries += 1;
        true
    }

    /// The first address under `hash` that `is_meant` accepts.
    pub(crate) fn find(&self, hash: u32, is_meant: impl FnMut(Address) -> bool) -> Option<Address> {
        let at = self.find_bucket(hash, is_meant)?;
        Some(self.buckets[at].address)
    }

    /// Takes exactly this entry out, leaving every other one findable.
    pub(crate) fn remove(&mut self, hash: u32, address: Address) -> bool {
        let Some(mut hole) = self.find_bucket(hash, |other| other == address) else {
            return false;
        };
        let mut at = self.after(hole);
        while !self.buckets[at].is_empty() {
            // An entry may move into the hole unless its home lies behind the hole.
            let home = self.home(self.buckets[at].hash);
            if self.distance(home, at) >= self.distance(hole, at) {
                self.buckets[hole] = self.buckets[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.buckets[hole] = EMPTY;
        self.entries -= 1;
        true
    }

    /// Moves all entries into a table of `count` buckets, which must leave one bucket empty.
    pub(crate) fn resize(&mut self, count: usize) -> bool {
        if count <= self.entries {
            return false;
        }
        let old = std::mem::replace(&mut self.buckets, vec![EMPTY; count]);
        self.entries = 0;
        for bucket in old.iter().filter(|bucket| !bucket.is_empty()) {
            self.insert(bucket.hash, bucket.address);
        }
        true
    }

    fn find_bucket(&self, hash: u32, mut is_meant: impl FnMut(Address) -> bool) -> Option<usize> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let bucket = &self.buckets[at];
            if bucket.is_empty() {
                return None;
            }
            if bucket.hash == hash && is_meant(bucket.address) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.buckets.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.buckets.len() - from }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u32, u32),
        Remove(usize),
        Resize(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Few hashes at both ends of the range: long chains that wrap around the end.
        let hash = prop_oneof![0..4u32, (u32::MAX - 4)..=u32::MAX, any::<u32>()];
        prop_oneof![
            6 => (hash, 0..50u32).prop_map(|(hash, position)| Step::Insert(hash, position)),
            4 => any::<usize>().prop_map(Step::Remove),
            1 => (1..40usize).prop_map(Step::Resize),
        ]
    }

    proptest! {
        #[test]
        fn r22_table_agrees_with_a_plain_list(steps in prop::collection::vec(step(), 1..200)) {
            let mut table = SlotTable::default();
            table.resize(24);
            let mut list: Vec<(u32, Address)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(hash, position) => {
                        let address = Address { slot: number as u32, position };
                        let fits = list.len() + 1 < table.bucket_count();
                        prop_assert_eq!(table.insert(hash, address), fits);
                        if fits {
                            list.push((hash, address));
                        }
                    }
                    Step::Remove(pick) if !list.is_empty() => {
                        let (hash, address) = list.swap_remove(pick % list.len());
                        prop_assert!(table.remove(hash, address));
                        prop_assert!(!table.remove(hash, address));
                    }
                    Step::Remove(_) => {}
                    Step::Resize(count) => {
                        prop_assert_eq!(table.resize(count), count > list.len());
                    }
                }
                prop_assert_eq!(table.entry_count(), list.len());
                for (hash, address) in &list {
                    prop_assert_eq!(table.find(*hash, |other| other == *address), Some(*address));
                }
                prop_assert_eq!(table.find(17, |_| true).is_some(), list.iter().any(|e| e.0 == 17));
            }
        }
    }

    #[test]
    fn counters_are_spread_as_fingerprints_are() {
        let hashes: BTreeSet<u32> = (0..65_536).map(hash_of).collect();
        assert!(hashes.len() > 65_530, "{}", hashes.len());
        let mut homes = [0; 256];
        hashes.iter().for_each(|hash| homes[(hash >> 24) as usize] += 1);
        assert!(homes.iter().all(|count| (128..512).contains(count)), "{homes:?}");
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        let mut table = SlotTable::default();
        assert_eq!(table.find(0, |_| true), None);
        assert!(!table.insert(0, Address { slot: 0, position: 0 }));
        assert!(!table.remove(0, Address { slot: 0, position: 0 }));
    }
}
