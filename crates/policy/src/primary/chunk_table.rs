//! The index of one partition in memory: from a chunk to its address in the partition's log.
//!
//! Two forms, which ATC'12 compares: *signatures*, its own (two bytes of signature and a pointer of
//! at most four, no key), and *whole*, the baseline, which keeps 48 bytes a chunk and never has to
//! look into the log. [`crate::signature_table`] is the same idea for immutable runs; this table
//! takes chunks one by one and lets a pointer be changed.
//!
//! Algorithm: a cuckoo table of buckets of four slots. A key's second bucket follows from its first
//! and its signature, so that an entry can be moved although its key is not there: the two add up
//! to a hash of the signature, modulo the number of buckets. A slot takes 16 bits and as many as
//! the largest pointer needs, never more than six bytes. What finds no room goes into a stash, so
//! an insertion never fails; the stash is counted.
//!
//! Invariants: every address that was inserted under a key is among those found for it; others are
//! found with it by chance, twelve times in 100,000, and only the log can tell. The answers depend
//! on the entries and their order only.

use onefold_types::Fingerprint;
use std::collections::BTreeMap;

/// Slots in a bucket.
const SLOTS: usize = 4;
/// Slots filled at most, in percent, before the table counts as full.
const LOAD_PERCENT: u64 = 94;
/// Bits of a signature.
const SIGNATURE_BITS: u32 = 16;
/// Entries moved at most to make room for one.
const MOVES_MAX: usize = 200;
/// Ways to make room that are tried before an entry goes into the stash.
const WALKS_MAX: usize = 16;
/// Zeros behind the slots, so that the last one can be read as part of a word.
const PADDING_BYTES: usize = 8;
/// What an entry of the stash takes: key, address and their share of a node.
const STASHED_BYTES: u64 = 24;
/// What an entry of the baseline takes (ATC'12, resource usage).
pub const WHOLE_ENTRY_BYTES: u64 = 48;

/// What of a chunk is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableForm {
    /// The whole fingerprint: 48 bytes.
    Whole,
    /// A signature and a pointer: at most six bytes.
    Signatures,
}

/// The chunks of a partition, or of several.
#[derive(Debug)]
pub enum ChunkTable {
    /// Whole fingerprints.
    Whole(BTreeMap<Fingerprint, u32>),
    /// Signatures.
    Signatures(SignatureSlots),
}

impl ChunkTable {
    /// A table for `chunks` chunks with addresses below `addresses`.
    #[must_use]
    pub fn new(form: TableForm, chunks: u64, addresses: u32) -> Self {
        match form {
            TableForm::Whole => Self::Whole(BTreeMap::new()),
            TableForm::Signatures => Self::Signatures(SignatureSlots::new(chunks, addresses)),
        }
    }

    /// Adds a chunk that is not in the table.
    pub fn insert(&mut self, fingerprint: &Fingerprint, address: u32) {
        match self {
            Self::Whole(chunks) => {
                chunks.insert(*fingerprint, address);
            }
            Self::Signatures(slots) => slots.insert(fingerprint.prefix(), address),
        }
    }

    /// Appends the addresses that the chunk may have; tells whether they are certain.
    pub fn find(&self, fingerprint: &Fingerprint, addresses: &mut Vec<u32>) -> bool {
        match self {
            Self::Whole(chunks) => {
                addresses.extend(chunks.get(fingerprint));
                true
            }
            Self::Signatures(slots) => {
                slots.find(fingerprint.prefix(), addresses);
                false
            }
        }
    }

    /// Gives the chunk at address `from` the address `to`.
    pub fn repoint(&mut self, fingerprint: &Fingerprint, from: u32, to: u32) {
        match self {
            Self::Whole(chunks) => {
                chunks.entry(*fingerprint).and_modify(|address| *address = to);
            }
            Self::Signatures(slots) => slots.repoint(fingerprint.prefix(), from, to),
        }
    }

    /// Chunks in it.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        match self {
            Self::Whole(chunks) => chunks.len() as u64,
            Self::Signatures(slots) => slots.filled,
        }
    }

    /// Whether another chunk had better go into a larger table.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Signatures(slots) => {
                slots.filled * 100 >= u64::from(slots.buckets) * SLOTS as u64 * LOAD_PERCENT
            }
        }
    }

    /// Memory of the entries: 48 bytes each, or what all slots take, whether filled or not.
    #[must_use]
    pub fn bytes_used(&self) -> u64 {
        match self {
            Self::Whole(chunks) => chunks.len() as u64 * WHOLE_ENTRY_BYTES,
            Self::Signatures(slots) => slots.bytes_used(),
        }
    }
}

/// The slots of a table of signatures.
#[derive(Debug)]
pub struct SignatureSlots {
    buckets: u32,
    address_bits: u32,
    cells: Vec<u8>,
    stash: BTreeMap<u64, Vec<u32>>,
    stashed: u64,
    filled: u64,
    state: u64,
}

/// Where a key may be.
#[derive(Clone, Copy)]
struct Probe {
    signature: u16,
    buckets: [u32; 2],
}

/// SplitMix64's finaliser.
fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl SignatureSlots {
    fn new(chunks: u64, addresses: u32) -> Self {
        let slots = (chunks.max(1) * 100).div_ceil(LOAD_PERCENT);
        let buckets = u32::try_from(slots.div_ceil(SLOTS as u64)).unwrap_or(u32::MAX).max(1);
        let address_bits = (u32::BITS - addresses.leading_zeros()).max(1);
        let width = (SIGNATURE_BITS + address_bits) as usize;
        let cells = vec![0; (buckets as usize * SLOTS * width).div_ceil(8) + PADDING_BYTES];
        let (stash, state) = (BTreeMap::new(), 0);
        Self { buckets, address_bits, cells, stash, stashed: 0, filled: 0, state }
    }

    fn bytes_used(&self) -> u64 {
        self.cells.len() as u64 + self.stashed * STASHED_BYTES
    }

    /// The other bucket of an entry with this signature; the other one of that is `bucket` again.
    fn other(&self, bucket: u32, signature: u16) -> u32 {
        let buckets = u64::from(self.buckets);
        let sum = mix(u64::from(signature)) % buckets;
        ((sum + buckets - u64::from(bucket)) % buckets) as u32
    }

    fn probe(&self, key: u64) -> Probe {
        let hash = mix(key);
        let first = (((hash & 0xffff_ffff) * u64::from(self.buckets)) >> 32) as u32;
        // Zero is a vacant slot.
        let signature = ((hash >> (64 - SIGNATURE_BITS)) as u16).max(1);
        Probe { signature, buckets: [first, self.other(first, signature)] }
    }

    fn width(&self) -> usize {
        (SIGNATURE_BITS + self.address_bits) as usize
    }

    fn mask(&self) -> u64 {
        (1 << self.width()) - 1
    }

    /// A slot's signature and address. Widths are at most 48 bits, so a word holds any slot.
    fn slot(&self, slot: usize) -> (u16, u32) {
        let start = slot * self.width();
        let word = self.cells.get(start / 8..).and_then(|cells| cells.first_chunk::<8>());
        let bits = u64::from_le_bytes(word.copied().unwrap_or_default()) >> (start % 8);
        let bits = bits & self.mask();
        (bits as u16, (bits >> SIGNATURE_BITS) as u32)
    }

    fn set(&mut self, slot: usize, signature: u16, address: u32) {
        let (start, mask) = (slot * self.width(), self.mask());
        let value = (u64::from(address) << SIGNATURE_BITS | u64::from(signature)) & mask;
        let cells = self.cells.get_mut(start / 8..);
        if let Some(word) = cells.and_then(|cells| cells.first_chunk_mut::<8>()) {
            let others = u64::from_le_bytes(*word) & !(mask << (start % 8));
            *word = (others | value << (start % 8)).to_le_bytes();
        }
    }

    /// The slots of both buckets, each once.
    fn slots_of(probe: Probe) -> impl Iterator<Item = usize> {
        let distinct = 1 + usize::from(probe.buckets[0] != probe.buckets[1]);
        let buckets = probe.buckets.into_iter().take(distinct);
        buckets.flat_map(|bucket| (0..SLOTS).map(move |slot| bucket as usize * SLOTS + slot))
    }

    fn vacancy(&self, probe: Probe) -> Option<usize> {
        Self::slots_of(probe).find(|slot| self.slot(*slot).0 == 0)
    }

    fn insert(&mut self, key: u64, address: u32) {
        self.filled += 1;
        let probe = self.probe(key);
        if let Some(slot) = self.vacancy(probe) {
            return self.set(slot, probe.signature, address);
        }
        match self.path_to_vacancy(probe) {
            None => {
                self.stashed += 1;
                self.stash.entry(key).or_default().push(address);
            }
            Some(path) => {
                // From the vacant end, so that no entry is ever without a slot.
                for pair in path.windows(2).rev() {
                    if let [from, to] = *pair {
                        let (signature, moved) = self.slot(from);
                        self.set(to, signature, moved);
                    }
                }
                if let Some(first) = path.first() {
                    self.set(*first, probe.signature, address);
                }
            }
        }
    }

    /// Slots whose entries can each move to the next one; the last is vacant.
    fn path_to_vacancy(&mut self, probe: Probe) -> Option<Vec<usize>> {
        (0..WALKS_MAX).find_map(|_| self.walk(probe))
    }

    /// A random walk from bucket to bucket, through no slot twice: its entry would move twice.
    fn walk(&mut self, probe: Probe) -> Option<Vec<usize>> {
        let mut path: Vec<usize> = Vec::new();
        self.state = mix(self.state);
        let mut bucket = probe.buckets[(self.state >> 40) as usize % 2];
        while path.len() < MOVES_MAX {
            let slots = (0..SLOTS).map(|slot| bucket as usize * SLOTS + slot);
            if let Some(vacant) = slots.clone().find(|slot| self.slot(*slot).0 == 0) {
                path.push(vacant);
                return Some(path);
            }
            self.state = mix(self.state);
            let first = (self.state >> 40) as usize % SLOTS;
            let mut victims = slots.cycle().skip(first).take(SLOTS);
            let victim = victims.find(|slot| !path.contains(slot))?;
            path.push(victim);
            bucket = self.other(bucket, self.slot(victim).0);
        }
        None
    }

    fn find(&self, key: u64, addresses: &mut Vec<u32>) {
        let probe = self.probe(key);
        for slot in Self::slots_of(probe) {
            let (signature, address) = self.slot(slot);
            if signature == probe.signature {
                addresses.push(address);
            }
        }
        if self.stashed > 0 {
            addresses.extend(self.stash.get(&key).into_iter().flatten());
        }
    }

    fn repoint(&mut self, key: u64, from: u32, to: u32) {
        let probe = self.probe(key);
        let mut slots = Self::slots_of(probe);
        let found = slots.find(|slot| self.slot(*slot) == (probe.signature, from));
        if let Some(slot) = found {
            return self.set(slot, probe.signature, to);
        }
        let stashed = self.stash.get_mut(&key).into_iter().flatten();
        stashed.filter(|address| **address == from).for_each(|address| *address = to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::SeededRandomness;

    fn fingerprint(number: u64) -> Fingerprint {
        let mut fingerprint = Fingerprint::ZERO;
        fingerprint.0[..8].copy_from_slice(&mix(number).to_le_bytes());
        fingerprint.0[8..16].copy_from_slice(&number.to_le_bytes());
        fingerprint
    }

    fn found(table: &ChunkTable, fingerprint: &Fingerprint) -> Vec<u32> {
        let mut addresses = Vec::new();
        table.find(fingerprint, &mut addresses);
        addresses
    }

    #[test]
    fn full_tables_of_any_size_find_all_and_take_less_than_six_and_a_half_bytes() {
        for chunks in [0u32, 1, 3, 4, 5, 100, 5_000, 200_000] {
            let mut table = ChunkTable::new(TableForm::Signatures, chunks.into(), u32::MAX);
            for address in 0..chunks {
                assert!(!table.is_full());
                table.insert(&fingerprint(address.into()), address);
            }
            for address in 0..chunks {
                assert!(found(&table, &fingerprint(address.into())).contains(&address));
            }
            assert_eq!(table.chunks(), u64::from(chunks));
            if chunks >= 5_000 {
                let ChunkTable::Signatures(slots) = &table else { panic!("signatures") };
                assert!(slots.stashed * 1000 <= u64::from(chunks), "{} stashed", slots.stashed);
                let bytes = table.bytes_used() as f64 / f64::from(chunks);
                assert!((6.0..6.5).contains(&bytes), "{bytes}");
            }
        }
    }

    #[test]
    fn pointers_take_as_many_bits_as_the_addresses_need() {
        let table = ChunkTable::new(TableForm::Signatures, 100_000, 100_000);
        // 16 and 17 bits, 94 % filled.
        let bytes = table.bytes_used() as f64 / 100_000.0;
        assert!((4.38..4.40).contains(&bytes), "{bytes}");
        let mut whole = ChunkTable::new(TableForm::Whole, 100_000, 100_000);
        (0..1000).for_each(|number| whole.insert(&fingerprint(number), number as u32));
        assert_eq!(whole.bytes_used(), 48_000);
    }

    #[test]
    fn false_signatures_are_as_rare_as_two_bytes_make_them() {
        let mut table = ChunkTable::new(TableForm::Signatures, 50_000, 50_000);
        (0..50_000).for_each(|number| table.insert(&fingerprint(number), number as u32));
        let others = SeededRandomness::new(3);
        let trials = 1_000_000;
        let mut addresses = Vec::new();
        for _ in 0..trials {
            let mut other = Fingerprint::ZERO;
            other.0[..8].copy_from_slice(&others.next_u64().to_le_bytes());
            assert!(!table.find(&other, &mut addresses));
        }
        // Eight slots, 94 % of them filled.
        let expected = f64::from(trials) * 8.0 * 0.94 / 65_536.0;
        let known = addresses.len() as f64;
        assert!((known - expected).abs() < 6.0 * expected.sqrt(), "{known} {expected}");
    }
}
