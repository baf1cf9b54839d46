//! All files of a share, below its mount, one after the other.
//!
//! Directories are opened relative to the one above and links are never followed. A directory of
//! another file system is not entered, nor what is Onefold's in the share. What something else is
//! mounted on could not be read. Files are met once for each name they have.

use super::control;
use super::share::{CONTROL, open_directory};
use crate::ingest::attributes;
use crate::ingest::stubs::refuse_covered;
use onefold_format::node::{Entry, EntryKind};
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::AtFlags;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A file that a crawl has met.
pub struct Met<'a> {
    /// The directory that it is in.
    pub directory: &'a OwnedFd,
    /// Its path in the share.
    pub path: &'a [u8],
    /// Its name and state.
    pub entry: &'a Entry,
}

/// Calls `each` with every file, and `problem` with what could not be read.
///
/// Errors: those of `each`.
pub fn files(
    share: BorrowedFd<'_>,
    each: &mut dyn FnMut(Met<'_>) -> Result<()>,
    problem: &mut dyn FnMut(&[u8], &Error),
) -> Result<()> {
    let mut open = vec![(open_directory(share, Path::new("."))?, Vec::new(), None)];
    let device = status(share, OsStr::new("."))?.st_dev;
    loop {
        let is_too_deep = open.len() >= limits::DEPTH_MAX;
        let Some((directory, path, names)) = open.last_mut() else { return Ok(()) };
        let names: &mut Vec<Vec<u8>> = match names {
            Some(names) => names,
            None => match names_in(directory) {
                Ok(found) => names.insert(found),
                Err(error) => {
                    problem(path, &error);
                    names.insert(Vec::new())
                }
            },
        };
        let Some(name) = names.pop() else {
            open.pop();
            continue;
        };
        if path.is_empty() && name == CONTROL.as_bytes() {
            continue;
        }
        let path = [path.as_slice(), b"/", &name].concat();
        let named = OsStr::from_bytes(&name);
        let stat = match status(directory.as_fd(), named)
            .and_then(|stat| refuse_covered(&*directory, named, device).map(|()| stat))
        {
            Ok(stat) => stat,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => {
                problem(&path, &error);
                continue;
            }
        };
        let entry = attributes::entry_of(name.clone(), &stat);
        match entry.kind {
            EntryKind::File => each(Met { directory, path: &path, entry: &entry })?,
            EntryKind::Directory if stat.st_dev == device && !is_too_deep => {
                match open_directory(&*directory, Path::new(named)) {
                    Ok(inner) => open.push((inner, path, None)),
                    Err(error) => problem(&path, &error),
                }
            }
            _ => {}
        }
    }
}

fn status(directory: BorrowedFd<'_>, name: &OsStr) -> Result<rustix::fs::Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|errno| Error::io("its status", errno.into()))
}

/// The names in a directory, the last first.
fn names_in(directory: &OwnedFd) -> Result<Vec<Vec<u8>>> {
    let mut names = control::names_in(directory)?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}
