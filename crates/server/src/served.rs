//! One store as others see it.
//!
//! # Algorithm
//! The local store shows an object before it is durable. Clients take what they see for durable, so
//! what is being put is noted here: whoever asks for it by name waits until that has ended, and a
//! listing leaves out what is still on its way when the listing ends. A name that was taken before
//! is never on its way, so nobody hides an object by putting it again. What is visible
//! although its put has failed stays on its way until the server starts anew, which settles all
//! that is visible once.
//!
//! What is deleted may be kept for a while beside the store (`kept.rs`).
//!
//! # Invariants
//! A deletion is durable before it is acknowledged, also that of what is gone already, and not
//! before its link is. One server at a time has a directory: it is locked. Whoever else writes into
//! it is not known here, and what he puts may be seen before it is durable.

use crate::answers::Failure;
use crate::kept::Kept;
use crate::notices::Notices;
use crate::puts::Puts;
use onefold_store::{Blobs, Key, Listed, LocalStore};
use onefold_types::error::Context as _;
use onefold_types::{Error, ErrorKind, Result};
use std::collections::{BinaryHeap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What an object takes of a quota at least: names and inodes are not free.
pub const CHARGED_MIN_BYTES: u64 = 4096;

/// A store that is served.
pub struct Served {
    /// The name by which clients know it.
    pub name: String,
    pub(crate) store: LocalStore,
    directory: PathBuf,
    /// What its clients tell each other.
    pub(crate) notices: Notices,
    pub(crate) puts: Puts,
    on_the_way: OnTheWay,
    kept: Option<Kept>,
    room: Room,
    /// One deletion at a time looks at an object and removes it.
    deleting: Mutex<()>,
    /// Locked as long as it is open.
    _locked: fs::File,
}

/// How much may be in the store.
#[derive(Default)]
struct Room {
    used_bytes: AtomicU64,
    quota_bytes: Option<u64>,
}

/// What is asked of a store that is served.
#[derive(Clone, Copy, Default, Debug)]
pub struct Rules {
    /// How long what is deleted is kept; none: it goes.
    pub keep_deleted: Option<Duration>,
    /// How much the store may hold.
    pub quota_bytes: Option<u64>,
}

impl Served {
    /// Opens the store in a directory, or takes an empty one for a store to be. What was visible
    /// is durable afterwards. So long somebody waits for an object until that is durable.
    ///
    /// # Errors
    ///
    /// `NoStore` for a directory that holds something else, and those of the device.
    pub fn open(directory: &Path, rules: Rules, durable: Duration) -> Result<Self> {
        let shown = directory.display();
        let real = directory.canonicalize().context(|| format!("opening '{shown}'"))?;
        let name = real.file_name().and_then(|name| name.to_str());
        let name = name.filter(|name| is_store_name(name)).ok_or_else(|| {
            Error::invalid(format!(
                "'{shown}' cannot be served by its name: that has letters, digits, '-', '_' and \
                 '.'; give the directory another one"
            ))
        })?;
        let locked = fs::File::open(&real).context(|| format!("opening '{shown}'"))?;
        locked.try_lock().map_err(|_| {
            let what = format!("another server has '{shown}' already");
            Error::new(ErrorKind::Unavailable, what)
        })?;
        let store = match LocalStore::open(&real) {
            // What an earlier attempt to make one has left is no obstacle.
            Err(error) if error.kind() == ErrorKind::NoStore => match LocalStore::create(&real) {
                Err(other) if other.kind() == ErrorKind::AlreadyExists => return Err(error),
                created => created?,
            },
            opened => opened?,
        };
        store.remove_stale_temporaries()?;
        store.settle("")?;
        let kept = rules.keep_deleted.map(|period| Kept::beside(&real, period)).transpose()?;
        let room = Room { used_bytes: AtomicU64::new(0), quota_bytes: rules.quota_bytes };
        if rules.quota_bytes.is_some() {
            let mut used = 0;
            store.list("", &mut |listed| {
                used += charged(listed.size_bytes);
                Ok(())
            })?;
            if let Some(kept) = &kept {
                used += kept.charged().context(|| "looking at what is kept")?;
            }
            room.used_bytes.store(used, Ordering::SeqCst);
        }
        let (name, on_the_way) = (name.to_owned(), OnTheWay { durable, ..OnTheWay::default() });
        let (notices, deleting) = (Notices::default(), Mutex::default());
        let puts = Puts::open(&real, &store)?;
        let (directory, _locked) = (real, locked);
        Ok(Self {
            name,
            store,
            directory,
            notices,
            puts,
            on_the_way,
            kept,
            room,
            deleting,
            _locked,
        })
    }

    /// Puts an object of a client by `put`, which nobody sees before it is durable.
    pub(crate) fn put(
        &self,
        key: &Key,
        client: &str,
        put: impl FnOnce(&LocalStore) -> Result<()>,
    ) -> Result<()> {
        self.refuse_deleted(key)?;
        if !self.on_the_way.begin(key, || self.store.size(key).is_ok()) {
            return Err(taken(key));
        }
        let outcome = self.puts.note(client, key).and_then(|()| put(&self.store));
        match &outcome {
            Ok(()) => self.on_the_way.arrived(key),
            // Named, and nobody can tell whether that is durable: it stays unseen.
            Err(error)
                if error.kind() != ErrorKind::AlreadyExists && self.store.size(key).is_ok() => {}
            Err(_) => self.on_the_way.end(key),
        }
        outcome
    }

    /// Refuses a name under which nothing can be put any more.
    pub(crate) fn refuse_taken(&self, key: &Key) -> Result<()> {
        self.refuse_deleted(key)?;
        match self.store.size(key) {
            Ok(_) => Err(taken(key)),
            // Whatever else is wrong with it is found by who puts it.
            Err(_) => Ok(()),
        }
    }

    fn refuse_deleted(&self, key: &Key) -> Result<()> {
        match &self.kept {
            Some(kept) if kept.holds(key) => Err(Error::new(
                ErrorKind::NotPermitted,
                format!("'{key}' was deleted, and names are not used again"),
            )),
            _ => Ok(()),
        }
    }

    /// What is said to a client, without where the store lies.
    pub(crate) fn hidden_in(&self, said: String) -> String {
        said.replace(&self.directory.display().to_string(), &self.name)
    }

    /// Whether the bytes under a name that is taken are these.
    pub(crate) fn holds(&self, key: &Key, bytes: &[u8]) -> bool {
        self.size(key).is_ok_and(|size| size == bytes.len() as u64)
            && self.store.get(key).is_ok_and(|found| found == bytes)
    }

    /// Keeps room for an object; [`Served::give_back`] if it is not put.
    pub(crate) fn take_room(&self, bytes: u64) -> Result<(), Failure> {
        let Some(quota) = self.room.quota_bytes else { return Ok(()) };
        let bytes = charged(bytes);
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= quota);
        match self.room.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits) {
            Ok(_) => Ok(()),
            Err(used) => Err(Failure::quota(&format!(
                "the store '{}' holds {used} bytes and may hold {quota}: {bytes} more are too much",
                self.name
            ))),
        }
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(charged(bytes)));
        let _ = self.room.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// How much may be put still, as far as anybody can tell.
    pub(crate) fn free_bytes(&self) -> Result<Option<u64>> {
        let used = self.room.used_bytes.load(Ordering::SeqCst);
        let left = self.room.quota_bytes.map(|quota| quota.saturating_sub(used));
        let free = self.store.free_bytes()?;
        Ok(left.into_iter().chain(free).min())
    }

    /// The size of an object that is durable.
    pub(crate) fn size(&self, key: &Key) -> Result<u64> {
        let size = self.store.size(key)?;
        self.on_the_way.wait_for(key)?;
        Ok(size)
    }

    /// Shows what is below a directory and durable, behind a name: of the first so many in their
    /// order those that are durable, and the last one if there are more behind it.
    pub(crate) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<(Vec<Listed>, Option<Key>)> {
        let (mut first, mut is_more) = (BinaryHeap::new(), false);
        self.store.list(prefix, &mut |listed| {
            if after.is_none_or(|after| listed.key.as_str() > after) {
                first.push(listed);
                if first.len() > most {
                    first.pop();
                    is_more = true;
                }
            }
            Ok(())
        })?;
        let mut first = first.into_sorted_vec();
        let last = first.last().filter(|_| is_more).map(|listed| listed.key.clone());
        self.on_the_way.leave_out(&mut first);
        Ok((first, last))
    }

    /// Deletes an object, durably, and keeps it elsewhere if that was asked for.
    pub(crate) fn delete(&self, key: &Key) -> Result<()> {
        let was_there = self.unlink(key)?;
        // Also if it was gone: whoever removed it may not have come so far.
        let above = key.as_str().rsplit_once('/').map_or("", |(above, _)| above);
        match self.store.settle(above) {
            // An object stands where the directory would be: nothing ever was below it.
            Err(error) if !was_there && error.kind() == ErrorKind::Invalid => Ok(()),
            settled => settled,
        }
    }

    /// Whether it was there.
    fn unlink(&self, key: &Key) -> Result<bool> {
        let _alone = self.deleting.lock().unwrap_or_else(PoisonError::into_inner);
        let size = match self.store.size(key) {
            Ok(size) => size,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if let Some(kept) = &self.kept {
            kept.keep(&self.directory, key)
                .context(|| format!("keeping '{key}' in '{}'", kept.directory.display()))?;
        }
        self.store.delete(key)?;
        self.puts.forget(key);
        if self.kept.is_none() {
            self.give_back(size);
        }
        Ok(true)
    }

    /// Lets go of files that are open and were deleted by others.
    pub(crate) fn let_go(&self) {
        self.store.let_go();
    }

    /// Lets go of what was kept for long enough; how many objects.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn remove_expired(&self) -> Result<u64> {
        self.kept.as_ref().map_or(Ok(0), |kept| self.expired_at(kept, kept.ran()))
    }

    fn expired_at(&self, kept: &Kept, ran: Duration) -> Result<u64> {
        kept.remove_expired(ran, &|bytes| self.give_back(bytes))
    }

    /// Writes down what the next server must know of this one.
    pub(crate) fn end(&self) -> Result<()> {
        self.kept.as_ref().map_or(Ok(()), |kept| kept.count(kept.ran()))
    }
}

fn taken(key: &Key) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("'{key}' exists already"))
}

/// Whether clients can name a store so.
fn is_store_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // What else is served has these.
    !matches!(name, "." | ".." | "metrics") && name.bytes().all(allowed)
}

/// What an object takes of a quota.
pub(crate) fn charged(bytes: u64) -> u64 {
    bytes.max(CHARGED_MIN_BYTES)
}

/// What is being put, and by how many.
#[derive(Default)]
struct OnTheWay {
    durable: Duration,
    keys: Mutex<HashMap<Key, u32>>,
    ended: Condvar,
}

impl OnTheWay {
    /// Notes it, unless it is there and nobody else is putting it. That is looked at under the
    /// lock, so that no listing misses what is there.
    fn begin(&self, key: &Key, is_there: impl FnOnce() -> bool) -> bool {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.contains_key(key) && is_there() {
            return false;
        }
        *keys.entry(key.clone()).or_default() += 1;
        true
    }

    /// It is durable, whoever else still tries to put it.
    fn arrived(&self, key: &Key) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.ended.notify_all();
    }

    fn end(&self, key: &Key) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = keys.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                keys.remove(key);
            }
        }
        drop(keys);
        self.ended.notify_all();
    }

    fn wait_for(&self, key: &Key) -> Result<()> {
        let last = Instant::now() + self.durable;
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        while keys.contains_key(key) {
            let left = last.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("'{key}' is still being put: ask again");
                return Err(Error::new(ErrorKind::Unavailable, what));
            }
            let waited = self.ended.wait_timeout(keys, left);
            keys = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn leave_out(&self, all: &mut Vec<Listed>) {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.is_empty() {
            all.retain(|listed| !keys.contains_key(&listed.key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    const DURABLE: Duration = Duration::from_secs(5);

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn served(rules: Rules) -> (tempfile::TempDir, Served) {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        fs::create_dir(&directory).unwrap();
        let served = Served::open(&directory, rules, DURABLE).unwrap();
        (place, served)
    }

    fn ino(path: &Path) -> u64 {
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
    }

    fn expired(served: &Served, ran: Duration) -> u64 {
        served.expired_at(served.kept.as_ref().unwrap(), ran).unwrap()
    }

    #[test]
    fn what_is_being_put_is_in_no_listing_and_is_waited_for() {
        let (_place, served) = served(Rules::default());
        let served = Arc::new(served);
        served.store.put(&key("a/b"), b"bytes").unwrap();
        assert!(served.on_the_way.begin(&key("a/b"), || false));
        assert!(served.list("", None, 9).unwrap().0.is_empty());
        let (reader, began) = (Arc::clone(&served), Instant::now());
        let reader = thread::spawn(move || {
            let size = reader.size(&key("a/b")).unwrap();
            (size, began.elapsed())
        });
        let pause = Duration::from_millis(200);
        thread::sleep(pause);
        served.on_the_way.end(&key("a/b"));
        let (size, waited) = reader.join().unwrap();
        assert_eq!(size, 5);
        assert!(waited >= pause, "{waited:?}");
        assert_eq!(served.list("", None, 9).unwrap().0.len(), 1);
        // What is not there is not waited for.
        served.on_the_way.begin(&key("a/c"), || false);
        assert_eq!(served.size(&key("a/c")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_does_not_become_durable_is_not_waited_for_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let durable = Duration::from_millis(200);
        let served = Served::open(place.path(), Rules::default(), durable).unwrap();
        served.store.put(&key("a"), b"x").unwrap();
        served.on_the_way.begin(&key("a"), || false);
        let began = Instant::now();
        assert_eq!(served.size(&key("a")).unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(began.elapsed() >= durable);
        served.on_the_way.end(&key("a"));
        assert_eq!(served.size(&key("a")).unwrap(), 1);
    }

    #[test]
    fn what_is_there_is_not_hidden_by_who_puts_it_again() {
        let (_place, served) = served(Rules::default());
        let again = |bytes: &'static [u8]| {
            let put = |store: &LocalStore| {
                // Others see it meanwhile.
                assert_eq!(served.list("", None, 9).unwrap().0.len(), 1);
                store.put(&key("a"), bytes)
            };
            served.put(&key("a"), "me", put).unwrap_err().kind()
        };
        served.put(&key("a"), "me", |store| store.put(&key("a"), b"bytes")).unwrap();
        assert_eq!(again(b"other"), ErrorKind::AlreadyExists);
        assert_eq!(served.size(&key("a")).unwrap(), 5);
        assert!(served.holds(&key("a"), b"bytes") && !served.holds(&key("a"), b"other"));
        // The first of two has come through; the second one does not know that yet.
        served.on_the_way.begin(&key("b"), || false);
        served.put(&key("b"), "me", |store| store.put(&key("b"), b"bytes")).unwrap();
        assert_eq!(served.list("", None, 9).unwrap().0.len(), 2);
    }

    #[test]
    fn what_is_named_and_may_not_be_durable_is_not_seen() {
        let (_place, served) = served(Rules::default());
        let failing = |store: &LocalStore| {
            store.put(&key("a"), b"bytes")?;
            Err(Error::new(ErrorKind::Io, "a directory could not be synced"))
        };
        assert_eq!(served.put(&key("a"), "me", failing).unwrap_err().kind(), ErrorKind::Io);
        assert!(served.list("", None, 9).unwrap().0.is_empty());
    }

    #[test]
    fn one_server_has_a_directory() {
        let (place, served) = served(Rules::default());
        let again = || Served::open(&place.path().join("store"), Rules::default(), DURABLE);
        assert_eq!(again().err().unwrap().kind(), ErrorKind::Unavailable);
        drop(served);
        again().unwrap();
    }

    #[test]
    fn what_is_deleted_is_kept_for_as_long_as_was_asked_for() {
        let period = Duration::from_secs(100);
        let (place, served) = served(Rules { keep_deleted: Some(period), quota_bytes: None });
        served.store.put(&key("containers/3f/x"), b"bytes").unwrap();
        served.delete(&key("containers/3f/x")).unwrap();
        served.delete(&key("containers/3f/x")).unwrap();
        assert_eq!(served.size(&key("containers/3f/x")).unwrap_err().kind(), ErrorKind::NotFound);
        let kept = place.path().join("store.deleted/containers/3f/x");
        assert_eq!(fs::read(&kept).unwrap(), b"bytes");
        assert_eq!(expired(&served, period / 2), 0);
        let again = served.put(&key("containers/3f/x"), "me", |_| panic!("it is put"));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::NotPermitted);
        // Copied back it is there again, and can be deleted again.
        let back = place.path().join("store/containers/3f");
        fs::create_dir_all(&back).unwrap();
        fs::copy(&kept, back.join("x")).unwrap();
        let copied = ino(&back.join("x"));
        assert_eq!(served.size(&key("containers/3f/x")).unwrap(), 5);
        served.delete(&key("containers/3f/x")).unwrap();
        // It is the second one's time that counts.
        assert_eq!(ino(&kept), copied);
        assert_eq!(expired(&served, 2 * period), 1);
        assert!(!kept.exists());
    }

    #[test]
    fn a_store_takes_what_its_quota_leaves_and_not_a_byte_more() {
        let quota_bytes = Some(10 * CHARGED_MIN_BYTES);
        let (place, served) = served(Rules { keep_deleted: None, quota_bytes });
        served.take_room(4 * CHARGED_MIN_BYTES).unwrap();
        assert!(served.take_room(6 * CHARGED_MIN_BYTES + 1).is_err());
        served.take_room(6 * CHARGED_MIN_BYTES).unwrap();
        // Nothing is not free.
        assert!(served.take_room(0).is_err());
        served.give_back(4 * CHARGED_MIN_BYTES);
        assert_eq!(served.free_bytes().unwrap(), Some(4 * CHARGED_MIN_BYTES));
        drop(served);
        // What is there counts, and what is kept, until it goes.
        let period = Some(Duration::from_secs(100));
        let rules = Rules { keep_deleted: period, quota_bytes };
        let directory = place.path().join("store");
        let served = Served::open(&directory, rules, DURABLE).unwrap();
        for name in ["a", "b"] {
            served.take_room(1).unwrap();
            served.put(&key(name), "me", |store| store.put(&key(name), b"x")).unwrap();
        }
        served.delete(&key("a")).unwrap();
        assert_eq!(served.free_bytes().unwrap(), Some(8 * CHARGED_MIN_BYTES));
        drop(served);
        fs::write(directory.join("config"), b"x").unwrap();
        let served = Served::open(&directory, rules, DURABLE).unwrap();
        assert_eq!(served.free_bytes().unwrap(), Some(7 * CHARGED_MIN_BYTES));
        assert_eq!(expired(&served, Duration::from_secs(200)), 1);
        assert_eq!(served.free_bytes().unwrap(), Some(8 * CHARGED_MIN_BYTES));
    }

    #[test]
    fn a_directory_that_holds_something_else_is_not_served() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), b"x").unwrap();
        let error = Served::open(place.path(), Rules::default(), DURABLE).err().unwrap();
        assert!(matches!(error.kind(), ErrorKind::NoStore | ErrorKind::Invalid), "{error}");
    }
}
