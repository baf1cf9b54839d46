//! Repacking: what backups stored in a hurry is packed anew, in the background.
//!
//! A collection that was told to repack also empties the containers that no collector has packed at
//! this level yet ([`MetadataSection::repacked_level`]), however live they are, and copies what is
//! live in them otherwise than usual:
//! - everything is compressed at the level asked for;
//! - what the newest snapshots need comes first, in their order, and whole chunks stay whole: their
//!   restores read no more than before;
//! - differences against what only older ones need are turned round ([`super::reversal`]);
//! - any other chunk that is like one already packed becomes a difference against that
//!   (stream-informed delta compression, Shilane et al., FAST'12, run backwards: the old is made of
//!   the new);
//! - other differences that are there stay what they are.
//!
//! # What may be a base
//! A whole chunk in a container that this collection does not condemn: one that was packed before,
//! or one that it has packed itself. What it has packed counts at once, before its container is
//! durable: its bytes are still where it was. If copying fails, nothing of the round counts any
//! more, and what it packed is forgotten: a chunk of it may become a difference next time.
//!
//! The next collection marks what deltas are made of, and no other collector can decide an epoch
//! between this one's mark and its own ([`super::collector`]). Marks say which chunks are dead as
//! far as they know: these are passed over, to take no room for ever.
//!
//! # What may become a difference
//! A data chunk of no newest snapshot of which nothing is made: deltas of depth 1 need their base
//! whole. The prefixes of all bases are in a filter, but for what only deltas are made of that are
//! packed in the same round and do not stay; those of new deltas as well. What it takes for a base
//! by mistake stays whole. A base that a backup relies on meanwhile is whole in the
//! condemned container until that backup is settled: it leaves the container by storing the chunk
//! again (W8), or it is rescued from there (G5), because something is made of it by then.
//!
//! # Concurrency
//! Shared by the threads that seal and the one that stores; one lock, never held while the device
//! works.

use super::bases::MadeOf;
use super::gathered::Gathered;
use super::inventory::InventoryItem;
use super::live_set::Marks;
use super::reversal::{Reversal, Scope, Turn};
use crate::chunks::ChunkReader;
use crate::container::FrameId;
use crate::container::similar::{FoundBase, ROOM_MIN_BYTES, Similar, SimilarChunks};
use crate::index::{ChunkIndex, FingerprintIndex};
use crate::memory::Lease;
use crate::repository::Repository;
use onefold_format::codec::Compression;
use onefold_format::container::{Base, MetadataSection, SKETCH_BYTES};
use onefold_policy::similarity::{Address, SimilarityTable, Sketch};
use onefold_types::{ContainerId, Fingerprint, Result, limits};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Features that a base must share: half of what a backup asks for. Here an attempt may fail.
const EQUAL_MIN: u32 = 2;
/// Plain bytes of a frame of what no newest snapshot needs: larger ones take less room, and what is
/// read of them is read seldom.
pub const COLD_FRAME_BYTES: usize = 512 * limits::KIB;
/// For each thread that packs, so much of the memory limit.
pub const THREAD_LIMIT_BYTES: usize = 32 * limits::MIB;
/// What is taken to remember packed chunks although no memory is left.
const REMEMBERED_MIN_BYTES: usize = limits::MIB / 2;
/// Stands for the number of a container in addresses of what this collection has packed.
const PACKED: u32 = u32::MAX;
/// Containers packed before whose sketches are remembered.
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
    /// The containers that were packed before, by their numbers in the table.
    containers: Vec<ContainerId>,
    /// What was packed and is whole, by its number in the table. What does not fit is forgotten,
    /// and not what came before: that is what the newest snapshots need.
    packed: Vec<PackedChunk>,
    packed_max: usize,
    /// How many were packed before the round.
    packed_before: usize,
    /// Of the round that is packed.
    made_of: Option<MadeOf>,
    reversal: Option<Reversal>,
    reversal_bytes: usize,
}

/// A whole chunk that this collection has packed, and the container that it went to.
struct PackedChunk {
    fingerprint: Fingerprint,
    sketch: Sketch,
    container: ContainerId,
}

impl Repacking {
    /// Nothing is known yet.
    pub fn new(repository: &Arc<Repository>, level: u8) -> Result<Self> {
        let index: Arc<dyn ChunkIndex> = FingerprintIndex::shared(repository)?;
        // A collection has no other use for what a session's cache takes.
        let lease = repository.purse().take(repository.memory().locality_cache_bytes);
        let third_bytes = lease.bytes().max(REMEMBERED_MIN_BYTES) / 3;
        let state = State {
            table: SimilarityTable::with_memory(third_bytes),
            containers: Vec::new(),
            packed: Vec::new(),
            packed_before: 0,
            packed_max: third_bytes / size_of::<PackedChunk>(),
            made_of: None,
            reversal: None,
            reversal_bytes: third_bytes,
        };
        let bases = PackedBases {
            reader: ChunkReader::of_session(repository, &index, Arc::default()),
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

    /// Notes what is emptied, and what the newest snapshots need, before the first round.
    pub fn begin(&self, scope: Scope) {
        let mut state = self.bases.state();
        state.reversal = Some(Reversal::with_memory(scope, state.reversal_bytes));
    }

    /// Begins a round: what was gathered is packed, and `outside` tells what all deltas are made of
    /// that are not in the containers it empties.
    pub fn begin_round(
        &self,
        gathered: &Gathered,
        outside: impl FnOnce() -> Result<MadeOf>,
    ) -> Result<()> {
        // It gives its memory back first.
        self.bases.state().made_of = None;
        let mut made_of = outside()?;
        let mut state = self.bases.state();
        if let Some(reversal) = &mut state.reversal {
            reversal.begin_round(gathered, &mut made_of);
        }
        state.made_of = Some(made_of);
        state.packed_before = state.packed.len();
        Ok(())
    }

    /// What becomes of a chunk beside where it lies.
    #[must_use]
    pub fn turn(&self, fingerprint: &Fingerprint) -> Turn {
        self.bases.state().reversal.as_ref().map_or(Turn::Stays, |it| it.turn(fingerprint))
    }

    /// A delta was made whole, and goes to this container.
    pub fn note_whole(&self, fingerprint: &Fingerprint, container: ContainerId) {
        if let Some(reversal) = &mut self.bases.state().reversal {
            reversal.note_whole(fingerprint, container);
        }
    }

    /// Notes what stays where it is and is not known to be dead, for others to be made of.
    pub fn note_kept(&self, container: ContainerId, section: &MetadataSection, marks: &Marks) {
        let is_live = |position: u32| {
            let chunk = section.chunks.get(position as usize);
            chunk.is_some_and(|chunk| marks.contains(chunk.fingerprint.prefix()))
        };
        let mut state = self.bases.state();
        if state.containers.len() >= CONTAINERS_MAX {
            return;
        }
        let Ok(number) = u32::try_from(state.containers.len()) else { return };
        state.containers.push(container);
        for (position, sketch) in section.sketches.iter().filter(|(at, _)| is_live(*at)) {
            let address = Address { container: number, position: *position };
            state.table.insert(&Sketch::from_bytes(*sketch), address);
        }
    }

    /// Room has become short.
    pub fn set_short(&self) {
        self.bases.state().reversal.iter_mut().for_each(Reversal::set_short);
    }

    /// Copying has failed: what was packed in this round lies nowhere that counts.
    pub fn forget_packed(&self) {
        // Addresses of before lead to what comes next, whose own sketch is looked at.
        let mut state = self.bases.state();
        let before = state.packed_before;
        state.packed.truncate(before);
        state.reversal.iter_mut().for_each(Reversal::forget_round);
    }

    /// Whether a delta may be made of this chunk, so that it must stay whole.
    #[must_use]
    pub fn is_base(&self, fingerprint: &Fingerprint) -> bool {
        // What is not known stays whole.
        self.bases.state().made_of.as_ref().is_none_or(|made_of| made_of.contains(fingerprint))
    }
}

impl PackedBases {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole chunk that shares most features, and whether this collection has packed it.
    fn most_similar(&self, sketch: &Sketch) -> Option<(Base, bool)> {
        let (mut addresses, mut found) = (Vec::new(), Vec::new());
        let mut kept = Vec::new();
        {
            let state = self.state();
            state.table.candidates(sketch, &mut addresses);
            for (_, address) in addresses {
                if address.container == PACKED {
                    let packed = state.packed(address.position, sketch);
                    found.extend(packed.map(|(equal, base)| (equal, base, true)));
                } else if let Some(container) = state.containers.get(address.container as usize) {
                    kept.push((*container, address.position));
                }
            }
        }
        for (container, position) in kept {
            let kept = self.kept(container, position, sketch);
            found.extend(kept.map(|(equal, base)| (equal, base, false)));
        }
        let (equal, base, is_packed) = found.into_iter().max_by_key(|(equal, ..)| *equal)?;
        (equal >= EQUAL_MIN).then_some((base, is_packed))
    }

    /// A chunk of a container that was packed before, if it is whole, and how many features it
    /// shares.
    fn kept(&self, container: ContainerId, position: u32, sketch: &Sketch) -> Option<(u32, Base)> {
        let section = self.reader.section(container).ok()??;
        let equal = Sketch::from_bytes(*section.sketch_at(position)?).equal_features(sketch);
        let fingerprint = section.chunks.get(position as usize)?.fingerprint;
        let base = Base { fingerprint, container: Some(container) };
        (section.depth_at(position) == 0).then_some((equal, base))
    }
}

impl State {
    /// The same of a chunk that this collection has packed.
    fn packed(&self, number: u32, sketch: &Sketch) -> Option<(u32, Base)> {
        let chunk = self.packed.get(number as usize)?;
        let base = Base { fingerprint: chunk.fingerprint, container: Some(chunk.container) };
        Some((chunk.sketch.equal_features(sketch), base))
    }
}

impl SimilarChunks for PackedBases {
    fn find(&self, chunk: &[u8], successor: Option<&Fingerprint>, wants_base: bool) -> Similar {
        let sketch = Sketch::of(chunk);
        let turned = successor.filter(|_| wants_base).and_then(|it| {
            let container = self.state().reversal.as_ref()?.packed(it)?;
            Some((Base { fingerprint: *it, container: Some(container) }, true))
        });
        let alike = || self.most_similar(sketch.as_ref().filter(|_| wants_base)?);
        let base = turned.or_else(alike);
        let base = base.and_then(|(base, is_packed)| {
            // Wherever it is whole; what was packed a moment ago is where it was, perhaps as a
            // delta that is whole now. What cannot be read is no base.
            let anywhere = Base { container: None, ..base };
            let below_depth = if is_packed { u8::MAX } else { 1 };
            let bytes = Box::new(self.reader.read_base(&anywhere, below_depth).ok()?);
            Some(FoundBase { base, depth: 0, frame: None, bytes, corresponds: false })
        });
        Similar { sketch: sketch.map(Sketch::to_bytes), base }
    }

    fn stays_whole(
        &self,
        fingerprint: &Fingerprint,
        sketch: &[u8; SKETCH_BYTES],
        object: [u8; 16],
    ) {
        let mut state = self.state();
        let Ok(position) = u32::try_from(state.packed.len()) else { return };
        if position as usize >= state.packed_max {
            return;
        }
        let (sketch, container) = (Sketch::from_bytes(*sketch), ContainerId(object));
        state.packed.push(PackedChunk { fingerprint: *fingerprint, sketch, container });
        state.table.insert(&sketch, Address { container: PACKED, position });
    }

    fn has_room(&self) -> bool {
        self.reader.repository().memory().limit_bytes >= ROOM_MIN_BYTES
    }

    fn rely(&self, found: &[FoundBase], _: (FrameId, usize)) -> bool {
        let mut state = self.state();
        let Some(made_of) = &mut state.made_of else { return false };
        found.iter().for_each(|found| made_of.insert(&found.base.fingerprint));
        self.deltas.fetch_add(1, Ordering::Relaxed);
        true
    }
}
