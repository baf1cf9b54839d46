//! Files with several names: which names are of one file, so that it is read once.
//!
//! # Algorithm
//! The walk notes each file of several names by device and inode when it meets the first name. A
//! further name is handed to the readers like any other file. The reader waits until the first name
//! was read, which an earlier task does, and compares: kind, size, both times, and the birth time
//! where there is one, must be what they were. Then the further name has the first one's content.
//! Otherwise it is read by itself.
//!
//! # Invariants
//! Numbers alone prove nothing: an inode is used again as soon as its file is deleted, and file
//! systems that make numbers up ([`crate::file_systems`]) give one number to two files. A first
//! name that changed while it was read, or so recently that a later change may bear the same time,
//! proves nothing either. Whoever waits is told: a task that ends in any way tells.

use onefold_format::node::{Entry, EntryKind, Time};
use rustix::fs::{AtFlags, StatxFlags};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Files of several names that are remembered by a backup: beyond, one is read under each of them,
/// and found stored, and none is read to be stored again.
pub const LINKS_MAX: usize = 1 << 20;

/// What the status of a file says of its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    kind: EntryKind,
    size: u64,
    modified: Time,
    changed: Time,
}

impl State {
    fn of(entry: &Entry) -> Self {
        let Entry { kind, size, modified, changed, .. } = *entry;
        Self { kind, size, modified, changed }
    }
}

/// What tells a file from every other one that had or has its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    device: u64,
    inode: u64,
    state: State,
    /// `None` where the file system has none.
    born: Option<(i64, u32)>,
}

impl Identity {
    /// That of an open file, whose status is `entry`.
    #[must_use]
    pub fn of(file: impl AsFd, entry: &Entry) -> Self {
        let known = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
        let born = known.ok().and_then(|known| {
            let has_it = StatxFlags::from_bits_retain(known.stx_mask).contains(StatxFlags::BTIME);
            has_it.then_some((known.stx_btime.tv_sec, known.stx_btime.tv_nsec))
        });
        Self { device: entry.device, inode: entry.inode, state: State::of(entry), born }
    }
}

/// How far the first name is.
#[derive(Clone, Copy, Debug)]
enum First {
    Reading,
    Read(Identity),
    /// It says nothing about other names.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Noted {
    /// Which of the files that had this number it is.
    serial: u64,
    /// As the walk saw it.
    state: State,
    first: First,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<(u64, u64), Noted>,
    serials: u64,
}

/// The files of several names that one walk has met.
#[derive(Debug, Default)]
pub struct Links {
    table: Mutex<Table>,
    told: Condvar,
}

/// Which name of its file a task reads.
#[derive(Debug)]
pub enum LinkedName {
    /// The only one, or one of a file that nobody remembers.
    Only,
    /// The first that was met.
    First(FirstName),
    /// One that was met later.
    Further(FurtherName),
}

/// What became known of a file with several names.
pub struct LinkEnd {
    /// What tells it from other files.
    pub identity: Identity,
    /// Which name it is.
    pub name: LinkEndName,
}

/// Which name of a file was read, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEndName {
    /// The first that was met.
    First,
    /// A further one, read by itself.
    Itself,
    /// A further one, not read: it has what the first has.
    AsFirst,
}

impl Links {
    /// Takes notice of a name.
    #[must_use]
    pub fn meet(self: &Arc<Self>, entry: &Entry) -> LinkedName {
        if entry.links <= 1 {
            return LinkedName::Only;
        }
        let (key, state) = ((entry.device, entry.inode), State::of(entry));
        let mut table = self.lock();
        let Table { files, serials } = &mut *table;
        let is_full = files.len() >= LINKS_MAX;
        *serials += 1;
        let noted = Noted { serial: *serials, state, first: First::Reading };
        match files.entry(key) {
            Place::Occupied(known) if known.get().state == state => {
                let serial = known.get().serial;
                return LinkedName::Further(FurtherName { links: Arc::clone(self), key, serial });
            }
            // The number is another file's now, or the file has changed.
            Place::Occupied(mut known) => *known.get_mut() = noted,
            Place::Vacant(_) if is_full => return LinkedName::Only,
            Place::Vacant(place) => {
                place.insert(noted);
            }
        }
        LinkedName::First(FirstName { links: Arc::clone(self), key, serial: noted.serial })
    }

    /// Whether this is a further name of a file that was met as it is.
    #[must_use]
    pub fn has(&self, entry: &Entry) -> bool {
        let is_it = |noted: &Noted| noted.state == State::of(entry);
        self.lock().files.get(&(entry.device, entry.inode)).is_some_and(is_it)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, key: (u64, u64), serial: u64, first: First) {
        if let Some(noted) = self.lock().files.get_mut(&key)
            && noted.serial == serial
            && matches!(noted.first, First::Reading)
        {
            noted.first = first;
        }
        self.told.notify_all();
    }
}

/// The first name of a file, until it was read.
#[derive(Debug)]
pub struct FirstName {
    links: Arc<Links>,
    key: (u64, u64),
    serial: u64,
}

impl FirstName {
    /// It was read to its end, and nothing changed meanwhile.
    pub fn was_read(&self, identity: Identity) {
        self.links.tell(self.key, self.serial, First::Read(identity));
    }
}

impl Drop for FirstName {
    fn drop(&mut self) {
        self.links.tell(self.key, self.serial, First::Unknown);
    }
}

/// A further name of a file.
#[derive(Debug)]
pub struct FurtherName {
    links: Arc<Links>,
    key: (u64, u64),
    serial: u64,
}

impl FurtherName {
    /// Whether the file of this identity is the one that was read under the first name. Waits for
    /// that one.
    #[must_use]
    pub fn is_of(&self, identity: &Identity) -> bool {
        let is_reading = |table: &mut Table| {
            let noted = table.files.get(&self.key);
            noted.is_some_and(|it| it.serial == self.serial && matches!(it.first, First::Reading))
        };
        let waited = self.links.told.wait_while(self.links.lock(), is_reading);
        let table = waited.unwrap_or_else(PoisonError::into_inner);
        table.files.get(&self.key).is_some_and(|noted| match noted.first {
            First::Read(read) => noted.serial == self.serial && read == *identity,
            First::Reading | First::Unknown => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64, seconds: i64) -> Entry {
        let changed = Time { seconds, nanoseconds: 1 };
        Entry { inode, device: 1, links: 2, changed, ..Entry::default() }
    }

    fn identity(entry: &Entry) -> Identity {
        let Entry { device, inode, .. } = *entry;
        Identity { device, inode, state: State::of(entry), born: Some((entry.changed.seconds, 0)) }
    }

    #[test]
    fn r97_a_number_that_is_used_again_is_another_file() {
        let links = Arc::new(Links::default());
        let (old, new) = (file(7, 100), file(7, 200));
        let LinkedName::First(first) = links.meet(&old) else { panic!("the first name") };
        let LinkedName::Further(further) = links.meet(&old) else { panic!("a further name") };
        first.was_read(identity(&old));
        drop(first);
        assert!(further.is_of(&identity(&old)));
        assert!(!further.is_of(&identity(&new)), "replaced since the walk saw it");
        let born = Identity { born: Some((1, 0)), ..identity(&old) };
        assert!(!further.is_of(&born), "born at another time");
        let LinkedName::First(_first) = links.meet(&new) else { panic!("another file") };
        assert!(!further.is_of(&identity(&old)), "nothing is known of the old one any more");
        assert!(links.has(&new) && !links.has(&old));
    }

    #[test]
    fn r97_a_first_name_that_was_not_read_to_its_end_says_nothing() {
        let links = Arc::new(Links::default());
        let LinkedName::First(first) = links.meet(&file(7, 100)) else { panic!("the first") };
        let LinkedName::Further(further) = links.meet(&file(7, 100)) else { panic!("a further") };
        let waiting = std::thread::spawn(move || further.is_of(&identity(&file(7, 100))));
        drop(first);
        assert!(!waiting.join().unwrap());
    }

    #[test]
    fn a_file_beyond_the_greatest_number_is_read_under_each_name() {
        let links = Arc::new(Links::default());
        for inode in 0..LINKS_MAX as u64 {
            assert!(matches!(links.meet(&file(inode, 1)), LinkedName::First(_)));
        }
        let beyond = file(LINKS_MAX as u64, 1);
        assert!(matches!(links.meet(&beyond), LinkedName::Only));
        assert!(matches!(links.meet(&beyond), LinkedName::Only));
        assert!(matches!(links.meet(&file(0, 1)), LinkedName::Further(_)));
    }
}
