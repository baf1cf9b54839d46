//! What somebody has written into a stub without the mount.
//!
//! Whoever writes below a mount writes into what he sees as holes. What is there then is told from
//! what the job or a recall has left, when somebody was stopped at it, by what it is: the store has
//! the same bytes, or it has not.
//!
//! # Algorithm
//! 1. The *extents* of the file are found that lie where its bytes are the store's. Mostly there is
//!    none, which takes one question.
//! 2. What was written of an extent is all of it, but for zeros at the outer edges of its first and
//!    last block: whoever writes a part of a block leaves zeros around that, which he has seen
//!    there and not written. An extent of zeros alone is taken for a hole.
//! 3. That is compared with the store. The granules in which it differs become the file's own, as
//!    by a recall: what was not written of them comes out of the store.
//!
//! # Invariants
//! - No byte other than zero that differs from the store's is lost.
//! - The order of a recall: data is durable before its bit. Whoever is stopped in between is found
//!   again by the next look, with the same end.

use super::{COPIED_BYTES, StubFile, own_data, own_hole, run};
use onefold_format::stub::Stub;
use onefold_types::error::Context;
use onefold_types::{Error, Result, limits};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;

/// The bytes of a block where the file system names less.
const BLOCK_MIN_BYTES: u64 = 4096;

/// Whether a file has data where its bytes are the store's: what somebody has written there, or was
/// stopped at taking out or bringing back.
pub fn has_left_over(file: &File, stub: &Stub) -> Result<bool> {
    Ok(next_left_over(file, stub, 0..u64::MAX)?.is_some())
}

/// The first such extent in a range.
fn next_left_over(file: &File, stub: &Stub, within: Range<u64>) -> Result<Option<Range<u64>>> {
    let size = file.metadata().context(|| "its status")?.len();
    let limit = within.end.min(stub.valid).min(size);
    let mut offset = within.start;
    while offset < limit {
        let run = run(stub, offset, limit);
        let end = run.end.min(limit);
        if !run.is_own {
            match own_data(file, offset)? {
                None => return Ok(None),
                Some(data) if data < end => {
                    return Ok(Some(data..own_hole(file, data)?.min(end)));
                }
                Some(_) => {}
            }
        }
        offset = end;
    }
    Ok(None)
}

impl StubFile {
    /// Makes what was written into the file below its own; whether there was any. Nobody else has
    /// it open, or all who have it do so through this.
    pub fn keep_written(&self) -> Result<bool> {
        let _one = self.changing();
        self.keep()
    }

    /// Whether somebody has written into the file below.
    pub fn is_written_below(&self) -> Result<bool> {
        let _one = self.changing();
        Ok(!self.differing(&self.written()?)?.is_empty())
    }

    /// Whether something was found, and kept, since it was opened, that was written below.
    #[must_use]
    pub fn was_written_below(&self) -> bool {
        self.was_written_below.load(Ordering::Relaxed)
    }

    /// The granules of a range that are the store's, after what was written below there was made
    /// the file's own. One at a time.
    pub(super) fn untouched_below(&self, range: &Range<u64>) -> Result<Vec<u64>> {
        let granules = self.touched(range);
        let (Some(first), Some(last)) = (granules.first(), granules.last()) else {
            return Ok(granules);
        };
        let stub = self.stub();
        let within = stub.range_of(*first).start..stub.range_of(*last).end;
        match next_left_over(&self.file, &stub, within)? {
            Some(_) if self.keep()? => Ok(self.touched(range)),
            _ => Ok(granules),
        }
    }

    fn keep(&self) -> Result<bool> {
        let written = self.written()?;
        let granules = self.differing(&written)?;
        if granules.is_empty() {
            return Ok(false);
        }
        let mut stub = self.stub();
        for granule in granules {
            let range = stub.range_of(granule);
            let mut at = range.start;
            let first = written.partition_point(|one| one.end <= range.start);
            for one in written[first..].iter().take_while(|one| one.start < range.end) {
                self.copy(at..one.start.max(at))?;
                at = one.end.min(range.end);
            }
            self.copy(at..range.end)?;
            stub.set_recalled(granule);
        }
        // Whoever wrote has said when.
        stub.are_times_pending = false;
        self.file.sync_data().context(|| "making what was written durable")?;
        self.save(stub)?;
        self.was_written_below.store(true, Ordering::Relaxed);
        Ok(true)
    }

    /// What was written where the bytes are the store's, in order.
    fn written(&self) -> Result<Vec<Range<u64>>> {
        let metadata = self.file.metadata().context(|| "its status")?;
        let block = metadata.blksize().clamp(BLOCK_MIN_BYTES, limits::MIB as u64);
        let (stub, mut offset) = (self.stub(), 0);
        let mut written = Vec::new();
        while let Some(extent) = next_left_over(&self.file, &stub, offset..u64::MAX)? {
            offset = extent.end;
            written.extend(self.without_edges(&extent, block)?);
        }
        Ok(written)
    }

    /// An extent without the zeros around what was written; `None` if it has nothing else.
    fn without_edges(&self, extent: &Range<u64>, block: u64) -> Result<Option<Range<u64>>> {
        let Range { mut start, mut end } = *extent;
        let mut at = start;
        let first = loop {
            let bytes = self.own_bytes(at..extent.end)?;
            match bytes.iter().position(|byte| *byte != 0) {
                Some(position) => break at + position as u64,
                None => at += bytes.len() as u64,
            }
            if at >= extent.end {
                return Ok(None);
            }
        };
        if first / block == start / block {
            start = first;
        }
        let last_block = ((end - 1) / block * block).max(start);
        let bytes = self.own_bytes(last_block..end)?;
        if let Some(position) = bytes.iter().rposition(|byte| *byte != 0) {
            end = last_block + position as u64 + 1;
        }
        Ok(Some(start..end))
    }

    /// The first bytes of a range that is not empty, as they are in the file.
    fn own_bytes(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start).min(COPIED_BYTES as u64) as usize];
        self.file.read_exact_at(&mut bytes, range.start).context(|| "reading what is in it")?;
        Ok(bytes)
    }

    /// The granules in which something that was written is not what the store has.
    fn differing(&self, written: &[Range<u64>]) -> Result<BTreeSet<u64>> {
        let (stub, mut granules) = (self.stub(), BTreeSet::new());
        for range in written {
            let mut at = range.start;
            while at < range.end {
                let granule = stub.granule_at(at);
                let end = stub.range_of(granule).end.min(range.end);
                if !self.is_stored(at..end)? {
                    granules.insert(granule);
                }
                at = end;
            }
        }
        Ok(granules)
    }

    /// Whether the store has what the file holds of a range.
    fn is_stored(&self, range: Range<u64>) -> Result<bool> {
        let mut at = range.start;
        while at < range.end {
            let own = self.own_bytes(at..range.end)?;
            let (mut stored, mut done) = (vec![0; own.len()], 0);
            while done < stored.len() {
                match self.reader.read_at(at + done as u64, &mut stored[done..])? {
                    0 => return Err(Error::damaged("its content ends before its stub says so")),
                    read => done += read,
                }
            }
            if own != stored {
                return Ok(false);
            }
            at += own.len() as u64;
        }
        Ok(true)
    }
}
