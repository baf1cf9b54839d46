//! Where another copy of a chunk may be that cannot be read where the index says.
//!
//! Chunks are stored once. Of some a second copy is kept in another form, by modules above this
//! one, which say here how to get at it; what they give is believed only if it is what its name
//! says.

use crate::repository::Repository;
use onefold_types::{Fingerprint, Result};
use std::sync::{Arc, OnceLock};

/// Gives second copies.
pub trait CopySource: Send + Sync {
    /// The bytes of a data chunk, not verified; `None` if there is no copy of it.
    fn find(&self, fingerprint: &Fingerprint) -> Result<Option<Vec<u8>>>;
}

/// Who gives second copies of a store's chunks, if anybody does.
#[derive(Default)]
pub struct SecondCopies {
    source: OnceLock<Box<dyn CopySource>>,
}

impl SecondCopies {
    /// Those of a store.
    pub fn of(repository: &Repository) -> Result<Arc<Self>> {
        repository.shared(|| Ok(Self::default()))
    }

    /// Says who gives them; the first one does as long as the process runs.
    pub fn install(&self, source: impl CopySource + 'static) {
        // Whoever came first reads the same store.
        let _ = self.source.set(Box::new(source));
    }

    /// The bytes of a data chunk; `None` if there is no copy of it, or none that is what its name
    /// says.
    pub fn find(
        &self,
        repository: &Repository,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Vec<u8>>> {
        let Some(source) = self.source.get() else { return Ok(None) };
        let found = source.find(fingerprint)?;
        Ok(found.filter(|bytes| repository.fingerprinter().data(bytes) == *fingerprint))
    }
}
