//! Reads stored containers: metadata sections alone, and single frames (S1.6, S1.8).
//!
//! A section is read from the object's tail in one request; the guess of its length is generous
//! enough that a second request is rare.

use super::frame::FrameOpener;
use crate::repository::Repository;
use onefold_crypto::{ObjectSealer, Purpose};
use onefold_format::container::{
    self, FOOTER_BYTES, Footer, FrameDescriptor, HEADER_BYTES, METADATA_PART, MetadataSection,
};
use onefold_format::layout;
use onefold_store::{Asked, Key, Store};
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, ErrorKind, Result, bug, limits};

/// Bytes read from the tail at first: the section of a 4 MiB container of 8 KiB chunks, with what
/// like ones are found by.
const TAIL_GUESS_BYTES: usize = 64 * limits::KIB;

/// Reads the metadata section of a container from the container itself.
///
/// Errors: `NotFound` if the container does not exist, `Damaged` if its section is not what was
/// written.
pub fn read_section(repository: &Repository, id: ContainerId) -> Result<MetadataSection> {
    read_section_told(repository, id).map(|opened| opened.section)
}

/// The same of a section that is not long, as most are, and of a container that is known to exist:
/// at most one request, and little memory.
///
/// Errors: `LimitExceeded` if it is; otherwise as for [`read_section`].
pub fn peek_short_section(repository: &Repository, id: ContainerId) -> Result<MetadataSection> {
    let read = |key: &Key, length: usize| match length > TAIL_GUESS_BYTES {
        true => Err(Error::new(ErrorKind::LimitExceeded, "a metadata section is long")),
        false => repository.store().peek_tail(key, length),
    };
    let (_, mut sealed) = tail_by(read, id)?;
    open_section(repository, id, &mut sealed)
}

/// The same for whoever does not ask whether the container exists: its section may have been read
/// before, and it may be gone since.
///
/// Errors: as for [`read_section`].
pub fn peek_section(repository: &Repository, id: ContainerId) -> Result<MetadataSection> {
    let store = repository.store();
    peeked(store, &Key::new(layout::container(id))?, || {
        let (_, mut sealed) = tail_by(|key, length| store.peek_tail(key, length), id)?;
        open_section(repository, id, &mut sealed)
    })
}

/// What was peeked at and opened: once more, from where it is, if it does not open and may have
/// been kept from a time when it was damaged.
pub fn peeked<T>(store: &dyn Store, key: &Key, mut read: impl FnMut() -> Result<T>) -> Result<T> {
    match read() {
        Err(error) if error.kind() == ErrorKind::Damaged && store.distrust(key) => read(),
        outcome => outcome,
    }
}

/// As [`read_section`], and tells how old its seal is.
pub fn read_section_told(repository: &Repository, id: ContainerId) -> Result<OpenedSection> {
    let mut sealed = read_sealed_section(repository, id)?;
    open_section_told(repository, id, &mut sealed)
}

/// A metadata section, and how old its seal is.
pub struct OpenedSection {
    /// The section.
    pub section: MetadataSection,
    /// Whether it was sealed under an older generation of keys than the newest one; the frames of
    /// its container were as well.
    pub is_of_older_keys: bool,
}

/// Reads a metadata section without opening it.
pub fn read_sealed_section(repository: &Repository, id: ContainerId) -> Result<Vec<u8>> {
    read_tail(repository, id).map(|(_, sealed)| sealed)
}

/// What is read first of a container whose section is wanted.
pub fn asked_tail(id: ContainerId) -> Result<Asked> {
    Ok(Asked::Tail(Key::new(layout::container(id))?, TAIL_GUESS_BYTES))
}

/// Reads the footer of a container, and its metadata section without opening it.
pub fn read_tail(repository: &Repository, id: ContainerId) -> Result<(Footer, Vec<u8>)> {
    tail_by(|key, length_bytes| repository.store().get_tail(key, length_bytes), id)
}

/// The same by one of the two ways to read a tail.
fn tail_by(
    read: impl Fn(&Key, usize) -> Result<(u64, Vec<u8>)>,
    id: ContainerId,
) -> Result<(Footer, Vec<u8>)> {
    let key = Key::new(layout::container(id))?;
    let (size, mut tail) = read(&key, TAIL_GUESS_BYTES)?;
    let footer = Footer::decode(&tail, size).context(|| format!("container {id}"))?;
    let needed = footer.metadata_length as usize + FOOTER_BYTES;
    if needed > limits::METADATA_SECTION_MAX_BYTES {
        return Err(Error::damaged(format!("container {id}: its metadata section is too long")));
    }
    if needed > tail.len() {
        tail = read(&key, needed)?.1;
    }
    let start = tail
        .len()
        .checked_sub(needed)
        .ok_or_else(|| Error::damaged(format!("container {id}: it is cut short")))?;
    tail.truncate(tail.len() - FOOTER_BYTES);
    tail.drain(..start);
    Ok((footer, tail))
}

/// Opens and decodes a sealed metadata section, from a container or from a pack.
pub fn open_section(
    repository: &Repository,
    id: ContainerId,
    sealed: &mut [u8],
) -> Result<MetadataSection> {
    open_section_told(repository, id, sealed).map(|opened| opened.section)
}

/// As [`open_section`], and tells how old its seal is.
pub fn open_section_told(
    repository: &Repository,
    id: ContainerId,
    sealed: &mut [u8],
) -> Result<OpenedSection> {
    let what = || format!("the metadata section of container {id}");
    let sealer = repository.vault().stored(Purpose::Container, &id.0)?;
    let length = sealer.open(METADATA_PART, sealed).context(what)?;
    let section = container::decode_metadata(&sealed[..length]).context(what)?;
    let is_of_older_keys = sealer.generations_since().is_some_and(|since| since > 0);
    Ok(OpenedSection { section, is_of_older_keys })
}

/// How something is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadAs {
    /// As it is in the store now.
    #[default]
    Stored,
    /// As somebody of this machine may have written it.
    Glance,
    /// And as somebody may have read it: others of this machine are likely to read the same.
    Peek,
}

impl ReadAs {
    /// Fills a buffer from an offset of an object on.
    pub fn range(self, store: &dyn Store, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match self {
            Self::Stored => store.get_range(key, offset, buffer),
            Self::Glance => store.glance_range(key, offset, buffer),
            Self::Peek => store.peek_range(key, offset, buffer),
        }
    }

    /// The size of an object, and its end.
    pub fn tail(self, store: &dyn Store, key: &Key, length: usize) -> Result<(u64, Vec<u8>)> {
        match self {
            Self::Stored => store.get_tail(key, length),
            Self::Glance | Self::Peek => store.peek_tail(key, length),
        }
    }
}

/// Reads frames of one container.
pub struct FrameReader {
    key: Key,
    id: ContainerId,
    sealer: ObjectSealer,
    read_as: ReadAs,
}

impl FrameReader {
    /// A reader for the frames of `id`.
    pub fn new(repository: &Repository, id: ContainerId) -> Result<Self> {
        Ok(Self {
            key: Key::new(layout::container(id))?,
            id,
            sealer: repository.vault().stored(Purpose::Container, &id.0)?,
            read_as: ReadAs::Stored,
        })
    }

    /// What is read.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The same, in another way.
    #[must_use]
    pub fn reading(self, read_as: ReadAs) -> Self {
        Self { read_as, ..self }
    }

    fn read_range(&self, repository: &Repository, offset: u64, sealed: &mut [u8]) -> Result<()> {
        self.read_as.range(repository.store(), &self.key, offset, sealed)
    }

    /// Reads frames, in the order of their offsets, and whatever lies between them, with one
    /// request. `sealed` begins with the first of them then, and holds each at its distance.
    pub fn read(
        &self,
        repository: &Repository,
        frames: &[FrameDescriptor],
        sealed: &mut Vec<u8>,
    ) -> Result<()> {
        let (offset, length) = span(frames)?;
        sealed.resize(length, 0);
        self.read_range(repository, offset, sealed)
    }

    /// Opens frame number `number` out of its sealed bytes.
    pub fn open<'a>(
        &self,
        opener: &'a mut FrameOpener,
        number: u32,
        frame: &FrameDescriptor,
        sealed: &mut [u8],
    ) -> Result<&'a [u8]> {
        opener
            .open(sealed, number, frame.codec, frame.plain_length as usize, &self.sealer)
            .context(|| format!("frame {number} of container {}", self.id))
    }

    /// Reads frames, in the order of their offsets, and whatever lies between them, with one
    /// request, and hands the plain bytes of each over to `each`, which may give the opener memory
    /// for the next one.
    pub fn read_each(
        &self,
        repository: &Repository,
        opener: &mut FrameOpener,
        (numbers, frames): (&[u32], &[FrameDescriptor]),
        mut each: impl FnMut(&mut FrameOpener, u32, Vec<u8>),
    ) -> Result<()> {
        let (offset, length) = span(frames)?;
        let mut sealed = opener.sealed_buffer();
        if sealed.len() < length {
            sealed.resize(length, 0);
        }
        self.read_range(repository, offset, &mut sealed[..length])?;
        for (&number, frame) in numbers.iter().zip(frames) {
            let what = || format!("frame {number} of container {}", self.id);
            let start = (frame.offset - offset) as usize;
            let of_frame = sealed[..length].get(start..start + frame.stored_length as usize);
            let of_frame = of_frame.ok_or_else(|| bug!("frames do not rise", number))?;
            let (codec, plain_length) = (frame.codec, frame.plain_length as usize);
            let plain = opener.open_owned(of_frame, number, codec, plain_length, &self.sealer);
            each(opener, number, plain.context(what)?);
        }
        opener.give_back(sealed);
        Ok(())
    }

    /// Opens frame number `number` in place and leaves it coded; says how long it is so.
    pub fn open_coded(&self, number: u32, sealed: &mut [u8]) -> Result<usize> {
        let what = || format!("frame {number} of container {}", self.id);
        self.sealer.open(number, sealed).context(what)
    }
}

/// Where frames begin, in the order of their offsets, and how far they go.
fn span(frames: &[FrameDescriptor]) -> Result<(u64, usize)> {
    let offset = frames.first().map_or(HEADER_BYTES as u64, |frame| frame.offset);
    let end = frames.last().map_or(offset, FrameDescriptor::end);
    let length = end.checked_sub(offset).and_then(|length| usize::try_from(length).ok());
    Ok((offset, length.ok_or_else(|| bug!("frames do not rise", offset, end))?))
}
