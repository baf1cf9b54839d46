//! One index run: an immutable, sorted list of (fingerprint prefix, container).
//!
//! The layout is [`onefold_format::index_run`]'s. Opening reads the tail: the container ids, and
//! the fences (what separates a page from the one before, 0.024 bytes an entry). What tells new
//! chunks from known ones is read piece by piece, when a question first falls into one, so that a
//! process that asks little loads little. The pieces are the checkpoint of S1.14: they are stored
//! with the run; what no run covers is replayed from the containers.
//!
//! Invariant: an answer that denies a prefix comes from a piece that was read whole and opened. A
//! piece that is not there, or cannot be read, denies nothing.
//!
//! Concurrency: a run is shared by threads; which pieces are loaded stands behind a lock that
//! nobody holds while the device works.

use super::piece::LoadedPiece;
use crate::container::reader::{ReadAs, peeked};
use crate::repository::Repository;
use onefold_crypto::{ObjectSealer, Purpose, TAG_BYTES};
use onefold_format::index_run::{
    self, Entry, FOOTER_BYTES, Footer, HOOK_PART, IndexKind, PAGE_PLAIN_BYTES, PAGE_STORED_BYTES,
    PIECE_PART, TABLE_PART, Table, is_hook,
};
use onefold_format::layout;
use onefold_store::{Asked, Key};
use onefold_types::error::Context;
use onefold_types::{ContainerId, Error, ErrorKind, Result, RunId, bug, invariant, limits};
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes read from the tail at first.
const TAIL_GUESS_BYTES: usize = 32 * limits::KIB;

/// What a piece stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceId {
    /// All entries of some pages.
    Piece(usize),
    /// The hooks among the entries of more pages.
    Hooks(usize),
}

/// What the memory says about a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is not there, for certain.
    No,
    /// It may be there.
    Maybe,
    /// It may be there as far as is known; this piece may know more.
    Unloaded(PieceId),
}

enum Slot {
    Unloaded,
    Loaded(LoadedPiece),
    Unusable,
}

/// An open run.
pub struct Run {
    /// Its name.
    pub id: RunId,
    /// What it says about itself.
    pub table: Table,
    /// Its length as stored.
    pub stored_bytes: u64,
    kind: IndexKind,
    key: Key,
    sealer: ObjectSealer,
    /// How its pieces are read.
    read_as: ReadAs,
    /// Where the pages of every piece begin.
    starts: Vec<u64>,
    /// The fence of every piece: a look-up's first step, in few cache lines.
    piece_fences: Vec<u64>,
    in_memory: RwLock<InMemory>,
}

/// The pieces of a run that are in memory.
struct InMemory {
    pieces: Vec<Slot>,
    hooks: Vec<Slot>,
    loaded_bytes: usize,
}

impl InMemory {
    fn slot(&self, piece_id: PieceId) -> Option<&Slot> {
        match piece_id {
            PieceId::Piece(number) => self.pieces.get(number),
            PieceId::Hooks(number) => self.hooks.get(number),
        }
    }

    fn slot_mut(&mut self, piece_id: PieceId) -> Option<&mut Slot> {
        match piece_id {
            PieceId::Piece(number) => self.pieces.get_mut(number),
            PieceId::Hooks(number) => self.hooks.get_mut(number),
        }
    }

    /// Frees the memory of a piece; how many bytes that gave.
    fn unload(&mut self, piece_id: PieceId) -> usize {
        let mut freed = 0;
        if let Some(slot) = self.slot_mut(piece_id)
            && let Slot::Loaded(piece) = slot
        {
            freed = piece.bytes_used();
            *slot = Slot::Unloaded;
        }
        self.loaded_bytes -= freed;
        freed
    }
}

impl Run {
    /// What opening a run reads first.
    pub fn asked(id: RunId) -> Result<Asked> {
        Ok(Asked::Tail(Key::new(layout::index_run(id))?, TAIL_GUESS_BYTES))
    }

    /// Opens a run: footer and table, but no piece.
    pub fn open(repository: &Repository, id: RunId) -> Result<Self> {
        let key = Key::new(layout::index_run(id))?;
        peeked(repository.store(), &key, || Self::open_as(repository, id, ReadAs::Peek))
    }

    /// The same of what the store holds now; and so are its pieces.
    pub fn open_stored(repository: &Repository, id: RunId) -> Result<Self> {
        Self::open_as(repository, id, ReadAs::Stored)
    }

    fn open_as(repository: &Repository, id: RunId, read_as: ReadAs) -> Result<Self> {
        let what = || format!("index run {id}");
        let key = Key::new(layout::index_run(id))?;
        // A run is a hint: whatever it names is looked for.
        let (size, tail) = read_as.tail(repository.store(), &key, TAIL_GUESS_BYTES)?;
        let footer = Footer::decode(&tail, size).context(what)?;
        let length = usize::try_from(footer.table_length)
            .ok()
            .filter(|&length| length <= limits::RUN_TABLE_MAX_BYTES)
            .ok_or_else(|| Error::damaged(format!("index run {id}: its table is too long")))?;
        let mut sealed = match tail.len().checked_sub(length + FOOTER_BYTES) {
            Some(start) => tail[start..start + length].to_vec(),
            None => {
                let offset = size - FOOTER_BYTES as u64 - footer.table_length;
                let mut sealed = vec![0; length];
                read_as.range(repository.store(), &key, offset, &mut sealed)?;
                sealed
            }
        };
        let sealer = repository.vault().stored(Purpose::IndexRun, &id.0)?;
        let length = sealer.open(TABLE_PART, &mut sealed).context(what)?;
        let table = Table::decode(&sealed[..length]).context(what)?;
        if table.fences.len() != footer.pages as usize
            || table.pieces_length() != footer.pieces_length
        {
            return Err(Error::damaged(format!("index run {id}: pages or pieces are missing")));
        }
        let slots = |count: usize| (0..count).map(|_| Slot::Unloaded).collect();
        Ok(Self {
            id,
            stored_bytes: size,
            kind: footer.kind,
            key,
            sealer,
            read_as,
            starts: table.starts(),
            piece_fences: table
                .fences
                .iter()
                .step_by(table.pages_per_piece as usize)
                .copied()
                .collect(),
            in_memory: RwLock::new(InMemory {
                pieces: slots(table.piece_lengths.len()),
                hooks: slots(table.hook_lengths.len()),
                loaded_bytes: 0,
            }),
            table,
        })
    }

    /// What its pieces are.
    #[must_use]
    pub fn kind(&self) -> IndexKind {
        self.kind
    }

    /// Bytes of memory that the run takes now.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.containers.len() * size_of::<ContainerId>()
            + self.table.replaced.len() * size_of::<RunId>()
            + (self.table.fences.len() + self.piece_fences.len() + self.starts.len()) * 8
            + (self.table.piece_lengths.len() + self.table.hook_lengths.len()) * 4
            + (self.table.piece_lengths.len() + self.table.hook_lengths.len()) * size_of::<Slot>()
            + self.loaded_bytes()
    }

    /// Bytes of memory that all pieces take once they are loaded, those for hooks not included.
    #[must_use]
    pub fn pieces_bytes(&self) -> usize {
        self.table.piece_lengths.iter().map(|length| *length as usize).sum()
    }

    /// Bytes of memory that the loaded pieces take.
    #[must_use]
    pub fn loaded_bytes(&self) -> usize {
        self.in_memory().loaded_bytes
    }

    fn in_memory(&self) -> RwLockReadGuard<'_, InMemory> {
        self.in_memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_memory_mut(&self) -> RwLockWriteGuard<'_, InMemory> {
        self.in_memory.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// At most so many bytes of memory does a piece take once it is loaded.
    #[must_use]
    pub fn bytes_of(&self, piece_id: PieceId) -> usize {
        let length = match piece_id {
            PieceId::Piece(number) => self.table.piece_lengths.get(number),
            PieceId::Hooks(number) => self.table.hook_lengths.get(number),
        };
        length.map_or(0, |length| *length as usize)
    }

    /// Loads a piece unless it is there; how many bytes of memory that took.
    ///
    /// Errors: `Damaged` if it cannot be read; it counts as loaded then, and denies nothing.
    pub fn load(&self, repository: &Repository, piece_id: PieceId) -> Result<usize> {
        if !matches!(self.in_memory().slot(piece_id), Some(Slot::Unloaded)) {
            return Ok(0);
        }
        let read = || self.read_piece(repository, piece_id);
        let (bytes, slot, outcome) = match peeked(repository.store(), &self.key, read) {
            Ok(piece) => (piece.bytes_used(), Slot::Loaded(piece), Ok(())),
            Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NewerFormat) => {
                (0, Slot::Unusable, Err(error.with_kind(ErrorKind::Damaged)))
            }
            Err(error) => return Err(error),
        };
        let mut in_memory = self.in_memory_mut();
        match in_memory.slot_mut(piece_id) {
            Some(unloaded @ Slot::Unloaded) => *unloaded = slot,
            // Another thread was faster.
            _ => return Ok(0),
        }
        in_memory.loaded_bytes += bytes;
        outcome.map(|()| bytes)
    }

    fn read_piece(&self, repository: &Repository, piece_id: PieceId) -> Result<LoadedPiece> {
        let (number, offset) = match piece_id {
            PieceId::Piece(piece) => {
                (PIECE_PART + piece as u32, self.table.piece_offset(&self.starts, piece))
            }
            PieceId::Hooks(hook) => {
                (HOOK_PART + hook as u32, self.table.hook_offset(&self.starts, hook))
            }
        };
        let is_there = match piece_id {
            PieceId::Piece(piece) => piece < self.table.piece_lengths.len(),
            PieceId::Hooks(hook) => hook < self.table.hook_lengths.len(),
        };
        invariant!(is_there, "an index run has no such part", piece_id, self.id);
        let what = || format!("{piece_id:?} of index run {}", self.id);
        let mut sealed = vec![0; self.bytes_of(piece_id).max(TAG_BYTES)];
        self.read_as.range(repository.store(), &self.key, offset, &mut sealed)?;
        let length = self.sealer.open(number, &mut sealed).context(what)?;
        LoadedPiece::decode(&sealed[..length], self.table.containers.len() as u32).context(what)
    }

    /// Frees the memory of a piece.
    pub fn unload(&self, piece_id: PieceId) {
        self.in_memory_mut().unload(piece_id);
    }

    /// Frees the memory of some loaded piece; how many bytes that gave.
    pub fn unload_any(&self) -> usize {
        let mut in_memory = self.in_memory_mut();
        let loaded = |slot: &Slot| matches!(slot, Slot::Loaded(piece) if piece.bytes_used() > 0);
        if let Some(number) = in_memory.pieces.iter().rposition(loaded) {
            return in_memory.unload(PieceId::Piece(number));
        }
        let number = in_memory.hooks.iter().rposition(loaded);
        number.map_or(0, |number| in_memory.unload(PieceId::Hooks(number)))
    }

    /// The pieces in whose pages the prefix may be: one, or more if it is a piece's first.
    #[must_use]
    pub fn pieces_for(&self, prefix: u64) -> Range<usize> {
        pages_among(&self.piece_fences, prefix)
    }

    /// The pages of a piece in which the prefix may be. A piece has fences, and neighbours in the
    /// slice below lie within it: no default here is ever taken.
    #[must_use]
    pub fn pages_for(&self, piece: usize, prefix: u64) -> Range<usize> {
        let pages = self.table.pages_of(piece);
        let fences = self.table.fences.get(pages.clone()).unwrap_or_default();
        let within = pages_among(fences, prefix);
        pages.start + within.start..pages.start + within.end
    }

    /// The piece to ask for the entries of a piece: its own, or that of the hook filter.
    #[must_use]
    pub fn piece_for(&self, piece: usize, hooks_only: bool) -> PieceId {
        match hooks_only {
            true => PieceId::Hooks(piece / self.table.pieces_per_hook_piece as usize),
            false => PieceId::Piece(piece),
        }
    }

    /// What a piece says about a prefix.
    #[must_use]
    pub fn ask(&self, piece_id: PieceId, prefix: u64) -> Answer {
        match self.in_memory().slot(piece_id) {
            Some(Slot::Loaded(piece)) if !piece.contains(prefix) => Answer::No,
            Some(Slot::Unloaded) => Answer::Unloaded(piece_id),
            _ => Answer::Maybe,
        }
    }

    /// Appends the containers that a loaded signature table names for the prefix. `None` if no
    /// table is loaded for the piece; else whether there are more instances than it names.
    pub fn instances(
        &self,
        piece: usize,
        prefix: u64,
        ordinals: &mut Vec<u32>,
        found: &mut Vec<ContainerId>,
    ) -> Option<bool> {
        let in_memory = self.in_memory();
        let Some(Slot::Loaded(LoadedPiece::Signatures(table))) = in_memory.pieces.get(piece) else {
            return None;
        };
        ordinals.clear();
        let has_more = table.find(prefix, ordinals);
        let containers = &self.table.containers;
        found.extend(ordinals.iter().filter_map(|ordinal| containers.get(*ordinal as usize)));
        Some(has_more)
    }

    /// Whether the loaded pieces know an entry of this page, as they must.
    #[must_use]
    pub fn knows(&self, page: usize, entry: Entry) -> bool {
        let piece = page / self.table.pages_per_piece as usize;
        let denies =
            |hooks_only| self.ask(self.piece_for(piece, hooks_only), entry.prefix) == Answer::No;
        if denies(false) || is_hook(entry.prefix) && denies(true) {
            return false;
        }
        let mut found = Vec::new();
        let has_more = self.instances(piece, entry.prefix, &mut Vec::new(), &mut found);
        let container = self.table.containers.get(entry.container as usize);
        has_more.is_none_or(|more| more || container.is_some_and(|id| found.contains(id)))
    }

    /// Bytes from the first page of some to the last, with the pieces between them.
    #[must_use]
    pub fn span_bytes(&self, pages: &Range<usize>) -> usize {
        let Some(last) = pages.end.checked_sub(1).filter(|last| *last >= pages.start) else {
            return 0;
        };
        let [start, end] =
            [pages.start, last].map(|page| self.table.page_offset(&self.starts, page));
        end.saturating_sub(start) as usize + PAGE_STORED_BYTES
    }

    /// Bytes of all pages and pieces.
    #[must_use]
    pub fn pages_bytes(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// Reads neighbouring pages with one request; `sealed` then holds them, and the pieces between
    /// them: see [`Run::span_bytes`].
    pub fn read_pages(
        &self,
        repository: &Repository,
        pages: Range<usize>,
        sealed: &mut Vec<u8>,
    ) -> Result<()> {
        let read = |offset: u64, sealed: &mut [u8]| {
            repository.store().get_range(&self.key, offset, sealed)
        };
        self.read_pages_by(read, pages, sealed)
    }

    /// The same for look-ups, which come to the same pages again and again.
    pub fn peek_pages(
        &self,
        repository: &Repository,
        pages: Range<usize>,
        sealed: &mut Vec<u8>,
    ) -> Result<()> {
        let read = |offset: u64, sealed: &mut [u8]| {
            repository.store().peek_range(&self.key, offset, sealed)
        };
        self.read_pages_by(read, pages, sealed)
    }

    fn read_pages_by(
        &self,
        read: impl FnOnce(u64, &mut [u8]) -> Result<()>,
        pages: Range<usize>,
        sealed: &mut Vec<u8>,
    ) -> Result<()> {
        let pages_max = self.table.fences.len();
        invariant!(pages.end <= pages_max, "an index run has no such page", pages, pages_max);
        sealed.resize(self.span_bytes(&pages), 0);
        let offset = self.table.page_offset(&self.starts, pages.start);
        let what = || format!("page {} of index run {}", pages.start, self.id);
        read(offset, sealed).context(what)
    }

    /// What is read.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Opens a page that was read, and appends its entries.
    pub fn open_page(
        &self,
        page: usize,
        sealed: &mut [u8],
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let what = || format!("page {page} of index run {}", self.id);
        self.sealer.open(page as u32, sealed).context(what)?;
        let short = || bug!("a page that opened is too short", page, self.id);
        let plain = sealed.get(..PAGE_PLAIN_BYTES).ok_or_else(short)?;
        index_run::decode_page(plain, self.table.entries_in_page(page), entries).context(what)
    }

    /// Appends the entries of a page.
    pub fn read_page(
        &self,
        repository: &Repository,
        page: usize,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let mut sealed = Vec::new();
        self.read_pages(repository, page..page + 1, &mut sealed)?;
        self.open_page(page, &mut sealed, entries)
    }

    /// The container that an entry names.
    pub fn container(&self, entry: Entry) -> Result<ContainerId> {
        self.table
            .containers
            .get(entry.container as usize)
            .copied()
            .ok_or_else(|| Error::damaged(format!("index run {}: an entry is stray", self.id)))
    }
}

/// Among pages with these fences, those in which the prefix may be: from the last one whose fence
/// is smaller, where it may begin, to the last one whose fence is not larger. That is one page
/// unless the prefix is a fence itself.
fn pages_among(fences: &[u64], prefix: u64) -> Range<usize> {
    let end = partition_near(fences, prefix, |fence| fence <= prefix);
    let up_to = fences.get(..end).unwrap_or_default();
    let start = match up_to.last() == Some(&prefix) {
        true => up_to.partition_point(|fence| *fence < prefix),
        false => end,
    };
    start.saturating_sub(1)..end
}

/// How many of the sorted fences come before. Prefixes are uniform, so the search begins where the
/// prefix would be if they were exactly so, and widens from there: a step or two for honest
/// prefixes, logarithmically many for any.
fn partition_near(fences: &[u64], prefix: u64, before: impl Fn(u64) -> bool) -> usize {
    let is_before = |index: usize| fences.get(index).is_some_and(|fence| before(*fence));
    let guess = match (fences.first(), fences.last()) {
        (Some(first), Some(last)) if last > first => {
            let share = (prefix.clamp(*first, *last) - first) as f64 / (last - first) as f64;
            ((fences.len() - 1) as f64 * share) as usize
        }
        _ => 0,
    };
    let (mut low, mut high, mut step) = (0, fences.len(), 1);
    if is_before(guess) {
        low = guess + 1;
        while low + step <= fences.len() && is_before(low + step - 1) {
            low += step;
            step *= 2;
        }
        high = high.min(low + step);
    } else {
        high = high.min(guess);
        while high >= step && !is_before(high - step) {
            high -= step;
            step *= 2;
        }
        low = high.saturating_sub(step).max(low);
    }
    let within = fences.get(low..high).unwrap_or_default();
    low + within.partition_point(|fence| before(*fence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_widening_search_finds_what_a_plain_one_finds(
            mut fences in prop::collection::vec(prop_oneof![0..20u64, any::<u64>()], 0..60),
            prefix in prop_oneof![0..20u64, any::<u64>()],
        ) {
            fences.sort_unstable();
            for prefix in fences.iter().copied().chain([prefix]) {
                let end = fences.partition_point(|fence| *fence <= prefix);
                let start = fences.partition_point(|fence| *fence < prefix).saturating_sub(1);
                prop_assert_eq!(pages_among(&fences, prefix), start.min(end)..end);
            }
        }
    }
}
