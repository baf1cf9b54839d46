//! What a process brings to the engine: randomness, time, and who it is.

use onefold_crypto::OsRandomness;
use onefold_types::environment::{Clock, Randomness};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Chance and time, as one process sees them.
#[derive(Clone)]
pub struct Environment {
    /// Names and keys come from here.
    pub randomness: Arc<dyn Randomness>,
    /// Labels come from here; no safety rule does.
    pub clock: Arc<dyn Clock>,
}

impl Environment {
    /// The operating system's randomness and clock.
    #[must_use]
    pub fn system() -> Self {
        Self { randomness: Arc::new(OsRandomness), clock: Arc::new(SystemClock) }
    }
}
