//! Finds chunks for a check: in which container, whether that is sound, and what a node says.
//!
//! Other than the reader that restores, it relies on nothing that the check has found wrong, writes
//! nothing (it does not mend the index), and tells apart a chunk in a sound container, one that can
//! still be read out of a damaged container, and one that is lost. Containers that no sound run
//! covers are looked through once, when a chunk is not found otherwise.
//!
//! Memory: two caches and the supplement have fixed shares of the plan. If the supplement does not
//! fit, chunks that are not found are [`Found::Unknown`], and the report says that the index must
//! be made anew before the check can tell.

use super::containers::{Damage, Inventory};
use super::index::Coverage;
use crate::container::frame::FrameOpener;
use crate::container::reader::{self, FrameReader};
use crate::index::FingerprintIndex;
use crate::index::run_list::list_runs;
use crate::memory::Lease;
use crate::repository::Repository;
use lru::LruCache;
use onefold_format::container::{ChunkDescriptor, MetadataSection};
use onefold_format::node::{Node, Reference};
use onefold_policy::locality_cache::LocalityCache;
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Level, Result, RunId};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// How often a chunk that is not found makes the index be opened again.
const REFRESHES_MAX: u32 = 16;
/// Decoded frames of nodes that are kept; a frame is a quarter of a MiB as a rule.
const FRAMES_KEPT: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// Where an instance of a chunk lies.
pub struct Place {
    /// The container.
    pub container: ContainerId,
    section: Arc<MetadataSection>,
    position: usize,
}

impl Place {
    /// The chunk's descriptor.
    pub fn descriptor(&self) -> &ChunkDescriptor {
        &self.section.chunks[self.position]
    }
}

/// What became of a chunk.
pub enum Found {
    /// It is in a container without damage.
    Sound(Place),
    /// It can be read, but only out of a damaged container.
    Rescuable(Place),
    /// It cannot be read. These containers may have held it.
    Lost(Vec<ContainerId>),
    /// The index is damaged too much to tell.
    Unknown,
}

/// What became of a node.
pub enum FoundNode {
    /// The node, and the damaged container that it is in, if it is in one.
    Node(Node, Option<ContainerId>),
    /// It cannot be read: why, and the containers that may have held it.
    Lost(String, Vec<ContainerId>),
    /// It is there and is not what it should be.
    Wrong(String),
    /// The index is damaged too much to tell.
    Unknown,
}

/// Entries of containers that no sound run covers: (prefix, place in `containers`), sorted.
struct Supplement {
    containers: Vec<ContainerId>,
    entries: Vec<(u64, u32)>,
    is_complete: bool,
}

/// Finds chunks. Used by one thread at a time.
pub struct Resolver {
    repository: Arc<Repository>,
    /// The state of the containers, with what was found on the way.
    pub inventory: Inventory,
    /// What the index is relied upon for.
    pub coverage: Coverage,
    index: Arc<FingerprintIndex>,
    /// The runs in the store when the index was opened.
    runs: Vec<RunId>,
    supplement: Option<Supplement>,
    cache: LocalityCache,
    sections: LruCache<ContainerId, Arc<MetadataSection>>,
    section_chunks: usize,
    section_chunks_max: usize,
    /// Held as long as the caches are.
    _lease: Lease,
    frames: LruCache<(ContainerId, u32), Arc<Vec<u8>>>,
    opener: FrameOpener,
    refreshes_left: u32,
}

impl Resolver {
    /// Opens the index.
    pub fn new(
        repository: &Arc<Repository>,
        inventory: Inventory,
        coverage: Coverage,
    ) -> Result<Self> {
        let lease = repository.purse().take(repository.memory().section_cache_bytes / 2 * 5);
        Ok(Self {
            repository: Arc::clone(repository),
            inventory,
            coverage,
            runs: list_runs(repository)?,
            index: FingerprintIndex::shared(repository)?,
            supplement: None,
            // As many fingerprints as there are descriptors in the other cache.
            cache: LocalityCache::new(lease.bytes() / 5 * 3),
            sections: LruCache::unbounded(),
            section_chunks: 0,
            section_chunks_max: lease.bytes() / 5 * 2 / size_of::<ChunkDescriptor>(),
            _lease: lease,
            frames: LruCache::new(FRAMES_KEPT),
            opener: FrameOpener::new()?,
            refreshes_left: REFRESHES_MAX,
        })
    }

    /// Whether something could not be told because the index is damaged too much.
    pub fn is_blind(&self) -> bool {
        self.supplement.as_ref().is_some_and(|supplement| !supplement.is_complete)
    }

    /// Finds a chunk.
    pub fn find(&mut self, fingerprint: &Fingerprint) -> Result<Found> {
        if let Some(instance) = self.cache.lookup(fingerprint) {
            if let Some(section) = self.section(instance.container)? {
                return Ok(Found::Sound(Place {
                    container: instance.container,
                    section,
                    position: instance.position as usize,
                }));
            }
            self.cache.remove(instance.container);
        }
        loop {
            let candidates = self.candidates(fingerprint.prefix())?;
            let found = self.choose(fingerprint, candidates)?;
            if !matches!(found, Found::Lost(_)) {
                return Ok(found);
            }
            let runs = list_runs(&self.repository)?;
            if runs != self.runs && self.refreshes_left > 0 {
                self.refreshes_left -= 1;
                self.index.refresh(&self.repository)?;
                self.runs = runs;
                continue;
            }
            return Ok(match self.is_blind() {
                true => Found::Unknown,
                false => found,
            });
        }
    }

    /// The best of several containers that may hold a chunk.
    fn choose(&mut self, fingerprint: &Fingerprint, candidates: Vec<ContainerId>) -> Result<Found> {
        let mut unsound = Vec::new();
        for container in candidates {
            if self.inventory.damaged.contains_key(&container) {
                unsound.push(container);
                continue;
            }
            let Some(section) = self.section(container)? else {
                unsound.push(container);
                continue;
            };
            if let Some(position) = position_of(&section, fingerprint) {
                let fingerprints = section.chunks.iter().map(|chunk| chunk.fingerprint);
                self.cache.insert(container, fingerprints.collect());
                return Ok(Found::Sound(Place { container, section, position }));
            }
        }
        for container in &unsound {
            if let Some(place) = self.rescue(fingerprint, *container)? {
                return Ok(Found::Rescuable(place));
            }
        }
        Ok(Found::Lost(unsound))
    }

    /// The chunk in an undamaged frame of a damaged container.
    fn rescue(
        &mut self,
        fingerprint: &Fingerprint,
        container: ContainerId,
    ) -> Result<Option<Place>> {
        let is_partial = |damage: &Damage| !damage.is_total();
        if !self.inventory.damaged.get(&container).is_some_and(is_partial) {
            return Ok(None);
        }
        let Some(section) = self.section(container)? else {
            return Ok(None);
        };
        let position = position_of(&section, fingerprint).filter(|&position| {
            let frame = section.chunks[position].frame;
            let damage = self.inventory.damaged.get(&container);
            damage.is_some_and(|damage| damage.spares(frame))
        });
        Ok(position.map(|position| Place { container, section, position }))
    }

    /// The containers that may hold a chunk, newest first.
    fn candidates(&mut self, prefix: u64) -> Result<Vec<ContainerId>> {
        // A run that was merged meanwhile, or is damaged and has been reported, is passed over:
        // what it covers is looked through below if the chunk is nowhere else.
        let mut found = self.index.locate_where_readable(&self.repository, prefix)?;
        let has_sound = |id: &ContainerId| {
            self.inventory.contents.contains_key(id) && !self.inventory.damaged.contains_key(id)
        };
        if !found.iter().any(has_sound) {
            self.add_supplement(prefix, &mut found)?;
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        Ok(found)
    }

    fn add_supplement(&mut self, prefix: u64, found: &mut Vec<ContainerId>) -> Result<()> {
        if self.supplement.is_none() {
            self.supplement = Some(self.read_supplement()?);
        }
        if let Some(Supplement { containers, entries, .. }) = &self.supplement {
            let start = entries.partition_point(|entry| entry.0 < prefix);
            let same = entries[start..].iter().take_while(|entry| entry.0 == prefix);
            found.extend(same.map(|entry| containers[entry.1 as usize]));
        }
        Ok(())
    }

    fn read_supplement(&mut self) -> Result<Supplement> {
        let entries_max = self.repository.memory().check_buffer_bytes / size_of::<(u64, u32)>();
        let mut supplement =
            Supplement { containers: Vec::new(), entries: Vec::new(), is_complete: true };
        let covered = &self.coverage.covered;
        let contents = self.inventory.contents.keys();
        let not_covered: Vec<_> = contents.filter(|id| !covered.contains(id)).collect();
        for id in not_covered {
            if supplement.entries.len() > entries_max {
                supplement.is_complete = false;
                break;
            }
            let section = match reader::read_section(&self.repository, *id) {
                Ok(section) => section,
                Err(error) if error.is_damage() => continue,
                Err(error) => return Err(error),
            };
            let number = supplement.containers.len() as u32;
            supplement.containers.push(*id);
            let chunks = section.chunks.iter();
            supplement.entries.extend(chunks.map(|chunk| (chunk.fingerprint.prefix(), number)));
        }
        supplement.entries.sort_unstable();
        Ok(supplement)
    }

    /// The section of a container, or `None` if it is gone or cannot be read. Containers that
    /// were written after the inventory are read here for the first time.
    fn section(&mut self, container: ContainerId) -> Result<Option<Arc<MetadataSection>>> {
        if let Some(section) = self.sections.get(&container) {
            return Ok(Some(Arc::clone(section)));
        }
        match reader::read_section(&self.repository, container) {
            Ok(section) => {
                let section = Arc::new(section);
                self.section_chunks += section.chunks.len();
                self.sections.put(container, Arc::clone(&section));
                while self.section_chunks > self.section_chunks_max && self.sections.len() > 1 {
                    if let Some((_, old)) = self.sections.pop_lru() {
                        self.section_chunks -= old.chunks.len();
                    }
                }
                Ok(Some(section))
            }
            Err(error) if error.is_damage() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a node. A frame that cannot be read is remembered as damage, and other instances are
    /// tried; each turn adds a damaged frame, so this ends.
    pub fn node(&mut self, reference: Reference) -> Result<FoundNode> {
        let mut problem = None;
        loop {
            let (place, is_sound) = match self.find(&reference.fingerprint)? {
                Found::Sound(place) => (place, true),
                Found::Rescuable(place) => (place, false),
                Found::Unknown => return Ok(FoundNode::Unknown),
                Found::Lost(held_by) => {
                    let problem = problem.unwrap_or_else(|| lost(&reference.fingerprint));
                    return Ok(FoundNode::Lost(problem, held_by));
                }
            };
            let container = (!is_sound).then_some(place.container);
            match self.read(&place) {
                Ok(bytes) => {
                    return match Node::decode(&bytes) {
                        Ok(node) => Ok(match level_problem(&node, reference) {
                            None => FoundNode::Node(node, container),
                            Some(problem) => FoundNode::Wrong(problem),
                        }),
                        Err(error) if error.kind() == ErrorKind::NewerFormat => Err(error),
                        Err(error) => Ok(FoundNode::Wrong(error.to_string())),
                    };
                }
                Err(error) if error.is_unreadable() => {
                    let frame = place.descriptor().frame;
                    self.set_damaged(place.container, frame, &error);
                    problem = Some(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn set_damaged(&mut self, container: ContainerId, frame: u32, error: &Error) {
        self.cache.remove(container);
        let damage = self.inventory.damaged.entry(container);
        let damage = damage.or_insert_with(|| Damage {
            problem: error.to_string(),
            frames: Some(BTreeSet::new()),
        });
        if let Some(frames) = &mut damage.frames {
            frames.insert(frame);
        }
    }

    fn read(&mut self, place: &Place) -> Result<Vec<u8>> {
        let chunk = *place.descriptor();
        let key = (place.container, chunk.frame);
        let frame = match self.frames.get(&key) {
            Some(frame) => Arc::clone(frame),
            None => {
                let descriptor = place.section.frames[chunk.frame as usize];
                let reader = FrameReader::new(&self.repository, place.container)?;
                let mut sealed = Vec::new();
                reader.read(&self.repository, &[descriptor], &mut sealed)?;
                let opener = &mut self.opener;
                let plain = reader.open(opener, chunk.frame, &descriptor, &mut sealed)?;
                let plain = Arc::new(plain.to_vec());
                self.frames.put(key, Arc::clone(&plain));
                plain
            }
        };
        let start = chunk.offset as usize;
        let bytes = frame
            .get(start..start + chunk.length as usize)
            .ok_or_else(|| Error::damaged("a chunk reaches beyond its frame"))?;
        if self.repository.fingerprinter().node(bytes) != chunk.fingerprint {
            return Err(Error::damaged(format!(
                "node {} in container {} does not have its fingerprint",
                chunk.fingerprint, place.container
            )));
        }
        Ok(bytes.to_vec())
    }
}

fn position_of(section: &MetadataSection, fingerprint: &Fingerprint) -> Option<usize> {
    let mut chunks = section.chunks.iter();
    chunks.position(|chunk| chunk.fingerprint == *fingerprint)
}

/// The sentence about a chunk that is nowhere.
pub fn lost(fingerprint: &Fingerprint) -> String {
    format!("chunk {fingerprint} is in no readable container")
}

/// A node's level must be one more than its highest child's: collection scans by level, and a walk
/// that goes down cannot go in circles.
fn level_problem(node: &Node, reference: Reference) -> Option<String> {
    let mut highest = Level::DATA;
    node.references(&mut |child| highest = highest.max(child.level));
    if let Node::FileMap(map) = node {
        // A map of holes alone refers to nothing and still has the level of its place.
        highest = map.child_level;
    }
    let fingerprint = reference.fingerprint;
    (highest.parent() != Some(reference.level))
        .then(|| format!("node {fingerprint} is of another level than its children say"))
}
