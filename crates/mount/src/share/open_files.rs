//! What is open: ordinary files and stubs.
//!
//! One of each inode, however often it is open, so that all who have it open see the same, and so
//! that the kernel is given one backing file, which it insists on. What it is is found out when it
//! is opened first: nobody makes a stub of a file that is open, or an ordinary file of a stub.
//!
//! # Concurrency
//! Of one number nobody is opened first, closed last or loses a name while another one is at that
//! ([`OpenFiles::opening`]). That comes before writing down that something is moved; nobody holds
//! two at once.

use fuser::BackingId;
use onefold_engine::stub::StubFile;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock};

/// What is open of one inode.
pub struct OpenInode {
    /// Its number.
    pub number: u64,
    /// Its bytes.
    pub bytes: Bytes,
    /// What the kernel reads and writes itself.
    pub backing: OnceLock<Option<BackingId>>,
    /// Done once the kernel has dropped the pages that it may not keep.
    pub pages_settled: Once,
    /// Whether its last name is gone, so that it goes when nobody has it open any more.
    pub is_unnamed: AtomicBool,
}

/// Where the bytes of a file are.
pub enum Bytes {
    /// In the file below.
    Plain(File),
    /// There, and in the store. It is replaced by one that can be written when somebody needs that
    /// first.
    Stub(RwLock<Arc<StubFile>>),
}

/// Where the bytes of a file are, for a request.
pub enum Data<'a> {
    /// In the file below.
    Plain(&'a File),
    /// There, and in the store.
    Stub(Arc<StubFile>),
}

/// A file that somebody has opened.
#[derive(Clone)]
pub struct Handle {
    /// The file.
    pub inode: Arc<OpenInode>,
    /// What was asked for when it was opened.
    pub flags: i32,
    /// Of an ordinary file, opened so when something is first asked that the kernel does not do
    /// itself.
    pub file: Arc<OnceLock<File>>,
}

/// All that is open.
#[derive(Default)]
pub struct OpenFiles {
    open: Mutex<Open>,
    /// Files that somebody opens first or closes last, or takes a name from, just now; no more
    /// than there are requests.
    opening: Mutex<HashSet<u64>>,
    /// One of them is not any more.
    opened: Condvar,
}

/// The right to open one file first, to close it last, or to take its last name.
pub struct Opening<'a> {
    files: &'a OpenFiles,
    number: u64,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.files.being_opened().remove(&self.number);
        self.files.opened.notify_all();
    }
}

#[derive(Default)]
struct Open {
    last: u64,
    handles: HashMap<u64, Handle>,
    inodes: HashMap<u64, (Arc<OpenInode>, u64)>,
}

impl OpenInode {
    /// A file that has just been opened.
    #[must_use]
    pub fn new(number: u64, bytes: Bytes) -> Self {
        let (backing, pages_settled) = (OnceLock::new(), Once::new());
        Self { number, bytes, backing, pages_settled, is_unnamed: AtomicBool::new(false) }
    }

    /// Where its bytes are now.
    #[must_use]
    pub fn data(&self) -> Data<'_> {
        match &self.bytes {
            Bytes::Plain(file) => Data::Plain(file),
            Bytes::Stub(stub) => {
                Data::Stub(Arc::clone(&stub.read().unwrap_or_else(PoisonError::into_inner)))
            }
        }
    }

    /// Does something with the file below.
    pub fn with_file<T>(&self, work: impl FnOnce(&File) -> T) -> T {
        match self.data() {
            Data::Plain(file) => work(file),
            Data::Stub(stub) => work(stub.file()),
        }
    }

    /// Its stub, if it is one.
    #[must_use]
    pub fn stub(&self) -> Option<Arc<StubFile>> {
        match self.data() {
            Data::Plain(_) => None,
            Data::Stub(stub) => Some(stub),
        }
    }

    /// From now on the stub is this one, of the same file.
    pub fn replace_stub(&self, by: StubFile) {
        if let Bytes::Stub(stub) = &self.bytes {
            *stub.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(by);
        }
    }

    /// Its last name is gone.
    pub fn set_unnamed(&self) {
        self.is_unnamed.store(true, Ordering::Relaxed);
    }
}

impl OpenFiles {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn being_opened(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes others wait who open this file first, close it last or take a name from it, and nobody
    /// who does that with another one.
    pub fn opening(&self, number: u64) -> Opening<'_> {
        let mut being_opened = self.being_opened();
        while !being_opened.insert(number) {
            being_opened = self.opened.wait(being_opened).unwrap_or_else(PoisonError::into_inner);
        }
        Opening { files: self, number }
    }

    /// Begins to open a number, unless somebody else is at it.
    pub fn opening_now(&self, number: u64) -> Option<Opening<'_>> {
        let is_alone = self.being_opened().insert(number);
        is_alone.then(|| Opening { files: self, number })
    }

    /// What is open of an inode; nothing keeps it open but the handles that there are.
    pub fn inode(&self, number: u64) -> Option<Arc<OpenInode>> {
        self.open().inodes.get(&number).map(|(inode, _)| Arc::clone(inode))
    }

    /// Whether somebody opens a file first or closes it last just now, or takes a name from it.
    pub fn is_opening(&self, number: u64) -> bool {
        self.being_opened().contains(&number)
    }

    /// A file that somebody has opened.
    pub fn handle(&self, handle: u64) -> Option<Handle> {
        self.open().handles.get(&handle).cloned()
    }

    /// The inode that is open already, or `opened`; it counts as open once more.
    pub fn enter(&self, opened: OpenInode) -> Arc<OpenInode> {
        let mut open = self.open();
        let number = opened.number;
        let entry = open.inodes.entry(number).or_insert_with(|| (Arc::new(opened), 0));
        entry.1 += 1;
        Arc::clone(&entry.0)
    }

    /// The same if it is open already.
    pub fn enter_again(&self, number: u64) -> Option<Arc<OpenInode>> {
        let mut open = self.open();
        let entry = open.inodes.get_mut(&number)?;
        entry.1 += 1;
        Some(Arc::clone(&entry.0))
    }

    /// A number for a file that was entered.
    pub fn handle_for(&self, handle: Handle) -> u64 {
        let mut open = self.open();
        open.last += 1;
        let number = open.last;
        open.handles.insert(number, handle);
        number
    }

    /// Nobody has a handle any more; the inode if nobody has it open at all.
    pub fn close(&self, handle: u64) -> Option<Arc<OpenInode>> {
        let closed = self.open().handles.remove(&handle)?;
        self.leave(closed.inode.number)
    }

    /// It counts as open once less; the inode if nobody has it open at all.
    pub fn leave(&self, number: u64) -> Option<Arc<OpenInode>> {
        let mut open = self.open();
        let entry = open.inodes.get_mut(&number)?;
        entry.1 -= 1;
        match entry.1 {
            0 => open.inodes.remove(&number).map(|(inode, _)| inode),
            _ => None,
        }
    }
}
