//! Measures sketches: how fast they are made, and how often similar and unrelated chunks share
//! features. Beside ours stand those of Odess (ICDE'21), with a rolling gear hash.
//!
//! `sketch_quality chunks DIRECTORY...` cuts chunks out of the files, edits copies of them, and
//! pairs chunks of different files; `sketch_quality versions OLD NEW...` pairs files of the same
//! path; `sketch_quality patterns` times the slowest of repeated patterns. How similar two chunks
//! are is the share of their 32-byte windows that both have (Broder).

use onefold_policy::similarity::Sketch;
use onefold_types::environment::{Randomness, SeededRandomness};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::path::{Path, PathBuf};

const CHUNKS_MAX: usize = 400;
const CHUNK_BYTES: [usize; 3] = [8 << 10, 32 << 10, 64 << 10];
const EDITS: [u64; 6] = [1, 4, 16, 64, 256, 1024];
const EDIT_BYTES_MAX: u64 = 64;
const WINDOW_BYTES: usize = 32;
/// Bytes of a measurement of speed, and patterns of which the slowest is measured.
const TIMED_BYTES: usize = 256 << 20;
const PATTERNS: usize = 20_000;

/// Pairs, and how many of them share at least one feature, two features and a key.
#[derive(Default, Clone, Copy)]
struct Shared {
    pairs: u64,
    resemblance: f64,
    one: u64,
    two: u64,
    key: u64,
}

impl Shared {
    fn add(&mut self, resemblance: f64, features: u32, keys: usize) {
        self.pairs += 1;
        self.resemblance += resemblance;
        self.one += u64::from(features >= 1);
        self.two += u64::from(features >= 2);
        self.key += u64::from(keys >= 1);
    }

    fn print(&self, what: &str) {
        let pairs = self.pairs.max(1) as f64;
        let percent = |count: u64| 100.0 * count as f64 / pairs;
        println!(
            "  {what}: {} pairs, mean resemblance {:.3}; \
             share 1 feature {:.2} %, 2 features {:.2} %, a key {:.2} %",
            self.pairs,
            self.resemblance / pairs,
            percent(self.one),
            percent(self.two),
            percent(self.key)
        );
    }
}

/// One way of making sketches.
struct Way {
    name: &'static str,
    make: fn(&[u8]) -> Option<Sketch>,
}

const WAYS: [Way; 2] =
    [Way { name: "ours", make: Sketch::of }, Way { name: "gear", make: gear_sketch }];

/// Odess: a gear hash rolls over the chunk; one position in 128 is sampled by bits of it, and a
/// feature is the greatest of a linear transform of the sampled hashes.
fn gear_sketch(bytes: &[u8]) -> Option<Sketch> {
    let table = gear_table();
    let mut greatest = [0u32; 12];
    let mut hash = 0u64;
    for byte in bytes {
        hash = (hash << 1).wrapping_add(table[usize::from(*byte)]);
        if hash & GEAR_MASK == 0 {
            let value = (hash >> 32) as u32;
            for (number, feature) in greatest.iter_mut().enumerate() {
                let (factor, summand) = (table[number] as u32 | 1, table[number + 16] as u32);
                *feature = (*feature).max(value.wrapping_mul(factor).wrapping_add(summand));
            }
        }
    }
    let mut sketch = [0; 24];
    for (field, feature) in sketch.chunks_exact_mut(2).zip(greatest) {
        field.copy_from_slice(&((feature.wrapping_mul(0x9e37_79b1) >> 16) as u16).to_le_bytes());
    }
    Some(Sketch::from_bytes(sketch))
}

/// Seven bits, spread over the upper half.
const GEAR_MASK: u64 = 0x8904_1108_0000_0000;

fn gear_table() -> &'static [u64; 256] {
    static TABLE: std::sync::OnceLock<[u64; 256]> = std::sync::OnceLock::new();
    TABLE.get_or_init(|| {
        let randomness = SeededRandomness::new(7);
        std::array::from_fn(|_| randomness.below(u64::MAX))
    })
}

fn windows(bytes: &[u8]) -> Vec<u64> {
    let hash = |window: &[u8]| {
        window.chunks_exact(8).fold(0u64, |hash, word| {
            let word = word.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    };
    let mut hashes: Vec<u64> = bytes.windows(WINDOW_BYTES).map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

fn resemblance(one: &[u8], other: &[u8]) -> f64 {
    let (one, other) = (windows(one), windows(other));
    let common = one.iter().filter(|hash| other.binary_search(hash).is_ok()).count();
    common as f64 / (one.len() + other.len() - common).max(1) as f64
}

fn compare(one: &[u8], other: &[u8], into: &mut [Shared; WAYS.len()]) {
    let resemblance = resemblance(one, other);
    compare_known(one, other, resemblance, into);
}

fn compare_known(one: &[u8], other: &[u8], resemblance: f64, into: &mut [Shared; WAYS.len()]) {
    for (way, shared) in WAYS.iter().zip(into) {
        let (features, keys) = match ((way.make)(one), (way.make)(other)) {
            (Some(one), Some(other)) => {
                let keys = one.keys().iter().zip(other.keys()).filter(|(a, b)| **a == *b).count();
                (one.equal_features(&other), keys)
            }
            _ => (0, 0),
        };
        shared.add(resemblance, features, keys);
    }
}

/// A copy with so many insertions, deletions and replacements, of the bytes of `source`.
fn edited(bytes: &[u8], source: &[u8], edits: u64, randomness: &SeededRandomness) -> Vec<u8> {
    let mut copy = bytes.to_vec();
    for _ in 0..edits {
        let place = randomness.below(copy.len() as u64 / 2 + 1) as usize
            + randomness.below(copy.len() as u64 / 2 + 1) as usize;
        let place = place.min(copy.len());
        let length = 1 + randomness.below(EDIT_BYTES_MAX) as usize;
        let from = randomness.below((source.len() - length) as u64) as usize;
        let fresh = &source[from..from + length];
        let end = (place + length).min(copy.len());
        match randomness.below(3) {
            0 => drop(copy.splice(place..place, fresh.iter().copied())),
            1 => drop(copy.drain(place..end)),
            _ => drop(copy.splice(place..end, fresh.iter().copied())),
        }
    }
    copy
}

#[expect(clippy::disallowed_methods, reason = "a measurement of a policy is not a policy")]
fn files_below(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => files_below(&path, files),
            Ok(metadata) if metadata.is_file() => files.push(path),
            _ => {}
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a measurement of a policy is not a policy")]
fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// One chunk out of each of some files, from a place in it.
fn chunks_of(files: &[PathBuf], size: usize, randomness: &SeededRandomness) -> Vec<Vec<u8>> {
    let mut chunks = Vec::new();
    let mut tried = BTreeSet::new();
    for _ in 0..20 * CHUNKS_MAX {
        let number = randomness.below(files.len() as u64) as usize;
        if chunks.len() == CHUNKS_MAX || !tried.insert(number) {
            continue;
        }
        let bytes = read(&files[number]);
        if bytes.len() > size {
            let start = randomness.below((bytes.len() - size) as u64) as usize;
            chunks.push(bytes[start..start + size].to_vec());
        }
    }
    chunks
}

#[expect(clippy::disallowed_methods, reason = "a measurement of a policy is not a policy")]
fn cpu_nanoseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Gigabytes per second of CPU time: the best of nine, each long enough for a coarse clock.
fn gigabytes_per_second(chunks: &[Vec<u8>], make: fn(&[u8]) -> Option<Sketch>) -> f64 {
    let bytes: usize = chunks.iter().map(Vec::len).sum();
    let passes = TIMED_BYTES / bytes.max(1) + 1;
    let mut least = f64::MAX;
    for _ in 0..9 {
        let start = cpu_nanoseconds();
        for chunk in (0..passes).flat_map(|_| chunks) {
            black_box(make(chunk));
        }
        least = least.min(cpu_nanoseconds() - start);
    }
    (passes * bytes) as f64 / least
}

fn print_speed(chunks: &[Vec<u8>]) {
    for way in &WAYS {
        println!("  {}: {:.2} GB/s", way.name, gigabytes_per_second(chunks, way.make));
    }
}

/// The slowest of many patterns that repeat at this distance: most of a chunk may be sampled.
fn print_slowest_pattern(period: usize) {
    let randomness = SeededRandomness::new(2);
    let slowest = (0..PATTERNS)
        .map(|_| {
            let mut pattern = vec![0; period];
            randomness.fill(&mut pattern);
            let chunk: Vec<u8> = pattern.iter().copied().cycle().take(32 << 10).collect();
            (sampled_share(&chunk), chunk)
        })
        .max_by(|one, other| one.0.total_cmp(&other.0));
    if let Some((share, chunk)) = slowest {
        let speed = gigabytes_per_second(&[chunk], Sketch::of);
        println!("  a pattern of {period} bytes, {:.0} % sampled: {speed:.2} GB/s", share * 100.0);
    }
}

/// How many positions are sampled, by the definition.
fn sampled_share(chunk: &[u8]) -> f64 {
    let hash = |window: &[u8]| window.iter().fold(0u8, |h, b| h.wrapping_mul(5).wrapping_add(*b));
    let sampled = chunk.windows(8).filter(|window| hash(window) >= 254).count();
    sampled as f64 / chunk.len() as f64
}

fn print_shared(what: &str, shared: &[Shared; WAYS.len()]) {
    for (way, shared) in WAYS.iter().zip(shared) {
        shared.print(&format!("{what}, {}", way.name));
    }
}

fn measure_chunks(directory: &Path) {
    let randomness = SeededRandomness::new(1);
    let mut files = Vec::new();
    files_below(directory, &mut files);
    for size in CHUNK_BYTES {
        let chunks = chunks_of(&files, size, &randomness);
        println!("{}, {} chunks of {size} bytes", directory.display(), chunks.len());
        if chunks.len() < 2 {
            continue;
        }
        print_speed(&chunks);
        for edits in EDITS {
            let mut shared = [Shared::default(); WAYS.len()];
            for (chunk, source) in chunks.iter().zip(chunks.iter().cycle().skip(1)) {
                compare(chunk, &edited(chunk, source, edits, &randomness), &mut shared);
            }
            print_shared(&format!("{edits} edits"), &shared);
        }
        print_unrelated(&chunks);
    }
}

/// Pairs of chunks of different files of which less than a hundredth is common.
fn print_unrelated(chunks: &[Vec<u8>]) {
    let windows: Vec<Vec<u64>> = chunks.iter().map(|chunk| windows(chunk)).collect();
    let mut shared = [Shared::default(); WAYS.len()];
    for distance in 1..24 {
        for one in 0..chunks.len() {
            let other = (one + distance) % chunks.len();
            let common = windows[one].iter().filter(|h| windows[other].binary_search(h).is_ok());
            let common = common.count() as f64;
            let all = (windows[one].len() + windows[other].len()) as f64 - common;
            if common / all.max(1.0) < 0.01 {
                compare_known(&chunks[one], &chunks[other], common / all.max(1.0), &mut shared);
            }
        }
    }
    print_shared("unrelated", &shared);
}

/// Files of the same path in two directories, by how much they resemble each other.
fn measure_versions(pairs: &[PathBuf]) {
    let mut by_resemblance = [[Shared::default(); WAYS.len()]; 10];
    for pair in pairs.chunks_exact(2) {
        let mut files = Vec::new();
        files_below(&pair[0], &mut files);
        for file in files {
            let Ok(path) = file.strip_prefix(&pair[0]) else { continue };
            let (old, new) = (read(&file), read(&pair[1].join(path)));
            if old == new || old.len().min(new.len()) < 2048 {
                continue;
            }
            let (old, new) = (&old[..old.len().min(65536)], &new[..new.len().min(65536)]);
            let resemblance = resemblance(old, new);
            let tenth = ((resemblance * 10.0) as usize).min(9);
            compare_known(old, new, resemblance, &mut by_resemblance[tenth]);
        }
    }
    for (tenth, shared) in by_resemblance.iter().enumerate() {
        print_shared(&format!("resemblance from 0.{tenth}"), shared);
    }
}

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match arguments.split_first() {
        Some((what, directories)) if what.as_os_str() == "chunks" => {
            directories.iter().for_each(|directory| measure_chunks(directory));
        }
        Some((what, _)) if what.as_os_str() == "patterns" => {
            [1, 2, 3, 5, 7, 8, 16, 48].into_iter().for_each(print_slowest_pattern);
        }
        Some((what, pairs)) if what.as_os_str() == "versions" => measure_versions(pairs),
        _ => println!("sketch_quality chunks DIRECTORY... | versions OLD NEW... | patterns"),
    }
}
