//! What the disk of a share has room for.

use onefold_types::{Error, Result};
use rustix::fs::StatVfs;
use std::os::fd::AsFd;

/// What a collection needs on a full disk.
const KEPT_FREE_BYTES: u64 = 16 << 20;
/// The same of a small disk: one part in so many.
const KEPT_FREE_PARTS: u64 = 16;

/// What this process may take of what is free: root may take what is left to root.
pub fn usable_bytes(open: impl AsFd) -> Result<u64> {
    let room = room_of(open)?;
    let blocks = if rustix::process::geteuid().is_root() { room.f_bfree } else { room.f_bavail };
    Ok(blocks.saturating_mul(room.f_frsize))
}

/// What the disk of something open has in all.
pub fn disk_bytes(open: impl AsFd) -> Result<u64> {
    let room = room_of(open)?;
    Ok(room.f_blocks.saturating_mul(room.f_frsize))
}

/// What is free on the disk of something open, for users other than root too.
pub fn free_bytes(open: impl AsFd) -> Result<u64> {
    let room = room_of(open)?;
    Ok(room.f_bavail.saturating_mul(room.f_frsize))
}

/// What is left free for a collection, of a small disk less.
pub fn kept_free_bytes(open: impl AsFd) -> Result<u64> {
    Ok(KEPT_FREE_BYTES.min(disk_bytes(open)? / KEPT_FREE_PARTS))
}

fn room_of(open: impl AsFd) -> Result<StatVfs> {
    rustix::fs::fstatvfs(open).map_err(|errno| Error::io("its disk", errno.into()))
}
