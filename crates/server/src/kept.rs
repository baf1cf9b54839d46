//! What is deleted and kept for a while, beside the store.
//!
//! # Algorithm
//! What is deleted is linked into a directory beside the store first, `DIR.deleted`, by the same
//! name, and goes from there once it has been kept for the time that was asked for. Linked back
//! while it is there, the store is what it was: names are never used again, which the server sees
//! to as long as it keeps them.
//!
//! Kept time is time that servers have run, and no clock is asked: one that jumps would take
//! everything at once. How long they have run stands in `DIR.deleted.ran`, in seconds, written
//! whenever it is looked for what has been kept for long enough, and at the end. A file that is
//! kept has that number as its modification time, as if it were one since 1970; one that has a
//! later time has none yet, and gets it.
//!
//! # Invariants
//! Nothing goes before servers have run for as long as was asked for since it was deleted. What is
//! not counted, because the server was not running or was killed, keeps it for longer.

use crate::clients::replace_file;
use crate::served::charged;
use onefold_store::Key;
use onefold_types::error::Context as _;
use onefold_types::{Error, Result};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Where deleted objects are kept, and for how long.
pub struct Kept {
    pub directory: PathBuf,
    period: Duration,
    /// The file that says how long servers have run.
    counter: PathBuf,
    /// How long they had run when this one began.
    before: Duration,
    began: Instant,
}

impl Kept {
    /// The directory beside a store, which is made if there is none.
    pub fn beside(store: &Path, period: Duration) -> Result<Self> {
        let named = |end: &str| {
            let mut name = store.file_name().unwrap_or_default().to_owned();
            name.push(end);
            store.with_file_name(name)
        };
        let (directory, counter) = (named(".deleted"), named(".deleted.ran"));
        let shown = directory.display();
        let making = || format!("making '{shown}', where deleted objects are kept");
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.context(making)?,
        }
        let above = directory.parent().unwrap_or(Path::new("/"));
        fs::File::open(above).and_then(|above| above.sync_all()).context(making)?;
        let device = |path: &Path| path.metadata().map(|found| found.dev()).context(making);
        if device(&directory)? != device(store)? {
            return Err(Error::invalid(format!(
                "deleted objects cannot be kept: '{shown}' and the store are on two file systems; \
                 serve a directory below the one that is mounted"
            )));
        }
        let before = counted(&counter)?;
        let kept = Self { directory, period, counter, before, began: Instant::now() };
        // Who cannot write it down hears so now.
        kept.count(before)?;
        Ok(kept)
    }

    /// Whether an object of this name is kept.
    pub fn holds(&self, key: &Key) -> bool {
        self.directory.join(key.as_str()).exists()
    }

    /// How long servers have run, with this one.
    pub fn ran(&self) -> Duration {
        self.before.saturating_add(self.began.elapsed())
    }

    /// Keeps an object of the store, which is deleted next.
    pub fn keep(&self, store: &Path, key: &Key) -> io::Result<()> {
        let to = self.directory.join(key.as_str());
        let above = to.parent().unwrap_or(&self.directory);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        match fs::hard_link(store.join(key.as_str()), &to) {
            // It was deleted before, and came back: from now on it is kept as long again.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&to)?;
                fs::hard_link(store.join(key.as_str()), &to)?;
            }
            linked => linked?,
        }
        mark(&to, self.ran())?;
        for directory in above.ancestors().take_while(|it| it.starts_with(&self.directory)) {
            fs::File::open(directory)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes what has been kept for long enough once servers have run for so long, and writes
    /// down how long that is; how many objects.
    pub fn remove_expired(&self, ran: Duration, gone: &dyn Fn(u64)) -> Result<u64> {
        let shown = self.directory.display();
        let removed = self
            .remove_below(&self.directory, ran, gone)
            .context(|| format!("removing what was kept in '{shown}'"))?;
        self.count(ran)?;
        Ok(removed)
    }

    /// Writes down how long servers have run.
    pub fn count(&self, ran: Duration) -> Result<()> {
        replace_file(&self.counter, format!("{}\n", ran.as_secs()).as_bytes())
            .context(|| format!("writing how long it has run to '{}'", self.counter.display()))
    }

    fn remove_below(&self, directory: &Path, ran: Duration, gone: &dyn Fn(u64)) -> io::Result<u64> {
        let mut removed = 0;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let found = fs::symlink_metadata(&path)?;
            if found.is_dir() {
                removed += self.remove_below(&path, ran, gone)?;
                continue;
            }
            let deleted = found.modified()?.duration_since(SystemTime::UNIX_EPOCH);
            match deleted.ok().and_then(|deleted| ran.checked_sub(deleted)) {
                Some(kept) if kept >= self.period => {
                    fs::remove_file(&path)?;
                    gone(found.len());
                    removed += 1;
                }
                Some(_) => {}
                // Nobody has counted yet when it was deleted, or that was lost.
                None if found.is_file() => mark(&path, ran)?,
                None => {}
            }
        }
        Ok(removed)
    }

    /// What all that is kept takes of a quota.
    pub fn charged(&self) -> io::Result<u64> {
        charged_below(&self.directory)
    }
}

fn charged_below(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let found = fs::symlink_metadata(&path)?;
        bytes += if found.is_dir() { charged_below(&path)? } else { charged(found.len()) };
    }
    Ok(bytes)
}

/// How long servers have run, as the last one has written.
fn counted(path: &Path) -> Result<Duration> {
    let shown = path.display();
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Duration::ZERO),
        read => read.context(|| format!("reading '{shown}'"))?,
    };
    // What files' times can hold.
    let seconds = text.trim().parse::<u32>().map_err(|_| {
        Error::invalid(format!(
            "'{shown}' does not say for how many seconds servers have run: remove it, and what is \
             kept is kept for as long again"
        ))
    })?;
    Ok(Duration::from_secs(seconds.into()))
}

/// Notes when it was deleted.
fn mark(path: &Path, ran: Duration) -> io::Result<()> {
    fs::File::open(path)?.set_modified(SystemTime::UNIX_EPOCH + ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(30 * 24 * 3600);

    /// A store with an object, which is kept and deleted.
    fn kept_once(place: &Path) -> (Kept, PathBuf) {
        let (store, key) = (place.join("store"), Key::new("a/b").unwrap());
        fs::create_dir_all(store.join("a")).unwrap();
        fs::write(store.join("a/b"), b"bytes").unwrap();
        let kept = Kept::beside(&store, PERIOD).unwrap();
        kept.keep(&store, &key).unwrap();
        fs::remove_file(store.join("a/b")).unwrap();
        (kept, place.join("store.deleted/a/b"))
    }

    fn removed(kept: &Kept, ran: Duration) -> u64 {
        kept.remove_expired(ran, &|_| {}).unwrap()
    }

    #[test]
    fn r134_what_is_kept_goes_by_the_time_that_servers_have_run_in_all() {
        let place = tempfile::tempdir().unwrap();
        let (kept, file) = kept_once(place.path());
        assert_eq!(removed(&kept, PERIOD / 2), 0);
        // The next server goes on where this one has ended, however long that was ago.
        let again = Kept::beside(&place.path().join("store"), PERIOD).unwrap();
        assert!(again.ran() >= PERIOD / 2 && again.ran() < PERIOD, "{:?}", again.ran());
        assert_eq!(removed(&again, PERIOD - Duration::from_secs(60)), 0);
        assert!(file.exists());
        assert_eq!(removed(&again, PERIOD + Duration::from_secs(60)), 1);
        assert!(!file.exists());
    }

    #[test]
    fn r134_no_time_of_a_file_and_no_lost_count_takes_what_is_kept() {
        let place = tempfile::tempdir().unwrap();
        let (kept, file) = kept_once(place.path());
        let day = Duration::from_secs(24 * 3600);
        // By clocks that were behind or ahead, and before there was a count.
        for time in [
            SystemTime::UNIX_EPOCH - day,
            SystemTime::UNIX_EPOCH + 20_000 * day,
            SystemTime::now() - 100 * day,
            SystemTime::now() + 100 * day,
        ] {
            fs::File::open(&file).unwrap().set_modified(time).unwrap();
            assert_eq!(removed(&kept, day), 0, "{time:?}");
            assert_eq!(removed(&kept, PERIOD), 0, "{time:?}");
        }
        // The count is lost: it is kept for as long anew.
        fs::remove_file(place.path().join("store.deleted.ran")).unwrap();
        let kept = Kept::beside(&place.path().join("store"), PERIOD).unwrap();
        fs::File::open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH + 9 * PERIOD).unwrap();
        assert_eq!(removed(&kept, Duration::ZERO), 0);
        assert_eq!(removed(&kept, PERIOD - day), 0);
        assert_eq!(removed(&kept, PERIOD), 1);
    }

    #[test]
    fn r134_a_count_that_is_none_is_refused() {
        let place = tempfile::tempdir().unwrap();
        drop(kept_once(place.path()));
        for text in ["", "x", "-1", "99999999999999"] {
            fs::write(place.path().join("store.deleted.ran"), text).unwrap();
            let error = Kept::beside(&place.path().join("store"), PERIOD).err().unwrap();
            assert!(error.to_string().contains("remove it"), "{error}");
        }
    }
}
