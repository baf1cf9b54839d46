//! Write leases: while one is held, nobody else has the file open, and whoever opens it waits.
//!
//! The kernel grants a lease only if there is no other open file for the inode, mapped ones
//! included, and holds up whoever opens the file until the lease is given back, for as long as
//! `/proc/sys/fs/lease-break-time` says. Its holder must be the file's owner or have `CAP_LEASE`.
//!
//! It is a crate of its own because no crate wraps the call, which takes one line of unsafe code;
//! nor the other one here, which writes out what is dirty of one file ([`write_out`]).

use onefold_types::{Error, Result};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// A lease that is given back when it goes.
pub struct Lease<'a> {
    file: &'a File,
}

impl<'a> Lease<'a> {
    /// A write lease of a file that is open for writing; `None` if somebody else has it open.
    ///
    /// Errors: the file system knows no leases, or this user may take none of this file.
    pub fn take(file: &'a File) -> Result<Option<Self>> {
        ignore_breaks()?;
        match set(file, libc::F_WRLCK) {
            Ok(()) => Ok(Some(Self { file })),
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
            Err(error) => Err(Error::io("taking a lease of it", error)),
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
        let _ = set(self.file, libc::F_UNLCK);
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
    use std::time::{Duration, Instant};

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
}
