//! What the kernel keeps of files that it does not read itself, and whether it may.
//!
//! # Algorithm
//! When a stub is closed it is noted when it had been modified and changed. If it says the same
//! when it is opened again, nobody has touched it below, and the kernel may go on using its pages.
//! Every change of a stub below sets the time of change. The mount has the kernel drop the pages of
//! all other files when the file is opened first (`settle`).
//!
//! # Invariants
//! - The mount drops no pages of a file that is open. A write reaches the kernel's page first and
//!   the mount later. A page that is dropped and read again between the two has the old bytes for
//!   ever, and a program that has it mapped writes them back.
//! - One exception: no page has bytes that were written below, so the mount drops all pages when it
//!   finds such bytes, and again behind each write.

use super::below;
use super::open_files::OpenInode;
use fuser::{INodeNo, Notifier};
use lru::LruCache;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

/// Stubs of which it is known what the kernel's pages are of.
const PAGES_KNOWN: NonZeroUsize = NonZeroUsize::new(4096).expect("some stubs");

/// When a file was modified, and when anything of it was changed.
type Times = (SystemTime, SystemTime);

/// What is known of the kernel's pages.
pub struct Pages {
    known: Mutex<LruCache<u64, Times>>,
    kernel: OnceLock<Notifier>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { known: Mutex::new(LruCache::new(PAGES_KNOWN)), kernel: OnceLock::new() }
    }
}

impl Pages {
    fn known(&self) -> MutexGuard<'_, LruCache<u64, Times>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom to tell what is to be forgotten, once that is mounted.
    pub fn tell(&self, kernel: Notifier) {
        // There is one mount.
        let _ = self.kernel.set(kernel);
    }

    /// Has the kernel drop the pages that it may not keep, when a file is opened first. Further
    /// opens wait for that. No request about the file is on its way, so the kernel waits for none.
    pub(super) fn settle(&self, inode: &OpenInode) {
        inode.pages_settled.call_once(|| {
            if !self.are_kept(inode)
                && let Some(kernel) = self.kernel.get()
            {
                // What it does not know it has no pages of.
                let _ = kernel.inval_inode(INodeNo(inode.number), 0, 0);
            }
        });
    }

    /// Whether the kernel may go on using what it has of a stub.
    fn are_kept(&self, inode: &OpenInode) -> bool {
        let is_ours = inode.stub().is_some_and(|stub| !stub.was_written_below());
        is_ours && times_of(inode).is_some_and(|now| self.known().get(&inode.number) == Some(&now))
    }

    /// A stub is closed.
    pub(super) fn note(&self, inode: &OpenInode) {
        let Some(stub) = inode.stub() else { return };
        match times_of(inode).filter(|_| !stub.was_written_below()) {
            Some(now) => drop(self.known().put(inode.number, now)),
            None => drop(self.known().pop(&inode.number)),
        }
    }

    /// Has the kernel forget what it has of a stub.
    pub(super) fn forget(&self, number: u64) {
        self.known().pop(&number);
        let Some(kernel) = self.kernel.get().cloned() else { return };
        // The kernel waits for pages that are being read or written, which others have to answer.
        std::thread::spawn(move || kernel.inval_inode(INodeNo(number), 0, 0));
    }
}

fn times_of(inode: &OpenInode) -> Option<Times> {
    let status = inode.with_file(|file| below::status_of(file.as_fd())).ok()?;
    Some((status.attributes.mtime, status.attributes.ctime))
}
