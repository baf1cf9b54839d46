//! Checks on the project itself: what can be said about the files rather than about the program.
//!
//! The checks are tests, so that `cargo test` runs them and nobody needs another tool. This library
//! holds what they share.
//!
//! | module | holds |
//! | --- | --- |
//! | [`files`] | the files of the project |
//! | [`source`] | Rust source taken apart: code, comments, functions |
//! | [`imports`] | which file uses which |
//! | [`markdown`] | tables and links of documents |
//! | [`mutants`] | the list of mutants, which the program of that name runs |
//!
//! Invariant: a check reads and never writes, unless `UPDATE_EXPECT=1` asks for it: then the last
//! line of docs/FORMAT.md and THIRD-PARTY-LICENSES.txt are refreshed.

pub mod files;
pub mod imports;
pub mod markdown;
pub mod mutants;
pub mod source;
