use super::*;
use onefold_types::environment::{Randomness, SeededRandomness};
use proptest::prelude::*;

pub(crate) fn example() -> MetadataSection {
    let frame = |offset, stored_length, plain_length, codec| FrameDescriptor {
        offset,
        stored_length,
        plain_length,
        codec,
    };
    let chunk = |byte, length, level, frame, offset| ChunkDescriptor {
        fingerprint: Fingerprint([byte; 32]),
        length,
        level: Level(level),
        frame,
        offset,
        payload_length: if byte == 3 { 10 } else { length },
    };
    MetadataSection {
        frames: vec![frame(32, 700, 1500, Codec::Zstd), frame(732, 326, 310, Codec::Raw)],
        chunks: vec![
            chunk(1, 1000, 0, 0, 0),
            chunk(2, 500, 0, 0, 1000),
            chunk(3, 9000, 0, 1, 0),
            chunk(4, 300, 1, 1, 10),
        ],
        deltas: vec![Delta {
            chunk: 2,
            depth: 1,
            bases: vec![Base {
                fingerprint: Fingerprint([9; 32]),
                container: Some(ContainerId([2; 16])),
            }],
            payload_length: 10,
        }],
        sketches: vec![(1, [5; SKETCH_BYTES]), (3, [6; SKETCH_BYTES])],
        session: Some(SessionId([8; 16])),
        repacked_level: 7,
    }
}

#[test]
fn sections_round_trip_with_every_column() {
    let section = example();
    assert_eq!(MetadataSection::decode(&section.encode()).unwrap(), section);
    assert_eq!(decode_metadata(&code_metadata(&section.encode()).unwrap()).unwrap(), section);
    let empty = MetadataSection::default();
    assert_eq!(MetadataSection::decode(&empty.encode()).unwrap(), empty);
}

#[test]
fn unknown_columns_are_skipped_or_refused_by_their_tag() {
    let mut bytes = example().encode();
    bytes.extend([200, 2, 7, 7]);
    assert_eq!(MetadataSection::decode(&bytes).unwrap(), example());
    let mut bytes = example().encode();
    bytes.extend([77, 0]);
    let error = MetadataSection::decode(&bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
}

#[test]
fn truncated_sections_are_damage() {
    let bytes = example().encode();
    for length in 0..bytes.len() {
        // Cutting off optional last columns whole leaves a valid section.
        if let Ok(section) = MetadataSection::decode(&bytes[..length]) {
            assert!(section.repacked_level == 0 && length < bytes.len());
        }
    }
}

#[test]
fn footers_hold_only_for_their_object() {
    let footer = Footer { metadata_offset: 100, metadata_length: 50, body_crc: 77 };
    let bytes = footer.encode();
    assert_eq!(Footer::decode(&bytes, 190).unwrap(), footer);
    assert!(Footer::decode(&bytes, 191).is_err());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let zero = (12..16).contains(&(bit / 8)) || (28..32).contains(&(bit / 8));
        assert!(zero || Footer::decode(&flipped, 190).is_err(), "bit {bit}");
    }
}

#[test]
fn headers_tell_version_from_damage() {
    let id = ContainerId([7; 16]);
    let mut header = encode_header(id);
    assert_eq!(decode_header(&header).unwrap(), id);
    header[8] += 1;
    assert_eq!(decode_header(&header).unwrap_err().kind(), ErrorKind::NewerFormat);
    header[0] = 0;
    assert_eq!(decode_header(&header).unwrap_err().kind(), ErrorKind::Damaged);
}

proptest! {
    #[test]
    fn decoders_survive_anything(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = MetadataSection::decode(&bytes);
        let _ = decode_metadata(&bytes);
        let _ = decode_header(&bytes);
        let _ = Footer::decode(&bytes, bytes.len() as u64);
    }

    #[test]
    fn mutated_sections_never_panic(position in 0usize..400, byte: u8) {
        let mut bytes = example().encode();
        let position = position % bytes.len();
        bytes[position] = byte;
        let _ = MetadataSection::decode(&bytes);
    }
}

#[test]
fn r57_a_section_that_no_reader_takes_is_not_coded() {
    let plain = vec![7; limits::METADATA_SECTION_MAX_BYTES + 1];
    let error = code_metadata(&plain).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    code_metadata(&plain[1..]).unwrap();
    // Empty frames are never written, so there are no more of them than chunks.
    let frame =
        FrameDescriptor { offset: 0, stored_length: 16, plain_length: 0, codec: Codec::Raw };
    let decoded = |frames: usize| {
        let section = MetadataSection { frames: vec![frame; frames], ..MetadataSection::default() };
        MetadataSection::decode(&section.encode())
    };
    assert!(decoded(limits::CONTAINER_CHUNKS_MAX).is_ok());
    assert!(decoded(limits::CONTAINER_CHUNKS_MAX + 1).is_err());
}

#[test]
fn what_a_chunk_is_made_of_is_found_by_its_place() {
    let section = example();
    let made: Vec<bool> =
        section.chunks.iter().map(|chunk| section.delta_of(chunk).is_some()).collect();
    assert_eq!(made, [false, false, true, false]);
    assert_eq!(section.delta_of(&section.chunks[2]), section.deltas.first());
    assert_eq!([0, 1, 2, 3, 4].map(|at| section.depth_at(at)), [0, 0, 1, 0, 0]);
    assert_eq!(section.sketch_at(3), Some(&[6; SKETCH_BYTES]));
    assert_eq!(section.sketch_at(2), None);
    let elsewhere = ChunkDescriptor { offset: 1, ..section.chunks[2] };
    assert_eq!(section.delta_of(&elsewhere), None);
}

#[test]
fn deltas_that_cannot_be_are_damage() {
    let changed = |change: &dyn Fn(&mut MetadataSection)| {
        let mut section = example();
        change(&mut section);
        MetadataSection::decode(&section.encode())
    };
    let of_depth = |depth| changed(&|section| section.deltas[0].depth = depth);
    assert!(of_depth(0).is_err());
    assert!(of_depth(DELTA_DEPTH_MAX).is_ok());
    assert!(of_depth(DELTA_DEPTH_MAX + 1).is_err());
    let of_bases = |bases: usize| {
        changed(&|section| {
            let base = section.deltas[0].bases[0];
            section.deltas[0].bases = vec![base; bases];
        })
    };
    assert!(of_bases(0).is_err());
    assert!(of_bases(DELTA_BASES_MAX).is_ok());
    assert!(of_bases(DELTA_BASES_MAX + 1).is_err());
    // No shorter than the chunk, a node, and of the same chunk twice.
    assert!(changed(&|section| section.chunks[2].length = 10).is_err());
    assert!(changed(&|section| section.chunks[2].level = Level(1)).is_err());
    assert!(changed(&|section| section.deltas.push(section.deltas[0].clone())).is_err());
    // Where a base is need not be known.
    let known = changed(&|section| {
        let base = section.deltas[0].bases[0];
        section.deltas[0].bases = vec![Base { container: None, ..base }, base];
    });
    let bases = known.unwrap().deltas[0].bases.clone();
    let known: Vec<bool> = bases.iter().map(|base| base.container.is_some()).collect();
    assert_eq!(known, [false, true]);
}

#[test]
fn the_chunks_of_a_frame_are_no_longer_than_a_frame_and_made_of_something() {
    let of = |lengths: &[u32], payload_length: u32| {
        let count = lengths.len() as u32;
        let mut section = example();
        let delta = Delta { payload_length, ..section.deltas[0].clone() };
        let frame = FrameDescriptor { plain_length: count * payload_length, ..section.frames[1] };
        section.frames = vec![frame];
        section.deltas = (0..count).map(|chunk| Delta { chunk, ..delta.clone() }).collect();
        let chunk = |(number, length): (u32, &u32)| ChunkDescriptor {
            length: *length,
            payload_length,
            frame: 0,
            offset: number * payload_length,
            ..section.chunks[2]
        };
        section.chunks = (0..).zip(lengths).map(chunk).collect();
        section.sketches.clear();
        MetadataSection::decode(&section.encode())
    };
    let longest = limits::CHUNK_SIZE_MAX_BYTES as u32;
    let all = vec![longest; limits::FRAME_PLAIN_MAX_BYTES / limits::CHUNK_SIZE_MAX_BYTES];
    assert_eq!(of(&all, 10).unwrap().chunks.len(), all.len());
    let error = of(&[&all[..], &[11]].concat(), 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(of(&all, 1).is_ok());
    assert!(of(&all, 0).is_err(), "a delta of nothing");
}

/// Bytes a chunk of a section as it is stored: 16 frames of 32 chunks of 8 KiB, of random names.
fn descriptor_bytes(with_sketches: bool) -> f64 {
    const CHUNKS: u32 = 512;
    let randomness = SeededRandomness::new(18);
    let mut section = MetadataSection { session: Some(SessionId([8; 16])), ..Default::default() };
    for frame in 0..CHUNKS / 32 {
        section.frames.push(FrameDescriptor {
            offset: 32 + u64::from(frame) * 131_000,
            stored_length: 131_000,
            plain_length: 0,
            codec: Codec::Zstd,
        });
        for _ in 0..32 {
            let mut fingerprint = Fingerprint([0; 32]);
            randomness.fill(&mut fingerprint.0);
            let length = 6000 + (randomness.next_u64() % 4384) as u32;
            let descriptor = section.frames.last_mut().unwrap();
            let offset = descriptor.plain_length;
            descriptor.plain_length += length;
            let (level, payload_length) = (Level(0), length);
            section.chunks.push(ChunkDescriptor {
                fingerprint,
                length,
                level,
                frame,
                offset,
                payload_length,
            });
        }
    }
    if with_sketches {
        section.sketches = (0..CHUNKS).map(|chunk| (chunk, [0; SKETCH_BYTES])).collect();
        section.sketches.iter_mut().for_each(|(_, sketch)| randomness.fill(sketch));
    }
    let coded = code_metadata(&section.encode()).unwrap();
    assert_eq!(decode_metadata(&coded).unwrap(), section);
    coded.len() as f64 / f64::from(CHUNKS)
}

#[test]
fn s1_18_a_descriptor_takes_34_bytes_and_25_more_with_a_sketch() {
    let (plain, with_sketch) = (descriptor_bytes(false), descriptor_bytes(true));
    assert!((33.9..34.5).contains(&plain), "{plain}");
    assert!((58.0..59.6).contains(&with_sketch), "{with_sketch}");
    // A container of 4 MiB whose chunks of 8 KiB were halved: S1's 64 KB are not reached.
    assert_eq!(limits::CONTAINER_TARGET_BYTES, 4 << 20);
    assert!(with_sketch * 1024.0 < 64_000.0);
}
