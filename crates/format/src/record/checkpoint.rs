//! A checkpoint: what decided names say, said again in one object, so that a reader opens one
//! instead of thousands.
//!
//! Invariants: everything in it was read from a name that is decided for all time, so none of it
//! ever becomes stale; what it does not hold is read where it is. It says nothing about which names
//! there are.

use super::{Change, SnapshotRecord, text, texts};
use crate::layout::ChangeName;
use onefold_types::{CheckpointId, SessionId};
use serde::{Deserialize, Serialize};

/// What is known of decided names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The version of the record.
    pub version: u32,
    /// Sessions that were committed, with their records.
    pub committed: Vec<KnownSnapshot>,
    /// Sessions that were committed, without their records: nobody needs that of what is forgotten,
    /// and what is too long is read where it is.
    pub without_record: Vec<KnownSession>,
    /// Sessions that were fenced.
    #[serde(with = "texts")]
    pub fenced: Vec<SessionId>,
    /// Snapshots that are forgotten for good.
    #[serde(with = "texts")]
    pub tombstones: Vec<SessionId>,
    /// The same, of which the tombstone says that their outcome was lost.
    #[serde(with = "texts")]
    pub given_up: Vec<SessionId>,
    /// Changes of what is said about snapshots.
    pub changes: Vec<KnownChange>,
    /// Checkpoints all of whose content is in this one, or in others of this writer that were
    /// stored before it: they need not be read.
    #[serde(with = "texts")]
    pub replaces: Vec<CheckpointId>,
}

/// A committed session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownSnapshot {
    /// Its name.
    #[serde(with = "text")]
    pub session: SessionId,
    /// Its record.
    pub snapshot: SnapshotRecord,
}

/// What a committed session proves about others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownSession {
    /// Its name.
    #[serde(with = "text")]
    pub session: SessionId,
    /// The newest outcomes that its writer knew.
    #[serde(with = "texts")]
    pub predecessors: Vec<SessionId>,
    /// Containers that it found without any record.
    pub strays: u64,
}

/// A change of what is said about a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownChange {
    /// Which one.
    #[serde(with = "text")]
    pub name: ChangeName,
    /// What it says.
    pub change: Change,
}
