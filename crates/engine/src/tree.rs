//! Snapshots as trees: directories and files over chunks.
//!
//! | module | holds |
//! | --- | --- |
//! | [`chunk_reader`] | a chunk's bytes by its name: locate, read, open, verify |
//! | [`tree_reader`] | nodes, directories and file contents out of a store |
//! | [`file_map`] | builds the tree of one file |
//! | [`directory`] | builds the nodes of one directory |
//! | [`path`] | paths in snapshots: bytes, escaped for display |

pub mod chunk_reader;
pub mod directory;
pub mod file_map;
pub mod path;
pub mod tree_reader;

pub use chunk_reader::{ChunkReader, Location};
pub use tree_reader::TreeReader;
