//! Writing objects: the rules of the parent module, over any disk.
//!
//! Invariants: a temporary file is removed on every way out but success; a directory in the cache
//! has durable entries all the way up; a key among the settled decisions has a durable entry.

use super::TEMPORARY_DIRECTORY;
use super::aligned::{ALIGNMENT_BYTES, BufferPool};
use super::disk::{Disk, EntryKind};
use super::reading::Handle;
use super::system_disk::TEMPORARY_NAME_BYTES;
use crate::{Key, OBJECT_MAX_BYTES, key};
use lru::LruCache;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::HashSet;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects from this size on are written past the page cache.
const DIRECT_MIN_BYTES: usize = 256 * 1024;
/// Directories kept open; room for 256 shards and the few others.
pub(super) const DIRECTORIES_MAX: NonZeroUsize = NonZeroUsize::new(320).expect("not zero");
/// Siblings opened together, so that one sync settles all shards.
const SIBLINGS_MAX: usize = 256;
/// Files kept open for ranged reads.
pub(super) const HANDLES_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// Names of settled decisions kept.
pub(super) const SETTLED_MAX: usize = 1 << 16;
/// How often a directory may vanish under a put before it gives up.
pub(super) const NAMING_ATTEMPTS: usize = 16;

/// The store's files on `disk`.
pub(super) struct Objects<D: Disk> {
    pub(super) disk: D,
    directory: String,
    writable: bool,
    directories: Mutex<LruCache<String, Arc<D::Directory>>>,
    pub(super) handles: Mutex<LruCache<Key, Arc<Handle<D>>>>,
    /// Counts deletions, so that a file opened before one is not cached after it.
    pub(super) deletions: AtomicU64,
    pub(super) settled: Mutex<HashSet<String>>,
    buffers: BufferPool,
    /// Siblings opened together.
    siblings_max: usize,
    /// Set once the disk has said that it cannot rename without replacing.
    links_only: AtomicBool,
    /// Set once a directory could not be synced.
    sync_failed: AtomicBool,
    /// So many bytes of the device are left free.
    pub(super) left_free: AtomicU64,
}

/// A poisoned lock is taken all the same: the maps it guards are whole between any two calls.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file in `tmp/`, removed when dropped; after it was renamed there is nothing to remove.
struct Temporary<'a, D: Disk> {
    disk: &'a D,
    path: String,
    file: D::File,
    renamed: bool,
}

impl<D: Disk> Drop for Temporary<'_, D> {
    fn drop(&mut self) {
        if !self.renamed {
            // What cannot be removed now is stale and removed by the next cleaning.
            let _ = self.disk.remove(&self.path);
        }
    }
}

impl<D: Disk> Objects<D> {
    pub(super) fn new(disk: D, directory: String, writable: bool) -> Self {
        Self {
            disk,
            directory,
            writable,
            directories: Mutex::new(LruCache::new(DIRECTORIES_MAX)),
            handles: Mutex::new(LruCache::new(HANDLES_MAX)),
            deletions: AtomicU64::new(0),
            settled: Mutex::new(HashSet::new()),
            buffers: BufferPool::default(),
            siblings_max: SIBLINGS_MAX,
            links_only: AtomicBool::new(false),
            sync_failed: AtomicBool::new(false),
            left_free: AtomicU64::new(0),
        }
    }

    /// The same, keeping no more open than suits a process that may open so many files: half of
    /// them are for whoever uses the store.
    pub(super) fn within(mut self, open_files_max: usize) -> Self {
        let share = open_files_max / 8;
        let at_least_one = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        let directories = DIRECTORIES_MAX.min(at_least_one(2 * share));
        if directories < DIRECTORIES_MAX {
            // They are open beside those that are kept.
            self.siblings_max = share;
        }
        self.directories = Mutex::new(LruCache::new(directories));
        self.handles = Mutex::new(LruCache::new(HANDLES_MAX.min(at_least_one(share))));
        self
    }

    /// How many files it keeps open at the most, beside one for each request.
    pub(super) fn open_files_max(&self) -> usize {
        lock(&self.directories).cap().get() + lock(&self.handles).cap().get() + self.siblings_max
    }

    pub(super) fn directory(&self) -> &str {
        &self.directory
    }

    pub(super) fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.refuse_unless_writable(key.as_str())?;
        self.create(key, bytes)
    }

    pub(super) fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        self.refuse_unless_writable(key.as_str())?;
        let failed = |error| self.error("storing", key.as_str(), error);
        let (directory, name) = key.split();
        let mut temporary = self.open_temporary().map_err(failed)?;
        let (mut piece, mut offset) = (Vec::new(), 0);
        loop {
            piece.clear();
            let more = next(&mut piece)?;
            self.refuse_what_is_left(piece.len() as u64).map_err(failed)?;
            self.write_all(&temporary.file, &piece, offset).map_err(failed)?;
            offset += piece.len() as u64;
            if !more {
                break;
            }
        }
        self.disk.sync_file(&temporary.file).map_err(failed)?;
        self.name_exclusively(&mut temporary, directory, name)
            .and_then(|directory| self.sync_directory(&directory))
            .map_err(failed)
    }

    pub(super) fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.refuse_unless_writable(key.as_str())?;
        if let Some(winner) = self.decided(key)? {
            return Ok(winner);
        }
        match self.create(key, value) {
            Ok(()) => {
                self.remember_settled([key.as_str().to_owned()]);
                Ok(value.to_vec())
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.decided(key)?.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Undecided is only what has no entry at all: a name that exists and leads to no object was
    /// decided, and nobody knows what.
    pub(super) fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        for _ in 0..NAMING_ATTEMPTS {
            match self.get(key) {
                Ok(value) => {
                    self.settle_decision(key)?;
                    return Ok(Some(value));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            let is_absent = self.disk.is_absent(key.as_str());
            if is_absent.map_err(|error| self.error("reading", key.as_str(), error))? {
                return Ok(None);
            }
            // Or it was decided just now.
        }
        let message = format!(
            "'{key}' in '{}' exists and leads to no object, so nothing can be decided there: it \
             was not put by onefold, and has to be removed",
            self.directory
        );
        Err(Error::new(ErrorKind::Io, message))
    }

    pub(super) fn delete(&self, key: &Key) -> Result<()> {
        self.refuse_unless_writable(key.as_str())?;
        let removed = self.disk.remove(key.as_str());
        self.deletions.fetch_add(1, Ordering::SeqCst);
        lock(&self.handles).pop(key);
        match removed {
            Ok(()) => {}
            Err(error) if is_absence(&error) => {}
            Err(error) => return Err(self.error("deleting", key.as_str(), error)),
        }
        // Directories below the second level belong to sessions and the like and come and go.
        let (directory, _) = key.split();
        if directory.contains('/') && self.disk.remove_directory(directory).is_ok() {
            lock(&self.directories).pop(directory);
        }
        Ok(())
    }

    pub(super) fn remove_stale_temporaries(&self) -> Result<usize> {
        self.refuse_unless_writable(TEMPORARY_DIRECTORY)?;
        let mut names = Vec::new();
        let listed = self.disk.entries(TEMPORARY_DIRECTORY, &mut |name, kind| {
            // Whatever else is there was not put there by a store.
            if kind == EntryKind::File && is_temporary_name(name) {
                names.push(key::join(TEMPORARY_DIRECTORY, name));
            }
            true
        });
        match listed {
            Ok(()) => {}
            Err(error) if is_absence(&error) => {}
            Err(error) => return Err(self.error("listing", TEMPORARY_DIRECTORY, error)),
        }
        let mut removed = 0;
        for name in &names {
            match self.disk.remove_unlocked(name) {
                Ok(done) => removed += usize::from(done),
                Err(error) if is_absence(&error) => {}
                Err(error) => return Err(self.error("removing", name, error)),
            }
        }
        Ok(removed)
    }

    pub(super) fn room(&self) -> Result<(u64, u64)> {
        self.disk.room().map_err(|error| self.error("asking for room in", "", error))
    }

    pub(super) fn names_left(&self) -> Result<u64> {
        self.disk.names_left().map_err(|error| self.error("asking for room in", "", error))
    }

    fn create(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        if bytes.len() > OBJECT_MAX_BYTES {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                format!("'{key}' of {} bytes exceeds the largest object", bytes.len()),
            ));
        }
        let store = || -> io::Result<()> {
            let (directory, name) = key.split();
            // First of all, so that a directory that cannot be had costs no writing. One that
            // vanishes at this moment is made again when the object is named.
            match self.settled_directory(directory) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.refuse_what_is_left(bytes.len() as u64)?;
            let mut temporary = self.write_temporary(bytes)?;
            let directory = self.name_exclusively(&mut temporary, directory, name)?;
            self.sync_directory(&directory)
        };
        store().map_err(|error| self.error("storing", key.as_str(), error))
    }

    /// Fails as a full device does if so many more bytes would take what is to be left free.
    fn refuse_what_is_left(&self, more_bytes: u64) -> io::Result<()> {
        let left = self.left_free.load(Ordering::Relaxed);
        match left > 0 && self.disk.room()?.0 < left.saturating_add(more_bytes) {
            true => Err(io::Error::from(rustix::io::Errno::NOSPC)),
            false => Ok(()),
        }
    }

    fn open_temporary(&self) -> io::Result<Temporary<'_, D>> {
        let (path, file) = match self.disk.create_temporary() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The entry of `tmp` itself need not be durable.
                match self.disk.make_directory(&*self.settled_directory("")?, TEMPORARY_DIRECTORY) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => self.disk.create_temporary(),
                }
            }
            result => result,
        }?;
        Ok(Temporary { disk: &self.disk, path, file, renamed: false })
    }

    fn write_temporary(&self, bytes: &[u8]) -> io::Result<Temporary<'_, D>> {
        let temporary = self.open_temporary()?;
        let mut written = 0;
        if bytes.len() >= DIRECT_MIN_BYTES {
            written = self.write_direct(&temporary.file, bytes)?;
        }
        let rest = bytes.get(written..).unwrap_or_default();
        self.write_all(&temporary.file, rest, written as u64)?;
        self.disk.sync_file(&temporary.file)?;
        Ok(temporary)
    }

    /// Writes whole blocks past the page cache; returns how many bytes that were. The rest, which
    /// is everything where the disk does not offer it, is left to the caller.
    fn write_direct(&self, file: &D::File, bytes: &[u8]) -> io::Result<usize> {
        let whole = bytes.len() - bytes.len() % ALIGNMENT_BYTES;
        if self.disk.set_direct(file, true).is_err() {
            return Ok(0);
        }
        let written = self.buffers.with(|buffer| {
            let mut written = 0;
            let Some(buffer) = buffer else { return Ok(0) };
            for piece in bytes[..whole].chunks(buffer.len()) {
                let aligned = &mut buffer[..piece.len()];
                aligned.copy_from_slice(piece);
                match self.disk.write_at(file, aligned, written as u64) {
                    Ok(count) if count == piece.len() => written += count,
                    // A short write may end anywhere; the rest goes through the cache.
                    Ok(count) => return Ok(written + count),
                    Err(error) if is_refusal(&error) => return Ok(written),
                    Err(error) => return Err(error),
                }
            }
            Ok(written)
        })?;
        self.disk.set_direct(file, false)?;
        Ok(written)
    }

    pub(super) fn write_all(
        &self,
        file: &D::File,
        mut bytes: &[u8],
        mut offset: u64,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.disk.write_at(file, bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = bytes.get(count..).unwrap_or_default();
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Names a file; a directory that vanished meanwhile is made again.
    fn name_exclusively(
        &self,
        temporary: &mut Temporary<'_, D>,
        directory: &str,
        name: &str,
    ) -> io::Result<Arc<D::Directory>> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..NAMING_ATTEMPTS {
            let named = self
                .settled_directory(directory)
                .and_then(|open| self.name_once(temporary, &open, name).map(|()| open));
            match named {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    lock(&self.directories).pop(directory);
                    last = error;
                }
                result => return result,
            }
        }
        // The store itself, or the temporary file, is gone: no caller may take it for an absence.
        Err(io::Error::other(last))
    }

    fn name_once(
        &self,
        temporary: &mut Temporary<'_, D>,
        directory: &D::Directory,
        name: &str,
    ) -> io::Result<()> {
        if !self.links_only.load(Ordering::Relaxed) {
            match self.disk.rename_new(&temporary.path, directory, name) {
                Err(error) if is_unsupported(&error) => {
                    self.links_only.store(true, Ordering::Relaxed);
                }
                result => {
                    temporary.renamed = result.is_ok();
                    return result;
                }
            }
        }
        // The temporary name stays and is removed when the temporary is dropped.
        self.disk.link_new(&temporary.file, &temporary.path, directory, name).map_err(|error| {
            // EPERM is how a filesystem without links says so.
            let no_links = error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error());
            if !no_links && !is_unsupported(&error) {
                return error;
            }
            io::Error::new(
                io::ErrorKind::Unsupported,
                "this filesystem can neither rename without replacing nor link; \
                 a store cannot be safe on it",
            )
        })
    }

    /// Opens a directory, made if need be, whose own entry and those of all above it are durable.
    ///
    /// `ENOENT` means that a cached directory was removed; it is no longer cached then.
    pub(super) fn settled_directory(&self, path: &str) -> io::Result<Arc<D::Directory>> {
        if let Some(directory) = lock(&self.directories).get(path) {
            return Ok(Arc::clone(directory));
        }
        if path.is_empty() {
            return Ok(self.remember_directory("", self.disk.root()?));
        }
        let (parent, name) = key::split(path);
        let above = self.settled_directory(parent)?;
        let directory = self.open_or_make(&above, name).inspect_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                lock(&self.directories).pop(parent);
            }
        })?;
        // Opened before the sync, so that it is these very directories that the sync settles.
        let mut siblings = Vec::new();
        if !parent.contains('/') {
            // They only spare later syncs: none that cannot be listed is missed.
            for sibling in self.subdirectories(parent, self.siblings_max).unwrap_or_default() {
                if sibling != name
                    && let Ok(open) = self.disk.open_directory(&above, &sibling)
                {
                    siblings.push((key::join(parent, &sibling), open));
                }
            }
        }
        self.sync_directory(&above)?;
        for (sibling, open) in siblings {
            self.remember_directory(&sibling, open);
        }
        Ok(self.remember_directory(path, directory))
    }

    fn open_or_make(&self, above: &D::Directory, name: &str) -> io::Result<D::Directory> {
        match self.disk.open_directory(above, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match self.disk.make_directory(above, name) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => self.disk.open_directory(above, name),
                }
            }
            result => result,
        }
    }

    fn remember_directory(&self, path: &str, open: D::Directory) -> Arc<D::Directory> {
        let open = Arc::new(open);
        lock(&self.directories).put(path.to_owned(), Arc::clone(&open));
        open
    }

    pub(super) fn sync_directory(&self, directory: &D::Directory) -> io::Result<()> {
        if self.sync_failed.load(Ordering::SeqCst) {
            return Err(io::Error::other(
                "an earlier sync of the store failed; check the device and start again",
            ));
        }
        self.disk.sync_directory(directory).inspect_err(|_| {
            self.sync_failed.store(true, Ordering::SeqCst);
        })
    }

    pub(super) fn refuse_unless_writable(&self, name: &str) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        let directory = &self.directory;
        let message = format!("'{name}' in '{directory}': the store was opened for reading only");
        Err(Error::new(ErrorKind::ReadOnly, message))
    }

    /// An error that names the object and the store, and says what to do where that is known.
    pub(super) fn error(&self, doing: &str, name: &str, cause: io::Error) -> Error {
        let directory = &self.directory;
        let advice = match cause.kind() {
            io::ErrorKind::StorageFull if self.disk.names_left().is_ok_and(|left| left == 0) => {
                ": no file can be made on that device (it has no inodes left), though there may be \
                 room. Remove other files from it, or forget snapshots for good and run 'onefold \
                 gc', which gives up copies of metadata for that"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ": no room is left on that device. Make some, or forget snapshots for good and run \
                 'onefold gc': both may use the room that is set aside in the store"
            }
            io::ErrorKind::CrossesDevices => {
                ": no directory inside a store may lead to another filesystem"
            }
            io::ErrorKind::NotADirectory => ": a part of the name is an object, not a directory",
            _ if cause.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                ": it is, or leads through, a symbolic link, and none is followed inside a store; \
                 remove the link, and put what belongs there in its place"
            }
            _ => "",
        };
        let kind = match cause.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::CrossesDevices => ErrorKind::Invalid,
            _ => return Error::io(format!("{doing} '{name}' in '{directory}'{advice}"), cause),
        };
        Error::io(format!("{doing} '{name}' in '{directory}'{advice}"), cause).with_kind(kind)
    }
}

/// The same error, of a kind that says nothing about an object.
pub(super) fn of_the_device(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Exhausted | ErrorKind::NotPermitted | ErrorKind::Unavailable => error,
        _ => error.with_kind(ErrorKind::Io),
    }
}

/// Whether a store could have named a temporary file so.
fn is_temporary_name(name: &str) -> bool {
    name.len() == TEMPORARY_NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The name does not lead to an object, for whatever reason.
pub(super) fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory
    )
}

/// The filesystem or kernel does not have the call.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// A write past the cache that should be tried through it.
fn is_refusal(error: &io::Error) -> bool {
    is_unsupported(error) || error.kind() == io::ErrorKind::Interrupted
}
