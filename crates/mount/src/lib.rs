//! Snapshots as a read-only file system that programs look into with their own means.
//!
//! | module | holds |
//! | --- | --- |
//! | [`catalogue`] | the directories of names that lead to the snapshots |
//! | [`snapshots`] | which snapshots there are just now |
//! | [`listings`] | directories of snapshots, leaf by leaf |
//! | [`inodes`] | what the kernel knows by number |
//! | [`attributes`] | what programs are told of a file |
//! | [`filesystem`] | the kernel's requests, answered |
//! | [`share`] | a share: a live directory, files of which are in the store |
//! | [`mounting`] | mount points |
//! | [`leftover`] | what a killed process left mounted, and a mount in its place |
//! | [`buffers`] | what requests are answered from |
//! | [`problems`] | what could not be read, told once |
//!
//! The kernel's protocol is that of FUSE, by the crate `fuser`. Everything is read through the
//! engine's readers of trees and files, which verify what they give; nothing is written.

pub mod attributes;
pub mod buffers;
pub mod catalogue;
pub mod filesystem;
pub mod inodes;
pub mod leftover;
pub mod listings;
pub mod mounting;
pub mod problems;
pub mod share;
pub mod snapshots;

pub use filesystem::SnapshotFilesystem;
pub use leftover::Leftover;
pub use mounting::{End, MountOptions, Mounted, mount, mount_instead};
pub use problems::Problems;
pub use share::{FREE_THREADS, ShareFilesystem};
pub use snapshots::Snapshots;
