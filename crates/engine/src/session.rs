//! Sessions and snapshots: the writer's, forgetter's and reader's side of the protocol.
//!
//! | module | holds |
//! | --- | --- |
//! | [`writer`] | a writer's session: W1 to W4 and W7 |
//! | [`announced`] | which sessions were announced and have no outcome |
//! | [`decided`] | names that are decided once, and their second copies |
//! | [`epoch`] | the newest epoch and what it condemns |
//! | [`outcome`] | how one session ended |
//! | [`sequences`] | in which order sessions were saved, by no clock |
//! | [`snapshots`] | the authenticated list of snapshots |
//! | [`tombstones`] | what is forgotten for good |
//! | [`forgetting`] | giving up, and finishing what was stopped |
//! | [`changes`] | what is said about snapshots after they were made |
//! | [`checkpoints`] | what decided names say, said again to be read at once |
//! | [`marks`] | what is hidden until it is brought back |
//! | [`evidence`] | what proves that outcomes existed |
//! | [`quarantine`] | containers that must not be relied upon |
//! | [`doubts`] | whether what a parent refers to is relied upon unread |
//!
//! Rule numbers (W1, F1, ...) are those of docs/PROTOCOL.md.

pub mod announced;
pub mod changes;
pub mod checkpoints;
pub mod decided;
pub mod doubts;
pub mod epoch;
pub mod evidence;
pub mod finals;
pub mod forgetting;
pub mod marks;
pub mod outcome;
pub mod quarantine;
pub mod sequences;
pub mod snapshots;
pub mod tombstones;
pub mod writer;

pub use snapshots::{SECOND_COPIES_TAG, Snapshot, SnapshotList};
pub use writer::{Commit, WriterSession};
