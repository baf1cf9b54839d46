//! Stores that are reached over a network, behind the ports of `onefold-store`.
//!
//! | module | holds |
//! | --- | --- |
//! | [`location`] | where a store lives: a directory, a bucket of an object store, or another machine |
//! | [`sftp`] | the two ports in a directory of another machine |
//! | [`bucket`] | the two ports on an object store |
//! | [`conditional`] | whether an object store refuses to replace an object, found out by trying |
//! | [`patience`] | how long is waited for what |
//! | [`credentials`] | credentials that a command prints, and where credentials come from |
//! | [`foreseen`] | what will be read, asked for beforehand |
//! | [`local_cache`] | what this machine keeps of index runs and metadata sections, in files |
//! | [`read_ahead`] | ranges read further than was asked for, and kept |
//! | [`service`] | whose buckets hold stores, and what differs between them in words |
//! | [`settings`] | endpoint, region, account and credentials, from the user's own files and variables |
//! | `sftp_server` | OpenSSH's SFTP server, for tests; with the feature `testing` only |
//! | `gateway` | real servers, for tests; with the feature `testing` only |
//! | `google_server` | one that speaks what Google does, for tests; with the feature `testing` only |
//! | [`stopping`] | what becomes of what is waited for when the work is to stop |
//! | `requests` | each request's time limit, and how often it was made |
//! | `failure` | what an object store answers, as an error with advice |
//!
//! Rules:
//!
//! - Everything asynchronous stays in here: a store has a runtime of its own, and its methods
//!   block the threads that call them.
//! - A decision needs a store that never replaces an object. Where that is not proved by trying,
//!   the store is refused: never is it assumed, and never is there a second mechanism.
//! - Requests that can be repeated are repeated, with growing pauses, for half a minute. A put
//!   whose answer was lost is not known to have failed: the object that is there is compared.

pub mod bucket;
pub mod conditional;
pub mod credentials;
mod failure;
pub mod foreseen;
#[cfg(feature = "testing")]
pub mod gateway;
#[cfg(feature = "testing")]
pub mod google_server;
pub mod local_cache;
pub mod location;
pub mod patience;
pub mod read_ahead;
mod requests;
pub mod service;
pub mod settings;
pub mod sftp;
#[cfg(feature = "testing")]
pub mod sftp_server;
pub mod stopping;

pub use bucket::{BucketStore, ServedNotices};
pub use credentials::CredentialSource;
pub use local_cache::LocalCache;
pub use location::{BucketLocation, Location, SftpLocation};
pub use patience::Patience;
pub use read_ahead::ReadAhead;
pub use service::Service;
pub use settings::{Surroundings, Way};
pub use sftp::SftpStore;
