//! A server for stores that are directories of its machine: blobs and decisions over HTTPS.
//!
//! | module | holds |
//! | --- | --- |
//! | [`clients`] | who may do what: names, tokens, rights, quotas |
//! | `usage` | how much each client has put |
//! | [`served`] | one store as others see it: what is visible is durable, what is deleted is kept a while |
//! | `kept` | what is deleted and kept for a while |
//! | `puts`, [`audit`] | which client has put what, and what of it is still there |
//! | `taken` | room that an object takes |
//! | `asking` | who asks, for what, and whether he may |
//! | `requests` | what a request wants, and where that is done |
//! | `objects` | requests about one object |
//! | `bodies`, `pieces` | what arrives, in time; what is written while it arrives |
//! | `uploads`, `open_uploads` | requests about objects that arrive in parts, and these |
//! | `listing` | pages of names |
//! | `notices`, `telling` | what clients tell each other while they store, and requests about that |
//! | `answers` | errors as answers |
//! | `metrics` | what is counted, for Prometheus |
//! | `certificate` | the server's own certificate |
//! | [`limits`] | what it takes at most, and how long it waits |
//! | `connections` | how many there are, of whom, and that answers are taken |
//! | [`running`] | a server from its start to its end |
//!
//! # The protocol
//! The part of S3 that `onefold-remote` asks of a bucket, with a token instead of signatures
//! (`Authorization: Bearer TOKEN`). A bucket is a store, by its name.
//!
//! | request | right | answer |
//! | --- | --- | --- |
//! | `PUT /STORE/KEY`, `If-None-Match: *` | append | 200, or 412 if the name is taken; there is no other put |
//! | `POST /STORE/KEY?uploads`, `PUT ?partNumber=N&uploadId=U`, `POST ?uploadId=U`, `DELETE ?uploadId=U` | append | an object in parts that follow each other |
//! | `GET`, `HEAD /STORE/KEY`, with `Range` | read; of what is no container, append as well | 200, 206, 404, 416 |
//! | `GET /STORE?list-type=2&prefix=DIRECTORY/` | read or append | a page of names in their order |
//! | `DELETE /STORE/KEY` | collect | 204, also if there is none |
//! | `GET /STORE/tmp/about` | any | what the client may, and how much room there is, as JSON |
//! | `PUT /STORE/tmp/notices/news/CONTAINER`, `.../claims/SESSION` | append | 200, and the number of the notice as ETag |
//! | `GET /STORE/tmp/notices/news/NUMBER`, `.../claims/NUMBER` | append | notices after that ([`onefold_format::notice`]); the ETag is `"1"` if there are more |
//! | `GET /metrics` | metrics | text for Prometheus |
//!
//! # Invariants
//! - Nothing that was put is ever replaced, whoever asks.
//! - What a client sees is durable: an object that is still being put is waited for where it is
//!   asked for by name, and is in no listing; a deletion is durable before it is answered.
//! - No request holds more memory than its share of the limit; bodies that are longer pass through
//!   in pieces.
//!
//! # Concurrency
//! Requests are asynchronous; whatever touches the disk runs on threads for that. Nothing here is
//! called from within the engine.

mod answers;
mod asking;
pub mod audit;
mod bodies;
mod certificate;
pub mod clients;
mod connections;
mod kept;
pub mod limits;
mod listing;
mod metrics;
mod notices;
mod objects;
mod open_uploads;
mod pieces;
mod puts;
mod requests;
pub mod running;
pub mod served;
mod taken;
mod telling;
mod uploads;
mod usage;

pub use clients::{Client, Clients, Right};
pub use limits::Patience;
pub use running::{Identity, Options, Running};
