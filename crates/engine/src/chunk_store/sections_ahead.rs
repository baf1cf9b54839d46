//! Sections of containers that a stream meets; in stores that are far away those of the next
//! containers are read beside one that is wanted.
//!
//! A stream meets its duplicates mostly in the order in which they were stored (FAST'08, section
//! 4.2), and names of containers rise with time: after one container the next ones are wanted. In a
//! far store each of them takes as long as the way there and back, so that an increment waited for
//! one after the other.
//!
//! # Invariants
//! A container counts only if it was seen to exist in this session, as rule W5 asks
//! ([`SeenContainers`]): then its section may be one that this machine has kept; else it is read
//! from the container itself. Of what cannot be read ahead nothing is said: whoever wants it reads
//! it, and hears why.
//!
//! Memory: [`AHEAD_MAX`] sections that are not long (64 KiB): some megabytes, also while they are
//! read. Long ones are read when they are wanted.

use crate::container::reader;
use crate::container::seen::SeenContainers;
use crate::repository::Repository;
use onefold_format::container::MetadataSection;
use onefold_types::{ContainerId, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Sections that are read at once.
pub const AHEAD_MAX: usize = 8;

/// Sections that were read and not wanted yet.
pub struct SectionsAhead {
    seen: Arc<SeenContainers>,
    kept: BTreeMap<ContainerId, Arc<MetadataSection>>,
}

impl SectionsAhead {
    /// For a session that has seen these containers: none in stores that are near.
    #[must_use]
    pub fn of(seen: &Arc<SeenContainers>) -> Self {
        Self { seen: Arc::clone(seen), kept: BTreeMap::new() }
    }

    /// A section that was read already.
    pub fn take(&mut self, container: ContainerId) -> Option<Arc<MetadataSection>> {
        self.kept.remove(&container)
    }

    /// Reads a section, and keeps those of the next containers that are wanted.
    ///
    /// Errors: those of the section itself.
    pub fn read(
        &mut self,
        repository: &Repository,
        container: ContainerId,
        is_wanted: &dyn Fn(&ContainerId) -> bool,
    ) -> Result<Arc<MetadataSection>> {
        let is_seen = self.seen.holds(container);
        let wanted = if is_seen { reader::peek_section } else { reader::read_section };
        let listed = self.seen.listed();
        let behind = listed.partition_point(|id| *id <= container);
        let next = listed.get(behind..).unwrap_or_default();
        let next: Vec<ContainerId> =
            next.iter().take(AHEAD_MAX - 1).filter(|id| is_wanted(id)).copied().collect();
        self.kept.clear();
        if next.is_empty() {
            return wanted(repository, container).map(Arc::new);
        }
        std::thread::scope(|scope| {
            let read = |id: ContainerId| move || reader::peek_short_section(repository, id);
            let reading: Vec<_> = next.iter().map(|id| (*id, scope.spawn(read(*id)))).collect();
            let section = wanted(repository, container);
            for (id, reading) in reading {
                if let Ok(Ok(section)) = reading.join() {
                    self.kept.insert(id, Arc::new(section));
                }
            }
            section.map(Arc::new)
        })
    }
}
