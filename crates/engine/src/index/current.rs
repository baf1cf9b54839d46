//! An index for readers, which catches up with collections when something is missed (protocol,
//! R1).
//!
//! What a collection copies is indexed before anything is deleted, so whenever a chunk has moved
//! the list of runs has changed. A miss is therefore final only if the list is the same as when the
//! index was opened; else the index is opened again, however often that has been done before: a
//! reader outlives any number of epochs. A chunk that is really lost costs two listings of the
//! runs, not another opening.
//!
//! That runs which were deleted can still be read, as a store may allow, does no harm: they are no
//! longer listed.
//!
//! Before a miss is final, containers that no run covers are indexed as well, once for each list of
//! runs. A store that may not be written, or is full, is read without that.

use super::fingerprint_index::FingerprintIndex;
use super::rebuild;
use crate::job::Job;
use crate::repository::Repository;
use onefold_types::{Error, ErrorKind, Fingerprint, Result, RunId};

/// How often whoever misses a chunk catches up before giving up: each time the list of runs has
/// changed meanwhile, so nothing says that the chunk is lost.
pub const CATCH_UPS_MAX: usize = 64;

/// That the index changed each time when a chunk was looked for.
#[must_use]
pub fn changes_too_often(fingerprint: &Fingerprint) -> Error {
    Error::new(
        ErrorKind::Io,
        format!(
            "chunk {fingerprint} was looked for {CATCH_UPS_MAX} times, and the index had changed \
             each time; try again when fewer processes write to the store"
        ),
    )
}

/// An index that catches up.
pub struct CurrentIndex {
    /// The index as it was opened last.
    pub index: FingerprintIndex,
    /// The list of runs for which everything that no run covers was indexed, or could not be.
    replayed: Option<Vec<RunId>>,
    /// Whether the store takes no runs from this process.
    is_read_only: bool,
}

impl CurrentIndex {
    /// An index that was opened some time ago.
    #[must_use]
    pub fn new(index: FingerprintIndex) -> Self {
        Self { index, replayed: None, is_read_only: false }
    }

    /// Opens the index again if it has changed, and says whether it may know more now. `false`:
    /// what is missed now is nowhere.
    pub fn catch_up(&mut self, repository: &Repository) -> Result<bool> {
        if self.index.refresh_if_changed(repository)? {
            return Ok(true);
        }
        if self.is_read_only || self.replayed.as_deref() == Some(self.index.listed()) {
            return Ok(false);
        }
        let (job, _) = Job::unattended();
        let has_grown = match rebuild::replay(repository, &self.index, &job) {
            Ok(replayed) => replayed.containers > 0,
            Err(error) if error.kind() == ErrorKind::ReadOnly => {
                self.is_read_only = true;
                false
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => false,
            Err(error) => return Err(error),
        };
        let has_changed = has_grown && self.index.refresh_if_changed(repository)?;
        self.replayed = Some(self.index.listed().to_vec());
        Ok(has_changed)
    }
}
