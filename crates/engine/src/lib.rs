//! The engine: a deduplicating store of snapshots in one process.
//!
//! | module | holds |
//! | --- | --- |
//! | [`repository`] | create and open a store; its keys |
//! | [`container`] | containers on the way in and out |
//! | [`session`] | announce, read the epoch, commit once; snapshots, marks and tombstones |
//! | [`index`] | fingerprint to containers: runs, merging, rebuilding |
//! | [`chunks`] | a chunk's bytes by its name: locate, read, open, verify |
//! | [`tree`] | directories and files as Merkle trees: building, reading, walking |
//! | [`placement`] | where the chunks of a snapshot lay when it was written |
//! | [`look_up`], [`device`] | which way of looking up is taken, and what the device costs |
//! | [`chunk_store`] | new chunks in, verdicts out: look-up, packing, indexing |
//! | [`ingest`] | backup: source, read, chunk, fingerprint, look up, pack, publish |
//! | [`restore`] | the way back, to files or to a stream |
//! | [`copy`] | snapshots of one store in another |
//! | [`heal`] | what a store has lost, out of another one with copies |
//! | [`collection`] | garbage collection: mark, select, copy, settle, delete |
//! | [`check`], [`difference`], [`find`], [`retention`], [`synthesis`], [`statistics`] | the rest |
//! | [`primary`] | shares: files of a live directory that keep their data in the store |
//! | [`user_file`], [`file_systems`] | files of users, opened for reading; what they lie on |
//! | [`memory`], [`job`], [`environment`] | what all of them share |
//!
//! # Durability
//! A snapshot is saved once its outcome is decided; `backup` returns only then. Before that come,
//! in this order: containers, metadata packs, an index run (see [`container::log`]).
//!
//! # Who may run beside whom
//! - **backup beside backup**: each has its own session, containers and index runs.
//! - **backup beside forget**: the parent is checked after the epoch was read (W3); a tombstone is
//!   decided once, and a mark has a fresh name.
//! - **backup beside restore, list or check**: readers see decided outcomes only, and objects that
//!   never change.
//! - **forget beside restore**: a snapshot forgotten meanwhile is reported as such.
//! - **collection beside anything**: see [`collection`]; a backup avoids what is condemned, and a
//!   reader looks elsewhere for what has moved.
//! - **index merge beside anything**: whoever misses a run opens the index again.
//!
//! There is no lock, hence none to break: objects are immutable, names fresh, decisions made once
//! (docs/decisions, 0003).

pub mod check;
pub mod chunk_store;
pub mod chunks;
pub mod collection;
pub mod common_index;
pub mod container;
pub mod copy;
pub mod device;
pub mod difference;
pub mod environment;
pub mod file_systems;
pub mod find;
pub mod heal;
pub mod index;
pub mod ingest;
pub mod job;
pub mod look_up;
pub mod memory;
pub mod patterns;
pub mod placement;
pub mod primary;
pub mod remembered;
pub mod repository;
pub mod restore;
pub mod retention;
pub mod session;
pub mod statistics;
pub mod stub;
pub mod synthesis;
pub mod tree;
pub mod user_file;

pub use environment::Environment;
pub use job::{Interrupt, Job, Observer, Progress};
pub use memory::MemoryPlan;
pub use repository::{InitOptions, Repository};
