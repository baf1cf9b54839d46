//! What a run says about itself.
//!
//! ```text
//! varint entries
//! varint containers, their ids (16 bytes each), rising
//! varint replaced runs, their ids
//! varint pages that a piece stands for, varint pieces that a piece of the hook filter stands for
//! fence of every page (u64 each): the first page's first prefix, or one more than the last prefix
//! of the page before, or that prefix itself if the page begins with it
//! stored length of every piece (u32 each), stored length of every piece of the hook filter
//! ```
//!
//! From the lengths follows where everything lies ([`Table::page_offset`]).

use super::{PAGE_ENTRIES, PAGE_STORED_BYTES, PAGES_MAX, PIECE_MAX_BYTES};
use crate::wire::{Reader, Writer};
use onefold_types::{ContainerId, Result, RunId};
use std::ops::Range;

/// Pages that a piece may stand for, and pieces that a piece of the hook filter may stand for.
const GROUP_MAX: u64 = 1 << 16;

/// What a run says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// The number of entries in all pages.
    pub entries: u64,
    /// The containers that the run covers, rising.
    pub containers: Vec<ContainerId>,
    /// The runs whose entries this one took over.
    pub replaced: Vec<RunId>,
    /// Pages that a piece stands for; the last piece stands for what is left.
    pub pages_per_piece: u32,
    /// Pieces whose pages a piece of the hook filter stands for.
    pub pieces_per_hook_piece: u32,
    /// The fence of every page ([`super::fence`]).
    pub fences: Vec<u64>,
    /// The stored length of every piece, tag included.
    pub piece_lengths: Vec<u32>,
    /// The stored length of every piece of the hook filter, tag included.
    pub hook_lengths: Vec<u32>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            entries: 0,
            containers: Vec::new(),
            replaced: Vec::new(),
            pages_per_piece: 1,
            pieces_per_hook_piece: 1,
            fences: Vec::new(),
            piece_lengths: Vec::new(),
            hook_lengths: Vec::new(),
        }
    }
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
        writer.varint(u64::from(self.pages_per_piece));
        writer.varint(u64::from(self.pieces_per_hook_piece));
        self.fences.iter().for_each(|&fence| writer.u64(fence));
        self.piece_lengths.iter().for_each(|&length| writer.u32(length));
        self.hook_lengths.iter().for_each(|&length| writer.u32(length));
        writer.into_bytes()
    }

    /// Reads the plain form. Memory is taken only for what is there.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "index run table");
        let entries = reader.varint_max(PAGES_MAX * PAGE_ENTRIES as u64)?;
        let count = reader.count(16)?;
        let containers = many(&mut reader, count, |reader| reader.id().map(ContainerId))?;
        let count = reader.count(16)?;
        let replaced = many(&mut reader, count, |reader| reader.id().map(RunId))?;
        let pages_per_piece = reader.varint_max(GROUP_MAX)?;
        let pieces_per_hook_piece = reader.varint_max(GROUP_MAX)?;
        if pages_per_piece == 0 || pieces_per_hook_piece == 0 {
            return Err(reader.damaged("a piece stands for no page"));
        }
        let pages = entries.div_ceil(PAGE_ENTRIES as u64);
        let pieces = pages.div_ceil(pages_per_piece);
        let hooks = pieces.div_ceil(pieces_per_hook_piece);
        if pages * 8 + pieces * 4 + hooks * 4 != reader.remaining() as u64 {
            return Err(reader.damaged("the number of fences or pieces is wrong"));
        }
        let table = Self {
            entries,
            containers,
            replaced,
            pages_per_piece: pages_per_piece as u32,
            pieces_per_hook_piece: pieces_per_hook_piece as u32,
            fences: many(&mut reader, pages as usize, Reader::u64)?,
            piece_lengths: many(&mut reader, pieces as usize, Reader::u32)?,
            hook_lengths: many(&mut reader, hooks as usize, Reader::u32)?,
        };
        if !table.fences.is_sorted() {
            return Err(reader.damaged("the fences are not in order"));
        }
        if table.containers.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(reader.damaged("the containers are not in order"));
        }
        let mut lengths = table.piece_lengths.iter().chain(&table.hook_lengths);
        if lengths.any(|length| *length as usize > PIECE_MAX_BYTES) {
            return Err(reader.damaged("a piece is too long"));
        }
        reader.finish()?;
        Ok(table)
    }

    /// How many entries page `page` holds.
    #[must_use]
    pub fn entries_in_page(&self, page: usize) -> usize {
        let before = (page * PAGE_ENTRIES) as u64;
        // Nothing is on pages behind the last.
        self.entries.saturating_sub(before).min(PAGE_ENTRIES as u64) as usize
    }

    /// The pages that piece `piece` stands for.
    #[must_use]
    pub fn pages_of(&self, piece: usize) -> Range<usize> {
        let start = piece * self.pages_per_piece as usize;
        let end = start + self.pages_per_piece as usize;
        start.min(self.fences.len())..end.min(self.fences.len())
    }

    /// The stored length of all pieces, those of the hook filter included.
    #[must_use]
    pub fn pieces_length(&self) -> u64 {
        self.piece_lengths.iter().chain(&self.hook_lengths).map(|length| u64::from(*length)).sum()
    }

    /// Where the pages of every piece begin, and where the table begins; with them
    /// [`Table::page_offset`] and the others tell where everything lies. Of what the table does not
    /// have they tell nothing of use; who reads has looked whether it is there.
    #[must_use]
    pub fn starts(&self) -> Vec<u64> {
        let mut starts = Vec::with_capacity(self.piece_lengths.len() + 1);
        let mut offset = 0;
        let per_hook = self.pieces_per_hook_piece as usize;
        for (piece, length) in self.piece_lengths.iter().enumerate() {
            starts.push(offset);
            offset += (self.pages_of(piece).len() * PAGE_STORED_BYTES) as u64 + u64::from(*length);
            let is_last = (piece + 1) % per_hook == 0 || piece + 1 == self.piece_lengths.len();
            if is_last && let Some(length) = self.hook_lengths.get(piece / per_hook) {
                offset += u64::from(*length);
            }
        }
        starts.push(offset);
        starts
    }

    /// Where page `page` lies.
    #[must_use]
    pub fn page_offset(&self, starts: &[u64], page: usize) -> u64 {
        let per_piece = self.pages_per_piece as usize;
        let start = starts.get(page / per_piece).copied().unwrap_or_default();
        start + (page % per_piece * PAGE_STORED_BYTES) as u64
    }

    /// Where piece `piece` lies: behind its pages.
    #[must_use]
    pub fn piece_offset(&self, starts: &[u64], piece: usize) -> u64 {
        let start = starts.get(piece).copied().unwrap_or_default();
        start + (self.pages_of(piece).len() * PAGE_STORED_BYTES) as u64
    }

    /// Where piece `hook` of the hook filter lies: behind the last piece that it stands for.
    #[must_use]
    pub fn hook_offset(&self, starts: &[u64], hook: usize) -> u64 {
        let pieces = self.piece_lengths.len();
        let next = ((hook + 1) * self.pieces_per_hook_piece as usize).min(pieces);
        let end = starts.get(next).copied().unwrap_or_default();
        end.saturating_sub(u64::from(self.hook_lengths.get(hook).copied().unwrap_or_default()))
    }
}

/// Reads `count` values, which have been found to be there.
fn many<'a, T>(
    reader: &mut Reader<'a>,
    count: usize,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    // Not collected: the vector would not know its size and take up to twice the memory.
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(read(reader)?);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> Table {
        Table {
            entries: 4 * PAGE_ENTRIES as u64 + 1,
            containers: vec![ContainerId([1; 16]), ContainerId([2; 16])],
            replaced: vec![RunId([3; 16])],
            pages_per_piece: 2,
            pieces_per_hook_piece: 2,
            fences: vec![5, 900, 900, 1000, 2000],
            piece_lengths: vec![100, 101, 50],
            hook_lengths: vec![40, 30],
        }
    }

    #[test]
    fn tables_round_trip() {
        for table in [table(), Table::default()] {
            assert_eq!(Table::decode(&table.encode()).unwrap(), table);
        }
        assert_eq!(table().entries_in_page(0), PAGE_ENTRIES);
        assert_eq!(table().entries_in_page(4), 1);
        assert_eq!(table().entries_in_page(5), 0);
    }

    #[test]
    fn everything_has_its_place() {
        let table = table();
        let starts = table.starts();
        let page = PAGE_STORED_BYTES as u64;
        assert_eq!(starts, [0, 2 * page + 100, 4 * page + 241, 5 * page + 321]);
        assert_eq!(table.page_offset(&starts, 1), page);
        assert_eq!(table.page_offset(&starts, 3), 3 * page + 100);
        assert_eq!(table.page_offset(&starts, 4), 4 * page + 241);
        assert_eq!(table.piece_offset(&starts, 0), 2 * page);
        assert_eq!(table.piece_offset(&starts, 1), 4 * page + 100);
        assert_eq!(table.hook_offset(&starts, 0), 4 * page + 201);
        assert_eq!(table.piece_offset(&starts, 2), 5 * page + 241);
        assert_eq!(table.hook_offset(&starts, 1), 5 * page + 291);
        assert_eq!(starts[3], 5 * page + table.pieces_length());
        assert_eq!(table.pages_of(2), 4..5);
        assert_eq!(table.pages_of(7), 5..5);
    }

    #[test]
    fn r13_tables_that_contradict_themselves_are_refused() {
        let changes: [fn(&mut Table); 9] = [
            |table| table.pages_per_piece = 0,
            |table| table.pieces_per_hook_piece = 0,
            |table| table.fences.reverse(),
            |table| {
                let _ = table.fences.pop();
            },
            |table| {
                let _ = table.piece_lengths.pop();
            },
            |table| {
                let _ = table.hook_lengths.pop();
            },
            |table| table.containers.reverse(),
            |table| table.containers[1] = table.containers[0],
            |table| table.piece_lengths[0] = PIECE_MAX_BYTES as u32 + 1,
        ];
        for change in changes {
            let mut changed = table();
            change(&mut changed);
            assert!(Table::decode(&changed.encode()).is_err(), "{changed:?}");
        }
        let mut huge = Writer::new();
        huge.varint(u64::MAX);
        assert!(Table::decode(&huge.into_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn decoders_survive_anything(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(table) = Table::decode(&bytes) {
                let _ = table.starts();
            }
        }

        #[test]
        fn decoders_survive_a_changed_byte(at in 0usize..140, value: u8) {
            let mut bytes = table().encode();
            let at = at % bytes.len();
            bytes[at] = value;
            if let Ok(table) = Table::decode(&bytes) {
                let starts = table.starts();
                prop_assert_eq!(starts.len(), table.piece_lengths.len() + 1);
                (0..table.hook_lengths.len()).for_each(|hook| {
                    let _ = table.hook_offset(&starts, hook);
                });
            }
        }
    }
}
