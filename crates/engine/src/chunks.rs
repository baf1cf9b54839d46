//! A chunk's bytes by its name.
//!
//! | module | holds |
//! | --- | --- |
//! | [`caches`] | sections and frames that are kept |
//! | [`reader`] | locate, read the frame, open it, verify the chunk |
//! | [`location`] | where a chunk was found |
//! | [`relocate`] | other instances of chunks whose first one is unreadable |

pub mod caches;
pub mod location;
pub mod reader;
pub mod relocate;

pub use location::Location;
pub use reader::ChunkReader;
