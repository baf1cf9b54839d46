//! A store in a directory of another machine, which its SFTP server reaches.
//!
//! It is the same store as one in a local directory: the same bytes under the same names, so that
//! either opens what the other has made, also at the same time.
//!
//! # How the ports are kept
//!
//! | port | requests |
//! | --- | --- |
//! | `put`, `put_pieces`, `decide` | a file `tmp/sftp-<random>` is written and made durable, then given its name by a hard link, which fails where the name is taken (`naming`) |
//! | `get`, `get_tail`, `size` | look at the name, open it, read; at most so many requests are under way ([`connection`]) |
//! | `get_range` | the same with files kept open, the last used longest |
//! | `list` | several directories at once (`listing`); the names of one are held in memory together |
//! | `delete` | remove the name, and the directory if it is deep and empty |
//! | `foresee` | what will be read, all at once and once (`foreseen`) |
//! | `settle` | directories are opened as files and made durable (`settling`) |
//!
//! # What durable means
//! Files and directories are made durable by `fsync@openssh.com`. A server without it, or one that
//! opens no directories as files, is believed: what it acknowledges counts as durable.
//!
//! # Invariants
//! Nothing is renamed over a name in use. A link that was asked for and not answered may have been
//! made: what has the name then is compared with the file. Symbolic links are refused where they
//! are seen: as the last part of a name, and in listings.
//!
//! # Concurrency
//! Any number of threads; each waits for its own requests. Nothing may be called from within an
//! asynchronous task.

pub mod cleaning;
pub mod connection;
pub mod dial;
mod failure;
mod foreseen;
mod kind;
mod listing;
mod naming;
mod pool;
mod proof;
mod reading;
mod settling;

pub use pool::CONNECTIONS_MAX;

use crate::foreseen::Foreseen;
use crate::location::SftpLocation;
use crate::patience::Patience;
use crate::stopping::{Effect, Stopping};
use connection::{Fault, Opened};
use dial::{Dial, Program};
use lru::LruCache;
use naming::Put;
use onefold_engine::Interrupt;
use onefold_store::{Asked, Blobs, Decisions, Key, Listed, OBJECT_MAX_BYTES, Store};
use onefold_types::{Error, ErrorKind, Result};
use pool::Pool;
use reading::Whole;
use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Builder, Runtime};

/// Files kept open for ranges.
const FILES_MAX: NonZeroUsize = NonZeroUsize::new(24).expect("not zero");
/// Threads that wait for the network.
const WORKERS: usize = 2;
/// Where files are written before they are named.
const TEMPORARY_DIRECTORY: &str = "tmp";

/// An object that is open.
struct OpenObject {
    file: Opened,
    size_bytes: u64,
}

/// A store that an SFTP server reaches; see the module.
pub struct SftpStore {
    pool: Pool,
    root: String,
    name: String,
    is_read_only: bool,
    /// Whether it was opened for writing: then a refusal to make something durable is an error.
    is_proved: AtomicBool,
    /// Set once a directory could not be made durable.
    sync_failed: AtomicBool,
    files: Mutex<LruCache<Key, Arc<OpenObject>>>,
    /// Counts deletions, so that a file opened before one is not kept after it.
    deletions: AtomicU64,
    settled: Mutex<HashSet<String>>,
    /// Directories that were asked for.
    directories: Mutex<HashSet<String>>,
    stopping: Stopping,
    foreseen: Foreseen<foreseen::Listed>,
    runtime: Runtime,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SftpStore {
    /// The store at a place, reached by ssh or by another command ([`Program::to`]). Nothing is
    /// asked yet: whoever opens it calls [`SftpStore::open`], for a new one [`SftpStore::claim`].
    ///
    /// # Errors
    ///
    /// `Invalid` for a command without words.
    pub fn connect(
        place: &SftpLocation,
        command: Option<&str>,
        patience: Patience,
    ) -> Result<Self> {
        let program = Program::to(place, command, patience.connect)?;
        Self::over(Box::new(program), &place.to_string(), &place.path, patience)
    }

    /// The store behind whatever leads to a server; for tests.
    ///
    /// # Errors
    ///
    /// There are no threads to be had.
    pub fn over(dial: Box<dyn Dial>, name: &str, root: &str, patience: Patience) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("onefold-network")
            .enable_all()
            .build()
            .map_err(|cause| Error::io("starting threads for the network", cause))?;
        Ok(Self {
            pool: Pool::new(dial, name, root, patience),
            root: root.to_owned(),
            name: name.to_owned(),
            is_read_only: false,
            is_proved: AtomicBool::new(false),
            sync_failed: AtomicBool::new(false),
            files: Mutex::new(LruCache::new(FILES_MAX)),
            deletions: AtomicU64::new(0),
            settled: Mutex::default(),
            directories: Mutex::default(),
            stopping: Stopping::default(),
            foreseen: Foreseen::default(),
            runtime,
        })
    }

    /// The same, which ends what it waits for once this is requested ([`crate::stopping`]).
    #[must_use]
    pub fn stopped_by(mut self, interrupt: Interrupt) -> Self {
        self.stopping = Stopping::by(interrupt);
        self
    }

    /// The same, for reading only: nothing is written, whatever the server would allow.
    #[must_use]
    pub fn reading_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Makes sure that a store is there.
    ///
    /// # Errors
    ///
    /// `NoStore` if there is none; those of the connection.
    pub fn open(&self) -> Result<()> {
        let there = self.wait("looking for a store", Effect::Read, async |connection| {
            let at = |name: &str| self.at(name);
            let (config, copy) = (at("config"), at("config.copy"));
            let both = futures_util::future::join(
                connection.is_absent(&config),
                connection.is_absent(&copy),
            );
            let (config, copy) = both.await;
            Ok(!config? || !copy?)
        })?;
        match there {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::NoStore,
                format!("'{}' holds no store: the file 'config' is missing", self.name),
            )),
        }
    }

    /// Sees for itself that a name that is taken is never replaced: with one request, or with all
    /// that is done for a new store if nobody has tried here yet.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is replaced, and those of the server.
    pub fn prove(&self) -> Result<()> {
        self.refuse_writing()?;
        self.prove_again()?;
        self.is_proved.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Makes the directory, and sees that nothing is in it and that a store can be.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if something is there; those of [`SftpStore::prove`].
    pub fn claim(&self) -> Result<()> {
        self.refuse_writing()?;
        self.make_root()?;
        let own = [TEMPORARY_DIRECTORY, "reserve", "lost+found"];
        let names = self.names_in("")?.unwrap_or_default();
        if let Some(found) = names.iter().find(|entry| !own.contains(&entry.name.as_str())) {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!(
                    "'{}' is not empty (there is '{}'); a store needs an empty or a new directory",
                    self.name,
                    found.name.escape_default()
                ),
            ));
        }
        self.prove_first()?;
        self.is_proved.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn wait<T>(
        &self,
        what: &str,
        effect: Effect,
        work: impl AsyncFnMut(&Arc<connection::Connection>) -> connection::Done<T>,
    ) -> Result<T> {
        let work = self.pool.run(what, effect, work);
        let done = self.runtime.block_on(self.stopping.unless_stopped(effect, work));
        done.unwrap_or_else(|| Err(Error::new(ErrorKind::Interrupted, "interrupted")))
    }

    /// Where a name of the store is.
    fn at(&self, name: &str) -> String {
        at(&self.root, name)
    }

    fn refuse_writing(&self) -> Result<()> {
        if self.is_read_only {
            let said = format!("{} was opened for reading only", self.name);
            return Err(Error::new(ErrorKind::ReadOnly, said));
        }
        if self.sync_failed.load(Ordering::SeqCst) {
            let said = "an earlier sync of the store failed; check its device and start again";
            return Err(Error::new(ErrorKind::Io, format!("{}: {said}", self.name)));
        }
        Ok(())
    }

    fn absent(&self, key: &Key) -> Error {
        Error::new(ErrorKind::NotFound, format!("there is no '{key}' in {}", self.name))
    }

    /// A server's refusal, which may be that there is no room.
    fn explained(&self, error: Error, bytes: u64) -> Error {
        if error.kind() != ErrorKind::Io {
            return error;
        }
        match self.free_bytes() {
            Ok(Some(free)) if free < bytes.max(1) => error
                .context("no room is left on the server's device")
                .with_kind(ErrorKind::NoSpace),
            _ => error,
        }
    }
}

impl Drop for SftpStore {
    fn drop(&mut self) {
        self.foreseen.clear();
        lock(&self.files).clear();
        self.pool.close();
    }
}

impl fmt::Debug for SftpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Where a name of the store is whose directory is this.
fn at(root: &str, name: &str) -> String {
    match (name, root) {
        ("", root) => root.to_owned(),
        (name, ".") => name.to_owned(),
        (name, root) => format!("{root}/{name}"),
    }
}

fn too_large(key: &Key, bytes: u64) -> Error {
    let said =
        format!("'{key}' of {bytes} bytes: objects of at most {OBJECT_MAX_BYTES} are put or read");
    Error::new(ErrorKind::LimitExceeded, said)
}

fn taken(key: &Key) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("'{key}' exists already"))
}

impl Blobs for SftpStore {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.foreseen.forget_about(key);
        match self.put_new(key, bytes)? {
            Put::Made => Ok(()),
            Put::Taken => Err(taken(key)),
        }
    }

    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        self.foreseen.forget_about(key);
        match self.put_in_parts(key, next)? {
            Put::Made => Ok(()),
            Put::Taken => Err(taken(key)),
        }
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        if let Some(found) = self.foreseen_object(key, None) {
            return found.map(|found| found.bytes.into()).ok_or_else(|| self.absent(key));
        }
        match self.whole(key)? {
            Whole::Bytes(bytes) => Ok(bytes),
            Whole::Absent | Whole::Foreign => Err(self.absent(key)),
        }
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let wanted = buffer.len();
        let end = offset.checked_add(wanted as u64);
        let (read, size) = self.read_range(key, offset, buffer)?;
        if read == wanted && end.is_some_and(|end| end <= size) {
            return Ok(());
        }
        let said = format!(
            "'{key}' in {} has {size} bytes; {wanted} from {offset} on were wanted",
            self.name
        );
        Err(Error::damaged(said))
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        match self.foreseen_object(key, Some(length_bytes)) {
            Some(Some(found)) => Ok((found.size, found.bytes.into())),
            Some(None) => Err(self.absent(key)),
            None => self.tail(key, length_bytes),
        }
    }

    fn size(&self, key: &Key) -> Result<u64> {
        self.size_of(key)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.walk(prefix, true, &mut |key, size| {
            let size_bytes = match size {
                Some(size) => size,
                None => match self.size_of(&key) {
                    Ok(size) => size,
                    // Deleted since its name was read.
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                    Err(error) => return Err(error),
                },
            };
            each(Listed { key, size_bytes })
        })
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.walk(prefix, false, &mut |key, _| each(key.as_str()))
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.foreseen.forget_about(key);
        self.remove(key)
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.settle_below(prefix)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.wait("asking for room", Effect::Read, async |connection| {
            if !connection.can.room {
                return Ok(None);
            }
            let room = connection.ask(connection.session.statvfs(self.root.as_str())).await;
            match room {
                Ok(room) => Ok(Some(room.blocks_avail.saturating_mul(room.fragment_size))),
                Err(Fault::Refused(..)) => Ok(None),
                Err(fault) => Err(fault),
            }
        })
    }

    fn let_go(&self) {
        lock(&self.files).clear();
    }

    fn puts_at_once(&self) -> usize {
        CONNECTIONS_MAX
    }

    fn foresee(&self, next: Vec<Asked>) -> u64 {
        self.begin_foreseen(next)
    }

    fn forget_foreseen(&self, number: u64) {
        self.foreseen.forget(number);
    }
}

impl Decisions for SftpStore {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.refuse_writing()?;
        self.foreseen.forget_about(key);
        if let Some(winner) = self.decided(key)? {
            return Ok(winner);
        }
        match self.put_new(key, value)? {
            Put::Made => {
                self.remember_settled([key.as_str().to_owned()]);
                Ok(value.to_vec())
            }
            Put::Taken => self.decided(key)?.ok_or_else(|| self.absent(key)),
        }
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        let found = match self.foreseen_object(key, None) {
            Some(Some(found)) => Whole::Bytes(found.bytes.into()),
            Some(None) => Whole::Absent,
            None => self.whole(key)?,
        };
        match found {
            Whole::Bytes(value) => {
                self.settle_decision(key)?;
                Ok(Some(value))
            }
            Whole::Absent => Ok(None),
            // Decided, and nobody knows what.
            Whole::Foreign => Err(Error::new(
                ErrorKind::Io,
                format!(
                    "'{key}' in {} leads to no object, so nothing can be decided there: it was not \
                     put by onefold, and has to be removed",
                    self.name
                ),
            )),
        }
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.list_names(prefix, each)
    }
}

impl Store for SftpStore {
    fn describe(&self) -> String {
        self.name.clone()
    }
}
