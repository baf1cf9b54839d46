//! When a file was changed last, while a job works on it or after one was stopped at it.
//!
//! # Algorithm
//! Of a stub whose time is pending the stub tells it ([`onefold_engine::stub::times`]). Whether it
//! is pending is remembered as long as nothing of the file changes, so most files take no question.
//! What changes something else of the file puts a pending time back first.

use super::Answer;
use super::below::{self, Status};
use super::served::Served;
use crate::attributes;
use fuser::FileType;
use lru::LruCache;
use onefold_engine::primary::emptying;
use onefold_engine::stub::{self, StubFile, permissions, times};
use onefold_format::node::Time;
use onefold_format::stub::Stub;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a file is looked at anew because it has changed meanwhile.
const LOOKS_MAX: usize = 8;
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
    /// What is known of an item, with the time that its stub tells if it does. If it does not, both
    /// are asked until nothing changes in between: a job may just begin, or be done.
    pub(super) fn timed(
        &self,
        number: impl Fn(&Status) -> u64,
        look: impl Fn() -> Answer<Status>,
        value: impl Fn() -> Option<Vec<u8>>,
    ) -> Answer<Status> {
        let mut status = look()?;
        for _ in 0..LOOKS_MAX {
            match self.pending(number(&status), &status, &value) {
                Some(None) => break,
                Some(Some(modified)) => {
                    status.attributes.mtime = modified;
                    break;
                }
                None => {}
            }
            let changed = status.attributes.ctime;
            status = look()?;
            if status.attributes.ctime == changed {
                break;
            }
        }
        Ok(status)
    }

    /// The time that the stub of an item tells, if it does; nothing at all if that may change.
    fn pending(
        &self,
        number: u64,
        status: &Status,
        value: &impl Fn() -> Option<Vec<u8>>,
    ) -> Option<Option<SystemTime>> {
        let known = &status.attributes;
        if known.kind != FileType::RegularFile {
            return Some(None);
        }
        let (modified, changed) = (time(known.mtime), time(known.ctime));
        let pending = |stub: &Stub| times::pending(stub, modified, changed).map(attributes::moment);
        if let Some(inode) = self.open.inode(number) {
            // No job is at it.
            return Some(inode.stub().and_then(|stub| pending(&stub.stub())));
        }
        if self.settled.is(number, known.ctime) {
            return Some(None);
        }
        let repository = self.tree.chunks().repository();
        let opened = value().and_then(|value| {
            stub::open(repository, status.inode, &value).map(|(_, stub)| stub).ok()
        });
        match opened.as_ref().and_then(pending) {
            Some(modified) => Some(Some(modified)),
            None => {
                if opened.is_none_or(|stub| !stub.are_times_pending) {
                    self.settled.note(number, known.ctime);
                }
                None
            }
        }
    }

    /// Puts back a time that is pending, before anything changes when the file itself was changed:
    /// by that it is told whether the time is pending. A job that is at the file does so itself.
    pub(super) fn settle_time(&self, number: u64, item: BorrowedFd<'_>) {
        if self.may_be_pending(number, item) {
            let _opening = self.open.opening(number);
            self.settle_opened(number, item);
        }
    }

    /// Puts a pending time back; the caller keeps others from opening the file. If permissions
    /// forbid it, the caller goes on with what it was asked for.
    pub(super) fn settle_opened(&self, number: u64, item: BorrowedFd<'_>) {
        if let Some(inode) = self.open.inode(number) {
            let settle = |stub: &StubFile| emptying::put_pending_back(stub.file(), stub);
            let _ = inode.stub().map(|stub| settle(&stub));
            return;
        }
        let (Ok(status), path) = (below::status_of(item), below::path_of(item)) else { return };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let open = || rustix::fs::open(&path, flags, Mode::empty()).map(File::from);
        let Ok(file) = permissions::as_owner(item, open) else { return };
        let said = (time(status.attributes.mtime), time(status.attributes.ctime));
        if stub::wait_for_job(&file, Duration::ZERO).is_ok() {
            let _ = emptying::settle_time(self.tree.chunks().repository(), &file, said);
        }
    }

    fn may_be_pending(&self, number: u64, item: BorrowedFd<'_>) -> bool {
        let Ok(status) = below::status_of(item) else { return false };
        let is_file = status.attributes.kind == FileType::RegularFile;
        if !is_file || self.settled.is(number, status.attributes.ctime) {
            return false;
        }
        match stub::value_of_item(item) {
            Ok(None) => false,
            Ok(Some(value)) => {
                let opened = stub::open(self.tree.chunks().repository(), status.inode, &value);
                opened.is_ok_and(|(_, stub)| stub.are_times_pending)
            }
            // Its owner may ask for it all the same.
            Err(_) => true,
        }
    }

    /// What is known of what is open, if only to be looked at, with the time that its stub tells.
    pub(super) fn timed_item(&self, number: u64, item: BorrowedFd<'_>) -> Answer<Status> {
        let value = || stub::value_of_item(item).ok().flatten();
        self.timed(|_| number, || below::status_of(item), value)
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
