//! The reader of traces under a short, deterministic fuzzer: traces come from elsewhere.

#[path = "../../format/tests/fuzz/mutate.rs"]
mod mutate;

use onefold_lab::source::fsl::{
    Chunking, File, FslChunk, HashMethod, Header, Reader, Version, Writer,
};
use std::io::Cursor;

const ROUNDS: u64 = 30_000;
const MEMORY_MAX_BYTES: usize = 64 << 20;

/// A small trace of this version.
fn trace(version: u32, chunking: Chunking) -> Vec<u8> {
    let version = Version::new(version).unwrap();
    let header = Header::new(version, chunking, HashMethod::Md5, 6);
    let mut writer = Writer::new(Cursor::new(Vec::new()), header).unwrap();
    let chunk =
        |byte: u8, size_bytes| FslChunk { size_bytes, hash: vec![byte; 6], ratio_tenths: 0 };
    for (name, size) in [("one", 5000), ("two/three", 4096)] {
        let file = File { size_bytes: size, path: name.into(), ..File::default() };
        let chunks: Vec<FslChunk> = match size {
            4096 => vec![chunk(1, 4096)],
            _ => vec![chunk(2, 4096), chunk(3, size - 4096)],
        };
        writer.file(&file, &chunks).unwrap();
    }
    writer.finish(0).unwrap().into_inner()
}

/// Reads all of it, or up to the first error; a trace of no more bytes than these has no more files
/// and chunks either.
fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(Cursor::new(bytes), "fuzz") else {
        return;
    };
    for _ in 0..=bytes.len() {
        let Ok(Some(file)) = reader.next_file() else {
            return;
        };
        let _ = file.is_symlink();
        for _ in 0..=bytes.len() {
            if !matches!(reader.next_chunk(), Ok(Some(_))) {
                break;
            }
        }
    }
    panic!("more files than bytes");
}

#[test]
fn r81_no_trace_makes_its_reader_panic_or_take_memory() {
    let fixed = Chunking::Fixed { size_bytes: 4096 };
    let corpus: Vec<Vec<u8>> = (1..=Version::NEWEST.number())
        .flat_map(|version| {
            [trace(version, fixed), trace(version, Chunking::by_content(2048, 8192))]
        })
        .collect();
    mutate::run("trace", &corpus, ROUNDS, &read);
    if let Some(peak) = mutate::memory_peak_bytes() {
        assert!(peak < MEMORY_MAX_BYTES, "{} MiB", peak >> 20);
    }
}
