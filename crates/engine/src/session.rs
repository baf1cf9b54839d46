//! Sessions and snapshots: the writer's, forgetter's and reader's side of the protocol.
//!
//! | module | holds |
//! | --- | --- |
//! | [`writer`] | a writer's session: W1 to W4 and W7 |
//! | [`epoch`] | the newest epoch and what it condemns |
//! | [`snapshots`] | the authenticated list of snapshots, marks and tombstones |
//!
//! Rule numbers (W1, F1, ...) are those of docs/PROTOCOL.md.

pub mod epoch;
pub mod snapshots;
pub mod writer;

pub use snapshots::{Snapshot, SnapshotList};
pub use writer::{Commit, WriterSession};
