//! What a server takes at most, and how long it waits.
//!
//! Invariants: what clients do cannot make a server hold more than these numbers say. Each of them
//! is crossed by one in a test.

use std::num::NonZeroUsize;
use std::time::Duration;

/// Connections at once, if the process may have enough open files.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections at once from one address, or from one network of 64 bits where addresses have 128.
/// Clients behind one router share it. Where all come by a proxy on this machine it does not hold.
pub const ADDRESS_CONNECTIONS_MAX: usize = CONNECTIONS_MAX / 4;
/// Connections that a server takes, however few files it may open.
pub const CONNECTIONS_MIN: usize = 8;
/// Files that a server has open beside those of stores and connections.
pub const OWN_FILES: usize = 20;
/// Files that a connection has open at most: itself and, while an object is put, its draft, the
/// directories of both names and the store's.
pub const CONNECTION_FILES: usize = 5;
/// Requests of one client that are under way at once; clients have some thirty.
pub const CLIENT_REQUESTS_MAX: usize = 128;
/// Listings that are made at once: each walks through a directory.
pub const LISTINGS_MAX: usize = 4;
/// Containers of which it is known who put them: the newest ones.
pub const OWN_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).expect("not zero");
/// Bodies up to this length are held whole.
pub const WHOLE_MAX_BYTES: u64 = 8 << 20;
/// Longer bodies, which pass through, at once: each holds a thread.
pub const WRITERS_MAX: usize = 32;
/// Longer bodies of one client, which pass through, at once.
pub const CLIENT_WRITERS_MAX: usize = WRITERS_MAX / 4;
/// Uploads in parts that are open at once: each holds a thread.
pub const UPLOADS_MAX: usize = 64;
/// The same of one client.
pub const CLIENT_UPLOADS_MAX: usize = 16;
/// Uploads of one client that are over and known still: the newest ones.
pub const CLIENT_UPLOADS_OVER_MAX: usize = 64;
/// The longest part.
pub const PART_MAX_BYTES: u64 = WHOLE_MAX_BYTES;
/// Room for bodies without which the longest that is held whole would never be.
pub const BODIES_MIN_BYTES: u64 = CLIENT_BODIES_PART * WHOLE_MAX_BYTES;
/// Of that room, the part that one client may take: a body takes its room before it arrives, and
/// may come slowly.
pub const CLIENT_BODIES_PART: u64 = 4;

/// What clients of a store tell each other of containers, in memory: of a million chunks.
pub const NEWS_MAX_BYTES: usize = 8 << 20;
/// The same of chunks that they are about to store.
pub const CLAIMS_MAX_BYTES: usize = 2 << 20;
/// How long that is told.
pub const CLAIMS_AGE_MAX: Duration = Duration::from_secs(60);

/// How long is waited for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// For a handshake, and for the head of a request.
    pub head: Duration,
    /// For the next piece of a body, or for room to hold one.
    pub idle: Duration,
    /// For the client to take the next bytes of an answer.
    pub answer: Duration,
    /// For the rest of a body that was refused already.
    pub drain: Duration,
    /// For the next part of an upload.
    pub pause: Duration,
    /// For an object that is visible and not yet durable.
    pub durable: Duration,
    /// For requests that are on their way at the end.
    pub end: Duration,
}

impl Patience {
    /// That of the program.
    pub const USUAL: Self = Self {
        head: Duration::from_secs(30),
        idle: Duration::from_secs(60),
        answer: Duration::from_secs(60),
        drain: Duration::from_secs(10),
        pause: Duration::from_secs(600),
        durable: Duration::from_secs(20),
        end: Duration::from_secs(10),
    };
}
