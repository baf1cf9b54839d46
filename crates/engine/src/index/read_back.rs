//! A run that was written is read back before it counts.
//!
//! It is read as a look-up reads it, all of it, out of the store whatever this machine keeps:
//! footer and table, every piece, every page. The table must be the one that was written, the
//! entries of all pages together those that went in, and no piece may deny an entry of its pages.
//! What a run is lost by is thus found while the entries are still at hand: before the session that
//! wrote it commits, and before the runs that it takes over from are deleted.
//!
//! Memory: a piece, a piece of the hook filter and a few pages.

use super::fingerprint_index::FingerprintIndex;
use super::run::{PieceId, Run};
use crate::repository::Repository;
use onefold_format::index_run::{Entry, PAGE_STORED_BYTES, Table};
use onefold_format::layout;
use onefold_store::Key;
use onefold_types::{ContainerId, Error, ErrorKind, Result, RunId};

/// Pages that are read with one request.
const PAGES_PER_READ: usize = 64;

/// A sum over entries in their order. It tells faults, not forgeries: pages are sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntrySum {
    entries: u64,
    sum: u64,
}

impl EntrySum {
    /// Goes on with the next entry.
    pub fn add(&mut self, entry: Entry) {
        let mixed = (self.sum ^ entry.prefix).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.sum = mixed.rotate_left(29).wrapping_add(u64::from(entry.container));
        self.entries += 1;
    }
}

/// Fails unless the run reads back as it was written.
///
/// Errors: `Damaged` if the store holds something else; `NotFound` if it holds nothing, and no
/// other run has taken over.
pub fn verify(repository: &Repository, id: RunId, table: &Table, sum: EntrySum) -> Result<()> {
    let outcome = read_all(repository, id, table, sum);
    match outcome {
        // Another process may have merged it already.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match is_taken_over(repository, table)? {
                true => Ok(()),
                false => Err(error.context(WHAT)),
            }
        }
        outcome => outcome.map_err(|error| error.context(WHAT)),
    }
}

const WHAT: &str = "the store acknowledged a part of the index but does not give it back";

fn read_all(repository: &Repository, id: RunId, table: &Table, sum: EntrySum) -> Result<()> {
    let run = Run::open_stored(repository, id)?;
    if run.table != *table {
        return Err(otherwise(id));
    }
    let mut seen = EntrySum::default();
    let (mut sealed, mut entries) = (Vec::new(), Vec::new());
    let mut hooks = PieceId::Hooks(0);
    for piece in 0..table.piece_lengths.len() {
        let next = run.piece_for(piece, true);
        if next != hooks {
            run.unload(hooks);
            hooks = next;
        }
        let pages = table.pages_of(piece);
        for start in pages.clone().step_by(PAGES_PER_READ) {
            let end = pages.end.min(start + PAGES_PER_READ);
            run.read_pages(repository, start..end, &mut sealed)?;
            // Pages come first in the object: a far store reads on from them.
            run.load(repository, hooks)?;
            run.load(repository, PieceId::Piece(piece))?;
            for (page, sealed) in (start..end).zip(sealed.chunks_mut(PAGE_STORED_BYTES)) {
                entries.clear();
                run.open_page(page, sealed, &mut entries)?;
                for entry in &entries {
                    seen.add(*entry);
                    if !run.knows(page, *entry) {
                        return Err(otherwise(id));
                    }
                }
            }
        }
        run.unload(PieceId::Piece(piece));
    }
    if seen == sum { Ok(()) } else { Err(otherwise(id)) }
}

/// Whether the containers of a run that is gone are in other runs, or gone themselves.
fn is_taken_over(repository: &Repository, table: &Table) -> Result<bool> {
    let index = FingerprintIndex::open(repository)?;
    let is_covered = |id: &ContainerId| {
        index.runs().iter().any(|run| {
            !table.replaced.contains(&run.id) && run.table.containers.binary_search(id).is_ok()
        })
    };
    for id in table.containers.iter().filter(|id| !is_covered(id)) {
        match repository.store().size(&Key::new(layout::container(*id))?) {
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn otherwise(id: RunId) -> Error {
    Error::damaged(format!("index run {id} reads back otherwise than it was written"))
}
