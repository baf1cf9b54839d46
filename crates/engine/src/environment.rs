//! What a process brings to the engine: randomness, time, when to look for news, and who it is.

use crossbeam_channel::{Receiver, RecvTimeoutError};
use onefold_crypto::OsRandomness;
use onefold_types::environment::{Clock, Randomness};
use rustix::process::{Resource, getrlimit};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The operating system's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ns(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
        }
    }
}

/// Says when a running session looks for what is new. No safety rule depends on it.
pub trait Ticker: Send + Sync {
    /// Begins to tick, for one session.
    fn start(&self) -> Box<dyn Ticks>;
}

/// The ticks of one session, taken by a thread beside its work.
pub trait Ticks: Send {
    /// Waits for the next tick; `false` if there will be none, at the latest when `stopped` has
    /// lost its sender.
    fn next(&mut self, stopped: &Receiver<()>) -> bool;
}

/// Ticks at equal intervals of time.
#[derive(Debug, Clone, Copy)]
pub struct Interval(pub Duration);

impl Ticker for Interval {
    fn start(&self) -> Box<dyn Ticks> {
        Box::new(*self)
    }
}

impl Ticks for Interval {
    fn next(&mut self, stopped: &Receiver<()>) -> bool {
        stopped.recv_timeout(self.0) == Err(RecvTimeoutError::Timeout)
    }
}

/// How often a session looks for a newer epoch.
const TICK: Duration = Duration::from_millis(500);

/// Small objects read at once, unless the process is given fewer threads.
pub const READERS: usize = 8;

/// Chance and time, as one process sees them.
#[derive(Clone)]
pub struct Environment {
    /// Names and keys come from here.
    pub randomness: Arc<dyn Randomness>,
    /// Labels come from here; no safety rule does.
    pub clock: Arc<dyn Clock>,
    /// When a running session looks for a newer epoch.
    pub ticker: Arc<dyn Ticker>,
    /// Small objects that are read at once where many are to be read.
    pub readers: usize,
}

impl Environment {
    /// The operating system's randomness and clock, and ticks twice a second.
    #[must_use]
    pub fn system() -> Self {
        let ticker = Arc::new(Interval(TICK));
        let (randomness, clock) = (Arc::new(OsRandomness), Arc::new(SystemClock));
        Self { randomness, clock, ticker, readers: READERS }
    }
}

/// This process as other processes of the machine may find it: machine, boot, number.
#[must_use]
pub fn process_name() -> String {
    format!("{} {}", boot_name(), std::process::id())
}

/// Whether the process of this name is known to be gone: only one of this machine can be. A number
/// may be in use again, so `false` proves nothing.
#[must_use]
pub fn process_is_gone(name: &str) -> bool {
    let Some((boot, number)) = name.rsplit_once(' ') else {
        return false;
    };
    let (Ok(number), true) = (number.parse::<u32>(), boot == boot_name()) else {
        return false;
    };
    std::path::Path::new("/proc/self").exists()
        && !std::path::Path::new(&format!("/proc/{number}")).exists()
}

/// The machine's name and the name of its boot, which differs in every container of processes that
/// is a machine to itself.
fn boot_name() -> String {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{node}/{}/{}", boot.trim(), space.display())
}

/// How many files the process may have open.
#[must_use]
pub fn open_files_max() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_boot_is_known_to_be_gone() {
        let own = process_name();
        assert!(!process_is_gone(&own));
        let (boot, _) = own.rsplit_once(' ').unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = format!("{boot} {}", child.id());
        child.wait().unwrap();
        assert!(process_is_gone(&gone));
        assert!(!process_is_gone("another/boot 1"));
        assert!(!process_is_gone("writer"));
    }
}
