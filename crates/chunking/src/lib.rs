//! Where a stream is cut into chunks.
//!
//! A chunker looks at bytes and names a length; it does no input or output, holds no state between
//! chunks and starts no thread. The [`Segmenter`] drives one over a stream that arrives in pieces
//! of any size, and takes out what must not reach a chunker: long runs of zeros (holes) and, on
//! request, the headers of a tar archive.
//!
//! | module | cuts | source |
//! | --- | --- | --- |
//! | [`fixed`] | every n bytes | S0.1, S1.40 |
//! | [`rabin`] | where a rolling Rabin fingerprint shows a pattern | LBFS, SOSP'01; S1.3 |
//! | [`regression`] | the same, with weaker patterns in reserve | ATC'12; S4.7-S4.10 |
//! | [`fastcdc`] | where a gear hash is small, stricter below the average | FastCDC, ATC'16 |
//! | [`mincdc`] | at the smallest hash between minimum and maximum | MinCDC (Orson Peters) |
//! | [`segmenter`] | streams: holes, segments, chunks | |
//! | [`tar`] | archives into headers and files | POSIX pax, GNU tar |
//!
//! # Invariants
//!
//! - A boundary depends only on the bytes from the start of its chunk, the parameters and the
//!   secret: never on how the stream arrived, the machine, or the vector unit found at run time.
//! - Every chunk is 1..=`size_max_bytes` long; only the last chunk of a run is shorter than
//!   `size_min_bytes`.
//! - Boundaries are part of the stored format: another boundary is no damage, but costs all
//!   deduplication against older snapshots. `tests/golden.rs` freezes them.
//!
//! # What chunk sizes tell
//!
//! An encrypted store hides what chunks hold, not that they exist. Who sees the sizes of chunks
//! can recognise files that he knows, because the sequence of their sizes is a fingerprint; who can
//! also have files of his choice stored can solve for the parameters of every keyed chunker here
//! ("Chunking Attacks on File Backup Services using Content-Defined Chunking", ia.cr/2025/532,
//! shows it for several programs). A secret given to [`ChunkerParameters::build`] makes the sizes
//! of a known file unpredictable to one who has seen no other sizes. It is **no proof of
//! security**: the Rabin polynomial and pattern are linear algebra, the gear table is 256 sums, and
//! the multiplier and addend of MinCDC are about 60 bits behind one affine map, all of which
//! chosen files reveal. Fixed chunks cannot be keyed at all. Hole and tar boundaries are not keyed
//! either. The engine must therefore not show chunk sizes to the storage side: it packs
//! chunks into compressed, sealed containers, so that sizes are read by key holders only. The
//! secret itself passes through BLAKE3 first, so that parameters, once solved for, yield neither
//! it nor the parameters of another chunker.

mod build;
pub mod fastcdc;
pub mod fixed;
mod key;
pub mod mincdc;
pub mod parameters;
mod polynomial;
pub mod rabin;
pub mod regression;
pub mod segmenter;
pub mod tar;

pub use parameters::{ChunkerKind, ChunkerParameters};
pub use segmenter::{HOLE_BLOCK_BYTES, Piece, Segmenter};
pub use tar::{Segment, TarScanner};

/// A chunker decides where a chunk ends. Pure: depends only on the bytes from the chunk's start.
pub trait Chunker: Send + Sync {
    /// Length of the first chunk of `window`.
    ///
    /// `window` starts at a chunk boundary and holds either at least
    /// [`size_max_bytes`](Self::size_max_bytes) bytes or everything up to the end of the stream;
    /// it is never empty. Returns `1..=min(window.len(), size_max_bytes())`.
    fn cut(&self, window: &[u8]) -> usize;

    /// No chunk is longer.
    fn size_max_bytes(&self) -> usize;

    /// No chunk but the last of a run is shorter.
    fn size_min_bytes(&self) -> usize;

    /// The mean size on random data, nearly.
    fn size_avg_bytes(&self) -> usize;
}
