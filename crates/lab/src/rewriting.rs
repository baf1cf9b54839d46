//! Rewriting and restoring without bytes: the real policies on modelled containers.
//!
//! A workload is ingested version by version with exact deduplication. Its chunks pass through the
//! product's [`onefold_policy::stream`]; what is new and what is stored again goes into modelled
//! containers. The recipes that come out, each place with its container, are restored
//! by the product's [`onefold_policy::restore_plan`], and the container reads are counted.
//!
//! | module | holds |
//! | --- | --- |
//! | [`versions`] | a workload as numbers: which chunk is where in which version |
//! | [`workloads`] | the workloads of the experiments, generated or real |
//! | [`ingest`] | the modelled store, and a version's way into it |
//! | [`restored`] | container reads and speed factors |
//! | [`policy`] | the ways of rewriting side by side, at an equal loss |
//!
//! What is not modelled: compression and frames (a container is full by plain bytes), partial reads
//! of containers, the look-up (every duplicate is found), several sessions at once.

pub mod ingest;
pub mod policy;
pub mod restored;
pub mod versions;
pub mod workloads;

/// Sizes of a store and of the memory to restore with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Plain bytes in a container.
    pub container_bytes: u64,
    /// Containers' worth of memory for a restore (S2.32).
    pub memory_containers: u64,
    /// The newest containers of a session whose chunks are fresh, that is, never stored again: 1
    /// if only the open one is (S2.4), [`u32::MAX`] if all of the session are.
    pub fresh_containers: u32,
}

impl Sizes {
    /// Those of FAST'19, section 6.1.
    pub const PAPER: Self =
        Self { container_bytes: 4 << 20, memory_containers: 8, fresh_containers: 1 };

    /// Memory for a restore.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_containers * self.container_bytes
    }
}
