//! Fixed-size chunks: a boundary every n bytes (S0.1, and Venti in S1.40).
//!
//! The fastest chunker, and the right one for disk images and data bases that are changed in place
//! in aligned blocks. An insertion moves every later boundary. The content has no say, so there is
//! nothing to key.

use crate::Chunker;

/// Cuts every `size_bytes`.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    size_bytes: usize,
}

impl Fixed {
    pub(crate) fn new(size_bytes: usize) -> Self {
        Self { size_bytes }
    }
}

impl Chunker for Fixed {
    fn cut(&self, window: &[u8]) -> usize {
        window.len().min(self.size_bytes)
    }

    fn size_max_bytes(&self) -> usize {
        self.size_bytes
    }

    fn size_min_bytes(&self) -> usize {
        self.size_bytes
    }

    fn size_avg_bytes(&self) -> usize {
        self.size_bytes
    }
}
