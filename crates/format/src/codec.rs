//! Frame compression.
//!
//! | code | codec |
//! | --- | --- |
//! | 0 | raw: the plain bytes |
//! | 1 | zstd, no dictionary, plain size known from the frame table |
//! | 2 | lz4 block, plain size known from the frame table |
//!
//! A frame that compression would shrink by less than 3 % is stored raw: decoding it later would
//! cost more than the bytes are worth.

use onefold_types::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;
use zstd::zstd_safe::{CParameter, Strategy};

/// How a frame's bytes are coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Codec {
    /// As they are.
    Raw,
    /// Zstandard.
    Zstd,
    /// LZ4.
    Lz4,
}

impl Codec {
    /// The code in the frame table.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Zstd => 1,
            Self::Lz4 => 2,
        }
    }

    /// The codec of a code.
    pub fn from_code(code: u8) -> Result<Self> {
        match code {
            0 => Ok(Self::Raw),
            1 => Ok(Self::Zstd),
            2 => Ok(Self::Lz4),
            _ => Err(Error::new(
                ErrorKind::NewerFormat,
                format!("compression {code} is not known; use a newer version of onefold"),
            )),
        }
    }
}

/// What to compress new frames with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// Store all frames raw.
    None,
    /// Zstandard at a level from -7 to 22.
    Zstd(i32),
    /// The same, but for frames of which a look says that they are not worth it. Who makes frames
    /// looks; a store's configuration never says so (see [`Compression::of_store`]).
    SelectiveZstd(i32),
    /// LZ4.
    Lz4,
}

impl Default for Compression {
    /// The measured default (docs/decisions/0005-compression.md).
    fn default() -> Self {
        Self::Zstd(2)
    }
}

impl Compression {
    /// What a store's configuration says: to be selective is for whoever makes frames, and older
    /// versions would not know the name.
    #[must_use]
    pub fn of_store(self) -> Self {
        match self {
            Self::SelectiveZstd(level) => Self::Zstd(level),
            other => other,
        }
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!(
                "'{text}' is not a compression: use none, lz4, zstd, zstd,LEVEL or \
                 zstd,LEVEL,selective with LEVEL from -7 to 22"
            ))
        };
        match text.split_once(',') {
            None if text == "none" => Ok(Self::None),
            None if text == "lz4" => Ok(Self::Lz4),
            None if text == "zstd" => Ok(Self::default()),
            Some(("zstd", rest)) => {
                let (level, is_selective) = match rest.strip_suffix(",selective") {
                    Some(level) => (level, true),
                    None => (rest, false),
                };
                let level = level.parse().map_err(|_| wrong())?;
                match ((-7..=22).contains(&level), is_selective) {
                    (true, false) => Ok(Self::Zstd(level)),
                    (true, true) => Ok(Self::SelectiveZstd(level)),
                    (false, _) => Err(wrong()),
                }
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd(level) => write!(f, "zstd,{level}"),
            Self::SelectiveZstd(level) => write!(f, "zstd,{level},selective"),
        }
    }
}

/// What level 2 is taken to be, whatever the length of a frame; other levels are zstd's own.
///
/// zstd looks for matches another way in frames of up to 128 KiB than in longer ones, and ours,
/// with and without deltas in them, lie on both sides of that. The way for longer ones, with tables
/// twice as large, takes 0.1 to 0.2 % fewer bytes of both in no more time, and none is set up anew
/// where a long frame follows a short one (docs/decisions/0051-less-work-per-byte.md).
fn tables(level: i32) -> &'static [CParameter] {
    match level {
        2 => &[
            CParameter::Strategy(Strategy::ZSTD_dfast),
            CParameter::HashLog(15),
            CParameter::ChainLog(14),
            CParameter::MinMatch(5),
        ],
        _ => &[],
    }
}

/// Compresses frames; keeps its working memory from frame to frame.
pub struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl Compressor {
    /// A compressor for `compression`.
    pub fn new(compression: Compression) -> Result<Self> {
        let zstd = match compression {
            Compression::Zstd(level) | Compression::SelectiveZstd(level) => {
                let mut zstd = zstd::bulk::Compressor::new(level)
                    .map_err(|cause| Error::io("setting up compression", cause))?;
                // The sizes stand in the frame table and the seal is the checksum.
                let plain = [CParameter::ContentSizeFlag(false), CParameter::ChecksumFlag(false)];
                for parameter in plain.iter().chain(tables(level)) {
                    zstd.set_parameter(*parameter)
                        .map_err(|cause| Error::io("setting up compression", cause))?;
                }
                Some(zstd)
            }
            Compression::None | Compression::Lz4 => None,
        };
        Ok(Self { compression, zstd })
    }

    /// Replaces `coded` by the coded form of `plain` and says which codec it took. A buffer that is
    /// used again costs neither clearing nor copying: it has room for the longest form, and is
    /// written to directly.
    pub fn compress(&mut self, plain: &[u8], coded: &mut Vec<u8>) -> Result<Codec> {
        let worth_bytes = plain.len() - plain.len() / 32;
        let codec = match (&self.compression, &mut self.zstd) {
            (Compression::Zstd(_) | Compression::SelectiveZstd(_), Some(zstd)) => {
                coded.clear();
                coded.reserve(zstd::zstd_safe::compress_bound(plain.len()));
                zstd.compress_to_buffer(plain, coded)
                    .map_err(|cause| Error::io("compressing a frame", cause))?;
                Codec::Zstd
            }
            (Compression::Lz4, _) => {
                // What it is longer than before is cleared: this coder writes to slices only.
                coded.resize(lz4_flex::block::get_maximum_output_size(plain.len()), 0);
                let written = lz4_flex::block::compress_into(plain, coded)
                    .map_err(|error| Error::invalid(format!("compressing a frame: {error}")))?;
                coded.truncate(written);
                Codec::Lz4
            }
            _ => Codec::Raw,
        };
        if codec == Codec::Raw || coded.len() >= worth_bytes {
            coded.clear();
            coded.extend_from_slice(plain);
            return Ok(Codec::Raw);
        }
        Ok(codec)
    }
}

/// Decompresses frames; keeps its working memory from frame to frame.
pub struct Decompressor {
    zstd: zstd::bulk::Decompressor<'static>,
}

impl Decompressor {
    /// A decompressor for all codecs.
    pub fn new() -> Result<Self> {
        let zstd = zstd::bulk::Decompressor::new()
            .map_err(|cause| Error::io("setting up decompression", cause))?;
        Ok(Self { zstd })
    }

    /// Replaces `plain` by the `plain_length` bytes that `coded` stands for.
    pub fn decompress(
        &mut self,
        codec: Codec,
        coded: &[u8],
        plain_length: usize,
        plain: &mut Vec<u8>,
    ) -> Result<()> {
        let written = match codec {
            Codec::Raw if coded.len() == plain_length => {
                plain.clear();
                plain.extend_from_slice(coded);
                Some(plain_length)
            }
            Codec::Raw => None,
            // Straight into memory that was never cleared. What has room for more than the length
            // may be given more, which is refused like less.
            Codec::Zstd => {
                plain.clear();
                plain.reserve(plain_length);
                self.zstd.decompress_to_buffer(coded, plain).ok()
            }
            Codec::Lz4 => {
                plain.resize(plain_length, 0);
                lz4_flex::block::decompress_into(coded, plain.as_mut_slice()).ok()
            }
        };
        if written == Some(plain_length) {
            Ok(())
        } else {
            Err(Error::damaged("a compressed frame does not decode to the length it should have"))
        }
    }
}

/// The `plain_length` bytes that `coded` stands for: for what is read one at a time. Each thread
/// sets its decompressor up once, which takes longer than decoding a short section does.
pub fn decompress_alone(codec: Codec, coded: &[u8], plain_length: usize) -> Result<Vec<u8>> {
    thread_local! {
        static KEPT: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
    }
    KEPT.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new()?),
        };
        let mut plain = Vec::new();
        decompressor.decompress(codec, coded, plain_length, &mut plain)?;
        Ok(plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onefold_types::environment::{Randomness, SeededRandomness};

    #[test]
    fn r40_every_codec_round_trips_at_size_boundaries() {
        let kinds = ["none", "lz4", "zstd,-7", "zstd,1", "zstd", "zstd,22"];
        let mut decompressor = Decompressor::new().unwrap();
        for kind in kinds {
            let compression: Compression = kind.parse().unwrap();
            let mut compressor = Compressor::new(compression).unwrap();
            for length in [0, 1, 2, 15, 31, 32, 33, 255, 256, 4095, 65_535, 65_536, 262_145] {
                let mut random = vec![0; length];
                SeededRandomness::new(length as u64).fill(&mut random);
                let text: Vec<u8> = (0..length).map(|n| (n / 7 % 23) as u8).collect();
                for plain in [vec![0; length], text, random] {
                    let mut coded = b"of another frame".to_vec();
                    let codec = compressor.compress(&plain, &mut coded).unwrap();
                    let mut decoded = vec![1; 3];
                    decompressor.decompress(codec, &coded, plain.len(), &mut decoded).unwrap();
                    assert_eq!(decoded, plain, "{kind} {length}");
                    assert!(coded.len() <= plain.len());
                }
            }
        }
    }

    #[test]
    fn what_does_not_shrink_is_stored_raw() {
        let mut random = vec![0; 10_000];
        SeededRandomness::new(1).fill(&mut random);
        let mut coded = Vec::new();
        let mut compressor = Compressor::new(Compression::Zstd(1)).unwrap();
        assert_eq!(compressor.compress(&random, &mut coded).unwrap(), Codec::Raw);
        coded.clear();
        assert_eq!(compressor.compress(&[7; 10_000], &mut coded).unwrap(), Codec::Zstd);
        assert!(coded.len() < 100);
    }

    #[test]
    fn wrong_lengths_and_garbage_are_damage() {
        let mut coded = Vec::new();
        Compressor::new(Compression::Zstd(1)).unwrap().compress(&[7; 1000], &mut coded).unwrap();
        let mut decompressor = Decompressor::new().unwrap();
        let mut plain = Vec::new();
        for (codec, bytes, length) in [
            (Codec::Zstd, &coded[..], 999),
            (Codec::Zstd, &coded[..], 1001),
            (Codec::Zstd, &coded[1..], 1000),
            (Codec::Lz4, &coded[..], 1000),
            (Codec::Raw, &coded[..], 1000),
        ] {
            assert!(decompressor.decompress(codec, bytes, length, &mut plain).is_err());
        }
    }

    #[test]
    fn impossible_levels_are_refused() {
        let others = ["zstd,selective", "zstd,23,selective", "lz4,selective", "zstd,2,selective,"];
        for text in ["zstd,23", "zstd,-8", "zstd,", "gzip", "", "lz4,3"].into_iter().chain(others) {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
        assert_eq!("zstd,19".parse::<Compression>().unwrap().to_string(), "zstd,19");
        let selective: Compression = "zstd,9,selective".parse().unwrap();
        assert_eq!(selective, Compression::SelectiveZstd(9));
        let of_store = selective.of_store().to_string();
        assert_eq!((selective.to_string(), of_store), ("zstd,9,selective".into(), "zstd,9".into()));
    }
}
