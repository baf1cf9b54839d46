//! The local store: one directory, objects are files.
//!
//! ```text
//! STORE/config, STORE/containers/3f/3f9a...   objects; a key is the path
//! STORE/tmp/<random>                          files being written
//! STORE/reserve                               preallocated room for a full device (R28)
//! ```
//!
//! Rules for durability (R29). Each step ends before the next begins:
//!
//! 1. The directories of the name exist and their entries are synced, from the root downwards.
//!    This is done once per directory and process. The directory stays open: while it does, its
//!    inode cannot be reused, so if another process removes it and makes it again, naming a file
//!    in the old one fails with `ENOENT` and the step is repeated. A cached directory can thus
//!    never stand for one whose entry is not durable.
//! 2. The bytes are written to a locked file in `tmp/` and synced with `fdatasync`.
//! 3. The file gets its name by `renameat2(RENAME_NOREPLACE)`, or by a hard link where that is not
//!    offered. Either gives one of several writers the name and shows the object whole.
//! 4. The directory is synced. Only now does `put` or `decide` return.
//!
//! A decision that was found, rather than made, is returned only after the directory was synced
//! too: its winner may not have come that far, and a value that was seen must not vanish.
//!
//! After a failed `fdatasync` nothing is retried: the temporary file is removed and the caller gets
//! the error. After a failed sync of a directory nobody can tell what the device holds, and a
//! second sync may succeed without having written anything; the store then refuses every further
//! write and every decision until it is opened again.
//!
//! Large objects are written past the page cache (`O_DIRECT`) from aligned buffers, because copying
//! into fresh page-cache pages costs several times the processor time; the last partial block goes
//! through the cache. Filesystems that refuse get buffered writes.
//!
//! Reading: `get`, `get_tail` and `size` open by name each time, because they prove existence; a
//! name deleted by another process must not seem to exist. `get_range` uses a bounded cache of
//! open files.
//!
//! Listing: what is passed over is what is absent, and nothing else (`reading.rs`). An entry whose
//! kind cannot be told, a symbolic link, or a file in the place of a directory fails the listing,
//! because a collection takes what is not listed for gone.
//!
//! No symbolic link below the root is followed, by any call (`below.rs`): whoever can write to the
//! store must not lead a command out of it.
//!
//! Concurrency: any number of threads and processes, also on several hosts if the filesystem gives
//! exclusive links or renames. Locks inside guard small maps and are never held during a system
//! call that writes or syncs. `tmp/` may be cleaned at any time: a file whose writer lives is
//! locked, and a writer that loses its file all the same fails cleanly.

mod aligned;
mod below;
mod disk;
mod objects;
mod reading;
mod reserve;
mod settling;
#[cfg(test)]
mod simulated;
mod system_disk;
#[cfg(test)]
mod tests_crash;
#[cfg(test)]
mod tests_links;
#[cfg(test)]
mod tests_listing;
#[cfg(test)]
mod tests_system;

use crate::{Blobs, Decisions, Key, Listed, Store};
use disk::Disk;
use objects::{Objects, of_the_device};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use system_disk::SystemDisk;

/// Where files are written before they are named.
const TEMPORARY_DIRECTORY: &str = "tmp";
/// The preallocated file.
const RESERVE: &str = "reserve";
/// The object without which a directory is not a store; the engine writes it.
const CONFIG: &str = "config";
/// Its second copy, which is enough to open the store by (R30).
const CONFIG_COPY: &str = "config.copy";

/// A store in a local directory.
pub struct LocalStore(Objects<SystemDisk>);

fn objects(disk: SystemDisk, directory: String, writable: bool) -> Objects<SystemDisk> {
    let limit = getrlimit(Resource::Nofile).current;
    Objects::new(disk, directory, writable).within(limit.map_or(usize::MAX, |most| most as usize))
}

impl LocalStore {
    /// Makes the directory, accessible to its owner only; its parent must exist. An existing
    /// directory is taken if it is empty. The store can be opened once the engine has put `config`.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the directory is not empty.
    pub fn create(path: impl AsRef<Path>) -> Result<LocalStore> {
        let path = path.as_ref();
        let directory = path.display().to_string();
        let disk = SystemDisk::create(path).context(|| format!("creating '{directory}'"))?;
        if !disk.is_fresh().context(|| format!("reading '{directory}'"))? {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("'{directory}' is not empty; a store needs an empty or a new directory"),
            ));
        }
        Ok(LocalStore(objects(disk, directory, true)))
    }

    /// How many files it keeps open at the most, beside those of requests that are under way.
    #[must_use]
    pub fn open_files_max(&self) -> usize {
        self.0.open_files_max()
    }

    /// Opens a store for reading and writing.
    ///
    /// # Errors
    ///
    /// `NoStore` if the directory or the object `config` in it is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<LocalStore> {
        Self::open_as(path.as_ref(), true)
    }

    /// Opens a store for reading; every write is refused with `ReadOnly`.
    ///
    /// # Errors
    ///
    /// As for [`LocalStore::open`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<LocalStore> {
        Self::open_as(path.as_ref(), false)
    }

    fn open_as(path: &Path, writable: bool) -> Result<LocalStore> {
        let directory = path.display().to_string();
        let missing = |what: &str| Error::new(ErrorKind::NoStore, format!("'{directory}' {what}"));
        let disk = SystemDisk::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing("does not exist"),
            io::ErrorKind::NotADirectory => missing("is not a directory"),
            _ => of_the_device(Error::io(format!("opening '{directory}'"), error)),
        })?;
        let size = match disk.size(CONFIG) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.size(CONFIG_COPY),
            other => other,
        };
        match size {
            Ok(_) => Ok(LocalStore(objects(disk, directory, writable))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(missing("holds no store: the file 'config' is missing"))
            }
            Err(error) => {
                let what = format!("reading 'config' in '{directory}'");
                Err(of_the_device(Error::io(what, error)))
            }
        }
    }

    /// Removes the temporary files whose writers are gone; says how many.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn remove_stale_temporaries(&self) -> Result<usize> {
        self.0.remove_stale_temporaries()
    }

    /// Sees to it that `size_bytes` are set aside for the day the device is full.
    ///
    /// # Errors
    ///
    /// `NoSpace` if there is no such room left.
    pub fn ensure_reserve(&self, size_bytes: u64) -> Result<()> {
        self.0.ensure_reserve(size_bytes)
    }

    /// How many bytes are set aside.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn reserve_bytes(&self) -> Result<u64> {
        self.0.reserve_bytes()
    }

    /// Gives all but `size_bytes` of the room set aside back to the device; `Ok` if there is no
    /// more than that.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn shrink_reserve(&self, size_bytes: u64) -> Result<()> {
        self.0.shrink_reserve(size_bytes)
    }

    /// Has everything refused from now on that would leave less of the device than so many bytes.
    pub fn leave_free(&self, bytes: u64) {
        self.0.left_free.store(bytes, Ordering::Relaxed);
    }

    /// Files that can still be made, room apart; `u64::MAX` where the device does not tell.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn names_left(&self) -> Result<u64> {
        self.0.names_left()
    }

    /// Bytes of the whole device.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn device_bytes(&self) -> Result<u64> {
        self.0.room().map(|(_, total)| total)
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl Blobs for LocalStore {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.0.put(key, bytes)
    }

    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        self.0.put_pieces(key, next)
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.0.get(key)
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.0.get_range(key, offset, buffer)
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.0.get_tail(key, length_bytes)
    }

    fn size(&self, key: &Key) -> Result<u64> {
        self.0.size(key)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.0.list(prefix, each)
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.0.list_names(prefix, each)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.0.delete(key)
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.0.settle(prefix)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.0.room().map(|(free, _)| Some(free))
    }

    fn let_go(&self) {
        self.0.let_go();
    }
}

impl Decisions for LocalStore {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.0.decide(key, value)
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.0.decided(key)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.0.list_names(prefix, each)
    }
}

impl Store for LocalStore {
    fn describe(&self) -> String {
        format!("directory '{}'", self.0.directory())
    }
}
