//! Stores: where the immutable objects of Onefold live, and how a name is decided once.
//!
//! Two narrow ports, because backends differ in what they can promise. [`Blobs`] keeps immutable
//! objects whose names are never reused; [`Decisions`] fixes one value per name for all time. The
//! collection protocol (section 2) rests on exactly these promises and on nothing else: no clock,
//! no lock, no replaceable file.
//!
//! | module | holds |
//! | --- | --- |
//! | [`key`] | the names of objects |
//! | [`arbiter`] | decisions by somebody else, for stores that replace objects |
//! | [`foresight`] | what is about to be read, for stores that are far away |
//! | [`local`] | a directory: the production store, with its rules for durability |
//! | `own_file` | opens files of caches, whatever lies in their place |
//! | [`layers`] | wrappers: throttled; counting, faulty |
//! | `memory` | everything in RAM, with an operation log and tampering |
//! | `conformance` | the one suite that every store and every layer passes |
//!
//! What tests, measurements and experiments need (`memory`, `conformance`, and all layers but the
//! throttled one) is built with the feature `testing` only.
//!
//! Rules:
//!
//! - Blobs and decisions share one name space. A name is either an object or the directory of
//!   other names, never both.
//! - Visible is not yet durable: an object that another process is putting can be read before its
//!   `put` has ended. What `put` acknowledged and what `decide` or `decided` returned is durable;
//!   a caller that relies on anything else it saw calls [`Blobs::settle`] first.
//! - `get`, `get_tail`, `size` and `list` prove that an object exists at that moment.
//!   [`Blobs::get_range`] does not: it may read on from an object deleted meanwhile. Nor do
//!   [`Blobs::peek_range`], [`Blobs::glance_range`] and [`Blobs::peek_tail`].
//!
//! Concurrency: every method may be called from any number of threads at once. No lock is held
//! while a caller's closure runs, so `each` may call the store again.

use onefold_types::limits::CONTAINER_TARGET_MAX_BYTES;
use onefold_types::{ErrorKind, Result, StoreId};
use std::time::Duration;

pub mod arbiter;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod foresight;
pub mod key;
pub mod layers;
pub mod local;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
mod own_file;
mod shared;

pub use arbiter::{Arbiter, Arbitrated, DecidedBy};
pub use foresight::{Asked, Foresight, SharedForesight, foresee, foresee_shared};
pub use key::Key;
pub use local::LocalStore;
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryStore;
pub use own_file::open_own;

/// The largest object a store takes or gives.
pub const OBJECT_MAX_BYTES: usize = 2 * CONTAINER_TARGET_MAX_BYTES;

/// One object as a listing shows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Listed {
    /// The name.
    pub key: Key,
    /// The size.
    pub size_bytes: u64,
}

/// Immutable objects whose names are never reused.
pub trait Blobs: Send + Sync {
    /// Stores an object. When it returns `Ok` the object survives a power loss and is visible
    /// whole.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the name is taken; `LimitExceeded` above [`OBJECT_MAX_BYTES`]. On any
    /// error nothing is visible under the name, or the whole object.
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()>;

    /// Stores an object under a name that was made up for it, so that nobody else can have given
    /// it. If these bytes are there already they are this object: somebody on the way, like a
    /// proxy, has repeated the request.
    ///
    /// # Errors
    ///
    /// As for [`Blobs::put`].
    fn put_fresh(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        match self.put(key, bytes) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => match self.get(key) {
                Ok(found) if found == bytes => Ok(()),
                _ => Err(error),
            },
            other => other,
        }
    }

    /// Stores an object that is made piece by piece: `next` appends a piece to the empty buffer it
    /// is given and says whether more follow. The same promises as [`Blobs::put`]; there is no
    /// bound on the object's size where a store overrides the body given here, which collects it.
    ///
    /// # Errors
    ///
    /// As for [`Blobs::put`]; an error of `next` ends it, and nothing is visible.
    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        let (mut bytes, mut piece) = (Vec::new(), Vec::new());
        loop {
            piece.clear();
            let more = next(&mut piece)?;
            bytes.extend_from_slice(&piece);
            if !more {
                return self.put(key, &bytes);
            }
        }
    }

    /// Reads a whole object.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none; `LimitExceeded` above [`OBJECT_MAX_BYTES`].
    fn get(&self, key: &Key) -> Result<Vec<u8>>;

    /// Fills `buffer` from `offset` on. It may succeed on an object deleted meanwhile, so it
    /// proves nothing about existence.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such object; `Damaged` if it ends before the buffer is full.
    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// The size of an object and its last `length_bytes` bytes, or all of it if it is shorter.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such object; `LimitExceeded` for a tail above
    /// [`OBJECT_MAX_BYTES`].
    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)>;

    /// As [`Blobs::get_range`], for what is likely to be read again by others of this machine: it
    /// may be answered out of what they have read.
    ///
    /// # Errors
    ///
    /// As for [`Blobs::get_range`].
    fn peek_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.get_range(key, offset, buffer)
    }

    /// As [`Blobs::get_range`], for what is not worth being kept by whoever reads it: it may be
    /// answered out of what somebody of this machine has written.
    ///
    /// # Errors
    ///
    /// As for [`Blobs::get_range`].
    fn glance_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.get_range(key, offset, buffer)
    }

    /// As [`Blobs::get_tail`], in the same way as [`Blobs::peek_range`]: so it proves nothing.
    ///
    /// # Errors
    ///
    /// As for [`Blobs::get_tail`].
    fn peek_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.get_tail(key, length_bytes)
    }

    /// What was peeked at of this object is damaged: whether that may have been what was kept, so
    /// that peeking again asks the store.
    fn distrust(&self, _key: &Key) -> bool {
        false
    }

    /// What was put under this name was read back out of the store, and is as it was put: from now
    /// on whoever peeks may be given what was put.
    fn was_read_back(&self, _key: &Key) {}

    /// The size of an object.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none.
    fn size(&self, key: &Key) -> Result<u64>;

    /// Shows every object below the directory `prefix` (the whole store if it is empty), in any
    /// order. Objects deleted meanwhile may be missing; a missing directory is empty. A listing is
    /// whole or fails: nothing else is passed over.
    ///
    /// # Errors
    ///
    /// `Invalid` for a prefix that no key can have; whatever `each` returns ends the listing. Those
    /// of the device, never `NotFound`; also where a name exists and leads to neither an object nor
    /// a directory, or `prefix` to an object, if the store can tell.
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()>;

    /// Like [`Blobs::list`], names only: cheap for a million objects.
    ///
    /// # Errors
    ///
    /// As for [`Blobs::list`].
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()>;

    /// Deletes an object; deleting what is absent is `Ok`. Every read that starts afterwards sees
    /// it gone, but after a power loss it may be back, whole, unless [`Blobs::settle`] ran.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn delete(&self, key: &Key) -> Result<()>;

    /// Makes durable all that was visible below the directory `prefix` when the call began, and
    /// the absence of what was deleted there, whichever process wrote or deleted it.
    ///
    /// The body given here is for stores in which whatever is visible is durable.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn settle(&self, prefix: &str) -> Result<()> {
        key::check_prefix(prefix)
    }

    /// How many bytes still fit, about; `None` if nobody can tell. Others write meanwhile, and
    /// objects take more room than their bytes: work is planned by it, and nothing rests on it.
    ///
    /// # Errors
    ///
    /// Those of the device.
    fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Lets go of what is kept open of objects that others have deleted, so that their room is
    /// free. Whoever keeps a store open for long does that from time to time.
    fn let_go(&self) {}

    /// How many objects are best put at once: one where each takes the device's time, more where
    /// each mostly waits.
    fn puts_at_once(&self) -> usize {
        1
    }

    /// This thread will read these next. Called through [`foresee`] only, which ends it; the number
    /// that ends it, or 0 where there is nothing to be gained.
    fn foresee(&self, _next: Vec<Asked>) -> u64 {
        0
    }

    /// Nothing that was foreseen under this number is given out any more.
    fn forget_foreseen(&self, _number: u64) {}
}

/// How often whoever keeps a store open for long lets go of what is gone.
pub const LET_GO_PERIOD: Duration = Duration::from_secs(1);

/// Names that are decided once.
pub trait Decisions: Send + Sync {
    /// The one value that won, for all time: `value` if nobody was earlier. It is durable before
    /// this returns, for winner and loser alike.
    ///
    /// # Errors
    ///
    /// Those of the device. After an error the name may or may not be decided; asking again is
    /// safe.
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>>;

    /// The value decided under `key`, if there is one; it is durable before this returns.
    ///
    /// # Errors
    ///
    /// Those of the device; also where the name exists and leads to no object, if the store can
    /// tell.
    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>>;

    /// Shows every name decided below the directory `prefix`, in any order.
    ///
    /// # Errors
    ///
    /// As for [`Blobs::list`].
    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()>;
}

/// A store that offers both ports. Nothing in it can be replaced: all is immutable.
pub trait Store: Blobs + Decisions {
    /// The store in words, for messages.
    fn describe(&self) -> String;

    /// Who decides its names, as this process reaches it.
    fn decided_by(&self) -> DecidedBy {
        DecidedBy::Itself
    }

    /// The store's own name, said before anything is decided in it: it is being made (`is_new`), or
    /// was opened.
    ///
    /// # Errors
    ///
    /// Those of an [`Arbiter`].
    fn open_as(&self, _id: StoreId, _is_new: bool) -> Result<()> {
        Ok(())
    }
}
