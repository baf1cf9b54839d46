//! Sequences of items in a file, each part of them verified before it is used.
//!
//! ```text
//! section  group, group, ...
//! group    u32 length of the payload, BLAKE3 of the payload (32), payload: whole items
//! ```
//!
//! A writer can take back what it wrote since it was last told that something is complete, so that
//! half a file never stands in a section that is read. A reader goes from item to item and may be
//! cloned where it stands.
//!
//! Concurrency: none; readers of one file may be on several threads.

use onefold_crypto::{Fingerprinter, HashKind};
use onefold_format::wire::{Reader as Wire, Writer as WireWriter};
use onefold_types::error::Context;
use onefold_types::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A group is closed when it has grown so long.
const GROUP_TARGET_BYTES: usize = 64 << 10;
/// The longest group: one of the target length that takes one more item.
const GROUP_MAX_BYTES: usize = 4 << 20;
const HEAD_BYTES: usize = 4 + 32;

/// The name of a payload.
fn digest(payload: &[u8]) -> [u8; 32] {
    Fingerprinter::new(HashKind::Blake3, None).data(payload).0
}

/// Appends items to a file.
pub struct SectionWriter {
    file: File,
    /// Where the next group goes.
    offset: u64,
    group: WireWriter,
    /// Where the last complete thing ends: the offset, and the bytes of the open group after it.
    complete: (u64, usize),
}

impl SectionWriter {
    /// Writes to a file, from here on.
    #[must_use]
    pub fn new(file: File, offset: u64) -> Self {
        Self { file, offset, group: WireWriter::new(), complete: (offset, 0) }
    }

    /// Where the next item goes; to be followed by [`SectionWriter::close_if_full`].
    pub fn item(&mut self) -> &mut WireWriter {
        &mut self.group
    }

    /// Ends the group if it is long.
    pub fn close_if_full(&mut self) -> Result<()> {
        if self.group.len() < GROUP_TARGET_BYTES {
            return Ok(());
        }
        let payload = std::mem::take(&mut self.group).into_bytes();
        // What is not complete goes into a group of its own, which can be taken back.
        let (before, since) = payload.split_at(match self.complete.0 == self.offset {
            true => self.complete.1.min(payload.len()),
            false => 0,
        });
        if !before.is_empty() {
            self.append(before)?;
            self.complete = (self.offset, 0);
        }
        self.append(since)
    }

    fn append(&mut self, payload: &[u8]) -> Result<()> {
        if payload.is_empty() {
            return Ok(());
        }
        let mut head = WireWriter::new();
        head.u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
        head.raw(&digest(payload));
        let bytes = [&head.into_bytes(), payload].concat();
        self.file.write_all_at(&bytes, self.offset).context(|| "writing the state")?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Says that what was written until now is complete.
    pub fn set_complete(&mut self) {
        self.complete = (self.offset, self.group.len());
    }

    /// Takes back what was written since.
    pub fn take_back(&mut self) {
        let group = std::mem::take(&mut self.group).into_bytes();
        if self.complete.0 == self.offset {
            self.group.raw(group.get(..self.complete.1).unwrap_or_default());
        }
        self.offset = self.complete.0;
        self.complete.1 = self.group.len();
    }

    /// Writes everything out; where it ends.
    pub fn flush(&mut self) -> Result<u64> {
        let payload = std::mem::take(&mut self.group).into_bytes();
        self.append(&payload)?;
        self.set_complete();
        Ok(self.offset)
    }

    /// A reader of what was written from `start` on and has been flushed.
    pub fn reader(&self, start: u64) -> Result<SectionReader> {
        let file = self.file.try_clone().context(|| "reading the state")?;
        Ok(SectionReader::new(Arc::new(file), start, self.offset))
    }
}

/// Reads items.
#[derive(Clone)]
pub struct SectionReader {
    file: Arc<File>,
    offset: u64,
    end: u64,
    group: Vec<u8>,
    /// Where in the group the next item begins.
    position: usize,
}

impl SectionReader {
    /// A reader of the groups between two offsets.
    #[must_use]
    pub fn new(file: Arc<File>, start: u64, end: u64) -> Self {
        Self { file, offset: start, end, group: Vec::new(), position: 0 }
    }

    /// The next item; `None` at the end.
    pub fn next<T>(
        &mut self,
        decode: impl FnOnce(&mut Wire<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.position >= self.group.len() && !self.load()? {
            return Ok(None);
        }
        let rest = self.group.get(self.position..).unwrap_or_default();
        let mut wire = Wire::new(rest, "an item of the state");
        let item = decode(&mut wire)?;
        self.position = self.group.len() - wire.remaining();
        Ok(Some(item))
    }

    /// Reads all groups, and fails if one is not as it was written.
    pub fn verify(&self) -> Result<()> {
        let mut again = Self::new(Arc::clone(&self.file), self.offset, self.end);
        while again.load()? {}
        Ok(())
    }

    fn load(&mut self) -> Result<bool> {
        if self.offset >= self.end {
            return Ok(false);
        }
        let damaged = || Error::damaged(format!("the group at byte {} is damaged", self.offset));
        let mut head = [0; HEAD_BYTES];
        let read = |bytes: &mut [u8], offset| match self.file.read_exact_at(bytes, offset) {
            Err(cause) if cause.kind() == std::io::ErrorKind::UnexpectedEof => Err(damaged()),
            other => other.context(|| "reading the state"),
        };
        read(&mut head, self.offset)?;
        let mut wire = Wire::new(&head, "the head of a group");
        let length = wire.u32()? as usize;
        let end = self.offset + (HEAD_BYTES + length) as u64;
        if length == 0 || length > GROUP_MAX_BYTES || end > self.end {
            return Err(damaged());
        }
        let mut group = vec![0; length];
        read(&mut group, self.offset + HEAD_BYTES as u64)?;
        if wire.raw(32)? != digest(&group) {
            return Err(damaged());
        }
        (self.group, self.position, self.offset) = (group, 0, end);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(wire: &mut Wire<'_>) -> Result<u64> {
        wire.varint()
    }

    fn all(mut reader: SectionReader) -> Vec<u64> {
        std::iter::from_fn(|| reader.next(number).unwrap()).collect()
    }

    #[test]
    fn what_is_not_complete_is_taken_back_wherever_groups_end() {
        for (whole, half) in [(10, 10), (10, 30_000), (30_000, 10), (70_000, 70_000), (0, 50_000)] {
            let mut writer = SectionWriter::new(tempfile::tempfile().unwrap(), 0);
            let mut put = |range: std::ops::Range<u64>, complete: bool| {
                for value in range {
                    writer.item().varint(value);
                    writer.close_if_full().unwrap();
                }
                match complete {
                    true => writer.set_complete(),
                    false => writer.take_back(),
                }
            };
            put(0..whole, true);
            put(1_000_000..1_000_000 + half, false);
            put(whole..whole + 5, true);
            writer.flush().unwrap();
            let expected: Vec<u64> = (0..whole + 5).collect();
            assert_eq!(all(writer.reader(0).unwrap()), expected, "{whole} {half}");
        }
    }

    #[test]
    fn any_byte_that_is_otherwise_is_found() {
        let mut writer = SectionWriter::new(tempfile::tempfile().unwrap(), 0);
        (0..50_000).for_each(|value| {
            writer.item().varint(value);
            writer.close_if_full().unwrap();
        });
        let end = writer.flush().unwrap();
        writer.reader(0).unwrap().verify().unwrap();
        for at in [0, 3, 4, 35, 36, end / 2, end - 1] {
            let mut byte = [0];
            writer.file.read_exact_at(&mut byte, at).unwrap();
            writer.file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert!(writer.reader(0).unwrap().verify().is_err(), "{at}");
            writer.file.write_all_at(&byte, at).unwrap();
        }
        let file = Arc::new(writer.file);
        assert!(SectionReader::new(file, 0, end + 1).verify().is_err());
    }
}
