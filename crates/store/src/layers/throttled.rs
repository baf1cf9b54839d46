//! Leaves the device and the processor to others: a bound on bytes a second, and on the share of
//! the time that the caller works (FAST'17, section 3.5: throttling of collection).
//!
//! Bytes are paid for as they pass; who is early sleeps. An hour without a byte is no right to an
//! hour's bytes at once: a second of it counts. A share of the processor is kept free by sleeping,
//! at every call, in proportion to the time since the last one ended.
//!
//! Concurrency: all callers share the bounds; nobody sleeps under the lock.

use crate::{Blobs, Decisions, Key, Listed, Store};
use onefold_types::Result;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest sleep at once: who can be stopped wants to look whether he was.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// The least sleep worth the switch to another process; less is carried over.
const SLEEP_MIN: Duration = Duration::from_millis(2);
/// How long a time without bytes counts for those that follow it.
const CREDIT_MAX: Duration = Duration::from_secs(1);

/// What a caller may use.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ThrottleLimits {
    /// Bytes read and written a second; `None`: no bound.
    pub bytes_per_second: Option<u64>,
    /// The share of the time that the caller works, above 0 and at most 1; `None`: all.
    pub work_share: Option<f64>,
}

/// What was paid for, by a clock that is told.
struct State {
    /// When all bytes that were paid for may have passed.
    due: Instant,
    last: Instant,
    owed: Duration,
}

impl State {
    fn new(now: Instant) -> Self {
        Self { due: now, last: now, owed: Duration::ZERO }
    }

    /// How long whoever pays for so many bytes now is to sleep, at most [`SLEEP_MAX`]; `None` if it
    /// is so little that it is carried over.
    fn pause(&mut self, limits: &ThrottleLimits, bytes: usize, now: Instant) -> Option<Duration> {
        if let Some(rate) = limits.bytes_per_second {
            let takes = Duration::try_from_secs_f64(bytes as f64 / rate.max(1) as f64);
            let from = self.due.max(now.checked_sub(CREDIT_MAX).unwrap_or(now));
            self.due = from.checked_add(takes.unwrap_or(Duration::MAX)).unwrap_or(from);
        }
        if let Some(share) = limits.work_share {
            let share = share.clamp(0.01, 1.0);
            let worked = now.saturating_duration_since(self.last);
            self.owed += worked.mul_f64((1.0 - share) / share);
        }
        self.last = now;
        let early = self.due.saturating_duration_since(now);
        let pause = early.max(self.owed).min(SLEEP_MAX);
        if pause < SLEEP_MIN {
            return None;
        }
        self.owed = self.owed.saturating_sub(pause);
        Some(pause)
    }
}

/// Keeps whoever pays within limits.
pub struct Pace {
    limits: ThrottleLimits,
    state: Mutex<State>,
}

impl Pace {
    /// Keeps within `limits`, from now on.
    #[must_use]
    pub fn new(limits: ThrottleLimits) -> Self {
        Self { limits, state: Mutex::new(State::new(Instant::now())) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pays for bytes that are about to pass, or have passed; whether it slept, so that there may
    /// be more to wait for.
    pub fn pay(&self, bytes: usize) -> bool {
        if self.limits == ThrottleLimits::default() {
            return false;
        }
        let Some(pause) = self.lock().pause(&self.limits, bytes, Instant::now()) else {
            return false;
        };
        std::thread::sleep(pause);
        self.lock().last = Instant::now();
        true
    }
}

/// A store that takes its time.
pub struct Throttled<S> {
    store: S,
    pace: Pace,
}

impl<S: Store> Throttled<S> {
    /// Keeps within `limits`, from now on.
    pub fn new(store: S, limits: ThrottleLimits) -> Self {
        Self { store, pace: Pace::new(limits) }
    }

    /// Pays and waits until all is paid for, however long that is: an object may be large, and
    /// nobody may come after it.
    fn pay(&self, bytes: usize) {
        let mut rest = bytes;
        while self.pace.pay(rest) {
            rest = 0;
        }
    }
}

impl<S: Store> Blobs for Throttled<S> {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.pay(bytes.len());
        self.store.put(key, bytes)
    }

    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        self.store.put_pieces(key, &mut |piece| {
            let more = next(piece)?;
            self.pay(piece.len());
            Ok(more)
        })
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        let bytes = self.store.get(key)?;
        self.pay(bytes.len());
        Ok(bytes)
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.pay(buffer.len());
        self.store.get_range(key, offset, buffer)
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let (size, tail) = self.store.get_tail(key, length_bytes)?;
        self.pay(tail.len());
        Ok((size, tail))
    }

    fn size(&self, key: &Key) -> Result<u64> {
        self.pay(0);
        self.store.size(key)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.pay(0);
        self.store.list(prefix, each)
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.pay(0);
        self.store.list_names(prefix, each)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.pay(0);
        self.store.delete(key)
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.store.settle(prefix)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.store.free_bytes()
    }

    crate::pass_hints_on!(this => this.store);
}

impl<S: Store> Decisions for Throttled<S> {
    crate::pass_decisions_on!(this => this.store);
}

impl<S: Store> Store for Throttled<S> {
    fn describe(&self) -> String {
        self.store.describe()
    }

    crate::pass_identity_on!(this => this.store);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, conformance};

    fn key(number: usize) -> Key {
        Key::new(format!("a/{number}")).unwrap()
    }

    #[test]
    fn it_is_a_store() {
        let limits = ThrottleLimits::default();
        conformance::run(&|| Box::new(Throttled::new(MemoryStore::new(), limits))).unwrap();
    }

    /// Sleeps of a store whose calls each work for so long and then pay for so many bytes: how long
    /// in all, and how long at once.
    fn slept(limits: ThrottleLimits, calls: &[(Duration, usize)]) -> (Duration, Duration) {
        let mut now = Instant::now();
        let mut state = State::new(now);
        let (mut all, mut longest) = (Duration::ZERO, Duration::ZERO);
        for (worked, bytes) in calls {
            now += *worked;
            let mut rest = *bytes;
            while let Some(pause) = state.pause(&limits, rest, now) {
                now += pause;
                state.last = now;
                (all, longest, rest) = (all + pause, longest.max(pause), 0);
            }
        }
        (all, longest)
    }

    fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// So many, but for what is not worth a sleep and is carried over.
    fn assert_milliseconds(slept: Duration, expected: u64) {
        let least = milliseconds(expected).saturating_sub(SLEEP_MIN);
        assert!(slept >= least && slept <= milliseconds(expected), "{slept:?} not {expected} ms");
    }

    #[test]
    fn bytes_take_the_time_that_their_rate_says() {
        let limits = ThrottleLimits { bytes_per_second: Some(1_000_000), work_share: None };
        let all = |calls: &[(Duration, usize)]| slept(limits, calls).0;
        // A second in all, in many calls or in a few, of which 0.4 are spent otherwise or none.
        assert_milliseconds(all(&[(Duration::ZERO, 1000); 1000]), 1000);
        assert_milliseconds(all(&[(Duration::from_micros(400), 1000); 1000]), 600);
        assert_milliseconds(all(&[(Duration::ZERO, 250_000); 4]), 1000);
        // A large object is waited for to its end, half a second at once.
        let large = slept(limits, &[(Duration::ZERO, 4_000_000)]);
        assert_eq!(large, (milliseconds(4000), SLEEP_MAX));
        // Who takes longer anyway does not sleep, and an hour's rest counts for one second.
        assert_eq!(all(&[(milliseconds(2), 1000); 100]), Duration::ZERO);
        for rest in [Duration::from_secs(3600), CREDIT_MAX + milliseconds(1), CREDIT_MAX] {
            assert_milliseconds(all(&[(rest, 1_000_000), (Duration::ZERO, 9_000_000)]), 9000);
        }
        let less = [(CREDIT_MAX - milliseconds(1), 1_000_000), (Duration::ZERO, 9_000_000)];
        assert_milliseconds(all(&less), 9001);
    }

    #[test]
    fn a_tenth_of_the_time_means_that_nine_tenths_are_slept() {
        let share = |work_share| ThrottleLimits { bytes_per_second: None, work_share };
        let calls = [(milliseconds(5), 1_000_000); 20];
        for (work_share, expected) in
            [(Some(0.1), 900), (Some(0.25), 300), (Some(0.5), 100), (Some(1.0), 0), (None, 0)]
        {
            assert_milliseconds(slept(share(work_share), &calls).0, expected);
        }
        // Too little for a sleep is not forgotten.
        assert_milliseconds(slept(share(Some(0.5)), &[(Duration::from_micros(300), 0); 100]).0, 30);
        // Of both bounds the narrower holds, and not one after the other.
        for (rate, expected) in [(100_000_000, 100), (10_000_000, 1900)] {
            let both = ThrottleLimits { bytes_per_second: Some(rate), work_share: Some(0.5) };
            assert_milliseconds(slept(both, &calls).0, expected);
        }
    }

    #[test]
    fn the_store_sleeps_before_it_goes_on() {
        let limits = ThrottleLimits { bytes_per_second: Some(1_000_000), work_share: None };
        let store = Throttled::new(MemoryStore::new(), limits);
        let started = Instant::now();
        store.put(&key(0), &[0; 600_000]).unwrap();
        assert!(started.elapsed() >= milliseconds(598), "{:?}", started.elapsed());
        // Longer at rest than counts.
        std::thread::sleep(CREDIT_MAX + milliseconds(600));
        let started = Instant::now();
        store.put(&key(1), &[0; 1_600_000]).unwrap();
        assert!(started.elapsed() >= milliseconds(598), "{:?}", started.elapsed());
    }
}
