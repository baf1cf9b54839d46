//! Index runs: immutable, sorted maps from fingerprint prefixes to containers.
//!
//! ```text
//! pages     page_count x 4096 bytes, each sealed as its own part: 340 entries of
//!           (u64 prefix, u32 container ordinal), sorted, the last page filled up with zeros
//! filter    the run's summary vector, little-endian words, in pieces of 64 KiB, piece n sealed as
//!           part FILTER_PART - n
//! table     sealed as part TABLE_PART:
//!             varint entries, varint containers, their ids (16 bytes each),
//!             varint replaced runs, their ids, first prefix of every page (u64 each),
//!             u64 filter words, u8 hashes
//! footer    u32 pages, u64 filter length, u64 table length (stored), u16 version, 6 zero bytes,
//!           u32 CRC-32/ISCSI of these, magic "1FINDEXR"  (40 bytes)
//! ```
//!
//! An entry is a hint (protocol, section 3): it holds only the first eight bytes of a fingerprint,
//! and its container's metadata section decides. Several entries may share a prefix: several
//! containers may hold the same chunk. A run names all containers that it covers, those without
//! chunks included, and the runs whose entries it took over (R13: a run is complete or refused).

use crate::wire::{Reader, Writer};
use onefold_types::{ContainerId, Result, RunId};

/// Bytes of a page as stored, tag included.
pub const PAGE_STORED_BYTES: usize = 4096;
/// Bytes of a page before sealing.
pub const PAGE_PLAIN_BYTES: usize = PAGE_STORED_BYTES - 16;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 12;
/// Entries in a full page.
pub const PAGE_ENTRIES: usize = PAGE_PLAIN_BYTES / ENTRY_BYTES;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 40;
/// The part number of the first piece of the summary vector; the others go down from it.
pub const FILTER_PART: u32 = u32::MAX - 1;
/// Words of the summary vector that are sealed together.
pub const FILTER_PIECE_WORDS: usize = 8192;
/// The part number of the table.
pub const TABLE_PART: u32 = u32::MAX;

const MAGIC: &[u8; 8] = b"1FINDEXR";

/// One entry: a chunk's prefix and the ordinal of a container in the run's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Entry {
    /// The first eight bytes of the fingerprint.
    pub prefix: u64,
    /// The container's place in [`Table::containers`].
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

/// What a run says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table {
    /// The number of entries in all pages.
    pub entries: u64,
    /// The containers that the run covers.
    pub containers: Vec<ContainerId>,
    /// The runs whose entries this one took over.
    pub replaced: Vec<RunId>,
    /// The first prefix of every page.
    pub fences: Vec<u64>,
    /// Words in the summary vector.
    pub filter_words: u64,
    /// Hash positions for each entry of the summary vector.
    pub filter_hashes: u8,
}

impl Table {
    /// The plain form, before sealing.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.varint(self.entries);
        writer.varint(self.containers.len() as u64);
        self.containers.iter().for_each(|id| writer.raw(&id.0));
        writer.varint(self.replaced.len() as u64);
        self.replaced.iter().for_each(|id| writer.raw(&id.0));
        self.fences.iter().for_each(|&fence| writer.u64(fence));
        writer.u64(self.filter_words);
        writer.u8(self.filter_hashes);
        writer.into_bytes()
    }

    /// Reads the plain form.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "index run table");
        let entries = reader.varint()?;
        let containers = reader.count(16)?;
        let containers =
            (0..containers).map(|_| reader.id().map(ContainerId)).collect::<Result<_>>()?;
        let replaced = reader.count(16)?;
        let replaced = (0..replaced).map(|_| reader.id().map(RunId)).collect::<Result<_>>()?;
        let pages = entries.div_ceil(PAGE_ENTRIES as u64);
        if pages.checked_mul(8).is_none_or(|bytes| bytes + 9 != reader.remaining() as u64) {
            return Err(reader.damaged("the number of fences is wrong"));
        }
        let fences: Vec<u64> = (0..pages).map(|_| reader.u64()).collect::<Result<_>>()?;
        if fences.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(reader.damaged("the fences are not in order"));
        }
        let table = Self {
            entries,
            containers,
            replaced,
            fences,
            filter_words: reader.u64()?,
            filter_hashes: reader.u8()?,
        };
        reader.finish()?;
        Ok(table)
    }

    /// How many entries page `page` holds.
    #[must_use]
    pub fn entries_in_page(&self, page: usize) -> usize {
        let before = (page * PAGE_ENTRIES) as u64;
        self.entries.saturating_sub(before).min(PAGE_ENTRIES as u64) as usize
    }
}

/// The end of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footer {
    /// The number of pages.
    pub pages: u32,
    /// The stored length of the filter, tag included.
    pub filter_length: u64,
    /// The stored length of the table, tag included.
    pub table_length: u64,
}

impl Footer {
    /// The footer as stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u32(self.pages);
        writer.u64(self.filter_length);
        writer.u64(self.table_length);
        writer.u16(crate::FORMAT_VERSION);
        writer.raw(&[0; 6]);
        let mut bytes = writer.into_bytes();
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes
    }

    /// Reads the footer off the end of `tail`, the last bytes of an object of `object_bytes`.
    pub fn decode(tail: &[u8], object_bytes: u64) -> Result<Self> {
        let start = tail.len().saturating_sub(FOOTER_BYTES);
        let bytes = &tail[start..];
        let mut reader = Reader::new(bytes, "index run footer");
        let (pages, filter_length, table_length) = (reader.u32()?, reader.u64()?, reader.u64()?);
        let version = reader.u16()?;
        reader.raw(6)?;
        let crc = reader.u32()?;
        if reader.raw(8)? != MAGIC
            || crc != crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..28]) as u32
        {
            return Err(reader.damaged("its checksum does not hold"));
        }
        crate::container::check_version(version)?;
        let pages_length = u64::from(pages) * PAGE_STORED_BYTES as u64;
        let total = pages_length
            .checked_add(filter_length)
            .and_then(|sum| sum.checked_add(table_length))
            .and_then(|sum| sum.checked_add(FOOTER_BYTES as u64));
        if total != Some(object_bytes) {
            return Err(reader.damaged("it does not fit the object's length"));
        }
        Ok(Self { pages, filter_length, table_length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> Table {
        Table {
            entries: PAGE_ENTRIES as u64 + 1,
            containers: vec![ContainerId([1; 16]), ContainerId([2; 16])],
            replaced: vec![RunId([3; 16])],
            fences: vec![5, 900],
            filter_words: 64,
            filter_hashes: 4,
        }
    }

    #[test]
    fn pages_and_tables_round_trip() {
        let entries: Vec<Entry> =
            (0..PAGE_ENTRIES as u64).map(|n| Entry { prefix: n * n, container: 7 }).collect();
        let page = encode_page(&entries);
        assert_eq!(page.len(), PAGE_PLAIN_BYTES);
        let mut decoded = Vec::new();
        decode_page(&page, entries.len(), &mut decoded).unwrap();
        assert_eq!(decoded, entries);
        assert_eq!(Table::decode(&table().encode()).unwrap(), table());
        assert_eq!(table().entries_in_page(0), PAGE_ENTRIES);
        assert_eq!(table().entries_in_page(1), 1);
        assert_eq!(table().entries_in_page(2), 0);
    }

    #[test]
    fn a_flipped_bit_is_damage_and_never_a_newer_version() {
        let bytes = Footer { pages: 0, filter_length: 24, table_length: 30 }.encode();
        let object = 54 + bytes.len() as u64;
        assert!(Footer::decode(&bytes, object).is_ok());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = Footer::decode(&flipped, object).unwrap_err();
            assert_eq!(error.kind(), onefold_types::ErrorKind::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn r13_a_partial_run_is_refused() {
        let footer = Footer { pages: 2, filter_length: 528, table_length: 100 };
        let bytes = footer.encode();
        let object = 2 * PAGE_STORED_BYTES as u64 + 528 + 100 + bytes.len() as u64;
        assert_eq!(Footer::decode(&bytes, object).unwrap(), footer);
        assert!(Footer::decode(&bytes, object - 1).is_err());
        assert!(Footer::decode(&bytes[1..], object).is_err());
        let mut disordered = table();
        disordered.fences.reverse();
        assert!(Table::decode(&disordered.encode()).is_err());
        let mut short = table();
        short.fences.pop();
        assert!(Table::decode(&short.encode()).is_err());
    }

    proptest! {
        #[test]
        fn decoders_survive_anything(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Table::decode(&bytes);
            let _ = Footer::decode(&bytes, bytes.len() as u64);
            let _ = decode_page(&bytes, 20, &mut Vec::new());
        }
    }
}
