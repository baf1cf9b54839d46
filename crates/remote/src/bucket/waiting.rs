//! How long is waited for what, and what becomes of that when the work is to stop.
//!
//! # Algorithm
//! Whatever is asked for has as much time as [`Patience`] gives it. After something that failed
//! although it was asked for again and again, nothing is asked for a moment, and then with little
//! patience: whoever makes do without what it asked for asks for the next thing, and must not wait
//! for each as long as for the first.
//!
//! Once the work is to stop, it is given up as `stopping.rs` says.
//!
//! # Invariants
//! What is given up fails as `Interrupted` and is asked for by nobody again. A put that was given
//! up may have been done, as after any error. To have been interrupted says nothing about the
//! server: it is no trouble.

use super::BucketStore;
use crate::failure::Refusal;
use crate::patience::Patience;
use crate::requests::transfer_max;
use crate::stopping::{Effect, Stopping};
use object_store::Error as Answer;
use onefold_types::ErrorKind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::time::timeout;

/// What is known about waiting.
pub(super) struct Waiting {
    patience: Patience,
    pub(super) stopping: Stopping,
    /// When something failed that had been asked for again and again.
    trouble: Mutex<Option<Instant>>,
}

impl Waiting {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, stopping: Stopping::default(), trouble: Mutex::default() }
    }

    fn trouble(&self) -> MutexGuard<'_, Option<Instant>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
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
        let work = waiting.stopping.unless_stopped(effect, work);
        let interrupted = || Refusal::new(ErrorKind::Interrupted, "interrupted").into();
        let done = self.runtime.block_on(async {
            let done = timeout(limit, work).await;
            done.map_or_else(|_| Err(late()), |done| done.unwrap_or_else(|| Err(interrupted())))
        });
        match &done {
            Err(Answer::Generic { .. }) if waiting.stopping.was_seen() => {}
            Err(Answer::Generic { .. }) if began.elapsed() < patience.trouble => {}
            Err(Answer::Generic { .. }) => *waiting.trouble() = Some(Instant::now()),
            // Also one that refuses has answered.
            _ => *waiting.trouble() = None,
        }
        done
    }
}
