//! The directory below: what it says of its items, in the kernel's words.

use super::Answer;
use crate::attributes;
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo};
use onefold_format::node::Time;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::SystemTime;

/// What is known of an item.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// The file system that it is on.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// What tells it from earlier ones of the same number: when it was made.
    pub generation: Generation,
    /// What programs are told, but for the number.
    pub attributes: FileAttr,
    /// Kind and permissions.
    pub mode: u32,
}

/// An error of the system as the kernel takes it.
pub fn failed(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

/// What is known of what is open.
pub fn status_of(open: BorrowedFd<'_>) -> Answer<Status> {
    status(open, OsStr::new(""), AtFlags::EMPTY_PATH)
}

/// What is known of an item of a directory; links are not followed.
pub fn status_at(directory: BorrowedFd<'_>, name: &OsStr) -> Answer<Status> {
    status(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn status(open: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Answer<Status> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let known = rustix::fs::statx(open, name, flags, wanted).map_err(failed)?;
    let time = |at: rustix::fs::StatxTimestamp| moment(at.tv_sec, at.tv_nsec);
    let made = known.stx_btime;
    let generation = (made.tv_sec as u64).wrapping_mul(1_000_000_000) + u64::from(made.tv_nsec);
    let mode = u32::from(known.stx_mode);
    // A file with a length and no block is all zeros to tar, which does not look further. A stub
    // may have none below.
    let has_data = kind(mode) == FileType::RegularFile && known.stx_size > 0;
    let attributes = FileAttr {
        ino: INodeNo(0),
        size: known.stx_size,
        blocks: known.stx_blocks.max(u64::from(has_data)),
        atime: time(known.stx_atime),
        mtime: time(known.stx_mtime),
        ctime: time(known.stx_ctime),
        crtime: time(known.stx_btime),
        kind: kind(mode),
        perm: (mode & 0o7777) as u16,
        nlink: known.stx_nlink,
        uid: known.stx_uid,
        gid: known.stx_gid,
        rdev: attributes::device(rustix::fs::makedev(known.stx_rdev_major, known.stx_rdev_minor)),
        blksize: known.stx_blksize,
        flags: 0,
    };
    Ok(Status {
        device: rustix::fs::makedev(known.stx_dev_major, known.stx_dev_minor),
        inode: known.stx_ino,
        generation: Generation(generation),
        attributes,
        mode,
    })
}

fn moment(seconds: i64, nanoseconds: u32) -> SystemTime {
    attributes::moment(Time { seconds, nanoseconds: nanoseconds.min(999_999_999) })
}

/// The kind of an item of this mode.
#[must_use]
pub fn kind(mode: u32) -> FileType {
    use rustix::fs::FileType as Kind;
    match Kind::from_raw_mode(mode) {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

/// The path that leads to what is open, whatever it is.
#[must_use]
pub fn path_of(open: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// The path of an item of a directory that is open.
#[must_use]
pub fn path_in(directory: BorrowedFd<'_>, name: &OsStr) -> PathBuf {
    let mut path = path_of(directory);
    path.push(name);
    path
}

/// What a program asked for when it opened a file, but for making or cutting it.
#[must_use]
pub fn open_flags(asked: i32) -> OFlags {
    let asked = OFlags::from_bits_retain(asked as u32);
    // Every write is told where it goes, so appending is the kernel's business.
    let kept = OFlags::ACCMODE | OFlags::SYNC | OFlags::DSYNC;
    (asked & kept) | OFlags::CLOEXEC | OFlags::NOFOLLOW
}

/// Whether that is to write as well.
#[must_use]
pub fn is_to_write(asked: i32) -> bool {
    let access = OFlags::from_bits_retain(asked as u32) & OFlags::ACCMODE;
    access == OFlags::WRONLY || access == OFlags::RDWR
}
