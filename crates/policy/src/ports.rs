//! What a policy may ask of the world: narrow, and batched where a device is involved.
//!
//! The local index, a remote index and a simulation all stand behind [`IndexPort`]; a policy cannot
//! tell them apart. Invariant: an answer of the index is a hint. Only a container's own metadata
//! section says what the container holds (FAST'08, section 3.3: containers are self-describing).

use onefold_types::{ContainerId, Fingerprint, Result};
use std::sync::Arc;

/// Where an instance of a chunk lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instance {
    /// The container that holds the chunk.
    pub container: ContainerId,
    /// Index of the chunk's descriptor in the container's metadata section.
    pub position: u32,
}

/// Into how many equal ranges of prefixes an index may be divided, at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketCounts {
    /// With so few, all fingerprints of a bucket can still be located with one access of the device
    /// for each run of the index; with fewer perhaps not.
    pub fewest: u32,
    /// With so many, an access is as short as it should be; with more it would bring the less.
    pub most: u32,
}

impl BucketCounts {
    /// Of what one access reads as a whole, or what is not on a device.
    pub const ONE: Self = Self { fewest: 1, most: 1 };
}

/// The index of a store, as a policy sees it.
pub trait IndexPort {
    /// Appends, for each fingerprint, the containers the on-disk index names for it, newest first.
    ///
    /// An answer is a hint and unverified. Exactly one list per fingerprint is appended, in the
    /// order of `fingerprints`. `reads` grows by one for each access of the device: neighbouring
    /// pages read with one request are one access.
    ///
    /// # Errors
    /// The index cannot be read.
    fn locate(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
        reads: &mut u64,
    ) -> Result<()>;

    /// The fingerprints of a container's metadata section in stream order, read from the container
    /// itself in this session.
    ///
    /// `Ok(None)` if the container does not exist (any more), may not be used (condemned, damaged)
    /// or its metadata section cannot be read.
    ///
    /// # Errors
    /// The store as a whole cannot be used; one unreadable container is no error.
    fn container_fingerprints(
        &mut self,
        container: ContainerId,
    ) -> Result<Option<Arc<[Fingerprint]>>>;

    /// Whether the part of the index that is in memory may know the fingerprint.
    ///
    /// In an exact index `false` is certain; in a sampled one it only says that the fingerprint is
    /// no known hook. The answer may need a piece of a filter that has not been loaded yet.
    ///
    /// # Errors
    /// The index cannot be read.
    fn may_contain(&mut self, fingerprint: &Fingerprint) -> Result<bool>;

    /// Into how many buckets the index may be divided now, each an equal range of prefixes (S0.5).
    /// It changes as the index grows.
    fn bucket_counts(&self) -> BucketCounts;

    /// Accesses of the device so far, beside those of containers' own sections, that
    /// [`Self::container_fingerprints`] took to show that what sections list can be made: what
    /// differences are made of lies elsewhere.
    fn proof_reads(&self) -> u64 {
        0
    }

    /// Sections so far that [`Self::container_fingerprints`] did not read, because the session had
    /// read and kept them, or knew that they may not be used.
    fn sections_kept(&self) -> u64 {
        0
    }

    /// What an access of the device has taken so far, on average, in nanoseconds; `None` as long as
    /// too few were seen, and where nobody looks at a clock.
    fn device_read_ns(&self) -> Option<u64> {
        None
    }
}
