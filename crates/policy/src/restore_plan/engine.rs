//! Which engines there are, how a user names them, and with how much memory.

use onefold_types::{Error, Result};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Memory that an engine may be given, and recipe it may look ahead at.
pub const ENGINE_MEMORY_RANGE_BYTES: RangeInclusive<u64> = 1..=1 << 44;
/// What an engine has if nothing is said: eight containers of 4 MiB, as in FAST'19.
const MEMORY_DEFAULT_BYTES: u64 = 32 << 20;
/// The names, for messages.
const NAMES: &str =
    "container-cache, chunk-cache, forward, adaptive, optimal, optimal-chunks or direct";

/// How a restore decides what to read when, and with how much memory.
///
/// As text: the name, then what differs from the default, as in `forward,memory=64M,rolling` or
/// `adaptive,memory=32M,look-ahead=32M`. Bytes may end in K, M or G.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestoreEngine {
    /// `container-cache`: the containers used last stay in memory.
    ContainerCache {
        /// What the whole containers may take.
        memory_bytes: u64,
    },
    /// `chunk-cache`: the chunks used last stay in memory.
    ChunkCache {
        /// What the chunks may take.
        memory_bytes: u64,
    },
    /// `forward`: a stretch of the recipe is assembled at a time.
    ForwardAssembly {
        /// The length of the stretch.
        area_bytes: u64,
        /// The stretch moves on with every chunk that can be written, not only when it is full.
        rolling: bool,
    },
    /// `adaptive`: a stretch of the recipe is assembled, and chunks that are needed soon after it
    /// stay in memory.
    AdaptiveLookAhead {
        /// The stretch and the chunks behind it together; half of it each to begin with.
        memory_bytes: u64,
        /// How much of the recipe behind the stretch is looked at, to begin with.
        look_ahead_bytes: u64,
        /// Whether the division of the memory and the look-ahead follow the stream.
        adapts: bool,
    },
    /// `optimal`: as the container cache, but the container leaves that is needed last.
    Optimal {
        /// What the whole containers may take.
        memory_bytes: u64,
    },
    /// `optimal-chunks`: chunks that the recipe needs again stay in memory; the one that is needed
    /// last leaves.
    OptimalChunks {
        /// What the chunks may take.
        memory_bytes: u64,
    },
    /// `direct`: each container is read once, and what it serves is written wherever it belongs.
    Direct,
}

impl RestoreEngine {
    /// All engines with equal memory: the equal set-up of FAST'19, section 6.1, for eight
    /// containers' worth. Forward assembly has an area of that size, the adaptive engine half of
    /// it as area, half as cache, and looks as far ahead again; the others a cache of that size.
    #[must_use]
    pub fn with_memory(memory_bytes: u64) -> [Self; 8] {
        [
            Self::ContainerCache { memory_bytes },
            Self::ChunkCache { memory_bytes },
            Self::ForwardAssembly { area_bytes: memory_bytes, rolling: false },
            Self::ForwardAssembly { area_bytes: memory_bytes, rolling: true },
            Self::AdaptiveLookAhead { memory_bytes, look_ahead_bytes: memory_bytes, adapts: true },
            Self::Optimal { memory_bytes },
            Self::OptimalChunks { memory_bytes },
            Self::Direct,
        ]
    }

    /// The memory the engine was given; [`RestoreEngine::Direct`] needs none.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        match *self {
            Self::ContainerCache { memory_bytes }
            | Self::ChunkCache { memory_bytes }
            | Self::ForwardAssembly { area_bytes: memory_bytes, .. }
            | Self::AdaptiveLookAhead { memory_bytes, .. }
            | Self::Optimal { memory_bytes }
            | Self::OptimalChunks { memory_bytes } => memory_bytes,
            Self::Direct => 0,
        }
    }

    /// Whether the plan is made for an output that is written from its beginning to its end.
    #[must_use]
    pub fn is_sequential(&self) -> bool {
        *self != Self::Direct
    }

    /// The name without parameters.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ContainerCache { .. } => "container-cache",
            Self::ChunkCache { .. } => "chunk-cache",
            Self::ForwardAssembly { .. } => "forward",
            Self::AdaptiveLookAhead { .. } => "adaptive",
            Self::Optimal { .. } => "optimal",
            Self::OptimalChunks { .. } => "optimal-chunks",
            Self::Direct => "direct",
        }
    }

    /// Whether the parameters are within their ranges.
    ///
    /// # Errors
    /// One is not (`Invalid`); the message names the range.
    pub fn validate(&self) -> Result<()> {
        if self.is_sequential() {
            check("the memory of a restore engine", self.memory_bytes())?;
        }
        match *self {
            Self::AdaptiveLookAhead { look_ahead_bytes, .. } => {
                check("what a restore engine looks ahead at", look_ahead_bytes)
            }
            _ => Ok(()),
        }
    }

    /// The engine of that name with that memory.
    fn of_name(name: &str, memory_bytes: u64) -> Option<Self> {
        Self::with_memory(memory_bytes).into_iter().find(|engine| engine.name() == name)
    }

    /// Whether the engine can have the parameter, which is then set.
    fn set(&mut self, key: &str, value: Option<&str>) -> Result<bool> {
        match (self, key, value) {
            (Self::ForwardAssembly { rolling, .. }, "rolling", None) => *rolling = true,
            (Self::AdaptiveLookAhead { adapts, .. }, "fixed", None) => *adapts = false,
            (Self::AdaptiveLookAhead { look_ahead_bytes, .. }, "look-ahead", Some(text)) => {
                *look_ahead_bytes = parse_bytes(text)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Default for RestoreEngine {
    fn default() -> Self {
        Self::ForwardAssembly { area_bytes: MEMORY_DEFAULT_BYTES, rolling: true }
    }
}

impl fmt::Display for RestoreEngine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())?;
        if self.is_sequential() {
            write!(out, ",memory={}", Bytes(self.memory_bytes()))?;
        }
        match *self {
            Self::ForwardAssembly { rolling: true, .. } => out.write_str(",rolling"),
            Self::AdaptiveLookAhead { look_ahead_bytes, adapts, .. } => {
                write!(out, ",look-ahead={}", Bytes(look_ahead_bytes))?;
                out.write_str(if adapts { "" } else { ",fixed" })
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for RestoreEngine {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut words = text.split(',').map(str::trim);
        let name = words.next().unwrap_or_default();
        let parameters: Vec<(&str, Option<&str>)> = words
            .map(|word| {
                word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)))
            })
            .collect();
        let is_memory = |key: &str| key == "memory" && name != Self::Direct.name();
        let mut memory_bytes = MEMORY_DEFAULT_BYTES;
        for (_, value) in parameters.iter().filter(|(key, _)| is_memory(key)) {
            memory_bytes = parse_bytes(value.unwrap_or_default())?;
        }
        let Some(mut engine) = Self::of_name(name, memory_bytes) else {
            return Err(Error::invalid(format!(
                "there is no restore engine {name:?}; it must be {NAMES}"
            )));
        };
        for (key, value) in parameters.iter().filter(|(key, _)| !is_memory(key)) {
            if !engine.set(key, *value)? {
                return Err(Error::invalid(format!(
                    "{key:?} is no parameter of the restore engine {name}"
                )));
            }
        }
        engine.validate()?;
        Ok(engine)
    }
}

fn check(what: &str, bytes: u64) -> Result<()> {
    if ENGINE_MEMORY_RANGE_BYTES.contains(&bytes) {
        return Ok(());
    }
    let (least, most) = ENGINE_MEMORY_RANGE_BYTES.into_inner();
    Err(Error::invalid(format!("{what} is {bytes} bytes; it must be from {least} to {most}")))
}

/// Bytes in the greatest unit in which they are whole.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "G"), (20, "M"), (10, "K")];
        match units.into_iter().find(|(bits, _)| self.0 > 0 && self.0.is_multiple_of(1 << bits)) {
            Some((bits, unit)) => write!(out, "{}{unit}", self.0 >> bits),
            None => write!(out, "{}", self.0),
        }
    }
}

fn parse_bytes(text: &str) -> Result<u64> {
    let (digits, bits) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse().ok().and_then(|number: u64| number.checked_mul(1 << bits)).ok_or_else(|| {
        Error::invalid(format!("{text:?} is no number of bytes; write it as 33554432 or 32M"))
    })
}
