//! What somebody has written into a stub without the mount.
//!
//! Whoever writes below a mount writes into what he sees as holes. What is there then is told from
//! what the job or a recall has left, when somebody was stopped at it, by what it is: the store has
//! the same bytes, or it has not.
//!
//! # Algorithm
//! 1. The *extents* of the file are found that lie where its bytes are the store's. Mostly there is
//!    none, which takes one question.
//! 2. What was written of an extent is all of it, but for zeros at its beginning and its end:
//!    whoever writes a part of a block leaves zeros around that, which he has seen there and not
//!    written, a mapping does so far around, and so does who was stopped at emptying the file in
//!    its last block. An extent of zeros alone is taken for a hole.
//! 3. That is compared with the store. The granules in which it differs become the file's own, as
//!    by a recall: what was not written of them comes out of the store. What the store cannot give
//!    counts as differing: what lies in the file is all that there is.
//! 4. A file that has data everywhere, of which some differs and half is no zeros at either end,
//!    was replaced: it is taken as it is, with all of its zeros.
//!
//! # Invariants
//! - No byte other than zero that differs from the store's is lost.
//! - The order of a recall: data is durable before its bit. Whoever is stopped in between is found
//!   again by the next look.
//! - What cannot be kept because the store lacks what is around it keeps nothing else from that.

use super::{COPIED_BYTES, StubFile, own_data, own_hole, run};
use onefold_format::stub::Stub;
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

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
    /// it open, or all who have it do so through this. `may` is asked before each granule and
    /// before that is written down.
    ///
    /// Errors: `Damaged` if the store lacks what is around some of it; the rest is kept then.
    pub fn keep_written(&self, may: &dyn Fn() -> Result<bool>) -> Result<bool> {
        let _one = self.changing();
        self.keep(may)
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
        // Whoever has it open writes through this, and a whole file is not compared for each write.
        if self.is_compared.load(Ordering::Relaxed) {
            return Ok(granules);
        }
        match next_left_over(&self.file, &stub, within)? {
            Some(_) if self.keep(&|| Ok(true))? => Ok(self.touched(range)),
            _ => Ok(granules),
        }
    }

    fn keep(&self, may: &dyn Fn() -> Result<bool>) -> Result<bool> {
        let mut written = self.written()?;
        let mut granules = self.differing(&written)?;
        if granules.is_empty() {
            self.is_compared.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        let mut stub = self.stub();
        if self.is_replaced(&stub, &written)? {
            written.clear();
            written.push(0..stub.valid);
            granules = stub.not_recalled().collect();
        }
        let (mut failed, mut is_kept) = (None, false);
        for granule in granules {
            if !may()? {
                return Ok(false);
            }
            match self.fill_around(&stub.range_of(granule), &written) {
                Ok(()) => {
                    stub.set_recalled(granule);
                    is_kept = true;
                }
                Err(error) if error.is_lost() => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        if is_kept {
            // Whoever wrote has said when.
            stub.are_times_pending = false;
            self.file.sync_data().context(|| "making what was written durable")?;
            if !may()? {
                return Ok(false);
            }
            self.save(stub)?;
            self.was_written_below.store(true, Ordering::Relaxed);
        }
        if let Some(error) = failed {
            // Whoever goes on would take out what was written there.
            return Err(error);
        }
        self.is_compared.store(true, Ordering::Relaxed);
        Ok(true)
    }

    /// Brings back what was not written of a granule.
    fn fill_around(&self, granule: &Range<u64>, written: &[Range<u64>]) -> Result<()> {
        let mut at = granule.start;
        let first = written.partition_point(|one| one.end <= granule.start);
        for one in written[first..].iter().take_while(|one| one.start < granule.end) {
            self.copy(at..one.start.max(at))?;
            at = one.end.min(granule.end);
        }
        self.copy(at..granule.end)
    }

    /// Whether the file has data wherever its bytes could be the store's, and not only because a
    /// few bytes were written into a file that is no longer than what the system writes at once.
    fn is_replaced(&self, stub: &Stub, written: &[Range<u64>]) -> Result<bool> {
        let extent = next_left_over(&self.file, stub, 0..u64::MAX)?;
        let bytes: u64 = written.iter().map(|one| one.end - one.start).sum();
        Ok(extent == Some(0..stub.valid) && bytes >= stub.valid / 2)
    }

    /// What was written where the bytes are the store's, in order.
    fn written(&self) -> Result<Vec<Range<u64>>> {
        let (stub, mut offset) = (self.stub(), 0);
        let mut written = Vec::new();
        while let Some(extent) = next_left_over(&self.file, &stub, offset..u64::MAX)? {
            offset = extent.end;
            written.extend(self.without_edges(&extent)?);
        }
        Ok(written)
    }

    /// An extent without the zeros around what was written; `None` if it has nothing else.
    fn without_edges(&self, extent: &Range<u64>) -> Result<Option<Range<u64>>> {
        let mut start = extent.start;
        loop {
            if start >= extent.end {
                return Ok(None);
            }
            let bytes = self.own_bytes(start..extent.end)?;
            match bytes.iter().position(|byte| *byte != 0) {
                Some(position) => {
                    start += position as u64;
                    break;
                }
                None => start += bytes.len() as u64,
            }
        }
        let mut end = extent.end;
        while end > start {
            let from = end.saturating_sub(COPIED_BYTES as u64).max(start);
            let bytes = self.own_bytes(from..end)?;
            match bytes.iter().rposition(|byte| *byte != 0) {
                Some(position) => return Ok(Some(start..from + position as u64 + 1)),
                None => end = from,
            }
        }
        Ok(None)
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
                match self.is_stored(at..end) {
                    Ok(true) => {}
                    Ok(false) => drop(granules.insert(granule)),
                    Err(error) if error.is_lost() => drop(granules.insert(granule)),
                    Err(error) => return Err(error),
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
