//! Engines that the papers compare with, and that a restore takes only if it is told to by name: on
//! every device that was measured `direct` (into files) or `optimal_chunks` (into a stream) was the
//! best, or within 3 % of it (`experiments/restore/restore-devices`).
//!
//! | module | engine | after |
//! | --- | --- | --- |
//! | `container_cache` | the last containers read stay in memory | LRU, the yardstick of FAST'13 |
//! | `chunk_cache` | the last chunks used stay in memory | LRU, FAST'13, section 5 |
//! | `forward_assembly` | an area of the recipe is filled, or rolls | FAST'13, section 4.2 |
//! | `adaptive` | a rolling area with a chunk cache that looks ahead | ALACC, FAST'18 |
//! | `optimal` | the container that is needed last leaves | Belady, 1966 |

pub(super) mod adaptive;
pub(super) mod chunk_cache;
pub(super) mod container_cache;
pub(super) mod forward_assembly;
pub(super) mod optimal;
mod recency;
