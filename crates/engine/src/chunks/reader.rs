//! Reads chunks by name: locate, read the frame, open it, verify the chunk.
//!
//! The index gives all containers that may hold a chunk, newest first; a container's own section
//! decides. Neighbours are likely wanted next, so whole sections and the last frames are kept.
//!
//! If a container has gone or is damaged, other instances are tried; if none is left, the index
//! catches up with the collections that ran meanwhile, as often as there were some (protocol, R1:
//! [`crate::index::current`]); only a chunk that is nowhere after that is reported, by name.

use super::Location;
use crate::container::frame::{CodedFrame, FrameChunk, FrameOpener};
use crate::container::reader::{self, FrameReader};
use crate::index::current::{CATCH_UPS_MAX, changes_too_often};
use crate::index::{CurrentIndex, FingerprintIndex};
use crate::repository::Repository;
use lru::LruCache;
use onefold_format::container::{ChunkDescriptor, MetadataSection};
use onefold_policy::locality_cache::LocalityCache;
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Room for a few sections and frames.
const SMALL_CACHE_BYTES: usize = 1 << 20;

/// How much reading cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadCounters {
    /// Metadata sections read.
    pub sections: u64,
    /// Frames read and opened.
    pub frames: u64,
    /// Index pages read.
    pub index_pages: u64,
}

/// Reads chunks of one store. Used by one thread at a time.
pub struct ChunkReader {
    repository: Arc<Repository>,
    index: CurrentIndex,
    cache: LocalityCache,
    sections: Sized<ContainerId, Arc<MetadataSection>>,
    frames: Sized<(ContainerId, u32), Arc<Vec<u8>>>,
    /// Containers that are damaged.
    unusable: BTreeSet<ContainerId>,
    /// Containers that were not found; forgotten when the index is opened again.
    gone: BTreeSet<ContainerId>,
    opener: FrameOpener,
    sealed: Vec<u8>,
    counters: ReadCounters,
}

impl ChunkReader {
    /// Opens the index.
    pub fn open(repository: &Arc<Repository>) -> Result<Self> {
        Self::with_index(repository, FingerprintIndex::open(repository)?)
    }

    /// A reader over an index that is open already.
    pub fn with_index(repository: &Arc<Repository>, index: FingerprintIndex) -> Result<Self> {
        let memory = repository.memory();
        Self::with_caches(repository, index, memory.section_cache_bytes, memory.frame_cache_bytes)
    }

    /// A reader that keeps next to nothing: for few chunks that lie together.
    pub fn with_small_caches(
        repository: &Arc<Repository>,
        index: FingerprintIndex,
    ) -> Result<Self> {
        Self::with_caches(repository, index, SMALL_CACHE_BYTES, SMALL_CACHE_BYTES)
    }

    /// A reader for chunks of many containers, of which each frame is read once.
    pub fn with_small_frame_cache(
        repository: &Arc<Repository>,
        index: FingerprintIndex,
    ) -> Result<Self> {
        let section_bytes = repository.memory().section_cache_bytes;
        Self::with_caches(repository, index, section_bytes, SMALL_CACHE_BYTES)
    }

    fn with_caches(
        repository: &Arc<Repository>,
        index: FingerprintIndex,
        section_bytes: usize,
        frame_bytes: usize,
    ) -> Result<Self> {
        Ok(Self {
            repository: Arc::clone(repository),
            index: CurrentIndex::new(index),
            cache: LocalityCache::new(section_bytes / 2),
            sections: Sized::new(section_bytes / 2),
            frames: Sized::new(frame_bytes),
            unusable: BTreeSet::new(),
            gone: BTreeSet::new(),
            opener: FrameOpener::new()?,
            sealed: Vec::new(),
            counters: ReadCounters::default(),
        })
    }

    /// The store.
    #[must_use]
    pub fn repository(&self) -> &Arc<Repository> {
        &self.repository
    }

    /// How much reading cost so far.
    #[must_use]
    pub fn counters(&self) -> ReadCounters {
        self.counters
    }

    /// Passes over a container from now on: a frame of it could not be read.
    pub fn set_unusable(&mut self, container: ContainerId) {
        self.unusable.insert(container);
        self.drop_cached(container);
    }

    /// Passes over a container that was not found, until the index is opened again.
    pub fn set_gone(&mut self, container: ContainerId) {
        self.gone.insert(container);
        self.drop_cached(container);
    }

    fn set_failed(&mut self, container: ContainerId, error: &Error) {
        match error.kind() {
            ErrorKind::NotFound => self.set_gone(container),
            _ => self.set_unusable(container),
        }
    }

    fn drop_cached(&mut self, container: ContainerId) {
        self.cache.remove(container);
        self.sections.remove(&container);
    }

    /// Finds a chunk where a placement says it is; `None` if it is not there. Nothing else is
    /// asked.
    pub fn locate_in(
        &mut self,
        container: ContainerId,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Location>> {
        let Some(section) = self.section(container)? else {
            return Ok(None);
        };
        if !self.cache.contains_container(container) {
            let fingerprints = section.chunks.iter().map(|chunk| chunk.fingerprint).collect();
            self.cache.insert(container, fingerprints);
        }
        let position = match self.cache.position_in(container, fingerprint) {
            Some(position) => Some(position as usize),
            // The section alone exceeds the cache.
            None if !self.cache.contains_container(container) => {
                section.chunks.iter().position(|chunk| chunk.fingerprint == *fingerprint)
            }
            None => None,
        };
        Ok(position.map(|position| Location { container, section, position: position as u32 }))
    }

    /// Finds a chunk.
    ///
    /// Errors: `Damaged` if no readable container holds it.
    pub fn locate(&mut self, fingerprint: &Fingerprint) -> Result<Location> {
        for _ in 0..CATCH_UPS_MAX {
            if let Some(location) = self.locate_known(fingerprint)? {
                return Ok(location);
            }
            if !self.index.catch_up(&self.repository)? {
                let problem = format!("chunk {fingerprint} is in no readable container");
                return Err(Error::damaged(problem));
            }
            self.gone.clear();
        }
        Err(changes_too_often(fingerprint))
    }

    /// Appends for each fingerprint all containers that the index names for it, newest first.
    pub fn locate_all(
        &mut self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
    ) -> Result<()> {
        let pages = &mut self.counters.index_pages;
        self.index.index.locate_all(&self.repository, fingerprints, found, pages)
    }

    fn locate_known(&mut self, fingerprint: &Fingerprint) -> Result<Option<Location>> {
        if let Some(instance) = self.cache.lookup(fingerprint) {
            let (container, position) = (instance.container, instance.position);
            if let Some(section) = self.section(container)? {
                return Ok(Some(Location { container, section, position }));
            }
        }
        let pages = &mut self.counters.index_pages;
        for container in self.index.index.locate(&self.repository, fingerprint, pages)? {
            let Some(section) = self.section(container)? else {
                continue;
            };
            let position =
                section.chunks.iter().position(|chunk| chunk.fingerprint == *fingerprint);
            if let Some(position) = position {
                let fingerprints = section.chunks.iter().map(|chunk| chunk.fingerprint).collect();
                self.cache.insert(container, fingerprints);
                return Ok(Some(Location { container, section, position: position as u32 }));
            }
        }
        Ok(None)
    }

    /// The section of a container, or `None` if the container cannot be used.
    pub fn section(&mut self, container: ContainerId) -> Result<Option<Arc<MetadataSection>>> {
        if self.unusable.contains(&container) || self.gone.contains(&container) {
            return Ok(None);
        }
        if let Some(section) = self.sections.get(&container) {
            return Ok(Some(Arc::clone(section)));
        }
        self.counters.sections += 1;
        match reader::read_section(&self.repository, container) {
            Ok(section) => {
                let section = Arc::new(section);
                let bytes = section.chunks.len() * size_of::<ChunkDescriptor>() + 256;
                self.sections.insert(container, Arc::clone(&section), bytes);
                Ok(Some(section))
            }
            Err(error) if error.is_damage() => {
                self.set_failed(container, &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a chunk and verifies it against its name.
    pub fn read(&mut self, fingerprint: &Fingerprint) -> Result<Vec<u8>> {
        loop {
            let location = self.locate(fingerprint)?;
            match self.read_at(&location) {
                Ok(bytes) => return Ok(bytes),
                // A container fails once, or once more after the index has changed: this ends.
                Err(error) if error.is_damage() => self.set_failed(location.container, &error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a chunk that is advice only. If it cannot be read, nothing else suffers: its container
    /// stays in use for what is needed, and the index is not replayed.
    pub fn read_advice(&mut self, fingerprint: &Fingerprint) -> Result<Vec<u8>> {
        match self.locate_known(fingerprint)? {
            Some(location) => self.read_at(&location),
            None => Err(Error::damaged(format!("chunk {fingerprint} is not where it was"))),
        }
    }

    /// Reads a chunk where it was found, and verifies it against its name.
    ///
    /// Errors: `Damaged` or `NotFound` if it cannot be read there.
    pub fn read_at(&mut self, location: &Location) -> Result<Vec<u8>> {
        let chunk = *location.descriptor();
        let frame = self.frame(location)?;
        let start = chunk.offset as usize;
        let bytes = frame
            .get(start..start + chunk.length as usize)
            .ok_or_else(|| Error::damaged("a chunk reaches beyond its frame"))?;
        let fingerprinter = self.repository.fingerprinter();
        let computed = match chunk.level.is_node() {
            true => fingerprinter.node(bytes),
            false => fingerprinter.data(bytes),
        };
        if computed != chunk.fingerprint {
            return Err(Error::damaged(format!(
                "chunk {} in container {} does not have its fingerprint",
                chunk.fingerprint, location.container
            )));
        }
        Ok(bytes.to_vec())
    }

    /// The plain bytes of the frame that a chunk is in, authentic and not yet verified by name.
    pub fn frame(&mut self, location: &Location) -> Result<Arc<Vec<u8>>> {
        let part = location.descriptor().frame;
        let key = (location.container, part);
        if let Some(frame) = self.frames.get(&key) {
            return Ok(Arc::clone(frame));
        }
        let descriptor = location.section.frames[part as usize];
        self.counters.frames += 1;
        let frames = FrameReader::new(&self.repository, location.container)?;
        frames.read(&self.repository, &[descriptor], &mut self.sealed)?;
        let plain = frames.open(&mut self.opener, part, &descriptor, &mut self.sealed)?.to_vec();
        let plain = Arc::new(plain);
        self.frames.insert(key, Arc::clone(&plain), plain.len());
        Ok(plain)
    }

    /// The frame that a chunk is in, authentic, as it is coded, with all chunks that it holds.
    ///
    /// Errors: `Damaged` or `NotFound` if it cannot be read, or its chunks do not lie in it back to
    /// back.
    pub fn coded_frame(&mut self, location: &Location) -> Result<CodedFrame> {
        let part = location.descriptor().frame;
        let descriptor = location.section.frames[part as usize];
        let mut chunks = Vec::new();
        let mut end = 0;
        for chunk in location.section.chunks.iter().filter(|chunk| chunk.frame == part) {
            if chunk.offset != end {
                return Err(Error::damaged("chunks do not lie back to back in their frame"));
            }
            let ChunkDescriptor { fingerprint, length, level, .. } = *chunk;
            chunks.push(FrameChunk { fingerprint, length, level });
            end = end.saturating_add(length);
        }
        if end != descriptor.plain_length {
            return Err(Error::damaged("chunks do not fill their frame"));
        }
        self.counters.frames += 1;
        let frames = FrameReader::new(&self.repository, location.container)?;
        let mut bytes = Vec::new();
        frames.read(&self.repository, &[descriptor], &mut bytes)?;
        let coded_length = frames.open_coded(part, &mut bytes)?;
        bytes.truncate(coded_length);
        let (codec, plain_length) = (descriptor.codec, descriptor.plain_length);
        Ok(CodedFrame { bytes, codec, plain_length, chunks })
    }
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

    fn insert(&mut self, key: K, value: V, bytes: usize) {
        if let Some((_, old)) = self.entries.put(key, (value, bytes)) {
            self.bytes -= old;
        }
        self.bytes += bytes;
        while self.bytes > self.bytes_max && self.entries.len() > 1 {
            if let Some((_, (_, bytes))) = self.entries.pop_lru() {
                self.bytes -= bytes;
            }
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some((_, bytes)) = self.entries.pop(key) {
            self.bytes -= bytes;
        }
    }
}
