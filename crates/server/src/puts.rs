//! The log beside each store: which client has put which object.
//!
//! # Layout
//! `DIR.puts` has a line for each object: nanoseconds since 1970, the client and the key, with a
//! space between. The last line about a key counts; earlier ones are of puts that failed. A line
//! feed begins each line, so a line that was cut short spoils no other one.
//!
//! # Algorithm
//! A server that starts reads the log once. One of some length, of which most is about what is gone
//! or did not come about, is written anew with the lines that count and replaced in one step. That
//! takes the memory of a short digest for each object that is there.
//!
//! # Invariants
//! - The server writes the line before the object can be seen. It does not sync the log: after a
//!   power loss the last lines may be missing.
//! - The server knows which client has announced a session for as long as the session is announced.

use crate::clients::replace_by;
use onefold_format::layout::{self, Kind};
use onefold_store::{Blobs as _, Key, LocalStore};
use onefold_types::error::Context as _;
use onefold_types::{ErrorKind, Result, SessionId};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A shorter log is left as it is.
const COMPACTED_FROM_BYTES: u64 = 4 << 20;

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
        let open = || File::options().append(true).create(true).mode(0o600).open(&path);
        if open().and_then(|file| file.metadata()).context(what)?.len() >= COMPACTED_FROM_BYTES {
            // Where that fails, on a full device for one, the log is as it was.
            let _ = compact(&path, store);
        }
        let file = open().context(what)?;
        let mut announced = BTreeMap::new();
        let mut note = |line: &Line<'_>| {
            if let Some(Kind::Announced(session)) = Kind::of(line.key)
                && is_there(store, layout::session_announced(session))
            {
                announced.insert(session, line.client.to_owned());
            }
            Ok(())
        };
        read(&path, &mut note).context(|| format!("reading '{}'", path.display()))?;
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

    /// Whether a session is announced or decided, and no other client is known to have announced
    /// it. What is decided stays, and a client that was fenced has to learn it.
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
pub fn path_of(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".puts");
    name.into()
}

fn is_there(store: &LocalStore, name: String) -> bool {
    Key::new(name).is_ok_and(|key| store.size(&key).is_ok())
}

/// A whole line of a log.
pub struct Line<'a> {
    /// Where it begins.
    at: u64,
    text: &'a str,
    /// When the put began, in nanoseconds since 1970.
    pub time_ns: i64,
    /// Who put it.
    pub client: &'a str,
    /// What was put.
    pub key: &'a str,
}

/// Reads a log: calls `each` with each whole line.
pub fn read(path: &Path, each: &mut dyn FnMut(&Line<'_>) -> io::Result<()>) -> io::Result<()> {
    let (mut from, mut at, mut bytes) = (BufReader::new(File::open(path)?), 0, Vec::new());
    loop {
        bytes.clear();
        let length = from.read_until(b'\n', &mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes));
        if let [time, client, key] = text.split(' ').collect::<Vec<_>>()[..]
            && let Ok(time_ns) = time.parse()
        {
            each(&Line { at, text: &text, time_ns, client, key })?;
        }
        at += length as u64;
    }
}

/// Writes a log anew if the lines that count are less than half of it: the last one about each
/// object that is there.
fn compact(path: &Path, store: &LocalStore) -> Result<()> {
    let digest = |key: &str| {
        let mut short = [0; 16];
        blake3::Hasher::new().update(key.as_bytes()).finalize_xof().fill(&mut short);
        short
    };
    // Where the last line about it begins, and how long it is.
    let mut last: HashMap<[u8; 16], (u64, u64)> = HashMap::new();
    store.list_names("", &mut |name| {
        last.insert(digest(name), (0, 0));
        Ok(())
    })?;
    let what = || format!("reading '{}'", path.display());
    let mut find = |line: &Line<'_>| {
        if let Some(found) = last.get_mut(&digest(line.key)) {
            *found = (line.at, line.text.len() as u64 + 1);
        }
        Ok(())
    };
    read(path, &mut find).context(what)?;
    let counting: u64 = last.values().map(|(_, length)| length).sum();
    if counting > path.metadata().context(what)?.len() / 2 {
        return Ok(());
    }
    let write = |file: &mut File| {
        let mut to = BufWriter::new(file);
        read(path, &mut |line| match last.get(&digest(line.key)) {
            Some((at, length)) if (*at, *length > 0) == (line.at, true) => {
                to.write_all(b"\n")?;
                to.write_all(line.text.as_bytes())
            }
            _ => Ok(()),
        })?;
        to.flush()
    };
    replace_by(path, write).context(|| format!("writing '{}' anew", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::RunId;

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
        let mut note = |line: &Line<'_>| {
            line.key.clone_into(&mut last);
            Ok(())
        };
        read(&path_of(&directory), &mut note).unwrap();
        assert_eq!(last, key.as_str());
    }

    #[test]
    fn r156_a_log_of_what_is_gone_is_written_anew_and_one_of_what_is_there_is_left() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        let store = LocalStore::create(&directory).unwrap();
        let path = path_of(&directory);
        let there = |number: u8| Key::new(layout::index_run(RunId([number; 16]))).unwrap();
        let session = SessionId([9; 16]);
        let announced = Key::new(layout::session_announced(session)).unwrap();
        let puts = Puts::open(&directory, &store).unwrap();
        puts.note("mine", &announced).unwrap();
        store.put(&announced, b"x").unwrap();
        puts.note("loser", &there(1)).unwrap();
        for number in 1..=3 {
            puts.note("mine", &there(number)).unwrap();
            store.put(&there(number), b"x").unwrap();
        }
        let lines = || {
            let mut lines = Vec::new();
            let mut note = |line: &Line<'_>| {
                lines.push((line.time_ns, line.client.to_owned(), line.key.to_owned()));
                Ok(())
            };
            read(&path, &mut note).unwrap();
            lines
        };
        let (all, text) = (lines(), std::fs::read(&path).unwrap());
        compact(&path, &store).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), text, "most of it counts");
        for number in 100..200 {
            puts.note("mine", &there(number)).unwrap();
        }
        let mut log = File::options().append(true).open(&path).unwrap();
        log.write_all(b"\n1 theirs index/\xff").unwrap();
        compact(&path, &store).unwrap();
        let counting: Vec<_> = all.into_iter().filter(|line| line.1 == "mine").collect();
        assert_eq!((counting.len(), lines()), (4, counting.clone()));
        let status = path.metadata().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&status) & 0o777, 0o600);
        // What it says is known, and goes on behind that.
        let puts = Puts::open(&directory, &store).unwrap();
        assert!(puts.is_own(&store, "mine", session) && !puts.is_own(&store, "loser", session));
        puts.note("mine", &there(4)).unwrap();
        assert_eq!((lines().len(), &lines()[..4]), (5, &counting[..]));
    }

    #[test]
    fn r156_a_server_that_starts_writes_a_long_log_anew() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        let store = LocalStore::create(&directory).unwrap();
        let path = path_of(&directory);
        let gone = format!("\n1 mine {}", layout::index_run(RunId([7; 16])));
        let count = COMPACTED_FROM_BYTES as usize / gone.len();
        std::fs::write(&path, gone.repeat(count)).unwrap();
        drop(Puts::open(&directory, &store).unwrap());
        assert_eq!(path.metadata().unwrap().len(), (gone.len() * count) as u64, "it is short");
        std::fs::write(&path, gone.repeat(count + 1)).unwrap();
        drop(Puts::open(&directory, &store).unwrap());
        assert_eq!(path.metadata().unwrap().len(), 0);
    }
}
