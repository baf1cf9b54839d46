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
use crate::chunk_store::prefix_hasher::PrefixHasher;
use crate::chunks::{ChunkReader, Location};
use crate::container::reader;
use crate::index::ChunkIndex;
use crate::repository::Repository;
use onefold_format::container::Base;
use onefold_format::node::{Node, Reference};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Level, Result};
use std::collections::{BTreeSet, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

/// How often a chunk that is not found makes the index be opened again.
const REFRESHES_MAX: u32 = 16;
/// Bases that are remembered as sound: two megabytes.
const SOUND_BASES_MAX: usize = 1 << 15;

/// Whether what was found can be made.
#[derive(PartialEq, Eq)]
enum Made {
    /// Out of containers without damage.
    Sound,
    /// Out of damaged ones.
    Rescuable,
    /// It cannot; these containers may have held what is missing.
    Lost(Vec<ContainerId>),
}

/// What became of a chunk.
pub enum Found {
    /// It is in a container without damage.
    Sound(Location),
    /// It can be read, but only out of a damaged container.
    Rescuable(Location),
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

/// Entries of containers that no sound run covers: (prefix, index in `containers`), sorted.
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
    index: Arc<dyn ChunkIndex>,
    reader: ChunkReader,
    /// Whole chunks in sound containers that deltas are made of.
    sound_bases: HashSet<Fingerprint, BuildHasherDefault<PrefixHasher>>,
    supplement: Option<Supplement>,
    refreshes_left: u32,
}

impl Resolver {
    /// Opens the index.
    pub fn new(
        repository: &Arc<Repository>,
        inventory: Inventory,
        coverage: Coverage,
    ) -> Result<Self> {
        let reader = ChunkReader::of_check(repository)?;
        Ok(Self {
            repository: Arc::clone(repository),
            inventory,
            coverage,
            index: Arc::clone(reader.index()),
            reader,
            sound_bases: HashSet::default(),
            supplement: None,
            refreshes_left: REFRESHES_MAX,
        })
    }

    /// Reads the sections of the newest containers, several at once, where that spares waiting for
    /// one after the other.
    pub fn read_sections(&self) {
        if self.repository.store().puts_at_once() > 1 {
            let newest: Vec<ContainerId> = self.inventory.contents.keys().rev().copied().collect();
            self.reader.read_sections(&newest, self.repository.environment().readers);
        }
    }

    /// Whether something could not be told because the index is damaged too much.
    pub fn is_blind(&self) -> bool {
        self.supplement.as_ref().is_some_and(|supplement| !supplement.is_complete)
    }

    /// Finds a chunk.
    pub fn find(&mut self, fingerprint: &Fingerprint) -> Result<Found> {
        // Containers leave the caches when damage is found in them.
        if let Some(location) = self.reader.known(fingerprint)?
            && self.made(&location)? == Made::Sound
        {
            return Ok(Found::Sound(location));
        }
        loop {
            let candidates = self.candidates(fingerprint)?;
            let found = self.choose(fingerprint, candidates)?;
            if !matches!(found, Found::Lost(_)) {
                return Ok(found);
            }
            if self.refreshes_left > 0 && self.index.refresh(&self.repository)? {
                self.refreshes_left -= 1;
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
        let (mut unsound, mut rescuable) = (Vec::new(), None);
        for container in candidates {
            let is_damaged = self.inventory.damaged.contains_key(&container);
            if is_damaged || self.reader.section(container)?.is_none() {
                unsound.push(container);
            } else if let Some(location) = self.reader.locate_in(container, fingerprint)? {
                match self.made(&location)? {
                    Made::Sound => return Ok(Found::Sound(location)),
                    Made::Rescuable => rescuable = Some(location),
                    Made::Lost(of) => unsound.extend(of),
                }
            }
        }
        for container in unsound.clone() {
            if let Some(location) = self.rescue(fingerprint, container)?
                && !matches!(self.made(&location)?, Made::Lost(_))
            {
                return Ok(Found::Rescuable(location));
            }
        }
        Ok(rescuable.map_or(Found::Lost(unsound), Found::Rescuable))
    }

    /// Whether what was found can be made: a whole chunk needs nothing else, a delta its bases, and
    /// these those of theirs.
    fn made(&mut self, location: &Location) -> Result<Made> {
        let Some(delta) = location.section.delta_at(location.position).cloned() else {
            return Ok(Made::Sound);
        };
        let mut made = Made::Sound;
        for base in &delta.bases {
            match self.base(base, delta.depth)? {
                Made::Sound => {}
                Made::Rescuable => made = Made::Rescuable,
                lost @ Made::Lost(_) => return Ok(lost),
            }
        }
        Ok(made)
    }

    /// The best instance of a base that is whole, or not as deep. Each turn of the recursion goes
    /// at least one instance down.
    fn base(&mut self, base: &Base, below_depth: u8) -> Result<Made> {
        if below_depth == 1 && self.sound_bases.contains(&base.fingerprint) {
            return Ok(Made::Sound);
        }
        let mut containers: Vec<ContainerId> = base.container.into_iter().collect();
        let (mut unsound, mut made, mut has_asked) = (Vec::new(), None, false);
        loop {
            for container in std::mem::take(&mut containers) {
                let is_sound = self.inventory.contents.contains_key(&container)
                    && !self.inventory.damaged.contains_key(&container);
                let location = match is_sound {
                    true => self.reader.locate_in(container, &base.fingerprint)?,
                    false => self.rescue(&base.fingerprint, container)?,
                };
                let Some(location) = location else {
                    unsound.extend((!is_sound).then_some(container));
                    continue;
                };
                if location.section.depth_at(location.position) >= below_depth {
                    continue;
                }
                match self.made(&location)? {
                    Made::Sound if is_sound => {
                        self.note_sound_base(base.fingerprint, below_depth);
                        return Ok(Made::Sound);
                    }
                    Made::Lost(of) => unsound.extend(of),
                    Made::Sound | Made::Rescuable => made = Some(Made::Rescuable),
                }
            }
            if has_asked {
                return Ok(made.unwrap_or(Made::Lost(unsound)));
            }
            has_asked = true;
            containers = self.candidates(&base.fingerprint)?;
        }
    }

    fn note_sound_base(&mut self, fingerprint: Fingerprint, below_depth: u8) {
        if below_depth != 1 {
            return;
        }
        if self.sound_bases.len() >= SOUND_BASES_MAX {
            self.sound_bases.clear();
        }
        self.sound_bases.insert(fingerprint);
    }

    /// The chunk in an undamaged frame of a damaged container.
    fn rescue(
        &self,
        fingerprint: &Fingerprint,
        container: ContainerId,
    ) -> Result<Option<Location>> {
        let Some(damage) = self.inventory.damaged.get(&container).filter(|one| !one.is_total())
        else {
            return Ok(None);
        };
        let Some(section) = self.reader.section(container)? else {
            return Ok(None);
        };
        let position = section
            .chunks
            .iter()
            .position(|chunk| chunk.fingerprint == *fingerprint && damage.spares(chunk.frame));
        let at = |position| Location { container, section, position: position as u32 };
        Ok(position.map(at))
    }

    /// The containers that may hold a chunk, newest first.
    fn candidates(&mut self, fingerprint: &Fingerprint) -> Result<Vec<ContainerId>> {
        // A run that was merged meanwhile, or is damaged and has been reported, is passed over:
        // what it covers is looked through below if the chunk is nowhere else.
        let mut found = self.index.locate_where_readable(&self.repository, fingerprint)?;
        let has_sound = |id: &ContainerId| {
            self.inventory.contents.contains_key(id) && !self.inventory.damaged.contains_key(id)
        };
        if !found.iter().any(has_sound) {
            self.add_supplement(fingerprint.prefix(), &mut found)?;
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
                Err(error) if error.is_lost() => continue,
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

    /// Reads a node. A frame that cannot be read is remembered as damage, and other instances are
    /// tried; each turn adds a damaged frame, so this ends.
    pub fn node(&mut self, reference: Reference) -> Result<FoundNode> {
        let mut problem = None;
        loop {
            let (location, is_sound) = match self.find(&reference.fingerprint)? {
                Found::Sound(location) => (location, true),
                Found::Rescuable(location) => (location, false),
                Found::Unknown => return Ok(FoundNode::Unknown),
                Found::Lost(held_by) => {
                    let problem = problem.unwrap_or_else(|| lost(&reference.fingerprint));
                    return Ok(FoundNode::Lost(problem, held_by));
                }
            };
            let container = (!is_sound).then_some(location.container);
            match self.reader.read_at(&location) {
                Ok(chunk) => {
                    return match Node::decode(&chunk) {
                        _ if !chunk.level.is_node() => {
                            Ok(FoundNode::Wrong(no_node(&reference.fingerprint)))
                        }
                        Ok(node) => Ok(match level_problem(&node, reference) {
                            None => FoundNode::Node(node, container),
                            Some(problem) => FoundNode::Wrong(problem),
                        }),
                        Err(error) if error.kind() == ErrorKind::NewerFormat => Err(error),
                        Err(error) => Ok(FoundNode::Wrong(error.to_string())),
                    };
                }
                // Deleted since its section was read: a collection is running, which has kept what
                // is needed. If it has not, the container is missing, and not damaged.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let chunk = *location.descriptor();
                    let (frame, offset) = (chunk.frame, chunk.offset);
                    self.reader.set_bad(location.container, frame, offset, error.kind());
                    self.inventory.contents.remove(&location.container);
                    self.sound_bases.clear();
                    problem = Some(error.to_string());
                }
                Err(error) if error.is_unreadable() => {
                    let frame = location.descriptor().frame;
                    self.set_damaged(location.container, frame, &error);
                    problem = Some(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn set_damaged(&mut self, container: ContainerId, frame: u32, error: &Error) {
        self.reader.forget(container);
        // Some may have been in it.
        self.sound_bases.clear();
        let damage = self.inventory.damaged.entry(container);
        let damage = damage.or_insert_with(|| Damage {
            problem: error.to_string(),
            frames: Some(BTreeSet::new()),
        });
        if let Some(frames) = &mut damage.frames {
            frames.insert(frame);
        }
    }
}

/// The sentence about a chunk that is nowhere.
pub fn lost(fingerprint: &Fingerprint) -> String {
    format!("chunk {fingerprint} is in no readable container")
}

fn no_node(fingerprint: &Fingerprint) -> String {
    format!("chunk {fingerprint} is no node")
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
