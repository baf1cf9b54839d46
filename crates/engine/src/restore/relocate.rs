//! Finds other instances of chunks whose first one turned out unreadable.
//!
//! A damaged frame says nothing about the other frames of its container, so what is passed over is
//! the single instance of the single chunk, and everything else in the container stays in use. The
//! index is opened apart from the reader's, and only once something was lost.
//!
//! If no instance is left, the index is read again and what it does not cover is replayed, once
//! (protocol, R1): a collection that ran meanwhile may have moved the chunk.

use crate::container::reader;
use crate::index::{FingerprintIndex, rebuild};
use crate::job::Job;
use crate::repository::Repository;
use crate::tree::Location;
use lru::LruCache;
use onefold_format::container::MetadataSection;
use onefold_types::{ContainerId, ErrorKind, Fingerprint, Result};
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

const SECTIONS_KEPT: NonZeroUsize = NonZeroUsize::new(16).unwrap();

/// Knows which instances of chunks could not be read, and finds others.
pub struct Relocator {
    index: Option<FingerprintIndex>,
    replayed: bool,
    /// Container, frame and place in the frame.
    bad: HashSet<(ContainerId, u32, u32)>,
    sections: LruCache<ContainerId, Arc<MetadataSection>>,
}

impl Default for Relocator {
    fn default() -> Self {
        Self {
            index: None,
            replayed: false,
            bad: HashSet::new(),
            sections: LruCache::new(SECTIONS_KEPT),
        }
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

    /// Reads the index again before the next look-up: containers may have been replaced.
    pub fn refresh(&mut self, repository: &Repository) -> Result<()> {
        match &mut self.index {
            Some(index) => index.refresh(repository),
            None => {
                self.index = Some(FingerprintIndex::open(repository)?);
                Ok(())
            }
        }
    }

    /// An instance that is not known to be bad; `None` if there is none.
    pub fn locate(
        &mut self,
        repository: &Arc<Repository>,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Location>> {
        if self.index.is_none() {
            self.refresh(repository)?;
        }
        if let Some(location) = self.locate_indexed(repository, fingerprint)? {
            return Ok(Some(location));
        }
        if self.replayed {
            return Ok(None);
        }
        self.replayed = true;
        if let Some(index) = &self.index {
            let (job, _) = Job::unattended();
            match rebuild::replay(repository, index, &job) {
                Ok(_) => {}
                // A store that may not be written is read without mending its index.
                Err(error) if error.kind() == ErrorKind::ReadOnly => {}
                Err(error) => return Err(error),
            }
        }
        self.refresh(repository)?;
        self.locate_indexed(repository, fingerprint)
    }

    fn locate_indexed(
        &mut self,
        repository: &Arc<Repository>,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Location>> {
        let Some(index) = &mut self.index else {
            return Ok(None);
        };
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
                    Err(error) if error.is_damage() => continue,
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
