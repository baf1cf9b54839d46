//! What stands in memory for some pages of a run: one of the filters of [`onefold_policy`].
//!
//! Invariant: a piece never denies an entry of its pages. A filter that could not be made, and a
//! piece that could not be read, know nothing and deny nothing.

use onefold_format::index_run::{Entry, IndexKind, Piece};
use onefold_policy::fuse_filter::{FuseFilter, FuseParameters};
use onefold_policy::signature_table::{SignatureParameters, SignatureTable};
use onefold_policy::summary_vector::{
    BITS_PER_KEY_DEFAULT, HASHES_DEFAULT, SummaryParameters, SummaryVector,
};
use onefold_types::{Error, Result};

/// A piece in memory.
pub enum LoadedPiece {
    /// Nothing is known.
    Nothing,
    /// The summary vector of S1.12.
    Bloom(SummaryVector),
    /// The static filter.
    Fuse(FuseFilter),
    /// The table of S4.14.
    Signatures(SignatureTable),
}

impl LoadedPiece {
    /// The piece for these entries, which rise, of a run with this many containers.
    pub fn build(kind: IndexKind, entries: &[Entry], containers: u32) -> Result<Self> {
        Ok(match kind {
            IndexKind::Bloom => {
                let keys = entries.len() as u64;
                let (bits, hashes) = (BITS_PER_KEY_DEFAULT, HASHES_DEFAULT);
                let mut vector = SummaryVector::with_capacity(keys, bits, hashes)?;
                entries.iter().for_each(|entry| vector.insert(entry.prefix));
                Self::Bloom(vector)
            }
            IndexKind::Fuse => Self::filter(entries.iter().map(|entry| entry.prefix).collect()),
            // Pages say what is wrong with such an entry.
            IndexKind::Signature if entries.iter().any(|one| one.container >= containers) => {
                Self::Nothing
            }
            IndexKind::Signature => {
                let entries: Vec<(u64, u32)> =
                    entries.iter().map(|entry| (entry.prefix, entry.container)).collect();
                SignatureTable::build(&entries, containers).map_or(Self::Nothing, Self::Signatures)
            }
        })
    }

    /// The static filter of these prefixes, which rise.
    #[must_use]
    pub fn filter(mut prefixes: Vec<u64>) -> Self {
        prefixes.dedup();
        FuseFilter::build(&prefixes).map_or(Self::Nothing, Self::Fuse)
    }

    /// Appends the plain form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nothing => Piece::Nothing.encode(out),
            Self::Bloom(vector) => {
                let words: Vec<[u8; 8]> =
                    vector.words().iter().map(|word| word.to_le_bytes()).collect();
                let hashes = vector.parameters().hashes as u8;
                Piece::Bloom { hashes, words: &words }.encode(out);
            }
            Self::Fuse(filter) => {
                let FuseParameters { seed, segment_cells, first_cells } = filter.parameters();
                let cells = filter.cells();
                Piece::Fuse { seed, segment_cells, first_cells, cells }.encode(out);
            }
            Self::Signatures(table) => {
                let SignatureParameters { seed, buckets, ordinal_bits } = table.parameters();
                let cells = table.cells();
                Piece::Signature { seed, buckets, ordinal_bits, cells }.encode(out);
            }
        }
    }

    /// Reads the plain form of a piece of a run with this many containers.
    pub fn decode(bytes: &[u8], containers: u32) -> Result<Self> {
        Ok(match Piece::decode(bytes)? {
            Piece::Nothing => Self::Nothing,
            Piece::Bloom { hashes, words } => {
                let parameters =
                    SummaryParameters { words: words.len() as u64, hashes: u32::from(hashes) };
                let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
                Self::Bloom(SummaryVector::from_words(parameters, words)?)
            }
            Piece::Fuse { seed, segment_cells, first_cells, cells } => {
                let parameters = FuseParameters { seed, segment_cells, first_cells };
                Self::Fuse(FuseFilter::from_cells(parameters, cells)?)
            }
            Piece::Signature { seed, buckets, ordinal_bits, cells } => {
                let parameters = SignatureParameters { seed, buckets, ordinal_bits };
                let table = SignatureTable::from_cells(parameters, cells)?;
                if !table.names_only_ordinals_below(containers) {
                    return Err(Error::damaged("a signature leads to no container"));
                }
                Self::Signatures(table)
            }
        })
    }

    /// Memory taken, in bytes.
    #[must_use]
    pub fn bytes_used(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Bloom(vector) => vector.bytes_used(),
            Self::Fuse(filter) => filter.bytes_used(),
            Self::Signatures(table) => table.bytes_used(),
        }
    }

    /// Whether the pages may hold the prefix; `false` is certain.
    #[must_use]
    pub fn contains(&self, prefix: u64) -> bool {
        match self {
            Self::Nothing => true,
            Self::Bloom(vector) => vector.contains(prefix),
            Self::Fuse(filter) => filter.contains(prefix),
            Self::Signatures(table) => table.contains(prefix),
        }
    }
}
