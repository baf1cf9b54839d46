//! The signature table: where a chunk is, in less than six bytes of memory a chunk.
//!
//! Algorithm: the in-memory index of the primary data deduplication system (ATC'12), which is
//! ChunkStash's: a cuckoo hash table that keeps of each chunk a signature of two bytes and a
//! pointer of at most four, and no key. A chunk without its signature in its two buckets is
//! certainly new, so the table is the filter for new chunks as well; a match is verified where the
//! pointer leads, and a false one, 0.012 % of the new chunks, costs that read.
//!
//! What differs from the paper: tables are made at once from all the chunks of a piece of an
//! immutable run, with their keys at hand. So a bucket has four slots and a key two independent
//! buckets, which fills 96 % of the slots, and the pointer, the number of a container in the
//! run, takes as many bits as that run's containers need: 4.5 bytes a chunk in all for 140,000
//! containers.
//!
//! A chunk that lies in several containers has a slot for each, or if there are more than four, for
//! the newest three, and one that says that there are more.
//!
//! Invariants: no false negatives; the answer depends only on the entries and the parameters, never
//! on the machine. Parameters from a store are checked before they are used.

use onefold_types::{Error, Result};

/// Slots in a bucket.
const SLOTS: usize = 4;
/// Slots filled, in percent.
const LOAD_PERCENT: usize = 96;
/// Slots that one key takes at most.
const SLOTS_PER_KEY_MAX: usize = 4;
/// Bits of a signature.
const SIGNATURE_BITS: u32 = 16;
/// Entries moved to make room for one before the attempt is given up.
const MOVES_MAX: usize = 1000;
/// Attempts to build a table, each with another seed; more room from the third on.
const ATTEMPTS_MAX: u64 = 16;
/// Zeros behind the slots, so that the last one can be read as part of a word.
const PADDING_BYTES: usize = 8;
/// No entry, while a table is built.
const VACANT: u32 = u32::MAX;

/// What a reader must know to use the slots; the caller stores it in its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignatureParameters {
    /// What keys are mixed with.
    pub seed: u64,
    /// Buckets of four slots.
    pub buckets: u32,
    /// Bits of a container's ordinal. All of them set say that there are more instances.
    pub ordinal_bits: u8,
}

impl SignatureParameters {
    /// The ordinal that says that there are more instances.
    fn more(&self) -> u32 {
        u32::try_from((1u64 << self.ordinal_bits) - 1).unwrap_or(u32::MAX)
    }

    fn slot_bits(&self) -> usize {
        SIGNATURE_BITS as usize + usize::from(self.ordinal_bits)
    }

    fn slots(&self) -> usize {
        self.buckets as usize * SLOTS
    }

    /// Bytes of all slots, padding included.
    fn cells_bytes(&self) -> Option<usize> {
        Some(self.slots().checked_mul(self.slot_bits())?.div_ceil(8) + PADDING_BYTES)
    }

    fn probe(&self, key: u64) -> Probe {
        let first_hash = mix(key.wrapping_add(self.seed));
        let second_hash = mix(first_hash);
        let bucket = |hash: u64| (((hash & 0xffff_ffff) * u64::from(self.buckets)) >> 32) as u32;
        let (first, mut second) = (bucket(first_hash), bucket(second_hash));
        if second == first {
            second = if first + 1 < self.buckets { first + 1 } else { 0 };
        }
        let signature = (first_hash >> (64 - SIGNATURE_BITS)) as u16;
        // Zero is a vacant slot.
        Probe { signature: signature.max(1), buckets: [first, second] }
    }
}

/// Where a key may be.
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

/// A static cuckoo table from fingerprint prefixes to container ordinals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignatureTable {
    parameters: SignatureParameters,
    cells: Box<[u8]>,
}

impl SignatureTable {
    /// The table of these entries: prefixes and ordinals below `ordinals`, in rising order. `None`
    /// if there is none, which prefixes that somebody chose for it can bring about.
    #[must_use]
    pub fn build(entries: &[(u64, u32)], ordinals: u32) -> Option<Self> {
        let ordinal_bits = (u32::BITS - ordinals.leading_zeros()) as u8;
        let mut parameters = SignatureParameters { seed: 0, buckets: 0, ordinal_bits };
        let wanted = wanted_slots(entries, parameters.more());
        let buckets_least = (wanted.len() * 100).div_ceil(SLOTS * LOAD_PERCENT).max(1);
        for attempt in 0..ATTEMPTS_MAX {
            // Small tables and unlucky ones need more room.
            let more = attempt.saturating_sub(1) as usize * (1 + buckets_least / 64);
            parameters.buckets = u32::try_from(buckets_least + more).ok()?;
            parameters.seed = attempt;
            if let Some(slots) = fill(&parameters, &wanted) {
                return pack(parameters, &wanted, &slots);
            }
        }
        None
    }

    /// The table of these cells under `parameters`.
    ///
    /// # Errors
    /// `Damaged` if they cannot belong together.
    pub fn from_cells(parameters: SignatureParameters, cells: &[u8]) -> Result<Self> {
        let is_sound = parameters.buckets > 0
            && parameters.buckets <= u32::MAX / SLOTS as u32
            && u32::from(parameters.ordinal_bits) <= u32::BITS
            && parameters.cells_bytes() == Some(cells.len());
        if !is_sound {
            return Err(Error::damaged("the parameters of a signature table do not fit its slots"));
        }
        Ok(Self { parameters, cells: cells.into() })
    }

    /// The slots, without parameters.
    #[must_use]
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// What [`Self::from_cells`] needs besides the cells.
    #[must_use]
    pub fn parameters(&self) -> SignatureParameters {
        self.parameters
    }

    /// Memory taken by the slots, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.cells.len()
    }

    /// Whether a slot has the key's signature; `false` is certain.
    #[must_use]
    pub fn contains(&self, prefix: u64) -> bool {
        let mut known = false;
        self.matches(prefix, |_| known = true);
        known
    }

    /// Appends the ordinals of all slots with the key's signature, in no order; tells whether the
    /// key may have more instances than the table names.
    pub fn find(&self, prefix: u64, ordinals: &mut Vec<u32>) -> bool {
        let more = self.parameters.more();
        let mut has_more = false;
        self.matches(prefix, |ordinal| match ordinal == more {
            true => has_more = true,
            false => ordinals.push(ordinal),
        });
        has_more
    }

    /// Whether every slot names an ordinal below this, or says that there are more instances.
    #[must_use]
    pub fn names_only_ordinals_below(&self, ordinals: u32) -> bool {
        let (more, width) = (self.parameters.more(), self.parameters.slot_bits());
        (0..self.parameters.slots()).all(|slot| {
            let bits = self.bits_at(slot * width);
            let ordinal = (bits >> SIGNATURE_BITS) as u32 & more;
            bits as u16 == 0 || ordinal < ordinals || ordinal == more
        })
    }

    fn matches(&self, prefix: u64, mut each: impl FnMut(u32)) {
        let probe = self.parameters.probe(prefix);
        let width = self.parameters.slot_bits();
        // In a table of one bucket, the other bucket is the same.
        let distinct = 1 + usize::from(probe.buckets[0] != probe.buckets[1]);
        for bucket in probe.buckets.into_iter().take(distinct) {
            let start = bucket as usize * SLOTS * width;
            for slot in 0..SLOTS {
                let bits = self.bits_at(start + slot * width);
                if bits as u16 == probe.signature {
                    each((bits >> SIGNATURE_BITS) as u32 & self.parameters.more());
                }
            }
        }
    }

    /// The word whose lowest bit is bit `start` of the cells; at least 57 bits of it are right. A
    /// word lies behind the last cell, so that none begins too late.
    fn bits_at(&self, start: usize) -> u64 {
        let word = self.cells.get(start / 8..).and_then(|cells| cells.first_chunk::<8>());
        u64::from_le_bytes(word.copied().unwrap_or_default()) >> (start % 8)
    }
}

/// What gets a slot: every entry, or the newest of those with one prefix and a sign.
fn wanted_slots(entries: &[(u64, u32)], more: u32) -> Vec<(u64, u32)> {
    let mut wanted = Vec::with_capacity(entries.len());
    for instances in entries.chunk_by(|one, other| one.0 == other.0) {
        if instances.len() <= SLOTS_PER_KEY_MAX {
            wanted.extend_from_slice(instances);
        } else {
            wanted.extend(instances.first().map(|(prefix, _)| (*prefix, more)));
            wanted.extend_from_slice(&instances[instances.len() + 1 - SLOTS_PER_KEY_MAX..]);
        }
    }
    wanted
}

/// Gives every entry a slot in one of its buckets; `None` if that did not succeed.
fn fill(parameters: &SignatureParameters, wanted: &[(u64, u32)]) -> Option<Vec<u32>> {
    let mut slots = vec![VACANT; parameters.slots()];
    let mut state = parameters.seed;
    for number in 0..u32::try_from(wanted.len()).ok()? {
        let mut homeless = number;
        let mut left = None;
        for moves in 0.. {
            let [first, second] = parameters.probe(wanted[homeless as usize].0).buckets;
            // An entry that was moved out of one of its buckets goes to the other.
            let choices = match left {
                None => [first, second],
                Some(bucket) if bucket == first => [second, second],
                Some(_) => [first, first],
            };
            let vacant = choices.iter().find_map(|bucket| vacancy(&slots, *bucket));
            if let Some(slot) = vacant {
                slots[slot] = homeless;
                break;
            }
            if moves == MOVES_MAX {
                return None;
            }
            state = mix(state);
            let bucket = choices[(state >> 32) as usize % 2];
            let victim = bucket as usize * SLOTS + (state >> 40) as usize % SLOTS;
            homeless = std::mem::replace(&mut slots[victim], homeless);
            left = Some(bucket);
        }
    }
    Some(slots)
}

fn vacancy(slots: &[u32], bucket: u32) -> Option<usize> {
    let start = bucket as usize * SLOTS;
    (start..start + SLOTS).find(|slot| slots[*slot] == VACANT)
}

/// Writes the slots bit by bit, low bits first: signature, then ordinal.
fn pack(
    parameters: SignatureParameters,
    wanted: &[(u64, u32)],
    slots: &[u32],
) -> Option<SignatureTable> {
    let width = parameters.slot_bits();
    let mut cells = Vec::with_capacity(parameters.cells_bytes()?);
    let (mut word, mut filled) = (0u128, 0);
    for slot in slots {
        if let Some((prefix, ordinal)) = wanted.get(*slot as usize) {
            let signature = parameters.probe(*prefix).signature;
            let value = u128::from(*ordinal) << SIGNATURE_BITS | u128::from(signature);
            word |= value << filled;
        }
        filled += width;
        if filled >= 64 {
            cells.extend_from_slice(&(word as u64).to_le_bytes());
            word >>= 64;
            filled -= 64;
        }
    }
    cells.extend_from_slice(&(word as u64).to_le_bytes()[..filled.div_ceil(8)]);
    cells.extend_from_slice(&[0; PADDING_BYTES]);
    Some(SignatureTable { parameters, cells: cells.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;
    use onefold_types::environment::SeededRandomness;
    use proptest::prelude::*;

    fn entries(seed: u64, count: usize, ordinals: u32) -> Vec<(u64, u32)> {
        let randomness = SeededRandomness::new(seed);
        let mut entries: Vec<(u64, u32)> = (0..count)
            .map(|_| (randomness.next_u64(), randomness.below(u64::from(ordinals)) as u32))
            .collect();
        entries.sort_unstable();
        entries
    }

    fn found(table: &SignatureTable, prefix: u64) -> (Vec<u32>, bool) {
        let mut ordinals = Vec::new();
        let more = table.find(prefix, &mut ordinals);
        ordinals.sort_unstable();
        (ordinals, more)
    }

    #[test]
    fn tables_of_any_size_know_all_and_are_95_percent_full() {
        for (count, ordinals) in [(0, 1), (1, 1), (5, 2), (340, 3), (3_000, 70), (16_320, 140_000)]
        {
            let entries = entries(1, count, ordinals);
            let table = SignatureTable::build(&entries, ordinals).unwrap();
            for (prefix, ordinal) in &entries {
                assert!(table.contains(*prefix));
                assert!(found(&table, *prefix).0.contains(ordinal));
            }
            if count > 1000 {
                let load = count as f64 / table.parameters().slots() as f64;
                assert!(load >= 0.95, "{load}");
            }
            assert!(table.names_only_ordinals_below(ordinals));
            let largest = entries.iter().map(|(_, ordinal)| *ordinal).max();
            assert!(largest.is_none_or(|largest| !table.names_only_ordinals_below(largest)));
            let again = SignatureTable::from_cells(table.parameters(), table.cells()).unwrap();
            assert_eq!(again, table);
        }
        let bytes = SignatureTable::build(&entries(1, 16_320, 140_000), 140_000).unwrap();
        let bytes = bytes.bytes_used() as f64 / 16_320.0;
        assert!((4.4..4.6).contains(&bytes), "{bytes}");
    }

    #[test]
    fn false_signatures_are_as_rare_as_two_bytes_make_them() {
        let table = SignatureTable::build(&entries(2, 16_000, 1000), 1000).unwrap();
        let others = SeededRandomness::new(3);
        let trials = 2_000_000;
        let known = (0..trials).filter(|_| table.contains(others.next_u64())).count();
        // Eight slots, 96 % of them filled.
        let expected = f64::from(trials) * 8.0 * 0.96 / 65_536.0;
        assert!((known as f64 - expected).abs() < 6.0 * expected.sqrt(), "{known} {expected}");
    }

    #[test]
    fn all_instances_of_a_chunk_are_named_or_the_newest_and_that_there_are_more() {
        let mut entries = entries(4, 1000, 500);
        for instances in 1..10u32 {
            let prefix = u64::from(instances) << 40;
            entries.extend((0..instances).map(|ordinal| (prefix, ordinal * 50)));
        }
        entries.sort_unstable();
        let table = SignatureTable::build(&entries, 500).unwrap();
        for instances in 1..10u32 {
            let (ordinals, more) = found(&table, u64::from(instances) << 40);
            assert_eq!(more, instances > 4, "{instances}");
            let first = if more { instances - 3 } else { 0 };
            let expected: Vec<u32> = (first..instances).map(|ordinal| ordinal * 50).collect();
            assert_eq!(ordinals, expected, "{instances}: and no false signature in so few slots");
        }
    }

    #[test]
    fn the_largest_ordinals_fit() {
        let ordinals = u32::MAX;
        let entries = [(1, 0), (2, ordinals - 1), (3, ordinals / 2)];
        let table = SignatureTable::build(&entries, ordinals).unwrap();
        assert_eq!(table.parameters().ordinal_bits, 32);
        entries.iter().for_each(|(prefix, ordinal)| {
            assert_eq!(found(&table, *prefix), (vec![*ordinal], false));
        });
    }

    #[test]
    fn stored_slots_never_change_between_versions() {
        let table = SignatureTable::build(&[(1, 2), (0x0123_4567_89ab_cdef, 5)], 6).unwrap();
        let parameters = SignatureParameters { seed: 0, buckets: 1, ordinal_bits: 3 };
        assert_eq!(table.parameters(), parameters);
        // 19 bits a slot: the signature, which is the hash's highest 16 bits, then the ordinal.
        let slots = [1u64, 0x0123_4567_89ab_cdef].map(|prefix| mix(prefix) >> 48);
        assert_eq!(slots, GOLDEN_SIGNATURES);
        let bits = slots[0] | 2 << 16 | slots[1] << 19 | 5 << 35;
        let mut expected = bits.to_le_bytes().to_vec();
        expected.resize(10 + PADDING_BYTES, 0);
        assert_eq!(table.cells(), expected);
    }

    #[test]
    fn the_other_bucket_of_a_key_is_the_next_one_where_both_are_the_same() {
        let mut same = 0;
        for (buckets, key) in (1..6u32).flat_map(|buckets| (0..100).map(move |key| (buckets, key)))
        {
            let parameters = SignatureParameters { seed: 3, buckets, ordinal_bits: 8 };
            let [first, second] = [mix(key + 3), mix(mix(key + 3))]
                .map(|hash| ((hash % (1 << 32)) * u64::from(buckets) / (1 << 32)) as u32);
            let other = if first == second { (first + 1) % buckets } else { second };
            assert_eq!(parameters.probe(key).buckets, [first, other], "{key} in {buckets}");
            same += usize::from(first == second);
        }
        assert!(same > 200, "{same}");
    }

    #[test]
    fn from_the_third_attempt_on_there_is_more_room() {
        let mut attempts = [0; ATTEMPTS_MAX as usize];
        for (keys, seed) in [2, 6, 20, 70].into_iter().flat_map(|n| (0..50).map(move |s| (n, s))) {
            // Four instances of each key, which have few places to go to.
            let keys = entries(seed, keys, 1);
            let one = |(prefix, _): &(u64, u32)| (0..4).map(|ordinal| (*prefix, ordinal)).collect();
            let entries: Vec<(u64, u32)> = keys.iter().flat_map::<Vec<_>, _>(one).collect();
            let least = (entries.len() * 100).div_ceil(SLOTS * LOAD_PERCENT);
            let table = SignatureTable::build(&entries, 4);
            let Some(SignatureParameters { seed: attempt, buckets, .. }) =
                table.map(|table| table.parameters())
            else {
                continue;
            };
            let more = attempt.saturating_sub(1) as usize * (1 + least / 64);
            assert_eq!(buckets as usize, least + more, "{} of {seed}", keys.len());
            attempts[attempt as usize] += 1;
        }
        assert!(attempts.iter().skip(2).sum::<i32>() > 20, "{attempts:?}");
    }

    /// Computed by an independent implementation of SplitMix64.
    const GOLDEN_SIGNATURES: [u64; 2] = [0x910a, 0x157a];

    #[test]
    fn parameters_are_checked() {
        let table = SignatureTable::build(&entries(5, 100, 9), 9).unwrap();
        let (good, cells) = (table.parameters(), table.cells());
        let refused = [
            (good, &cells[1..]),
            (SignatureParameters { buckets: 0, ..good }, cells),
            (SignatureParameters { buckets: 0, ..good }, &[0; PADDING_BYTES][..]),
            (SignatureParameters { buckets: u32::MAX, ..good }, cells),
            (SignatureParameters { ordinal_bits: 33, ..good }, cells),
            (SignatureParameters { ordinal_bits: 255, ..good }, cells),
        ];
        for (parameters, cells) in refused {
            let error = SignatureTable::from_cells(parameters, cells).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{parameters:?}");
        }
    }

    proptest! {
        #[test]
        fn no_cells_make_a_table_panic(
            seed: u64, buckets in 1u32..9, ordinal_bits in 0u8..=32, byte: u8, key: u64,
        ) {
            let parameters = SignatureParameters { seed, buckets, ordinal_bits };
            let cells = vec![byte; parameters.cells_bytes().unwrap()];
            let table = SignatureTable::from_cells(parameters, &cells).unwrap();
            prop_assert_eq!(table.contains(key), !{
                let (ordinals, more) = found(&table, key);
                ordinals.is_empty() && !more
            });
        }
    }
}
