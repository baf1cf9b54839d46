//! Who has put what: a log beside each store.
//!
//! # Layout
//! `DIR.puts` has a line for each object: nanoseconds since 1970, the client and the key, with a
//! space between. Of several lines about one key the last one counts: those before it are of puts
//! that failed.
//!
//! # Invariants
//! - The line is written before the object can be seen. It is not synced: after a power loss the
//!   last lines may be missing, and nobody is known to have put those objects.
//! - Who has announced a session is known for as long as it is announced.

use onefold_format::layout::{self, Kind};
use onefold_store::{Blobs as _, Key, LocalStore};
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result, SessionId};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// An object and who has put it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// When, in nanoseconds since 1970 by the server's clock.
    pub time_ns: i64,
    /// The client.
    pub client: String,
    /// The object.
    pub key: String,
}

/// The log of one store.
pub struct Puts {
    file: Mutex<File>,
    /// Who has announced sessions that are announced still.
    announced: Mutex<BTreeMap<SessionId, String>>,
}

impl Puts {
    /// Opens the log beside a store's directory.
    pub fn open(directory: &Path, store: &LocalStore) -> Result<Self> {
        let path = path_of(directory);
        let what = || format!("opening '{}'", path.display());
        let file = File::options().append(true).create(true).mode(0o600).open(&path);
        let mut announced = BTreeMap::new();
        read(directory, &mut |put| {
            if let Some(Kind::Announced(session)) = Kind::of(&put.key) {
                announced.insert(session, put.client);
            }
        })?;
        announced.retain(|session, _| is_announced(store, *session));
        Ok(Self { file: file.context(what)?.into(), announced: announced.into() })
    }

    /// Notes that a client is about to put an object.
    pub fn note(&self, client: &str, key: &Key) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let line = format!("{now} {client} {key}\n");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match file.write_all(line.as_bytes()).context(|| "noting who puts it") {
            // A full device is told by the object, which may be what frees some room.
            Err(error) if error.kind() == ErrorKind::NoSpace => {}
            written => written?,
        }
        if let Some(Kind::Announced(session)) = Kind::of(key.as_str()) {
            self.announced().insert(session, client.to_owned());
        }
        Ok(())
    }

    /// An object is deleted.
    pub fn forget(&self, key: &Key) {
        if let Some(Kind::Announced(session)) = Kind::of(key.as_str()) {
            self.announced().remove(&session);
        }
    }

    /// Whether a session is announced, and by nobody else than this client as far as is known.
    pub fn is_own(&self, store: &LocalStore, client: &str, session: SessionId) -> bool {
        match self.announced().get(&session) {
            Some(owner) => owner == client,
            None => is_announced(store, session),
        }
    }

    fn announced(&self) -> MutexGuard<'_, BTreeMap<SessionId, String>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the log of the store in a directory lies.
fn path_of(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".puts");
    name.into()
}

fn is_announced(store: &LocalStore, session: SessionId) -> bool {
    let key = Key::new(layout::session_announced(session));
    key.is_ok_and(|key| store.size(&key).is_ok())
}

/// Reads what the log of the store in a directory says. What is no whole line says nothing.
pub fn read(directory: &Path, each: &mut dyn FnMut(Put)) -> Result<()> {
    let path = path_of(directory);
    let failed = |cause| Error::io(format!("reading '{}'", path.display()), cause);
    let file = match File::open(&path) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => BufReader::new(file.map_err(failed)?),
    };
    for line in file.lines() {
        let line = line.map_err(failed)?;
        if let [time, client, key] = line.split(' ').collect::<Vec<_>>()[..]
            && let Ok(time_ns) = time.parse()
        {
            each(Put { time_ns, client: client.to_owned(), key: key.to_owned() });
        }
    }
    Ok(())
}
