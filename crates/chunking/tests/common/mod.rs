//! What the integration tests share: data, drivers and a stable hash.

#![allow(dead_code, reason = "every test binary uses a part")]

use onefold_chunking::{Chunker, ChunkerKind, ChunkerParameters, Piece, Segmenter};
use onefold_types::environment::{Randomness, SeededRandomness};
use proptest::prelude::ProptestConfig;

pub const SECRETS: [Option<[u8; 32]>; 2] = [None, Some([7; 32])];

pub const CONTENT_DEFINED: [ChunkerKind; 4] =
    [ChunkerKind::Rabin, ChunkerKind::Regression, ChunkerKind::FastCdc, ChunkerKind::MinCdc];

/// So many cases; failures are not written into the source tree.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

pub fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut data = vec![0; length];
    SeededRandomness::new(seed).fill(&mut data);
    data
}

/// Words of a small vocabulary, the first ones far more often than the last ones.
pub fn text(seed: u64, length: usize) -> Vec<u8> {
    let randomness = SeededRandomness::new(seed);
    let vocabulary: Vec<Vec<u8>> = (0..400)
        .map(|_| (0..2 + randomness.below(8)).map(|_| b'a' + randomness.below(26) as u8).collect())
        .collect();
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        let rank = randomness.below(400) * randomness.below(400) / 400;
        text.extend_from_slice(&vocabulary[rank as usize]);
        text.push(if randomness.below(10) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(length);
    text
}

pub fn chunker(kind: ChunkerKind, average: usize, secret: Option<&[u8; 32]>) -> Box<dyn Chunker> {
    ChunkerParameters::with_average(kind, average).unwrap().build(secret).unwrap()
}

/// Chunk lengths of `data` without a segmenter.
pub fn lengths(chunker: &dyn Chunker, data: &[u8]) -> Vec<usize> {
    let (mut rest, mut lengths) = (data, Vec::new());
    while !rest.is_empty() {
        let length = chunker.cut(rest);
        assert!(length > 0 && length <= rest.len() && length <= chunker.size_max_bytes());
        lengths.push(length);
        rest = &rest[length..];
    }
    lengths
}

pub fn chunks<'a>(chunker: &dyn Chunker, data: &'a [u8]) -> Vec<&'a [u8]> {
    let mut rest = data;
    let cut = |length: usize| {
        let (chunk, after) = rest.split_at(length);
        rest = after;
        chunk
    };
    lengths(chunker, data).into_iter().map(cut).collect()
}

/// The pieces of `data` when all of it is visible at once.
pub fn pieces(chunker: &dyn Chunker, data: &[u8], tar_aware: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let consumed =
        Segmenter::new(tar_aware).advance(chunker, data, true, &mut |piece| pieces.push(piece));
    assert_eq!(consumed, data.len());
    pieces
}

pub fn length_of(piece: Piece) -> usize {
    match piece {
        Piece::Data { length } | Piece::Hole { length } => length,
    }
}

/// The pieces of `data` when it arrives in reads of the given sizes, over and over.
pub fn streamed(
    chunker: &dyn Chunker,
    data: &[u8],
    tar_aware: bool,
    reads: &[usize],
) -> Vec<Piece> {
    let mut segmenter = Segmenter::new(tar_aware);
    let (mut pieces, mut start, mut stop) = (Vec::new(), 0, 0);
    for read in reads.iter().cycle() {
        stop = (stop + read).min(data.len());
        let end = stop == data.len();
        let visible = &data[start..stop];
        let consumed = segmenter.advance(chunker, visible, end, &mut |piece| pieces.push(piece));
        if visible.len() >= Segmenter::window_bytes(chunker) {
            assert!(consumed > 0, "a full window makes progress");
        }
        start += consumed;
        assert_eq!(start, pieces.iter().copied().map(length_of).sum::<usize>());
        if end {
            break;
        }
    }
    assert_eq!(start, data.len());
    pieces
}

/// 64-bit FNV-1a over the ends of the chunks, as little-endian words.
pub fn fingerprint(lengths: &[usize]) -> u64 {
    let (mut hash, mut end) = (0xcbf2_9ce4_8422_2325_u64, 0_u64);
    for length in lengths {
        end += *length as u64;
        for byte in end.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    hash
}
