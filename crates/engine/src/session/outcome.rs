//! How one session ended.

use super::decided::DecidedName;
use crate::repository::Repository;
use onefold_format::record::{self, Outcome};
use onefold_types::{Error, ErrorKind, Result, SessionId};

/// Reads how a session ended, if it has.
///
/// Errors: `Damaged` if it has, and neither copy of its record can be read.
pub fn read_outcome(repository: &Repository, id: SessionId) -> Result<Option<Outcome>> {
    let decoded = DecidedName::outcome(id)
        .read(repository)
        .and_then(|bytes| bytes.map(|bytes| record::decode(&bytes, "outcome")).transpose());
    decoded.map_err(|error| match error.kind() {
        ErrorKind::Damaged => error.context(format!(
            "the record of snapshot {id} is lost (bring the file back from a copy of the store, or \
             give the snapshot up with 'onefold forget --give-up {id}')"
        )),
        _ => error.context(format!("snapshot {id}")),
    })
}

/// An error about a snapshot that cannot be read because it was forgotten meanwhile.
#[must_use]
pub fn forgotten(id: SessionId) -> Error {
    Error::new(ErrorKind::NotFound, format!("snapshot {} has been forgotten meanwhile", id.short()))
}
