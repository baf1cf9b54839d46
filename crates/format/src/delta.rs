//! Deltas: a chunk as the difference against other chunks.
//!
//! ```text
//! payload     = one zstd frame, compressed with this as a raw dictionary:
//! dictionary  = a zero byte, then the plain bytes of the bases, in their order
//! ```
//!
//! The zero keeps a base that begins as a trained zstd dictionary does from being taken for one.
//! The plain length stands in the metadata section. What a payload decodes to proves nothing: the
//! chunk's fingerprint is compared by whoever reads it.
//!
//! Invariants: decoding takes memory for the bases and the length that the section names, whatever
//! the payload says; equal bases, payload and length give equal bytes.
//!
//! Concurrency: a coder belongs to one thread.

use super::container::DELTA_DEPTH_MAX;
use onefold_types::{Error, Result, limits};
use std::fmt;
use std::str::FromStr;
use zstd::zstd_safe::{CCtx, DCtx, compress_bound};

/// The longest dictionary: the bases that a chunk may have, none longer than a chunk.
const DICTIONARY_MAX_BYTES: usize =
    1 + super::container::DELTA_BASES_MAX * limits::CHUNK_SIZE_MAX_BYTES;

/// Whether new chunks are stored as differences against others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeltaChoice {
    /// No.
    Off,
    /// Where it is worth it, with at most so many bases behind one another.
    Depth(u8),
}

impl Default for DeltaChoice {
    fn default() -> Self {
        Self::Depth(1)
    }
}

impl FromStr for DeltaChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "'{text}' says nothing about deltas: use off, on or depth=N with N from 1 to \
                 {DELTA_DEPTH_MAX}"
            ))
        };
        match text {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::default()),
            _ => {
                let depth = text.strip_prefix("depth=").and_then(|depth| depth.parse().ok());
                let depth = depth.filter(|depth| (1..=DELTA_DEPTH_MAX).contains(depth));
                depth.map(Self::Depth).ok_or_else(wrong)
            }
        }
    }
}

impl fmt::Display for DeltaChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Depth(1) => f.write_str("on"),
            Self::Depth(depth) => write!(f, "depth={depth}"),
        }
    }
}

/// Makes payloads; keeps its working memory.
pub struct DeltaEncoder {
    context: CCtx<'static>,
    level: i32,
    dictionary: Vec<u8>,
    scratch: Vec<u8>,
}

impl DeltaEncoder {
    /// An encoder at a level of zstd.
    #[must_use]
    pub fn new(level: i32) -> Self {
        let [dictionary, scratch] = [const { Vec::new() }; 2];
        Self { context: CCtx::create(), level, dictionary, scratch }
    }

    /// The payload of `chunk` against `bases`; `None` unless it is shorter than `below_bytes`.
    pub fn encode(&mut self, bases: &[&[u8]], chunk: &[u8], below_bytes: usize) -> Option<&[u8]> {
        fill(&mut self.dictionary, bases)?;
        let bound = compress_bound(chunk.len());
        if self.scratch.len() < bound {
            self.scratch.resize(bound, 0);
        }
        let Self { context, level, dictionary, scratch } = self;
        // What cannot be coded is stored as it is; nothing is lost by it.
        let written =
            context.compress_using_dict(scratch.as_mut_slice(), chunk, dictionary, *level).ok()?;
        (written < below_bytes.min(chunk.len())).then(|| &scratch[..written])
    }

    /// How long the chunk is, compressed alone: what a delta has to beat.
    pub fn alone_bytes(&mut self, chunk: &[u8]) -> usize {
        let bound = compress_bound(chunk.len());
        if self.scratch.len() < bound {
            self.scratch.resize(bound, 0);
        }
        let written = self.context.compress(self.scratch.as_mut_slice(), chunk, self.level);
        written.map_or(chunk.len(), |written| written.min(chunk.len()))
    }
}

/// Decodes payloads; keeps its working memory.
pub struct DeltaDecoder {
    context: DCtx<'static>,
    dictionary: Vec<u8>,
}

impl Default for DeltaDecoder {
    fn default() -> Self {
        Self { context: DCtx::create(), dictionary: Vec::new() }
    }
}

impl DeltaDecoder {
    /// Appends the `length` bytes to `plain` that `payload` makes of `bases`.
    ///
    /// # Errors
    /// `Damaged` if it makes anything else of them; `plain` is as it was then.
    pub fn decode(
        &mut self,
        bases: &[&[u8]],
        payload: &[u8],
        length: usize,
        plain: &mut Vec<u8>,
    ) -> Result<()> {
        let wrong = || Error::damaged("a delta does not decode to the length it should have");
        if length > limits::CHUNK_SIZE_MAX_BYTES || fill(&mut self.dictionary, bases).is_none() {
            return Err(wrong());
        }
        let start = plain.len();
        plain.resize(start + length, 0);
        let room = &mut plain[start..];
        let written = self.context.decompress_using_dict(room, payload, &self.dictionary);
        if written.ok() == Some(length) {
            return Ok(());
        }
        plain.truncate(start);
        Err(wrong())
    }
}

/// Puts the dictionary of some bases together; `None` if it would be longer than any may be.
fn fill(dictionary: &mut Vec<u8>, bases: &[&[u8]]) -> Option<()> {
    let bytes = bases.iter().try_fold(1usize, |sum, base| sum.checked_add(base.len()))?;
    if bytes > DICTIONARY_MAX_BYTES {
        return None;
    }
    dictionary.clear();
    dictionary.reserve(bytes);
    dictionary.push(0);
    bases.iter().for_each(|base| dictionary.extend_from_slice(base));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::{Randomness, SeededRandomness};

    fn noise(seed: u64, bytes: usize) -> Vec<u8> {
        let mut noise = vec![0; bytes];
        SeededRandomness::new(seed).fill(&mut noise);
        noise
    }

    /// The payload of `chunk`, which is decoded and compared.
    fn round_trip(bases: &[&[u8]], chunk: &[u8]) -> Option<usize> {
        let mut encoder = DeltaEncoder::new(1);
        let payload = encoder.encode(bases, chunk, usize::MAX)?.to_vec();
        let mut plain = b"before".to_vec();
        let mut decoder = DeltaDecoder::default();
        decoder.decode(bases, &payload, chunk.len(), &mut plain).unwrap();
        assert_eq!(&plain[6..], chunk);
        Some(payload.len())
    }

    #[test]
    fn what_bases_hold_takes_next_to_nothing() {
        let base = noise(1, 8000);
        let mut changed = base.clone();
        changed[4000] ^= 1;
        changed.splice(100..100, *b"something");
        let other = noise(2, 8000);
        assert!(round_trip(&[&base], &changed).unwrap() < 200);
        assert!(round_trip(&[&other, &base], &changed).unwrap() < 200);
        assert_eq!(round_trip(&[&other], &changed), None, "no shorter than the chunk");
        let six: Vec<Vec<u8>> = (10..16).map(|seed| noise(seed, 1000)).collect();
        let bases: Vec<&[u8]> = six.iter().map(Vec::as_slice).collect();
        assert!(round_trip(&bases, &bases.concat()).unwrap() < 200);
    }

    #[test]
    fn only_payloads_that_are_short_enough_are_given() {
        let base = noise(1, 8000);
        let mut encoder = DeltaEncoder::new(1);
        let length = encoder.encode(&[&base], &base, usize::MAX).unwrap().len();
        assert!(encoder.encode(&[&base], &base, length).is_none());
        assert!(encoder.encode(&[&base], &base, length + 1).is_some());
        assert_eq!(encoder.alone_bytes(&base), 8000);
        assert!(encoder.alone_bytes(&[7; 8000]) < 50);
    }

    #[test]
    fn a_base_that_looks_like_a_trained_dictionary_is_none() {
        let mut base = noise(1, 8000);
        base[..4].copy_from_slice(&0xEC30_A437_u32.to_le_bytes());
        assert!(round_trip(&[&base], &base).unwrap() < 100);
    }

    #[test]
    fn lengths_that_lie_other_bases_and_garbage_are_damage() {
        let base = noise(1, 8000);
        let mut encoder = DeltaEncoder::new(1);
        let payload = encoder.encode(&[&base], &base, usize::MAX).unwrap().to_vec();
        let mut decoder = DeltaDecoder::default();
        let mut plain = b"kept".to_vec();
        for length in [0, 1, 7999, 8001, limits::CHUNK_SIZE_MAX_BYTES + 1, usize::MAX] {
            assert!(decoder.decode(&[&base], &payload, length, &mut plain).is_err(), "{length}");
            assert_eq!(plain, b"kept");
        }
        assert!(decoder.decode(&[], &payload, 8000, &mut plain).is_err());
        assert!(decoder.decode(&[&base], &payload[..5], 8000, &mut plain).is_err());
        for at in 0..payload.len() {
            let mut other = payload.clone();
            other[at] ^= 0x55;
            // Other bytes of the right length may come of it: the fingerprint tells.
            let _ = decoder.decode(&[&base], &other, 8000, &mut plain);
            plain.truncate(4);
        }
        // The longest bases that there may be, and one byte more.
        let long = vec![1; limits::CHUNK_SIZE_MAX_BYTES];
        let six = [&long[..]; super::super::container::DELTA_BASES_MAX];
        assert!(encoder.encode(&six, &base, usize::MAX).is_none(), "noise");
        assert!(round_trip(&six, &long).is_some());
        let more = [&six[..], &[&[1][..]]].concat();
        assert!(encoder.encode(&more, &long, usize::MAX).is_none());
        assert!(decoder.decode(&more, &payload, 8000, &mut plain).is_err());
        decoder.decode(&[&base], &payload, 8000, &mut plain).unwrap();
        assert_eq!(plain[4..], base);
    }
}
