//! The chunks of a file that are missing.
//!
//! The file's own map says at which offset each of them stands, how long it is and what it is
//! called. Its bytes are read from there out of the copy: how these are cut in the other store, and
//! what the pieces are called there, does not matter, and nothing is cut here. What a damaged
//! container still gives is taken from there first. Bytes that have another name than the map says
//! are not stored.
//!
//! Memory: one message of a backup's length and one chunk.

use super::{Healer, is_passed_over};
use crate::chunk_store::ChunkBatch;
use crate::ingest::read::MESSAGE_BYTES;
use crate::tree::FileReader;
use onefold_format::node::{Entry, Extent, Reference};
use onefold_types::{Error, Fingerprint, Level, Result, limits};
use std::sync::Arc;

/// A file that is being healed.
struct Filling {
    copy: Option<FileReader>,
    /// Bytes in the places of missing chunks, with the names that these should have.
    batch: ChunkBatch,
    /// A map of the file is lost.
    has_lost_map: bool,
    is_whole: bool,
    /// Why the copy is of no use.
    reason: Option<Error>,
}

impl Healer<'_> {
    /// Heals a file; whether all of it is there then.
    pub(super) fn file(&mut self, at: &[u8], entry: &Entry, copy: Option<&Entry>) -> Result<bool> {
        let Some(content) = entry.content else { return Ok(true) };
        let mut filling = Filling {
            copy: None,
            batch: ChunkBatch::default(),
            has_lost_map: false,
            is_whole: true,
            reason: None,
        };
        match copy.map(|copy| FileReader::open(Arc::clone(&self.copy), copy)).transpose() {
            Ok(copy) => filling.copy = copy,
            Err(error) => filling.reason = Some(error),
        }
        let whole = Extent { fingerprint: content.fingerprint, length: entry.size };
        self.part(&mut filling, content.level, whole, 0)?;
        self.put(&mut filling)?;
        if filling.has_lost_map && filling.is_whole {
            let beside = copy.zip(filling.copy.as_ref()).filter(|(it, _)| it.size == entry.size);
            let built = match beside {
                Some((beside, reader)) => self.rebuild_file(content, beside, reader)?,
                None => Err(None),
            };
            if let Err(why) = built {
                (filling.is_whole, filling.reason) = (false, filling.reason.or(why));
            }
        }
        if filling.is_whole {
            self.presence.note_whole(content);
        }
        self.settle(at, filling.is_whole, filling.reason.as_ref());
        Ok(filling.is_whole)
    }

    /// Looks through a part of the file that begins at this offset.
    fn part(&mut self, filling: &mut Filling, level: Level, part: Extent, at: u64) -> Result<()> {
        self.job.interrupt.check()?;
        if part.is_hole() {
            return Ok(());
        }
        if level == Level::DATA {
            return match self.store.is_present(&part.fingerprint)? {
                true => Ok(()),
                false => self.fill(filling, part, at),
            };
        }
        let reference = Reference { fingerprint: part.fingerprint, level };
        if self.is_whole(reference)? {
            return Ok(());
        }
        // Stores it again if it can be read, but not be relied upon; the rest is asked below.
        self.own_node(reference)?;
        let map = match self.own.file_map(reference) {
            Ok(map) => map,
            Err(error) if is_passed_over(&error) => {
                filling.has_lost_map = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut at = at;
        for child in map.extents {
            self.part(filling, map.child_level, child, at)?;
            at = at.saturating_add(child.length);
        }
        Ok(())
    }

    /// Reads what should stand in the place of a missing chunk.
    fn fill(&mut self, filling: &mut Filling, chunk: Extent, at: u64) -> Result<()> {
        let (length, buffer) = (chunk.length as usize, &mut filling.batch.buffer);
        let start = buffer.len();
        let own = match self.own.chunks().read_advice(&chunk.fingerprint) {
            Ok(own) => (own.len() == length && own.level == Level::DATA).then_some(own),
            Err(error) if is_passed_over(&error) => None,
            Err(error) => return Err(error),
        };
        if let Some(own) = own {
            buffer.extend_from_slice(&own);
        } else if let Some(copy) = &filling.copy
            && chunk.length <= limits::CHUNK_SIZE_MAX_BYTES as u64
        {
            buffer.resize(start + length, 0);
            match copy.read_at(at, &mut buffer[start..]) {
                Ok(read) => {
                    self.healing.bytes_from_copy += read as u64;
                    buffer.truncate(start + read);
                }
                Err(error) if is_passed_over(&error) => {
                    buffer.truncate(start);
                    filling.reason.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        let end = filling.batch.buffer.len();
        if end - start != length {
            filling.batch.buffer.truncate(start);
            filling.is_whole = false;
            return Ok(());
        }
        filling.batch.ranges.push(start..end);
        filling.batch.fingerprints.push(chunk.fingerprint);
        match end >= MESSAGE_BYTES {
            true => self.put(filling),
            false => Ok(()),
        }
    }

    /// Stores those bytes that have the names that they should have.
    fn put(&mut self, filling: &mut Filling) -> Result<()> {
        let mut batch = std::mem::take(&mut filling.batch);
        if batch.ranges.is_empty() {
            return Ok(());
        }
        let chunks: Vec<&[u8]> =
            batch.ranges.iter().map(|range| &batch.buffer[range.clone()]).collect();
        let mut names: Vec<Fingerprint> = Vec::new();
        self.stores.0.fingerprinter().data_batch(&chunks, &mut names);
        let (wanted, ranges) = (batch.fingerprints, batch.ranges);
        let count = wanted.len();
        let found = ranges.into_iter().zip(names).zip(wanted);
        let right = found.filter(|((_, name), wanted)| name == wanted);
        (batch.ranges, batch.fingerprints) = right.map(|(found, _)| found).unzip();
        if batch.ranges.len() < count {
            filling.is_whole = false;
            let other = Error::damaged("the copy holds other bytes than those that are missing");
            filling.reason.get_or_insert(other);
        }
        match batch.ranges.is_empty() {
            true => Ok(()),
            false => self.writer.put_data(batch, &mut drop).map(|_| ()),
        }
    }
}
