//! Requests for what is in files, and for what is said about them.

use super::Answer;
use super::below::{self, failed};
use super::nodes::TOP;
use super::open_files::{Bytes, Handle, OpenInode};
use super::served::Served;
use fuser::{Errno, FileAttr, TimeOrNow};
use onefold_engine::primary::changed_below;
use onefold_engine::primary::share::BELOW_ATTRIBUTE;
use onefold_engine::stub::stub_file::{Room, write_some_at};
use onefold_engine::stub::{self, StubFile};
use onefold_types::{Error, Result};
use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid, XattrFlags,
};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// `lseek` to the next data, as the kernel numbers it.
const SEEK_DATA: i32 = 3;
/// `lseek` to the next hole.
const SEEK_HOLE: i32 = 4;
/// What all attributes begin with that are ours.
const OWN_PREFIX: &[u8] = b"user.onefold.";
/// More than any list of names or value of an attribute takes.
const XATTR_MAX_BYTES: usize = 64 << 10;

/// What `chmod`, `chown`, `truncate` and `utimensat` change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Permissions.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The length.
    pub size: Option<u64>,
    /// When it was read last.
    pub accessed: Option<TimeOrNow>,
    /// When it was changed last.
    pub modified: Option<TimeOrNow>,
}

impl Served {
    /// The file of a number, open as long as the caller does not [`Served::leave`] it.
    pub(super) fn enter(&self, number: u64) -> Answer<Arc<OpenInode>> {
        // Whoever is slow at opening must not come back with what the file was before another one
        // opened, changed and closed it.
        let _opening = self.open.opening(number);
        if let Some(open) = self.open.enter_again(number) {
            return Ok(open);
        }
        let item = self.nodes.item(number)?;
        let opened = self.open_inode(number, &item)?;
        Ok(self.open.enter(opened))
    }

    /// Opens what a number stands for, and finds out whether it is a stub.
    fn open_inode(&self, number: u64, item: &OwnedFd) -> Answer<OpenInode> {
        let path = below::path_of(item.as_fd());
        let open = |flags: OFlags| rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::empty());
        // It waits while the job makes a stub of it.
        let reading = File::from(open(OFlags::RDONLY).map_err(failed)?);
        let is_stub = || -> Result<bool> { Ok(stub::value(&reading)?.is_some()) };
        // A job that was too slow for the one who waits may still make a stub of it.
        let is_plain = || -> Result<bool> {
            Ok(!is_stub()? && {
                stub::wait_for_job(&reading, self.job_wait)?;
                !is_stub()?
            })
        };
        if is_plain().map_err(|error| self.failed(number, &error))? {
            return Ok(OpenInode::new(number, Bytes::Plain(reading)));
        }
        // Its data comes back into it whoever writes; who may not, reads.
        let file = open(OFlags::RDWR).map_or(reading, File::from);
        match StubFile::open(&self.tree, file).map_err(|error| self.failed(number, &error))? {
            Some(stub) => {
                // Whoever may not write cannot make it longer either.
                let _ = stub.settle_length();
                self.keep_written(number, &stub);
                let room = Arc::clone(&self.reserve) as Arc<dyn Room>;
                let stub = stub.with_room(room).with_job_wait(self.job_wait);
                Ok(OpenInode::new(number, Bytes::Stub(Box::new(stub))))
            }
            None => Err(Errno::EAGAIN),
        }
    }

    /// Keeps what was written into a stub below. What cannot be kept now is kept by the next job.
    fn keep_written(&self, number: u64, stub: &StubFile) {
        let shown = || format!("{}: {}", self.nodes.path_of(number), changed_below::WRITTEN);
        match changed_below::keep_alone(stub) {
            Ok(false) => {}
            Ok(true) => {
                self.problems.note(shown());
                // What cannot be written down was told.
                let _ = self.share.note_problem(&shown());
            }
            Err(error) => drop(self.lost(number, &error)),
        }
    }

    /// Nobody needs the file any more that was entered.
    pub(super) fn leave(&self, number: u64) {
        let _opening = self.open.opening(number);
        if let Some(last) = self.open.leave(number) {
            self.ended(&last);
        }
    }

    /// Somebody has closed a file.
    pub(super) fn close(&self, handle: u64) {
        let Some(number) = self.open.handle(handle).map(|handle| handle.inode.number) else {
            return;
        };
        let _opening = self.open.opening(number);
        if let Some(last) = self.open.close(handle) {
            self.ended(&last);
        }
    }

    /// Nobody has it open any more.
    fn ended(&self, inode: &OpenInode) {
        if inode.is_unnamed.load(std::sync::atomic::Ordering::Relaxed) {
            self.remove_unnamed(inode.number);
        } else if let Some(stub) = inode.stub()
            && let Err(error) = stub.end_if_recalled()
        {
            // It stays a stub of which nothing is the store's.
            self.problems.note(format!("inode {}: {error}", inode.number));
        }
    }

    /// A handle of a file as it was asked for. One that the kernel does not read and write itself
    /// is opened at once: whoever may not is told now.
    pub(super) fn handle(
        &self,
        inode: Arc<OpenInode>,
        flags: i32,
        passes_through: bool,
    ) -> Answer<Handle> {
        let handle = Handle { inode, flags, file: Arc::default() };
        if let (Bytes::Plain(plain), false) = (&handle.inode.bytes, passes_through) {
            ordinary(&handle, plain)?;
        }
        Ok(handle)
    }

    /// Reads into a buffer; says how much.
    pub(super) fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let handle = self.open.handle(handle).ok_or(Errno::EBADF)?;
        let inode = &handle.inode;
        match &inode.bytes {
            Bytes::Plain(plain) => {
                let file = ordinary(&handle, plain)?;
                file.read_at(buffer, offset).map_err(Errno::from)
            }
            Bytes::Stub(stub) => {
                stub.read_at(offset, buffer).map_err(|error| self.lost(inode.number, &error))
            }
        }
    }

    /// Data of a stub cannot be had: said here, and written down for the status.
    fn lost(&self, number: u64, error: &Error) -> Errno {
        let (code, is_new) = self.told_of(number, error);
        if is_new {
            // What cannot be written down was told.
            let _ = self.share.note_problem(&format!("{}: {error}", self.nodes.path_of(number)));
        }
        code
    }

    /// Writes; says how much.
    pub(super) fn write(&self, handle: u64, offset: u64, bytes: &[u8]) -> Answer<usize> {
        let handle = self.open.handle(handle).ok_or(Errno::EBADF)?;
        let inode = &handle.inode;
        match &inode.bytes {
            Bytes::Plain(plain) => {
                let file = ordinary(&handle, plain)?;
                write_some_at(file, bytes, offset).map_err(Errno::from)
            }
            Bytes::Stub(stub) => {
                stub.write_at(offset, bytes).map_err(|error| self.failed(inode.number, &error))
            }
        }
    }

    pub(super) fn sync(&self, handle: u64, data_only: bool) -> Answer<()> {
        let handle = self.open.handle(handle).ok_or(Errno::EBADF)?;
        let inode = &handle.inode;
        let synced = match &inode.bytes {
            Bytes::Plain(plain) if data_only => plain.sync_data(),
            Bytes::Plain(plain) => plain.sync_all(),
            // What the stub says belongs to the data.
            Bytes::Stub(stub) => stub.file().sync_all(),
        };
        synced.map_err(Errno::from)
    }

    pub(super) fn allocate(
        &self,
        handle: u64,
        (offset, length): (u64, u64),
        mode: i32,
    ) -> Answer<()> {
        let handle = self.open.handle(handle).ok_or(Errno::EBADF)?;
        let inode = &handle.inode;
        let flags = FallocateFlags::from_bits(mode as u32).ok_or(Errno::EOPNOTSUPP)?;
        let stub = match &inode.bytes {
            Bytes::Plain(plain) => {
                let file = ordinary(&handle, plain)?;
                return rustix::fs::fallocate(file, flags, offset, length).map_err(failed);
            }
            Bytes::Stub(stub) => stub,
        };
        let keeps = FallocateFlags::KEEP_SIZE;
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
        if flags.difference(keeps).is_empty() {
            return rustix::fs::fallocate(stub.file(), flags, offset, length).map_err(failed);
        }
        let of = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !flags.difference(keeps | of).is_empty() {
            // Ranges that are taken out or put in move all that is behind them.
            return Err(Errno::EOPNOTSUPP);
        }
        stub.punch(offset..end, flags).map_err(|error| self.failed(inode.number, &error))
    }

    pub(super) fn seek(&self, handle: u64, offset: i64, whence: i32) -> Answer<i64> {
        let handle = self.open.handle(handle).ok_or(Errno::EBADF)?;
        let inode = &handle.inode;
        let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        let found = match (&inode.bytes, whence) {
            (Bytes::Plain(file), SEEK_DATA) => {
                rustix::fs::seek(file, SeekFrom::Data(offset)).map_err(failed)?
            }
            (Bytes::Plain(file), SEEK_HOLE) => {
                rustix::fs::seek(file, SeekFrom::Hole(offset)).map_err(failed)?
            }
            (Bytes::Stub(stub), SEEK_DATA | SEEK_HOLE) => {
                let found = match whence {
                    SEEK_DATA => stub.next_data(offset),
                    _ => stub.next_hole(offset),
                };
                let found = found.map_err(|error| self.failed(inode.number, &error))?;
                found.ok_or(Errno::ENXIO)?
            }
            _ => return Err(Errno::EINVAL),
        };
        i64::try_from(found).map_err(|_| Errno::EOVERFLOW)
    }

    pub(super) fn change(&self, number: u64, change: &Change) -> Answer<FileAttr> {
        if let Some(size) = change.size {
            self.set_len(number, size)?;
        }
        let item = self.item(number)?;
        let path = below::path_of(item.as_fd());
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(&item, "", uid, gid, AtFlags::EMPTY_PATH).map_err(failed)?;
        }
        // Behind the owner, whose change takes some permissions away.
        if let Some(mode) = change.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::chmodat(rustix::fs::CWD, &path, mode, AtFlags::empty()).map_err(failed)?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed),
                last_modification: timespec(change.modified),
            };
            let flags = AtFlags::EMPTY_PATH;
            rustix::fs::utimensat(&item, "", &times, flags).map_err(failed)?;
        }
        Ok(self.told(number, &below::status_of(item.as_fd())?))
    }

    fn set_len(&self, number: u64, size: u64) -> Answer<()> {
        let inode = self.enter(number)?;
        let done = match &inode.bytes {
            Bytes::Stub(stub) => stub.set_len(size).map_err(|error| self.failed(number, &error)),
            Bytes::Plain(file) => {
                let path = below::path_of(file.as_fd());
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed);
                file.and_then(|file| rustix::fs::ftruncate(file, size).map_err(failed))
            }
        };
        self.leave(number);
        done
    }

    pub(super) fn attribute(&self, number: u64, name: &OsStr) -> Answer<Vec<u8>> {
        if number == TOP && name == BELOW_ATTRIBUTE {
            return Ok(self.handover.name().as_bytes().to_vec());
        }
        let repository = self.tree.chunks().repository();
        // For backups into the same store, which take a stub over that holds no data itself.
        let is_for_backups = name == stub::served_attribute(repository.store_id()).as_str();
        if is_own(name) && !is_for_backups {
            return Err(Errno::ENODATA);
        }
        let stored = if is_for_backups { OsStr::new(stub::ATTRIBUTE) } else { name };
        let item = self.item(number)?;
        let path = below::path_of(item.as_fd());
        let mut value = vec![0; XATTR_MAX_BYTES];
        let length = rustix::fs::getxattr(&path, stored, &mut value[..]).map_err(failed)?;
        value.truncate(length);
        if is_for_backups {
            let status = below::status_of(item.as_fd())?;
            let known = stub::open(repository, status.inode, &value);
            let is_untouched =
                known.is_ok_and(|(_, stub)| stub::is_all(&stub, status.attributes.size));
            return if is_untouched { Ok(value) } else { Err(Errno::ENODATA) };
        }
        Ok(value)
    }

    pub(super) fn attribute_names(&self, number: u64) -> Answer<Vec<u8>> {
        let item = self.item(number)?;
        let mut names = vec![0; XATTR_MAX_BYTES];
        let path = below::path_of(item.as_fd());
        let length = rustix::fs::listxattr(path, &mut names[..]).map_err(failed)?;
        names.truncate(length);
        let shown = names.split_inclusive(|byte| *byte == 0);
        let is_shown = |name: &&[u8]| !is_own(OsStr::new(&*String::from_utf8_lossy(name)));
        Ok(shown.filter(is_shown).collect::<Vec<_>>().concat())
    }

    pub(super) fn set_attribute(
        &self,
        number: u64,
        (name, value): (&OsStr, &[u8]),
        flags: i32,
    ) -> Answer<()> {
        if is_own(name) {
            return Err(Errno::EPERM);
        }
        let item = self.item(number)?;
        let flags = XattrFlags::from_bits(flags as u32).ok_or(Errno::EINVAL)?;
        let path = below::path_of(item.as_fd());
        rustix::fs::setxattr(path, name, value, flags).map_err(failed)
    }

    pub(super) fn remove_attribute(&self, number: u64, name: &OsStr) -> Answer<()> {
        if is_own(name) {
            return Err(Errno::EPERM);
        }
        let item = self.item(number)?;
        rustix::fs::removexattr(below::path_of(item.as_fd()), name).map_err(failed)
    }
}

/// An ordinary file, opened as was asked for.
fn ordinary<'a>(handle: &'a Handle, plain: &File) -> Answer<&'a File> {
    if let Some(file) = handle.file.get() {
        return Ok(file);
    }
    let flags = below::open_flags(handle.flags).difference(OFlags::NOFOLLOW);
    let path = below::path_of(plain.as_fd());
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    Ok(handle.file.get_or_init(|| File::from(opened)))
}

/// Whether an attribute is ours, and nobody else's business.
fn is_own(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(OWN_PREFIX)
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => exact(time),
    }
}

/// A time as the kernel has told it.
fn exact(time: SystemTime) -> Timespec {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        },
        // What it was decoded from: the fraction, which counts forward, was taken off too.
        Err(before) => {
            let before = before.duration();
            let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            Timespec { tv_sec: -whole, tv_nsec: before.subsec_nanos().into() }
        }
    }
}
