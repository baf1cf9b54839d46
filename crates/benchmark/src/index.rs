//! The fingerprint index at any size: memory, look-ups, and what opening a large store costs.
//!
//! A store is made whose index is real, written by the engine into runs of falling sizes, and whose
//! containers are names only: files of a few bytes where containers would lie, because neither
//! look-ups nor a backup read a container that an index run covers, but a backup lists them all.
//! Making, asking and backing up are processes of their own, so that each starts with clean memory.
//!
//! - Memory is the growth of the resident set from before the index is opened until after as many
//!   look-ups as load all of it. What a look-up costs is measured after that.
//! - The backup is one of one small file that has changed, with the default memory limit, in a
//!   store with default encryption. CPU and peak are the kernel's, for the whole process.

use crate::kernels::{backup_options, cpu_seconds};
use crate::measure::{Invocation, Usage, measure};
use clap::{Args, ValueEnum};
use onefold_engine::index::run_writer::write_run;
use onefold_engine::index::{ChunkIndex as _, FingerprintIndex, IndexMode};
use onefold_engine::ingest::{BackupOptions, ParentChoice, Source, backup};
use onefold_engine::repository::Password;
use onefold_engine::{Environment, InitOptions, Job, MemoryPlan, Repository};
use onefold_format::index_run::{Entry, IndexKind, is_hook};
use onefold_format::layout;
use onefold_store::{LocalStore, Store};
use onefold_types::environment::SeededRandomness;
use onefold_types::{ContainerId, Error, Fingerprint, Result, limits};
use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use std::{fs, io};

const PASSWORD: &[u8] = b"benchmark";
const CHUNKS_PER_CONTAINER: u64 = 700;
/// Of the containers, in thousandths: as merging leaves runs behind.
const RUN_SHARES: [u64; 6] = [800, 130, 45, 17, 6, 2];
const QUESTIONS: u64 = 100_000;
const CREATED_NS: i64 = 1_700_000_000_000_000_000;
const DATA: &str = "file";
const STORE: &str = "store";
const HEAD: &str = "index     | RAM, bytes a chunk | of it asked for | pieces | new, ns | \
     false, % | known, ns | pages a known one | open, ms CPU | disk, bytes a chunk | \
     backup, ms CPU | backup, MiB peak\n";

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Subject {
    /// Summary vectors.
    Bloom,
    /// Static filters.
    Fuse,
    /// Signature tables.
    Signature,
    /// Hooks alone, over static filters.
    Sampled,
}

impl Subject {
    fn kind(self) -> IndexKind {
        match self {
            Self::Bloom => IndexKind::Bloom,
            Self::Fuse | Self::Sampled => IndexKind::Fuse,
            Self::Signature => IndexKind::Signature,
        }
    }

    fn mode(self) -> IndexMode {
        match self {
            Self::Sampled => IndexMode::Sampled,
            Self::Bloom | Self::Fuse | Self::Signature => IndexMode::Exact,
        }
    }

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A part of the measurement that has a process of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Phase {
    /// Makes the store.
    Make,
    /// Asks the index.
    Ask,
    /// Backs one file up.
    Backup,
}

/// How the index is measured.
#[derive(Args)]
pub struct IndexArgs {
    /// Chunks in the store
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=4_000_000_000))]
    chunks: u64,
    /// What to measure [default: all]
    #[arg(long)]
    kind: Option<Subject>,
    /// Where the stores are kept while they are needed
    #[arg(long, value_name = "DIR", default_value = ".")]
    work: PathBuf,
    #[arg(long, hide = true)]
    phase: Option<Phase>,
}

/// Runs the measurement, or one part of it; returns what is to be printed.
pub fn run(args: &IndexArgs) -> io::Result<String> {
    let subject = args.kind.unwrap_or(Subject::Fuse);
    match args.phase {
        Some(phase) => phase_of(args, phase, subject).map_err(io::Error::other),
        None => all(args),
    }
}

fn phase_of(args: &IndexArgs, phase: Phase, subject: Subject) -> Result<String> {
    match phase {
        Phase::Make => make(args, subject.kind()),
        Phase::Ask => ask(args, subject),
        Phase::Backup => back_up(&args.work).map(|()| String::new()),
    }
}

fn all(args: &IndexArgs) -> io::Result<String> {
    let subjects = match args.kind {
        Some(subject) => vec![subject],
        None => vec![Subject::Bloom, Subject::Fuse, Subject::Sampled, Subject::Signature],
    };
    fs::create_dir_all(&args.work)?;
    let place = tempfile::TempDir::with_prefix_in("onefold-index-", args.work.canonicalize()?)?;
    let mut table = format!("{} chunks, {} containers\n{HEAD}", args.chunks, containers(args));
    let mut made = None;
    for subject in subjects {
        if made != Some(subject.kind()) {
            let _ = fs::remove_dir_all(place.path().join(STORE));
            child(args, place.path(), Phase::Make, subject)?;
            made = Some(subject.kind());
        }
        let (_, asked) = child(args, place.path(), Phase::Ask, subject)?;
        let (usage, _) = child(args, place.path(), Phase::Backup, subject)?;
        let cpu_ms = usage.cpu_seconds() * 1000.0;
        let peak = usage.peak_mib();
        let name = subject.name();
        let asked = asked.trim();
        let _ = writeln!(table, "{name:<9} | {asked} | {cpu_ms:14.0} | {peak:16.1}");
    }
    Ok(table)
}

/// Runs a part in a process of its own.
fn child(
    args: &IndexArgs,
    place: &Path,
    phase: Phase,
    subject: Subject,
) -> io::Result<(Usage, String)> {
    let log = place.join("log");
    let words = [
        "index".to_owned(),
        format!("--chunks={}", args.chunks),
        format!("--kind={}", subject.name()),
        format!("--phase={}", format!("{phase:?}").to_lowercase()),
        format!("--work={}", place.display()),
    ];
    let usage = measure(Invocation {
        program: std::env::current_exe()?,
        arguments: words.to_vec(),
        environment: Vec::new(),
        directory: place.to_path_buf(),
        log: log.clone(),
        input: None,
    })?;
    Ok((usage, fs::read_to_string(log)?))
}

fn containers(args: &IndexArgs) -> u64 {
    args.chunks.div_ceil(CHUNKS_PER_CONTAINER)
}

/// The names of all containers, a second apart.
fn container_ids(args: &IndexArgs) -> Vec<ContainerId> {
    let randomness = SeededRandomness::new(args.chunks);
    let at = |number: u64| CREATED_NS + number as i64 * 1_000_000_000;
    (0..containers(args)).map(|number| ContainerId::ordered(at(number), &randomness)).collect()
}

/// The fingerprint of a chunk: a number's digits, mixed so that none is twice.
fn fingerprint(chunk: u64) -> Fingerprint {
    let mut z = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate().take(8) {
        *byte = (z >> (56 - 8 * place)) as u8;
    }
    Fingerprint(bytes)
}

/// The containers of each run.
fn shares(containers: u64) -> Vec<Range<u64>> {
    let mut start = 0;
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for share in RUN_SHARES {
        let end = (start + (containers * share).div_ceil(1000)).min(containers);
        ranges.push(start..end);
        start = end;
    }
    ranges.retain(|range| !range.is_empty());
    ranges
}

fn open(work: &Path, memory_bytes: usize) -> Result<Arc<Repository>> {
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(work.join(STORE))?);
    let password = || Ok(Password::new(PASSWORD.to_vec()));
    let memory = MemoryPlan::new(memory_bytes)?;
    Repository::open(store, password, Environment::system(), memory).map(Arc::new)
}

fn failed(what: &Path, error: io::Error) -> Error {
    Error::io(what.display().to_string(), error)
}

/// Makes the store.
fn make(args: &IndexArgs, kind: IndexKind) -> Result<String> {
    let place = args.work.join(STORE);
    let store: Arc<dyn Store> = Arc::new(LocalStore::create(&place)?);
    let options = InitOptions::standard()?;
    let memory = MemoryPlan::new(limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let environment = Environment::system();
    let repository =
        Repository::create(Arc::clone(&store), &options, Some(PASSWORD), environment, memory)?;
    let ids = container_ids(args);
    for id in &ids {
        let file = place.join(layout::container(*id));
        if let Some(shard) = file.parent() {
            fs::create_dir_all(shard).map_err(|error| failed(shard, error))?;
        }
        fs::write(&file, b"name only").map_err(|error| failed(&file, error))?;
    }
    for range in shares(ids.len() as u64) {
        let chunks =
            range.start * CHUNKS_PER_CONTAINER..(range.end * CHUNKS_PER_CONTAINER).min(args.chunks);
        let mut entries: Vec<Entry> = chunks
            .map(|chunk| Entry {
                prefix: fingerprint(chunk).prefix(),
                container: (chunk / CHUNKS_PER_CONTAINER - range.start) as u32,
            })
            .collect();
        entries.sort_unstable();
        let covered = ids[range.start as usize..range.end as usize].to_vec();
        let mut entries = entries.into_iter();
        write_run(&repository, Some(kind), covered, Vec::new(), &mut || Ok(entries.next()))?;
    }
    fs::write(args.work.join(DATA), "the first version")
        .map_err(|error| failed(&args.work, error))?;
    back_up(&args.work)?;
    Ok(String::new())
}

/// Changes the file and backs it up.
fn back_up(work: &Path) -> Result<()> {
    let file = work.join(DATA);
    let content: Vec<u8> = format!("{:?}\n", Instant::now()).into_bytes().repeat(200);
    fs::write(&file, content).map_err(|error| failed(&file, error))?;
    let repository = open(work, limits::MEMORY_LIMIT_DEFAULT_BYTES)?;
    let source = Source::Paths { paths: vec![file], selection: Box::default() };
    let options = BackupOptions { parent: ParentChoice::Newest, ..backup_options() };
    let report = backup(&repository, source, &options, &Job::unattended().0)?;
    if report.summary.chunks_new == 0 {
        return Err(Error::invalid("the changed file was not stored"));
    }
    Ok(())
}

/// The resident set of this process, in bytes.
fn resident_bytes() -> Result<f64> {
    let place = Path::new("/proc/self/status");
    let status = fs::read_to_string(place).map_err(|error| failed(place, error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024.0).ok_or_else(|| Error::invalid("no VmRSS"))
}

/// Asks the index, and returns a row of figures.
fn ask(args: &IndexArgs, subject: Subject) -> Result<String> {
    let repository = open(&args.work, 8 << 30)?;
    let ids = container_ids(args);
    let (before, cpu_before) = (resident_bytes()?, cpu_seconds());
    let index = FingerprintIndex::open_with(&repository, subject.mode())?;
    let open_ms = (cpu_seconds() - cpu_before) * 1000.0;
    let chunks = args.chunks;
    let random = SeededRandomness::new(3);
    let known: Vec<u64> = (0..QUESTIONS).map(|_| random.below(chunks)).collect();
    let strangers: Vec<u64> =
        (0..QUESTIONS).map(|_| chunks + random.below(u64::MAX >> 24)).collect();
    // Until nothing more has to be loaded.
    loop {
        let loads = index.piece_loads();
        for chunk in known.iter().chain(&strangers) {
            index.may_contain(&repository, &fingerprint(*chunk))?;
        }
        if index.piece_loads() == loads {
            break;
        }
    }
    let resident = resident_bytes()? - before - (known.len() + strangers.len()) as f64 * 8.0;
    let (new_ns, false_answers) = time_questions(&index, &repository, &strangers)?;
    let (known_ns, _) = time_questions(&index, &repository, &known)?;
    let mut reads = 0;
    let (mut asked, mut found) = (0u64, Vec::new());
    for chunk in known {
        let fingerprint = fingerprint(chunk);
        if subject.mode() == IndexMode::Sampled && !is_hook(fingerprint.prefix()) {
            continue;
        }
        asked += 1;
        found.clear();
        index.locate_newest(&repository, &[fingerprint], &mut found, &mut reads)?;
        if !found[0].contains(&ids[(chunk / CHUNKS_PER_CONTAINER) as usize]) {
            return Err(Error::invalid(format!("chunk {chunk} was not found")));
        }
    }
    let disk: u64 = index.runs().iter().map(|run| run.stored_bytes).sum();
    Ok(format!(
        "{:18.3} | {:15.3} | {:6} | {new_ns:7.0} | {:8.3} | {known_ns:9.0} | {:17.3} | \
         {open_ms:12.1} | {:18.2}",
        resident / chunks as f64,
        index.memory_bytes() as f64 / chunks as f64,
        index.piece_loads(),
        false_answers as f64 * 100.0 / QUESTIONS as f64,
        reads as f64 / asked as f64,
        disk as f64 / chunks as f64,
    ))
}

/// CPU nanoseconds for a question whether a chunk may be there, and how many may.
fn time_questions(
    index: &FingerprintIndex,
    repository: &Repository,
    chunks: &[u64],
) -> Result<(f64, u64)> {
    let fingerprints: Vec<Fingerprint> = chunks.iter().map(|chunk| fingerprint(*chunk)).collect();
    let (start, mut yes) = (cpu_seconds(), 0);
    for fingerprint in &fingerprints {
        yes += u64::from(index.may_contain(repository, fingerprint)?);
    }
    Ok(((cpu_seconds() - start) * 1e9 / chunks.len() as f64, yes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_all_containers_once() {
        for containers in [1, 2, 7, 1429, 142_858] {
            let ranges = shares(containers);
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, containers));
        }
    }

    #[test]
    fn every_part_works_in_a_small_store() {
        let place = tempfile::tempdir().unwrap();
        let work = place.path().to_path_buf();
        for subject in [Subject::Bloom, Subject::Fuse, Subject::Sampled, Subject::Signature] {
            let _ = fs::remove_dir_all(work.join(STORE));
            let args =
                IndexArgs { chunks: 3000, kind: Some(subject), work: work.clone(), phase: None };
            make(&args, subject.kind()).unwrap();
            let row = ask(&args, subject).unwrap();
            assert_eq!(row.split('|').count() + 3, HEAD.split('|').count(), "{row}");
            back_up(&work).unwrap();
        }
    }
}
