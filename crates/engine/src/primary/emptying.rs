//! A file becomes a stub (ATC'12, "create stream metadata, truncate original file data stream").
//!
//! # Order, for each file
//! 1. Its data was read, stored, and is in a committed manifest; its state has not changed since.
//! 2. All of it is read back from the store and compared with the file.
//! 3. A write lease: nobody has the file open, nobody gets it open. Its state is compared again.
//! 4. The stub is written, as one that is being emptied, and made durable.
//! 5. The data is punched out, the times are put back, the stub says that the file is emptied.
//!
//! # Crashes
//! Before 4 is durable the file is what it was. From then on its bytes are the store's by what the
//! stub says, whether their data is still in the file or not. A file that is found half emptied
//! ([`Stub::is_being_emptied`]) is emptied again from 5 on, and its times are put back as the stub
//! tells them, unless somebody has written to it since.
//!
//! Steps 3 to 5 are done for some files at once, so that one commit of the file system's journal
//! makes the stubs of all of them durable.

use crate::repository::Repository;
use crate::stub::{self, StubFile};
use crate::tree::{FileReader, TreeReader};
use onefold_format::node::{Entry, Time};
use onefold_format::stub::Stub;
use onefold_lease::Lease;
use onefold_policy::primary::recall::granule_log2;
use onefold_types::error::Context;
use onefold_types::{Error, Result, ShareId, limits};
use rustix::fs::{FallocateFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

/// What is compared at once.
const COMPARED_BYTES: usize = limits::MIB;
/// Of the bytes that a file system counts blocks in.
pub const BLOCK_BYTES: u64 = 512;

/// Why a file was left alone. None of these is a failure: a later run may take it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Left {
    /// Somebody has it open.
    Open,
    /// It has changed since it was stored.
    Changed,
    /// It is a stub of this content already.
    Done,
}

/// A file that is about to be emptied.
pub struct Prepared {
    file: File,
    stub: Stub,
    is_stub: bool,
    state: Entry,
}

impl Prepared {
    /// The file's inode.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.state.inode
    }
}

/// What emptying some files has come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emptied {
    /// Files that are stubs now.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of the disk that they took, and take no more.
    pub freed_bytes: u64,
}

/// Opens a file for emptying and compares it with what the store has of it (steps 1 and 2).
///
/// Errors: `Damaged` if the store does not give what the file has.
pub fn prepare(
    tree: &Arc<TreeReader>,
    directory: &OwnedFd,
    stored: &Entry,
) -> Result<Result<Prepared, Left>> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, &*stored.name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(Err(Left::Changed)),
        Err(rustix::io::Errno::TXTBSY | rustix::io::Errno::WOULDBLOCK) => {
            return Ok(Err(Left::Open));
        }
        Err(errno) => return Err(Error::io("opening it", errno.into())),
    };
    let state = state_of(&file)?;
    let value = stub::value(&file)?;
    let repository = tree.chunks().repository();
    if let Some(value) = &value {
        let (_, known) = stub::open(repository, state.inode, value)?;
        if known.is_untouched() && !known.is_being_emptied {
            return Ok(Err(Left::Done));
        }
    }
    let Some(content) = stored.content else { return Ok(Err(Left::Changed)) };
    if !crate::ingest::attributes::is_same_state(&state, stored) {
        return Ok(Err(Left::Changed));
    }
    let sizes = (stored.size, stored.chunks);
    let stub = Stub::new(content, sizes, state.modified, granule_log2(stored.size))?;
    compare(tree, &file, stored)?;
    Ok(Ok(Prepared { file, stub, is_stub: value.is_some(), state }))
}

/// The file's state, as a manifest notes it.
fn state_of(file: &File) -> Result<Entry> {
    let stat = rustix::fs::fstat(file).map_err(|errno| Error::io("its status", errno.into()))?;
    Ok(crate::ingest::attributes::entry_of(Vec::new(), &stat))
}

/// Fails unless the store gives what the file has.
fn compare(tree: &Arc<TreeReader>, file: &File, stored: &Entry) -> Result<()> {
    let reader = FileReader::open(Arc::clone(tree), stored)?;
    let again = file.try_clone().context(|| "opening it again")?;
    let stub = StubFile::open(tree, again)?;
    let (mut of_file, mut of_store) = (vec![0; COMPARED_BYTES], vec![0; COMPARED_BYTES]);
    let mut offset = 0;
    loop {
        let read = match &stub {
            Some(stub) => stub.read_at(offset, &mut of_file)?,
            None => read_full(file, offset, &mut of_file)?,
        };
        let found = reader.read_at(offset, &mut of_store)?;
        if of_file[..read] != of_store[..found] {
            return Err(Error::damaged(format!(
                "from byte {offset} on the store does not give what the file has; it is left as \
                 it is"
            )));
        }
        if read == 0 {
            return Ok(());
        }
        offset += read as u64;
    }
}

fn read_full(file: &File, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context(|| "reading it"),
        }
    }
    Ok(done)
}

/// Empties files (steps 3 to 5); `left` hears of those that had to be left alone. The files that
/// were not reached when something fails are what they were.
pub fn empty(
    repository: &Repository,
    share: ShareId,
    files: &[Prepared],
    left: &mut dyn FnMut(Left),
) -> Result<Emptied> {
    let mut leased = Vec::new();
    for prepared in files {
        let Some(lease) = Lease::take(&prepared.file)? else {
            left(Left::Open);
            continue;
        };
        let state = state_of(&prepared.file)?;
        if !crate::ingest::attributes::is_same_state(&state, &prepared.state) {
            left(Left::Changed);
            continue;
        }
        leased.push((prepared, lease));
    }
    for (prepared, _) in &leased {
        let file = (&prepared.file, prepared.state.inode);
        stub::write(repository, share, file, &prepared.stub)?;
    }
    for (prepared, _) in &leased {
        prepared.file.sync_all().context(|| "making the stub durable")?;
    }
    let mut emptied = Emptied::default();
    for (prepared, lease) in leased {
        let before = blocks(&prepared.file)?;
        finish(repository, share, &prepared.file, &prepared.stub)?;
        emptied.files += u64::from(!prepared.is_stub);
        emptied.bytes += prepared.stub.size;
        emptied.freed_bytes += before.saturating_sub(blocks(&prepared.file)?);
        drop(lease);
    }
    Ok(emptied)
}

/// Step 5, also of what somebody was stopped at: nothing of the file may have been recalled.
pub fn finish(repository: &Repository, share: ShareId, file: &File, stub: &Stub) -> Result<()> {
    let inode = file.metadata().context(|| "its status")?.ino();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, 0, stub.size)
        .map_err(|errno| Error::io("taking the data out of it", errno.into()))?;
    put_back(file, stub.modified)?;
    let mut done = stub.clone();
    done.is_being_emptied = false;
    stub::write(repository, share, (file, inode), &done)
}

/// Puts back when the file had been changed last.
pub fn put_back(file: impl AsFd, modified: Time) -> Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    };
    rustix::fs::futimens(file, &times)
        .map_err(|errno| Error::io("putting its times back", errno.into()))
}

fn blocks(file: &File) -> Result<u64> {
    Ok(file.metadata().context(|| "its status")?.blocks() * BLOCK_BYTES)
}

/// Refuses a file system that keeps no attributes, leases or holes; the file is new.
pub fn probe(file: &File) -> Result<()> {
    let lacks = |what: &str, why: &dyn std::fmt::Display| {
        Error::invalid(format!("the file system has no {what}, which a share needs: {why}"))
    };
    let value = [0; 1];
    rustix::fs::fsetxattr(file, stub::ATTRIBUTE, &value, XattrFlags::empty())
        .map_err(|errno| lacks("extended attributes", &errno))?;
    file.set_len(COMPARED_BYTES as u64).context(|| "making the probe longer")?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, 0, COMPARED_BYTES as u64)
        .map_err(|errno| lacks("holes", &errno))?;
    match Lease::take(file) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(lacks("leases", &"somebody else has the probe open")),
        Err(error) => Err(lacks("leases", &error)),
    }
}
