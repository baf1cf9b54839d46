//! Index runs: immutable, sorted maps from fingerprint prefixes to containers, with the part that
//! stands in memory for them.
//!
//! ```text
//! page      4096 bytes, page n sealed as part n: 340 entries of (u64 prefix, u32 container
//!           ordinal), sorted; the last page is filled up with zeros
//! ...       behind every few pages, as many as the table says:
//! piece     what stands in memory for them; piece n sealed as part PIECE_PART + n
//! hooks     behind every few pieces: a filter of the hooks among their entries, sealed as part
//!           HOOK_PART + n
//! table     sealed as part TABLE_PART, see [`Table`]
//! footer    40 bytes, see [`Footer`]
//! ```
//!
//! An entry is a hint (protocol, section 3): it holds only the first eight bytes of a fingerprint,
//! and its container's metadata section decides. Several entries may share a prefix: several
//! containers may hold the same chunk. A run names all containers that it covers, those without
//! chunks included, and the runs whose entries it took over (R13: a run is complete or refused).
//!
//! A piece stands for the pages in front of it, so it is found by its first prefix, is read alone
//! when it is first needed, and is made as soon as its pages are written. Hooks are the entries
//! whose prefixes end in [`HOOK_BITS`] zeros: all that a sampled index keeps in memory.
//!
//! | module | holds |
//! | --- | --- |
//! | [`piece`] | the forms of a piece |
//! | [`table`] | what a run says about itself |

use crate::wire::{Reader, Writer};
use onefold_types::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

pub mod piece;
pub mod table;

pub use piece::Piece;
pub use table::Table;

/// The version of the layout of index runs. Runs can be made anew from the containers, so older
/// ones are not read any more.
pub const RUN_VERSION: u16 = 2;
/// Bytes of a page as stored, tag included.
pub const PAGE_STORED_BYTES: usize = 4096;
/// Bytes that a seal adds.
const TAG_BYTES: usize = 16;
/// Bytes of a page before sealing.
pub const PAGE_PLAIN_BYTES: usize = PAGE_STORED_BYTES - TAG_BYTES;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 12;
/// Entries in a full page.
pub const PAGE_ENTRIES: usize = PAGE_PLAIN_BYTES / ENTRY_BYTES;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 40;
/// The part number of the first piece; the others follow.
pub const PIECE_PART: u32 = 1 << 31;
/// The part number of the first piece of the hook filter; the others follow.
pub const HOOK_PART: u32 = PIECE_PART + (1 << 30);
/// The part number of the table.
pub const TABLE_PART: u32 = u32::MAX;
/// Pages of a run at most, so that pieces and hooks have part numbers of their own.
pub const PAGES_MAX: u64 = 1 << 30;
/// The longest piece, as stored.
pub const PIECE_MAX_BYTES: usize = 16 << 20;
/// Zeros at the end of a hook's prefix.
pub const HOOK_BITS: u8 = 5;

const MAGIC: &[u8; 8] = b"1FINDEXR";

/// What stands in memory for the pages of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum IndexKind {
    /// The summary vector of S1.12: eight bits a chunk, one new chunk in 40 costs a page read.
    Bloom,
    /// A binary fuse filter: nine and a half bits a chunk, one new chunk in 256 costs a page read.
    #[default]
    Fuse,
    /// The signature table of S4.14: less than six bytes a chunk, and no page is read.
    Signature,
}

impl IndexKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bloom, Self::Fuse, Self::Signature];

    /// Its byte in a footer.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Bloom => 1,
            Self::Fuse => 2,
            Self::Signature => 3,
        }
    }

    fn of_code(code: u8) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code).ok_or_else(|| {
            let message = format!("an index run is of the kind {code}; use a newer onefold");
            Error::new(ErrorKind::NewerFormat, message)
        })
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bloom => "bloom",
            Self::Fuse => "fuse",
            Self::Signature => "signature",
        })
    }
}

impl FromStr for IndexKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.to_string() == name).ok_or_else(|| {
            Error::invalid(format!(
                "'{name}' is no kind of index: there are 'bloom', 'fuse' and 'signature'"
            ))
        })
    }
}

/// Whether a sampled index keeps this prefix in memory.
#[must_use]
pub fn is_hook(prefix: u64) -> bool {
    prefix.trailing_zeros() >= u32::from(HOOK_BITS)
}

/// The fence of a page that begins with the prefix `first`, after a page that ends with `end`. A
/// prefix above the fence is not on the page before, nor, but for the rarest case, is one equal to
/// it, unless instances of one chunk go on from page to page.
#[must_use]
pub fn fence(end: Option<u64>, first: u64) -> u64 {
    end.map_or(first, |end| end.saturating_add(1).min(first))
}

/// One entry: a chunk's prefix and the ordinal of a container in the run's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Entry {
    /// The first eight bytes of the fingerprint.
    pub prefix: u64,
    /// The container's ordinal in [`Table::containers`].
    pub container: u32,
}

/// A page of up to [`PAGE_ENTRIES`] entries, before sealing.
#[must_use]
pub fn encode_page(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new();
    for entry in entries {
        writer.u64(entry.prefix);
        writer.u32(entry.container);
    }
    let mut bytes = writer.into_bytes();
    bytes.resize(PAGE_PLAIN_BYTES, 0);
    bytes
}

/// Reads the first `count` entries of an opened page.
pub fn decode_page(plain: &[u8], count: usize, entries: &mut Vec<Entry>) -> Result<()> {
    let mut reader = Reader::new(plain, "index page");
    for _ in 0..count {
        let entry = Entry { prefix: reader.u64()?, container: reader.u32()? };
        entries.push(entry);
    }
    Ok(())
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The number of pages.
    pub pages: u32,
    /// The stored length of all pieces, those of the hook filter included.
    pub pieces_length: u64,
    /// The stored length of the table, tag included.
    pub table_length: u64,
    /// What the pieces are.
    pub kind: IndexKind,
}

impl Footer {
    /// The footer as stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u32(self.pages);
        writer.u64(self.pieces_length);
        writer.u64(self.table_length);
        writer.u16(RUN_VERSION);
        writer.u8(self.kind.code());
        writer.raw(&[0; 5]);
        let mut bytes = writer.into_bytes();
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes
    }

    /// Reads the footer off the end of `tail`, the last bytes of an object of `object_bytes`.
    pub fn decode(tail: &[u8], object_bytes: u64) -> Result<Self> {
        // What is too short is told by the reader.
        let start = tail.len().saturating_sub(FOOTER_BYTES);
        let bytes = &tail[start..];
        let mut reader = Reader::new(bytes, "index run footer");
        let (pages, pieces_length, table_length) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let (version, kind) = (reader.u16()?, reader.u8()?);
        let reserved = reader.raw(5)?;
        let crc = reader.u32()?;
        if reader.raw(8)? != MAGIC
            || crc != crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..28]) as u32
        {
            return Err(reader.damaged("its checksum does not hold"));
        }
        check_version(version)?;
        crate::container::check_reserved(reserved, "index run footer")?;
        let kind = IndexKind::of_code(kind)?;
        let pages_length = u64::from(pages) * PAGE_STORED_BYTES as u64;
        let total = pages_length
            .checked_add(pieces_length)
            .and_then(|sum| sum.checked_add(table_length))
            .and_then(|sum| sum.checked_add(FOOTER_BYTES as u64));
        if total != Some(object_bytes) {
            return Err(reader.damaged("it does not fit the object's length"));
        }
        Ok(Self { pages, pieces_length, table_length, kind })
    }
}

/// Newer is refused; older counts as damaged, which is mended from the containers.
fn check_version(version: u16) -> Result<()> {
    if version > RUN_VERSION {
        let message = format!(
            "its layout is version {version}, newer than the version {RUN_VERSION} that this \
             onefold reads; use the onefold that wrote the store"
        );
        return Err(Error::new(ErrorKind::NewerFormat, message));
    }
    if version < RUN_VERSION {
        return Err(Error::damaged(format!(
            "its layout is version {version}, which is not used any more"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pages_round_trip() {
        let entries: Vec<Entry> =
            (0..PAGE_ENTRIES as u64).map(|n| Entry { prefix: n * n, container: 7 }).collect();
        let page = encode_page(&entries);
        assert_eq!(page.len(), PAGE_PLAIN_BYTES);
        let mut decoded = Vec::new();
        decode_page(&page, entries.len(), &mut decoded).unwrap();
        assert_eq!(decoded, entries);
    }

    #[test]
    fn kinds_have_names_and_codes() {
        for kind in IndexKind::ALL {
            assert_eq!(kind.to_string().parse::<IndexKind>().unwrap(), kind);
            assert_eq!(IndexKind::of_code(kind.code()).unwrap(), kind);
        }
        assert_eq!("hash".parse::<IndexKind>().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(IndexKind::of_code(0).unwrap_err().kind(), ErrorKind::NewerFormat);
        assert_eq!(IndexKind::of_code(4).unwrap_err().kind(), ErrorKind::NewerFormat);
    }

    #[test]
    fn fences_stand_between_pages() {
        assert_eq!(fence(None, 7), 7);
        assert_eq!(fence(Some(3), 7), 4);
        assert_eq!(fence(Some(7), 7), 7);
        assert_eq!(fence(Some(u64::MAX), u64::MAX), u64::MAX);
    }

    #[test]
    fn one_prefix_in_32_is_a_hook() {
        let hooks: Vec<u64> = (0..100).filter(|prefix| is_hook(*prefix)).collect();
        assert_eq!(hooks, [0, 32, 64, 96]);
    }

    fn footer(pages: u32) -> Footer {
        Footer { pages, pieces_length: 528, table_length: 100, kind: IndexKind::Fuse }
    }

    #[test]
    fn a_flipped_bit_is_damage_and_never_a_newer_version() {
        let bytes = footer(0).encode();
        let object = 628 + bytes.len() as u64;
        assert_eq!(bytes.len(), FOOTER_BYTES);
        assert!(Footer::decode(&bytes, object).is_ok());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = Footer::decode(&flipped, object).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn r13_a_partial_run_is_refused() {
        let bytes = footer(2).encode();
        let object = 2 * PAGE_STORED_BYTES as u64 + 528 + 100 + bytes.len() as u64;
        assert_eq!(Footer::decode(&bytes, object).unwrap(), footer(2));
        assert!(Footer::decode(&bytes, object - 1).is_err());
        assert!(Footer::decode(&bytes[1..], object).is_err());
    }

    #[test]
    fn r26_newer_layouts_and_kinds_are_newer_and_older_ones_are_mended() {
        let bytes = |version: u16, kind: u8| {
            let mut bytes = footer(0).encode();
            bytes[20..22].copy_from_slice(&version.to_le_bytes());
            bytes[22] = kind;
            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..28]) as u32;
            bytes[28..32].copy_from_slice(&crc.to_le_bytes());
            bytes
        };
        let kind_of = |bytes: &[u8]| Footer::decode(bytes, 668).map_err(|error| error.kind());
        assert_eq!(kind_of(&bytes(RUN_VERSION, 2)), Ok(footer(0)));
        assert_eq!(kind_of(&bytes(RUN_VERSION + 1, 2)), Err(ErrorKind::NewerFormat));
        assert_eq!(kind_of(&bytes(RUN_VERSION, 9)), Err(ErrorKind::NewerFormat));
        assert_eq!(kind_of(&bytes(1, 0)), Err(ErrorKind::Damaged));
    }

    proptest! {
        #[test]
        fn decoders_survive_anything(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Footer::decode(&bytes, bytes.len() as u64);
            let _ = decode_page(&bytes, 20, &mut Vec::new());
        }
    }
}
