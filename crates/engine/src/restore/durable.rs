//! What a restore wrote has arrived before the restore says so.
//!
//! # Algorithm
//! New files are written without waiting for the device. In the end, and before files are read
//! again, each file system that holds a directory of the target is written out once (`syncfs`), and
//! says whether anything could not be written since it was met. A file system that is served by a
//! program or another machine says so of single files only: each file there is written out before
//! it is closed. So is each file on a file system of which no directory is known, or for which
//! there is no room among those that are held open.
//!
//! # Invariants
//! A file system is held open from before the first write on: the kernel tells an open file of what
//! failed since it was opened, and tells it once.

use crate::file_systems::is_served;
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// File systems held open: each subvolume of some counts as one.
const HELD_MAX: usize = 32;

/// The file systems that a restore has met, by device.
#[derive(Default)]
pub struct FileSystems {
    met: Mutex<HashMap<u64, Option<Held>>>,
}

/// A directory that stands for its file system.
struct Held {
    /// Its path in the target, for messages.
    place: String,
    handle: Arc<OwnedFd>,
}

impl FileSystems {
    /// Takes notice of the file system of a directory just opened. Whether each file there is to be
    /// written out by itself.
    pub fn meet(&self, device: u64, opened: &Arc<OwnedFd>, place: impl FnOnce() -> String) -> bool {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = met.get(&device) {
            return known.is_none();
        }
        let has_room = met.values().flatten().count() < HELD_MAX;
        let is_by_file = !has_room || is_served(opened);
        let held = || Held { place: place(), handle: Arc::clone(opened) };
        met.insert(device, (!is_by_file).then(held));
        is_by_file
    }

    /// Has everything arrive that was written to what is held open. What did not, by place.
    #[must_use]
    pub fn write_out(&self) -> Vec<(String, Error)> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = met.values().flatten().filter_map(|held| {
            let errno = rustix::fs::syncfs(&*held.handle).err()?;
            let what = "the file system that this lies on could not write all that it was given, \
                        so restored files may not be whole: see the system's log for what is \
                        wrong with the device, and restore again with --verify";
            Some((held.place.clone(), Error::io(what, errno.into())))
        });
        failed.collect()
    }
}

/// Has everything arrive that was written to a file.
pub fn write_out_file(file: &File) -> Result<()> {
    match file.sync_all() {
        // There is no such call there, so nothing can be learnt.
        Err(error) if is_unknown(&error) => Ok(()),
        synced => synced.context(|| "writing the file to its device or server"),
    }
}

fn is_unknown(error: &std::io::Error) -> bool {
    let unknown = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS];
    unknown.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r140_file_systems_are_held_up_to_a_bound_and_written_by_file_beyond() {
        let directory = tempfile::tempdir().unwrap();
        let opened = Arc::new(OwnedFd::from(File::open(directory.path()).unwrap()));
        let systems = FileSystems::default();
        let meet = |device| systems.meet(device, &opened, || format!("/{device}"));
        let most = HELD_MAX as u64;
        assert!((0..most).all(|device| !meet(device)));
        assert!(meet(most) && meet(most + 1));
        // What was said of one stays.
        assert!(!meet(0) && meet(most));
        assert!(systems.write_out().is_empty());
    }
}
