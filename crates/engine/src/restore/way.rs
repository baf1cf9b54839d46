//! How a file comes to be: made, put in the place of what is there, or what is there rewritten.

use super::target::{Directory, is_type};
use crate::job::Interrupt;
use crate::user_file;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;

/// How a file comes to be where something may be there.
#[derive(Clone)]
pub enum Way {
    /// Nothing is there.
    New,
    /// Something is there that it takes the place of when it is complete.
    Replace {
        /// What is there.
        there: Stat,
        /// The name until then.
        temporary: Vec<u8>,
    },
    /// The file that is there is rewritten.
    InPlace(Stat),
}

/// What changes of a file while it is written.
pub struct Slot {
    /// How it comes to be.
    pub way: Way,
    /// It, if it is open.
    pub handle: Option<Arc<File>>,
    /// Whether it was made or opened before.
    pub made: bool,
    /// Its device and inode when it was closed.
    pub identity: Option<(u64, u64)>,
    /// Why it was given up.
    pub failure: Option<Error>,
    /// Whether this is another try.
    pub tried: bool,
    /// Whether it is to be tried another time.
    pub again: bool,
}

impl Slot {
    /// Nothing is written yet; `handle` is the file that is rewritten.
    #[must_use]
    pub fn new(way: Way, handle: Option<Arc<File>>) -> Self {
        let identity = match &way {
            Way::InPlace(stat) => Some((stat.st_dev, stat.st_ino)),
            Way::New | Way::Replace { .. } => None,
        };
        let made = handle.is_some();
        Self { way, handle, made, identity, failure: None, tried: false, again: false }
    }

    /// The name that the file has in its directory now, if `name` is what it is to have.
    #[must_use]
    pub fn name_now<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        match &self.way {
            Way::Replace { temporary, .. } => temporary,
            Way::New | Way::InPlace(..) => name,
        }
    }

    /// Notes that no other file can be made or put in the place of one that is there, which can be
    /// rewritten still.
    pub fn is_refused(&mut self, errno: Errno) {
        let is_refusal = matches!(
            errno,
            Errno::PERM | Errno::ACCESS | Errno::BUSY | Errno::NOSPC | Errno::DQUOT
        );
        if let Way::Replace { there, .. } = &self.way
            && is_type(there, FileType::RegularFile)
        {
            self.again |= is_refusal && !self.tried;
        }
    }
}

/// Whether the length is set in the end: of what nobody writes to the end.
#[must_use]
pub fn sets_size(way: &Way, size: u64) -> bool {
    match way {
        Way::New => false,
        Way::Replace { .. } => true,
        Way::InPlace(stat) => stat.st_size as u64 != size,
    }
}

/// Opens the file that is there for rewriting it.
///
/// Errors: it may not be, is another one by now, or has other names.
pub fn open_in_place(
    directory: &Directory,
    name: &[u8],
    there: &Stat,
    interrupt: &Interrupt,
) -> Result<(Arc<File>, Stat)> {
    let opened = user_file::open(&*directory.handle()?, name, OFlags::RDWR, interrupt)
        .map_err(|errno| Error::io("opening it for rewriting", errno.into()))?;
    let stat = rustix::fs::fstat(&opened)
        .map_err(|errno| Error::io("looking at the file that is there", errno.into()))?;
    if (stat.st_dev, stat.st_ino) != (there.st_dev, there.st_ino) {
        return Err(Error::new(ErrorKind::Io, "it was replaced by another one"));
    }
    if !is_type(&stat, FileType::RegularFile) || stat.st_nlink != 1 {
        return Err(Error::invalid("a file with other names is not rewritten"));
    }
    Ok((Arc::new(opened), stat))
}
