//! The doors through which chance and time enter.
//!
//! Everything below the command line takes randomness and time from these traits, so that a test or
//! a simulation can replay a run from one seed. Safety never depends on time (protocol, section 1);
//! time only labels records and spaces progress reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

/// A source of random bytes. Production uses the operating system's.
pub trait Randomness: Send + Sync {
    /// Fills `bytes` with random bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// A source of the current time. Production uses the system clock.
pub trait Clock: Send + Sync {
    /// Nanoseconds since 1970-01-01 00:00:00 UTC.
    fn now_ns(&self) -> i64;
}

/// A reproducible source of randomness for tests and simulations (SplitMix64).
///
/// Not fit for keys.
#[derive(Debug)]
pub struct SeededRandomness(Mutex<u64>);

impl SeededRandomness {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// The next number of the sequence.
    pub fn next_u64(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; `bound` must not be zero.
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }
}

impl Randomness for SeededRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `now_ns`.
    #[must_use]
    pub fn new(now_ns: i64) -> Self {
        Self(AtomicI64::new(now_ns))
    }

    /// Sets the clock to `now_ns`, which may lie in the past.
    pub fn set(&self, now_ns: i64) {
        self.0.store(now_ns, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_sequence() {
        let (a, b) = (SeededRandomness::new(3), SeededRandomness::new(3));
        let mut bytes = ([0; 13], [0; 13]);
        a.fill(&mut bytes.0);
        b.fill(&mut bytes.1);
        assert_eq!(bytes.0, bytes.1);
        assert_ne!(a.next_u64(), SeededRandomness::new(4).next_u64());
    }

    #[test]
    fn a_manual_clock_moves_only_when_set() {
        let clock = ManualClock::new(5);
        assert_eq!(clock.now_ns(), 5);
        clock.set(-1);
        assert_eq!(clock.now_ns(), -1);
    }
}
