//! The driver: cuts a stream into chunks and holes, however it arrives.
//!
//! A stream consists of segments: one that never ends, or, for a tar archive on request, those of
//! [`TarScanner`]. A block of 64 KiB, aligned to the start of its segment, that holds zeros only is
//! a hole. Chunks fill what lies between: each maximal run of bytes, from a segment's start or a
//! hole's end to the next hole or segment's end, is chunked for itself. Because holes align
//! to segments, a file in an archive and the file itself give the same pieces.
//!
//! Invariants:
//!
//! - The pieces depend on the bytes of the stream, never on how [`Segmenter::advance`] was fed.
//! - No piece crosses a segment's end, and no data piece holds a hole block.
//! - [`Segmenter::window_bytes`] visible bytes always suffice to go on: a chunk may reach the
//!   maximum size, and whether a block that begins inside it is a hole takes 64 KiB more.

use crate::{Chunker, Segment, TarScanner};

/// Size and alignment of holes.
pub const HOLE_BLOCK_BYTES: usize = 64 * 1024;

/// Part of a stream; pieces come in stream order and leave nothing out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// A chunk.
    Data {
        /// Its length in bytes.
        length: usize,
    },
    /// Zeros, a whole number of hole blocks; neighbouring holes are not merged.
    Hole {
        /// Its length in bytes.
        length: usize,
    },
}

/// What follows the run of bytes that is being chunked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    /// No hole begins between the position and here; both counted from the segment's start.
    clear: u64,
    /// Whether a hole begins at `clear`.
    hole: bool,
}

/// Cuts one stream into pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segmenter {
    scanner: Option<TarScanner>,
    /// Bytes in the current segment; `u64::MAX` if it ends with the stream.
    segment_bytes: u64,
    /// Bytes of the segment that have been cut off.
    position: u64,
    run: Run,
}

impl Segmenter {
    /// A segmenter at the start of a stream; `tar_aware` looks for a tar archive.
    #[must_use]
    pub fn new(tar_aware: bool) -> Self {
        Self {
            scanner: tar_aware.then(TarScanner::new),
            segment_bytes: if tar_aware { 0 } else { u64::MAX },
            position: 0,
            run: Run { clear: 0, hole: false },
        }
    }

    /// The buffer size with which [`advance`](Self::advance) always makes progress.
    #[must_use]
    pub fn window_bytes(chunker: &dyn Chunker) -> usize {
        chunker.size_max_bytes().max(HOLE_BLOCK_BYTES) + HOLE_BLOCK_BYTES
    }

    /// Cuts as many pieces as can be decided off `buffer`.
    ///
    /// `buffer` holds the bytes of the stream that have not been consumed yet; `end` says that
    /// nothing follows them. Calls `emit` for each piece in order and returns the number of bytes
    /// consumed, which is the sum of their lengths; at the end of the stream that is all of
    /// `buffer`. The chunker must be the same in all calls for one stream.
    pub fn advance(
        &mut self,
        chunker: &dyn Chunker,
        buffer: &[u8],
        end: bool,
        emit: &mut dyn FnMut(Piece),
    ) -> usize {
        let mut rest = buffer;
        while !rest.is_empty() {
            let Some(piece) = self.next_piece(chunker, rest, end) else {
                break;
            };
            let (Piece::Data { length } | Piece::Hole { length }) = piece;
            self.position = self.position.saturating_add(length as u64);
            rest = rest.get(length..).unwrap_or_default();
            emit(piece);
        }
        buffer.len() - rest.len()
    }

    /// Cuts hole blocks off zeros that follow what was consumed and were not shown; returns how
    /// many bytes that are. None if what comes before is not decided, or a segment may end in them.
    pub fn skip(&mut self, zero_bytes: u64) -> u64 {
        let is_decided = self.run == Run { clear: self.position, hole: false };
        if !is_decided || self.segment_bytes != u64::MAX {
            return 0;
        }
        let length = zero_bytes - zero_bytes % HOLE_BLOCK_BYTES as u64;
        self.position = self.position.saturating_add(length);
        self.run.clear = self.position;
        length
    }

    /// The piece that `rest`, which is not empty, begins with; `None` if more must be visible.
    fn next_piece(&mut self, chunker: &dyn Chunker, rest: &[u8], end: bool) -> Option<Piece> {
        if self.position == self.segment_bytes {
            self.begin_segment(rest, end)?;
        }
        self.look_ahead(chunker.size_max_bytes(), rest, end)?;
        if self.run.hole && self.run.clear == self.position {
            self.run = Run { clear: self.position + HOLE_BLOCK_BYTES as u64, hole: false };
            return Some(Piece::Hole { length: HOLE_BLOCK_BYTES });
        }
        let run_end = if self.run.hole { self.run.clear } else { self.segment_bytes };
        let run_bytes = usize::try_from(run_end - self.position).unwrap_or(usize::MAX);
        let wanted = run_bytes.min(chunker.size_max_bytes());
        let window = match rest.get(..wanted) {
            Some(window) => window,
            None if end => rest,
            None => return None,
        };
        // A chunker that breaks its promise must not stop the stream or leave the buffer.
        let length = chunker.cut(window).clamp(1, window.len());
        Some(Piece::Data { length })
    }

    fn begin_segment(&mut self, rest: &[u8], end: bool) -> Option<()> {
        let segment = match &mut self.scanner {
            Some(scanner) => scanner.next(rest, end)?,
            None => Segment::Rest,
        };
        self.segment_bytes = match segment {
            Segment::Structure { length } => length as u64,
            Segment::File { length } => length,
            Segment::Rest => u64::MAX,
        };
        self.position = 0;
        self.run = Run { clear: 0, hole: false };
        Some(())
    }

    /// Finds out whether a hole begins in the next `reach` bytes; `None` if more must be visible.
    fn look_ahead(&mut self, reach: usize, rest: &[u8], end: bool) -> Option<()> {
        let block = HOLE_BLOCK_BYTES as u64;
        let target = self.position.saturating_add(reach as u64).min(self.segment_bytes);
        while !self.run.hole && self.run.clear < target {
            // A block that the segment cuts short is none.
            if self.segment_bytes - self.run.clear >= block {
                // Less than `reach`, so it is a usize.
                let from = (self.run.clear - self.position) as usize;
                let visible = rest.get(from..).unwrap_or_default();
                let visible = visible.get(..HOLE_BLOCK_BYTES).unwrap_or(visible);
                if is_zero(visible) {
                    self.run.hole = visible.len() == HOLE_BLOCK_BYTES;
                    if !self.run.hole && !end {
                        return None;
                    }
                }
            }
            if !self.run.hole {
                self.run.clear = self.run.clear.saturating_add(block);
            }
        }
        Some(())
    }
}

/// Whether every byte is zero. Most data fails on the first word; the rest is read in strides that
/// compile to vector instructions.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    const STRIDE_BYTES: usize = 256;
    if let Some(first) = bytes.first_chunk::<8>()
        && u64::from_le_bytes(*first) != 0
    {
        return false;
    }
    let (strides, rest) = bytes.as_chunks::<STRIDE_BYTES>();
    let any = |part: &[u8]| part.iter().fold(0, |sum, byte| sum | byte) != 0;
    !strides.iter().any(|stride| any(stride)) && !any(rest)
}

#[cfg(test)]
mod tests {
    use super::is_zero;

    #[test]
    fn one_bit_anywhere_is_found() {
        for length in [0, 1, 7, 8, 9, 255, 256, 257, 1000] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes));
            for index in 0..length {
                bytes[index] = 0x80;
                assert!(!is_zero(&bytes), "{length} {index}");
                bytes[index] = 0;
            }
        }
    }
}
