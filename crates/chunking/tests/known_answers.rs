//! Known answers: where every chunker cuts, as a second implementation found it.
//!
//! `known_answers/cut_points.txt` was computed by `known_answers/generate.py` from docs/FORMAT.md.
//! Another boundary costs every store its deduplication against older snapshots, and the secret is
//! the one that an encrypted store of the known master key has.

use onefold_chunking::{ChunkerKind, ChunkerParameters};
use std::collections::BTreeSet;

const KIB: usize = 1024;
const KNOWN: &str = include_str!("known_answers/cut_points.txt");
/// The subkey `boundaries` in `crates/crypto/tests/known_answers/answers.json`.
const SECRET: &str = "7e41216a6d9bd12b88e4bc5b5aac3960cbd875d0e3d704e855fc19845c57343d";

/// Random bytes; few different words; short and long periods; fillers; random bytes.
fn input() -> Vec<u8> {
    let mut random = vec![0; 208 * KIB];
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"onefold known answers: chunker input");
    hasher.finalize_xof().fill(&mut random);
    let few = random[..24 * KIB].iter().map(|byte| byte & 1).collect();
    let periods = [100, 256, 257, 512, 513].map(|period: usize| {
        random[..period].iter().copied().cycle().take(20 * KIB).collect::<Vec<u8>>()
    });
    [
        random[..192 * KIB].to_vec(),
        few,
        periods.concat(),
        vec![0; 20 * KIB],
        vec![b' '; 20 * KIB],
        vec![0xff; 8 * KIB],
        random[192 * KIB..].to_vec(),
    ]
    .concat()
}

/// The chunker that a line's heading tells of.
fn chunker(heading: &str) -> (ChunkerParameters, bool) {
    let words: Vec<&str> = heading.split(' ').collect();
    let [kind, low, average, high, depth, key] = words[..] else {
        panic!("not a heading: {heading}");
    };
    let parameters = ChunkerParameters {
        kind: kind.parse().unwrap(),
        size_min_bytes: low.parse().unwrap(),
        size_avg_bytes: average.parse().unwrap(),
        size_max_bytes: high.parse().unwrap(),
        regression_depth: depth.parse().unwrap(),
    };
    (parameters, key == "keyed")
}

#[test]
fn r80_every_chunker_cuts_where_it_is_known_to() {
    let data = input();
    let secret = *blake3::Hash::from_hex(SECRET).unwrap().as_bytes();
    let mut lines = KNOWN.lines();
    let heading = format!("input {} {}", data.len(), blake3::hash(&data));
    assert_eq!(lines.next(), Some(heading.as_str()));
    let mut seen = BTreeSet::new();
    for line in lines {
        let (heading, known) = line.split_once(": ").unwrap();
        let (parameters, keyed) = chunker(heading);
        seen.insert((parameters.kind.to_string(), keyed));
        // The sizes are those that a store gets which is told the average only.
        let usual =
            ChunkerParameters::with_average(parameters.kind, parameters.size_avg_bytes).unwrap();
        let depth = parameters.regression_depth;
        assert_eq!(parameters, ChunkerParameters { regression_depth: depth, ..usual }, "{heading}");
        let chunker = parameters.build(keyed.then_some(&secret)).unwrap();
        let (mut rest, mut lengths) = (&data[..], Vec::new());
        while !rest.is_empty() {
            let length = chunker.cut(rest);
            lengths.push(length.to_string());
            rest = &rest[length..];
        }
        assert_eq!(lengths.join(" "), known, "{heading}");
    }
    assert_eq!(seen.len(), 2 * ChunkerKind::ALL.len(), "every kind, keyed and not");
}
