//! The log beside each store: which client has put which object.
//!
//! # Layout
//! `DIR.puts` has a line for each object: nanoseconds since 1970, the client and the key, with a
//! space between. The last line about a key counts; earlier ones are of puts that failed. A line
//! feed begins each line, so a line that was cut short spoils no other one.
//!
//! # Invariants
//! - The server writes the line before the object can be seen. It does not sync the log: after a
//!   power loss the last lines may be missing.
//! - The server knows which client has announced a session for as long as the session is announced.

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

/// The log of one store.
pub struct Puts {
    file: Mutex<File>,
    /// The client that has announced each session that is announced still.
    announced: Mutex<BTreeMap<SessionId, String>>,
}

impl Puts {
    /// Opens the log beside a store's directory.
    pub fn open(directory: &Path, store: &LocalStore) -> Result<Self> {
        let path = path_of(directory);
        let what = || format!("opening '{}'", path.display());
        let file = File::options().append(true).create(true).mode(0o600).open(&path);
        let file = file.context(what)?;
        let mut announced = BTreeMap::new();
        read(&path, &mut |client, key| {
            if let Some(Kind::Announced(session)) = Kind::of(key) {
                announced.insert(session, client.to_owned());
            }
        })?;
        announced.retain(|session, _| is_there(store, layout::session_announced(*session)));
        Ok(Self { file: file.into(), announced: announced.into() })
    }

    /// Notes that a client is about to put an object.
    pub fn note(&self, client: &str, key: &Key) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let line = format!("\n{now} {client} {key}");
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

    /// Whether a session is announced or decided, and no other client is known to have announced it.
    /// What is decided stays, and a client that was fenced has to learn it.
    pub fn is_own(&self, store: &LocalStore, client: &str, session: SessionId) -> bool {
        match self.announced().get(&session) {
            Some(owner) => owner == client,
            None => {
                is_there(store, layout::session_announced(session))
                    || is_there(store, layout::outcome(session))
            }
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

fn is_there(store: &LocalStore, name: String) -> bool {
    Key::new(name).is_ok_and(|key| store.size(&key).is_ok())
}

/// Reads a log: calls `each` with the client and the key of each whole line.
fn read(path: &Path, each: &mut dyn FnMut(&str, &str)) -> Result<()> {
    let failed = |cause| Error::io(format!("reading '{}'", path.display()), cause);
    for line in BufReader::new(File::open(path).map_err(failed)?).split(b'\n') {
        let line = line.map_err(failed)?;
        if let [_, client, key] = String::from_utf8_lossy(&line).split(' ').collect::<Vec<_>>()[..]
        {
            each(client, key);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r150_a_session_is_of_who_announced_it_also_after_a_torn_line_and_a_new_start() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        let store = LocalStore::create(&directory).unwrap();
        let (one, other) = (SessionId([1; 16]), SessionId([2; 16]));
        let announce = |session, client: Option<&str>| {
            let key = Key::new(layout::session_announced(session)).unwrap();
            if let Some(client) = client {
                Puts::open(&directory, &store).unwrap().note(client, &key).unwrap();
            }
            store.put(&key, b"x").unwrap();
        };
        announce(one, Some("mine"));
        let mut log = File::options().append(true).open(path_of(&directory)).unwrap();
        log.write_all(b"\n1 theirs sessions/\xff").unwrap();
        // Nobody knows whose the other one is: its line was lost.
        announce(other, None);
        let puts = Puts::open(&directory, &store).unwrap();
        let key = Key::new(layout::tombstone(one)).unwrap();
        puts.note("mine", &key).unwrap();
        let is_own = |client, session| puts.is_own(&store, client, session);
        assert!(is_own("mine", one) && !is_own("theirs", one));
        assert!(is_own("mine", other) && is_own("theirs", other));
        assert!(!is_own("mine", SessionId([3; 16])), "it is not announced");
        // It was fenced, and what announced it is gone.
        store.put(&Key::new(layout::outcome(one)).unwrap(), b"x").unwrap();
        puts.forget(&Key::new(layout::session_announced(one)).unwrap());
        assert!(puts.is_own(&store, "mine", one));
        let mut last = String::new();
        read(&path_of(&directory), &mut |_, key| key.clone_into(&mut last)).unwrap();
        assert_eq!(last, key.as_str());
    }
}
