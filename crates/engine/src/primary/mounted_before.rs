//! Whether a share was mounted before and is not now: programs that use it would meet zeros.
//!
//! The mount leaves a note in the share, which stays. Jobs that make stubs ask for it.

use super::control::{self, MOUNTED};
use super::share::Share;
use onefold_types::{Error, ErrorKind, Result};
use rustix::fs::OFlags;

impl Share {
    /// Writes down that it is mounted: whoever uses it does so through the mount.
    pub fn note_mounted(&self) -> Result<()> {
        self.file(MOUNTED, OFlags::WRONLY | OFlags::CREATE).map(drop)
    }

    /// Refuses a share that was mounted before and is not now, in which programs would meet zeros.
    ///
    /// Errors: `Invalid` if it is one.
    pub fn refuse_unmounted(&self) -> Result<()> {
        if self.is_mounted() || !control::exists(&self.control()?, MOUNTED)? {
            return Ok(());
        }
        // Whoever cannot take it serves the mount, where this process does not see it.
        match self.lock_mount() {
            Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(()),
            held => drop(held?),
        }
        let shown = self.shown.display();
        Err(Error::invalid(format!(
            "'{shown}' was mounted before and is not now: programs would find zeros in files that \
             are optimised; 'onefold share mount {shown}' first, or say --unmounted if nobody uses \
             them"
        )))
    }
}
