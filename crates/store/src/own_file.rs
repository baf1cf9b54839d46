//! Opens files of the program's own: those of caches and of what it remembers.
//!
//! No data rests on such a file, so opening one never waits: a pipe without a writer would block,
//! and a device might.

use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file for reading, without waiting.
///
/// # Errors
///
/// Errors of the system; `InvalidInput` if it is no regular file.
pub fn open_own(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}
