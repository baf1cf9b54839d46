//! Directories that are being read: each is listed when it is read from the beginning, and what was
//! listed is told until it is read anew.

use super::Answer;
use super::names::Listed;
use super::replies::VALID;
use super::served::Served;
use fuser::{Errno, FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

type Listing = Arc<Vec<Listed>>;

/// What was listed, by handle.
#[derive(Default)]
pub struct Directories {
    listings: Mutex<HashMap<u64, Listing>>,
    last: AtomicU64,
}

impl Directories {
    fn listings(&self) -> MutexGuard<'_, HashMap<u64, Listing>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle.
    pub fn open(&self) -> u64 {
        let handle = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        // It is listed when it is read.
        self.listings().insert(handle, Arc::default());
        handle
    }

    /// Nobody has the handle any more.
    pub fn close(&self, handle: u64) {
        self.listings().remove(&handle);
    }

    fn listed(
        &self,
        served: &Served,
        (number, handle): (u64, u64),
        offset: u64,
    ) -> Answer<Listing> {
        if offset > 0 {
            return self.listings().get(&handle).map(Arc::clone).ok_or(Errno::EBADF);
        }
        let listed = Arc::new(served.list(number)?);
        self.listings().insert(handle, Arc::clone(&listed));
        Ok(listed)
    }

    /// Tells names.
    pub(super) fn read(
        &self,
        served: &Served,
        of: (u64, u64),
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listing = match self.listed(served, of, offset) {
            Ok(listing) => listing,
            Err(error) => return reply.error(error),
        };
        for (at, one) in listing.iter().enumerate().skip(offset as usize) {
            let name = OsStr::from_bytes(&one.name);
            if reply.add(INodeNo(one.inode), at as u64 + 1, one.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    /// Tells names, and what is known of the items.
    pub(super) fn read_plus(
        &self,
        served: &Served,
        of: (u64, u64),
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listing = match self.listed(served, of, offset) {
            Ok(listing) => listing,
            Err(error) => return reply.error(error),
        };
        for (at, one) in listing.iter().enumerate().skip(offset as usize) {
            let (name, next) = (OsStr::from_bytes(&one.name), at as u64 + 1);
            if matches!(&*one.name, b"." | b"..") {
                // The kernel takes no notice of what these are said to be.
                let Ok(known) = served.attributes(of.0) else { continue };
                let known = FileAttr { ino: INodeNo(one.inode), ..known };
                let none = Duration::ZERO;
                if reply.add(known.ino, next, name, &none, &known, Generation(0)) {
                    break;
                }
                continue;
            }
            // What has gone meanwhile is left out.
            let Ok((node, status)) = served.look_up(of.0, name) else { continue };
            let known = served.told(node, &status);
            if reply.add(INodeNo(node), next, name, &VALID, &known, status.generation) {
                served.nodes.forget(node, 1);
                break;
            }
        }
        reply.ok();
    }
}
