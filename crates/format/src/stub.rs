//! A stub: what stands in an attribute of a file whose data is in the store (ATC'12, "file stub").
//!
//! ```text
//! version    u8, in the clear
//! share      16 bytes, in the clear: the share that it belongs to
//! body       sealed as a record for that share and the file's inode:
//!   state          u8: 1 while the data is being punched out, else 0
//!   granule        u8: the logarithm to the base 2 of its bytes
//!   size           u64: the bytes that the content has
//!   valid          u64: how many of them, from the first on, are the file's
//!   chunks         u64: the chunks of the content
//!   modified       u64 seconds, u32 nanoseconds: of the file when it was emptied
//!   fingerprint    32 bytes of the content's root, u16 its level
//!   recalled       one bit for each granule of the content, the lowest first
//! ```
//!
//! Invariants: the length follows from size and granule alone, so a stub that is changed needs no
//! more room than it had. A granule whose bit is set is ordinary data of the file, and so is all
//! from `valid` on; everything else is the store's, whatever is still in the file.

use crate::node::{Reference, Time};
use crate::wire::{Reader, Writer};
use onefold_types::{Error, ErrorKind, Level, Result, ShareId, limits};
use std::ops::Range;

/// The version of this layout.
pub const STUB_VERSION: u8 = 1;
/// Bytes in front of what is sealed.
pub const CLEAR_BYTES: usize = 1 + 16;
/// Bytes of the body without its bits.
const FIXED_BYTES: usize = 1 + 1 + 8 + 8 + 8 + 12 + 34;

/// What a file's data is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    /// Whether data of the file that is in the store may still be in the file, and its times may
    /// not be put back yet.
    pub is_being_emptied: bool,
    /// The logarithm of a granule's bytes.
    pub granule_log2: u8,
    /// The bytes that the content has.
    pub size: u64,
    /// How many of them, from the first on, are the file's: it may have been cut since.
    pub valid: u64,
    /// The chunks of the content.
    pub chunks: u64,
    /// When the file had been changed last when it was emptied.
    pub modified: Time,
    /// The content.
    pub content: Reference,
    recalled: Vec<u8>,
}

impl Stub {
    /// A stub of a file that is all in the store.
    ///
    /// Errors: `Invalid` if the content has no bytes, or too many for granules of this size.
    pub fn new(
        content: Reference,
        (size, chunks): (u64, u64),
        modified: Time,
        granule_log2: u8,
    ) -> Result<Self> {
        let granules = granules_of(size, granule_log2)
            .ok_or_else(|| Error::invalid("a file of this size cannot be a stub"))?;
        let recalled = vec![0; granules.div_ceil(8)];
        let is_being_emptied = true;
        let valid = size;
        Ok(Self {
            is_being_emptied,
            granule_log2,
            size,
            valid,
            chunks,
            modified,
            content,
            recalled,
        })
    }

    /// The bytes of a granule.
    #[must_use]
    pub fn granule_bytes(&self) -> u64 {
        1 << self.granule_log2
    }

    /// The granule that an offset lies in.
    #[must_use]
    pub fn granule_at(&self, offset: u64) -> u64 {
        offset >> self.granule_log2
    }

    /// The bytes of a granule that the content is valid for.
    #[must_use]
    pub fn range_of(&self, granule: u64) -> Range<u64> {
        let start = granule << self.granule_log2;
        start.min(self.valid)..(start + self.granule_bytes()).min(self.valid)
    }

    /// Whether the byte at an offset is ordinary data of the file.
    #[must_use]
    pub fn is_own(&self, offset: u64) -> bool {
        offset >= self.valid || self.is_recalled(self.granule_at(offset))
    }

    /// Whether a granule is ordinary data of the file.
    #[must_use]
    pub fn is_recalled(&self, granule: u64) -> bool {
        let byte = usize::try_from(granule / 8).ok().and_then(|at| self.recalled.get(at));
        byte.is_none_or(|byte| byte >> (granule % 8) & 1 == 1)
    }

    /// Says that a granule is ordinary data of the file from now on.
    pub fn set_recalled(&mut self, granule: u64) {
        let at = usize::try_from(granule / 8).unwrap_or(usize::MAX);
        if let Some(byte) = self.recalled.get_mut(at) {
            *byte |= 1 << (granule % 8);
        }
    }

    /// Whether nothing of the content was recalled or cut off.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.valid == self.size && self.recalled.iter().all(|byte| *byte == 0)
    }

    /// The granules that are still the store's.
    pub fn not_recalled(&self) -> impl Iterator<Item = u64> {
        let end = self.valid.div_ceil(self.granule_bytes());
        (0..end).filter(|granule| !self.is_recalled(*granule))
    }

    /// The body's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(u8::from(self.is_being_emptied));
        writer.u8(self.granule_log2);
        writer.u64(self.size);
        writer.u64(self.valid);
        writer.u64(self.chunks);
        writer.u64(self.modified.seconds as u64);
        writer.u32(self.modified.nanoseconds);
        writer.fingerprint(&self.content.fingerprint);
        writer.u16(self.content.level.0);
        writer.raw(&self.recalled);
        writer.into_bytes()
    }

    /// A body out of its bytes.
    ///
    /// Errors: `Damaged` unless they are exactly what [`Stub::encode`] makes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "the stub");
        let is_being_emptied = match reader.u8()? {
            state @ (0 | 1) => state == 1,
            _ => return Err(reader.damaged("there is no such state")),
        };
        let granule_log2 = reader.u8()?;
        let (size, valid, chunks) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let modified = Time { seconds: reader.u64()? as i64, nanoseconds: reader.u32()? };
        let fingerprint = reader.fingerprint()?;
        let content = Reference { fingerprint, level: Level(reader.u16()?) };
        let granules = granules_of(size, granule_log2)
            .ok_or_else(|| reader.damaged("it has an impossible number of granules"))?;
        if valid > size || modified.nanoseconds > 999_999_999 {
            return Err(reader.damaged("its sizes or times are impossible"));
        }
        let recalled = reader.raw(granules.div_ceil(8))?.to_vec();
        let unused = (8 - granules % 8) % 8;
        if recalled.last().is_some_and(|last| last.leading_zeros() < unused as u32) {
            return Err(reader.damaged("it recalls granules that are not there"));
        }
        reader.finish()?;
        Ok(Self {
            is_being_emptied,
            granule_log2,
            size,
            valid,
            chunks,
            modified,
            content,
            recalled,
        })
    }

    /// The bytes of a body of so many granules.
    #[must_use]
    pub fn body_bytes(granules: usize) -> usize {
        FIXED_BYTES + granules.div_ceil(8)
    }
}

/// The granules of a file; `None` if there cannot be so many or so few.
fn granules_of(size: u64, granule_log2: u8) -> Option<usize> {
    let is_possible = limits::RECALL_GRANULE_LOG2.contains(&granule_log2);
    let granules = is_possible.then(|| size.div_ceil(1 << granule_log2))?;
    let granules = usize::try_from(granules).ok()?;
    (1..=limits::RECALL_GRANULES_MAX).contains(&granules).then_some(granules)
}

/// The attribute's value: the share in the clear, then the sealed body.
#[must_use]
pub fn join(share: ShareId, sealed: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(CLEAR_BYTES + sealed.len());
    value.push(STUB_VERSION);
    value.extend_from_slice(&share.0);
    value.extend_from_slice(sealed);
    value
}

/// The share and the sealed body of an attribute's value.
///
/// Errors: `Damaged` if it is too short, `NewerFormat` if it is of a newer version.
pub fn split(value: &[u8]) -> Result<(ShareId, &[u8])> {
    let mut reader = Reader::new(value, "the stub");
    let version = reader.u8()?;
    if version > STUB_VERSION {
        let message = format!("the stub is of version {version}, newer than this onefold reads");
        return Err(Error::new(ErrorKind::NewerFormat, message));
    }
    if version != STUB_VERSION {
        return Err(reader.damaged("there never was such a version"));
    }
    let share = ShareId(reader.id()?);
    Ok((share, &value[CLEAR_BYTES..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::Fingerprint;

    const SIZE: u64 = 9 * 65536 + 1;

    fn stub() -> Stub {
        let content = Reference { fingerprint: Fingerprint([7; 32]), level: Level(1) };
        let modified = Time { seconds: -1, nanoseconds: 999_999_999 };
        Stub::new(content, (SIZE, 12), modified, 16).unwrap()
    }

    #[test]
    fn what_is_recalled_is_the_files_own_and_all_behind_its_valid_bytes() {
        let mut stub = stub();
        assert!(stub.is_untouched());
        assert_eq!(stub.not_recalled().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        stub.set_recalled(8);
        stub.valid = 2 * 65536 + 5;
        assert!(stub.is_own(8 * 65536) && stub.is_own(stub.valid) && !stub.is_own(stub.valid - 1));
        assert_eq!(stub.range_of(2), 131_072..131_077);
        assert_eq!(stub.not_recalled().collect::<Vec<_>>(), [0, 1, 2]);
        stub.set_recalled(2);
        assert_eq!(stub.not_recalled().collect::<Vec<_>>(), [0, 1]);
        assert!(!stub.is_untouched());
        let bytes = stub.encode();
        assert_eq!(bytes.len(), Stub::body_bytes(10));
        assert_eq!(Stub::decode(&bytes).unwrap(), stub);
    }

    #[test]
    fn impossible_stubs_are_refused() {
        let bytes = stub().encode();
        let mut with = |at: usize, value: u8| {
            let mut changed = bytes.clone();
            changed[at] = value;
            Stub::decode(&changed).is_err()
        };
        let last = bytes.len() - 1;
        assert!(with(0, 2) && with(1, 64) && with(1, 0) && with(17, 1) && with(last, 0b100));
        assert!(!with(last, 0b11));
        for length in 0..bytes.len() {
            assert!(Stub::decode(&bytes[..length]).is_err(), "{length}");
        }
        let too_many = (limits::RECALL_GRANULES_MAX as u64 + 1) << 16;
        let of = |size: u64| Stub::new(stub().content, (size, 1), Time::default(), 16);
        assert!(of(0).is_err() && of(too_many).is_err() && of(too_many - 65536).is_ok());
    }

    #[test]
    fn a_value_tells_its_share_and_its_version() {
        let value = join(ShareId([3; 16]), b"sealed");
        assert_eq!(split(&value).unwrap(), (ShareId([3; 16]), b"sealed".as_slice()));
        assert_eq!(split(&value[..5]).unwrap_err().kind(), ErrorKind::Damaged);
        let newer = [&[STUB_VERSION + 1], &value[1..]].concat();
        assert_eq!(split(&newer).unwrap_err().kind(), ErrorKind::NewerFormat);
    }
}
