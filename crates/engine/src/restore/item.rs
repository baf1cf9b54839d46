//! Everything that is neither file nor directory, and what to do about what is there already.

use super::Overwrite;
use super::metadata::{Applier, Attributes, Present};
use super::target::{Directory, is_type};
use super::unfinished::is_unfinished;
use onefold_format::node::{Entry, EntryKind, Time};
use onefold_types::{Error, Result};
use rustix::fs::{FileType, Stat};
use std::os::fd::AsFd;

/// What is to be done with an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Nothing is there: make it.
    Make,
    /// Something of another kind or content is there: make it, and put it in the place of that.
    Replace,
    /// A file or directory is there: take it, and change what differs.
    Compare,
    /// What is there is right, but for its attributes.
    Keep,
    /// The overwrite rule leaves it alone.
    Skip,
}

/// Decides by the overwrite rule; links and devices are compared by [`is_same`].
#[must_use]
pub fn decide(entry: &Entry, existing: Option<&Stat>, overwrite: Overwrite) -> Decision {
    let Some(stat) = existing else {
        return Decision::Make;
    };
    let same_kind = is_type(stat, file_type(entry.kind));
    if same_kind && entry.kind == EntryKind::Directory {
        return Decision::Compare;
    }
    let modified = Time {
        seconds: stat.st_mtime,
        nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    };
    let is_left_alone = match overwrite {
        Overwrite::Never => true,
        Overwrite::IfNewer => entry.modified <= modified,
        _ => false,
    };
    // What a killed restore has left is nobody's own.
    if is_left_alone && !is_unfinished(stat) {
        return Decision::Skip;
    }
    match (same_kind, entry.kind) {
        (false, _) => Decision::Replace,
        (true, EntryKind::File) => {
            let unchanged = overwrite == Overwrite::IfChanged
                && stat.st_size as u64 == entry.size
                && modified == entry.modified;
            match unchanged {
                true => Decision::Keep,
                false => Decision::Compare,
            }
        }
        (true, _) => Decision::Compare,
    }
}

/// Whether the link, device, pipe or socket that is there is the one wanted.
pub fn is_same(directory: &Directory, entry: &Entry, existing: &Stat) -> Result<bool> {
    Ok(match entry.kind {
        EntryKind::Symlink => {
            let handle = directory.handle()?;
            let target = rustix::fs::readlinkat(&*handle, entry.name.as_slice(), Vec::new())
                .map_err(|errno| Error::io("reading the link that is there", errno.into()))?;
            target.as_bytes() == entry.target
        }
        EntryKind::CharacterDevice | EntryKind::BlockDevice => {
            existing.st_rdev == entry.device_number
        }
        _ => true,
    })
}

/// Makes a link, device, pipe or socket under a name.
pub fn make(directory: &Directory, entry: &Entry, name: &[u8]) -> Result<()> {
    let handle = directory.handle()?;
    let made = match entry.kind {
        EntryKind::Symlink => rustix::fs::symlinkat(entry.target.as_slice(), &*handle, name),
        kind => {
            let mode = directory.mode_of_new();
            rustix::fs::mknodat(&*handle, name, file_type(kind), mode, entry.device_number)
        }
    };
    made.map_err(|errno| {
        let what = match entry.kind {
            EntryKind::Symlink => "making the symbolic link",
            EntryKind::CharacterDevice | EntryKind::BlockDevice => "making the device",
            EntryKind::Fifo => "making the pipe",
            _ => "making the socket",
        };
        Error::io(what, errno.into())
    })
}

/// Sets the attributes of an item made by [`make`] or left by [`is_same`].
pub fn apply(
    applier: &Applier,
    directory: &Directory,
    entry: &Entry,
    name: &[u8],
    attributes: &Attributes,
    existing: Option<&Stat>,
) -> Result<()> {
    let present = match existing {
        Some(stat) => Present::existing(stat, directory),
        // Links inherit no access control lists.
        None if entry.kind == EntryKind::Symlink => {
            Present { attributes: false, ..Present::fresh(directory) }
        }
        None => Present::fresh(directory),
    };
    let handle = directory.handle()?;
    applier.apply_by_name(
        handle.as_fd(),
        name,
        attributes,
        present,
        entry.kind == EntryKind::Symlink,
        &|| directory.display_of(&entry.name),
    );
    Ok(())
}

fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::RegularFile,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink => FileType::Symlink,
        EntryKind::CharacterDevice => FileType::CharacterDevice,
        EntryKind::BlockDevice => FileType::BlockDevice,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
    }
}
