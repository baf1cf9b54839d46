//! What the walk does with stubs: files whose data is in the store already.
//!
//! A stub of which nothing came back into the file, and that is as long as its content, is taken
//! over unread, once all its chunks were found to be relied upon. One that was written to is read
//! as any file, by [`StubFile`], unless only cold files are asked for and it is none: then what the
//! store has of it is kept. Then it is taken over, too, if it was moved to where patterns leave
//! everything else out: programs read it there as anywhere.
//!
//! # Damage
//! A stub whose data cannot be relied upon is read: what can be read is stored anew, and if all
//! can, it is whole again. Of one that cannot be read whole a snapshot has nothing. A *manifest*
//! keeps what its stub says, and it is told and counted apart from other errors: its chunks may be
//! found again, and must not be collected until then. But only if an earlier manifest that the
//! directory has made itself names that content, which was live after the session had read its
//! epoch (W3): then nothing is missing that was not missed before, and no collection deletes
//! meanwhile what is left of it. What another directory has made may be forgotten at any time.

use super::attributes;
use super::walk::{Item, Walk};
use crate::chunk_store::ChunkStore;
use crate::chunk_store::presence::tree_present;
use crate::memory::{NAMED_CONTENT_BYTES, NAMED_CONTENTS_MIN};
use crate::repository::Repository;
use crate::stub::{self, StubFile};
use crate::tree::{TreeReader, path};
use crate::user_file;
use onefold_format::node::{Entry, EntryKind, Reference, Time};
use onefold_format::stub::Stub;
use onefold_lease::Lease;
use onefold_types::{Error, ErrorKind, Fingerprint, Result, limits};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::stub::by_handle;

/// What is read at once.
const READ_BYTES: usize = limits::MIB;
/// Damaged stubs of a run that are listed.
pub const LISTED_MAX: usize = 1000;
/// What is said of a damaged stub that a manifest keeps.
const DAMAGED: &str = "data of it in the store is missing or damaged; what is left is kept";

/// Stubs of which data is missing or damaged in the store, and which a manifest keeps.
#[derive(Clone, Debug, Default)]
pub struct DamagedStubs {
    /// How many.
    pub files: u64,
    /// What is to be said of them, the first thousand.
    pub lines: Vec<String>,
}

impl DamagedStubs {
    /// Whether a line says that a stub is damaged.
    #[must_use]
    pub fn is_line(line: &str) -> bool {
        line.ends_with(DAMAGED)
    }

    fn note(&mut self, shown: &str) {
        self.add(Self { files: 1, lines: vec![format!("{shown}: {DAMAGED}")] });
    }

    /// Counts others as well, and lists them as long as there is room.
    pub fn add(&mut self, more: Self) {
        self.files += more.files;
        let room = LISTED_MAX.saturating_sub(self.lines.len());
        self.lines.extend(more.lines.into_iter().take(room));
    }
}

/// What is known of the data of stubs.
pub struct StubData<'a> {
    repository: &'a Arc<Repository>,
    store: &'a ChunkStore,
    /// Roots of the directory's own manifests that were live when the session had read its epoch.
    earlier: &'a [Reference],
    /// The contents that those name, once somebody asked.
    named: Mutex<Option<Named>>,
    damaged: Mutex<DamagedStubs>,
}

/// Contents of files that manifests name, and the memory for them.
struct Named {
    contents: HashSet<Fingerprint>,
    _memory: crate::memory::Lease,
}

impl<'a> StubData<'a> {
    /// Of the stubs that a session meets.
    #[must_use]
    pub fn new(
        repository: &'a Arc<Repository>,
        store: &'a ChunkStore,
        earlier: &'a [Reference],
    ) -> Self {
        let (named, damaged) = (Mutex::default(), Mutex::default());
        Self { repository, store, earlier, named, damaged }
    }

    /// The damaged stubs that were kept.
    #[must_use]
    pub fn damaged(self) -> DamagedStubs {
        self.damaged.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every chunk of a content can be relied upon.
    fn is_stored(&self, content: Reference) -> Result<bool> {
        let present = TreeReader::open(self.repository)
            .and_then(|reader| tree_present(self.store, &reader, content));
        match present {
            // Also what the device does not give now: whoever reads it will see.
            Err(error) if error.is_unreadable() => Ok(false),
            other => other,
        }
    }

    /// Whether a stub can be read from its beginning to its end.
    fn is_readable(&self, walk: &Walk<'_>, directory: &OwnedFd, name: &OsStr) -> Result<bool> {
        let interrupt = &walk.context.job.interrupt;
        let file = user_file::open(directory, name, OFlags::RDONLY, interrupt)
            .map_err(|errno| Error::io("it could not be read", errno.into()))?;
        let read = || -> Result<()> {
            let tree = Arc::new(TreeReader::open(self.repository)?);
            let Some(stub) = StubFile::open(&tree, file)? else { return Ok(()) };
            let (mut buffer, mut offset) = (vec![0; READ_BYTES], 0);
            loop {
                walk.context.job.interrupt.check()?;
                match stub.read_at(offset, &mut buffer)? {
                    0 => return Ok(()),
                    read => offset += read as u64,
                }
            }
        };
        match read() {
            Ok(()) => Ok(true),
            Err(error) if error.is_unreadable() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether an earlier manifest names this content.
    fn is_named(&self, content: Reference) -> Result<bool> {
        let mut named = lock(&self.named);
        if named.is_none() {
            *named = Some(self.contents()?);
        }
        let is_it = |named: &Named| named.contents.contains(&content.fingerprint);
        Ok(named.as_ref().is_some_and(is_it))
    }

    /// All contents of files that earlier manifests name, as many as there is memory for.
    fn contents(&self) -> Result<Named> {
        let planned = self.repository.memory().named_contents_max;
        // As many directories are remembered as contents, at most.
        let memory = self.repository.purse().take(2 * planned * NAMED_CONTENT_BYTES);
        let fitting = memory.bytes() / NAMED_CONTENT_BYTES / 2;
        let most = planned.min(fitting.max(NAMED_CONTENTS_MIN));
        let contents = self.contents_of_earlier(most)?;
        Ok(Named { contents, _memory: memory })
    }

    fn contents_of_earlier(&self, most: usize) -> Result<HashSet<Fingerprint>> {
        let tree = TreeReader::open(self.repository)?;
        let mut found = HashSet::new();
        let mut seen = HashSet::new();
        let mut left = self.earlier.to_vec();
        while let Some(directory) = left.pop() {
            if !seen.insert(directory.fingerprint) {
                continue;
            }
            let entries = match tree.entries(directory) {
                Err(error) if error.is_unreadable() => continue,
                entries => entries?,
            };
            for entry in entries {
                match (entry.kind, entry.content) {
                    _ if found.len() >= most || seen.len() > most => return Ok(found),
                    (EntryKind::Directory, Some(content)) => left.push(content),
                    (EntryKind::File, Some(content)) => drop(found.insert(content.fingerprint)),
                    _ => {}
                }
            }
        }
        Ok(found)
    }
}

/// As what a file is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// It is not.
    None,
    /// As what it is.
    Plain,
    /// As a stub of which something is in the file.
    Stub,
}

/// Whether a file has the capabilities that programs are given.
fn has_capabilities(directory: &OwnedFd, name: &OsStr) -> bool {
    let path = by_handle(directory, name);
    rustix::fs::lgetxattr(path, "security.capability", &mut [0u8; 0][..]).is_ok()
}

impl Walk<'_> {
    /// Whether a file is to be read, and as what. If its data is in the store, or it is none that
    /// is asked for, it is not; what there is to say about it was sent.
    pub(super) fn reading(
        &mut self,
        directory: &Arc<OwnedFd>,
        (name, tree_path): (&OsStr, &[u8]),
        entry: &Entry,
        known: Option<&Entry>,
    ) -> Result<Reading> {
        // How much of the disk a file takes does not tell whether it is a stub.
        let stub = self.stub(directory, name, entry)?;
        let is_cold = !self.is_left_out() && self.is_cold(entry);
        let Some(stub) = stub else {
            if self.context.selection.lost.contains(&entry.inode) {
                return Ok(Reading::None);
            }
            // A change of its data would take its capabilities away, for good if the job is killed.
            let is_left = !is_cold
                || (self.context.selection.cold.is_some() && has_capabilities(directory, name));
            return Ok(if is_left { Reading::None } else { Reading::Plain });
        };
        if self.is_linked(entry) {
            // Another name of it is being read: whoever has it open is this program.
            return Ok(Reading::Stub);
        }
        let is_manifest = self.context.selection.cold.is_some();
        let is_all = stub::is_all(&stub, entry.size);
        // What is none of its content is only read if it is asked for.
        let is_wanted = is_all || (is_cold && self.is_free(directory, name));
        if is_wanted && !is_all && !is_manifest {
            return Ok(Reading::Stub);
        }
        let data = self.context.stubs;
        let is_stored = data.is_stored(stub.content)?;
        let is_to_be_read = match is_stored {
            true => is_wanted && !is_all,
            false => is_wanted && (!is_manifest || data.is_readable(self, directory, name)?),
        };
        if is_to_be_read {
            return Ok(Reading::Stub);
        }
        if !is_stored {
            self.keep_damaged(tree_path, &stub)?;
        }
        let mut entry = entry.clone();
        entry.content = Some(stub.content);
        entry.size = stub.size;
        entry.chunks = stub.chunks;
        // What it takes of the disk tells nothing now. Whoever writes its holes as holes is right.
        let before = known.filter(|known| known.content == Some(stub.content));
        entry.sparse = before.is_none_or(|known| known.sparse);
        if !is_all {
            // It is not what the file has now, and nobody may take it for that.
            entry.changed = Time::default();
        }
        self.put_xattrs_by_path(directory, name, tree_path, &mut entry)?;
        self.send(Item::Stored(entry))?;
        Ok(Reading::None)
    }

    /// Whether there is no room for a file that is not in the store, nor about to be.
    pub(super) fn is_put_off(&self, directory: &OwnedFd, name: &OsStr, entry: &Entry) -> bool {
        let Some(room) = &self.context.selection.room else { return false };
        if self.is_linked(entry) {
            return false;
        }
        // Holes take none.
        let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let of_disk = stat.map(|stat| stat.st_blocks.unsigned_abs() * attributes::BLOCK_BYTES);
        !room.takes(of_disk.unwrap_or(entry.size).min(entry.size))
    }

    /// Whether patterns leave this out, so that it is looked through for stubs only.
    pub(super) fn is_left_out(&self) -> bool {
        self.left_out_above > 0
    }

    /// Whether nobody has a stub open that is to be emptied again.
    fn is_free(&self, directory: &OwnedFd, name: &OsStr) -> bool {
        if self.context.selection.cold.is_none() {
            return true;
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty()).map(File::from);
        file.is_ok_and(|file| matches!(Lease::take(&file), Ok(Some(_))))
    }

    /// Whether a file is as cold as is asked for.
    pub(super) fn is_cold(&self, entry: &Entry) -> bool {
        let Time { seconds, nanoseconds } = entry.modified;
        let modified_ns = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds.into());
        let cold = self.context.selection.cold;
        cold.is_none_or(|cold| cold.is_cold(entry.size, modified_ns))
    }

    /// The stub that a file is.
    pub(super) fn stub(
        &self,
        directory: &OwnedFd,
        name: &OsStr,
        entry: &Entry,
    ) -> Result<Option<Stub>> {
        let path = by_handle(directory, name);
        let value = match stub::is_served(directory) {
            true => stub::served_value_at(&path, self.context.repository.store_id()),
            false => stub::value_at(&path),
        };
        let value = match value {
            Err(error) if self.is_foreign(&error) => return Ok(None),
            value => value.map_err(|error| error.with_kind(ErrorKind::Source))?,
        };
        let Some(value) = value else { return Ok(None) };
        let opened = stub::open(self.context.repository, entry.inode, &value);
        if opened.as_ref().is_err_and(|error| self.is_foreign(error)) {
            return Ok(None);
        }
        let (_, mut stub) = opened.map_err(|error| match error.kind() {
            // Of this file, and not of the store.
            ErrorKind::Damaged | ErrorKind::NewerFormat => error.with_kind(ErrorKind::Source),
            _ => error,
        })?;
        stub.valid = stub.valid.min(entry.size);
        Ok(Some(stub))
    }

    /// Whether what cannot be opened is no stub of this file and store, where only such are looked
    /// for. What cannot be read may be one.
    fn is_foreign(&self, error: &Error) -> bool {
        self.is_left_out() && error.kind() == ErrorKind::Damaged
    }

    /// Tells of a damaged stub that the manifest keeps.
    ///
    /// Errors: `Source` if no earlier manifest names its content.
    fn keep_damaged(&self, tree_path: &[u8], stub: &Stub) -> Result<()> {
        let data = self.context.stubs;
        if !data.is_named(stub.content)? {
            return Err(Error::new(
                ErrorKind::Source,
                "it is a stub, data of it is missing in the store, and no earlier manifest of its \
                 share tells of it",
            ));
        }
        let shown = path::display(tree_path);
        self.context.job.observer.problem(&shown, &Error::damaged(DAMAGED));
        lock(&data.damaged).note(&shown);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses an item of a directory on this device if something is mounted on it: what is below may
/// be a stub, or have some in it.
pub fn refuse_covered(directory: impl AsFd, name: &OsStr, device: u64) -> Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let known = rustix::fs::statx(directory, name, flags, StatxFlags::empty())
        .map_err(|errno| Error::io("its status", errno.into()))?;
    let is_covered = match known.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        true => known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        // An earlier kernel does not tell of what is mounted from the same device.
        false => rustix::fs::makedev(known.stx_dev_major, known.stx_dev_minor) != device,
    };
    match is_covered {
        true => Err(Error::new(
            ErrorKind::Source,
            "something is mounted on it, and this process may not look below: unmount it, or run \
             this as root with CAP_SYS_ADMIN, on Linux 5.2 or later",
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_damaged_stub_too_many_is_counted_and_not_listed() {
        let mut damaged = DamagedStubs::default();
        (0..=LISTED_MAX).for_each(|number| damaged.note(&format!("/{number}")));
        assert_eq!((damaged.files, damaged.lines.len()), (LISTED_MAX as u64 + 1, LISTED_MAX));
        assert!(damaged.lines.iter().all(|line| DamagedStubs::is_line(line)));
        // Those of several turns have the room of one.
        let mut sum = DamagedStubs::default();
        sum.note("/first");
        sum.add(damaged);
        assert_eq!((sum.files, sum.lines.len()), (LISTED_MAX as u64 + 2, LISTED_MAX));
    }
}
