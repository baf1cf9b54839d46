//! How whoever misses something catches up with collections (protocol, R1).
//!
//! What a collection copies is indexed before anything is deleted, so whenever a chunk has moved
//! the list of runs has changed. A miss is therefore final only if the list is the same as when the
//! index was opened; else the index is opened again, however often that has been done before: a
//! reader outlives any number of epochs. A chunk that is really lost costs two listings of the
//! runs, not another opening.
//!
//! Threads share an index: who missed a chunk in one generation of it asks the next one first,
//! which another thread may have opened meanwhile.
//!
//! That runs which were deleted can still be read, as a store may allow, does no harm: they are no
//! longer listed.
//!
//! Before a miss is final, containers that no run covers are indexed as well, once for each list of
//! runs. A store that may not be written, or is full, is read without that. At last each run is
//! compared once with the containers that it covers ([`super::verify`]); one that says something
//! else is passed over from then on.

use super::fingerprint_index::FingerprintIndex;
use super::{rebuild, verify};
use crate::job::Job;
use crate::repository::Repository;
use onefold_types::{Error, ErrorKind, Fingerprint, Result};
use std::sync::PoisonError;

/// How often whoever misses a chunk catches up before giving up: each time the list of runs has
/// changed meanwhile, so nothing says that the chunk is lost.
pub const CATCH_UPS_MAX: usize = 64;

/// That the index changed each time when a chunk was looked for.
#[must_use]
pub fn changes_too_often(fingerprint: &Fingerprint) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "chunk {fingerprint} was looked for {CATCH_UPS_MAX} times, and the index had changed \
             each time; try again when fewer processes write to the store"
        ),
    )
}

impl FingerprintIndex {
    /// Opens the index again if it has changed since the generation in which something was missed,
    /// and says whether it may know more now. `false`: what is missed now is nowhere.
    pub fn catch_up(&self, repository: &Repository, missed_in: u64) -> Result<bool> {
        let mut state = self.catch_ups.lock().unwrap_or_else(PoisonError::into_inner);
        if self.opened().generation() != missed_in || self.refresh_if_changed(repository)? {
            return Ok(true);
        }
        let (job, _) = Job::unattended();
        if !state.is_read_only && state.replayed.as_deref() != Some(self.opened().listed()) {
            let has_grown = match rebuild::replay(repository, self, &job) {
                Ok(replayed) => replayed.containers > 0,
                Err(error) if error.forbids_writing() => {
                    state.is_read_only = true;
                    false
                }
                Err(error) if error.kind() == ErrorKind::NoSpace => false,
                Err(error) => return Err(error),
            };
            let has_changed = has_grown && self.refresh_if_changed(repository)?;
            state.replayed = Some(self.opened().listed().to_vec());
            if has_changed {
                return Ok(true);
            }
        }
        let wrong = verify::find_wrong(repository, self, &state.verified, &job)?;
        state.verified = self.runs().iter().map(|run| run.id).collect();
        if wrong.is_empty() {
            return Ok(false);
        }
        // What they covered is indexed anew, and what they replaced is in use again.
        state.replayed = None;
        self.reject_all(repository, wrong)?;
        Ok(true)
    }
}
