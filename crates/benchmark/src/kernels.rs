//! Kernels: what one core does on the main paths, without devices in the way.
//!
//! The engine's own pipeline runs over a stream in memory into a store in memory: once with all
//! data new, once with all of it known, and back again into nothing. Figures are bytes by CPU
//! seconds of the whole process, all threads together, so they read as the speed of one core.
//!
//! The rooflines beside them are sums of the measured costs of the stages (reading, chunking,
//! hashing, compressing, sealing) on one quiet core.

use onefold_chunking::{Piece, Segmenter};
use onefold_crypto::KdfCost;
use onefold_engine::ingest::{BackupOptions, ParentChoice, Source, backup};
use onefold_engine::look_up::LookupChoice;
use onefold_engine::repository::Password;
use onefold_engine::session::SnapshotList;
use onefold_engine::tree::TreeReader;
use onefold_engine::{Environment, InitOptions, Job, MemoryPlan, Repository, restore};
use onefold_format::codec::Compression;
use onefold_policy::accelerated_filter::FilterOrder;
use onefold_store::MemoryStore;
use onefold_types::environment::SeededRandomness;
use onefold_types::{Result, limits};
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write;
use std::fs;
use std::io::{self, Cursor};
use std::path::Path;
use std::sync::Arc;

const DATA_BYTES_MAX: usize = 256 * limits::MIB;
const RUNS: usize = 5;

/// One kernel: its name, what it should reach, and what the machine allows (MB/s).
struct Kernel {
    name: &'static str,
    target: f64,
    roofline: f64,
    measured: Vec<f64>,
}

/// Runs all kernels over the files below `data`, or over generated text; returns a table.
pub fn run(data: Option<&Path>) -> Result<String> {
    let bytes = match data {
        Some(path) => read_files(path),
        None => text(DATA_BYTES_MAX),
    };
    let mut kernels = [
        Kernel {
            name: "all new, zstd 1, sealed",
            target: 400.0,
            roofline: 500.0,
            measured: vec![],
        },
        Kernel { name: "all known", target: 2500.0, roofline: 3200.0, measured: vec![] },
        Kernel { name: "read back, verified", target: 800.0, roofline: 1120.0, measured: vec![] },
    ];
    let mut stored_bytes = 0;
    let mut shares = Vec::new();
    for _ in 0..RUNS {
        let [new, known, back] = &mut kernels;
        let (stored, share) = run_once(&bytes, new, known, back)?;
        stored_bytes = stored;
        shares.push(share);
    }
    shares.sort_by(f64::total_cmp);
    let megabytes = bytes.len() as f64 / 1e6;
    let mut table = format!(
        "{megabytes:.0} MB, stored in {:.0} MB; medians of {RUNS} runs, MB by CPU second\n\n\
         | kernel | measured | min to max | target | roofline |\n| --- | --- | --- | --- | --- |\n",
        stored_bytes as f64 / 1e6
    );
    for kernel in &mut kernels {
        kernel.measured.sort_by(f64::total_cmp);
        let all = &kernel.measured;
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {} | {:.0} | {:.0} to {:.0} | {:.0} | {:.0} |",
            kernel.name,
            all[all.len() / 2],
            all[0],
            all[all.len() - 1],
            kernel.target,
            kernel.roofline
        );
    }
    let _ = writeln!(
        table,
        "\nlooking known chunks up takes {:.1} % ({:.1} to {:.1}) of the time of cutting and \
         fingerprinting them; at most 10 is the target",
        shares[shares.len() / 2] * 100.0,
        shares[0] * 100.0,
        shares[shares.len() - 1] * 100.0
    );
    Ok(table)
}

/// The bytes stored, and the time of looking known chunks up as a share of the time of cutting and
/// fingerprinting them.
fn run_once(
    bytes: &Arc<[u8]>,
    new: &mut Kernel,
    known: &mut Kernel,
    back: &mut Kernel,
) -> Result<(u64, f64)> {
    let options = InitOptions {
        kdf_cost: KdfCost { memory_kib: 64, passes: 1, lanes: 1 },
        compression: Compression::Zstd(1),
        ..InitOptions::standard()?
    };
    let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let store = Arc::new(MemoryStore::new());
    let shared = Arc::clone(&store) as Arc<dyn onefold_store::Store>;
    Repository::create(shared, &options, Some(b"kernel"), Environment::system(), memory)?;
    let password = || Ok(Password::new(b"kernel".to_vec()));
    let repository = Arc::new(Repository::open(store, password, Environment::system(), memory)?);
    let (job, _) = Job::unattended();
    let mut stored_bytes = 0;
    let mut lookup_seconds = 0.0;
    for kernel in [new, known] {
        let source = Source::Stream {
            name: b"data".to_vec(),
            reader: Box::new(Cursor::new(Arc::clone(bytes))),
            finish: Box::new(|| Ok(())),
        };
        let before = cpu_seconds();
        let report = backup(&repository, source, &backup_options(), &job)?;
        kernel.measured.push(bytes.len() as f64 / 1e6 / (cpu_seconds() - before));
        stored_bytes += report.summary.bytes_stored;
        lookup_seconds = report.lookup.elapsed.as_secs_f64();
    }
    let share = lookup_seconds / cut_and_fingerprint(bytes, &repository);
    let list = SnapshotList::load(&repository)?;
    if let Some(snapshot) = list.snapshots.last() {
        let entry = TreeReader::open(&repository)?.resolve(snapshot.record.root, b"/data")?;
        let before = cpu_seconds();
        restore::dump(
            &repository,
            &entry,
            &restore::DumpOptions::default(),
            &mut io::sink(),
            &job,
        )?;
        back.measured.push(bytes.len() as f64 / 1e6 / (cpu_seconds() - before));
    }
    Ok((stored_bytes, share))
}

/// Seconds that cutting and fingerprinting take, without anything else, as a backup does both.
fn cut_and_fingerprint(bytes: &[u8], repository: &Repository) -> f64 {
    let before = cpu_seconds();
    let mut segmenter = Segmenter::new(repository.configuration().chunker.tar_aware);
    let mut fingerprints = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let window = &rest[..rest.len().min(limits::MIB)];
        let (mut chunks, mut start) = (Vec::new(), 0);
        let at_end = window.len() == rest.len();
        let cut = segmenter.advance(&**repository.chunker(), window, at_end, &mut |piece| {
            let (Piece::Data { length } | Piece::Hole { length }) = piece;
            if let Piece::Data { .. } = piece {
                chunks.push(&window[start..start + length]);
            }
            start += length;
        });
        fingerprints.clear();
        repository.fingerprinter().data_batch(&chunks, &mut fingerprints);
        rest = &rest[cut..];
    }
    cpu_seconds() - before
}

/// How a benchmark backs up.
pub fn backup_options() -> BackupOptions {
    BackupOptions {
        host: "kernel".into(),
        user: "kernel".into(),
        parent: ParentChoice::None,
        threads: 1,
        lookup: LookupChoice::Eager(FilterOrder::CacheFirst),
        rewrite: onefold_policy::rewrite::RewriteChoice::None,
        program: "onefold-benchmark".into(),
        ..BackupOptions::default()
    }
}

/// CPU time of this process, all threads together.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The contents of all files below a directory, in the order of their paths, up to a bound.
fn read_files(root: &Path) -> Arc<[u8]> {
    let mut bytes = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(path) = left.pop() {
        if bytes.len() >= DATA_BYTES_MAX {
            break;
        }
        if let Ok(entries) = fs::read_dir(&path) {
            let mut children: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            children.sort_by(|a, b| b.cmp(a));
            left.extend(children);
        } else if let Ok(content) = fs::read(&path) {
            bytes.extend(content);
        }
    }
    bytes.truncate(DATA_BYTES_MAX);
    bytes.into()
}

/// Text of words that recur as in natural language: compressible, without duplicates.
fn text(length: usize) -> Arc<[u8]> {
    let randomness = SeededRandomness::new(1);
    let letter = |_| b'a' + randomness.below(26) as u8;
    let words: Vec<Vec<u8>> =
        (0..5000).map(|_| (0..2 + randomness.below(9)).map(letter).collect()).collect();
    let mut bytes = Vec::with_capacity(length + 16);
    while bytes.len() < length {
        // The product of two uniform numbers prefers the front of the list.
        let rank = randomness.below(5000) * randomness.below(5000) / 5000;
        bytes.extend_from_slice(&words[rank as usize]);
        bytes.push(b' ');
    }
    bytes.truncate(length);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_as_long_as_asked_and_always_the_same() {
        assert_eq!(text(100_000).len(), 100_000);
        assert_eq!(text(1000), text(1000));
    }
}
