//! Sections that will be wanted one after the other, read several at once: each takes as long as
//! the way to the store and back.

use super::ChunkReader;
use onefold_types::ContainerId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What a section takes, about, and what is beside it in the cache.
const SECTION_BYTES: usize = 128 << 10;

impl ChunkReader {
    /// How many sections are kept, about.
    #[must_use]
    pub fn sections_kept(&self) -> usize {
        self.repository().memory().section_cache_bytes / SECTION_BYTES
    }

    /// Reads the sections of these containers into the cache, no more than are kept. What cannot be
    /// read whoever wants it meets again.
    pub fn read_sections(&self, containers: &[ContainerId], threads: usize) {
        let wanted = &containers[..containers.len().min(self.sections_kept())];
        let next = AtomicUsize::new(0);
        let read = || {
            while let Some(container) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _ = self.section(*container);
            }
        };
        thread::scope(|scope| {
            (1..threads.min(wanted.len())).for_each(|_| drop(scope.spawn(read)));
            read();
        });
    }
}
