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
//! A base that only missing containers have is a loss, which stops the collection, unless every
//! live chunk that is made of it has another instance that needs none of what is missing: one that
//! was stored again since, by a backup or by healing.
//!
//! # Invariants
//! A delta that is dead pins nothing: what finds it later must show its bases before it counts as
//! there ([`crate::chunk_store::bases`]).

use super::inventory::{Inventory, InventoryItem};
use super::live_set::Marks;
use crate::job::Job;
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_format::container::{DELTA_DEPTH_MAX, MetadataSection};
use onefold_policy::collection::live_filter::LiveFilter;
use onefold_types::{ContainerId, Fingerprint, Result, limits};
use std::collections::BTreeSet;

/// Questions about deltas that are put at once.
const ASKED_MAX: usize = 1 << 16;
/// The least that a filter of chunks takes.
const SOME_CHUNKS_MIN_BYTES: usize = 64 * limits::KIB;

/// Live deltas without their bases for which other instances are looked for at once.
pub const ROOTLESS_AT_ONCE: usize = 1 << 16;

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
    held: Vec<Link>,
    links_max: usize,
    deepest: u8,
    is_cut: bool,
}

impl Links {
    /// Nothing is known yet; so many bytes may be.
    #[must_use]
    pub fn with_memory(bytes: usize) -> Self {
        Self { links_max: bytes / size_of::<Link>(), ..Self::default() }
    }

    /// Notes the deltas of a section.
    pub fn note(&mut self, section: &MetadataSection) {
        for link in links_of(section) {
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

fn links_of(section: &MetadataSection) -> impl Iterator<Item = Link> + '_ {
    section.deltas.iter().flat_map(|delta| {
        let chunk = section.chunks.get(delta.chunk as usize);
        chunk.into_iter().flat_map(move |chunk| {
            let of_base = move |base: &onefold_format::container::Base| Link {
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
    let mut round = Round {
        asked: Vec::new(),
        depth: 0,
        deepest: 0,
        rootless: BTreeSet::new(),
        others: &|rootless, marks| forgive_others(repository, inventory, rootless, marks, job),
    };
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
                inventory.scan(repository, &is_known, job, &mut |_, section| {
                    for link in links_of(section) {
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
    round.settle(marks)?;
    Ok(pinned)
}

/// Takes out those of the chunks that have an instance which needs nothing that is missing.
fn forgive_others(
    repository: &Repository,
    inventory: &Inventory,
    rootless: &mut BTreeSet<u64>,
    marks: &Marks,
    job: &Job,
) -> Result<()> {
    let is_holder = |container: &InventoryItem| container.indexed && container.sound;
    inventory.scan(repository, &is_holder, job, &mut |_, section| {
        for (position, chunk) in (0..).zip(&section.chunks) {
            let prefix = chunk.fingerprint.prefix();
            let bases = section.delta_at(position).into_iter().flat_map(|delta| &delta.bases);
            if rootless.contains(&prefix)
                && bases.into_iter().all(|base| !marks.is_lost(base.fingerprint.prefix()))
            {
                rootless.remove(&prefix);
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// Takes out those of some deltas that have another instance.
type Others<'a> = &'a dyn Fn(&mut BTreeSet<u64>, &Marks) -> Result<()>;

/// The deltas of one depth.
struct Round<'a> {
    asked: Vec<Link>,
    depth: u8,
    /// The deepest that was met.
    deepest: u8,
    /// Live ones of any depth, an instance of which lacks a base.
    rootless: BTreeSet<u64>,
    others: Others<'a>,
}

impl Round<'_> {
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
            match marks.is_lost(link.base) {
                true => _ = self.rootless.insert(link.delta),
                false => marks.insert(link.base)?,
            }
        }
        if self.rootless.len() >= ROOTLESS_AT_ONCE {
            self.settle(marks)?;
        }
        Ok(pinned.len() as u64)
    }

    /// Counts as lost what no other instance makes up for.
    fn settle(&mut self, marks: &mut Marks) -> Result<()> {
        if !self.rootless.is_empty() {
            (self.others)(&mut self.rootless, marks)?;
            marks.lost_references += self.rootless.len() as u64;
            self.rootless.clear();
        }
        Ok(())
    }
}
