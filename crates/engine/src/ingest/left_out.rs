//! What a backup's selection has left out.
//!
//! Items count where the walk meets them: a directory that is left out counts once, and what lies
//! in it is not looked at, but for stubs in shares. What is gone by the time that it is looked at
//! was not there, and is no error. Of the reasons to leave an item out the first
//! one counts, in the order in which the walk asks: patterns, mounts behind which there is a
//! server, size, marks, caches, other mounts.
//! Each walk counts for itself, and the counts of the streams of one attempt are added up: a backup
//! that has to start over counts anew.

use crate::job::Interrupt;
use crate::tree::path;
use crate::user_file;
use onefold_format::configuration::CONFIGURATION_MAX_BYTES;
use onefold_format::layout;
use onefold_format::node::Totals;
use onefold_format::record::Summary;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// The file that marks a directory as a cache.
pub const CACHE_TAG: &str = "CACHEDIR.TAG";
/// In so many bytes a store's description says what it is.
const DESCRIBED_BYTES: usize = 64;
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";

/// What was left out, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Items that match patterns.
    pub matched_items: u64,
    /// The sizes of the files among them.
    pub matched_bytes: u64,
    /// Files that are too large.
    pub large_files: u64,
    /// Their sizes.
    pub large_bytes: u64,
    /// Directories marked as caches.
    pub caches: u64,
    /// Directories with marks, in the order in which the names of marks were given.
    pub marked: Vec<MarkCount>,
    /// Directories and files on which other file systems are mounted.
    pub mounts: u64,
    /// Directories on which snapshots are mounted.
    pub snapshot_mounts: u64,
    /// Stores in a share: other programs' data they are not, and they are there to be read whole.
    pub stores: u64,
    /// What was deleted or moved between its directory's listing and the look at it.
    pub gone: u64,
    /// Directories into which more came between their listing and the end of their reading.
    pub grown: u64,
    /// Files for which there is no room now.
    pub put_off: u64,
    /// Sources that bear a mark themselves, and gave nothing but that.
    pub marked_sources: Vec<String>,
    /// Directories with nothing or little in them now that had much in the parent snapshot.
    pub emptied: Vec<Emptied>,
}

/// A directory with nothing in it now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Emptied {
    /// Its path.
    pub path: String,
    /// How many entries are below it now.
    pub left: u64,
    /// How many were in the parent snapshot.
    pub entries: u64,
    /// The bytes of the files among that.
    pub bytes: u64,
}

/// A directory that had one part in so many of the parent snapshot's entries, or bytes, is told of
/// when no more than one part in so many of its entries is left.
const EMPTIED_PART: u64 = 10;

impl Emptied {
    /// A directory that had so much, if that was much of a snapshot, or if it is a source, and has
    /// so many entries left; or a source with nothing in it.
    #[must_use]
    pub fn of(
        tree_path: &[u8],
        (had, left): (&Totals, u64),
        of: &Summary,
        is_source: bool,
    ) -> Option<Self> {
        let is_much = |part: u64, whole: u64| part > 0 && part >= whole / EMPTIED_PART;
        let was_much = is_source
            || is_much(had.entries, of.files + of.directories + of.others)
            || is_much(had.bytes, of.bytes);
        let is_told = match had.entries {
            0 => is_source && left == 0,
            had => was_much && left <= had / EMPTIED_PART,
        };
        let Totals { entries, bytes, .. } = *had;
        is_told.then(|| Self { path: path::display(tree_path), left, entries, bytes })
    }
}

/// What was left out for the name of a mark.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MarkCount {
    /// Directories with this mark, but for those that have one that was named earlier.
    pub directories: u64,
    /// Whether it was met at all.
    pub was_met: bool,
}

impl LeftOut {
    /// Nothing so far, for a selection with so many names of marks.
    #[must_use]
    pub fn none(marks: usize) -> Self {
        Self { marked: vec![MarkCount::default(); marks], ..Self::default() }
    }

    /// Counts a directory; for each mark, whether the directory has it. Whether it has any.
    pub fn count_marks(&mut self, has: impl IntoIterator<Item = bool>) -> bool {
        let mut is_marked = false;
        for (mark, is_here) in self.marked.iter_mut().zip(has) {
            mark.was_met |= is_here;
            mark.directories += u64::from(is_here && !is_marked);
            is_marked |= is_here;
        }
        is_marked
    }

    /// How often anything was left out that may be there.
    #[must_use]
    pub fn times(&self) -> u64 {
        let Self { matched_items, large_files, mounts, snapshot_mounts, stores, put_off, .. } =
            self;
        let others = matched_items + large_files + mounts + snapshot_mounts + stores + put_off;
        others + self.marked_directories()
    }

    /// Directories that were left out for a mark of any kind.
    #[must_use]
    pub fn marked_directories(&self) -> u64 {
        self.caches + self.marked.iter().map(|mark| mark.directories).sum::<u64>()
    }

    /// Adds what another walk over the same selection has left out.
    pub fn add(&mut self, other: &Self) {
        self.matched_items += other.matched_items;
        self.matched_bytes += other.matched_bytes;
        self.large_files += other.large_files;
        self.large_bytes += other.large_bytes;
        self.caches += other.caches;
        self.mounts += other.mounts;
        self.snapshot_mounts += other.snapshot_mounts;
        self.stores += other.stores;
        self.gone += other.gone;
        self.grown += other.grown;
        self.put_off += other.put_off;
        self.marked_sources.extend_from_slice(&other.marked_sources);
        self.emptied.extend_from_slice(&other.emptied);
        if self.marked.len() < other.marked.len() {
            self.marked.resize(other.marked.len(), MarkCount::default());
        }
        for (sum, mark) in self.marked.iter_mut().zip(&other.marked) {
            sum.directories += mark.directories;
            sum.was_met |= mark.was_met;
        }
    }
}

/// How many bytes of files that are not in the store a backup may read.
#[derive(Debug)]
pub struct Room {
    left: Mutex<RoomLeft>,
}

#[derive(Debug)]
struct RoomLeft {
    bytes: u64,
    /// What the first file may take, which else might never find room.
    first_max_bytes: u64,
}

impl Room {
    /// Room for so many bytes, or for one file of as many as `first_max_bytes`.
    #[must_use]
    pub fn of(bytes: u64, first_max_bytes: u64) -> Self {
        Self { left: Mutex::new(RoomLeft { bytes, first_max_bytes }) }
    }

    /// Whether a file finds room.
    pub fn takes(&self, size_bytes: u64) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let finds_room = size_bytes <= left.bytes.max(left.first_max_bytes);
        if finds_room {
            *left = RoomLeft { bytes: left.bytes.saturating_sub(size_bytes), first_max_bytes: 0 };
        }
        finds_room
    }
}

/// Whether an error says that something is not there.
#[must_use]
pub fn is_absence(error: &Error) -> bool {
    error.os_code() == Some(Errno::NOENT.raw_os_error())
}

/// Whether an error says that an open directory is not there, and its name is another one's now. A
/// server may say so of one that is there: what it had listed of it is not all.
#[must_use]
pub fn is_replaced(error: &Error, above: &OwnedFd, name: &OsStr, opened: &OwnedFd) -> bool {
    let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
    let is_other = || {
        let now = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(identity(now) != identity(rustix::fs::fstat(opened).ok()?))
    };
    is_absence(error) && is_other().unwrap_or(false)
}

/// Whether an error is of something in a directory that is not there any more. What is missing in
/// the store says the same, so it is looked at again.
#[must_use]
pub fn is_gone(error: &Error, directory: &OwnedFd, name: &[u8]) -> bool {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    is_absence(error) && found.err() == Some(Errno::NOENT)
}

/// Whether a directory is a store: it has two copies of what describes one.
#[must_use]
pub fn is_store(directory: &OwnedFd, interrupt: &Interrupt) -> bool {
    [layout::CONFIGURATION, layout::CONFIGURATION_COPY].iter().all(|name| {
        let text = beginning_of(directory, name, DESCRIBED_BYTES, interrupt);
        text.trim_start().starts_with('{') && text.contains("\"format_version\"")
    })
}

/// Whether a directory is the store with this name, by whatever way it is looked at.
#[must_use]
pub fn is_this_store(directory: &OwnedFd, store: &str, interrupt: &Interrupt) -> bool {
    let text = beginning_of(directory, layout::CONFIGURATION, CONFIGURATION_MAX_BYTES, interrupt);
    text.trim_start().starts_with('{') && text.contains(store)
}

/// The beginning of a file as text; nothing if it cannot be read.
fn beginning_of(directory: &OwnedFd, name: &str, bytes: usize, interrupt: &Interrupt) -> String {
    let mut start = Vec::with_capacity(bytes);
    let opened = user_file::open(directory, name, OFlags::RDONLY, interrupt);
    let read = opened.map(|file| file.take(bytes as u64).read_to_end(&mut start));
    match read {
        Ok(Ok(_)) => String::from_utf8_lossy(&start).into_owned(),
        _ => String::new(),
    }
}

/// Whether a directory is marked as a cache. A tag that cannot be read marks nothing.
pub fn is_cache(directory: &OwnedFd, interrupt: &Interrupt) -> Result<bool> {
    let mut start = [0; CACHE_SIGNATURE.len()];
    let read = user_file::open(directory, CACHE_TAG, OFlags::RDONLY, interrupt)
        .and_then(|file| rustix::io::read(&file, &mut start[..]))
        .map_err(|errno| Error::io("reading the tag of a cache", errno.into()));
    match read {
        Err(error) if error.kind() == ErrorKind::Exhausted => Err(error),
        read => Ok(read.is_ok_and(|length| &start[..length] == CACHE_SIGNATURE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;

    #[test]
    fn r85_a_directory_with_several_marks_counts_once_and_meets_all() {
        let mut counts = LeftOut::none(3);
        assert!(counts.count_marks([false, true, true]));
        assert!(counts.count_marks([false, false, true]));
        assert!(!counts.count_marks([false, false, false]));
        let of = |directories, was_met| MarkCount { directories, was_met };
        let expected = vec![of(0, false), of(1, true), of(1, true)];
        assert_eq!(counts.marked, expected);
        let mut sum = LeftOut::default();
        sum.add(&counts);
        sum.add(&LeftOut { caches: 2, ..LeftOut::none(3) });
        assert_eq!(sum, LeftOut { caches: 2, marked: expected, ..LeftOut::default() });
    }

    #[test]
    fn room_takes_what_fits_and_first_what_fits_into_more() {
        let room = Room::of(10, 20);
        assert_eq!([4, 7, 6, 1, 0].map(|size| room.takes(size)), [true, false, true, false, true]);
        let room = Room::of(10, 20);
        assert_eq!([21, 20, 1].map(|size| room.takes(size)), [false, true, false]);
        assert!(!Room::of(0, 0).takes(1));
    }

    #[test]
    fn what_is_missing_elsewhere_is_no_file_that_went() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("there"), b"").unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = rustix::fs::open(directory.path(), flags, Mode::empty()).unwrap();
        // As the store says of an object, too.
        let error = |errno: Errno| Error::io("reading it", errno.into());
        let is_gone = |errno, name: &str| is_gone(&error(errno), &open, name.as_bytes());
        assert!(is_gone(Errno::NOENT, "absent"));
        assert!(!is_gone(Errno::NOENT, "there"));
        assert!(!is_gone(Errno::IO, "absent"));
    }

    #[test]
    fn r141_a_directory_is_another_one_only_if_its_name_leads_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let open = |path: &std::path::Path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).unwrap()
        };
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let (above, opened) = (open(directory.path()), open(&inner));
        let is_replaced = |errno: Errno| {
            let error = Error::io("listing the directory", errno.into());
            is_replaced(&error, &above, OsStr::new("inner"), &opened)
        };
        assert!(!is_replaced(Errno::NOENT));
        std::fs::remove_dir(&inner).unwrap();
        // That is told by its name alone.
        assert!(!is_replaced(Errno::NOENT));
        std::fs::create_dir(&inner).unwrap();
        assert!(is_replaced(Errno::NOENT) && !is_replaced(Errno::IO));
    }
}
