//! Aligned buffers for writes past the page cache, reused from write to write.
//!
//! A buffer is a vector longer by one alignment than needed, sliced where the aligned part begins:
//! no unsafe code. Vectors keep their place when they move, so the slice stays aligned.
//!
//! Concurrency: the pool is a list behind a lock; a buffer belongs to one writer at a time.

use std::sync::{Mutex, PoisonError};

/// Alignment of memory, offset and length. Larger than any sector in use, and a page.
pub(super) const ALIGNMENT_BYTES: usize = 4096;
/// The aligned part of one buffer.
pub(super) const BUFFER_BYTES: usize = 1 << 20;
/// Buffers kept while idle.
const IDLE_MAX: usize = 4;

/// Idle buffers.
#[derive(Default)]
pub(super) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// Runs `work` with an aligned slice of [`BUFFER_BYTES`] bytes of arbitrary content, or with
    /// none if this machine cannot align.
    pub(super) fn with<T>(&self, work: impl FnOnce(Option<&mut [u8]>) -> T) -> T {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = idle.unwrap_or_else(|| vec![0; BUFFER_BYTES + ALIGNMENT_BYTES]);
        let start = buffer.as_ptr().align_offset(ALIGNMENT_BYTES);
        let result = work(buffer.get_mut(start..start.saturating_add(BUFFER_BYTES)));
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(buffer);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_reused() {
        let pool = BufferPool::default();
        let address = |buffer: Option<&mut [u8]>| buffer.unwrap().as_ptr() as usize;
        let first = pool.with(address);
        assert_eq!(first % ALIGNMENT_BYTES, 0);
        assert_eq!(pool.with(address), first);
        let nested = pool.with(|_| pool.with(address));
        assert_ne!(nested, first);
        assert_eq!(nested % ALIGNMENT_BYTES, 0);
    }
}
