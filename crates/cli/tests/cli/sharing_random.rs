//! Random reads, writes, cuts and holes of files of a share, compared with plain files, while they
//! are optimised, brought back and read back and the store is collected; the mount and the jobs are
//! killed now and then, at rest and in the middle of what they do.
//!
//! `ONEFOLD_SHARE_OPERATIONS` says how many; `ONEFOLD_SHARE_ROUND` after how many the mount ends,
//! `ONEFOLD_SHARE_SEED` where they begin.

use crate::mounted::{Mount, can_mount};
use crate::support::Sandbox;
use onefold_types::environment::{Randomness, SeededRandomness};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Unless somebody asks for more.
const OPERATIONS: u64 = 1500;
/// The mount ends after so many, and the job is let run.
const ROUND: u64 = 150;
/// The files' sizes at first.
const SIZES: [u64; 3] = [10_000, 700_000, 5_000_000];

/// Nobody waits longer for jobs than this.
const REST: Duration = Duration::from_secs(5);

pub fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

pub struct Random(pub SeededRandomness);

impl Random {
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.fill(&mut bytes);
        bytes
    }

    pub fn below(&self, limit: u64) -> u64 {
        let bytes = self.bytes(8);
        u64::from_le_bytes(bytes.try_into().unwrap()) % limit.max(1)
    }
}

/// A file of the share, and the same as a plain one.
pub struct Pair {
    pub shared: File,
    pub plain: File,
    pub name: String,
}

impl Pair {
    fn open(sandbox: &Sandbox, number: usize) -> Self {
        Self::open_in(&sandbox.path(""), &format!("file {number}"))
    }

    /// A file of `share` and the same of `plain`, in a directory.
    pub fn open_in(directory: &Path, name: &str) -> Self {
        let open = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let shared = open(directory.join("share").join(name));
        let plain = open(directory.join("plain").join(name));
        Self { shared, plain, name: name.to_owned() }
    }

    pub fn size(&self) -> u64 {
        self.plain.metadata().unwrap().len()
    }

    /// One operation on both; whether the share's mount was there to do it.
    pub fn step(&self, operation: &Operation, is_killed: &AtomicBool) -> bool {
        let wanted = operation.apply(&self.plain).unwrap();
        let read = match operation.apply(&self.shared) {
            Ok(read) => read,
            Err(error) => {
                let is_killed = is_killed.load(Ordering::SeqCst);
                assert!(is_killed, "{}: {operation}: {error}", self.name);
                return false;
            }
        };
        // A read may be short, and then has to be right so far.
        assert!(read.len() <= wanted.len(), "{}: {} from {operation}", self.name, read.len());
        assert!(!read.is_empty() || wanted.is_empty(), "{}: nothing: {operation}", self.name);
        assert!(read[..] == wanted[..read.len()], "{}: {operation}", self.name);
        true
    }

    /// What was being done when the mount was killed may be done in part, and nothing else; the
    /// plain file is made what the other one is.
    fn settle(&self, before: &[u8], what: &str) {
        let (shared, after) = (bytes_of(&self.shared), bytes_of(&self.plain));
        let sizes = before.len().min(after.len())..=before.len().max(after.len());
        assert!(sizes.contains(&shared.len()), "{}: {} bytes {what}", self.name, shared.len());
        let of = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
        let is_either =
            |(at, byte): (usize, &u8)| *byte == of(before, at) || *byte == of(&after, at);
        let differs = shared.iter().enumerate().position(|one| !is_either(one));
        assert_eq!(differs, None, "{} {what}: neither before nor after", self.name);
        self.plain.set_len(0).unwrap();
        self.plain.write_all_at(&shared, 0).unwrap();
    }

    #[track_caller]
    pub fn compare(&self, what: &str) {
        let (shared, plain) = (bytes_of(&self.shared), bytes_of(&self.plain));
        assert_eq!(shared.len(), plain.len(), "{} {what}", self.name);
        let differs = shared.iter().zip(&plain).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{} {what}: the first byte that differs", self.name);
    }
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// What is done with a file.
pub enum Operation {
    Read(u64, u64),
    Write(u64, Vec<u8>),
    Resize(u64),
    Allocate(FallocateFlags, u64, u64),
    Sync,
}

impl Operation {
    pub fn any(random: &Random, size: u64, size_max: u64) -> Self {
        let offset = random.below(size + size / 8 + 1);
        let length = 1 + random.below([100, 5000, 70_000, 400_000][random.below(4) as usize]);
        match random.below(10) {
            0..=3 => Self::Read(offset, length),
            4..=6 => Self::Write(offset.min(size_max), random.bytes(length as usize)),
            7 => Self::Resize(random.below(size_max)),
            8 => {
                let flags = match random.below(3) {
                    0 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    1 => FallocateFlags::ZERO_RANGE,
                    _ => FallocateFlags::empty(),
                };
                Self::Allocate(flags, offset.min(size_max), length)
            }
            _ => Self::Sync,
        }
    }

    /// What it read, if it reads.
    fn apply(&self, file: &File) -> io::Result<Vec<u8>> {
        match self {
            Self::Read(offset, length) => {
                let mut bytes = vec![1; *length as usize];
                let read = file.read_at(&mut bytes, *offset)?;
                bytes.truncate(read);
                return Ok(bytes);
            }
            Self::Write(offset, bytes) => file.write_all_at(bytes, *offset)?,
            Self::Resize(size) => file.set_len(*size)?,
            Self::Allocate(flags, offset, length) => fallocate(file, *flags, *offset, *length)?,
            Self::Sync => file.sync_data()?,
        }
        Ok(Vec::new())
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(offset, length) => write!(out, "read {length} at {offset}"),
            Self::Write(offset, bytes) => write!(out, "write {} at {offset}", bytes.len()),
            Self::Resize(size) => write!(out, "cut or grow to {size}"),
            Self::Allocate(flags, offset, length) => {
                write!(out, "{flags:?} {length} at {offset}")
            }
            Self::Sync => write!(out, "sync"),
        }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Figures {
    pub operations: AtomicU64,
    rounds: AtomicU64,
    mounts_killed: AtomicU64,
    killed_at_work: AtomicU64,
    pub jobs: AtomicU64,
    jobs_killed: AtomicU64,
    pub files_optimized: AtomicU64,
    files_brought_back: AtomicU64,
    collections: AtomicU64,
}

pub fn count(figure: &AtomicU64, more: u64) {
    figure.fetch_add(more, Ordering::Relaxed);
}

/// One job of a share after the other, some of them killed.
pub fn work(
    begin: &dyn Fn(&[&str]) -> Command,
    share: &str,
    random: &Random,
    (stop, figures): (&AtomicBool, &Figures),
) {
    while !stop.load(Ordering::Relaxed) {
        // While the mount is killed there is nothing to reach the share by: any code will do.
        let command = match random.below(16) {
            0..=8 => vec!["--json", "share", "optimize", "--unmounted", share],
            9..=12 => vec!["--json", "gc", "--space-goal", "all"],
            13..=14 => {
                vec!["--json", "share", "run", share, "--pressure", "off", "--unmounted"]
            }
            _ => vec!["--json", "share", "rehydrate", share],
        };
        let mut job = begin(&command).spawn().unwrap();
        if random.below(4) == 0 {
            std::thread::sleep(Duration::from_millis(random.below(300)));
            let _ = job.kill();
            count(&figures.jobs_killed, 1);
        }
        let output = job.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{command:?}: {said}");
        count(&figures.jobs, 1);
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            // The last line of one that was killed may be half a line.
            let told: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let number = |name: &str| told[name].as_u64().unwrap_or(0);
            match told["message_type"].as_str() {
                Some("optimized") => count(&figures.files_optimized, number("files_optimized")),
                Some("rehydrated") => count(&figures.files_brought_back, number("files")),
                Some("collection") => count(&figures.collections, 1),
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Leaves the files alone until jobs have met them closed, or have been killed at that.
fn rest(figures: &Figures) {
    let (jobs, begun) = (figures.jobs.load(Ordering::Relaxed), Instant::now());
    // The one that is at work now may have met them open.
    while figures.jobs.load(Ordering::Relaxed) < jobs + 3 && begun.elapsed() < REST {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Operations with a mount of their own. It may be killed in the middle of one.
fn round(sandbox: &Sandbox, random: &Random, length: u64, figures: &Figures) {
    let mount = Mount::share(sandbox, "share");
    let pairs: Vec<Pair> = (0..SIZES.len()).map(|one| Pair::open(sandbox, one)).collect();
    for pair in &pairs {
        pair.compare("after it was mounted");
    }
    let is_killed = AtomicBool::new(false);
    let is_killed_at_work = random.below(4) == 0;
    let wait = Duration::from_millis(random.below(200));
    let (mut interrupted, mut last) = (None, String::new());
    std::thread::scope(|scope| {
        if is_killed_at_work {
            scope.spawn(|| {
                std::thread::sleep(wait);
                is_killed.store(true, Ordering::SeqCst);
                mount.signal("-KILL");
            });
        }
        for _ in 0..length {
            let number = random.below(SIZES.len() as u64) as usize;
            let pair = &pairs[number];
            let before = if is_killed_at_work { bytes_of(&pair.plain) } else { Vec::new() };
            let operation = Operation::any(random, pair.size(), SIZES[number] * 2);
            last = operation.to_string();
            if !pair.step(&operation, &is_killed) {
                interrupted = Some((number, before));
                break;
            }
            count(&figures.operations, 1);
        }
    });
    let done = figures.operations.load(Ordering::Relaxed);
    let what = format!("operation {done}, {last}");
    count(&figures.rounds, 1);
    if is_killed_at_work {
        drop((pairs, mount));
        count(&figures.killed_at_work, u64::from(interrupted.is_some()));
        count(&figures.mounts_killed, 1);
        let mount = Mount::share(sandbox, "share");
        for number in 0..SIZES.len() {
            let pair = Pair::open(sandbox, number);
            match &interrupted {
                Some((one, before)) if *one == number => pair.settle(before, &what),
                _ => pair.compare(&what),
            }
        }
        mount.end();
        return;
    }
    for pair in &pairs {
        pair.compare(&what);
    }
    // What was reported as written is there, killed or not.
    drop(pairs);
    if random.below(3) > 0 {
        rest(figures);
    }
    match random.below(2) {
        0 => {
            mount.kill();
            count(&figures.mounts_killed, 1);
        }
        _ => drop(mount.end()),
    }
}

#[test]
fn files_of_a_share_are_what_plain_files_are_whatever_happens() {
    if !can_mount() {
        return;
    }
    let sandbox = Sandbox::with_store();
    let seed = asked("ONEFOLD_SHARE_SEED", 1);
    let random = Random(SeededRandomness::new(seed));
    for (number, size) in SIZES.into_iter().enumerate() {
        let bytes = random.bytes(size as usize);
        for directory in ["share", "plain"] {
            sandbox.write(&format!("{directory}/file {number}"), &bytes);
        }
    }
    let arguments = ["share", "create", "--min-age", "0s", "--min-size", "1"];
    sandbox.run(&[&arguments[..], &[&sandbox.arg("share")]].concat()).expect(0);
    let (stop, figures, begun) = (AtomicBool::new(false), Figures::default(), Instant::now());
    let operations = asked("ONEFOLD_SHARE_OPERATIONS", OPERATIONS);
    let length = asked("ONEFOLD_SHARE_ROUND", ROUND);
    std::thread::scope(|scope| {
        let of_jobs = Random(SeededRandomness::new(seed + 1));
        let (sandbox, stop, figures) = (&sandbox, &stop, &figures);
        let share = sandbox.arg("share");
        scope.spawn(move || {
            let begin = |arguments: &[&str]| sandbox.command(arguments);
            work(&begin, &share, &of_jobs, (stop, figures));
        });
        let _stops = Stops(stop);
        while figures.operations.load(Ordering::Relaxed) < operations {
            round(sandbox, &random, length, figures);
            if figures.rounds.load(Ordering::Relaxed) % 50 == 0 {
                eprintln!("{:.0?}: seed {seed}, {figures:?}", begun.elapsed());
            }
        }
    });
    eprintln!("{:.0?}: seed {seed}, {figures:?}", begun.elapsed());
    let mount = Mount::share(&sandbox, "share");
    for number in 0..SIZES.len() {
        Pair::open(&sandbox, number).compare("at the end");
    }
    mount.end();
    sandbox.run(&["share", "rehydrate", &sandbox.arg("share")]).expect(0);
    for number in 0..SIZES.len() {
        let name = format!("file {number}");
        let read = |directory: &str| fs::read(sandbox.path(directory).join(&name)).unwrap();
        assert!(read("share") == read("plain"), "{name} brought back");
    }
}

/// Says that it is over, however that came.
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
