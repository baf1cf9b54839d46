//! What is kept of containers that were read: their sections and the last frames.
//!
//! Neighbours of a chunk are likely wanted next, so whole sections and whole frames are kept. All
//! readers of a process share them; a reader that must see what the device holds now has caches of
//! its own.
//!
//! Invariant: what is kept was authentic when it was read. Containers never change, so it stays
//! right; that it can still be read is not known.
//!
//! Concurrency: one lock, never held while the device works or a frame is decoded.

use super::{Location, ReadFrame};
use crate::container::delta::DeltaOpener;
use crate::container::frame::FrameOpener;
use crate::memory::Lease;
use crate::repository::Repository;
use lru::LruCache;
use onefold_format::container::{Base, ChunkDescriptor, Delta, MetadataSection, SKETCH_BYTES};
use onefold_policy::locality_cache::LocalityCache;
use onefold_types::{ContainerId, Fingerprint, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Room for a few sections or frames, which there always is: it belongs to the fixed part of the
/// memory limit.
const SMALL_BYTES: usize = 1 << 20;

/// Caches of sections and frames.
pub struct ChunkCaches {
    state: Mutex<State>,
    openers: Mutex<Vec<FrameOpener>>,
    delta_openers: Mutex<Vec<DeltaOpener>>,
    /// Held as long as the caches are.
    _leases: [Lease; 2],
}

/// A container, a position in its section, and the section if it is kept.
type Instance = (ContainerId, u32, Option<Arc<MetadataSection>>);

struct State {
    chunks: LocalityCache,
    sections: Sized<ContainerId, Arc<MetadataSection>>,
    frames: Sized<(ContainerId, u32), Arc<ReadFrame>>,
    /// Chunks that were made of deltas.
    made: Sized<Fingerprint, Arc<ReadFrame>>,
}

/// The part of the room for frames that chunks which were made of deltas have beside it.
const MADE_PART: usize = 8;

impl ChunkCaches {
    /// The caches of the process.
    pub fn shared(repository: &Repository) -> Result<Arc<Self>> {
        let memory = repository.memory();
        let (sections, frames) = (memory.section_cache_bytes, memory.frame_cache_bytes);
        repository.shared(|| Ok(Self::new(repository, sections, frames)))
    }

    /// Caches of whoever reads a store from end to end, as large as there is memory left for them:
    /// what others have read tells nothing of what is read next, and what is read here is of no use
    /// to others.
    #[must_use]
    pub fn own(repository: &Repository) -> Arc<Self> {
        let memory = repository.memory();
        Arc::new(Self::new(repository, memory.section_cache_bytes, memory.frame_cache_bytes))
    }

    /// The same for a session's bases: beside caches of the process, which its walk uses.
    #[must_use]
    pub fn of_bases(repository: &Repository) -> Arc<Self> {
        let memory = repository.memory();
        let section_bytes = memory.section_cache_bytes / 4;
        Arc::new(Self::new(repository, section_bytes, memory.frame_cache_bytes / 2))
    }

    /// The same for whoever reads each frame once: next to none is kept.
    #[must_use]
    pub fn of_sections(repository: &Repository) -> Arc<Self> {
        let section_bytes = repository.memory().section_cache_bytes;
        Arc::new(Self::new(repository, section_bytes, SMALL_BYTES))
    }

    /// The same for a check, which looks up every chunk that any snapshot needs and makes use of
    /// little else.
    #[must_use]
    pub fn of_check(repository: &Repository) -> Arc<Self> {
        let memory = repository.memory();
        let section_bytes = memory.section_cache_bytes / 2 * 5;
        Arc::new(Self::new(repository, section_bytes, memory.frame_cache_bytes))
    }

    fn new(repository: &Repository, section_bytes: usize, frame_bytes: usize) -> Self {
        let wanted = [section_bytes, frame_bytes + frame_bytes / MADE_PART];
        let leases = wanted.map(|bytes| repository.purse().take(bytes));
        let section_bytes = leases[0].bytes().max(SMALL_BYTES);
        let made_bytes = leases[1].bytes() / (MADE_PART + 1);
        let frame_bytes = (leases[1].bytes() - made_bytes).max(SMALL_BYTES);
        let state = State {
            chunks: LocalityCache::new(section_bytes / 2),
            sections: Sized::new(section_bytes / 2),
            frames: Sized::new(frame_bytes),
            made: Sized::new(made_bytes.max(SMALL_BYTES / MADE_PART)),
        };
        let (openers, delta_openers) = (Mutex::default(), Mutex::default());
        Self { state: Mutex::new(state), openers, delta_openers, _leases: leases }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The container of which a chunk was read last, where in it the chunk lies, and the section if
    /// that is kept still.
    pub fn instance(&self, fingerprint: &Fingerprint) -> Option<Instance> {
        let mut state = self.state();
        let instance = state.chunks.lookup(fingerprint)?;
        let section = state.sections.get(&instance.container).map(Arc::clone);
        Some((instance.container, instance.position, section))
    }

    /// Where in a container a chunk lies, whose section this is; remembers all its chunks.
    pub fn find(
        &self,
        container: ContainerId,
        section: &Arc<MetadataSection>,
        fingerprint: &Fingerprint,
    ) -> Option<Location> {
        let mut state = self.state();
        let mut is_kept = state.chunks.contains_container(container);
        if !is_kept {
            let fingerprints = section.chunks.iter().map(|chunk| chunk.fingerprint).collect();
            is_kept = state.chunks.insert(container, fingerprints)
                && state.chunks.contains_container(container);
        }
        let position = match is_kept {
            true => state.chunks.position_in(container, fingerprint),
            // The section alone exceeds the cache.
            false => position_in(section, fingerprint),
        }?;
        Some(Location { container, section: Arc::clone(section), position })
    }

    /// A section that is kept.
    pub fn section(&self, container: ContainerId) -> Option<Arc<MetadataSection>> {
        self.state().sections.get(&container).map(Arc::clone)
    }

    /// Keeps a section.
    pub fn keep_section(&self, container: ContainerId, section: &Arc<MetadataSection>) {
        let of_delta = size_of::<Delta>() + size_of::<Base>();
        let bytes = section.chunks.len() * size_of::<ChunkDescriptor>()
            + section.deltas.len() * of_delta
            + section.sketches.len() * size_of::<(u32, [u8; SKETCH_BYTES])>()
            + 256;
        self.state().sections.insert(container, Arc::clone(section), bytes);
    }

    /// A frame that is kept.
    pub fn frame(&self, key: (ContainerId, u32)) -> Option<Arc<ReadFrame>> {
        self.state().frames.get(&key).map(Arc::clone)
    }

    /// Keeps a frame; gives the memory of another one back that nobody has any more.
    pub fn keep_frame(&self, key: (ContainerId, u32), plain: &Arc<ReadFrame>) -> Option<Vec<u8>> {
        let bytes = plain.memory_bytes();
        let dropped = self.state().frames.insert(key, Arc::clone(plain), bytes);
        dropped.and_then(Arc::into_inner).map(ReadFrame::into_bytes)
    }

    /// A chunk that is kept since it was made of a delta, and verified.
    pub fn made(&self, fingerprint: &Fingerprint) -> Option<Arc<ReadFrame>> {
        self.state().made.get(fingerprint).map(Arc::clone)
    }

    /// Keeps a chunk that was made of a delta, and verified.
    pub fn keep_made(&self, fingerprint: &Fingerprint, whole: &Arc<ReadFrame>) {
        let bytes = whole.memory_bytes();
        self.state().made.insert(*fingerprint, Arc::clone(whole), bytes);
    }

    /// Does something with an opener of deltas that nobody else is using.
    pub fn with_delta_opener<T>(&self, work: impl FnOnce(&mut DeltaOpener) -> T) -> T {
        let openers = || self.delta_openers.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = openers().pop();
        let mut opener = idle.unwrap_or_default();
        let outcome = work(&mut opener);
        openers().push(opener);
        outcome
    }

    /// Keeps nothing of a container's section any more.
    pub fn drop_section(&self, container: ContainerId) {
        let mut state = self.state();
        state.chunks.remove(container);
        state.sections.remove(&container);
    }

    /// Does something with an opener of frames that nobody else is using.
    pub fn with_opener<T>(&self, work: impl FnOnce(&mut FrameOpener) -> Result<T>) -> Result<T> {
        let openers = || self.openers.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = openers().pop();
        let mut opener = match idle {
            Some(opener) => opener,
            None => FrameOpener::new()?,
        };
        let outcome = work(&mut opener);
        openers().push(opener);
        outcome
    }
}

/// Where in a section a chunk stands.
fn position_in(section: &MetadataSection, fingerprint: &Fingerprint) -> Option<u32> {
    let mut chunks = section.chunks.iter();
    chunks.position(|chunk| chunk.fingerprint == *fingerprint).map(|position| position as u32)
}

/// A least-recently-used cache bounded by the bytes of its values.
struct Sized<K: std::hash::Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: std::hash::Hash + Eq, V> Sized<K, V> {
    fn new(bytes_max: usize) -> Self {
        Self { entries: LruCache::unbounded(), bytes: 0, bytes_max }
    }

    fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Keeps a value; gives one of those back that go.
    fn insert(&mut self, key: K, value: V, bytes: usize) -> Option<V> {
        let mut dropped = None;
        if let Some((_, old)) = self.entries.put(key, (value, bytes)) {
            self.bytes -= old;
        }
        self.bytes += bytes;
        while self.bytes > self.bytes_max && self.entries.len() > 1 {
            if let Some((_, (value, bytes))) = self.entries.pop_lru() {
                self.bytes -= bytes;
                dropped = Some(value);
            }
        }
        dropped
    }

    fn remove(&mut self, key: &K) {
        if let Some((_, bytes)) = self.entries.pop(key) {
            self.bytes -= bytes;
        }
    }
}
