//! Snapshots as trees: directories and files over chunks.
//!
//! | module | holds |
//! | --- | --- |
//! | [`tree_reader`] | nodes, directories and file contents out of a store |
//! | [`extents`] | the chunks and holes of one file, one by one |
//! | [`file_reader`] | the bytes of one file at any offset |
//! | [`file_map`] | builds the tree of one file |
//! | [`directory`] | builds the nodes of one directory |
//! | [`directory_cursor`] | the entries of one directory, leaf by leaf |
//! | [`node_sink`] | what a tree is built into |
//! | [`path`] | paths in snapshots: bytes, escaped for display |

pub mod directory;
pub mod directory_cursor;
pub mod extents;
pub mod file_map;
pub mod file_reader;
pub mod node_sink;
pub mod path;
pub mod tree_reader;

pub use extents::ExtentWalk;
pub use file_reader::FileReader;
pub use node_sink::NodeSink;
pub use tree_reader::TreeReader;
