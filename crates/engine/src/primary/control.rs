//! What is Onefold's in the directory of a share: made, described and taken away.
//!
//! # Crashes
//! A directory is a share as soon as `share.json` is there, and no longer than that. The file
//! appears whole, under its name, when all else is made, and is replaced by renaming; it goes when
//! all else is gone. So whoever is stopped at making or removing a share leaves a directory without
//! it, in which nothing is anybody's: [`clear`] takes it away. Only stubs in `open/` keep it: they
//! were deleted while a program had them open.
//!
//! # Concurrency
//! Whoever makes a share, or clears what is left of one, holds a lock of the kernel on the
//! directory `.onefold-share` itself meanwhile.

use crate::file_systems::list;
use crate::stub::{CONTROL, DESCRIPTION};
use onefold_format::share::{DESCRIPTION_MAX_BYTES, ShareDescription};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The same before it has its name.
const DESCRIPTION_NEW: &str = "share.json.new";
/// How often something was moved.
pub(super) const MOVES: &str = "moves";
/// What could not be read.
pub(super) const PROBLEMS: &str = "problems";
/// Files that are being emptied.
pub(super) const EMPTYING: &str = "emptying";
/// Where the last scrub ended.
pub(super) const SCRUB: &str = "scrub";
/// Stubs that were deleted while they were open.
pub(super) const OPEN: &str = "open";
/// Room for when the disk is full.
pub(super) const RESERVE: &str = "reserve";
/// Whether it was mounted since it was made.
pub(super) const MOUNTED: &str = "mounted";
/// Locked by whoever mounts the share.
pub(super) const MOUNT_LOCK: &str = "mount.lock";
/// Locked by whoever works on it.
pub(super) const JOB_LOCK: &str = "job.lock";

const OWNERS: Mode = Mode::from_raw_mode(0o600);

/// Opens a directory, and no link to one.
pub(super) fn open_directory(above: impl AsFd, path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, path, flags, Mode::empty())
        .map_err(|errno| Error::io(path.display().to_string(), errno.into()))
}

/// An error about one of the names.
pub(super) fn own(name: &str, errno: Errno) -> Error {
    Error::io(format!("'{name}' of the share"), errno.into())
}

fn lock(control: &OwnedFd) -> Result<()> {
    match rustix::fs::flock(control, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::new(
            ErrorKind::Unavailable,
            format!("somebody else is at '{CONTROL}' of this directory; try again later"),
        )),
        Err(errno) => Err(own(CONTROL, errno)),
    }
}

/// Gives what root has just made in a directory to whom the directory belongs, who could not read
/// it otherwise. Where root may not do that it stays root's.
fn give(made: impl AsFd, directory: impl AsFd) -> Result<(), Errno> {
    let owner = rustix::fs::fstat(directory)?;
    if owner.st_uid == 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    match rustix::fs::fchown(&made, Some(user), Some(group)) {
        Err(Errno::PERM | Errno::INVAL | Errno::NOTSUP) => Ok(()),
        Err(_) if rustix::fs::fstat(&made)?.st_uid == owner.st_uid => Ok(()),
        given => given,
    }
}

/// Opens a file of what is Onefold's, and makes it if the flags say so.
pub(super) fn open_file(control: &OwnedFd, name: &str, flags: OFlags) -> Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::openat(control, name, flags, OWNERS);
    // What is there already may be somebody's: only what is made here is given away.
    let made = match flags.contains(OFlags::CREATE) {
        true => open(flags | OFlags::EXCL),
        false => Err(Errno::EXIST),
    };
    let opened = match made {
        Ok(made) => give(&made, control).map(|()| made),
        Err(Errno::EXIST) => open(flags),
        Err(errno) => Err(errno),
    };
    opened.map(File::from).map_err(|errno| own(name, errno))
}

/// Makes it in a directory that has none; `describe` is asked what the share is once it is known
/// where that lies. If anything fails, nothing of it is left.
///
/// Errors: `AlreadyExists` if there is one.
pub(super) fn make(
    directory: &OwnedFd,
    describe: impl FnOnce(&OwnedFd) -> Result<ShareDescription>,
) -> Result<ShareDescription> {
    rustix::fs::mkdirat(directory, CONTROL, Mode::from_raw_mode(0o700))
        .map_err(|errno| Error::io(format!("making '{CONTROL}'"), errno.into()))?;
    let control = open_directory(directory, Path::new(CONTROL))?;
    lock(&control)?;
    let fill = || {
        give(&control, directory).map_err(|errno| own(CONTROL, errno))?;
        rustix::fs::mkdirat(&control, OPEN, Mode::from_raw_mode(0o700))
            .map_err(|errno| own(OPEN, errno))?;
        let open = open_directory(&control, Path::new(OPEN))?;
        give(&open, &control).map_err(|errno| own(OPEN, errno))?;
        let description = describe(&control)?;
        write(&control, &description)?;
        rustix::fs::fsync(directory).map_err(|errno| own(CONTROL, errno))?;
        Ok(description)
    };
    fill().inspect_err(|_| {
        // What it failed of is what is told.
        let _ = remove(directory, &control);
    })
}

/// Replaces what the share says about itself; durable when this returns.
pub(super) fn write(control: &OwnedFd, description: &ShareDescription) -> Result<()> {
    let text = description.encode()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = open_file(control, DESCRIPTION_NEW, flags)?;
    file.write_all(&text).context(|| "describing the share")?;
    file.sync_all().context(|| "describing the share")?;
    rustix::fs::renameat(control, DESCRIPTION_NEW, control, DESCRIPTION)
        .map_err(|errno| own(DESCRIPTION, errno))?;
    rustix::fs::fsync(control).map_err(|errno| own(DESCRIPTION, errno))
}

/// What the share says about itself.
///
/// Errors: `NotFound` if the directory is none.
pub(super) fn read(directory: &OwnedFd, shown: &Path) -> Result<(OwnedFd, ShareDescription)> {
    let control = open_directory(directory, Path::new(CONTROL));
    let control = control.map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let message =
                format!("'{}' is no share; 'onefold share create' makes it one", shown.display());
            Error::new(ErrorKind::NotFound, message)
        }
        _ => error,
    })?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&control, DESCRIPTION, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| own(DESCRIPTION, errno))?;
    let mut text = Vec::new();
    let most = DESCRIPTION_MAX_BYTES as u64;
    file.take(most).read_to_end(&mut text).context(|| DESCRIPTION)?;
    Ok((control, ShareDescription::decode(&text)?))
}

/// Takes away what is left of a share that somebody was stopped at making or removing; whether
/// there was such a thing.
///
/// Errors: `Invalid` if stubs are in it that a program had open; `Unavailable` if somebody is at
/// it now.
pub(super) fn clear(directory: &OwnedFd) -> Result<bool> {
    let Ok(control) = open_directory(directory, Path::new(CONTROL)) else { return Ok(false) };
    if exists(&control, DESCRIPTION)? {
        return Ok(false);
    }
    lock(&control)?;
    // Whoever held the lock may have finished.
    if exists(&control, DESCRIPTION)? {
        return Ok(false);
    }
    if has_entries(&control, OPEN)? {
        return Err(Error::invalid(format!(
            "'{CONTROL}' of this directory has no '{DESCRIPTION}', but files in '{OPEN}' that were \
             deleted while they were open; bring '{DESCRIPTION}' back, or remove '{CONTROL}'"
        )));
    }
    remove(directory, &control)?;
    Ok(true)
}

/// Takes all of it away: the description last, but for the directory itself.
pub(super) fn remove(directory: &OwnedFd, control: &OwnedFd) -> Result<()> {
    unlink(control, OPEN, AtFlags::REMOVEDIR)?;
    let made = [MOVES, PROBLEMS, EMPTYING, SCRUB, RESERVE, MOUNTED];
    for name in made.into_iter().chain([JOB_LOCK, MOUNT_LOCK, DESCRIPTION_NEW]) {
        unlink(control, name, AtFlags::empty())?;
    }
    // Nothing that is ours is left but these two, and others' files keep both.
    refuse_foreign(control)?;
    unlink(control, DESCRIPTION, AtFlags::empty())?;
    unlink(directory, CONTROL, AtFlags::REMOVEDIR)?;
    rustix::fs::fsync(directory).map_err(|errno| own(CONTROL, errno))
}

fn refuse_foreign(control: &OwnedFd) -> Result<()> {
    match names_in(control)?.into_iter().find(|name| name != DESCRIPTION.as_bytes()) {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "'{}' in '{CONTROL}' is none of Onefold's, or somebody has begun to work on the share; \
             look at it, then try again",
            String::from_utf8_lossy(&name)
        ))),
    }
}

fn unlink(above: impl AsFd, name: &str, flags: AtFlags) -> Result<()> {
    match rustix::fs::unlinkat(above, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(own(name, errno)),
    }
}

pub(super) fn exists(control: &OwnedFd, name: &str) -> Result<bool> {
    match rustix::fs::statat(control, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(own(name, errno)),
    }
}

fn has_entries(control: &OwnedFd, name: &str) -> Result<bool> {
    match exists(control, name)? {
        true => Ok(!names_in(&open_directory(control, Path::new(name))?)?.is_empty()),
        false => Ok(false),
    }
}

/// Takes away what was deleted while programs had it open; nobody mounts the share now.
pub(super) fn clear_open(control: &OwnedFd) -> Result<()> {
    if !exists(control, OPEN)? {
        return Ok(());
    }
    let open = open_directory(control, Path::new(OPEN))?;
    for name in names_in(&open)? {
        rustix::fs::unlinkat(&open, name, AtFlags::empty()).map_err(|errno| own(OPEN, errno))?;
    }
    Ok(())
}

/// The names in a directory, in no order.
pub(super) fn names_in(directory: &OwnedFd) -> Result<Vec<Vec<u8>>> {
    let listing = |errno: Errno| Error::io("listing it", errno.into());
    let mut names = Vec::new();
    list(directory, |name, _, _| names.push(name.to_vec())).map_err(listing)?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_format::share::{SharePlace, SharePolicy};
    use onefold_types::{ShareId, StoreId};
    use std::os::unix::fs::MetadataExt;

    fn description() -> ShareDescription {
        ShareDescription {
            share: ShareId([1; 16]),
            store: StoreId([2; 16]),
            place: SharePlace { inode: 1, made_ns: 2 },
            addresses: Vec::new(),
            moved_from: Vec::new(),
            policy: SharePolicy { age_min_seconds: 0, size_min_bytes: 0, excludes: Vec::new() },
        }
    }

    #[test]
    fn making_a_share_that_fails_half_way_leaves_nothing_of_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = open_directory(rustix::fs::CWD, root.path()).unwrap();
        make(&directory, |_| Err(Error::invalid("not this time"))).unwrap_err();
        assert!(!root.path().join(CONTROL).exists());
        let mut long = description();
        long.policy.excludes.push("x".repeat(DESCRIPTION_MAX_BYTES));
        assert_eq!(make(&directory, |_| Ok(long)).unwrap_err().kind(), ErrorKind::Invalid);
        assert!(!root.path().join(CONTROL).exists());
        make(&directory, |_| Ok(description())).unwrap();
        assert_eq!(read(&directory, root.path()).unwrap().1, description());
    }

    #[test]
    fn a_description_is_replaced_as_a_whole() {
        let root = tempfile::tempdir().unwrap();
        let directory = open_directory(rustix::fs::CWD, root.path()).unwrap();
        make(&directory, |_| Ok(description())).unwrap();
        let path = root.path().join(CONTROL).join(DESCRIPTION);
        let before = path.metadata().unwrap().ino();
        let (control, mut known) = read(&directory, root.path()).unwrap();
        // Somebody was stopped at writing it.
        std::fs::write(root.path().join(CONTROL).join(DESCRIPTION_NEW), b"{").unwrap();
        known.policy.size_min_bytes = 5;
        write(&control, &known).unwrap();
        assert_ne!(path.metadata().unwrap().ino(), before);
        assert_eq!(read(&directory, root.path()).unwrap().1, known);
        known.policy.excludes.push("x".repeat(DESCRIPTION_MAX_BYTES));
        write(&control, &known).unwrap_err();
        known.policy.excludes.clear();
        assert_eq!(read(&directory, root.path()).unwrap().1, known);
    }
}
