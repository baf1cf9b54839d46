//! Opens files of users for reading.
//!
//! File servers hold leases on files that their clients have open: Samba's oplocks, delegations of
//! the kernel's NFS server. Whoever opens such a file and will not wait is refused, and the refusal
//! asks the holder to give the lease back.
//!
//! # Algorithm
//! A file is opened without waiting, and a regular one that is refused is asked for again until the
//! holder has given the lease back or the kernel has taken it away. So a pipe or a device that
//! takes the file's name meanwhile holds nobody up, and whoever stops the job is heard.

use crate::job::Interrupt;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often a file under a lease is asked for.
const ASKING_INTERVAL: Duration = Duration::from_millis(10);
/// How long the kernel's NFS server waits for its clients, twice over.
const DELEGATION_TIME: Duration = Duration::from_secs(180);

/// Opens a file in a directory, and no link, with the access and whatever else `more` says.
pub fn open(
    directory: impl AsFd,
    name: impl Arg + Copy,
    more: OFlags,
    interrupt: &Interrupt,
) -> rustix::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    let open = |flags| rustix::fs::openat(&directory, name, flags, Mode::empty()).map(File::from);
    let ask = || quietly(flags, open);
    let may_ask = || {
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(is_file && interrupt.check().is_ok())
    };
    ask_again(ask, may_ask)
}

/// Opens a file so that its time of access stays as it is, where the system permits that to the
/// caller: to the owner, and to root.
pub fn quietly<T>(
    flags: OFlags,
    open: impl Fn(OFlags) -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        opened => opened,
    }
}

/// Asks for a file again and again as long as somebody has a lease of it, and as `may_ask` says so.
pub fn ask_again<T>(
    mut ask: impl FnMut() -> rustix::io::Result<T>,
    may_ask: impl Fn() -> rustix::io::Result<bool>,
) -> rustix::io::Result<T> {
    let (begun, most) = (Instant::now(), onefold_lease::break_time().max(DELEGATION_TIME));
    loop {
        match ask() {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < most && may_ask()? => {
                std::thread::sleep(ASKING_INTERVAL);
            }
            asked => return asked,
        }
    }
}
