//! Stores that are elsewhere, of which this machine keeps parts (`onefold_remote::local_cache`).
//!
//! Only commands that neither verify what a store holds nor delete anything open it so: what is
//! kept here says nothing of what is there now.

use super::Context;
use crate::access::Access;
use crate::machine_notes;
use onefold_engine::Repository;
use onefold_remote::LocalCache;
use onefold_types::Result;
use std::path::PathBuf;
use std::sync::Arc;

/// What is kept of all stores together, unless it is said.
const CACHE_DEFAULT_BYTES: u64 = 1 << 30;

impl Context {
    /// Opens the store for a command that neither verifies what it holds nor deletes anything: what
    /// this machine keeps of a store that is elsewhere is read where it is kept.
    pub fn open_near(&self, access: Access) -> Result<Arc<Repository>> {
        let reached = self.open_by(access, |store| match self.local_cache() {
            Some((directory, most)) => Arc::new(LocalCache::new(store, directory, most)),
            None => store,
        });
        reached.map(|(repository, _)| repository)
    }

    /// Where this machine keeps parts of stores that are elsewhere, and how much of them.
    fn local_cache(&self) -> Option<(PathBuf, u64)> {
        let most = self.options.cache_size.or(self.profile.cache_size);
        let most = most.map_or(CACHE_DEFAULT_BYTES, |size| size.0);
        let directory = machine_notes::directory().filter(|_| self.is_far && most > 0)?;
        Some((directory.join("objects"), most))
    }
}
