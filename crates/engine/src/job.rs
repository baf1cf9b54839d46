//! What every long job shares: a way to stop it or have it wait, and a view of how far it is.
//!
//! Concurrency: all of it may be used from any thread. Counters are relaxed; they are for display.

use onefold_types::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often a job that is paused looks whether it may go on.
const PAUSE_CHECKED: Duration = Duration::from_millis(20);

/// A request to stop, or to wait, set from a signal handler or another thread.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    stop: AtomicBool,
    pause: AtomicBool,
}

impl Interrupt {
    /// Asks the job to stop at the next safe point.
    pub fn request(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the job was asked to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// Asks the job to wait at the next safe point, or to go on.
    pub fn set_paused(&self, is_paused: bool) {
        self.0.pause.store(is_paused, Ordering::Relaxed);
    }

    /// A safe point: waits as long as the job is paused; fails if it was asked to stop.
    pub fn check(&self) -> Result<()> {
        while self.0.pause.load(Ordering::Relaxed) && !self.is_requested() {
            std::thread::sleep(PAUSE_CHECKED);
        }
        if self.is_requested() {
            return Err(Error::new(ErrorKind::Interrupted, "interrupted"));
        }
        Ok(())
    }
}

/// How far a job is. Totals are zero while they are not known.
#[derive(Debug, Default)]
pub struct Progress {
    /// Files (or objects) done.
    pub items_done: AtomicU64,
    /// Files (or objects) there are.
    pub items_total: AtomicU64,
    /// Bytes done.
    pub bytes_done: AtomicU64,
    /// Bytes there are.
    pub bytes_total: AtomicU64,
    current: Mutex<String>,
}

impl Progress {
    /// Counts `items` and `bytes` as done.
    pub fn add(&self, items: u64, bytes: u64) {
        self.items_done.fetch_add(items, Ordering::Relaxed);
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets what there is to do.
    pub fn set_totals(&self, items: u64, bytes: u64) {
        self.items_total.store(items, Ordering::Relaxed);
        self.bytes_total.store(bytes, Ordering::Relaxed);
    }

    /// Names what is being worked on.
    pub fn set_current(&self, what: &str) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clear();
        current.push_str(what);
    }

    /// What is being worked on.
    #[must_use]
    pub fn current(&self) -> String {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Takes what a job has to say while it runs. Nothing it is told stops the job.
pub trait Observer: Send + Sync {
    /// Something went wrong with one item; the job goes on without it.
    fn problem(&self, item: &str, error: &Error);
    /// Something that should be known of an item, which was done all the same.
    fn warning(&self, _item: &str, _what: &'static str) {}
    /// Something worth telling in verbose mode: what became of an item.
    fn item(&self, _item: &str, _what: &'static str) {}
}

/// An observer that keeps problems for later.
#[derive(Debug, Default)]
pub struct Collected(pub Mutex<Vec<(String, ErrorKind, String)>>);

impl Observer for Collected {
    fn problem(&self, item: &str, error: &Error) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.push((item.to_owned(), error.kind(), error.to_string()));
    }
}

/// The handles of one job.
#[derive(Clone)]
pub struct Job {
    /// How to stop it.
    pub interrupt: Interrupt,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// Who listens.
    pub observer: Arc<dyn Observer>,
}

impl Job {
    /// A job that nobody stops, with an observer that keeps problems.
    #[must_use]
    pub fn unattended() -> (Self, Arc<Collected>) {
        let collected = Arc::new(Collected::default());
        let job = Self {
            interrupt: Interrupt::default(),
            progress: Arc::default(),
            observer: Arc::clone(&collected) as Arc<dyn Observer>,
        };
        (job, collected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_job_waits_at_its_next_safe_point_and_a_stopped_one_ends() {
        let interrupt = Interrupt::default();
        interrupt.set_paused(true);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| interrupt.check());
            std::thread::sleep(4 * PAUSE_CHECKED);
            assert!(!waiting.is_finished());
            interrupt.set_paused(false);
            assert!(waiting.join().unwrap().is_ok());
            interrupt.set_paused(true);
            let stopped = scope.spawn(|| interrupt.check());
            interrupt.request();
            assert!(stopped.join().unwrap().is_err());
        });
    }
}
