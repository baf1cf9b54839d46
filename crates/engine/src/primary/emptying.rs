//! A file becomes a stub (ATC'12, "create stream metadata, truncate original file data stream").
//!
//! # Order, for each file
//! 1. Its data was read, stored, and is in a committed manifest; its state has not changed since.
//! 2. All of it is read back from the store and compared with the file.
//! 3. A write lease: nobody has the file open, nobody gets it open. Its state is compared again.
//! 4. The stub is written, as one that is being emptied, and made durable.
//! 5. The data is punched out, the times are put back, the stub says that the file is emptied.
//!
//! Before 4 and before 5 the lease is asked for again: the kernel takes it from a holder who lets
//! others wait for too long, and then the file is theirs. One that somebody waits for is left to
//! him, whole, and is met again by a later run. A lock goes with the lease and outlasts it: the
//! mount takes it before it writes for a program, so nothing is written between that look and 5.
//! After 5 the job looks once more, and tells if others could get at the file below.
//!
//! # Crashes
//! Nothing is punched that the store has not: who writes into a stub below writes where its bytes
//! are the store's, so that is looked for wherever data of a stub is taken out ([`StubFile`]).
//!
//! Before 4 is durable the file is what it was. From then on its bytes are the store's by what the
//! stub says, whether their data is still in the file or not. Which files are at steps 3 to 5 is
//! written down before ([`Share::note_emptying`]); whoever mounts the share or runs the job next
//! goes on with those from 5 on ([`go_on`]), and puts their times back as the stub tells them,
//! unless somebody has written to them since.
//!
//! Steps 3 to 5 are done for some files at once, so that one commit of the file system's journal
//! makes the stubs of all of them durable.

use super::disk::free_bytes;
use super::reserve::Reserve;
use super::share::Share;
pub use crate::ingest::attributes::BLOCK_BYTES;
use crate::ingest::attributes::is_same_state;
use crate::job::Interrupt;
use crate::repository::Repository;
use crate::stub::{self, StubFile, permissions, stub_file, times};
use crate::tree::{FileReader, TreeReader};
use crate::user_file;
use onefold_format::node::{Entry, Reference, Time};
use onefold_format::stub::{Stub, StubOwner};
use onefold_lease::Lease;
use onefold_policy::primary::recall::granule_log2;
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result, ShareId, limits};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, ResolveFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What is compared at once.
const COMPARED_BYTES: usize = limits::MIB;
/// More than what is written down before files are emptied takes of a disk.
const NOTED_BYTES: u64 = 64 << 10;
/// The attribute of what a program may do whoever runs it.
const CAPABILITIES: &str = "security.capability";
/// Set-user-id and set-group-id.
const SET_ID: u32 = 0o6000;
/// More than that takes.
const CAPABILITIES_MAX_BYTES: usize = 64;

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

/// A file that was left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftAlone {
    /// Why.
    pub why: Left,
    /// Whether it may need other data of the store than the new manifest holds for it: it is a
    /// stub, and not of that.
    pub needs_earlier: bool,
}

/// A file that is about to be emptied.
pub struct Prepared {
    path: PathBuf,
    file: File,
    stub: Stub,
    /// What it is a stub of already.
    earlier: Option<Reference>,
    state: Entry,
}

impl Prepared {
    /// Its path in the share.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's inode.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.state.inode
    }

    fn left_alone(&self, why: Left) -> LeftAlone {
        let content = Some(self.stub.content);
        LeftAlone { why, needs_earlier: self.earlier.is_some() && self.earlier != content }
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
    (directory, path): (&OwnedFd, &[u8]),
    stored: &Entry,
    interrupt: &Interrupt,
) -> Result<Result<Prepared, LeftAlone>> {
    let left = |why, needs_earlier| Ok(Err(LeftAlone { why, needs_earlier }));
    let (file, before) = match open_stored(directory, stored)? {
        Ok(opened) => opened,
        Err(why) => return left(why, true),
    };
    // What is changed through a mapping that was written to before would show in no time.
    onefold_lease::write_out(&file)?;
    let state = state_of(&file)?;
    // Its owner may have had to change its permissions for a moment.
    let stored = &match is_same_state(&before, stored) {
        true => Entry { changed: state.changed, ..stored.clone() },
        false => stored.clone(),
    };
    let value = stub::value(&file)?;
    let repository = tree.chunks().repository();
    let mut modified = state.modified;
    let mut needs_earlier = false;
    let mut earlier = None;
    if let Some(value) = &value {
        let (_, known) = stub::open(repository, state.inode, value)?;
        needs_earlier = Some(known.content) != stored.content;
        earlier = Some(known.content);
        if stub::is_all(&known, state.size) && !known.are_times_pending {
            return left(Left::Done, needs_earlier);
        }
        if !needs_earlier && stored.changed == Time::default() {
            // It was taken over by what it says, and not to be emptied: it is not cold, say.
            return left(Left::Done, false);
        }
        // Somebody may have been stopped before he had put it back.
        if let Some(pending) = times::pending(&known, state.modified, state.changed) {
            modified = pending;
        }
    }
    let Some(content) = stored.content else { return left(Left::Changed, needs_earlier) };
    if !is_same_state(&state, stored) {
        return left(Left::Changed, needs_earlier);
    }
    let sizes = (stored.size, stored.chunks);
    let stub = Stub::new(content, sizes, modified, granule_log2(stored.size))?;
    match compare(tree, &file, stored, interrupt)? {
        Compared::Same => {}
        Compared::WrittenBelow => return left(Left::Changed, needs_earlier),
        Compared::Differs(_) if !is_same_state(&state_of(&file)?, &state) => {
            return left(Left::Changed, needs_earlier);
        }
        Compared::Differs(offset) => {
            return Err(Error::damaged(format!(
                "from byte {offset} on the store does not give what the file has; it is left as \
                 it is"
            )));
        }
    }
    let below = path.strip_prefix(b"/").unwrap_or(path);
    let path = PathBuf::from(OsStr::from_bytes(below));
    Ok(Ok(Prepared { path, file, stub, earlier, state }))
}

/// Opens a file that was stored, and tells its state before that.
fn open_stored(directory: &OwnedFd, stored: &Entry) -> Result<Result<(File, Entry), Left>> {
    let name = OsStr::from_bytes(&stored.name);
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Err(Left::Changed)),
        Err(errno) => return Err(Error::io("its status", errno.into())),
    };
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match user_file::quietly(flags, |flags| permissions::open_at(directory, name, flags)) {
        Ok(file) => {
            let before = crate::ingest::attributes::entry_of(Vec::new(), &stat);
            Ok(Ok((File::from(file), before)))
        }
        Err(Errno::NOENT) => Ok(Err(Left::Changed)),
        Err(Errno::TXTBSY | Errno::WOULDBLOCK) => Ok(Err(Left::Open)),
        Err(errno) => Err(Error::io("opening it", errno.into())),
    }
}

/// The file's state, as a manifest notes it.
fn state_of(file: &File) -> Result<Entry> {
    let stat = rustix::fs::fstat(file).map_err(|errno| Error::io("its status", errno.into()))?;
    Ok(crate::ingest::attributes::entry_of(Vec::new(), &stat))
}

/// What a file is that the store gives all data of.
#[derive(PartialEq, Eq)]
enum Compared {
    Same,
    /// A stub with data that it does not tell of.
    WrittenBelow,
    /// From somewhere behind an offset on the store gives something else.
    Differs(u64),
}

/// Whether the store gives what the file has. Holes of both are not looked into.
fn compare(
    tree: &Arc<TreeReader>,
    file: &File,
    stored: &Entry,
    interrupt: &Interrupt,
) -> Result<Compared> {
    let reader = FileReader::open(Arc::clone(tree), stored)?.without_second_copies();
    let stub = StubFile::open(tree, again(file)?)?;
    // Most files are small, and buffers cost time to clear.
    let most =
        usize::try_from(stored.size + 1).map_or(COMPARED_BYTES, |size| size.min(COMPARED_BYTES));
    let (mut of_file, mut of_store) = (vec![0; most], vec![0; most]);
    let mut offset = 0;
    loop {
        interrupt.check()?;
        let data = match &stub {
            Some(stub) => stub.next_data(offset)?,
            None => stub_file::own_data(file, offset)?,
        };
        let found = reader.next_data(offset)?;
        let Some(next) = data.into_iter().chain(found).min() else { break };
        let read = match &stub {
            Some(stub) => stub.read_at(next, &mut of_file)?,
            None => read_full(file, next, &mut of_file)?,
        };
        let given = reader.read_at(next, &mut of_store)?;
        if of_file[..read] != of_store[..given] || read == 0 {
            return Ok(Compared::Differs(offset));
        }
        offset = next + read as u64;
    }
    if file.metadata().context(|| "its status")?.len() != stored.size {
        return Ok(Compared::Differs(offset));
    }
    let is_written_below = match &stub {
        Some(stub) => stub.is_written_below()?,
        None => false,
    };
    Ok(if is_written_below { Compared::WrittenBelow } else { Compared::Same })
}

fn again(file: &File) -> Result<File> {
    file.try_clone().context(|| "opening it again")
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

/// What is done with a file that is leased, or why it is left alone.
type Step<'a> = dyn Fn(&Prepared, &Lease<'_>) -> Result<Result<(), Left>> + 'a;

/// Empties files (steps 3 to 5). `told` hears of those that had to be left alone, and of those of
/// which something failed: they are what they were, or their bytes are those in the store.
pub fn empty(
    repository: &Repository,
    share: &Share,
    files: &[Prepared],
    told: &mut dyn FnMut(&Prepared, Result<LeftAlone>),
) -> Result<Emptied> {
    if files.is_empty() {
        return Ok(Emptied::default());
    }
    let reserve = Reserve::of(share.control()?);
    let noted = || share.note_emptying(files.iter().map(|prepared| prepared.path.as_path()));
    reserve.make_room_for(NOTED_BYTES, noted)?;
    let share = share.id;
    let mut leased = Vec::new();
    for prepared in files {
        match lease(prepared) {
            Ok(Ok(lease)) => leased.push((prepared, lease)),
            Ok(Err(why)) => told(prepared, Ok(prepared.left_alone(why))),
            Err(error) => told(prepared, Err(error)),
        }
    }
    let mut go_on = |step: &Step<'_>| {
        leased.retain(|(prepared, lease)| match step(prepared, lease) {
            Ok(Ok(())) => true,
            Ok(Err(why)) => {
                told(prepared, Ok(prepared.left_alone(why)));
                false
            }
            Err(error) => {
                told(prepared, Err(error));
                false
            }
        });
    };
    go_on(&|prepared, lease| {
        if !lease.is_held()? {
            return Ok(Err(Left::Open));
        }
        let owner = StubOwner { share, inode: prepared.state.inode };
        let write = || stub::write(repository, owner, &prepared.file, &prepared.stub);
        let written = reserve.make_room_for(NOTED_BYTES, write);
        written.map_err(|error| told_apart(&prepared.file, error)).map(Ok)
    });
    go_on(&|prepared, _| prepared.file.sync_all().context(|| "making the stub durable").map(Ok));
    let mut emptied = Emptied::default();
    for (prepared, lease) in leased {
        match punch(repository, share, prepared, &lease) {
            Ok(Ok(freed_bytes)) => {
                emptied.files += u64::from(prepared.earlier.is_none());
                emptied.bytes += prepared.stub.size;
                emptied.freed_bytes += freed_bytes;
            }
            Ok(Err(why)) => told(prepared, Ok(prepared.left_alone(why))),
            Err(error) => told(prepared, Err(error)),
        }
        drop(lease);
    }
    Ok(emptied)
}

/// What an error at writing a stub means: file systems say that there is no room for an attribute
/// as they say that the disk is full.
fn told_apart(file: &File, error: Error) -> Error {
    let has_room = free_bytes(file).is_ok_and(|free| free > NOTED_BYTES);
    match error.is_full_disk() && has_room {
        false => error,
        true => Error::new(
            ErrorKind::LimitExceeded,
            "its attributes leave no room for what makes it a stub; it stays as it is, or take \
             some of them away",
        ),
    }
}

/// Step 3.
fn lease(prepared: &Prepared) -> Result<Result<Lease<'_>, Left>> {
    let Some(lease) = Lease::take(&prepared.file)? else { return Ok(Err(Left::Open)) };
    let state = state_of(&prepared.file)?;
    Ok(if is_same_state(&state, &prepared.state) { Ok(lease) } else { Err(Left::Changed) })
}

/// Step 5 of a file whose stub is durable; the bytes of the disk that it frees. One that somebody
/// waits for stays a stub with all its data, which a later run takes out.
fn punch(
    repository: &Repository,
    share: ShareId,
    prepared: &Prepared,
    lease: &Lease<'_>,
) -> Result<Result<u64, Left>> {
    let begun = Instant::now();
    if !lease.is_held()? {
        return Ok(Err(Left::Open));
    }
    let before = blocks(&prepared.file)?;
    // Times can be changed in spite of the lease, and then are what they were changed to.
    let now = state_of(&prepared.file)?.modified;
    let is_same = now == prepared.state.modified;
    let modified = if is_same { prepared.stub.modified } else { now };
    finish(repository, (share, &prepared.file), &prepared.stub, modified)?;
    if begun.elapsed() >= onefold_lease::break_time() && !lease.is_held()? {
        return Err(Error::new(
            ErrorKind::Source,
            "the system let others at it while it was emptied, which took very long; what was \
             written to it without the mount meanwhile may be gone: look at it",
        ));
    }
    Ok(Ok(before.saturating_sub(blocks(&prepared.file)?)))
}

/// Step 5.
fn finish(
    repository: &Repository,
    (share, file): (ShareId, &File),
    stub: &Stub,
    modified: Time,
) -> Result<()> {
    let metadata = file.metadata().context(|| "its status")?;
    let inode = metadata.ino();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let privileges = Privileges::of(file)?;
    // A part of a block would be overwritten with zeros and stay.
    let end = match metadata.len() > stub.size {
        true => stub.size,
        false => stub.size.next_multiple_of(metadata.blksize().max(1)),
    };
    rustix::fs::fallocate(file, flags, 0, end)
        .map_err(|errno| Error::io("taking the data out of it", errno.into()))?;
    privileges.put_back(file)?;
    times::put_back(file, modified)?;
    let mut done = stub.clone();
    done.are_times_pending = false;
    stub::write(repository, StubOwner { share, inode }, file, &done)
}

/// Goes on with files that somebody was stopped at; `failed` hears of those with which that fails,
/// and which a later run of the job meets.
pub fn go_on(
    repository: &Arc<Repository>,
    share: &Share,
    failed: &mut dyn FnMut(&Path, &Error),
) -> Result<()> {
    let paths = share.emptying()?;
    if paths.is_empty() {
        return Ok(());
    }
    let tree = Arc::new(TreeReader::open(repository)?);
    for path in paths {
        if let Err(error) = go_on_with(&tree, share, &path) {
            failed(&path, &error);
        }
    }
    Ok(())
}

fn go_on_with(tree: &Arc<TreeReader>, share: &Share, path: &Path) -> Result<()> {
    let repository = tree.chunks().repository();
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(share.directory(), path, flags, Mode::empty(), below);
    // What was moved or removed, or is open, is met by a later run of the job.
    let Ok(file) = opened.map(File::from) else { return Ok(()) };
    let Some(lease) = Lease::take(&file)? else { return Ok(()) };
    let inode = file.metadata().context(|| "its status")?.ino();
    let Some(value) = stub::value(&file)? else { return Ok(()) };
    let Ok((owner, stub)) = stub::open(repository, inode, &value) else { return Ok(()) };
    let is_left = stub.are_times_pending && stub.is_untouched() && owner.share == share.id;
    if !is_left {
        return Ok(());
    }
    // What somebody has written into it since is kept by the next run of the job.
    let is_changed = match StubFile::open(tree, again(&file)?)? {
        Some(stub) => stub.is_written_below()?,
        None => true,
    };
    match !is_changed && lease.is_held()? {
        true => {
            let Entry { modified, changed, .. } = state_of(&file)?;
            let modified = times::pending(&stub, modified, changed).unwrap_or(modified);
            finish(repository, (share.id, &file), &stub, modified)
        }
        false => Ok(()),
    }
}

/// What the system takes from a file whose data is changed, whoever does it.
pub struct Privileges {
    owner: (u32, u32),
    mode: u32,
    capabilities: Option<Vec<u8>>,
}

impl Privileges {
    /// As they are.
    pub fn of(file: &File) -> Result<Self> {
        let status = file.metadata().context(|| "its status")?;
        let mut value = vec![0; CAPABILITIES_MAX_BYTES];
        let capabilities = match rustix::fs::fgetxattr(file, CAPABILITIES, &mut value[..]) {
            Ok(length) => {
                value.truncate(length);
                Some(value)
            }
            Err(_) => None,
        };
        let (owner, mode) = ((status.uid(), status.gid()), status.mode() & 0o7777);
        Ok(Self { owner, mode, capabilities })
    }

    /// As they were, unless somebody else has changed owner or permissions since: the system takes
    /// them then as well, for good.
    pub fn put_back(&self, file: &File) -> Result<()> {
        let failed = |errno: Errno| Error::io("putting its privileges back", errno.into());
        let status = file.metadata().context(|| "its status")?;
        let (owner, mode) = ((status.uid(), status.gid()), status.mode() & 0o7777);
        let is_taken = mode | SET_ID == self.mode | SET_ID && mode & self.mode == mode;
        // Root keeps set-id bits of what it writes to.
        let is_by_system = mode == self.mode || !rustix::process::geteuid().is_root();
        if owner != self.owner || !is_taken || !is_by_system {
            return Ok(());
        }
        if mode != self.mode {
            rustix::fs::fchmod(file, Mode::from_raw_mode(self.mode)).map_err(failed)?;
        }
        match &self.capabilities {
            Some(value) => rustix::fs::fsetxattr(file, CAPABILITIES, value, XattrFlags::empty())
                .map_err(failed),
            None => Ok(()),
        }
    }
}

/// Puts back when a stub had been changed last, where somebody was stopped before he had done so.
/// The file is leased.
pub fn put_pending_back(file: &File, stub: &StubFile) -> Result<()> {
    let (state, known) = (state_of(file)?, stub.stub());
    if let Some(pending) = times::pending(&known, state.modified, state.changed) {
        times::put_back(file, pending)?;
    }
    match known.is_untouched() {
        // It may have to be emptied still.
        true => Ok(()),
        false => stub.take_times(),
    }
}

/// Puts a pending time back of a file that no job works on and no mount has open. The file's status
/// has these times.
pub fn settle_time(
    repository: &Repository,
    file: &File,
    (modified, changed): (Time, Time),
) -> Result<()> {
    let Some(value) = stub::value(file)? else { return Ok(()) };
    let inode = file.metadata().context(|| "its status")?.ino();
    let (owner, mut stub) = stub::open(repository, inode, &value)?;
    let Some(pending) = times::pending(&stub, modified, changed) else { return Ok(()) };
    times::put_back(file, pending)?;
    match stub.is_untouched() {
        // It may have to be emptied still.
        true => Ok(()),
        false => {
            stub.are_times_pending = false;
            stub::write(repository, owner, file, &stub)
        }
    }
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
    file.write_all_at(&value, 0).context(|| "writing into the probe")?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, 0, COMPARED_BYTES as u64)
        .map_err(|errno| lacks("holes", &errno))?;
    if rustix::fs::seek(file, SeekFrom::Data(0)) != Err(Errno::NXIO) {
        return Err(lacks("holes", &"it does not tell where they are"));
    }
    match Lease::take(file) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(lacks("leases", &"somebody else has the probe open")),
        Err(error) => Err(lacks("leases", &error)),
    }
}
