//! Primary deduplication: the files of a live directory, a *share*, keep their data in the store
//! and stay files (ATC'12).
//!
//! ```text
//! share ──cold files──▶ backup of them: the manifest ──▶ stubs, data punched out    optimize
//!   ▲                                                        │
//!   └──────────── what is written to, granule by granule ◀───┘                      StubFile
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | [`handover`] | the directory below a mounted share, handed to whoever may have it |
//! | [`mounts`] | what is mounted where |
//! | `mounted_before` | whether a share was mounted before and is not now |
//! | [`share`] | the directory, what is Onefold's in it, who is at work in it |
//! | `control` | what is Onefold's: made, described and taken away |
//! | [`addresses`] | where a share is used, so that a copy takes nothing from it |
//! | [`manifests`] | those of the store's shares: whose they are, and those of lost ones |
//! | [`optimize`] | the job: a manifest of the cold files, and stubs where their data was |
//! | [`turns`] | how a share is divided, so that only one partition's index is in memory |
//! | [`emptying`] | one file becomes a stub, so that a crash at any step leaves it whole |
//! | [`changed_below`] | what was done to stubs without the mount: found, kept, told |
//! | [`linked_files`] | files with several names: until all of them are met, and counted once |
//! | `told_once` | what is wrong with an item, told once, however many turns meet it |
//! | [`crawl`] | all files of a share below its mount, one after the other |
//! | [`hot_chunks`] | which chunks very many files have |
//! | [`second_copies`] | second copies of those: made, found, taken |
//! | [`estimate`] | what making a directory a share would cost and give |
//! | [`rehydrate`] | the way back: stubs become ordinary files |
//! | [`lost_stubs`] | files of zeros that were stubs, copied without their attributes |
//! | [`repair`] | copies of stubs that were made without the mount |
//! | [`problems`] | what could not be read, written down until it can be |
//! | [`status`] | what is optimised, saved, recalled |
//! | [`scrub`] | a slice of what is stored is read back, and what is damaged is written down |
//! | [`jobs`] | the background jobs of several shares: started, paused, cancelled |
//!
//! # What keeps the data of a stub
//! The manifests of its share: committed sessions whose trees hold the optimised files. Invariant:
//! a manifest is forgotten only once later ones hold every stub there is (see [`optimize`]), and
//! only by the directory that has made it (see [`addresses`]).

pub mod addresses;
pub mod changed_below;
mod control;
pub mod crawl;
pub mod disk;
pub mod emptying;
pub mod estimate;
pub mod handover;
pub mod hot_chunks;
pub mod jobs;
pub mod linked_files;
pub mod lost_stubs;
pub mod manifests;
mod mounted_before;
pub mod mounts;
pub mod optimize;
pub mod problems;
pub mod rehydrate;
pub mod repair;
pub mod reserve;
pub mod scrub;
pub mod second_copies;
pub mod share;
pub mod status;
mod told_once;
pub mod turns;

pub use share::Share;
