//! What is asked of a database, whichever it is.
//!
//! | kept | as | how |
//! | --- | --- | --- |
//! | which stores there are | a row for each, with its [`Generation`] | once for all time, but for the generation |
//! | decisions | a row for each name | once for all time |
//! | the index in common | rows of prefix and container, in buckets | added in any order, any number of times |
//! | news | a row for each container that was stored lately | added; gone after [`NEWS_AGE_MAX`] |
//! | claims | a row for each batch of chunks that somebody is about to store | added; gone after [`CLAIMS_AGE_MAX`] |
//!
//! Entries of a generation are never deleted one by one: an index that has grown old is filled anew
//! as the next generation, and the old one goes as a whole.

use onefold_engine::common_index::{Claim, ClaimOrder, NewContainer};
use onefold_format::notice::unpack;
use onefold_store::arbiter::Incarnation;
use onefold_types::{ContainerId, Error, ErrorKind, Result, SessionId, StoreId};
use std::fmt;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// For a connection.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// For an answer.
pub const ANSWER_MAX: Duration = Duration::from_secs(15);
/// How long what was stored is told as news: longer than most sessions take.
pub const NEWS_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Containers told at once to whoever asks first.
pub const NEWS_MAX: usize = 2048;
/// How long claims are told: whoever made an older one has stored what it claimed, or is gone.
pub const CLAIMS_AGE_MAX: Duration = Duration::from_secs(60);
/// Claims told at once, the newest ones.
pub const CLAIMS_MAX: usize = 1024;
/// Threads that wait for the network.
const WORKERS: usize = 2;

/// A generation of the index in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation {
    /// Its number, from 1 on.
    pub number: i32,
    /// Of a prefix, the leading bits that say which bucket an entry is in. Buckets are large, since
    /// each that is asked for is a request, and what is asked for is spread over all of them.
    pub bucket_bits: u8,
}

/// Bits of the first generation of a store: for sixteen million chunks; with more, buckets grow
/// until it is filled anew.
pub const BUCKET_BITS_FIRST: u8 = 8;
/// The least and the most that there may be.
pub const BUCKET_BITS: std::ops::RangeInclusive<u8> = 6..=31;
/// Entries that a bucket should have.
const BUCKET_ENTRIES: u64 = 1 << 16;

impl Generation {
    /// The first one.
    pub const FIRST: Self = Self { number: 1, bucket_bits: BUCKET_BITS_FIRST };

    /// One after this, for so many chunks, and as many more. Whoever fills beside others takes
    /// another number, given another `chance`.
    #[must_use]
    pub fn next_for(self, chunks: u64, chance: u16) -> Self {
        let buckets = (chunks.saturating_mul(2) / BUCKET_ENTRIES).max(1);
        let bits = u64::BITS - (buckets - 1).leading_zeros();
        let bits = u8::try_from(bits).unwrap_or(u8::MAX);
        let bucket_bits = bits.clamp(*BUCKET_BITS.start(), *BUCKET_BITS.end());
        Self { number: self.number.saturating_add(1 + i32::from(chance)), bucket_bits }
    }

    /// Which bucket a prefix is in.
    #[must_use]
    pub fn bucket(self, prefix: u64) -> i32 {
        i32::try_from(prefix >> (u64::BITS - u32::from(self.bucket_bits))).unwrap_or(i32::MAX)
    }
}

/// What a database knows of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// The generation of its index.
    pub generation: Generation,
    /// By which number; somebody may have written anything.
    pub incarnation: Vec<u8>,
}

/// How far somebody has read the news.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor(pub Option<i64>);

/// A database; see the module. Every method may be called by several threads at once, and blocks.
pub trait Engine: Send + Sync {
    /// Makes the tables if there are none, and a row for the store, which has this number from now
    /// on.
    fn register(&self, store: StoreId, incarnation: &Incarnation) -> Result<()>;

    /// What is known of a store; `None` for one that is not.
    fn known(&self, store: StoreId) -> Result<Option<Known>>;

    /// Goes over to another generation; `false` if somebody else has.
    fn switch(&self, store: StoreId, from: Generation, to: Generation) -> Result<bool>;

    /// Deletes all entries of a generation.
    fn drop_generation(&self, store: StoreId, generation: Generation) -> Result<()>;

    /// Decides a name unless that has been done, and says what it is decided to be. After an error
    /// the name may be decided.
    fn decide(&self, store: StoreId, name: &str, value: &[u8]) -> Result<Vec<u8>>;

    /// What a name is decided to be, if it is.
    fn decided(&self, store: StoreId, name: &str) -> Result<Option<Vec<u8>>>;

    /// Adds entries, which rise.
    fn insert(
        &self,
        store: StoreId,
        generation: Generation,
        entries: &[(u64, ContainerId)],
    ) -> Result<()>;

    /// All entries with one of some prefixes, in any order.
    fn locate(
        &self,
        store: StoreId,
        generation: Generation,
        prefixes: &[u64],
    ) -> Result<Vec<(u64, ContainerId)>>;

    /// Tells all others of a container.
    fn announce(&self, store: StoreId, container: ContainerId, prefixes: &[u64]) -> Result<()>;

    /// What was announced since, and how far that goes.
    fn news(&self, store: StoreId, since: Cursor) -> Result<(Vec<NewContainer>, Cursor)>;

    /// Tells all others what a session is about to store; what it is told by later claims need not
    /// outlast a crash of the database.
    fn claim(&self, store: StoreId, by: SessionId, prefixes: &[u64]) -> Result<ClaimOrder>;

    /// What was claimed since, and how far that goes.
    fn claims(&self, store: StoreId, since: Cursor) -> Result<(Vec<Claim>, Cursor)>;
}

/// The threads of a database, and the time that everything may take.
pub(crate) struct Waiting {
    runtime: Runtime,
    name: String,
}

impl Waiting {
    pub(crate) fn new(name: String) -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("onefold-database")
            .enable_all()
            .build()
            .map_err(|cause| Error::io("starting threads for the database", cause))?;
        Ok(Self { runtime, name })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for an answer.
    pub(crate) fn wait<T, E: fmt::Display>(
        &self,
        what: &str,
        at_most: Duration,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let failed = |why: &dyn fmt::Display| {
            Error::new(ErrorKind::Unavailable, format!("{what} in {}: {why}", self.name))
        };
        match self.runtime.block_on(async { timeout(at_most, answer).await }) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(failed(&why)),
            Err(_) => Err(failed(&format!("no answer in {} s", at_most.as_secs()))),
        }
    }

    /// Starts what goes on by itself.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }
}

/// A prefix as databases keep numbers, which have a sign there.
pub(crate) fn signed(prefix: u64) -> i64 {
    prefix.cast_signed()
}

/// The same, the other way.
pub(crate) fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

/// A container with its prefixes; `None` for what nobody has written so.
pub(crate) fn unpacked(container: &[u8], prefixes: &[u8]) -> Option<NewContainer> {
    Some((container_of(container)?, unpack(prefixes).ok()?))
}

/// A claim with its prefixes; `None` for what nobody has written so.
pub(crate) fn unpacked_claim(moment: i64, by: &[u8], prefixes: &[u8]) -> Option<Claim> {
    let by = by.try_into().ok().map(SessionId)?;
    Some((ClaimOrder(moment, by), unpack(prefixes).ok()?))
}

pub(crate) fn container_of(bytes: &[u8]) -> Option<ContainerId> {
    bytes.try_into().ok().map(ContainerId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_grow_with_the_chunks_and_keep_within_their_bounds() {
        let of = |chunks| Generation::FIRST.next_for(chunks, 7).bucket_bits;
        assert_eq!([0, 1, 1 << 21, (1 << 21) + (1 << 15)].map(of), [6, 6, 6, 7]);
        assert_eq!([1 << 30, u64::MAX].map(of), [15, 31]);
        let generation = Generation { number: 1, bucket_bits: 31 };
        assert_eq!(generation.bucket(u64::MAX), i32::MAX);
        assert_eq!(Generation::FIRST.bucket(0x80ff_ffff_0000_0000), 0x80);
        assert_eq!(Generation { number: i32::MAX, bucket_bits: 6 }.next_for(1, 0).number, i32::MAX);
    }

    #[test]
    fn prefixes_survive_the_sign_and_the_row() {
        for prefix in [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1] {
            assert_eq!(unsigned(signed(prefix)), prefix);
        }
        let container = ContainerId([7; 16]);
        let row = onefold_format::notice::pack(&[1, u64::MAX]);
        assert_eq!(unpacked(&container.0, &row), Some((container, vec![1, u64::MAX])));
        assert_eq!(unpacked(&container.0, &row[1..]), None);
        assert_eq!(unpacked(&container.0[1..], &row), None);
    }
}
