//! The fingerprint index: which containers may hold a chunk.
//!
//! | module | holds |
//! | --- | --- |
//! | [`run`] | one immutable sorted run: writing, opening, looking up |
//! | [`fingerprint_index`] | all runs of a store, with their summary vectors |
//! | [`merge`] | many runs into one, in bounded memory |
//! | [`rebuild`] | the index out of the containers themselves |
//!
//! The index is derived state and a hint: any of it may be deleted and is rebuilt from the
//! containers. A hit counts only once the container's own metadata section confirms it.

pub mod fingerprint_index;
pub mod merge;
pub mod rebuild;
pub mod run;

pub use fingerprint_index::FingerprintIndex;
