//! Which coder makes the smallest differences for its time: pairs of chunks as a store meets them.
//!
//! The chunks of one version that are not in the earlier one are paired with the earlier chunk that
//! shares most features of the sketch, four at least: what a backup would try. Each coder makes the
//! difference of each pair and the chunk again of it, which is compared with what it was. As in the
//! store a difference is kept below half of what the chunk takes alone; what is kept is compressed
//! in frames, with the chunks that are not, because some coders leave that to others.
//!
//! Usage: delta-coders EARLIER LATER

use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_format::codec::{Compression, Compressor};
use onefold_format::delta::{DeltaDecoder, DeltaEncoder};
use onefold_policy::similarity::Sketch;
use oxidelta::compress::decoder;
use oxidelta::compress::encoder::{self, CompressOptions};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Average bytes of a chunk, and plain bytes of a frame: those of the default preset.
const CHUNK_BYTES: usize = 32 << 10;
const FRAME_BYTES: usize = 128 << 10;
/// Features that both chunks of a pair have, at least.
const EQUAL_MIN: u32 = 4;
/// Times that everything is done; the least time counts.
const ROUNDS: usize = 3;

struct Coder {
    name: &'static str,
    /// `(base, chunk)` to the difference.
    encode: Box<dyn FnMut(&[u8], &[u8]) -> Vec<u8>>,
    /// `(base, difference, length)` to the chunk, if that succeeds.
    decode: Box<dyn FnMut(&[u8], &[u8], usize) -> Option<Vec<u8>>>,
}

fn zstd(name: &'static str, level: i32) -> Coder {
    let (mut encoder, mut decoder) = (DeltaEncoder::new(level), DeltaDecoder::default());
    Coder {
        name,
        encode: Box::new(move |base, chunk| {
            encoder
                .encode(&[base], chunk, usize::MAX)
                .map_or_else(|| chunk.to_vec(), <[u8]>::to_vec)
        }),
        decode: Box::new(move |base, payload, length| {
            let mut plain = Vec::new();
            let made = decoder.decode(&[base], payload, length, &mut plain);
            made.ok().map(|()| plain)
        }),
    }
}

fn coders() -> Vec<Coder> {
    vec![
        zstd("zstd, level 1, the base as its dictionary (Onefold)", 1),
        zstd("the same, level 2", 2),
        zstd("the same, level 3", 3),
        zstd("the same, level 6", 6),
        zstd("the same, level 9", 9),
        Coder {
            name: "gdelta 0.2",
            encode: Box::new(|base, chunk| gdelta::encode(chunk, base).expect("gdelta")),
            decode: Box::new(|base, delta, _| gdelta::decode(delta, base).ok()),
        },
        Coder {
            name: "oxidelta 0.1 (VCDIFF, as xdelta3 makes it)",
            encode: Box::new(|base, chunk| {
                let (mut delta, options) = (Vec::new(), CompressOptions::default());
                encoder::encode_all(&mut delta, base, chunk, options).expect("oxidelta");
                delta
            }),
            decode: Box::new(|base, delta, _| decoder::decode_all(base, delta).ok()),
        },
        Coder {
            name: "fossil-delta 0.2",
            encode: Box::new(|base, chunk| fossil_delta::delta(chunk, base)),
            decode: Box::new(|base, delta, _| fossil_delta::apply(base, delta).ok()),
        },
        Coder {
            name: "qbsdiff 1.4",
            encode: Box::new(|base, chunk| {
                let mut patch = Vec::new();
                qbsdiff::Bsdiff::new(base, chunk).compare(&mut patch).expect("qbsdiff");
                patch
            }),
            decode: Box::new(|base, delta, _| {
                let mut plain = Vec::new();
                let patch = qbsdiff::Bspatch::new(delta).ok()?;
                patch.apply(base, &mut plain).ok().map(|_| plain)
            }),
        },
    ]
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = std::fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry"))
        .collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// The different chunks of a tree, in its order.
fn chunks(directory: &Path) -> Vec<Vec<u8>> {
    let parameters = ChunkerParameters::with_average(ChunkerKind::MinCdc, CHUNK_BYTES);
    let chunker = parameters.expect("sizes").build(None).expect("a chunker");
    let (mut paths, mut seen, mut found) = (Vec::new(), HashSet::new(), Vec::new());
    files(directory, &mut paths);
    for path in paths {
        let bytes = std::fs::read(path).expect("a file");
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let window = &rest[..rest.len().min(chunker.size_max_bytes())];
            let (chunk, behind) = rest.split_at(chunker.cut(window));
            if seen.insert(chunk.to_vec()) {
                found.push(chunk.to_vec());
            }
            rest = behind;
        }
    }
    found
}

/// Pairs of an earlier chunk and a later one that is like it.
fn pairs(earlier: &[Vec<u8>], later: &[Vec<u8>]) -> Vec<(usize, usize)> {
    let known: HashSet<&[u8]> = earlier.iter().map(Vec::as_slice).collect();
    let mut by_feature: HashMap<(usize, [u8; 2]), Vec<usize>> = HashMap::new();
    let features = |sketch: &Sketch| {
        let bytes = sketch.to_bytes();
        (0..12).map(move |number| (number, [bytes[2 * number], bytes[2 * number + 1]]))
    };
    let sketches: Vec<Option<Sketch>> = earlier.iter().map(|chunk| Sketch::of(chunk)).collect();
    for (number, sketch) in sketches.iter().enumerate() {
        for feature in sketch.iter().flat_map(features) {
            by_feature.entry(feature).or_default().push(number);
        }
    }
    let mut found = Vec::new();
    for (number, chunk) in later.iter().enumerate().filter(|(_, chunk)| !known.contains(&chunk[..]))
    {
        let Some(sketch) = Sketch::of(chunk) else { continue };
        let mut equal: HashMap<usize, u32> = HashMap::new();
        for feature in features(&sketch) {
            by_feature
                .get(&feature)
                .into_iter()
                .flatten()
                .for_each(|base| *equal.entry(*base).or_default() += 1);
        }
        let best = equal.into_iter().max_by_key(|(base, equal)| (*equal, usize::MAX - base));
        found.extend(best.filter(|(_, equal)| *equal >= EQUAL_MIN).map(|(base, _)| (base, number)));
    }
    found
}

/// Pairs of chunks, with what the later one takes alone.
struct Pair<'a> {
    base: &'a [u8],
    chunk: &'a [u8],
    alone_bytes: usize,
}

/// The least time that all pairs take with a coder, its differences, and how many of them do not
/// make the chunk again.
fn run(coder: &mut Coder, pairs: &[Pair]) -> ([Duration; 2], Vec<Vec<u8>>, usize) {
    let mut least = [Duration::MAX; 2];
    let (mut differences, mut wrong) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        differences = pairs.iter().map(|pair| (coder.encode)(pair.base, pair.chunk)).collect();
        least[0] = least[0].min(began.elapsed());
        let began = Instant::now();
        let is_wrong = |(pair, difference): &(&Pair, &Vec<u8>)| {
            let is_plain = difference.as_slice() == pair.chunk;
            let made = (!is_plain).then(|| (coder.decode)(pair.base, difference, pair.chunk.len()));
            made.is_some_and(|made| made.as_deref() != Some(pair.chunk))
        };
        wrong = pairs.iter().zip(&differences).filter(is_wrong).count();
        least[1] = least[1].min(began.elapsed());
    }
    (least, differences, wrong)
}

/// Bytes of all in compressed frames: differences that are kept, and the other chunks.
fn framed_bytes(pairs: &[Pair], differences: &[Vec<u8>]) -> usize {
    let mut compressor = Compressor::new(Compression::Zstd(2)).expect("a compressor");
    let (mut frame, mut coded, mut sum) = (Vec::new(), Vec::new(), 0);
    for (number, (pair, difference)) in pairs.iter().zip(differences).enumerate() {
        frame.extend_from_slice(if is_kept(pair, difference) { difference } else { pair.chunk });
        if frame.len() >= FRAME_BYTES || number + 1 == pairs.len() {
            compressor.compress(&frame, &mut coded).expect("a frame");
            sum += coded.len();
            frame.clear();
        }
    }
    sum
}

fn is_kept(pair: &Pair, difference: &[u8]) -> bool {
    difference.len() < pair.alone_bytes / 2
}

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [earlier, later] = &arguments[..] else { panic!("usage: delta-coders EARLIER LATER") };
    let (earlier, later) = (chunks(earlier), chunks(later));
    let mut alone = DeltaEncoder::new(1);
    let pair = |(base, chunk): (usize, usize)| {
        let (base, chunk) = (&earlier[base][..], &later[chunk][..]);
        Pair { base, chunk, alone_bytes: alone.alone_bytes(chunk) }
    };
    let pairs: Vec<Pair> = pairs(&earlier, &later).into_iter().map(pair).collect();
    let bytes: usize = pairs.iter().map(|pair| pair.chunk.len()).sum();
    let alone_bytes = pairs.iter().map(|pair| pair.alone_bytes).sum();
    println!("{} pairs, {:.1} MB, alone {:.1} MB\n", pairs.len(), mb(bytes), mb(alone_bytes));
    println!(
        "| coder | not made again | kept | differences kept, MB | all in frames, MB | MB/s made | \
         MB/s made again |\n|---|---:|---:|---:|---:|---:|---:|"
    );
    for mut coder in coders() {
        let (least, differences, wrong) = run(&mut coder, &pairs);
        let kept = pairs.iter().zip(&differences).filter(|(pair, made)| is_kept(pair, made));
        let lengths: Vec<usize> = kept.map(|(_, made)| made.len()).collect();
        let [making, again] = least.map(|time| mb(bytes) / time.as_secs_f64());
        println!(
            "| {} | {wrong} | {} | {:.2} | {:.2} | {making:.0} | {again:.0} |",
            coder.name,
            lengths.len(),
            mb(lengths.iter().sum()),
            mb(framed_bytes(&pairs, &differences)),
        );
    }
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
