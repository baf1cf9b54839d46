//! What the kernel knows by number, and by which names it is found below.
//!
//! # Algorithm
//! The number of an item is its inode's, so it is the same in every mount; items of other file
//! systems mounted below get one out of device and inode, with the highest bit set. Of each the
//! names are known by which the kernel has met it. A directory is opened by its name in the one
//! above, and what was opened last stays open; so no number needs an open file.
//!
//! # Invariants
//! A name that leads to another inode by now is not believed: the kernel looks up again.

use super::Answer;
use super::below::{self, Status};
use fuser::Errno;
use lru::LruCache;
use onefold_engine::tree::path;
use rustix::fs::{Mode, OFlags};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

/// The top, as the kernel numbers it.
pub const TOP: u64 = 1;
/// Of numbers that are not those of inodes.
const MADE: u64 = 1 << 63;
/// More names than any path has that somebody reads.
const DEPTH_SHOWN: usize = 256;
/// Directories that stay open.
const DIRECTORIES_OPEN: NonZeroUsize = NonZeroUsize::new(512).expect("some directories");

/// What is known by number.
pub struct Nodes {
    top: Arc<OwnedFd>,
    device: u64,
    top_inode: u64,
    known: Mutex<HashMap<u64, Node>>,
    open: Mutex<LruCache<u64, Arc<OwnedFd>>>,
    /// Held by whoever gives something another name, until that is known.
    renaming: RwLock<()>,
}

#[derive(Default)]
struct Node {
    lookups: u64,
    /// The directory and the name in it, each by which it was met.
    names: Vec<(u64, OsString)>,
}

impl Nodes {
    /// Nothing but the top is known.
    pub fn new(top: OwnedFd) -> Answer<Self> {
        let status = below::status_of(top.as_fd())?;
        Ok(Self {
            top: Arc::new(top),
            device: status.device,
            top_inode: status.inode,
            known: Mutex::default(),
            open: Mutex::new(LruCache::new(DIRECTORIES_OPEN)),
            renaming: RwLock::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Node>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> MutexGuard<'_, LruCache<u64, Arc<OwnedFd>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory that the mount covers.
    pub fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Whether an item is on the file system of the top.
    pub fn is_own(&self, status: &Status) -> bool {
        status.device == self.device
    }

    /// The number of an item.
    pub fn number_of(&self, status: &Status) -> u64 {
        match status.device == self.device {
            true if status.inode == self.top_inode => TOP,
            true if status.inode != TOP && status.inode & MADE == 0 => status.inode,
            _ => {
                let mixed = status.device.rotate_left(32) ^ status.inode;
                MADE | mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            }
        }
    }

    /// The kernel hears of an item by a name.
    pub fn remember(&self, status: &Status, parent: u64, name: &OsStr) -> u64 {
        let number = self.number_of(status);
        let mut known = self.known();
        let node = known.entry(number).or_default();
        node.lookups += 1;
        add(node, parent, name);
        number
    }

    /// The kernel forgets that it has heard of an item so many times.
    pub fn forget(&self, number: u64, lookups: u64) {
        let mut known = self.known();
        if let Some(node) = known.get_mut(&number) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 {
                known.remove(&number);
                self.open().pop(&number);
            }
        }
    }

    /// A name leads nowhere any more.
    pub fn remove_name(&self, number: u64, parent: u64, name: &OsStr) {
        if let Some(node) = self.known().get_mut(&number) {
            node.names.retain(|(at, other)| (*at, other.as_os_str()) != (parent, name));
        }
    }

    /// An item has one more name.
    pub fn add_name(&self, number: u64, parent: u64, name: &OsStr) {
        if let Some(node) = self.known().get_mut(&number) {
            add(node, parent, name);
        }
    }

    /// A directory by its number.
    pub fn directory(&self, number: u64) -> Answer<Arc<OwnedFd>> {
        match self.directory_now(number) {
            Err(error) if error.code() == Errno::ESTALE.code() => {
                self.find(number, OFlags::DIRECTORY).map(Arc::new)
            }
            found => found,
        }
    }

    fn directory_now(&self, number: u64) -> Answer<Arc<OwnedFd>> {
        if number == TOP {
            return Ok(Arc::clone(&self.top));
        }
        if let Some(open) = self.open().get(&number) {
            return Ok(Arc::clone(open));
        }
        let opened = Arc::new(self.find_now(number, OFlags::DIRECTORY)?);
        self.open().put(number, Arc::clone(&opened));
        Ok(opened)
    }

    /// An item by its number, opened for being looked at only.
    pub fn item(&self, number: u64) -> Answer<OwnedFd> {
        match number {
            TOP => self.top.try_clone().map_err(Errno::from),
            _ => self.find(number, OFlags::empty()),
        }
    }

    /// The path by which an item was met last, for people.
    pub fn path_of(&self, number: u64) -> String {
        let known = self.known();
        let mut names = Vec::new();
        let mut at = number;
        // Names may lead in a circle while directories are moved.
        while at != TOP && names.len() < DEPTH_SHOWN {
            let Some((above, name)) = known.get(&at).and_then(|node| node.names.last()) else {
                return format!("inode {number}");
            };
            names.push(path::display(name.as_bytes()));
            at = *above;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// Until this goes nobody takes what is moved for gone. Nothing is looked up meanwhile.
    pub fn begin_renaming(&self) -> RwLockWriteGuard<'_, ()> {
        self.renaming.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds an item. What was deleted is not there, as in any directory.
    fn find(&self, number: u64, more: OFlags) -> Answer<OwnedFd> {
        match self.find_now(number, more) {
            Err(error) if error.code() == Errno::ESTALE.code() => {}
            found => return found,
        }
        // It may be getting another name: that is known by then.
        drop(self.renaming.read().unwrap_or_else(PoisonError::into_inner));
        match self.find_now(number, more) {
            Err(error) if error.code() == Errno::ESTALE.code() => Err(Errno::ENOENT),
            found => found,
        }
    }

    fn find_now(&self, number: u64, more: OFlags) -> Answer<OwnedFd> {
        let names = self.known().get(&number).map(|node| node.names.clone()).unwrap_or_default();
        // The one met last is most likely to be there.
        for (parent, name) in names.iter().rev() {
            let Ok(directory) = self.directory_now(*parent) else { continue };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
            let opened = rustix::fs::openat(&*directory, name.as_os_str(), flags, Mode::empty());
            let Ok(opened) = opened else { continue };
            if self.number_of(&below::status_of(opened.as_fd())?) == number {
                return Ok(opened);
            }
        }
        Err(Errno::ESTALE)
    }
}

fn add(node: &mut Node, parent: u64, name: &OsStr) {
    let is_it = |(at, other): &(u64, OsString)| (*at, other.as_os_str()) == (parent, name);
    if !node.names.iter().any(is_it) {
        node.names.push((parent, name.to_owned()));
    }
}
