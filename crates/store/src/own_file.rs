//! Opens files of the program's own: those of caches and of what it remembers.
//!
//! Nothing rests on one of them, so whatever lies in its place must not hold anybody up: a pipe
//! that nobody writes to would, and a device might.

use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file for reading, without waiting.
///
/// # Errors
///
/// Those of the system; `InvalidInput` for what is no regular file.
pub fn open_own(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}
