//! Items that links above sources lead to the place of another one.
//!
//! `lib/x` and `usr/lib/x` of a snapshot are one file where `lib` is a link to `usr/lib` by now.
//! The item whose own path that is has the place; the one that a link leads there is a problem each
//! time. In a directory that is in two places of the snapshot nothing is deleted: what one of them
//! does not have may be of the other.

use super::target::Directory;
use super::walk::Restorer;
use crate::file_systems::proc_error;
use crate::tree::path;
use onefold_format::node::{Entry, EntryKind};
use onefold_types::error::Context;
use onefold_types::{Error, ErrorKind, Result};
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl Restorer<'_> {
    /// Where a directory that a link led to is in the target, as a path from there on; `None` if it
    /// lies elsewhere.
    pub(super) fn place_in_target(&self, directory: &Directory) -> Result<Option<Vec<u8>>> {
        let target = self.options.target.canonicalize().context(|| "looking at the target")?;
        let handle = directory.handle()?;
        let real =
            rustix::fs::readlink(format!("/proc/self/fd/{}", handle.as_raw_fd()), Vec::new())
                .map_err(|errno| proc_error("looking where the link leads", errno))?;
        let real = Path::new(OsStr::from_bytes(real.as_bytes()));
        let below = real.strip_prefix(&target).ok();
        Ok(below.map(|below| path::join(b"/", below.as_os_str().as_bytes())))
    }

    /// Whether the snapshot has a directory in two places: a link has led to it, and it is at its
    /// own path, too. `led_to` is its path if a link leads to it now.
    pub(super) fn is_shared(&mut self, directory: &Directory, led_to: Option<&[u8]>) -> bool {
        let Some(place) = led_to else {
            return self.led_to_before.contains(&directory.identity());
        };
        self.led_to_before.insert(directory.identity());
        self.root.is_some_and(|root| self.reader.resolve(root, place).is_ok())
    }

    /// Refuses an item that is not at its own path, if the snapshot has another one for its place.
    pub(super) fn refuse_second(&self, entry: &Entry) -> Result<()> {
        let (Some(led_to), Some(root)) = (self.led_to(), self.root) else {
            return Ok(());
        };
        let place = path::join(led_to, &entry.name);
        let other = match self.reader.resolve(root, &place) {
            Ok(other) if entry.kind != EntryKind::Directory => other,
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => return Ok(()),
        };
        let what = |entry: &Entry| (entry.kind, entry.content, entry.target.clone());
        match what(&other) == what(entry) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::AlreadyExists,
                format!(
                    "a link above it leads to the place of '{}', which is another item of the \
                     snapshot; restore into a directory without that link",
                    path::display(&place)
                ),
            )),
        }
    }
}
