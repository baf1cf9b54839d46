//! An open container: the new chunks of one stream, in stream order (SISL; FAST'08, section 4.2).
//!
//! Chunks fill a frame; full frames are sealed by the pool, a few at a time, and appended in order.
//! Once the stored bytes reach the target the container is finished: metadata section, footer, and
//! over to the log. Each stream has two open containers, one for data and one for tree nodes, so
//! that listing a snapshot reads no data and a scan by level meets few containers (FAST'17, 4.2).
//!
//! Invariants: the chunks of a container, those in the frame being filled included, are counted
//! where they are admitted, and the container is finished before they would exceed
//! [`limits::CONTAINER_CHUNKS_TARGET`]; only a single frame that is carried may hold more, up to
//! [`limits::CONTAINER_CHUNKS_MAX`]. A finished metadata section is read back as a reader reads it,
//! and handed on only if it says what was put in: without it no frame can be used (R57).
//!
//! Concurrency: owned by its stream's thread.

use super::frame::{CodedFrame, FrameChunk, PlainFrame, SealedFrame, laid_out};
use super::frame_id::{FrameId, frames_of};
use super::frame_pool::{FramePool, Pending};
use super::log::{ContainerLog, FinishedContainer};
use onefold_crypto::{ObjectSealer, Purpose, Vault};
use onefold_format::container::{
    self, BodyChecksum, ChunkDescriptor, Delta, Footer, FrameDescriptor, METADATA_PART,
    MetadataSection, SKETCH_BYTES,
};
use onefold_store::OBJECT_MAX_BYTES;
use onefold_types::environment::{Clock, Randomness};
use onefold_types::error::Context;
use onefold_types::{
    ContainerId, Error, ErrorKind, Fingerprint, Level, Result, SessionId, invariant, limits,
};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Frames whose plain bytes are remembered.
const PAYLOADS_MAX: usize = 1 << 18;
/// Frames of one container that may be in the pool at once.
const FRAMES_IN_FLIGHT_MAX: usize = 4;
/// As many where sealing mostly waits for a far store, of containers that are not too long for it.
pub const FRAMES_WAITING_MAX: usize = 16;
/// The longest of these.
pub const WAITING_TARGET_MAX_BYTES: usize = 64 * limits::MIB;

/// What a container has at most: what is in the pool when the target is reached comes on top.
const fn object_bytes(target_bytes: usize, frames_in_flight: usize) -> usize {
    target_bytes
        + (frames_in_flight + 1) * (limits::FRAME_PLAIN_MAX_BYTES + 16)
        + limits::METADATA_SECTION_MAX_BYTES
        + 128
}

const _: () = assert!(
    object_bytes(limits::CONTAINER_TARGET_MAX_BYTES, FRAMES_IN_FLIGHT_MAX) <= OBJECT_MAX_BYTES
        && object_bytes(WAITING_TARGET_MAX_BYTES, FRAMES_WAITING_MAX) <= OBJECT_MAX_BYTES
);

/// How many frames of a container may be in the pool of so many threads at once, if these mostly
/// wait.
#[must_use]
pub fn frames_in_flight_max(waiting_threads: Option<usize>, target_bytes: usize) -> usize {
    let waiting = waiting_threads.filter(|_| target_bytes <= WAITING_TARGET_MAX_BYTES);
    let waiting = waiting.map(|threads| threads.min(FRAMES_WAITING_MAX));
    waiting.unwrap_or(0).max(FRAMES_IN_FLIGHT_MAX)
}

/// What an open container needs of its session.
pub struct ContainerContext {
    /// Seals.
    pub vault: Arc<Vault>,
    /// Names.
    pub randomness: Arc<dyn Randomness>,
    /// The order of names.
    pub clock: Arc<dyn Clock>,
    /// Seals frames.
    pub pool: Arc<FramePool>,
    /// Takes finished containers.
    pub log: Arc<ContainerLog>,
    /// Frames of a container that may be in there at once ([`frames_in_flight_max`]).
    pub frames_in_flight_max: usize,
    /// Stored bytes after which a container is finished.
    pub target_bytes: usize,
    /// Plain bytes after which a frame is sealed.
    pub frame_bytes: usize,
    /// The session that stores them; `None`: a collector.
    pub session: Option<SessionId>,
    /// The level at which a collector packs anew; 0: it does not.
    pub repacked_level: u8,
    /// The containers that were named so far.
    pub named: Mutex<Vec<ContainerId>>,
    /// What was stored as deltas.
    pub deltas: DeltaCounters,
}

/// Deltas that went into containers.
#[derive(Debug, Default)]
pub struct DeltaCounters {
    /// How many.
    pub chunks: AtomicU64,
    /// Plain bytes of the chunks.
    pub bytes: AtomicU64,
    /// What stands for them, before compression.
    pub payload_bytes: AtomicU64,
}

impl DeltaCounters {
    fn note(&self, chunks: &[ChunkDescriptor]) {
        let deltas = chunks.iter().filter(|chunk| chunk.is_delta());
        for chunk in deltas {
            self.chunks.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(u64::from(chunk.length), Ordering::Relaxed);
            self.payload_bytes.fetch_add(u64::from(chunk.payload_length), Ordering::Relaxed);
        }
    }
}

impl ContainerContext {
    /// Whether one of these containers is of this session.
    #[must_use]
    pub fn has_named(&self, containers: &BTreeSet<ContainerId>) -> bool {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.iter().any(|id| containers.contains(id))
    }
}

/// Bytes of chunks after which a frame of copied deltas is closed, so that making all of it whole
/// takes no more than the largest frame.
const FRAME_WHOLE_TARGET_BYTES: usize =
    limits::FRAME_PLAIN_MAX_BYTES - limits::CHUNK_SIZE_MAX_BYTES;

/// The containers that one stream fills, one after the other.
pub struct OpenContainer {
    context: Arc<ContainerContext>,
    frame: PlainFrame,
    /// Plain bytes after which a frame is sealed.
    frame_bytes: usize,
    /// Bytes of its chunks once its deltas are made whole.
    frame_whole_bytes: usize,
    /// Buffers of sealed frames, to be filled again: memory that is asked for anew costs as much as
    /// what is put into it.
    spare: Vec<Vec<u8>>,
    /// The same of what they were sealed into.
    spare_sealed: Vec<Vec<u8>>,
    body: Option<Body>,
    /// The name of the container that the next chunks go to, once there is one.
    id: Option<ContainerId>,
    /// Plain bytes of the frames of the containers finished.
    payloads: HashMap<FrameId, u64>,
}

/// The part of an open container that has been handed to the pool.
struct Body {
    id: ContainerId,
    sealer: Arc<ObjectSealer>,
    bytes: Vec<u8>,
    section: MetadataSection,
    /// Frames in the pool, and how long each was when it was handed in.
    in_flight: VecDeque<(Pending, usize)>,
    /// How long those were that are in.
    handed_in_bytes: usize,
    frames_submitted: u32,
    chunks_submitted: usize,
    plain_submitted_bytes: usize,
    plain_collected_bytes: usize,
}

impl OpenContainer {
    /// Nothing yet; the first chunk opens a container.
    #[must_use]
    pub fn new(context: Arc<ContainerContext>) -> Self {
        Self {
            frame_bytes: context.frame_bytes,
            context,
            frame: PlainFrame::default(),
            frame_whole_bytes: 0,
            spare: Vec::new(),
            spare_sealed: Vec::new(),
            body: None,
            id: None,
            payloads: HashMap::new(),
        }
    }

    /// The same with frames of another size.
    #[must_use]
    pub fn with_frames_of(self, frame_bytes: usize) -> Self {
        Self { frame_bytes, ..self }
    }

    /// Appends a chunk; returns the frame that it goes to.
    pub fn append(
        &mut self,
        fingerprint: Fingerprint,
        level: Level,
        bytes: &[u8],
    ) -> Result<FrameId> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.push(FrameChunk { fingerprint, length, level }, bytes, |_, _| {})
    }

    /// The same; `corresponding` stands in the chunk's place in an earlier version, so that it may
    /// be stored as a difference.
    pub fn append_version(
        &mut self,
        fingerprint: Fingerprint,
        bytes: &[u8],
        corresponding: Fingerprint,
    ) -> Result<FrameId> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.push(FrameChunk { fingerprint, length, level: Level::DATA }, bytes, |frame, number| {
            frame.corresponding.push((number, corresponding));
        })
    }

    /// The same for a chunk that is stored again so that it lies here: never as a difference
    /// against one that lies elsewhere.
    pub fn append_again(&mut self, fingerprint: Fingerprint, bytes: &[u8]) -> Result<FrameId> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let chunk = FrameChunk { fingerprint, length, level: Level::DATA };
        self.push(chunk, bytes, |frame, number| frame.whole.push(number))
    }

    /// Appends a chunk out of another container as it lies there: its bytes, or the payload of a
    /// delta, whose bases must stay.
    pub fn append_copy(
        &mut self,
        chunk: &ChunkDescriptor,
        delta: Option<&Delta>,
        sketch: Option<&[u8; SKETCH_BYTES]>,
        payload: &[u8],
    ) -> Result<FrameId> {
        let ChunkDescriptor { fingerprint, length, level, payload_length, .. } = *chunk;
        let is_whole = payload.len() == payload_length as usize;
        let is_known = chunk.is_delta() == delta.is_some();
        invariant!(is_whole && is_known, "a chunk to be copied lacks bytes", chunk, payload.len());
        self.push(FrameChunk { fingerprint, length, level }, payload, |frame, number| {
            frame.deltas.extend(delta.map(|delta| Delta { chunk: number, ..delta.clone() }));
            frame.sketches.extend(sketch.map(|sketch| (number, *sketch)));
        })
    }

    /// Appends what a chunk takes of its frame; `note` says of its number there what else is known.
    fn push(
        &mut self,
        chunk: FrameChunk,
        bytes: &[u8],
        note: impl FnOnce(&mut PlainFrame, u32),
    ) -> Result<FrameId> {
        if chunk.length as usize > limits::CHUNK_SIZE_MAX_BYTES {
            return Err(too_much("a chunk is longer than any may be"));
        }
        self.admit(1)?;
        let submitted = self.body.as_ref().map_or(0, |body| body.frames_submitted);
        let frame = u16::try_from(submitted).map_err(|_| too_much("too many frames"))?;
        let id = FrameId { container: self.name(), frame };
        if self.frame.bytes.capacity() == 0 {
            self.frame.bytes = self.spare.pop().unwrap_or_default();
            self.frame.sealed = self.spare_sealed.pop().unwrap_or_default();
            self.frame.bytes.reserve(self.frame_bytes + limits::CHUNK_SIZE_MAX_BYTES / 16);
        }
        let number = self.frame.chunks.len() as u32;
        note(&mut self.frame, number);
        self.frame.bytes.extend_from_slice(bytes);
        self.frame.chunks.push(chunk);
        self.frame_whole_bytes += chunk.length as usize;
        let is_full = self.frame.bytes.len() >= self.frame_bytes
            || self.frame_whole_bytes >= FRAME_WHOLE_TARGET_BYTES;
        if is_full {
            self.submit_frame()?;
        }
        Ok(id)
    }

    /// Finishes the container if it should not take so many chunks more.
    fn admit(&mut self, chunks: usize) -> Result<()> {
        if chunks > limits::CONTAINER_CHUNKS_MAX {
            return Err(too_much("a frame holds more chunks than a container may"));
        }
        let submitted = self.body.as_ref().map_or(0, |body| body.chunks_submitted);
        let held = submitted + self.frame.chunks.len();
        match held + chunks <= limits::CONTAINER_CHUNKS_TARGET {
            true => Ok(()),
            false => self.finish(),
        }
    }

    fn name(&mut self) -> ContainerId {
        let context = &self.context;
        *self.id.get_or_insert_with(|| {
            let id = ContainerId::ordered(context.clock.now_ns(), &*context.randomness);
            context.named.lock().unwrap_or_else(PoisonError::into_inner).push(id);
            id
        })
    }

    /// Plain bytes of the frames of the containers finished so far.
    pub fn take_payloads(&mut self) -> HashMap<FrameId, u64> {
        std::mem::take(&mut self.payloads)
    }

    /// Seals what there is and hands the container to the log.
    pub fn finish(&mut self) -> Result<()> {
        if !self.frame.chunks.is_empty() {
            self.submit_frame()?;
        }
        match self.body.take() {
            Some(body) => self.finish_body(body),
            None => Ok(()),
        }
    }

    /// Appends a frame of another container as it is coded. It goes before the frame that is being
    /// filled, whose number [`OpenContainer::append`] has told too low then: the other way round,
    /// every carried frame would cut the one being filled short. Only recorders of placements use
    /// such numbers, and a collection, which alone carries frames, records none.
    pub fn carry(&mut self, frame: CodedFrame) -> Result<()> {
        self.admit(frame.chunks.len())?;
        let mut body = self.open_body()?;
        body.chunks_submitted += frame.chunks.len();
        body.plain_submitted_bytes += bytes_of(&frame.chunks);
        let (number, sealer) = (body.frames_submitted, Arc::clone(&body.sealer));
        let length = frame.plain_length as usize;
        body.in_flight.push_back((self.context.pool.carry(frame, number, sealer)?, length));
        self.submitted(body)
    }

    fn submit_frame(&mut self) -> Result<()> {
        let frame = std::mem::take(&mut self.frame);
        self.frame_whole_bytes = 0;
        let mut body = self.open_body()?;
        let (number, sealer) = (body.frames_submitted, Arc::clone(&body.sealer));
        body.chunks_submitted += frame.chunks.len();
        body.plain_submitted_bytes += bytes_of(&frame.chunks);
        let length = frame.bytes.len();
        body.in_flight.push_back((self.context.pool.seal(frame, number, sealer)?, length));
        self.submitted(body)
    }

    fn open_body(&mut self) -> Result<Body> {
        match self.body.take() {
            Some(body) => Ok(body),
            None => {
                let id = self.name();
                Body::open(&self.context, id)
            }
        }
    }

    /// Goes on after another frame was handed to the pool.
    fn submitted(&mut self, mut body: Body) -> Result<()> {
        body.frames_submitted += 1;
        if body.in_flight.len() > self.context.frames_in_flight_max {
            self.collect_one(&mut body)?;
        }
        if body.expected_bytes() >= self.context.target_bytes {
            return self.finish_body(body);
        }
        self.body = Some(body);
        Ok(())
    }

    fn collect_one(&mut self, body: &mut Body) -> Result<()> {
        if let Some((pending, length)) = body.in_flight.pop_front() {
            body.handed_in_bytes += length;
            let mut sealed = pending.wait()?;
            // Carried frames leave no buffer, and a frame must not be given one of none: what was
            // put aside below it would never be used again.
            let spare = std::mem::take(&mut sealed.spare);
            if spare.capacity() > 0 && self.spare.len() <= self.context.frames_in_flight_max {
                self.spare.push(spare);
            }
            let bytes = body.take(sealed, &self.context.deltas)?;
            // Long ones would be kept for frames that are seldom so long.
            let is_kept = (1..=2 * self.context.frame_bytes).contains(&bytes.capacity());
            if is_kept && self.spare_sealed.len() <= self.context.frames_in_flight_max {
                self.spare_sealed.push(bytes);
            }
        }
        Ok(())
    }

    fn finish_body(&mut self, mut body: Body) -> Result<()> {
        while !body.in_flight.is_empty() {
            self.collect_one(&mut body)?;
        }
        self.id = None;
        if self.payloads.len() < PAYLOADS_MAX {
            let container = body.id;
            let frames = frames_of(&body.section);
            self.payloads.extend((0..=u16::MAX).zip(&frames).map(|(frame, extent)| {
                (FrameId { container, frame }, u64::from(extent.plain_bytes))
            }));
        }
        self.context.log.append(body.finish()?)
    }
}

impl Body {
    fn open(context: &ContainerContext, id: ContainerId) -> Result<Self> {
        let sealer = Arc::new(context.vault.object(Purpose::Container, &id.0)?);
        let mut bytes = context.log.buffer(context.target_bytes + 2 * limits::MIB);
        bytes.extend_from_slice(&container::encode_header(id));
        Ok(Self {
            id,
            sealer,
            bytes,
            section: MetadataSection {
                session: context.session,
                repacked_level: context.repacked_level,
                ..MetadataSection::default()
            },
            in_flight: VecDeque::new(),
            handed_in_bytes: 0,
            frames_submitted: 0,
            chunks_submitted: 0,
            plain_submitted_bytes: 0,
            plain_collected_bytes: 0,
        })
    }

    /// The stored length once the frames in the pool are in, if they shrink like those before. It
    /// rests only on frames collected in order: the same stream always fills the same containers.
    fn expected_bytes(&self) -> usize {
        let waiting: usize = self.in_flight.iter().map(|(_, length)| length).sum();
        let shrunk = match self.handed_in_bytes {
            0 => waiting,
            before => waiting * self.bytes.len() / before,
        };
        self.bytes.len() + shrunk
    }

    /// Appends a frame; returns the buffer that it was in.
    fn take(&mut self, sealed: SealedFrame, counters: &DeltaCounters) -> Result<Vec<u8>> {
        let frame = self.section.frames.len() as u32;
        let number = sealed.number;
        invariant!(
            number == frame && sealed.object == self.id.0,
            "a frame stands where it was not sealed for",
            number,
            frame,
            sealed.object,
            self.id
        );
        self.plain_collected_bytes += bytes_of(&sealed.chunks);
        self.section.frames.push(FrameDescriptor {
            offset: self.bytes.len() as u64,
            stored_length: sealed.bytes.len() as u32,
            plain_length: sealed.plain_length,
            codec: sealed.codec,
        });
        self.bytes.extend_from_slice(&sealed.bytes);
        let first = self.section.chunks.len() as u32;
        let chunks = laid_out(&sealed.chunks, &sealed.deltas, frame);
        let end = chunks.last().map_or(0, |last| last.offset + last.payload_length);
        let plain_length = sealed.plain_length;
        invariant!(end == plain_length, "a frame and its chunks differ", end, plain_length);
        counters.note(&chunks);
        self.section.chunks.extend(chunks);
        let deltas = sealed.deltas.into_iter();
        self.section
            .deltas
            .extend(deltas.map(|delta| Delta { chunk: first + delta.chunk, ..delta }));
        let sketches = sealed.sketches.into_iter();
        self.section.sketches.extend(sketches.map(|(chunk, sketch)| (first + chunk, sketch)));
        Ok(sealed.bytes)
    }

    /// Fails unless the container says what was appended to it.
    fn expect_whole(&self) -> Result<()> {
        let (frames, chunks) = (self.section.frames.len(), self.section.chunks.len());
        invariant!(
            frames == self.frames_submitted as usize && chunks == self.chunks_submitted,
            "a container lacks frames or chunks that were appended",
            frames,
            self.frames_submitted,
            chunks,
            self.chunks_submitted
        );
        let (submitted, collected) = (self.plain_submitted_bytes, self.plain_collected_bytes);
        invariant!(submitted == collected, "a container lacks bytes", submitted, collected);
        Ok(())
    }

    fn finish(mut self) -> Result<FinishedContainer> {
        self.expect_whole()?;
        let mut section = container::code_metadata(&self.section.encode())?;
        self.sealer.seal(METADATA_PART, &mut section, 0)?;
        let what = || format!("the metadata section of the new container {}", self.id);
        self.read_back(&section).context(what)?;
        let metadata_length =
            u32::try_from(section.len()).map_err(|_| too_much("a metadata section is too long"))?;
        let metadata_offset = self.bytes.len() as u64;
        self.bytes.extend_from_slice(&section);
        let mut checksum = BodyChecksum::default();
        checksum.update(&self.bytes);
        let footer = Footer { metadata_offset, metadata_length, body_crc: checksum.finish() };
        self.bytes.extend_from_slice(&footer.encode());
        let fingerprints = self.section.chunks.iter().map(|chunk| chunk.fingerprint).collect();
        Ok(FinishedContainer {
            id: self.id,
            bytes: self.bytes,
            sealed_section: section,
            fingerprints,
            frames: frames_of(&self.section),
            sketches: std::mem::take(&mut self.section.sketches),
        })
    }

    /// Opens and decodes the sealed metadata section as a reader does, and compares.
    fn read_back(&self, sealed: &[u8]) -> Result<()> {
        let mut coded = Vec::new();
        self.sealer.open_into(METADATA_PART, sealed, &mut coded)?;
        match container::decode_metadata(&coded)? == self.section {
            true => Ok(()),
            false => Err(Error::damaged("it reads back otherwise than it was written")),
        }
    }
}

/// The bytes of some chunks.
fn bytes_of(chunks: &[FrameChunk]) -> usize {
    chunks.iter().map(|chunk| chunk.length as usize).sum()
}

fn too_much(what: &str) -> Error {
    Error::new(ErrorKind::LimitExceeded, what)
}
