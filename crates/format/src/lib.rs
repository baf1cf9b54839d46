//! Structures to bytes and back: the store's format.
//!
//! Pure: no input or output, no threads. Every decoder is total: it never panics and never
//! allocates from a length it has not checked against the bytes at hand or a bound of
//! [`onefold_types::limits`]. docs/FORMAT.md shows the same layouts with diagrams; golden files in
//! `tests/golden` freeze them.
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | integers, varints and checked reads: the only place that spells bytes |
//! | [`codec`] | frame compression: raw, zstd, lz4 |
//! | [`delta`] | a chunk as the difference against others |
//! | [`container`] | container header, footer and metadata section |
//! | [`metadata_pack`] | copies of metadata sections for sequential scans |
//! | [`index_run`] | sorted index pages, their fences and footer |
//! | [`node`] | tree nodes: file maps, directories, transforms, placements |
//! | [`record`] | snapshots, plans, marks, quarantine and doubts (JSON, sealed by the engine) |
//! | [`notice`] | what clients of a server of ours tell each other (no part of a store) |
//! | [`share`] | what a share says about itself (JSON, in its directory) |
//! | [`stub`] | what stands in a file whose data is in the store |
//! | [`configuration`] | the store's configuration (JSON, readable without a key) |
//! | [`layout`] | the names of all objects in a store |

pub mod codec;
pub mod configuration;
pub mod container;
pub mod delta;
pub mod index_run;
pub mod layout;
pub mod metadata_pack;
pub mod node;
pub mod notice;
pub mod record;
pub mod share;
pub mod stub;
pub mod wire;

/// The version of the whole format. A store of another version is refused, never guessed at.
pub const FORMAT_VERSION: u16 = 4;
