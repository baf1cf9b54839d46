//! How much memory an index takes once all of it is loaded: as it counts itself, and by what the
//! process grew.
//!
//! A run of that many entries is written into a store in a temporary directory, opened as a new
//! process would open it, and asked about chunks it does not have until every piece was needed.
//! What a process once had and gave back hides growth, so each index is best measured by a process
//! of its own ([`measure_apart`]).

use crate::simulation::IndexSetup;
use crate::simulation::index::{Index, RealIndex};
use crate::source::content::scatter;
use onefold_engine::index::IndexMode;
use onefold_format::index_run::IndexKind;
use onefold_types::error::Context;
use onefold_types::{Error, Fingerprint, Result};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Chunks of a container, of which each has a name in the index.
const CONTAINER_CHUNKS: u64 = 1024;
/// Questions asked at most: enough to fall into every piece of the largest index many times.
const QUESTIONS_MAX: u64 = 4_000_000;

/// What was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexMemory {
    /// Memory as the index counts it.
    pub counted_bytes: u64,
    /// What the process has grown by.
    pub resident_bytes: u64,
    /// Questions about chunks that are not there.
    pub asked: u64,
    /// Of those, how many were not denied.
    pub passed: u64,
    /// Milliseconds that opening took.
    pub open_milliseconds: u64,
}

impl IndexMemory {
    /// One line of numbers, for `IndexMemory::parse`.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{} {} {} {} {}",
            self.counted_bytes,
            self.resident_bytes,
            self.asked,
            self.passed,
            self.open_milliseconds
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let numbers: Vec<u64> =
            line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [counted_bytes, resident_bytes, asked, passed, open_milliseconds] = numbers[..] else {
            return None;
        };
        Some(Self { counted_bytes, resident_bytes, asked, passed, open_milliseconds })
    }
}

/// Measures an index of `chunks` entries in this process.
///
/// # Errors
/// The number is impossible, or there is no room for the index.
pub fn measure(kind: IndexKind, mode: IndexMode, chunks: u64) -> Result<IndexMemory> {
    if !(1..=1_000_000_000).contains(&chunks) {
        return Err(Error::invalid(format!(
            "an index of {chunks} chunks cannot be measured; there must be 1 to 1000000000"
        )));
    }
    let place = tempfile::tempdir().context(|| "making a temporary directory")?;
    let setup = IndexSetup { kind, mode, memory_bytes: 16 << 30, ..IndexSetup::default() };
    let mut index = RealIndex::create_at(&setup, &place.path().join("store"))?;
    write(&mut index, chunks)?;
    let before = resident_bytes();
    let start = Instant::now();
    index.reopen()?;
    let open_milliseconds = start.elapsed().as_millis() as u64;
    let asked = (chunks * 4).clamp(100_000, QUESTIONS_MAX);
    let mut passed = 0;
    for number in 0..asked {
        let mut fingerprint = Fingerprint::ZERO;
        for (byte, other) in
            fingerprint.0.iter_mut().zip(scatter(number).swap_bytes().to_le_bytes())
        {
            *byte = other;
        }
        passed += u64::from(index.may_contain(&fingerprint)?);
    }
    Ok(IndexMemory {
        counted_bytes: index.memory_bytes() as u64,
        resident_bytes: resident_bytes().saturating_sub(before),
        asked,
        passed,
        open_milliseconds,
    })
}

/// Rising prefixes with gaps of random length, scattered over the containers.
fn write(index: &mut RealIndex, chunks: u64) -> Result<()> {
    let containers = chunks.div_ceil(CONTAINER_CHUNKS);
    let step = u64::MAX / chunks;
    let mut entries = (0..chunks).map(|number| {
        let prefix = number * step + scatter(number) % step;
        (prefix, (scatter(!number) % containers) as u32)
    });
    index.write_sorted(containers as u32, &mut entries)
}

/// Measures it in a process of its own: `program` is this one.
///
/// # Errors
/// The program cannot be run or does not succeed.
pub fn measure_apart(
    program: &Path,
    kind: IndexKind,
    mode: IndexMode,
    chunks: u64,
) -> Result<IndexMemory> {
    let mut command = Command::new(program);
    command.args(["index-memory", "--kind", &kind.to_string(), "--chunks", &chunks.to_string()]);
    if mode == IndexMode::Sampled {
        command.arg("--sampled");
    }
    let output = command.output().context(|| "starting a process to measure memory in")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().and_then(IndexMemory::parse).ok_or_else(|| {
        let message = String::from_utf8_lossy(&output.stderr);
        Error::invalid(format!("a process that measures memory failed: {}", message.trim()))
    })
}

/// Resident memory of this process; zero where the system does not say.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_takes_what_its_paper_says() {
        let chunks = 100_000;
        let bytes = |kind, mode| {
            let measured = measure(kind, mode, chunks).unwrap();
            assert_eq!(measured.asked, 400_000);
            (measured.counted_bytes as f64 / chunks as f64, measured.passed as f64 / 400_000.0)
        };
        let (signature, false_signatures) = bytes(IndexKind::Signature, IndexMode::Exact);
        assert!((2.0..6.0).contains(&signature), "{signature}");
        assert!(false_signatures < 0.001, "{false_signatures}");
        let (fuse, passed) = bytes(IndexKind::Fuse, IndexMode::Exact);
        assert!((1.0..1.5).contains(&fuse) && passed < 0.006, "{fuse}, {passed}");
        let (bloom, passed) = bytes(IndexKind::Bloom, IndexMode::Exact);
        assert!((1.0..1.2).contains(&bloom) && (0.015..0.04).contains(&passed), "{bloom} {passed}");
        let (hooks, _) = bytes(IndexKind::Fuse, IndexMode::Sampled);
        assert!(hooks < 0.2, "{hooks}");
    }

    #[test]
    fn lines_round_trip() {
        let memory = IndexMemory {
            counted_bytes: 1,
            resident_bytes: 2,
            asked: 3,
            passed: 4,
            open_milliseconds: 5,
        };
        assert_eq!(IndexMemory::parse(&memory.line()), Some(memory));
        assert_eq!(IndexMemory::parse("1 2 3"), None);
        assert_eq!(IndexMemory::parse("a b c d e"), None);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let message = measure(IndexKind::Fuse, IndexMode::Exact, 0).unwrap_err().to_string();
        assert!(message.contains("1 to 1000000000"), "{message}");
        let absent = Path::new("no such program");
        assert!(measure_apart(absent, IndexKind::Fuse, IndexMode::Exact, 1).is_err());
    }
}
