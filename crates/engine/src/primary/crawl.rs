//! All files of a share, below its mount, one after the other.
//!
//! Directories are opened relative to the one above and links are never followed. A directory of
//! another file system is not entered, nor what is Onefold's in the share. What something else is
//! mounted on could not be read. Files are met once for each name they have.

use super::control;
use super::share::{CONTROL, open_directory};
use crate::environment::open_files_max;
use crate::file_systems::is_removed;
use crate::ingest::attributes;
use crate::ingest::left_out::is_absence;
use crate::ingest::levels::{Aside, open_levels};
use crate::ingest::stubs::refuse_covered;
use onefold_format::node::{Entry, EntryKind};
use onefold_types::{Error, ErrorKind, Result, limits};
use rustix::fs::AtFlags;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

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
    let levels_open = open_levels(open_files_max(), 1);
    let top = Arc::new(open_directory(share, Path::new("."))?);
    let mut open =
        vec![Level { directory: Arc::clone(&top), path: Vec::new(), names: None, aside: None }];
    let device = status(share, OsStr::new("."))?.st_dev;
    loop {
        let is_too_deep = open.len() >= limits::DEPTH_MAX;
        let is_deep = open.len() > levels_open;
        let Some(Level { directory, path, names, aside }) = open.last_mut() else {
            return Ok(());
        };
        let names: &mut Vec<Vec<u8>> = match names {
            Some(names) => names,
            None => match names_in(directory) {
                Ok(found) => names.insert(found),
                Err(error) if is_absence(&error) && is_removed(&**directory) => {
                    names.insert(Vec::new())
                }
                Err(error) => {
                    problem(path, &error);
                    names.insert(Vec::new())
                }
            },
        };
        let Some(name) = names.pop() else {
            if let Some(inner) = open.pop() {
                come_back(open.last_mut(), &inner.directory, problem);
            }
            continue;
        };
        if path.is_empty() && name == CONTROL.as_bytes() {
            continue;
        }
        let path = [path.as_slice(), b"/", &name].concat();
        let named = OsStr::from_bytes(&name);
        let stat = match status(directory.as_fd(), named)
            .and_then(|stat| refuse_covered(&**directory, named, device).map(|()| stat))
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
                let inner = open_directory(&**directory, Path::new(named)).map(Arc::new);
                let inner = inner.and_then(|inner| {
                    if is_deep {
                        *aside = Some(Aside::put(directory, &top)?);
                    }
                    Ok(inner)
                });
                match inner {
                    Ok(directory) => open.push(Level { directory, path, names: None, aside: None }),
                    Err(error) => problem(&path, &error),
                }
            }
            _ => {}
        }
    }
}

/// A directory that the crawl is in.
struct Level {
    /// It, or another one in its place.
    directory: Arc<OwnedFd>,
    path: Vec<u8>,
    /// Names that are left, once it was listed.
    names: Option<Vec<Vec<u8>>>,
    aside: Option<Aside>,
}

/// Opens a directory again in which an inner one is done. If it cannot be found, what is left of it
/// is passed over.
fn come_back(level: Option<&mut Level>, inner: &OwnedFd, problem: &mut dyn FnMut(&[u8], &Error)) {
    if let Some(Level { directory, path, names, aside }) = level
        && let Some(aside) = aside.take()
        && let Err(error) = aside.take_back(directory, inner, path)
    {
        problem(path, &error);
        *names = Some(Vec::new());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::levels::LEVELS_OPEN_MAX;
    use rustix::fs::{Mode, OFlags};

    #[test]
    fn r101_a_crawl_meets_all_files_of_a_deep_tree() {
        let root = tempfile::tempdir().unwrap();
        let mut path = root.path().to_owned();
        for level in 0..2 * LEVELS_OPEN_MAX {
            std::fs::write(path.join("a"), b"").unwrap();
            std::fs::write(path.join("z"), b"").unwrap();
            path.push(format!("level{}", level % 3));
            std::fs::create_dir(&path).unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let share = rustix::fs::open(root.path(), flags, Mode::empty()).unwrap();
        let mut met = Vec::new();
        let mut each = |file: Met<'_>| {
            // The directory in hands is the one that holds the file.
            let path = root.path().join(OsStr::from_bytes(&file.path[1..]));
            let there = std::fs::symlink_metadata(path).unwrap();
            let here = status(file.directory.as_fd(), OsStr::from_bytes(&file.entry.name))?;
            assert_eq!(std::os::unix::fs::MetadataExt::ino(&there), here.st_ino);
            met.push(file.path.to_vec());
            Ok(())
        };
        files(share.as_fd(), &mut each, &mut |_, error| panic!("{error}")).unwrap();
        assert_eq!(met.len(), 4 * LEVELS_OPEN_MAX);
        assert!(met.is_sorted());
    }
}
