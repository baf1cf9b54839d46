//! What is about to be read, said beforehand: a store that is far away asks for all of it at once.
//!
//! Opening a store reads some tens of small objects and listings one after the other, each of which
//! takes as long as the way to the store and back. Whoever knows what it will read next says so; it
//! then reads as ever, and most answers are there already.
//!
//! # Invariants
//! - A foreseen answer is given out once, to the thread that foresaw it, while its [`Foresight`]
//!   lives, and not after this store has written what it is about. So an answer is never older than
//!   the call of [`foresee`] in the same piece of code. What is handed on ([`SharedForesight`]) has
//!   to be right however old, and whoever uses it bounds its age.
//! - What is read in a certain order for its meaning (an epoch before what it says is dead) must
//!   not be foreseen together: the answers come in any order.
//! - A foreseen failure is no failure: it is asked for again as if nothing had been said.
//!
//! Concurrency: any number of threads, each with its own foresight.

use crate::{Key, Store};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A longer object is foreseen as a [`Asked::Long`] one, or not at all.
pub const SMALL_OBJECT_MAX_BYTES: u64 = 64 << 10;

/// Something that will be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The names below a directory, however they are listed.
    Names(String),
    /// The same, of a directory that has about so many, or more.
    ManyNames(String, usize),
    /// A small object, whole or its tail.
    Object(Key),
    /// An object of so many bytes, as a listing has shown it, whole.
    Long(Key, u64),
    /// So many bytes at the end of an object.
    Tail(Key, usize),
}

impl Asked {
    /// An object of a length that a listing has shown.
    #[must_use]
    pub fn listed(key: Key, size_bytes: u64) -> Self {
        match size_bytes {
            0..=SMALL_OBJECT_MAX_BYTES => Self::Object(key),
            _ => Self::Long(key, size_bytes),
        }
    }

    /// Whether it is about this object.
    #[must_use]
    pub fn concerns(&self, key: &Key) -> bool {
        match self {
            Self::Names(prefix) | Self::ManyNames(prefix, _) => {
                let rest = key.as_str().strip_prefix(prefix.as_str());
                prefix.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
            }
            Self::Object(one) | Self::Long(one, _) | Self::Tail(one, _) => one == key,
        }
    }
}

/// Keeps what was foreseen until it is dropped.
#[must_use = "what was foreseen is forgotten at once"]
pub struct Foresight<'a> {
    store: &'a dyn Store,
    number: u64,
}

/// Says what this thread will read next.
pub fn foresee(store: &dyn Store, next: Vec<Asked>) -> Foresight<'_> {
    let number = if next.is_empty() { 0 } else { store.foresee(next) };
    Foresight { store, number }
}

impl Drop for Foresight<'_> {
    fn drop(&mut self) {
        if self.number != 0 {
            self.store.forget_foreseen(self.number);
        }
    }
}

/// The same for whoever hands on what it holds, together with the store.
#[must_use = "what was foreseen is forgotten at once"]
pub struct SharedForesight {
    store: Arc<dyn Store>,
    number: u64,
    since: Instant,
}

/// Says what this thread will read next, or whoever is called by it and is given this.
pub fn foresee_shared(store: &Arc<dyn Store>, next: Vec<Asked>) -> SharedForesight {
    let number = if next.is_empty() { 0 } else { store.foresee(next) };
    SharedForesight { store: Arc::clone(store), number, since: Instant::now() }
}

impl SharedForesight {
    /// Itself unless it is older than this.
    #[must_use]
    pub fn unless_older(self, most: Duration) -> Option<Self> {
        Some(self).filter(|foresight| foresight.since.elapsed() < most)
    }
}

impl Drop for SharedForesight {
    fn drop(&mut self) {
        if self.number != 0 {
            self.store.forget_foreseen(self.number);
        }
    }
}

impl fmt::Debug for Foresight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foresight({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_listing_shows_is_small_or_long() {
        let key = Key::new("a").unwrap();
        let listed = |bytes| Asked::listed(key.clone(), bytes);
        assert_eq!(listed(SMALL_OBJECT_MAX_BYTES), Asked::Object(key.clone()));
        let longer = SMALL_OBJECT_MAX_BYTES + 1;
        assert_eq!(listed(longer), Asked::Long(key.clone(), longer));
    }

    #[test]
    fn a_directory_concerns_what_is_below_it() {
        let key = |text: &str| Key::new(text).unwrap();
        let names = |text: &str| Asked::Names(text.to_owned());
        assert!(names("").concerns(&key("a/b")));
        assert!(names("a").concerns(&key("a/b")));
        assert!(!names("a").concerns(&key("ab/c")));
        assert!(!names("a").concerns(&key("a")));
        assert!(Asked::Object(key("a/b")).concerns(&key("a/b")));
        assert!(Asked::ManyNames("a".to_owned(), 9).concerns(&key("a/b")));
        assert!(!Asked::Tail(key("a/b"), 1).concerns(&key("a")));
        assert!(Asked::Long(key("a/b"), 1).concerns(&key("a/b")));
    }
}
