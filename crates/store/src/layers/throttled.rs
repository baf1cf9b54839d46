//! Leaves the device and the processor to others: a bound on bytes a second, and on the share of
//! the time that the caller works (FAST'17, section 3.5: throttling of collection).
//!
//! Bytes are paid for as they pass; who is early sleeps. A share of the processor is kept free by
//! sleeping, at every call, in proportion to the time since the last one ended.
//!
//! Concurrency: all callers share the bounds; nobody sleeps under the lock.

use crate::{Blobs, Decisions, Key, Listed, Store};
use onefold_types::Result;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest sleep at once.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// The least sleep worth the switch to another process; less is carried over.
const SLEEP_MIN: Duration = Duration::from_millis(2);

/// What a caller may use.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ThrottleLimits {
    /// Bytes read and written a second; `None`: no bound.
    pub bytes_per_second: Option<u64>,
    /// The share of the time that the caller works, above 0 and at most 1; `None`: all.
    pub work_share: Option<f64>,
}

struct State {
    started: Instant,
    paid_bytes: u64,
    last: Instant,
    owed: Duration,
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
        let now = Instant::now();
        let state = State { started: now, paid_bytes: 0, last: now, owed: Duration::ZERO };
        Self { limits, state: Mutex::new(state) }
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
        let pause = {
            let mut state = self.lock();
            state.paid_bytes = state.paid_bytes.saturating_add(bytes as u64);
            let due = self.limits.bytes_per_second.map_or(Duration::ZERO, |rate| {
                Duration::from_secs_f64(state.paid_bytes as f64 / rate.max(1) as f64)
            });
            let early = due.saturating_sub(state.started.elapsed());
            if let Some(share) = self.limits.work_share {
                let share = share.clamp(0.01, 1.0);
                let worked = state.last.elapsed();
                state.owed += worked.mul_f64((1.0 - share) / share);
            }
            state.last = Instant::now();
            let pause = early.max(state.owed).min(SLEEP_MAX);
            if pause < SLEEP_MIN {
                return false;
            }
            state.owed = state.owed.saturating_sub(pause);
            pause
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

    fn pay(&self, bytes: usize) {
        self.pace.pay(bytes);
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
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.store.decide(key, value)
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.store.decided(key)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_decided(prefix, each)
    }
}

impl<S: Store> Store for Throttled<S> {
    fn describe(&self) -> String {
        self.store.describe()
    }
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

    #[test]
    fn bytes_take_the_time_that_their_rate_says() {
        let limits = ThrottleLimits { bytes_per_second: Some(1_000_000), work_share: None };
        let store = Throttled::new(MemoryStore::new(), limits);
        let started = Instant::now();
        (0..10).for_each(|number| store.put(&key(number), &[0; 10_000]).unwrap());
        assert!(started.elapsed() >= Duration::from_millis(95), "{:?}", started.elapsed());
    }

    #[test]
    fn a_tenth_of_the_time_means_that_nine_tenths_are_slept() {
        let limits = ThrottleLimits { bytes_per_second: None, work_share: Some(0.1) };
        let store = Throttled::new(MemoryStore::new(), limits);
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(5) {}
        store.put(&key(0), &[1]).unwrap();
        assert!(started.elapsed() >= Duration::from_millis(45), "{:?}", started.elapsed());
    }
}
