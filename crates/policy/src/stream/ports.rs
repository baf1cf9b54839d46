//! What a stream asks of its session and tells its containers.

use crate::accelerated_filter::AcceleratedFilter;
use crate::duplicate_status::DuplicateStatus;
use crate::ports::{IndexPort, Instance};
use crate::rewrite::UnitId;
use onefold_types::{Fingerprint, Result, bug};
use std::fmt::Debug;

/// A chunk of the stream.
#[derive(Debug)]
pub struct Chunk<'a, P: ?Sized> {
    /// Its number in the stream.
    pub ticket: u64,
    /// Its fingerprint.
    pub fingerprint: &'a Fingerprint,
    /// Its plain size.
    pub size_bytes: u32,
    /// Its bytes, or whatever stands for them.
    pub payload: &'a P,
}

/// The known addresses of a chunk in old containers, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instances<A> {
    /// Where the look-up found it.
    pub first: A,
    /// Elsewhere; rarely anywhere, so mostly no allocation.
    pub others: Vec<A>,
    /// Where the base lies that `first` is a difference against. `None`: it is whole, or that is
    /// not known, as it never is where there are others.
    pub rests_on: Option<A>,
}

impl<A: Copy> Instances<A> {
    /// Whole chunks at these addresses.
    #[must_use]
    pub fn new(first: A, others: Vec<A>) -> Self {
        Self { first, others, rests_on: None }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = A> + Clone + '_ {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// The duplicate status of a chunk; where a fresh one lies, if that is known.
pub type Status<A> = DuplicateStatus<Instances<A>, Option<A>>;

/// What rewriting counts by, of whatever addresses the store has.
pub trait Units {
    /// Where a chunk lies; rises with age, the newest greatest.
    type Address: Copy + Ord + Debug;

    /// The unit that holds the address.
    fn unit_of(&self, address: Self::Address) -> UnitId;
}

/// What the streams of a session share: asked and told while chunks are judged, under one lock.
pub trait SessionPort<P: ?Sized, A> {
    /// The helpers of look-up, and the index. Where every chunk is known that is never asked.
    fn index(&mut self) -> Result<(&mut AcceleratedFilter, &mut dyn IndexPort)> {
        Err(bug!("a chunk is to be looked up where all are known"))
    }

    /// The status of a chunk that need not be looked up, because it is among those that the session
    /// is storing (S1.24).
    fn known(&mut self, chunk: &Chunk<'_, P>) -> Option<Status<A>>;

    /// The look-up calls the chunk new: `true` if no equal one is being stored. It is from now on.
    fn claim(&mut self, chunk: &Chunk<'_, P>) -> bool;

    /// The look-up has found the chunk, and the session relies on the instance from now on.
    fn found(&mut self, chunk: &Chunk<'_, P>, instance: &Instance) -> Status<A>;
}

/// Where the chunks of a stream go.
pub trait ContainerPort<P: ?Sized, A> {
    /// Stores a unique chunk; returns where, if that is known.
    fn store(&mut self, chunk: &Chunk<'_, P>) -> Result<Option<A>>;

    /// Stores a duplicate again; returns where, unless the session has stored it already. Without a
    /// policy of rewriting that is never asked.
    fn store_again(&mut self, fingerprint: &Fingerprint, _payload: &P) -> Result<Option<A>> {
        Err(bug!("a stream that rewrites nothing is to store a chunk again", fingerprint))
    }

    /// Further addresses of a duplicate that is to be stored again, newest first, in other
    /// containers than the known ones. Asks the device.
    fn others(&mut self, _fingerprint: &Fingerprint, _known: &Instances<A>) -> Result<Vec<A>> {
        Ok(Vec::new())
    }

    /// Takes note of where a chunk of the stream lies, told once for each.
    fn place(&mut self, ticket: u64, address: Option<A>);

    /// Takes note that a chunk of so many bytes is kept that is a difference against what lies at
    /// `base`: whoever restores the stream reads that as well.
    fn rest_on(&mut self, _of: A, _base: A, _size_bytes: u32) {}
}
