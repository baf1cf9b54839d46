//! A frame that was read, and what of it was verified.
//!
//! Programs read a file in pieces that do not end where chunks do, several of them at once, and
//! each piece begins with the chunk that the last one ended in. A frame remembers which of its
//! chunks were found to be what they are named by, so that each is hashed once as long as the
//! frame is kept.
//!
//! # Invariants
//! A chunk counts as verified under the whole descriptor that it was verified by: another name, or
//! another place in the frame, is hashed again. No more than `VERIFIED_MAX` are remembered.
//!
//! # Concurrency
//! Shared by threads; one lock, held for moments. Two that verify the same chunk at the same time
//! both do.

use crate::container::verify;
use onefold_crypto::Fingerprinter;
use onefold_format::container::ChunkDescriptor;
use onefold_types::Result;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Chunks that are remembered; what is beyond them is verified as often as it is read.
pub const VERIFIED_MAX: usize = 64;

/// The plain bytes of a frame, authentic.
pub struct ReadFrame {
    bytes: Vec<u8>,
    verified: Mutex<Vec<ChunkDescriptor>>,
}

impl ReadFrame {
    /// A frame that has just been opened.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, verified: Mutex::default() }
    }

    /// Its plain bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its memory, for another one.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// What it takes, without what is remembered of it: 56 bytes for a chunk.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    fn verified(&self) -> MutexGuard<'_, Vec<ChunkDescriptor>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Verifies those of some chunks that were not yet, all together, which costs a fraction of
    /// doing it one by one.
    ///
    /// Errors: `Damaged` if one of them is not what it is named by.
    pub fn verify(&self, chunks: &[ChunkDescriptor], fingerprinter: &Fingerprinter) -> Result<()> {
        let unknown: Vec<ChunkDescriptor> = {
            let verified = self.verified();
            chunks.iter().filter(|chunk| !verified.contains(chunk)).copied().collect()
        };
        match &unknown[..] {
            [] => return Ok(()),
            [one] => verify::chunk(&self.bytes, one, fingerprinter).map(|_| ())?,
            _ => verify::all(&self.bytes, unknown.iter().copied(), fingerprinter)?,
        }
        let mut verified = self.verified();
        let room = VERIFIED_MAX.saturating_sub(verified.len());
        verified.extend(unknown.into_iter().take(room));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_crypto::HashKind;
    use onefold_types::Level;

    /// A frame of chunks of one byte each, and one more of them than are remembered.
    fn frame(fingerprinter: &Fingerprinter) -> (ReadFrame, Vec<ChunkDescriptor>) {
        let bytes: Vec<u8> = (0..=VERIFIED_MAX as u8).collect();
        let described = bytes.iter().enumerate().map(|(number, byte)| ChunkDescriptor {
            fingerprint: fingerprinter.data(&[*byte]),
            length: 1,
            level: Level::DATA,
            frame: 0,
            offset: number as u32,
            payload_length: 1,
        });
        let chunks = described.collect();
        (ReadFrame::new(bytes), chunks)
    }

    #[test]
    fn a_frame_remembers_what_was_verified_up_to_its_bound() {
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, None);
        let (mut frame, chunks) = frame(&fingerprinter);
        frame.verify(&chunks, &fingerprinter).unwrap();
        assert_eq!(frame.verified().len(), VERIFIED_MAX);
        // Only what is not remembered is looked at again.
        frame.bytes.fill(255);
        frame.verify(&chunks[..VERIFIED_MAX], &fingerprinter).unwrap();
        assert!(frame.verify(&chunks, &fingerprinter).is_err());
    }

    #[test]
    fn what_was_verified_under_one_name_is_not_under_another() {
        let fingerprinter = Fingerprinter::new(HashKind::Blake3, None);
        let (frame, chunks) = frame(&fingerprinter);
        frame.verify(&chunks[..2], &fingerprinter).unwrap();
        let other_name = ChunkDescriptor { fingerprint: chunks[1].fingerprint, ..chunks[0] };
        assert!(frame.verify(&[other_name], &fingerprinter).is_err());
        let other_place = ChunkDescriptor { offset: 1, ..chunks[0] };
        assert!(frame.verify(&[chunks[1], other_place], &fingerprinter).is_err());
        assert_eq!(frame.verified().len(), 2);
    }
}
