//! Snapshots made from snapshots: fastcopy and synthetic fulls (FAST'17, section 2.3).

use crate::job::Job;
use crate::repository::Repository;
use onefold_types::{Error, Result, SessionId};
use std::sync::Arc;

/// What the new snapshot's record says.
#[derive(Clone, Debug, Default)]
pub struct SynthesisOptions {
    /// Tags; `None` keeps the source's.
    pub tags: Option<Vec<String>>,
    /// A note.
    pub description: String,
    /// The machine's name; `None` keeps the source's.
    pub host: Option<String>,
    /// The user.
    pub user: String,
    /// The time for the record, in nanoseconds since 1970, instead of now (fastcopy: the source's).
    pub time_ns: Option<i64>,
    /// The program's name and version.
    pub program: String,
}

/// One part of a synthetic full.
#[derive(Clone, Debug)]
pub struct Part {
    /// The snapshot it is taken from.
    pub snapshot: SessionId,
    /// The path in that snapshot; empty for all of it.
    pub path: Vec<u8>,
    /// Where it goes in the new snapshot; empty for the root.
    pub to: Vec<u8>,
}

/// Copies a snapshot: a new name for the same tree.
pub fn fastcopy(
    _repository: &Arc<Repository>,
    _snapshot: SessionId,
    _options: &SynthesisOptions,
    _job: &Job,
) -> Result<SessionId> {
    Err(Error::invalid("not built"))
}

/// Puts a new snapshot together from parts of others; a later part goes over an earlier one.
pub fn synthesize(
    _repository: &Arc<Repository>,
    _parts: &[Part],
    _options: &SynthesisOptions,
    _job: &Job,
) -> Result<SessionId> {
    Err(Error::invalid("not built"))
}
