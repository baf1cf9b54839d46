//! How long is waited for what, and what becomes of that when the work is to stop.
//!
//! # Algorithm
//! Whatever is asked for has as much time as [`Patience`] gives it. After something that failed
//! although it was asked for again and again, nothing is asked for a moment, and then with little
//! patience: whoever makes do without what it asked for asks for the next thing, and must not wait
//! for each as long as for the first.
//!
//! Once the work is to stop, what was being read or listed is given up at once. What was being
//! written may end, and whoever stops in order may still ask for things, all of that until
//! [`STOP_MAX`] after the stop.
//!
//! # Invariants
//! What is given up fails as `Interrupted` and is asked for by nobody again. A put that was given
//! up may have been done, as after any error. To have been interrupted says nothing about the
//! server: it is no trouble.

use super::BucketStore;
use crate::failure::Refusal;
use crate::patience::Patience;
use crate::requests::transfer_max;
use object_store::Error as Answer;
use onefold_engine::Interrupt;
use onefold_types::ErrorKind;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long after a stop anything may still take.
pub const STOP_MAX: Duration = Duration::from_secs(5);
/// How often is looked whether the work is to stop, while something is waited for.
pub const STOP_CHECKED: Duration = Duration::from_millis(100);

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// Nothing: nobody misses it.
    Read,
    /// It changes the store.
    Write,
}

/// What is known about waiting.
pub(super) struct Waiting {
    patience: Patience,
    pub(super) stop: Interrupt,
    /// When it was seen that the work is to stop.
    stopped: OnceLock<Instant>,
    /// When something failed that had been asked for again and again.
    trouble: Mutex<Option<Instant>>,
}

impl Waiting {
    pub(super) fn new(patience: Patience) -> Self {
        let (stop, stopped) = (Interrupt::default(), OnceLock::new());
        Self { patience, stop, stopped, trouble: Mutex::default() }
    }

    fn trouble(&self) -> MutexGuard<'_, Option<Instant>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when the work is to stop.
    fn stopped(&self) -> Option<Instant> {
        self.stop.is_requested().then(|| *self.stopped.get_or_init(Instant::now))
    }

    /// Waits for a request, unless the work is to stop.
    async fn unless_stopped<T>(
        &self,
        effect: Effect,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let is_read = effect == Effect::Read && self.stopped().is_none();
        let mut work = pin!(work);
        loop {
            if let Ok(done) = timeout(STOP_CHECKED, work.as_mut()).await {
                return done;
            }
            match self.stopped() {
                Some(since) if is_read || since.elapsed() >= STOP_MAX => {
                    return Err(Refusal::new(ErrorKind::Interrupted, "interrupted").into());
                }
                _ => {}
            }
        }
    }
}

impl BucketStore {
    /// Whether the server did not answer a moment ago.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.waiting.trouble().is_some()
    }

    /// Waits for requests that read so many bytes, but not for ever.
    pub(super) fn wait<T>(
        &self,
        bytes: u64,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        self.wait_for(Effect::Read, bytes, work)
    }

    /// Waits for requests that move so many bytes, but not for ever.
    pub(super) fn wait_for<T>(
        &self,
        effect: Effect,
        bytes: u64,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let waiting = &self.waiting;
        let patience = &waiting.patience;
        let age = waiting.trouble().map(|since| since.elapsed());
        let operation = match age {
            Some(age) if age < patience.trouble => {
                let source =
                    "it did not answer a moment ago, although it was asked again and again";
                return Err(Answer::Generic { store: "network", source: source.into() });
            }
            Some(age) if age < patience.trouble_age => patience.trouble,
            _ => patience.operation,
        };
        let limit = operation + transfer_max(bytes);
        let late = || Answer::Generic {
            store: "network",
            source: format!("it was not done within {limit:.0?}").into(),
        };
        let began = Instant::now();
        let work = waiting.unless_stopped(effect, work);
        let done = self
            .runtime
            .block_on(async { timeout(limit, work).await.unwrap_or_else(|_| Err(late())) });
        match &done {
            Err(Answer::Generic { .. }) if waiting.stopped.get().is_some() => {}
            Err(Answer::Generic { .. }) if began.elapsed() < patience.trouble => {}
            Err(Answer::Generic { .. }) => *waiting.trouble() = Some(Instant::now()),
            // Also one that refuses has answered.
            _ => *waiting.trouble() = None,
        }
        done
    }
}
