//! How a new store is made: single choices, and presets that make them all.
//!
//! A preset is a point on one line: CPU time of backups against stored bytes, as measured beside
//! other tools (docs/decisions/0050-presets.md). What it chooses is written into the store's
//! configuration choice by choice; its own name is not.

use onefold_chunking::{ChunkerKind, ChunkerParameters};
use onefold_crypto::{HashKind, KdfCost, Suite};
use onefold_format::codec::Compression;
use onefold_format::delta::DeltaChoice;
use onefold_types::{Error, Result, limits};
use std::fmt;
use std::str::FromStr;

/// What a store is to be good at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Preset {
    /// Little CPU time: chunks are stored whole.
    Fast,
    /// Much is saved for little CPU time.
    #[default]
    Default,
    /// Little room, for twice the CPU time.
    Small,
}

/// What a preset chooses.
struct Choices {
    chunk_bytes: usize,
    compression: Compression,
    delta: DeltaChoice,
}

impl Preset {
    /// All, by rising CPU time.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Default, Self::Small];

    fn choices(self) -> Choices {
        let (chunk_kib, level, delta) = match self {
            Self::Fast => (16, 1, DeltaChoice::Off),
            Self::Default => (32, 2, DeltaChoice::default()),
            Self::Small => (32, 9, DeltaChoice::default()),
        };
        let compression = Compression::Zstd(level);
        Choices { chunk_bytes: chunk_kib * limits::KIB, compression, delta }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Default => "default",
            Self::Small => "small",
        })
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|preset| preset.to_string() == text);
        named.ok_or_else(|| Error::invalid(format!("'{text}' is not one of fast, default, small")))
    }
}

/// How a new store is made.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// The sealing suite.
    pub suite: Suite,
    /// The fingerprint hash.
    pub hash: HashKind,
    /// How streams are cut.
    pub chunker: ChunkerParameters,
    /// Whether archives are cut at their members.
    pub tar_aware: bool,
    /// What frames are compressed with.
    pub compression: Compression,
    /// Whether new chunks are stored as differences.
    pub delta: DeltaChoice,
    /// Stored bytes after which a container is closed.
    pub container_size_bytes: usize,
    /// What deriving a key from a password costs.
    pub kdf_cost: KdfCost,
    /// Whom the first key slot belongs to.
    pub key_label: String,
}

impl InitOptions {
    /// The measured defaults.
    pub fn standard() -> Result<Self> {
        Self::of(Preset::Default)
    }

    /// The same with chunks of another average, cut by content.
    ///
    /// # Errors
    /// No chunker cuts such.
    pub fn with_chunks_of(self, size_avg_bytes: usize) -> Result<Self> {
        let chunker = ChunkerParameters::with_average(ChunkerKind::MinCdc, size_avg_bytes)?;
        Ok(Self { chunker, ..self })
    }

    /// A store as a preset has it.
    pub fn of(preset: Preset) -> Result<Self> {
        let preset = preset.choices();
        Ok(Self {
            suite: Suite::Aes256Gcm,
            hash: HashKind::Blake3,
            chunker: ChunkerParameters::with_average(ChunkerKind::MinCdc, preset.chunk_bytes)?,
            tar_aware: true,
            compression: preset.compression,
            delta: preset.delta,
            container_size_bytes: limits::CONTAINER_TARGET_BYTES,
            kdf_cost: KdfCost::default(),
            key_label: String::new(),
        })
    }
}
