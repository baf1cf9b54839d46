//! What this machine keeps of a store that is elsewhere: index runs, metadata sections, and the
//! containers that it has written itself.
//!
//! A backup reads the same summaries and pages of index runs as the last one did, a restore or a
//! listing the same sections and directories. Objects never change, so what was read once need not
//! be read again: it is kept in files of this machine, within a bound, for all processes and all
//! stores of a user.
//!
//! # What is kept
//!
//! | asked for | of | up to |
//! | --- | --- | --- |
//! | a range (`peek_range`) | an index run | [`INDEX_RANGE_MAX_BYTES`]: summaries, pages of look-ups |
//! | a range (`peek_range`) | a container | [`FRAMES_MAX_BYTES`]: frames of directories |
//! | a tail (`peek_tail`) | an index run | [`INDEX_RANGE_MAX_BYTES`]: its table |
//! | a tail (`peek_tail`) | a container | `METADATA_SECTION_MAX_BYTES`: its metadata section |
//!
//! And what is written from here, as a whole, for whoever peeks or glances (`glance_range`):
//! containers, and what is put in pieces, index runs, of at most [`RUN_MAX_BYTES`]. The next backup
//! of the same machine looks its chunks up in these, reads their sections, and makes its
//! differences against their chunks. A process keeps no more of them than the [`WRITTEN_PART`]th
//! part of the bound, so that a long first backup leaves room for the rest.
//!
//! What restores and backups read of data is not kept: it is seldom read twice, and a file for each
//! frame would cost more than asking for it.
//!
//! # Invariants
//! - Whatever proves that an object exists is asked for where it is; here only what proves nothing
//!   is answered. So a container that was deleted may still seem to be there to whoever only reads;
//!   a session asks for proof (protocol, W5).
//! - What was written is given out once it was read back out of the store (`was_read_back`): until
//!   then it lies under another name, and a process that ends before leaves it so.
//! - What is kept is as it is in the store: of an encrypted one nothing can be learnt without its
//!   keys.
//! - Nothing rests on a file here. Each has a checksum over its name and bytes, and what does not
//!   fit it is asked for again (`shards.rs`). What fits and does not open was damaged when it was
//!   read: whoever finds that says so (`distrust`), and it is asked for again and kept anew.
//!   No command fails because of this directory.
//! - Whoever verifies a store, or deletes from it, does without: what is kept here says nothing of
//!   what the store holds now. Which commands that are is the matter of whoever opens the store.
//!
//! # Concurrency
//! Any number of threads and processes. Two that miss the same thing both ask for it.

mod shards;

pub use shards::{BLOCK_BYTES, PART_MAX, SHARDS};

use onefold_format::layout;
use onefold_store::{Asked, Blobs, DecidedBy, Decisions, Key, Listed, Store};
use onefold_types::limits::METADATA_SECTION_MAX_BYTES;
use onefold_types::{Result, StoreId};
use shards::{Extent, Shards, Whole};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Longer ranges of index runs are not kept.
pub const INDEX_RANGE_MAX_BYTES: usize = 16 << 20;
/// Longer ranges of containers are not kept.
pub const FRAMES_MAX_BYTES: usize = 256 << 10;

/// Longer index runs that are written are not kept.
pub const RUN_MAX_BYTES: usize = 4 << 20;
/// Of the bound, the part that what one process has written may take.
pub const WRITTEN_PART: u64 = 2;

/// A store of which this machine keeps something; see the module.
pub struct LocalCache<S> {
    store: S,
    directory: PathBuf,
    size_max_bytes: u64,
    /// Once it is known which store it is.
    kept: OnceLock<Shards>,
    /// Objects of which something did not open: of these only what is read from now on counts.
    distrusted: Mutex<HashSet<Key>>,
    /// Bytes of what this process has written and kept.
    written_bytes: AtomicU64,
}

impl<S: Store> LocalCache<S> {
    /// Keeps at most about so many bytes in files below this directory, of all stores together.
    pub fn new(store: S, directory: PathBuf, size_max_bytes: u64) -> Self {
        let (kept, distrusted) = (OnceLock::new(), Mutex::default());
        let written_bytes = AtomicU64::new(0);
        Self { store, directory, size_max_bytes, kept, distrusted, written_bytes }
    }

    /// Where this part is kept, if such parts are.
    fn kept_for(&self, extent: &Extent<'_>) -> Option<&Shards> {
        let (directory, _) = extent.key().as_str().split_once('/')?;
        let length_max = match (directory, extent) {
            (layout::INDEX, _) => INDEX_RANGE_MAX_BYTES,
            (layout::CONTAINERS, Extent::Range { .. }) => FRAMES_MAX_BYTES,
            (layout::CONTAINERS, Extent::Tail { .. }) => METADATA_SECTION_MAX_BYTES,
            _ => return None,
        };
        self.kept.get().filter(|_| (1..=length_max).contains(&extent.wanted_bytes()))
    }

    /// Where an object would be kept as a whole.
    fn kept_whole(&self, key: &Key) -> Option<&Shards> {
        let (directory, _) = key.as_str().split_once('/')?;
        let is_kept = matches!(directory, layout::CONTAINERS | layout::INDEX);
        self.kept.get().filter(|_| is_kept)
    }

    /// What `read` makes of an object that was written from here, and is trusted.
    fn of_whole<T>(&self, key: &Key, read: impl FnOnce(&Whole<'_>) -> Option<T>) -> Option<T> {
        let kept = self.kept_whole(key).filter(|_| !self.is_distrusted(key))?;
        kept.read_whole(key, read)
    }

    /// Keeps what was written.
    fn keep_written(&self, key: &Key, bytes: &[u8]) {
        let Some(kept) = self.kept_whole(key) else { return };
        let length = bytes.len() as u64;
        if !kept.has_room_for(length) {
            return;
        }
        let before = self.written_bytes.fetch_add(length, Ordering::Relaxed);
        if before + length > self.size_max_bytes / WRITTEN_PART {
            self.written_bytes.fetch_sub(length, Ordering::Relaxed);
            return;
        }
        kept.keep_whole(key, bytes);
    }

    fn is_distrusted(&self, key: &Key) -> bool {
        self.distrusted.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    fn is_kept(&self, asked: &Asked) -> bool {
        match asked {
            // An index run is only ever peeked at.
            Asked::Tail(key, length_bytes) if key.as_str().starts_with(layout::INDEX) => {
                let extent = Extent::Tail { key, length_bytes: *length_bytes };
                self.kept_for(&extent)
                    .is_some_and(|kept| kept.holds(&extent) || kept.holds(&Extent::Whole { key }))
            }
            _ => false,
        }
    }
}

impl<S: Store> Blobs for LocalCache<S> {
    fn put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.store.put(key, bytes)?;
        self.keep_written(key, bytes);
        Ok(())
    }

    fn put_pieces(
        &self,
        key: &Key,
        next: &mut dyn FnMut(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<()> {
        // Index runs are made in pieces.
        let mut written = self.kept_whole(key).map(|_| Vec::new());
        self.store.put_pieces(key, &mut |piece| {
            let more = next(piece)?;
            written = written.take().filter(|bytes| bytes.len() + piece.len() <= RUN_MAX_BYTES);
            if let Some(bytes) = &mut written {
                bytes.extend_from_slice(piece);
            }
            Ok(more)
        })?;
        if let Some(bytes) = written {
            self.keep_written(key, &bytes);
        }
        Ok(())
    }

    fn get(&self, key: &Key) -> Result<Vec<u8>> {
        self.store.get(key)
    }

    fn get_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.store.get_range(key, offset, buffer)
    }

    fn glance_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match self.of_whole(key, |whole| whole.read(offset, buffer)) {
            Some(()) => Ok(()),
            None => self.store.glance_range(key, offset, buffer),
        }
    }

    fn peek_range(&self, key: &Key, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let extent = Extent::Range { key, offset, length_bytes: buffer.len() };
        let Some(kept) = self.kept_for(&extent) else {
            return self.store.peek_range(key, offset, buffer);
        };
        if !self.is_distrusted(key) && kept.read_range(&extent, buffer)
            || self.of_whole(key, |whole| whole.read(offset, buffer)).is_some()
        {
            return Ok(());
        }
        self.store.peek_range(key, offset, buffer)?;
        kept.keep(&extent, 0, buffer);
        Ok(())
    }

    fn get_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        self.store.get_tail(key, length_bytes)
    }

    fn peek_tail(&self, key: &Key, length_bytes: usize) -> Result<(u64, Vec<u8>)> {
        let extent = Extent::Tail { key, length_bytes };
        let Some(kept) = self.kept_for(&extent) else {
            return self.store.peek_tail(key, length_bytes);
        };
        let known = if self.is_distrusted(key) { None } else { kept.read_tail(&extent) };
        if let Some(found) = known.or_else(|| self.of_whole(key, |whole| whole.tail(length_bytes)))
        {
            return Ok(found);
        }
        let (size, tail) = self.store.peek_tail(key, length_bytes)?;
        kept.keep(&extent, size, &tail);
        Ok((size, tail))
    }

    fn was_read_back(&self, key: &Key) {
        if let Some(kept) = self.kept_whole(key) {
            kept.trust_whole(key);
        }
        self.store.was_read_back(key);
    }

    fn distrust(&self, key: &Key) -> bool {
        // Also the second time: several may have read what was kept before the first one said so.
        let keeps = self.kept.get().is_some();
        if let Some(kept) = self.kept.get() {
            kept.drop_whole(key);
            self.distrusted.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
        }
        self.store.distrust(key) || keeps
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
        if let Some(kept) = self.kept_whole(key) {
            kept.drop_whole(key);
        }
        self.store.delete(key)
    }

    fn settle(&self, prefix: &str) -> Result<()> {
        self.store.settle(prefix)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.store.free_bytes()
    }

    fn let_go(&self) {
        self.store.let_go();
    }

    fn puts_at_once(&self) -> usize {
        self.store.puts_at_once()
    }

    fn foresee(&self, mut next: Vec<Asked>) -> u64 {
        next.retain(|asked| !self.is_kept(asked));
        if next.is_empty() { 0 } else { self.store.foresee(next) }
    }

    fn forget_foreseen(&self, number: u64) {
        self.store.forget_foreseen(number);
    }
}

impl<S: Store> Decisions for LocalCache<S> {
    onefold_store::pass_decisions_on!(this => this.store);
}

impl<S: Store> Store for LocalCache<S> {
    fn describe(&self) -> String {
        self.store.describe()
    }

    fn decided_by(&self) -> DecidedBy {
        self.store.decided_by()
    }

    fn open_as(&self, id: StoreId, is_new: bool) -> Result<()> {
        self.store.open_as(id, is_new)?;
        self.kept.get_or_init(|| Shards::new(self.directory.clone(), id, self.size_max_bytes));
        Ok(())
    }
}
