//! When a file was changed last, while a job works on it or after one was stopped at it.
//!
//! # Algorithm
//! Of a stub whose time is pending the stub tells it ([`onefold_engine::stub::times`]). Whether it
//! is pending is remembered as long as nothing of the file changes, so most files take no question.

use super::below::{self, Status};
use super::served::Served;
use crate::attributes;
use fuser::FileType;
use lru::LruCache;
use onefold_engine::stub::{self, times};
use onefold_format::node::Time;
use onefold_format::stub::Stub;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Files of which it is remembered.
const KNOWN: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("some files");
/// What changed within this time may have changed again without saying when.
const SETTLED: Duration = Duration::from_secs(2);

/// When files had been changed whose time is not pending.
pub struct Settled(Mutex<LruCache<u64, SystemTime>>);

impl Default for Settled {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(KNOWN)))
    }
}

impl Settled {
    fn is(&self, number: u64, changed: SystemTime) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&number) == Some(&changed)
    }

    fn note(&self, number: u64, changed: SystemTime) {
        if changed.elapsed().is_ok_and(|age| age > SETTLED) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).put(number, changed);
        }
    }
}

impl Served {
    /// What is known of an item, with the time that its stub tells if it does.
    pub(super) fn timed(
        &self,
        number: u64,
        mut status: Status,
        open: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Status {
        let known = &mut status.attributes;
        if known.kind != FileType::RegularFile {
            return status;
        }
        let (modified, changed) = (time(known.mtime), time(known.ctime));
        let pending = |stub: &Stub| times::pending(stub, modified, changed);
        let told = match self.open.inode(number) {
            Some(inode) => inode.stub().and_then(|stub| pending(&stub.stub())),
            None if self.settled.is(number, known.ctime) => None,
            None => {
                let repository = self.tree.chunks().repository();
                let opened = open().and_then(|value| {
                    stub::open(repository, status.inode, &value).map(|(_, stub)| stub).ok()
                });
                if opened.as_ref().is_none_or(|stub| !stub.are_times_pending) {
                    self.settled.note(number, known.ctime);
                }
                opened.as_ref().and_then(pending)
            }
        };
        if let Some(told) = told {
            known.mtime = attributes::moment(told);
        }
        status
    }

    /// The same of what is open, if only to be looked at.
    pub(super) fn timed_item(&self, number: u64, item: BorrowedFd<'_>) -> super::Answer<Status> {
        let status = below::status_of(item)?;
        Ok(self.timed(number, status, || stub::value_of_item(item).ok().flatten()))
    }
}

/// A moment as stubs write it.
fn time(moment: SystemTime) -> Time {
    match moment.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Time { seconds: -seconds, nanoseconds: 0 },
                nanoseconds => {
                    Time { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds }
                }
            }
        }
    }
}
