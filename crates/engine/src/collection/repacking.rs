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
//! A whole chunk in a container that this collection does not condemn: one that it writes, or one
//! that was packed before. What it has just packed counts at once, before its container is durable:
//! its bytes are still where it was, and if the container never becomes durable, none of the round
//! does. The next collection marks what deltas are made of, and no other
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
/// Chunks that are remembered before their container is durable: several containers of them.
const RECENT_MAX: usize = 1 << 13;
/// Stands for the number of a container in addresses of those.
const RECENT: u32 = u32::MAX;
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
    /// Whole chunks, each in its turn at its turn's place in a ring.
    recent: Vec<RecentChunk>,
    turn: u32,
    /// Those that are garbage: copying them failed.
    avoid: BTreeSet<ContainerId>,
    made_of: MadeOf,
}

/// A whole chunk that was packed a moment ago. Where it will be it cannot be read yet; its bytes
/// are where it was.
struct RecentChunk {
    turn: u32,
    fingerprint: Fingerprint,
    sketch: Sketch,
    container: ContainerId,
}

/// A chunk that another one is like.
enum Candidate {
    Stored(Location),
    Recent(Fingerprint, ContainerId),
}

impl Repacking {
    /// Nothing is known yet.
    pub fn new(repository: &Arc<Repository>, level: u8) -> Result<Self> {
        let index: Arc<dyn ChunkIndex> = FingerprintIndex::shared(repository)?;
        let lease = repository.purse().take(repository.memory().similarity_bytes);
        let state = State {
            table: SimilarityTable::with_memory(lease.bytes()),
            containers: Vec::new(),
            recent: Vec::new(),
            turn: 0,
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
    fn most_similar(&self, sketch: &Sketch) -> Option<Candidate> {
        let mut candidates = Vec::new();
        let (mut named, mut recent) = (Vec::new(), None);
        {
            let state = self.state();
            state.table.candidates(sketch, &mut candidates);
            for (_, address) in candidates.iter().take(LOOKED_AT_MAX) {
                if address.container == RECENT {
                    recent = state.recent(address.position, sketch).max_by_equal(recent);
                } else if let Some(container) = state.containers.get(address.container as usize)
                    && !state.avoid.contains(container)
                {
                    named.push((*container, address.position));
                }
            }
        }
        let equal = |(container, position): (ContainerId, u32)| {
            let section = self.reader.section(container).ok()??;
            let found = Sketch::from_bytes(*section.sketch_at(position)?).equal_features(sketch);
            let is_whole = section.depth_at(position) == 0;
            let location = Location { container, section, position };
            is_whole.then_some((found, Candidate::Stored(location)))
        };
        let stored = named.into_iter().filter_map(equal).max_by_key(|(equal, _)| *equal);
        let best = stored.max_by_equal(recent)?;
        (best.0 >= EQUAL_MIN).then_some(best.1)
    }

    /// A candidate as a base, with its bytes; what cannot be read is none.
    fn base_of(&self, candidate: Candidate) -> Option<FoundBase> {
        let (fingerprint, container, bytes) = match candidate {
            Candidate::Stored(location) => {
                let fingerprint = location.descriptor().fingerprint;
                (fingerprint, location.container, self.reader.read_at(&location).ok()?)
            }
            Candidate::Recent(fingerprint, container) => {
                (fingerprint, container, self.reader.read(&fingerprint).ok()?)
            }
        };
        let base = Base { fingerprint, container: Some(container) };
        Some(FoundBase { base, depth: 0, bytes: Box::new(bytes), corresponds: false })
    }
}

/// The better of two candidates by the features that they share.
trait MaxByEqual {
    fn max_by_equal(self, other: Self) -> Self;
}

impl MaxByEqual for Option<(u32, Candidate)> {
    fn max_by_equal(self, other: Self) -> Self {
        match (self, other) {
            (Some(one), Some(other)) => Some(if other.0 > one.0 { other } else { one }),
            (one, other) => one.or(other),
        }
    }
}

impl State {
    fn recent(&self, turn: u32, sketch: &Sketch) -> Option<(u32, Candidate)> {
        let chunk = self.recent.get(turn as usize % RECENT_MAX)?;
        let is_there = chunk.turn == turn && !self.avoid.contains(&chunk.container);
        let candidate = Candidate::Recent(chunk.fingerprint, chunk.container);
        is_there.then_some((chunk.sketch.equal_features(sketch), candidate))
    }
}

impl SimilarChunks for PackedBases {
    fn find(&self, chunk: &[u8], _: Option<&Fingerprint>, wants_base: bool) -> Similar {
        let sketch = Sketch::of(chunk);
        let found = sketch.as_ref().filter(|_| wants_base).and_then(|it| self.most_similar(it));
        let base = found.and_then(|candidate| self.base_of(candidate));
        Similar { sketch: sketch.map(Sketch::to_bytes), base }
    }

    fn stays_whole(
        &self,
        fingerprint: &Fingerprint,
        sketch: &[u8; SKETCH_BYTES],
        object: [u8; 16],
    ) {
        let mut state = self.state();
        let (fingerprint, sketch, turn) = (*fingerprint, Sketch::from_bytes(*sketch), state.turn);
        let chunk = RecentChunk { turn, fingerprint, sketch, container: ContainerId(object) };
        state.turn = turn.wrapping_add(1);
        let place = turn as usize % RECENT_MAX;
        match state.recent.get_mut(place) {
            Some(before) => *before = chunk,
            None => state.recent.push(chunk),
        }
        state.table.insert(&sketch, Address { container: RECENT, position: turn });
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
