//! Sketches against their definition, and what they are to tell apart.

use super::*;
use onefold_types::environment::{Randomness, SeededRandomness};

fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SeededRandomness::new(seed).fill(&mut bytes);
    bytes
}

/// Bytes of few values, as in text, so that windows repeat.
fn words(seed: u64, length: usize) -> Vec<u8> {
    let randomness = SeededRandomness::new(seed);
    let mut text = Vec::new();
    while text.len() < length {
        text.extend_from_slice(format!("word{} ", randomness.below(300)).as_bytes());
    }
    text.truncate(length);
    text
}

/// A sketch by its definition: position by position, with all samples at hand.
fn sketch_by_definition(bytes: &[u8]) -> Option<Sketch> {
    if bytes.len() < SKETCH_BYTES_MIN {
        return None;
    }
    let mut hashes = Vec::new();
    for window in bytes.windows(32) {
        let byte = window[..8].iter().fold(0u32, |hash, byte| (5 * hash + u32::from(*byte)) % 256);
        if byte >= 254 {
            let mut sum = 0u128;
            for (number, word) in window.chunks(8).enumerate() {
                let word = u64::from_le_bytes(word.try_into().unwrap());
                let product = u128::from(word) * u128::from(number_at(301 + number as u64) | 1);
                sum = (sum + product) % (1 << 64);
            }
            let sum = sum as u64;
            hashes.push(((sum ^ (sum >> 32)).wrapping_mul(number_at(301) | 1) >> 32) as u32);
        }
    }
    let (mut features, mut winners) = (Vec::new(), std::collections::BTreeSet::new());
    for number in 0..12 {
        let factor = (number_at(1 + number) >> 32) as u32 | 1;
        let summand = (number_at(101 + number) >> 32) as u32;
        let value = |hash: u32| hash.wrapping_mul(factor).wrapping_add(summand) as i32;
        let winner = hashes.iter().copied().max_by_key(|hash| value(*hash))?;
        winners.insert(winner);
        let feature = (value(winner) as u32).wrapping_mul(0x9e37_79b1) >> 16;
        features.extend_from_slice(&(feature as u16).to_le_bytes());
    }
    (winners.len() >= 4).then(|| Sketch(features.try_into().unwrap()))
}

#[test]
fn a_sketch_is_what_its_definition_says() {
    // Every length around the ends of blocks and of the windows behind them.
    let (bytes, text) = (random_bytes(1, 4096), words(2, 4096));
    let mut sketches = 0;
    for length in (500..1100).chain(4000..4096) {
        for start in [0, 1, 7] {
            for content in [&bytes, &text] {
                let part = &content[start..length];
                assert_eq!(Sketch::of(part), sketch_by_definition(part), "{start}..{length}");
                sketches += usize::from(Sketch::of(part).is_some());
            }
        }
    }
    assert!(sketches > 2000, "{sketches}");
}

#[test]
fn the_last_window_counts_and_none_behind_it() {
    // A chunk that ends with a sampled window that wins, and the same chunk without its last byte.
    let bytes = random_bytes(3, 65_536);
    let differs =
        |length: &usize| Sketch::of(&bytes[..*length]) != Sketch::of(&bytes[..length - 1]);
    let last = (600..65_536).rev().find(differs).unwrap();
    let window = &bytes[last - 32..last];
    assert!(window[..8].iter().fold(0u8, |h, b| h.wrapping_mul(5).wrapping_add(*b)) >= 254);
}

#[test]
fn stored_sketches_stay_valid() {
    let of = |bytes: &[u8]| Sketch::of(bytes).unwrap().to_bytes();
    assert_eq!(
        of(&random_bytes(4, 8192)),
        [
            83, 220, 88, 120, 21, 208, 225, 98, 38, 179, 235, 154, 32, 142, 83, 122, 43, 205, 42,
            103, 16, 13, 62, 52
        ]
    );
    assert_eq!(
        of(&words(5, 8192)),
        [
            202, 110, 91, 162, 129, 151, 55, 190, 86, 107, 127, 191, 179, 39, 24, 214, 215, 94, 16,
            174, 249, 74, 166, 176
        ]
    );
}

#[test]
fn short_chunks_have_no_sketch() {
    let bytes = random_bytes(6, SKETCH_BYTES_MIN + 1024);
    assert_eq!(Sketch::of(&[]), None);
    // Whether so short a chunk has enough samples depends on its bytes: many are asked.
    let parts = || (0..1024).map(|start| &bytes[start..]);
    assert!(parts().all(|part| Sketch::of(&part[..SKETCH_BYTES_MIN - 1]).is_none()));
    assert!(parts().any(|part| Sketch::of(&part[..SKETCH_BYTES_MIN]).is_some()));
}

#[test]
fn even_chunks_have_no_sketch() {
    for byte in 0..=255 {
        assert_eq!(Sketch::of(&[byte; 20_000]), None, "{byte}");
    }
    for period in 2..=16 {
        for seed in 0..50 {
            let pattern = random_bytes(seed, period);
            let bytes: Vec<u8> = pattern.iter().copied().cycle().take(20_000).collect();
            let sampled = pattern.iter().enumerate().filter(|(place, _)| {
                let window = bytes[*place..*place + 8].iter();
                window.fold(0u8, |hash, byte| hash.wrapping_mul(5).wrapping_add(*byte)) >= 254
            });
            assert_eq!(Sketch::of(&bytes).is_some(), sampled.count() >= WINNERS_MIN);
        }
    }
}

#[test]
fn every_position_may_be_sampled() {
    // Each byte completes the eight of a position to a hash that is sampled.
    let randomness = SeededRandomness::new(11);
    let mut bytes = random_bytes(11, 7);
    while bytes.len() < 4 * STRETCH {
        let earlier = bytes[bytes.len() - 7..].iter();
        let earlier = earlier.fold(0u8, |hash, byte| hash.wrapping_mul(5).wrapping_add(*byte));
        let hash = SAMPLED_MIN + randomness.below(2) as u8;
        bytes.push(hash.wrapping_sub(earlier.wrapping_mul(5)));
    }
    assert!(Sketch::of(&bytes).is_some());
    assert_eq!(Sketch::of(&bytes), sketch_by_definition(&bytes));
}

#[test]
fn winners_are_counted_to_the_bound() {
    let samples = |hashes: &[u32]| {
        let mut samples = Samples::default();
        hashes.iter().for_each(|hash| samples.add_hash(*hash));
        samples
    };
    // The hashes that make one transform greatest, so that each wins.
    let best = |number: usize| {
        (i32::MAX as u32).wrapping_sub(SUMMANDS[number]).wrapping_mul(INVERSES[number])
    };
    let hashes: Vec<u32> = (0..WINNERS_MIN).map(best).collect();
    assert!(samples(&hashes).sketch().is_some());
    assert!(samples(&hashes[1..]).sketch().is_none());
    assert!(samples(&[]).sketch().is_none());
}

#[test]
fn an_even_stretch_in_a_chunk_adds_at_most_one_sample() {
    let bytes = random_bytes(7, 16_384);
    let mut with_run = bytes[..8192].to_vec();
    with_run.extend_from_slice(&[0xa5; 16_384]);
    with_run.extend_from_slice(&bytes[8192..]);
    let equal = Sketch::of(&bytes).unwrap().equal_features(&Sketch::of(&with_run).unwrap());
    assert!(equal >= 10, "{equal}");
}

#[test]
fn edited_chunks_share_features_and_unrelated_ones_do_not() {
    let randomness = SeededRandomness::new(8);
    let (mut two_equal, mut key_equal, mut unrelated_equal) = (0, 0, 0);
    for seed in 0..200 {
        let bytes = random_bytes(1000 + seed, 16_384);
        let mut copy = bytes.clone();
        for _ in 0..32 {
            let place = randomness.below(copy.len() as u64) as usize;
            match randomness.below(3) {
                0 => copy.insert(place, 1),
                1 => drop(copy.remove(place)),
                _ => copy[place] ^= 0xff,
            }
        }
        let [one, other] = [&bytes, &copy].map(|bytes| Sketch::of(bytes).unwrap());
        two_equal += u32::from(one.equal_features(&other) >= 2);
        key_equal += u32::from(one.keys().iter().zip(other.keys()).any(|(a, b)| *a == b));
        let stranger = Sketch::of(&random_bytes(5000 + seed, 16_384)).unwrap();
        unrelated_equal += one.equal_features(&stranger);
    }
    assert_eq!(two_equal, 200);
    assert!(key_equal >= 199, "{key_equal}");
    // Chance alone: 200 x 12 features of 16 bits.
    assert!(unrelated_equal <= 1, "{unrelated_equal}");
}

#[test]
fn what_lies_before_a_chunk_does_not_matter() {
    let bytes = random_bytes(9, 32_768);
    let whole = Sketch::of(&bytes).unwrap();
    for start in 1..200 {
        let equal = whole.equal_features(&Sketch::of(&bytes[start..]).unwrap());
        assert!(equal >= 10, "{start}: {equal}");
    }
}

#[test]
fn features_are_spread_over_all_their_values() {
    // 300 chunks with 12 features: 3,600 draws out of 65,536 hit 3,503 values on average.
    let features =
        (0..300).flat_map(|seed| Sketch::of(&random_bytes(seed, 8192)).unwrap().features());
    let different = features.collect::<std::collections::BTreeSet<u16>>().len();
    assert!(different > 3400, "{different}");
}

#[test]
fn sketches_are_kept_and_compared_by_feature() {
    let sketch = Sketch::of(&random_bytes(10, 8192)).unwrap();
    assert_eq!(Sketch::from_bytes(sketch.to_bytes()), sketch);
    assert_eq!(sketch.equal_features(&sketch), 12);
    for place in 0..24 {
        let mut bytes = sketch.to_bytes();
        bytes[place] ^= 0x10;
        let other = Sketch::from_bytes(bytes);
        assert_eq!(sketch.equal_features(&other), 11);
        let (keys, others) = (sketch.keys(), other.keys());
        let different: Vec<usize> =
            (0..6).filter(|number| keys[*number] != others[*number]).collect();
        assert_eq!(different, [place / 4]);
    }
}

#[test]
fn keys_of_the_same_features_differ_by_their_number() {
    for features in [[0u8; 4], [0xff; 4], [1, 2, 3, 4]] {
        let bytes = from_fn(|place| features[place % 4]);
        let mut keys = Sketch::from_bytes(bytes).keys().to_vec();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 6);
    }
}
