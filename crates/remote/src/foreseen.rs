//! Answers that were asked for before they are wanted; the rules are in `onefold_store::foresight`.
//!
//! All that a thread foresees is asked for at once. What fails is forgotten, and asked for again by
//! whoever wants it, who then waits and repeats as ever. So nothing here is ever an error.
//!
//! # Concurrency
//! One lock, not held while anything is waited for. An answer belongs to the thread that
//! foresaw it.

use bytes::Bytes;
use onefold_store::foresight::SMALL_OBJECT_MAX_BYTES;
use onefold_store::{Asked, Key};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use tokio::task::JoinHandle;

/// Answers that are waited for or kept, for all threads together; more are not asked for.
pub const FORESEEN_MAX: usize = 32;
/// A longer object, or tail, is not kept, unless its length is known beforehand.
pub const OBJECT_FORESEEN_MAX_BYTES: u64 = SMALL_OBJECT_MAX_BYTES;
/// So much of objects whose lengths are known, for all threads together.
pub const LONG_FORESEEN_MAX_BYTES: u64 = 3 << 20;
/// A listing that shows more names is not kept: these take a megabyte. Pages of a thousand come one
/// after the other, so what is listed in vain has kept somebody waiting.
pub const NAMES_FORESEEN_MAX: usize = 4096;

/// What was asked for; `N` is a name as a listing shows it.
pub(crate) enum Answered<N> {
    Names(Vec<N>),
    /// The end of an object; `None`: there is none.
    Object(Option<Found>),
}

/// The end of an object.
pub(crate) struct Found {
    /// The whole object's.
    pub(crate) size: u64,
    pub(crate) bytes: Bytes,
}

impl Found {
    /// No more of the end than was asked for.
    pub(crate) fn last(mut self, tail_bytes: Option<usize>) -> Self {
        if let Some(wanted) = tail_bytes.filter(|wanted| *wanted < self.bytes.len()) {
            let _ = self.bytes.split_to(self.bytes.len() - wanted);
        }
        self
    }
}

/// Something that was asked for, until it is dropped.
pub(crate) struct Entry<N> {
    number: u64,
    thread: ThreadId,
    pub(crate) asked: Asked,
    answer: JoinHandle<Option<Answered<N>>>,
}

impl<N> Entry<N> {
    /// The answer, if there is one that can be given out.
    pub(crate) async fn arrive(&mut self) -> Option<Answered<N>> {
        (&mut self.answer).await.ok().flatten()
    }
}

impl<N> Drop for Entry<N> {
    fn drop(&mut self) {
        self.answer.abort();
    }
}

pub(crate) struct Foreseen<N> {
    state: Mutex<State<N>>,
}

struct State<N> {
    last: u64,
    entries: Vec<Entry<N>>,
}

impl<N> Default for Foreseen<N> {
    fn default() -> Self {
        Self { state: Mutex::new(State { last: 0, entries: Vec::new() }) }
    }
}

impl<N> State<N> {
    /// Bytes of long objects that are waited for or kept.
    fn long_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| long_bytes(&entry.asked)).sum()
    }
}

fn long_bytes(asked: &Asked) -> u64 {
    match asked {
        Asked::Long(_, bytes) => *bytes,
        Asked::Names(_) | Asked::ManyNames(..) | Asked::Object(_) | Asked::Tail(..) => 0,
    }
}

/// The longest answer that is kept.
pub(crate) fn bytes_max(asked: &Asked) -> u64 {
    long_bytes(asked).max(OBJECT_FORESEEN_MAX_BYTES)
}

impl<N> Foreseen<N> {
    fn state(&self) -> MutexGuard<'_, State<N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing of a number is given out any more.
    pub(crate) fn forget(&self, number: u64) {
        self.state().entries.retain(|entry| entry.number != number);
    }

    /// Nothing about this object is given out any more: it was written.
    pub(crate) fn forget_about(&self, key: &Key) {
        self.state().entries.retain(|entry| !entry.asked.concerns(key));
    }

    /// Nothing is given out any more.
    pub(crate) fn clear(&self) {
        self.state().entries.clear();
    }

    /// Begins to ask for all of these, as far as there is room; their number.
    pub(crate) fn begin(
        &self,
        next: Vec<Asked>,
        ask: impl Fn(&Asked) -> JoinHandle<Option<Answered<N>>>,
    ) -> u64 {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        let thread = std::thread::current().id();
        for asked in next {
            if state.entries.len() >= FORESEEN_MAX {
                break;
            }
            let room_bytes = LONG_FORESEEN_MAX_BYTES.saturating_sub(state.long_bytes());
            if long_bytes(&asked) > room_bytes {
                continue;
            }
            // Whoever called has foreseen it already.
            if state.entries.iter().any(|entry| entry.thread == thread && entry.asked == asked) {
                continue;
            }
            let answer = ask(&asked);
            state.entries.push(Entry { number, thread, asked, answer });
        }
        number
    }

    fn take(&self, is_it: impl Fn(&Asked) -> bool) -> Option<Entry<N>> {
        let mut state = self.state();
        let thread = std::thread::current().id();
        let is_it = |entry: &Entry<N>| entry.thread == thread && is_it(&entry.asked);
        let at = state.entries.iter().position(is_it)?;
        Some(state.entries.swap_remove(at))
    }

    /// The names below a directory, if they were foreseen; `arrive` waits for them.
    pub(crate) fn names(
        &self,
        prefix: &str,
        arrive: impl FnOnce(Entry<N>) -> Option<Answered<N>>,
    ) -> Option<Vec<N>> {
        let is_it = |asked: &Asked| match asked {
            Asked::Names(one) | Asked::ManyNames(one, _) => one == prefix,
            Asked::Object(_) | Asked::Long(..) | Asked::Tail(..) => false,
        };
        let entry = self.take(is_it)?;
        match arrive(entry)? {
            Answered::Names(names) => Some(names),
            Answered::Object(_) => None,
        }
    }

    /// An object whose last bytes were foreseen, all of it or at least so many; within, `None`:
    /// there is none. `arrive` waits for it.
    pub(crate) fn object(
        &self,
        key: &Key,
        tail_bytes: Option<usize>,
        arrive: impl FnOnce(Entry<N>) -> Option<Answered<N>>,
    ) -> Option<Option<Found>> {
        match arrive(self.take_object(key, tail_bytes)?)? {
            Answered::Object(found) => Some(found.map(|found| found.last(tail_bytes))),
            Answered::Names(_) => None,
        }
    }

    /// An object that was foreseen, all of it or at least so many of its last bytes.
    fn take_object(&self, key: &Key, tail_bytes: Option<usize>) -> Option<Entry<N>> {
        let is_tail = |asked: &Asked| match asked {
            Asked::Tail(one, length) => one == key && tail_bytes.is_some_and(|it| it <= *length),
            Asked::Names(_) | Asked::ManyNames(..) | Asked::Object(_) | Asked::Long(..) => false,
        };
        let is_whole = |asked: &Asked| match asked {
            Asked::Object(one) | Asked::Long(one, _) => one == key,
            Asked::Names(_) | Asked::ManyNames(..) | Asked::Tail(..) => false,
        };
        // A whole object may be wanted later.
        self.take(is_tail).or_else(|| self.take(is_whole))
    }
}
