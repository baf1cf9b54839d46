//! Containers: self-describing, immutable objects of sealed frames (FAST'08, section 3.3).
//!
//! ```text
//! offset  size  field
//! 0       8     magic "1FCONTNR"
//! 8       2     format version
//! 10      6     zero
//! 16      16    container id
//! 32      ...   frames, back to back: each coded, then sealed (16-byte tag at its end)
//! m       ...   metadata section, coded, then sealed as part METADATA_PART
//! end-40  8     offset m of the metadata section
//!     +8  4     its stored length
//!     +12 4     zero
//!     +16 8     CRC-64/NVME of everything before the footer (readable without a key)
//!     +24 4     CRC-32/ISCSI of the footer up to here
//!     +28 4     zero
//!     +32 8     magic "1FFOOTER"
//! ```
//!
//! The **metadata section** lists the chunks in stream order; it can be read alone, from the
//! object's tail. Plain form, before coding (one codec byte, four bytes of plain length, the coded
//! columns) and sealing:
//!
//! ```text
//! varint frames, then for each: varint stored length, varint plain length, u8 codec,
//!                               varint chunks in it
//! varint chunks
//! columns until the end, each: u8 tag, varint length, bytes
//!   1 fingerprints, 32 bytes each
//!   2 plain lengths, varints
//!   3 levels, runs of (varint level, varint chunks)
//!   4 deltas: varint count, then for each: varint chunk (distance from the one before),
//!     u8 depth (1 to 4), u8 bases (1 to 6), bases' fingerprints, varint payload length
//!   128 sketches: varint count, then for each: varint chunk (distance), 24 bytes
//!   129 session, 16 bytes: who stored the chunks, if it was not a collector
//!   130 whereabouts: varint containers, 16 bytes each, then for each base in the order of column 4
//!     a varint: 0, or one more than the number of a container that held it when this was written
//!   131 repacked, u8: the level of zstd at which a collector packed the chunks anew
//! ```
//!
//! A chunk's offset in its frame follows from the lengths before it. Columns with tags from 128 up
//! may be skipped by a reader that does not know them; any other unknown tag means a newer format.
//!
//! A **delta** is a data chunk of which the frame holds a payload that is shorter than the chunk:
//! what [`crate::delta`] makes the chunk of, given the plain bytes of its bases, one behind the
//! other. Deltas name their bases by fingerprint, never by position, so that a base may move; the
//! whereabouts say where to look first and prove nothing. A delta of depth n needs instances of its
//! bases that are plain or of a depth below n, so that no chain goes in a circle.

mod columns;
mod delta_columns;

use crate::codec::Codec;
use crate::wire::{Reader, Writer};
use columns::{
    COLUMN_DELTAS, COLUMN_FINGERPRINTS, COLUMN_LENGTHS, COLUMN_LEVELS, COLUMN_REPACKED,
    COLUMN_SESSION, COLUMN_SKETCHES, COLUMN_WHEREABOUTS, Columns, LevelRuns,
};
use delta_columns::{encode_deltas, encode_whereabouts};
use onefold_types::{ContainerId, Error, ErrorKind, Fingerprint, Level, Result, SessionId, limits};

/// Bytes in front of the first frame.
pub const HEADER_BYTES: usize = 32;
/// Bytes behind the metadata section.
pub const FOOTER_BYTES: usize = 40;
/// The part number under which a metadata section is sealed.
pub const METADATA_PART: u32 = u32::MAX;
/// Bytes in a similarity sketch.
pub const SKETCH_BYTES: usize = 24;
/// Bases that one delta chunk may have.
pub const DELTA_BASES_MAX: usize = 6;
/// How many bases may stand behind one another.
pub const DELTA_DEPTH_MAX: u8 = 4;

const MAGIC: &[u8; 8] = b"1FCONTNR";
const FOOTER_MAGIC: &[u8; 8] = b"1FFOOTER";

/// One compressed, sealed unit of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameDescriptor {
    /// Where the frame begins in the container.
    pub offset: u64,
    /// Its length as stored, tag included.
    pub stored_length: u32,
    /// Its length once opened and decompressed.
    pub plain_length: u32,
    /// How it is coded.
    pub codec: Codec,
}

impl FrameDescriptor {
    /// Where the frame ends in the container.
    #[must_use]
    pub fn end(&self) -> u64 {
        // No section lists so many frames that this could be too much.
        self.offset + u64::from(self.stored_length)
    }
}

/// One chunk of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkDescriptor {
    /// The chunk's name.
    pub fingerprint: Fingerprint,
    /// Its plain length.
    pub length: u32,
    /// Its height in the forest.
    pub level: Level,
    /// The frame that holds it.
    pub frame: u32,
    /// Where it begins in the plain frame.
    pub offset: u32,
    /// How much of the plain frame it takes: its length, or less if it is a delta.
    pub payload_length: u32,
}

impl ChunkDescriptor {
    /// Whether its bases are needed to make it.
    #[must_use]
    pub fn is_delta(&self) -> bool {
        self.payload_length != self.length
    }

    /// Whether a delta may stand for it: one that is shorter, and for no node.
    fn may_be_delta(&self) -> bool {
        self.payload_length < self.length && !self.level.is_node()
    }
}

/// A chunk that another one is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base {
    /// Its name.
    pub fingerprint: Fingerprint,
    /// A container that held it when the delta was made.
    pub container: Option<ContainerId>,
}

/// How a chunk is made from other chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delta {
    /// The position of the chunk in its container.
    pub chunk: u32,
    /// One more than the deepest base.
    pub depth: u8,
    /// The chunks it is made from.
    pub bases: Vec<Base>,
    /// The length of the delta's bytes in the frame.
    pub payload_length: u32,
}

/// Everything about the chunks of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetadataSection {
    /// The frames, in order of their offsets.
    pub frames: Vec<FrameDescriptor>,
    /// The chunks, in stream order.
    pub chunks: Vec<ChunkDescriptor>,
    /// The chunks that are deltas, by rising position.
    pub deltas: Vec<Delta>,
    /// Similarity sketches of some chunks, by rising position.
    pub sketches: Vec<(u32, [u8; SKETCH_BYTES])>,
    /// The session that stored the container; `None`: a collector.
    pub session: Option<SessionId>,
    /// The level of zstd at which a collector packed the chunks anew; 0: none did.
    pub repacked_level: u8,
}

/// The header of a container.
#[must_use]
pub fn encode_header(id: ContainerId) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&crate::FORMAT_VERSION.to_le_bytes());
    header[16..].copy_from_slice(&id.0);
    header
}

/// Checks a header and returns the container's name.
pub fn decode_header(bytes: &[u8]) -> Result<ContainerId> {
    let mut reader = Reader::new(bytes, "container header");
    if reader.raw(8)? != MAGIC {
        return Err(reader.damaged("this is not a container"));
    }
    check_version(reader.u16()?)?;
    check_reserved(reader.raw(6)?, "container header")?;
    reader.id().map(ContainerId)
}

/// Refuses any format version but ours.
pub fn check_version(version: u16) -> Result<()> {
    if version == crate::FORMAT_VERSION {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NewerFormat,
        format!(
            "format version {version} is not the version {} that this onefold reads; use the \
             onefold that wrote the store",
            crate::FORMAT_VERSION
        ),
    ))
}

/// Refuses bytes that this version leaves zero.
pub(crate) fn check_reserved(bytes: &[u8], what: &str) -> Result<()> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let message = format!("{what}: it uses reserved bytes; use a newer onefold");
    Err(Error::new(ErrorKind::NewerFormat, message))
}

/// The end of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// Where the metadata section begins.
    pub metadata_offset: u64,
    /// Its stored length.
    pub metadata_length: u32,
    /// CRC-64/NVME of everything before the footer.
    pub body_crc: u64,
}

/// The checksum over everything before the footer, continued piece by piece.
#[derive(Debug)]
pub struct BodyChecksum(crc_fast::Digest);

impl Default for BodyChecksum {
    fn default() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme))
    }
}

impl BodyChecksum {
    /// Continues the checksum over `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.finalize()
    }
}

impl Footer {
    /// The footer as stored.
    #[must_use]
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut writer = Writer::new();
        writer.u64(self.metadata_offset);
        writer.u32(self.metadata_length);
        writer.u32(0);
        writer.u64(self.body_crc);
        let mut bytes = writer.into_bytes();
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(FOOTER_MAGIC);
        let mut footer = [0; FOOTER_BYTES];
        footer.copy_from_slice(&bytes);
        footer
    }

    /// Reads the footer off the end of `tail`, the last bytes of an object of `object_bytes`.
    pub fn decode(tail: &[u8], object_bytes: u64) -> Result<Self> {
        let bytes = tail
            .len()
            .checked_sub(FOOTER_BYTES)
            .map(|start| &tail[start..])
            .ok_or_else(|| Error::damaged("container footer: the object is too short"))?;
        let mut reader = Reader::new(bytes, "container footer");
        let (metadata_offset, metadata_length) = (reader.u64()?, reader.u32()?);
        let reserved = reader.raw(4)?;
        let footer = Self { metadata_offset, metadata_length, body_crc: reader.u64()? };
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..24]) as u32;
        // The zeros after the checksum belong to the end mark: nothing protects them otherwise.
        if reader.u32()? != crc || reader.u32()? != 0 || &bytes[32..] != FOOTER_MAGIC {
            return Err(reader.damaged("its checksum does not hold"));
        }
        check_reserved(reserved, "container footer")?;
        let end = footer.metadata_offset.checked_add(u64::from(footer.metadata_length));
        if end.and_then(|end| end.checked_add(FOOTER_BYTES as u64)) != Some(object_bytes)
            || footer.metadata_offset < HEADER_BYTES as u64
        {
            return Err(reader.damaged("it does not fit the object's length"));
        }
        Ok(footer)
    }
}

impl MetadataSection {
    /// How a chunk of the section is made; `None` if it is no delta.
    #[must_use]
    pub fn delta_of(&self, chunk: &ChunkDescriptor) -> Option<&Delta> {
        if !chunk.is_delta() {
            return None;
        }
        let place = (chunk.frame, chunk.offset);
        // Chunks rise by their places; several that take nothing stand at the same one.
        let first = self.chunks.partition_point(|other| (other.frame, other.offset) < place);
        let at_place = self.chunks[first..].iter().take_while(|it| (it.frame, it.offset) == place);
        let among = at_place.zip(first as u32..).find(|(it, _)| *it == chunk);
        self.delta_at(among?.1)
    }

    /// The same for the chunk at a position.
    #[must_use]
    pub fn delta_at(&self, position: u32) -> Option<&Delta> {
        let at = self.deltas.binary_search_by_key(&position, |delta| delta.chunk).ok()?;
        self.deltas.get(at)
    }

    /// How many instances behind one another are needed to make a chunk of it: 0 for a plain one.
    #[must_use]
    pub fn depth_at(&self, position: u32) -> u8 {
        self.delta_at(position).map_or(0, |delta| delta.depth)
    }

    /// The sketch of the chunk at a position, if it was kept.
    #[must_use]
    pub fn sketch_at(&self, position: u32) -> Option<&[u8; SKETCH_BYTES]> {
        let at = self.sketches.binary_search_by_key(&position, |(chunk, _)| *chunk).ok()?;
        self.sketches.get(at).map(|(_, sketch)| sketch)
    }

    /// The plain form, before coding and sealing.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        let mut chunks_per_frame = vec![0u64; self.frames.len()];
        for chunk in &self.chunks {
            if let Some(count) = chunks_per_frame.get_mut(chunk.frame as usize) {
                *count += 1;
            }
        }
        writer.varint(self.frames.len() as u64);
        for (frame, chunks) in self.frames.iter().zip(chunks_per_frame) {
            writer.varint(u64::from(frame.stored_length));
            writer.varint(u64::from(frame.plain_length));
            writer.u8(frame.codec.code());
            writer.varint(chunks);
        }
        writer.varint(self.chunks.len() as u64);
        column(&mut writer, COLUMN_FINGERPRINTS, |out| {
            self.chunks.iter().for_each(|chunk| out.fingerprint(&chunk.fingerprint));
        });
        column(&mut writer, COLUMN_LENGTHS, |out| {
            self.chunks.iter().for_each(|chunk| out.varint(u64::from(chunk.length)));
        });
        column(&mut writer, COLUMN_LEVELS, |out| {
            for run in self.chunks.chunk_by(|a, b| a.level == b.level) {
                out.varint(u64::from(run[0].level.0));
                out.varint(run.len() as u64);
            }
        });
        if !self.deltas.is_empty() {
            column(&mut writer, COLUMN_DELTAS, |out| encode_deltas(&self.deltas, out));
            let bases = self.deltas.iter().flat_map(|delta| &delta.bases);
            let containers: Vec<_> = bases.map(|base| base.container).collect();
            if containers.iter().any(Option::is_some) {
                column(&mut writer, COLUMN_WHEREABOUTS, |out| encode_whereabouts(&containers, out));
            }
        }
        if !self.sketches.is_empty() {
            column(&mut writer, COLUMN_SKETCHES, |out| {
                out.varint(self.sketches.len() as u64);
                let mut last = 0;
                for (chunk, sketch) in &self.sketches {
                    out.varint(u64::from(chunk - last));
                    out.raw(sketch);
                    last = *chunk;
                }
            });
        }
        if let Some(session) = self.session {
            column(&mut writer, COLUMN_SESSION, |out| out.raw(&session.0));
        }
        if self.repacked_level > 0 {
            column(&mut writer, COLUMN_REPACKED, |out| out.u8(self.repacked_level));
        }
        writer.into_bytes()
    }

    /// Reads the plain form.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "metadata section");
        let (frames, chunks_per_frame) = decode_frames(&mut reader)?;
        let count = reader.count(1)?;
        let mut columns = Columns::default();
        while reader.remaining() > 0 {
            let tag = reader.u8()?;
            let length = reader.count(1)?;
            columns.take(tag, reader.raw(length)?)?;
        }
        let fingerprints = columns.fingerprints.unwrap_or_default();
        if fingerprints.len() != count * 32 || count > limits::CONTAINER_CHUNKS_MAX {
            return Err(reader.damaged("the number of fingerprints is wrong"));
        }
        let mut section = Self { frames, ..Self::default() };
        columns.decode_beside_chunks(count, &mut section)?;
        section.chunks = Vec::with_capacity(count);
        let mut fingerprints = Reader::new(fingerprints, "fingerprint column");
        let mut lengths = Reader::new(columns.lengths.unwrap_or_default(), "length column");
        let mut levels = LevelRuns::new(columns.levels.unwrap_or_default());
        let mut deltas = section.deltas.iter().peekable();
        for (frame, (descriptor, chunks)) in section.frames.iter().zip(chunks_per_frame).enumerate()
        {
            let (mut offset, mut whole_bytes) = (0u64, 0u64);
            for _ in 0..chunks {
                let position = section.chunks.len() as u32;
                let length = lengths.varint_max(limits::CHUNK_SIZE_MAX_BYTES as u64)?;
                let delta = deltas.next_if(|delta| delta.chunk == position);
                let payload_length = delta.map_or(length as u32, |delta| delta.payload_length);
                let chunk = ChunkDescriptor {
                    fingerprint: fingerprints.fingerprint()?,
                    length: length as u32,
                    level: levels.next()?,
                    frame: frame as u32,
                    offset: offset as u32,
                    payload_length,
                };
                if delta.is_some() && !chunk.may_be_delta() {
                    return Err(reader.damaged("a delta is no shorter than its chunk, or a node"));
                }
                section.chunks.push(chunk);
                offset += u64::from(payload_length);
                whole_bytes += length;
            }
            let is_too_long = whole_bytes > limits::FRAME_PLAIN_MAX_BYTES as u64;
            if is_too_long || offset != u64::from(descriptor.plain_length) {
                return Err(reader.damaged("the chunks of a frame do not fill it, or any frame"));
            }
        }
        fingerprints.finish()?;
        lengths.finish()?;
        levels.finish()?;
        if section.chunks.len() != count {
            return Err(reader.damaged("the number of chunks is wrong"));
        }
        Ok(section)
    }
}

/// Codes a plain metadata section for sealing.
///
/// Errors: `LimitExceeded` if no reader would take it.
pub fn code_metadata(plain: &[u8]) -> Result<Vec<u8>> {
    let length = u32::try_from(plain.len()).unwrap_or(u32::MAX);
    if length as usize > limits::METADATA_SECTION_MAX_BYTES {
        return Err(Error::new(ErrorKind::LimitExceeded, "a metadata section is too long"));
    }
    // Fingerprints do not compress; level 1 takes what there is in the other columns.
    let mut compressor = crate::codec::Compressor::new(crate::codec::Compression::Zstd(1))?;
    let mut body = Vec::new();
    let codec = compressor.compress(plain, &mut body)?;
    Ok([&[codec.code()][..], &length.to_le_bytes(), &body].concat())
}

/// Undoes [`code_metadata`].
pub fn decode_metadata(coded: &[u8]) -> Result<MetadataSection> {
    let mut reader = Reader::new(coded, "metadata section");
    let codec = Codec::from_code(reader.u8()?)?;
    let length = reader.u32()? as usize;
    if length > limits::METADATA_SECTION_MAX_BYTES {
        return Err(reader.damaged("it is longer than any that onefold writes"));
    }
    let coded = reader.raw(reader.remaining())?;
    MetadataSection::decode(&crate::codec::decompress_alone(codec, coded, length)?)
}

fn column(writer: &mut Writer, tag: u8, fill: impl FnOnce(&mut Writer)) {
    let mut out = Writer::new();
    fill(&mut out);
    writer.u8(tag);
    writer.counted(&out.into_bytes());
}

fn decode_frames(reader: &mut Reader<'_>) -> Result<(Vec<FrameDescriptor>, Vec<u64>)> {
    let count = reader.count(4)?;
    if count > limits::CONTAINER_CHUNKS_MAX {
        return Err(reader.damaged("it lists more frames than a container has chunks"));
    }
    let (mut frames, mut chunks_per_frame) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut offset = HEADER_BYTES as u64;
    for _ in 0..count {
        // A raw frame of the largest size, and its tag.
        let stored_length = reader.varint_max(limits::FRAME_PLAIN_MAX_BYTES as u64 + 64)? as u32;
        let plain_length = reader.varint_max(limits::FRAME_PLAIN_MAX_BYTES as u64)? as u32;
        let codec = Codec::from_code(reader.u8()?)?;
        frames.push(FrameDescriptor { offset, stored_length, plain_length, codec });
        chunks_per_frame.push(reader.varint_max(limits::CONTAINER_CHUNKS_MAX as u64)?);
        offset += u64::from(stored_length);
    }
    Ok((frames, chunks_per_frame))
}

#[cfg(test)]
mod tests;
