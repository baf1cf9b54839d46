//! Wrappers that add one thing each to any store.
//!
//! | layer | adds |
//! | --- | --- |
//! | `Counting` | calls, errors and bytes per operation and top-level name |
//! | `Faulty` | scripted or seeded faults, lying acknowledgements and a full device |
//! | [`Throttled`] | a bound on bytes a second and on the share of the time that the caller works |
//!
//! All but the last are built with the feature `testing` only. Each is generic over the store
//! below, which may be an `Arc<dyn Store>`, and passes the conformance suite.

/// The methods of [`crate::Blobs`] that move no bytes and tell the store below what its caller is
/// about, for a store over another one: `pass_hints_on!(this => this.store);`.
#[macro_export]
macro_rules! pass_hints_on {
    ($this:ident => $below:expr) => {
        fn let_go(&self) {
            let $this = self;
            $below.let_go();
        }

        fn was_read_back(&self, key: &$crate::Key) {
            let $this = self;
            $below.was_read_back(key);
        }

        fn puts_at_once(&self) -> usize {
            let $this = self;
            $below.puts_at_once()
        }

        fn foresee(&self, next: Vec<$crate::Asked>) -> u64 {
            let $this = self;
            $below.foresee(next)
        }

        fn forget_foreseen(&self, number: u64) {
            let $this = self;
            $below.forget_foreseen(number);
        }
    };
}

/// All methods of [`crate::Blobs`], for a store over another one that changes none of them, as
/// [`pass_hints_on`].
///
/// [`pass_hints_on`]: crate::pass_hints_on
#[macro_export]
macro_rules! pass_blobs_on {
    ($this:ident => $below:expr) => {
        fn put(&self, key: &$crate::Key, bytes: &[u8]) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.put(key, bytes)
        }

        fn put_pieces(
            &self,
            key: &$crate::Key,
            next: &mut dyn FnMut(&mut Vec<u8>) -> ::onefold_types::Result<bool>,
        ) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.put_pieces(key, next)
        }

        fn get(&self, key: &$crate::Key) -> ::onefold_types::Result<Vec<u8>> {
            let $this = self;
            $below.get(key)
        }

        fn get_range(
            &self,
            key: &$crate::Key,
            offset: u64,
            buffer: &mut [u8],
        ) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.get_range(key, offset, buffer)
        }

        fn get_tail(
            &self,
            key: &$crate::Key,
            length_bytes: usize,
        ) -> ::onefold_types::Result<(u64, Vec<u8>)> {
            let $this = self;
            $below.get_tail(key, length_bytes)
        }

        fn peek_range(
            &self,
            key: &$crate::Key,
            offset: u64,
            buffer: &mut [u8],
        ) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.peek_range(key, offset, buffer)
        }

        fn glance_range(
            &self,
            key: &$crate::Key,
            offset: u64,
            buffer: &mut [u8],
        ) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.glance_range(key, offset, buffer)
        }

        fn peek_tail(
            &self,
            key: &$crate::Key,
            length_bytes: usize,
        ) -> ::onefold_types::Result<(u64, Vec<u8>)> {
            let $this = self;
            $below.peek_tail(key, length_bytes)
        }

        fn distrust(&self, key: &$crate::Key) -> bool {
            let $this = self;
            $below.distrust(key)
        }

        fn size(&self, key: &$crate::Key) -> ::onefold_types::Result<u64> {
            let $this = self;
            $below.size(key)
        }

        fn list(
            &self,
            prefix: &str,
            each: &mut dyn FnMut($crate::Listed) -> ::onefold_types::Result<()>,
        ) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.list(prefix, each)
        }

        fn list_names(
            &self,
            prefix: &str,
            each: &mut dyn FnMut(&str) -> ::onefold_types::Result<()>,
        ) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.list_names(prefix, each)
        }

        fn delete(&self, key: &$crate::Key) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.delete(key)
        }

        fn settle(&self, prefix: &str) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.settle(prefix)
        }

        fn free_bytes(&self) -> ::onefold_types::Result<Option<u64>> {
            let $this = self;
            $below.free_bytes()
        }

        $crate::pass_hints_on!($this => $below);
    };
}

/// All methods of [`crate::Decisions`], for a store over another one that changes none of them, as
/// [`pass_hints_on`].
///
/// [`pass_hints_on`]: crate::pass_hints_on
#[macro_export]
macro_rules! pass_decisions_on {
    ($this:ident => $below:expr) => {
        fn decide(&self, key: &$crate::Key, value: &[u8]) -> ::onefold_types::Result<Vec<u8>> {
            let $this = self;
            $below.decide(key, value)
        }

        fn decided(&self, key: &$crate::Key) -> ::onefold_types::Result<Option<Vec<u8>>> {
            let $this = self;
            $below.decided(key)
        }

        fn list_decided(
            &self,
            prefix: &str,
            each: &mut dyn FnMut(&str) -> ::onefold_types::Result<()>,
        ) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.list_decided(prefix, each)
        }
    };
}

/// The methods of [`crate::Store`] but for its name, for a store over another one, as
/// [`pass_hints_on`].
///
/// [`pass_hints_on`]: crate::pass_hints_on
#[macro_export]
macro_rules! pass_identity_on {
    ($this:ident => $below:expr) => {
        fn decided_by(&self) -> $crate::DecidedBy {
            let $this = self;
            $below.decided_by()
        }

        fn open_as(
            &self,
            id: ::onefold_types::StoreId,
            is_new: bool,
        ) -> ::onefold_types::Result<()> {
            let $this = self;
            $below.open_as(id, is_new)
        }
    };
}

#[cfg(any(test, feature = "testing"))]
mod counting;
#[cfg(any(test, feature = "testing"))]
mod faulty;
mod throttled;

#[cfg(any(test, feature = "testing"))]
pub use counting::{Count, Counting, Counts};
#[cfg(any(test, feature = "testing"))]
pub use faulty::{Call, Fault, Faulty};
pub use throttled::{Pace, ThrottleLimits, Throttled};

/// The operations of a store, as layers tell them apart.
#[cfg(any(test, feature = "testing"))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// [`crate::Blobs::put`]
    Put,
    /// [`crate::Blobs::get`]
    Get,
    /// [`crate::Blobs::get_range`]
    GetRange,
    /// [`crate::Blobs::get_tail`]
    GetTail,
    /// [`crate::Blobs::size`]
    Size,
    /// [`crate::Blobs::list`]
    List,
    /// [`crate::Blobs::list_names`]
    ListNames,
    /// [`crate::Blobs::delete`]
    Delete,
    /// [`crate::Blobs::settle`]
    Settle,
    /// [`crate::Decisions::decide`]
    Decide,
    /// [`crate::Decisions::decided`]
    Decided,
    /// [`crate::Decisions::list_decided`]
    ListDecided,
}

#[cfg(any(test, feature = "testing"))]
impl Operation {
    /// Whether it can change the store.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(self, Operation::Put | Operation::Delete | Operation::Decide)
    }

    /// Whether it shows names.
    #[must_use]
    pub fn is_listing(self) -> bool {
        matches!(self, Operation::List | Operation::ListNames | Operation::ListDecided)
    }
}
