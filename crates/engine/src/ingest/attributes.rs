//! What the file system says about an entry.
//!
//! All of it survives a restore, but for two things that only tell a changed file: the time of the
//! last inode change and the inode number. They are kept for files alone, and the device number
//! only where hard links need it, so that an unchanged directory stays the same node.

use crate::file_systems::proc_error;
use crate::stub;
use crate::tree::path;
use onefold_format::node::{Entry, EntryKind, Time};
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Of the bytes that a file system counts blocks in.
pub const BLOCK_BYTES: u64 = 512;

/// An inode change this recent may be followed by another one with the same time stamp.
const RACY_NS: i64 = 50_000_000;
/// An inode change in whole seconds is distrusted for longer: a second is long enough for a change
/// after the read, and the clock of the file's server may be behind by as much.
const RACY_WHOLE_SECONDS_NS: i64 = 120_000_000_000;

/// The entry that a file status describes, without content, target or attributes.
#[must_use]
pub fn entry_of(name: Vec<u8>, stat: &Stat) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        FileType::CharacterDevice => EntryKind::CharacterDevice,
        FileType::BlockDevice => EntryKind::BlockDevice,
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        _ => EntryKind::File,
    };
    let is_file = kind == EntryKind::File;
    let size = if is_file { stat.st_size.max(0) as u64 } else { 0 };
    let linked = kind != EntryKind::Directory && stat.st_nlink > 1;
    let is_device = matches!(kind, EntryKind::CharacterDevice | EntryKind::BlockDevice);
    Entry {
        name,
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: if linked { stat.st_nlink } else { 1 },
        modified: time(stat.st_mtime, stat.st_mtime_nsec as i64),
        changed: match is_file {
            true => time(stat.st_ctime, stat.st_ctime_nsec as i64),
            false => Time::default(),
        },
        inode: if is_file || linked { stat.st_ino } else { 0 },
        device: if linked { stat.st_dev } else { 0 },
        size,
        sparse: is_file && (stat.st_blocks.max(0) as u64).saturating_mul(BLOCK_BYTES) < size,
        device_number: if is_device { stat.st_rdev } else { 0 },
        ..Entry::default()
    }
}

fn time(seconds: i64, nanoseconds: i64) -> Time {
    Time { seconds, nanoseconds: nanoseconds.clamp(0, 999_999_999) as u32 }
}

/// Whether two entries show the same state of the same file.
#[must_use]
pub fn is_same_state(a: &Entry, b: &Entry) -> bool {
    (a.kind, a.size, a.modified, a.changed, a.inode)
        == (b.kind, b.size, b.modified, b.changed, b.inode)
}

/// Forgets the change time of a file that changed just now: a later change could bear the same time
/// stamp, so the next backup must read the file again.
pub fn distrust_if_recent(entry: &mut Entry, now_ns: i64) {
    let changed = entry.changed;
    let nanoseconds =
        changed.seconds.saturating_mul(1_000_000_000).saturating_add(changed.nanoseconds.into());
    let racy = if changed.nanoseconds == 0 { RACY_WHOLE_SECONDS_NS } else { RACY_NS };
    if nanoseconds > now_ns.saturating_sub(racy) {
        entry.changed = Time::default();
    }
}

/// Where extended attributes are read from.
#[derive(Clone, Copy)]
pub enum AttributeSource<'a> {
    /// An open file.
    Open(BorrowedFd<'a>),
    /// A path, whose last component is not followed.
    Path(&'a Path),
}

/// Names that are asked for where the system does not list any.
const ASKED_UNLISTED: [&CStr; 4] = [
    c"security.capability",
    c"security.selinux",
    c"system.posix_acl_access",
    c"system.posix_acl_default",
];

/// Puts an entry's extended attributes into it, sorted by name; access control lists are among
/// them. Those of the system come first where there is not room for all.
///
/// Errors: some could not be read or stored. The entry has the others, and says that it lacks some.
pub fn put_xattrs(entry: &mut Entry, source: AttributeSource<'_>) -> Result<()> {
    let mut outcome = Ok(());
    let mut names = names_of(source).unwrap_or_else(|error| {
        outcome = Err(error);
        ASKED_UNLISTED.map(CStr::to_owned).to_vec()
    });
    names.sort_unstable_by_key(|name| (name.to_bytes().starts_with(b"user."), name.clone()));
    let mut pairs = Vec::new();
    let (mut kept_bytes, mut all_bytes) = (0, 0);
    for name in names {
        let value = match xattr(source, &name) {
            Ok(Some(value)) => value,
            Ok(None) => continue,
            Err(error) => {
                outcome = outcome.and(Err(error));
                continue;
            }
        };
        let bytes = name.count_bytes() + value.len();
        all_bytes += bytes;
        if kept_bytes + bytes <= limits::XATTRS_MAX_BYTES {
            kept_bytes += bytes;
            pairs.push((name.into_bytes(), value));
        }
    }
    pairs.sort_unstable();
    entry.xattrs = pairs;
    if kept_bytes < all_bytes {
        let message = format!(
            "some of its extended attributes are not saved: they take {all_bytes} bytes, more than \
             can be stored"
        );
        outcome = outcome.and(Err(Error::new(ErrorKind::LimitExceeded, message)));
    }
    entry.lacks_attributes = outcome.is_err();
    outcome
}

/// The names of the extended attributes, without the one that makes a stub: it says where the data
/// is now, which is not where it will be.
fn names_of(source: AttributeSource<'_>) -> Result<Vec<CString>> {
    let mut names = vec![0; 256];
    let names = loop {
        let listed = match source {
            AttributeSource::Open(file) => rustix::fs::flistxattr(file, &mut names[..]),
            AttributeSource::Path(path) => rustix::fs::llistxattr(path, &mut names[..]),
        };
        match listed {
            Ok(0) => return Ok(Vec::new()),
            Ok(length) => break &names[..length],
            Err(Errno::RANGE) if names.len() < limits::XATTRS_MAX_BYTES => {
                names = vec![0; names.len() * 4];
            }
            // The file system has none, or the file may not be asked (a device, a foreign link).
            Err(Errno::OPNOTSUPP | Errno::NODATA | Errno::BADF | Errno::PERM) => {
                return Ok(Vec::new());
            }
            Err(errno) => {
                let what = "only those of its extended attributes are saved that the system \
                            looks at; listing all";
                return Err(proc_error(what, errno));
            }
        }
    };
    let all = names.split_inclusive(|byte| *byte == 0);
    let named = all.filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    let others = named.filter(|name| name.to_bytes() != stub::ATTRIBUTE.as_bytes());
    Ok(others.map(CStr::to_owned).collect())
}

/// One extended attribute; `None` if it has gone meanwhile.
fn xattr(source: AttributeSource<'_>, name: &CStr) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0; 256];
    loop {
        let read = match source {
            AttributeSource::Open(file) => rustix::fs::fgetxattr(file, name, &mut value[..]),
            AttributeSource::Path(path) => rustix::fs::lgetxattr(path, name, &mut value[..]),
        };
        match read {
            Ok(length) => {
                value.truncate(length);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) if value.len() < limits::XATTRS_MAX_BYTES => {
                value = vec![0; value.len() * 4];
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM) => return Ok(None),
            Err(errno) => {
                let name = path::display(name.to_bytes());
                let what = format!("its extended attribute '{name}' is not saved");
                return Err(proc_error(what, errno));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r142_whole_seconds_are_distrusted_for_as_long_as_clocks_may_differ() {
        let now = 1_000_000_000_000;
        let is_trusted = |seconds, nanoseconds| {
            let changed = Time { seconds, nanoseconds };
            let mut entry = Entry { changed, ..Entry::default() };
            distrust_if_recent(&mut entry, now);
            entry.changed == changed
        };
        for (seconds, trusted) in
            [(1005, false), (1000, false), (990, false), (881, false), (880, true), (100, true)]
        {
            assert_eq!(is_trusted(seconds, 0), trusted, "{seconds}");
        }
        // Finer stamps tell changes apart sooner.
        assert!(is_trusted(990, 1) && !is_trusted(1000, 1));
    }

    #[test]
    fn a_file_that_changed_just_now_is_read_again_next_time() {
        let changed =
            |nanoseconds| Entry { changed: Time { seconds: 100, nanoseconds }, ..Entry::default() };
        let now = 100_500_000_000;
        for (nanoseconds, trusted) in
            [(0, false), (1, true), (449_999_999, true), (450_000_001, false), (999_999_999, false)]
        {
            let mut entry = changed(nanoseconds);
            distrust_if_recent(&mut entry, now);
            assert_eq!(entry.changed != Time::default(), trusted, "{nanoseconds}");
        }
    }
}
