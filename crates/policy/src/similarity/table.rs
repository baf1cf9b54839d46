//! Where chunks of a similar sketch may lie: a table of fixed size that forgets.
//!
//! Algorithm: Broder's super-features, looked up as keys. Like FAST'12 (Shilane et al., "WAN
//! optimized replication of backup datasets using stream-informed delta compression"), it keeps no
//! index of all sketches, but a cache of bounded size; this one is set-associative and is filled by
//! its owner. A chunk is entered under each of the six keys of its sketch. A bucket has four
//! slots of twelve bytes, the newest first; the oldest one makes room. Of one key a bucket keeps
//! the newest [`KEY_SLOTS_MAX`] addresses, so that what many chunks have in common does not drive
//! out the rest.
//!
//! A chunk takes 72 bytes, in six slots, until others need them. The table is a hint and never
//! stored: what it has forgotten costs space, and what it names wrongly an attempt.
//!
//! Invariants: it takes no more memory than allowed; the same calls have the same answers.
//! Concurrency: none; the owner decides who may call.

use super::sketch::Sketch;

/// Candidates that one question has at most.
pub const CANDIDATES_MAX: usize = 4;
/// Slots of a bucket that have the same key.
pub const KEY_SLOTS_MAX: usize = 2;
/// Slots of a bucket.
const SLOTS: usize = 4;

/// A key, a container and a position. Key zero: vacant.
type Slot = [u32; 3];
type Bucket = [Slot; SLOTS];

/// Where a chunk lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Address {
    /// A number that the owner gives.
    pub container: u32,
    /// The chunk's place in it.
    pub position: u32,
}

/// From keys of sketches to addresses.
#[derive(Clone, Debug)]
pub struct SimilarityTable {
    buckets: Vec<Bucket>,
}

impl SimilarityTable {
    /// A table that never takes more than these bytes, itself included. One without room for a
    /// bucket remembers nothing.
    #[must_use]
    pub fn with_memory(bytes: usize) -> Self {
        let buckets = bytes.saturating_sub(size_of::<Self>()) / size_of::<Bucket>();
        // Zeros: the system gives the memory when it is first written.
        Self { buckets: vec![[[0; 3]; SLOTS]; buckets.min(u32::MAX as usize)] }
    }

    /// Enters a chunk under the six keys of its sketch.
    pub fn insert(&mut self, sketch: &Sketch, address: Address) {
        for key in sketch.keys() {
            if key == 0 {
                continue; // One key in four billion: not worth a longer slot.
            }
            let place = self.place(key);
            if let Some(bucket) = self.buckets.get_mut(place) {
                enter(bucket, [key, address.container, address.position]);
            }
        }
    }

    /// Puts into `found` the addresses that share keys with the sketch, those that share most
    /// first, each with the number of keys shared; at most [`CANDIDATES_MAX`].
    pub fn candidates(&self, sketch: &Sketch, found: &mut Vec<(u32, Address)>) {
        found.clear();
        for key in sketch.keys() {
            let bucket = self.buckets.get(self.place(key));
            for [_, container, position] in
                bucket.into_iter().flatten().filter(|slot| slot[0] == key && key != 0)
            {
                let address = Address { container: *container, position: *position };
                match found.iter_mut().find(|candidate| candidate.1 == address) {
                    Some(candidate) => candidate.0 += 1,
                    None => found.push((1, address)),
                }
            }
        }
        // Stable: of equals, the one that the earliest key named.
        found.sort_by_key(|candidate| std::cmp::Reverse(candidate.0));
        found.truncate(CANDIDATES_MAX);
    }

    /// Memory taken at most, in bytes: what is not yet written costs none.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        size_of::<Self>() + self.buckets.capacity() * size_of::<Bucket>()
    }

    fn place(&self, key: u32) -> usize {
        ((u64::from(key) * self.buckets.len() as u64) >> 32) as usize
    }
}

/// Puts the slot first. What makes room: the same slot, or the oldest of its key if there are
/// enough of that, or the oldest of all.
fn enter(bucket: &mut Bucket, slot: Slot) {
    let of_key = || (0..SLOTS).filter(|place| bucket[*place][0] == slot[0]);
    let same = bucket.iter().position(|other| *other == slot);
    let leaves = same.or(of_key().nth(KEY_SLOTS_MAX - 1)).unwrap_or(SLOTS - 1);
    bucket.copy_within(..leaves, 1);
    bucket[0] = slot;
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::{Randomness, SeededRandomness};
    use std::collections::BTreeMap;

    fn sketch(seed: u64) -> Sketch {
        let mut bytes = [0; 24];
        SeededRandomness::new(seed).fill(&mut bytes);
        Sketch::from_bytes(bytes)
    }

    /// The sketch with other features in these groups of two.
    fn changed(sketch: &Sketch, groups: &[usize], seed: u8) -> Sketch {
        let mut bytes = sketch.to_bytes();
        groups.iter().for_each(|group| bytes[4 * group] ^= seed);
        Sketch::from_bytes(bytes)
    }

    fn address(position: u32) -> Address {
        Address { container: 7, position }
    }

    fn ask(table: &SimilarityTable, sketch: &Sketch) -> Vec<(u32, Address)> {
        let mut found = vec![(9, address(99))];
        table.candidates(sketch, &mut found);
        found
    }

    #[test]
    fn what_shares_most_keys_comes_first() {
        let mut table = SimilarityTable::with_memory(1 << 20);
        let asked = sketch(1);
        table.insert(&changed(&asked, &[0, 1, 2], 1), address(3));
        table.insert(&changed(&asked, &[5], 2), address(5));
        table.insert(&changed(&asked, &[0, 1, 2, 3, 4, 5], 3), address(0));
        table.insert(&sketch(2), address(9));
        assert_eq!(ask(&table, &asked), [(5, address(5)), (3, address(3))]);
        assert_eq!(ask(&table, &sketch(2)), [(6, address(9))]);
        assert_eq!(ask(&table, &sketch(3)), []);
    }

    #[test]
    fn it_answers_as_a_table_without_bounds_while_there_is_room() {
        // An oracle: all addresses by key, the newest first.
        let mut table = SimilarityTable::with_memory(16 << 20);
        let mut all: BTreeMap<u32, Vec<Address>> = BTreeMap::new();
        for number in 0..2000 {
            // Every second chunk is like the one before it.
            let of_chunk = changed(&sketch(u64::from(number / 2)), &[number as usize % 2], 1);
            table.insert(&of_chunk, address(number));
            for key in of_chunk.keys() {
                all.entry(key).or_default().insert(0, address(number));
            }
        }
        let mut lost = 0;
        for number in 0..2000 {
            let asked = sketch(number / 2);
            let mut expected: BTreeMap<Address, u32> = BTreeMap::new();
            for key in asked.keys() {
                for address in all.get(&key).into_iter().flatten() {
                    *expected.entry(*address).or_default() += 1;
                }
            }
            let found: BTreeMap<Address, u32> =
                ask(&table, &asked).into_iter().map(|(keys, address)| (address, keys)).collect();
            lost += usize::from(found != expected);
        }
        // 12,000 entries in 350,000 buckets: hardly one bucket overflows.
        assert!(lost <= 2, "{lost}");
    }

    #[test]
    fn candidates_are_bounded() {
        let mut table = SimilarityTable::with_memory(1 << 20);
        let asked = sketch(4);
        // Each shares one key of its own number.
        for number in 0..CANDIDATES_MAX as u32 + 1 {
            let others: Vec<usize> = (0..6).filter(|group| *group != number as usize).collect();
            table.insert(&changed(&asked, &others, number as u8 + 1), address(number));
        }
        let found = ask(&table, &asked);
        let expected: Vec<_> = (0..CANDIDATES_MAX as u32).map(|n| (1, address(n))).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_newest_addresses_of_a_sketch_stay_and_none_twice() {
        let mut table = SimilarityTable::with_memory(1 << 20);
        for position in [1, 2, 3, 3] {
            table.insert(&sketch(5), address(position));
        }
        assert_eq!(ask(&table, &sketch(5)), [(6, address(3)), (6, address(2))]);
        table.insert(&sketch(5), address(2));
        assert_eq!(ask(&table, &sketch(5)), [(6, address(2)), (6, address(3))]);
    }

    #[test]
    fn a_common_key_does_not_drive_out_its_bucket() {
        let mut bucket = [[0; 3]; SLOTS];
        enter(&mut bucket, [1, 0, 0]);
        enter(&mut bucket, [2, 0, 0]);
        for position in 0..10 {
            enter(&mut bucket, [3, 0, position]);
        }
        assert_eq!(bucket, [[3, 0, 9], [3, 0, 8], [2, 0, 0], [1, 0, 0]]);
        enter(&mut bucket, [4, 0, 0]);
        assert_eq!(bucket, [[4, 0, 0], [3, 0, 9], [3, 0, 8], [2, 0, 0]]);
    }

    #[test]
    fn a_full_table_remembers_the_newest() {
        let mut table = SimilarityTable::with_memory(60_000);
        for number in 0..10_000 {
            table.insert(&sketch(number), address(number as u32));
        }
        let knows = |number: &u64| {
            let found = ask(&table, &sketch(*number));
            found.iter().any(|(_, found)| *found == address(*number as u32))
        };
        // 5,000 slots are those of 833 chunks.
        assert_eq!((9_900..10_000).filter(knows).count(), 100);
        assert_eq!((0..5_000).filter(knows).count(), 0);
    }

    #[test]
    fn memory_is_kept_to_at_any_size() {
        for bytes in (0..200).chain([1000, 4096, 99_999]) {
            let mut table = SimilarityTable::with_memory(bytes);
            for number in 0..50 {
                table.insert(&sketch(number), address(number as u32));
            }
            // All but what is left of a bucket.
            let allowed = bytes.max(size_of::<SimilarityTable>());
            let used = table.bytes_used();
            assert!(used <= allowed && allowed < used + 48, "{bytes}: {used}");
            let remembers = !ask(&table, &sketch(49)).is_empty();
            assert_eq!(remembers, bytes >= size_of::<SimilarityTable>() + 48, "{bytes}");
        }
    }
}
