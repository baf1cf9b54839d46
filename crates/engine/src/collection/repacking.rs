//! Repacking: what backups stored in a hurry is packed anew, in the background.
//!
//! A collection that was told to repack also empties the containers that no collector has packed at
//! this level yet ([`MetadataSection::repacked_level`]), however live they are, and copies what is
//! live in them otherwise than usual:
//! - everything is compressed at the level asked for;
//! - what the newest snapshots need comes first, in their order, and whole chunks stay whole: their
//!   restores read no more than before;
//! - any other chunk that is like one already packed becomes a difference against that
//!   (stream-informed delta compression, Shilane et al., FAST'12, run backwards: the old is made of
//!   the new);
//! - differences that are there stay what they are.
//!
//! # What may be a base
//! A whole chunk in a container that this collection does not condemn: one that it wrote, or one
//! that was packed before. The next collection marks what deltas are made of, and no other
//! collector can decide an epoch between this one's mark and its own ([`super::collector`]). Marks
//! say which chunks are dead as far as they know: these are passed over, to take no room for ever.
//!
//! # What may become a difference
//! A data chunk of no newest snapshot of which nothing is made: deltas of depth 1 need their base
//! whole. The prefixes of all bases are in a filter, those of new deltas as well; what it takes for
//! a base by mistake stays whole. A base that a backup relies on meanwhile is whole in the
//! condemned container until that backup is settled: it leaves the container by storing the chunk
//! again (W8), or is rescued from there (G5), since a delta never stands for a whole chunk.
//!
//! # Concurrency
//! Shared by the threads that seal and the one that stores; one lock, never held while the device
//! works.

use super::bases::MadeOf;
use super::inventory::InventoryItem;
use super::live_set::Marks;
use crate::chunks::{ChunkReader, Location};
use crate::container::log::DurableContainer;
use crate::container::similar::{FoundBase, Similar, SimilarChunks};
use crate::index::{ChunkIndex, FingerprintIndex};
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_format::codec::Compression;
use onefold_format::container::{Base, MetadataSection, SKETCH_BYTES};
use onefold_policy::similarity::{Address, SimilarityTable, Sketch};
use onefold_types::{ContainerId, Fingerprint, Result, limits};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Features that a base must share: half of what a backup asks for. Here an attempt may fail.
const EQUAL_MIN: u32 = 2;
/// Chunks found by their features that are looked at.
const LOOKED_AT_MAX: usize = 4;
/// Plain bytes of a frame of what no newest snapshot needs: larger ones take less room, and what is
/// read of them is read seldom.
pub const COLD_FRAME_BYTES: usize = 512 * limits::KIB;
/// For each thread that packs, so much of the memory limit.
pub const THREAD_LIMIT_BYTES: usize = 32 * limits::MIB;
/// Containers whose sketches are remembered.
const CONTAINERS_MAX: usize = 1 << 18;

/// A repacking collection.
pub struct Repacking {
    level: u8,
    bases: Arc<PackedBases>,
}

/// What may be made of what.
struct PackedBases {
    reader: ChunkReader,
    state: Mutex<State>,
    deltas: AtomicU64,
    _lease: Lease,
}

struct State {
    table: SimilarityTable,
    /// The containers in the table, by their numbers there.
    containers: Vec<ContainerId>,
    /// Those that are garbage: copying them failed.
    avoid: BTreeSet<ContainerId>,
    made_of: MadeOf,
}

impl Repacking {
    /// Nothing is known yet.
    pub fn new(repository: &Arc<Repository>, level: u8) -> Result<Self> {
        let index: Arc<dyn ChunkIndex> = FingerprintIndex::shared(repository)?;
        let lease = repository.purse().take(repository.memory().similarity_bytes);
        let state = State {
            table: SimilarityTable::with_memory(lease.bytes()),
            containers: Vec::new(),
            avoid: BTreeSet::new(),
            made_of: MadeOf::new(repository)?,
        };
        let bases = PackedBases {
            reader: ChunkReader::of_session(repository, &index),
            state: Mutex::new(state),
            deltas: AtomicU64::new(0),
            _lease: lease,
        };
        Ok(Self { level, bases: Arc::new(bases) })
    }

    /// The level at which it packs.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// How frames are compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        Compression::Zstd(i32::from(self.level))
    }

    /// What new deltas are made against.
    #[must_use]
    pub fn similar(&self) -> Arc<dyn SimilarChunks> {
        Arc::clone(&self.bases) as Arc<dyn SimilarChunks>
    }

    /// Deltas made so far.
    #[must_use]
    pub fn deltas(&self) -> u64 {
        self.bases.deltas.load(Ordering::Relaxed)
    }

    /// Whether a container is to be packed anew.
    #[must_use]
    pub fn wants(&self, container: &InventoryItem, section: &MetadataSection) -> bool {
        container.eligible && section.repacked_level < self.level
    }

    /// Notes of what the deltas of a section are made.
    pub fn note_deltas(&self, section: &MetadataSection) {
        self.bases.state().made_of.note(section);
    }

    /// Notes what stays where it is and is not known to be dead, for others to be made of.
    pub fn note_kept(&self, container: ContainerId, section: &MetadataSection, marks: &Marks) {
        let is_live = |position: u32| {
            let chunk = section.chunks.get(position as usize);
            chunk.is_some_and(|chunk| marks.contains(chunk.fingerprint.prefix()))
        };
        let live = section.sketches.iter().filter(|(position, _)| is_live(*position));
        self.bases.note(container, live.copied());
    }

    /// A teller of containers that were written: what is in them is live.
    pub fn teller(&self) -> impl Fn(&DurableContainer) + Send + 'static {
        let bases = Arc::clone(&self.bases);
        move |container| bases.note(container.id, container.sketches.iter().copied())
    }

    /// Containers that were written turned out to be garbage.
    pub fn forget(&self, containers: &[ContainerId]) {
        self.bases.state().avoid.extend(containers);
    }

    /// Whether a delta may be made of this chunk, so that it must stay whole.
    #[must_use]
    pub fn is_base(&self, fingerprint: &Fingerprint) -> bool {
        self.bases.state().made_of.contains(fingerprint)
    }
}

impl PackedBases {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(
        &self,
        container: ContainerId,
        sketches: impl Iterator<Item = (u32, [u8; SKETCH_BYTES])>,
    ) {
        let mut state = self.state();
        if state.containers.len() >= CONTAINERS_MAX {
            return;
        }
        let Ok(number) = u32::try_from(state.containers.len()) else { return };
        state.containers.push(container);
        for (position, sketch) in sketches {
            let address = Address { container: number, position };
            state.table.insert(&Sketch::from_bytes(sketch), address);
        }
    }

    /// The whole chunk that shares most features.
    fn most_similar(&self, sketch: &Sketch) -> Option<Location> {
        let mut candidates = Vec::new();
        let named: Vec<(ContainerId, u32)> = {
            let state = self.state();
            state.table.candidates(sketch, &mut candidates);
            let name = |(_, address): &(u32, Address)| {
                let container = state.containers.get(address.container as usize)?;
                (!state.avoid.contains(container)).then_some((*container, address.position))
            };
            candidates.iter().take(LOOKED_AT_MAX).filter_map(name).collect()
        };
        let equal = |(container, position): (ContainerId, u32)| {
            let section = self.reader.section(container).ok()??;
            let found = Sketch::from_bytes(*section.sketch_at(position)?).equal_features(sketch);
            let is_whole = section.depth_at(position) == 0;
            (is_whole
                && found
                    >= std::env::var("EM").ok().and_then(|v| v.parse().ok()).unwrap_or(EQUAL_MIN))
            .then_some((found, Location { container, section, position }))
        };
        let best = named.into_iter().filter_map(equal).max_by_key(|(equal, _)| *equal);
        best.map(|(_, location)| location)
    }
}

impl SimilarChunks for PackedBases {
    fn find(&self, chunk: &[u8], _: Option<&Fingerprint>, wants_base: bool) -> Similar {
        let sketch = Sketch::of(chunk);
        let location = sketch.as_ref().filter(|_| wants_base).and_then(|it| self.most_similar(it));
        let base = location.and_then(|location| {
            let fingerprint = location.descriptor().fingerprint;
            let base = Base { fingerprint, container: Some(location.container) };
            // What cannot be read is no base.
            let bytes = Box::new(self.reader.read_at(&location).ok()?);
            Some(FoundBase { base, depth: 0, bytes, corresponds: false })
        });
        Similar { sketch: sketch.map(Sketch::to_bytes), base }
    }

    fn rely(&self, found: &FoundBase) -> bool {
        let mut state = self.state();
        let is_there = found.base.container.is_some_and(|id| !state.avoid.contains(&id));
        if is_there {
            state.made_of.insert(&found.base.fingerprint);
            self.deltas.fetch_add(1, Ordering::Relaxed);
        }
        is_there
    }
}
