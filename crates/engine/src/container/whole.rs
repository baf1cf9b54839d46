//! Reads a container from its beginning to its end and verifies all of it, in pieces that do not
//! grow with it.
//!
//! A container of the usual size is one piece, read with one request. Of a larger one the tail
//! comes first: footer and metadata section, which says where the frames lie. Then the header and
//! the frames follow in pieces of about `PIECE_MAX_BYTES`, each read with one request. The
//! keyless checksum is continued over them as they come, before a frame is opened in its place,
//! and over the section as it was read.
//!
//! Deltas are made whole out of their bases, wherever these are. One whose base is lost says
//! nothing about its own container: it is counted, and whoever needs the chunk hears of it.
//!
//! Concurrency: a [`WholeReader`] belongs to one thread, which keeps its buffer for the next
//! container.

use super::delta::{BaseSource, DeltaOpener, bases_of};
use super::frame::FrameOpener;
use super::reader::{self, FrameReader};
use super::verify;
use crate::repository::Repository;
use onefold_format::container::{
    self, BodyChecksum, ChunkDescriptor, Footer, FrameDescriptor, HEADER_BYTES, MetadataSection,
};
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, Result, limits};

/// Bytes that are read at once, one frame at least: a container of the default size, whole.
const PIECE_MAX_BYTES: u64 = 6 * limits::MIB as u64;

/// Reads containers one after the other.
pub struct WholeReader {
    buffer: Vec<u8>,
    opener: FrameOpener,
    deltas: DeltaOpener,
}

/// The ends of a container, as they were read.
pub struct Ends {
    key: Key,
    footer: Footer,
    /// The first bytes.
    pub header: [u8; HEADER_BYTES],
    /// The metadata section, sealed.
    pub sealed_section: Vec<u8>,
    /// Whether all of it was read.
    is_held: bool,
}

/// What becomes of a frame: its number, what the section says of it and of its chunks, and whether
/// it could be opened and holds them; how many are deltas that could not be made, because a base of
/// theirs is lost.
pub type EachFrame<'a> =
    dyn FnMut(u32, &FrameDescriptor, &[ChunkDescriptor], Result<u64>) -> Result<()> + 'a;

impl WholeReader {
    /// A reader without a container yet.
    pub fn new() -> Result<Self> {
        let (buffer, deltas) = (Vec::new(), DeltaOpener::default());
        Ok(Self { buffer, opener: FrameOpener::new()?, deltas })
    }

    /// Reads the ends of a container of so many bytes; a small one is read whole.
    ///
    /// Errors: `NotFound` if it does not exist, `Damaged` if its footer does not hold.
    pub fn ends(
        &mut self,
        repository: &Repository,
        id: ContainerId,
        size_bytes: u64,
    ) -> Result<Ends> {
        let key = Key::new(layout::container(id))?;
        let mut header = [0; HEADER_BYTES];
        if size_bytes > PIECE_MAX_BYTES {
            let (footer, sealed_section) = reader::read_tail(repository, id)?;
            repository.store().get_range(&key, 0, &mut header)?;
            return Ok(Ends { key, footer, header, sealed_section, is_held: false });
        }
        self.buffer.resize(usize::try_from(size_bytes).unwrap_or(usize::MAX), 0);
        repository.store().get_range(&key, 0, &mut self.buffer)?;
        let footer = Footer::decode(&self.buffer, size_bytes)?;
        // The footer was compared with the object's length when it was decoded.
        let (body, rest) = self.buffer.split_at(footer.metadata_offset as usize);
        let sealed_section = rest[..footer.metadata_length as usize].to_vec();
        header.copy_from_slice(&body[..HEADER_BYTES]);
        Ok(Ends { key, footer, header, sealed_section, is_held: true })
    }

    /// Reads all of a container of so many bytes, and fails unless it is what was once written.
    /// Says as well how many of its deltas could not be made, because a base of theirs is lost.
    ///
    /// Errors: `NotFound` if it does not exist, `Damaged` if it is anything else.
    pub fn sound(
        &mut self,
        repository: &Repository,
        id: ContainerId,
        size_bytes: u64,
        bases: &dyn BaseSource,
    ) -> Result<(MetadataSection, u64)> {
        let ends = self.ends(repository, id, size_bytes)?;
        if container::decode_header(&ends.header)? != id {
            return Err(Error::damaged("its header names another container"));
        }
        let section = reader::open_section(repository, id, &mut ends.sealed_section.clone())?;
        let mut unmade = 0;
        let mut each = |_: u32, _: &FrameDescriptor, _: &[ChunkDescriptor], more: Result<u64>| {
            more.map(|more| unmade += more)
        };
        match self.verify(repository, id, &ends, (&section, bases), &mut each)? {
            true => Ok((section, unmade)),
            false => Err(Error::damaged("its checksum does not hold")),
        }
    }

    /// Opens every frame of the container whose ends were read last, verifies all chunks in it and
    /// tells `each`; then tells whether the checksum holds.
    ///
    /// Errors: `Damaged` if the frames do not fill the container; those of `each`.
    pub fn verify(
        &mut self,
        repository: &Repository,
        id: ContainerId,
        ends: &Ends,
        (section, bases): (&MetadataSection, &dyn BaseSource),
        each: &mut EachFrame<'_>,
    ) -> Result<bool> {
        if end_of_frames(section) != ends.footer.metadata_offset {
            return Err(Error::damaged("its frames do not fill it"));
        }
        let mut checksum = BodyChecksum::default();
        checksum.update(&ends.header);
        let frames = FrameReader::new(repository, id)?;
        let (mut left, mut number) = (section.frames.as_slice(), 0);
        let mut chunks = section.chunks.as_slice();
        while let Some(first) = left.first() {
            let fits = |frame: &&FrameDescriptor| frame.end() - first.offset <= PIECE_MAX_BYTES;
            let (piece, rest) = left.split_at(left.iter().take_while(fits).count().max(1));
            left = rest;
            let length: u64 = piece.iter().map(|frame| u64::from(frame.stored_length)).sum();
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let start = match ends.is_held {
                true => first.offset as usize,
                false => {
                    self.buffer.resize(length, 0);
                    repository.store().get_range(&ends.key, first.offset, &mut self.buffer)?;
                    0
                }
            };
            let mut bytes = self.buffer.get_mut(start..start + length).ok_or_else(misplaced)?;
            checksum.update(bytes);
            for frame in piece {
                let (sealed, after) = bytes
                    .split_at_mut_checked(frame.stored_length as usize)
                    .ok_or_else(misplaced)?;
                let (own, rest) =
                    chunks.split_at(chunks.partition_point(|chunk| chunk.frame <= number));
                let opened = frames.open(&mut self.opener, number, frame, sealed);
                let verified = opened.and_then(|plain| {
                    let whole = own.iter().filter(|chunk| !chunk.is_delta()).copied();
                    verify::all(plain, whole, repository.fingerprinter())
                        .and_then(|()| {
                            unmade(&mut self.deltas, plain, (section, own), repository, bases)
                        })
                        .context(|| format!("frame {number} of container {id}"))
                });
                each(number, frame, own, verified)?;
                (bytes, chunks, number) = (after, rest, number + 1);
            }
        }
        checksum.update(&ends.sealed_section);
        Ok(checksum.finish() == ends.footer.body_crc)
    }
}

/// Makes the deltas of a frame and verifies them; counts those of which a base is lost.
fn unmade(
    opener: &mut DeltaOpener,
    plain: &[u8],
    (section, chunks): (&MetadataSection, &[ChunkDescriptor]),
    repository: &Repository,
    bases: &dyn BaseSource,
) -> Result<u64> {
    let mut unmade = 0;
    for (chunk, delta) in chunks.iter().filter_map(|chunk| Some((chunk, section.delta_of(chunk)?)))
    {
        match bases_of(chunk, delta, bases) {
            Ok(bases) => {
                opener.verified(plain, chunk, &bases, repository.fingerprinter())?;
            }
            // That a base cannot be read says nothing of this container.
            Err(error) if error.is_unreadable() => unmade += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(unmade)
}

fn misplaced() -> Error {
    Error::damaged("its frames do not follow each other")
}

/// Where the last frame ends.
#[must_use]
pub fn end_of_frames(section: &MetadataSection) -> u64 {
    section.frames.last().map_or(HEADER_BYTES as u64, FrameDescriptor::end)
}
