//! Which stored chunk a new one is similar to, so that only their difference need be stored.
//!
//! | module | decides | after |
//! | --- | --- | --- |
//! | [`sketch`] | whether two chunks are similar | Broder's super-features; Odess, ICDE'21 |
//! | [`table`] | where similar chunks may lie | FAST'12, stream-informed delta compression |
//! | [`previous_version`] | which chunk of a file's previous version a new one replaces | FAST'12 |
//!
//! All three are hints. A wrong answer costs an attempt, a missing one costs space.

pub mod previous_version;
pub mod sketch;
pub mod table;

pub use previous_version::PreviousVersion;
pub use sketch::Sketch;
pub use table::{Address, SimilarityTable};
