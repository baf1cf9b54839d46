//! What is asked for while a store is opened, for whoever reads next.

use super::{ASKING_MAX, Repository};
use onefold_store::SharedForesight;
use std::sync::PoisonError;

impl Repository {
    /// The same with what was foreseen while it was opened.
    pub(super) fn about_to_read(self, foreseen: SharedForesight) -> Self {
        *self.foreseen.lock().unwrap_or_else(PoisonError::into_inner) = Some(foreseen);
        self
    }

    /// What was foreseen when the store was opened, unless that was long ago or somebody has asked
    /// before: the names of its checkpoints.
    pub(crate) fn foreseen_at_opening(&self) -> Option<SharedForesight> {
        let foreseen = self.foreseen.lock().unwrap_or_else(PoisonError::into_inner).take();
        foreseen.and_then(|foreseen| foreseen.unless_older(ASKING_MAX))
    }
}
