//! The one place where a store is opened or made, wherever it lives.
//!
//! A directory has what only a device of one's own can have: temporary files of processes that are
//! gone, and room set aside for the day when it is full. A bucket has to be seen to keep decisions
//! before anything is written into it.

use crate::context::Access;
use crate::password;
use crate::reserve;
use onefold_engine::Interrupt;
use onefold_remote::conditional::Proof;
use onefold_remote::{BucketLocation, BucketStore, Location, Patience, ReadAhead, Surroundings};
use onefold_store::{LocalStore, Store};
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::Access as AccessMode;
use std::path::Path;
use std::sync::Arc;

/// A store that was opened.
pub enum OpenedStore {
    /// In a directory.
    Local(Arc<LocalStore>),
    /// In a bucket.
    Bucket(Arc<ReadAhead<BucketStore>>),
}

impl OpenedStore {
    /// Opens one; nothing is written through it if `reads_only`. Requests to a store elsewhere end
    /// with `interrupt`.
    pub fn open(
        location: &Location,
        access: Access,
        reads_only: bool,
        read_ahead_bytes: usize,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let refused = |why: &str| {
            let what = format!("the store '{location}' cannot be written: {why}");
            Err(Error::new(ErrorKind::ReadOnly, what))
        };
        if reads_only && access == Access::Write {
            return refused("--read-only is given");
        }
        let path = match location {
            Location::Directory(path) => path,
            Location::Bucket(bucket) => {
                let mut store = connect(bucket)?.stopped_by(interrupt.clone());
                if reads_only {
                    store = store.reading_only();
                }
                if access == Access::Write {
                    store.prove(Proof::Again)?;
                }
                return Ok(Self::Bucket(Arc::new(ReadAhead::new(store, read_ahead_bytes))));
            }
        };
        let local = match (access, rustix::fs::access(path, AccessMode::WRITE_OK)) {
            _ if reads_only => LocalStore::open_read_only(path),
            (Access::Read, Err(_)) => LocalStore::open_read_only(path),
            // Only these two speak of writing; for all others opening has the better words.
            (Access::Write, Err(rustix::io::Errno::ROFS)) => {
                return refused("it is on a file system that is mounted read-only");
            }
            (Access::Write, Err(rustix::io::Errno::ACCESS)) => return refused("permission denied"),
            _ => LocalStore::open(path),
        };
        Ok(Self::Local(Arc::new(local?)))
    }

    /// Makes the place for a new one.
    pub fn create(location: &Location) -> Result<Self> {
        match location {
            Location::Directory(path) => {
                make_parents(path)?;
                Ok(Self::Local(Arc::new(LocalStore::create(path)?)))
            }
            Location::Bucket(bucket) => {
                let store = connect(bucket)?;
                store.claim()?;
                Ok(Self::Bucket(Arc::new(ReadAhead::new(store, 0))))
            }
        }
    }

    /// What the engine talks to.
    pub fn port(&self) -> Arc<dyn Store> {
        match self {
            Self::Local(store) => Arc::clone(store) as _,
            Self::Bucket(store) => Arc::clone(store) as _,
        }
    }

    /// Takes away what processes that are gone have left, and sets room aside. Neither keeps a
    /// command from its work: a device may be too full for a reserve.
    pub fn prepare(&self, container_bytes: usize) {
        if let Self::Local(store) = self {
            let _ = store.remove_stale_temporaries();
            let _ = reserve::fill(store, container_bytes);
        }
    }
}

/// A command that gives credentials is told the password no more than any other.
fn connect(bucket: &BucketLocation) -> Result<BucketStore> {
    let secret = password::SECRETS.map(str::to_owned).into();
    let around = Surroundings { secret, ..Surroundings::of_process() };
    BucketStore::connect(bucket, &around, Patience::USUAL)
}

fn make_parents(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            std::fs::create_dir_all(parent).context(|| format!("creating '{}'", parent.display()))
        }
        _ => Ok(()),
    }
}
