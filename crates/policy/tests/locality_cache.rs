//! The locality cache against a plain oracle, and its budget.

use onefold_policy::{Instance, LocalityCache};
use onefold_types::{ContainerId, Fingerprint};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every fourth name begins with the same bytes.
fn container(number: u8) -> ContainerId {
    let mut bytes = [number % 4; 16];
    bytes[15] = number;
    ContainerId(bytes)
}

/// Fingerprints of one `prefix` agree in their first eight bytes and differ in their last.
fn fingerprint(prefix: u8, tail: u8) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes[7] = prefix;
    bytes[31] = tail;
    Fingerprint(bytes)
}

fn numbered(number: u64) -> Fingerprint {
    let mut bytes = [0; 32];
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.rotate_left(17);
    bytes[..8].copy_from_slice(&spread.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    Fingerprint(bytes)
}

fn array(numbers: std::ops::Range<u64>) -> Arc<[Fingerprint]> {
    numbers.map(numbered).collect()
}

/// What the cache promises, written as plainly as possible; most recently used last.
#[derive(Default)]
struct Oracle {
    containers: BTreeMap<ContainerId, Arc<[Fingerprint]>>,
    order: Vec<ContainerId>,
}

impl Oracle {
    fn touch(&mut self, container: ContainerId) {
        self.order.retain(|other| *other != container);
        self.order.push(container);
    }

    fn insert(&mut self, container: ContainerId, array: Arc<[Fingerprint]>) {
        self.containers.insert(container, array);
        self.touch(container);
    }

    fn remove(&mut self, container: ContainerId) -> bool {
        self.order.retain(|other| *other != container);
        self.containers.remove(&container).is_some()
    }

    fn instances(&self, fingerprint: &Fingerprint) -> Vec<Instance> {
        let mut instances = Vec::new();
        for (container, array) in &self.containers {
            for (position, other) in (0..).zip(array.iter()) {
                if other == fingerprint {
                    instances.push(Instance { container: *container, position });
                }
            }
        }
        instances
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, Vec<(u8, u8)>),
    Remove(u8),
    Lookup(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let chunk = (0..6u8, 0..4u8);
    prop_oneof![
        3 => (0..12u8, prop::collection::vec(chunk.clone(), 0..40))
            .prop_map(|(name, chunks)| Step::Insert(name, chunks)),
        2 => (0..12u8).prop_map(Step::Remove),
        6 => chunk.prop_map(|(prefix, tail)| Step::Lookup(prefix, tail)),
    ]
}

fn check_all(cache: &LocalityCache, oracle: &Oracle) -> Result<(), TestCaseError> {
    prop_assert_eq!(cache.container_count(), oracle.containers.len());
    for name in 0..12 {
        let name = container(name);
        prop_assert_eq!(cache.contains_container(name), oracle.containers.contains_key(&name));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn r22_cache_agrees_with_an_ordered_map(
        steps in prop::collection::vec(step(), 1..80),
        capacity_bytes in prop_oneof![Just(1 << 20), 2_000..12_000usize],
    ) {
        let mut cache = LocalityCache::new(capacity_bytes);
        let mut oracle = Oracle::default();
        for step in steps {
            match step {
                Step::Insert(name, chunks) => {
                    let array: Arc<[Fingerprint]> =
                        chunks.iter().map(|(prefix, tail)| fingerprint(*prefix, *tail)).collect();
                    let evicted_before = cache.evictions();
                    let present = oracle.containers.get(&container(name)) == Some(&array);
                    if !present {
                        oracle.remove(container(name));
                    }
                    if cache.insert(container(name), Arc::clone(&array)) {
                        // Evictions may only have taken the least recently used ones.
                        let evicted = (cache.evictions() - evicted_before) as usize;
                        let order = oracle.order.clone();
                        order.iter().take(evicted).for_each(|name| { oracle.remove(*name); });
                        oracle.insert(container(name), array);
                    } else {
                        prop_assert!(capacity_bytes < 12_000);
                        prop_assert_eq!(cache.evictions(), evicted_before);
                    }
                }
                Step::Remove(name) => {
                    prop_assert_eq!(cache.remove(container(name)), oracle.remove(container(name)));
                }
                Step::Lookup(prefix, tail) => {
                    let wanted = fingerprint(prefix, tail);
                    let valid = oracle.instances(&wanted);
                    match cache.lookup(&wanted) {
                        Some(instance) => {
                            prop_assert!(valid.contains(&instance));
                            oracle.touch(instance.container);
                        }
                        None => prop_assert!(valid.is_empty()),
                    }
                }
            }
            prop_assert!(cache.bytes_used() <= capacity_bytes);
            check_all(&cache, &oracle)?;
        }
    }
}

#[test]
fn a_fingerprint_in_two_containers_outlives_the_removal_of_one() {
    for removed_first in [1, 2] {
        let mut cache = LocalityCache::new(1 << 20);
        assert!(cache.insert(container(1), array(0..10)));
        assert!(cache.insert(container(2), array(5..15)));
        assert!(cache.remove(container(removed_first)));
        let kept = container(3 - removed_first);
        assert_eq!(cache.lookup(&numbered(7)).map(|instance| instance.container), Some(kept));
        assert!(cache.remove(kept));
        assert_eq!(cache.lookup(&numbered(7)), None);
        assert_eq!(cache.container_count(), 0);
    }
}

#[test]
fn equal_prefixes_are_told_apart_by_the_whole_fingerprint() {
    let mut cache = LocalityCache::new(1 << 20);
    let array: Arc<[Fingerprint]> = (0..200).map(|tail| fingerprint(9, tail)).collect();
    assert!(cache.insert(container(1), array));
    for tail in 0..200 {
        let expected = Instance { container: container(1), position: u32::from(tail) };
        assert_eq!(cache.lookup(&fingerprint(9, tail)), Some(expected));
    }
    assert_eq!(cache.lookup(&fingerprint(9, 200)), None);
}

#[test]
fn the_least_recently_hit_container_goes_first() {
    let mut cache = LocalityCache::new(200_000);
    let full = (0..).take_while(|number| {
        let first = u64::from(*number) * 1000;
        assert!(cache.insert(container(*number), array(first..first + 500)));
        cache.evictions() == 0
    });
    let count = full.count() as u8;
    assert!(count >= 6, "{count} containers fit");
    // The last insertion dropped container 0; a hit protects 1, so 2 goes next.
    assert!(!cache.contains_container(container(0)));
    assert!(cache.lookup(&numbered(1000)).is_some());
    assert!(cache.insert(container(100), array(900_000..900_500)));
    assert!(cache.contains_container(container(1)));
    assert!(!cache.contains_container(container(2)));
}

#[test]
fn an_oversized_container_is_refused_and_drops_nothing() {
    let mut cache = LocalityCache::new(50_000);
    assert!(cache.insert(container(1), array(0..100)));
    let before = cache.bytes_used();
    assert!(!cache.insert(container(2), array(1000..3000)));
    assert_eq!(cache.bytes_used(), before);
    assert!(cache.contains_container(container(1)));
    let mut nothing = LocalityCache::new(0);
    assert!(!nothing.insert(container(1), array(0..1)));
    assert_eq!(nothing.bytes_used(), 0);
}

#[test]
fn a_full_cache_takes_under_fifty_bytes_per_chunk_and_most_of_its_budget() {
    for capacity_bytes in [400_000, 1 << 20, 3_000_000, 10_000_000, 16 << 20] {
        let mut cache = LocalityCache::new(capacity_bytes);
        let mut number = 0;
        while cache.evictions() == 0 {
            let mut name = [0; 16];
            name[..8].copy_from_slice(&u64::to_le_bytes(number));
            assert!(cache.insert(ContainerId(name), array(number * 1000..number * 1000 + 1000)));
            assert!(cache.bytes_used() <= capacity_bytes);
            number += 1;
        }
        let per_chunk = cache.bytes_used() as f64 / (cache.container_count() * 1000) as f64;
        assert!(per_chunk < 50.0, "{per_chunk} bytes per chunk");
        let share = cache.bytes_used() as f64 / capacity_bytes as f64;
        // What is missing is less than one more container and the entries it would need.
        let missing = capacity_bytes - cache.bytes_used();
        assert!(
            missing < 50 * 1000 + capacity_bytes / 50,
            "only {share} of {capacity_bytes} bytes used"
        );
    }
}

#[test]
fn a_chunk_is_found_in_the_container_that_is_asked_for_and_that_is_no_use_of_it() {
    let mut cache = LocalityCache::new(1 << 20);
    let held = [(1, 0..10), (2, 5..20)];
    for (number, numbers) in held {
        assert!(cache.insert(container(number), array(numbers)));
    }
    for (number, chunk, position) in [
        (1, 0, Some(0)),
        (1, 7, Some(7)),
        (2, 7, Some(2)),
        (2, 0, None),
        (1, 15, None),
        (3, 7, None),
    ] {
        let found = cache.position_in(container(number), &numbered(chunk));
        assert_eq!(found, position, "{chunk} in {number}");
    }
    // Two chunks whose first bytes are the same.
    let alike = [fingerprint(7, 1), fingerprint(7, 2)];
    assert!(cache.insert(container(9), Arc::from(alike)));
    let positions = alike.map(|chunk| cache.position_in(container(9), &chunk));
    assert_eq!(positions, [Some(0), Some(1)]);
    assert!(cache.bytes_used() >= 27 * 32, "the fingerprints are part of what is used");
    let mut holders = Vec::new();
    cache.holders(&numbered(7), &mut holders);
    let instance = |number, position| Instance { container: container(number), position };
    assert_eq!(holders, [instance(2, 2), instance(1, 7)]);
}

#[test]
fn what_the_cache_takes_is_counted_to_the_byte() {
    const BUCKET: usize = 12;
    const SLOT: usize = 40;
    // Capacities around a power of two of buckets, of 36 bytes with their share of fingerprints;
    // chunks of a container. Two chunks need a multiple of four buckets, and the empty one.
    let cases = [(20_000, 1), (36 * 1023, 10), (36 * 1024, 2), (36 * 1025, 10), (123_456, 100)];
    for (capacity, chunks) in cases {
        let mut cache = LocalityCache::new(capacity);
        let (mut buckets, mut slots, mut arrays) = (0, 0, 0);
        for number in 0..=u8::MAX {
            let held = usize::from(number);
            // At most three entries in four buckets, of which one stays empty.
            let needed = ((held + 1) * (chunks + 1) * 4).div_ceil(3) + 1;
            let mut table = capacity / (BUCKET + 24);
            let is_too_full = needed > table;
            while table / 2 >= needed.max(64) {
                table /= 2;
            }
            let more_slots = if held == slots { (held / 4).max(4) } else { 0 };
            let all_slots = (slots + more_slots) * SLOT;
            // A table that grows takes the room of both until the entries have moved.
            let both = buckets * BUCKET + if table > buckets { table * BUCKET } else { 0 };
            let all_arrays = arrays + 16 + 32 * chunks;
            let fits = !is_too_full && both + all_slots + all_arrays <= capacity;
            let first = u64::from(number) * 1000;
            let was_taken = cache.insert(container(number), array(first..first + chunks as u64));
            assert_eq!(was_taken && cache.evictions() == 0, fits, "{capacity} {chunks} {number}");
            if !fits {
                assert!(number > 2, "{capacity} {chunks}: a test of nothing");
                break;
            }
            (buckets, slots, arrays) = (table.max(buckets), slots + more_slots, all_arrays);
            let expected = buckets * BUCKET + slots * SLOT + arrays;
            assert_eq!(cache.bytes_used(), expected, "{capacity} {chunks} {number}");
        }
        assert!(cache.container_count() < 256, "{capacity} {chunks}: never full");
    }
}
