//! Room that is set aside on the disk of a share, for the day it is full.
//!
//! Who writes into an ordinary file needs no room for bytes that are there already. Who writes into
//! a stub does: the granule comes back first. And a job that would make room needs some to write
//! down what it is about. So a share has a preallocated file, of which pieces are given back when
//! nothing else is left: what needs room then makes a little more than it needs, and tries again.
//!
//! It is set aside by whoever mounts the share, and again once there is room for it, and only where
//! twice as much is free as is missing. Nothing but speed depends on when that is.
//!
//! # Concurrency
//! Several processes may do this at once: each cuts the file to a length, and what another one has
//! cut already is no room.

use super::control::{self, RESERVE};
use super::disk::{disk_bytes, free_bytes};
use crate::stub::stub_file::Room;
use onefold_types::error::Context;
use onefold_types::{Error, Result, limits};
use rustix::fs::{AtFlags, FallocateFlags, OFlags};
use std::fs::File;
use std::os::fd::OwnedFd;

/// What is set aside on a large disk.
const WHOLE_MAX_BYTES: u64 = 64 * limits::MIB as u64;
/// The share of the disk that it takes at most: one part in so many.
const DISK_PARTS: u64 = 64;
/// It is cut to a multiple of this; some file systems free what was allocated at once only as a
/// whole.
const PIECE_BYTES: u64 = 256 * limits::KIB as u64;
/// What is left to the job, which makes room.
const FOR_JOBS_BYTES: u64 = PIECE_BYTES;
/// So much more must be free than is missing.
const FREE_FACTOR: u64 = 2;

/// The room of one share.
#[derive(Debug)]
pub struct Reserve {
    control: OwnedFd,
}

impl Reserve {
    /// That of a share, of which this is what is Onefold's in it.
    #[must_use]
    pub fn of(control: OwnedFd) -> Self {
        Self { control }
    }

    /// Sets aside what is missing, if there is enough.
    pub fn fill(&self) -> Result<()> {
        let file = self.file()?;
        let whole = self.whole_bytes()?;
        let mut length = length_of(&file)?;
        let missing = whole.saturating_sub(length);
        if missing == 0 || free_bytes(&file)? < missing.saturating_mul(FREE_FACTOR) {
            return Ok(());
        }
        while length < whole {
            let piece = PIECE_BYTES.min(whole - length);
            rustix::fs::fallocate(&file, FallocateFlags::empty(), length, piece)
                .map_err(|errno| Error::io("setting room aside", errno.into()))?;
            length += piece;
        }
        Ok(())
    }

    /// The same if it was ever set aside.
    pub fn fill_if_there(&self) -> Result<()> {
        match rustix::fs::statat(&self.control, RESERVE, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => self.fill(),
            Err(_) => Ok(()),
        }
    }

    /// Gives all of it back; whether that is anything.
    pub fn give_all(&self) -> Result<bool> {
        self.cut(u64::MAX, 0)
    }

    /// Does something, and again as often as it fails for want of room that can be given back.
    pub fn make_room_for<T>(&self, bytes: u64, act: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match act() {
                Err(error) if error.is_full_disk() && self.cut(bytes, 0).unwrap_or(false) => {}
                other => return other,
            }
        }
    }

    fn file(&self) -> Result<File> {
        control::open_file(&self.control, RESERVE, OFlags::RDWR | OFlags::CREATE)
    }

    fn whole_bytes(&self) -> Result<u64> {
        let of_disk = disk_bytes(&self.control)? / DISK_PARTS;
        Ok(WHOLE_MAX_BYTES.min(of_disk) / PIECE_BYTES * PIECE_BYTES)
    }

    /// Gives bytes back, but for some that stay; whether that is anything.
    fn cut(&self, bytes: u64, stay_bytes: u64) -> Result<bool> {
        let file = self.file()?;
        let length = length_of(&file)?;
        if length <= stay_bytes {
            return Ok(false);
        }
        let wanted = bytes.saturating_add(PIECE_BYTES);
        let left = (length.saturating_sub(wanted) / PIECE_BYTES * PIECE_BYTES).max(stay_bytes);
        file.set_len(left).context(|| "giving room back")?;
        // Some file systems free the blocks only once that is durable.
        file.sync_all().context(|| "giving room back")?;
        Ok(true)
    }
}

impl Room for Reserve {
    fn make(&self, bytes: u64) -> bool {
        // What cannot be given back is no room, and what it was wanted for says so.
        self.cut(bytes, FOR_JOBS_BYTES).unwrap_or(false)
    }
}

fn length_of(file: &File) -> Result<u64> {
    Ok(file.metadata().context(|| "the room that is set aside")?.len())
}
