//! What could not be read, told to whoever has mounted the store: programs hear "I/O error" only.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Problems beyond this many are not remembered, and told whenever they are met.
pub const REMEMBERED_MAX: usize = 4096;

/// Tells each problem once.
pub struct Problems {
    tell: Box<dyn Fn(&str) + Send + Sync>,
    told: Mutex<HashSet<String>>,
}

impl Problems {
    /// Tells them to `tell`.
    #[must_use]
    pub fn new(tell: Box<dyn Fn(&str) + Send + Sync>) -> Self {
        Self { tell, told: Mutex::default() }
    }

    /// Tells a problem, unless it was told before; whether it was not.
    pub fn note(&self, problem: String) -> bool {
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.contains(&problem) {
                return false;
            }
            if told.len() < REMEMBERED_MAX {
                told.insert(problem.clone());
            }
        }
        // Whoever hears it may be slow.
        (self.tell)(&problem);
        true
    }
}
