//! What is wrong with an item, told once, however often a job meets it.
//!
//! A run over a divided share meets every directory in each of its turns, and before them.
//!
//! Invariant: what is not told again was told before, of the same item and in the same sort; beyond
//! a greatest number of items everything is told each time. Concurrency: one lock, not held while
//! somebody is told.

use crate::job::Observer;
use onefold_types::{Error, ErrorKind};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Items that are remembered.
const REMEMBERED_MAX: usize = 10_000;

/// See the module.
pub struct ToldOnce {
    listens: Arc<dyn Observer>,
    told: Mutex<HashSet<(String, ErrorKind)>>,
    again: AtomicU64,
}

impl ToldOnce {
    /// In front of whoever listens.
    #[must_use]
    pub fn new(listens: &Arc<dyn Observer>) -> Self {
        let (told, again) = (Mutex::default(), AtomicU64::default());
        Self { listens: Arc::clone(listens), told, again }
    }

    /// How much was not told again.
    #[must_use]
    pub fn again(&self) -> u64 {
        self.again.load(Ordering::Relaxed)
    }

    fn is_told(&self, item: &str, kind: ErrorKind) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (item.to_owned(), kind);
        match told.len() < REMEMBERED_MAX {
            true => !told.insert(key),
            false => told.contains(&key),
        }
    }
}

impl Observer for ToldOnce {
    fn problem(&self, item: &str, error: &Error) {
        match self.is_told(item, error.kind()) {
            true => drop(self.again.fetch_add(1, Ordering::Relaxed)),
            false => self.listens.problem(item, error),
        }
    }

    fn warning(&self, item: &str, what: &'static str) {
        self.listens.warning(item, what);
    }

    fn item(&self, path: &str, what: &'static str) {
        self.listens.item(path, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Collected;

    #[test]
    fn each_sort_of_problem_is_told_once_of_an_item_and_each_time_beyond_the_greatest_number() {
        let heard = Arc::new(Collected::default());
        let once = ToldOnce::new(&(Arc::clone(&heard) as Arc<dyn Observer>));
        let tell = |item: usize, kind| once.problem(&item.to_string(), &Error::new(kind, "what"));
        let count = || heard.0.lock().unwrap().len();
        tell(0, ErrorKind::Damaged);
        for _ in 0..2 {
            (0..REMEMBERED_MAX - 1).for_each(|item| tell(item, ErrorKind::Io));
        }
        assert_eq!((count(), once.again()), (REMEMBERED_MAX, REMEMBERED_MAX as u64 - 1));
        for told in 1..3 {
            tell(REMEMBERED_MAX, ErrorKind::Io);
            assert_eq!(count(), REMEMBERED_MAX + told);
        }
        tell(0, ErrorKind::Damaged);
        assert_eq!((count(), once.again()), (REMEMBERED_MAX + 2, REMEMBERED_MAX as u64));
    }
}
