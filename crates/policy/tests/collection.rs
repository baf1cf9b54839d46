//! What a collection holds in memory: how much that is, and what its filters tell apart.

use onefold_policy::collection::duplicates::DeadFilter;
use onefold_policy::collection::focus::{CandidateFilter, candidate_chunks_max};
use onefold_policy::collection::live_filter::{LiveFilter, LiveInstances};
use onefold_policy::collection::perfect_hash::{HashPartition, PerfectHash};
use onefold_policy::collection::select::{ContainerLiveness, SpaceGoal, select};
use onefold_types::ContainerId;
use onefold_types::environment::SeededRandomness;

fn random_keys(seed: u64, count: usize) -> Vec<u64> {
    let randomness = SeededRandomness::new(seed);
    (0..count).map(|_| randomness.next_u64()).collect()
}

#[test]
fn s3_a_candidate_filter_takes_half_of_the_memory_at_most() {
    let memory_bytes = 10_000;
    for chunks in [candidate_chunks_max(memory_bytes), 100_000, 10_000_000] {
        let filter = CandidateFilter::with_memory(chunks, memory_bytes, 3).unwrap();
        assert_eq!(filter.bytes_used(), memory_bytes / 2, "{chunks} chunks");
    }
}

#[test]
fn s3_what_one_filter_of_the_second_round_lets_pass_the_other_does_not() {
    let (keys, others) = (random_keys(1, 20_000), random_keys(2, 200_000));
    let mut candidates = CandidateFilter::with_memory(20_000, 40_000, 7).unwrap();
    let mut live = LiveFilter::with_memory(20_000, 20_000, 7).unwrap();
    for key in &keys {
        candidates.insert(*key);
        live.insert(*key);
    }
    let passed: Vec<&u64> = others.iter().filter(|key| candidates.admits(**key)).collect();
    // A few in a hundred pass each filter, and of those a few in a hundred the other.
    assert!((4_000..6_000).contains(&passed.len()), "{}", passed.len());
    let both = passed.iter().filter(|key| live.contains(***key)).count();
    assert!(both < passed.len() / 10, "{both} of {}", passed.len());
}

#[test]
fn containers_of_one_moment_are_told_apart_by_the_rest_of_their_names() {
    let container = |random: u8| {
        let mut name = [9; 16];
        name[8..].fill(random);
        ContainerId(name)
    };
    let mut instances = LiveInstances::with_memory(1_000, usize::MAX, 9).unwrap();
    let prefixes = random_keys(3, 1_000);
    prefixes.iter().for_each(|prefix| instances.insert(*prefix, container(1)));
    let held = |random: u8| {
        prefixes.iter().filter(|prefix| instances.contains(**prefix, container(random))).count()
    };
    assert_eq!(held(1), 1_000);
    assert!(held(2) < 100, "{}", held(2));
}

#[test]
fn memory_that_was_taken_is_told() {
    let filter = DeadFilter::new(8_000).unwrap();
    assert_eq!(filter.bytes_used(), 8_000);
    let mut keys = random_keys(4, 30_000);
    keys.sort_unstable();
    let partition = HashPartition::build(&keys).unwrap();
    assert_eq!(partition.keys(), 30_000);
    assert!((30_000..36_000).contains(&partition.positions()), "{}", partition.positions());
    // FAST'17, section 3.3: less than 2.8 bits for each key.
    let bits_of_a_key = partition.bytes_used() as f64 * 8.0 / 30_000.0;
    assert!((1.0..2.8).contains(&bits_of_a_key), "{bits_of_a_key}");
    let least = partition.bytes_used();
    let hash = PerfectHash::assemble(0, vec![partition]).unwrap();
    assert!((least..least + 100).contains(&hash.bytes_used()), "{}", hash.bytes_used());
}

#[test]
fn no_stranger_is_sent_behind_the_last_position() {
    for count in 1..60 {
        let mut keys = random_keys(count as u64, count);
        keys.iter_mut().for_each(|key| *key >>= 40);
        keys.sort_unstable();
        keys.dedup();
        let hash = PerfectHash::assemble(0, vec![HashPartition::build(&keys).unwrap()]).unwrap();
        for stranger in random_keys(99, 2_000).into_iter().chain(keys.iter().map(|key| key + 1)) {
            for key in [stranger, stranger >> 40, u64::MAX] {
                let position = hash.position(key);
                assert!(position.is_none_or(|at| at < hash.positions()), "{key} at {position:?}");
            }
        }
    }
}

#[test]
fn containers_with_keys_of_two_partitions_belong_to_none() {
    // The first key of the lower half and the last one of the upper half: neither may be.
    let partition = |keys: &[u64]| HashPartition::build(keys).unwrap();
    let (low, high, empty) = (1 << 62, 3 << 62, || partition(&[]));
    for keys in [vec![low, high], vec![high], vec![high, high + 1]] {
        let parts = vec![partition(&keys), empty()];
        assert!(PerfectHash::assemble(1, parts).is_err(), "{keys:?}");
    }
    let parts = vec![empty(), partition(&[low, high])];
    assert!(PerfectHash::assemble(1, parts).is_err());
    let parts = vec![partition(&[low]), partition(&[high])];
    assert_eq!(PerfectHash::assemble(1, parts).unwrap().keys(), 2);
}

#[test]
fn what_is_condemned_for_another_reason_comes_once_and_is_counted() {
    let id = |number| ContainerId([number; 16]);
    let containers = [(1, 0), (2, 50), (3, 100), (4, 80)].map(|(number, live)| ContainerLiveness {
        container: id(number),
        stored_bytes: 100,
        plain_bytes: 100,
        live_bytes: live,
        chunks: 100,
        live_chunks: live as u32,
    });
    let mut selection = select(&containers, SpaceGoal::DeadOnly, None);
    assert_eq!((selection.condemned.as_slice(), selection.copied_bytes_stored), (&[id(1)][..], 0));
    selection.also_condemn(&containers, |container| container == id(1) || container == id(3));
    assert_eq!(selection.condemned, [id(1), id(3)]);
    assert_eq!((selection.dead_bytes_stored, selection.copied_bytes_stored), (100, 100));
    selection.also_condemn(&containers, |container| container == id(2));
    assert_eq!(selection.condemned, [id(1), id(2), id(3)]);
    assert_eq!((selection.dead_bytes_stored, selection.copied_bytes_stored), (150, 150));
}
