//! Reads chunks by name: locate, read the frame, open it, verify the chunk.
//!
//! The index gives all containers that may hold a chunk, newest first; a container's own section
//! decides. Neighbours are likely wanted next, so whole sections and the last frames are kept
//! ([`super::caches`]).
//!
//! A damaged frame says nothing about the others of its container, so what is passed over is the
//! one instance of the one chunk that could not be read; a container is passed over as a whole only
//! if its section cannot be read, or it has gone. Other instances are tried then; if none is left,
//! the index catches up with the collections that ran meanwhile, as often as there were some
//! (protocol, R1: [`crate::index::current`]); only a chunk that is nowhere after that is reported,
//! by name. What was not found is looked for again after a while: a store may have been away for a
//! moment, and whoever serves a mount reads for months.
//!
//! Concurrency: a reader is shared by threads. What it passes over, it passes over for all of them,
//! and of several that want the same single frame one reads it (`frames`).

mod deltas;
mod frames;
mod sections;

use super::caches::ChunkCaches;
use super::{Chunk, Location, ReadFrame};
use crate::container::frame::{CodedFrame, FrameChunk};
use crate::container::reader::{self, FrameReader, ReadAs};
use crate::container::seen::SeenContainers;
use crate::index::current::{CATCH_UPS_MAX, changes_too_often};
use crate::index::{ChunkIndex, FingerprintIndex};
use crate::repository::Repository;
use onefold_format::container::{ChunkDescriptor, Delta, MetadataSection};
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Result};
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How much reading cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadCounters {
    /// Metadata sections read.
    pub sections: u64,
    /// Frames read and opened.
    pub frames: u64,
    /// Their stored bytes.
    pub frame_bytes: u64,
    /// Index pages read.
    pub index_pages: u64,
}

/// Reads chunks of one store.
pub struct ChunkReader {
    repository: Arc<Repository>,
    index: Arc<dyn ChunkIndex>,
    caches: Arc<ChunkCaches>,
    /// Of which containers what was read before counts.
    peeks_at: PeeksAt,
    passed_over: Mutex<PassedOver>,
    /// Whether anything ever was: as long as not, nobody has to ask.
    has_passed_over: AtomicBool,
    sections: AtomicU64,
    frames: AtomicU64,
    frame_bytes: AtomicU64,
    index_pages: AtomicU64,
    /// Held by whoever reads a frame of one of as many classes.
    reading: [Mutex<()>; READING_LOCKS],
}

/// Of which containers what somebody of this machine has read before counts.
enum PeeksAt {
    /// Of none: what the store holds now is to be found out.
    None,
    /// Of all, though they may be gone.
    All,
    /// Of these: they are known to be there.
    Seen(Arc<SeenContainers>),
}

/// So many frames can be read at once, unless they happen to be of the same class.
const READING_LOCKS: usize = 64;

/// An instance of a chunk: container, frame, and offset in the frame.
type Instance = (ContainerId, u32, u32);

#[derive(Default)]
struct PassedOver {
    /// Containers that are damaged.
    unusable: BTreeSet<ContainerId>,
    /// Instances of chunks that could not be read.
    bad: HashSet<Instance>,
    /// Containers that were not found; forgotten when the index is opened again, and after a while.
    gone: BTreeSet<ContainerId>,
    /// When the first of them was not found.
    gone_since: Option<Instant>,
}

/// After so long a container that was not found is looked for again.
const GONE_PERIOD: Duration = Duration::from_secs(1);

impl PassedOver {
    fn holds(&self, container: ContainerId) -> bool {
        self.unusable.contains(&container) || self.gone.contains(&container)
    }

    fn forget_gone(&mut self) {
        (self.gone, self.gone_since) = (BTreeSet::new(), None);
    }

    /// Whether there is something that was not found long ago; it is forgotten.
    fn looks_again(&mut self) -> bool {
        let looks = self.gone_since.is_some_and(|since| since.elapsed() >= GONE_PERIOD);
        if looks {
            self.forget_gone();
        }
        looks
    }
}

impl ChunkReader {
    /// A reader over the index and the caches of the process, as they are at hand: that it has a
    /// section does not say that the container is still there, and what is missing is looked for in
    /// the store's index as it is then.
    pub fn open(repository: &Arc<Repository>) -> Result<Self> {
        let caches = ChunkCaches::shared(repository)?;
        let reader = Self::over(repository, FingerprintIndex::at_hand(repository)?, caches);
        Ok(Self { peeks_at: PeeksAt::All, ..reader })
    }

    /// A reader that shares no cache: for walks over all that is live.
    pub fn alone(repository: &Arc<Repository>) -> Result<Self> {
        let caches = ChunkCaches::own(repository);
        Ok(Self::over(repository, FingerprintIndex::shared(repository)?, caches))
    }

    /// A reader that finds out what the device holds now, whatever was read before, and reads each
    /// frame once.
    pub fn apart(repository: &Arc<Repository>) -> Result<Self> {
        let caches = ChunkCaches::of_sections(repository);
        Ok(Self::over(repository, FingerprintIndex::shared(repository)?, caches))
    }

    /// A reader for a check.
    pub fn of_check(repository: &Arc<Repository>) -> Result<Self> {
        let caches = ChunkCaches::of_check(repository);
        Ok(Self::over(repository, FingerprintIndex::shared(repository)?, caches))
    }

    /// A reader for the bases of a session's deltas: what was read before the session says nothing
    /// of what is there now, but of the containers that it has seen.
    #[must_use]
    pub fn of_session(
        repository: &Arc<Repository>,
        index: &Arc<dyn ChunkIndex>,
        seen: Arc<SeenContainers>,
    ) -> Self {
        let caches = ChunkCaches::of_bases(repository);
        let reader = Self::over(repository, Arc::clone(index), caches);
        Self { peeks_at: PeeksAt::Seen(seen), ..reader }
    }

    /// A reader over an index of whatever kind.
    #[must_use]
    pub fn over_index(repository: &Arc<Repository>, index: Arc<dyn ChunkIndex>) -> Self {
        Self::over(repository, index, ChunkCaches::of_sections(repository))
    }

    fn over(
        repository: &Arc<Repository>,
        index: Arc<dyn ChunkIndex>,
        caches: Arc<ChunkCaches>,
    ) -> Self {
        Self {
            repository: Arc::clone(repository),
            index,
            caches,
            peeks_at: PeeksAt::None,
            passed_over: Mutex::default(),
            has_passed_over: AtomicBool::new(false),
            sections: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            frame_bytes: AtomicU64::new(0),
            index_pages: AtomicU64::new(0),
            reading: [const { Mutex::new(()) }; READING_LOCKS],
        }
    }

    /// How frames are read, of nodes or of data.
    fn read_as(&self, is_of_nodes: bool) -> ReadAs {
        match self.peeks_at {
            PeeksAt::None => ReadAs::Stored,
            PeeksAt::All if is_of_nodes => ReadAs::Peek,
            PeeksAt::All | PeeksAt::Seen(_) => ReadAs::Glance,
        }
    }

    /// The store.
    #[must_use]
    pub fn repository(&self) -> &Arc<Repository> {
        &self.repository
    }

    /// What it asks for containers.
    #[must_use]
    pub fn index(&self) -> &Arc<dyn ChunkIndex> {
        &self.index
    }

    /// How much reading cost so far.
    #[must_use]
    pub fn counters(&self) -> ReadCounters {
        ReadCounters {
            sections: self.sections.load(Ordering::Relaxed),
            frames: self.frames.load(Ordering::Relaxed),
            frame_bytes: self.frame_bytes.load(Ordering::Relaxed),
            index_pages: self.index_pages.load(Ordering::Relaxed),
        }
    }

    fn passed_over(&self) -> MutexGuard<'_, PassedOver> {
        self.passed_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_over(&self, add: impl FnOnce(&mut PassedOver)) {
        add(&mut self.passed_over());
        self.has_passed_over.store(true, Ordering::Release);
    }

    /// Asks what is passed over, if anything is.
    fn is_passed_over(&self, ask: impl FnOnce(&PassedOver) -> bool) -> bool {
        self.has_passed_over.load(Ordering::Acquire) && ask(&self.passed_over())
    }

    /// Passes over a container whose section could not be read: if it was not found, until the
    /// index is opened again, or for a while.
    fn set_unusable(&self, container: ContainerId, reason: ErrorKind) {
        self.pass_over(|passed_over| {
            match reason {
                ErrorKind::NotFound => {
                    passed_over.gone_since.get_or_insert_with(Instant::now);
                    passed_over.gone.insert(container)
                }
                _ => passed_over.unusable.insert(container),
            };
        });
        self.caches.drop_section(container);
    }

    /// Passes over an instance of a chunk from now on: it could not be read, for such a reason.
    pub fn set_bad(&self, container: ContainerId, frame: u32, offset: u32, reason: ErrorKind) {
        if reason == ErrorKind::NotFound {
            // The whole container has gone, probably to a collection.
            return self.set_unusable(container, reason);
        }
        self.pass_over(|passed_over| {
            passed_over.bad.insert((container, frame, offset));
        });
    }

    /// Containers of which something was passed over because it is damaged.
    #[must_use]
    pub fn damaged(&self) -> BTreeSet<ContainerId> {
        let passed_over = self.passed_over();
        let of_bad = passed_over.bad.iter().map(|(container, ..)| *container);
        of_bad.chain(passed_over.unusable.iter().copied()).collect()
    }

    fn is_bad(&self, container: ContainerId, chunk: &ChunkDescriptor) -> bool {
        let instance = (container, chunk.frame, chunk.offset);
        self.is_passed_over(|passed_over| passed_over.bad.contains(&instance))
    }

    /// Finds a chunk where a placement says it is; `None` if it is not there. Nothing else is
    /// asked.
    pub fn locate_in(
        &self,
        container: ContainerId,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Location>> {
        let Some(section) = self.section(container)? else {
            return Ok(None);
        };
        let found = self.caches.find(container, &section, fingerprint);
        if found.as_ref().is_none_or(|found| !self.is_bad(container, found.descriptor())) {
            return Ok(found);
        }
        let position = (0..).zip(&section.chunks).find_map(|(position, chunk)| {
            (chunk.fingerprint == *fingerprint && !self.is_bad(container, chunk))
                .then_some(position)
        });
        Ok(position.map(|position| Location { container, section, position }))
    }

    /// Finds a chunk.
    ///
    /// Errors: `Damaged` if no readable container holds it.
    pub fn locate(&self, fingerprint: &Fingerprint) -> Result<Location> {
        for _ in 0..CATCH_UPS_MAX {
            let generation = self.index.generation();
            if let Some(location) = self.locate_known(fingerprint)? {
                return Ok(location);
            }
            if self.index.catch_up(&self.repository, generation)? {
                self.passed_over().forget_gone();
            } else if !self.passed_over().looks_again() {
                let problem = format!("chunk {fingerprint} is in no readable container");
                return Err(Error::damaged(problem));
            }
        }
        Err(changes_too_often(fingerprint))
    }

    /// Finds an instance of a chunk in place of one that could not be read, and says why that could
    /// not if there is none.
    pub fn locate_another(&self, fingerprint: &Fingerprint, reason: &str) -> Result<Location> {
        self.locate(fingerprint).map_err(|error| match error.is_lost() {
            true => Error::new(error.kind(), format!("{error}: {reason}")),
            false => error,
        })
    }

    /// Appends for each fingerprint all containers that the index names for it, newest first.
    pub fn locate_all(
        &self,
        fingerprints: &[Fingerprint],
        found: &mut Vec<Vec<ContainerId>>,
    ) -> Result<()> {
        let mut pages = 0;
        let outcome = self.index.locate_many(&self.repository, fingerprints, found, &mut pages);
        self.index_pages.fetch_add(pages, Ordering::Relaxed);
        outcome
    }

    /// Finds a chunk in a container in which others were found before; nothing is looked for.
    pub fn known(&self, fingerprint: &Fingerprint) -> Result<Option<Location>> {
        let Some((container, position, kept)) = self.caches.instance(fingerprint) else {
            return Ok(None);
        };
        let section = self.section_beside(container, kept)?;
        let location = section.map(|section| Location { container, section, position });
        Ok(location.filter(|location| !self.is_bad(container, location.descriptor())))
    }

    /// Finds nothing in a container any more before it is looked into again.
    pub fn forget(&self, container: ContainerId) {
        self.caches.drop_section(container);
    }

    fn locate_known(&self, fingerprint: &Fingerprint) -> Result<Option<Location>> {
        if let Some(location) = self.known(fingerprint)? {
            return Ok(Some(location));
        }
        let mut pages = 0;
        let containers = self.index.locate(&self.repository, fingerprint, &mut pages);
        self.index_pages.fetch_add(pages, Ordering::Relaxed);
        let mut failed = None;
        for container in containers? {
            match self.locate_in(container, fingerprint) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                // Another instance may be readable.
                Err(error) if error.is_unreadable() => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// The section of a container, or `None` if the container cannot be used.
    pub fn section(&self, container: ContainerId) -> Result<Option<Arc<MetadataSection>>> {
        self.section_beside(container, None)
    }

    /// A section that is kept, so that it need not be read.
    #[must_use]
    pub fn kept_section(&self, container: ContainerId) -> Option<Arc<MetadataSection>> {
        self.caches.section(container)
    }

    /// Whether the device would be asked for a section: it is not kept, nor known to be unusable.
    #[must_use]
    pub fn reads_section(&self, container: ContainerId) -> bool {
        !self.is_passed_over(|passed_over| passed_over.holds(container))
            && self.kept_section(container).is_none()
    }

    /// The same for whom it may have been found in the caches already.
    fn section_beside(
        &self,
        container: ContainerId,
        kept: Option<Arc<MetadataSection>>,
    ) -> Result<Option<Arc<MetadataSection>>> {
        if self.is_passed_over(|passed_over| passed_over.holds(container)) {
            return Ok(None);
        }
        if let Some(section) = kept.or_else(|| self.caches.section(container)) {
            return Ok(Some(section));
        }
        self.sections.fetch_add(1, Ordering::Relaxed);
        let peeks = match &self.peeks_at {
            PeeksAt::None => false,
            PeeksAt::All => true,
            PeeksAt::Seen(seen) => seen.holds(container),
        };
        let read = if peeks { reader::peek_section } else { reader::read_section };
        match read(&self.repository, container) {
            Ok(section) => {
                let section = Arc::new(section);
                self.caches.keep_section(container, &section);
                Ok(Some(section))
            }
            Err(error) if error.is_lost() => {
                self.set_unusable(container, error.kind());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a chunk and verifies it against its name.
    pub fn read(&self, fingerprint: &Fingerprint) -> Result<Chunk> {
        self.read_from(self.locate(fingerprint)?, &[])
    }

    /// The same for whoever wants others behind it: with those that lie behind it in its container
    /// as they are wanted, those of a frame verified together; with none where that cannot be done.
    /// What is in the frame of a chunk that is held is not read again, whatever the caches keep.
    pub fn read_run(
        &self,
        fingerprint: &Fingerprint,
        following: &[Fingerprint],
        held: &[Chunk],
    ) -> Result<Vec<Chunk>> {
        let location = self.locate(fingerprint)?;
        let (container, position) = (location.container, location.position as usize);
        let there = location.section.chunks.iter().skip(position + 1).zip(following);
        let run = there.take_while(|(there, wanted)| {
            there.fingerprint == **wanted && !self.is_bad(container, there)
        });
        let run = &location.section.chunks[position..=position + run.count()];
        match self.read_frames_of(&location, run, held) {
            Ok(chunks) => Ok(chunks),
            // One of them is damaged, perhaps not the one that was asked for.
            Err(_) => Ok(vec![self.read_from(location, held)?]),
        }
    }

    /// The same for whoever knows where it is: there first, and then wherever else it is.
    pub fn read_from(&self, location: Location, held: &[Chunk]) -> Result<Chunk> {
        let mut in_the_way = Vec::new();
        let read = self.read_anywhere(location, held, &mut in_the_way);
        if in_the_way.is_empty() {
            return read;
        }
        // What the device does not give now it may give later.
        for (instance, _) in &in_the_way {
            self.passed_over().bad.remove(instance);
        }
        match read {
            // Not lost, as long as there is an instance that was only in the way.
            Err(error) if error.is_lost() => Err(in_the_way.swap_remove(0).1),
            read => read,
        }
    }

    /// Tries one instance after another; those go to `in_the_way` that the device did not give.
    fn read_anywhere(
        &self,
        mut location: Location,
        held: &[Chunk],
        in_the_way: &mut Vec<(Instance, Error)>,
    ) -> Result<Chunk> {
        loop {
            match self.plain(&location, held).and_then(|plain| self.verified(&location, plain)) {
                Ok(chunk) => return Ok(chunk),
                // An instance fails once: this ends.
                Err(error) if error.is_unreadable() => {
                    let (container, chunk) = (location.container, *location.descriptor());
                    let reason = error.to_string();
                    self.set_bad(container, chunk.frame, chunk.offset, error.kind());
                    if !error.is_lost() {
                        in_the_way.push(((container, chunk.frame, chunk.offset), error));
                    }
                    location = self.locate_another(&chunk.fingerprint, &reason)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a chunk that is advice only. If it cannot be read, nothing else suffers: its container
    /// stays in use for what is needed, and the index is not replayed.
    pub fn read_advice(&self, fingerprint: &Fingerprint) -> Result<Chunk> {
        match self.locate_known(fingerprint)? {
            Some(location) => self.read_at(&location),
            None => Err(Error::damaged(format!("chunk {fingerprint} is not where it was"))),
        }
    }

    /// Reads a chunk where it was found, and verifies it against its name.
    ///
    /// Errors: `Damaged` or `NotFound` if it cannot be read there.
    pub fn read_at(&self, location: &Location) -> Result<Chunk> {
        let number = location.descriptor().frame;
        self.verified(location, self.frame(location.container, &location.section, number)?)
    }

    /// Reads some chunks of one frame and verifies them together.
    ///
    /// Errors: `Damaged` or `NotFound` if one of them cannot be read there.
    pub fn read_together(
        &self,
        container: ContainerId,
        section: &MetadataSection,
        chunks: &[ChunkDescriptor],
    ) -> Result<Vec<Chunk>> {
        let Some(first) = chunks.first() else { return Ok(Vec::new()) };
        let plain = self.frame(container, section, first.frame)?;
        self.all_verified(container, section, chunks, &plain)
            .context(|| format!("container {container}"))
    }

    fn verified(&self, location: &Location, plain: Arc<ReadFrame>) -> Result<Chunk> {
        let what = || format!("container {}", location.container);
        match location.descriptor().is_delta() {
            true => self.made(location.container, &location.section, location.descriptor(), &plain),
            false => Chunk::verified(location, plain, self.repository.fingerprinter()),
        }
        .context(what)
    }

    /// The frame that a chunk is in, authentic, as it is coded, with all chunks that it holds.
    ///
    /// Errors: `Damaged` or `NotFound` if it cannot be read, or its chunks do not lie in it back to
    /// back.
    pub fn coded_frame(&self, location: &Location) -> Result<CodedFrame> {
        let number = location.descriptor().frame;
        let descriptor = location.section.frames[number as usize];
        let of_frame = (0u32..).zip(&location.section.chunks);
        let of_frame = of_frame.filter(|(_, chunk)| chunk.frame == number);
        let (mut chunks, mut deltas, mut sketches) = (Vec::new(), Vec::new(), Vec::new());
        let mut end = 0;
        for (position, chunk) in of_frame {
            if chunk.offset != end {
                return Err(Error::damaged("chunks do not lie back to back in their frame"));
            }
            let ChunkDescriptor { fingerprint, length, level, payload_length, .. } = *chunk;
            let at = chunks.len() as u32;
            let delta = location.section.delta_at(position);
            deltas.extend(delta.map(|delta| Delta { chunk: at, ..delta.clone() }));
            sketches.extend(location.section.sketch_at(position).map(|sketch| (at, *sketch)));
            chunks.push(FrameChunk { fingerprint, length, level });
            end += payload_length;
        }
        if end != descriptor.plain_length {
            return Err(Error::damaged("chunks do not fill their frame"));
        }
        self.frames.fetch_add(1, Ordering::Relaxed);
        let frames = FrameReader::new(&self.repository, location.container)?;
        let mut bytes = Vec::new();
        frames.read(&self.repository, &[descriptor], &mut bytes)?;
        let coded_length = frames.open_coded(number, &mut bytes)?;
        bytes.truncate(coded_length);
        let (codec, plain_length) = (descriptor.codec, descriptor.plain_length);
        Ok(CodedFrame { bytes, codec, plain_length, chunks, deltas, sketches })
    }
}
