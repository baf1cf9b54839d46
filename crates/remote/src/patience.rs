//! How long is waited for what, before it counts as not to be had.

use std::time::Duration;

/// For a connection.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// For an answer to begin, beside what sending takes.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long a request is repeated that finds no answer or a busy server.
pub const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long anything may take, beside the transfer: longer than all repetitions.
pub const OPERATION_MAX: Duration = Duration::from_secs(120);
/// What took longer and failed has met a server that is gone or busy, and not a refusal.
pub const TROUBLE_MIN: Duration = Duration::from_secs(5);
/// For so long after that nothing is asked for, and then with no more patience than that, until
/// something succeeds or so much time has gone by.
pub const TROUBLE_AGE_MAX: Duration = Duration::from_secs(60);

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// [`CONNECT_MAX`]
    pub connect: Duration,
    /// [`ANSWER_MAX`]
    pub answer: Duration,
    /// [`RETRY_MAX`]
    pub retry: Duration,
    /// [`OPERATION_MAX`]
    pub operation: Duration,
    /// [`TROUBLE_MIN`]
    pub trouble: Duration,
    /// [`TROUBLE_AGE_MAX`]
    pub trouble_age: Duration,
}

impl Patience {
    /// That of the program.
    pub const USUAL: Self = Self {
        connect: CONNECT_MAX,
        answer: ANSWER_MAX,
        retry: RETRY_MAX,
        operation: OPERATION_MAX,
        trouble: TROUBLE_MIN,
        trouble_age: TROUBLE_AGE_MAX,
    };
}
