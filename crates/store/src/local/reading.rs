//! Reading and listing objects.
//!
//! Invariants: the cache of open files holds no file that this process deleted. A file another
//! process deleted may stay in it, which is why only `get_range` uses it. A listing is whole or
//! fails: nothing but an entry that is absent is passed over, and a directory counts as empty only
//! if nothing has its name.

use super::disk::{Disk, EntryKind};
use super::objects::{Objects, is_absence, lock, of_the_device};
use crate::{Key, Listed, OBJECT_MAX_BYTES, key};
use onefold_types::{Error, ErrorKind, Result};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a directory may be found missing and made again while it is listed.
const LISTING_ATTEMPTS: usize = 16;

/// An open object; immutable, so its size is too.
pub(super) struct Handle<D: Disk> {
    file: D::File,
    size_bytes: u64,
}

impl<D: Disk> Objects<D> {
    pub(super) fn get(&self, key: &Key) -> Result<Vec<u8>> {
        let (file, size_bytes) =
            self.disk.open(key.as_str()).map_err(|error| self.read_error(key, error))?;
        let mut bytes = vec![0; refuse_excess(key, size_bytes)?];
        self.read_exact(key, &file, 0, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let cached = lock(&self.handles).get(key).map(Arc::clone);
        let handle = match cached {
            Some(handle) => handle,
            None => self.open_cached(key)?,
        };
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > handle.size_bytes) {
            return Err(Error::damaged(format!(
                "'{key}' has {} bytes; {} from {offset} on were wanted",
                handle.size_bytes,
                buffer.len()
            )));
        }
        self.read_exact(key, &handle.file, offset, buffer)
    }

    /// Closes what is kept open and was deleted, by other processes too.
    pub(super) fn let_go(&self) {
        let kept: Vec<Key> = lock(&self.handles).iter().map(|(key, _)| key.clone()).collect();
        for key in kept {
            if self.disk.is_absent(key.as_str()).is_ok_and(|gone| gone) {
                lock(&self.handles).pop(&key);
            }
        }
    }

    pub(super) fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let handle = self.open_cached(key)?;
        let wanted = handle.size_bytes.min(length_bytes as u64);
        let mut bytes = vec![0; refuse_excess(key, wanted)?];
        self.read_exact(key, &handle.file, handle.size_bytes - wanted, &mut bytes)?;
        Ok((handle.size_bytes, bytes))
    }

    pub(super) fn size(&self, key: &Key) -> Result<u64> {
        self.disk.size(key.as_str()).map_err(|error| self.read_error(key, error))
    }

    pub(super) fn list(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(Listed) -> Result<()>,
    ) -> Result<()> {
        self.list_names(prefix, &mut |name| match self.disk.size(name) {
            Ok(size_bytes) => each(Listed { key: Key::new(name)?, size_bytes }),
            // Deleted since its name was read.
            Err(error) if self.is_gone(name, &error) => Ok(()),
            Err(error) => Err(self.listing_error(name, error)),
        })
    }

    pub(super) fn list_names(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<()> {
        key::check_prefix(prefix)?;
        self.walk(prefix, each)
    }

    fn walk(&self, path: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.walk_once(path, each)? {
                Ok(()) => return Ok(()),
                // There is no such directory, or it was removed since its name was read.
                Err(error) if self.is_gone(path, &error) => return Ok(()),
                // Made anew since; what was shown of the old one is gone.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && tries < LISTING_ATTEMPTS => {}
                Err(error) => return Err(self.listing_error(path, error)),
            }
        }
    }

    /// What `each` says ends it; the inner result is that of reading the directory itself.
    fn walk_once(
        &self,
        path: &str,
        each: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<io::Result<()>> {
        let mut stopped = Ok(());
        let mut name_buffer = String::new();
        let read = self.disk.entries(path, &mut |name, kind| {
            name_buffer.clear();
            if !path.is_empty() {
                name_buffer.push_str(path);
                name_buffer.push('/');
            }
            name_buffer.push_str(name);
            // Too deep for a key, or the store's own file: not an object.
            if key::check_prefix(&name_buffer).is_ok() {
                stopped = match kind {
                    EntryKind::File => each(&name_buffer),
                    EntryKind::Directory => self.walk(&name_buffer, each),
                };
            }
            stopped.is_ok()
        });
        stopped?;
        Ok(read)
    }

    /// Whether the error says that a name is absent, and it is.
    pub(super) fn is_gone(&self, path: &str, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::NotFound && self.disk.is_absent(path).is_ok_and(|gone| gone)
    }

    /// Never of the kind that stands for an absence.
    fn listing_error(&self, path: &str, cause: io::Error) -> Error {
        of_the_device(self.error("listing", path, cause))
    }

    /// Opens by name and keeps the file for later ranged reads.
    fn open_cached(&self, key: &Key) -> Result<Arc<Handle<D>>> {
        let deletions = self.deletions.load(Ordering::SeqCst);
        let (file, size_bytes) =
            self.disk.open(key.as_str()).map_err(|error| self.read_error(key, error))?;
        let handle = Arc::new(Handle { file, size_bytes });
        let mut handles = lock(&self.handles);
        // A deletion counts itself before it takes this lock, so none can slip in between.
        if self.deletions.load(Ordering::SeqCst) == deletions {
            handles.put(key.clone(), Arc::clone(&handle));
        }
        Ok(handle)
    }

    fn read_exact(
        &self,
        key: &Key,
        file: &D::File,
        mut offset: u64,
        mut buffer: &mut [u8],
    ) -> Result<()> {
        while !buffer.is_empty() {
            match self.disk.read_at(file, buffer, offset) {
                Ok(0) => {
                    return Err(Error::damaged(format!("'{key}' is shorter than its size says")));
                }
                Ok(count) => {
                    buffer = buffer.get_mut(count..).unwrap_or_default();
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.read_error(key, error)),
            }
        }
        Ok(())
    }

    fn read_error(&self, key: &Key, cause: io::Error) -> Error {
        let absent = is_absence(&cause);
        let error = self.error("reading", key.as_str(), cause);
        match error.kind() {
            _ if absent => error.with_kind(ErrorKind::NotFound),
            _ => error,
        }
    }
}

/// The size as a length, unless no object may be that large.
fn refuse_excess(key: &Key, size_bytes: u64) -> Result<usize> {
    match usize::try_from(size_bytes) {
        Ok(size) if size <= OBJECT_MAX_BYTES => Ok(size),
        _ => {
            let message = format!("'{key}' of {size_bytes} bytes exceeds the largest object");
            Err(Error::new(ErrorKind::LimitExceeded, message))
        }
    }
}
