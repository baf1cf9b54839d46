//! Reads on behind what is asked for, where asking is dear, and keeps that for whoever asks next.
//!
//! The engine reads frames, pages and sections, a few kilobytes at a time, and what it reads next
//! is mostly a little further on in the same object. On a local device that costs next to nothing;
//! over a network each request takes as long as hundreds of kilobytes.
//!
//! # Algorithm
//! What a request takes is fitted to those that were made ([`RequestCosts`]). A range is asked for
//! with as many bytes behind it as cost no more than another request, none where asking is cheap.
//! What arrives is kept, the last used longest, within a bound.
//!
//! # Invariants
//! Only ranges are answered from what is kept: an object never changes, and a range proves nothing
//! about its existence. Whatever proves that (`get`, `get_tail`, `size`) is asked for. What is
//! deleted here is forgotten. What is put here is not kept: whoever reads it back reads it from
//! where it is.
//!
//! # Concurrency
//! One lock, never held while the network works. Two that miss the same range both ask for it.

use onefold_engine::restore::request_costs::{Reach, RequestCosts};
use onefold_store::{Blobs, Decisions, Key, Listed, Store};
use onefold_types::Result;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What is longer is read by itself: who asks for so much knows what comes next.
pub const AHEAD_OF_MAX_BYTES: usize = 256 << 10;

/// Stores that read what there is of a range.
pub trait PartialRanges {
    /// Fills the buffer from `offset` on as far as the object goes; how far that is.
    ///
    /// # Errors
    ///
    /// As for [`Blobs::get_range`], but for an object that ends within the buffer.
    fn get_up_to(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<usize>;
}

/// For tests: a store with layers that count and delay.
#[cfg(feature = "testing")]
impl<S: Store> PartialRanges for onefold_store::layers::Counting<S> {
    fn get_up_to(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let there = self.inner().size(key)?.saturating_sub(offset).min(buffer.len() as u64);
        let there = usize::try_from(there).unwrap_or(usize::MAX);
        self.get_range(key, offset, buffer.get_mut(..there).unwrap_or_default())?;
        Ok(there)
    }
}

/// A store that reads ahead; see the module.
pub struct ReadAhead<S> {
    store: S,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    costs: RequestCosts,
    /// How far requests reach, if it is not to be learnt.
    reach: Option<Reach>,
    bytes_max: usize,
    bytes: usize,
    turn: u64,
    /// By object, and by where they begin in it.
    blocks: HashMap<Key, BTreeMap<u64, Block>>,
    /// Which block was used when, the oldest first.
    turns: BTreeMap<u64, (Key, u64)>,
}

struct Block {
    bytes: Arc<[u8]>,
    turn: u64,
}

impl Kept {
    /// Bytes behind a range that cost no more than another request.
    fn ahead_bytes(&self) -> usize {
        // Half of that is what it takes to reach over a gap.
        let reach = self.reach.unwrap_or_else(|| self.costs.reach());
        let ahead = 2 * usize::try_from(reach.gap_bytes_max).unwrap_or(0);
        // Several at once are to have room.
        ahead.min(self.bytes_max / 4)
    }

    /// Copies a range out of the block that has all of it.
    fn copy(&mut self, key: &Key, offset: u64, buffer: &mut [u8]) -> bool {
        let found = self.blocks.get(key).and_then(|blocks| {
            let (start, block) = blocks.range(..=offset).next_back()?;
            let first = usize::try_from(offset - start).ok()?;
            let range = block.bytes.get(first..first.checked_add(buffer.len())?)?;
            buffer.copy_from_slice(range);
            Some(*start)
        });
        found.inspect(|start| self.touch(key, *start)).is_some()
    }

    fn touch(&mut self, key: &Key, start: u64) {
        self.turn += 1;
        let turn = self.turn;
        if let Some(block) = self.blocks.get_mut(key).and_then(|it| it.get_mut(&start)) {
            self.turns.remove(&block.turn);
            block.turn = turn;
            self.turns.insert(turn, (key.clone(), start));
        }
    }

    fn keep(&mut self, key: &Key, start: u64, bytes: Vec<u8>) {
        if bytes.len() > self.bytes_max {
            return;
        }
        self.drop_block(key, start);
        while self.bytes + bytes.len() > self.bytes_max {
            let Some((key, start)) = self.turns.first_key_value().map(|(_, it)| it.clone()) else {
                break;
            };
            self.drop_block(&key, start);
        }
        self.bytes += bytes.len();
        self.turn += 1;
        let block = Block { bytes: bytes.into(), turn: self.turn };
        self.blocks.entry(key.clone()).or_default().insert(start, block);
        self.turns.insert(self.turn, (key.clone(), start));
    }

    fn drop_block(&mut self, key: &Key, start: u64) {
        let Some(blocks) = self.blocks.get_mut(key) else { return };
        if let Some(block) = blocks.remove(&start) {
            self.bytes -= block.bytes.len();
            self.turns.remove(&block.turn);
        }
        if blocks.is_empty() {
            self.blocks.remove(key);
        }
    }

    fn forget(&mut self, key: &Key) {
        for block in self.blocks.remove(key).unwrap_or_default().into_values() {
            self.bytes -= block.bytes.len();
            self.turns.remove(&block.turn);
        }
    }
}

impl<S: Store + PartialRanges> ReadAhead<S> {
    /// Keeps at most so many bytes.
    pub fn new(store: S, bytes_max: usize) -> Self {
        Self { store, kept: Mutex::new(Kept { bytes_max, ..Kept::default() }) }
    }

    /// The same, as if it were known how far requests are to reach.
    #[must_use]
    pub fn reaching(self, reach: Reach) -> Self {
        self.kept().reach = Some(reach);
        self
    }

    /// The store below.
    pub fn inner(&self) -> &S {
        &self.store
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a range, and for more behind it where the object goes on.
    fn read_on(&self, key: &Key, offset: u64, buffer: &mut [u8], ahead: usize) -> Result<()> {
        let mut more = vec![0; buffer.len() + ahead];
        let began = Instant::now();
        let arrived = self.store.get_up_to(key, offset, &mut more)?;
        let mut kept = self.kept();
        kept.costs.note(arrived, began.elapsed());
        more.truncate(arrived);
        match more.get(..buffer.len()) {
            Some(wanted) => buffer.copy_from_slice(wanted),
            // It ends before: the store below says so in its own words.
            None => {
                drop(kept);
                return self.store.get_range(key, offset, buffer);
            }
        }
        kept.keep(key, offset, more);
        Ok(())
    }
}

impl<S: Store + PartialRanges> Blobs for ReadAhead<S> {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.store.put(key, bytes)
    }

    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        self.store.put_pieces(key, next)
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.store.get(key)
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let ahead = {
            let mut kept = self.kept();
            if kept.copy(key, offset, buffer) {
                return Ok(());
            }
            kept.ahead_bytes()
        };
        if ahead > 0 && (1..=AHEAD_OF_MAX_BYTES).contains(&buffer.len()) {
            return self.read_on(key, offset, buffer, ahead);
        }
        let began = Instant::now();
        self.store.get_range(key, offset, buffer)?;
        self.kept().costs.note(buffer.len(), began.elapsed());
        Ok(())
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.store.get_tail(key, length_bytes)
    }

    fn size(&self, key: &Key) -> Result<u64> {
        self.store.size(key)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.store.list(prefix, each)
    }

    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_names(prefix, each)
    }

    fn delete(&self, key: &Key) -> Result<()> {
        self.kept().forget(key);
        let deleted = self.store.delete(key);
        // A read beside it may have kept what was there.
        self.kept().forget(key);
        deleted
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.store.settle(prefix)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.store.free_bytes()
    }

    onefold_store::pass_hints_on!(this => this.store);
}

impl<S: Store + PartialRanges> Decisions for ReadAhead<S> {
    fn decide(&self, key: &Key, value: &[u8]) -> Result<Vec<u8>> {
        self.store.decide(key, value)
    }

    fn decided(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        self.store.decided(key)
    }

    fn list_decided(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.store.list_decided(prefix, each)
    }
}

impl<S: Store + PartialRanges> Store for ReadAhead<S> {
    fn describe(&self) -> String {
        self.store.describe()
    }

    onefold_store::pass_identity_on!(this => this.store);
}
