//! Finds other instances of chunks whose first one turned out unreadable.
//!
//! A damaged frame says nothing about the other frames of its container, so what is passed over is
//! the single instance of the single chunk, and everything else in the container stays in use. The
//! index is opened only once something was lost.
//!
//! If no instance is left, the index catches up with the collections that ran meanwhile and may
//! have moved the chunk, as often as there were some (protocol, R1: [`crate::index::current`]).

use super::Location;
use crate::container::reader;
use crate::index::current::{CATCH_UPS_MAX, changes_too_often};
use crate::index::{ChunkIndex, FingerprintIndex};
use crate::repository::Repository;
use lru::LruCache;
use onefold_format::container::MetadataSection;
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

const SECTIONS_KEPT: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// Knows which instances of chunks could not be read, and finds others.
pub struct Relocator {
    index: Option<Arc<dyn ChunkIndex>>,
    /// Container, frame and place in the frame.
    bad: HashSet<(ContainerId, u32, u32)>,
    sections: LruCache<ContainerId, Arc<MetadataSection>>,
}

impl Default for Relocator {
    fn default() -> Self {
        Self { index: None, bad: HashSet::new(), sections: LruCache::new(SECTIONS_KEPT) }
    }
}

impl Relocator {
    /// Notes that an instance could not be read.
    pub fn add_bad(&mut self, container: ContainerId, frame: u32, chunk_offset: u32) {
        self.bad.insert((container, frame, chunk_offset));
    }

    /// Whether this instance is known to be unreadable.
    #[must_use]
    pub fn is_bad(&self, location: &Location) -> bool {
        let chunk = location.descriptor();
        !self.bad.is_empty() && self.bad.contains(&(location.container, chunk.frame, chunk.offset))
    }

    /// An instance that is not known to be bad; `None` if there is none.
    pub fn locate(
        &mut self,
        repository: &Arc<Repository>,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Location>> {
        for _ in 0..CATCH_UPS_MAX {
            let index = match &self.index {
                Some(index) => Arc::clone(index),
                None => Arc::clone(self.index.insert(FingerprintIndex::shared(repository)?)),
            };
            let generation = index.generation();
            if let Some(location) = self.locate_indexed(repository, &*index, fingerprint)? {
                return Ok(Some(location));
            }
            if !index.catch_up(repository, generation)? {
                return Ok(None);
            }
        }
        Err(changes_too_often(fingerprint))
    }

    fn locate_indexed(
        &mut self,
        repository: &Arc<Repository>,
        index: &dyn ChunkIndex,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Location>> {
        let mut reads = 0;
        for container in index.locate(repository, fingerprint, &mut reads)? {
            let section = match self.sections.get(&container) {
                Some(section) => Arc::clone(section),
                None => match reader::read_section(repository, container) {
                    Ok(section) => {
                        let section = Arc::new(section);
                        self.sections.put(container, Arc::clone(&section));
                        section
                    }
                    // Another instance may be readable.
                    Err(error) if error.is_unreadable() => continue,
                    Err(error) => return Err(error),
                },
            };
            let bad = &self.bad;
            let position = section.chunks.iter().position(|chunk| {
                chunk.fingerprint == *fingerprint
                    && !bad.contains(&(container, chunk.frame, chunk.offset))
            });
            if let Some(position) = position {
                return Ok(Some(Location { container, section, position: position as u32 }));
            }
        }
        Ok(None)
    }
}
