//! How much others wait for the machine, as the kernel tells (pressure-stall information, Linux
//! 4.20 and later).
//!
//! `/proc/pressure/cpu`, `io` and `memory` have a line each that begins with `some`: the time in
//! which at least one task could not go on for lack of it. Its last value, `total=N`, is in
//! microseconds and is brought up to date whenever it is read.

use onefold_policy::primary::job_schedule::Pressure;
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the kernel tells it.
const DIRECTORY: &str = "/proc/pressure";
/// More than two lines take.
const LINES_MAX_BYTES: u64 = 4096;

/// How long somebody stalled since the machine was started, by what he waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stalled {
    /// For a processor.
    pub cpu: Duration,
    /// For a device.
    pub io: Duration,
    /// For memory.
    pub memory: Duration,
}

impl Stalled {
    /// The share of a time that passed since `earlier` was told.
    #[must_use]
    pub fn since(&self, earlier: &Self, passed: Duration) -> Pressure {
        let share = |now: Duration, before: Duration| {
            now.saturating_sub(before).as_secs_f64() / passed.as_secs_f64().max(1e-3)
        };
        Pressure {
            cpu: share(self.cpu, earlier.cpu),
            io: share(self.io, earlier.io),
            memory: share(self.memory, earlier.memory),
        }
    }
}

/// Tells how long somebody stalled.
pub trait Gauge {
    /// Since the machine was started.
    fn stalled(&mut self) -> Result<Stalled>;
}

/// What the kernel tells.
#[derive(Clone, Debug)]
pub struct KernelGauge {
    directory: PathBuf,
}

impl KernelGauge {
    /// Asks once.
    ///
    /// Errors: a kernel that does not tell.
    pub fn open() -> Result<Self> {
        Self::open_at(Path::new(DIRECTORY))
    }

    fn open_at(directory: &Path) -> Result<Self> {
        let mut gauge = Self { directory: directory.to_owned() };
        gauge.stalled().map(|_| gauge)
    }

    fn total(&self, what: &str) -> Result<Duration> {
        let path = self.directory.join(what);
        let mut text = String::new();
        let file = File::open(&path).context(|| path.display().to_string())?;
        // A kernel that was started without it has the files, and refuses to read them.
        let read = file.take(LINES_MAX_BYTES).read_to_string(&mut text);
        read.context(|| path.display().to_string())?;
        total_of(&text)
            .ok_or_else(|| Error::invalid(format!("'{}' has no line of totals", path.display())))
    }
}

impl Gauge for KernelGauge {
    fn stalled(&mut self) -> Result<Stalled> {
        Ok(Stalled {
            cpu: self.total("cpu")?,
            io: self.total("io")?,
            memory: self.total("memory")?,
        })
    }
}

fn total_of(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "some avg10=6.72 avg60=8.85 avg300=4.66 total=1226651525\n\
                         full avg10=4.99 avg60=5.84 avg300=2.82 total=392528832\n";

    #[test]
    fn totals_are_found_and_shares_follow_from_them() {
        let total = total_of(LINES).unwrap();
        assert_eq!(total, Duration::from_micros(1_226_651_525));
        assert_eq!(
            (total_of(""), total_of("some total=x"), total_of("full total=1")),
            Default::default()
        );
        let earlier = Stalled { io: total, ..Stalled::default() };
        let later = Stalled { io: total + Duration::from_millis(50), ..earlier };
        let pressure = later.since(&earlier, Duration::from_millis(200));
        assert_eq!((pressure.cpu, pressure.io, pressure.memory), (0.0, 0.25, 0.0));
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let error = KernelGauge::open_at(directory.path()).unwrap_err();
        assert!(error.to_string().contains("/cpu"), "{error}");
        for name in ["cpu", "io", "memory"] {
            std::fs::write(directory.path().join(name), LINES).unwrap();
        }
        let mut gauge = KernelGauge::open_at(directory.path()).unwrap();
        assert_eq!(gauge.stalled().unwrap().memory, Duration::from_micros(1_226_651_525));
    }
}
