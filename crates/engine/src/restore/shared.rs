//! What all files of a restore share, and which of them are open.

use super::Without;
use super::metadata::Applier;
use super::output::OutputFile;
use super::temporary::TemporaryNames;
use crate::environment::open_files_max;
use crate::job::Job;
use lru::LruCache;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Files that a restore holds open for writing, fewer if the process may open few.
pub const FILES_OPEN_MAX: NonZeroUsize = NonZeroUsize::new(192).unwrap();

/// What all files of a restore share.
pub struct Shared {
    /// Sets attributes.
    pub applier: Applier,
    /// Interrupts, progress and problems.
    pub job: Job,
    /// Bytes written.
    pub bytes_written: AtomicU64,
    /// Names of files that are to stand in the place of others.
    pub names: TemporaryNames,
    /// Whether such files take room in this window, and how much is theirs.
    pub has_temporaries: AtomicBool,
    /// See above.
    pub promised_bytes: AtomicU64,
    open: Mutex<LruCache<u64, Weak<OutputFile>>>,
}

impl Shared {
    /// For one restore.
    #[must_use]
    pub fn new(job: &Job, without: Without, now_ns: i64) -> Self {
        // Directories and the store take their parts, too.
        let room = NonZeroUsize::new(open_files_max() / 6).unwrap_or(NonZeroUsize::MIN);
        Self {
            applier: Applier::new(job, without),
            job: job.clone(),
            bytes_written: AtomicU64::new(0),
            names: TemporaryNames::new(now_ns),
            has_temporaries: AtomicBool::new(false),
            promised_bytes: AtomicU64::new(0),
            open: Mutex::new(LruCache::new(room.min(FILES_OPEN_MAX))),
        }
    }

    /// Remembers that a file is open, and closes the one that was used longest ago.
    pub fn park(&self, file: &Arc<OutputFile>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let evicted = open.push(file.number, Arc::downgrade(file));
        drop(open);
        if let Some((number, evicted)) = evicted
            && number != file.number
            && let Some(evicted) = evicted.upgrade()
        {
            evicted.close();
        }
    }
}
