//! Placements: where the chunks of a snapshot lay when it was written (design, section 6).
//!
//! Trees name fingerprints only. A placement says besides, for a whole snapshot in the order of its
//! tree, which frame of which container each chunk was found or put into, as runs. It is advice: a
//! restore looks there first and needs no index while the advice is fresh; what is not there is
//! looked up. It is also what the next backup's rewriting knows of this one (how much of each frame
//! it used), and what the restore's plan and its predicted time are computed from.
//!
//! | module | holds |
//! | --- | --- |
//! | [`recorder`] | records a placement while a backup runs |
//! | [`reader`] | finds the runs of any stretch of a snapshot |
//! | [`earlier`] | the snapshot before, as a backup uses it |
//! | [`overview`] | what a placement says about a restore |
//! | [`resting`] | which frames hold differences against chunks of which others |
//! | [`mod@unit`] | frames or containers: what a restore reads as a whole |
//!
//! A file that is kept unread takes over its runs from the parent's placement; the tree's chunk
//! counts say where they stand there.

pub mod earlier;
pub mod overview;
pub mod reader;
pub mod recorder;
pub mod resting;
pub mod unit;

pub use earlier::EarlierPlacement;
pub use overview::Overview;
pub use reader::{Guide, PlacedItem, PlacementReader, Run};
pub use recorder::{PlacementRecorder, RecordedPlacement};
pub use resting::Resting;
pub use unit::Unit;
