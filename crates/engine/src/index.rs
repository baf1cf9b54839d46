//! The fingerprint index: which containers may hold a chunk.
//!
//! | module | holds |
//! | --- | --- |
//! | [`chunk_index`] | the index as the rest of the engine sees it: a port |
//! | [`joint`] | the runs, and what machines have in common beside them ([`crate::common_index`]), as one |
//! | [`claims`] | what sessions are about to store, told to each other |
//! | [`append`] | durable containers into the index |
//! | [`run`] | one immutable sorted run: opening, what it knows, reading its pages |
//! | [`run_list`] | the names of the runs in a store |
//! | [`run_writer`] | writing a run, page by page |
//! | [`read_back`] | a run that was written, compared with what went in |
//! | [`partition`] | the part of an index that concerns some chunks, in memory |
//! | [`piece`] | what stands in memory for some pages of a run |
//! | [`fingerprint_index`] | all runs of a store, and the memory they share |
//! | [`current`] | an index that catches up with collections when something is missed |
//! | [`locate`] | look-ups, one by one and in batches |
//! | [`scan`] | all entries in the order of fingerprints |
//! | [`verify`] | a run, compared with the containers that it covers |
//! | [`merge`] | many runs into one, in bounded memory |
//! | [`rebuild`] | the index out of the containers themselves |
//!
//! The index is derived state and a hint: any of it may be deleted and is rebuilt from the
//! containers. A hit counts only once the container's own metadata section confirms it.

pub mod append;
pub mod chunk_index;
pub mod claims;
pub mod current;
pub mod fingerprint_index;
pub mod joint;
pub mod locate;
pub mod merge;
pub mod partition;
pub mod piece;
pub mod read_back;
pub mod rebuild;
pub mod run;
pub mod run_list;
pub mod run_writer;
pub mod scan;
pub mod verify;

pub use chunk_index::{ChunkIndex, PrefixScan};
pub use claims::Claims;
pub use fingerprint_index::FingerprintIndex;
pub use joint::JointIndex;
pub use partition::PartitionIndex;

/// What of the index answers questions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IndexMode {
    /// All of it: what it denies is not in the store.
    #[default]
    Exact,
    /// The hooks alone, one chunk in 32: a thirtieth of the memory. Everything else is denied, and
    /// found by standing near a hook in its container.
    Sampled,
}
