//! Compares a file that is there with what a snapshot says, chunk by chunk.
//!
//! Extents are taken in batches of neighbours; the file is read once per batch and all its chunks
//! are hashed together. What differs, or lies beyond the file's end, is what must be written. Of a
//! hole only what is data in the file is read.

use crate::job::Interrupt;
use crate::tree::{ExtentWalk, TreeReader};
use onefold_crypto::Fingerprinter;
use onefold_format::node::Extent;
use onefold_types::error::Context;
use onefold_types::{Error, Fingerprint, Result, limits};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const BATCH_BYTES: u64 = limits::MIB as u64;
const BATCH_EXTENTS: usize = 512;

/// The extents in which a file differs from a recipe.
pub struct Comparison {
    walk: ExtentWalk,
    file: Arc<File>,
    file_size: u64,
    fingerprinter: Arc<Fingerprinter>,
    differing: VecDeque<(u64, Extent)>,
    equal_bytes: u64,
    /// What was found equal and not taken yet.
    equal: Vec<Range<u64>>,
    ended: bool,
    buffer: Vec<u8>,
}

impl Comparison {
    /// Compares `file`, which is `file_size` bytes long, with what `walk` yields.
    #[must_use]
    pub fn new(
        walk: ExtentWalk,
        file: Arc<File>,
        file_size: u64,
        fingerprinter: &Arc<Fingerprinter>,
    ) -> Self {
        Self {
            walk,
            file,
            file_size,
            fingerprinter: Arc::clone(fingerprinter),
            differing: VecDeque::new(),
            equal_bytes: 0,
            equal: Vec::new(),
            ended: false,
            buffer: Vec::new(),
        }
    }

    /// The next extent that differs.
    pub fn next(&mut self, reader: &TreeReader) -> Result<Option<(u64, Extent)>> {
        while self.differing.is_empty() && !self.ended {
            self.compare_batch(reader)?;
        }
        Ok(self.differing.pop_front())
    }

    /// Whether anything differs; compares as much as it takes to know that.
    pub fn differs(&mut self, reader: &TreeReader, interrupt: &Interrupt) -> Result<bool> {
        while self.differing.is_empty() && !self.ended {
            interrupt.check()?;
            self.compare_batch(reader)?;
        }
        Ok(!self.differing.is_empty())
    }

    /// The file, and what was found equal in it since this was asked last.
    pub fn take_equal(&mut self) -> (&File, Vec<Range<u64>>) {
        (&self.file, std::mem::take(&mut self.equal))
    }

    fn note_equal(&mut self, offset: u64, length: u64) {
        match self.equal.last_mut() {
            Some(last) if last.end == offset => last.end += length,
            _ => self.equal.push(offset..offset + length),
        }
    }

    /// Bytes that were compared, and are as they are to be.
    #[must_use]
    pub fn equal_bytes(&self) -> u64 {
        self.equal_bytes
    }

    fn compare_batch(&mut self, reader: &TreeReader) -> Result<()> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES && batch.len() < BATCH_EXTENTS {
            let Some((offset, extent)) = self.walk.next(reader)? else {
                self.ended = true;
                break;
            };
            if extent.is_hole() {
                self.compare_hole(offset, extent)?;
                // Keeps what differs in the order of the file.
                break;
            }
            if extent.length > limits::CHUNK_SIZE_MAX_BYTES as u64
                || offset + extent.length > self.file_size
            {
                self.differing.push_back((offset, extent));
                break;
            }
            bytes += extent.length;
            batch.push((offset, extent));
        }
        let later = std::mem::take(&mut self.differing);
        self.compare_chunks(&batch, bytes as usize)?;
        self.differing.extend(later);
        Ok(())
    }

    fn compare_chunks(&mut self, batch: &[(u64, Extent)], bytes: usize) -> Result<()> {
        let Some((start, _)) = batch.first() else {
            return Ok(());
        };
        self.buffer.resize(bytes, 0);
        let read = self.file.read_exact_at(&mut self.buffer, *start);
        match read {
            Ok(()) => {}
            // It was cut since it was looked at.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                self.differing.extend(batch);
                return Ok(());
            }
            Err(error) => return Err(error).context(|| "reading the file that is there"),
        }
        let chunks: Vec<&[u8]> = batch
            .iter()
            .map(|(offset, extent)| {
                let from = (offset - start) as usize;
                &self.buffer[from..from + extent.length as usize]
            })
            .collect();
        let mut computed: Vec<Fingerprint> = Vec::with_capacity(chunks.len());
        self.fingerprinter.data_batch(&chunks, &mut computed);
        for ((offset, extent), computed) in batch.iter().zip(computed) {
            match extent.fingerprint == computed {
                true => {
                    self.equal_bytes += extent.length;
                    self.note_equal(*offset, extent.length);
                }
                false => self.differing.push_back((*offset, *extent)),
            }
        }
        Ok(())
    }

    /// A hole differs if any byte of it is not zero, or lies beyond the file's end.
    fn compare_hole(&mut self, offset: u64, extent: Extent) -> Result<()> {
        let end = offset + extent.length;
        if end > self.file_size {
            self.differing.push_back((offset, extent));
            return Ok(());
        }
        let mut position = self.data_from(offset)?;
        while position < end {
            let length = (end - position).min(BATCH_BYTES);
            self.buffer.resize(length as usize, 0);
            let read = self.file.read_at(&mut self.buffer, position);
            let read = read.context(|| "reading the file that is there")?;
            if read == 0 || self.buffer[..read].iter().any(|byte| *byte != 0) {
                self.differing.push_back((offset, extent));
                return Ok(());
            }
            position = self.data_from(position + read as u64)?;
        }
        self.equal_bytes += extent.length;
        self.note_equal(offset, extent.length);
        Ok(())
    }

    /// Where the next data from `position` on begin: what lies before is a hole, which nobody need
    /// read. A file system that does not know of holes has data everywhere.
    fn data_from(&self, position: u64) -> Result<u64> {
        match rustix::fs::seek(&*self.file, SeekFrom::Data(position)) {
            Ok(data) => Ok(data),
            // There are none up to the end of the file.
            Err(Errno::NXIO) => Ok(u64::MAX),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(position),
            Err(errno) => Err(Error::io("looking for holes in what is there", errno.into())),
        }
    }
}

/// What is to be written of a file.
pub enum Wanted {
    /// Everything.
    All(ExtentWalk),
    /// What differs.
    Differing(Comparison),
}

impl Wanted {
    /// The next extent to be written.
    pub fn next(&mut self, reader: &TreeReader) -> Result<Option<(u64, Extent)>> {
        match self {
            Self::All(walk) => walk.next(reader),
            Self::Differing(comparison) => comparison.next(reader),
        }
    }

    /// What stays the same of a file that is there ([`Comparison::take_equal`]).
    pub fn take_equal(&mut self) -> Option<(&File, Vec<Range<u64>>)> {
        match self {
            Self::All(_) => None,
            Self::Differing(comparison) => Some(comparison.take_equal()),
        }
    }

    /// Bytes of the file that need not be written.
    #[must_use]
    pub fn equal_bytes(&self) -> u64 {
        match self {
            Self::All(_) => 0,
            Self::Differing(comparison) => comparison.equal_bytes(),
        }
    }
}
