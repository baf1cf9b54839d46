//! Names of stored objects: 16 random bytes each, written as 32 hexadecimal digits.
//!
//! Invariant: a name is drawn fresh for every object and never used twice (protocol, section 2);
//! late writes and deletes of a stalled process can therefore never hit another object.

use crate::environment::Randomness;
use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// Bytes in an object name.
pub const ID_BYTES: usize = 16;

pub(crate) fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for byte in bytes {
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

pub(crate) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        // Upper-case digits are refused, so that every name has exactly one spelling.
        let digit = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $noun:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; ID_BYTES]);

        impl $name {
            /// A fresh random name.
            #[must_use]
            pub fn random(randomness: &dyn Randomness) -> Self {
                let mut bytes = [0; ID_BYTES];
                randomness.fill(&mut bytes);
                Self(bytes)
            }

            /// The first eight hexadecimal digits, as shown to people.
            #[must_use]
            pub fn short(&self) -> String {
                self.to_string()[..8].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.short())
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                parse_hex(text).map(Self).ok_or_else(|| {
                    Error::new(
                        ErrorKind::Invalid,
                        format!(concat!("'{}' is not the name of a ", $noun), text),
                    )
                })
            }
        }
    };
}

id!(
    /// Names a container, uniquely over the life of the store (FAST'08, section 3.3).
    ContainerId,
    "container"
);
id!(
    /// Names a session; a committed session is the snapshot of the same name.
    SessionId,
    "snapshot"
);
id!(
    /// Names a reversible mark on a snapshot.
    MarkId,
    "mark"
);
id!(
    /// Names a doubt about what snapshots rely on.
    DoubtId,
    "doubt"
);
id!(
    /// Names a checkpoint of what was decided.
    CheckpointId,
    "checkpoint"
);
id!(
    /// Names an index run.
    RunId,
    "run"
);
id!(
    /// Names a collector's plan.
    PlanId,
    "plan"
);
id!(
    /// Names a store.
    StoreId,
    "store"
);
id!(
    /// Names a share: a directory whose files are deduplicated where they are.
    ShareId,
    "share"
);
id!(
    /// Names a key slot.
    KeyId,
    "key"
);

/// A fresh name whose order is the order of creation: six bytes of milliseconds, ten random.
fn ordered(now_ns: i64, randomness: &dyn Randomness) -> [u8; ID_BYTES] {
    let mut bytes = [0; ID_BYTES];
    randomness.fill(&mut bytes);
    let milliseconds = (now_ns.max(0) as u64) / 1_000_000;
    for (byte, shift) in bytes.iter_mut().zip([40, 32, 24, 16, 8, 0]) {
        *byte = (milliseconds >> shift) as u8;
    }
    bytes
}

impl CheckpointId {
    /// A fresh name whose order is the order of creation: the newest is read first, which spares
    /// reading what it replaces. Nothing else rests on the clock.
    #[must_use]
    pub fn ordered(now_ns: i64, randomness: &dyn Randomness) -> Self {
        Self(ordered(now_ns, randomness))
    }
}

impl ContainerId {
    /// A fresh name whose order is the order of creation: six bytes of milliseconds, ten random.
    ///
    /// Among several instances of a chunk the newest is preferred (FAST'17, section 3.2). Only
    /// preference rests on the clock; uniqueness and safety rest on the random part.
    #[must_use]
    pub fn ordered(now_ns: i64, randomness: &dyn Randomness) -> Self {
        Self(ordered(now_ns, randomness))
    }

    /// When the container was named, in milliseconds since 1970, by its writer's clock.
    #[must_use]
    pub fn created_ms(&self) -> i64 {
        self.0.iter().take(6).fold(0, |sum, byte| sum << 8 | i64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::SeededRandomness;

    #[test]
    fn container_names_sort_by_creation() {
        let randomness = SeededRandomness::new(1);
        let at = |milliseconds: i64| ContainerId::ordered(milliseconds * 1_000_000, &randomness);
        assert!(at(1) < at(2) && at(2) < at(1 << 40));
        assert_ne!(at(5), at(5));
    }

    #[test]
    fn names_round_trip_through_text() {
        let randomness = SeededRandomness::new(7);
        let id = ContainerId::random(&randomness);
        assert_eq!(id.to_string().parse::<ContainerId>().unwrap(), id);
        assert_ne!(id, ContainerId::random(&randomness));
        assert_eq!(id.short().len(), 8);
    }

    #[test]
    fn malformed_names_are_refused() {
        for text in ["", "abc", &"g".repeat(32), &"A".repeat(32), &"0".repeat(33)] {
            assert!(text.parse::<SessionId>().is_err(), "{text:?}");
        }
    }
}
