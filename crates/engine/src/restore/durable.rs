//! Durability of restored files: a restore reports success only after the devices have the data.
//!
//! # Algorithm
//! The restore writes new files without waiting for the device. At the end, and before it reads
//! files again, it syncs each file system of the target once (`syncfs`), which reports every write
//! that failed since the file system was opened. File systems of programs and of other machines
//! report failures of single files only, so the restore syncs each file there before it closes it.
//! It does so as well where more file systems are met than it holds open.
//!
//! # Invariants
//! The restore holds a file system open from before the first write: the kernel reports a failure
//! once, to the files that were open at that time.

use crate::file_systems::{is_served, keeps_attributes};
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
    met: Mutex<HashMap<u64, (FileSystem, Option<Held>)>>,
}

/// What is known of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileSystem {
    /// Whether each file there is to be written out by itself.
    pub is_by_file: bool,
    /// Whether it keeps attributes as they are set.
    pub keeps_attributes: bool,
}

/// A directory that stands for its file system.
struct Held {
    /// Its path in the target, for messages.
    place: String,
    handle: Arc<OwnedFd>,
}

impl FileSystems {
    /// Holds the file system of a directory that was just opened, unless the caller has to sync
    /// each file there.
    pub fn meet(
        &self,
        device: u64,
        opened: &Arc<OwnedFd>,
        place: impl FnOnce() -> String,
    ) -> FileSystem {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, _)) = met.get(&device) {
            return *known;
        }
        let has_room = met.values().filter(|(_, held)| held.is_some()).count() < HELD_MAX;
        let is_by_file = !has_room || is_served(opened);
        let known = FileSystem { is_by_file, keeps_attributes: keeps_attributes(opened) };
        let held = || Held { place: place(), handle: Arc::clone(opened) };
        met.insert(device, (known, (!is_by_file).then(held)));
        known
    }

    /// Syncs the file systems that are held open. Returns the place and the error of each that
    /// failed.
    #[must_use]
    pub fn write_out(&self) -> Vec<(String, Error)> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = met.values().filter_map(|(_, held)| held.as_ref()).filter_map(|held| {
            let errno = rustix::fs::syncfs(&*held.handle).err()?;
            let what = "the file system that this lies on could not write all that it was given, \
                        so restored files may not be whole: see the system's log for what is \
                        wrong with the device, and restore again with --verify";
            Some((held.place.clone(), Error::io(what, errno.into())))
        });
        failed.collect()
    }
}

/// Syncs a file that was written.
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
        let meet = |device| systems.meet(device, &opened, || format!("/{device}")).is_by_file;
        let most = HELD_MAX as u64;
        assert!((0..most).all(|device| !meet(device)));
        assert!(meet(most) && meet(most + 1));
        // What was said of one stays.
        assert!(!meet(0) && meet(most));
        assert!(systems.write_out().is_empty());
    }
}
