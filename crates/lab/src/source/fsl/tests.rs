use super::*;
use crate::trace::{Event, Trace};
use onefold_types::{ErrorKind, Result};
use proptest::prelude::*;
use std::io::Cursor;

const HEADER_BYTES: [usize; 7] = [4176, 4176, 8288, 8288, 8296, 8296, 8296];

type FileAndChunks = (File, Vec<FslChunk>);

fn read(bytes: &[u8]) -> Result<(Header, Vec<FileAndChunks>)> {
    let mut reader = Reader::new(bytes, "t.hash.anon")?;
    let mut files = Vec::new();
    while let Some(file) = reader.next_file()? {
        let mut chunks = Vec::new();
        while let Some(chunk) = reader.next_chunk()? {
            chunks.push(chunk);
        }
        files.push((file, chunks));
    }
    Ok((reader.header().clone(), files))
}

fn write(header: &Header, files: &[(File, Vec<FslChunk>)]) -> Result<Vec<u8>> {
    let mut writer = Writer::new(Cursor::new(Vec::new()), header.clone())?;
    for (file, chunks) in files {
        writer.file(file, chunks)?;
    }
    Ok(writer.finish(header.end_seconds)?.into_inner())
}

/// Little-endian numbers and zeros, put together by hand.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn text(mut self, text: &[u8], room: usize) -> Self {
        let end = self.0.len() + room;
        self.0.extend(text);
        self.0.resize(end, 0);
        self
    }
}

/// One regular file of two chunks and one symbolic link or empty file, spelt out for a version.
fn golden(version: u32) -> Vec<u8> {
    let variable = version != 1;
    let mut bytes =
        Bytes::default().u32(0xdead_dead).u32(version).u64(2).text(b"/srv", 4096).u64(2);
    bytes = match variable {
        // Rabin: window, prime, module, bits, pattern; minimum, maximum.
        true => {
            let rabin = bytes.u32(2).u32(3).u32(48).u64(3).u64(1 << 40).u32(13).u64(0x1fff);
            rabin.u32(2048).u32(16_384)
        }
        false => bytes.u32(1).u32(8192).text(b"", 40),
    };
    bytes = bytes.u32(3).u32(48);
    if version >= 3 {
        bytes = bytes.text(b"user006", 4096).u64(1_315_612_800).u64(1_315_612_860);
    }
    if version >= 5 {
        bytes = bytes.u64(9000);
    }
    assert_eq!(bytes.0.len(), HEADER_BYTES[version as usize - 1]);
    bytes = match version {
        1 => bytes.text(b"a/b", 4096).u64(9000).u64(2),
        2 | 3 => bytes.u64(9000).u64(2).u32(3).text(b"a/b", 3),
        _ => {
            bytes = bytes.u64(9000);
            if version >= 5 {
                bytes = bytes.u64(24);
            }
            let times = [0o100_644, 11, 12, 13, 1, 66, 4711];
            bytes = times.into_iter().fold(bytes.u32(1000).u32(100), Bytes::u64);
            bytes.u64(2).u32(3).u32(0).text(b"a/b", 3)
        }
    };
    for (size, hash, ratio) in [(8192, b"\x01\x02\x03\x04\x05\x06", 21), (808, b"abcdef", 10)] {
        bytes = match version {
            1 | 2 => bytes,
            3..=6 => bytes.u64(size),
            _ => bytes.u32(size as u32),
        };
        bytes = bytes.text(hash, 6);
        if version >= 6 {
            bytes.0.push(ratio);
        }
    }
    let last = match version {
        1 => bytes.text(b"l", 4096).u64(0).u64(0),
        2 | 3 => bytes.u64(0).u64(0).u32(1).text(b"l", 1),
        _ => {
            bytes = bytes.u64(0);
            if version >= 5 {
                bytes = bytes.u64(0);
            }
            let times = [0o120_777, 1, 2, 3, 1, 66, 4712];
            bytes = times.into_iter().fold(bytes.u32(0).u32(0), Bytes::u64);
            bytes.u64(0).u32(1).u32(3).text(b"la/b", 4)
        }
    };
    last.0
}

#[test]
fn golden_bytes_of_every_version_are_read_and_written() {
    for version in 1..=7 {
        let bytes = golden(version);
        let (header, files) = read(&bytes).unwrap();
        assert_eq!((header.version.number(), header.files, header.chunks), (version, 2, 2));
        assert_eq!((&header.root[..], header.hash_bytes), (&b"/srv"[..], 6));
        assert_eq!(header.hash, HashMethod::Md5To48);
        match header.chunking {
            Chunking::Fixed { size_bytes } => assert_eq!((version, size_bytes), (1, 8192)),
            Chunking::Variable(variable) => {
                assert_eq!((variable.size_min_bytes, variable.size_max_bytes), (2048, 16_384));
                assert_eq!((variable.algorithm, variable.parameters[0]), (3, 48));
            }
        }
        if version >= 3 {
            assert_eq!((&header.system[..], header.end_seconds), (&b"user006"[..], 1_315_612_860));
        }
        assert_eq!(header.bytes, if version >= 5 { 9000 } else { 0 });
        let [(file, chunks), (link, none)] = &files[..] else { panic!("{files:?}") };
        assert_eq!((&file.path[..], file.size_bytes), (&b"a/b"[..], 9000));
        let sizes: Vec<u64> = chunks.iter().map(|chunk| chunk.size_bytes).collect();
        // Version 2 does not record them.
        assert_eq!(sizes, if version == 2 { [4500, 4500] } else { [8192, 808] });
        assert_eq!(chunks[0].hash, [1, 2, 3, 4, 5, 6]);
        assert_eq!(chunks[0].ratio_tenths, if version >= 6 { 21 } else { 0 });
        assert!(none.is_empty() && link.path == b"l");
        if version >= 4 {
            assert_eq!((file.user, file.group, file.inode, file.links), (1000, 100, 4711, 1));
            assert_eq!((file.accessed_seconds, file.changed_seconds), (11, 13));
            assert!(link.is_symlink() && link.target == b"a/b");
        }
        assert_eq!(write(&header, &files).unwrap(), bytes, "version {version}");
    }
}

#[test]
fn a_trace_cut_anywhere_is_refused_with_place_and_expectation() {
    for version in 1..=7 {
        let bytes = golden(version);
        let header = HEADER_BYTES[version as usize - 1];
        let places = (0..12).chain(header - 2..bytes.len()).filter(|place| place % 7 < 3);
        for end in places {
            let error = read(&bytes[..end]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{end}");
            let message = error.to_string();
            assert!(message.starts_with("t.hash.anon: at byte "), "{message}");
            assert!(message.contains("expected"), "{message}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        let message = read(&longer).unwrap_err().to_string();
        let place = format!("at byte {}, expected the end of the file", bytes.len());
        assert!(message.contains(&place), "{message}");
    }
}

#[test]
fn nonsense_is_refused_where_it_stands() {
    let damaged = |offset: usize, field: &[u8]| {
        let mut bytes = golden(7);
        bytes[offset..offset + field.len()].copy_from_slice(field);
        read(&bytes).unwrap_err().to_string()
    };
    let huge = u64::MAX.to_le_bytes();
    let cases = [
        (damaged(0, b"x"), "at byte 0, expected the magic number 0xdeaddead"),
        (damaged(4, &[8]), "at byte 4, expected a version from 1 to 7, not 8"),
        (damaged(8, &huge), "file 3 of 18446744073709551615"),
        (damaged(16, &[1; 4096]), "at byte 16, expected a NUL"),
        (damaged(4112, &[1]), "expected at most 1 more chunks, not 2"),
        (damaged(4112, &[3]), "expected 3 chunks as the header says, not 2"),
        (damaged(4120, &[3]), "at byte 4120, expected a chunking method of 1 or 2, not 3"),
        (damaged(4168, &[0]), "at byte 4168, expected a hash method from 1 to 6, not 0"),
        (damaged(4172, &[47]), "at byte 4172, expected 8 to 512 bits"),
        (damaged(4172, &[0; 4]), "at byte 4172, expected 8 to 512 bits"),
        (damaged(4172, &[0, 0, 0, 0x80]), "at byte 4172, expected 8 to 512 bits"),
        (damaged(8296 + 80, &huge), "expected at most 2 more chunks"),
        (damaged(8296 + 88, &[0xff; 4]), "at byte 8384, expected a path of at most 65536"),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{message} / {expected}");
    }
    let mut fixed = golden(1);
    fixed[4124..4128].fill(0);
    let message = read(&fixed).unwrap_err().to_string();
    assert!(message.contains("at byte 4124, expected a size of fixed chunks"), "{message}");
    assert!(Version::new(0).is_err() && Version::new(8).is_err());
}

#[test]
fn what_a_version_cannot_express_is_refused() {
    let chunking = Chunking::by_content(1, 10);
    let header =
        |number| Header::new(Version::new(number).unwrap(), chunking, HashMethod::Md5To48, 6);
    let chunk = |ratio_tenths| FslChunk { size_bytes: 5, hash: vec![0; 6], ratio_tenths };
    let file = File { size_bytes: 5, path: b"p".to_vec(), ..File::default() };
    let owned = File { user: 1, ..file.clone() };
    let refused = [
        write(&Header { start_seconds: 1, ..header(2) }, &[]),
        write(&header(3), &[(owned.clone(), vec![])]),
        write(&header(4), &[(File { blocks: 1, ..file.clone() }, vec![])]),
        write(&header(7), &[(File { target: b"t".to_vec(), ..file.clone() }, vec![])]),
        write(&header(5), &[(file.clone(), vec![chunk(10)])]),
        write(&header(7), &[(file.clone(), vec![FslChunk { hash: vec![0; 5], ..chunk(10) }])]),
        write(&header(7), &[(file.clone(), vec![FslChunk { size_bytes: 1 << 32, ..chunk(0) }])]),
        write(&header(1), &[(File { path: vec![b'p'; 4096], ..file.clone() }, vec![])]),
        write(&Header { root: b"a\0b".to_vec(), ..header(7) }, &[]),
        write(&Header { hash_bytes: 65, ..header(7) }, &[]),
        write(
            &Header { chunking: Chunking::Fixed { size_bytes: 3 }, ..header(7) },
            &[(file.clone(), vec![chunk(0)])],
        ),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert!(write(&header(4), &[(owned, vec![])]).is_ok());
    let mut writer = Writer::new(Cursor::new(Vec::new()), header(7)).unwrap();
    writer.begin(&File { chunks: 1, ..file.clone() }).unwrap();
    assert!(writer.begin(&file).is_err());
    writer.chunk(&chunk(1)).unwrap();
    assert!(writer.chunk(&chunk(1)).is_err());
}

#[test]
fn a_series_of_files_is_a_trace() {
    let place = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..2).map(|n| place.path().join(format!("{n}.hash.anon"))).collect();
    std::fs::write(&paths[0], golden(7)).unwrap();
    std::fs::write(&paths[1], golden(6)).unwrap();
    let trace = FslTrace::new("fsl", paths.clone());
    let (mut chunks, mut generations) = (Vec::new(), 0);
    trace
        .replay(&mut |event| {
            match event {
                Event::Chunks { chunks: batch, .. } => chunks.extend_from_slice(batch),
                Event::End { .. } => generations += 1,
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    assert_eq!((chunks.len(), generations), (4, 2));
    assert_eq!(chunks[..2], chunks[2..]);
    assert_eq!(chunks[1].length_bytes, 808);
    assert_ne!(trace.fingerprint(b"abcdef", 808), trace.fingerprint(b"abcdef", 809));
    std::fs::write(&paths[1], &golden(6)[..8400]).unwrap();
    let message = trace.replay(&mut |_| Ok(())).unwrap_err().to_string();
    assert!(message.contains("1.hash.anon: at byte"), "{message}");
}

prop_compose! {
    /// A header that its version can express.
    fn headers()(
        number in 1_u32..=7,
        root in "[a-z/]{0,40}",
        system in "[a-z]{0,10}",
        times in any::<(u64, u64)>(),
        fixed in any::<bool>(),
        sizes in (1_u32.., any::<u32>()),
        parameters in any::<[u8; 32]>(),
        method in 0_usize..6,
        hash_bytes in 1_usize..=64,
    ) -> Header {
        let chunking = match fixed {
            true => Chunking::Fixed { size_bytes: sizes.0 % 10_000 + 1 },
            false => Chunking::Variable(Variable {
                algorithm: 3,
                parameters,
                size_min_bytes: sizes.0,
                size_max_bytes: sizes.1,
            }),
        };
        let version = Version::new(number).unwrap();
        let mut header = Header::new(version, chunking, HashMethod::ALL[method], hash_bytes);
        header.root = root.into_bytes();
        if number >= 3 {
            header.system = system.into_bytes();
            (header.start_seconds, header.end_seconds) = times;
        }
        header
    }
}

type Content = (File, Vec<FslChunk>);

/// A file with chunks that the header's version can express.
fn contents(header: &Header) -> impl Strategy<Value = Content> + use<> {
    let (number, chunking, hash) = (header.version.number(), header.chunking, header.hash_bytes);
    let sizes = prop::collection::vec(1_u64..100_000, 0..6);
    let names = ("[a-z/]{1,60}", "[a-z/]{0,30}");
    let fields = any::<(u32, u32, u64, u64, u64, [u64; 5])>();
    (sizes, names, fields, any::<bool>(), any::<u8>()).prop_map(
        move |(mut sizes, (path, target), fields, symlink, ratio)| {
            let count = sizes.len() as u64;
            if let Chunking::Fixed { size_bytes } = chunking {
                sizes.iter_mut().for_each(|size| *size = u64::from(size_bytes));
            } else if number <= 2 {
                // Not recorded: equal sizes are the mean.
                sizes.iter_mut().for_each(|size| *size = 77);
            }
            let mut file = File {
                size_bytes: sizes.iter().sum(),
                chunks: count,
                path: path.into_bytes(),
                ..File::default()
            };
            if number >= 4 {
                let (user, group, accessed, modified, changed, rest) = fields;
                (file.user, file.group) = (user, group);
                file.mode = if symlink { 0o120_777 } else { 0o100_644 };
                file.accessed_seconds = accessed;
                file.modified_seconds = modified;
                file.changed_seconds = changed;
                [file.links, file.device, file.inode, _, _] = rest;
                file.blocks = if number >= 5 { rest[3] } else { 0 };
                file.target = if symlink { target.into_bytes() } else { Vec::new() };
            }
            let chunk = |size_bytes| FslChunk {
                size_bytes,
                hash: vec![ratio; hash],
                ratio_tenths: if number >= 6 { ratio } else { 0 },
            };
            (file, sizes.into_iter().map(chunk).collect())
        },
    )
}

fn traces() -> impl Strategy<Value = (Header, Vec<Content>)> {
    headers().prop_flat_map(|header| {
        let files = prop::collection::vec(contents(&header), 0..4);
        (Just(header), files)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_written_is_read_again((header, files) in traces()) {
        let bytes = write(&header, &files).unwrap();
        let (read_header, read_files) = read(&bytes).unwrap();
        prop_assert_eq!(&read_files, &files);
        prop_assert_eq!(read_header.files, files.len() as u64);
        let counts = Header { files: 0, chunks: 0, bytes: 0, ..read_header };
        prop_assert_eq!(counts, header);
    }

    #[test]
    fn damage_is_refused_or_read_as_something_else(
        (header, files) in traces(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = write(&header, &files).unwrap();
        for (place, value) in flips {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if let Err(error) = read(&bytes) {
            prop_assert_eq!(error.kind(), ErrorKind::Damaged);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        prop_assert!(read(&bytes).is_err());
    }
}
