//! Answers that were asked for before they are wanted; the rules are in `onefold_store::foresight`.
//!
//! All that a thread foresees is asked for at once. What fails is forgotten, and asked for again by
//! whoever wants it, who then waits and repeats as ever. So nothing here is ever an error.
//!
//! # Concurrency
//! One lock, not held while anything is waited for. An answer belongs to the thread that
//! foresaw it.

use super::BucketStore;
use crate::failure::is_absence;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use onefold_store::foresight::SMALL_OBJECT_MAX_BYTES;
use onefold_store::{Asked, Key};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use tokio::task::JoinHandle;

/// Answers that are waited for or kept, for all threads together; more are not asked for.
pub const FORESEEN_MAX: usize = 32;
/// A longer object, or tail, is not kept, unless its length is known beforehand.
pub const OBJECT_FORESEEN_MAX_BYTES: u64 = SMALL_OBJECT_MAX_BYTES;
/// So much of objects whose lengths are known, for all threads together.
pub const LONG_FORESEEN_MAX_BYTES: u64 = 3 << 20;
/// A listing that shows more names, which is more than one request, is not kept.
pub const NAMES_FORESEEN_MAX: usize = 1000;

/// What was asked for.
enum Answered {
    Names(Vec<ObjectMeta>),
    /// The end of an object of this size, from this offset on; `None`: there is none.
    Object(Option<Found>),
}

/// The end of an object.
pub(super) struct Found {
    pub(super) size: u64,
    pub(super) bytes: Bytes,
}

struct Entry {
    number: u64,
    thread: ThreadId,
    asked: Asked,
    answer: JoinHandle<Option<Answered>>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.answer.abort();
    }
}

#[derive(Default)]
pub(super) struct Foreseen {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    entries: Vec<Entry>,
}

impl State {
    /// Bytes of long objects that are waited for or kept.
    fn long_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| long_bytes(&entry.asked)).sum()
    }
}

fn long_bytes(asked: &Asked) -> u64 {
    match asked {
        Asked::Long(_, bytes) => *bytes,
        Asked::Names(_) | Asked::Object(_) | Asked::Tail(..) => 0,
    }
}

impl Foreseen {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing of a number is given out any more.
    pub(super) fn forget(&self, number: u64) {
        self.state().entries.retain(|entry| entry.number != number);
    }

    /// Nothing about this object is given out any more: it was written.
    pub(super) fn forget_about(&self, key: &Key) {
        self.state().entries.retain(|entry| !entry.asked.concerns(key));
    }

    fn take(&self, is_it: impl Fn(&Asked) -> bool) -> Option<Entry> {
        let mut state = self.state();
        let thread = std::thread::current().id();
        let is_it = |entry: &Entry| entry.thread == thread && is_it(&entry.asked);
        let at = state.entries.iter().position(is_it)?;
        Some(state.entries.swap_remove(at))
    }
}

impl BucketStore {
    /// Begins to ask for all of these.
    pub(super) fn begin_foreseen(&self, next: Vec<Asked>) -> u64 {
        // A server that does not answer is not asked for what nobody waits for.
        if self.is_in_trouble() {
            return 0;
        }
        let mut state = self.foreseen.state();
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
            let answer = self.runtime.spawn(answer(
                Arc::clone(&self.objects),
                self.path_of(&asked),
                asked.clone(),
            ));
            state.entries.push(Entry { number, thread, asked, answer });
        }
        number
    }

    fn path_of(&self, asked: &Asked) -> ObjectPath {
        match asked {
            Asked::Names(prefix) => self.below(prefix),
            Asked::Object(key) | Asked::Long(key, _) | Asked::Tail(key, _) => self.path(key),
        }
    }

    fn arrived(&self, mut entry: Entry) -> Option<Answered> {
        let bytes = long_bytes(&entry.asked).max(OBJECT_FORESEEN_MAX_BYTES);
        let answer = &mut entry.answer;
        let waited = self.wait(bytes, async { Ok(answer.await.ok().flatten()) });
        waited.ok().flatten()
    }

    /// The names below a directory, if they were foreseen.
    pub(super) fn foreseen_names(&self, prefix: &str) -> Option<Vec<ObjectMeta>> {
        let entry = self.foreseen.take(|asked| matches!(asked, Asked::Names(one) if one == prefix));
        match self.arrived(entry?)? {
            Answered::Names(names) => Some(names),
            Answered::Object(_) => None,
        }
    }

    /// An object whose last bytes were foreseen, all of it or at least so many; within, `None`:
    /// there is none.
    pub(super) fn foreseen_object(
        &self,
        key: &Key,
        tail_bytes: Option<usize>,
    ) -> Option<Option<Found>> {
        let entry = self.foreseen.take(|asked| match asked {
            Asked::Object(one) | Asked::Long(one, _) => one == key,
            Asked::Tail(one, length) => one == key && tail_bytes.is_some_and(|it| it <= *length),
            Asked::Names(_) => false,
        });
        let Answered::Object(found) = self.arrived(entry?)? else { return None };
        let Some(mut found) = found else { return Some(None) };
        if let Some(wanted) = tail_bytes.filter(|wanted| *wanted < found.bytes.len()) {
            let _ = found.bytes.split_to(found.bytes.len() - wanted);
        }
        Some(Some(found))
    }
}

/// Asks; `None` if there is no answer that can be kept.
async fn answer(objects: Arc<dyn ObjectStore>, path: ObjectPath, asked: Asked) -> Option<Answered> {
    let most = long_bytes(&asked).max(OBJECT_FORESEEN_MAX_BYTES);
    let range = match asked {
        Asked::Names(_) => return names(&*objects, &path).await.map(Answered::Names),
        Asked::Object(_) | Asked::Long(..) => None,
        Asked::Tail(_, length) if length as u64 <= OBJECT_FORESEEN_MAX_BYTES => {
            Some(GetRange::Suffix(length as u64))
        }
        Asked::Tail(..) => return None,
    };
    let found = match objects.get_opts(&path, GetOptions { range, ..GetOptions::default() }).await {
        Ok(found) => found,
        Err(answer) if is_absence(&answer) => return Some(Answered::Object(None)),
        Err(_) => return None,
    };
    let (size, length) = (found.meta.size, found.range.end.checked_sub(found.range.start)?);
    if length > most {
        return None;
    }
    let (mut bytes, mut arriving) = (BytesMut::new(), found.into_stream());
    while let Some(piece) = arriving.next().await {
        bytes.extend_from_slice(&piece.ok()?);
        if bytes.len() as u64 > length {
            return None;
        }
    }
    let is_whole = bytes.len() as u64 == length;
    is_whole.then(|| Answered::Object(Some(Found { size, bytes: bytes.freeze() })))
}

async fn names(objects: &dyn ObjectStore, below: &ObjectPath) -> Option<Vec<ObjectMeta>> {
    let below = Some(below).filter(|path| !path.as_ref().is_empty());
    let (mut names, mut arriving) = (Vec::new(), objects.list(below));
    while let Some(name) = arriving.next().await {
        if names.len() >= NAMES_FORESEEN_MAX {
            return None;
        }
        names.push(name.ok()?);
    }
    Some(names)
}
