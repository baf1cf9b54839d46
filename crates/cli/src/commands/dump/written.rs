//! A file that is there as a whole or not at all, and takes nobody's place unasked.
//!
//! Algorithm: the bytes go to a new file of another name beside it, which gets the name once all of
//! them are durable, by a call that refuses a name in use unless that one is to be replaced. Pipes
//! and character devices, such as `/dev/null`, hold nothing and are written to as they are; so is
//! what this process has open, such as `/dev/stdout`, behind what is there.

use onefold_types::error::Context;
use onefold_types::{Error, Result};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the file at `path`; returns how many bytes `fill` wrote.
///
/// Errors: `Invalid` if something is there, unless `replaces`.
pub fn write(
    path: &Path,
    replaces: bool,
    fill: &mut dyn FnMut(&mut dyn Write) -> Result<u64>,
) -> Result<u64> {
    let what = || format!("writing '{}'", path.display());
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => Some(there),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error).context(what),
    };
    let led_to = std::fs::metadata(path).ok();
    if led_to.as_ref().is_some_and(holds_nothing) || is_open_here(path) {
        let mut file = OpenOptions::new().append(true).open(path).context(what)?;
        return fill(&mut file);
    }
    if there.is_some() && !replaces {
        return Err(in_use(path));
    }
    // Of a link the file that it leads to is replaced.
    let path = match there {
        Some(_) => path.canonicalize().context(what)?,
        None => path.to_owned(),
    };
    let permissions = match led_to.filter(|_| replaces) {
        Some(found) if !found.is_file() => {
            return Err(Error::invalid(format!(
                "'{}' is no regular file, and is not replaced",
                path.display()
            )));
        }
        found => found.map(|found| found.permissions()),
    };
    let (beside, mut file) = make_beside(&path, permissions.is_some()).context(what)?;
    let written = fill(&mut file).and_then(|bytes| {
        if let Some(permissions) = permissions {
            file.set_permissions(permissions).context(what)?;
        }
        file.sync_all().context(what)?;
        name(&beside, &path, replaces)?;
        Ok(bytes)
    });
    if written.is_err() {
        // The error that counts is the one that brought us here.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn holds_nothing(found: &Metadata) -> bool {
    let kind = found.file_type();
    kind.is_fifo() || kind.is_char_device()
}

/// Whether a path is another name of a descriptor of this process.
#[must_use]
pub fn is_open_here(path: &Path) -> bool {
    let descriptors = PathBuf::from(format!("/proc/{}/fd", std::process::id()));
    let leads_to = std::fs::read_link(path).unwrap_or_default();
    let is_in = |path: &Path| path.parent().and_then(|it| it.canonicalize().ok());
    [path, &leads_to].into_iter().any(|path| is_in(path).as_ref() == Some(&descriptors))
}

fn in_use(path: &Path) -> Error {
    Error::invalid(format!(
        "'{}' is there already; name another file, or replace it with --force",
        path.display()
    ))
}

/// A new file beside `path`, under a name that nobody else has. One that gets the permissions of
/// another file has nobody's until then.
fn make_beside(path: &Path, is_private: bool) -> std::io::Result<(PathBuf, File)> {
    let mode = if is_private { 0o600 } else { 0o666 };
    let mut number = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    loop {
        let mut name = OsString::from(".onefold-dump-");
        name.push(format!("{}-{number}", std::process::id()));
        let beside = path.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|file| (beside, file)),
        }
    }
}

/// Gives a finished file its name.
fn name(beside: &Path, path: &Path, replaces: bool) -> Result<()> {
    let what = || format!("giving '{}' its name", path.display());
    if replaces {
        return std::fs::rename(beside, path).context(what);
    }
    match rustix::fs::renameat_with(CWD, beside, CWD, path, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => Err(in_use(path)),
        // The file system cannot refuse a name in use by this call, and can by the other.
        Err(Errno::INVAL | Errno::NOSYS) => match std::fs::hard_link(beside, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(in_use(path)),
            linked => linked.and_then(|()| std::fs::remove_file(beside)).context(what),
        },
        renamed => renamed.map_err(std::io::Error::from).context(what),
    }
}
