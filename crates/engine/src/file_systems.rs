//! Properties of file systems: trusted inode numbers, late errors, true ends of listings, and
//! whether they keep what is set of an item.

use onefold_types::{Error, ErrorKind};
use rustix::fs::{FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;

/// Where the kernel shows the files that are open.
const DESCRIPTORS: &str = "/proc/self/fd";

/// The part of a directory's list that is asked for at once.
const LIST_BYTES: usize = 32 << 10;

/// File systems that make up numbers of files, or have them made up by programs.
const UNTRUSTED_MAGICS: [u64; 8] = [
    0x6573_5546, // FUSE
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0000_517b, // SMB
    0x0102_1997, // 9P
    0x0000_564c, // NCP
    0x786f_4256, // VirtualBox
    0x7375_7245, // Coda
];

/// File systems of other machines whose numbers of files can be trusted.
const FAR_MAGICS: [u64; 5] = [
    0x0000_6969, // NFS
    0x00c3_6400, // Ceph
    0x0bd0_0bd0, // Lustre
    0x5346_414f, // AFS
    0x4750_4653, // GPFS
];

/// Images that are made in one piece: times of change in them are what their maker says, and
/// another image with other bytes may say the same.
const IMAGE_MAGICS: [u64; 6] = [
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
    0x0000_9660, // ISO 9660
    0x28cd_3d45, // cramfs
    0x0000_7275, // romfs
    0x1501_3346, // UDF
];

/// Whether a file on this one's file system has another time of change once it is changed.
#[must_use]
pub fn has_times_of_change(file: impl AsFd) -> bool {
    magic_of(file).is_some_and(|magic| !IMAGE_MAGICS.contains(&magic))
}

/// File systems of this machine that keep modes, owners and times between 1970 and 2038 as they are
/// set. The numbers are those of the kernel's `linux/magic.h`, and of OpenZFS (`zfs_vfsops.h`) and
/// bcachefs (`bcachefs_format.h`) themselves.
const KEEPING_MAGICS: [u64; 9] = [
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xf2f5_2010, // F2FS
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
];

/// Whether numbers of files on this one's file system tell files apart.
#[must_use]
pub fn has_trusted_numbers(file: impl AsFd) -> bool {
    magic_of(file).is_some_and(|magic| !UNTRUSTED_MAGICS.contains(&magic))
}

/// Whether this one's file system is served by a program or another machine: what it could not
/// write, because it is full, say, it tells with single files, and late.
#[must_use]
pub fn is_served(open: impl AsFd) -> bool {
    let all = [&UNTRUSTED_MAGICS[..], &FAR_MAGICS].concat();
    magic_of(open).is_some_and(|magic| all.contains(&magic))
}

/// Whether this one's file system is known to keep modes, owners and times as they are set. Others
/// may say that they did and keep something else.
#[must_use]
pub fn keeps_attributes(open: impl AsFd) -> bool {
    magic_of(open).is_some_and(|magic| KEEPING_MAGICS.contains(&magic))
}

/// Lists a directory, but for itself and the one above: names, kinds and numbers.
///
/// Errors: also `NOENT`, which other readers of lists take for the end of one. The kernel says so
/// of a directory that was removed, and a server may of one that is there.
pub fn list(
    directory: impl AsFd,
    mut each: impl FnMut(&[u8], FileType, u64),
) -> rustix::io::Result<()> {
    // The place in the list is that of the open directory, which others may be using.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(directory, c".", flags, Mode::empty())?;
    let mut buffer = Vec::with_capacity(LIST_BYTES);
    let mut entries = RawDir::new(opened, buffer.spare_capacity_mut());
    loop {
        match entries.next() {
            None => return Ok(()),
            Some(Err(Errno::INTR)) => {}
            Some(Err(errno)) => return Err(errno),
            Some(Ok(entry)) => match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => each(name, entry.file_type(), entry.ino()),
            },
        }
    }
}

/// The error of a call on a file by a path through `/proc`, by which open files and names in open
/// directories are reached. Where that is not mounted, it says so and what to do.
#[must_use]
pub fn proc_error(what: impl Into<String>, errno: Errno) -> Error {
    if errno != Errno::NOENT || Path::new(DESCRIPTORS).exists() {
        return Error::io(what, errno.into());
    }
    let missing = "/proc is not mounted here, by which attributes of files are asked for and set: \
                   mount it ('mount -t proc proc /proc') and run this again";
    Error::new(ErrorKind::Unavailable, missing).context(what.into())
}

/// Whether an open directory was removed, as far as its file system says so.
#[must_use]
pub fn is_removed(directory: impl AsFd) -> bool {
    rustix::fs::fstat(directory).is_ok_and(|stat| stat.st_nlink == 0)
}

fn magic_of(open: impl AsFd) -> Option<u64> {
    // The type is as wide as the machine says.
    let found = rustix::fs::fstatfs(open).ok()?;
    Some(found.f_type as u64 & u64::from(u32::MAX))
}
