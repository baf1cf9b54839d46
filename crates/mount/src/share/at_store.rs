//! Requests that may wait for the store, so many at once and no more.
//!
//! # Algorithm
//! A thread that has read such a request answers it itself, as long as fewer than the greatest
//! number do so. Else the request is queued, and whoever of these is done first answers it. There
//! are more threads than that: some always answer what needs no store, whatever that does.
//!
//! # Invariants
//! - What is queued is answered: the queue is looked into before a thread counts as free again.
//! - The kernel bounds the queue, which holds what programs wait for.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Answers a request.
type Work = Box<dyn FnOnce() + Send>;

/// Those that are at the store, and those that wait for one of them.
pub struct AtStore {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    busy: usize,
    waiting: VecDeque<Work>,
}

impl AtStore {
    /// So many at once.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that may wait for the store, now and here, or later and in another thread.
    pub fn answer(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.busy >= self.most {
            state.waiting.push_back(Box::new(work));
            return;
        }
        state.busy += 1;
        drop(state);
        work();
        while let Some(work) = self.next() {
            work();
        }
    }

    /// What waits longest; if nothing does, one thread more is free.
    fn next(&self) -> Option<Work> {
        let mut state = self.state();
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.busy -= 1;
        }
        next
    }
}
