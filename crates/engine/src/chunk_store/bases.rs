//! Bases of deltas in a session: whether those of a delta that was found are there, and what new
//! chunks may be stored as a difference against.
//!
//! # Algorithm
//! *Found.* A look-up that meets a delta has a duplicate only if the delta can be made: its bases
//! are listed, as whole chunks or shallower deltas, by containers that may be used and were seen to
//! exist in this session; the same holds for the bases of those (protocol, W5). It is asked once
//! for each section that is read. What cannot be shown counts as not there, and is stored again.
//!
//! *New.* Three sources of bases, all of them hints:
//! - the chunk that stands in the same place of an earlier version, if the reader of the file knows
//!   one;
//! - what the containers that the stream has met hold: their sketches are remembered as their
//!   sections are read (stream-informed, Shilane et al., FAST'12, section 3.2);
//! - what the session has stored itself.
//!
//! The one that shares most features is read and tried; none that shares none
//! ([`onefold_policy::similarity`]). What is a delta of the greatest depth already stands for its
//! own base.
//!
//! # Invariants
//! - What is relied upon is noted with its container before the delta counts, so that the session
//!   can leave a container that is condemned meanwhile (W8), or cannot commit.
//! - The reader's caches belong to the session: nothing that was read before it counts.
//!
//! Memory: the table of sketches, what is known of containers (`known_containers`) and the
//! reader's caches have their leases.
//!
//! Concurrency: shared by the streams and the threads that seal; one lock, never held while the
//! device works.

mod proof;

pub use proof::Proved;

use super::known_containers::KnownContainers;
use super::read_set::ReadSet;
use crate::chunks::{Chunk, ChunkReader, Location};
use crate::container::FrameId;
use crate::container::seen::SeenContainers;
use crate::container::similar::{FoundBase, ROOM_MIN_BYTES, Similar, SimilarChunks};
use crate::index::ChunkIndex;
use crate::memory::Lease;
use crate::placement::Resting;
use crate::repository::Repository;
use onefold_format::container::{Base, DELTA_DEPTH_MAX, MetadataSection, SKETCH_BYTES};
use onefold_format::delta::DeltaChoice;
use onefold_policy::similarity::{Address, SimilarityTable, Sketch};
use onefold_types::{ContainerId, Fingerprint, Result};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Features that a chunk found by its features must share: of those that share three, one in three
/// is worth its reading (data set A, first backup).
const EQUAL_FOUND_MIN: u32 = 4;
/// Features that a chunk in the same place must share.
const EQUAL_CORRESPONDING_MIN: u32 = 1;
/// Chunks found by their features that are looked at.
const LOOKED_AT_MAX: usize = 2;

/// Finding a base may take so long. A store that takes longer is in the way, and a backup does
/// without: each chunk would wait as long.
pub const FIND_MAX: Duration = Duration::from_secs(5);
/// Containers whose sketches are remembered in a session; some hundred bytes each.
const CONTAINERS_MAX: usize = 1 << 15;

/// Room for what some dozen containers hold, which there always is: it belongs to the fixed part of
/// the memory limit.
const KNOWN_BYTES_MIN: usize = 1 << 19;

/// How bases were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BaseCounts {
    /// Bases read, and tried.
    pub tried: u64,
    /// Kept: they stood in the chunk's place.
    pub by_place: u64,
    /// Kept: they shared features.
    pub by_features: u64,
}

/// The bases of one session.
pub struct Bases {
    repository: Arc<Repository>,
    index: Arc<dyn ChunkIndex>,
    /// `None`: no deltas are made.
    depth_max: Option<u8>,
    /// The containers that were seen to exist in this session.
    pub seen: Arc<SeenContainers>,
    /// Opened when the first delta is met or made.
    reader: OnceLock<ChunkReader>,
    /// Looking for a base took too long: no more are looked for.
    is_late: AtomicBool,
    state: Mutex<State>,
    _lease: Lease,
}

struct State {
    counts: BaseCounts,
    /// What the containers hold whose sections were read, from the first delta on.
    known: Option<(KnownContainers, Lease)>,
    /// What the frames rest on in which the session has stored or found deltas, from the first on.
    resting: Option<Resting>,
    /// Accesses of the device to show that bases are there.
    reads: u64,
    /// Not to be relied upon.
    avoid: BTreeSet<ContainerId>,
    /// What the session's own deltas are made of.
    relied: ReadSet,
    table: SimilarityTable,
    /// The containers in the table, by their numbers there.
    containers: Vec<ContainerId>,
    numbers: HashMap<ContainerId, u32>,
}

impl State {
    /// Bases are read by then: the caches for that have their memory already.
    fn resting(&mut self, repository: &Repository) -> &mut Resting {
        self.resting.get_or_insert_with(|| Resting::within(repository))
    }
}

impl Bases {
    /// Those of a session that relies on no container in `avoid`.
    #[must_use]
    pub fn new(
        repository: &Arc<Repository>,
        index: &Arc<dyn ChunkIndex>,
        avoid: &BTreeSet<ContainerId>,
        choice: DeltaChoice,
    ) -> Self {
        let (depth_max, table_bytes) = match choice {
            DeltaChoice::Off => (None, 0),
            DeltaChoice::Depth(depth) => (Some(depth), repository.memory().similarity_bytes),
        };
        let lease = repository.purse().take(table_bytes);
        let state = State {
            counts: BaseCounts::default(),
            known: None,
            resting: None,
            reads: 0,
            avoid: avoid.clone(),
            relied: ReadSet::default(),
            table: SimilarityTable::with_memory(lease.bytes()),
            containers: Vec::new(),
            numbers: HashMap::new(),
        };
        Self {
            repository: Arc::clone(repository),
            index: Arc::clone(index),
            depth_max,
            seen: Arc::new(SeenContainers::of(repository.store())),
            reader: OnceLock::new(),
            is_late: AtomicBool::new(false),
            state: Mutex::new(state),
            _lease: lease,
        }
    }

    /// How they were found so far.
    #[must_use]
    pub fn counts(&self) -> BaseCounts {
        self.state().counts
    }

    /// Whether deltas are made.
    #[must_use]
    pub fn makes_deltas(&self) -> bool {
        self.depth_max.is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reader(&self) -> &ChunkReader {
        self.reader.get_or_init(|| {
            ChunkReader::of_session(&self.repository, &self.index, Arc::clone(&self.seen))
        })
    }

    /// A container's section, if the session has read it for bases and has it still.
    pub fn kept_section(&self, container: ContainerId) -> Option<Arc<MetadataSection>> {
        self.reader.get()?.kept_section(container)
    }

    /// The frame of what a chunk of a container is a difference against; `None` if it is whole, or
    /// nothing is remembered of it.
    pub fn rests_on(&self, container: ContainerId, position: u32) -> Option<FrameId> {
        self.state().known.as_mut()?.0.rests_on(container, position)
    }

    /// Plain bytes of a frame; 0 if they are not remembered.
    pub fn plain_bytes(&self, frame: &FrameId) -> u64 {
        let mut state = self.state();
        let known = state.known.as_mut().and_then(|(known, _)| known.plain_bytes(frame));
        known.map_or(0, u64::from)
    }

    /// A chunk of so many bytes was found that is a difference against what lies in another frame.
    pub fn rest_on(&self, of: FrameId, base: FrameId, bytes: u64) {
        self.state().resting(&self.repository).add(of, base, bytes);
    }

    /// What the frames rest on in which the session has stored or found deltas; nothing from then
    /// on.
    pub fn take_resting(&self) -> Resting {
        let taken = self.state().resting.take();
        taken.unwrap_or_else(|| Resting::within(&self.repository))
    }

    /// Whether a base is in a container that may be used, with all that it is made of itself.
    fn is_there(
        &self,
        base: &Base,
        below_depth: u8,
        made_of: &mut BTreeSet<ContainerId>,
    ) -> Result<bool> {
        Ok(self.find_there(base, below_depth, made_of)?.is_some())
    }

    /// The frame of a base in a container that may be used, if all that it is made of is there.
    fn find_there(
        &self,
        base: &Base,
        below_depth: u8,
        made_of: &mut BTreeSet<ContainerId>,
    ) -> Result<Option<FrameId>> {
        if let Some(container) = base.container
            && let Some(frame) = self.find_in(container, base, below_depth, made_of)?
        {
            return Ok(Some(frame));
        }
        let mut pages = 0;
        let located = self.index.locate(&self.repository, &base.fingerprint, &mut pages)?;
        self.state().reads += pages;
        for container in located {
            if let Some(frame) = self.find_in(container, base, below_depth, made_of)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    fn is_in(
        &self,
        container: ContainerId,
        base: &Base,
        below_depth: u8,
        made_of: &mut BTreeSet<ContainerId>,
    ) -> Result<bool> {
        Ok(self.find_in(container, base, below_depth, made_of)?.is_some())
    }

    fn find_in(
        &self,
        container: ContainerId,
        base: &Base,
        below_depth: u8,
        made_of: &mut BTreeSet<ContainerId>,
    ) -> Result<Option<FrameId>> {
        if let Some(frame) = self.find_whole_in(container, &base.fingerprint) {
            made_of.insert(container);
            return Ok(Some(frame));
        }
        let Some(location) = self.locate_in(container, &base.fingerprint)? else {
            return Ok(None);
        };
        self.note(container, &location.section);
        if let Some(delta) = location.section.delta_at(location.position) {
            if delta.depth >= below_depth {
                return Ok(None);
            }
            for deeper in &delta.bases {
                if !self.is_there(deeper, delta.depth, made_of)? {
                    return Ok(None);
                }
            }
        }
        made_of.insert(container);
        Ok(Some(frame_of(&location)))
    }

    /// Remembers what a container holds.
    fn note(&self, container: ContainerId, section: &MetadataSection) {
        // Its caches first: they keep what bases are read from, and without room for one section
        // every base would cost a read.
        self.reader();
        let mut state = self.state();
        let (known, _) = state.known.get_or_insert_with(|| {
            let lease =
                self.repository.purse().take(self.repository.memory().section_cache_bytes / 4);
            (KnownContainers::new(lease.bytes().max(KNOWN_BYTES_MIN)), lease)
        });
        known.note(container, section);
    }

    /// The frame in which a container is known, without the device, to hold a chunk that is no
    /// delta.
    fn find_whole_in(&self, container: ContainerId, fingerprint: &Fingerprint) -> Option<FrameId> {
        let mut state = self.state();
        if state.avoid.contains(&container) {
            return None;
        }
        let known = state.known.as_mut();
        let frame = known.and_then(|(known, _)| known.frame_of(container, fingerprint)).flatten();
        state.reads += u64::from(frame.is_none() && self.reader().reads_section(container));
        frame
    }

    /// Where in a container that may be used a chunk is.
    fn locate_in(
        &self,
        container: ContainerId,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Location>> {
        if self.state().avoid.contains(&container) {
            return Ok(None);
        }
        match self.reader().locate_in(container, fingerprint) {
            // Gone, damaged, or not to be read just now: whatever is made of it is stored again.
            Err(error) if error.is_unreadable() => Ok(None),
            located => located,
        }
    }

    /// Remembers what chunks of a container that may be used are found by.
    pub fn note_sketches(&self, container: ContainerId, sketches: &[(u32, [u8; SKETCH_BYTES])]) {
        if self.depth_max.is_none() || sketches.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.numbers.contains_key(&container) || state.containers.len() >= CONTAINERS_MAX {
            return;
        }
        let Ok(number) = u32::try_from(state.containers.len()) else { return };
        state.containers.push(container);
        state.numbers.insert(container, number);
        for (position, sketch) in sketches {
            let address = Address { container: number, position: *position };
            state.table.insert(&Sketch::from_bytes(*sketch), address);
        }
    }

    /// What own deltas are made of in these containers and nowhere else as a whole: a collection
    /// that packs anew may have made a difference of it. `None` if not all of it is known.
    pub fn only_in(&self, condemned: &BTreeSet<ContainerId>) -> Result<Option<Vec<Fingerprint>>> {
        let Some(chunks) = self.state().relied.chunks_in(condemned) else { return Ok(None) };
        let mut only = Vec::new();
        for fingerprint in chunks {
            let base = Base { fingerprint, container: None };
            let mut pages = 0;
            let mut is_elsewhere = false;
            for container in self.index.locate(&self.repository, &fingerprint, &mut pages)? {
                is_elsewhere = is_elsewhere
                    || !condemned.contains(&container)
                        && self.is_in(container, &base, 1, &mut BTreeSet::new())?;
            }
            if !is_elsewhere {
                only.push(fingerprint);
            }
        }
        Ok(Some(only))
    }

    /// Reads a base, whatever it is made of itself; `None` if that cannot be done.
    pub fn read(&self, fingerprint: Fingerprint) -> Result<Option<Chunk>> {
        let base = Base { fingerprint, container: None };
        match self.reader().read_base(&base, DELTA_DEPTH_MAX + 1) {
            Ok(chunk) => Ok(Some(chunk)),
            Err(error) if error.is_unreadable() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Leaves containers that were condemned meanwhile (W8): what own deltas are made of must be
    /// whole in others. `false` if that cannot be shown; nothing has changed then. The index knows
    /// what has been copied.
    pub fn leave(&self, condemned: &BTreeSet<ContainerId>) -> Result<bool> {
        let (chunks, added) = {
            let mut state = self.state();
            let Some(chunks) = state.relied.chunks_in(condemned) else {
                return Ok(false);
            };
            let added: Vec<ContainerId> =
                condemned.iter().filter(|id| state.avoid.insert(**id)).copied().collect();
            (chunks, added)
        };
        for fingerprint in &chunks {
            let base = Base { fingerprint: *fingerprint, container: None };
            let mut made_of = BTreeSet::new();
            // Whole: it does not matter then how deep the deltas are.
            if !self.is_there(&base, 1, &mut made_of)? {
                added.iter().for_each(|id| _ = self.state().avoid.remove(id));
                return Ok(false);
            }
            let mut state = self.state();
            made_of.iter().for_each(|container| state.relied.note(*container, fingerprint));
        }
        self.state().relied.leave(condemned);
        Ok(true)
    }

    /// Relies on containers again that could not all be left.
    pub fn return_to(&self, containers: &[ContainerId]) {
        let mut state = self.state();
        containers.iter().for_each(|id| _ = state.avoid.remove(id));
    }

    /// The containers that own deltas rely on.
    #[must_use]
    pub fn relied_on(&self) -> BTreeSet<ContainerId> {
        self.state().relied.containers().collect()
    }

    /// The chunk that stands in the place of a new one in an earlier version, or what it is made of
    /// if it is too deep to be a base.
    fn corresponding(&self, fingerprint: &Fingerprint, depth_max: u8) -> Option<Location> {
        let mut sought = Base { fingerprint: *fingerprint, container: None };
        // Each turn goes at least one instance down.
        for _ in 0..=DELTA_DEPTH_MAX {
            let location = self.locate(&sought)?;
            match location.section.delta_at(location.position) {
                Some(delta) if delta.depth >= depth_max => sought = *delta.bases.first()?,
                _ => return Some(location),
            }
        }
        None
    }

    /// An instance of a chunk in a container that may be used. What fails is no base.
    fn locate(&self, base: &Base) -> Option<Location> {
        if let Ok(Some(known)) = self.reader().known(&base.fingerprint)
            && !self.state().avoid.contains(&known.container)
        {
            return Some(known);
        }
        if let Some(container) = base.container
            && let Ok(Some(location)) = self.locate_in(container, &base.fingerprint)
        {
            return Some(location);
        }
        let mut pages = 0;
        let containers = self.index.locate(&self.repository, &base.fingerprint, &mut pages).ok()?;
        let mut found = containers.into_iter();
        found.find_map(|id| self.locate_in(id, &base.fingerprint).ok().flatten())
    }

    /// The chunk that shares most features, and how many; chunks too deep to be bases are none.
    fn similar(&self, sketch: &Sketch, depth_max: u8) -> Option<(u32, Location)> {
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
        let equal = |(container, position)| {
            let section = self.reader().section(container).ok()??;
            let found = Sketch::from_bytes(*section.sketch_at(position)?);
            let is_shallow = section.depth_at(position) < depth_max;
            let location = Location { container, section, position };
            is_shallow.then(|| (found.equal_features(sketch), location))
        };
        named.into_iter().filter_map(equal).max_by_key(|(equal, _)| *equal)
    }

    /// The best base for a chunk that looks like this, and whether it stands in its place.
    fn choose(
        &self,
        sketch: Option<&Sketch>,
        corresponding: Option<&Fingerprint>,
        depth_max: u8,
    ) -> Option<(Location, bool)> {
        let there = corresponding.and_then(|chunk| self.corresponding(chunk, depth_max));
        let of_there = there.as_ref().and_then(|location| {
            let kept = location.section.sketch_at(location.position)?;
            Some(Sketch::from_bytes(*kept).equal_features(sketch?))
        });
        let similar = sketch.and_then(|sketch| self.similar(sketch, depth_max));
        match (similar, there) {
            (Some((equal, location)), there)
                if equal >= EQUAL_FOUND_MIN
                    && (there.is_none() || of_there.is_some_and(|other| other < equal)) =>
            {
                Some((location, false))
            }
            // Without sketches nothing speaks against it.
            (_, Some(there)) if of_there.is_none_or(|equal| equal >= EQUAL_CORRESPONDING_MIN) => {
                Some((there, true))
            }
            _ => None,
        }
    }
}

/// The frame that a chunk is in.
fn frame_of(location: &Location) -> FrameId {
    let frame = u16::try_from(location.descriptor().frame).unwrap_or(u16::MAX);
    FrameId { container: location.container, frame }
}

impl SimilarChunks for Bases {
    fn find(&self, chunk: &[u8], corresponding: Option<&Fingerprint>, wants_base: bool) -> Similar {
        let Some(depth_max) = self.depth_max else { return Similar::default() };
        let sketch = Sketch::of(chunk);
        let began = Instant::now();
        let chosen = match wants_base && !self.is_late.load(Ordering::Relaxed) {
            true => self.choose(sketch.as_ref(), corresponding, depth_max),
            false => None,
        };
        let found = chosen.and_then(|(location, corresponds)| {
            let (fingerprint, container) = (location.descriptor().fingerprint, location.container);
            let depth = location.section.depth_at(location.position);
            let base = Base { fingerprint, container: Some(container) };
            // What it is made of must be there as well, and is relied upon with it.
            let is_sound = depth == 0
                || self.is_in(container, &base, depth + 1, &mut BTreeSet::new()).unwrap_or(false);
            let bytes = is_sound.then(|| self.reader().read_at(&location).ok()).flatten()?;
            self.state().counts.tried += 1;
            let frame = Some(frame_of(&location));
            Some(FoundBase { base, depth, frame, bytes: Box::new(bytes), corresponds })
        });
        if began.elapsed() > FIND_MAX {
            self.is_late.store(true, Ordering::Relaxed);
        }
        Similar { sketch: sketch.map(Sketch::to_bytes), base: found }
    }

    fn has_room(&self) -> bool {
        self.repository.memory().limit_bytes >= ROOM_MIN_BYTES
    }

    fn beside(&self, found: &FoundBase) -> Vec<FoundBase> {
        let Some(container) = found.base.container.filter(|_| found.depth == 0) else {
            return Vec::new();
        };
        let Ok(Some(location)) = self.locate_in(container, &found.base.fingerprint) else {
            return Vec::new();
        };
        let (section, position) = (&location.section, location.position);
        let frame = location.descriptor().frame;
        let beside = [position.checked_sub(1), position.checked_add(1)].into_iter().flatten();
        let is_beside = |position: &u32| {
            let chunk = section.chunks.get(*position as usize);
            chunk.is_some_and(|chunk| {
                chunk.frame == frame && !chunk.is_delta() && !chunk.level.is_node()
            })
        };
        let read = |position: u32| {
            let section = Arc::clone(section);
            let location = Location { container, section, position };
            let fingerprint = location.descriptor().fingerprint;
            let base = Base { fingerprint, container: Some(container) };
            let bytes = Box::new(self.reader().read_at(&location).ok()?);
            let (frame, corresponds) = (found.frame, found.corresponds);
            Some(FoundBase { base, frame, depth: 0, bytes, corresponds })
        };
        beside.filter(is_beside).filter_map(read).collect()
    }

    fn rely(&self, found: &[FoundBase], (of, chunk_bytes): (FrameId, usize)) -> bool {
        let Some(first) = found.first() else { return false };
        let mut made_of = BTreeSet::new();
        for base in found.iter().map(|found| &found.base) {
            let Some(container) = base.container else { return false };
            made_of.insert(container);
            // Deeper ones rest on others, which are relied upon as well.
            let is_there = match self.depth_max {
                Some(1) => true,
                _ => self.is_in(container, base, u8::MAX, &mut made_of).unwrap_or(false),
            };
            if !is_there {
                return false;
            }
        }
        let mut state = self.state();
        if made_of.iter().any(|id| state.avoid.contains(id)) {
            return false;
        }
        for base in found.iter().map(|found| &found.base) {
            made_of.iter().for_each(|id| state.relied.note(*id, &base.fingerprint));
        }
        if let Some(frame) = first.frame {
            state.resting(&self.repository).add(of, frame, chunk_bytes as u64);
        }
        match first.corresponds {
            true => state.counts.by_place += 1,
            false => state.counts.by_features += 1,
        }
        true
    }
}
