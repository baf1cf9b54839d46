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
/// How many seconds holders get from a kernel that does not tell.
const LEASE_BREAK_SECONDS: u64 = 45;
/// How many seconds the kernel's NFS server gives its clients, twice over.
const DELEGATION_SECONDS: u64 = 180;

/// Opens a file in a directory, and no link, with the access and whatever else `more` says.
pub fn open(
    directory: impl AsFd,
    name: impl Arg + Copy,
    more: OFlags,
    interrupt: &Interrupt,
) -> rustix::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    let ask = || rustix::fs::openat(&directory, name, flags, Mode::empty()).map(File::from);
    let mut asked = ask();
    if !matches!(asked, Err(Errno::WOULDBLOCK)) {
        return asked;
    }
    let (begun, most) = (Instant::now(), lease_break_time());
    while matches!(asked, Err(Errno::WOULDBLOCK)) && begun.elapsed() < most {
        let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !is_file || interrupt.check().is_err() {
            break;
        }
        std::thread::sleep(ASKING_INTERVAL);
        asked = ask();
    }
    asked
}

/// How long a holder may keep a lease that somebody waits for.
fn lease_break_time() -> Duration {
    let told = std::fs::read_to_string("/proc/sys/fs/lease-break-time").ok();
    let seconds = told.and_then(|text| text.trim().parse().ok()).unwrap_or(LEASE_BREAK_SECONDS);
    Duration::from_secs(seconds.max(DELEGATION_SECONDS))
}
