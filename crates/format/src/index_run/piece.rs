//! The plain form of a piece: what stands in memory for some pages of a run.
//!
//! ```text
//! u8 form
//!   0  nothing: every prefix may be there
//!   1  summary vector: u8 hashes, then its words (u64 each)
//!   2  binary fuse filter: u64 seed, u32 cells of a segment, u32 cells in which a first cell may
//!      lie, then the cells (one byte each)
//!   3  signature table: u64 seed, u32 buckets, u8 bits of an ordinal, then the slots
//! ```
//!
//! Whether the parameters fit is checked by those who use them; nothing is allocated here.

use crate::wire::{Reader, Writer};
use onefold_types::{Error, ErrorKind, Result};

const NOTHING: u8 = 0;
const BLOOM: u8 = 1;
const FUSE: u8 = 2;
const SIGNATURE: u8 = 3;

/// A piece, over the bytes of its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// Nothing is known: every prefix may be there.
    Nothing,
    /// A summary vector.
    Bloom {
        /// Bits that each key sets.
        hashes: u8,
        /// The words.
        words: &'a [[u8; 8]],
    },
    /// A binary fuse filter.
    Fuse {
        /// What keys are mixed with.
        seed: u64,
        /// Cells of a segment.
        segment_cells: u32,
        /// Cells in which a key's first cell may lie.
        first_cells: u32,
        /// All cells.
        cells: &'a [u8],
    },
    /// A signature table.
    Signature {
        /// What keys are mixed with.
        seed: u64,
        /// Buckets.
        buckets: u32,
        /// Bits of an ordinal.
        ordinal_bits: u8,
        /// All slots.
        cells: &'a [u8],
    },
}

impl<'a> Piece<'a> {
    /// Appends the plain form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new();
        let body: &[u8] = match self {
            Self::Nothing => {
                writer.u8(NOTHING);
                &[]
            }
            Self::Bloom { hashes, words } => {
                writer.u8(BLOOM);
                writer.u8(*hashes);
                words.as_flattened()
            }
            Self::Fuse { seed, segment_cells, first_cells, cells } => {
                writer.u8(FUSE);
                writer.u64(*seed);
                writer.u32(*segment_cells);
                writer.u32(*first_cells);
                cells
            }
            Self::Signature { seed, buckets, ordinal_bits, cells } => {
                writer.u8(SIGNATURE);
                writer.u64(*seed);
                writer.u32(*buckets);
                writer.u8(*ordinal_bits);
                cells
            }
        };
        out.extend_from_slice(&writer.into_bytes());
        out.extend_from_slice(body);
    }

    /// Reads the plain form.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "index piece");
        let piece = match reader.u8()? {
            NOTHING => Self::Nothing,
            BLOOM => {
                let hashes = reader.u8()?;
                let (words, rest) = reader.raw(reader.remaining())?.as_chunks();
                if !rest.is_empty() {
                    return Err(reader.damaged("a word is cut short"));
                }
                Self::Bloom { hashes, words }
            }
            FUSE => Self::Fuse {
                seed: reader.u64()?,
                segment_cells: reader.u32()?,
                first_cells: reader.u32()?,
                cells: reader.raw(reader.remaining())?,
            },
            SIGNATURE => Self::Signature {
                seed: reader.u64()?,
                buckets: reader.u32()?,
                ordinal_bits: reader.u8()?,
                cells: reader.raw(reader.remaining())?,
            },
            form => {
                let message = format!("a piece has the form {form}; use a newer onefold");
                return Err(Error::new(ErrorKind::NewerFormat, message));
            }
        };
        reader.finish()?;
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_round_trip_and_bad_ones_are_refused() {
        let pieces = [
            Piece::Nothing,
            Piece::Bloom { hashes: 4, words: &[[1; 8], [2; 8]] },
            Piece::Fuse { seed: 9, segment_cells: 4, first_cells: 4, cells: &[7; 12] },
            Piece::Signature { seed: 1, buckets: 1, ordinal_bits: 3, cells: &[5; 18] },
        ];
        for piece in pieces {
            let mut bytes = Vec::new();
            piece.encode(&mut bytes);
            assert_eq!(Piece::decode(&bytes).unwrap(), piece);
        }
        let kind = |bytes: &[u8]| Piece::decode(bytes).unwrap_err().kind();
        assert_eq!(kind(&[]), ErrorKind::Damaged);
        assert_eq!(kind(&[NOTHING, 0]), ErrorKind::Damaged);
        assert_eq!(kind(&[BLOOM, 4, 0]), ErrorKind::Damaged);
        assert_eq!(kind(&[FUSE, 0, 0]), ErrorKind::Damaged);
        assert_eq!(kind(&[SIGNATURE]), ErrorKind::Damaged);
        assert_eq!(kind(&[4]), ErrorKind::NewerFormat);
    }

    proptest! {
        #[test]
        fn decoders_survive_anything(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(piece) = Piece::decode(&bytes) {
                let mut again = Vec::new();
                piece.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
