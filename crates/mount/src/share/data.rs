//! Requests for what is in files, and for what is said about them.

use super::Answer;
use super::below::{self, failed};
use super::open_files::Data;
use super::opening::ordinary;
use super::served::Served;
use fuser::{Errno, FileAttr, FileType, TimeOrNow};
use onefold_engine::stub::permissions;
use onefold_engine::stub::stub_file::write_some_at;
use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid,
};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// `lseek` to the next data, as the kernel numbers it.
const SEEK_DATA: i32 = 3;
/// `lseek` to the next hole.
const SEEK_HOLE: i32 = 4;

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
    /// Reads into a buffer; says how much.
    pub(super) fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let handle = self.open.handle(handle).ok_or(Errno::EBADF)?;
        let inode = &handle.inode;
        match inode.data() {
            Data::Plain(plain) => {
                let file = ordinary(&handle, plain)?;
                file.read_at(buffer, offset).map_err(Errno::from)
            }
            Data::Stub(stub) => {
                stub.read_at(offset, buffer).map_err(|error| self.lost(inode.number, &error))
            }
        }
    }

    /// Writes; says how much.
    pub(super) fn write(&self, handle: u64, offset: u64, bytes: &[u8]) -> Answer<usize> {
        let handle = self.open.handle(handle).ok_or(Errno::EBADF)?;
        let inode = &handle.inode;
        match inode.data() {
            Data::Plain(plain) => {
                let file = ordinary(&handle, plain)?;
                write_some_at(file, bytes, offset).map_err(Errno::from)
            }
            Data::Stub(stub) => {
                let written = stub.write_at(offset, bytes);
                if stub.was_written_below() {
                    // Others have read what was there before.
                    self.pages.forget(inode.number);
                }
                written.map_err(|error| self.failed(inode.number, &error))
            }
        }
    }

    pub(super) fn sync(&self, handle: u64, data_only: bool) -> Answer<()> {
        let handle = self.open.handle(handle).ok_or(Errno::EBADF)?;
        let inode = &handle.inode;
        let synced = match inode.data() {
            Data::Plain(plain) if data_only => plain.sync_data(),
            Data::Plain(plain) => plain.sync_all(),
            // What the stub says belongs to the data.
            Data::Stub(stub) => stub.file().sync_all(),
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
        let stub = match inode.data() {
            Data::Plain(plain) => {
                let file = ordinary(&handle, plain)?;
                return rustix::fs::fallocate(file, flags, offset, length).map_err(failed);
            }
            Data::Stub(stub) => stub,
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
        let found = match (inode.data(), whence) {
            (Data::Plain(file), SEEK_DATA) => {
                rustix::fs::seek(file, SeekFrom::Data(offset)).map_err(failed)?
            }
            (Data::Plain(file), SEEK_HOLE) => {
                rustix::fs::seek(file, SeekFrom::Hole(offset)).map_err(failed)?
            }
            (Data::Stub(stub), SEEK_DATA | SEEK_HOLE) => {
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

    /// Changes what is said of an item, by a handle of it if there is one.
    pub(super) fn change(
        &self,
        (number, handle): (u64, Option<u64>),
        change: &Change,
    ) -> Answer<FileAttr> {
        if let Some(size) = change.size {
            self.set_len((number, handle), size)?;
        }
        let item = self.item(number)?;
        let is_file = below::status_of(item.as_fd())?.attributes.kind == FileType::RegularFile;
        if !is_file || change.modified.is_none() {
            self.settle_time(number, item.as_fd());
            return self.change_item(number, change);
        }
        // No job puts times back while it is open; who may not open it sets them all the same.
        let entered = self.enter(number, false);
        let stub = entered.as_ref().ok().and_then(|inode| inode.stub());
        let is_taken = stub.map_or(Ok(()), |stub| stub.take_times());
        let changed = match is_taken.map_err(|error| self.failed(number, &error)) {
            Ok(()) => self.change_item(number, change),
            Err(error) => Err(error),
        };
        if entered.is_ok() {
            self.leave(number);
        }
        changed
    }

    fn change_item(&self, number: u64, change: &Change) -> Answer<FileAttr> {
        let item = self.item(number)?;
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(&item, "", uid, gid, AtFlags::EMPTY_PATH).map_err(failed)?;
        }
        // Behind the owner, whose change takes some permissions away.
        if let Some(mode) = change.mode {
            let _changing = permissions::changing();
            let (path, mode) = (below::path_of(item.as_fd()), Mode::from_raw_mode(mode & 0o7777));
            rustix::fs::chmodat(rustix::fs::CWD, path, mode, AtFlags::empty()).map_err(failed)?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(change.accessed),
                last_modification: timespec(change.modified),
            };
            let flags = AtFlags::EMPTY_PATH;
            rustix::fs::utimensat(&item, "", &times, flags).map_err(failed)?;
        }
        Ok(self.told(number, &self.timed_item(number, item.as_fd())?))
    }

    fn set_len(&self, (number, handle): (u64, Option<u64>), size: u64) -> Answer<()> {
        let inode = self.enter(number, true)?;
        let done = match inode.data() {
            Data::Stub(stub) => stub.set_len(size).map_err(|error| self.failed(number, &error)),
            Data::Plain(file) => self.set_len_of_plain(file, handle, size),
        };
        self.leave(number);
        done
    }

    fn set_len_of_plain(&self, plain: &File, handle: Option<u64>, size: u64) -> Answer<()> {
        let cut = |file: &File| rustix::fs::ftruncate(file, size).map_err(failed);
        let handle = handle.and_then(|handle| self.open.handle(handle));
        // Whoever has it open for writing may do that, whatever its permissions have become.
        if let Some(handle) = handle.filter(|handle| below::is_to_write(handle.flags)) {
            return ordinary(&handle, plain).and_then(cut);
        }
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(below::path_of(plain.as_fd()), flags, Mode::empty());
        cut(&File::from(file.map_err(failed)?))
    }
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
