//! A database beside a store: it says who was first, and what others have stored just now.
//!
//! | module | holds |
//! | --- | --- |
//! | [`location`] | how users name a database |
//! | [`settings`] | who asks, and how the connection is protected, from the user's own variables and files |
//! | [`database`] | a database as a store sees it: decisions, and an index in common |
//! | [`engine`] | what is asked of a database, whichever it is |
//! | [`postgresql`] | PostgreSQL |
//! | [`cassandra`] | Apache Cassandra, and whoever speaks the same |
//! | [`filling`] | the index in common, made anew from the store's own |
//! | `server` | a real PostgreSQL, for tests; with the feature `testing` only |
//!
//! Rules:
//!
//! - Everything asynchronous stays in here: a database has a runtime of its own, and its methods
//!   block the threads that call them.
//! - What is decided is in the store as well ([`onefold_store::arbiter`]), and what is known is in
//!   the store's index: a database that is lost loses nothing.
//! - It is told no plain text: names of objects, sealed values, prefixes of keyed fingerprints.

pub mod cassandra;
pub mod database;
pub mod engine;
pub mod filling;
pub mod location;
pub mod postgresql;
#[cfg(feature = "testing")]
pub mod server;
pub mod settings;

pub use database::Database;
pub use location::DatabaseLocation;
pub use settings::Settings;
