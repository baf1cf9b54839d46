//! Making durable what can be seen: of whole directories, and of decisions.
//!
//! Directories that another process removes are not an end: what is below the others is settled all
//! the same, and the directory above is synced again, so that the absence is durable too. One that
//! was made again by then is settled like the rest.
//!
//! Invariants: success means that every directory that was there, and stayed, was synced; a key
//! among the settled decisions has a durable entry.

use super::disk::{Disk, EntryKind};
use super::objects::{NAMING_ATTEMPTS, Objects, SETTLED_MAX, lock};
use crate::{Key, key};
use onefold_types::{ErrorKind, Result};
use std::io;

impl<D: Disk> Objects<D> {
    /// Syncs every directory below `prefix`, and those above it.
    pub(super) fn settle(&self, prefix: &str) -> Result<()> {
        key::check_prefix(prefix)?;
        self.sync_all(prefix).map_err(|cause| {
            let error = self.error("syncing", prefix, cause);
            // No caller may take it for an absence.
            if error.kind() == ErrorKind::NotFound { error.with_kind(ErrorKind::Io) } else { error }
        })
    }

    fn sync_all(&self, prefix: &str) -> io::Result<()> {
        for _ in 0..NAMING_ATTEMPTS {
            let settled = match self.sync_down_to(prefix)? {
                Some(directory) => self.sync_below(prefix, &directory),
                // Its absence is durable now.
                None if self.disk.is_absent(prefix)? => return Ok(()),
                None => continue,
            };
            match settled {
                // Removed meanwhile, as its absence or its successor will show.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => return result,
            }
        }
        Err(vanishing())
    }

    /// Syncs everything below a directory that is open; `ENOENT` if it was removed.
    fn sync_below(&self, path: &str, directory: &D::Directory) -> io::Result<()> {
        let mut names = self.subdirectories(path, usize::MAX)?;
        names.retain(|name| key::check_prefix(&key::join(path, name)).is_ok());
        for _ in 0..NAMING_ATTEMPTS {
            let mut vanished = Vec::new();
            for name in names {
                match self.sync_tree(directory, path, &name) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => vanished.push(name),
                    result => result?,
                }
            }
            if vanished.is_empty() {
                return Ok(());
            }
            // Looked for before the sync, so that either it settles the absence, or the next turn
            // opens what was made again.
            names = Vec::new();
            for name in vanished {
                if !self.disk.is_absent(&key::join(path, &name))? {
                    names.push(name);
                }
            }
            self.sync_directory(directory)?;
            if self.disk.is_absent(path)? {
                break;
            }
        }
        // It is this directory that was removed, or made again.
        Err(io::ErrorKind::NotFound.into())
    }

    fn sync_tree(&self, above: &D::Directory, path: &str, name: &str) -> io::Result<()> {
        let open = self.disk.open_directory(above, name)?;
        self.sync_directory(&open)?;
        self.sync_below(&key::join(path, name), &open)
    }

    /// One sync settles all decisions of the directory that can be seen before it.
    pub(super) fn settle_decision(&self, key: &Key) -> Result<()> {
        if lock(&self.settled).contains(key.as_str()) {
            return Ok(());
        }
        let (path, _) = key.split();
        let mut names = vec![key.as_str().to_owned()];
        let mut settle = || -> io::Result<()> {
            self.disk.entries(path, &mut |name, kind| {
                if kind == EntryKind::File {
                    names.push(key::join(path, name));
                }
                names.len() < SETTLED_MAX
            })?;
            self.sync_down_to(path)?.map(drop).ok_or_else(vanishing)
        };
        settle().map_err(|error| self.error("syncing", key.as_str(), error))?;
        self.remember_settled(names);
        Ok(())
    }

    pub(super) fn remember_settled(&self, names: impl IntoIterator<Item = String>) {
        let mut settled = lock(&self.settled);
        if settled.len() >= SETTLED_MAX {
            settled.clear();
        }
        settled.extend(names);
    }

    /// Syncs the directory `path` and all above it; `None` if one of them is missing, and then the
    /// one above that was synced. They are opened anew: a cached one may have been replaced by
    /// another process.
    fn sync_down_to(&self, path: &str) -> io::Result<Option<D::Directory>> {
        let mut directory = self.disk.root()?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let next = match self.disk.open_directory(&directory, name) {
                Ok(next) => Some(next),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            self.sync_directory(&directory)?;
            let Some(next) = next else { return Ok(None) };
            directory = next;
        }
        self.sync_directory(&directory)?;
        Ok(Some(directory))
    }

    pub(super) fn subdirectories(&self, path: &str, most: usize) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        self.disk.entries(path, &mut |name, kind| {
            if kind == EntryKind::Directory {
                names.push(name.to_owned());
            }
            names.len() < most
        })?;
        Ok(names)
    }
}

/// Not of the kind that stands for an absence.
fn vanishing() -> io::Error {
    io::Error::other("directories vanish again and again while they are synced")
}
