//! The fingerprint: the name of a chunk, derived from its plaintext.
//!
//! Width is 32 bytes whatever the hash: SHA-1 fingerprints (20 bytes, the papers' own) are padded
//! with zeros. A fingerprint is never shortened where identity is decided; index pages keep only
//! its first eight bytes because every index answer is checked against a container's descriptors.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Bytes in a fingerprint.
pub const FINGERPRINT_BYTES: usize = 32;

/// The name of a chunk: a keyed hash of its plaintext.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// The all-zero value. No hash yields it in practice; file maps use it to mark a hole.
    pub const ZERO: Fingerprint = Fingerprint([0; FINGERPRINT_BYTES]);

    /// The first 128 bits: enough to tell names apart in memory. Nobody brings two equal ones about
    /// with less than 2^64 trials.
    #[must_use]
    pub fn half(&self) -> u128 {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = self.0;
        u128::from_le_bytes([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
    }

    /// The first eight bytes as a big-endian number, so that numeric order equals byte order.
    ///
    /// Index runs are sorted by this prefix and summary vectors take their hash bits from it.
    #[must_use]
    pub fn prefix(&self) -> u64 {
        let b = &self.0;
        (u64::from(b[0]) << 56)
            | (u64::from(b[1]) << 48)
            | (u64::from(b[2]) << 40)
            | (u64::from(b[3]) << 32)
            | (u64::from(b[4]) << 24)
            | (u64::from(b[5]) << 16)
            | (u64::from(b[6]) << 8)
            | u64::from(b[7])
    }

    /// Whether this is the hole marker.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::ids::write_hex(f, &self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::ids::write_hex(f, &self.0[..6])
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        crate::ids::parse_hex(text)
            .map(Self)
            .ok_or_else(|| Error::invalid(format!("'{text}' is not a fingerprint")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_order_is_byte_order() {
        let mut low = Fingerprint::ZERO;
        let mut high = Fingerprint::ZERO;
        low.0[7] = 0xff;
        high.0[0] = 1;
        assert!(low < high);
        assert!(low.prefix() < high.prefix());
        assert_eq!(low.prefix(), 0xff);
        assert_eq!(high.prefix(), 1 << 56);
    }

    #[test]
    fn display_is_whole_and_debug_is_short() {
        let mut fingerprint = Fingerprint::ZERO;
        fingerprint.0[0] = 0xab;
        assert_eq!(fingerprint.to_string().len(), 64);
        assert_eq!(fingerprint.to_string().parse::<Fingerprint>().unwrap(), fingerprint);
        assert_eq!(format!("{fingerprint:?}"), "ab0000000000");
    }
}
