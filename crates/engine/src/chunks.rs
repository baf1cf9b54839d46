//! A chunk's bytes by its name.
//!
//! | module | holds |
//! | --- | --- |
//! | [`caches`] | sections and frames that are kept |
//! | [`reader`] | locate, read the frame, open it, verify the chunk |
//! | [`chunk`] | a chunk that was read, in its frame |
//! | [`second_copies`] | where another copy of a chunk may be |
//! | [`location`] | where a chunk was found |

pub mod caches;
pub mod chunk;
pub mod location;
pub mod reader;
pub mod second_copies;

pub use chunk::Chunk;
pub use location::Location;
pub use reader::ChunkReader;
pub use second_copies::SecondCopies;
