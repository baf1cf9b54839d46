//! Whole collections and restores of the product, on stores in memory whose device is modelled.
//!
//! | module | holds |
//! | --- | --- |
//! | [`mod@bench`] | a store that can be copied, and what a collection of it took |
//! | [`load`] | the load generator: lineages of files, written by the engine, aged by collections |
//! | [`restores`] | whole restores, timed by devices of every class at once |
//! | [`tables`] | what the experiments' reports have in common |
//!
//! FAST'17, section 4.2: the same store, to the byte, is collected by every algorithm (S3.35). The
//! paper replicates it to another machine; here the objects in memory are shared by copies.
//!
//! # What the figures mean
//! - *CPU seconds* are the process's, with one thread; they differ from machine to machine.
//! - *Device seconds* are the virtual clock's: a disk that turns, one request after the other.
//! - *Container reads* are requests for containers and for metadata packs.

pub mod bench;
pub mod load;
pub mod restores;
pub mod tables;
