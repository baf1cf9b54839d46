//! An index that the machines of a store have in common: a port.
//!
//! Index runs tell others of a session's chunks when the session writes a run, hours later perhaps.
//! Whoever saves the same data meanwhile stores it a second time. A [`CommonIndex`], a database
//! say, is told of each container as soon as that is durable, and tells all others; it is asked in
//! the place of the runs where their pages are far away. Until then it is told what a session is
//! about to store, its *claims*, so that others need not store the same ([`crate::index::Claims`]).
//!
//! # Invariants
//! It is a hint on top of a hint: all that it knows is in containers and in runs as well, a hit
//! counts only once its container was seen to exist in this session (W5), and where
//! it knows nothing, or is gone, the runs answer. So nothing is lost with it, and nothing waits for
//! it. It tells of durable containers only.

use onefold_types::{ContainerId, Result, SessionId};

/// A container that somebody stored, and the prefixes of what it holds.
pub type NewContainer = (ContainerId, Vec<u64>);

/// When something was claimed: of two claims of one chunk the lower came first, to whoever reads
/// them. Of one session's claims some may be equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClaimOrder(pub i64, pub SessionId);

impl ClaimOrder {
    /// Whose claim it is.
    #[must_use]
    pub fn by(self) -> SessionId {
        self.1
    }
}

/// What a session says that it is about to store, by prefixes; none: only that it is at work.
pub type Claim = (ClaimOrder, Vec<u64>);

/// An index that machines have in common.
pub trait CommonIndex: Send + Sync {
    /// Tells all of a container that is durable.
    ///
    /// # Errors
    ///
    /// Those of reaching it: nobody is told then.
    fn add(&self, container: ContainerId, prefixes: &[u64]) -> Result<()>;

    /// Appends for each prefix all containers that may hold it, in no order.
    ///
    /// # Errors
    ///
    /// Those of reaching it.
    fn locate(&self, prefixes: &[u64], found: &mut Vec<Vec<ContainerId>>) -> Result<()>;

    /// Containers that were added since this was asked last, own ones included; one that was added
    /// meanwhile may be missing or come twice.
    ///
    /// # Errors
    ///
    /// Those of reaching it.
    fn news(&self) -> Result<Vec<NewContainer>>;

    /// Tells all others that a session is about to store chunks, and gives what was claimed since
    /// this was asked last, a minute ago at most: own claims may be among it, one that was made
    /// meanwhile may be missing or come twice. Of two that claim the same at the same time one at
    /// least is told of the other.
    ///
    /// # Errors
    ///
    /// Those of reaching it: others may have been told.
    fn claim(&self, by: SessionId, prefixes: &[u64]) -> Result<(ClaimOrder, Vec<Claim>)>;

    /// What was claimed since this or [`Self::claim`] was asked last; nothing is told.
    ///
    /// # Errors
    ///
    /// Those of reaching it.
    fn claims(&self) -> Result<Vec<Claim>>;
}
