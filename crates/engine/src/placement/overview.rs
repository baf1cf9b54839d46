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
}

impl Overview {
    /// The overview of a snapshot; `None` if its placement was not recorded.
    #[must_use]
    pub fn of(summary: &Summary) -> Option<Self> {
        (summary.containers > 0).then_some(Self {
            bytes: summary.bytes,
            containers: summary.containers,
            container_reads: summary.container_reads.max(summary.containers),
        })
    }

    /// MB restored for each container read (S2.2).
    #[must_use]
    pub fn speed_factor(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.container_reads.max(1) as f64
    }
}
