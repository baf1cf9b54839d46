//! Boundaries are part of the stored format: these lists were computed once and must not change.
//!
//! A change costs every store its deduplication against older snapshots. Whoever changes
//! boundaries on purpose gives the chunker a new code instead.

mod common;

use common::{chunker, fingerprint, lengths, random};
use onefold_chunking::ChunkerKind;

struct Golden {
    kind: ChunkerKind,
    keyed: bool,
    chunks: usize,
    first: [usize; 4],
    hash: u64,
}

const fn golden(
    kind: ChunkerKind,
    keyed: bool,
    chunks: usize,
    first: [usize; 4],
    hash: u64,
) -> Golden {
    Golden { kind, keyed, chunks, first, hash }
}

const GOLDEN: [Golden; 10] = [
    golden(ChunkerKind::Fixed, false, 128, [8192, 8192, 8192, 8192], 0xc21b_0abf_1025_afb5),
    golden(ChunkerKind::Fixed, true, 128, [8192, 8192, 8192, 8192], 0xc21b_0abf_1025_afb5),
    golden(ChunkerKind::Rabin, false, 126, [5092, 6816, 4964, 6911], 0x0a60_7cd6_9f8c_9530),
    golden(ChunkerKind::Rabin, true, 137, [5739, 6306, 4149, 9172], 0xb8ff_a657_b9c9_a70c),
    golden(ChunkerKind::Regression, false, 133, [5092, 6816, 4964, 6911], 0x83bb_9cad_6705_3f3b),
    golden(ChunkerKind::Regression, true, 141, [5739, 6306, 4149, 9172], 0x2fdd_96b6_6266_a535),
    golden(ChunkerKind::FastCdc, false, 136, [8005, 7151, 12801, 7515], 0xc8cf_2763_7ae8_8ea6),
    golden(ChunkerKind::FastCdc, true, 131, [10640, 3474, 9964, 7958], 0x9f4e_d15e_176d_ecce),
    golden(ChunkerKind::MinCdc, false, 128, [11836, 10841, 7519, 5762], 0x66c0_d33e_903a_b016),
    golden(ChunkerKind::MinCdc, true, 123, [11435, 7936, 8285, 8473], 0x4876_30fc_d6c8_39a0),
];

#[test]
fn boundaries_do_not_change() {
    let data = random(1, 1 << 20);
    let mut found = String::new();
    let mut same = true;
    for golden in &GOLDEN {
        let secret = golden.keyed.then_some(&[7; 32]);
        let lengths = lengths(&*chunker(golden.kind, 8192, secret), &data);
        let hash = fingerprint(&lengths);
        same &= lengths.len() == golden.chunks;
        same &= lengths[..4] == golden.first && hash == golden.hash;
        found += &format!(
            "    golden({:?}, {}, {}, {:?}, {hash:#018x}),\n",
            golden.kind,
            golden.keyed,
            lengths.len(),
            &lengths[..4]
        );
    }
    assert!(same, "boundaries changed; now they are\n{found}");
}
