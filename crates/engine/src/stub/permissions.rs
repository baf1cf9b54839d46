//! What the owner of a file does to it although its permissions keep him from that, as they do once
//! he has made it read-only: a stub of his has to be read and changed all the same.
//!
//! # Algorithm
//! He gives himself the right to read and write the file, does it, and puts the permissions back.
//! Nobody else gains a right by that.
//!
//! # Concurrency
//! One file at a time, beside all of this process that change permissions ([`changing`]).

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the owner needs.
const OWNERS: u32 = 0o600;
/// What the system takes away when an owner changes permissions who is in another group.
const SET_ID: u32 = 0o6000;

static CHANGING: Mutex<()> = Mutex::new(());

/// Held by whoever changes permissions of files.
pub fn changing() -> MutexGuard<'static, ()> {
    CHANGING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a file of a directory, and no link, without waiting, as its owner if its permissions
/// forbid it.
pub fn open_at(directory: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NONBLOCK;
    let open = |flags| rustix::fs::openat(&directory, name, flags, Mode::empty());
    match open(flags | OFlags::NOFOLLOW) {
        Err(Errno::ACCESS) => {}
        opened => return opened,
    }
    let item = open(OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    let path = format!("/proc/self/fd/{}", item.as_raw_fd());
    as_owner(&item, || rustix::fs::open(&path, flags, Mode::empty()))
}

/// Does something with a file, as its owner if its permissions forbid it. It waits for nobody: all
/// that change permissions wait for it.
pub fn as_owner<T>(
    file: impl AsFd,
    mut work: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match work() {
        Err(Errno::ACCESS) => {}
        done => return done,
    }
    let _one = changing();
    let known = rustix::fs::fstat(&file)?;
    let mode = known.st_mode & 0o7777;
    let is_owner = known.st_uid == rustix::process::geteuid().as_raw();
    if !is_owner || mode & OWNERS == OWNERS || mode & SET_ID != 0 {
        return Err(Errno::ACCESS);
    }
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let set = |mode| rustix::fs::chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty());
    set(mode | OWNERS)?;
    let done = work();
    set(mode)?;
    done
}
