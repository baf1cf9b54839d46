//! The one place where a store is opened or made, wherever it lives.
//!
//! A directory has what only a device of one's own can have: temporary files of processes that are
//! gone, and room set aside for the day when it is full. A bucket, and a directory that an SFTP
//! server reaches, have to be seen to keep decisions before anything is written into them; but for
//! a bucket beside which a database decides. Whoever only reads a store does not ask that.

use crate::context::Access;
use crate::password;
use crate::reserve;
use onefold_database::{Database, DatabaseLocation, Settings};
use onefold_engine::Interrupt;
use onefold_remote::conditional::Proof;
use onefold_remote::{
    BucketLocation, BucketStore, Location, Patience, ReadAhead, ServedNotices, SftpLocation,
    SftpStore, Surroundings,
};
use onefold_store::{Arbitrated, LocalStore, Store};
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::Access as AccessMode;
use std::path::Path;
use std::sync::Arc;

/// A store that was opened.
pub enum OpenedStore {
    /// In a directory.
    Local(Arc<LocalStore>),
    /// In a bucket, and what decides in its place.
    Bucket(Arc<ReadAhead<BucketStore>>, Option<Arc<Database>>),
    /// In a directory of another machine.
    Sftp(Arc<ReadAhead<SftpStore>>),
}

/// How stores elsewhere are reached.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// What is started to talk to an SFTP server, if it is not ssh.
    pub sftp_command: Option<&'a str>,
    /// What is kept of what was read ahead.
    pub read_ahead_bytes: usize,
    /// What ends requests.
    pub interrupt: &'a Interrupt,
    /// Whether it is the second store of a command, with a token of its own.
    pub is_second: bool,
}

impl Means<'_> {
    fn sftp(&self, place: &SftpLocation) -> Result<SftpStore> {
        let store = SftpStore::connect(place, self.sftp_command, Patience::USUAL)?;
        Ok(store.stopped_by(self.interrupt.clone()))
    }

    /// One command leads to one server, whatever the stores are called.
    pub fn refuse_one_command_for(&self, from: &Location, to: &Location) -> Result<()> {
        let is_same = |a: &SftpLocation, b: &SftpLocation| {
            (&a.user, &a.host, a.port) == (&b.user, &b.host, b.port)
        };
        match (from, to, self.sftp_command) {
            (Location::Sftp(one), Location::Sftp(other), Some(_)) if !is_same(one, other) => {
                Err(Error::invalid(
                    "the command that leads to the SFTP server is one for both stores, which are \
                     on two machines: leave it out, and say in ~/.ssh/config how each is reached",
                ))
            }
            _ => Ok(()),
        }
    }
}

impl OpenedStore {
    /// Opens one; nothing is written through it if `reads_only`. Requests to a store elsewhere end
    /// with the interrupt of `means`.
    pub fn open(
        location: &Location,
        access: Access,
        reads_only: bool,
        means: &Means<'_>,
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
                let mut store = connect(bucket, means)?.stopped_by(means.interrupt.clone());
                if reads_only {
                    store = store.reading_only();
                }
                let named = bucket.database.as_deref();
                if named.is_some() {
                    store = store.deciding_nothing();
                } else if access == Access::Write {
                    store.prove(Proof::Again)?;
                }
                // Whoever reads asks no database.
                let asked = named.filter(|_| access == Access::Write);
                let database = asked.map(|name| connect_database(name, means)).transpose()?;
                let database = database.map(Arc::new);
                let store = ReadAhead::new(store, means.read_ahead_bytes);
                return Ok(Self::Bucket(Arc::new(store), database));
            }
            Location::Sftp(place) => {
                let mut store = means.sftp(place)?;
                if reads_only {
                    store = store.reading_only();
                }
                if access == Access::Write {
                    // Nothing is tried in a directory that is no store.
                    store.open()?;
                    store.prove()?;
                }
                let store = ReadAhead::new(store, means.read_ahead_bytes);
                return Ok(Self::Sftp(Arc::new(store)));
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
    pub fn create(location: &Location, means: &Means<'_>) -> Result<Self> {
        match location {
            Location::Directory(path) => {
                make_parents(path)?;
                Ok(Self::Local(Arc::new(LocalStore::create(path)?)))
            }
            Location::Bucket(bucket) => {
                let store = connect(bucket, means)?;
                let Some(name) = &bucket.database else {
                    store.claim()?;
                    return Ok(Self::Bucket(Arc::new(ReadAhead::new(store, 0)), None));
                };
                let database = Arc::new(connect_database(name, means)?);
                store.claim_place()?;
                let store = ReadAhead::new(store.deciding_nothing(), 0);
                Ok(Self::Bucket(Arc::new(store), Some(database)))
            }
            Location::Sftp(place) => {
                let store = means.sftp(place)?;
                store.claim()?;
                Ok(Self::Sftp(Arc::new(ReadAhead::new(store, 0))))
            }
        }
    }

    /// What the engine talks to.
    pub fn port(&self) -> Arc<dyn Store> {
        match self {
            Self::Local(store) => Arc::clone(store) as _,
            Self::Bucket(store, None) => Arc::clone(store) as _,
            Self::Bucket(store, Some(database)) => {
                let database = Arc::clone(database) as _;
                Arc::new(Arbitrated::new(Arc::clone(store), database))
            }
            Self::Sftp(store) => Arc::clone(store) as _,
        }
    }

    /// The database beside it, if it is asked.
    pub fn database(&self) -> Option<&Arc<Database>> {
        match self {
            Self::Bucket(_, database) => database.as_ref(),
            Self::Local(_) | Self::Sftp(_) => None,
        }
    }

    /// A server through which machines tell each other what they store.
    pub fn notices(&self) -> Option<ServedNotices> {
        match self {
            Self::Bucket(store, None) if store.inner().has_notices() => {
                Some(ServedNotices::of(Arc::clone(store)))
            }
            Self::Bucket(..) | Self::Local(_) | Self::Sftp(_) => None,
        }
    }

    /// Takes away what processes that are gone have left, and sets room aside. Neither keeps a
    /// command from its work: a device may be too full for a reserve.
    pub fn prepare(&self, container_bytes: usize) {
        match self {
            Self::Local(store) => {
                let _ = store.remove_stale_temporaries();
                let _ = reserve::fill(store, container_bytes);
            }
            Self::Bucket(..) => {}
            Self::Sftp(store) => {
                let _ = store.inner().remove_stale_temporaries();
            }
        }
    }
}

/// A command that gives credentials is told the password no more than any other.
fn connect(bucket: &BucketLocation, means: &Means<'_>) -> Result<BucketStore> {
    let secret = password::SECRETS.map(str::to_owned).into();
    let around = Surroundings { secret, ..Surroundings::of_process() };
    let around = if means.is_second { around.of_second() } else { around };
    BucketStore::connect(bucket, &around, Patience::USUAL)
}

/// A database, by its name; nothing is asked yet.
pub fn connect_database(name: &str, means: &Means<'_>) -> Result<Database> {
    let location = DatabaseLocation::parse(name)?;
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let home = std::env::home_dir();
    let settings = Settings::find(&location, &variable, home.as_deref())?;
    Ok(Database::new(&location, settings)?.stopped_by(means.interrupt.clone()))
}

fn make_parents(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            std::fs::create_dir_all(parent).context(|| format!("creating '{}'", parent.display()))
        }
        _ => Ok(()),
    }
}
