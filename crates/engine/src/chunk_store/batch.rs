//! Chunks of a stream that come together, as slices of one buffer.

use onefold_policy::stream::Batch;
use onefold_types::{Fingerprint, Result, invariant};
use std::ops::Range;

/// Chunks of a stream, in order, with the buffer that holds their bytes.
#[derive(Debug, Default)]
pub struct ChunkBatch {
    /// The bytes of all chunks, and whatever else is in the buffer.
    pub buffer: Vec<u8>,
    /// Where in the buffer each chunk lies.
    pub ranges: Vec<Range<usize>>,
    /// Their fingerprints.
    pub fingerprints: Vec<Fingerprint>,
    /// Of some, by their rising numbers, what stands in their places in an earlier version.
    pub corresponding: Vec<(u32, Fingerprint)>,
}

impl ChunkBatch {
    /// Fails unless each chunk has a fingerprint and lies in the buffer.
    pub fn expect_whole(&self) -> Result<()> {
        let (count, ranges) = (self.fingerprints.len(), self.ranges.len());
        invariant!(count == ranges, "a batch has chunks without a name or a place", count, ranges);
        let end = self.ranges.iter().map(|range| range.end).max();
        let bytes = self.buffer.len();
        invariant!(
            end.is_none_or(|end| end <= bytes),
            "a chunk ends behind its buffer",
            end,
            bytes
        );
        Ok(())
    }
}

impl Batch for ChunkBatch {
    type Payload = [u8];

    fn len(&self) -> usize {
        self.fingerprints.len()
    }

    fn weight(&self) -> usize {
        self.buffer.capacity()
    }

    fn fingerprint(&self, position: usize) -> &Fingerprint {
        &self.fingerprints[position]
    }

    fn size_bytes(&self, position: usize) -> u32 {
        u32::try_from(self.ranges[position].len()).unwrap_or(u32::MAX)
    }

    fn payload(&self, position: usize) -> &[u8] {
        &self.buffer[self.ranges[position].clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::ErrorKind;

    #[test]
    fn a_batch_without_names_or_bytes_is_a_defect() {
        let whole = || ChunkBatch {
            buffer: vec![1],
            ranges: vec![Range { start: 0, end: 1 }],
            fingerprints: vec![Fingerprint([1; 32])],
            corresponding: Vec::new(),
        };
        assert!(whole().expect_whole().is_ok());
        for wrong in [
            ChunkBatch { ranges: Vec::new(), ..whole() },
            ChunkBatch { buffer: Vec::new(), ..whole() },
        ] {
            assert_eq!(wrong.expect_whole().unwrap_err().kind(), ErrorKind::Bug);
        }
    }
}
