//! What a placement says about restoring a snapshot: containers, reads, speed factor.
//!
//! Source: FAST'19, section 1 (speed factor: MB restored for each container read), with the reads
//! that forward assembly over [`SPAN_BYTES`] of memory takes (S2.25), counted while the backup ran.
//!
//! [`SPAN_BYTES`]: onefold_policy::rewrite::SPAN_BYTES

use onefold_format::record::Summary;

/// A snapshot's restore at a glance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Overview {
    /// Bytes of all files.
    pub bytes: u64,
    /// Containers that hold its chunks.
    pub containers: u64,
    /// Reads of containers with [`SPAN_BYTES`] of memory.
    ///
    /// [`SPAN_BYTES`]: onefold_policy::rewrite::SPAN_BYTES
    pub container_reads: u64,
    /// Bytes that a restore opens at most, about: holes are not among them.
    opened_bytes: u64,
}

impl Overview {
    /// The overview of a snapshot; `None` if its placement was not recorded.
    #[must_use]
    pub fn of(summary: &Summary) -> Option<Self> {
        (summary.containers > 0).then_some(Self {
            bytes: summary.bytes,
            containers: summary.containers,
            container_reads: summary.container_reads.max(summary.containers),
            opened_bytes: opened_bytes(summary),
        })
    }

    /// Bytes that a restore opens, about, out of containers of this size: never more than is in
    /// all that it reads.
    #[must_use]
    pub fn opened_bytes(&self, container_size_bytes: usize) -> u64 {
        let read_bytes = self.container_reads.saturating_mul(container_size_bytes as u64);
        self.opened_bytes.min(read_bytes)
    }

    /// MB restored for each container read (S2.2).
    #[must_use]
    pub fn speed_factor(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.container_reads.max(1) as f64
    }
}

/// Bytes of all files, or of as many chunks of the usual length as there are if that is less: the
/// rest is holes. The chunks of files that were taken over unread were not counted.
fn opened_bytes(summary: &Summary) -> u64 {
    if summary.files_unchanged > 0 || summary.chunks_new == 0 {
        return summary.bytes;
    }
    let mean = u128::from(summary.bytes_new) * u128::from(summary.chunks);
    let chunks_bytes = mean.div_ceil(u128::from(summary.chunks_new));
    u64::try_from(chunks_bytes).unwrap_or(u64::MAX).min(summary.bytes)
}
