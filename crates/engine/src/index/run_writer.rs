//! Writes index runs, in memory that does not depend on their size but for the table.
//!
//! Pages go to the store as they fill. As soon as all pages of a piece are written, the piece is
//! made from their entries and follows them; so does, less often, a piece of the hook filter. What
//! has to be kept is thus the entries of one piece, the hooks of a few, and the table.
//!
//! A run counts once it was read back ([`super::read_back`]).

use super::piece::LoadedPiece;
use super::read_back::{self, EntrySum};
use super::run_list::list_runs;
use crate::repository::Repository;
use onefold_crypto::{ObjectSealer, Purpose};
use onefold_format::index_run::{
    self, Entry, FOOTER_BYTES, Footer, HOOK_PART, IndexKind, PAGE_ENTRIES, PAGE_STORED_BYTES,
    PAGES_MAX, PIECE_MAX_BYTES, PIECE_PART, TABLE_PART, Table, is_hook,
};
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Result, RunId, bug, limits};

/// Bytes handed to the store at once, about.
const WRITE_BYTES: usize = 64 * PAGE_STORED_BYTES;
/// Pieces that a piece of the hook filter stands for: as many hooks as a piece has entries.
const PIECES_PER_HOOK_PIECE: u32 = 1 << index_run::HOOK_BITS;

/// Pages that a piece of this kind stands for. A piece is read when a question first falls into it,
/// so it should be short; a static filter takes the less room for each key the more it has.
fn pages_per_piece(kind: IndexKind) -> u32 {
    match kind {
        IndexKind::Bloom | IndexKind::Fuse => 192,
        IndexKind::Signature => 48,
    }
}

/// Writes a run out of containers and the prefixes of the chunks in them, in any order.
pub fn write_run_of(
    repository: &Repository,
    kind: Option<IndexKind>,
    mut containers: Vec<(ContainerId, Vec<u64>)>,
) -> Result<RunId> {
    containers.sort_unstable_by_key(|(id, _)| *id);
    let mut entries = Vec::with_capacity(containers.iter().map(|(_, all)| all.len()).sum());
    for (container, (_, prefixes)) in (0..).zip(&containers) {
        entries.extend(prefixes.iter().map(|&prefix| Entry { prefix, container }));
    }
    entries.sort_unstable();
    let containers = containers.into_iter().map(|(id, _)| id).collect();
    let mut entries = entries.into_iter();
    write_run(repository, kind, containers, Vec::new(), &mut || Ok(entries.next()))
}

/// Writes a run that covers `containers`, which must rise, and takes over from `replaced`. `next`
/// gives its entries in rising order; repeats are dropped. Without a kind, the run is of that of
/// the largest one there is. When it returns, the run is durable and was read back.
///
/// Errors: `LimitExceeded` if no reader would take it; `Damaged` if it does not read back.
pub fn write_run(
    repository: &Repository,
    kind: Option<IndexKind>,
    containers: Vec<ContainerId>,
    replaced: Vec<RunId>,
    next: &mut dyn FnMut() -> Result<Option<Entry>>,
) -> Result<RunId> {
    // Entries of one prefix then stand in the order of their containers' names in every run, which
    // is what lets runs be merged page by page.
    if containers.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(bug!("the containers of an index run are not in order"));
    }
    let kind = match kind {
        Some(kind) => kind,
        None => prevailing_kind(repository)?,
    };
    let id = RunId::random(&*repository.environment().randomness);
    let table = Table {
        containers,
        replaced,
        pages_per_piece: pages_per_piece(kind),
        pieces_per_hook_piece: PIECES_PER_HOOK_PIECE,
        ..Table::default()
    };
    let mut writer = RunWriter {
        sealer: repository.vault().object(Purpose::IndexRun, &id.0)?,
        kind,
        page: Vec::with_capacity(PAGE_ENTRIES),
        piece: Vec::new(),
        hooks: Vec::new(),
        table,
        last: None,
        end: None,
        sum: EntrySum::default(),
    };
    let key = Key::new(layout::index_run(id))?;
    let put = repository.store().put_pieces(&key, &mut |piece| writer.write(piece, next));
    match put {
        // The name is fresh: if it is this run, somebody on the way has repeated the request.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => other?,
    }
    let RunWriter { table, sum, .. } = writer;
    match read_back::verify(repository, id, &table, sum) {
        Ok(()) => {
            repository.store().was_read_back(&key);
            Ok(id)
        }
        Err(error) => {
            // It may say that it takes over from others. What cannot be deleted is a hint that
            // whoever reads it finds damaged.
            let _ = repository.store().delete(&key);
            Err(error)
        }
    }
}

/// The kind of the largest run there is, by the footers; the default in an empty store.
fn prevailing_kind(repository: &Repository) -> Result<IndexKind> {
    let largest = footers(repository)?.into_iter().max_by_key(|(_, footer)| footer.pages);
    Ok(largest.map(|(_, footer)| footer.kind).unwrap_or_default())
}

/// The footers of all runs; what is damaged is passed over.
fn footers(repository: &Repository) -> Result<Vec<(RunId, Footer)>> {
    let mut footers = Vec::new();
    for id in list_runs(repository)? {
        let key = Key::new(layout::index_run(id))?;
        let tail = repository.store().get_tail(&key, FOOTER_BYTES);
        match tail.and_then(|(size, tail)| Footer::decode(&tail, size)) {
            Ok(footer) => footers.push((id, footer)),
            Err(error) if error.is_lost() => {}
            Err(error) if error.kind() == ErrorKind::NewerFormat => {}
            Err(error) => return Err(error),
        }
    }
    Ok(footers)
}

struct RunWriter {
    sealer: ObjectSealer,
    kind: IndexKind,
    table: Table,
    /// Entries of the page, of the piece and of the piece of the hook filter being filled.
    page: Vec<Entry>,
    piece: Vec<Entry>,
    hooks: Vec<u64>,
    last: Option<Entry>,
    /// The last prefix of the page before.
    end: Option<u64>,
    /// Over all entries so far.
    sum: EntrySum,
}

impl RunWriter {
    /// Appends the next piece of the object; tells whether more follow.
    fn write(
        &mut self,
        out: &mut Vec<u8>,
        next: &mut dyn FnMut() -> Result<Option<Entry>>,
    ) -> Result<bool> {
        while out.len() < WRITE_BYTES {
            match next()? {
                Some(entry) => self.push(entry, out)?,
                None => {
                    self.flush_page(out)?;
                    self.flush_piece(out)?;
                    self.flush_hooks(out)?;
                    self.finish(out)?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn push(&mut self, entry: Entry, out: &mut Vec<u8>) -> Result<()> {
        if self.last == Some(entry) {
            return Ok(());
        }
        if self.last > Some(entry) {
            return Err(bug!("index entries are not in order", self.last, entry));
        }
        self.last = Some(entry);
        self.sum.add(entry);
        self.page.push(entry);
        self.table.entries += 1;
        if self.page.len() < PAGE_ENTRIES {
            return Ok(());
        }
        self.flush_page(out)?;
        let pages = self.table.fences.len();
        if pages as u64 >= PAGES_MAX {
            return Err(too_large());
        }
        let per_piece = self.table.pages_per_piece as usize;
        if pages.is_multiple_of(per_piece) {
            self.flush_piece(out)?;
        }
        if pages.is_multiple_of(per_piece * self.table.pieces_per_hook_piece as usize) {
            self.flush_hooks(out)?;
        }
        Ok(())
    }

    fn flush_page(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(first) = self.page.first() else {
            return Ok(());
        };
        let part = self.table.fences.len() as u32;
        self.table.fences.push(index_run::fence(self.end, first.prefix));
        self.end = self.page.last().map(|last| last.prefix);
        let start = out.len();
        out.extend_from_slice(&index_run::encode_page(&self.page));
        self.sealer.seal(part, out, start)?;
        let hooks = self.page.iter().map(|entry| entry.prefix).filter(|prefix| is_hook(*prefix));
        self.hooks.extend(hooks);
        self.piece.append(&mut self.page);
        Ok(())
    }

    fn flush_piece(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let containers = self.table.containers.len() as u32;
        let piece = LoadedPiece::build(self.kind, &self.piece, containers)?;
        let part = PIECE_PART + self.table.piece_lengths.len() as u32;
        let length = self.seal(part, &piece, out)?;
        self.table.piece_lengths.push(length);
        self.piece.clear();
        Ok(())
    }

    fn flush_hooks(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let pieces = self.table.piece_lengths.len();
        let needed = pieces.div_ceil(self.table.pieces_per_hook_piece as usize);
        if self.table.hook_lengths.len() == needed {
            return Ok(());
        }
        let filter = LoadedPiece::filter(std::mem::take(&mut self.hooks));
        let part = HOOK_PART + self.table.hook_lengths.len() as u32;
        let length = self.seal(part, &filter, out)?;
        self.table.hook_lengths.push(length);
        Ok(())
    }

    fn seal(&self, part: u32, piece: &LoadedPiece, out: &mut Vec<u8>) -> Result<u32> {
        let start = out.len();
        piece.encode(out);
        self.sealer.seal(part, out, start)?;
        let length = out.len() - start;
        if length > PIECE_MAX_BYTES {
            return Err(too_large());
        }
        Ok(length as u32)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&self.table.encode());
        self.sealer.seal(TABLE_PART, out, start)?;
        if out.len() - start > limits::RUN_TABLE_MAX_BYTES {
            return Err(too_large());
        }
        let footer = Footer {
            pages: self.table.fences.len() as u32,
            pieces_length: self.table.pieces_length(),
            table_length: (out.len() - start) as u64,
            kind: self.kind,
        };
        out.extend_from_slice(&footer.encode());
        Ok(())
    }
}

fn too_large() -> Error {
    Error::new(ErrorKind::LimitExceeded, "an index run is too large")
}
