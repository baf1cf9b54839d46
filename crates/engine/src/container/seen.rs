//! Containers that a session has seen to exist (protocol, W5).
//!
//! Whatever a session relies on it must have seen after it knew its epoch: in a listing of all
//! containers that began then, or because it has stored the container itself. Of such a container
//! a metadata section counts that this machine has kept; of every other one it is read from the
//! store.
//!
//! Memory: 16 bytes for each container that was listed, and some more for each that was stored; in
//! stores that are far away only, as others have nothing that is kept elsewhere.
//!
//! Concurrency: asked by all threads of a session, told by those that store.

use onefold_store::Store;
use onefold_types::ContainerId;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// See the module.
#[derive(Debug, Default)]
pub struct SeenContainers {
    is_far: bool,
    /// Rising.
    listed: OnceLock<Arc<[ContainerId]>>,
    own: RwLock<BTreeSet<ContainerId>>,
}

impl SeenContainers {
    /// None so far, of a store.
    #[must_use]
    pub fn of(store: &dyn Store) -> Self {
        Self { is_far: store.puts_at_once() > 1, ..Self::default() }
    }

    /// These were listed, and rise. Only the first listing counts.
    pub fn note_listed(&self, containers: &Arc<[ContainerId]>) {
        if self.is_far {
            self.listed.get_or_init(|| Arc::clone(containers));
        }
    }

    /// The session has stored this one.
    pub fn note_own(&self, container: ContainerId) {
        if self.is_far {
            self.own.write().unwrap_or_else(PoisonError::into_inner).insert(container);
        }
    }

    /// Those that were listed, rising.
    #[must_use]
    pub fn listed(&self) -> &[ContainerId] {
        self.listed.get().map_or(&[], |listed| listed)
    }

    /// Whether this one was seen.
    #[must_use]
    pub fn holds(&self, container: ContainerId) -> bool {
        self.listed().binary_search(&container).is_ok()
            || self.own.read().unwrap_or_else(PoisonError::into_inner).contains(&container)
    }
}
