//! The driver: streaming, holes.

mod common;

use common::{SECRETS, chunker, fingerprint, length_of, lengths, pieces, random, streamed};
use onefold_chunking::{ChunkerKind, HOLE_BLOCK_BYTES, Piece, Segmenter};
use proptest::prelude::*;

const BLOCK: usize = HOLE_BLOCK_BYTES;

/// What the module promises, by brute force over the whole stream: hole blocks first, then every
/// run between them by itself.
fn reference(chunker: &dyn onefold_chunking::Chunker, data: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut run_start = 0;
    let chunk_run = |run: &[u8], pieces: &mut Vec<Piece>| {
        pieces.extend(lengths(chunker, run).into_iter().map(|length| Piece::Data { length }));
    };
    for (index, block) in data.chunks_exact(BLOCK).enumerate() {
        if block.iter().all(|&byte| byte == 0) {
            chunk_run(&data[run_start..index * BLOCK], &mut pieces);
            pieces.push(Piece::Hole { length: BLOCK });
            run_start = (index + 1) * BLOCK;
        }
    }
    chunk_run(&data[run_start..], &mut pieces);
    pieces
}

/// Blocks of zeros and of data, with single bytes set or cleared near the edges, and a short end.
fn stream_with_holes() -> impl Strategy<Value = Vec<u8>> {
    let part = (0..5_u8, any::<u8>(), 0..BLOCK);
    (prop::collection::vec(part, 0..7), 0..BLOCK).prop_map(|(parts, tail)| {
        let mut data = Vec::new();
        for (sort, seed, place) in parts {
            let start = data.len();
            match sort {
                0 | 1 => data.resize(start + BLOCK, 0),
                2 => {
                    data.resize(start + BLOCK, 0);
                    data[start + place] = 1;
                }
                3 => {
                    data.extend(random(seed.into(), place));
                    data.resize(start + BLOCK, 0);
                }
                _ => data.extend(random(seed.into(), BLOCK)),
            }
        }
        data.resize(data.len() + tail, 0);
        data
    })
}

proptest! {
    #![proptest_config(common::cases(60))]

    #[test]
    fn streaming_equals_one_shot_for_every_chunker(
        data in stream_with_holes(),
        reads in prop::collection::vec(1_usize..200_000, 1..6),
        average in prop::sample::select(vec![700_usize, 8192, 100_000]),
        tar_aware in any::<bool>(),
    ) {
        for kind in ChunkerKind::ALL {
            for secret in SECRETS {
                let chunker = chunker(kind, average, secret.as_ref());
                let expected = reference(&*chunker, &data);
                prop_assert_eq!(&pieces(&*chunker, &data, tar_aware), &expected);
                prop_assert_eq!(&streamed(&*chunker, &data, tar_aware, &reads), &expected);
            }
        }
    }
}

#[test]
fn streaming_in_tiny_reads_equals_one_shot() {
    let mut data = random(20, 50_000);
    data.resize(data.len() + 3 * BLOCK, 0);
    data.extend(random(21, 30_000));
    for kind in ChunkerKind::ALL {
        let chunker = chunker(kind, 1024, None);
        let expected = reference(&*chunker, &data);
        assert!(expected.contains(&Piece::Hole { length: BLOCK }));
        for reads in [&[1_usize][..], &[7, 1, 13], &[4096], &[65_536], &[65_537, 1]] {
            assert_eq!(streamed(&*chunker, &data, false, reads), expected, "{kind} {reads:?}");
        }
    }
}

#[test]
fn holes_are_whole_aligned_blocks() {
    let chunker = chunker(ChunkerKind::MinCdc, 8192, None);
    // Zeros over three blocks, but only the middle one wholly.
    let mut data = vec![1; BLOCK / 2];
    data.resize(data.len() + 2 * BLOCK, 0);
    data.resize(4 * BLOCK, 1);
    let pieces = pieces(&*chunker, &data, false);
    let holes: Vec<usize> = (0..pieces.len())
        .filter(|&index| matches!(pieces[index], Piece::Hole { .. }))
        .map(|index| pieces[..index].iter().copied().map(length_of).sum())
        .collect();
    assert_eq!(holes, [BLOCK]);
    // Zeros that do not fill the last block are data.
    let zeros = vec![0; 2 * BLOCK + BLOCK - 1];
    let pieces = common::pieces(&*chunker, &zeros, false);
    assert_eq!(pieces[..2], [Piece::Hole { length: BLOCK }; 2]);
    assert!(pieces[2..].iter().all(|piece| matches!(piece, Piece::Data { .. })));
}

#[test]
fn an_empty_stream_has_no_pieces() {
    let chunker = chunker(ChunkerKind::Rabin, 8192, None);
    for tar_aware in [false, true] {
        assert_eq!(pieces(&*chunker, &[], tar_aware), []);
    }
}

#[test]
fn nothing_is_cut_before_it_is_certain() {
    let chunker = chunker(ChunkerKind::FastCdc, 8192, None);
    let mut segmenter = Segmenter::new(false);
    let data = random(22, Segmenter::window_bytes(&*chunker));
    let mut count = 0;
    assert_eq!(segmenter.advance(&*chunker, &data[..2000], false, &mut |_| count += 1), 0);
    assert_eq!(count, 0);
    assert!(segmenter.advance(&*chunker, &data, false, &mut |_| count += 1) > 0);
    assert!(count > 0);
}

/// Pieces of a stream with holes and tar are format, too.
#[test]
fn the_pieces_of_a_known_stream_do_not_change() {
    let mut data = random(23, 300_000);
    data[70_000..260_000].fill(0);
    let chunker = chunker(ChunkerKind::MinCdc, 8192, None);
    let pieces = pieces(&*chunker, &data, false);
    let holes = pieces.iter().filter(|piece| matches!(piece, Piece::Hole { .. })).count();
    assert_eq!(holes, 1);
    let ends: Vec<usize> = pieces.iter().copied().map(length_of).collect();
    assert_eq!(fingerprint(&ends), 0x0fe2_ef53_1bc7_9330);
}

/// Pieces of a stream of which zeros are not shown where that may be, neighbouring holes as one;
/// and how many bytes were not shown.
fn passed_over(chunker: &dyn onefold_chunking::Chunker, data: &[u8]) -> (Vec<Piece>, usize) {
    let mut segmenter = Segmenter::new(false);
    let window = Segmenter::window_bytes(chunker);
    let (mut found, mut at, mut passed) = (Vec::new(), 0, 0);
    while at < data.len() {
        let visible = &data[at..data.len().min(at + window)];
        let end = at + visible.len() == data.len();
        at += segmenter.advance(chunker, visible, end, &mut |piece| found.push(piece));
        let zeros = data[at..].iter().take_while(|byte| **byte == 0).count();
        let length = segmenter.skip(zeros as u64) as usize;
        if length > 0 {
            found.push(Piece::Hole { length });
        }
        (at, passed) = (at + length, passed + length);
    }
    (found, passed)
}

fn with_merged_holes(pieces: &[Piece]) -> Vec<Piece> {
    let mut merged: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (merged.last_mut(), piece) {
            (Some(Piece::Hole { length }), Piece::Hole { length: more }) => *length += more,
            _ => merged.push(*piece),
        }
    }
    merged
}

#[test]
fn zeros_that_are_not_shown_are_cut_as_if_they_were() {
    let mut data = random(30, 100_000);
    // Behind data in the middle of a block, at the end of one, and at the stream's end.
    data.resize(40 * BLOCK + 17, 0);
    data.extend(random(31, 3 * BLOCK - 17));
    data.resize(90 * BLOCK, 0);
    data.extend(random(32, 5));
    data.resize(200 * BLOCK + 9, 0);
    for kind in ChunkerKind::ALL {
        let chunker = chunker(kind, 8192, None);
        let (found, passed) = passed_over(&*chunker, &data);
        let expected = with_merged_holes(&reference(&*chunker, &data));
        assert_eq!(with_merged_holes(&found), expected, "{kind}");
        assert!(passed > 150 * BLOCK, "{kind}: {passed}");
    }
    // Where a segment may end in them, they are looked at.
    assert_eq!(Segmenter::new(true).skip(10 * BLOCK as u64), 0);
    assert_eq!(Segmenter::new(false).skip(10 * BLOCK as u64 + 1), 10 * BLOCK as u64);
}
