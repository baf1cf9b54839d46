//! Write leases: while one is held, nobody else has the file open, and whoever opens it waits.
//!
//! The kernel grants a lease only if there is no other open file for the inode, mapped ones
//! included, and holds up whoever opens the file until the lease is given back, for as long as
//! `/proc/sys/fs/lease-break-time` says. Its holder must be the file's owner or have `CAP_LEASE`.
//!
//! The kernel takes a lease from a holder who is stalled for longer. So a *lock* goes with each
//! lease, which nobody takes away: an exclusive lock of the open file description (`F_OFD_SETLK`)
//! on one byte far behind any data. Whoever writes for programs takes the shared one first
//! ([`share`]), and so never writes while a holder may still change the file.
//!
//! It is a crate of its own because no crate wraps the call, which takes one line of unsafe code;
//! nor the other one here, which writes out what is dirty of one file ([`write_out`]).

use onefold_types::{Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Where the lock is that goes with a lease.
const LOCKED_OFFSET: libc::off_t = libc::off_t::MAX - 1;
/// How long the kernel waits for a holder, if it does not say.
const BREAK_TIME_SECONDS: u64 = 45;

/// A lease and its lock, given back when it goes.
pub struct Lease<'a> {
    file: &'a File,
}

impl<'a> Lease<'a> {
    /// A write lease of a file that is open for writing; `None` if somebody else has it open, or
    /// has its lock.
    ///
    /// Errors: the file system knows no leases, or this user may take none of this file.
    pub fn take(file: &'a File) -> Result<Option<Self>> {
        ignore_breaks()?;
        if !is_taken(lock(file, libc::F_WRLCK), "locking it")? {
            return Ok(None);
        }
        match is_taken(set(file, libc::F_WRLCK), "taking a lease of it") {
            Ok(true) => Ok(Some(Self { file })),
            other => {
                let _ = lock(file, libc::F_UNLCK);
                other.map(|_| None)
            }
        }
    }
}

impl Lease<'_> {
    /// Whether nobody waits for the file, and the lease was not taken away from a holder who was
    /// too slow. To be asked before each change: once it is `false`, others may have the file open
    /// at any moment, or had it and have changed it.
    pub fn is_held(&self) -> Result<bool> {
        kind(self.file)
            .map(|kind| kind == libc::F_WRLCK)
            .map_err(|error| Error::io("asking for its lease", error))
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // A lease that was broken meanwhile is gone already.
        let _ = lock(self.file, libc::F_UNLCK);
        let _ = set(self.file, libc::F_UNLCK);
    }
}

/// Takes the shared lock of an open file, which its open file description keeps until it is closed;
/// `false` if somebody has a lease of it, even one that the kernel has taken from him.
pub fn share(file: &File) -> Result<bool> {
    is_taken(lock(file, libc::F_RDLCK), "locking it")
}

/// How long the kernel waits for the holder of a lease before it takes the lease away; it never
/// does if it says 0. It was asked once.
#[must_use]
pub fn break_time() -> Duration {
    static SAID: OnceLock<Duration> = OnceLock::new();
    *SAID.get_or_init(|| {
        let said = std::fs::read_to_string("/proc/sys/fs/lease-break-time").ok();
        break_time_of(said.and_then(|said| said.trim().parse().ok()))
    })
}

fn break_time_of(seconds: Option<u64>) -> Duration {
    match seconds.unwrap_or(BREAK_TIME_SECONDS) {
        0 => Duration::MAX,
        seconds => Duration::from_secs(seconds),
    }
}

/// Whether the kernel gave what was asked for; `false` if somebody else has it.
fn is_taken(outcome: io::Result<()>, what: &'static str) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(Error::io(what, error)),
    }
}

/// The kernel tells the holder that somebody waits by a signal that would end the process. Leases
/// are held for moments only, so that there is nothing to do.
fn ignore_breaks() -> Result<()> {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    let register = || {
        let told = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(libc::SIGIO, told).is_ok()
    };
    match IGNORED.get_or_init(register) {
        true => Ok(()),
        false => Err(Error::invalid("the signal of leases cannot be caught")),
    }
}

#[allow(unsafe_code)]
fn set(file: &File, kind: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and this command takes an
    // integer and touches no memory of this process.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Changes what the open file description has of the lock, at once or not at all.
#[allow(unsafe_code)]
fn lock(file: &File, kind: i32) -> io::Result<()> {
    let wanted = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: LOCKED_OFFSET,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and this command reads
    // `wanted`, which lives until it returns.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The lease that is held; of one that somebody waits for, what is to be left of it.
#[allow(unsafe_code)]
fn kind(file: &File) -> io::Result<i32> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and this command takes nothing
    // and touches no memory of this process.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) };
    match outcome {
        -1 => Err(io::Error::last_os_error()),
        kind => Ok(kind),
    }
}

/// Writes out what is dirty of a file in memory, without making it durable: whoever changes it
/// through a mapping from now on changes its times.
pub fn write_out(file: &File) -> Result<()> {
    written(file).map_err(|error| Error::io("writing out what is dirty of it", error))
}

#[allow(unsafe_code)]
fn written(file: &File) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the call takes integers and
    // touches no memory of this process.
    let outcome = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, all) };
    match outcome {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::time::Instant;

    #[test]
    fn whoever_opens_the_file_waits_until_the_lease_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"data").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let other = File::open(&path).unwrap();
        assert!(Lease::take(&file).unwrap().is_none());
        drop(other);
        let lease = Lease::take(&file).unwrap().unwrap();
        assert!(lease.is_held().unwrap());
        let waiting = std::thread::spawn(move || {
            let begun = Instant::now();
            File::open(&path).unwrap();
            begun.elapsed()
        });
        // It is told as soon as somebody waits, long before it is taken away.
        while lease.is_held().unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(200));
        drop(lease);
        assert!(waiting.join().unwrap() > Duration::from_millis(100));
        assert!(Lease::take(&file).unwrap().is_some());
    }

    #[test]
    fn a_lock_goes_with_a_lease_and_outlasts_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"data").unwrap();
        let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let file = open();
        let lease = Lease::take(&file).unwrap().unwrap();
        // As the kernel does with a holder who is too slow.
        set(&file, libc::F_UNLCK).unwrap();
        assert!(!lease.is_held().unwrap());
        let other = open();
        assert!(!share(&other).unwrap());
        drop(lease);
        assert!(share(&other).unwrap() && share(&open()).unwrap());
        assert!(Lease::take(&file).unwrap().is_none());
        drop(other);
        assert!(Lease::take(&file).unwrap().is_some());
        assert!(break_time() > Duration::ZERO);
    }

    #[test]
    fn r118_a_kernel_that_never_takes_leases_away_says_0() {
        assert_eq!(break_time_of(Some(0)), Duration::MAX);
        assert_eq!(break_time_of(Some(7)), Duration::from_secs(7));
        assert_eq!(break_time_of(None), Duration::from_secs(BREAK_TIME_SECONDS));
    }
}
