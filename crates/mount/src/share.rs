//! A share as a file system: the directory below as it is, but for stubs, whose bytes come out of
//! the store.
//!
//! | module | holds |
//! | --- | --- |
//! | [`nodes`] | what the kernel knows by number, and by which names it is found below |
//! | [`below`] | the directory below: what it says of its items, in the kernel's words |
//! | [`open_files`] | what is open: ordinary files and stubs |
//! | [`pages`] | what the kernel keeps of stubs |
//! | [`times`] | when a file was changed last, while a job works on it |
//! | [`served`] | all of that together |
//! | [`opening`] | what has to be open for a request |
//! | [`data`] | requests for what is in files |
//! | [`xattrs`] | requests for extended attributes |
//! | [`names`] | requests that make, move and remove names |
//! | [`at_store`] | requests that may wait for the store |
//! | [`directories`] | directories that are being read |
//! | [`replies`] | answers in the kernel's form |
//! | [`filesystem`] | the kernel's requests, handed to those |
//!
//! # Invariants
//! - What is below is reached by handles alone, never by a path that the mount covers.
//! - A name is checked to be of the inode that is meant before anything is done to it.
//! - A file that is no stub is handed to the kernel (*passthrough*) where it can do that: its bytes
//!   take no way through this process.
//! - A stub that gets another name, or a directory, is written down before
//!   ([`onefold_engine::primary::Share::note_move`]).

pub mod at_store;
pub mod below;
pub mod data;
pub mod directories;
pub mod filesystem;
pub mod names;
pub mod nodes;
pub mod open_files;
pub mod opening;
pub mod pages;
pub mod replies;
pub mod served;
pub mod times;
pub mod xattrs;

pub use filesystem::{FREE_THREADS, ShareFilesystem};

/// What the kernel is answered.
pub type Answer<T> = Result<T, fuser::Errno>;
