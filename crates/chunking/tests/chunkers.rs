//! What every chunker promises, keyed and not.

mod common;

use common::{CONTENT_DEFINED, SECRETS, chunker, chunks, lengths, random, text};
use onefold_chunking::{ChunkerKind, ChunkerParameters};
use proptest::prelude::*;
use std::collections::HashSet;

fn mean(lengths: &[usize]) -> f64 {
    lengths.iter().sum::<usize>() as f64 / lengths.len() as f64
}

#[test]
fn sizes_stay_in_bounds_and_the_mean_is_the_average() {
    let data = random(10, 6 << 20);
    for kind in ChunkerKind::ALL {
        for secret in SECRETS {
            for average in [1000, 2048, 8192, 12_000, 20_000] {
                let chunker = chunker(kind, average, secret.as_ref());
                let mut lengths = lengths(&*chunker, &data);
                lengths.pop();
                let bounds = chunker.size_min_bytes()..=chunker.size_max_bytes();
                assert!(lengths.iter().all(|length| bounds.contains(length)));
                // The mean of n chunks varies by less than one average over the root of n; thrice.
                let tolerance = 0.05 + 3.0 / (lengths.len() as f64).sqrt();
                let ratio = mean(&lengths) / average as f64;
                assert!((ratio - 1.0).abs() < tolerance, "{kind} {average} {ratio}");
            }
        }
    }
}

#[test]
fn chunkers_say_the_sizes_that_they_were_made_with() {
    for kind in ChunkerKind::ALL {
        for average in [2048, 12_000] {
            let parameters = ChunkerParameters::with_average(kind, average).unwrap();
            let chunker = parameters.build(None).unwrap();
            let said =
                [chunker.size_min_bytes(), chunker.size_avg_bytes(), chunker.size_max_bytes()];
            let asked =
                [parameters.size_min_bytes, parameters.size_avg_bytes, parameters.size_max_bytes];
            assert_eq!(said, asked, "{kind}");
        }
    }
}

#[test]
fn text_has_a_sane_mean() {
    let data = text(11, 4 << 20);
    for kind in ChunkerKind::ALL {
        for secret in SECRETS {
            let lengths = lengths(&*chunker(kind, 8192, secret.as_ref()), &data);
            assert!((6000.0..11_000.0).contains(&mean(&lengths)), "{kind} {}", mean(&lengths));
        }
    }
}

#[test]
fn runs_of_fillers_make_chunks_of_the_maximum() {
    for kind in ChunkerKind::ALL {
        for key in 0..20 {
            let chunker = chunker(kind, 4096, Some(&[key; 32]));
            for byte in [0, 0x20, 0xff] {
                let data = vec![byte; 20 * chunker.size_max_bytes()];
                assert_eq!(lengths(&*chunker, &data), [chunker.size_max_bytes(); 20], "{kind}");
            }
        }
    }
}

#[test]
fn runs_of_any_byte_make_mincdc_chunks_of_the_maximum() {
    let chunker = chunker(ChunkerKind::MinCdc, 8192, None);
    for byte in 0..=255 {
        assert_eq!(chunker.cut(&vec![byte; 20_000]), 12_288);
    }
}

#[test]
fn a_run_that_begins_in_a_sixteenth_of_the_search_makes_a_mincdc_chunk_of_the_maximum() {
    let chunker = chunker(ChunkerKind::MinCdc, 8192, None);
    // The search begins with the word before the minimum; what it is rated by are 8192 places.
    let (search, sixteenth, word) = (4096 - 4, 8192 / 16, 4);
    let cut = |byte: u8, begin: usize| {
        let mut data = vec![0; 20_000];
        data[search + begin..].fill(byte);
        chunker.cut(&data)
    };
    // Words at the edge of some runs win over those within; these are not meant.
    let wins = |byte: &u8| cut(*byte, 4000) == search + 4000 + word;
    let winners: Vec<u8> = (1..=255).filter(wins).collect();
    assert!(winners.len() > 5);
    for byte in winners {
        assert_eq!(cut(byte, sixteenth), 12_288, "{byte}");
        let begin = sixteenth + 1;
        assert_eq!(cut(byte, begin), search + begin + word, "{byte}: at its first place");
    }
}

#[test]
fn periodic_data_repeats_its_chunks() {
    for kind in ChunkerKind::ALL {
        for secret in SECRETS {
            let chunker = chunker(kind, 8192, secret.as_ref());
            for period in [2, 3, 10, 64, 512] {
                let data: Vec<u8> =
                    random(period as u64, period).into_iter().cycle().take(2 << 20).collect();
                let chunks = chunks(&*chunker, &data);
                let distinct: HashSet<&[u8]> = chunks.iter().copied().collect();
                assert!(distinct.len() <= period + 2, "{kind} {period} {}", distinct.len());
                if kind == ChunkerKind::MinCdc {
                    assert!(distinct.len() <= 4, "{period} {}", distinct.len());
                    assert!(data.len() / chunks.len() > 8192, "{period}");
                }
            }
        }
    }
}

#[test]
fn an_insertion_changes_chunks_near_it_only() {
    let data = random(12, 2 << 20);
    for kind in CONTENT_DEFINED {
        for secret in SECRETS {
            let chunker = chunker(kind, 4096, secret.as_ref());
            let before: HashSet<&[u8]> = chunks(&*chunker, &data).into_iter().collect();
            for place in [0, 1, 700_000, 1_500_000] {
                let mut edited = data.clone();
                edited.splice(place..place, *b"inserted");
                let after = chunks(&*chunker, &edited);
                let new = after.iter().filter(|chunk| !before.contains(*chunk)).count();
                assert!((1..=20).contains(&new), "{kind} {place} {new} of {}", after.len());
            }
        }
    }
}

#[test]
fn the_secret_decides_the_boundaries() {
    let data = random(13, 1 << 20);
    let ends = |kind, secret: Option<&[u8; 32]>| -> Vec<usize> {
        let mut end = 0;
        let lengths = lengths(&*chunker(kind, 4096, secret), &data);
        lengths
            .iter()
            .map(|length| {
                end += length;
                end
            })
            .collect()
    };
    let mut similar = [9; 32];
    similar[31] = 8;
    for kind in CONTENT_DEFINED {
        assert_eq!(ends(kind, Some(&[9; 32])), ends(kind, Some(&[9; 32])));
        let sets: Vec<HashSet<usize>> = [None, Some(&[0; 32]), Some(&[9; 32]), Some(&similar)]
            .into_iter()
            .map(|secret| ends(kind, secret).into_iter().collect())
            .collect();
        for (index, one) in sets.iter().enumerate() {
            for other in &sets[..index] {
                let common = one.intersection(other).count();
                assert!(common <= 5, "{kind}: {common} of {} ends agree", one.len());
            }
        }
    }
    assert_eq!(ends(ChunkerKind::Fixed, None), ends(ChunkerKind::Fixed, Some(&[9; 32])));
}

/// Data with structure: random, constant and periodic parts.
fn mixed_data() -> impl Strategy<Value = Vec<u8>> {
    let part = (0..4_u8, any::<u8>(), 1_usize..3000).prop_map(|(sort, byte, length)| match sort {
        0 => vec![0; length],
        1 => vec![byte; length],
        2 => random(byte.into(), 1 + length % 20).into_iter().cycle().take(length).collect(),
        _ => random(byte.into(), length),
    });
    prop::collection::vec(part, 1..8).prop_map(|parts| parts.concat())
}

fn any_parameters() -> impl Strategy<Value = ChunkerParameters> {
    let sizes = (64_usize..600, 64_usize..600, 64_usize..2000, 0..=4_u8);
    (0..ChunkerKind::ALL.len(), sizes).prop_map(|(kind, (min, to_avg, to_max, depth))| {
        let kind = ChunkerKind::ALL[kind];
        let avg = (min + to_avg).max(256);
        let (min, max) = match kind {
            ChunkerKind::Fixed => (avg, avg),
            ChunkerKind::MinCdc => (min, 2 * avg - min),
            _ => (min, avg + to_max),
        };
        ChunkerParameters {
            kind,
            size_min_bytes: min,
            size_avg_bytes: avg,
            size_max_bytes: max,
            regression_depth: if kind == ChunkerKind::Regression { depth } else { 0 },
        }
    })
}

proptest! {
    #![proptest_config(common::cases(400))]

    /// Any parameters that validate, any data, any short window: progress, bounds, no panic; and a
    /// cut does not look beyond the maximum.
    #[test]
    fn any_window_is_cut_within_bounds(
        parameters in any_parameters(),
        data in mixed_data(),
        key in prop::option::of(any::<u8>()),
        visible in 1_usize..80,
    ) {
        let secret = key.map(|byte| [byte; 32]);
        let chunker = parameters.build(secret.as_ref()).unwrap();
        let (min, max) = (chunker.size_min_bytes(), chunker.size_max_bytes());
        let tiny = &data[..visible.min(data.len())];
        prop_assert!((1..=tiny.len()).contains(&chunker.cut(tiny)));
        let mut rest = &data[..];
        while !rest.is_empty() {
            let length = chunker.cut(rest);
            prop_assert!((1..=rest.len().min(max)).contains(&length));
            prop_assert!(length >= min.min(rest.len()));
            if rest.len() >= max {
                prop_assert_eq!(chunker.cut(&rest[..max]), length);
            }
            rest = &rest[length..];
        }
    }
}

#[test]
fn fixed_chunks_of_which_one_size_is_another_are_refused() {
    let fixed = ChunkerParameters::with_average(ChunkerKind::Fixed, 8192).unwrap();
    for (size_min_bytes, size_max_bytes) in [(8191, 8192), (8192, 8193)] {
        let changed = ChunkerParameters { size_min_bytes, size_max_bytes, ..fixed.clone() };
        let message = changed.validate().unwrap_err().to_string();
        assert!(message.contains("8192"), "{size_min_bytes}, {size_max_bytes}: {message}");
    }
}
