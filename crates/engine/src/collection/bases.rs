//! Liveness follows bases: what a live delta is made of is live, whether or not a snapshot needs
//! it.
//!
//! # Algorithm
//! The scan for nodes meets every section anyway, and notes for each delta its base ([`Links`]).
//! After the walk the links are gone through by depth, deepest first: the base of a live chunk is
//! marked. The base of an instance has one of a lower depth, so one pass a depth is enough. If the
//! links do not fit into their share of memory, or none were noted, the sections are scanned once
//! for each depth instead.
//!
//! Every instance of a live chunk counts, also one that will not be kept: a base too many is live,
//! never one too few.
//!
//! Which chunks are bases at all is asked about single chunks as well ([`MadeOf`]): only these must
//! not be left to an instance that is deeper.
//!
//! A base that is lost is marked by nobody: whether what is made of it is lost as well was found
//! out before ([`super::losses`]). An instance that cannot be made, of a chunk that another one
//! makes up for, is passed over with all its bases.
//!
//! # Invariants
//! A delta that is dead pins nothing: what finds it later must show its bases before it counts as
//! there ([`crate::chunk_store::bases`]).

use super::inventory::{Inventory, InventoryItem};
use super::live_set::Marks;
use super::losses::Losses;
use crate::job::Job;
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_format::container::{Base, DELTA_DEPTH_MAX, Delta, MetadataSection};
use onefold_policy::collection::live_filter::LiveFilter;
use onefold_types::{ContainerId, Fingerprint, Result, limits};
use std::sync::Arc;

/// Questions about deltas that are put at once.
const ASKED_MAX: usize = 1 << 16;
/// The least that a filter of chunks takes.
const SOME_CHUNKS_MIN_BYTES: usize = 64 * limits::KIB;

/// A delta and one of its bases, by their prefixes.
#[derive(Clone, Copy, Debug)]
struct Link {
    depth: u8,
    delta: u64,
    base: u64,
}

/// The links of all deltas, as far as they fit into memory.
#[derive(Debug, Default)]
pub struct Links {
    losses: Arc<Losses>,
    held: Vec<Link>,
    links_max: usize,
    deepest: u8,
    is_cut: bool,
}

impl Links {
    /// Nothing is known yet; so many bytes may be.
    #[must_use]
    pub fn with_memory(bytes: usize, losses: &Arc<Losses>) -> Self {
        let (losses, links_max) = (Arc::clone(losses), bytes / size_of::<Link>());
        Self { losses, links_max, ..Self::default() }
    }

    /// Notes the deltas of a container.
    pub fn note(&mut self, container: ContainerId, section: &MetadataSection) {
        for link in links_of(container, section, &self.losses) {
            self.deepest = self.deepest.max(link.depth);
            match self.held.len() < self.links_max {
                true => self.held.push(link),
                false => self.is_cut = true,
            }
        }
    }

    /// Memory taken, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        self.held.capacity() * size_of::<Link>()
    }
}

fn links_of<'s>(
    container: ContainerId,
    section: &'s MetadataSection,
    losses: &'s Losses,
) -> impl Iterator<Item = Link> + 's {
    let needed = move |delta: &&Delta| !losses.needs_no_bases(container, delta.chunk);
    section.deltas.iter().filter(needed).flat_map(|delta| {
        let chunk = section.chunks.get(delta.chunk as usize);
        chunk.into_iter().flat_map(move |chunk| {
            let of_base = move |base: &Base| Link {
                depth: delta.depth,
                delta: chunk.fingerprint.prefix(),
                base: base.fingerprint.prefix(),
            };
            delta.bases.iter().map(of_base)
        })
    })
}

/// Some chunks, and perhaps some more, in a part of the memory.
pub struct SomeChunks {
    filter: LiveFilter,
    _lease: Lease,
}

impl SomeChunks {
    /// None yet: what does not fit in makes it name more by mistake.
    pub fn new(repository: &Repository) -> Result<Self> {
        let lease = repository.purse().take(repository.memory().similarity_bytes);
        let bytes = lease.bytes().max(SOME_CHUNKS_MIN_BYTES);
        let mut seed = [0; 8];
        repository.environment().randomness.fill(&mut seed);
        let filter = LiveFilter::with_memory(bytes as u64, bytes, u64::from_le_bytes(seed))?;
        Ok(Self { filter, _lease: lease })
    }

    /// Notes a chunk.
    pub fn insert(&mut self, chunk: &Fingerprint) {
        self.filter.insert(chunk.prefix());
    }

    /// Whether it may be one of them; `false` is certain.
    #[must_use]
    pub fn contains(&self, chunk: &Fingerprint) -> bool {
        self.filter.contains(chunk.prefix())
    }
}

/// The chunks that deltas are made of, and perhaps some more.
pub struct MadeOf(SomeChunks);

impl MadeOf {
    /// None yet.
    pub fn new(repository: &Repository) -> Result<Self> {
        SomeChunks::new(repository).map(Self)
    }

    /// Those of all deltas in the store, live or not, but in these containers, which rise.
    pub fn of_all_but(
        without: &[ContainerId],
        repository: &Repository,
        inventory: &Inventory,
        job: &Job,
    ) -> Result<Self> {
        let mut all = Self::new(repository)?;
        let is_wanted = |container: &InventoryItem| {
            is_known(container) && without.binary_search(&container.id).is_err()
        };
        inventory.scan(repository, &is_wanted, job, &mut |_, section| {
            all.note(section);
            Ok(())
        })?;
        Ok(all)
    }

    /// Notes what the deltas of a section are made of.
    pub fn note(&mut self, section: &MetadataSection) {
        let bases = section.deltas.iter().flat_map(|delta| &delta.bases);
        bases.for_each(|base| self.insert(&base.fingerprint));
    }

    /// Notes a base.
    pub fn insert(&mut self, base: &Fingerprint) {
        self.0.insert(base);
    }

    /// Whether something may be made of the chunk; `false` is certain.
    #[must_use]
    pub fn contains(&self, chunk: &Fingerprint) -> bool {
        self.0.contains(chunk)
    }
}

/// Whether somebody may find the deltas of a container.
pub fn is_known(container: &InventoryItem) -> bool {
    container.indexed || container.eligible
}

/// Marks the bases of all live deltas; says how many there are that nothing else needs, as far as
/// that is known.
pub fn mark(
    repository: &Repository,
    inventory: &Inventory,
    links: Option<Links>,
    marks: &mut Marks,
    job: &Job,
) -> Result<u64> {
    let (deepest, held) = match links {
        Some(links) if !links.is_cut => (links.deepest, Some(links.held)),
        Some(links) => (links.deepest, None),
        None => (DELTA_DEPTH_MAX, None),
    };
    let mut pinned = 0;
    let losses = Arc::clone(marks.losses());
    let mut round = Round { asked: Vec::new(), depth: 0, deepest: 0 };
    let mut depth = deepest;
    while depth > 0 {
        round.depth = depth;
        depth -= 1;
        match &held {
            Some(links) => {
                for link in links {
                    pinned += round.note(*link, marks)?;
                }
            }
            None => {
                inventory.scan(repository, &is_known, job, &mut |ordinal, section| {
                    let container = inventory.containers.get(ordinal).map(|one| one.id);
                    let links = container.map(|id| links_of(id, section, &losses));
                    for link in links.into_iter().flatten() {
                        pinned += round.note(link, marks)?;
                    }
                    Ok(())
                })?;
                // Nothing is deeper than what was met.
                depth = depth.min(round.deepest);
            }
        }
        pinned += round.ask(marks)?;
    }
    Ok(pinned)
}

/// The deltas of one depth.
struct Round {
    asked: Vec<Link>,
    depth: u8,
    /// The deepest that was met.
    deepest: u8,
}

impl Round {
    fn note(&mut self, link: Link, marks: &mut Marks) -> Result<u64> {
        self.deepest = self.deepest.max(link.depth);
        if link.depth != self.depth {
            return Ok(0);
        }
        self.asked.push(link);
        match self.asked.len() as u64 >= (marks.prepared_max() / 2).min(ASKED_MAX as u64) {
            true => self.ask(marks),
            false => Ok(0),
        }
    }

    /// Marks the bases of what is live of it.
    fn ask(&mut self, marks: &mut Marks) -> Result<u64> {
        let prefixes = self.asked.iter().flat_map(|link| [link.delta, link.base]);
        marks.prepare_for(prefixes)?;
        self.asked.retain(|link| marks.contains(link.delta));
        let is_pinned = |link: &&Link| !marks.contains(link.base);
        let mut pinned: Vec<u64> =
            self.asked.iter().filter(is_pinned).map(|link| link.base).collect();
        pinned.sort_unstable();
        pinned.dedup();
        for link in self.asked.drain(..) {
            if !marks.is_lost(link.base) {
                marks.insert(link.base)?;
            }
        }
        Ok(pinned.len() as u64)
    }
}
