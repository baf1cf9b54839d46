//! The same store once more, for work with other means: memory, frames, what is beside it.

use super::Repository;
use crate::common_index::CommonIndex;
use crate::memory::MemoryPlan;
use onefold_types::limits;
use std::sync::Arc;

impl Repository {
    /// The same store, for a process that closes its frames after so many plain bytes, whatever its
    /// chunks are; no more than the longest usual frame has. For experiments.
    #[must_use]
    pub fn with_frames_of(&self, bytes: usize) -> Self {
        let frame_bytes = Some(bytes.min(limits::FRAME_PLAIN_TARGET_BYTES));
        Self { frame_bytes, ..self.clone() }
    }

    /// The same store beside an index that its machines have in common.
    #[must_use]
    pub fn with_common_index(&self, common: Arc<dyn CommonIndex>) -> Self {
        Self { common_index: Some(common), ..self.clone() }
    }

    /// The index that machines have in common beside the store's own, if there is one.
    #[must_use]
    pub fn common_index(&self) -> Option<&Arc<dyn CommonIndex>> {
        self.common_index.as_ref()
    }

    /// The same store with another division of the same memory limit.
    #[must_use]
    pub fn with_memory(&self, memory: MemoryPlan) -> Self {
        Self { memory, ..self.clone() }
    }
}
