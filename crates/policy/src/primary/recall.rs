//! In which granules data comes back into a file that is written to: "recall granularity grows with
//! file size" (ATC'12, "write path to optimized file").
//!
//! A small granule costs little when it is recalled, and a bit for as long as the file is a stub.
//! So it is the least whose bits still fit, and never less than [`LOG2_MIN`].

use onefold_types::limits;

/// The logarithm of the smallest granule's bytes: about a chunk.
const LOG2_MIN: u8 = *limits::RECALL_GRANULE_LOG2.start();

/// The logarithm of the bytes in which data of a file of this size comes back.
#[must_use]
pub fn granule_log2(size: u64) -> u8 {
    let mut log2 = LOG2_MIN;
    while size.div_ceil(1 << log2) > limits::RECALL_GRANULES_MAX as u64 {
        log2 += 1;
    }
    log2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_grow_with_the_file() {
        const GIB: u64 = 1 << 30;
        for (size, bytes) in [
            (1, 64 << 10),
            (GIB, 64 << 10),
            (GIB + 1, 128 << 10),
            (10 * GIB, 1 << 20),
            (1024 * GIB, 64 << 20),
            (i64::MAX as u64, 1 << 49),
        ] {
            assert_eq!(1u64 << granule_log2(size), bytes, "{size}");
            assert!(size.div_ceil(bytes) <= limits::RECALL_GRANULES_MAX as u64);
        }
    }
}
