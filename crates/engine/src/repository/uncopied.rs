//! Decisions whose second copy could not be put, for whoever tells the user.
//!
//! A decision stands with its first copy. That the second one is missing must not undo it, and must
//! not go without a word either: until a check has put it, one rotten file is a loss.
//!
//! Concurrency: any thread may add; all clones of a repository share one list.

use super::Repository;
use onefold_types::Error;
use std::sync::{Arc, Mutex, PoisonError};

/// What is told; more of the same tells nothing new.
const TOLD_MAX: usize = 16;

/// The decisions, in words.
#[derive(Debug, Default)]
pub struct Uncopied(Mutex<Vec<String>>);

impl Uncopied {
    /// Takes what was noted so far.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Repository {
    /// The decisions whose second copy could not be put since the store was opened.
    #[must_use]
    pub fn uncopied(&self) -> &Arc<Uncopied> {
        &self.uncopied
    }

    /// Notes that a decision stands, and that its second copy could not be put.
    pub(crate) fn note_uncopied(&self, name: &str, error: &Error) {
        let mut noted = self.uncopied.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() < TOLD_MAX {
            noted.push(format!(
                "'{name}' is decided, but its second copy was not stored: {error}; 'onefold check' \
                 stores it later"
            ));
        }
    }
}
