//! Stubs that lost their attribute: files of zeros that no program has made.
//!
//! A program that copies below the mount without `user.*` attributes, or restores such a copy,
//! leaves the holes of a stub and not what makes it one. Taken for a new version its zeros would
//! take the place of the data, which nothing keeps then.
//!
//! # Algorithm
//! Each file that a manifest names is looked at under its path.
//! 1. It is *lost* if it has the size and the time of that version and no attribute, and zeros
//!    where the version has data: everywhere, or, of a stub of which something had come back, in
//!    some granule. Copies may round times.
//!    A file of another time *may be* lost if it is another file, has holes where that version has
//!    data, and elsewhere a block of that version: a sparse copy of a stub that was written to
//!    looks like this. In a copy of a share a file of zeros may be lost, whatever its time.
//! 2. A file that was not touched since the manifest was made is what the manifest says.
//! 3. Who repairs makes a lost file a stub again, of the version that the manifest names. Granules
//!    that hold something else than zeros are the file's own.
//!
//! # Invariants
//! - A lost file is no version of anything: no job stores it.
//! - As long as a file is lost, or could not be looked at, no manifest of the directory is
//!   forgotten, and no job stores that file.
//! - A program that writes zeros changes the time or the size, which makes a new version. A user
//!   who replaces a file by a sparse one, and means the holes, writes zeros into them.
//!
//! # Concurrency
//! Called with the lock of the share's jobs by whoever changes anything, under a lease of the file.

use super::emptying::Privileges;
use super::share::{Share, open_directory};
use crate::ingest::attributes;
use crate::ingest::stubs::by_handle;
use crate::job::{Interrupt, Job};
use crate::repository::Repository;
use crate::session::Snapshot;
use crate::stub::times;
use crate::stub::{self, stub_file};
use crate::tree::{FileReader, TreeReader, path};
use crate::user_file;
use onefold_format::node::{Entry, EntryKind, Reference, Time};
use onefold_format::stub::{Stub, StubOwner};
use onefold_lease::Lease;
use onefold_policy::primary::recall::granule_log2;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, ShareId, limits};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// What is said of one.
pub const LOST: &str = "it was a stub and lost its attribute: it shows zeros where it has data; \
    the store keeps the data, and 'onefold share repair' makes it whole";
/// The message about a file that may be lost.
const MAY_BE_LOST: &str = "it shows zeros where the store has data, as a copy of a stub does, and \
    has another time than that; 'onefold restore' brings back what the store has; if the zeros are \
    meant, write them in place of the holes";
/// More than the block of a file system, less than a granule.
const LAST_BYTES: u64 = 16 << 10;
/// A block of a file that may be lost is compared with the store.
const BLOCK_BYTES: usize = 4 << 10;
/// Lost files of a share that a run goes on beside.
pub const LOST_FILES_MAX: usize = 1 << 18;

/// The lost files of a share.
#[derive(Clone, Debug, Default)]
pub struct LostStubs {
    /// What no job stores: they are lost, or could not be looked at.
    inodes: HashSet<u64>,
    files: u64,
    unseen: Unseen,
}

/// What could not be looked at.
#[derive(Clone, Debug, Default)]
struct Unseen {
    errors: u64,
    /// Files of these.
    files: Vec<u64>,
    /// Whether there are others, which nobody can name.
    has_more: bool,
}

impl LostStubs {
    /// All lost files of a share; each is told.
    ///
    /// Errors: `LimitExceeded` if there are very many.
    pub fn look(
        repository: &Arc<Repository>,
        share: &Share,
        manifests: &[Snapshot],
        job: &Job,
    ) -> Result<Self> {
        let mut found = Self::default();
        let roots: Vec<Reference> = manifests.iter().map(|one| one.record.root).collect();
        let unseen = each(repository, share.into(), &roots, job, &mut |lost| {
            if found.note(lost.inode)? {
                found.files += 1;
                let what = if lost.is_of_that_time { LOST } else { MAY_BE_LOST };
                job.observer.problem(&path::display(lost.path), &told(what));
            }
            Ok(())
        })?;
        for inode in &unseen.files {
            found.note(*inode)?;
        }
        found.unseen = unseen;
        Ok(found)
    }

    /// How much could not be looked at.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.unseen.errors
    }

    /// Whether there may be lost files of which not even the inode is known: whoever stores files
    /// that are no stubs could store their zeros.
    #[must_use]
    pub fn may_be_more(&self) -> bool {
        self.unseen.has_more
    }

    /// Takes notice of one; whether it was not known.
    fn note(&mut self, inode: u64) -> Result<bool> {
        if self.inodes.len() >= LOST_FILES_MAX && !self.inodes.contains(&inode) {
            return Err(Error::new(
                ErrorKind::LimitExceeded,
                "very many stubs of the share lost their attribute; 'onefold share repair' makes \
                 them whole; run this again then",
            ));
        }
        Ok(self.inodes.insert(inode))
    }

    /// How many there are.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files
    }

    /// What no job stores.
    #[must_use]
    pub fn inodes(&self) -> &HashSet<u64> {
        &self.inodes
    }
}

/// What a run over lost files has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Files that are stubs again.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that are not.
    pub failed: u64,
}

/// The directory of a share, or of what may be a copy of one.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The directory.
    pub directory: BorrowedFd<'a>,
    /// The share.
    pub share: ShareId,
    /// Whether it is a copy, or may be one.
    pub is_copy: bool,
}

impl<'a> From<&'a Share> for Place<'a> {
    fn from(share: &'a Share) -> Self {
        let is_copy = !matches!(share.standing(), super::addresses::Standing::Own);
        Self { directory: share.directory(), share: share.id, is_copy }
    }
}

/// Makes the lost files of a share stubs again; what could not be is told.
pub fn make_stubs<'a>(
    repository: &Arc<Repository>,
    place: impl Into<Place<'a>>,
    manifests: &[Snapshot],
    job: &Job,
) -> Result<Found> {
    let place = place.into();
    let mut found = Found::default();
    let roots: Vec<Reference> = manifests.iter().rev().map(|one| one.record.root).collect();
    let unseen = each(repository, place, &roots, job, &mut |lost| {
        let made = match lost.is_of_that_time {
            true => make_stub(repository, place.share, lost),
            false => Err(told(MAY_BE_LOST)),
        };
        match made {
            Ok(()) => {
                found.files += 1;
                found.bytes += lost.stored.size;
            }
            Err(error) if error.is_about_all() => return Err(error),
            Err(error) => {
                found.failed += 1;
                job.observer.problem(&path::display(lost.path), &error);
            }
        }
        Ok(())
    })?;
    found.failed += unseen.errors;
    Ok(found)
}

fn told(what: &str) -> Error {
    Error::new(ErrorKind::Source, what)
}

/// A lost file.
struct Lost<'a> {
    directory: &'a OwnedFd,
    path: &'a [u8],
    stored: &'a Entry,
    inode: u64,
    /// Whether it has the time of what the manifest names.
    is_of_that_time: bool,
}

/// A directory of a manifest and of the share, and what is left of it.
struct Open {
    directory: OwnedFd,
    path: Vec<u8>,
    entries: std::vec::IntoIter<Entry>,
}

/// Calls `each` with the lost files that manifests with these roots name; says what could not be
/// looked at, which is told. What is damaged in the store names nothing.
fn each(
    repository: &Arc<Repository>,
    place: Place<'_>,
    roots: &[Reference],
    job: &Job,
    each: &mut dyn FnMut(&Lost<'_>) -> Result<()>,
) -> Result<Unseen> {
    let tree = Arc::new(TreeReader::open(repository)?);
    let Place { directory: top, is_copy, .. } = place;
    let mut unseen = Unseen::default();
    for root in roots {
        let top = open_directory(top, Path::new("."))?;
        let mut open = Vec::new();
        let mut looked = enter(&tree, &mut open, Ok(top), (Vec::new(), *root));
        loop {
            match looked {
                Ok(()) => {}
                Err(Passed(inode, error)) if !error.is_about_all() => {
                    unseen.note(inode, &error);
                    let at = open.last().map_or(&b"/"[..], |open: &Open| &open.path[..]);
                    job.observer.problem(&path::display(at), &error);
                }
                Err(Passed(_, error) | Stop(error)) => return Err(error),
            }
            job.interrupt.check()?;
            let depth = open.len();
            let Some(Open { directory, path, entries }) = open.last_mut() else { break };
            let Some(stored) = entries.next() else {
                open.pop();
                looked = Ok(());
                continue;
            };
            let path = path::join(path, &stored.name);
            looked = match (stored.kind, stored.content) {
                (EntryKind::Directory, Some(content)) if depth < limits::DEPTH_MAX => {
                    let name = Path::new(OsStr::from_bytes(&stored.name));
                    let inner = open_directory(&*directory, name);
                    enter(&tree, &mut open, inner, (path, content))
                }
                (EntryKind::File, Some(_)) => {
                    let of = (&path[..], &stored);
                    let looked = look_at(&tree, directory, of, (is_copy, &job.interrupt));
                    looked.and_then(|lost| lost.map_or(Ok(()), |lost| each(&lost).map_err(Stop)))
                }
                _ => Ok(()),
            };
        }
    }
    Ok(unseen)
}

impl Unseen {
    fn note(&mut self, inode: Option<u64>, error: &Error) {
        self.errors += 1;
        self.files.extend(inode);
        // Nobody stores files of a directory that he may not enter.
        self.has_more |= inode.is_none() && error.kind() != ErrorKind::NotPermitted;
    }
}

use Ended::{Passed, Stop};

/// Why a look ended early.
enum Ended {
    /// A file, of this inode if that is known, or a directory could not be looked at.
    Passed(Option<u64>, Error),
    /// The called function wants no more.
    Stop(Error),
}

/// Goes on with a directory, if it is still there.
fn enter(
    tree: &TreeReader,
    open: &mut Vec<Open>,
    directory: Result<OwnedFd>,
    (path, content): (Vec<u8>, Reference),
) -> Result<(), Ended> {
    let directory = match directory {
        Err(error) if error.os_code().is_some_and(is_gone) => return Ok(()),
        directory => directory.map_err(|error| Passed(None, error))?,
    };
    let entries = match tree.entries(content) {
        Err(error) if error.is_lost() => return Ok(()),
        entries => entries.map_err(|error| Passed(None, error))?.into_iter(),
    };
    open.push(Open { directory, path, entries });
    Ok(())
}

/// Whether an error number says that something else, or nothing, has a name.
fn is_gone(code: i32) -> bool {
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].iter().any(|errno| errno.raw_os_error() == code)
}

/// A file that a manifest names, if it is lost.
fn look_at<'a>(
    tree: &Arc<TreeReader>,
    directory: &'a OwnedFd,
    (path, stored): (&'a [u8], &'a Entry),
    (is_copy, interrupt): (bool, &Interrupt),
) -> Result<Option<Lost<'a>>, Ended> {
    let name = OsStr::from_bytes(&stored.name);
    let failed = |what, errno: Errno| {
        let error = Error::io(what, errno.into());
        error.context(path::display(&stored.name))
    };
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(errno) if is_gone(errno.raw_os_error()) => return Ok(None),
        stat => stat.map_err(|errno| Passed(None, failed("its status", errno)))?,
    };
    let state = attributes::entry_of(Vec::new(), &stat);
    let is_of_that_time = is_same_time(stored.modified, state.modified);
    let is_meant = state.kind == EntryKind::File && state.size == stored.size;
    let is_untouched = attributes::is_same_state(&state, stored);
    let inode = state.inode;
    if !is_meant || is_untouched || !(is_of_that_time || is_copy || inode != stored.inode) {
        return Ok(None);
    }
    let passed = |error: Error| Passed(Some(inode), error.context(path::display(&stored.name)));
    match stub::value_at(&by_handle(directory, name)) {
        Ok(None) => {}
        // A reader of the file tells what is wrong with it.
        Ok(Some(_)) => return Ok(None),
        Err(error) if error.is_lost() => return Ok(None),
        Err(error) => return Err(passed(error)),
    }
    let file = match user_file::open(directory, name, OFlags::RDONLY, interrupt) {
        Err(errno) if is_gone(errno.raw_os_error()) => return Ok(None),
        file => file.map_err(|errno| Passed(Some(inode), failed("opening it", errno)))?,
    };
    let is_whole = stored.changed != Time::default() || !is_of_that_time;
    let is_lost = FileReader::open(Arc::clone(tree), stored).and_then(|reader| {
        Ok(((is_of_that_time || is_copy) && has_lost(&file, &reader, (stored.size, is_whole))?)
            || (!is_of_that_time && is_part(&file, &reader, stored.size)?))
    });
    let is_lost = match is_lost {
        Err(error) if error.is_lost() => false,
        is_lost => is_lost.map_err(passed)?,
    };
    Ok(is_lost.then_some(Lost { directory, path, stored, inode, is_of_that_time }))
}

/// Whether a time is what a copy makes of another one: the same, or rounded as a file system or a
/// format of archives keeps times.
fn is_same_time(stored: Time, copied: Time) -> bool {
    const SECOND_NS: i128 = 1_000_000_000;
    let of = |time: Time| i128::from(time.seconds) * SECOND_NS + i128::from(time.nanoseconds);
    let (stored, copied) = (of(stored), of(copied));
    let is_down = |unit: i128| stored - stored.rem_euclid(unit) == copied;
    let units = [1, 100, 1000, 1_000_000, 10_000_000, SECOND_NS, 2 * SECOND_NS];
    // Some programs round up for archives and FAT.
    let is_up = copied % (2 * SECOND_NS) == 0 && (0..2 * SECOND_NS).contains(&(copied - stored));
    units.into_iter().any(is_down) || is_up
}

/// Whether a file has zeros where the store has data: everywhere if it was all in the store, else
/// in some granule.
fn has_lost(file: &File, reader: &FileReader, (size, is_whole): (u64, bool)) -> Result<bool> {
    let granule_bytes = 1 << granule_log2(size);
    let (mut at, mut has_lost) = (0, false);
    let mut buffer = Vec::new();
    while at < size {
        let end = (at + granule_bytes).min(size);
        match is_zeros(file, at..end, &mut buffer)? {
            false if is_whole => return Ok(false),
            true if !has_lost => has_lost = has_data(reader, at..end)?,
            _ => {}
        }
        if has_lost && !is_whole {
            return Ok(true);
        }
        at = end;
    }
    Ok(has_lost)
}

/// Whether a file has holes where the store has data, and elsewhere data that the store has. Holes
/// are found without reading the file, so a file without any costs nothing more.
fn is_part(file: &File, reader: &FileReader, size: u64) -> Result<bool> {
    let granule_bytes = 1 << granule_log2(size);
    let (mut holes, mut others) = (Vec::new(), Vec::new());
    for at in (0..size).step_by(granule_bytes) {
        let range = at..size.min(at + granule_bytes as u64);
        match stub_file::own_data(file, at)? {
            Some(data) if data < range.end => others.push(range),
            _ => holes.push(range),
        }
    }
    let any = |ranges: Vec<Range<u64>>,
               is_it: fn(&File, &FileReader, Range<u64>) -> Result<bool>| {
        for range in ranges {
            if is_it(file, reader, range)? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    Ok(any(holes, |_, reader, range| has_data(reader, range))? && any(others, has_same_block)?)
}

/// Whether a range of a file has a block that is none of zeros and is what the store has.
fn has_same_block(file: &File, reader: &FileReader, range: Range<u64>) -> Result<bool> {
    let (mut own, mut stored) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
    for at in range.clone().step_by(BLOCK_BYTES) {
        let length = (range.end - at).min(BLOCK_BYTES as u64) as usize;
        file.read_exact_at(&mut own[..length], at).context(|| "reading it")?;
        match reader.read_at(at, &mut stored[..length]) {
            Err(error) if error.is_unreadable() => continue,
            read => read?,
        };
        if own[..length] == stored[..length] && own.iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a range of a file is a hole, or holds zeros.
fn is_zeros(file: &File, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<bool> {
    let data = stub_file::own_data(file, range.start)?;
    if data.is_none_or(|data| data >= range.end) {
        return Ok(true);
    }
    let mut at = range.start;
    while at < range.end {
        buffer.resize((range.end - at).min(limits::MIB as u64) as usize, 0);
        file.read_exact_at(buffer, at).context(|| "reading it")?;
        if buffer.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += buffer.len() as u64;
    }
    Ok(true)
}

/// Whether the store has anything but zeros in a range. What it cannot give now it has.
fn has_data(reader: &FileReader, range: Range<u64>) -> Result<bool> {
    let mut at = range.start;
    let mut look = || -> Result<bool> {
        while let Some(data) = reader.data_within(at..range.end)? {
            let mut bytes = vec![0; (range.end - data).min(limits::MIB as u64) as usize];
            let read = reader.read_at(data, &mut bytes)?;
            if read == 0 || bytes[..read].iter().any(|byte| *byte != 0) {
                return Ok(read > 0);
            }
            at = data + read as u64;
        }
        Ok(false)
    };
    match look() {
        Err(error) if error.is_unreadable() => Ok(true),
        other => other,
    }
}

/// Makes a lost file a stub again.
fn make_stub(repository: &Repository, share: ShareId, lost: &Lost<'_>) -> Result<()> {
    let Lost { directory, stored, .. } = lost;
    let Some(content) = stored.content else { return Ok(()) };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, &*stored.name, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| Error::io("opening it", errno.into()))?;
    let open = || told("somebody has it open; close it and run this again");
    let Some(lease) = Lease::take(&file)? else { return Err(open()) };
    let stat = rustix::fs::fstat(&file).map_err(|errno| Error::io("its status", errno.into()))?;
    let state = attributes::entry_of(Vec::new(), &stat);
    let is_same = (state.inode, state.size) == (lost.inode, stored.size)
        && is_same_time(stored.modified, state.modified)
        && stub::value(&file)?.is_none();
    if !is_same {
        return Err(told("it was changed while it was looked at; run this again"));
    }
    let granule_log2 = granule_log2(stored.size);
    let mut stub = Stub::new(content, (stored.size, stored.chunks), stored.modified, granule_log2)?;
    let mut buffer = Vec::new();
    for granule in 0..stored.size.div_ceil(stub.granule_bytes()) {
        if !is_zeros(&file, stub.range_of(granule), &mut buffer)? {
            stub.set_recalled(granule);
        }
    }
    if !lease.is_held()? {
        return Err(open());
    }
    let owner = StubOwner { share, inode: state.inode };
    let privileges = Privileges::of(&file)?;
    stub.are_times_pending = false;
    stub::write(repository, owner, &file, &stub)?;
    file.sync_all().context(|| "making the stub durable")?;
    for Range { start, end } in stub.not_recalled().map(|granule| stub.range_of(granule)) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A part of the last block would stay.
        let end = end.next_multiple_of(LAST_BYTES);
        rustix::fs::fallocate(&file, flags, start, end - start)
            .map_err(|errno| Error::io("taking zeros out of it", errno.into()))?;
    }
    privileges.put_back(&file)?;
    times::put_back(&file, stored.modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lost_file_too_many_ends_a_run() {
        let mut lost = LostStubs::default();
        assert!((0..LOST_FILES_MAX as u64).all(|inode| lost.note(inode).unwrap()));
        assert!(!lost.note(0).unwrap());
        let error = lost.note(LOST_FILES_MAX as u64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }

    #[test]
    fn r116_a_copy_has_the_time_of_its_original_or_a_rounded_one() {
        let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
        let stored = time(7, 123_456_789);
        for nanoseconds in [123_456_789, 123_456_700, 123_456_000, 123_000_000, 120_000_000, 0] {
            assert!(is_same_time(stored, time(7, nanoseconds)), "{nanoseconds}");
        }
        // FAT keeps every second second; some round up.
        for seconds in [6, 8] {
            assert!(is_same_time(stored, time(seconds, 0)), "{seconds}");
        }
        assert!(is_same_time(time(-7, 5), time(-8, 0)));
        for other in [time(9, 0), time(5, 0), time(4, 0), time(6, 1), time(7, 123_456_790)] {
            assert!(!is_same_time(stored, other), "{other:?}");
        }
    }
}
