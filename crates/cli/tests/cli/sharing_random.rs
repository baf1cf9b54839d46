//! Random reads, writes, cuts and holes of files of a share, compared with plain files, while they
//! are optimised and the store is collected, and the mount is killed now and then.
//!
//! `ONEFOLD_SHARE_OPERATIONS` says how many; `ONEFOLD_SHARE_SEED` where they begin.

use crate::mounted::{Mount, can_mount};
use crate::support::Sandbox;
use onefold_types::environment::{Randomness, SeededRandomness};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Unless somebody asks for more.
const OPERATIONS: u64 = 1500;
/// The mount is killed after so many, and the job is let run.
const ROUND: u64 = 150;
/// The files' sizes at first.
const SIZES: [u64; 3] = [10_000, 700_000, 5_000_000];

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

struct Random(SeededRandomness);

impl Random {
    fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.fill(&mut bytes);
        bytes
    }

    fn below(&self, limit: u64) -> u64 {
        let bytes = self.bytes(8);
        u64::from_le_bytes(bytes.try_into().unwrap()) % limit.max(1)
    }
}

/// A file of the share, and the same as a plain one.
struct Pair {
    shared: File,
    plain: File,
    name: String,
}

impl Pair {
    fn open(sandbox: &Sandbox, number: usize) -> Self {
        let name = format!("file {number}");
        let open = |path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let shared = open(sandbox.path("share").join(&name));
        let plain = open(sandbox.path("plain").join(&name));
        Self { shared, plain, name }
    }

    fn size(&self) -> u64 {
        self.plain.metadata().unwrap().len()
    }

    /// One operation on both; what it was.
    fn step(&self, random: &Random, size_max: u64) -> String {
        let size = self.size();
        let offset = random.below(size + size / 8 + 1);
        let length = 1 + random.below([100, 5000, 70_000, 400_000][random.below(4) as usize]);
        match random.below(10) {
            0..=3 => {
                let (mut a, mut b) = (vec![1; length as usize], vec![2; length as usize]);
                let read = self.shared.read_at(&mut a, offset).unwrap();
                let wanted = self.plain.read_at(&mut b, offset).unwrap();
                assert!(read <= wanted, "{}: read {read} of {wanted}", self.name);
                // A read may be short, and then has to be right so far.
                assert!(read > 0 || wanted == 0, "{}: nothing at {offset}", self.name);
                assert!(a[..read] == b[..read], "{}: {length} at {offset}", self.name);
                format!("read {length} at {offset}")
            }
            4..=6 => {
                let bytes = random.bytes(length as usize);
                let offset = offset.min(size_max);
                self.shared.write_all_at(&bytes, offset).unwrap();
                self.plain.write_all_at(&bytes, offset).unwrap();
                format!("write {length} at {offset}")
            }
            7 => {
                let to = random.below(size_max);
                self.shared.set_len(to).unwrap();
                self.plain.set_len(to).unwrap();
                format!("cut or grow to {to}")
            }
            8 => {
                let flags = match random.below(3) {
                    0 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    1 => FallocateFlags::ZERO_RANGE,
                    _ => FallocateFlags::empty(),
                };
                let offset = offset.min(size_max);
                fallocate(&self.shared, flags, offset, length).unwrap();
                fallocate(&self.plain, flags, offset, length).unwrap();
                format!("{flags:?} {length} at {offset}")
            }
            _ => {
                self.shared.sync_data().unwrap();
                "sync".into()
            }
        }
    }

    #[track_caller]
    fn compare(&self, what: &str) {
        let all = |file: &File| {
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        let (shared, plain) = (all(&self.shared), all(&self.plain));
        assert_eq!(shared.len(), plain.len(), "{} {what}", self.name);
        let differs = shared.iter().zip(&plain).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{} {what}: the first byte that differs", self.name);
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
    let stop = AtomicBool::new(false);
    let operations = asked("ONEFOLD_SHARE_OPERATIONS", OPERATIONS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // While the mount is killed there is nothing to reach the share by.
                sandbox.run(&["share", "optimize", &sandbox.arg("share")]);
                sandbox.run(&["gc", "--space-goal", "all"]);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let _stops = Stops(&stop);
        let mut done = 0;
        while done < operations {
            let mount = Mount::share(&sandbox, "share");
            let pairs: Vec<Pair> = (0..SIZES.len()).map(|one| Pair::open(&sandbox, one)).collect();
            for pair in &pairs {
                pair.compare("after it was mounted");
            }
            let mut last = String::new();
            for _ in 0..ROUND {
                let number = random.below(SIZES.len() as u64) as usize;
                last = pairs[number].step(&random, SIZES[number] * 2);
                done += 1;
            }
            for pair in &pairs {
                pair.compare(&format!("seed {seed}, operation {done}, {last}"));
            }
            // What was reported as written is there, killed or not.
            drop(pairs);
            let rests = random.below(3) > 0;
            if rests {
                std::thread::sleep(Duration::from_millis(400));
            }
            match random.below(2) {
                0 => mount.kill(),
                _ => drop(mount.end()),
            }
        }
    });
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
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
