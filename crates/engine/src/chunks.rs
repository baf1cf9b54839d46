//! A chunk's bytes by its name.
//!
//! | module | holds |
//! | --- | --- |
//! | [`caches`] | sections and frames that are kept |
//! | [`reader`] | locate, read the frame, open it, verify the chunk |
//! | [`read_frame`] | a frame that was read, and what of it was verified |
//! | [`chunk`] | a chunk that was read, in its frame |
//! | [`second_copies`] | where another copy of a chunk may be |
//! | [`location`] | where a chunk was found |

pub mod caches;
pub mod chunk;
pub mod location;
pub mod read_frame;
pub mod reader;
pub mod second_copies;

pub use chunk::Chunk;
pub use location::Location;
pub use read_frame::ReadFrame;
pub use reader::ChunkReader;
pub use second_copies::SecondCopies;
