//! A deterministic mutational fuzzer: inputs that are nearly right, from those that are.
//!
//! No coverage guides it, so it is no substitute for the targets in `fuzz/`; but it needs nothing
//! that is not here, takes seconds, and gives the same inputs on every machine. A target fails by
//! panicking; the input is shown. `ONEFOLD_FUZZ_ROUNDS` asks for more inputs, with other seeds.

#![allow(dead_code, reason = "every crate that fuzzes uses a part")]

use onefold_types::environment::{Randomness, SeededRandomness};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Numbers at which lengths and counts go wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    127,
    128,
    255,
    0x7fff,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    i64::MAX as u64,
    u64::MAX,
];

/// Changes inputs.
pub struct Mutator(SeededRandomness);

impl Mutator {
    pub fn new(seed: u64) -> Self {
        Self(SeededRandomness::new(seed))
    }

    fn below(&self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// A place in `bytes`, its end included, and a short length from there.
    fn span(&self, bytes: &[u8]) -> (usize, usize) {
        let from = self.below(bytes.len() + 1);
        let left = bytes.len() - from;
        let length =
            if self.below(8) == 0 { self.below(left + 1) } else { self.below(9).min(left) };
        (from, from + length)
    }

    /// One input after another: one of `corpus` with some changes.
    pub fn next(&self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        // Often one change only: what follows must still be right to be reached.
        let changes = if self.below(2) == 0 { 1 } else { 1 + self.below(8) };
        for _ in 0..changes {
            self.change(&mut bytes, corpus);
        }
        bytes
    }

    fn change(&self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let (from, to) = self.span(bytes);
        let mut new = vec![0; 1 + self.below(8)];
        self.0.fill(&mut new);
        match self.below(10) {
            0 | 1 if from < bytes.len() => bytes[from] ^= 1 << self.below(8),
            2 if from < bytes.len() => bytes[from] = NUMBERS[self.below(6)] as u8,
            3 => bytes.truncate(from),
            4 => drop(bytes.splice(from..to, [])),
            5 => drop(bytes.splice(from..from, new)),
            6 => {
                let again = bytes[from..to].to_vec();
                let count = if self.below(16) == 0 { 1000 } else { 1 };
                drop(bytes.splice(from..from, again.repeat(count)));
            }
            7 => {
                let other = &corpus[self.below(corpus.len())];
                let (start, end) = self.span(other);
                drop(bytes.splice(from..to, other[start..end].iter().copied()));
            }
            8 => {
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)].min(bytes.len() - from);
                bytes[from..from + width].copy_from_slice(&number[..width]);
            }
            _ => drop(bytes.splice(from..to, varint(NUMBERS[self.below(NUMBERS.len())]))),
        }
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// Gives `target` the corpus and `rounds` inputs made of it; panics with the input on which it
/// panics.
pub fn run(name: &str, corpus: &[Vec<u8>], rounds: u64, target: &dyn Fn(&[u8])) {
    assert!(!corpus.is_empty(), "{name} has no corpus");
    let asked = std::env::var("ONEFOLD_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok());
    let mutator = Mutator::new(asked.unwrap_or(rounds));
    let try_one = |bytes: &[u8]| {
        if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
            let shown: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("{name} fails on {} bytes: {shown}", bytes.len());
        }
    };
    corpus.iter().for_each(|bytes| try_one(bytes));
    for _ in 0..asked.unwrap_or(rounds) {
        try_one(&mutator.next(corpus));
    }
}

/// The most memory that this process ever had, in bytes; `None` where that is not told.
pub fn memory_peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
