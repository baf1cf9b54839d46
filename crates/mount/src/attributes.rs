//! What a program is told of a file: attributes from entries.

use fuser::{FileAttr, FileType, INodeNo};
use onefold_format::node::{Entry, EntryKind, Time};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much programs are advised to read at once: half of a frame.
const READ_BYTES: u32 = 128 << 10;
/// The unit of sizes on a device.
const BLOCK_BYTES: u64 = 512;
/// What a chunk of a file with holes is taken to be on a device.
const CHUNK_ESTIMATE_BYTES: u64 = 8 << 10;

/// The attributes of an entry.
#[must_use]
pub fn of(entry: &Entry, number: u64) -> FileAttr {
    let size = match entry.kind {
        EntryKind::Symlink => entry.target.len() as u64,
        _ => entry.size,
    };
    let whole = size.div_ceil(BLOCK_BYTES);
    // Programs look for holes only in files that take less than their size.
    let blocks = match entry.sparse {
        true => whole.saturating_sub(1).min(entry.chunks * (CHUNK_ESTIMATE_BYTES / BLOCK_BYTES)),
        false => whole,
    };
    // Kept of files only, where it tells whether they have changed.
    let changed = if entry.changed == Time::default() { entry.modified } else { entry.changed };
    FileAttr {
        ino: INodeNo(number),
        size,
        blocks,
        atime: moment(entry.modified),
        mtime: moment(entry.modified),
        ctime: moment(changed),
        crtime: moment(changed),
        kind: kind(entry.kind),
        perm: (entry.mode & 0o7777) as u16,
        nlink: u32::try_from(entry.links).unwrap_or(u32::MAX).max(1),
        uid: entry.uid,
        gid: entry.gid,
        rdev: device(entry.device_number),
        blksize: READ_BYTES,
        flags: 0,
    }
}

/// The attributes of what only leads to snapshots, which belongs to whoever has mounted it.
#[must_use]
pub fn of_catalogue(number: u64, kind: FileType, size: u64, time_ns: i64) -> FileAttr {
    let (seconds, nanoseconds) =
        (time_ns.div_euclid(1_000_000_000), time_ns.rem_euclid(1_000_000_000));
    let time = moment(Time { seconds, nanoseconds: nanoseconds as u32 });
    FileAttr {
        ino: INodeNo(number),
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: if kind == FileType::Symlink { 0o777 } else { 0o555 },
        nlink: 1,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: READ_BYTES,
        flags: 0,
    }
}

/// The kind of an entry as the kernel knows it.
#[must_use]
pub fn kind(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink => FileType::Symlink,
        EntryKind::Fifo => FileType::NamedPipe,
        EntryKind::Socket => FileType::Socket,
        EntryKind::CharacterDevice => FileType::CharDevice,
        EntryKind::BlockDevice => FileType::BlockDevice,
    }
}

/// A time as programs are told it.
#[must_use]
pub fn moment(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(seconds),
        false => UNIX_EPOCH.checked_add(seconds),
    };
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
    whole.and_then(|whole| whole.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// The number of a device in the kernel's 32 bits: 12 of the major number between 20 of the minor.
#[must_use]
pub fn device(number: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_beyond_all_calendars_are_times() {
        let before = moment(Time { seconds: -2, nanoseconds: 500_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(before).unwrap(), Duration::from_millis(1_500));
        assert!(moment(Time { seconds: i64::MIN, nanoseconds: 1 }) < before);
        assert!(moment(Time { seconds: i64::MAX, nanoseconds: 1 }) > UNIX_EPOCH);
    }

    #[test]
    fn devices_keep_their_numbers() {
        assert_eq!(device(rustix::fs::makedev(8, 1)), 0x801);
        assert_eq!(device(rustix::fs::makedev(0x103, 0x1_2345)), 0x1231_0345);
    }
}
