//! Chunks that were read before their turn, for an output that is written from its beginning to its
//! end.
//!
//! Invariants: what lies in the stash was verified; a chunk that a read serves in several places is
//! held once and lent to all of them; what has been taken is gone.

use super::fetch::Sink;
use onefold_types::Result;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A part of a buffer that several places may share.
#[derive(Clone)]
struct Slice {
    buffer: Arc<Vec<u8>>,
    start: usize,
    length: usize,
}

/// Bytes by their place in the output.
#[derive(Default)]
pub struct Stash(Mutex<BTreeMap<u64, Slice>>);

impl Stash {
    /// Lets the bytes at `from` also stand at `to`; `false` if they are not there.
    pub fn share(&self, from: u64, length: usize, to: u64) -> bool {
        let mut slices = self.lock();
        let Some((&start, slice)) = slices.range(..=from).next_back() else {
            return false;
        };
        let skipped = (from - start) as usize;
        if skipped + length > slice.length {
            return false;
        }
        let shared =
            Slice { buffer: Arc::clone(&slice.buffer), start: slice.start + skipped, length };
        slices.insert(to, shared);
        true
    }

    /// Takes the bytes that stand exactly at `offset`.
    pub fn take(&self, offset: u64, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        let Some(slice) = self.lock().remove(&offset) else {
            return Ok(0);
        };
        each(&slice.buffer[slice.start..slice.start + slice.length])?;
        Ok(slice.length as u64)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Slice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Stash {
    fn wants(&self, _output: u32) -> bool {
        true
    }

    fn deliver(&self, _output: u32, offset: u64, bytes: &[u8], _pieces: u64) -> Result<()> {
        let buffer = Arc::new(bytes.to_vec());
        let length = buffer.len();
        self.lock().insert(offset, Slice { buffer, start: 0, length });
        Ok(())
    }
}
