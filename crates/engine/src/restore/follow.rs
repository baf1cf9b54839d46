//! Links above sources, followed.
//!
//! A directory that only leads to sources was never saved, so what stands in its place in the
//! target is the user's: `/home` may be a link to another disk. Such a link is followed, if it is
//! root's or the effective user's own, and never replaced. Out of the target it is followed
//! only where a restore is in place; anywhere else an earlier restore of what somebody chose may
//! have made it.
//!
//! Algorithm: the path is resolved name by name, each opened without following; of a link its owner
//! is looked at and its text read by that handle, so nobody can exchange it in between. Whether the
//! end lies in the target is told by the directories above the end itself.

use onefold_types::error::Context;
use onefold_types::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags};
use std::os::fd::OwnedFd;

/// Links on one way, as the kernel has it.
const LINKS_MAX: usize = 40;
const LOOK_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const REMEDY: &str =
    "repair or remove the link, or restore elsewhere; nothing is restored through it";

/// Opens the directory that the link `name` in `above` leads to; if there is a bound, that is the
/// device and inode of a directory that it has to lie in.
///
/// Errors: `Invalid` if it leads to no directory or out of the bound, or a link on the way is
/// somebody else's.
pub fn follow(
    above: &OwnedFd,
    name: &[u8],
    flags: OFlags,
    bound: Option<(u64, u64)>,
) -> Result<OwnedFd> {
    let start = open(above, b".", DIRECTORY_FLAGS);
    let mut at = start.context(|| "looking where the link leads")?;
    let mut names = vec![name.to_vec()];
    let mut links = 0;
    while let Some(name) = names.pop() {
        let missing = || format!("the link leads to nothing that can be opened: {REMEDY}");
        let found = open(&at, &name, LOOK_FLAGS).context(missing)?;
        let stat = rustix::fs::fstat(&found).map_err(std::io::Error::from);
        let stat = stat.context(missing)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => at = found,
            FileType::Symlink if links == LINKS_MAX => {
                return Err(Error::invalid(format!(
                    "the link leads over more than {LINKS_MAX} links: {REMEDY}"
                )));
            }
            FileType::Symlink => {
                links += 1;
                check_owner(stat.st_uid)?;
                let text = rustix::fs::readlinkat(&found, c"", Vec::new());
                let text = text.map_err(std::io::Error::from).context(missing)?.into_bytes();
                if text.starts_with(b"/") {
                    at = open(&at, b"/", DIRECTORY_FLAGS).context(missing)?;
                }
                let parts = text.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
                names.extend(parts.rev().map(<[u8]>::to_vec));
            }
            _ => {
                return Err(Error::invalid(format!("the link leads to no directory: {REMEDY}")));
            }
        }
    }
    if let Some(bound) = bound
        && !is_in(&at, bound).context(|| "looking where the link leads")?
    {
        return Err(Error::invalid(format!(
            "the link leads out of the target, which is only followed where what is restored has \
             its own path: {REMEDY}"
        )));
    }
    open(&at, b".", flags).context(|| format!("the link leads to a closed directory: {REMEDY}"))
}

/// Whether a directory is, or lies in, the one with this device and inode.
fn is_in(directory: &OwnedFd, bound: (u64, u64)) -> std::io::Result<bool> {
    let identity_of = |directory: &OwnedFd| -> std::io::Result<(u64, u64)> {
        let stat = rustix::fs::fstat(directory)?;
        Ok((stat.st_dev, stat.st_ino))
    };
    let mut at = open(directory, b".", DIRECTORY_FLAGS)?;
    let mut identity = identity_of(&at)?;
    while identity != bound {
        at = open(&at, b"..", DIRECTORY_FLAGS)?;
        let above = identity_of(&at)?;
        if above == identity {
            return Ok(false);
        }
        identity = above;
    }
    Ok(true)
}

/// The owner of a link decides where it leads.
fn check_owner(owner: u32) -> Result<()> {
    match owner == 0 || owner == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the link, or one that it leads over, belongs to user {owner}, who could have it lead \
             anywhere: {REMEDY}"
        ))),
    }
}

fn open(at: &OwnedFd, name: &[u8], flags: OFlags) -> std::io::Result<OwnedFd> {
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}
