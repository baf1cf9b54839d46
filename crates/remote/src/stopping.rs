//! What becomes of what is waited for when the work is to stop.
//!
//! Once that is requested, what was being read or listed is given up at once. What was being
//! written may end, and whoever stops in order may still ask for things, all of that until
//! [`STOP_MAX`] after the stop. What is given up may have been done, as after any error.

use onefold_engine::Interrupt;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long after a stop anything may still take.
pub const STOP_MAX: Duration = Duration::from_secs(5);
/// How often is looked whether the work is to stop, while something is waited for.
pub const STOP_CHECKED: Duration = Duration::from_millis(100);

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: nobody misses it.
    Read,
    /// It changes the store.
    Write,
}

/// Whether the work is to stop, and since when.
#[derive(Default)]
pub struct Stopping {
    stop: Interrupt,
    stopped: OnceLock<Instant>,
}

impl Stopping {
    /// One that is requested so.
    #[must_use]
    pub fn by(stop: Interrupt) -> Self {
        Self { stop, stopped: OnceLock::new() }
    }

    /// Since when the work is to stop.
    fn stopped(&self) -> Option<Instant> {
        self.stop.is_requested().then(|| *self.stopped.get_or_init(Instant::now))
    }

    /// Whether a stop was seen.
    pub fn was_seen(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Waits for something; `None` if the work is to stop.
    pub async fn unless_stopped<T>(
        &self,
        effect: Effect,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let is_read = effect == Effect::Read && self.stopped().is_none();
        let mut work = pin!(work);
        loop {
            if let Ok(done) = timeout(STOP_CHECKED, work.as_mut()).await {
                return Some(done);
            }
            match self.stopped() {
                Some(since) if is_read || since.elapsed() >= STOP_MAX => return None,
                _ => {}
            }
        }
    }
}
