//! The mark of what a restore has made and not finished.
//!
//! Files have their own names from the beginning where nothing was, and a restore that is killed
//! leaves some half written. The next one has to tell these from what is somebody's own, which
//! `--overwrite never` and `if-newer` leave alone; and directories that only the owner may enter
//! from those that are meant so. So what is made gets the sticky bit until it has its own mode,
//! which is set last: of a file that bit means nothing, and of a directory into which nobody else
//! may write neither, so nobody has it there. It costs no call.
//!
//! Where a file system is not known to keep modes there is no mark: some refuse this one.

use rustix::fs::{FileType, Mode, Stat};

/// Nobody else may look at an item before it has its mode.
const FILE: u32 = 0o600;
const DIRECTORY: u32 = 0o700;
const MARK: u32 = 0o1000;
/// Directories take this bit over from the one above.
const SET_GROUP_ID: u32 = 0o2000;
const MODE_BITS: u32 = 0o7777;

/// The mode of a file, device, pipe or socket until it is finished, where marks are kept or not.
#[must_use]
pub fn file_mode(keeps_marks: bool) -> Mode {
    Mode::from_raw_mode(if keeps_marks { FILE | MARK } else { FILE })
}

/// The mode of a directory while it is filled.
#[must_use]
pub fn directory_mode(keeps_marks: bool) -> Mode {
    Mode::from_raw_mode(if keeps_marks { DIRECTORY | MARK } else { DIRECTORY })
}

/// Whether a restore has made this and was ended before it had finished.
#[must_use]
pub fn is_unfinished(stat: &Stat) -> bool {
    let mode = stat.st_mode & MODE_BITS;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => mode & !SET_GROUP_ID == DIRECTORY | MARK,
        FileType::Symlink => false,
        _ => mode == FILE | MARK,
    }
}
