//! Chunks that were read before their turn, for an output that is written from its beginning to its
//! end.
//!
//! Invariants: what lies in the stash was verified; a chunk that a read serves at several offsets
//! is held once and lent to all of them; what has been taken is gone; nothing takes the place of
//! what has not been. In the place of a chunk that can be read nowhere stands why.

use super::fetch::Sink;
use super::ledger::Ledger;
use super::window::Piece;
use onefold_types::{Error, ErrorKind, Result, bug, invariant};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A range of a buffer that several offsets may share.
#[derive(Clone)]
struct Slice {
    buffer: Arc<Vec<u8>>,
    start: usize,
    length: usize,
}

/// Bytes by their offset in the output.
#[derive(Default)]
pub struct Stash {
    slices: Mutex<BTreeMap<u64, Slice>>,
    lost: Mutex<BTreeMap<u64, Arc<(ErrorKind, String)>>>,
    /// Every chunk that is to come, and its bytes.
    pub ledger: Ledger,
}

impl Stash {
    /// Lets the bytes of a piece also stand at another offset.
    pub fn share(&self, of: &Piece, to: u64) -> Result<()> {
        let (from, length) = (of.file_offset, of.length as usize);
        let lost = self.lost().get(&from).cloned();
        if let Some(reason) = lost {
            self.lose(&Piece { file_offset: to, ..*of }, reason);
            return Ok(());
        }
        let mut slices = self.lock();
        let holder = slices.range(..=from).next_back().and_then(|(start, slice)| {
            let skipped = (from - start) as usize;
            (skipped + length <= slice.length).then_some((slice, skipped))
        });
        let Some((slice, skipped)) = holder else {
            return Err(bug!("a chunk is not where it was just put", from, length));
        };
        let shared =
            Slice { buffer: Arc::clone(&slice.buffer), start: slice.start + skipped, length };
        let bytes = &shared.buffer[shared.start..shared.start + length];
        self.ledger.deliver(to, bytes, std::slice::from_ref(of));
        insert(&mut slices, to, shared)
    }

    /// Whether nothing waits any more.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty() && self.lost().is_empty()
    }

    /// A piece can be read nowhere.
    pub fn give_up(&self, piece: &Piece, reason: &Error) {
        self.lose(piece, Arc::new((reason.kind(), reason.to_string())));
    }

    fn lose(&self, piece: &Piece, reason: Arc<(ErrorKind, String)>) {
        self.ledger.give_up(piece);
        self.lost().insert(piece.file_offset, reason);
    }

    /// Takes the bytes that stand exactly at `offset`.
    ///
    /// Errors: those of `each`; why they can be read nowhere.
    pub fn take(&self, offset: u64, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        let lost = self.lost().remove(&offset);
        if let Some(reason) = lost {
            return Err(Error::new(reason.0, reason.1.clone()));
        }
        let Some(slice) = self.lock().remove(&offset) else {
            return Ok(0);
        };
        each(&slice.buffer[slice.start..slice.start + slice.length])?;
        Ok(slice.length as u64)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Slice>> {
        self.slices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<(ErrorKind, String)>>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn insert(slices: &mut BTreeMap<u64, Slice>, offset: u64, slice: Slice) -> Result<()> {
    let before = slices.insert(offset, slice);
    invariant!(before.is_none(), "two chunks are to stand at one offset", offset);
    Ok(())
}

impl Sink for Stash {
    fn wants(&self, _output: u32) -> bool {
        true
    }

    fn deliver(&self, _output: u32, offset: u64, bytes: &[u8], run: &[Piece]) -> Result<()> {
        self.ledger.deliver(offset, bytes, run);
        let buffer = Arc::new(bytes.to_vec());
        let length = buffer.len();
        insert(&mut self.lock(), offset, Slice { buffer, start: 0, length })
    }
}
