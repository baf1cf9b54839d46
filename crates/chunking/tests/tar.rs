//! Archives: a file inside gives the pieces of the file itself, and nonsense does no harm.

mod common;

use common::{chunker, length_of, pieces, random, streamed};
use onefold_chunking::{ChunkerKind, Piece, Segment, TarScanner};
use proptest::prelude::*;

/// A ustar header with a valid checksum.
fn header(name: &str, kind: u8, size: &[u8]) -> [u8; 512] {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..124 + size.len()].copy_from_slice(size);
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block
}

fn seal(block: &mut [u8; 512]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn octal(size: usize) -> Vec<u8> {
    format!("{size:011o}\0").into_bytes()
}

/// An entry with its content and padding.
fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, &octal(content.len())).to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// The segments of `data`, the length of the last one cut to what is there.
fn segments(data: &[u8]) -> Vec<(char, usize)> {
    let (mut scanner, mut rest, mut segments) = (TarScanner::new(), data, Vec::new());
    while !rest.is_empty() {
        let (sort, length) = match scanner.next(rest, true).expect("all is visible") {
            Segment::Structure { length } => ('s', length as u64),
            Segment::File { length } => ('f', length),
            Segment::Rest => ('r', u64::MAX),
        };
        assert!(length > 0);
        let length = rest.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        segments.push((sort, length));
        rest = &rest[length..];
    }
    segments
}

#[test]
fn a_file_in_an_archive_gives_the_pieces_of_the_file() {
    let mut sparse = random(30, 400_000);
    sparse[100_000..300_000].fill(0);
    let long_name = "long/".repeat(60);
    let files = [
        ("one".to_owned(), random(31, 100_000)),
        ("empty".to_owned(), Vec::new()),
        ("sparse".to_owned(), sparse),
        (format!("{long_name}file"), random(32, 65_536)),
        ("tiny".to_owned(), b"little content".to_vec()),
    ];
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in &files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &content[..]).unwrap();
    }
    let archive = builder.into_inner().unwrap();
    let in_archive: Vec<usize> = files
        .iter()
        .filter(|(_, content)| !content.is_empty())
        .map(|(_, content)| content.len())
        .collect();
    let found: Vec<usize> = segments(&archive)
        .into_iter()
        .filter_map(|(sort, length)| (sort == 'f').then_some(length))
        .collect();
    assert_eq!(found, in_archive);
    for kind in ChunkerKind::ALL {
        let chunker = chunker(kind, 4096, None);
        let archive_pieces = pieces(&*chunker, &archive, true);
        for (name, content) in &files {
            let alone = pieces(&*chunker, content, false);
            let position = archive.windows(content.len().max(1)).position(|w| w == content);
            let start = position.unwrap_or(0);
            let mut offset = 0;
            let inside: Vec<Piece> = archive_pieces
                .iter()
                .filter(|piece| {
                    offset += length_of(**piece);
                    offset > start && offset <= start + content.len()
                })
                .copied()
                .collect();
            assert_eq!(inside, alone, "{kind} {name}");
        }
        // Without awareness they differ, or the test would prove nothing.
        assert_ne!(archive_pieces, pieces(&*chunker, &archive, false), "{kind}");
    }
}

#[test]
fn structure_is_grouped_up_to_a_header_with_content_or_its_target() {
    let mut archive = entry("directory", b'5', b"");
    archive.extend(entry("././@LongLink", b'L', &[b'n'; 300]));
    archive.extend(entry("file", b'0', &[1; 700]));
    archive.extend(entry("link", b'2', b""));
    archive.extend(entry("last", b'0', &[2; 512]));
    archive.resize(archive.len() + 1024, 0);
    let expected =
        [('s', 512 + 1024 + 512), ('f', 700), ('s', 324 + 512 + 512), ('f', 512), ('s', 1024)];
    assert_eq!(segments(&archive), expected);
    let directories: Vec<u8> = (0..40).flat_map(|_| entry("directory", b'5', b"")).collect();
    assert_eq!(segments(&directories), [('s', 8192), ('s', 8192), ('s', 4096)]);
}

#[test]
fn archives_one_after_the_other_are_scanned_and_zeros_make_holes() {
    let file = random(33, 5000);
    let mut archive = entry("file", b'0', &file);
    archive.resize(archive.len() + 200_000 / 512 * 512, 0);
    archive.extend(entry("again", b'0', &file));
    let zeros = 199_680 - 3 * 65_536;
    assert_eq!(
        segments(&archive),
        [
            ('s', 512),
            ('f', 5000),
            ('s', 120),
            ('s', 65_536),
            ('s', 65_536),
            ('s', 65_536),
            ('s', zeros),
            ('s', 512),
            ('f', 5000),
            ('s', 120)
        ]
    );
    let chunker = chunker(ChunkerKind::MinCdc, 2048, None);
    let pieces = pieces(&*chunker, &archive, true);
    assert_eq!(pieces.iter().filter(|piece| matches!(piece, Piece::Hole { .. })).count(), 3);
}

#[test]
fn a_pax_record_overrides_the_size_even_across_a_segment_boundary() {
    let record = b"13 size=1000\n";
    for directories in 0..17 {
        let mut archive: Vec<u8> =
            (0..directories).flat_map(|_| entry("directory", b'5', b"")).collect();
        archive.extend(entry("pax", b'x', record));
        archive.extend(header("file", b'0', &octal(0)));
        archive.resize(archive.len() + 1024, 7);
        archive.extend(entry("next", b'0', b"x"));
        let files: Vec<usize> = segments(&archive)
            .into_iter()
            .filter_map(|(sort, length)| (sort == 'f').then_some(length))
            .collect();
        assert_eq!(files, [1000, 1], "{directories}");
    }
}

#[test]
fn a_pax_record_counts_for_one_entry_only() {
    let mut archive = entry("pax", b'x', b"13 size=1000\n");
    archive.extend(entry("link", b'2', b""));
    archive.extend(entry("file", b'0', b"x"));
    archive.extend(entry("next", b'0', b"xyz"));
    assert_eq!(segments(&archive), [('s', 2048), ('f', 1), ('s', 1023), ('f', 3), ('s', 509)]);
}

#[test]
fn a_record_too_large_for_structure_is_content() {
    let mut archive = entry("pax", b'x', &[b'p'; 20_000]);
    archive.extend(entry("file", b'0', &[1; 100]));
    let padding = 20_000_usize.next_multiple_of(512) - 20_000;
    let expected = [('s', 512), ('f', 20_000), ('s', padding + 512), ('f', 100), ('s', 412)];
    assert_eq!(segments(&archive), expected);
}

#[test]
fn sparse_headers_may_continue() {
    let mut first = header("sparse", b'S', &octal(3000));
    first[482] = 1;
    seal(&mut first);
    let mut more = [b'1'; 512];
    more[504] = 1;
    let mut last = [b'1'; 512];
    last[504] = 0;
    let mut archive = [first, more, last].concat();
    archive.resize(archive.len() + 3072, 9);
    archive.extend(entry("next", b'0', b"x"));
    assert_eq!(
        segments(&archive),
        [('s', 1536), ('f', 3000), ('s', 72 + 512), ('f', 1), ('s', 511)]
    );
    // One that never ends is given up, but not before as much was seen as could continue it.
    let endless = [&first[..], &more.repeat(40)].concat();
    assert_eq!(segments(&endless), [('s', 512), ('r', 40 * 512)]);
    let cut_off = [first, more].concat();
    assert_eq!(TarScanner::new().next(&cut_off, false), None);
    assert_eq!(segments(&cut_off), [('s', 1024)]);
}

#[test]
fn a_file_that_begins_with_zeros_is_no_archive() {
    let mut bytes = vec![0; 4096];
    bytes.extend(entry("file", b'0', b"x"));
    assert_eq!(segments(&bytes), [('r', bytes.len())]);
}

#[test]
fn a_size_that_was_announced_is_not_that_of_a_record() {
    let mut archive = entry("pax", b'x', b"13 size=1000\n");
    archive.extend(entry("././@LongLink", b'L', &[b'n'; 20_000]));
    archive.extend(entry("file", b'0', b"x"));
    let padding = 20_000_usize.next_multiple_of(512) - 20_000;
    let files = [('f', 20_000), ('s', padding + 512), ('f', 1), ('s', 511)];
    let found = segments(&archive);
    assert_eq!(found[found.len() - 4..], files, "{found:?}");
}

#[test]
fn hostile_sizes_do_not_overflow() {
    let negative = [0xff; 12];
    let mut largest = [0xff; 12];
    largest[..4].copy_from_slice(&[0x80, 0, 0, 0]);
    let mut larger = largest;
    larger[3] = 1;
    for (size, expected) in [
        (&negative[..], [('r', 1512), ('r', 0)]),
        (&larger, [('r', 1512), ('r', 0)]),
        (&largest, [('s', 512), ('f', 1000)]),
        (b"777777777777", [('s', 512), ('f', 1000)]),
        (b"99999999999\0", [('r', 1512), ('r', 0)]),
    ] {
        for kind in [b'0', b'x', b'g', b'L', b'K', b'S', b'Z', 0, 0xff] {
            let mut archive = header("hostile", kind, size).to_vec();
            archive.resize(1512, 5);
            let mut found = segments(&archive);
            found.resize(2, ('r', 0));
            assert_eq!(found, expected, "{kind} {size:?}");
        }
    }
}

#[test]
fn a_wrong_checksum_or_magic_is_no_header() {
    let archive = entry("file", b'0', &random(34, 2000));
    assert_eq!(segments(&archive)[0], ('s', 512));
    for place in [0, 130, 149, 156, 257, 500] {
        let mut changed = archive.clone();
        changed[place] ^= 1;
        assert_eq!(segments(&changed), [('r', changed.len())], "{place}");
    }
    // After the first entry, the rest is one segment.
    let mut two = [archive.clone(), archive.clone()].concat();
    two[archive.len() + 3] ^= 1;
    let padding = archive.len() - 512 - 2000;
    assert_eq!(segments(&two), [('s', 512), ('f', 2000), ('s', padding), ('r', archive.len())]);
}

/// Archives of entries of many kinds, with a few bytes changed and the end cut off.
fn damaged_archive() -> impl Strategy<Value = Vec<u8>> {
    let kinds = vec![b'0', b'5', b'x', b'g', b'L', b'S', 0, b'1', b'?'];
    let one = (prop::sample::select(kinds), any::<u8>(), 0_usize..30_000, any::<bool>());
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (prop::collection::vec(one, 1..10), damage, any::<prop::sample::Index>()).prop_map(
        |(entries, damage, end)| {
            let mut archive = Vec::new();
            for (kind, seed, size, zeros) in entries {
                let size = if kind == b'0' { size } else { size / 50 };
                archive.extend(entry("name", kind, &random(seed.into(), size)));
                if zeros {
                    archive.resize(archive.len() + usize::from(seed) * 1024, 0);
                }
            }
            for (place, value) in damage {
                let place = place.index(archive.len());
                archive[place] = value;
            }
            if end.index(4) == 0 {
                archive.truncate(end.index(archive.len()).max(1));
            }
            archive
        },
    )
}

proptest! {
    #![proptest_config(common::cases(150))]

    #[test]
    fn archives_stream_like_they_are_cut_in_one_go(
        archive in damaged_archive(),
        reads in prop::collection::vec(1_usize..100_000, 1..6),
        kind in prop::sample::select(ChunkerKind::ALL.to_vec()),
        average in prop::sample::select(vec![500_usize, 8192, 200_000]),
    ) {
        let chunker = chunker(kind, average, None);
        let expected = pieces(&*chunker, &archive, true);
        prop_assert_eq!(&streamed(&*chunker, &archive, true, &reads), &expected);
        prop_assert_eq!(&streamed(&*chunker, &archive, true, &[511]), &expected);
        // Segments are cut one by one: no piece crosses the end of one.
        let mut ends = Vec::new();
        let mut end = 0;
        for piece in &expected {
            end += length_of(*piece);
            ends.push(end);
        }
        let mut segment_end = 0;
        for (_, length) in segments(&archive) {
            segment_end += length;
            prop_assert!(ends.contains(&segment_end));
        }
    }

    #[test]
    fn any_header_is_survived(mut block in prop::array::uniform32(any::<[u8; 16]>()), valid: bool) {
        let flat = block.as_flattened_mut();
        flat[257..262].copy_from_slice(b"ustar");
        if valid {
            flat[124] = 0x80;
            let mut sealed = [0; 512];
            sealed.copy_from_slice(flat);
            seal(&mut sealed);
            flat.copy_from_slice(&sealed);
        }
        let mut archive = flat.repeat(3);
        archive.push(1);
        let total: usize = segments(&archive).iter().map(|(_, length)| length).sum();
        prop_assert_eq!(total, archive.len());
        // The scanner never asks for more than its bound.
        archive.resize(65_536, 3);
        prop_assert!(TarScanner::new().next(&archive, false).is_some());
    }
}
