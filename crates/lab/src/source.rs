//! Where traces come from.
//!
//! | module | makes a trace of |
//! | --- | --- |
//! | [`tree`] | real directories, consecutive versions, cut by the real chunkers |
//! | [`generator`] | parameters: streams, lineages, changes, deletions |
//! | [`data_centre`] | two data centres that begin to back up into an empty store |
//! | [`content`] | the bytes that belong to a generated chunk |
//! | [`edits`] | files that are nearly what they were, version by version |
//! | [`versions`] | nothing: it hands versions to whole backups |
//! | [`fsl`] | `.hash.anon` files, which this module also writes |

pub mod content;
pub mod data_centre;
pub mod edits;
pub mod fsl;
pub mod generator;
pub mod tree;
pub mod versions;
